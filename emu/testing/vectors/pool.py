"""The pool from which the vectors of the cells are chosen: special values, operands aimed at cells, or all inputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.philox import random_integers
from emu.datapath import stream_of
from emu.formats import Fixed, Format
from emu.testing.hard import edge_codes
from emu.testing.vectors.aiming import TARGETS, Aim, Target
from emu.testing.vectors.cells import CANCELLING, WANTED, Cell, cells_of, same_factors
from emu.testing.vectors.conventions import has_payloads
from emu.testing.vectors.definition import answered
from emu.testing.vectors.description import Codes, Description, Vectors
from emu.testing.vectors.everything import Everything, distinct
from emu.testing.vectors.evidence import special_codes
from emu.testing.vectors.requantiser_sums import telling_sums
from emu.testing.vectors.steering import steered_operands
from emu.testing.vectors.steps import Mask

#: Operands that are aimed at cells: at once, at least; and how often more are, at what is still missing.
AIMS, FEWEST_AIMS, ROUNDS = 2000, 64, 3
#: Terms of all vectors of a set together, at most.
MOST_TERMS = 1 << 19
#: Vectors of special values and ends of formats beside those of all pairs: three of them make what two do not.
MIXED_SPECIALS = 400
#: Special values of which all combinations are tried, of three operands too.
ENDS = ("0", "-0", "1", "-1", "largest", "-largest", "smallest", "-smallest")
#: NaNs of each operand beside the two special ones, quiet and signalling.
MORE_NANS = 24
#: Vectors of operands each of which is infinite every other time.
MORE_INFINITIES = 96


class Pool:
    """Vectors among which those of the cells are chosen, no two the same.

    Args:
        description: the operation.

    Attributes:
        vectors: what there is to choose from.
        cells: those of the vectors.
        everything: all inputs, if they are few.
    """

    def __init__(self, description: Description) -> None:
        self.everything = Everything.of(description)
        self.vectors = _aimed_at_cells(description)
        self.cells = cells_of(self.vectors)
        if self.everything is not None and (more := _missing(self.everything, self.cells)) is not None:
            self.vectors = distinct(joined(description, [self.vectors, more]))
            self.cells = cells_of(self.vectors)
        self._order = chosen([cell.inside for cell in self.cells], [cell.wanted for cell in self.cells])

    @property
    def wanted(self) -> int:
        """How many vectors there are if each cell has as many as it wants, or as there are."""
        return int(self._order.size)

    def of_cells(self, most: int) -> Vectors:
        """Return what the cells want, at most so many: one vector of each cell, then a second one ..."""
        return self.vectors.at(self._order[:most])


def _aimed_at_cells(d: Description) -> Vectors:
    aim, pool = Aim(d, d.seed), _pool_of_specials(d)
    # each set has at most a quarter of MOST_TERMS, unless FEWEST_AIMS vectors have more already
    aims = min(AIMS, max(MOST_TERMS // (4 * d.depth), FEWEST_AIMS))
    pool = distinct(joined(d, [pool, _aimed(d, aim, aims)]))
    for turn in range(ROUNDS):
        few = [cell for cell in cells_of(pool) if cell.count < cell.wanted]
        more: list[Vectors] = []
        if bits := [cell.place for cell in few if cell.place]:
            more.append(_aimed(d, aim, aims, bits=bits))
        if any(cell.group == CANCELLING for cell in few):
            more.append(_aimed(d, aim, aims, "cancelling", turn))
        # what has a vector has others; what has none may have none anywhere, and is aimed at in the first turn alone
        if any(not cell.group and (cell.count or not turn) for cell in few) and aims == AIMS:
            more.append(_aimed(d, aim, aims, "ends", turn))
        if not more:
            break
        pool = distinct(joined(d, [pool, *more]))
    return pool


def _missing(everything: Everything, cells: Sequence[Cell]) -> Vectors | None:
    """Return more vectors of the cells that have too few, out of all inputs; None if there are none."""
    count_of = {cell.name: cell.count for cell in cells}
    chosen: set[int] = set()
    for cell in everything.cells:
        if count_of[cell.name] < cell.wanted:
            inside = np.flatnonzero(cell.inside)
            # spread over all of them: neighbours have the same operands but one
            spread = np.linspace(0, inside.size - 1, min(inside.size, 2 * cell.wanted)).astype(np.int64)
            chosen |= {int(i) for i in inside[spread]}
    return everything.vectors.at(np.array(sorted(chosen), np.int64)) if chosen else None


def _aimed(
    d: Description, aim: Aim, count: int, at: Target = "cells", turn: int = 0, bits: Sequence[int] = ()
) -> Vectors:
    """Return vectors that are aimed at cells, those of dropped `bits` alone, or in a `turn` at others that are few."""
    sized_ = sized(d, count)
    # draw 0 is that of the vectors of no cell (`making.py`)
    draw = 1 + len(bits) if at == "cells" else 100 * TARGETS.index(at) + turn
    rbits = random_bits_of(sized_, count, draw=draw) if d.is_stochastic else None
    return answered(sized_, aim.operands(count, bits, at), rbits)


def _pool_of_specials(d: Description) -> Vectors:
    """Return vectors with each pair of special values, and ones that cross the accumulator's limits, if any can."""
    specials = [list(special_codes(fmt).values()) for fmt in d.operand_formats]
    drawn = Random(f"emu specials {d.seed}")
    among = [[*codes, *edge_codes(fmt)] for codes, fmt in zip(specials, d.operand_formats, strict=True)]
    rows: list[tuple[int, ...]]
    if len(specials) == 1:
        rows = [(code,) for code in specials[0]]
    else:
        # of three operands the third runs in a Latin square: each two of them meet
        most = max(map(len, specials))
        rows = [
            tuple(codes[k % len(codes)] for codes, k in zip(specials, (i, j, i + j), strict=False))
            for i in range(most)
            for j in range(most)
        ]
        zeros = [[codes[name] for name in ENDS if name in codes] for codes in map(special_codes, d.operand_formats)]
        rows += product(*zeros)
        rows += [tuple(drawn.choice(codes) for codes in among) for _ in range(MIXED_SPECIALS)]
    for i, fmt in enumerate(d.operand_formats):
        for code in _nans_of(fmt, drawn):
            row = [drawn.choice(codes) for codes in among]
            row[i] = code
            rows.append(tuple(row))
    infinities = [_infinities_of(fmt) for fmt in d.operand_formats]
    for _ in range(MORE_INFINITIES if any(infinities) and len(specials) > 1 else 0):
        either = ((some, codes) if some else (codes,) for some, codes in zip(infinities, among, strict=True))
        rows.append(tuple(drawn.choice(drawn.choice(choices)) for choices in either))
    rows = list(dict.fromkeys(rows))
    sized_ = sized(d, len(rows))
    operands = list[Codes]()
    for i, column in enumerate(zip(*rows, strict=True)):
        codes = np.zeros(sized_.shape_of(i), np.uint64)
        # of a factor's terms the first one; the others are 0
        codes.reshape(len(rows), -1)[:, 0] = column
        operands.append(codes)
    rbits = random_bits_of(sized_, len(rows), draw=1) if d.is_stochastic else None
    pool = answered(sized_, tuple(operands), rbits)
    if d.requantise is not None and d.operation == "quantize":
        telling = sized(d, AIMS)
        pool = joined(d, [pool, answered(telling, (telling_sums(d, AIMS, d.seed),), None)])
    if factors := same_factors(d):
        pool = joined(d, [pool, _of_same_factors(d, list(factors.values()))])
    steered = sized(d, min(4 * WANTED, max(MOST_TERMS // d.depth, 1)))
    if (crossing := steered_operands(steered)) is None:
        return pool
    rbits = random_bits_of(steered, steered.count, draw=1) if d.is_stochastic else None
    return joined(d, [answered(steered, crossing, rbits), pool])


def _of_same_factors(d: Description, factors: Sequence[tuple[int, int]]) -> Vectors:
    """Return a vector for each pair of factors, which all of its products have; an addend is 0."""
    same = sized(d, len(factors))
    operands = [np.zeros(same.shape_of(i), np.uint64) for i in range(len(d.operand_formats))]
    for codes, column in zip(operands, zip(*factors, strict=True), strict=False):
        codes.reshape(len(factors), -1)[:] = np.array(column, np.uint64)[:, None]
    rbits = random_bits_of(same, len(factors), draw=1) if d.is_stochastic else None
    return answered(same, tuple(operands), rbits)


def _nans_of(fmt: Format, random: Random) -> list[int]:
    """Return NaNs of either sign and any payload, every other one signalling."""
    if not has_payloads(fmt) or fmt.fraction_bits < 2:
        return []
    quiet, codes = 1 << (fmt.fraction_bits - 1), list[int]()
    for k in range(MORE_NANS):
        # any length of payload is as likely; 0 would be an infinity
        payload = max(random.getrandbits(fmt.fraction_bits - 1) >> random.randrange(fmt.fraction_bits - 1), 1)
        sign = fmt.sign_code if fmt.signed and random.getrandbits(1) else 0
        codes.append(sign | fmt.first_special_code | payload | quiet * (k % 2))
    return codes


def _infinities_of(fmt: Format) -> list[int]:
    if isinstance(fmt, Fixed) or fmt.infinity_code is None:
        return []
    return [fmt.infinity_code, *([fmt.infinity_code | fmt.sign_code] if fmt.signed else [])]


def chosen(masks: Sequence[Mask], wanted: Sequence[int], *, most_wanted: bool = False) -> NDArray[np.int64]:
    """Return which vectors, or blocks, to take, in order: in each round one more for each cell that wants it.

    Args:
        masks: which ones reach each cell, (count,).
        wanted: how many each cell wants.
        most_wanted: whether the one is taken that reaches most cells which want more, as blocks reach many; else the
            first one.
    """
    inside = np.array(masks)
    # rounds of one vector for each cell: if there is room for few, no cell is left out
    reached, order, taken = np.zeros(len(masks), np.int64), list[int](), np.zeros(inside.shape[1], bool)
    for level in range(1, max(wanted) + 1):
        for k, most in enumerate(wanted):
            if reached[k] >= min(level, most):
                continue
            fresh = np.flatnonzero(inside[k] & ~taken)
            if fresh.size:
                best = 0
                if most_wanted:
                    best = int(inside[:, fresh][reached < np.array(wanted)].sum(axis=0).argmax())
                order.append(int(fresh[best]))
                taken[fresh[best]] = True
                reached += inside[:, fresh[best]]
    return np.array(order, np.int64)


def joined(description: Description, sets: Sequence[Vectors]) -> Vectors:
    """Return several sets of vectors, one after the other."""

    def together(parts: Sequence[Any]) -> Any:
        return None if parts[0] is None else np.concatenate(parts)

    return Vectors(
        sized(description, sum(v.description.count for v in sets)),
        tuple(together(codes) for codes in zip(*(v.operands for v in sets), strict=True)),
        together([v.rbits for v in sets]),
        together([v.results for v in sets]),
        together([v.flags for v in sets]),
    )


def sized(description: Description, count: int) -> Description:
    """Return a description of so many vectors."""
    return description.model_copy(update={"count": count})


def random_bits_of(description: Description, count: int, *, draw: int = 0) -> Codes:
    """Return random bits of so many results, (count,)."""
    stream = stream_of("vectors", description.operation)
    drawn = random_integers(count, description.n_rbits, seed=description.seed, stream=stream, step=0, draw=draw)
    return drawn.astype(np.uint64)
