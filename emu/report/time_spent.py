"""A run's profile, summed over its intervals: the time of each operation per step, its kind of kernel, and why.

First calls, which load or compile kernels, are counted separately: in a short run they would dominate the time of a
step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.operations import OPERATIONS, DoneBy
from emu.report.run_data import Columns, RunData

#: What the profile calls time outside the datapath.
HOST = "host"
#: Kinds of work in reading order: exact products, other products, the rest.
DOTS, BLAS, WIDE, IN_ORDER, ELEMENTWISE, SELECTIONS, FUNCTIONS, REFERENCE, OUTSIDE = (
    "integer dot products",
    "float BLAS",
    "wide integers",
    "sums in order",
    "elementwise and output stage",
    "selections",
    "functions and loss",
    "the reference",
    "host",
)
KINDS = (DOTS, BLAS, WIDE, IN_ORDER, ELEMENTWISE, SELECTIONS, FUNCTIONS, REFERENCE, OUTSIDE)
_PATHS = {
    "integer_dot": DOTS,
    "float32_blas": BLAS,
    "float64_blas": BLAS,
    "wide": WIDE,
    "in_order": IN_ORDER,
    "definition": REFERENCE,
}
#: Kinds of operations that are no products.
_PARTS = {
    DoneBy.SELECTION: SELECTIONS,
    DoneBy.MOVE: SELECTIONS,
    DoneBy.FUNCTION: FUNCTIONS,
    DoneBy.HOST: FUNCTIONS,
}


@dataclass(frozen=True)
class OperationTime:
    """The time of one operation of one tensor in the run.

    Attributes:
        layer: layer whose result was written; empty for the host.
        role: role of the result; empty for the host.
        operation: name of the operation.
        path: path of its product, or empty.
        fallback: why its product was left to the reference, or empty.
        proof: why the path is exact, or empty.
        calls: number of calls.
        elements: elements written.
        multiply_adds: multiply-adds of its products.
        seconds: time of all calls.
        first_calls: number of calls that loaded or compiled kernels.
        first_seconds: time of these calls.
    """

    layer: str
    role: str
    operation: str
    path: str
    fallback: str
    proof: str
    calls: int
    elements: int
    multiply_adds: int
    seconds: float
    first_calls: int
    first_seconds: float

    @property
    def seconds_per_call(self) -> float:
        """Mean of the calls after the first ones; mean of all calls if there were no others."""
        later = self.calls - self.first_calls
        return (self.seconds - self.first_seconds) / later if later else self.seconds / max(self.calls, 1)

    @property
    def typical_seconds(self) -> float:
        """Time that all calls would have taken at `seconds_per_call`."""
        return self.seconds_per_call * self.calls

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        # First: a product that was left to the reference has the path that it would have taken.
        if self.fallback or self.path == "definition":
            return REFERENCE
        if self.operation == HOST:
            return OUTSIDE
        row = OPERATIONS.get(self.operation)  # None if the run is of another version
        # What is no selection and no function is a product, known by its path, or elementwise work without one.
        return (row and _PARTS.get(row.done_by)) or _PATHS.get(self.path, ELEMENTWISE)

    @property
    def name(self) -> str:
        """Name of the tensor for a reader."""
        return f"{self.role} of {self.layer}" if self.layer else "host"


@dataclass(frozen=True)
class TimeSpent:
    """The time of a run's steps, by operation.

    Attributes:
        entries: operations, and the host as one of them; the most expensive first.
        steps: number of steps that were measured.
    """

    entries: list[OperationTime]
    steps: int

    @property
    def typical_seconds(self) -> float:
        """Time that the steps would have taken without loading or compiling kernels."""
        return sum(entry.typical_seconds for entry in self.entries)

    @property
    def first_seconds(self) -> float:
        """Time of the first calls: loading and compiling kernels, and the calls' own work."""
        return sum(entry.first_seconds for entry in self.entries)

    def share(self, entries: Iterable[OperationTime]) -> float:
        """Return the share of these operations in the time of the steps."""
        return sum(entry.typical_seconds for entry in entries) / (self.typical_seconds or 1.0)

    def by_layer(self) -> dict[str, list[OperationTime]]:
        """Return layer -> its operations, the most expensive layer first; the host is no layer."""
        layers: dict[str, list[OperationTime]] = {}
        for entry in self.entries:
            if entry.layer:
                layers.setdefault(entry.layer, []).append(entry)
        return dict(sorted(layers.items(), key=lambda item: -self.share(item[1])))


def time_spent(run: RunData) -> TimeSpent | None:
    """Return the time of a run's steps by operation; None for a run without a profile."""
    table = run.profile
    if table is None:
        return None
    rows: dict[tuple[str, ...], list[int]] = {}
    texts = {name: _texts(table, name) for name in ("layer", "role", "operation", "path", "fallback", "proof")}
    # Not by proof, which may change from interval to interval: the newest is shown.
    keys = zip(*(texts[name] for name in ("layer", "role", "operation", "path", "fallback")), strict=True)
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    entries = [_entry(table, key, texts["proof"][of_key[-1]], of_key) for key, of_key in rows.items()]
    # The host is noted once for each step.
    steps = sum(entry.calls for entry in entries if entry.operation == HOST)
    return TimeSpent(sorted(entries, key=lambda entry: -entry.typical_seconds), max(steps, 1))


def _entry(table: Columns, key: tuple[str, ...], proof: str, rows: list[int]) -> OperationTime:
    layer, role, operation, path, fallback = key
    calls, elements, multiply_adds, first_calls = (
        int(table[name][rows].sum()) for name in ("calls", "elements", "multiply_adds", "first_calls")
    )
    taken, first = (float(table[name][rows].sum()) for name in ("seconds", "first_seconds"))
    return OperationTime(
        layer, role, operation, path, fallback, proof, calls, elements, multiply_adds, taken, first_calls, first
    )


def _texts(table: Columns, name: str) -> list[str]:
    """Return a column of texts, null as an empty text; a column of nulls alone has lost its type."""
    values: list[Any] = table[name].tolist() if table[name].dtype == np.object_ else [None] * len(table[name])
    return [value or "" for value in values]
