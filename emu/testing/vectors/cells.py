"""Cells: what hardware gets wrong, each with the vectors that reach it.

    a subnormal rounds to the smallest normal          8 vectors
    dropped bit 3 alone                                8 vectors
    the pair (-0, infinity)                            1 vector

A fault shows only in a vector of its cell. `make_vectors` puts as many vectors as a cell wants into the file first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.exact import FINITE, INFINITE
from emu.datapath import Mac, Rounding
from emu.datapath.rounding import is_two_s_complement
from emu.formats import Fixed, Float
from emu.testing.hard import last_index
from emu.testing.vectors.blocks.cells import block_cells
from emu.testing.vectors.blocks.evidence import evidence_of
from emu.testing.vectors.cell import WANTED, WANTED_OF_PAIR, Cell
from emu.testing.vectors.convention_cells import convention_cells
from emu.testing.vectors.definition import ACCUMULATOR_BIT, exact_sums_of
from emu.testing.vectors.description import NAMES, TESTFLOAT_FLAGS, Description, Vectors
from emu.testing.vectors.evidence import Evidence, special_codes
from emu.testing.vectors.origin_cells import all_fixed, origin_cells, signed
from emu.testing.vectors.requantiser_cells import requantiser_cells
from emu.testing.vectors.selection import SELECTIONS
from emu.testing.vectors.steering import reach_of
from emu.testing.vectors.steps import Mask, Steps, leading_of

#: Dropped bits that have cells of their own: of a sum the others are hundreds of places away, and share one.
MOST_DROPPED = 64
#: "Beside" a tie is at most 2**-10 of half a last place away, or the last dropped bit if there are fewer.
BESIDE_BITS = 10
#: The group of cells of sums that lose leading digits.
CANCELLING = "each number of leading digits that cancel"
#: Names of the codes that all products of a sum have.
_FACTORS = ("largest", "lowest", "-largest")
#: Modes in which nothing below the lowest number of a word is rounded up to it.
_AWAY_FROM_LOWEST = (Rounding.FLOOR, Rounding.AWAY_FROM_ZERO, Rounding.TO_ODD)
#: Modes in which the guard bit does not decide: then a bit alone tells only if the guard is 0.
DIRECTED = tuple(
    mode for mode in Rounding
    if not (mode.draws or mode.meaning.fixed.tells_half or mode.meaning.floating.tells_half)
)  # fmt: skip


def cells_of(vectors: Vectors, evidence: Evidence | None = None) -> list[Cell]:
    """Return the cells of an operation, pairs of special values last; those that no operands can reach are empty."""
    e = evidence or evidence_of(vectors)
    # the order is that of the table, and that in which vectors are chosen
    cells = (*block_cells(e), *_roundings(e), *_cancellations(e), *_ends(e), *_accumulators(e), *_same_products(e),
             *convention_cells(e), *requantiser_cells(e), *origin_cells(e), *_flags(e), *_pairs(e))  # fmt: skip
    return [replace(cell, together=e.together) for cell in cells]


def same_factors(d: Description) -> dict[str, tuple[int, int]]:
    """Return the factors, as codes, that all products of a sum of words have in one vector each: ends of the formats.

    Sums of a few products between the terms and the accumulator are widest there, and only there: a pair of -128 times
    -128 is the one that no 16 bits hold.
    """
    words = [fmt for fmt in d.operand_formats[:2] if isinstance(fmt, Fixed)]
    if d.operation != "matmul" or len(words) < 2:
        return {}
    ends = [{name: code for name, code in special_codes(fmt).items() if name in _FACTORS} for fmt in words]
    return {f"every product {a} times {b}": (ends[0][a], ends[1][b]) for a in ends[0] for b in ends[1]}


def _same_products(e: Evidence) -> Iterator[Cell]:
    for name, (a, b) in same_factors(e.description).items():
        # all terms of a vector have these two codes
        left, right = (codes.reshape(e.description.count, -1) for codes in e.vectors.operands[:2])
        inside = (left == a).all(axis=1) & (right == b).all(axis=1)
        yield Cell(name, inside, WANTED_OF_PAIR, "every product the largest or lowest")


def _never_rounds(d: Description) -> bool:
    """Return whether every result inside the range is exact: its format has all digits that results can have."""
    finest, out = _finest(d), d.stage.format
    if d.operation == "remainder" and out in d.operand_formats:
        return True
    if d.operation in SELECTIONS and {*d.operand_formats} == {out}:
        return True
    return (
        d.operation != "round_to_integral"
        and isinstance(out, Fixed)
        and finest is not None
        and finest >= -out.frac_bits
    )


def _roundings(e: Evidence) -> Iterator[Cell]:
    steps = e.steps
    yield Cell("exact", steps.nonzero & ~steps.inexact)
    if _never_rounds(e.description):
        return
    guard, below = (steps.guard == 1).astype(bool), (steps.below != 0).astype(bool)
    for parity, odd in (("even", ~steps.is_odd), ("odd", steps.is_odd)):
        for name, kind in (
            ("a tie", steps.is_tie),
            ("below half", steps.inexact & ~guard),
            ("above half", steps.inexact & guard & below),
        ):
            yield from signed(e, f"{name}, last digit {parity}", kind & odd)
    # bits behind the guard; `near` is the last of the first BESIDE_BITS of them
    behind = np.maximum(steps.drop - 1, 0)
    shift = np.maximum(behind - BESIDE_BITS, 0)
    if (finest := _finest(e.description)) is not None:
        # carriers hold fixed-point numbers with zeros behind their last digit, which cannot be beside anything
        shift = np.maximum(shift, np.maximum(finest - (steps.last - steps.drop), 0))
    near = 1 << shift.astype(object)  # in units of the last dropped bit
    deep = steps.inexact & (steps.drop > 1)
    yield Cell("just above a tie", deep & guard & below & (steps.below <= near).astype(bool))
    # with the guard 0, half a step lies at 2**behind: its distance from `below` counts
    yield Cell("just below a tie", deep & ~guard & ((1 << behind.astype(object)) - steps.below <= near).astype(bool))
    # hardware drops the bits of the word that it has: of words in two's complement those are not the magnitude's
    digits = steps.complemented(steps.exact.negative) if is_two_s_complement(e.format) else steps
    alone, tells = digits.alone, _tells(e, digits)
    group = "each dropped bit alone behind the guard"
    for bit in range(1, min(_most_dropped(e.description), MOST_DROPPED) + 1):
        inside, wanted = tells & (alone == bit), _wanted_alone(e.description, bit)
        yield Cell(f"dropped bit {bit} alone behind the guard", inside, wanted, group, bit)
    if _most_dropped(e.description) > MOST_DROPPED:
        yield Cell("a dropped bit far behind the guard alone", tells & (alone > MOST_DROPPED))
    if e.description.operation == "round_to_integral":
        # `kept` is all ones, so that one step more is a power of two
        power = (steps.kept & (steps.kept + 1) == 0).astype(bool) & (steps.kept > 0).astype(bool)
        yield Cell("rounding carries into the exponent", power & (steps.moved == 1))
    elif isinstance(e.format, Float):
        normal = (steps.index >= e.normal).astype(bool) & ~e.beyond
        carries = steps.carries_through(e.format.fraction_bits)
        yield Cell("rounding carries into the exponent", carries & normal)
    else:
        # a word has no exponent field to carry into; half of its digits is our measure of a long carry
        half = max(e.format.width_bits // 2, 1)
        yield Cell("rounding carries through half of the digits", steps.carries_through(half) & ~e.beyond)


def _tells(e: Evidence, digits: Steps) -> Mask:
    """Return where a bit behind the guard decides how a number is rounded; digits of words are in two's complement."""
    rounding, guard, negative = e.description.stage.rounding, (digits.guard == 1).astype(bool), e.exact.negative
    if rounding in DIRECTED:
        return ~guard
    # where a tie goes up, the guard alone decides; it does so on one side of 0, or on both
    if rounding is Rounding.NEAREST_AWAY and e.format.signed and is_two_s_complement(e.format):
        return guard & negative
    if rounding is Rounding.NEAREST_ZERO and e.format.signed and is_two_s_complement(e.format):
        return guard & ~negative
    return guard & ~digits.is_odd


