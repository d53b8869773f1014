"""Two faults at once: one of the operands, and behind it another one, of the results.

    subnormal operands taken as zero, and truncation       a vector without subnormals shows the truncation alone

Where the first fault changes no operand, the second alone has to explain the dump. So it is looked for there, and only
then with changed operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from emu.errors import EmuError
from emu.formats import Fixed, Float, Format
from emu.testing.hard import negated
from emu.testing.vectors.causes.hypothesis import Family, Hypothesis, like
from emu.testing.vectors.definition import answered
from emu.testing.vectors.description import NAMES, Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask

#: Pairs of faults, at most, that are computed.
MOST_PAIRS = 24
Change = tuple[str, tuple[Codes, ...], tuple[Format, ...]]


def composed(e: Evidence, families: Sequence[Family], given: Codes) -> Iterator[Hypothesis]:
    """Yield the codes of a fault of operands with one of results, if the dump does not contradict the pair.

    Args:
        e: the vectors.
        families: faults of results.
        given: the dump's codes, (count,).
    """
    # units of products have families of their own (`units.py`, `lanes.py`)
    if e.is_product_sum or e.description.is_stochastic:
        return
    # computed once with the operands as they are: where the first fault changes none, the pair writes these codes
    second: list[tuple[str, Codes, Family]] = [
        (name, codes, family) for family in families for name, codes in family(e)
    ]
    wrong = given != e.results
    computed = 0
    for name, operands, formats in _changes(e):
        touched = _touched(e, operands, formats)
        apart = ~touched
        # each that explains all where the operands are as they were, and something there
        fits = [
            (other, family) for other, codes, family in second
            if np.array_equal(codes[apart], given[apart]) and (wrong & apart).any()
        ]  # fmt: skip
        if not fits or not touched.any():
            continue
        changed = _evidence(e, operands, formats)
        if changed is None:
            continue
        for other, family in fits:
            if computed >= MOST_PAIRS:
                return
            computed += 1
            # a hypothesis is known by its name alone: its family runs again, with the changed operands
            yield from ((f"{name}, and {other}", codes) for own, codes in family(changed) if own == other)


def _evidence(e: Evidence, operands: tuple[Codes, ...], formats: tuple[Format, ...]) -> Evidence | None:
    """Return the evidence for other operands, with the results that are right for them; None if it is impossible."""
    d = e.description
    try:
        description = like(d, formats=tuple(map(str, formats))) if formats != d.operand_formats else d
        return Evidence(answered(description, operands, e.vectors.rbits))
    except EmuError:  # there is no such format
        return None


def _touched(e: Evidence, operands: tuple[Codes, ...], formats: tuple[Format, ...]) -> Mask:
    """Return where some operand has another value."""
    touched = np.zeros(e.results.shape, bool)
    before = zip(e.description.operand_formats, e.vectors.operands, strict=True)
    for (fmt, codes), (other, changed) in zip(before, zip(formats, operands, strict=True), strict=True):
        x, y = fmt.decode(codes), other.decode(changed)
        # `decode` keeps subnormals, arithmetic takes them for 0
        if isinstance(other, Float) and other.daz:
            y = np.where(np.abs(y) < other.smallest_normal, np.copysign(0.0, y), y)
        # NaN is unequal to itself, and -0 equal to +0: both are told apart by hand
        touched |= (x != y) & ~(np.isnan(x) & np.isnan(y)) | (np.signbit(x) != np.signbit(y))
    return touched


def _changes(e: Evidence) -> Iterator[Change]:
    """Yield faults of operands: their names, codes and formats."""
    operands, formats = e.vectors.operands, e.description.operand_formats
    each = [(f"operand {NAMES[i]}", [i]) for i in range(len(operands))]
    for whose, some in ([("operands", [*range(len(operands))])] if len(operands) > 1 else []) + each:
        for name, change in _OF_OPERAND.items():
            codes, read = list(operands), list(formats)
            for i in some:
                # None: this operand has no such fault, and stays
                if (changed := change(formats[i], operands[i])) is not None:
                    codes[i], read[i] = changed
            yield f"{name} of {whose}" if " of " not in name else f"{name} {whose}", tuple(codes), tuple(read)


def _subnormals(fmt: Format, codes: Codes) -> tuple[Codes, Format] | None:
    if not (isinstance(fmt, Float) and fmt.has_subnormal_codes and fmt.has_normals) or fmt.daz:
        return None
    return codes, replace(fmt, daz=True)


def _sign(fmt: Format, codes: Codes) -> tuple[Codes, Format] | None:
    return (codes & ~np.uint64(fmt.sign_code), fmt) if isinstance(fmt, Float) and fmt.signed else None


def _other_sign(fmt: Format, codes: Codes) -> tuple[Codes, Format] | None:
    return (negated(fmt, codes), fmt) if fmt.signed else None


def _last_bit(fmt: Format, codes: Codes) -> tuple[Codes, Format] | None:
    finite = np.isfinite(fmt.decode(codes).astype(np.float64))
    return np.where(finite, codes & ~np.uint64(1), codes), fmt


def _unsigned(fmt: Format, codes: Codes) -> tuple[Codes, Format] | None:
    return (codes, replace(fmt, signed=not fmt.signed, sign_magnitude=False)) if isinstance(fmt, Fixed) else None


def _lowest(fmt: Format, codes: Codes) -> tuple[Codes, Format] | None:
    """Read the lowest word, -2**(w - 1), as 2**(w - 1): a negation in w bits gives the same word for both."""
    if not isinstance(fmt, Fixed) or not fmt.signed or fmt.sign_magnitude or fmt.width_bits > 32:
        return None
    wide = Fixed(fmt.width_bits + 1, fmt.frac_bits, True)
    lowest = np.uint64(fmt.n_codes // 2)
    # negative words above the lowest get their sign in the wider format; the lowest, without it, is read as 2**(w - 1)
    extended = np.where(codes > lowest, codes | np.uint64(fmt.n_codes), codes)
    return extended, wide


_OF_OPERAND = {
    "subnormal numbers taken as zero": _subnormals,
    "the sign ignored": _sign,
    "the sign turned": _other_sign,
    "the last bit not connected": _last_bit,
    "words of the other signedness": _unsigned,
    "the lowest number taken for its positive twin": _lowest,
}


def lowest_numbers(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a unit that negates words in their own bits: the lowest one stays, and counts as positive."""
    if e.is_product_sum:
        return
    formats, operands = e.description.operand_formats, e.vectors.operands
    signed = [i for i, fmt in enumerate(formats) if _lowest(fmt, operands[i]) is not None]
    # first all signed operands at once, then each alone
    for some in [signed, *([i] for i in signed)] if len(signed) > 1 else [signed] if signed else []:
        codes, read = list(operands), list(formats)
        for i in some:
            if (changed := _lowest(formats[i], operands[i])) is not None:
                codes[i], read[i] = changed
        if (other := _evidence(e, tuple(codes), tuple(read))) is not None:
            whose = f"operand {NAMES[some[0]]}" if len(some) == 1 else "operands"
            yield f"the lowest number of {whose} negated to itself", other.results
