"""What an operator's row is given: a node, its attributes and operands, and ways to write the steps that compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.autodiff.integer_rules import INTEGERS
from emu.datapath import Affine, RequantiserKind, Rounding
from emu.errors import ConfigError
from emu.interop.steps import Known, Tensor, Traced, Write
from emu.nn.layer import Moment, Parameter, Shape
from emu.nn.wired import Constant, Operand, Own, Read

Array = NDArray[Any]


class Dequantised(NamedTuple):
    """A tensor of the graph that stands for numbers by its elements: what DequantizeLinear gives.

    An operator that computes with elements reads these; to any other one it is float32.

    Attributes:
        elements: integers, or floats of 8 bits.
        how: what they stand for.
        lowest: no element is below it: relu would change nothing if it is the zero point; None is no bound.
        highest: no element is above it.
    """

    elements: Traced | Known
    how: Affine
    lowest: int | None = None
    highest: int | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the elements."""
        return self.elements.shape


#: Primitives that take integers: moves, the look-up in a table, and those of elements.
_OF_INTEGERS = {"embedding", "reshape", "flatten", "transpose", "expand", "take", *INTEGERS}
#: A tensor as the graph has it; rows of float operators see a `Tensor`.
Held: TypeAlias = Traced | Known | Dequantised


