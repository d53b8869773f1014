"""Maxima of windows in vector code: sixteen windows at once, their elements gathered from wherever they lie."""

from __future__ import annotations

from typing import Any

from numba import types

from emu.backends.numba.vector.lanes import F32, F64, I8, I16, I32, I64, IR, LANES, Emitter, Vector, intrinsic

_FLOATS, _INDICES = {32: F32, 64: F64}, {8: I8, 16: I16, 32: I32}


@intrinsic
def pool_windows(
    typing_context: Any,
    kind: Any,
    data: Any,
    rows: Any,
    columns: Any,
    places: Any,
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
        places: elements of a window.
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

            def elements(j: Any, offsets: Vector = offsets) -> Vector:
                column = e.load_scalar(I64, columns, j)
                return e.gather(element, args[1], offsets + e.splat(I64, column))

            top, where = e.variable(elements(e.integer(0))), e.variable(e.splat(I32, 0))
            with e.loop(builder.sub(args[4], e.integer(1))) as earlier:
                j = builder.add(earlier, e.integer(1))
                rival, held = elements(j), top.now
                above_zero = (rival == held) & (rival.bits() == 0) & (held.bits() != 0)
                wins = (rival > held) | ((rival != rival) & (held == held)) | above_zero
                top.set(wins.choose(rival, held))
                where.set(wins.choose(e.splat(I32, builder.trunc(j, I32)), where.now))
            e.store(top.now, best, first)
            e.store(where.now.as_kind(_INDICES[index_kind.dtype.bitwidth]), index, first)
        return context.get_dummy_value()

    return signature, generate
