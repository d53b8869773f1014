"""What each operation of autodiff means on a datapath.

One engine call, or the short sequence the hardware or its host runs.

Selections (relu, max pooling) move values and write nothing new: they round, and are observed, only where the layer's
format differs from the operand's. Softmax and losses run in the `loss` role's format, their sums pairwise; what leaves
them is written in the role of whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu.autodiff import Value
from emu.backends.gathered import Gathered
from emu.datapath import OutputStage
from emu.engine.convolution import convolved_size, patches_of, windows_of
from emu.engine.products import product
from emu.engine.work import WorkRecord
from emu.formats import PRESETS, Format
from emu.precision.policy import Policy

Array = NDArray[Any]
FP32 = PRESETS["fp32"]


class Unit(NamedTuple):
    """The unit that writes a role of a layer: its stage, its Mac, and where its counts and random bits go.

    Attributes:
        policy: formats and units.
        layer: whose result is written.
        role: the result's role.
        backend: who computes.
        options: seed, stream, step, register and flags of the result.
        stream_of: the random stream of a named step on the way to the result.
        log: gets a record of each product on the way to the result; None keeps none.
    """

    policy: Policy
    layer: str
    role: str
    backend: str
    options: dict[str, Any]
    stream_of: Callable[[str], int]
    log: list[WorkRecord] | None = None

    @property
    def stage(self) -> OutputStage:
        """The output stage of what is written."""
        return self.policy.stage(self.layer, self.role)

    def writing(self, stage: OutputStage | None = None) -> dict[str, Any]:
        """Return the engine options of a result that is written and observed."""
        stage = stage or self.stage
        rounding = {"rounding": stage.rounding, "overflow": stage.overflow, "n_rbits": stage.n_rbits}
        return {"out_format": stage.format, **rounding, "backend": self.backend, "check": False, **self.options}

    def on_host(self, step: str) -> dict[str, Any]:
        """Return the engine options of an intermediate result in the `loss` role's format, not observed."""
        random = {"seed": self.options["seed"], "step": self.options["step"], "stream": self.stream_of(step)}
        stage = self.policy.stage(self.layer, "loss")
        rounding = {"rounding": stage.rounding, "overflow": stage.overflow, "n_rbits": stage.n_rbits}
        return {"out_format": stage.format, **rounding, "backend": self.backend, "check": False, **random}

    def value(self, array: Array) -> Value:
        """Return what the stage wrote."""
        return Value(array, self.stage.format)


def _product(
    unit: Unit,
    operation: Callable[..., Array],
    names: tuple[str, str],
    x: Value,
    y: Value,
    addend: Value | None,
    **shapes: Any,
) -> Value:
    formats: dict[str, Any] = {names[0]: x.format, names[1]: y.format}
    if addend is not None:
        third = "addend" if names[0] == "a_format" else "bias"
        formats |= {third: addend.array, f"{third}_format": addend.format}
    return unit.value(
        operation(
            x.array, y.array, mac=unit.policy.mac(unit.layer), log=unit.log, **formats, **shapes, **unit.writing()
        )
    )


def _matmul(unit: Unit, a: Value, b: Value, addend: Value | None = None) -> Value:
    return _product(unit, product, ("a_format", "b_format"), a, b, addend)


def _conv2d(unit: Unit, x: Value, w: Value, bias: Value | None = None, *, stride: Any, padding: Any) -> Value:
    return _product(unit, engine.conv2d, ("x_format", "w_format"), x, w, bias, stride=stride, padding=padding)


def _conv2d_input_gradient(unit: Unit, g: Value, w: Value, *, shape: Any, stride: Any, padding: Any) -> Value:
    """The errors, spread by the stride and padded, convolved with the flipped kernels.

    One product per result, as a Mac runs it.
    """
    kernel = w.shape[2:]
    spread = np.zeros((*g.shape[:2], shape[2] + kernel[0] - 1, shape[3] + kernel[1] - 1), g.array.dtype)
    here, there = zip(
        *(_overlap(g.shape[2 + i], spread.shape[2 + i], stride[i], kernel[i] - 1 - padding[i]) for i in (0, 1)),
        strict=True,
    )
    spread[:, :, there[0], there[1]] = g.array[:, :, here[0], here[1]]
    flipped = w.with_array(w.array.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])
    return _conv2d(unit, g.with_array(spread), flipped, stride=(1, 1), padding=(0, 0))


