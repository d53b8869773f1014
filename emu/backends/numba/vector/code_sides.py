"""Gradient codecs of two steps in vector code: values on both sides of a threshold, sixteen at once.

A code is a bit of a mask, both in what comparisons give and in words; four vectors are the 64 lanes of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from emu.backends.numba.vector.lanes import F32, F64, I8, I16, IR, LANES, Count, Emitter, Vector, intrinsic
from emu.backends.reference.column_sums import LANES as SUM_LANES

_FLOATS = {32: F32, 64: F64}
#: Vectors that are the 64 lanes of a sum.
VECTORS = SUM_LANES // LANES
#: How many vectors memory is prefetched before its use: enough for it to arrive, few enough for the first-level cache.
AHEAD = 64
#: Sums that `add_sides` writes, one after the other: of all values, of those below, of those above.
SUMS = 3


@intrinsic
def add_sides(
    typing_context: Any,
    kind: Any,
    gradients: Any,
    residual: Any,
    values: Any,
    words: Any,
    threshold: Any,
    blocks: Any,
    lanes: Any,
) -> Any:
    """Write V = gradients + residual, its codes, and sums in 64 lanes; return how many values lie above.

    Args:
        typing_context: Numba's.
        kind: dtype of values, float32 or float64.
        gradients: address.
        residual: address.
        values: address of V.
        words: address of codes, a bit each.
        threshold: from here on V has the code 1; of the dtype.
        blocks: of 64 rows.
        lanes: address of the sums: `SUMS` times 64.
    """
    signature = types.int64(kind, *[types.int64] * 4, threshold, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _FLOATS[kind.dtype.bitwidth]
        gradients, residual, values, words, lanes = (
            builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 3, 4, 7)
        )
        limit, zero = e.splat(element, args[5]), e.splat(element, 0.0)
        # Lane j of a sum adds rows j, j + 64 ..., as the definition does.
        sums = [[e.variable(zero) for _ in range(VECTORS)] for _ in range(SUMS)]
        above = Count(e)
        chunks, prefetch = builder.mul(args[6], e.integer(VECTORS)), _prefetching(e, element)
        with e.loop(args[6]) as block:
            for part in range(VECTORS):
                chunk = builder.add(builder.mul(block, e.integer(VECTORS)), e.integer(part))
                first = builder.mul(chunk, e.integer(LANES))
                v = e.load(element, gradients, first) + e.load(element, residual, first)
                # V is kept for the residual: levels are known only when all rows have been added.
                e.store(v, values, first)
                prefetch(builder.add(chunk, chunks), gradients, residual)
                is_above = v >= limit
                _store_mask(e, is_above, words, chunk)
                above.add_where(is_above)
                # +0 is added to the other side: a sum that began at +0 is never -0, which that would change.
                for total, added in zip(sums, (v, is_above.choose(zero, v), is_above.choose(v, zero)), strict=True):
                    total[part].set(total[part].now + added)
        for number, total in enumerate(sums):
            for part, variable in enumerate(total):
                e.store(variable.now, lanes, e.integer(number * SUM_LANES + part * LANES))
        return above.now

    return signature, generate


@intrinsic
def settle_sides(
    typing_context: Any,
    kind: Any,
    values: Any,
    words: Any,
    below: Any,
    above: Any,
    residual: Any,
    chunks: Any,
    ahead: Any,
) -> Any:
    """Write residuals, V less the level of its side, and prefetch the beginning of the next column.

    Args:
        typing_context: Numba's.
        kind: dtype of values.
        values: address of V.
        words: address of codes.
        below: level of the code 0, of the dtype.
        above: level of the code 1.
        residual: address; the next column's follows.
        chunks: of 16 rows.
        ahead: address of the next column's gradients.
    """
    signature = types.void(kind, types.int64, types.int64, below, above, *[types.int64] * 3)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _FLOATS[kind.dtype.bitwidth]
        values, words, residual, ahead = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 5, 7))
        # In the order of `choose`: the level of the code 1, then that of 0.
        levels = [e.splat(element, args[i]) for i in (4, 3)]
        next_residual = e.at(residual, builder.mul(args[6], e.integer(LANES)), element)
        prefetch = _prefetching(e, element)
        with e.loop(args[6]) as chunk:
            first = builder.mul(chunk, e.integer(LANES))
            left = e.load(element, values, first) - _load_mask(e, words, chunk).choose(*levels)
            e.store(_one_nan(e, left), residual, first)
            prefetch(chunk, ahead, next_residual)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def decode_sides(
    typing_context: Any, words: Any, below: Any, above: Any, out: Any, chunks: Any, past_caches: Any
) -> Any:
    """Write the level of each code, float32.

    Args:
        typing_context: Numba's.
        words: address of codes.
        below: level of the code 0, float32.
        above: level of the code 1.
        out: address; a multiple of 64 if results go past the caches.
        chunks: of 16 rows.
        past_caches: whether they go, a literal.
    """
    signature = types.void(types.int64, below, above, types.int64, types.int64, past_caches)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        words, out = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 3))
        levels = [e.splat(F32, args[i]) for i in (2, 1)]
        with e.loop(args[4]) as chunk:
            decoded = _load_mask(e, words, chunk).choose(*levels)
            e.store(decoded, out, builder.mul(chunk, e.integer(LANES)), past_caches=bool(past_caches.literal_value))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def decode_and_add_sides(
    typing_context: Any, kind: Any, words: Any, below: Any, above: Any, total: Any, chunks: Any
) -> Any:
    """Add the level of each code to a sum.

    Args:
        typing_context: Numba's.
        kind: dtype of the sum, float32 or float64.
        words: address of codes.
        below: level of the code 0, of the dtype.
        above: level of the code 1.
        total: address of the sum.
        chunks: of 16 rows.
    """
    signature = types.void(kind, types.int64, below, above, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _FLOATS[kind.dtype.bitwidth]
        words, total = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 4))
        levels = [e.splat(element, args[i]) for i in (3, 2)]
        with e.loop(args[5]) as chunk:
            first = builder.mul(chunk, e.integer(LANES))
            added = e.load(element, total, first) + _load_mask(e, words, chunk).choose(*levels)
            e.store(_one_nan(e, added), total, first)
        return context.get_dummy_value()

    return signature, generate


def _prefetching(e: Emitter, element: Any) -> Callable[..., None]:
    """Return what prefetches vectors of both arrays of a column while the vectors of a column are passed twice.

    Steps are counted from the second pass over the column before: a column is prefetched during that pass and during
    its own first one, one vector in two steps, `AHEAD` steps early. So memory is read at an even rate.
    """

    def prefetch(chunk: Any, *columns: Any) -> None:
        builder = e.builder
        vector = builder.udiv(builder.add(chunk, e.integer(AHEAD)), e.integer(2))
        for column in columns:
            e.prefetch(element, column, builder.mul(vector, e.integer(LANES)))

    return prefetch


def _one_nan(e: Emitter, x: Vector) -> Vector:
    """Return the numbers, with the quiet positive NaN in place of each NaN."""
    return (x != x).choose(e.splat(x.kind, float("nan")), x)


def _store_mask(e: Emitter, mask: Vector, words: Any, chunk: Any) -> None:
    # Sixteen lanes of one bit are a half-word: lane i is bit i.
    target = e.at(words, chunk, I16)
    e.builder.store(e.builder.bitcast(mask.value, I16), target).align = 1


def _load_mask(e: Emitter, words: Any, chunk: Any) -> Vector:
    word = e.load_scalar(I16, words, chunk)
    return Vector(e, e.builder.bitcast(word, IR.VectorType(IR.IntType(1), LANES)))
