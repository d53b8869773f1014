"""What a datapath leaves to its host: losses, softmax, normalisation, slopes of functions.

Arithmetic in the `loss` role's format, sums pairwise in C order (docs/concepts/products.md); what leaves is written
once, in the role of whoever reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Value
from emu.backends.arrays import namespace
from emu.engine.elementwise import write_elementwise
from emu.engine.functions import write_function
from emu.engine.reductions import write_total
from emu.engine.selection import max_pool
from emu.formats import Format
from emu.precision.unit import FP32, Unit, carrier, elementwise, number

Array = NDArray[Any]


class Host:
    """Arithmetic in the `loss` role's format; every step has its own random stream, by its name."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.format: Format = unit.host_stage.format

    def elementwise(self, step: str, name: str, *operands: Any) -> Array:
        """Return an elementwise operation; arrays are in the role's format, `Value`s in their own."""
        values = [self.value(x) for x in operands]
        arrays, formats = [carrier(v) for v in values], tuple([v.format for v in values])
        return write_elementwise(name, arrays, formats, self.unit.on_host(step))

    def function(self, step: str, name: str, x: Any) -> Array:
        """Return an elementary function."""
        value = self.value(x)
        return write_function(name, carrier(value), value.format, self.unit.on_host(step))

    def total(self, step: str, x: Any, axis: int | tuple[int, ...] | None) -> Array:
        """Return a pairwise sum."""
        unit, value = self.unit, self.value(x)
        return write_total(carrier(value), value.format, axis, unit.reduction, unit.on_host(step), log=unit.log)

    def mean(self, step: str, x: Any, axes: tuple[int, ...]) -> Array:
        """Return a pairwise sum over the count, the summed axes kept with one element each."""
        shape = self.value(x).shape
        count = math.prod(shape[axis] for axis in axes)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        return self.elementwise(step, "divide", self.total(f"{step} sum", x, axes), number(count)).reshape(kept)

    def value(self, x: Any) -> Value:
        """Return an operand with its format: the role's, where it brings none."""
        return x if isinstance(x, Value) else Value(x, self.format)


# ---- losses ---------------------------------------------------------------------------------------------------------


def _softmax_cross_entropy(unit: Unit, x: Value, labels: Value) -> Value:
    """log(sum(exp(z))) - z[label] with z = x - max(x), its mean over the batch; and the probabilities, to go back."""
    host = Host(unit)
    shifted = host.elementwise("shifted", "subtract", x, _largest(unit, x, x.array))
    exponentials = host.function("exponentials", "exp", shifted)
    sums = host.total("sums", exponentials, 1)
    picked = namespace(shifted).take_along_axis(shifted, labels.array[:, None], axis=1)[:, 0]
    losses = host.elementwise("losses", "subtract", host.function("logarithms", "log", sums), picked)
    probabilities = host.elementwise("probabilities", "divide", exponentials, sums[:, None])
    return _mean_loss(unit, host, losses, probabilities)


def _largest(unit: Unit, x: Value, array: Array) -> Value:
    """Return the largest values along the last axis, that axis kept: found as pooling finds them, by their bits."""
    return x.with_array(max_pool(array, backend=unit.backend)[0][..., None])


def _mean_loss(unit: Unit, host: Host, losses: Array, saved: Array) -> Value:
    total = host.total("total", losses, None)
    mean = elementwise("divide")(unit, Value(total, host.format), number(losses.size))
    return Value((mean.array, saved), host.format)


