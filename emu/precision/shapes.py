"""Operations of a step by their shapes alone: the demands on a machine, without computing a number.

    result shape, multiply-adds, passes of the host    of every operation, as functions of its operands' shapes

`ShapeRunner` takes the place of a runner that computes. The demands that it notes are those of a real step (a test
compares them one by one), except for what depends on values: it assumes that no operation runs again, that no point is
decided, and that the norm of gradients is above its threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.autodiff import Operation, Runner, Value
from emu.engine.convolution import convolved_size
from emu.errors import FormatError
from emu.formats import DynamicFixed
from emu.hardware import Demand
from emu.precision.operations import SELECTIONS
from emu.precision.policy import Policy

Shape = tuple[int, ...]
Options = Mapping[str, Any]


class ShapeArray:
    """An array that has a shape and a dtype, and no numbers; moves give another one."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self._held: NDArray[Any] = np.broadcast_to(np.zeros((), dtype), shape)

    @property
    def shape(self) -> Shape:
        """Of the array."""
        return self._held.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers that it stands for."""
        return self._held.dtype

    @property
    def size(self) -> int:
        """How many numbers it stands for."""
        return self._held.size

    def reshape(self, *shape: Any) -> ShapeArray:
        """Return the array in another shape."""
        return ShapeArray(self._held.reshape(*shape).shape, self.dtype)

    def swapaxes(self, one: int, other: int) -> ShapeArray:
        """Return the array with two axes exchanged."""
        return ShapeArray(self._held.swapaxes(one, other).shape, self.dtype)

    def transpose(self, axes: Sequence[int]) -> ShapeArray:
        """Return the array with its axes in another order."""
        return ShapeArray(self._held.transpose(tuple(axes)).shape, self.dtype)

    def __getitem__(self, places: Any) -> ShapeArray:
        chosen = places._held if isinstance(places, ShapeArray) else places
        return ShapeArray(self._held[chosen].shape, self.dtype)

    def __setitem__(self, places: Any, value: object) -> None:
        """Change nothing: there are no numbers."""

    def __eq__(self, other: object) -> Any:
        return ShapeArray(self.shape, bool)

    def __float__(self) -> float:
        """Return infinity: above every threshold."""
        return math.inf

    def max(self) -> float:
        """Return infinity: what depends on a largest number is left out."""
        return math.inf

    def min(self) -> float:
        """Return minus infinity, likewise."""
        return -math.inf

    def __array_namespace__(self) -> type[_Namespace]:
        return _Namespace


class _Namespace:
    """What rules of autodiff, and states of parameters, ask of the namespace of an array."""

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
    def zeros(shape: Shape, dtype: Any) -> ShapeArray:
        return ShapeArray(tuple(shape), dtype)

    @staticmethod
    def where(condition: ShapeArray, x: ShapeArray, y: ShapeArray) -> ShapeArray:
        return ShapeArray(np.broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype)


class Asked(NamedTuple):
    """What an operation asks.

    Attributes:
        shape: shape of what it writes.
        multiply_adds: multiply-adds of its products and sums.
        passes: passes of the host.
    """

    shape: Shape
    multiply_adds: int = 0
    passes: int = 0


Rule = Callable[[Sequence[Shape], Options], Asked]


def _size(shape: Shape) -> int:
    return math.prod(shape)


def _together(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked(np.broadcast_shapes(*operands))


def _kept(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked(operands[0])


def _on_host(passes: int, sums: int = 0) -> Rule:
    """Return the rule of an operation that keeps its shape, of a number of passes, some of them sums."""

    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        return Asked(operands[0], sums * _size(operands[0]), passes)

    return rule


def _sum(operands: Sequence[Shape], options: Options) -> Asked:
    x = operands[0]
    axes = {axis % len(x) for axis in options["axis"]}
    return Asked(tuple(n for i, n in enumerate(x) if i not in axes), _size(x))


def _average(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked(operands[0][:-1], _size(operands[0]))


def _matmul(operands: Sequence[Shape], options: Options) -> Asked:
    a, b = operands[:2]
    shape = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    return Asked(shape, _size(shape) * a[-1])


def _sparse_matmul(operands: Sequence[Shape], options: Options) -> Asked:
    shape = (operands[0][0], operands[1][1])
    return Asked(shape, options["entries"] * shape[1])


def _sparse_transposed_matmul(operands: Sequence[Shape], options: Options) -> Asked:
    shape = (operands[0][1], operands[1][1])
    return Asked(shape, options["entries"] * shape[1])


def _conv2d(operands: Sequence[Shape], options: Options) -> Asked:
    x, w = operands[:2]
    sizes = (convolved_size(x[2 + i], w[2 + i], options["stride"][i], options["padding"][i]) for i in (0, 1))
    shape = (x[0], w[0], *sizes)
    return Asked(shape, _size(shape) * _size(w[1:]))


def _conv2d_input_gradient(operands: Sequence[Shape], options: Options) -> Asked:
    w, shape = operands[1], tuple(options["shape"])
    return Asked(shape, _size(shape) * w[0] * _size(w[2:]))


def _conv2d_weight_gradient(operands: Sequence[Shape], options: Options) -> Asked:
    x, g = operands
    shape = (g[1], x[1], *options["kernel"])
    return Asked(shape, _size(shape) * g[0] * _size(g[2:]))


def _max_pool(operands: Sequence[Shape], options: Options) -> Asked:
    x, window, stride = operands[0], options["window"], options["stride"]
    return Asked((*x[:2], *(convolved_size(size, window, stride, 0) for size in x[2:])))


def _second(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked(operands[1])


def _embedding(operands: Sequence[Shape], options: Options) -> Asked:
    table, tokens = operands
    return Asked((*tokens, table[-1]))


def _embedding_gradient(operands: Sequence[Shape], options: Options) -> Asked:
    g, tokens = operands
    shape = (options["rows"], g[-1])
    return Asked(shape, _size(shape) * _size(tokens))


def _loss(passes: int, *, by_row: bool) -> Rule:
    """Return the rule of a loss: it adds up a number of every row, and maybe every row."""

    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        x = operands[0]
        return Asked((), _size(x) + (x[0] if by_row else 0), passes)

    return rule


def _loss_gradient(passes: int) -> Rule:
    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        return Asked(operands[1], 0, passes)

    return rule


def _softmax(passes: int, summed: int) -> Rule:
    """Return the rule of a softmax or its gradient: one more pass if there is a scale."""

    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        return Asked(operands[summed], _size(operands[summed]), passes + (options["scale"] != 1))

    return rule


def _normalise(operands: Sequence[Shape], options: Options) -> Asked:
    """Two means of two passes, five passes between and after them, two for each running moment."""
    return Asked(operands[0], 2 * _size(operands[0]), 9 + 2 * (len(operands) - 3))


def _along(passes: int) -> Rule:
    def rule(operands: Sequence[Shape], options: Options) -> Asked:
        g = operands[0]
        return Asked((g[options["along"]],), _size(g), passes)

    return rule


def _squared_norm(operands: Sequence[Shape], options: Options) -> Asked:
    return Asked((), _size(operands[0]), 1)


#: Every operation of `emu.precision.operations`, by name.
RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "fma", "sqrt"), _together),
    **dict.fromkeys(("quantize", "negate", "divide_by", "relu", "select", "function"), _kept),
    **dict.fromkeys(("sigmoid_slope", "tanh_slope", "dropout_gradient"), _kept),
    "sum": _sum,
    "average": _average,
    "matmul": _matmul,
    "sparse_matmul": _sparse_matmul,
    "sparse_transposed_matmul": _sparse_transposed_matmul,
    "conv2d": _conv2d,
    "conv2d_input_gradient": _conv2d_input_gradient,
    "conv2d_weight_gradient": _conv2d_weight_gradient,
    "max_pool": _max_pool,
    "unpool": _second,
    "embedding": _embedding,
    "embedding_gradient": _embedding_gradient,
    "dropout": _on_host(1),
    "softmax_cross_entropy": _loss(7, by_row=True),
    "softmax_cross_entropy_gradient": _loss_gradient(2),
    "mse": _loss(3, by_row=False),
    "mse_gradient": _loss_gradient(2),
    "euclidean": _loss(6, by_row=True),
    "euclidean_gradient": _loss_gradient(1),
    "softmax": _softmax(3, 0),
    "softmax_gradient": _softmax(3, 1),
    "normalise": _normalise,
    "normalise_gradient": _on_host(9, sums=2),
    "gamma_gradient": _along(1),
    "beta_gradient": _along(0),
    "gelu_slope": _on_host(7),
    "squared_norm": _squared_norm,
}
#: Operations that the layer's unit computes, whose operands it must take.
_OF_UNIT = (
    *("matmul", "sparse_matmul", "sparse_transposed_matmul", "conv2d", "conv2d_input_gradient"),
    *("conv2d_weight_gradient", "sum", "average"),
)
#: Operations whose result is a number of the host.
LOSSES = ("softmax_cross_entropy", "mse", "euclidean")


class ShapeRunner(Runner):
    """Notes what operations ask of a machine, and computes nothing.

    Attributes:
        policy: formats of everything; a word whose point is open has it in its middle.
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
        operands = operation.operands
        if operation.name in _OF_UNIT:
            self._require_taken(operation, role, layer)
        asked = RULES[operation.name]([value.shape for value in operands], operation.options)
        fmt = self._format(operation, role, layer)
        read = tuple([(value.format, value.array.size) for value in operands])
        size = _size(asked.shape)
        indices = sum(value.index_bytes for value in operands)
        demand = (layer, role, operation.name, size, asked.multiply_adds, asked.passes, read, fmt, False, indices)
        self.demands.append(Demand(*demand))
        written = ShapeArray(asked.shape, fmt.carrier)
        return Value(self._with_saved(operation, written), fmt)

    def _require_taken(self, operation: Operation, role: str, layer: str) -> None:
        formats = [value.format for value in operation.operands[:2]]
        try:
            self.policy.mac(layer, *formats, role=role).require_operands(*formats)
        except FormatError as error:
            raise FormatError(f"{error} (layer '{layer}', {operation.name} that gives its {role})") from None

    def _format(self, operation: Operation, role: str, layer: str) -> Any:
        if operation.name == "unpool":
            return operation.operands[0].format
        if operation.name in LOSSES:
            role = "loss"
        word = self.policy.word(layer, role)
        held = operation.operands[0].format
        if word is not None and operation.name in SELECTIONS and _is_of(word, held):
            return held
        return self.policy.stage(layer, role, 0 if word is None else word.width_bits // 2).format

    @staticmethod
    def _with_saved(operation: Operation, written: ShapeArray) -> Any:
        """Return a result with what goes back beside it, as rules expect it."""
        if operation.name in (*LOSSES, "max_pool", "dropout"):
            return written, written
        if operation.name == "normalise":
            return written, (written, written), tuple(operation.operands[3:])
        return written

    @override
    def place(self, array: Any) -> ShapeArray:
        """Return the shape of an array."""
        return ShapeArray(array.shape, array.dtype)

    @override
    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Return the results of tasks, one after the other."""
        return [task() for task in tasks]


def _is_of(word: DynamicFixed, held: Any) -> bool:
    return (getattr(held, "width_bits", None), getattr(held, "signed", None)) == (word.width_bits, word.signed)
