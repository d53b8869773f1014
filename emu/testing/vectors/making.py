"""Operands of golden vectors: for each cell, hard ones for hardware, and those that tell faults from the definition.

The vectors of the cells (`cells.py`) come first in the file; they are chosen from pairs of special values and from
operands that are aimed at the cells (`pool.py`, `aiming.py`). The rest has two parts, or three. One is drawn as all
hard numbers are (`emu.testing.hard`). Results that overflow or are NaN show no rounding, and sums of many such terms
nearly all do. So for another part many more operands are drawn than are wanted: short ones, whose results lie all over
the format, ties among them. Those are kept that show the faults of `causes/`, each fault in turn. If sums of products
can go beyond the accumulator's limits, a third part does so (`steering.py`).
"""

from __future__ import annotations

import math
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats import Fixed, Float, Format
from emu.testing.hard import Noise, Places, hard_codes, hard_reals, negated
from emu.testing.vectors.blocks.pool import BlockPool
from emu.testing.vectors.causes import TOLD_APART, hypotheses
from emu.testing.vectors.definition import answered
from emu.testing.vectors.description import Codes, Description, Vectors
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.pool import MOST_TERMS, Pool, joined, random_bits_of, sized
from emu.testing.vectors.requantiser_sums import telling_sums, with_telling_addends
from emu.testing.vectors.steering import reach_of, steered_operands

Exponents = NDArray[np.int64]
#: Vectors drawn for each that is kept; fewer, down to the second number, if they had more than `MOST_TERMS` terms.
DRAWN, FEWEST_DRAWN = 16, 2
#: Share of the vectors that is there for cells, at most.
CELLS_SHARE = 0.75
#: Salts of the noise of places; those of operands follow the last one, so many apart.
_TARGET, _ZONE, _SHARE, _OPERANDS, _APART = 11, 12, 13, 16, 8


def pool_of(description: Description) -> Pool | BlockPool:
    """Return the pool from which the vectors of the cells are chosen."""
    return Pool(description) if description.blocks is None else BlockPool(description)


def make_vectors(description: Description, pool: Pool | BlockPool | None = None) -> Vectors:
    """Return vectors: those of the cells first, then in turn hard ones, ones that show faults, ones that cross limits.

    Those of blocks are whole blocks, at least `count` vectors.

    Args:
        description: the operation.
        pool: its pool, if there is one already.
    """
    d, pool = description, pool or pool_of(description)
    of_cells = max(int(d.count * CELLS_SHARE), 1)
    if isinstance(pool, BlockPool):
        return pool.vectors_of(d, of_cells)
    first = pool.of_cells(of_cells)
    rest = d.count - first.description.count
    return joined(d, [first, _mixed(sized(d, rest))] if rest else [first])


def count_for_cells(description: Description, pool: Pool | BlockPool | None = None) -> int:
    """Return how many vectors have room for as many of each cell as it wants.

    Args:
        description: the operation.
        pool: its pool, if there is one already.
    """
    wanted = math.ceil((pool or pool_of(description)).wanted / CELLS_SHARE)
    return description.model_copy(update={"count": wanted}).in_whole_blocks.count