def _wanted_alone(d: Description, bit: int) -> int:
    """Return how many vectors a dropped bit alone wants: few operands of a conversion have one far behind the guard.

    Of 24 digits, bit 23 behind the guard leaves none that is kept: there are two such numbers, one of each sign.
    """
    source = d.rounded_formats[0]
    if d.operation != "quantize" or not isinstance(source, Float):
        return WANTED
    # digits above the guard: of all the source's digits but the guard and those down to the bit
    out, rounding, kept = d.stage.format, d.stage.rounding, max(source.significand_bits - 1 - bit, 0)
    is_signed = source.signed and out.signed
    if rounding in DIRECTED:
        exist = (1 + is_signed) << kept
    elif isinstance(out, Fixed) and is_signed:
        # either one sign with any last digit, or both with a last digit of 0; a negative word is one step lower
        exist = 1 << kept
    else:
        exist = (1 + is_signed) << max(kept - 1, 0)  # the last digit is 0
    return min(WANTED, exist)


def _most_dropped(d: Description) -> int:
    """Return how many bits behind the guard a result can have, at most."""
    formats, out = d.rounded_formats, d.stage.format
    digits = [fmt.significand_bits if isinstance(fmt, Float) else fmt.width_bits for fmt in formats]
    if isinstance(out, Fixed) and (finest := _finest(d)) is not None:
        last = 0 if d.operation == "round_to_integral" else -out.frac_bits
        return max(last - finest - 1, 0)
    match d.operation:
        case "multiply":  # digits further down belong to several ones: a product of odd factors has them all
            most = max(digits)
        case "remainder" if out in formats:  # a remainder is exact
            most = 0
        case "add" | "subtract" if d.stage.rounding not in DIRECTED:  # guard and bit are the same operand's
            most = max(digits)
        case "add" | "subtract" | "fma" | "matmul":
            most = _farthest(d)
        case _:
            most = digits[0]
    return max(most - 1, 0)


