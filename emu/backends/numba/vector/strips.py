"""Vector code of sparse products: one entry's products added to its result's row of a strip."""

from __future__ import annotations

from typing import Any

from numba import types

from emu.backends.numba.vector.lanes import F32, F64, I8, IR, LANES, Emitter, intrinsic

_FLOATS = {32: F32, 64: F64}


@intrinsic
def add_products(typing_context: Any, result: Any, row: Any, row_kind: Any, left: Any, lanes: Any) -> Any:
    """Add left * row to `lanes` neighbours, each product and each sum rounded to the kind of `left`.

    Args:
        typing_context: Numba's.
        result: address of the first sum, of the kind of `left`.
        row: address of the first factor.
        row_kind: a number of the kind of the row's elements.
        left: the entry, float32 or float64.
        lanes: how many, a literal multiple of 16.
    """
    signature = types.void(types.int64, types.int64, row_kind, left, lanes)
    count = lanes.literal_value

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, kind, source = Emitter(builder), _FLOATS[left.bitwidth], _FLOATS[row_kind.bitwidth]
        sums, factors = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 1))
        factor = e.splat(kind, args[3])
        for first in range(0, count, LANES):
            place = e.integer(first)
            product = e.load(source, factors, place).as_kind(kind) * factor
            e.store(e.load(kind, sums, place) + product, sums, place)
        return context.get_dummy_value()

    return signature, generate