def _mixed(description: Description) -> Vectors:
    """Return vectors, one of each part in turn: hard ones, those that show faults, those that cross limits."""
    d, reach = description, reach_of(description)
    parts = 3 if reach is not None and reach.is_beyond else 2
    sizes = [len(range(i, d.count, parts)) for i in range(parts)]
    # the second part: vectors that tell faults, chosen from `each` times as many
    wanted = sizes[1]
    each = min(DRAWN, max(FEWEST_DRAWN, MOST_TERMS // max(wanted * d.depth, 1)))
    hard, drawn = sized(d, sizes[0]), sized(d, wanted * each)
    crossing = sizes[2] if parts > 2 else 0
    # one draw for all parts, each of which takes its own stretch of it
    rbits = random_bits_of(d, hard.count + drawn.count + crossing) if d.is_stochastic else None
    sets = [answered(hard, with_telling_addends(hard, _hard_operands(hard)), _part_of(rbits, 0, hard.count))]
    if wanted:
        spread = with_telling_addends(drawn, _spread_operands(drawn))
        telling = answered(drawn, spread, _part_of(rbits, hard.count, drawn.count))
        sets.append(telling.at(_kept(telling, wanted)))
    if crossing:
        steered = sized(d, crossing)
        operands = steered_operands(steered)
        assert operands is not None
        sets.append(answered(steered, operands, _part_of(rbits, hard.count + drawn.count, crossing)))
    return _interleaved(d, sets)


def _part_of(rbits: Codes | None, start: int, count: int) -> Codes | None:
    return None if rbits is None else rbits[start : start + count]


def _interleaved(description: Description, sets: list[Vectors]) -> Vectors:
    def mixed(parts: list[Any]) -> Any:
        if parts[0] is None:
            return None
        whole = np.empty((description.count, *parts[0].shape[1:]), np.uint64)
        for i, part in enumerate(parts):
            # vector i is of part i modulo their number
            whole[i :: len(parts)] = part
        return whole

    operands = zip(*(v.operands for v in sets), strict=True)
    return Vectors(
        description,
        tuple(mixed(list(codes)) for codes in operands),
        mixed([v.rbits for v in sets]),
        mixed([v.results for v in sets]),
        mixed([v.flags for v in sets]),
    )


def _kept(vectors: Vectors, wanted: int) -> NDArray[np.int64]:
    """Return which vectors to keep: for each fault in turn the next one that shows it, then the others."""
    # of each fault the vectors in which it would be seen
    shown = [np.flatnonzero(codes != vectors.results) for _, codes in hypotheses(Evidence(vectors), TOLD_APART)]
    turns = (index for turn in zip_longest(*shown) for index in turn if index is not None)
    order = dict.fromkeys(int(i) for i in chain(turns, range(vectors.description.count)))
    return np.array(list(order)[:wanted])


def _hard_operands(description: Description) -> tuple[Codes, ...]:
    d, operands = description, list[Codes]()
    for i, fmt in enumerate(d.operand_formats):
        places = Places.of(d.seed * 4 + i, d.shape_of(i))
        # float64 operands of a conversion: reals around the result's own values, ties among them
        takes_reals = d.operation == "quantize" and isinstance(fmt, Float) and fmt.width_bits == 64
        operands.append(hard_reals(d.stage.format, places).view(np.uint64) if takes_reals else hard_codes(fmt, places))
    return tuple(operands)


def _spread_operands(description: Description) -> tuple[Codes, ...]:
    """Return short operands whose results lie all over the format, and a little beyond."""
    d = description
    if d.requantise is not None and d.operation == "quantize":
        return (telling_sums(d, d.count, d.seed + 1),)
    formats, exponents = d.operand_formats, _exponents(description)
    operands = list[Codes]()
    for i, (fmt, exponent) in enumerate(zip(formats, exponents, strict=True)):
        places = Places.of(d.seed * 4 + i, d.shape_of(i))
        salt = _OPERANDS + _APART * i
        # some vectors have short factors alone: then sums, too, end where results are rounded
        most = _uniform(_along(d, i, Places.of(d.seed, (d.count,)).noise(salt)), 1, _precision(fmt))
        digits = _uniform(places.noise(salt + 1), 1, most)
        negative = (places.noise(salt + 2) & np.uint64(d.operation != "sqrt")).astype(bool)
        operands.append(_codes(fmt, exponent, digits, places.noise(salt + 3), negative))
    return tuple(operands)


def _exponents(description: Description) -> list[Exponents]:
    """Return the exponent of every operand: results aim at one that is drawn from the format's, its ends often."""
    d, operation, out = description, description.operation, description.stage.format
    ranges = [_range(fmt) for fmt in d.operand_formats]
    of_vector = Places.of(d.seed, (d.count,))
    (la, ha), (lb, hb) = ranges[0], ranges[1] if len(ranges) > 1 else ranges[0]
    low, high = _range(out)
    match operation:
        case "multiply" | "fma" | "matmul":
            reach = la + lb, ha + hb
        case "divide":
            reach = la - hb, ha - lb
        case "sqrt":
            reach = la // 2, ha // 2
        case _:
            reach = min(la, lb), max(ha, hb)
    # two exponents below the format for what becomes 0, one above for what overflows, as far as operands reach
    low, high = max(low - 2, reach[0]), min(high + 1, reach[1])
    if low > high:
        low, high = reach
    near = min(_precision(out) + 2, high - low)
    # a quarter of the vectors at the upper end, a quarter near the lower, the others anywhere
    zone = of_vector.noise(_ZONE) & np.uint64(3)
    target = _uniform(
        of_vector.noise(_TARGET),
        np.where(zone == 1, high - min(2, high - low), low),
        np.where(zone == 2, low + near, high),
    )

    def below(i: int) -> Exponents:
        """Return how far an operand's share of the result lies below it: 0 for half of the elements."""
        noise = Places.of(d.seed * 4 + i, d.shape_of(i)).noise(_SHARE)
        return np.where(noise & np.uint64(1), 0, _uniform(noise >> np.uint64(1), 0, near))

    if operation in ("quantize", "round_to_integral"):
        return [target]
    if operation == "sqrt":
        # both parities of the operand's exponent
        return [2 * target + (zone & np.uint64(1)).astype(np.int64)]
    if operation in ("add", "subtract", "remainder"):
        return [target - below(0), target - below(1)]
    share = _along(d, 0, target) - (below(0) if len(ranges) > 2 or operation == "matmul" else 0)
    noise = _along(d, 0, of_vector.noise(_SHARE))
    if operation == "divide":
        # so that the second exponent, first - share, lies within lb..hb; the product below likewise
        first = _uniform(noise, np.maximum(la, share + lb), np.minimum(ha, share + hb))
        return [first, first - share]
    first = _uniform(noise, np.maximum(la, share - hb), np.minimum(ha, share - lb))
    return [first, share - first, *([target - below(2)] if len(ranges) > 2 else [])]


def _along(description: Description, operand: int, x: NDArray[Any]) -> NDArray[Any]:
    """Return a number per vector in the shape of an operand."""
    shape = description.shape_of(operand)
    return np.broadcast_to(x.reshape(-1, *[1] * (len(shape) - 1)), shape)


def _uniform(noise: Noise, low: Any, high: Any) -> Exponents:
    """Return integers of low..high, both included."""
    size = np.maximum(np.asarray(high) - np.asarray(low), 0) + 1
    return (noise % size.astype(np.uint64)).astype(np.int64) + low


def _precision(fmt: Format) -> int:
    return fmt.significand_bits if isinstance(fmt, Float) else max(fmt.width_bits - fmt.signed, 1)


def _range(fmt: Format) -> tuple[int, int]:
    """Return the exponents of the smallest and of the largest value other than 0."""
    if isinstance(fmt, Fixed):
        return -fmt.frac_bits, _precision(fmt) - 1 - fmt.frac_bits
    return _last_place(fmt) if fmt.has_subnormal_codes else fmt.emin, fmt.emax


def _last_place(fmt: Format) -> int:
    """Return the exponent of the finest step."""
    return -fmt.frac_bits if isinstance(fmt, Fixed) else fmt.emin - fmt.fraction_bits


def _codes(fmt: Format, exponent: Exponents, digits: Exponents, body: Noise, negative: NDArray[np.bool_]) -> Codes:
    """Return codes of numbers with a leading digit at `exponent`, as near as the format has one, and so many digits."""
    low, high = _range(fmt)
    exponent = np.clip(exponent, low, high)
    # how many digits the format has from this exponent down to its finest step
    room = np.minimum(exponent - _last_place(fmt) + 1, _precision(fmt)).astype(np.uint64)
    digits_ = np.minimum(digits.astype(np.uint64), room)
    # `digits_` random digits between a leading and a last 1, moved up to the leading place of the exponent
    ones = ~np.uint64(0) >> (np.uint64(64) - digits_)
    significand = ((body & ones) | (ones ^ (ones >> np.uint64(1))) | np.uint64(1)) << (room - digits_)
    if isinstance(fmt, Fixed):
        code = np.minimum(significand, np.uint64(fmt.max_raw))
        return np.where(negative, negated(fmt, code), code)
    # subnormal numbers, and the binade above them, have exponent emin; the former the field 0
    field = np.maximum(exponent - fmt.emin + 1, 0).astype(np.uint64)
    hidden = np.where(field > 0, np.uint64(1 << fmt.fraction_bits), np.uint64(0))
    index = np.minimum((field << np.uint64(fmt.fraction_bits)) + (significand - hidden), np.uint64(fmt.max_index))
    code = index - np.uint64(fmt.lowest_index)
    return np.where(negative, negated(fmt, code), code)
