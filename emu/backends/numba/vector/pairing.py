"""Pairs along k, and words of their two elements, for instructions that multiply two numbers of 16 bits at once.

pair       k and k' whose elements lie equally far apart in the right operand, whatever the column
word       both elements side by side in 32 bits
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import frozen, is_lasting, lasting
from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges
from emu.backends.numba.vector.batched_products import GRAIN_ELEMENTS
from emu.backends.numba.vector.lanes import HALF_BITS, LOWER_HALF
from emu.backends.numba.vector.packing import raws_of

Array = NDArray[Any]
#: Pairs multiplied with others below which a second thread is not worth waking: about 300 us. A half of 150 us takes a
#: thread that has just woken as long as the whole takes the first, whose caches hold the operands (measured).
GRAIN_PAIRS = 1 << 24
#: Offsets from the first one that are tried as distances of pairs, and offsets among which they are looked for.
MOST_DISTANCES, FIRST_OFFSETS = 64, 1024


class Pairs(NamedTuple):
    """Pairs along k.

    Attributes:
        first: int64, the k of each pair, or a k without a partner.
        second: int64, the other k of each pair, or -1.
        distance: from the first element of a pair to the second.
        offsets: int64, of the first element of each pair.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distance: int
    offsets: NDArray[np.int64]


class Offsets:
    """Offsets as a key of a cache: equal if their numbers are."""

    def __init__(self, array: NDArray[np.int64]) -> None:
        # a key must stay as it is; those of the engine do
        self.array = array if is_lasting(array) else frozen(array.copy())
        # few numbers tell most apart; `==` compares all
        self._hash = hash((array.size, *array[[0, array.size // 3, array.size // 2, -1]].tolist()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Offsets):
            return False
        return self.array is other.array or np.array_equal(self.array, other.array)


def paired(offsets: NDArray[np.int64]) -> Pairs:
    """Return pairs of k whose offsets differ by one distance, the one at which the fewest k stay alone."""
    return _paired(Offsets(offsets))


@lru_cache(maxsize=32)
def _paired(key: Offsets) -> Pairs:
    head = key.array[:FIRST_OFFSETS]
    # A distance that is tried leads from the least offset to another one.
    distances = np.unique(head - head.min())
    fewest, best = _pairs_at(head, 1).first.size, 1
    for distance in distances[distances > 0][:MOST_DISTANCES].tolist():
        # No distance makes fewer pairs.
        if fewest == (head.size + 1) // 2:
            break
        count = _pairs_at(head, distance).first.size
        if count < fewest:
            fewest, best = count, distance
    pairs = _pairs_at(key.array, best)
    return Pairs(lasting(pairs.first), lasting(pairs.second), pairs.distance, lasting(pairs.offsets))


def _pairs_at(offsets: NDArray[np.int64], distance: int) -> Pairs:
    """Return pairs: of each chain of offsets at a distance from one to the next, every second one with the next."""
    # Sorted by residue, then by size: offsets of one chain follow each other.
    order = np.lexsort((offsets, offsets % distance))
    placed, index = offsets[order], np.arange(offsets.size)
    follows = np.diff(placed, prepend=placed[0]) == distance
    # Where the chain of each offset begins. Links are counted from there, and the even ones take the next as partner.
    begins = np.maximum.accumulate(np.where(follows, 0, index))
    at = np.flatnonzero((index - begins) % 2 == 0)
    after = np.minimum(at + 1, offsets.size - 1)
    first, second = order[at], np.where(follows[after] & (after > at), order[after], -1)
    ascending = np.argsort(first)
    return Pairs(first[ascending], second[ascending], distance, offsets[first[ascending]])


@kernel
def join_factors(
    data: Any, rows: Any, columns: Any, scale: float, first: Any, second: Any, words: Any, low: int, bits: int
) -> Any:
    """Write the words of a left matrix, (M, pairs).

    Returns:
        The largest sum of magnitudes of a row, and a bound on all magnitudes: at most twice the largest, 1 of zeros.
    """
    largest, bound = np.int64(0), np.int32(0)
    for i in range(rows.size):
        total = np.int64(0)
        for p in range(first.size):
            a = np.int32(data[rows[i] + columns[first[p]]] * scale)
            b = np.int32(data[rows[i] + columns[second[p]]] * scale) if second[p] >= 0 else np.int32(0)
            # The lower half keeps a's two's complement; b's bits begin at the upper half.
            words[i, p] = np.int32(a & low) | np.int32(b << bits)
            total += abs(np.int64(a)) + abs(np.int64(b))
            bound |= (a ^ (a >> 31)) | (b ^ (b >> 31))
        largest = max(largest, total)
    return largest, np.int64(bound) + 1


@kernel
def _join_elements(
    data: Any, scale: float, distance: int, words: Any, low: int, bits: int, start: int, stop: int
) -> Any:
    """Write elements start..stop as words with the elements `distance` on; return a bound on their magnitudes."""
    bound = np.int32(0)
    top = max(min(stop, data.size - distance), start)
    source, other, target = data[start:top], data[start + distance : top + distance], words[start:top]
    for i in range(source.size):
        a, b = np.int32(source[i] * scale), np.int32(other[i] * scale)
        bound |= a ^ (a >> 31)
        target[i] = (a & low) | (b << bits)
    for i in range(top, stop):
        a = np.int32(data[i] * scale)
        bound |= a ^ (a >> 31)
        words[i] = a & low
    return np.int64(bound) + 1


@lru_cache(maxsize=32)
def _as_words(
    rows: Offsets, columns: Offsets, first: Offsets, second: Offsets
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the offsets of rows and pairs in data taken as words of two elements; None if pairs are no such words."""
    if (second.array < 0).any():
        return None
    begins, ends = columns.array[first.array], columns.array[second.array]
    # A pair must be two neighbours that begin at an even element, as a word of int32 does.
    if (ends - begins != 1).any() or (begins % 2).any() or (rows.array % 2).any():
        return None
    return lasting(rows.array // 2), lasting(begins // 2)


def words_of_rows(left: Gathered, pairs: Pairs, scale: float) -> tuple[Gathered, int]:
    """Return a left matrix as words, (1, M, pairs), and a bound on its magnitudes."""
    data = only_read(left.data)
    offsets = _as_words(*map(Offsets, (left.rows, left.columns, pairs.first, pairs.second)))
    if offsets is not None:
        raws, bound = raws_of(data, scale, np.dtype(np.int16), data.size % 2)  # whole words
        return Gathered(raws.view(np.int32), 1, 0, *offsets), bound
    words = empty((1, left.rows.size, pairs.first.size), np.int32)
    place, its_pairs = (data, left.rows, left.columns, scale), (pairs.first, pairs.second)
    return Gathered.of(words), int(join_factors(*place, *its_pairs, words[0], LOWER_HALF, HALF_BITS)[1])


def words_of_elements(data: Array, scale: float, distance: int) -> tuple[Array, int]:
    """Return each element as a word with the element `distance` on, and a bound on all magnitudes.

    Args:
        data: float32.
        scale: what makes integers of it.
        distance: positive.
    """
    words, source, bounds = empty((data.size,), np.int32), only_read(data), [1]

    def work(_: int, start: int, stop: int) -> None:
        bounds.append(int(_join_elements(source, scale, distance, words, LOWER_HALF, HALF_BITS, start, stop)))

    over_ranges(work, data.size, 1, GRAIN_ELEMENTS)
    return words, max(bounds)
