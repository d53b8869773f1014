"""A network from a file, as a user has it: whatever the kind of file, it is steps that a device computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emu import nn
from emu.autodiff import Graph as Tape
from emu.autodiff import Operation, Tensor, Value
from emu.backends.arrays import on_host
from emu.backends.registry import load as load_backend
from emu.datapath import Affine
from emu.errors import ConfigError, FormatError, ShapeError
from emu.formats import PRESETS, Fixed, Format
from emu.formats.numbers import as_integers, as_numbers, nearest_floats
from emu.hardware import Device, load_device
from emu.interop.damage import undamaged
from emu.nn.layer import Shape
from emu.nn.wired import Step, Wired
from emu.precision import CounterTable, DatapathRunner, Policy
from emu.precision.functions import require_functions
from emu.precision.shapes import ShapeArray, ShapeRunner

Array = NDArray[Any]


@dataclass(frozen=True)
class Input:
    """An input of a graph.

    Attributes:
        name: its name in the file.
        shape: its shape, None for a size that the file leaves open.
        format: binary32, or that of integers of 8 bits; None of tokens.
    """

    name: str
    shape: tuple[int | None, ...]
    format: Format | None

    @property
    def is_float(self) -> bool:
        """Whether it has float32 numbers."""
        return self.format == PRESETS["fp32"]

    @property
    def dtype(self) -> Any:
        """Dtype of an array that is given for it."""
        if self.format is None:
            return np.int64
        if isinstance(self.format, Fixed):
            return np.int8 if self.format.signed else np.uint8
        return np.float32


class Source(Protocol):
    """A file, read and checked, that becomes steps.

    Attributes:
        path: the file.
        sha256: hash of the file and its external data.
        inputs: what the graph is given.
        outputs: names of what it returns.
        module: module of emu whose `load` reads such files.
        facts: what the file says about itself, for people: a name and a number.
    """

    path: Path
    sha256: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    module: str

    @property
    def facts(self) -> Mapping[str, int]:
        """What the file says about itself, for people: a name and a number."""
        ...

    def shapes(self, batch: int | None = None) -> tuple[Shape, ...]:
        """Return the shapes of the inputs with a batch; None is the file's own, or a nominal one."""
        ...

    def wired(self, shapes: tuple[Shape, ...] | None = None) -> Wired:
        """Return the graph as a layer, for inputs of some shapes; None takes those of the file."""
        ...

    def tensors(self) -> Mapping[str, tuple[str, Affine | None]]:
        """Return which step, or input, has the numbers of each tensor of the file, and what its elements stand for."""
        ...


