"""`[loss_scaling]`: the number S by which the loss is multiplied, and what happens after an overflow.

    policy = "none"            S = 1, nothing is tested
             "fixed"           S as given
             "max_gradient"    from the largest gradient of the last finite iteration
             "backoff"         smaller when an iteration overflows, larger after many that do not
             "statistical"     from mean and deviation of the logarithm of the largest gradient

A policy is data and rules without memory. Its state is a `ScaleState`, which checkpoints hold. S, its factors and
its bounds should be powers of two: multiplying by any other number rounds.

Sources: US 11,842,280; Micikevicius et al., "Mixed precision training", ICLR 2018; for `backoff` the numbers of common
mixed-precision libraries.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import Field, model_validator
from typing_extensions import override

from emu._config import Items, Table
from emu.errors import ConfigError, EmuWarning

#: Quantities that S is divided out of, or multiplied into.
Placement: TypeAlias = Literal["gradient", "learning_rate", "clip_threshold", "weight_decay"]
#: S before anything was measured: just above the largest binary16, as common mixed-precision libraries begin.
START = 2.0**16
#: Every S is smaller: 1 / S of the largest power of two below it, 2**126, is the smallest normal float32.
_BEYOND = 2.0**127


@dataclass(frozen=True)
class ScaleState:
    """The state of a policy between two iterations.

    Attributes:
        scale: S of the next run.
        clean: updates applied since the last overflow or growth (`backoff`).
        tokens: overflows until S backs off; at 0, each one makes it back off (`backoff` with hysteresis).
        mean: running mean of log2 of the largest gradient; None before the first (`statistical`).
        variance: running mean of its squared distance from that mean (`statistical`).
    """

    scale: float
    clean: int = 0
    tokens: int = 0
    mean: float | None = None
    variance: float = 0.0


class Measured(NamedTuple):
    """The size of the gradients of an iteration with finite results, without S.

    Attributes:
        exponent: floor(log2|g|) of the largest gradient, from the registers; None if all are 0.
        logarithm: log2|g| of the largest gradient as written; None if all are 0, or if the policy does not read it.
        limit: exponent of the largest number that the gradients' format holds: 15 for binary16.
    """

    exponent: int | None
    logarithm: float | None
    limit: int


class NoScaling(Table):
    """No loss scaling: the loss as it is.

    Attributes:
        compensation: as that of the policies that scale, with S = 1: the learning rate stays as it is.
    """

    compensation: ClassVar[tuple[str, ...]] = ("gradient",)
    policy: Literal["none"] = "none"


class _Scaling(Table):
    """Keys and rules of all policies that scale.

    Attributes:
        on_overflow: `repeat` runs the iteration again with a smaller S, `skip` leaves its update out.
        compensation: where S is taken out. Either the gradients are divided by S; or the learning rate is, and the
            threshold of clipping and the factor of weight decay, if the recipe has them, are multiplied by S.
        minimum: smallest S; by default the smallest normal number of binary16.
        maximum: largest S; with the default, the smallest number of binary16, 2**-24, becomes 1.
        backoff: what S is multiplied by after an overflow.
        max_repeats: repeats of one iteration; then it is skipped.
        reads_limit: whether the policy reads `Measured.limit`, which gradients in dynamic fixed point do not have.
    """

    reads_limit: ClassVar[bool] = False
    on_overflow: Literal["repeat", "skip"] = "skip"
    compensation: Items[Placement] = Field(default=("gradient",), min_length=1)
    minimum: float = Field(default=2.0**-14, gt=0)
    maximum: float = Field(default=2.0**24, gt=0, lt=_BEYOND)
    backoff: float = Field(default=0.5, gt=0, lt=1)
    max_repeats: int = Field(default=8, ge=1)

    @model_validator(mode="after")
    def _bounds_in_order(self) -> _Scaling:
        if self.minimum > self.maximum:
            raise ConfigError(
                f"`minimum` of [loss_scaling] must be at most `maximum`, got {self.minimum:g} and {self.maximum:g}; "
                "exchange them"
            )
        return self

    @model_validator(mode="after")
    def _placements_fit(self) -> _Scaling:
        # S is taken out of the gradients, or of the learning rate, which needs the others beside it: never of both,
        # never of none
        places = set(self.compensation)
        if len(places) < len(self.compensation) or ("gradient" in places) == ("learning_rate" in places):
            raise ConfigError(
                '`compensation` of [loss_scaling] must be ["gradient"], or "learning_rate" with "clip_threshold" and '
                f'"weight_decay" if the recipe clips and decays, got {list(self.compensation)}; S is taken out exactly '
                "once"
            )
        if "gradient" in places and len(places) > 1:
            raise ConfigError(
                '`compensation` of [loss_scaling] must have no entry beside "gradient", got '
                f"{list(self.compensation)}: gradients without S need no other threshold or decay; remove the others"
            )
        return self

    @model_validator(mode="after")
    def _powers_of_two(self) -> _Scaling:
        for key in ("scale", "start", "backoff", "growth", "minimum", "maximum"):
            # policies have some of these keys each
            value = getattr(self, key, None)
            if value is not None and math.frexp(value)[0] != 0.5:
                warnings.warn(
                    f"`{key}` of [loss_scaling] should be a power of two, got {value:g}: multiplying by S then rounds, "
                    "and gradients differ from unscaled ones in their last place",
                    EmuWarning,
                    stacklevel=2,
                )
        return self

    @property
    def needs_logarithm(self) -> bool:
        """Whether the policy reads `Measured.logarithm`."""
        return False

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest possible S."""
        return self.minimum, self.maximum

    def begin(self) -> ScaleState:
        """Return the state before the first iteration."""
        raise NotImplementedError

    def after_overflow(self, state: ScaleState) -> ScaleState:
        """Return the state after a run that overflowed: S is smaller by one factor, but not below the minimum."""
        # clean: growth is counted from the last overflow
        return replace(state, scale=max(state.scale * self.backoff, self.minimum), clean=0)

    def after_skip(self, state: ScaleState) -> ScaleState:
        """Return the state for the iteration after a skipped one."""
        return state

    def after_update(self, state: ScaleState, measured: Measured) -> ScaleState:
        """Return the state for the iteration after one whose update was applied."""
        return state

    def clipped(self, scale: float) -> float:
        """Return a scale within the bounds."""
        return min(max(scale, self.minimum), self.maximum)


