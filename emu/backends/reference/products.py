"""Matrix products: exact sums, or adds in the order the unit makes them.

Source: docs/concepts/products.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import MacCode, RandomCode
from emu.backends.product import Alignment, Formats, ProductCode
from emu.backends.reference import accumulators, arithmetic, blocks
from emu.backends.reference.accumulators import mark_new_nans, nan_among
from emu.backends.reference.exact import FINITE, INFINITE, INT64_BITS, NAN, Exact, to_common_exponent
from emu.backends.reference.raws import raw_of

Array = NDArray[Any]


def exact_sums(a: Array, b: Array, addend: Array | None, formats: Formats) -> Exact:
    """Return the exact (B, M, N) sums of products plus addend; a zero is +0."""
    shape = (a.shape[0], a.shape[1], b.shape[2])
    fa, fb, fc = formats
    a, b = arithmetic.flush_operands(a, fa), arithmetic.flush_operands(b, fb)
    # fixed-point raws share an exponent already; floats become integers that share an exponent
    if fa.is_float or fb.is_float:
        left, left_exponent = to_common_exponent([arithmetic.exact_of(a, fa)])
        right, right_exponent = to_common_exponent([arithmetic.exact_of(b, fb)])
        left, right = left[0], right[0]
        bits = _bits(left) + _bits(right)
    else:
        left, right = raw_of(a, fa), raw_of(b, fb)
        left_exponent, right_exponent = fa.quantum, fb.quantum
        bits = _bits(left) + _bits(right)
    # K products below 2**bits add up below 2**(bits + K.bit_length()). NumPy adds int64 as integers, without BLAS.
    if bits + a.shape[2].bit_length() > INT64_BITS:
        left, right = left.astype(object), right.astype(object)
    sums = Exact.from_integers(np.matmul(left, right), left_exponent + right_exponent)
    # after the products, whose exponent the addend need not share
    if addend is not None:
        sums = _plus(sums, arithmetic.exact_of(np.broadcast_to(addend, shape), fc))
    if fa.is_float or fb.is_float or (fc is not None and fc.is_float):
        sums = _with_special_sums(sums, a, b, addend)
    return sums


def _bits(integers: Array) -> int:
    # Of Python integers: int64 does not hold the magnitude of its least number.
    return max((abs(int(integers.max())), abs(int(integers.min())))).bit_length() if integers.size else 0


def _plus(sums: Exact, addend: Exact) -> Exact:
    (left, right), exponent = to_common_exponent([sums, addend])
    return Exact.from_integers(left + right, exponent)


def _with_special_sums(sums: Exact, a: Array, b: Array, addend: Array | None) -> Exact:
    operands = [x for x in (a, b, addend) if x is not None]
    if all(np.isfinite(x).all() for x in operands):
        return sums
    # of magnitude 1: infinite products stay infinite, and no finite product becomes so
    twins = [np.where(np.isfinite(x), np.sign(x), x).astype(np.float64) for x in operands]
    with np.errstate(invalid="ignore"):
        # (B, M, K, N)
        terms = twins[0][:, :, :, None] * twins[1][:, None, :, :]
        # Finite terms are left out: they change no infinity. Infinities of both signs make NaN.
        special = np.where(np.isfinite(terms), 0.0, terms).sum(axis=2)
        if addend is not None:
            special = special + np.where(np.isfinite(twins[2]), 0.0, twins[2])
    kind = np.where(np.isnan(special), NAN, np.where(np.isinf(special), INFINITE, FINITE)).astype(np.uint8)
    negative = np.where(kind == FINITE, sums.negative, np.signbit(special))
    # what is infinite or NaN has no digits
    significand = np.where(kind == FINITE, sums.significand, 0)
    exact = Exact(negative, significand, sums.exponent, kind)
    return mark_new_nans(exact, nan_among(a, b, addend, exact.kind.shape))


def ordered_sums(
    a: Array,
    b: Array,
    addend: Array | None,
    product: ProductCode,
    random: RandomCode,
    alignment: Alignment | None = None,
) -> tuple[Exact, NDArray[np.bool_] | None]:
    """Return the accumulator's (B, M, N) contents after adding in the Mac's order, and where it touched a limit."""
    formats, mac = product.formats, product.mac
    shape = (a.shape[0], a.shape[1], b.shape[2])
    a = arithmetic.flush_operands(a, formats[0])
    b = arithmetic.flush_operands(b, formats[1])
    # blocks add all their terms at once, and have no accumulator that takes them one by one
    if mac.order == k.BLOCKS:
        start = None if addend is None else np.broadcast_to(addend, shape)
        result, touched = blocks.block_sums(a, b, start, formats, mac, random, alignment)
        return mark_new_nans(result, nan_among(a, b, addend, shape)), touched
    # Draws are numbered 1 + 2 k for products and 2 + 2 k for sums; those of joins and the addend follow.
    unit = accumulators.choose(mac, formats, random)
    # the native shortcuts overflow and meet NaN, which are their results, not mistakes
    with np.errstate(all="ignore"):
        addend_state = None if addend is None else unit.addend(np.broadcast_to(addend, shape))
        # the draws of the loop below end at 2 * depth
        next_draw = 2 * a.shape[2] + 1
        if mac.order == k.SEQUENTIAL:
            state = unit.zero(shape) if addend_state is None else unit.round(addend_state, next_draw)
            for index in range(a.shape[2]):
                term = unit.term(a[:, :, index, None], b[:, index, None, :], 1 + 2 * index)
                state = unit.add(state, term, 2 + 2 * index)
        else:
            # leaves of the tree, with lanes that get no product
            count = a.shape[2] if mac.order == k.PAIRWISE else mac.lanes
            state, next_draw = _join(unit, _leaves(unit, a, b, shape, mac), count, next_draw, shape)
            if addend_state is not None:
                state = unit.add(state, addend_state, next_draw)
        result = unit.result(state)
    # infinities and NaN: which of the NaNs come from an operand
    if (result.kind != FINITE).any():
        result = mark_new_nans(result, nan_among(a, b, addend, shape))
    return result, unit.touched


def _leaves(unit: Any, a: Array, b: Array, shape: tuple[int, ...], mac: MacCode) -> list[Any]:
    """Return what each lane holds before lanes are joined: a running sum or, for `pairwise`, one rounded product.

    Lanes without a product are left out.
    """
    depth = a.shape[2]

    def term(index: int) -> Any:
        return unit.term(a[:, :, index, None], b[:, index, None, :], 1 + 2 * index)

    if mac.order == k.PAIRWISE:
        return [unit.round(term(index), 2 + 2 * index) for index in range(depth)]
    lanes: list[Any] = []
    # lanes beyond the depth hold +0, which `_join` knows
    for lane in range(min(mac.lanes, depth)):
        state = unit.zero(shape)
        for index in range(lane, depth, mac.lanes):
            state = unit.add(state, term(index), 2 + 2 * index)
        lanes.append(state)
    return lanes


def _join(unit: Any, lanes: list[Any], count: int, draw: int, shape: tuple[int, ...]) -> tuple[Any, int]:
    """Add neighbours level by level, padded with +0 to a power of two; return the last sum and the next draw.

    Of `count` lanes, those after the last given one hold +0, and so do their sums: a level needs at most one of them.
    """
    # A tree of `width` leaves has width - 1 sums, each with a draw of its own, those of padding too.
    width = 1 << max(count - 1, 0).bit_length()
    if not lanes:
        return unit.zero(shape), draw + width - 1
    while width > 1:
        # the last lane's partner has no product: it holds +0
        if len(lanes) % 2:
            lanes.append(unit.zero(shape))
        lanes = [unit.add(*pair, draw + i) for i, pair in enumerate(zip(lanes[0::2], lanes[1::2], strict=True))]
        width //= 2
        draw += width
    return lanes[0], draw