class Graph:
    """A network from a file.

    Attributes:
        path: the file.
        inputs: names of its inputs.
        outputs: names of its outputs.
        sha256: hash of the file and its external data.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path, self.sha256 = source.path, source.sha256
        self.inputs, self.outputs = tuple(item.name for item in source.inputs), source.outputs

    def __repr__(self) -> str:
        return f"emu.{self._source.module}.load({str(self.path)!r})"

    @property
    def facts(self) -> Mapping[str, int]:
        """What the file says about itself: a name and a number, such as the version of its operators."""
        return self._source.facts

    @property
    def version(self) -> int:
        """Version of the file's operators, or of its schema."""
        # the first fact of every kind of file is its version
        return next(iter(self.facts.values()))

    def described_inputs(self) -> list[str]:
        """Return the inputs with type and shape, such as `x float32 (n, 1, 8, 8)`."""
        texts: list[str] = []
        for item in self._source.inputs:
            sizes = ", ".join("n" if size is None else str(size) for size in item.shape)
            texts.append(
                f"{item.name} {np.dtype(item.dtype).name if item.format is not None else 'integers'} ({sizes})"
            )
        return texts

    def shapes(self, batch: int | None = None) -> dict[str, Shape]:
        """Return the shape of every step's result by its name, the batch included; None is the batch of the file."""
        wired = self.wired(batch)
        # also while steps run in shapes: a damaged file may show only then
        with undamaged(self.path):
            return self._shapes(wired)

    def _shapes(self, wired: Wired) -> dict[str, Shape]:
        # shapes are the same on every device
        tape = Tape(ShapeRunner(Policy(load_device("float32").precision)), training=False)
        own = {
            step.name: {part: tape.constant(_in_shape(value)) for part, value in step.values.items()}
            for step in wired.steps
        }
        dtypes = [item.dtype for item in self._source.inputs]
        inputs = tuple(
            # `broadcast_to`: an array of the shape that takes no memory
            tape.constant(_in_shape(np.broadcast_to(dtype(0), shape)))
            for dtype, shape in zip(dtypes, wired.shapes, strict=True)
        )
        return {name: tensor.shape for name, tensor in wired.all_results(tape, inputs, own).items()}

    @property
    def reads_floats(self) -> bool:
        """Whether the first input has float32 numbers; else it has integers: tokens, or elements of 8 bits."""
        return self._source.inputs[0].is_float

    def as_input(self, x: Any) -> Array:
        """Return an array as the first input takes it: float32, tokens, or elements; errors as those of a call."""
        return _as_input(x, self._source.inputs[0])

    def wired(self, batch: int | None = None) -> Wired:
        """Return the graph as a layer, for a batch; None is that of the file."""
        with undamaged(self.path):
            return self._source.wired(self._source.shapes(batch))

    def network(self, loss: Any = "softmax_cross_entropy") -> nn.Network:
        """Return the graph as a network that can be trained and evaluated, with a loss behind its first output."""
        return nn.Network((self.wired(),), loss)

    def tensors(self) -> Mapping[str, tuple[str, Affine | None]]:
        """Return the layer, or input, that has the numbers of each tensor of the file, and what elements stand for."""
        with undamaged(self.path):
            return self._source.tensors()

    def __call__(
        self, *arrays: Any, device: str | Path | Device = "float32", backend: str = "auto",
        counters: CounterTable | None = None,
    ) -> list[Array]:  # fmt: skip
        """Compute the outputs for arrays in the order of the inputs.

        Args:
            *arrays: one for each input: numbers that become float32, tokens, or elements of 8 bits.
            device: formats and units of every tensor: a name, a path, or what `emu.device` returns.
            backend: backend that computes.
            counters: receives registers and flags by step and role.

        Returns:
            The outputs, in the carriers of their formats.

        Raises:
            ShapeError: the number of arrays, or their shapes, are not the graph's.
            FormatError: tokens or elements are no integers, elements do not fit 8 bits, or tokens 64.
            ConfigError: a node cannot be computed for these shapes, a function cannot for the device's formats, or a
                token has no row in its table.
        """
        wired, results = self._computed(arrays, device, backend, counters)
        return [on_host(results[name].array) for name in wired.returns]

    def results(
        self, *arrays: Any, device: str | Path | Device = "float32", backend: str = "auto",
        counters: CounterTable | None = None,
    ) -> dict[str, Value]:  # fmt: skip
        """Return the inputs and the result of every step by its name; arguments and errors as those of a call."""
        return self._computed(arrays, device, backend, counters)[1]

    def _computed(
        self, arrays: Sequence[Any], device: str | Path | Device, backend: str, counters: CounterTable | None
    ) -> tuple[Wired, dict[str, Value]]:
        if len(arrays) != len(self.inputs):
            raise ShapeError(
                f"a graph must be given its inputs {', '.join(self.inputs)}, got {len(arrays)} arrays; give one for "
                "each"
            )
        given = [_as_input(x, item) for x, item in zip(arrays, self._source.inputs, strict=True)]
        # only reading and tracing: an error of the computation is no damage of the file
        with undamaged(self.path):
            wired = self._source.wired(tuple(x.shape for x in given))
        machine = Machine(wired, load_device(device), backend, counters)
        known = wired.all_results(machine.tape, machine.inputs(given), machine.constants)
        return wired, {name: tensor.value for name, tensor in known.items()}