def _overlap(size: int, room: int, stride: int, offset: int) -> tuple[slice, slice]:
    """Return which of `size` elements land inside `room` when element i goes to offset + i * stride, and where."""
    first = max(0, -(offset // stride))
    last = min(size - 1, (room - 1 - offset) // stride)
    start = offset + first * stride
    return slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)


def _conv2d_weight_gradient(unit: Unit, x: Value, g: Value, *, kernel: Any, stride: Any, padding: Any) -> Value:
    """One product per weight, k running over images, then output rows and columns."""
    inputs = patches_of(x.array, tuple(kernel), stride, padding).joined().transposed()
    errors = Gathered.of_axes(g.array, (1,), (0, 2, 3))
    written = _product(unit, product, ("a_format", "b_format"), g.with_array(errors), x.with_array(inputs), None)
    return written.with_array(written.array.reshape(-1, x.shape[1], *kernel))


def _sum(unit: Unit, x: Value, *, axis: tuple[int, ...]) -> Value:
    return unit.value(
        engine.total(
            x.array, x_format=x.format, axis=axis, mac=unit.policy.mac(unit.layer), log=unit.log, **unit.writing()
        )
    )


def _average(unit: Unit, windows: Value) -> Value:
    """The mean of the last axis: the accumulator's content divided by the count, rounded once."""
    axis = windows.array.ndim - 1
    mac = unit.policy.mac(unit.layer)
    means = engine.average(windows.array, x_format=windows.format, axis=axis, mac=mac, log=unit.log, **unit.writing())
    return unit.value(means)


def _elementwise(name: str) -> Callable[..., Value]:
    def operation(unit: Unit, *operands: Value) -> Value:
        formats = tuple(value.format for value in operands)
        return unit.value(engine.elementwise(name, tuple(value.array for value in operands), formats, **unit.writing()))

    return operation


def _quantize(unit: Unit, x: Value) -> Value:
    options = unit.writing()
    out_format = options.pop("out_format")
    del options["check"]
    return unit.value(
        engine.quantize(
            x.array, out_format, x_format=x.format if getattr(x.format, "carries_raws", False) else None, **options
        )
    )


def _negate(unit: Unit, x: Value) -> Value:
    return _elementwise("subtract")(unit, Value(np.zeros((), np.float32), FP32), x)


def _divide_by(unit: Unit, x: Value, *, divisor: int) -> Value:
    if divisor & (divisor - 1) == 0:
        return _elementwise("multiply")(unit, x, Value(np.float32(1 / divisor), FP32))
    return _elementwise("divide")(unit, x, Value(np.float32(divisor), FP32))


def _selected(unit: Unit, x: Value) -> Value:
    """Return a selection of `x`: written through the stage only if the layer's format is another one."""
    return x if x.format == unit.stage.format else _quantize(unit, x)


def _relu(unit: Unit, x: Value) -> Value:
    return _selected(unit, x.with_array(engine.relu(x.array, backend=unit.backend)))


def _select(unit: Unit, x: Value, mask: Value) -> Value:
    return _selected(unit, x.with_array(np.where(mask.array, x.array, np.zeros((), x.array.dtype))))


def _max_pool(unit: Unit, x: Value, *, window: int, stride: int) -> Value:
    sizes = tuple(convolved_size(size, window, stride, 0) for size in x.shape[2:])
    best, index = (
        found.reshape(*x.shape[:2], *sizes)
        for found in engine.max_pool(windows_of(x.array, window, stride), backend=unit.backend)
    )
    written = _selected(unit, x.with_array(best))
    return Value((written.array, index), written.format)


def _unpool(unit: Unit, g: Value, x: Value, *, saved: Any, window: int, stride: int) -> Value:
    """Gradients of maxima at the places of these, zeros elsewhere; windows do not overlap."""
    moved = engine.unpool(g.array, saved, windows_of(x.array, window, stride), backend=unit.backend)
    return g.with_array(moved.reshape(x.shape))


def _function(unit: Unit, x: Value, *, function: str) -> Value:
    return unit.value(engine.function(function, x.array, x_format=x.format, **unit.writing()))


def _sigmoid_slope(unit: Unit, y: Value) -> Value:
    """Y * (1 - y) = y - y * y, rounded once."""
    return _elementwise("fma")(unit, _negated(y), y, y)


def _tanh_slope(unit: Unit, y: Value) -> Value:
    """1 - y * y, rounded once."""
    return _elementwise("fma")(unit, _negated(y), y, Value(np.float32(1), FP32))


def _negated(y: Value) -> Value:
    return y.with_array(0.0 - y.array)  # exact, and +0 for 0


# ---- losses, in the format of the `loss` role -----------------------------------------------------------------------


class _Host:
    """Arithmetic in the `loss` role's format; every step has its own random stream, by its name."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.format: Format = unit.policy.stage(unit.layer, "loss").format

    def elementwise(self, step: str, name: str, *operands: Any) -> Array:
        """Return an elementwise operation; arrays are in the role's format, `Value`s in their own."""
        values = [x if isinstance(x, Value) else Value(x, self.format) for x in operands]
        arrays, formats = tuple(v.array for v in values), tuple(v.format for v in values)
        return engine.elementwise(name, arrays, formats, **self.unit.on_host(step))

    def function(self, step: str, name: str, x: Array) -> Array:
        """Return an elementary function."""
        return engine.function(name, x, x_format=self.format, **self.unit.on_host(step))

    def total(self, step: str, x: Array, axis: int | None) -> Array:
        """Return a pairwise sum."""
        mac = self.unit.policy.reduction(self.unit.layer)
        return engine.total(x, x_format=self.format, axis=axis, mac=mac, log=self.unit.log, **self.unit.on_host(step))

    def count(self, n: int) -> Value:
        """Return an integer as an operand."""
        return Value(np.float32(n), FP32)


def _softmax_cross_entropy(unit: Unit, x: Value, labels: Value) -> Value:
    """log(sum(exp(z))) - z[label] with z = x - max(x), its mean over the batch; and the probabilities, to go back."""
    host = _Host(unit)
    shifted = host.elementwise("shifted", "subtract", x, x.with_array(x.array.max(axis=1, keepdims=True)))
    exponentials = host.function("exponentials", "exp", shifted)
    sums = host.total("sums", exponentials, 1)
    picked = np.take_along_axis(shifted, labels.array[:, None], axis=1)[:, 0]
    losses = host.elementwise("losses", "subtract", host.function("logarithms", "log", sums), picked)
    probabilities = host.elementwise("probabilities", "divide", exponentials, sums[:, None])
    return _mean_loss(unit, host, losses, probabilities)


def _mean_loss(unit: Unit, host: _Host, losses: Array, saved: Array) -> Value:
    total = host.total("total", losses, None)
    mean = engine.elementwise("divide", (total, np.float32(losses.size)), (host.format, FP32), **unit.writing())
    return Value((mean, saved), host.format)


def _softmax_cross_entropy_gradient(unit: Unit, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    """The probabilities less the one-hot labels, times g, over N.

    Difference and product on the host, the quotient written in the role that reads it.
    """
    host = _Host(unit)
    difference = host.elementwise("difference", "subtract", saved[0], _one_hot(x, labels))
    return _shared_out(unit, host, g, difference, x.shape[0])


def _shared_out(unit: Unit, host: _Host, g: Value, difference: Array, count: int) -> Value:
    scaled = Value(host.elementwise("scaled", "multiply", g, difference), host.format)
    return _elementwise("divide")(unit, scaled, host.count(count))


def _one_hot(x: Value, labels: Value) -> Value:
    return Value((np.arange(x.shape[1]) == labels.array[:, None]).astype(np.float32), FP32)


def _mse(unit: Unit, x: Value, labels: Value) -> Value:
    """The mean of squared differences from one-hot targets."""
    host = _Host(unit)
    difference = host.elementwise("difference", "subtract", x, _one_hot(x, labels))
    return _mean_loss(unit, host, host.elementwise("squares", "multiply", difference, difference), difference)


def _mse_gradient(unit: Unit, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    host = _Host(unit)
    twice = Value(host.elementwise("twice", "multiply", g, host.count(2)), host.format)
    return _shared_out(unit, host, twice, saved[0], saved[0].size)


#: Operations that move values and write nothing: nothing is counted of them.
MOVES = ("unpool",)
#: Every operation by name.
OPERATIONS: dict[str, Callable[..., Value]] = {
    **{name: _elementwise(name) for name in ("add", "subtract", "multiply", "divide", "fma", "sqrt")},
    "quantize": _quantize,
    "negate": _negate,
    "divide_by": _divide_by,
    "sum": _sum,
    "average": _average,
    "matmul": _matmul,
    "conv2d": _conv2d,
    "conv2d_input_gradient": _conv2d_input_gradient,
    "conv2d_weight_gradient": _conv2d_weight_gradient,
    "relu": _relu,
    "select": _select,
    "max_pool": _max_pool,
    "unpool": _unpool,
    "function": _function,
    "sigmoid_slope": _sigmoid_slope,
    "tanh_slope": _tanh_slope,
    "softmax_cross_entropy": _softmax_cross_entropy,
    "softmax_cross_entropy_gradient": _softmax_cross_entropy_gradient,
    "mse": _mse,
    "mse_gradient": _mse_gradient,
}
