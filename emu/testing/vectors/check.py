"""A dump compared with vectors: the first difference explained, and what would cause all differences.

Source of the words guard and sticky: IEEE 754 arithmetic as built (Hennessy & Patterson, appendix J).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.formats import Float, Format
from emu.testing.bits import describe_code
from emu.testing.vectors.definition import ACCUMULATOR_BIT, exact_value, ieee_flags, last_place
from emu.testing.vectors.description import NAMES, TESTFLOAT_FLAGS, Codes, Vectors
from emu.testing.vectors.faults import hypotheses, unseen
from emu.testing.vectors.files import read_lines, read_vectors
from emu.testing.vectors.steering import reach_of

#: Terms of a product that are shown, and explanations that are named.
MOST_TERMS, MOST_NAMED = 6, 4
#: Faults that are named if no vector shows them.
MOST_UNSEEN = 8
_FLAG_NAMES = (*TESTFLOAT_FLAGS, "accumulator_overflow")


def what_they_tell(vectors: Vectors) -> list[str]:
    """Return sentences: how often an accumulator's limit is reached, and which faults these vectors do not show."""
    lines: list[str] = []
    d, reach = vectors.description, reach_of(vectors.description)
    if reach is not None:
        count = int((vectors.flags >> np.uint64(ACCUMULATOR_BIT) & np.uint64(1)).sum())
        line = f"accumulator overflow: {count} of {d.count}"
        if not reach.is_beyond:
            line += f"; no operands reach its limit, {reach.limit:g}: {d.depth} terms add up to at most {reach.most:g}"
        lines.append(line)
    if names := unseen(vectors):
        more = f"; and {len(names) - MOST_UNSEEN} more" if len(names) > MOST_UNSEEN else ""
        listed = "; ".join(names[:MOST_UNSEEN])
        lines.append(f"no vector here shows (some change no result at all): {listed}{more}")
    return lines


@dataclass(frozen=True)
class Finding:
    """The differences of a dump.

    Attributes:
        wrong: how many results differ.
        count: how many there are.
        index: the first one that differs, from 0; None if only flags do.
        lines: the explanation, line by line.
        causes: what would have given the differing codes, the likeliest first.
    """

    wrong: int
    count: int
    index: int | None
    lines: tuple[str, ...]
    causes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def check_dump(folder: Path, dump: Path, *, any_nan: bool = False) -> Finding | None:
    """Return the differences of a dump, None if every code is right.

    Args:
        folder: of the vectors.
        dump: text, a line per vector: the result's code, perhaps followed by its flags; or a whole TestFloat line.
        any_nan: whether one NaN is as good as another.

    Raises:
        ConfigError: vectors or dump are missing or damaged, or a code is wider than the format.
    """
    vectors = read_vectors(folder)
    columns = read_lines(dump, None, vectors.description.count)
    operands = len(vectors.operands)
    if len(columns) == operands + 2:  # a whole line, whose flags are IEEE 754's
        columns = columns[operands:]
        if vectors.description.operation != "matmul":
            vectors = replace(vectors, flags=ieee_flags(vectors))
    if len(columns) > 2:
        raise ConfigError(
            f"a line of {dump} must hold a result, a result and its flags, or {operands} operands before them, got "
            f"{len(columns)} codes; write it again"
        )
    width = vectors.description.stage.format.width_bits
    beyond = np.flatnonzero(columns[0] >> np.uint64(width)) if width < 64 else np.array([], int)
    if beyond.size:
        raise ConfigError(
            f"every result must be a code of {width} bits, got 0x{int(columns[0][beyond[0]]):x} in vector "
            f"{int(beyond[0])} of {dump}; dump the format's own word"
        )
    given = columns[0]
    if any_nan:
        given = _with_canonical_nans(vectors, given)
    return compare(vectors, given, columns[1] if len(columns) > 1 else None)


def compare(vectors: Vectors, given: Codes, flags: Codes | None = None) -> Finding | None:
    """Return the differences of codes, None if there are none."""
    differs = given != vectors.results
    if not differs.any():
        return None if flags is None else _flags_compared(vectors, flags)
    index = int(np.flatnonzero(differs)[0])
    causes = tuple(_causes(vectors, given, differs))
    lines = [f"{int(differs.sum())} of {given.size} results differ, the first at vector {index}:"]
    lines += [f"  {line}" for line in _picture(vectors, given, index)]
    if flags is not None and (flags != vectors.flags).any():
        lines.append(f"{int((flags != vectors.flags).sum())} of {flags.size} flags differ, too")
    if causes:
        lines.append(f"looks like {causes[0]}")
        lines += [f"     or like {cause}" for cause in causes[1:]]
    else:
        lines.append("looks like no single other rule, reading of operands or habit of hardware that is known here")
    return Finding(int(differs.sum()), given.size, index, tuple(lines), causes)


def _with_canonical_nans(vectors: Vectors, given: Codes) -> Codes:
    fmt = vectors.description.stage.format
    if not isinstance(fmt, Float) or fmt.nan_code is None:
        return given
    return np.where(np.isnan(fmt.decode(given)), np.uint64(fmt.nan_code), given)


