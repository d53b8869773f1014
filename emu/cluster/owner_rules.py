"""What an owner may do to a sum before it is quantised again: nothing, momentum, AdaGrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.cluster.codecs import Codec
from emu.cluster.wires import Columns, Touched
from emu.errors import ConfigError

Array = NDArray[Any]


class OwnerRule(Protocol):
    """Turns the sum of a stripe into the result that is sent back.

    Attributes:
        carries_scale: whether the result is S times as large if sums are.
        state_power: power of S that the state is multiplied by if sums are S times as large.
        is_still: whether a sum of 0 gives 0 and leaves the state as it is.
    """

    carries_scale: ClassVar[bool]
    state_power: ClassVar[int]
    is_still: ClassVar[bool]

    def apply(self, total: Array, state: Array | None, scale: float = 1.0) -> tuple[Array, Array | None]:
        """Return the result, and the state for the next mini-batch.

        Args:
            total: (columns, rows), the sum over workers.
            state: what the last call returned; None before the first.
            scale: S of sums and state.
        """
        ...


class Plain(OwnerRule):
    """Sums as they are."""

    carries_scale: ClassVar[bool] = True
    state_power: ClassVar[int] = 0
    is_still: ClassVar[bool] = True

    @override
    def apply(self, total: Array, state: Array | None, scale: float = 1.0) -> tuple[Array, Array | None]:
        """Return the sum."""
        return total, None


@dataclass(frozen=True)
class MomentumRule(OwnerRule):
    """Sums smoothed over mini-batches: m = momentum * m + sum; m is sent.

    Raises:
        ConfigError: `momentum` is not below 1.
    """

    momentum: float
    carries_scale: ClassVar[bool] = True
    state_power: ClassVar[int] = 1
    # m shrinks by the momentum even if the sum is 0
    is_still: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"`momentum` of an owner must be 0 or more, below 1, got {self.momentum!r}")

    @override
    def apply(self, total: Array, state: Array | None, scale: float = 1.0) -> tuple[Array, Array | None]:
        """Return the smoothed sum."""
        # sums of gradients that diverge may overflow, and infinities meet
        with np.errstate(over="ignore", invalid="ignore"):
            # two roundings: of the product, then of the sum
            smoothed = total if state is None else total.dtype.type(self.momentum) * state + total
        return smoothed, smoothed


@dataclass(frozen=True)
class AdaGradRule(OwnerRule):
    """Sums divided by the root of the sum of their squares: a = a + sum**2; sum / (sqrt(a) + eps) is sent.

    Raises:
        ConfigError: `eps` is not above 0.
    """

    eps: float = 1e-8
    carries_scale: ClassVar[bool] = False
    state_power: ClassVar[int] = 2
    # a sum of 0 adds 0 to the squares, and 0 / (root + eps) is 0
    is_still: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ConfigError(f"`eps` of an owner must be above 0, got {self.eps!r}")

    @override
    def apply(self, total: Array, state: Array | None, scale: float = 1.0) -> tuple[Array, Array | None]:
        """Return the normalised sum: eps is multiplied by S, so that S cancels in the quotient."""
        # a square may overflow: then the sum counts as 0 from now on; of an infinite sum nothing is left but NaN
        with np.errstate(over="ignore", invalid="ignore"):
            squares = total * total if state is None else state + total * total
            # eps above 0, in the sums' own dtype, too: sums that were always 0 give 0, not 0 / 0
            eps = max(total.dtype.type(self.eps * scale), np.finfo(total.dtype).smallest_subnormal)
            return total / (np.sqrt(squares) + eps), squares


def apply_to(
    rule: OwnerRule, total: Columns, state: Array | None, scale: float, lines: int
) -> tuple[Columns, Array | None]:
    """Return the result of a rule for a sum of all lines, or of touched lines only; see `OwnerRule.apply`.

    Args:
        rule: rule of the owner; for touched lines it must be still, because the others are left as they are.
        total: the sum.
        state: state of all lines.
        scale: S of sums and state.
        lines: lines of the stripe.
    """
    if not isinstance(total, Touched):
        return rule.apply(total, state, scale)
    # (touched lines, numbers of a line) of the state; all other lines stay, because the rule is still
    result, moved = rule.apply(total.lines, None if state is None else state[total.indices], scale)
    if moved is not None:
        # a copy, so that the given state stays as it is
        state = np.zeros((lines, total.lines.shape[1]), moved.dtype) if state is None else state.copy()
        state[total.indices] = moved
    return Touched(total.indices, result), state


def require_touchable(codec: Codec, owner_codec: Codec, rule: OwnerRule) -> None:
    """Check that neither codecs nor rule change or read columns that a step has not touched.

    Raises:
        ConfigError: one does.
    """
    if codec.looks_back or owner_codec.looks_back:
        raise ConfigError(
            "gradients of some rows must have levels and thresholds of the present mini-batch, got a codec that uses "
            "earlier mini-batches; remove `lag`, `smoothing`, `interval`, `residual_lag` and threshold 'previous_mean' "
            "of [cluster.codec] and [cluster.owner_codec]"
        )
    if not rule.is_still:
        raise ConfigError(
            "an owner must not change rows that no node has sent, got `rule` 'momentum', which changes all rows; "
            "choose `rule` 'none' or 'adagrad' of [cluster]"
        )
