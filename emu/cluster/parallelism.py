"""How many nodes share a mini-batch: the most whose computation still takes as long as the transfer.

    computation of a node        C / K        C: of the whole mini-batch on one node
    transfer of a node           T            nearly the same, however many nodes compute: all of them own stripes
    balanced                     K = C / T    beyond it, nodes wait for the transfer

C and T are averages over steps: C is the time of one node's part, times K, for each example.

Source: CN106062786A; Seide et al., Interspeech 2014. The averages are our choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

#: Times per example are averaged in integers, thousandths of a picosecond, so that averages are the same everywhere.
_PARTS_PER_PS = 1000


class StepTimes(NamedTuple):
    """How long the parts of a step took.

    Attributes:
        workers: nodes that took part.
        examples: examples of the mini-batch.
        compute_ps: forward and backward of the node that took longest, in picoseconds.
        transfer_ps: the exchange by itself, in picoseconds; 0 if there was none.
    """

    workers: int
    examples: int
    compute_ps: int
    transfer_ps: int


def balanced_workers(compute_ps: int, transfer_ps: int, choices: Sequence[int]) -> int:
    """Return the largest number of nodes whose computation takes at least as long as their transfer.

    Args:
        compute_ps: C, of the whole mini-batch on one node, in picoseconds.
        transfer_ps: T, of the exchange, in picoseconds.
        choices: numbers of nodes to choose from; the result is 1 if none of them is balanced.

    Examples:
        >>> balanced_workers(800, 100, (1, 2, 4, 8)), balanced_workers(799, 100, (1, 2, 4, 8))
        (8, 4)
    """
    # K <= C / T without a division
    return max((workers for workers in choices if transfer_ps * workers <= compute_ps), default=1)


@dataclass
class _Average:
    """Exponential average of whole picoseconds, or of thousandths of one; None before the first value."""

    decay: float
    now_ps: int | None = None

    def add(self, value_ps: int) -> None:
        kept = value_ps if self.now_ps is None else self.decay * self.now_ps + (1 - self.decay) * value_ps
        self.now_ps = round(kept)


class ParallelismFactor:
    """Chooses how many nodes share the next mini-batch, from the times of steps.

    Attributes:
        choices: numbers of nodes to choose from, ascending.
        workers: the choice so far.
    """

    def __init__(self, choices: Sequence[int], decay: float = 0.9) -> None:
        """Begin with the most nodes.

        Args:
            choices: numbers of nodes to choose from, ascending.
            decay: share of an average that stays.
        """
        # `choices` ascend, so the last is the most
        self.choices, self.workers = tuple(choices), choices[-1]
        self._compute, self._transfer = _Average(decay), _Average(decay)

    def observe(self, times: StepTimes, next_examples: int) -> int:
        """Take the times of a step into the averages; return how many nodes are to share the next mini-batch.

        A step without an exchange, as in a warm start, leaves the average of transfer as it is.

        Args:
            times: times of the step.
            next_examples: examples of the next mini-batch.
        """
        # in thousandths of a picosecond for each example, of one node for the whole mini-batch
        self._compute.add(times.compute_ps * times.workers * _PARTS_PER_PS // times.examples)
        if times.transfer_ps:
            self._transfer.add(times.transfer_ps)
        if self._transfer.now_ps is not None and self._compute.now_ps is not None:
            compute_ps = self._compute.now_ps * next_examples // _PARTS_PER_PS
            self.workers = balanced_workers(compute_ps, self._transfer.now_ps, self.choices)
        return self.workers

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back."""
        return {"workers": self.workers, "compute": asdict(self._compute), "transfer": asdict(self._transfer)}

    def load(self, data: dict[str, Any]) -> None:
        """Take what `to_dict` returned."""
        self.workers = data["workers"]
        self._compute, self._transfer = _Average(**data["compute"]), _Average(**data["transfer"])
