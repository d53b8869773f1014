"""Tiles of products added in order along k: rows by 32 columns, every sum in its own lane.

    fused        acc = fl32(acc + a*b)              one instruction: a product is never rounded on its own
    float32      acc = fl32(acc + fl32(a*b))
    binary16     acc = fl16(acc + fl16(a*b))        both through float32 and one conversion (NUMERICS 7)
    saturating   acc = clamp(acc + a*b)             integers below 2**24 in float32
    words        acc = clamp(acc + a*b)             one instruction that saturates 32 bits

Words: operands of together at most W bits are shifted left so that the top of a W-bit accumulator is the top of 32
bits, where vpdpwssds saturates. Beside each product of 16-bit halves stands a 0. Saturating steps compare with the
sum that was not limited; differences are or-ed: a limit was touched.

Source: NUMERICS 7; Figueroa 1995 (sums of binary16 through binary32).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.lanes import F16, F32, I8, I16, I32, IR, LANES, Emitter, Vector, intrinsic

#: One add: emitter, accumulator, left and right factor, low and high limit -> new accumulator, unlimited sum.
Step = Callable[[Emitter, Vector, Vector, Vector, tuple[Vector, Vector]], tuple[Vector, Vector]]


def _fused(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = acc.plus_product(a, b)
    return s, s


def _float32(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = acc + a * b
    return s, s


def _binary16(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = _in_half(acc + _in_half(a * b))
    return s, s


def _in_half(x: Vector) -> Vector:
    return x.as_kind(F16).as_kind(F32)


def _saturating(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    s = acc.plus_product(a, b)
    return s.clamp(*limits), s


def _words(e: Emitter, acc: Vector, a: Vector, b: Vector, limits: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    factors = [x.reshaped(I16, 2 * LANES).value for x in (a, b)]
    kept, s = (
        Vector(e, e.call(f"llvm.x86.avx512.{name}.512", acc.value.type, [acc.value, *factors]))
        for name in ("vpdpwssds", "vpdpwssd")
    )
    return kept, s


STEPS: dict[str, Step] = {
    "fused": _fused,
    "float32": _float32,
    "binary16": _binary16,
    "saturating": _saturating,
    "words": _words,
}
#: Steps that find out where a limit was touched.
TOUCHING = ("saturating", "words")
#: Rows of a tile: what fits the registers beside two vectors of the panel.
ROWS = {"fused": 8, "float32": 8, "binary16": 8, "saturating": 4, "words": 4}


@intrinsic
def add_in_order(
    typing_context: Any,
    step: Any,
    a: Any,
    row_stride: Any,
    panel: Any,
    depth: Any,
    low: Any,
    high: Any,
    sums: Any,
    touched: Any,
) -> Any:
    """Add the products of some rows and a panel to their sums, k = 0, 1, ... in this order.

    Args:
        typing_context: Numba's.
        step: a key of `STEPS`, known when compiling.
        a: address of the first row, float32 (words: int32).
        row_stride: elements from one row to the next.
        panel: address of 32 columns of the same type, one k after the other.
        depth: places along k.
        low: smallest value of a saturating accumulator, float64.
        high: its largest.
        sums: address of rows * 32 of them.
        touched: address of as many uint32, or-ed where a limit was touched; only of saturating accumulators.
    """
    i64, f64 = types.int64, types.float64
    signature = types.void(step, i64, i64, i64, i64, f64, f64, i64, i64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, name = Emitter(builder), step.literal_value
        a, panel, sums, touched = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 3, 7, 8))
        rows = [e.at(a, builder.mul(args[2], e.integer(row)), F32) for row in range(ROWS[name])]
        low, high = (e.splat(F32, builder.fptrunc(args[i], F32)) for i in (5, 6))
        _emit(e, name, rows, panel, args[4], (low, high), sums, touched)
        return context.get_dummy_value()

    return signature, generate


def _emit(
    e: Emitter,
    name: str,
    rows: list[Any],
    panel: Any,
    depth: Any,
    limits: tuple[Vector, Vector],
    sums: Any,
    touched: Any,
) -> None:
    builder, saturating, kind = e.builder, name in TOUCHING, I32 if name == "words" else F32
    places = [[e.integer(row * PANEL_COLUMNS + half * LANES) for half in range(2)] for row in range(len(rows))]
    held = [[e.variable(e.load(kind, sums, place)) for place in pair] for pair in places]
    hit = [[e.variable(e.splat(I32, 0)) for _ in pair] for pair in places] if saturating else []
    with e.loop(depth) as k:
        first = builder.mul(k, e.integer(PANEL_COLUMNS))
        right = [e.load(kind, panel, builder.add(first, e.integer(half * LANES))) for half in range(2)]
        for i, row in enumerate(rows):
            left = e.splat(kind, e.load_scalar(kind, row, k))
            for half in range(2):
                acc, s = STEPS[name](e, held[i][half].now, left, right[half], limits)
                held[i][half].set(acc)
                if saturating:
                    hit[i][half].set(hit[i][half].now | (_pattern(s) ^ _pattern(acc)))
    for i, pair in enumerate(places):
        for half, place in enumerate(pair):
            e.store(held[i][half].now, sums, place)
            if saturating:
                e.store(e.load(I32, touched, place) | hit[i][half].now, touched, place)


def _pattern(x: Vector) -> Vector:
    return x.bits() if x.is_float else x
