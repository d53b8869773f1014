"""A run's profile summed over its intervals: what each operation cost per step, which kind of kernel ran it, and why.

First calls, which load or compile kernels, are kept apart: they would hide what a step costs in a short run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.operations import OPERATIONS, DoneBy
from emu.report.run_data import Columns, Run

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
#: Kinds of operations that no path of a product tells.
_PARTS = {
    DoneBy.SELECTION: SELECTIONS,
    DoneBy.MOVE: SELECTIONS,
    DoneBy.FUNCTION: FUNCTIONS,
    DoneBy.HOST: FUNCTIONS,
}


@dataclass(frozen=True)
class Cost:
    """What one operation of one tensor cost in the run.

    Attributes:
        layer: whose result was written; empty for the host.
        role: the result's role; empty for the host.
        operation: its name.
        path: of its product, or empty.
        fallback: why its product was left to the reference, or empty.
        proof: why the path is exact, or empty.
        calls: how many.
        elements: elements written.
        multiply_adds: of its products.
        seconds: how long all of them took.
        first_calls: those that loaded or compiled kernels.
        first_seconds: how long those took.
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
        """Mean of the calls behind the first; of all, if there was no other."""
        later = self.calls - self.first_calls
        return (self.seconds - self.first_seconds) / later if later else self.seconds / max(self.calls, 1)

    @property
    def typical_seconds(self) -> float:
        """What all calls would have taken at the mean of those behind the first."""
        return self.seconds_per_call * self.calls

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        if self.fallback or self.path == "definition":
            return REFERENCE
        if self.operation == HOST:
            return OUTSIDE
        row = OPERATIONS.get(self.operation)  # none: a run of another version
        return (row and _PARTS.get(row.done_by)) or _PATHS.get(self.path, ELEMENTWISE)

    @property
    def name(self) -> str:
        """What a reader calls it."""
        return f"{self.role} of {self.layer}" if self.layer else "host"


@dataclass(frozen=True)
class TimeSpent:
    """Where the time of a run's steps went.

    Attributes:
        costs: operations, and the host as one of them; the most expensive first.
        steps: how many steps were measured.
    """

    costs: list[Cost]
    steps: int

    @property
    def typical_seconds(self) -> float:
        """What the steps would have taken without loading or compiling kernels."""
        return sum(cost.typical_seconds for cost in self.costs)

    @property
    def first_seconds(self) -> float:
        """What loading and compiling kernels took, the first calls' own work included."""
        return sum(cost.first_seconds for cost in self.costs)

    def share(self, costs: Iterable[Cost]) -> float:
        """Return what part of the steps these operations took."""
        return sum(cost.typical_seconds for cost in costs) / (self.typical_seconds or 1.0)

    def by_layer(self) -> dict[str, list[Cost]]:
        """Return layer -> its operations, the most expensive layer first; the host is no layer."""
        layers: dict[str, list[Cost]] = {}
        for cost in self.costs:
            if cost.layer:
                layers.setdefault(cost.layer, []).append(cost)
        return dict(sorted(layers.items(), key=lambda item: -self.share(item[1])))


def time_spent(run: Run) -> TimeSpent | None:
    """Return where the time went, None for a run without a profile."""
    table = run.profile
    if table is None:
        return None
    rows: dict[tuple[str, ...], list[int]] = {}
    texts = {name: _texts(table, name) for name in ("layer", "role", "operation", "path", "fallback", "proof")}
    places = zip(*(texts[name] for name in ("layer", "role", "operation", "path", "fallback")), strict=True)
    for row, place in enumerate(places):
        rows.setdefault(place, []).append(row)
    costs = [_cost(table, place, texts["proof"][at[-1]], at) for place, at in rows.items()]
    steps = sum(cost.calls for cost in costs if cost.operation == HOST)
    return TimeSpent(sorted(costs, key=lambda cost: -cost.typical_seconds), max(steps, 1))


def _cost(table: Columns, place: tuple[str, ...], proof: str, rows: list[int]) -> Cost:
    layer, role, operation, path, fallback = place
    calls, elements, multiply_adds, first_calls = (
        int(table[name][rows].sum()) for name in ("calls", "elements", "multiply_adds", "first_calls")
    )
    taken, first = (float(table[name][rows].sum()) for name in ("seconds", "first_seconds"))
    return Cost(
        layer, role, operation, path, fallback, proof, calls, elements, multiply_adds, taken, first_calls, first
    )


def _texts(table: Columns, name: str) -> list[str]:
    """Return a column of texts, null as an empty one; a column of nothing but null has lost its type."""
    values: list[Any] = table[name].tolist() if table[name].dtype == np.object_ else [None] * len(table[name])
    return [value or "" for value in values]
