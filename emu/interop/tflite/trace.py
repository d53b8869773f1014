"""From a TFLite file to steps: operators in order, every shape known, each tensor found again by its name.

    operator ──► its row in the table of operators ──► steps, each of which is run in shapes alone

A file stores shapes for one batch, most often 1. It is traced anew for every other one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from emu.datapath import Affine
from emu.errors import ConfigError, EmuError, nearest_name
from emu.formats import PRESETS
from emu.interop.graph import Input
from emu.interop.steps import NOMINAL_BATCH, Known, Steps, Tensor, Traced, names_of_inputs, plain_name, shown_shape
from emu.interop.tflite.files import StoredOperator, StoredTensor, read_file
from emu.interop.tflite.node import FORMATS, Node, Within
from emu.interop.tflite.operators import REFUSED, ROWS
from emu.interop.tflite.schema import TYPES, VERSION, Damaged
from emu.nn.layer import Shape
from emu.nn.network import INPUT_LAYER, LOSS_LAYER
from emu.nn.wired import Read, Step, Wired


class Source:
    """A TFLite file, read and checked.

    Attributes:
        path: the file.
        sha256: its hash.
        inputs: what the graph is given.
        outputs: names of what it returns.
        module: module of emu whose `load` reads such files.
    """

    module = "tflite"

    def __init__(self, path: str | Path) -> None:
        """Read a file.

        Raises:
            ConfigError: it cannot be used.
        """
        self.path = Path(path)
        self._model = read_file(self.path)
        self.sha256, tensors = self._model.sha256, self._model.tensors
        self.inputs = tuple(self._input(tensors[place]) for place in self._model.inputs)
        self.outputs = tuple(tensors[place].name for place in self._model.outputs)
        self._require_order()

    def _input(self, tensor: StoredTensor) -> Input:
        if tensor.kind != "float32" and tensor.kind not in FORMATS:
            raise ConfigError(
                f"inputs of a TFLite file must be float32, {', '.join(FORMATS)}, got {tensor.kind} for "
                f"{tensor.name!r} of {self.path}; convert the network in int8"
            )
        if None in tensor.shape[1:] or not tensor.shape:
            raise ConfigError(
                f"inputs must have a known shape apart from the batch, got {shown_shape(tensor.shape)} for "
                f"{tensor.name!r} of {self.path}; convert the network with these sizes"
            )
        return Input(tensor.name, tensor.shape, FORMATS.get(tensor.kind, PRESETS["fp32"]))

    def _require_order(self) -> None:
        """Raise ConfigError unless every operator reads what is known, so that there is no cycle."""
        tensors = self._model.tensors
        # -1 is an operand that is left out; constants are tensors with data
        known = {-1, *self._model.inputs, *(place for place, x in enumerate(tensors) if x.data is not None)}
        for operator in self._model.operators:
            missing = [place for place in operator.inputs if place not in known]
            if missing:
                self._require_known_type(tensors[missing[0]], missing[0])
                raise ConfigError(
                    f"operators must read results of earlier ones, got {tensors[missing[0]].name!r} for "
                    f"{operator.name} of {self.path}, which is a result of a later one or of none: a cycle, or a "
                    "damaged file; convert it again"
                )
            known.update(operator.outputs)
        missing = [place for place in self._model.outputs if place not in known]
        if missing or not self.inputs:
            found = repr(tensors[missing[0]].name) if missing else "no input"
            raise ConfigError(f"a graph must lead from inputs to outputs, got {found} of {self.path}; convert it again")

    def _require_known_type(self, tensor: StoredTensor, place: int) -> None:
        """Raise ConfigError if a tensor that no operator writes is a constant of a type that is not read."""
        read = [name for name, dtype in TYPES.values() if dtype is not None]
        if tensor.kind not in read and not any(place in operator.outputs for operator in self._model.operators):
            raise ConfigError(
                f"constants of a TFLite file must be {', '.join(read)}, got {tensor.kind} for {tensor.name!r} of "
                f"{self.path}; convert the network in int8"
            )

    @property
    def facts(self) -> Mapping[str, int]:
        """What the file says about itself: the version of its schema."""
        return {"schema": VERSION}

    @property
    def batch(self) -> int | None:
        """The batch that the file fixes; None if it is open."""
        return self.inputs[0].shape[0]

    def shapes(self, batch: int | None = None) -> tuple[Shape, ...]:
        """Return the shapes of the inputs with a batch; None is the file's own, or a nominal one."""
        batch = batch or self.batch or NOMINAL_BATCH
        return tuple((batch, *(size for size in item.shape[1:] if size is not None)) for item in self.inputs)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs among the steps."""
        return names_of_inputs([item.name for item in self.inputs])

    def wired(self, shapes: tuple[Shape, ...] | None = None) -> Wired:
        """Return the graph as a layer, for inputs of some shapes; None takes those of the file.

        Raises:
            ConfigError: an operator cannot be computed here; names it.
        """
        shapes = self.shapes() if shapes is None else shapes
        trace = self.traced(shapes)
        self._require_batch(shapes, trace)
        text = f"{self.path.name} {self.sha256}"
        returns = tuple(tensor.name for tensor in trace.outputs)
        # without the batch
        result = trace.outputs[0].shape[1:]
        return Wired(
            "graph", tuple(trace.steps), self.input_names, shapes, returns, result, text, lambda s: self._steps(s)
        )

    def tensors(self) -> dict[str, tuple[str, Affine | None]]:
        """Return which step, or input, has each tensor that the graph computes, as the file has it, by its name.

        Elements are elements in the file too, so they stand for nothing else.
        """
        return {name: (step, None) for name, step in self.traced(self.shapes()).names.items()}

    def _steps(self, shapes: tuple[Shape, ...]) -> tuple[Step, ...]:
        trace = self.traced(shapes)
        self._require_batch(shapes, trace)
        return tuple(trace.steps)

    def traced(self, shapes: tuple[Shape, ...]) -> Trace:
        """Return one pass through the operators, for inputs of some shapes."""
        return Trace(self, shapes)

    def _require_batch(self, shapes: tuple[Shape, ...], trace: Trace) -> None:
        """Raise ConfigError if a graph does not compute another batch than the one that the file stores."""
        given, stored = shapes[0][0], self._model.tensors[self._model.outputs[0]].stored
        result = trace.outputs[0].shape
        # a constant shape that the file has for its own batch gives a result of another shape
        if given != self.stored_batch and result != (given, *stored[1:]):
            raise ConfigError(
                f"{self.path} must be given batches of {self.stored_batch}, for which it was converted, got {given}; "
                "convert it with an open batch"
            )

    @property
    def stored_batch(self) -> int:
        """The batch for which the file stores shapes: 1 where it is open."""
        return self._model.tensors[self._model.inputs[0]].stored[0]

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        """The tensors of the file."""
        return self._model.tensors

    @property
    def operators(self) -> tuple[StoredOperator, ...]:
        """The operators of the file."""
        return self._model.operators

    @property
    def places(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The places of inputs and of outputs among the tensors."""
        return self._model.inputs, self._model.outputs


