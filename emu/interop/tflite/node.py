"""What an operator's row is given: an operator of the file, its operands, and ways to write its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Affine
from emu.errors import ConfigError
from emu.formats import Fixed
from emu.interop.steps import Known, Tensor, Traced, Write
from emu.interop.tflite.files import StoredOperator, StoredTensor
from emu.interop.tflite.schema import ACTIVATIONS
from emu.nn.layer import Shape
from emu.nn.wired import Constant, Read
from emu.operations.integers import SUMS
from emu.operations.reference_integers import Written

Array = NDArray[Any]
#: Formats of elements, by the name of their type.
FORMATS = {"int8": Fixed(8, 0), "uint8": Fixed(8, 0, signed=False)}
#: Numbers that a fused activation bounds its results to; None is no bound.
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None), "RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0),
}  # fmt: skip
#: Orders of axes: the file has the channels last, the operations of emu have them second.
_TO_IMAGES, _FROM_IMAGES = (0, 3, 1, 2), (0, 2, 3, 1)
#: An element that no format has.
_FAR = 1 << 31


class Refused(ConfigError):  # noqa: N818 - says what happened to the operator
    """An operator that cannot be computed here."""


class Within(NamedTuple):
    """The graph around an operator.

    Attributes:
        tensors: those of the file.
        write: writes a step.
        images: tensors with their channels second, by the name of the step that has them as the file does.
        batch: batch with which the file stores its first input.
        current_batch: batch that the graph is read for.
    """

    tensors: Sequence[StoredTensor]
    write: Write
    images: dict[str, Traced]
    batch: int
    current_batch: int


class Node:
    """An operator of the file.

    Attributes:
        operator: its name, such as "CONV_2D".
        name: name of its steps.
        inputs: operands; None of those that are left out.
        result: what the file says about the first result.
        within: the graph around it.
    """

    def __init__(self, stored: StoredOperator, name: str, inputs: Sequence[Tensor | None], within: Within) -> None:
        self.operator, self.name, self.inputs, self.within = stored.name, name, inputs, within
        self.result = within.tensors[stored.outputs[0]]
        self._stored = stored

    def refuse(self, rule: str, value: object, remedy: str) -> Refused:
        """Return the error that this operator breaks a rule."""
        return Refused(f"operator {self.name!r} ({self.operator}) must {rule}, got {value}; {remedy}")

    # ---- options

    def number(self, field: int, kind: str, default: float = 0) -> Any:
        """Return an option by the number of its field in the schema; `kind` is its type, such as "Int32"."""
        return default if self._stored.options is None else self._stored.options.number(field, kind, default)

    def numbers(self, field: int) -> list[int] | None:
        """Return the integers of an option by the number of its field; None if it is left out."""
        array = None if self._stored.options is None else self._stored.options.array(field, np.int32)
        return None if array is None else [int(x) for x in array]

    # ---- operands

    def operand(self, index: int) -> Tensor:
        """Return an operand that must be there."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise self.refuse(f"have operand {index}", f"{len(self.inputs)} operands", "convert the network again")
        return tensor

    def traced(self, index: int = 0) -> Traced:
        """Return an operand that must depend on the input."""
        tensor = self.operand(index)
        if isinstance(tensor, Known):
            raise self.refuse(f"read what the network computes as operand {index}", "a constant", "fold it beforehand")
        return tensor

    def constant(self, index: int) -> Array:
        """Return the numbers of an operand that must be a constant."""
        tensor = self.operand(index)
        if isinstance(tensor, Traced):
            raise self.refuse(
                f"have a constant as operand {index}", f"{tensor.name!r}, which the network computes",
                "give weights, shapes and axes as constants",
            )  # fmt: skip
        return tensor.array

    def is_given(self, index: int) -> bool:
        """Return whether the operand is there: optional ones may be left out."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def stored(self, index: int) -> StoredTensor:
        """Return what the file says about an operand."""
        return self.within.tensors[self._stored.inputs[index]]

    def axis(self, axis: int, ndim: int) -> int:
        """Return an axis, counted from the front.

        Raises:
            Refused: the tensor has no such axis.
        """
        if not -ndim <= axis < ndim:
            raise self.refuse(f"name an axis in {-ndim}..{ndim - 1}", axis, "convert the network again")
        return axis % ndim

    # ---- elements

    def affine(self, tensor: StoredTensor, *, kinds: Sequence[str] = ("int8",), axis: int | None = None) -> Affine:
        """Return what the elements of a tensor stand for.

        Args:
            tensor: of the file.
            kinds: types that it may have.
            axis: along which scales may differ; None is a scale for the tensor.
        """
        if tensor.kind not in kinds:
            raise self.refuse(
                f"compute with {' or '.join(kinds)}", f"{tensor.kind} for tensor {tensor.name!r}",
                "convert with converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8] and a "
                "representative dataset",
            )  # fmt: skip
        given = tensor.quantisation
        if given is None:
            raise self.refuse("have scales", f"none for tensor {tensor.name!r}", "convert the network again")
        if given.scale.size > 1 and axis is None:
            raise self.refuse(
                "have one scale for each of its tensors", f"{given.scale.size} for {tensor.name!r}",
                "give scales for each channel to weights alone",
            )  # fmt: skip
        if given.scale.size > 1 and (given.axis != axis or given.scale.size != tensor.stored[given.axis]):
            raise self.refuse(
                f"have a scale for each index of axis {axis}",
                f"{given.scale.size} along axis {given.axis} of {tensor.stored} for {tensor.name!r}",
                "convert the network again",
            )  # fmt: skip
        # int32 has no entry: its format is that of sums
        return Affine.of(FORMATS.get(tensor.kind, SUMS), given.scale, given.zero, axis)

    def elements(self, index: int = 0) -> tuple[Tensor, Affine]:
        """Return an operand of int8, and what its elements stand for."""
        return self.operand(index), self.affine(self.stored(index))

    def to(self, activation: int | str = "NONE", *, kinds: Sequence[str] = ("int8",)) -> Written:
        """Return how results become elements.

        Args:
            activation: a fused activation, by its name or by the field of the options that has its number.
            kinds: types that the result may have.
        """
        how = self.affine(self.result, kinds=kinds)
        if not isinstance(activation, str):
            number = int(self.number(activation, "Int8"))
            activation = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else str(number)
        if activation not in BOUNDS:
            raise self.refuse(
                f"have a fused activation of {', '.join(BOUNDS)}", activation, "write it as an operator of its own"
            )
        fmt = FORMATS[self.result.kind]
        low, high = int(fmt.min), int(fmt.max)
        # a bound of a fused activation as an element of the result, then within the format
        least, most = (None if bound is None else _element(bound, how) for bound in BOUNDS[activation])
        return Written(how, low if least is None else max(low, least), high if most is None else min(high, most))

    def require_same_scale(self, to: Written, *places: int) -> None:
        """Raise Refused unless operands have the scale and the zero point of the result, as the kernel requires."""
        for place in places:
            how = self.affine(self.stored(place))
            if not how.equals(to.how):
                raise self.refuse(
                    "read elements with the scale and zero point of its result",
                    f"{float(how.scale):.9g} and {int(how.zero)} for {self.stored(place).name!r}, "
                    f"{float(to.how.scale):.9g} and {int(to.how.zero)} for the result",
                    "requantise before it",
                )  # fmt: skip

    # ---- steps

    def apply(self, primitive: str, *operands: Tensor, part: str = "", **options: Any) -> Traced:
        """Write a step, and return its result; `part` ends the step's name if the operator has several."""
        read = tuple(Read(x.name) if isinstance(x, Traced) else Constant(x.array) for x in operands)
        name = f"{self.name}.{part}" if part else self.name
        # no parameters, moments or first values: weights are constants among the operands
        return self.within.write(name, primitive, read, self.operator, (), (), {}, options)

    def reshaped(self, x: Traced, shape: Shape, part: str = "") -> Traced:
        """Write a step that gives a tensor another shape, if it has not that shape already."""
        return x if shape == x.shape else self.apply("reshape", x, part=part, shape=shape)

    def images(self, index: int = 0) -> Traced:
        """Return an operand (N, H, W, C) as (N, C, H, W)."""
        x = self.traced(index)
        if len(x.shape) != 4:
            raise self.refuse("read images (N, H, W, C)", f"the shape {x.shape}", "give it four axes")
        # transposed once for all readers
        if x.name not in self.within.images:
            self.within.images[x.name] = self.apply("transpose", x, part="images", axes=_TO_IMAGES)
        return self.within.images[x.name]

    def from_images(self, y: Traced) -> Traced:
        """Return a result (N, C, H, W) as (N, H, W, C), as the file has it."""
        result = self.apply("transpose", y, part="channels_last", axes=_FROM_IMAGES)
        # a next operator on images takes `y`, without both transposes
        self.within.images[result.name] = y
        return result

    def table(
        self, x: Traced, entries: Callable[[NDArray[np.int64]], Any], to: Written, *, part: str = "", first: int = -128
    ) -> Traced:
        """Write a step that looks each element up.

        Args:
            x: elements.
            entries: elements -> what they become, zero point included, before it is bounded.
            to: how results become elements.
            part: end of the step's name.
            first: smallest element: -128, or 0 of uint8.
        """
        # an entry for each of the 256 elements from `first` on
        table = np.asarray(entries(np.arange(first, first + 256, dtype=np.int64)), np.int64)
        return self.apply("table_of_elements", x, part=part, table=table, first=first, to=to)


def _element(bound: float, how: Affine) -> int:
    """Return the element that stands for a number: the quotient is float32, and halves are rounded away from zero."""
    # beyond float32 for the smallest scales: cut to what is far outside of every format
    with np.errstate(over="ignore"):
        quotient = np.float32(bound) / how.scale
    return int(how.zero) + away_from_zero(np.clip(quotient, -_FAR, _FAR))


def away_from_zero(x: Any) -> Any:
    """Return numbers rounded to integers, halves away from zero: a number, or an array of int64."""
    numbers = np.asarray(x, np.float64)
    whole = np.trunc(numbers)
    # exact: x - trunc(x) is representable, so a number just below a half is never taken for one
    rounded = (whole + np.sign(numbers) * (np.abs(numbers - whole) >= 0.5)).astype(np.int64)
    return rounded if rounded.ndim else int(rounded)


#: Name of an operator -> what writes its steps, and returns its result.
Rows = Mapping[str, Callable[[Node], Tensor]]
