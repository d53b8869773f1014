"""Loss scaling: an iteration runs at a scale S, is tested, and is repeated at a smaller scale or skipped.

    S ──► run: forward, S * loss, backward ──► finite? ──yes──► update, policy moves S
     ▲                                            │no
     └────────── S * backoff ◄── "repeat" ────────┴── "skip": no update, policy moves S

A run that is repeated leaves no trace: its counts go into a table of their own, random numbers are addressed by step,
and no parameter is written before the test. An iteration overflows if its loss, or a result of the roles `error` and
`gradient`, is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from emu.autodiff import Value
from emu.datapath import Overflow
from emu.engine.functions import function
from emu.engine.quantize import quantize
from emu.engine.selection import largest_magnitudes
from emu.errors import ConfigError
from emu.formats import Fixed, Format
from emu.nn.network import LOSS_LAYER
from emu.precision.counters import CounterTable
from emu.precision.loss_scaling import LossScaling, Measured, NoScaling, ScaleState, ScalingPolicy
from emu.precision.policy import Policy
from emu.precision.redo import run_and_redo

#: Roles whose results S scales.
SCALED_ROLES = ("error", "gradient")
#: The float64 nearest to ln 2.
LN_2 = 0.6931471805599453


class Scaled(Protocol):
    """The results of a run of an iteration."""

    @property
    def loss(self) -> float:
        """Mean loss, not scaled."""
        ...

    @property
    def gradients(self) -> dict[str, Value]:
        """Gradients, S times as large, by parameter."""
        ...


RunT = TypeVar("RunT", bound=Scaled)


class Iteration(NamedTuple, Generic[RunT]):
    """A finished iteration.

    Attributes:
        run: its last run.
        scale: S of that run.
        is_applied: whether its update is to be applied.
    """

    run: RunT
    scale: float
    is_applied: bool


@dataclass(frozen=True)
class ScaleEvent:
    """A change of S, or an overflow.

    Attributes:
        step: training step.
        event: `start`, `overflow`, `repeat`, `skip`, `growth` or `change`.
        scale: S of the run for an overflow or a skip; else S from this event on.
    """

    step: int
    event: str
    scale: float


class LossScaler:
    """Runs iterations at the scale of a policy.

    Attributes:
        policy: the rules.
        state: state of the rules.
        counters: what the run in progress counts into.
        repeats: runs that were repeated.
        skips: iterations without an update.
        events: events since they were last taken.
    """

    def __init__(
        self,
        policy: LossScaling,
        formats: Policy,
        counts: CounterTable,
        backend: str = "auto",
        largest: Callable[[float], float] = float,
    ) -> None:
        """Begin with the policy's first scale.

        Args:
            policy: the rules.
            formats: formats of the tensors.
            counts: table that the last run of each iteration is counted into.
            backend: backend that computes.
            largest: returns the largest of the numbers that all processes give, each that of its gradients.

        Raises:
            ConfigError: the `loss` role's format does not hold S, or a policy reads the range of gradients whose
                points move.
        """
        self.policy, self._formats, self._counts = policy, formats, counts
        word = formats.word("", "gradient")
        # a point that follows from the gradients moves with S: their distance to the end of the range says nothing
        if word is not None and not isinstance(policy, NoScaling) and policy.reads_limit:
            raise ConfigError(
                f"policy {policy.policy!r} of [loss_scaling] must have gradients of a format whose point is fixed, "
                f"because it measures their distance to the end of the format's range, got {word}; choose `fixed` or "
                "`backoff`"
            )
        self._now, self._backend, self._largest = formats, backend, largest
        if not isinstance(policy, NoScaling):
            _require_room(formats.stage(LOSS_LAYER, "loss").format, policy.range)
        # runs count into a table of their own, since a repeated one must leave no trace
        self.counters = counts if isinstance(policy, NoScaling) else CounterTable(formats.register)
        self.state = ScaleState(1.0) if isinstance(policy, NoScaling) else policy.begin()
        self.repeats = self.skips = 0
        self.events: list[ScaleEvent] = []

    @property
    def is_active(self) -> bool:
        """Whether iterations are scaled and tested."""
        return not isinstance(self.policy, NoScaling)

    @property
    def scale(self) -> float:
        """S of the next run."""
        return self.state.scale

    def iterate(self, run: Callable[[float], RunT], step: int) -> Iteration[RunT]:
        """Run an iteration until its results are finite, or no more repeats are allowed.

        Args:
            run: forward and backward at a scale, counted into `counters`.
            step: training step, for events.
        """
        policy = self.policy
        self._now = self._formats.at(step)
        if isinstance(policy, NoScaling):
            return Iteration(run(1.0), 1.0, is_applied=True)
        before = self.state
        # the first S is an event, so that a report can draw S from the beginning
        if step == 0:
            self._note(step, "start", before.scale)

        def attempt(state: ScaleState) -> RunT:
            # counts of a run that overflowed are dropped here
            self.counters.reset()
            return run(state.scale)

        def better(state: ScaleState, result: RunT) -> ScaleState | None:
            wanted = policy.after_overflow(state)
            # in this order: whether results are finite is asked last, since it reads the counters of all tensors
            if policy.on_overflow == "skip" or wanted.scale == state.scale or self._is_finite(result):
                return None
            self._note(step, "overflow", state.scale)
            self._note(step, "repeat", wanted.scale)
            return wanted

        state, result, redos = run_and_redo(before, attempt, better, policy.max_repeats)
        self.repeats += redos
        # the last run of the iteration, applied or skipped, is the one that counts
        self._counts.merge(self.counters)
        is_applied = self._is_finite(result)
        if is_applied:
            after = policy.after_update(state, self._measured(policy, result, state.scale))
        else:
            # repeats did not help, so data may not be finite at any S: S backs off once, not once for each repeat
            after = policy.after_skip(policy.after_overflow(before))
            self.skips += 1
            self._note(step, "overflow", state.scale)
            self._note(step, "skip", state.scale)
        self.state = after
        if after.scale != state.scale:
            self._note(step, "growth" if after.scale > before.scale else "change", after.scale)
        return Iteration(result, state.scale, is_applied)

    def _note(self, step: int, event: str, scale: float) -> None:
        self.events.append(ScaleEvent(step, event, scale))

    def take_events(self) -> list[ScaleEvent]:
        """Return the events since the last call, and remove them."""
        events, self.events = self.events, []
        return events

    def _is_finite(self, run: Scaled) -> bool:
        # registers see infinities and NaN before rounding; an overflow to infinity (rule `ieee`) shows in the flags
        # alone, and one that saturates is none
        return math.isfinite(run.loss) and not any(
            counts.register.nonfinite or (counts.flags.overflow and self._overflows_to_infinity(layer, role))
            for (layer, role), counts in self.counters.items()
            if role in SCALED_ROLES
        )

    def _overflows_to_infinity(self, layer: str, role: str) -> bool:
        return self._now.stage(layer, role).overflow is Overflow.IEEE

    def _measured(self, policy: ScalingPolicy, run: Scaled, scale: float) -> Measured:
        exponents: list[int] = []
        limits: list[int] = []
        for (layer, role), counts in self.counters.items():
            if role == "gradient":
                # the narrowest gradient format decides how large S may be
                limits.append(self._limit(layer, role))
                if counts.register.max_exponent is not None:
                    exponents.append(counts.register.max_exponent)
        # frexp(S) is (0.5, log2(S) + 1) for a power of two: the exponent without S
        exponent = max(exponents) - math.frexp(scale)[1] + 1 if exponents else None
        logarithm = _logarithm(run.gradients, scale, self._backend, self._largest) if policy.needs_logarithm else None
        return Measured(exponent, logarithm, min(limits, default=0))

    def _limit(self, layer: str, role: str) -> int:
        """Return floor(log2) of the largest number of a role's format."""
        fmt = self._now.stage(layer, role).format
        if isinstance(fmt, Fixed):
            return fmt.width_bits - fmt.frac_bits - fmt.signed - 1  # all ones after the sign
        # frexp has its fraction in 1/2..1: floor(log2) is its exponent less 1
        return math.frexp(float(fmt.max))[1] - 1

    # ---- checkpoints ----

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        return {"state": asdict(self.state), "repeats": self.repeats, "skips": self.skips}

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self.state = replace(self.state, **data["state"])
        self.repeats, self.skips = data["repeats"], data["skips"]


