"""Maxima of windows in vector code, sixteen windows at once.

Windows two elements apart are loaded together, and every second element is taken; others are gathered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from emu.backends.numba.vector.lanes import F32, F64, I8, I16, I32, I64, IR, LANES, Emitter, Vector, intrinsic

_FLOATS, _INDICES = {32: F32, 64: F64}, {8: I8, 16: I16, 32: I32}
#: Distance of windows whose elements are loaded together.
APART = 2


def _largest(e: Emitter, size: Any, elements: Callable[[Any], Vector]) -> tuple[Vector, Vector]:
    """Return maxima and first positions of sixteen windows; `elements(j)` gives the j-th of each."""
    builder = e.builder
    best, position = e.variable(elements(e.integer(0))), e.variable(e.splat(I32, 0))
    # Element 0 is the first best: the loop counts those before element j.
    with e.loop(builder.sub(size, e.integer(1))) as earlier:
        j = builder.add(earlier, e.integer(1))
        rival, top = elements(j), best.now
        above_zero = (rival == top) & (rival.bits() == 0) & (top.bits() != 0)  # +0, whose bits are 0, beside -0
        wins = (rival > top) | ((rival != rival) & (top == top)) | above_zero
        best.set(wins.choose(rival, top))
        position.set(wins.choose(e.splat(I32, builder.trunc(j, I32)), position.now))
    return best.now, position.now


@intrinsic
def pool_neighbours(
    typing_context: Any,
    kind: Any,
    data: Any,
    columns: Any,
    size: Any,
    best: Any,
    index_kind: Any,
    index: Any,
    count: Any,
) -> Any:
    """Write maxima and first positions of up to sixteen windows, each `APART` after the one before.

    Args:
        typing_context: Numba's.
        kind: dtype of the elements, float32 or float64.
        data: address of the first window's element at offset 0.
        columns: address of the offsets of a window's elements, int64.
        size: elements of a window.
        best: address of the maxima.
        index_kind: dtype of the positions, unsigned.
        index: address of the positions.
        count: windows, 1..16.
    """
    signature = types.void(kind, *[types.int64] * 4, index_kind, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _FLOATS[kind.dtype.bitwidth]
        data, columns, best, index = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 4, 6))
        numbers = e.constants(I32, range(APART * LANES))
        count = builder.trunc(args[7], I32)
        end = builder.sub(builder.mul(count, e.integer(APART, I32)), e.integer(1, I32))  # nothing is read past the last
        inside = numbers < e.splat(I32, end, APART * LANES)
        zeros = e.splat(element, 0.0, APART * LANES)

        def elements(j: Any) -> Vector:
            neighbours = e.load_where(inside, element, data, e.load_scalar(I64, columns, j), zeros)
            # Windows are `APART` elements apart: every second of 32 neighbours is element j of a window.
            return neighbours.shuffled(neighbours, range(0, APART * LANES, APART))

        top, position = _largest(e, args[3], elements)
        written = e.constants(I32, range(LANES)) < e.splat(I32, count)
        e.store_where(written, top, best, e.integer(0))
        e.store_where(written, position.as_kind(_INDICES[index_kind.dtype.bitwidth]), index, e.integer(0))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def pool_windows(
    typing_context: Any,
    kind: Any,
    data: Any,
    rows: Any,
    columns: Any,
    size: Any,
    best: Any,
    index_kind: Any,
    index: Any,
    count: Any,
) -> Any:
    """Write maxima and first positions of windows; NaN wins, -0 < +0.

    Args:
        typing_context: Numba's.
        kind: dtype of the elements, float32 or float64.
        data: address of the element at offset 0.
        rows: address of the windows' offsets, int64.
        columns: address of the offsets of a window's elements, int64.
        size: elements of a window.
        best: address of the maxima.
        index_kind: dtype of the positions, unsigned.
        index: address of the positions.
        count: windows, a multiple of 16.
    """
    signature = types.void(kind, *[types.int64] * 5, index_kind, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _FLOATS[kind.dtype.bitwidth]
        rows, columns, best, index = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (2, 3, 5, 7))
        with e.loop(builder.udiv(args[8], e.integer(LANES))) as i:
            first = builder.mul(i, e.integer(LANES))
            offsets = e.load(I64, rows, first)

            # Element j of sixteen windows, each at its own offset.
            def elements(j: Any, offsets: Vector = offsets) -> Vector:
                column = e.load_scalar(I64, columns, j)
                return e.gather(element, args[1], offsets + e.splat(I64, column))

            top, position = _largest(e, args[4], elements)
            e.store(top, best, first)
            e.store(position.as_kind(_INDICES[index_kind.dtype.bitwidth]), index, first)
        return context.get_dummy_value()

    return signature, generate
