"""The final numbers of runs: what they reached, where they lost results, what a step costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from emu.formats.numerals import number
from emu.report.comparison.runs import Compared
from emu.report.html import Html, table
from emu.report.run_data import Tensor
from emu.report.words import NO_NUMBER, accuracy, decibels, duration, energy, integer, percent, seconds


@dataclass(frozen=True)
class Numbers:
    """The final numbers of a run; None for what it does not have.

    Attributes:
        name: name of the run.
        model: name of the model.
        device: name of the device.
        status: "finished", "running" or "stopped".
        steps: steps done.
        test_accuracy: share of the test set, 0..1.
        test_loss: mean loss on the test set.
        train_loss: mean loss of the last logged interval.
        overflow: largest share of a tensor's results that overflowed, and the tensor.
        underflow: the same for underflow.
        noise_db: lowest signal-to-noise at the end, and the tensor.
        joules: energy of a step.
        bytes_sent: what the nodes of a cluster have sent each other; None for one node.
        simulated_seconds: time on the emulated machine.
        seconds: time that the emulation took.
    """

    name: str
    model: str
    device: str
    status: str
    steps: int
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    overflow: tuple[float, Tensor] | None
    underflow: tuple[float, Tensor] | None
    noise_db: tuple[float, Tensor] | None
    joules: float | None
    bytes_sent: float | None
    simulated_seconds: float | None
    seconds: float | None


def numbers_of(run: Compared) -> Numbers:
    """Return the final numbers of a run."""
    evidence = run.evidence
    outcome, info = evidence.outcome, evidence.run.info
    model, device = evidence.run.name()
    # NaN has no order: `min` would return anything.
    measured = {tensor: noise.last for tensor, noise in evidence.noise.items() if not math.isnan(noise.last)}
    noisiest = min(measured, key=lambda tensor: measured[tensor], default=None)
    return Numbers(
        name=run.name,
        model=model,
        device=device,
        status=outcome.status,
        steps=outcome.steps,
        test_accuracy=outcome.test_accuracy,
        test_loss=_last_test_loss(run),
        train_loss=outcome.train_loss,
        overflow=_worst(run, "overflow"),
        underflow=_worst(run, "underflow"),
        noise_db=None if noisiest is None else (measured[noisiest], noisiest),
        joules=evidence.run.section("cost").get("joules_per_step"),
        bytes_sent=evidence.run.section("metrics").get("bytes_sent") or None,
        simulated_seconds=info.get("simulated_seconds"),
        seconds=outcome.seconds,
    )


def _last_test_loss(run: Compared) -> float | None:
    columns = run.evidence.run.metrics or {}
    losses = columns["test_loss"].astype(np.float64) if "test_loss" in columns else np.array([])
    # The test set is not run at every log point, and the metric is NaN at the others.
    known = losses[~np.isnan(losses)]
    return float(known[-1]) if len(known) else run.evidence.run.section("metrics").get("test_loss")


def _worst(run: Compared, flag: str) -> tuple[float, Tensor] | None:
    shares = {tensor: history.share(flag) for tensor, history in run.evidence.flags.items()}
    worst = max(shares, key=lambda tensor: shares[tensor], default=None)
    return None if worst is None else (shares[worst], worst)


#: Name of a row -> its cell for a run, given the first run, with which it is compared.
_ROWS: dict[str, Callable[[Numbers, Numbers], str]] = {
    "model": lambda own, _: own.model,
    "device": lambda own, _: own.device,
    "state": lambda own, _: f"{own.status}, {integer(own.steps)} steps",
    "test accuracy": lambda own, first: _text(own.test_accuracy, accuracy) + _points(own, first),
    "test loss": lambda own, _: _text(own.test_loss, lambda value: number(value, 4)),
    "training loss": lambda own, _: _text(own.train_loss, lambda value: number(value, 4)),
    "worst overflow": lambda own, _: _of_tensor(own.overflow, percent),
    "worst underflow": lambda own, _: _of_tensor(own.underflow, percent),
    "lowest signal-to-noise": lambda own, _: _of_tensor(own.noise_db, decibels),
    "energy of a step": lambda own, first: _text(own.joules, energy) + _times(own, own.joules, first, first.joules),
    "sent between nodes": lambda own, first: (
        _text(own.bytes_sent, lambda sent: f"{number(sent / 1e6, 4)} MB")
        + _times(own, own.bytes_sent, first, first.bytes_sent)
    ),
    "simulated time": lambda own, first: (
        _text(own.simulated_seconds, duration) + _times(own, own.simulated_seconds, first, first.simulated_seconds)
    ),
    "time taken": lambda own, _: _text(own.seconds, seconds),
}


def numbers_table(runs: Sequence[Numbers]) -> Html:
    """Return the numbers as a table: a column for each run, and no row that no run has."""
    rows = [[name, *(cell(own, runs[0]) for own in runs)] for name, cell in _ROWS.items()]
    kept = [row for row in rows if any(text != NO_NUMBER for text in row[1:])]
    return table(
        "Numbers at the end of each run",
        ["", *(own.name for own in runs)],
        kept,
        numeric_from=None,
        stacks=True,
    )


def _text(value: float | None, write: Callable[[float], str]) -> str:
    return NO_NUMBER if value is None else write(value)


def _of_tensor(worst: tuple[float, Tensor] | None, write: Callable[[float], str]) -> str:
    if worst is None:
        return NO_NUMBER
    value, (layer, role) = worst
    # If even the worst share is 0, no tensor is to blame.
    return f"{write(value)}, {role} of {layer}" if value else write(value)


def _points(own: Numbers, first: Numbers) -> str:
    """Return the difference of accuracies in points; empty for the first run itself."""
    if own is first or own.test_accuracy is None or first.test_accuracy is None:
        return ""
    return f" ({100 * (own.test_accuracy - first.test_accuracy):+.1f} points)"


def _times(own: Numbers, value: float | None, first: Numbers, base: float | None) -> str:
    """Return how many times a cost of the first run another run's is; empty for the first run itself."""
    return f" (x {number(value / base, 3)})" if own is not first and value is not None and base else ""
