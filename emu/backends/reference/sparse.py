"""Sparse products: each result's operands are gathered and multiplied like those of other products.

Results with the same number of terms are computed together. Each has the random bits of its index among all results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import RandomCode
from emu.backends.pattern import Columns, Indices
from emu.backends.product import SparseProduct
from emu.backends.reference.exact import Exact
from emu.backends.reference.products import exact_sums, ordered_sums

Array = NDArray[Any]
#: Operands that are gathered at once, at most, unless a single result needs more.
GATHERED_ELEMENTS = 1 << 20


class Group(NamedTuple):
    """Results of the same number of terms, and their operands.

    Attributes:
        results: int64, (G,): their indices.
        left: (G, 1, K).
        right: (G, K, H).
        addend: (G or 1, 1, H or 1), or None.
    """

    results: NDArray[np.int64]
    left: Array
    right: Array
    addend: Array | None


def groups_of(product: SparseProduct) -> Iterator[Group]:
    """Yield all results, in groups of the same number of terms."""
    data, dense, addend = product.data, product.dense, product.addend
    starts, entries, rows = product.pattern.segments
    # results with as many terms are one stack of matrices, (G, 1, K) times (G, K, H)
    lengths: NDArray[np.int64] = np.diff(starts)
    for length in map(int, np.unique(lengths)):
        alike = np.flatnonzero(lengths == length)
        # as many results as keep the gathered dense rows within the limit
        most = max(1, GATHERED_ELEMENTS // max(length * dense.shape[1], 1))
        for first in range(0, alike.size, most):
            results = alike[first : first + most]
            # (G, K): positions of entries, by result
            stored: Array = starts[results, None] + np.arange(length, dtype=np.int64)
            third = None if addend is None else addend[results if addend.shape[0] > 1 else slice(None), None, :]
            yield Group(results, data[entries[stored]][:, None, :], dense[rows[stored]], third)


def sums(product: SparseProduct, random: RandomCode) -> tuple[Exact, NDArray[np.bool_] | None]:
    """Return the (R, H) accumulators' contents, and where they touched a limit."""
    code, shape = product.code, product.shape
    parts: list[tuple[NDArray[np.int64], Exact, NDArray[np.bool_] | None]] = []
    for group in groups_of(product):
        # Stochastic roundings inside the unit draw by the result's number in the whole product.
        numbers: Array = group.results[:, None, None] * shape[1] + np.arange(shape[1], dtype=np.int64)
        if code.mac.product is None and code.mac.accumulator is None:
            content, touched = exact_sums(group.left, group.right, group.addend, code.formats), None
        else:
            addressed = random._replace(elements=numbers)
            content, touched = ordered_sums(group.left, group.right, group.addend, code, addressed)
        parts.append((group.results, content, touched))
    # One dtype for all: Python integers if any group needs them.
    wide = any(content.significand.dtype == object for _, content, _ in parts)
    whole = Exact(
        np.zeros(shape, bool),
        np.zeros(shape, object if wide else np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.uint8),
    )
    # a group may have marked nothing
    limits = np.zeros(shape, bool)
    for results, content, touched in parts:
        for name in ("negative", "significand", "exponent", "kind"):
            getattr(whole, name)[results] = getattr(content, name)[:, 0, :]
        if touched is not None:
            limits[results] = touched[:, 0, :]
    return whole, limits


def columns(index: Indices, count: int) -> Columns:
    """Return which of `count` columns have entries, numbered by an exclusive prefix sum."""
    # how many entries each column has
    counts = np.bincount(index, minlength=count)
    marks = counts > 0
    # the number of used columns before each one
    numbers = (np.cumsum(marks) - marks).astype(index.dtype)
    return Columns(numbers[index], np.flatnonzero(marks).astype(index.dtype), int(counts.max(initial=0)))
