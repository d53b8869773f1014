"""A row: what emu computes, the limit beside it, and what we aim at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from emu.datapath import Mac
from emu.formats import Format

if TYPE_CHECKING:
    from emu.nn import Layer

Array = NDArray[Any]
#: `table`: the rows with a bar; `matrix`: every mode and rule; `growth`: cost against size and width.
Group = Literal["table", "matrix", "growth"]


@dataclass(frozen=True)
class Side:
    """One thing that is timed.

    Attributes:
        name: what stands in the table.
        run: does the work once.
        amount: how much work that is, in the row's unit without the `G`; a slow peer does a part only.
        note: what a reader must know about it.
    """

    name: str
    run: Callable[[], object]
    amount: float
    note: str = ""


@dataclass(frozen=True)
class StageWork:
    """Writing float32 in a format: `x` of shape `(n,)`."""

    x: Array
    format: Format
    rounding: str = "nearest_even"
    n_rbits: int = 24


@dataclass(frozen=True)
class ProductWork:
    """A matrix product of values in carriers: `(M, K) @ (K, N)`, written in `out_format`."""

    a: Array
    b: Array
    a_format: Format
    b_format: Format
    out_format: Format
    mac: Mac

    @property
    def macs(self) -> int:
        """How many multiply-adds the product has."""
        return self.a.shape[0] * self.a.shape[1] * self.b.shape[1]


@dataclass(frozen=True)
class StepWork:
    """A training step: a recipe's layers, images `(N, C, H, W)`, labels `(N,)`, learning rate and momentum."""

    device: str
    layers: tuple[Layer, ...]
    images: Array
    labels: Array
    rate: float
    momentum: float


@dataclass(frozen=True)
class PairWork:
    """One operation on pairs of binary16 numbers, given in float32: `a` and `b` of equal shape `(n,)`."""

    operation: Literal["add", "multiply"]
    a: Array
    b: Array


@dataclass(frozen=True)
class SparseWork:
    """The product of a transposed sparse matrix and a dense one: `(M, N).T @ (M, H)`.

    `data` and `columns` of shape `(entries,)`, `starts` of `(M + 1,)`, `dense` of `(M, H)`; both operands in `format`.
    """

    data: Array
    columns: Array
    starts: Array
    dense: Array
    format: Format
    out_format: Format

    @property
    def macs(self) -> int:
        """How many multiply-adds the product has."""
        return self.data.size * self.dense.shape[1]


@dataclass(frozen=True)
class CodecWork:
    """Gradients as one bit each: "encode", "decode" or "sum" of float32 columns `(columns, rows)`."""

    gradients: Array
    action: str


Task = StageWork | ProductWork | StepWork | PairWork | CodecWork | SparseWork | None


@dataclass(frozen=True)
class Prepared:
    """A row with its data in memory.

    Attributes:
        task: the work, in terms a peer can do it too; None of work that no peer does.
        ours: emu's side.
        limit: what the machine can do, or None.
        path: how emu computes it, if the planner has a say.
    """

    task: Task
    ours: Side
    limit: Side | None
    path: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: `kind/what`, as `--rows` selects it.
        title: what is computed, for people.
        unit: of the rate: `GElem/s`, `GMAC/s`, `GB/s`, `step/s`, `Gpair/s`.
        prepare: makes the data; True asks for a small size.
        bar: the ratio to the limit that must be reached, None where nothing is promised.
        goal: the ratio aimed at.
        group: the table it stands in.
        uses_blas: whether the limit is a BLAS product, so that the BLAS kernel matters.
        seconds_for: if set, bar and goal are seconds for this amount of work, and less is better.
        factors: peer -> how many times slower it is asked to be at least.
        sample_s: seconds that a sample takes at least: steps follow each other, with the caches and the waiting threads
            of their own kind; 0 leaves it to the pace.
        sweeps: how many times the row is measured, minutes apart; the median one counts: a host's memory is slower for
            minutes at a time.
        needs: a package without which there is no limit to compare with.
    """

    name: str
    title: str
    unit: str
    prepare: Callable[[bool], Prepared]
    bar: float | None = None
    goal: float | None = None
    group: Group = "table"
    uses_blas: bool = False
    seconds_for: float | None = None
    factors: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    sample_s: float = 0.0
    sweeps: int = 1
    needs: str = ""