class Requantised(NamedTuple):
    """The elements that the only reader of a result makes of it; relu or clip may lie between.

    Attributes:
        how: scale, zero point and format of the elements.
        lowest: smallest element that relu or clip lets through; None without.
        highest: largest one.
        kind: how sums become elements, unless the device says: a kind of requantiser.
        rounding: its mode, of the kind exact.
    """

    how: Affine
    lowest: int | None = None
    highest: int | None = None
    kind: RequantiserKind = RequantiserKind.FLOAT32
    rounding: Rounding | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the reader is QuantizeLinear, and nothing lies between."""
        return self.kind is RequantiserKind.FLOAT32 and self.lowest is None and self.highest is None


class Within(NamedTuple):
    """The graph around a node.

    Attributes:
        version: of ONNX's operators.
        batch: batch with which the file declares its inputs, if that is a number.
        current_batch: batch that the graph is read for.
        write: writes a step.
        as_float: returns what elements stand for, by a step that is written once.
    """

    version: int
    batch: int | None
    current_batch: int
    write: Write
    as_float: Callable[[Dequantised], Tensor]


class Refused(ConfigError):  # noqa: N818 - says what happened to the node
    """A node that cannot be computed here."""


class Node:
    """A node of the graph.

    Attributes:
        operator: its operator, such as "Conv".
        name: name of its steps.
        version: of ONNX's operators.
        attributes: by name, as Python's numbers, texts, lists and arrays.
        inputs: operands as the graph has them; None of those that are left out.
        output_count: how many outputs it must give: those after it are read by nobody.
        outputs: how many the node has, read or not.
        batch: batch with which the file declares its inputs, if that is a number.
        current_batch: batch that the graph is read for.
        reader_makes: what elements its only reader makes of its result; None if that is used as float32.
    """

    def __init__(
        self,
        operator: str,
        name: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Held | None],
        within: Within,
        output_count: int = 1,
        outputs: int = 1,
        reader_makes: Requantised | None = None,
    ) -> None:
        self.operator, self.name, self.attributes, self.inputs = operator, name, attributes, inputs
        self.output_count, self.outputs, self.reader_makes = output_count, outputs, reader_makes
        self.version, self.batch, self.current_batch = within.version, within.batch, within.current_batch
        self._within = within

    def take_outputs_of(self, node: Node) -> Node:
        """Take the outputs of another node, and return this one."""
        # in place: this node was made by `as_another`, for one output
        self.output_count, self.outputs = node.output_count, node.outputs
        return self

    def as_another(self, operator: str, inputs: Sequence[Held | None], **attributes: Any) -> Node:
        """Return a node of another operator in this place of the graph, with one output."""
        # steps keep this node's name; what a reader makes of the result (`reader_makes`) is left to this node
        return Node(operator, self.name, attributes, inputs, self._within)

    def refuse(self, rule: str, value: object, remedy: str) -> Refused:
        """Return the error that this node breaks a rule."""
        return Refused(f"node {self.name!r} ({self.operator}) must {rule}, got {value}; {remedy}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute; `default` if it is left out."""
        return self.attributes.get(name, default)

    def held(self, index: int) -> Held | None:
        """Return an operand as the graph has it; None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def given(self, index: int) -> Tensor | None:
        """Return an operand, as float32 if it was dequantised; None if it is left out."""
        tensor = self.held(index)
        return self.as_float(tensor) if isinstance(tensor, Dequantised) else tensor

    def as_float(self, x: Dequantised) -> Tensor:
        """Return what elements stand for; a step writes it in the device's format."""
        return self._within.as_float(x)

    def operand(self, index: int) -> Tensor:
        """Return an operand that must be there."""
        tensor = self.given(index)
        if tensor is None:
            raise self.refuse(f"have operand {index}", f"{len(self.inputs)} operands", "export the file again")
        return tensor

    def traced(self, index: int = 0) -> Traced:
        """Return an operand that must depend on the input."""
        tensor = self.operand(index)
        if isinstance(tensor, Known):
            raise self.refuse(
                f"read what the network computes as operand {index}", "a constant", "simplify the file with onnxsim"
            )
        return tensor

    def constant(self, index: int) -> Array | None:
        """Return the numbers of an operand that must be a constant; None if it is left out.

        Raises:
            Refused: it depends on the input.
        """
        tensor = self.given(index)
        if isinstance(tensor, Traced):
            raise self.refuse(
                f"have a constant as operand {index}", f"{tensor.name!r}, which the network computes",
                "give the shapes, axes and indices of the graph as constants",
            )  # fmt: skip
        return None if tensor is None else tensor.array

    def integers(self, index: int, attribute: str = "") -> list[int] | None:
        """Return integers that are a constant operand in newer versions, and were an attribute; None if left out."""
        array = self.constant(index)
        if array is not None:
            return [int(x) for x in array.reshape(-1)]
        given = self.get(attribute) if attribute else None
        if given is None:
            return None
        return [int(x) for x in np.asarray(given).reshape(-1)]

    def apply(
        self,
        primitive: str,
        *operands: Tensor | float,
        part: str = "",
        own: Mapping[int, str] | None = None,
        moments: Sequence[str] = (),
        fans: tuple[int, int] = (1, 1),
        is_table: bool = False,
        **options: Any,
    ) -> Traced:
        """Write a step, and return its result.

        Args:
            primitive: a primitive of autodiff.
            *operands: what it reads; numbers are constants.
            part: end of the step's name, if the node has several.
            own: operands that are parameters or moments of the step, by position: their names.
            moments: which of these are moments.
            fans: inputs that contribute to one output of a weight, and outputs to which one input contributes.
            is_table: whether the weight is never multiplied as a matrix: its rows are looked up, or its elements are
                factors of others.
            **options: the primitive's own.
        """
        own = own or {}
        if primitive not in _OF_INTEGERS:
            for operand in operands:
                # constants of integers are turned into what the primitive reads; what the network computes is not
                if isinstance(operand, Traced) and not operand.is_float:
                    raise self.refuse(
                        "compute with float32",
                        f"integers, {operand.name!r}",
                        "dequantize elements, or look tokens up in a table, before it",
                    )
        read: list[Operand] = []
        held: list[Parameter] = []
        running: list[Moment] = []
        values: dict[str, Array] = {}
        for position, operand in enumerate(operands):
            # a parameter may be trained and quantised in its role; other constants are part of the step
            if position in own and isinstance(operand, Known):
                name: Any = own[position]
                values[name] = operand.array
                read.append(Own(name))
                if name in moments:
                    running.append(Moment(name, operand.shape, 0.0))
                else:
                    held.append(Parameter(name, operand.shape, "zero", *fans, is_table=is_table))
            elif isinstance(operand, Traced):
                read.append(Read(operand.name))
            else:
                read.append(Constant(_constant(operand)))
        name = f"{self.name}.{part}" if part else self.name
        return self._within.write(
            name, primitive, tuple(read), self.operator, tuple(held), tuple(running), values, options
        )

    def elementwise(self, primitive: str, a: Tensor | float, b: Tensor | float, part: str = "") -> Traced:
        """Write an operation on two operands, one of which may be a constant.

        A named constant of several numbers is a parameter of the step, "weight" of products and "bias" of sums.
        """
        # the role decides the format that a device has for it
        role = "weight" if primitive in ("multiply", "divide") else "bias"
        own = {i: role for i, x in enumerate((a, b)) if isinstance(x, Known) and x.is_parameter}
        return self.apply(primitive, a, b, part=part, own=own, is_table=True)

    def reshaped(self, x: Traced, shape: Sequence[int], part: str = "") -> Traced:
        """Write a step that gives a tensor another shape, if it has not that shape already."""
        return x if tuple(shape) == x.shape else self.apply("reshape", x, part=part, shape=tuple(shape))

    def transposed(self, x: Traced, axes: Sequence[int], part: str = "") -> Traced:
        """Write a step that orders axes, if they are not in that order already."""
        return x if list(axes) == list(range(len(axes))) else self.apply("transpose", x, part=part, axes=tuple(axes))

    def axis(self, axis: int, ndim: int) -> int:
        """Return an axis, counted from the front.

        Raises:
            Refused: the tensor has no such axis.
        """
        if not -ndim <= axis < ndim:
            raise self.refuse(f"name an axis in {-ndim}..{ndim - 1}", axis, "export the file again")
        return axis % ndim


def _constant(operand: Known | float) -> Array:
    array = operand.array if isinstance(operand, Known) else np.asarray(operand)
    # float64 and float16 constants are those of a float32 network; integers and booleans stay
    return array.astype(np.float32) if array.dtype.kind == "f" else array
