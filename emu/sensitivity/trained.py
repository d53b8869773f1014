"""Changes measured by short paired runs: equal seeds, hence equal initial weights and batches, on both devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from emu.errors import ConfigError
from emu.jobs import Runs, open_engine
from emu.jobs.engine import LOCAL, processors
from emu.jobs.sending import Sending
from emu.report.sensitivity.rows import Measured
from emu.sensitivity.change import Change, changed
from emu.sensitivity.question import Question, SensitivityOptions
from emu.sensitivity.ranges import Tensor
from emu.training.folders.run_folder import RunFolder
from emu.training.folders.study_folder import ATTEMPTS, StudyFolder
from emu.training.planned import PlannedRun

#: Name of the runs of the unchanged device.
BASELINE = "baseline"


class Trainer:
    """The runs of an analysis, in its folder.

    Attributes:
        home: the folder.
        seeds: seeds of each change.
    """

    def __init__(self, question: Question, options: SensitivityOptions, home: StudyFolder) -> None:
        self.home = home
        self.seeds = tuple(dict.fromkeys(options.seeds)) or (question.recipe.training.seed,)
        self._question, self._options = question, options
        self._sending = Sending(home, options.backend, options.cache, options.store)

    def planned(self, change: Change | None, seed: int) -> PlannedRun:
        """Return a run: of a change, or of the unchanged device."""
        device = self._question.device
        name, machine = (BASELINE, device) if change is None else (change.key, changed(device, [change]))
        recipe = self._question.recipe.with_settings({"training.seed": seed})
        return PlannedRun(f"{name}-seed{seed}", recipe, machine)

    def baseline(self) -> dict[int, dict[str, Any]]:
        """Train the unchanged device with each seed; return `run.json` by seed.

        Raises:
            ConfigError: a run failed.
        """
        runs = {seed: self.planned(None, seed) for seed in self.seeds}
        results: dict[int, dict[str, Any]] = {}
        for seed, result in self._trained(runs):
            if isinstance(result, str):
                raise ConfigError(f"the unchanged device must be trained with every seed, got seed {seed}: {result}")
            results[seed] = result
        return {seed: results[seed] for seed in self.seeds}

    def folder_of_baseline(self) -> Path:
        """Return the folder of the unchanged device's first run."""
        return self.home.run_folder(self.planned(None, self.seeds[0]))

    def measured(
        self, changes: Sequence[Change], baseline: dict[int, dict[str, Any]]
    ) -> Iterator[tuple[Change, dict[str, Any]]]:
        """Yield changes with their outcomes as plain data (JSON), each as soon as its last seed is trained."""
        by_key = {change.key: change for change in changes}
        # a job for each change and seed; a change is yielded when its last seed has ended
        runs = {(key, seed): self.planned(change, seed) for key, change in by_key.items() for seed in self.seeds}
        ended: dict[str, dict[int, Measured]] = {key: {} for key in by_key}
        failures: dict[str, str] = {}
        left = {key: len(self.seeds) for key in by_key}
        for (key, seed), result in self._trained(runs):
            left[key] -= 1
            if isinstance(result, str):
                failures[key] = result
            else:
                folder = self.home.run_folder(runs[key, seed])
                events = _events(folder, (by_key[key].layer, by_key[key].role))
                own, base = result["metrics"], baseline[seed]
                accuracies = own["test_accuracy"], base["test_accuracy"]
                ended[key][seed] = Measured(*accuracies, own["test_loss"], base["test_loss"], *events)
            # one failed seed fails the change, but the results of the others are kept
            if not left[key]:
                results = {str(seed): ended[key][seed]._asdict() for seed in self.seeds if seed in ended[key]}
                yield by_key[key], {"results": results, "failure": failures.get(key, "")}

    def _trained(self, runs: dict[Any, PlannedRun]) -> Iterator[tuple[Any, dict[str, Any] | str]]:
        """Yield runs with `run.json`, or with why they failed, as they end; those that are finished come first."""
        left: dict[str, Any] = {}
        for name, run in runs.items():
            # a finished run is its own record: it is not trained again after a stop
            if (result := self.home.result(run)) is not None:
                yield name, result
            else:
                left[run.key] = name
        if not left:
            return
        on, workers = self._options.on, self._options.workers
        if on == LOCAL:
            # no more processes than runs
            workers = min(workers or processors(), len(left))
        try:
            with self._sending, Runs(open_engine(on, workers)) as engine:
                for name in left.values():
                    engine.submit(self._sending.job(runs[name]))
                while engine.running():
                    for ended in engine.ended():
                        name = left[ended.key]
                        yield name, self._sending.arrived(runs[name], ended.failure)
        finally:
            # also after Ctrl-C, and if the caller wants no more
            # the folder is not empty if another command trains there, or a run was stopped
            with suppress(OSError):
                (self.home.path / ATTEMPTS).rmdir()


def written_in(folder: Path) -> list[Tensor]:
    """Return the tensors into which a run has written new values."""
    table = RunFolder(folder).read_table("flags")
    return list(dict.fromkeys(zip(table["layer"], table["role"], strict=True)))


def _events(folder: Path, tensor: Tensor) -> tuple[float | None, float | None]:
    """Return the shares of a tensor's results that overflowed and underflowed in a run; None without results."""
    table = RunFolder(folder).read_table("flags")
    own = [row for row, at in enumerate(zip(table["layer"], table["role"], strict=True)) if at == tensor]
    elements, overflow, underflow = (
        sum(table[name][row] for row in own) for name in ("elements", "overflow", "underflow")
    )
    return (overflow / elements, underflow / elements) if elements else (None, None)
