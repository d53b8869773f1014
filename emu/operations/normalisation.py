"""Normalisation by the moments of a batch or a vector, its gradient, and those of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.formats import Value
from emu.operations.asked import Asked, Options, Rule, Shape, as_first_on_host, size_of
from emu.operations.host import as_saved, mean
from emu.operations.operands import rounded
from emu.operations.row import SUMS, DoneBy, Role, Row

#: Operands of `normalise` before the running moments.
_WITHOUT_MOMENTS = 3


def _normalise(
    role: Role, x: Value, gamma: Value, beta: Value, *running: Value, axes: tuple[int, ...], along: int,
    eps: float, momentum: float, training: bool,
) -> Value:  # fmt: skip
    """Gamma * (x - mean) / sqrt(variance + eps) + beta, moments over `axes`, or the running ones outside training.

    Returns:
        The result; normalised values and 1 / deviation, for the backward pass; the running moments after this batch.
    """
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    # a layer without running moments has those of what it is given, in every mode
    if training or not running:
        middle = mean(role, "mean", x, axes)
        centred = role.on_host("centred").subtract(x, middle)
        variance = mean(role, "variance", role.on_host("squares").multiply(centred, centred), axes)
        moments = _moved(role, running, (middle, variance), momentum)
    else:
        middle, variance = (moment.with_array(moment.array.reshape(kept)) for moment in running)
        # running moments stay as they are outside training
        centred, moments = role.on_host("centred").subtract(x, middle), ()
    # rsqrt in one rounding: a root and a division would be two
    inverse = role.on_host("inverse deviation").rsqrt(role.on_host("widened").add(variance, rounded(eps)))
    normalised = role.on_host("normalised").multiply(centred, inverse)
    # (1, C, 1, 1) or (1, ..., C): gamma and beta broadcast along their axis
    spread = [parameter.with_array(_along(parameter.array, along, len(x.shape))) for parameter in (gamma, beta)]
    written = role.unit().fma(normalised, *spread)
    # the inverse deviation is kept, so that the backward pass takes no root
    return Value((written.array, (normalised.array, inverse.array), moments), written.format)


def _moved(role: Role, running: Sequence[Value], moments: Sequence[Value], momentum: float) -> tuple[Value, ...]:
    """Return running moments moved toward a batch's: (1 - momentum) * running + momentum * batch."""
    moved: list[Value] = []
    for name, before, now in zip(("mean", "variance"), running, moments, strict=False):
        kept = role.on_host(f"kept {name}").multiply(before, rounded(1 - momentum))
        # moments of a batch have axes of size 1; running ones are vectors
        flat = now.with_array(now.array.reshape(before.shape))
        moved.append(role.on_host(f"running {name}").fma(flat, rounded(momentum), kept))
    return tuple(moved)


def _normalise_float64(
    xp: Any, x: Any, gamma: Any, beta: Any, *running: Any, axes: Any, along: int, eps: float, momentum: float,
    training: bool,
) -> Any:  # fmt: skip
    middle, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    moments: tuple[Value, ...] = ()
    if running and training:
        batch = (middle.ravel(), variance.ravel())
        moments = tuple(Value((1 - momentum) * a + momentum * b) for a, b in zip(running, batch, strict=True))
    elif running:
        middle, variance = (moment.reshape(middle.shape) for moment in running)
    inverse = 1 / xp.sqrt(variance + eps)
    normalised = (x - middle) * inverse
    return normalised * _along(gamma, along, x.ndim) + _along(beta, along, x.ndim), (normalised, inverse), moments


def _normalise_asks(operands: Sequence[Shape], options: Options) -> Asked:
    """Two means of two passes, five passes between and after them, two for each running moment; or given moments."""
    running = len(operands) - _WITHOUT_MOMENTS
    # outside training given moments stay as they are: no mean is taken, and nothing is squared
    if running and not options["training"]:
        return Asked(operands[0], 0, 4)
    return Asked(operands[0], 2 * size_of(operands[0]), 9 + 2 * running)


