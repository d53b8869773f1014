"""What a trial is measured by: from shapes, from its runs, and against the baseline seed by seed; what is hopeless.

joules_per_step, joules_per_inference, area_mm2      of recipe and device alone: known before anything runs
test_accuracy, overflow_rate, bytes_sent, ...        `metrics` of run.json, and `simulated_seconds`
test_accuracy_difference, ...                        a metric of the run minus the baseline's of the same seed
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from emu.errors import ConfigError, nearest_name
from emu.hardware.machine import can_be_timed
from emu.search.file import Constraint, Search
from emu.search.space import Setup, Space
from emu.search.student import quantile
from emu.training.cost import cost_of
from emu.training.loop import Loop
from emu.training.workbench import Workbench

#: What a metric's name ends with where it is a difference to the baseline.
DIFFERENCE = "_difference"
SIMULATED_SECONDS = "simulated_seconds"
#: What is known before training.
OF_SHAPES = ("joules_per_step", "joules_per_inference", "area_mm2")
#: How surely a trial must be beyond a bound to be given up, where its constraint says no confidence.
_SURE = 0.95

#: Metrics of one run.
Measured = dict[str, float]


class Verdict(NamedTuple):
    """What a trial is worth after some of its seeds.

    Attributes:
        values: of the objectives.
        violations: by the name of the constraint: above 0 where it does not hold.
        means: of every metric that objectives and constraints name.
        hopeless: why no further seed is trained; empty where one may be.
    """

    values: tuple[float, ...]
    violations: dict[str, float]
    means: dict[str, float]
    hopeless: str

    @property
    def is_feasible(self) -> bool:
        """Whether every constraint holds."""
        return all(violation <= 0 for violation in self.violations.values())


def of_shapes(setup: Setup) -> Measured:
    """Return what recipe and device alone decide."""
    found = cost_of(setup.recipe, setup.device).described()
    return {name: found[name] for name in OF_SHAPES if found.get(name) is not None}


def of_run(info: Mapping[str, Any]) -> Measured:
    """Return the numbers of a finished run, from `run.json`."""
    named = {**info["metrics"], SIMULATED_SECONDS: info.get(SIMULATED_SECONDS)}
    return {name: float(value) for name, value in named.items() if isinstance(value, int | float)}


class Metrics:
    """The metrics that a search names.

    Attributes:
        search: the search.
        needs_baseline: whether one of them is a difference.
        bounds_shapes: whether a constraint is on what recipe and device alone decide.
    """

    def __init__(self, search: Search, space: Space, file: str) -> None:
        """Look up every metric.

        Raises:
            ConfigError: no run of the search has one.
        """
        self.search = search
        first = space.setup(search.starts())
        loop = Loop(Workbench.of(first.recipe, first.recipe.machine(first.device)))
        runs = [*loop.log.metrics(), *([SIMULATED_SECONDS] if can_be_timed(first.device) else [])]
        known = [*of_shapes(first), *runs, *(f"{name}{DIFFERENCE}" for name in runs)]
        self.names = [one.metric for one in (*search.objective, *search.constraint)]
        for name in self.names:
            if name not in known:
                wanted = "; its device has no clock, so no time is simulated" if SIMULATED_SECONDS in name else ""
                raise ConfigError(
                    f"a metric must be a number that every run of the search has, got {name!r} in {file}"
                    f"{wanted or nearest_name(name, known)}"
                )
        self.bounds_shapes = any(one.metric in OF_SHAPES for one in search.constraint)
        self.needs_baseline = any(name.endswith(DIFFERENCE) for name in self.names)

    def before_training(self, shapes: Measured) -> str:
        """Return which constraint recipe and device alone break, so that training is of no use; empty if none."""
        for one in self.search.constraint:
            if one.metric in shapes and _violation(one, shapes[one.metric]) > 0:
                return f"{one.metric} is {shapes[one.metric]:.6g} {_bound(one)}, whatever is trained"
        return ""

    def verdict(self, shapes: Measured, runs: Mapping[int, Measured], baseline: Mapping[int, Measured]) -> Verdict:
        """Return what a trial is worth.

        Args:
            shapes: what is known before training.
            runs: metrics by seed, at least one unless every metric is known before training.
            baseline: the baseline's by seed, where a metric is a difference.

        Raises:
            ConfigError: a metric is no number after a run, such as a loss that is NaN.
        """
        samples = {name: self._samples(name, shapes, runs, baseline) for name in dict.fromkeys(self.names)}
        means = {name: mean(values) for name, values in samples.items() if values}
        violations = {one.name: _violation(one, _judged(one, samples[one.metric])) for one in self.search.constraint}
        hopeless = ""
        if len(runs) < len(self.search.seeds):
            reasons = [_hopeless(one, samples[one.metric]) for one in self.search.constraint]
            hopeless = next((reason for reason in reasons if reason), "")
        values = tuple(means[one.metric] for one in self.search.objective)
        return Verdict(values, violations, means, hopeless)

    def _samples(
        self,
        name: str,
        shapes: Measured,
        runs: Mapping[int, Measured],
        baseline: Mapping[int, Measured],
    ) -> list[float]:
        if name in shapes:
            return [shapes[name]]
        found: list[float] = []
        for seed, metrics in runs.items():
            own = name.removesuffix(DIFFERENCE)
            value = metrics.get(own, math.nan) - (baseline[seed].get(own, math.nan) if own != name else 0.0)
            if not math.isfinite(value):
                raise ConfigError(
                    f"{name} must be a number after every run, got {value} with seed {seed}; the trial counts as failed"
                )
            found.append(value)
        return found


def _bound(one: Constraint) -> str:
    return f"(at least {one.at_least:g})" if one.at_least is not None else f"(at most {one.at_most:g})"


def _violation(one: Constraint, value: float) -> float:
    """Return by how much a value misses the bound; 0 or less where it holds it."""
    if one.at_least is not None:
        return one.at_least - value
    assert one.at_most is not None
    return value - one.at_most


def _half(samples: Sequence[float], confidence: float) -> float:
    """Return how far the one-sided interval of a mean reaches."""
    return quantile(confidence, len(samples) - 1) * stdev(samples) / math.sqrt(len(samples))


def _judged(one: Constraint, samples: Sequence[float]) -> float:
    """Return the value that must hold the bound: the mean, or the end of its interval that is nearer to the bound."""
    if one.confidence is None or one.metric in OF_SHAPES or len(samples) < 2:
        return mean(samples)
    half = _half(samples, one.confidence)
    return mean(samples) - half if one.at_least is not None else mean(samples) + half


def _hopeless(one: Constraint, samples: Sequence[float]) -> str:
    """Return why a constraint cannot be met any more; empty where it may be."""
    missed = _violation(one, mean(samples))
    where = f"{one.metric} is {mean(samples):.6g} {_bound(one)} after {len(samples)} of the seeds"
    if one.prune_margin is not None and missed > one.prune_margin:
        return f"{where}, missed by more than prune_margin"
    sure = one.confidence or _SURE
    if len(samples) > 1 and missed - _half(samples, sure) > 0:
        return f"{where}, and its interval of {sure:.0%} lies beyond"
    return ""