def _require_room(fmt: Format, bounds: tuple[float, float]) -> None:
    smallest, largest = bounds
    for value, name in ((smallest, "down to"), (largest, "up to")):
        # S enters as a number of role `loss`: a format that rounds it would scale by another number
        if float(quantize(np.array(value), fmt, backend="reference")) != np.float32(value):
            raise ConfigError(
                f"the format of role `loss` must hold every S {name} {value:g} of [loss_scaling], got {fmt}; choose "
                "a wider one, or other bounds"
            )


def _logarithm(
    gradients: dict[str, Value], scale: float, backend: str, largest_of_all: Callable[[float], float] = float
) -> float | None:
    """Return log2 of the largest gradient without its scale; None if all are 0.

    The operations are the same on every backend, and the reference's logarithm is correctly rounded: S depends on no
    machine's C library.
    """
    largest = 0.0
    magnitudes = largest_magnitudes([gradient.array for gradient in gradients.values()], backend=backend)
    for gradient, magnitude in zip(gradients.values(), magnitudes, strict=True):
        # raws of wide fixed point: their unit is 2**-frac_bits
        if gradient.format.carries_raws and isinstance(gradient.format, Fixed):
            magnitude *= 2.0**-gradient.format.frac_bits
        largest = max(largest, magnitude)
    # each process has gradients of its own parameters or examples; S must be the same for all
    largest = largest_of_all(largest)
    if largest == 0:
        return None
    # log2(f * 2**e) = log(f) / ln 2 + e, f in 1/2..1
    fraction, exponent = math.frexp(largest / scale)
    logarithm = float(function("log", np.array(fraction), out_format="fp64", backend="reference"))
    return logarithm / LN_2 + exponent