def _beside(written: Any, operands: Sequence[Value]) -> tuple[Any, ...]:
    """Return normalised values and deviations, and the running moments."""
    return (written, written), tuple(operands[_WITHOUT_MOMENTS:])


def _gradient(role: Role, g: Value, gamma: Value, *, saved: Any, axes: tuple[int, ...], along: int) -> Value:
    """(d - mean(d) - n * mean(d * n)) / deviation for d = gamma * g and normalised values n.

    Without `axes`, of moments that are constants, d / deviation.
    """
    normalised, inverse = (as_saved(role, array) for array in saved)
    spread = gamma.with_array(_along(gamma.array, along, len(g.shape)))
    scaled = role.on_host("scaled").multiply(g, spread)
    if not axes:
        return role.unit().multiply(scaled, inverse)
    centred = role.on_host("centred").subtract(scaled, mean(role, "mean", scaled, axes))
    slopes = mean(role, "slope", role.on_host("products").multiply(scaled, normalised), axes)
    bent = role.on_host("bent").multiply(normalised, slopes)
    straight = role.on_host("straight").subtract(centred, bent)
    return role.unit().multiply(straight, inverse)


def _gradient_float64(xp: Any, g: Any, gamma: Any, *, saved: Any, axes: Any, along: int) -> Any:
    (normalised, inverse), d = saved, g * _along(gamma, along, g.ndim)
    if not axes:
        return d * inverse
    slopes = (d * normalised).mean(axis=axes, keepdims=True)
    return (d - d.mean(axis=axes, keepdims=True) - normalised * slopes) * inverse


def _gradient_asks(operands: Sequence[Shape], options: Options) -> Asked:
    """Two means of two passes and five others; of moments that are constants, the pass that scales."""
    return as_first_on_host(9, sums=2)(operands, options) if options["axes"] else Asked(operands[0], 0, 1)


def _gamma_gradient(role: Role, g: Value, *, saved: Any, along: int) -> Value:
    """The sum of g * normalised over all axes but one."""
    return _summed(role, role.on_host("products").multiply(g, as_saved(role, saved[0])), along)


def _gamma_gradient_float64(xp: Any, g: Any, *, saved: Any, along: int) -> Any:
    return _beta_gradient_float64(xp, g * saved[0], along=along)


def _beta_gradient(role: Role, g: Value, *, along: int) -> Value:
    """The sum of g over all axes but one."""
    return _summed(role, g, along)


def _beta_gradient_float64(xp: Any, g: Any, *, along: int) -> Any:
    return g.sum(axis=tuple(axis for axis in range(g.ndim) if axis != along % g.ndim))


def _summed(role: Role, x: Value, along: int) -> Value:
    axes = tuple(axis for axis in range(len(x.shape)) if axis != along % len(x.shape))
    # a pairwise sum, as all sums of the host
    return role.reduced().total(x, axes)


def _along(parameter: Any, along: int, dimensions: int) -> Any:
    """Return a vector, shaped so that it broadcasts along one axis."""
    shape = [1] * dimensions
    shape[along] = parameter.size
    return parameter.reshape(shape)


def _gradient_of_parameter(passes: int) -> Rule:
    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        g = operands[0]
        return Asked((g[options["along"]],), size_of(g), passes)

    return rule


ROWS = (
    Row("normalise", _normalise, _normalise_float64, _normalise_asks, DoneBy.HOST, SUMS, beside=_beside),
    Row("normalise_gradient", _gradient, _gradient_float64, _gradient_asks, DoneBy.HOST, SUMS),
    Row("gamma_gradient", _gamma_gradient, _gamma_gradient_float64, _gradient_of_parameter(1), DoneBy.HOST, SUMS),
    # a sum without a pass before it: a unit that adds may compute it, and the host need not
    Row("beta_gradient", _beta_gradient, _beta_gradient_float64, _gradient_of_parameter(0), DoneBy.HOST, SUMS),
)
