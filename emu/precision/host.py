"""What a datapath leaves to its host: losses, softmax, normalisation, slopes of functions.

Arithmetic runs in the `loss` role's format, with pairwise sums in C order (docs/concepts/roles.md, "Our choices"). A
result that leaves the host is written once, in the role of the operation that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import namespace
from emu.engine.selection import max_pool
from emu.formats import Value
from emu.precision.layer_role import FP32, LayerRole, number

Array = NDArray[Any]


def _mean(role: LayerRole, step: str, x: Value, axes: tuple[int, ...]) -> Value:
    """Return a pairwise sum over the count, the summed axes kept with one element each."""
    count = math.prod(x.shape[axis] for axis in axes)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    found = role.on_host(step).divide(role.on_host(f"{step} sum").total(x, axes), number(count))
    return found.with_array(found.array.reshape(kept))


# ---- losses ---------------------------------------------------------------------------------------------------------


def _softmax_cross_entropy(role: LayerRole, x: Value, labels: Value) -> Value:
    """log(sum(exp(z))) - z[label] with z = x - max(x), its mean over the batch; and the probabilities, to go back."""
    shifted = role.on_host("shifted").subtract(x, _largest(role, x, x.array))
    exponentials = role.on_host("exponentials").exp(shifted)
    sums = role.on_host("sums").total(exponentials, 1)
    picked = namespace(shifted.array).take_along_axis(shifted.array, labels.array[:, None], axis=1)[:, 0]
    logarithms = role.on_host("logarithms").log(sums)
    losses = role.on_host("losses").subtract(logarithms, shifted.with_array(picked))
    probabilities = role.on_host("probabilities").divide(exponentials, _column(sums))
    return _mean_loss(role, losses, probabilities)


def _largest(role: LayerRole, x: Value, array: Array) -> Value:
    """Return the largest values along the last axis, that axis kept: found as pooling finds them, by their bits."""
    return x.with_array(max_pool(array, backend=role.backend)[0][..., None])


def _column(x: Value) -> Value:
    """Return the same numbers with one more axis at the end, of one element."""
    return x.with_array(x.array[..., None])


def _mean_loss(role: LayerRole, losses: Value, saved: Value) -> Value:
    """Return the mean of losses, and what goes back with it."""
    total = role.on_host("total").total(losses)
    mean = role.unit().divide(total, number(losses.array.size))
    return Value((mean.array, saved.array), losses.format)


def _softmax_cross_entropy_gradient(role: LayerRole, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    """The probabilities less the one-hot labels, times g, over N.

    Difference and product on the host, the quotient written in the role that reads it.
    """
    difference = role.on_host("difference").subtract(_saved(role, saved[0]), _one_hot(x, labels))
    return _shared_out(role, g, difference, x.shape[0])


def _saved(role: LayerRole, array: Array) -> Value:
    """Return what an operation of the host kept for the way back."""
    return Value(array, role.host_stage.format)


def _shared_out(role: LayerRole, g: Value, difference: Value, count: int) -> Value:
    return role.unit().divide(role.on_host("scaled").multiply(g, difference), number(count))


def _one_hot(x: Value, labels: Value) -> Value:
    classes = namespace(labels.array).arange(x.shape[1])
    return Value((classes == labels.array[:, None]).astype(np.float32), FP32)


def _mse(role: LayerRole, x: Value, labels: Value) -> Value:
    """The mean of squared differences from one-hot targets."""
    difference = role.on_host("difference").subtract(x, _one_hot(x, labels))
    return _mean_loss(role, role.on_host("squares").multiply(difference, difference), difference)


def _mse_gradient(role: LayerRole, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    twice = role.on_host("twice").multiply(g, number(2))
    return _shared_out(role, twice, _saved(role, saved[0]), saved[0].size)


def _euclidean(role: LayerRole, x: Value, labels: Value) -> Value:
    """The mean distance from one-hot targets; and the directions, to go back.

    A direction is difference / distance, and 0 where the distance is 0.
    """
    difference = role.on_host("difference").subtract(x, _one_hot(x, labels))
    sums = role.on_host("sums").total(role.on_host("squares").multiply(difference, difference), 1)
    distances = role.on_host("distances").sqrt(sums)
    xp, far = namespace(distances.array), _column(distances).array
    is_there = far != 0
    numerators = difference.with_array(xp.where(is_there, difference.array, xp.zeros((), difference.array.dtype)))
    some = xp.asarray(float(distances.format.max), far.dtype)  # 0 over it is 0, and no flag says otherwise
    directions = role.on_host("directions").divide(numerators, distances.with_array(xp.where(is_there, far, some)))
    return _mean_loss(role, distances, directions)


def _euclidean_gradient(role: LayerRole, g: Value, x: Value, labels: Value, *, saved: Any) -> Value:
    """The directions, times g, over N."""
    return _shared_out(role, g, _saved(role, saved[0]), x.shape[0])


# ---- softmax inside a network ---------------------------------------------------------------------------------------


def _softmax(role: LayerRole, x: Value, *, scale: float, causal: bool) -> Value:
    """exp(z) over its sum along the last axis, z = scale * x less its largest; with `causal`, 0 where column > row."""
    scaled = x if scale == 1 else role.on_host("scaled").multiply(x, _single(scale))
    seen, hidden = scaled.array, None
    xp = namespace(seen)
    if causal:
        rows, columns = (xp.arange(n) for n in seen.shape[-2:])
        hidden = columns > rows[:, None]
        least = -np.inf if seen.dtype.kind == "f" else np.iinfo(seen.dtype).min
        seen = xp.where(hidden, xp.asarray(least, seen.dtype), seen)
    shifted = role.on_host("shifted").subtract(scaled, _largest(role, scaled, seen))
    exponentials = _cleared(role.on_host("exponentials").exp(_cleared(shifted, hidden)), hidden)
    sums = role.on_host("sums").total(exponentials, len(exponentials.shape) - 1)
    return role.unit().divide(exponentials, _column(sums))


def _cleared(x: Value, hidden: Any) -> Value:
    """Return zeros where values are hidden, which are neither computed nor counted."""
    if hidden is None:
        return x
    xp = namespace(x.array)
    return x.with_array(xp.where(hidden, xp.zeros((), x.array.dtype), x.array))


def _softmax_gradient(role: LayerRole, g: Value, y: Value, *, scale: float) -> Value:
    """Scale * y * (g - sum(g * y)) along the last axis."""
    shares = role.on_host("shares").total(role.on_host("products").multiply(g, y), len(y.shape) - 1)
    difference = role.on_host("difference").subtract(g, _column(shares))
    if scale == 1:
        return role.unit().multiply(y, difference)
    return role.unit().multiply(role.on_host("unscaled").multiply(y, difference), _single(scale))


# ---- normalisation --------------------------------------------------------------------------------------------------


def _normalise(
    role: LayerRole, x: Value, gamma: Value, beta: Value, *running: Value, axes: tuple[int, ...], along: int,
    eps: float, momentum: float, training: bool,
) -> Value:  # fmt: skip
    """Gamma * (x - mean) / sqrt(variance + eps) + beta, moments over `axes`, or the running ones outside training.

    Returns:
        The result; what goes back with: normalised values, 1 / deviation; the running moments after this batch.
    """
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    if training or not running:
        mean = _mean(role, "mean", x, axes)
        centred = role.on_host("centred").subtract(x, mean)
        variance = _mean(role, "variance", role.on_host("squares").multiply(centred, centred), axes)
        moments = _moved(role, running, (mean, variance), momentum)
    else:
        mean, variance = (moment.with_array(moment.array.reshape(kept)) for moment in running)
        centred, moments = role.on_host("centred").subtract(x, mean), ()
    inverse = role.on_host("inverse deviation").rsqrt(role.on_host("widened").add(variance, _single(eps)))
    normalised = role.on_host("normalised").multiply(centred, inverse)
    spread = [parameter.with_array(_along(parameter.array, along, len(x.shape))) for parameter in (gamma, beta)]
    written = role.unit().fma(normalised, *spread)
    return Value((written.array, (normalised.array, inverse.array), moments), written.format)


def _moved(role: LayerRole, running: Sequence[Value], moments: Sequence[Value], momentum: float) -> tuple[Value, ...]:
    """Return running moments moved toward a batch's: (1 - momentum) * running + momentum * batch."""
    moved: list[Value] = []
    for name, before, now in zip(("mean", "variance"), running, moments, strict=False):
        kept = role.on_host(f"kept {name}").multiply(before, _single(1 - momentum))
        flat = now.with_array(now.array.reshape(before.shape))
        moved.append(role.on_host(f"running {name}").fma(flat, _single(momentum), kept))
    return tuple(moved)


