"""Changes measured by evaluation of a trained network: nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._config import checked
from emu.errors import EmuError
from emu.hardware import Device
from emu.jobs import open_engine
from emu.jobs.engine import LOCAL
from emu.report.sensitivity.rows import Measured
from emu.sensitivity.change import Change, changed
from emu.sensitivity.question import Question, SensitivityOptions
from emu.training import Recipe
from emu.training.evaluation import Evaluation, Trained

Array = NDArray[Any]


class Evaluator:
    """A trained network on its unchanged device, and on changed ones.

    Attributes:
        trained: weights, device and test data.
    """

    def __init__(self, trained: Trained, backend: str) -> None:
        self.trained, self._backend = trained, backend

    @cached_property
    def baseline(self) -> tuple[Evaluation, Array]:
        """The evaluation on the unchanged device, and its answers."""
        return self._evaluated(self.trained.device)

    def _evaluated(self, device: Device) -> tuple[Evaluation, Array]:
        answers: list[Array] = []
        evaluation = self.trained.on(device, backend=self._backend, answers=answers)
        return evaluation, np.concatenate(answers)

    def accuracy_of(self, changes: Sequence[Change]) -> float:
        """Return the accuracy with several changes at the same time."""
        return self._evaluated(changed(self.trained.device, changes))[0].test_accuracy

    def measure(self, change: Change) -> Measured:
        """Return what a change does to accuracy and answers.

        Raises:
            EmuError: the network cannot be computed in the format.
        """
        base, old = self.baseline
        evaluation, new = self._evaluated(changed(self.trained.device, [change]))
        labels = self.trained.data.test_labels
        counters = evaluation.counters.of(change.layer, change.role)
        flags, elements = counters.flags, counters.elements
        return Measured(
            # in the order of the fields of `Measured`: own and baseline's, shares of events, then answers that changed,
            # became wrong, became right
            evaluation.test_accuracy,
            base.test_accuracy,
            evaluation.test_loss,
            base.test_loss,
            flags.overflow / elements if elements else None,
            flags.underflow / elements if elements else None,
            int((new != old).sum()),
            int(((old == labels) & (new != labels)).sum()),
            int(((old != labels) & (new == labels)).sum()),
        )


def outcome(evaluator: Evaluator, change: Change) -> dict[str, Any]:
    """Return the result of a change as plain data (JSON), or the failure: why it cannot be measured."""
    seed = str(evaluator.trained.recipe.training.seed)
    try:
        return {"results": {seed: evaluator.measure(change)._asdict()}, "failure": ""}
    except EmuError as error:
        return {"results": {}, "failure": str(error)}


def measured(
    question: Question, evaluator: Evaluator, changes: Sequence[Change], options: SensitivityOptions
) -> Iterator[tuple[Change, dict[str, Any]]]:
    """Yield changes with their outcomes, as they are measured: here, or by an engine if workers are asked for."""
    # in this process the network is loaded already
    if options.on == LOCAL and options.workers in (None, 1):
        for change in changes:
            yield change, outcome(evaluator, change)
        return
    # a text, not the objects: equal for all jobs, so that a worker's cache (`_evaluator`) finds it again
    setup = _setup_of(question, options.backend)
    by_key = {change.key: change for change in changes}
    with open_engine(options.on, options.workers) as engine:
        for key, change in by_key.items():
            engine.submit(key, outcome_on_worker, setup, change.plain())
        while engine.running():
            # a worker that died has no value, only a failure
            for ended in engine.ended():
                failed: dict[str, Any] = {"results": {}, "failure": ended.failure}
                yield by_key[ended.key], ended.value or failed


def _setup_of(question: Question, backend: str) -> str:
    """Return a trained network and its device as text (JSON), for workers; they must see the file of the weights."""
    assert question.trained is not None
    recipe, device = (json.loads(table.model_dump_json()) for table in (question.recipe, question.device))
    path = str(question.trained.path.resolve())
    return json.dumps({"weights": path, "recipe": recipe, "device": device, "backend": backend})


def outcome_on_worker(setup: str, change: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a change as plain data (JSON).

    Args:
        setup: what `_setup_of` returned.
        change: the change as plain data.
    """
    return outcome(_evaluator(setup), Change.of(change))


# one network for each worker: it is read, and its baseline evaluated, once for all changes that come to the worker
@lru_cache(maxsize=1)
def _evaluator(setup: str) -> Evaluator:
    plain = json.loads(setup)
    recipe = checked(Recipe, plain["recipe"], file="the recipe of a sensitivity analysis")
    device = checked(Device, plain["device"], file="the device of a sensitivity analysis")
    return Evaluator(Trained.read(Path(plain["weights"]), recipe, device), plain["backend"])