class Trace:
    """One pass through the operators.

    Attributes:
        outputs: results of the graph.
    """

    def __init__(self, source: Source, shapes: tuple[Shape, ...]) -> None:
        self._source, self._steps = source, Steps()
        self._held: dict[int, Tensor] = {
            place: Known(tensor.data, tensor.name)
            for place, tensor in enumerate(source.stored)
            if tensor.data is not None
        }
        inputs, outputs = source.places
        for place, name, item, shape in zip(inputs, source.input_names, source.inputs, shapes, strict=True):
            self._held[place] = self._steps.given(name, shape, item.dtype, item.format)
        self._within = Within(source.stored, self._steps.write, {}, source.stored_batch, shapes[0][0])
        # shapes in the file can be compared only for the batch that it stores
        self._is_stored = shapes[0][0] == source.stored_batch
        for place, operator in enumerate(source.operators):
            self._add(operator, place)
        self.outputs = [self._output(place) for place in outputs]

    @property
    def steps(self) -> list[Step]:
        """The steps that were written."""
        return self._steps.written

    @property
    def names(self) -> dict[str, str]:
        """The step that holds each tensor that the graph computes, as the file has it, by the tensor's name."""
        tensors = self._source.stored
        # places of one name would hide each other; names of a file's tensors are taken to be different
        return {tensors[place].name: x.name for place, x in self._held.items() if isinstance(x, Traced)}

    def _output(self, place: int) -> Traced:
        """Return an output; an input or a constant becomes a step that gives it."""
        tensor = self._held[place]
        # an input that is returned has no step of its own
        if isinstance(tensor, Traced) and any(step.name == tensor.name for step in self.steps):
            return tensor
        name = self._source.stored[place].name
        if isinstance(tensor, Known):
            raise ConfigError(
                f"outputs of a graph must depend on its inputs, got the constant {name!r} of {self._source.path}; "
                "leave it out"
            )
        options = {"shape": tensor.shape}
        return self._steps.write(
            _step_name(name, "output"), "reshape", (Read(tensor.name),), "OUTPUT", (), (), {}, options
        )

    def _add(self, operator: StoredOperator, place: int) -> None:
        path, tensors = self._source.path, self._source.stored
        if not operator.outputs:
            raise ConfigError(f"every operator must have a result, got {operator.name} without one in {path}")
        result = tensors[operator.outputs[0]]
        # by what it writes: operators have no names in the file
        name = _step_name(result.name, f"{operator.name.lower()}_{place}")
        row = ROWS.get(operator.name)
        if row is None:
            reason = REFUSED.get(operator.name) or f"it is not known{nearest_name(operator.name, ROWS)}"
            raise ConfigError(
                f"every operator of a TFLite file must be one that emu computes in int8, got {operator.name} for "
                f"tensor {result.name!r} of {path}: {reason}"
            )
        operands = [None if index == -1 else self._held[index] for index in operator.inputs]
        try:
            y = row(Node(operator, name, operands, self._within))
        except ConfigError as error:
            raise ConfigError(f"{error} (in {path})") from None
        except (EmuError, Damaged, struct.error, ArithmeticError, LookupError, ValueError, TypeError) as error:
            raise ConfigError(
                f"operator {name!r} ({operator.name}) of {path} must fit its operands, got "
                f"{[None if x is None else x.shape for x in operands]}: {error}"
            ) from error
        # an open size is stored as 1, which says nothing
        if self._is_stored and None not in result.shape[1:] and isinstance(y, Traced) and y.shape != result.stored:
            raise ConfigError(
                f"operator {name!r} ({operator.name}) must write the shape {y.shape}, got {result.stored} in {path}: a "
                "damaged file; convert it again"
            )
        # the first result alone: no operator of the table has several
        self._held[operator.outputs[0]] = y


def _step_name(tensor: str, otherwise: str) -> str:
    """Return a tensor's name as that of a step: what TensorFlow fused into it is left out."""
    name = plain_name(tensor.partition(";")[0]) or otherwise
    return f"{name}_" if name in (INPUT_LAYER, LOSS_LAYER) else name
