"""What each operation of autodiff means on a datapath.

One engine call, or the short sequence the hardware or its host runs.

Selections (relu, max pooling) move values and write nothing new: they round, and are observed, only where the layer's
format differs from the operand's. Softmax and losses run in the `loss` role's format, their sums pairwise; what leaves
them is written in the role of whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu.autodiff import Value
from emu.backends.arrays import namespace
from emu.backends.gathered import Gathered
from emu.datapath import Mac, OutputStage
from emu.engine.convolution import convolved_size, patches_of, windows_of, write_convolution
from emu.engine.elementwise import write_elementwise
from emu.engine.functions import write_function
from emu.engine.products import as_addend, as_batches, write_product
from emu.engine.quantize import write_quantized
from emu.engine.reductions import write_total
from emu.engine.request import Request, as_operand
from emu.engine.work import WorkRecord
from emu.formats import PRESETS, Format
from emu.precision.counters import CounterTable
from emu.precision.policy import Policy

Array = NDArray[Any]
FP32 = PRESETS["fp32"]
#: The step that writes the result itself.
RESULT = ""


class Unit:
    """The unit that writes a role of a layer: its stage, its Mac, and where its counts and random bits go.

    Attributes:
        stage: the output stage of what is written.
        mac: the layer's multiply-accumulate unit.
        backend: who computes.
        step: training step, part of every random number's address.
        log: gets a record of each product on the way to the result; None keeps none.
    """

    def __init__(
        self,
        policy: Policy,
        layer: str,
        role: str,
        backend: str,
        seed: int,
        stream_of: Callable[[str], int],
        counters: CounterTable | None,
        log: list[WorkRecord] | None,
    ) -> None:
        """Take the place of a result.

        Args:
            policy: formats and units.
            layer: whose result is written.
            role: the result's role.
            backend: who computes.
            seed: key of every random number.
            stream_of: the random stream of the result (of no step), or of a named step on the way to it.
            counters: where the result's register and flags are; None observes nothing.
            log: see above.
        """
        self.stage, self.mac = policy.stage(layer, role), policy.mac(layer)
        self.backend, self.log, self.step = backend, log, 0
        self._policy, self._layer, self._role = policy, layer, role
        self._seed, self._stream_of, self._counters = seed, stream_of, counters
        self._requests: dict[str, Request] = {}
        if counters is not None:
            counters.of(layer, role)  # listed even if nothing is ever written

    def request(self) -> Request:
        """Return how the result is written and observed."""
        request = self._at(RESULT, self.stage)
        if self._counters is None:
            return request
        counters = self._counters.of(self._layer, self._role)
        if request.register is not counters.register:  # the first one, or counters were loaded
            request = request._replace(register=counters.register, flags=counters.flags)
            self._requests[RESULT] = request
        return request

    def on_host(self, step: str) -> Request:
        """Return how an intermediate result is written: in the `loss` role's format, not observed."""
        return self._at(step, self.host_stage)

    @property
    def host_stage(self) -> OutputStage:
        """The stage of intermediate results."""
        return self._policy.stage(self._layer, "loss")

    @property
    def reduction(self) -> Mac:
        """The unit of sums among intermediate results."""
        return self._policy.reduction(self._layer)

    def _at(self, step: str, stage: OutputStage) -> Request:
        known = self._requests.get(step)
        if known is None:
            address = (self._seed, self._stream_of(step), self.step)
            known = self._requests[step] = Request.at(stage, address, self.backend)
        elif known.random.step != self.step:
            known = self._requests[step] = known.in_step(self.step)
        return known

    def value(self, array: Array) -> Value:
        """Return what the stage wrote."""
        return Value(array, self.stage.format)


def _carrier(x: Value) -> Array:
    """Return an operand as kernels take it."""
    return as_operand(x.array, x.format, "x", check=False)[0]


def _matmul(unit: Unit, a: Value, b: Value, addend: Value | None = None) -> Value:
    left, right, shape, batch = as_batches(_carrier(a), _carrier(b))
    formats = (a.format, b.format, None if addend is None else addend.format)
    full = (*batch, left.shape[1], right.shape[2])
    third = None if addend is None else as_addend(_carrier(addend), shape, full)
    written = write_product(left, right, third, formats, unit.mac, unit.request(), 1, unit.log)
    return unit.value(written.reshape(shape))


def _conv2d(unit: Unit, x: Value, w: Value, bias: Value | None = None, *, stride: Any, padding: Any) -> Value:
    formats = (w.format, x.format, None if bias is None else bias.format)
    third = None if bias is None else _carrier(bias)
    return unit.value(
        write_convolution(_carrier(x), _carrier(w), third, formats, stride, padding, unit.mac, unit.request(), unit.log)
    )


def _conv2d_input_gradient(unit: Unit, g: Value, w: Value, *, shape: Any, stride: Any, padding: Any) -> Value:
    """The errors, spread by the stride and padded, convolved with the flipped kernels.

    One product per result, as a Mac runs it.
    """
    kernel = w.shape[2:]
    spread = namespace(g.array).zeros((*g.shape[:2], shape[2] + kernel[0] - 1, shape[3] + kernel[1] - 1), g.array.dtype)
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
    inputs = patches_of(_carrier(x), tuple(kernel), stride, padding).joined().transposed()
    errors = Gathered.of_axes(_carrier(g), (1,), (0, 2, 3))
    written = write_product(errors, inputs, None, (g.format, x.format, None), unit.mac, unit.request(), 1, unit.log)
    return unit.value(written.reshape(-1, x.shape[1], *kernel))