def _normalise_gradient(
    role: LayerRole, g: Value, gamma: Value, *, saved: Any, axes: tuple[int, ...], along: int
) -> Value:
    """(d - mean(d) - n * mean(d * n)) / deviation for d = gamma * g and normalised values n."""
    normalised, inverse = (_saved(role, array) for array in saved)
    spread = gamma.with_array(_along(gamma.array, along, len(g.shape)))
    scaled = role.on_host("scaled").multiply(g, spread)
    centred = role.on_host("centred").subtract(scaled, _mean(role, "mean", scaled, axes))
    slopes = _mean(role, "slope", role.on_host("products").multiply(scaled, normalised), axes)
    bent = role.on_host("bent").multiply(normalised, slopes)
    straight = role.on_host("straight").subtract(centred, bent)
    return role.unit().multiply(straight, inverse)


def _gamma_gradient(role: LayerRole, g: Value, *, saved: Any, along: int) -> Value:
    """The sum of g * normalised over all axes but one."""
    return _summed(role, role.on_host("products").multiply(g, _saved(role, saved[0])), along)


def _beta_gradient(role: LayerRole, g: Value, *, along: int) -> Value:
    """The sum of g over all axes but one."""
    return _summed(role, g, along)


def _summed(role: LayerRole, x: Value, along: int) -> Value:
    axes = tuple(axis for axis in range(len(x.shape)) if axis != along % len(x.shape))
    return role.reduced().total(x, axes)


def _along(parameter: Array, along: int, dimensions: int) -> Array:
    """Return one number per place of an axis, shaped to broadcast along it."""
    shape = [1] * dimensions
    shape[along] = parameter.size
    return parameter.reshape(shape)


def _squared_norm(role: LayerRole, x: Value, factor: Value | None = None) -> Value:
    """The sum of squares, pairwise in C order; with a factor, of as many times as large elements."""
    scaled = x if factor is None else role.on_host("scaled").multiply(x, factor)
    return role.reduced().total(role.on_host("squares").multiply(scaled, scaled))


# ---- slopes ---------------------------------------------------------------------------------------------------------


def _gelu_slope(role: LayerRole, x: Value) -> Value:
    """Phi(x) + x * phi(x): the last step rounded once into the stage, the others on the host."""
    error = role.on_host("error function").erf(role.on_host("scaled").multiply(x, _single(math.sqrt(0.5))))
    share = role.on_host("share").fma(error, number(0.5), number(0.5))
    halved = role.on_host("halved square").multiply(role.on_host("square").multiply(x, x), number(-0.5))
    bell = role.on_host("bell").exp(halved)
    density = role.on_host("density").multiply(bell, _single(1 / math.sqrt(2 * math.pi)))
    return role.unit().fma(x, density, share)


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
