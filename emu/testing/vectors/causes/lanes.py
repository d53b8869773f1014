"""Faults of a single lane of a product sum: its sign is lost, it is left out, added twice, or gets another's factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from emu.errors import EmuError
from emu.formats import Fixed, Float, Format
from emu.testing.hard import negated
from emu.testing.vectors.causes.hypothesis import Hypothesis, is_long
from emu.testing.vectors.description import NAMES, Codes
from emu.testing.vectors.evidence import Evidence

#: Bits that products lack in a register that is too narrow; and bits of a product, or of a factor and one, at most.
FEWER_BITS, MOST_WORD = (1, 2, 3), 32


def lane_faults(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a unit one lane of which is faulty, for each lane."""
    d = e.description
    if not e.is_product_sum or is_long(e):
        return
    a, b, *rest = e.vectors.operands
    for k in range(d.depth) if d.depth > 1 else ():
        for i, (codes, fmt) in enumerate(((a, d.operand_formats[0]), (b, d.operand_formats[1]))):
            for name, change, wide in _changes(fmt):
                operands, formats = [a, b, *rest], list(d.operand_formats)
                if wide is not None:  # all lanes are read in a wider format, in which the faulty one differs
                    assert isinstance(fmt, Fixed)
                    operands[i], formats[i] = _widened(fmt, wide, codes), wide
                column = operands[i].copy()
                column[:, k] = change(codes[:, k])
                operands[i] = column
                # the same fault of the product was yielded for the first factor
                if name in _SAME_FOR_BOTH and i:
                    continue
                whose = f"lane {k}" if name in _SAME_FOR_BOTH else f"factor {NAMES[i]} of lane {k}"
                yield from _tried(e, f"{whose} {name}", tuple(operands), tuple(formats))
            swapped = codes.copy()
            swapped[:, k] = codes[:, (k + 1) % d.depth]
            operands = [a, b, *rest]
            operands[i] = swapped
            yield from _tried(e, f"factor {NAMES[i]} of lane {k} is that of lane {(k + 1) % d.depth}", tuple(operands))


_SAME_FOR_BOTH = ("left out", "added twice", "subtracted instead of added")


def _changes(fmt: Format) -> Iterator[tuple[str, Callable[[Codes], Codes], Fixed | None]]:
    """Yield faults of a factor: name, change of its codes, and the format in which they are read; None: their own."""
    yield "left out", np.zeros_like, None
    if isinstance(fmt, Float):
        if fmt.signed:
            yield "without its sign", lambda codes: codes & ~np.uint64(fmt.sign_code), None
            yield "subtracted instead of added", lambda codes: codes ^ np.uint64(fmt.sign_code), None
        return
    if fmt.width_bits + 1 > MOST_WORD:
        return
    # two bits more: one for twice the value, one for the sign of a word that had none
    wide = Fixed(fmt.width_bits + 2, fmt.frac_bits, True)
    kind = "unsigned" if fmt.signed else "signed"
    yield (
        f"read as {kind}",
        lambda codes: _widened(replace(fmt, signed=not fmt.signed, sign_magnitude=False), wide, codes),
        wide,
    )
    yield "added twice", lambda codes: _widened(fmt, wide, codes) << np.uint64(1) & np.uint64(wide.n_codes - 1), wide
    yield "subtracted instead of added", lambda codes: negated(wide, _widened(fmt, wide, codes)), wide


def _widened(fmt: Fixed, wide: Fixed, codes: Codes) -> Codes:
    """Return words in a wider format."""
    return wide.encode(fmt.decode(codes)).astype(np.uint64)


def narrow_products(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a unit of words whose products wrap or saturate in a register that is a bit too narrow.

    The changed product stands in for one factor, and the other is 1: so any order and accumulator adds it as a product.
    """
    d = e.description
    formats = d.operand_formats
    if not e.is_product_sum or is_long(e) or d.mac.mac().product != "exact":
        return
    x, y = formats[:2]
    if not (isinstance(x, Fixed) and isinstance(y, Fixed)) or x.width_bits + y.width_bits > MOST_WORD:
        return
    width = x.width_bits + y.width_bits
    # factors of x and y bits have products of x + y bits, unsigned ones too, and then a sign; 1 is a word of 2 bits
    wide, unit = Fixed(width + 1, x.frac_bits + y.frac_bits, True), Fixed(2, 0, True)
    raws = [fmt.to_raw(fmt.decode(codes)) for fmt, codes in zip((x, y), e.vectors.operands, strict=False)]
    products = raws[0] * raws[1]
    ones = np.ones_like(e.vectors.operands[0])
    for fewer in FEWER_BITS:
        top = 1 << (width - fewer - 1)
        for how, changed in (
            # modulo 2**(width - fewer), as the signed number that such a word stands for
            ("wrap", ((products + top) & (2 * top - 1)) - top),
            ("saturate", np.clip(products, -top, top - 1)),
        ):
            codes = changed.astype(np.uint64) & np.uint64(wide.n_codes - 1)
            name = f"products that {how} at {width - fewer} bits"
            yield from _tried(e, name, (codes, ones, *e.vectors.operands[2:]), (wide, unit, *formats[2:]))


def _tried(
    e: Evidence, name: str, operands: tuple[Codes, ...], formats: tuple[Format, ...] | None = None
) -> Iterator[Hypothesis]:
    try:
        yield name, e.answered(operands=operands, formats=formats)
    except EmuError:  # a unit has no such formats
        return
