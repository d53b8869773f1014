"""Sizes of mini-batches, and the number of nodes that share them, by measurement: `emu.cluster.batch_sizes`.

    before a step   a trial of each size, from the same state and over the same examples ──► size of later steps
    after a step    its simulated times ──► nodes that share the next mini-batch

The loop undoes a trial: it goes back to a checkpoint in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from typing_extensions import override

from emu.cluster import ParallelismFactor, kept_size
from emu.errors import ConfigError
from emu.training.systems.system import AskTimes, Examples, Row, System, Trial
from emu.training.workbench import Workbench


class BatchSizes(System):
    """Mini-batches as large as the loss allows, on as many nodes as transfer allows."""

    key = "search"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # trials, by the first step with the size that they led to; size: of the trial; criterion: mean training loss;
        # kept: whether later mini-batches have this size
        "search": {
            "step": "int64",
            "size": "int64",
            "criterion": "float64",
            "kept": "bool",
        },
        # the number of nodes that share mini-batches after a step, if it changes
        "parallelism": {
            "step": "int64",
            "workers": "int64",
        },
    }

    def __init__(self, bench: Workbench) -> None:
        """Begin with the recipe's size, and all nodes.

        Raises:
            ConfigError: sizes cannot be divided among nodes, or their bounds leave out `training.batch`.
        """
        self._batches, self._device, self._cluster = bench.batches, bench.device.name, bench.recipe.cluster
        self._table = self._cluster.search if self._cluster else None
        self._rows: list[Row] = []
        self._factor: ParallelismFactor | None = None
        self._in_trial = False
        if self._cluster is None or self._table is None:
            return
        parts, nodes = self._cluster.parts, len(self._cluster.layout().workers)
        self._table.require_fit(bench.recipe.training.batch, parts, bench.batches.examples)
        if self._table.parallelism:
            # numbers of nodes among whose units every size, a multiple of `multiple`, can be divided evenly
            choices = [k for k in range(1, nodes + 1) if self._table.multiple % (k * self._cluster.units) == 0]
            self._factor = ParallelismFactor(choices, self._table.decay)

    @override
    def require(self, about: Mapping[str, Any]) -> None:
        """Raise ConfigError if nodes are to be chosen and no time is simulated."""
        if self._factor is not None and about["simulated_seconds"] is None:
            name = self._device
            no_clock = f"a device must have a clock, got none in {name}; choose one like k20x-8x"
            raise ConfigError(
                f"`parallelism` of [cluster.search] must be left out if no time is simulated, got true on {name!r}: "
                f"{about.get('simulated_time_missing', no_clock)}"
            )

    # ---- sizes ----

    @override
    def begin_step(self, step: int, steps_left: int, trial: Trial) -> None:
        """Try sizes, if that is due and the warm start is over."""
        table, cluster, batches = self._table, self._cluster, self._batches
        if table is None or cluster is None or step < cluster.warm_start:
            return
        if not table.is_due(step, *batches.position(step)) or steps_left < table.trial:
            return
        sizes = table.sizes(batches.size, batches.planned, batches.examples)
        if len(sizes) == 1:
            return
        # the very examples that come next, so the trial reads ahead, and the run trains on them afterwards
        examples = batches.together(range(step, step + table.trial))
        criteria = {size: self._criterion(examples, size, trial) for size in sizes}
        kept = kept_size(criteria, batches.size, tolerance=table.tolerance)
        # from this step on: the loop asks for its batch after `begin_step`
        batches.resize(step, kept)
        for size, criterion in criteria.items():
            self._rows.append(("search", {"size": size, "criterion": criterion, "kept": size == kept}))

    def _criterion(self, examples: Examples, size: int, trial: Trial) -> float:
        """Return the mean loss over a trial's examples in mini-batches of a size; the last one may be smaller."""
        inputs, labels = examples
        starts = range(0, len(inputs), size)
        parts = [(inputs[start : start + size], labels[start : start + size]) for start in starts]
        # steps of a trial must not change how many nodes share a batch
        self._in_trial = True
        losses = trial(parts)
        self._in_trial = False
        # NaN stands for a size whose training diverges
        if not all(map(math.isfinite, losses)):
            return math.nan
        # fsum rounds once: sizes with the same losses get the same criterion in every order of addition
        weighted = [loss * len(part) for loss, (part, _) in zip(losses, parts, strict=True)]
        return math.fsum(weighted) / len(inputs)

    @override
    def rate(self, rate: float, examples: int) -> float:
        """Return the rate for a mini-batch of another size: proportional to its examples, unless the rate is fixed."""
        if self._table is None or self._table.rate == "fixed":
            return rate
        # by the examples of this mini-batch: the last of a trial may be smaller
        return rate * (examples / self._batches.planned)

    # ---- nodes ----

    @override
    def end_step(self, steps: int, phase: str, times: AskTimes) -> None:
        """Choose how many nodes share the next mini-batch; not after a trial, nor after a step of one node alone."""
        # times are computed only if somebody asks for them
        step_times = None if self._factor is None or self._in_trial else times()
        if self._factor is None or step_times is None:
            return
        before = self._factor.workers
        workers = self._factor.observe(step_times, self._batches.size_at(steps))
        # the next step divides its batch among these nodes
        self._batches.workers = workers
        if workers != before:
            self._rows.append(("parallelism", {"workers": workers}))

    # ---- tables ----

    @override
    def events(self) -> Iterator[Row]:
        """Yield trials, and changes of the number of nodes."""
        # rows of `begin_step` belong to the step that it preceded: events are taken after that step
        yield from self._rows
        self._rows = []

    @override
    def about(self) -> dict[str, Any]:
        """Return the size of mini-batches, and how many nodes share them; nothing without a search."""
        if self._table is None:
            return {}
        return {"batch_size": self._batches.size} | ({"workers": self._factor.workers} if self._factor else {})

    # ---- checkpoints ----

    @override
    def to_dict(self) -> Any:
        """Return the measured times of steps; None if the number of nodes is fixed."""
        return self._factor.to_dict() if self._factor else None

    @override
    def load(self, data: Any) -> None:
        if self._factor is not None:
            self._factor.load(data)