def _finest(d: Description) -> int | None:
    """Return the exponent of an exact result's last digit, None if results have no common one."""
    places = [fmt.frac_bits for fmt in d.rounded_formats if isinstance(fmt, Fixed)]
    if len(places) < len(d.rounded_formats) or d.operation in ("divide", "sqrt"):
        return None
    if d.operation in ("multiply", "fma", "matmul"):
        return -max([sum(places[:2]), *places[2:]])
    return -max(places)


def _farthest(d: Description) -> int:
    """Return how far below the largest result's last digit a term's last bit lies."""
    # of a format without subnormals whose hidden bit is always one, the smallest number with one digit is 2**(emin + 1)
    quanta = [
        -f.frac_bits if isinstance(f, Fixed) else f.emin + 1 if f.hidden_one else f.emin - f.fraction_bits
        for f in d.operand_formats
    ]
    has_product = d.operation in ("fma", "matmul")
    lowest = sum(quanta[:2]) if has_product else min(quanta)
    if has_product and len(quanta) > 2:  # where the guard decides, the product has it, and the addend the bit
        lowest = min(lowest, quanta[2]) if d.stage.rounding in DIRECTED else quanta[2]
    out = d.stage.format
    return (out.emax - out.fraction_bits if isinstance(out, Float) else -out.frac_bits) - lowest


