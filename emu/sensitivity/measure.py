"""From the question to measured rows in a folder: rows that are there are not measured again.

question ──► baseline ──► changes (formats placed by its registers) ──► rows, one by one ──► page, search file

    sensitivity.json   network, device, baseline, what is asked
    rows.json          a row for each change; replaced after each of them
    report.html        the page
    search.toml        a search that starts from the rows; device.toml, model.toml and baseline.toml if it needs them
    runs/              the runs, if networks are trained
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emu.errors import ConfigError
from emu.formats import parse_number
from emu.report.guessing import chance_of
from emu.report.sensitivity import build_sensitivity_report, read_sensitivity
from emu.report.sensitivity.rows import EVALUATION, ROWS, SENSITIVITY, TRAINING, Row, Sensitivity, Together
from emu.sensitivity.change import Change, Saving
from emu.sensitivity.evaluated import Evaluator, measured
from emu.sensitivity.question import Question, SensitivityOptions, changes_of
from emu.sensitivity.ranges import registers_of, registers_of_run
from emu.sensitivity.search_file import write_search
from emu.sensitivity.trained import Trainer, written_in
from emu.training.folders.run_folder import RUN, RunFolder
from emu.training.folders.study_folder import StudyFolder
from emu.training.workbench.build import build_network

FOLDER = Path("sensitivity")


class Measuring:
    """A sensitivity analysis at work.

    Attributes:
        question: network and device.
        options: what is tried.
        path: the folder.
        changes: all changes that are asked for.
        rows: rows by the key of their change, as plain data (JSON).
    """

    def __init__(self, question: Question, options: SensitivityOptions, out: Path | None = None) -> None:
        """Measure the unchanged device, and take the rows that the folder has.

        Args:
            question: network and device.
            options: what is tried.
            out: the folder; None for `sensitivity/NAME-DEVICE`.

        Raises:
            ConfigError: the unchanged device cannot be measured, nothing can be narrowed, or the folder has an analysis
                of another network or device.
        """
        self.question, self.options = question, options
        name = question.name
        if question.device.name not in name:
            name += f"-{question.device.name}"
        if options.steps is not None:
            name += f"-train{options.steps}"
        self.path = (out or FOLDER / name).resolve()
        self._home = RunFolder(self.path)
        self._evaluator = None if question.trained is None else Evaluator(question.trained, options.backend)
        # before anything is written: a folder of another analysis stays as it is
        self._identity = self._identified()
        self._require_own()
        self._trainer = None if question.trained else Trainer(question, options, StudyFolder(self.path))
        self._baselines: dict[int, dict[str, Any]] = {}
        self._examples: int | None = None
        self.changes = self._measure_baseline()
        self._saving = Saving(
            question.recipe,
            question.device,
            inference=question.trained is not None,
            data=question.trained.data if question.trained else None,
        )
        self.rows = self._known()

    def _identified(self) -> dict[str, Any]:
        """Return what rows belong to; the weights by their hash, because a file may be replaced by another one."""
        weights = None if self._evaluator is None else self._evaluator.baseline[0].weights_sha256
        return {**self.question.identity(), "weights_sha256": weights}

    def _require_own(self) -> None:
        """Make the folder; raise ConfigError if it has an analysis of something else."""
        if (self.path / SENSITIVITY).is_file():
            known = self._home.read_json(SENSITIVITY).get("identity")
            if known != self._identity:
                raise ConfigError(
                    f"a folder must have an analysis of one network on one device, got {self.path}, whose weights, "
                    "recipe or device are others; choose another folder with --out"
                )
        elif (self.path / RUN).is_file():
            raise ConfigError(f"--out must not be the folder of a run, got {self.path}; choose another folder")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder of an analysis must be writable, got {error.strerror!r} for {self.path}; choose another "
                "one with --out"
            ) from None

    def _measure_baseline(self) -> list[Change]:
        """Measure the unchanged device; return the changes, whose formats are placed by its registers."""
        names = build_network(self.question.recipe.network).names
        if self._evaluator is not None:
            evaluation, _ = self._evaluator.baseline
            trained = self._evaluator.trained
            self._baselines = {trained.recipe.training.seed: {"test_accuracy": evaluation.test_accuracy}}
            self._examples = evaluation.images
            of_evaluation = registers_of(evaluation.counters)
            # a run's registers are summed over its whole training; they win over those of one evaluation
            seen = {**of_evaluation, **(registers_of_run(trained.path) if trained.path.is_dir() else {})}
            return changes_of(self.question, self.options, trained.network.names, list(of_evaluation), seen)
        assert self._trainer is not None
        runs = self._trainer.baseline()
        self._baselines = {seed: info["metrics"] for seed, info in runs.items()}
        folder = self._trainer.folder_of_baseline()
        return changes_of(self.question, self.options, names, written_in(folder), registers_of_run(folder))

    def _known(self) -> dict[str, dict[str, Any]]:
        """Return the rows that the folder has, by the key of their change; without those that failed."""
        if not (self.path / ROWS).is_file():
            return {}
        rows: list[dict[str, Any]] = self._home.read_json(ROWS)["rows"]
        # failed rows are measured again
        return {row.pop("key"): row for row in rows if not row["failure"]}

    def left(self) -> list[Change]:
        """Return the changes that are not measured with all seeds."""
        seeds = {str(seed) for seed in self._baselines}
        return [
            change
            for change in self.changes
            # JSON has texts as keys, so seeds are compared as texts
            if not seeds <= self.rows.get(change.key, {"results": {}})["results"].keys()
        ]

    def measure(self) -> Iterator[Row]:
        """Measure the changes that are left, and yield each row; it is in the folder then."""
        self._write()
        changes = self.left()
        if self._evaluator is not None:
            outcomes = measured(self.question, self._evaluator, changes, self.options)
        else:
            assert self._trainer is not None
            outcomes = self._trainer.measured(changes, self._baselines)
        for change, outcome in outcomes:
            plain = {
                **change.plain(),
                "own_bits": change.own_bits,
                "bits": change.bits,
                "saving": self._saving.of([change]),
                **outcome,
            }
            self.rows[change.key] = plain
            # after each row: an analysis that is stopped loses nothing but the change it was at
            self._write_rows()
            yield Row.of(plain)

    def finish(self) -> Sensitivity:
        """Write the page and the search file from the rows that are measured, and return what was measured."""
        self._write()
        # from the files, as the page does it, so rows of earlier calls count too
        measured = read_sensitivity(self.path)
        searched = write_search(self.question, self.options, measured)
        together = [asdict(known) for known in self._together(measured)]
        self._write(search=searched, together=together)
        build_sensitivity_report(self.path)
        return read_sensitivity(self.path)

    def _together(self, measured: Sensitivity) -> Iterator[Together]:
        """Yield what all tolerated changes of each width or format do at the same time, once all are measured."""
        if self._evaluator is None or measured.is_at_chance or self.left():
            return
        for column in measured.columns():
            keys = {(row.tensor, row.format) for row in measured.tolerated(column)}
            changes = [change for change in self.changes if ((change.layer, change.role), change.format) in keys]
            if changes:
                accuracy = self._evaluator.accuracy_of(changes)
                yield Together(column, len(changes), accuracy, measured.baseline - accuracy, self._saving.of(changes))

    def _write_rows(self) -> None:
        rows = [{"key": key, **row} for key, row in self.rows.items()]
        self._home.write_json(ROWS, {"rows": rows})

    def _write(self, search: str | None = None, together: Sequence[dict[str, Any]] = ()) -> None:
        question, options = self.question, self.options
        about = {
            "name": self.path.name,
            "model": question.recipe.name,
            "network": question.name,
            "device": question.device.name,
            "how": EVALUATION if question.trained is not None else TRAINING,
            "steps": options.steps,
            "examples": self._examples,
            "chance": chance_of(question.recipe.model_dump(mode="json")),
            "baseline": {str(seed): metrics["test_accuracy"] for seed, metrics in self._baselines.items()},
            "margin": options.margin,
            "formats": [str(parse_number(text)) for text in options.formats],
            # what the page waits for: rows of other changes stay in rows.json
            "asked": [[change.layer, change.role, change.format] for change in self.changes],
            "energy_of": self._saving.unit,
            "why_no_energy": self._saving.why_not,
            "together": [*together],
            "search": search,
            "identity": self._identity,
        }
        self._home.write_json(SENSITIVITY, about)
