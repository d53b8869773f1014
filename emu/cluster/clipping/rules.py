"""Rules of clipping: how thresholds are computed, and what happens to elements beyond them.

    constant        high, low as they are given                            times the factor that gradients carry
    variance        m +- k * sqrt(v)                                       m, v: running mean and variance of the layer
    momentum        +- k * sqrt(mean(buffer**2))                           buffer: the optimiser's momentum
    parameter_norm  g *= max_norm / ||g|| if ||g|| > max_norm, by neuron   max_norm = ratio * max(||w||, least)

An element above `high` becomes `high`, and an element below `low` becomes `low`, infinities too. NaN, -0 and elements
equal to a threshold stay. If both thresholds are equal, nothing is clipped. A rule is data without memory: what changes
(m, v) is an argument and a result.

Sources: US 2023/0169333; Brock et al., "High-performance large-scale image recognition without normalization", ICML
2021 (norms of neurons). The published text names the kinds of thresholds; the formulas are our choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from emu._config import Table
from emu.cluster.clipping.layer import (
    Array,
    Clipped,
    LayerGradients,
    Limits,
    Memory,
    Norms,
    joined,
    mean_and_variance,
    root_of_mean_square,
)
from emu.errors import ConfigError


class _ByLimits(Table):
    """Base of the rules with two thresholds for a layer."""

    def limits(self, seen: LayerGradients, memory: Memory) -> tuple[Limits | None, Memory]:
        """Return the thresholds of a layer, None if there are none, and what is remembered."""
        raise NotImplementedError

    def apply(self, seen: LayerGradients, memory: Memory) -> Clipped:
        """Return a layer with every element within the thresholds.

        Args:
            seen: gradients, and what thresholds are made of.
            memory: what the last call returned; empty before the first.
        """
        limits, memory = self.limits(seen, memory)
        # NaN in a threshold makes the comparison false, too: then nothing is clipped
        if limits is None or not limits.high > limits.low:
            return Clipped(seen.gradients, dict.fromkeys(seen.gradients, 0), memory)
        clipped = {part: limited(array, limits) for part, array in seen.gradients.items()}
        counts = {part: count for part, (_, count) in clipped.items()}
        return Clipped({part: array for part, (array, _) in clipped.items()}, counts, memory, limits)


class ConstantThresholds(_ByLimits):
    """Thresholds that are given.

    Attributes:
        high: T1; None for no upper threshold.
        low: T2, below T1; None for no lower threshold.
    """

    rule: Literal["constant"] = "constant"
    high: float | None = None
    low: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> ConstantThresholds:
        # in float32, because two numbers that differ in float64 may be one threshold in the arithmetic of a layer
        if self.high is None or self.low is None:
            return self
        with np.errstate(over="ignore"):
            is_above = np.float32(self.high) > np.float32(self.low)
        if not is_above:
            raise ConfigError(
                f"`high` of [clipping] must be above `low` in float32, got {self.high:g} and {self.low:g}; raise "
                "`high` or lower `low`"
            )
        return self

    @override
    def limits(self, seen: LayerGradients, memory: Memory) -> tuple[Limits | None, Memory]:
        """Return the thresholds times the factor that gradients carry."""
        number = seen.number
        # a threshold beyond the dtype is no threshold
        with np.errstate(over="ignore"):
            high = number(np.inf) if self.high is None else number(self.high) * number(seen.carried)
            low = number(-np.inf) if self.low is None else number(self.low) * number(seen.carried)
        return Limits(high, low), memory


class VarianceThresholds(_ByLimits):
    """m +- k * sqrt(v), of the layer's running mean and variance, the gradient at hand included.

    Attributes:
        k: deviations.
        decay: share of m and v that stays; their first values are those of the first gradient.
    """

    rule: Literal["variance"]
    k: float = Field(default=3.0, gt=0)
    decay: float = Field(default=0.99, ge=0, lt=1)

    @override
    def limits(self, seen: LayerGradients, memory: Memory) -> tuple[Limits | None, Memory]:
        """Take the gradient into m and v; return the thresholds that follow.

        Elements that are not finite do not count, nor does a gradient whose mean or variance overflows. If S has
        changed, m is multiplied by its ratio and v by the square of it. While that would overflow, both stay as they
        are, and what is measured is divided by the ratio.
        """
        number = seen.number
        memory = self._taken_in(seen, _carrying(memory, seen.carried))
        if not memory:
            return None, memory
        # `[()]` takes the scalar out of an array without axes: a checkpoint holds arrays only
        m, v = memory["m"][()], memory["v"][()]
        # thresholds that overflow clip nothing
        with np.errstate(over="ignore", invalid="ignore"):
            # 1, unless m and v stay at the factor of an earlier gradient
            ratio = number(seen.carried / float(memory["carried"]))
            m, reach = m * ratio, number(self.k) * np.sqrt(v) * ratio
            return Limits(m + reach, m - reach), memory

    def _taken_in(self, seen: LayerGradients, memory: Memory) -> Memory:
        measured = mean_and_variance(joined(seen.gradients, seen.number))
        if measured is None:
            return memory
        m, v = measured
        carried = seen.carried
        if memory:
            carried = float(memory["carried"])
            # 1, unless `_carrying` had to leave m and v at the factor of an earlier gradient
            ratio = seen.number(carried / seen.carried)
            decay = seen.number(self.decay)
            fresh = seen.number(1) - decay
            m = decay * memory["m"] + fresh * (m * ratio)
            v = decay * memory["v"] + fresh * (v * ratio * ratio)
        return {"m": np.asarray(m), "v": np.asarray(v), "carried": np.array(carried, np.float64)}


def _carrying(memory: Memory, carried: float) -> Memory:
    """Return m and v as if their gradients had been multiplied by `carried`; as they are if that overflows."""
    if not memory or memory["carried"] == carried:
        return memory
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = memory["m"].dtype.type(carried / float(memory["carried"]))
        # v * ratio * ratio, not v * ratio**2: the square may overflow in float32 although the result does not
        m, v = memory["m"] * ratio, memory["v"] * ratio * ratio
    # infinite numbers would stay infinite when S falls again
    if not (np.isfinite(m) and np.isfinite(v)):
        return memory
    return {"m": np.asarray(m), "v": np.asarray(v), "carried": np.array(carried, np.float64)}


class MomentumThresholds(_ByLimits):
    """+- k times the root of the mean square of the optimiser's momentum; none without it, or before its first update.

    Attributes:
        k: how many times the root.
    """

    rule: Literal["momentum"]
    k: float = Field(default=3.0, gt=0)

    @override
    def limits(self, seen: LayerGradients, memory: Memory) -> tuple[Limits | None, Memory]:
        """Return the thresholds, multiplied by what gradients carry and divided by what the momentum carries."""
        if not seen.buffers:
            return None, memory
        number = seen.number
        # before the first update momentum is 0, the thresholds are equal, and `apply` clips nothing
        root = root_of_mean_square(joined(seen.buffers, number))
        with np.errstate(over="ignore", invalid="ignore"):
            reach = number(self.k) * root * number(seen.carried / seen.buffers_carry)
        return (Limits(reach, -reach), memory) if np.isfinite(reach) else (None, memory)


class ParameterNorm(Table):
    """Shortens the gradient of each neuron that is long relative to its parameters: g *= max_norm / ||g||.

    A neuron has the weights that lead to one output; a bias counts as one neuron.

    Attributes:
        ratio: max_norm over the norm of the neuron's parameters.
        least: least norm that parameters are taken to have.
    """

    rule: Literal["parameter_norm"]
    ratio: float = Field(default=0.01, gt=0)
    least: float = Field(default=1e-3, gt=0)

    def apply(self, seen: LayerGradients, memory: Memory) -> Clipped:
        """Return a layer in which no neuron's gradient is longer than max_norm.

        A gradient with infinities becomes one of their direction, all of them counted as equal; one with NaN stays.
        """
        shortened = {
            part: self._shortened(array, seen.masters[part], seen.carried) for part, array in seen.gradients.items()
        }
        counts = {part: count for part, (_, count) in shortened.items()}
        return Clipped({part: array for part, (array, _) in shortened.items()}, counts, memory)

    def _shortened(self, gradient: Array, master: Array, carried: float) -> tuple[Array, int]:
        number = gradient.dtype.type
        with np.errstate(over="ignore"):
            # (columns,): norm of each neuron's parameters
            own = np.maximum(Norms.of(master.astype(number)).whole(), number(self.least))
            # (columns,): max_norm, multiplied by what gradients carry
            longest = number(self.ratio) * own * number(carried)
        norms = Norms.of(_directions(gradient))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            # the norm is norms * 2**exponents: the power of two is taken to the other side, where nothing overflows
            too_long = np.logical_or(norms.norms > np.ldexp(longest, -norms.exponents), np.isinf(gradient).any(axis=1))
            # a neuron with NaN stays as it is, so that the NaN is seen and counted later
            above = np.logical_and(too_long, ~np.isnan(norms.norms))
            if not above.any():
                return gradient, 0
            # longest / norm * gradient, in which 2**exponents cancels
            shorter: Array = norms.scaled * np.expand_dims(longest / norms.norms, 1)
        # all elements of a shortened neuron count as clipped
        return np.where(np.expand_dims(above, 1), shorter, gradient), int(above.sum()) * gradient.shape[1]


def _directions(gradient: Array) -> Array:
    """Return columns; one with infinities has +-1 in their place and 0 elsewhere: its direction in the limit."""
    infinite = np.isinf(gradient)
    if not infinite.any():
        return gradient
    pointing = np.where(infinite, np.sign(gradient), np.where(np.isnan(gradient), gradient, gradient.dtype.type(0)))
    return np.where(infinite.any(axis=1, keepdims=True), pointing, gradient)


Rule: TypeAlias = Annotated[
    ConstantThresholds | VarianceThresholds | MomentumThresholds | ParameterNorm, Field(discriminator="rule")
]


def limited(values: Array, limits: Limits) -> tuple[Array, int]:
    """Return values within two thresholds, and how many were not.

    Args:
        values: floats; NaN, -0 and what equals a threshold stay. If all do, the array itself is returned.
        limits: thresholds of the values' dtype.
    """
    # comparisons with NaN are false, so NaN stays
    above, below = values > limits.high, values < limits.low
    count = int(above.sum()) + int(below.sum())
    if not count:
        return values, 0
    number = values.dtype.type
    return np.where(above, number(limits.high), np.where(below, number(limits.low), values)), count


def apply_rules(
    rules: Sequence[Rule], seen: LayerGradients, memories: Sequence[Memory]
) -> tuple[Clipped, list[Memory]]:
    """Return a layer after all rules, each applied to the result of the one before it, and what each remembers.

    A constant threshold before `variance` keeps outliers out of m and v; in the other order they are measured. Counts
    are those of all rules together, limits the narrowest.

    Args:
        rules: in their order.
        seen: gradients, and what thresholds are made of.
        memories: what each rule remembers.
    """
    gradients, counts, limits = seen.gradients, dict.fromkeys(seen.gradients, 0), list[Limits]()
    new_memories: list[Memory] = []
    for rule, memory in zip(rules, memories, strict=True):
        # `replace` keeps masters and momentum: only gradients pass from rule to rule
        clipped = rule.apply(replace(seen, gradients=gradients), memory)
        gradients = clipped.gradients
        counts = {part: count + clipped.counts[part] for part, count in counts.items()}
        limits += [clipped.limits] if clipped.limits else []
        new_memories.append(clipped.memory)
    # rules without thresholds, such as a parameter norm, have no part in it
    narrowest = Limits(min(x.high for x in limits), max(x.low for x in limits)) if limits else None
    return Clipped(gradients, counts, {}, narrowest), new_memories