class FixedScale(_Scaling):
    """S is a hyper-parameter; a repeat backs off for its own iteration only.

    Attributes:
        scale: S.
    """

    policy: Literal["fixed"]
    scale: float = Field(gt=0, lt=_BEYOND)

    @model_validator(mode="after")
    def _within_bounds(self) -> FixedScale:
        if self.clipped(self.scale) != self.scale:
            raise ConfigError(
                f"`scale` of [loss_scaling] must lie between `minimum` {self.minimum:g} and `maximum` "
                f"{self.maximum:g}, got {self.scale:g}; change one of them"
            )
        return self

    @property
    @override
    def range(self) -> tuple[float, float]:
        """The minimum, which repeats may reach, and S itself."""
        return self.minimum, self.scale

    @override
    def begin(self) -> ScaleState:
        return ScaleState(self.scale)

    @override
    def after_skip(self, state: ScaleState) -> ScaleState:
        return self.begin()

    @override
    def after_update(self, state: ScaleState, measured: Measured) -> ScaleState:
        return self.begin()


class _Started(_Scaling):
    """Keys of the policies that begin with a given S and change it.

    Attributes:
        start: S before anything was measured; limited to the bounds.
    """

    start: float = Field(default=START, gt=0, lt=_BEYOND)

    @override
    def begin(self) -> ScaleState:
        return ScaleState(self.clipped(self.start))


class MaxGradientScale(_Started):
    """S = 2**(u - margin), u = limit - exponent of the largest gradient of the last finite iteration.

    Attributes:
        margin: powers of two left free, 0..4.
    """

    reads_limit: ClassVar[bool] = True
    policy: Literal["max_gradient"]
    margin: int = Field(default=1, ge=0, le=4)

    @override
    def after_update(self, state: ScaleState, measured: Measured) -> ScaleState:
        """Return the state with the largest S that leaves the margin, or as it is if all gradients are 0."""
        if measured.exponent is None:
            return state
        # 2**(limit - exponent): the largest gradient gets the largest exponent; `margin` powers of two stay free
        # float64 has no power of gradients far below a large limit: `_BEYOND`, above every maximum, stands for it
        return replace(state, scale=self.clipped(2.0 ** min(headroom(measured) - self.margin, 127)))


