"""The tables of a run as histories by tensor: register, flags and noise over the steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emu.datapath.registers import DEFAULT_FLOAT_BINS
from emu.formats import Float
from emu.report.run_data import Array, Columns, RunData, Tensor, rows_of_tensors, table_of
from emu.report.words import parse_or_none

SCALAR_KINDS = ("none", "below", "above", "nonfinite", "total")


def _groups(intervals: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and last indices of at most `most` groups of neighbouring intervals."""
    # All groups have `size` intervals, but the last may have fewer.
    size = math.ceil(intervals / most)
    starts = np.arange(0, intervals, size)
    return starts, np.minimum(starts + size, intervals) - 1


@dataclass(frozen=True)
class LeadingBits:
    """The statistics register of one tensor over the logged intervals.

    Attributes:
        steps: last step of each interval, shape `(n,)`.
        lowest: exponent of the first column of `counts`.
        counts: results per interval and leading-bit position, of both signs, shape `(n, positions)`.
        scalars: kind -> results per interval, shape `(n,)`, for `SCALAR_KINDS`.
        ends: exponent above the register's highest position; None if no result can lie above it.
        starts: exponent of the register's lowest position; None if no result can lie below it.
    """

    steps: NDArray[np.int64]
    lowest: int
    counts: NDArray[np.int64]
    scalars: dict[str, NDArray[np.int64]]
    ends: int | None = None
    starts: int | None = None

    def beyond(self, top: int) -> int | None:
        """Return the number of results of magnitude 2**top or more; None if the register's positions end below them."""
        above = int(self.scalars["above"].sum())
        # Results above the register are somewhere from `ends` on: in the format or beyond it.
        if above and self.ends is not None and self.ends < top:
            return None
        # Column c counts magnitudes from 2**(lowest + c) up to twice that, so columns from top - lowest on are 2**top
        # or more.
        return int(self.counts[:, max(top - self.lowest, 0) :].sum()) + above

    def below(self, bottom: int) -> int | None:
        """Return the number of nonzero results below 2**bottom; None if the register's positions start above them."""
        under = int(self.scalars["below"].sum())
        # Results under the register are somewhere below `starts`: in the format or below it.
        if under and self.starts is not None and self.starts > bottom:
            return None
        return int(self.counts[:, : max(bottom - self.lowest, 0)].sum()) + under

    def merged(self, most: int) -> LeadingBits:
        """Return the history in at most `most` intervals; neighbouring intervals are added."""
        if len(self.steps) <= most:
            return self
        starts, ends = _groups(len(self.steps), most)
        scalars = {kind: np.add.reduceat(values, starts) for kind, values in self.scalars.items()}
        # `reduceat` adds from each start up to the next one.
        counts = np.add.reduceat(self.counts, starts, axis=0)
        return replace(self, steps=self.steps[ends], counts=counts, scalars=scalars)

    def shares(self) -> NDArray[np.float64]:
        """Return the share of each interval's results per position, shape `(n, positions)`."""
        return self.counts / np.maximum(self.scalars["total"], 1)[:, None]

    def share(self, kind: str) -> NDArray[np.float64]:
        """Return the share of each interval's results that one of `SCALAR_KINDS` counted, shape `(n,)`."""
        return self.scalars[kind] / np.maximum(self.scalars["total"], 1)

    def exponents(self) -> tuple[int, int] | None:
        """Return the lowest and highest exponent that was counted; None if all results were zero or not finite."""
        seen = np.flatnonzero(self.counts.sum(axis=0))
        return (self.lowest + int(seen[0]), self.lowest + int(seen[-1])) if len(seen) else None


@dataclass(frozen=True)
class FlagCounts:
    """The flags of one tensor over the logged intervals, all arrays of shape `(n,)`.

    Attributes:
        steps: last step of each interval.
        elements: elements written in the interval.
        counts: flag name -> elements that raised it.
    """

    steps: NDArray[np.int64]
    elements: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]

    def share(self, flag: str) -> float:
        """Return the share of all written elements that raised `flag`."""
        return float(self.counts[flag].sum() / max(int(self.elements.sum()), 1)) if flag in self.counts else 0.0

    def shares(self, flag: str) -> NDArray[np.float64]:
        """Return the share of each interval's elements that raised `flag`."""
        return self.counts[flag] / np.maximum(self.elements, 1)

    def merged(self, most: int) -> FlagCounts:
        """Return the history in at most `most` intervals; neighbouring intervals are added."""
        if len(self.steps) <= most:
            return self
        starts, ends = _groups(len(self.steps), most)
        counts = {flag: np.add.reduceat(values, starts) for flag, values in self.counts.items()}
        return FlagCounts(self.steps[ends], np.add.reduceat(self.elements, starts), counts)


