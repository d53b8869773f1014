"""Sizes of mini-batches, and the number of nodes that share them, by measurement: `emu.cluster.batch_search`.

    before a step   trial of every size, each from this state and over the same examples ──► size from here on
    after a step    its simulated times ──► nodes that share the next mini-batch

A trial leaves no trace: it is a run from a checkpoint in memory, and back to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from emu.cluster import ParallelismFactor, kept_size
from emu.errors import ConfigError
from emu.training.systems.system import Examples, Row, Surroundings, System


class BatchSearch(System):
    """Mini-batches as large as the loss allows, on as many nodes as transfer allows."""

    key = "search"
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {
        # trials, by the first step that has the size they led to; size: of the trial; criterion: mean training loss;
        # kept: whether mini-batches have this size from there on
        "search": {
            "step": "int64",
            "size": "int64",
            "criterion": "float64",
            "kept": "bool_",
        },
        # the number of nodes that share mini-batches behind a step, where it changes
        "parallelism": {
            "step": "int64",
            "workers": "int64",
        },
    }

    def __init__(self, run: Surroundings) -> None:
        """Begin with the recipe's size, and all nodes.

        Raises:
            ConfigError: sizes cannot be divided among nodes, or their bounds leave out `training.batch`, or nodes are
                to be chosen where no time is simulated.
        """
        self._run, self._cluster = run, run.recipe.cluster
        self._table = self._cluster.search if self._cluster else None
        self._rows: list[Row] = []
        self._factor: ParallelismFactor | None = None
        self._tries = False
        if self._cluster is None or self._table is None:
            return
        parts, nodes = self._cluster.parts, len(self._cluster.layout().workers)
        self._table.require_fit(run.recipe.training.batch, parts, run.batches.examples)
        if self._table.parallelism:
            self._require_time(run.about())
            choices = [k for k in range(1, nodes + 1) if self._table.multiple % (k * self._cluster.units) == 0]
            self._factor = ParallelismFactor(choices, self._table.decay)

    def _require_time(self, about: Mapping[str, Any]) -> None:
        if about["simulated_seconds"] is None:
            name = self._run.device.name
            no_clock = f"a device must have a clock, got none in {name}; choose one like k20x-8x"
            raise ConfigError(
                f"`parallelism` of [cluster.search] must be left out if no time is simulated, got true on {name!r}: "
                f"{about.get('simulated_time_missing', no_clock)}"
            )

    # ---- sizes ----

    def begin_step(self, step: int) -> None:
        """Try sizes, where that is due, and no longer in a warm start."""
        table, cluster, batches = self._table, self._cluster, self._run.batches
        if table is None or cluster is None or step < cluster.warm_start:
            return
        if not table.is_due(step, *batches.place(step)) or self._run.steps_left() < table.trial:
            return
        sizes = table.sizes(batches.size, batches.planned, batches.examples)
        if len(sizes) == 1:
            return
        whole = batches.together(range(step, step + table.trial))
        criteria = {size: self._criterion(whole, size) for size in sizes}
        kept = kept_size(criteria, batches.size, tolerance=table.tolerance)
        batches.resize(step, kept)
        for size, criterion in criteria.items():
            self._rows.append(("search", {"size": size, "criterion": criterion, "kept": size == kept}))

    def _criterion(self, examples: Examples, size: int) -> float:
        """Return the mean loss over a trial's examples in mini-batches of a size, the last one of what is left."""
        inputs, labels = examples
        starts = range(0, len(inputs), size)
        parts = [(inputs[start : start + size], labels[start : start + size]) for start in starts]
        self._tries = True
        losses = self._run.trial(parts)
        self._tries = False
        if not all(map(math.isfinite, losses)):
            return math.nan
        weighted = [loss * len(part) for loss, (part, _) in zip(losses, parts, strict=True)]
        return math.fsum(weighted) / len(inputs)

    def rate(self, rate: float, examples: int) -> float:
        """Return the rate of a larger mini-batch: for each example as much as in one of the recipe's size."""
        if self._table is None or self._table.rate == "fixed":
            return rate
        return rate * (examples / self._run.batches.planned)

    # ---- nodes ----

    def end_step(self, steps: int) -> None:
        """Choose how many nodes share the next mini-batch; trials, and steps that one node takes alone, say nothing."""
        times = None if self._factor is None or self._tries else self._run.step_times()
        if self._factor is None or times is None:
            return
        before = self._factor.workers
        workers = self._factor.observe(times, self._run.batches.size_at(steps))
        self._run.batches.workers = workers
        if workers != before:
            self._rows.append(("parallelism", {"workers": workers}))

    # ---- what is written down ----

    def events(self) -> Iterator[Row]:
        """Yield trials, and changes of the number of nodes."""
        rows, self._rows = self._rows, []
        yield from rows

    def about(self) -> dict[str, Any]:
        """Return the size of mini-batches, and how many nodes share them; nothing without a search."""
        if self._table is None:
            return {}
        batches = self._run.batches
        return {"batch_size": batches.size} | ({"workers": self._factor.workers} if self._factor else {})

    # ---- checkpoints ----

    def to_dict(self) -> Any:
        """Return what is known of times; None where they are not asked for."""
        return self._factor.to_dict() if self._factor else None

    def load(self, data: Any) -> None:
        """Take what `to_dict` returned."""
        if self._factor is not None:
            self._factor.load(data)