def _cancellations(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of sums that lose leading digits: what follows has to find the first digit that is left."""
    lost = digits_lost(e)
    if lost is None:
        return
    # a power of two less its neighbour below loses all digits of a term
    digits = e.format.significand_bits if isinstance(e.format, Float) else 0
    # a product has twice the digits, all but the last of which can cancel
    most = digits * 2 - 1 if e.description.operation == "fma" else digits
    for count in range(1, most + 1):
        yield Cell(f"{count} leading digits cancel", lost == count, group=CANCELLING)


def digits_lost(e: Evidence) -> NDArray[np.int64] | None:
    """Return how many leading digits cancel in each sum of two terms, (count,); None of other operations."""
    if not e.terms or not isinstance(e.format, Float):
        return None
    return np.where(e.steps.nonzero, np.max([leading_of(term) for term in e.terms], axis=0) - e.exact.leading, 0)


def _ends(e: Evidence) -> Iterator[Cell]:
    steps, top, rounds = e.steps, last_index(e.format), not _never_rounds(e.description)
    # the first two are no larger than their operands; a requantiser has cells of its own
    if e.description.operation in ("round_to_integral", "remainder") or e.description.requantise is not None:
        return
    # cut to the largest number, whatever rounding then does
    at_top = (steps.index == top).astype(bool) & steps.finite
    if rounds:
        yield Cell("the largest number is rounded beyond the range", at_top & (steps.moved == 1))
        yield Cell("rounded, and still the largest number", at_top & steps.inexact & (steps.moved == 0))
    if is_two_s_complement(e.format) and e.format.signed:
        # two's complement has one number more below 0: its magnitude is one step above the largest
        low = (steps.index == top + 1).astype(bool) & steps.exact.negative
        if rounds:
            yield Cell("the lowest number is rounded beyond the range", low & (steps.moved == 1))
        # a conversion has a single operand there, unless others are rounded to it
        d = e.description
        alone = d.operation == "quantize" and (not rounds or d.stage.rounding in _AWAY_FROM_LOWEST)
        yield Cell("the lowest number", low & (steps.moved == 0), 1 if alone else WANTED)
    yield from signed(e, "beyond the range before rounding", e.beyond & (steps.index > top).astype(bool))
    is_float = isinstance(e.format, Float) and e.format.has_subnormal_codes and e.format.fraction_bits > 0
    small = steps.nonzero & (steps.index < e.normal).astype(bool)
    if is_float:
        yield Cell("a subnormal result, exact", small & ~steps.inexact & (steps.index > 0).astype(bool))
    if not rounds or (is_float and _smallest_are_exact(e.description)):
        return
    # 2**-bias, a power of two on the grid whose code is that of zero
    below = e.normal - 1 if isinstance(e.format, Float) and e.format.hidden_one else 0
    up = (steps.moved == 1) & (steps.kept == below).astype(bool)
    yield Cell("rounded from below the smallest number up to it", up)
    if below:
        reached = (steps.rounded == below).astype(bool)
        yield Cell("rounded to the power of two whose code is that of zero", steps.nonzero & reached)
    if not is_float:
        return
    yield Cell("a subnormal result, rounded", small & steps.inexact & (steps.index + steps.moved > 0).astype(bool))
    reaches = small & (steps.index == e.normal - 1).astype(bool) & (steps.moved == 1)
    # Rounded to the format's precision as if exponents had no lower end, a result is tiny until three quarters of the
    # last step: one digit more is kept there, and half of that is a quarter.
    quarter = np.maximum(steps.drop - 2, 0).astype(object)
    after = ((steps.rest >> quarter) < 3).astype(bool) | (steps.drop < 2)
    yield Cell("a subnormal rounds to the smallest normal, tiny after rounding", reaches & after)
    yield Cell("a subnormal rounds to the smallest normal, not tiny after rounding", reaches & ~after)


def _smallest_are_exact(d: Description) -> bool:
    """Return whether no subnormal result is rounded: no operand has digits below theirs, and none is multiplied."""
    quanta = [-f.frac_bits if isinstance(f, Fixed) else f.emin - f.fraction_bits for f in d.rounded_formats]
    out = d.stage.format
    assert isinstance(out, Float)
    return d.operation in ("quantize", "add", "subtract") and min(quanta) >= out.emin - out.fraction_bits


def _accumulators(e: Evidence) -> Iterator[Cell]:
    d = e.description
    reach = reach_of(d)
    if reach is None:
        return
    touched = (e.vectors.flags >> np.uint64(ACCUMULATOR_BIT) & np.uint64(1)).astype(bool)
    # the sums that a unit without limits would have, before any stage
    sums = exact_sums_of(d.unstaged, e.vectors.operands, Mac()).as_object()
    exact, limit = sums.kind.reshape(-1) == FINITE, Fraction(reach.limit)
    # Fractions: exponents may lie beyond those of float64
    magnitudes = zip(sums.significand.reshape(-1), sums.exponent.reshape(-1).tolist(), strict=True)
    far = np.array([int(digits) * Fraction(2) ** exponent > limit for digits, exponent in magnitudes], bool)
    yield Cell("the accumulator leaves its range and comes back", touched & exact & ~far)
    yield Cell("the accumulator leaves its range and stays there", touched & exact & far)
    if isinstance(d.mac.mac().accumulator, Float):
        yield Cell("the accumulator overflows to infinity", exact & (e.exact.kind == INFINITE))


def _flags(e: Evidence) -> Iterator[Cell]:
    names = (*TESTFLOAT_FLAGS, *(["accumulator overflow"] if reach_of(e.description) else []))
    for bit, name in enumerate(names):
        d = e.description
        # flags that no operands of the operation can raise have no cells
        if (name == "infinite" and d.operation != "divide") or (name == "underflow" and _never_rounds(d)):
            continue
        if name == "invalid" and all_fixed(d) and d.operation not in ("divide", "sqrt", "remainder"):
            continue
        raised = (e.flags >> np.uint64(bit) & np.uint64(1)).astype(bool)
        yield Cell(f"flag {name}", raised)
        yield Cell(f"no flag {name}", ~raised)


def _pairs(e: Evidence) -> Iterator[Cell]:
    # of a factor of matmul the first term: the pool sets it, and leaves the others 0
    columns = [codes if codes.ndim == 1 else codes[:, 0] for codes in e.vectors.operands]
    specials = e.special_codes()
    if len(columns) == 1:
        for name, code in specials[0].items():
            yield Cell(f"the special value {name}", columns[0] == code, WANTED_OF_PAIR, "each special value")
        return
    for i, j in combinations(range(len(columns)), 2):
        group = f"each pair of special values of {NAMES[i]} and {NAMES[j]}"
        for (first, x), (second, y) in ((p, q) for p in specials[i].items() for q in specials[j].items()):
            inside = (columns[i] == x) & (columns[j] == y)
            yield Cell(f"the pair {NAMES[i]} = {first}, {NAMES[j]} = {second}", inside, WANTED_OF_PAIR, group)


def table_of(rows: Sequence[Row], counted: str = "vectors") -> str:
    """Return the table as text: a line for each row, with the vectors of the cell that has fewest.

    Args:
        rows: of the table.
        counted: what is counted, vectors or blocks: the heading of the first column.
    """
    lines = [(counted, "cells with enough", "cell")]
    lines += [(str(row.fewest), f"{row.full} of {row.cells}", f"{row.name}{_beside(row)}") for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in (0, 1)]
    return "".join(f"{a:>{widths[0]}}  {b:>{widths[1]}}  {c}\n" for a, b, c in lines)


def _beside(row: Row) -> str:
    """Return what is known of a row whose cells have fewer vectors than they want."""
    if row.unreachable:
        return ": no operands reach it" if row.cells == 1 else f": {row.unreachable} that no operands reach"
    return f": all {row.fewest} that exist" if row.all_there_are == row.cells == 1 else ""


@dataclass(frozen=True)
class Row:
    """A row of the table of cells: one cell, or those of a group counted together.

    Attributes:
        name: of the cell or the group.
        cells: how many cells there are.
        full: how many have as many vectors as they want.
        fewest: the fewest vectors in one of them.
        wanted: how many each wants.
        unreachable: how many of the cells no operands reach; 0 where that is not known.
        all_there_are: how many of the cells have all vectors that exist, which are fewer than they want.
    """

    name: str
    cells: int
    full: int
    fewest: int
    wanted: int
    unreachable: int = 0
    all_there_are: int = 0


def rows_of(cells: Sequence[Cell], exist: Mapping[str, int] | None = None) -> list[Row]:
    """Return the table of cells, those of a group in one row.

    Args:
        cells: with their vectors, none of which is there twice if `exist` is given.
        exist: how many vectors of each cell there are among all inputs, if that is known.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group or cell.name, []).append(cell)
    return [_row(name, members, exist or {}) for name, members in groups.items()]


def _row(name: str, members: Sequence[Cell], exist: Mapping[str, int]) -> Row:
    counts = [(cell.count, cell.wanted, exist.get(cell.name, cell.wanted)) for cell in members]
    # without `exist`, as many as are wanted are taken to exist
    full = sum(count >= wanted for count, wanted, _ in counts)
    complete = sum(0 < total <= count < wanted for count, wanted, total in counts)
    unreachable = sum(total == 0 for *_, total in counts)
    fewest = min(count for count, *_ in counts)
    return Row(name, len(members), full, fewest, members[0].wanted, unreachable, complete)


def vectors_by_cell(vectors: Vectors) -> dict[str, int]:
    """Return how many vectors reach each cell, pairs of special values last: coverage, for any vectors.

    Args:
        vectors: operands and results, from any source.
    """
    return {cell.name: cell.count for cell in cells_of(vectors)}