def _causes(vectors: Vectors, given: Codes, differs: NDArray[np.bool_]) -> Iterator[str]:
    """Yield the faults that explain every difference and contradict no equal result; else those that explain most.

    A fault that contradicts as many results as it explains differences is no explanation.
    """
    certain = list(_seen_in_codes(vectors, given, differs))
    faults: list[tuple[int, int, str]] = []
    for name, codes in hypotheses(vectors):
        explained = int((codes[differs] == given[differs]).sum())
        if explained:
            contradicted = int((codes[~differs] != given[~differs]).sum())
            faults.append((explained, contradicted, name))
    whole = [name for explained, contradicted, name in faults if explained == differs.sum() and not contradicted]
    if whole or certain:
        yield from (whole + certain)[:MOST_NAMED]
        return
    likely = [fault for fault in faults if fault[0] > fault[1]]
    for explained, contradicted, name in sorted(likely, key=lambda fault: fault[1] - fault[0])[:MOST_NAMED]:
        yield f"{name} ({explained} of {int(differs.sum())} differences, against {contradicted} equal results)"


def _seen_in_codes(vectors: Vectors, given: Codes, differs: NDArray[np.bool_]) -> Iterator[str]:
    """Yield what the codes themselves show: lines out of step, other NaN patterns, a bit that flipped or is stuck."""
    for name, ours, theirs in (("late", slice(None, -1), slice(1, None)), ("early", slice(1, None), slice(None, -1))):
        if given.size > 2 and np.array_equal(vectors.results[ours], given[theirs]):
            yield f"every result one line too {name}"
    fmt, changed = vectors.description.stage.format, given[differs] ^ vectors.results[differs]
    if isinstance(fmt, Float) and np.isnan(fmt.decode(vectors.results[differs])).all():
        if np.isnan(fmt.decode(given[differs])).all():
            pattern = int(given[differs][0])
            yield f"a NaN of another pattern: 0x{pattern:x}, the canonical one is 0x{int(fmt.nan_code or 0):x}"
        else:
            yield "a NaN that was not made"
    bits = np.unique(changed)
    if bits.size == 1 and int(bits[0]).bit_count() == 1:
        bit = int(bits[0]).bit_length() - 1
        mask = np.uint64(1 << bit)
        if int(differs.sum()) == 1:
            yield f"one flipped bit: bit {bit} of this one result"
        elif (given & mask == 0).all() or (given & mask != 0).all():
            yield f"bit {bit} stuck at {int(given[differs][0] >> np.uint64(bit)) & 1}"


def _picture(vectors: Vectors, given: Codes, index: int) -> Iterator[str]:
    d, fmt = vectors.description, vectors.description.stage.format
    for name, source, codes in zip(NAMES, d.operand_formats, vectors.operands, strict=False):
        terms = np.atleast_1d(codes[index])
        for k, code in enumerate(terms[:MOST_TERMS]):
            label = f"{name}[{k}]" if terms.size > 1 else name
            yield f"{label:<10}{describe_code(source, int(code))}"
        if terms.size > MOST_TERMS:
            yield f"{'':<10}... {terms.size - MOST_TERMS} more"
    exact = exact_value(d, vectors.operands, index)
    if exact is not None and d.operation == "matmul" and not d.mac.mac().is_exact:
        yield f"{'exact sum':<10}{_number(exact)}; the accumulator rounds or overflows on the way"
    elif exact is not None:
        yield from _exact_lines(exact, fmt)
    if vectors.rbits is not None:
        yield f"{'random':<10}0x{int(vectors.rbits[index]):x} of {d.n_rbits} bits"
    yield f"{'expected':<10}{describe_code(fmt, int(vectors.results[index]))}"
    yield f"{'given':<10}{describe_code(fmt, int(given[index]))}"
    yield f"{'flags':<10}{_flags_in_words(int(vectors.flags[index]))}"


def _exact_lines(exact: Fraction, fmt: Format) -> Iterator[str]:
    """Yield the exact result, and the bits below its last place that decide how it is rounded."""
    yield f"{'exact':<10}{_number(exact)}"
    if exact == 0:
        return
    last = last_place(exact, fmt)
    scaled = abs(exact) / Fraction(2) ** last
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    guard, sticky = int(rest >= Fraction(1, 2)), int(rest not in (0, Fraction(1, 2)))
    how = "exact" if rest == 0 else "a tie" if rest == Fraction(1, 2) else "above half" if guard else "below half"
    yield f"{'':<10}last place 2**{last}, guard {guard}, sticky {sticky}: {how}"


def _number(exact: Fraction) -> str:
    try:
        near = float(exact)
    except OverflowError:
        return "beyond float64"
    if Fraction(near) == exact:
        return f"{near!r} = {near.hex()}"
    return f"about {near!r}"


def _flags_compared(vectors: Vectors, flags: Codes) -> Finding | None:
    differs = flags != vectors.flags
    if not differs.any():
        return None
    index = int(np.flatnonzero(differs)[0])
    expected, given = int(vectors.flags[index]), int(flags[index])
    lines = (
        f"every result is right, but {int(differs.sum())} of {flags.size} flags differ, the first at vector {index}:",
        f"  expected  {_flags_in_words(expected)}",
        f"  given     {_flags_in_words(given)}",
    )
    causes = [f"{name} {'missing' if expected >> bit & 1 else 'raised'}" for bit, name in enumerate(_FLAG_NAMES)
              if (expected ^ given) >> bit & 1]  # fmt: skip
    return Finding(0, flags.size, None, lines, tuple(causes))


def _flags_in_words(bits: int) -> str:
    return ", ".join(name for bit, name in enumerate(_FLAG_NAMES) if bits >> bit & 1) or "none"