def _sum(unit: Unit, x: Value, *, axis: tuple[int, ...]) -> Value:
    return unit.value(write_total(_carrier(x), x.format, axis, unit.mac, unit.request(), log=unit.log))


def _average(unit: Unit, windows: Value) -> Value:
    """The mean of the last axis: the accumulator's content divided by the count, rounded once."""
    array = _carrier(windows)
    means = write_total(array, windows.format, array.ndim - 1, unit.mac, unit.request(), averaged=True, log=unit.log)
    return unit.value(means)


def _elementwise(name: str) -> Callable[..., Value]:
    def operation(unit: Unit, *operands: Value) -> Value:
        arrays, formats = [_carrier(value) for value in operands], tuple([value.format for value in operands])
        return unit.value(write_elementwise(name, arrays, formats, unit.request()))

    return operation


def _quantize(unit: Unit, x: Value) -> Value:
    source = x.format if getattr(x.format, "carries_raws", False) else None
    array, fmt = as_operand(x.array, source, "x", check=False)
    return unit.value(write_quantized(array, fmt, unit.request()))


def _number(x: float) -> Value:
    """Return a number as an operand: as float32 where that holds it, else as float64."""
    single = np.array(x, np.float32)
    return Value(single, FP32) if single == x else Value(np.array(x, np.float64), PRESETS["fp64"])


def _negate(unit: Unit, x: Value) -> Value:
    return _elementwise("subtract")(unit, _number(0), x)


def _divide_by(unit: Unit, x: Value, *, divisor: int) -> Value:
    if divisor & (divisor - 1) == 0:
        return _elementwise("multiply")(unit, x, _number(1 / divisor))
    return _elementwise("divide")(unit, x, _number(divisor))


def _selected(unit: Unit, x: Value) -> Value:
    """Return a selection of `x`: written through the stage only if the layer's format is another one."""
    return x if x.format == unit.stage.format else _quantize(unit, x)


def _relu(unit: Unit, x: Value) -> Value:
    return _selected(unit, x.with_array(engine.relu(x.array, backend=unit.backend)))


def _select(unit: Unit, x: Value, mask: Value) -> Value:
    xp = namespace(x.array)
    return _selected(unit, x.with_array(xp.where(mask.array, x.array, xp.zeros((), x.array.dtype))))


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
    return unit.value(write_function(function, _carrier(x), x.format, unit.request()))


def _sigmoid_slope(unit: Unit, y: Value) -> Value:
    """Y * (1 - y) = y - y * y, rounded once."""
    return _elementwise("fma")(unit, _negated(y), y, y)


def _tanh_slope(unit: Unit, y: Value) -> Value:
    """1 - y * y, rounded once."""
    return _elementwise("fma")(unit, _negated(y), y, _number(1))


def _negated(y: Value) -> Value:
    return y.with_array(0.0 - y.array)  # exact, and +0 for 0


# ---- losses, in the format of the `loss` role -----------------------------------------------------------------------


class _Host:
    """Arithmetic in the `loss` role's format; every step has its own random stream, by its name."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.format: Format = unit.host_stage.format

    def elementwise(self, step: str, name: str, *operands: Any) -> Array:
        """Return an elementwise operation; arrays are in the role's format, `Value`s in their own."""
        values = [x if isinstance(x, Value) else Value(x, self.format) for x in operands]
        arrays, formats = [_carrier(v) for v in values], tuple([v.format for v in values])
        return write_elementwise(name, arrays, formats, self.unit.on_host(step))

    def function(self, step: str, name: str, x: Array) -> Array:
        """Return an elementary function."""
        return write_function(name, x, self.format, self.unit.on_host(step))

    def total(self, step: str, x: Array, axis: int | None) -> Array:
        """Return a pairwise sum."""
        unit = self.unit
        return write_total(x, self.format, axis, unit.reduction, unit.on_host(step), log=unit.log)

    def count(self, n: int) -> Value:
        """Return an integer as an operand."""
        return _number(n)


def _softmax_cross_entropy(unit: Unit, x: Value, labels: Value) -> Value:
    """log(sum(exp(z))) - z[label] with z = x - max(x), its mean over the batch; and the probabilities, to go back."""
    host = _Host(unit)
    shifted = host.elementwise("shifted", "subtract", x, x.with_array(x.array.max(axis=1, keepdims=True)))
    exponentials = host.function("exponentials", "exp", shifted)
    sums = host.total("sums", exponentials, 1)
    picked = namespace(shifted).take_along_axis(shifted, labels.array[:, None], axis=1)[:, 0]
    losses = host.elementwise("losses", "subtract", host.function("logarithms", "log", sums), picked)
    probabilities = host.elementwise("probabilities", "divide", exponentials, sums[:, None])
    return _mean_loss(unit, host, losses, probabilities)


def _mean_loss(unit: Unit, host: _Host, losses: Array, saved: Array) -> Value:
    total = host.total("total", losses, None)
    mean = _elementwise("divide")(unit, Value(total, host.format), host.count(losses.size))
    return Value((mean.array, saved), host.format)


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
    classes = namespace(labels.array).arange(x.shape[1])
    return Value((classes == labels.array[:, None]).astype(np.float32), FP32)


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
