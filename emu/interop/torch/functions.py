"""Products and quantisation as functions of PyTorch's autograd, on units that are described in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu.datapath import Mac
from emu.engine import Unit
from emu.errors import FormatError, ShapeError
from emu.formats import PRESETS, Value, parse_number
from emu.interop.torch.package import load_torch
from emu.interop.torch.tensors import as_tensor, numbers_of, tensor_of

Array = NDArray[Any]
torch = load_torch()


def matmul(a: Any, b: Any, unit: Unit | str, *, back: Unit | None = None) -> Any:
    """Return a @ b as a unit computes it: summed by its Mac, rounded once into its format.

    Gradients are products with the numbers of a and b as they are. The unit `back` computes them, of gradients written
    in the format of its inputs; without it they are sums in float64 of exact products, rounded once to float32.

    Args:
        a: tensor `(*batch, M, K)`, whose numbers are in the unit's `inputs`, or float32 if it has none.
        b: tensor `(*batch, K, N)`, in the same way.
        unit: the unit, or the format that it writes.
        back: unit of both gradients; its `inputs` must hold a, b and the gradients' range.

    Returns:
        Tensor `(*batch, M, N)`, float32, or float64 if the unit's format needs it.

    Raises:
        FormatError: a tensor has a number outside the format, the unit writes a format too wide for tensors, or an
            argument is no tensor or no unit.
        ShapeError: the shapes do not fit together.
    """
    unit = Unit(unit) if isinstance(unit, str) else unit
    for name, given in (("unit", unit), ("back", back)):
        if not isinstance(given, Unit) and not (name == "back" and given is None):
            raise FormatError(
                f"`{name}` must be an emu.Unit, got {type(given).__name__}; describe one such as emu.Unit('fp16')"
            )
    a, b = as_tensor(a, "a"), as_tensor(b, "b")
    if min(a.ndim, b.ndim) < 2:
        raise ShapeError(
            f"matmul of tensors must have two axes or more, got {tuple(a.shape)} and {tuple(b.shape)}; add one of "
            "size 1"
        )
    # products of float32 have at most 48 bits of significand, which float64 holds
    back = (
        Unit("fp32", inputs="fp64", mac=Mac(product="exact", accumulator=PRESETS["fp64"]), backend=unit.backend)
        if back is None
        else back
    )
    return _Matmul.apply(a, b, unit, back)


def quantize(x: Any, fmt: Any, **options: Any) -> Any:
    """Return x written in a format; its gradient passes straight through, as if nothing had been rounded.

    Numbers that saturate pass their gradient as well.

    Args:
        x: tensor of any shape and real dtype.
        fmt: the format, scaled ones as `mxfp8_e4m3` among them.
        **options: as those of `emu.quantize`: rounding, overflow, random bits, register, flags, backend, axis.

    Returns:
        Tensor of the shape of x, float32, or float64 if the format or x needs it.

    Raises:
        FormatError: an impossible format or option, a format too wide for tensors, or something that is no tensor.
    """
    return _Quantize.apply(as_tensor(x, "x"), fmt, options)


def _operand(tensor: Any, name: str, unit: Unit) -> Value:
    """Return a tensor as an operand: the unit checks that its numbers are in the format."""
    array = numbers_of(tensor, name)
    fmt = unit.inputs or PRESETS["fp32"]
    return engine.value(array, fmt)


def _as_tensor(result: Any, like: Any) -> Any:
    fmt = result.format
    if isinstance(result, Value) and fmt.carries_raws:
        raise FormatError(
            f"formats of tensors must fit float64 exactly, got {fmt}; choose a narrower one, or call emu's function"
        )
    # a copy, whose memory the tensor shares with nothing else
    array = np.array(result)
    own = torch.float32 if like.dtype.itemsize == 1 else like.dtype  # PyTorch promotes no floats of 8 bits
    # never narrower than the carrier of the format
    dtype = torch.promote_types(own, torch.float64 if array.dtype == np.float64 else torch.float32)
    return tensor_of(Value(array), dtype if like.dtype.is_floating_point else None, like.device)


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, unit: Unit, back: Unit) -> Any:
        # through PyTorch, which then notices if they are changed in place
        ctx.save_for_backward(a, b)
        ctx.back = back
        return _as_tensor(unit.matmul(_operand(a, "a", unit), _operand(b, "b", unit)), a)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        back: Unit = ctx.back
        inputs = back.inputs or PRESETS["fp32"]
        # the gradient is written in the format of the unit's inputs, as any operand
        g = Value(engine.quantize(numbers_of(gradient, "gradient"), inputs, backend=back.backend), inputs)
        first = second = None
        if ctx.needs_input_grad[0]:
            first = _summed(back.matmul(g, _operand(b.mT, "b", back)), a)
        if ctx.needs_input_grad[1]:
            second = _summed(back.matmul(_operand(a.mT, "a", back), g), b)
        return first, second, None, None


def _summed(result: Value, operand: Any) -> Any:
    """Return a gradient in the shape of its operand: summed over axes along which that was repeated."""
    return _as_tensor(result, operand).sum_to_size(operand.shape).to(operand.dtype)


class _Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, fmt: Any, options: dict[str, Any]) -> Any:
        ctx.dtype = x.dtype
        numbers = numbers_of(x, "x")
        written = engine.quantize(numbers, fmt, **options)
        # an array for plain formats; a quantised tensor, which has its format, for scaled ones
        if isinstance(written, np.ndarray):
            written = Value(written, parse_number(fmt))
        return _as_tensor(written, x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        return gradient.to(ctx.dtype), None, None
