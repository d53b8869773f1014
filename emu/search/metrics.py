"""The metrics of a trial: from shapes, from its runs, and compared with the baseline seed by seed.

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

#: Ending of the name of a metric that is a difference to the baseline.
DIFFERENCE = "_difference"
SIMULATED_SECONDS = "simulated_seconds"
#: Metrics that are known before training.
OF_SHAPES = ("joules_per_step", "joules_per_inference", "area_mm2")
#: Confidence with which a trial must miss a bound to be pruned, if its constraint has no `confidence`.
_SURE = 0.95

#: Metrics of one run.
Measured = dict[str, float]


class Verdict(NamedTuple):
    """The result of a trial after some of its seeds.

    Attributes:
        values: values of the objectives.
        violations: by how much each constraint is missed, by its name; 0 or less if it holds.
        means: means of all metrics that objectives and constraints name.
        samples: the values of each of them, one for each seed that is trained; a single one if a metric depends only on
            recipe and device.
        pruned: why no further seed is trained; empty if more seeds may be trained.
    """

    values: tuple[float, ...]
    violations: dict[str, float]
    means: dict[str, float]
    samples: dict[str, list[float]]
    pruned: str

    @property
    def is_feasible(self) -> bool:
        """Whether all constraints hold."""
        return all(violation <= 0 for violation in self.violations.values())


def of_shapes(setup: Setup) -> Measured:
    """Return the metrics that depend only on recipe and device."""
    cost = cost_of(setup.recipe, setup.device).summary()
    return {name: cost[name] for name in OF_SHAPES if cost.get(name) is not None}


def of_run(info: Mapping[str, Any]) -> Measured:
    """Return the metrics of a finished run, from `run.json`."""
    named = {**info["metrics"], SIMULATED_SECONDS: info.get(SIMULATED_SECONDS)}
    return {name: float(value) for name, value in named.items() if isinstance(value, int | float)}


class Metrics:
    """The metrics that a search names.

    Attributes:
        search: the search.
        names: metrics of the objectives, then those of the constraints; one may be there twice.
        needs_baseline: whether a metric is a difference to the baseline.
        bounds_shapes: whether a constraint is on a metric that depends only on recipe and device.
    """

    def __init__(self, search: Search, space: Space, file: str) -> None:
        """Check that all metrics exist.

        Raises:
            ConfigError: a metric is not one that runs of the search have.
        """
        self.search = search
        first = space.setup(search.starts())
        # a run before its first step: it has the names of all metrics
        loop = Loop(Workbench.of(first.recipe, first.recipe.machine(first.device)))
        runs = [*loop.log.metrics(), *([SIMULATED_SECONDS] if can_be_timed(first.device) else [])]
        # a difference needs the metric of both devices: where the baseline has no clock, it is no number in any trial
        paired = [name for name in runs if name != SIMULATED_SECONDS or can_be_timed(space.baseline.device)]
        known = [*of_shapes(first), *runs, *(f"{name}{DIFFERENCE}" for name in paired)]
        self.names = [named.metric for named in (*search.objective, *search.constraint)]
        for name in self.names:
            if name not in known:
                whose = "baseline" if SIMULATED_SECONDS in runs else "device"
                wanted = f"; its {whose} has no clock, so no time is simulated" if SIMULATED_SECONDS in name else ""
                raise ConfigError(
                    f"a metric must be a number that every run of the search has, got {name!r} in {file}"
                    f"{wanted or nearest_name(name, known)}"
                )
        self.bounds_shapes = any(constraint.metric in OF_SHAPES for constraint in search.constraint)
        self.needs_baseline = any(name.endswith(DIFFERENCE) for name in self.names)

    def before_training(self, shapes: Measured) -> str:
        """Return which constraint recipe and device break before any training, in words; empty if none."""
        for constraint in self.search.constraint:
            metric = constraint.metric
            if metric in shapes and _violation(constraint, shapes[metric]) > 0:
                return f"{metric} is {shapes[metric]:.6g} {_bound(constraint)}, whatever is trained"
        return ""

    def verdict(self, shapes: Measured, runs: Mapping[int, Measured], baseline: Mapping[int, Measured]) -> Verdict:
        """Return the result of a trial after some of its seeds.

        Args:
            shapes: metrics that are known before training.
            runs: metrics by seed; may be empty only if all metrics are known before training.
            baseline: metrics of the baseline by seed, if a metric is a difference.

        Raises:
            ConfigError: a metric is not a finite number after a run, such as a loss that is NaN.
        """
        samples = {name: self._samples(name, shapes, runs, baseline) for name in dict.fromkeys(self.names)}
        # a metric of runs has no values before the first run
        means = {name: mean(values) for name, values in samples.items() if values}
        constraints = [(constraint, samples[constraint.metric]) for constraint in self.search.constraint]
        violations = {bound.name: _violation(bound, _judged(bound, numbers)) for bound, numbers in constraints}
        pruned = ""
        # after the last seed there is nothing left to save
        if len(runs) < len(self.search.seeds):
            reasons = [_reason_to_prune(bound, numbers) for bound, numbers in constraints]
            pruned = next((reason for reason in reasons if reason), "")
        values = tuple(means[objective.metric] for objective in self.search.objective)
        return Verdict(values, violations, means, samples, pruned)

    def _samples(
        self,
        name: str,
        shapes: Measured,
        runs: Mapping[int, Measured],
        baseline: Mapping[int, Measured],
    ) -> list[float]:
        """Return the values of a metric: one for each seed that is trained, or the one that is known before."""
        if name in shapes:
            return [shapes[name]]
        numbers: list[float] = []
        for seed, metrics in runs.items():
            # a metric of the run itself, or its difference from the baseline's with the same seed
            own = name.removesuffix(DIFFERENCE)
            value = metrics.get(own, math.nan) - (baseline[seed].get(own, math.nan) if own != name else 0.0)
            if not math.isfinite(value):
                raise ConfigError(
                    f"{name} must be a number after every run, got {value} with seed {seed}; the trial counts as failed"
                )
            numbers.append(value)
        return numbers


def _bound(bound: Constraint) -> str:
    return f"(at least {bound.at_least:g})" if bound.at_least is not None else f"(at most {bound.at_most:g})"


def _violation(bound: Constraint, value: float) -> float:
    """Return by how much a value misses the bound; 0 or less if it holds."""
    if bound.at_least is not None:
        return bound.at_least - value
    assert bound.at_most is not None
    return value - bound.at_most


def _half(samples: Sequence[float], confidence: float) -> float:
    """Return the distance from a mean to the end of its one-sided interval, by Student's t; from two samples on."""
    return quantile(confidence, len(samples) - 1) * stdev(samples) / math.sqrt(len(samples))


def _judged(bound: Constraint, samples: Sequence[float]) -> float:
    """Return the value that must hold the bound: the mean, or the worse end of its interval."""
    # a spread needs two samples; metrics of shapes have no spread
    if bound.confidence is None or bound.metric in OF_SHAPES or len(samples) < 2:
        return mean(samples)
    half = _half(samples, bound.confidence)
    return mean(samples) - half if bound.at_least is not None else mean(samples) + half


def _reason_to_prune(bound: Constraint, samples: Sequence[float]) -> str:
    """Return why a constraint will not be met after more seeds either; empty if it may be."""
    missed = _violation(bound, mean(samples))
    state = f"{bound.metric} is {mean(samples):.6g} {_bound(bound)} after {len(samples)} of the seeds"
    if bound.prune_margin is not None and missed > bound.prune_margin:
        return f"{state}, missed by more than prune_margin"
    # even the better end of the interval misses the bound
    sure = bound.confidence or _SURE
    if len(samples) > 1 and missed - _half(samples, sure) > 0:
        return f"{state}, and its interval of {sure:.0%} lies beyond"
    return ""
