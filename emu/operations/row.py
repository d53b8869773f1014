"""A row of the table of operations: all facts about one operation.

    datapath   what it computes with a layer's units         emu.precision.DatapathRunner
    float64    the same mathematics, nothing rounded         emu.autodiff.PlainRunner
    asks       shape of the result, and its work             emu.precision.shapes.ShapeRunner
    done_by    which part of a machine computes it           all of these, and the report of measured time
    energy     how its energy is counted                     emu.hardware.energy
    the rest   what few operations need, with a default

Whether it counts as forward, backward or update depends on the role of its result, not on the operation: an `add`
joins branches, gradients and updates. `kinds.py` says it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

from emu.datapath import Cast, OutputStage, RequantiserKind
from emu.engine import Unit
from emu.formats import Format, ScaledValue, Value
from emu.operations.asked import Options, Rule


class Role(Protocol):
    """A role of a layer, for which an operation writes its result (`emu.precision.layer_role.LayerRole`).

    Attributes:
        stage: the output stage of the result.
        backend: backend that computes.
    """

    stage: OutputStage
    backend: str

    def unit(self, *factors: Format) -> Unit:
        """Return the unit that writes and observes the result; its Mac depends on the formats of the factors."""
        ...

    def elementwise(self, operation: str, *operands: Value) -> Value:
        """Return an elementwise operation of values, written and observed as the result."""
        ...

    def quantize(self, x: Value) -> Value:
        """Return a value, written and observed as the result."""
        ...

    def on_host(self, name: str) -> Unit:
        """Return the unit that writes an intermediate result of the host by its name; it is not observed."""
        ...

    def reduced(self) -> Unit:
        """Return the unit that writes the result as a pairwise sum."""
        ...

    @property
    def host_stage(self) -> OutputStage:
        """The output stage of intermediate results."""
        ...

    @property
    def requantiser(self) -> RequantiserKind | None:
        """How the device's integer units make elements of sums; None leaves it to the network."""
        ...

    def value(self, array: object) -> Value:
        """Return what the stage wrote as a value."""
        ...

    def cast(self, x: Value, cast: Cast, axis: int) -> ScaledValue:
        """Return a stored tensor as an operand of the product that gives the result."""
        ...


#: An operation in float64; all but the last are there for the type checker, which needs the parameters of lambdas.
Float64: TypeAlias = (
    Callable[[Any, Any], Any]
    | Callable[[Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any], Any]
    | Callable[..., Any]
)


class DoneBy(Enum):
    """The part of a machine that computes an operation."""

    #: The layer's multiply-accumulate unit, which must take the operands' formats.
    UNIT = "unit"
    #: Lanes, element by element, through the output stage.
    LANES = "lanes"
    #: A table, or a fixed sequence of instructions, for an elementary function.
    FUNCTION = "function"
    #: Selects values of the first operand, and writes them only if the layer has another format.
    SELECTION = "selection"
    #: Moves values and writes none: nothing is counted, and the format stays.
    MOVE = "move"
    #: The host, in passes over the operands, in the format of role `loss`.
    HOST = "host"


class Energy(NamedTuple):
    """Which parts of a datapath an operation uses besides rounding, statistics and memory.

    Attributes:
        multiplications: of each result.
        additions: of each result.
        pairs: whether multiply-adds multiply pairs; else they are terms of a sum.
        moves: whether it uses no part of the datapath: selections, moves, a sign.
        compares: whether it compares all elements for each result, although it only moves values.
    """

    multiplications: int = 0
    additions: int = 0
    pairs: bool = False
    moves: bool = False
    compares: bool = False


#: Multiply-adds of pairs.
PRODUCTS = Energy(pairs=True)
#: Multiply-adds of single terms, or nothing: the result is only rounded.
SUMS = ROUNDS = Energy()
ADDS, MULTIPLIES = Energy(additions=1), Energy(multiplications=1)
#: A division, a root or a function: interpolated linearly between two entries of a table.
TABLE_AND_LINE = Energy(multiplications=1, additions=1)
MOVES, COMPARES = Energy(moves=True), Energy(moves=True, compares=True)


def nothing(written: Any, operands: Sequence[Value]) -> tuple[Any, ...]:
    """Return no arrays beside the written one, as most operations do."""
    return ()


def one_array(written: Any, operands: Sequence[Value]) -> tuple[Any, ...]:
    """Return one array beside the written one, which the backward pass needs."""
    return (written,)


@dataclass(frozen=True)
class Row:
    """An operation.

    Attributes:
        name: what rules of autodiff and optimisers call it.
        datapath: (role, *operands, **options) -> value: computes it with the units of a `Role`.
        float64: (namespace, *arrays, **options) -> array: the same in the arrays' own arithmetic.
        asks: (shapes, options) -> `Asked`.
        done_by: which part of a machine computes it.
        energy: which parts of a datapath it uses.
        beside: (written array, operands) -> the arrays that the result's `array` has after the written one, for the
            backward pass; empty if it is the written array alone. Used if only shapes are known.
        lane_instructions: instructions of the lanes for a vector of results.
        takes_any_format: whether each unit computes it for operands of any format.
        made: (array, format) -> result, used if only shapes are known; `Value` unless the result is of another class.
        only_chooses: whether it looks at each element of its first operand and chooses some: each of them takes a lane,
            not each result, and nothing is written that could have a binary point.
        is_counted: whether the register of a role may count what it writes.
        format_of: options -> format of what it writes, if this is not the role's; None where it is.
    """

    name: str
    datapath: Callable[..., Value]
    float64: Float64
    asks: Rule
    done_by: DoneBy
    energy: Energy
    beside: Callable[[Any, Sequence[Value]], tuple[Any, ...]] = nothing
    lane_instructions: int = 1
    takes_any_format: bool = False
    made: Callable[[Any, Any], Value] = Value
    only_chooses: bool = False
    is_counted: bool = True
    format_of: Callable[[Options], Any] | None = None

    @cached_property  # asked at every operation
    def is_observed(self) -> bool:
        """Whether a register counts what it writes."""
        return self.is_counted and self.done_by is not DoneBy.MOVE

    @property
    def is_product(self) -> bool:
        """Whether it multiplies matrices, or is a convolution."""
        return self.done_by is DoneBy.UNIT and self.energy.pairs

    @property
    def keeps_format(self) -> bool:
        """Whether a value that has the layer's format is not written again."""
        return self.done_by in (DoneBy.SELECTION, DoneBy.MOVE)