@dataclass(frozen=True)
class Noise:
    """Signal-to-noise of one tensor against float32 with the same weights.

    Attributes:
        steps: steps at which it was measured, shape `(n,)`.
        decibels: the ratio, shape `(n,)`; infinity if all elements agreed, NaN if there was no signal.
    """

    steps: NDArray[np.int64]
    decibels: NDArray[np.float64]

    @property
    def last(self) -> float:
        """The last measurement."""
        return float(self.decibels[-1])

    @property
    def median(self) -> float:
        """Median of the measurements that are numbers, infinity included; NaN without any."""
        known = np.sort(self.decibels[~np.isnan(self.decibels)])
        # the lower of two middle values, because a mean with infinity would be infinite
        return float(known[(len(known) - 1) // 2]) if len(known) else math.nan


@dataclass(frozen=True)
class Trajectory:
    """The binary points of one tensor, all arrays of shape `(moves,)`.

    Attributes:
        part: part of the role, if an operation writes one of several parts; else empty.
        steps: number of steps done when the point moved; a redo does not count the step that ran again.
        points: fraction bits after the move.
        redone: whether the operation that writes the tensor ran again with it.
    """

    part: str
    steps: NDArray[np.int64]
    points: NDArray[np.int64]
    redone: NDArray[np.bool_]


def trajectories(run: RunData) -> dict[Tensor, list[Trajectory]]:
    """Return tensor -> the binary points of its parts; empty without dynamic fixed point."""
    table = run.points
    if table is None:
        return {}
    histories: dict[Tensor, list[Trajectory]] = {}
    for tensor, rows in rows_of_tensors(table).items():
        # In the order in which parts first appear; `rows` are in the order of the table, by step.
        parts = table["part"][rows].astype(str)
        for part in dict.fromkeys(parts.tolist()):
            own = rows[parts == part]
            # A redo is noted at the step that runs again, which is not done yet.
            redone = table["redone"][own].astype(np.bool_)
            steps = _integers(table["step"][own]) - redone
            histories.setdefault(tensor, []).append(Trajectory(part, steps, _integers(table["point"][own]), redone))
    return histories


def leading_bits(run: RunData) -> dict[Tensor, LeadingBits]:
    """Return tensor -> history of its register, in network order; empty without registers."""
    table = run.registers
    if table is None:
        return {}
    histories: dict[Tensor, LeadingBits] = {}
    rows = rows_of_tensors(table)
    for tensor in run.in_order(rows):
        history = _leading_bits({name: values[rows[tensor]] for name, values in table.items()})
        starts, ends = _positions(run, tensor)
        histories[tensor] = replace(history, starts=starts, ends=ends)
    return histories


def _positions(run: RunData, tensor: Tensor) -> tuple[int | None, int | None]:
    """Return the lowest position of a tensor's register, and the one above the highest; None where all results fit."""
    register = table_of(table_of(run.section("device").get("precision")).get("register"))
    lowest, bins = register.get("lowest"), register.get("bins")
    datapath = run.formats.get(tensor)
    fmt = parse_or_none(datapath.format) if datapath is not None else None
    # What a register counts outside its positions may lie in the format only if they cover less than the format does.
    # Of fixed point they do so only if the device names them.
    if isinstance(fmt, Float):  # whose register has 40 positions from its smallest subnormal on (registers.py)
        lowest = fmt.emin - fmt.fraction_bits if lowest is None else lowest
        bins = DEFAULT_FLOAT_BINS if bins is None else bins
    if not isinstance(lowest, int):
        return None, None
    return lowest, lowest + bins if isinstance(bins, int) else None


def _leading_bits(table: Columns) -> LeadingBits:
    # `interval` is the index of each row's step in `steps`.
    steps, interval = np.unique(table["step"].astype(np.int64), return_inverse=True)
    kind, count = table["kind"].astype(str), _integers(table["count"])
    at_exponent = (kind == "positive") | (kind == "negative")
    exponent = _integers(table["exponent"][at_exponent])
    lowest = int(exponent.min()) if len(exponent) else 0
    width = int(exponent.max()) - lowest + 1 if len(exponent) else 0
    counts = np.zeros((len(steps), width), dtype=np.int64)
    # np.add.at, because `counts[indices] += ...` would add only one of the rows with the same indices
    np.add.at(counts, (interval[at_exponent], exponent - lowest), count[at_exponent])
    scalars = {name: np.zeros(len(steps), dtype=np.int64) for name in SCALAR_KINDS}
    for name in SCALAR_KINDS:
        np.add.at(scalars[name], interval[kind == name], count[kind == name])
    return LeadingBits(steps, lowest, counts, scalars)


def flag_counts(run: RunData) -> dict[Tensor, FlagCounts]:
    """Return tensor -> history of its flags, in network order; empty without flags."""
    table = run.flags
    if table is None:
        return {}
    rows = _rows_by_step(table)
    # Every other column is a flag.
    names = [name for name in table if name not in ("step", "layer", "role", "elements")]
    histories: dict[Tensor, FlagCounts] = {}
    for tensor in run.in_order(rows):
        own = rows[tensor]
        counts = {name: _integers(table[name][own]) for name in names}
        histories[tensor] = FlagCounts(_integers(table["step"][own]), _integers(table["elements"][own]), counts)
    return histories


def noises(run: RunData) -> dict[Tensor, Noise]:
    """Return tensor -> history of its signal-to-noise ratio, in network order; empty without it."""
    table = run.snr
    if table is None:
        return {}
    rows = _rows_by_step(table)
    return {
        tensor: Noise(_integers(table["step"][rows[tensor]]), table["snr_db"][rows[tensor]].astype(np.float64))
        for tensor in run.in_order(rows)
    }


def _rows_by_step(table: Columns) -> dict[Tensor, NDArray[np.int64]]:
    """Return tensor -> indices of its rows, by ascending step."""
    return {
        tensor: rows[np.argsort(table["step"][rows], kind="stable")] for tensor, rows in rows_of_tensors(table).items()
    }


def _integers(values: Array) -> NDArray[np.int64]:
    return np.asarray(values).astype(np.int64)
