"""Primitives of integers with scales and zero points: each is one operation, and no gradient flows back through it."""

from __future__ import annotations

from emu.autodiff.context import Context, Forward, Primitive
from emu.formats import Value
from emu.operations.reference_integers import ROWS


def _alone(name: str) -> Forward:
    def rule(c: Context, *operands: Value) -> Value:
        return c.run(name, *operands, **c.options)

    return rule


#: The primitives by name; `emu.operations.integers` and `reference_integers` say what each computes.
INTEGERS: dict[str, Primitive] = {
    name: Primitive(_alone(name), ())
    for name in (
        "quantize_linear",
        "bipolar",
        "dequantize_linear",
        "dynamic_quantize",
        "integer_matmul",
        "integer_conv2d",
        "integer_add",
        "integer_multiply",
        "integer_max_pool",
        "integer_surround",
        *(row.name for row in ROWS),
    )
}
