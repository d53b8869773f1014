"""An oracle for binary16: float32 arithmetic and one conversion by the processor, which is exact for add and multiply.

Sums and products of two binary16 numbers, rounded to float32 first and to binary16 then, equal the numbers rounded
once: float32 has more than twice the bits and two (docs/concepts/products.md, "Rounding twice"). It shares nothing
with emu's own rounding. Processors without the conversion (F16C and its like) use NumPy's, slower and with equal bits.
"""

from __future__ import annotations

from typing import Any, Literal

import llvmlite.binding  # pyright: ignore[reportMissingTypeStubs]
import numba.extending
import numpy as np
from llvmlite import ir  # pyright: ignore[reportMissingTypeStubs]
from numba.core import types  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from emu.backends.numba.compiling import kernel, over_ranges

Array = NDArray[Any]
_LLVM: Any = llvmlite.binding
_IR: Any = ir
_TYPES: Any = types
_INTRINSIC: Any = vars(numba.extending)["intrinsic"]


@_INTRINSIC
def _through_half(typingctx: Any, x: Any) -> Any:
    """Return the float32 `x` converted to binary16, nearest even, and back."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fpext(builder.fptrunc(values[0], _IR.HalfType()), _IR.FloatType())

    return _TYPES.float32(_TYPES.float32), generate


@kernel
def _wrong_sums(a: Any, b: Any, got: Any, start: int, stop: int) -> int:
    wrong = 0
    for i in range(start, stop):
        expected = _through_half(a[i] + b[i])
        same = (expected == got[i]) & (np.signbit(expected) == np.signbit(got[i]))
        wrong += not (same | ((expected != expected) & (got[i] != got[i])))
    return wrong


@kernel
def _wrong_products(a: Any, b: Any, got: Any, start: int, stop: int) -> int:
    wrong = 0
    for i in range(start, stop):
        expected = _through_half(a[i] * b[i])
        same = (expected == got[i]) & (np.signbit(expected) == np.signbit(got[i]))
        wrong += not (same | ((expected != expected) & (got[i] != got[i])))
    return wrong


_COMPILED: dict[str, Any] = {"add": _wrong_sums, "multiply": _wrong_products}


def converts_in_hardware() -> bool:
    """Return whether the processor has the conversion."""
    return bool(_LLVM.get_host_cpu_features().get("f16c"))


def count_wrong(operation: Literal["add", "multiply"], a: Array, b: Array, got: Array) -> int:
    """Return how many of `got` are not a + b or a * b of binary16, rounded to nearest even.

    Args:
        operation: which one.
        a: binary16 numbers in float32, shape `(n,)`.
        b: the same.
        got: results in float32; NaN equals every NaN, -0 differs from +0.
    """
    if not converts_in_hardware():
        return _count_wrong_by_numpy(operation, a, b, got)
    counts: list[int] = []
    over_ranges(lambda _, start, stop: counts.append(int(_COMPILED[operation](a, b, got, start, stop))), a.size, 1)
    return sum(counts)


def _count_wrong_by_numpy(operation: str, a: Array, b: Array, got: Array) -> int:
    with np.errstate(all="ignore"):
        expected = getattr(np, operation)(a, b).astype(np.float16).astype(np.float32)
    bits = (expected.view(np.uint32) != got.view(np.uint32)) & ~(np.isnan(expected) & np.isnan(got))
    return int(bits.sum())