class BackoffScale(_Started):
    """S backs off when an iteration overflows, and grows after `interval` applied updates without that.

    Attributes:
        growth: what S is multiplied by when it grows.
        interval: applied updates in a row after which it grows.
        hysteresis: overflows until S backs off; after an applied update they are counted from 0 again.
    """

    policy: Literal["backoff"]
    growth: float = Field(default=2.0, gt=1)
    interval: int = Field(default=2000, ge=1)
    hysteresis: int = Field(default=1, ge=1)

    @override
    def begin(self) -> ScaleState:
        """Return the first state, with all tokens."""
        return replace(super().begin(), tokens=self.hysteresis)

    @override
    def after_overflow(self, state: ScaleState) -> ScaleState:
        """Spend a token; without any left, back off."""
        tokens = max(state.tokens - 1, 0)
        # an overflow that only spends a token ends the row of clean updates as well
        return replace(super().after_overflow(state) if tokens == 0 else state, tokens=tokens, clean=0)

    @override
    def after_update(self, state: ScaleState, measured: Measured) -> ScaleState:
        """Count the update; S grows after the last one of an interval."""
        clean = state.clean + 1
        if clean < self.interval:
            return replace(state, clean=clean, tokens=self.hysteresis)
        return replace(state, scale=self.clipped(state.scale * self.growth), clean=0, tokens=self.hysteresis)


class StatisticalScale(_Started):
    """S = 2**floor(limit + 1 - (mean + quantile * deviation)); mean and deviation of log2 of the largest gradient.

    Numbers overflow from about 2**(limit + 1) on.

    Attributes:
        quantile: standard deviations above the mean that still fit: 3.09 for 99.9 % of a normal distribution.
        mean_decay: decay of the running mean.
        variance_decay: decay of the running variance.
        minimum: smallest S.
        maximum: largest S.
    """

    reads_limit: ClassVar[bool] = True
    policy: Literal["statistical"]
    quantile: float = Field(default=3.09, ge=0)
    mean_decay: float = Field(default=0.99, ge=0, lt=1)
    variance_decay: float = Field(default=0.999, ge=0, lt=1)
    minimum: float = Field(default=1.0, gt=0)
    maximum: float = Field(default=2.0**14, gt=0, lt=_BEYOND)

    @property
    @override
    def needs_logarithm(self) -> bool:
        return True

    @override
    def after_update(self, state: ScaleState, measured: Measured) -> ScaleState:
        """Update mean and variance, and compute S from them; nothing changes if all gradients are 0."""
        if measured.logarithm is None:
            return state
        if state.mean is None:
            # the first measurement is the mean; a deviation is not known yet
            mean, variance = measured.logarithm, 0.0
        else:
            mean = self.mean_decay * state.mean + (1 - self.mean_decay) * measured.logarithm
            # from the new mean, as the rule has it: the order decides the bits
            distance = measured.logarithm - mean
            variance = self.variance_decay * state.variance + (1 - self.variance_decay) * distance * distance
        exponent = measured.limit + 1 - (mean + self.quantile * math.sqrt(variance))
        # kept within normal float32, 2**-126..2**126, before the bounds: a power of an extreme mean would overflow
        bounded = self.clipped(2.0 ** math.floor(min(max(exponent, -126), 126)))
        return replace(state, scale=bounded, mean=mean, variance=variance)


def headroom(measured: Measured) -> int:
    """Return u: by how many powers of two the largest gradient may grow.

    Examples:
        >>> [headroom(Measured(x, None, 15)) for x in (-9, 0, 2, 16, -30)]  # of .003, 1 and 1.999, 6, 70000, 2**-30
        [24, 15, 13, -1, 45]
    """
    assert measured.exponent is not None
    return measured.limit - measured.exponent


ScalingPolicy: TypeAlias = FixedScale | MaxGradientScale | BackoffScale | StatisticalScale
LossScaling: TypeAlias = Annotated[NoScaling | ScalingPolicy, Field(discriminator="policy")]
