"""Runs of a study side by side: means over seeds, and differences to the baseline, paired seed by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from emu.errors import ConfigError
from emu.formats import parse_number
from emu.report.guessing import chance_of, is_guess
from emu.report.run_data import table_of
from emu.report.study.difference import Difference
from emu.training.folders.run_folder import RUN
from emu.training.folders.study_folder import StudyFolder
from emu.training.study import Case, Study


@dataclass(frozen=True)
class Row:
    """A model on a device under a setting, over all seeds.

    Attributes:
        model: name of the model; with its file, if another model of the study has the same name.
        setting: name of the setting.
        device: name of the device; with its file, if another device of the study has the same name.
        bits: width of the device's activations.
        accuracies: accuracies of the finished runs, by seed.
        seeds: number of runs that are planned.
        failures: seed -> why the run failed, or why the page of a finished run failed.
        difference: difference to the baseline, over the seeds that both finished; None for the baseline itself, or
            without pairs.
        loss: mean test loss; NaN if it was no finite number in one of the runs.
        overflow: mean share of results that overflowed.
        underflow: mean share that underflowed.
        counts: redos, repeats and skips, means over the runs.
        simulated_seconds: mean time on the emulated machine; None if it has no clock.
        first_run: folder of the first finished run, or None.
        paired: seed -> accuracy minus the baseline's, for the seeds that both finished; empty for the baseline itself.
        joules: energy of a step; None if the runs do not have it.
        area_mm2: area of the units; None if the cost table gives none.
        baseline: mean accuracy of the baseline over the seeds of `paired`; None if there are none.
        chance: accuracy of guessing; None if the number of classes is unknown.
    """

    model: str
    setting: str
    device: str
    bits: int
    accuracies: dict[int, float]
    seeds: int
    failures: dict[int, str]
    difference: Difference | None
    loss: float
    overflow: float
    underflow: float
    counts: dict[str, float]
    simulated_seconds: float | None
    first_run: Path | None
    paired: dict[int, float] = field(default_factory=dict[int, float])
    joules: float | None = None
    area_mm2: float | None = None
    baseline: float | None = None
    chance: float | None = None

    @property
    def called(self) -> str:
        """The device, with the setting unless that is `plain`."""
        return self.device if self.setting == "plain" else f"{self.device}, {self.setting}"

    @property
    def mean(self) -> float | None:
        """Mean accuracy, None without a finished run."""
        return mean(self.accuracies.values()) if self.accuracies else None

    @property
    def baseline_guesses(self) -> bool:
        """Whether the baseline is no better than guessing, so that a difference to it says nothing."""
        return is_guess(self.baseline, self.chance)

    @property
    def fails(self) -> bool:
        """Whether a run failed before its end, or the device is significantly worse than a baseline that learned."""
        return bool(self.failures.keys() - self.accuracies.keys()) or (
            self.difference is not None and self.difference.is_failure and not self.baseline_guesses
        )


def compare(study: Study, home: StudyFolder) -> list[Row]:
    """Return a row for each model, setting and device, in the study's order.

    Raises:
        ConfigError: a run is not the study's, or its metrics are damaged.
    """
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in study.cases():
        groups.setdefault((case.model, case.setting.name, case.device), []).append(case)
    results = {key: _measured(cases, home) for key, cases in groups.items()}
    models = _names({case.model: case.recipe.name for case in study.cases()})
    devices = _names({case.device: case.machine.name for case in study.cases()})
    rows: list[Row] = []
    order = list(dict.fromkeys((model, setting) for model, setting, _ in groups))
    # The sort is stable: devices of one model and setting stay in the study's order, and come together.
    for (model, setting, device), cases in sorted(groups.items(), key=lambda item: order.index(item[0][:2])):
        # With `baseline_setting` all settings are compared with that one; else each with the baseline under the same
        # setting.
        key, base_key = (model, setting, device), (model, study.baseline_setting or setting, study.baseline)
        own, base = results[key], results[base_key]
        values, others = own.accuracies, base.accuracies
        # Only seeds that both finished: equal seeds have equal initial weights and batches, so what is left is the
        # device.
        pairs = {seed: values[seed] - others[seed] for seed in values if seed in others and key != base_key}
        baseline = mean(others[seed] for seed in pairs) if pairs else None
        finished = [case for case in cases if case.seed in values]
        rows.append(
            Row(
                model=models[model],
                setting=setting,
                device=devices[device],
                bits=parse_number(str(cases[0].machine.precision.stage("", "activation").format)).width_bits,
                accuracies=values,
                seeds=len(cases),
                failures=own.failures,
                difference=Difference.of(list(pairs.values()), baseline) if baseline is not None else None,
                loss=own.mean("test_loss"),
                overflow=own.mean("overflow_rate"),
                underflow=own.mean("underflow_rate"),
                counts={name: own.mean(name) for name in ("redos", "repeats", "skips")},
                simulated_seconds=mean(own.simulated) if own.simulated else None,
                first_run=home.run_folder(finished[0]) if finished else None,
                paired=pairs,
                joules=own.cost.get("joules_per_step"),
                area_mm2=own.cost.get("area_mm2"),
                baseline=baseline,
                chance=chance_of(cases[0].described[0]),
            )
        )
    return rows


def _names(named: dict[str, str]) -> dict[str, str]:
    """Return how files are called: by the name that each has, and with the file where two have the same name."""
    # `named` has files as keys: two files may say one name.
    names = list(named.values())
    return {file: f"{name} ({file})" if names.count(name) > 1 else name for file, name in named.items()}


class _Measured(NamedTuple):
    """The results of the runs of a row."""

    metrics: dict[int, dict[str, Any]]
    failures: dict[int, str]
    simulated: list[float]
    cost: dict[str, Any]

    @property
    def accuracies(self) -> dict[int, float]:
        return {seed: metrics["test_accuracy"] for seed, metrics in self.metrics.items()}

    def mean(self, name: str) -> float:
        """Return the mean of a metric over the runs, NaN if it was no finite number in one of them.

        0 replaces a metric that a run of another version lacks.
        """
        # `run.json` has null for NaN and infinities.
        values = [metrics.get(name, 0) for metrics in self.metrics.values()]
        return mean(math.nan if value is None else value for value in values) if values else 0.0


def _measured(cases: Sequence[Case], home: StudyFolder) -> _Measured:
    measured = _Measured({}, {}, [], {})
    for case in cases:
        info, failure = home.result(case), home.failure(case)
        if info is not None:
            measured.metrics[case.seed] = _metrics_of(info, home.run_folder(case))
            measured.cost.update(info.get("cost") or {})  # depends on shapes only: it is the same for all seeds
            if info.get("simulated_seconds") is not None:
                measured.simulated.append(info["simulated_seconds"])
        if failure is not None:
            measured.failures[case.seed] = failure
    return measured


def _metrics_of(info: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the metrics of a finished run.

    Raises:
        ConfigError: they lack the accuracy, or have what is no number.
    """
    metrics = table_of(info.get("metrics"))
    for name in ("test_accuracy", *metrics):
        value = metrics.get(name)
        # Null stands for a number that is not finite, which an accuracy always is.
        is_number = isinstance(value, int | float) or (value is None and name != "test_accuracy")
        if not is_number or (name == "test_accuracy" and not math.isfinite(value or 0.0)):
            raise ConfigError(
                f"`{name}` of a finished run must be a number, got {value!r} in {folder / RUN}: metrics; delete the "
                "folder, and emu study trains the run again"
            )
    return metrics
