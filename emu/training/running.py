"""A training run in progress, as the code that records it sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from emu.hardware import Device
from emu.nn import Network
from emu.precision import CounterTable, Policy, Profile
from emu.training.batches import Batches
from emu.training.data import Dataset
from emu.training.history import History
from emu.training.model import Model
from emu.training.recipe import Recipe
from emu.training.systems import System
from emu.training.systems.system import Examples, Row


class Running(Protocol):
    """What log points and `run.json` read of a run, and the counts that a log point begins anew.

    Attributes:
        recipe: network, data, training.
        device: the machine, the recipe's `[precision]` laid over its own.
        given: the network, where it is not the recipe's.
        backend: backend that computes.
        data: train and test.
        batches: sizes of mini-batches.
        batches_per_epoch: how many an epoch has.
        policy: formats of everything.
        model: network and parameters.
        systems: what was done around passes and updates.
        step: steps done.
        seconds: seconds of training.
        started: when, ISO 8601.
        log_every: steps between two log points.
        is_over: whether a system ended the run.
        interval: counts since the last log point.
        total: counts of all intervals before.
        profile: where time went since the last log point.
        history: tables of the run folder.
        losses: losses of the steps since the last log point.
        correct: right answers of these steps.
    """

    recipe: Recipe
    device: Device
    given: Network | None
    backend: str
    data: Dataset
    batches: Batches
    batches_per_epoch: int
    policy: Policy
    model: Model
    systems: list[System]
    step: int
    seconds: float
    started: str
    log_every: int
    is_over: bool
    interval: CounterTable
    total: CounterTable
    profile: Profile
    history: History
    losses: list[float]
    correct: list[int]

    @property
    def steps(self) -> int:
        """How many steps there are."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the last step is done."""
        ...

    @property
    def scale(self) -> float:
        """What the loss of the next pass is multiplied by."""
        ...

    def flush(self) -> None:
        """Take counts that runners hold by tensor into those of the interval."""
        ...

    def decide(self, row: dict[str, Any]) -> bool:
        """Return whether the run is over, by the row of a log point."""
        ...

    def evaluate(self) -> tuple[float, float]:
        """Return test loss and accuracy."""
        ...

    def batch(self, step: int) -> Examples:
        """Return inputs and labels of a step."""
        ...

    def rate_of(self, step: int, examples: int) -> float:
        """Return the learning rate of a step over a number of examples."""
        ...

    def add_rows(self, rows: Iterable[Iterable[Row]]) -> None:
        """Add rows of systems to the tables."""
        ...

    def registers(self) -> CounterTable:
        """Return the counts of the whole run."""
        ...

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the whole run."""
        ...

    @property
    def cost(self) -> dict[str, Any] | None:
        """Energy and area of a step; None where they are not of the recipe's network."""
        ...

    def about(self) -> dict[str, Any]:
        """Return entries of `run.json` that systems have."""
        ...