class Machine:
    """A device that computes the steps of a graph.

    Attributes:
        runner: runs operations on it.
        tape: runs primitives with the runner.
        constants: parameters in its formats, and moments in float32, by step, then part.
    """

    def __init__(self, wired: Wired, device: Device, backend: str, counters: CounterTable | None = None) -> None:
        """Write the graph's weights into the device's formats, straight from float32: nothing is trained.

        Raises:
            ConfigError: an elementary function would read or write a format that it cannot.
        """
        policy = Policy(device.precision)
        # before anything is computed
        require_functions(nn.Network((wired,)), policy)
        self.runner = DatapathRunner(policy, backend=load_backend(backend).name, counters=counters)
        self.tape = Tape(self.runner, training=False)
        self.constants = {step.name: dict(self._constants(step)) for step in wired.steps}
        self._wired = wired

    def _constants(self, step: Step) -> Iterator[tuple[str, Tensor]]:
        for parameter in step.held:
            # role and part have the same names: weight, bias
            yield parameter.part, self.written(parameter.part, step.name, step.values[parameter.part])
        for moment in step.running:  # the host's own, as it has them
            yield moment.part, self.tape.constant(Value(self.runner.place(step.values[moment.part]), PRESETS["fp32"]))

    def written(self, role: str, layer: str, array: Any) -> Tensor:
        """Return floats in the format of a role of a layer."""
        # without a format: the rounding of the role is the only one
        value = Value(self.runner.place(array))
        return self.tape.constant(self.runner.run(Operation("quantize", (value,)), role, layer))

    def inputs(self, arrays: Sequence[Array]) -> tuple[Tensor, ...]:
        """Return inputs: floats in the device's format of activations, integers as they are."""
        require_tokens(self._wired, arrays)
        return tuple(self._input(name, x) for name, x in zip(self._wired.inputs, arrays, strict=True))

    def _input(self, name: str, array: Array) -> Tensor:
        if array.dtype.kind == "f":
            return self.written("activation", name, array)
        return self.tape.constant(Value(self.runner.place(array)))


def require_tokens(wired: Wired, arrays: Sequence[Array]) -> None:
    """Raise ConfigError if inputs have a token that a table, in which they are looked up, has no row for."""
    reached = dict(zip(wired.inputs, arrays, strict=True))
    for step in wired.steps:
        read = step.reads
        if step.only_moves and read and read[0] in reached and reached[read[0]].dtype.kind == "i":
            reached[step.name] = reached[read[0]]  # at most these tokens are moved
        if step.primitive != "embedding" or read[0] not in reached:
            continue
        tokens, rows = reached[read[0]], step.values["weight"].shape[0]
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < rows:
            wrong = int(tokens.min()) if tokens.min() < 0 else int(tokens.max())
            raise ConfigError(
                f"tokens must be 0..{rows - 1}, the rows of table {step.name!r}, got {wrong}; check the data"
            )


def _in_shape(array: Array) -> Value:
    # for runs in shapes alone: shape, dtype and format, without the numbers
    fmt = PRESETS["fp32"] if array.dtype.kind == "f" else None
    return Value(ShapeArray(array.shape, array.dtype), fmt)


def _as_input(x: Any, item: Input) -> Array:
    """Return an array as an input of a graph takes it.

    Raises:
        ShapeError: another shape than the file declares.
        FormatError: numbers with fractions for integers, or integers that do not fit the input's 8 bits, or 64 bits of
            tokens.
    """
    array = np.asarray(as_numbers(x, item.name))
    # the first axis is the batch, which may be any; `strict=False`, because the number of axes is compared below
    known = [size is None or size == have for size, have in zip(item.shape[1:], array.shape[1:], strict=False)]
    if array.ndim != len(item.shape) or not all(known):
        wanted = ", ".join("n" if size is None or not place else str(size) for place, size in enumerate(item.shape))
        raise ShapeError(f"input {item.name!r} must have the shape ({wanted}), got {array.shape}; reshape it")
    if item.is_float:
        # numbers beyond float32 are infinite, as are Python's integers beyond float64
        with np.errstate(over="ignore"):
            return np.asarray(nearest_floats(array) if array.dtype == object else array, np.float32, order="C")
    integers = as_integers(array, item.name)
    # checked before the conversion: NumPy would wrap them
    if integers.size:
        limits, (low, high) = np.iinfo(item.dtype), (int(integers.min()), int(integers.max()))
        if low < limits.min or high > limits.max:
            remedy = "check the data" if item.format is None else "quantise the data"
            raise FormatError(
                f"input {item.name!r} must have integers in {limits.min}..{limits.max}, got {low}..{high}; {remedy}"
            )
    return np.asarray(integers, item.dtype, order="C")
