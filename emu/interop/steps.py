"""Steps of a graph, written one after the other: each is run in shapes at once, so that the next one knows them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.autodiff import Graph, Value
from emu.autodiff import Tensor as Result
from emu.formats import PRESETS, Format
from emu.hardware import load_device
from emu.nn.layer import Shape
from emu.nn.network import INPUT_LAYER
from emu.nn.wired import Step
from emu.precision import Policy
from emu.precision.shapes import ShapeArray, ShapeRunner

Array = NDArray[Any]
FP32 = PRESETS["fp32"]
#: Batch for which a graph is traced first, if its file names none.
NOMINAL_BATCH = 2


class Traced(NamedTuple):
    """A tensor of the graph that depends on the input.

    Attributes:
        name: step or input that it is the result of.
        shape: its shape, the batch included.
        format: of its numbers in float32's device: binary32; that of elements of a quantised graph; None of tokens.
    """

    name: str
    shape: Shape
    format: Format | None = FP32

    @property
    def is_float(self) -> bool:
        """Whether it has float32 numbers; else elements or tokens."""
        return self.format == FP32


@dataclass(frozen=True, eq=False)
class Known:
    """A tensor of the graph that is a constant.

    Attributes:
        array: its numbers.
        name: name of the initialiser; "" of what was computed from constants.
    """

    array: Array
    name: str = ""

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self.array.shape

    @property
    def is_parameter(self) -> bool:
        """Whether it has a name and several numbers, all finite: masks of attention have infinities."""
        return bool(self.name) and self.array.size > 1 and bool(np.isfinite(self.array).all())


#: A tensor of a graph.
Tensor: TypeAlias = Traced | Known
#: Writes a step: (name, primitive, operands, kind, parameters, moments, values, options) -> its result.
Write: TypeAlias = Callable[..., Traced]


class Steps:
    """The steps that were written so far.

    Attributes:
        written: the steps, in order.
    """

    def __init__(self) -> None:
        self.written = list[Step]()
        # float32's device, in shapes alone: nothing is computed, and any device has the same shapes
        self._graph = Graph(ShapeRunner(Policy(load_device("float32").precision)), training=False)
        self._results: dict[str, Result] = {}

    def given(self, name: str, shape: Shape, dtype: Any, fmt: Format | None) -> Traced:
        """Return an input, which steps may read from now on."""
        self._results[name] = self._graph.constant(Value(ShapeArray(shape, dtype), fmt))
        return Traced(name, shape, fmt)

    def write(
        self, name: str, primitive: str, operands: Any, kind: str, held: Any, running: Any, values: Any, options: Any
    ) -> Traced:
        """Append a step, and run it in shapes."""
        while name in self._results:  # a step of a node, an output, or another node may have this name
            name = f"{name}_"
        step = Step(name, primitive, operands, options, kind, held, running, values)
        own: dict[str, Result] = {}
        # parameters and moments have the shapes that they are declared with
        for part in (*held, *running):
            own[part.part] = self._graph.constant(Value(ShapeArray(part.shape, np.float32), FP32))
        result = step.apply(self._graph, self._results, {name: own})
        self.written.append(step)
        self._results[name] = result
        return Traced(name, result.shape, result.value.format)


def names_of_inputs(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a graph's inputs among its steps, each once: a single input is what layers call theirs."""
    if len(names) == 1:
        return (INPUT_LAYER,)
    plain: list[str] = []
    for name in names:
        own = plain_name(name) or "input"
        while own in plain:
            own = f"{own}_"
        plain.append(own)
    return tuple(plain)


def plain_name(name: str) -> str:
    """Return a name in the form of layers' names, so that globs match it; "" if nothing is left of it."""
    # "." "/" "::" divide a path; all else that is no letter, digit or underscore becomes one
    parts = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in re.split(r"[./]|::", name) if part.strip("_")]
    # a part must be an identifier, as parts of layers' names are
    return ".".join(f"_{part}" if part[:1].isdigit() or keyword.iskeyword(part) else part for part in parts)


def shown_shape(shape: tuple[int | None, ...]) -> str:
    """Return a shape for people, `?` for a size that is open."""
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"
