"""The progress of a run, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from emu._drawn import Drawn


class Progress(Protocol):
    """Receives the progress of training; the command line draws a bar from it."""

    def start(self, step: int, steps: int) -> None:
        """Training begins after `step` of `steps`."""
        ...

    def update(self, step: int, loss: float, accuracy: float, overflow: float, underflow: float) -> None:
        """A step is done: loss and accuracy of its batch, rates of the interval so far."""
        ...

    def finish(self) -> None:
        """Training is over."""
        ...


@dataclass(frozen=True)
class Run(Drawn):
    """A finished run.

    Attributes:
        path: its folder.
        info: the content of `run.json`.
    """

    path: Path
    info: dict[str, Any]

    @property
    def test_accuracy(self) -> float:
        """Share of test images classified right at the end."""
        return self.info["metrics"]["test_accuracy"]

    @property
    def weights_sha256(self) -> str:
        """Hash of the master weights."""
        return self.info["weights_sha256"]

    @property
    def registers_sha256(self) -> str:
        """Hash of every register and flag of the run."""
        return self.info["registers_sha256"]