def _softmax_cross_entropy_gradient(unit: Unit, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    """The probabilities less the one-hot labels, times g, over N.

    Difference and product on the host, the quotient written in the role that reads it.
    """
    host = Host(unit)
    difference = host.elementwise("difference", "subtract", saved[0], _one_hot(x, labels))
    return _shared_out(unit, host, g, difference, x.shape[0])


def _shared_out(unit: Unit, host: Host, g: Value, difference: Array, count: int) -> Value:
    scaled = Value(host.elementwise("scaled", "multiply", g, difference), host.format)
    return elementwise("divide")(unit, scaled, number(count))


def _one_hot(x: Value, labels: Value) -> Value:
    classes = namespace(labels.array).arange(x.shape[1])
    return Value((classes == labels.array[:, None]).astype(np.float32), FP32)


def _mse(unit: Unit, x: Value, labels: Value) -> Value:
    """The mean of squared differences from one-hot targets."""
    host = Host(unit)
    difference = host.elementwise("difference", "subtract", x, _one_hot(x, labels))
    return _mean_loss(unit, host, host.elementwise("squares", "multiply", difference, difference), difference)


def _mse_gradient(unit: Unit, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    host = Host(unit)
    twice = Value(host.elementwise("twice", "multiply", g, number(2)), host.format)
    return _shared_out(unit, host, twice, saved[0], saved[0].size)


def _euclidean(unit: Unit, x: Value, labels: Value) -> Value:
    """The mean distance from one-hot targets; and the directions, to go back.

    A direction is difference / distance, and 0 where the distance is 0.
    """
    host = Host(unit)
    difference = host.elementwise("difference", "subtract", x, _one_hot(x, labels))
    sums = host.total("sums", host.elementwise("squares", "multiply", difference, difference), 1)
    distances = host.elementwise("distances", "sqrt", sums)
    xp, is_there = namespace(distances), (distances != 0)[:, None]
    numerators = xp.where(is_there, difference, xp.zeros((), difference.dtype))
    some = xp.asarray(float(host.format.max), distances.dtype)  # 0 over it is 0, and no flag says otherwise
    directions = host.elementwise("directions", "divide", numerators, xp.where(is_there, distances[:, None], some))
    return _mean_loss(unit, host, distances, directions)


def _euclidean_gradient(unit: Unit, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    """The directions, times g, over N."""
    return _shared_out(unit, Host(unit), g, saved[0], x.shape[0])


# ---- softmax inside a network ---------------------------------------------------------------------------------------


def _softmax(unit: Unit, x: Value, *, scale: float, causal: bool) -> Value:
    """exp(z) over its sum along the last axis, z = scale * x less its largest; with `causal`, 0 where column > row."""
    host = Host(unit)
    scaled = x if scale == 1 else host.value(host.elementwise("scaled", "multiply", x, _single(scale)))
    seen, hidden = scaled.array, None
    xp = namespace(seen)
    if causal:
        rows, columns = (xp.arange(n) for n in seen.shape[-2:])
        hidden = columns > rows[:, None]
        least = -np.inf if seen.dtype.kind == "f" else np.iinfo(seen.dtype).min
        seen = xp.where(hidden, xp.asarray(least, seen.dtype), seen)
    shifted = host.elementwise("shifted", "subtract", scaled, _largest(unit, scaled, seen))
    if hidden is not None:  # neither computed nor counted
        shifted = xp.where(hidden, xp.zeros((), shifted.dtype), shifted)
    exponentials = host.function("exponentials", "exp", shifted)
    if hidden is not None:
        exponentials = xp.where(hidden, xp.zeros((), exponentials.dtype), exponentials)
    sums = host.total("sums", exponentials, exponentials.ndim - 1)
    return elementwise("divide")(unit, host.value(exponentials), host.value(sums[..., None]))


def _softmax_gradient(unit: Unit, g: Value, y: Value, *, scale: float) -> Value:
    """Scale * y * (g - sum(g * y)) along the last axis."""
    host = Host(unit)
    shares = host.total("shares", host.elementwise("products", "multiply", g, y), len(y.shape) - 1)
    difference = host.value(host.elementwise("difference", "subtract", g, host.value(shares[..., None])))
    if scale == 1:
        return elementwise("multiply")(unit, y, difference)
    return elementwise("multiply")(
        unit, host.value(host.elementwise("unscaled", "multiply", y, difference)), _single(scale)
    )


# ---- normalisation --------------------------------------------------------------------------------------------------


def _normalise(
    unit: Unit, x: Value, gamma: Value, beta: Value, *running: Value, axes: tuple[int, ...], along: int, eps: float,
    momentum: float, training: bool,
) -> Value:  # fmt: skip
    """Gamma * (x - mean) / sqrt(variance + eps) + beta, moments over `axes`, or the running ones outside training.

    Returns:
        The result; what goes back with: normalised values, 1 / deviation; the running moments behind this batch.
    """
    host = Host(unit)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    if training or not running:
        mean = host.mean("mean", x, axes)
        centred = host.elementwise("centred", "subtract", x, mean)
        variance = host.mean("variance", host.elementwise("squares", "multiply", centred, centred), axes)
        moments = _moved(host, running, (mean, variance), momentum)
    else:
        mean, variance = (moment.array.reshape(kept) for moment in running)
        centred, moments = host.elementwise("centred", "subtract", x, running[0].with_array(mean)), ()
    inverse = host.function("inverse deviation", "rsqrt", host.elementwise("widened", "add", variance, _single(eps)))
    normalised = host.elementwise("normalised", "multiply", centred, inverse)
    spread = [parameter.with_array(_along(parameter.array, along, len(x.shape))) for parameter in (gamma, beta)]
    written = elementwise("fma")(unit, host.value(normalised), *spread)
    return Value((written.array, (normalised, inverse), moments), written.format)


def _moved(host: Host, running: Sequence[Value], moments: Sequence[Array], momentum: float) -> tuple[Value, ...]:
    """Return running moments moved toward a batch's: (1 - momentum) * running + momentum * batch."""
    moved: list[Value] = []
    for name, before, now in zip(("mean", "variance"), running, moments, strict=False):
        kept = host.elementwise(f"kept {name}", "multiply", before, _single(1 - momentum))
        flat = host.value(now.reshape(before.shape))
        moved.append(host.value(host.elementwise(f"running {name}", "fma", flat, _single(momentum), kept)))
    return tuple(moved)


def _normalise_gradient(unit: Unit, g: Value, gamma: Value, *, saved: Any, axes: tuple[int, ...], along: int) -> Value:
    """(d - mean(d) - n * mean(d * n)) / deviation for d = gamma * g and normalised values n."""
    host, (normalised, inverse) = Host(unit), saved
    spread = gamma.with_array(_along(gamma.array, along, len(g.shape)))
    scaled = host.elementwise("scaled", "multiply", g, spread)
    centred = host.elementwise("centred", "subtract", scaled, host.mean("mean", scaled, axes))
    slopes = host.mean("slope", host.elementwise("products", "multiply", scaled, normalised), axes)
    bent = host.elementwise("bent", "multiply", normalised, slopes)
    straight = host.value(host.elementwise("straight", "subtract", centred, bent))
    return elementwise("multiply")(unit, straight, host.value(inverse))


def _gamma_gradient(unit: Unit, g: Value, *, saved: Any, along: int) -> Value:
    """The sum of g * normalised over all axes but one."""
    host = Host(unit)
    return _summed(unit, host, host.value(host.elementwise("products", "multiply", g, saved[0])), along)


def _beta_gradient(unit: Unit, g: Value, *, along: int) -> Value:
    """The sum of g over all axes but one."""
    return _summed(unit, Host(unit), g, along)


def _summed(unit: Unit, host: Host, x: Value, along: int) -> Value:
    axes = tuple(axis for axis in range(len(x.shape)) if axis != along % len(x.shape))
    return unit.value(write_total(carrier(x), x.format, axes, unit.reduction, unit.request(), log=unit.log))


def _along(parameter: Array, along: int, dimensions: int) -> Array:
    """Return one number per place of an axis, shaped to broadcast along it."""
    shape = [1] * dimensions
    shape[along] = parameter.size
    return parameter.reshape(shape)


def _squared_norm(unit: Unit, x: Value) -> Value:
    """The sum of squares, pairwise in C order."""
    host = Host(unit)
    squares = host.value(host.elementwise("squares", "multiply", x, x))
    return unit.value(write_total(carrier(squares), squares.format, None, unit.reduction, unit.request(), log=unit.log))


# ---- slopes ---------------------------------------------------------------------------------------------------------


def _gelu_slope(unit: Unit, x: Value) -> Value:
    """Phi(x) + x * phi(x): the last step rounded once into the stage, the others on the host."""
    host = Host(unit)
    error = host.function("error function", "erf", host.elementwise("scaled", "multiply", x, _single(math.sqrt(0.5))))
    share = host.value(host.elementwise("share", "fma", error, number(0.5), number(0.5)))
    halved = host.elementwise("halved square", "multiply", host.elementwise("square", "multiply", x, x), number(-0.5))
    bell = host.function("bell", "exp", halved)
    density = host.value(host.elementwise("density", "multiply", bell, _single(1 / math.sqrt(2 * math.pi))))
    return elementwise("fma")(unit, x, density, share)


def _single(x: float) -> Value:
    """Return a constant as the host holds it: rounded to float32."""
    return number(float(np.float32(x)))


#: The host's operations by name.
HOST_OPERATIONS: dict[str, Callable[..., Value]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "softmax_cross_entropy_gradient": _softmax_cross_entropy_gradient,
    "mse": _mse,
    "mse_gradient": _mse_gradient,
    "euclidean": _euclidean,
    "euclidean_gradient": _euclidean_gradient,
    "softmax": _softmax,
    "softmax_gradient": _softmax_gradient,
    "normalise": _normalise,
    "normalise_gradient": _normalise_gradient,
    "gamma_gradient": _gamma_gradient,
    "beta_gradient": _beta_gradient,
    "gelu_slope": _gelu_slope,
    "squared_norm": _squared_norm,
}
