"""What the operations of a step ask of a machine, from shapes alone: no number is computed.

`ShapeRunner` stands in for a runner that computes. The demands that it notes are those of a real step (a test
compares them one by one), except for what depends on values: it assumes that no operation runs again, that no point is
decided, that the norm of gradients is above its threshold, and that a layer that makes its input sparse finds no 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.autodiff import Operation, Runner, Value
from emu.engine.scaled_products import require_places
from emu.errors import FormatError
from emu.formats import DynamicFixed, Scaled
from emu.formats.scaled import element_of
from emu.hardware import Demand
from emu.operations import OPERATIONS, DoneBy, Row
from emu.operations.asked import Shape, size_of
from emu.precision.casting import with_casts
from emu.precision.policy import Policy


class ShapeArray:
    """An array with a shape and a dtype, but no numbers; moving it gives another one."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, shape: Shape, dtype: Any) -> None:
        # one element, repeated by strides of 0: NumPy computes shapes of moves, and no memory is taken
        self._array: NDArray[Any] = np.broadcast_to(np.zeros((), dtype), shape)

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the numbers that it stands for."""
        return self._array.dtype

    @property
    def size(self) -> int:
        """How many numbers it stands for."""
        return self._array.size

    def reshape(self, *shape: Any) -> ShapeArray:
        """Return the array in another shape."""
        return ShapeArray(self._array.reshape(*shape).shape, self.dtype)

    def swapaxes(self, first: int, second: int) -> ShapeArray:
        """Return the array with two axes exchanged."""
        return ShapeArray(self._array.swapaxes(first, second).shape, self.dtype)

    def transpose(self, axes: Sequence[int]) -> ShapeArray:
        """Return the array with its axes in another order."""
        return ShapeArray(self._array.transpose(tuple(axes)).shape, self.dtype)

    def __getitem__(self, index: Any) -> ShapeArray:
        parts = cast("tuple[Any, ...]", index if isinstance(index, tuple) else (index,))
        chosen = tuple(map(_index, parts))
        return ShapeArray(self._array[chosen].shape, self.dtype)

    def __setitem__(self, index: Any, value: object) -> None:
        """Change nothing: there are no numbers."""

    def __eq__(self, other: object) -> Any:
        # compared element by element, as arrays are: so instances cannot be keys
        return ShapeArray(self.shape, bool)

    def __float__(self) -> float:
        """Return infinity, which is above every threshold: clipping is counted."""
        return math.inf

    def max(self) -> float:
        """Return infinity: branches for finite largest numbers are not taken."""
        return math.inf

    def min(self) -> float:
        """Return minus infinity, likewise."""
        return -math.inf

    def __array_namespace__(self) -> type[_Namespace]:
        return _Namespace


def _index(index: Any) -> Any:
    return index._array if isinstance(index, ShapeArray) else index  # pyright: ignore[reportPrivateUsage]


class _Namespace:
    """The functions of an array's namespace that rules of autodiff and states of parameters call."""

    @staticmethod
    def asarray(x: Any) -> ShapeArray:
        return ShapeArray(x.shape, x.dtype)

    @staticmethod
    def broadcast_to(x: ShapeArray, shape: Shape) -> ShapeArray:
        return ShapeArray(shape, x.dtype)

    @staticmethod
    def stack(parts: Sequence[ShapeArray], axis: int) -> ShapeArray:
        shape = list(parts[0].shape)
        shape.insert(axis % (len(shape) + 1), len(parts))
        return ShapeArray(tuple(shape), parts[0].dtype)

    @staticmethod
    def concatenate(parts: Sequence[ShapeArray], axis: int) -> ShapeArray:
        # NumPy checks that the shapes fit
        whole = [np.empty(part.shape, bool) for part in parts]
        return ShapeArray(np.concatenate(whole, axis).shape, parts[0].dtype)

    @staticmethod
    def zeros(shape: Shape, dtype: Any) -> ShapeArray:
        return ShapeArray(tuple(shape), dtype)

    @staticmethod
    def where(condition: ShapeArray, x: ShapeArray, y: ShapeArray) -> ShapeArray:
        return ShapeArray(np.broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype)


class ShapeRunner(Runner):
    """Notes what operations ask of a machine, and computes nothing.

    Attributes:
        policy: formats of everything; an open point is taken to be in the middle of its word.
        demands: demands of the operations so far.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.demands: list[Demand] = []

    @override
    def run(self, operation: Operation, role: str, layer: str) -> Value:
        """Return a result without numbers, and note its demand.

        Raises:
            FormatError: the layer's unit does not multiply operands of these formats.
        """
        operation = with_casts(self, self.policy, operation, role, layer)
        row, operands = OPERATIONS[operation.name], operation.operands
        # asked here as kernels ask it in a real step: a device that cannot multiply these formats fails before it
        # trains
        if row.done_by is DoneBy.UNIT and not row.takes_any_format:
            self._require_taken(operation, role, layer)
        # shape of the result, multiply-adds, passes of the host: the row's own columns
        asked = row.asks([value.shape for value in operands], operation.options)
        fmt = self._format(row, operands[0].format, role, layer)
        # operations of integers have the graph's format, whatever the layer's
        fmt = fmt if row.format_of is None else row.format_of(operation.options)
        read = tuple([(value.format, value.array.size) for value in operands])
        written = ShapeArray(asked.shape, element_of(fmt).carrier)
        beside = row.beside(written, operands)
        result = row.made((written, *beside) if beside else written, fmt)
        indices = sum(value.index_bytes for value in operands) + result.made_index_bytes
        counts = (size_of(asked.shape), asked.multiply_adds, asked.passes)
        self.demands.append(Demand(layer, role, row.name, *counts, read, fmt, False, indices))
        return result

    def _require_taken(self, operation: Operation, role: str, layer: str) -> None:
        formats = [value.format for value in operation.operands[:2] if value.format is not None]
        try:
            mac = self.policy.mac(layer, *formats, role=role)
            scaled = [fmt for fmt in formats if isinstance(fmt, Scaled)]
            # both factors are cast, or neither
            if len(scaled) > 1:
                require_places(mac, scaled[0], scaled[1])
            mac.require_operands(*formats)
        except FormatError as error:
            raise FormatError(f"{error} (layer '{layer}', {operation.name} that gives its {role})") from None

    def _format(self, row: Row, first: Any, role: str, layer: str) -> Any:
        """Return the format of what an operation writes; `first` is the format of its first operand."""
        if row.done_by is DoneBy.MOVE:
            return first
        word = self.policy.word(layer, role)
        # a selection of a value with the layer's word keeps its point
        if word is not None and row.keeps_format and _has_word(first, word):
            return first
        # an open point in the middle of its word: as `Points.at` has it before anything is written
        return self.policy.stage(layer, role, 0 if word is None else word.width_bits // 2).format

    @override
    def place(self, array: Any) -> ShapeArray:
        """Return the shape of an array."""
        return ShapeArray(array.shape, array.dtype)

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of tasks, one after the other."""
        return [task() for task in tasks]


def _has_word(fmt: Any, word: DynamicFixed) -> bool:
    mine = tuple(getattr(fmt, name, None) for name in ("width_bits", "signed"))
    own_kind = getattr(fmt, "sign_magnitude", False) == word.sign_magnitude
    return own_kind and mine == (word.width_bits, word.signed)
