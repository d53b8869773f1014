"""From a graph of ONNX to steps: nodes in order, constants folded, every shape known.

    node ──► all operands are constants? ──► computed by ONNX's own reference
        └──► its row in the table of operators ──► steps, each of which is run in shapes alone

A graph is traced anew for every batch: whatever it computes from shapes is then a constant.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Affine
from emu.errors import ConfigError, EmuError, nearest_name
from emu.formats import PRESETS, parse_number
from emu.interop.graph import Input
from emu.interop.onnx.biases import joined_with, with_biases
from emu.interop.onnx.files import DOMAINS, array_of, load_onnx, read_file, version_of
from emu.interop.onnx.names import names_of
from emu.interop.onnx.node import Dequantised, Held, Known, Node, Requantised, Tensor, Traced, Within
from emu.interop.onnx.operators import OPERATORS, REFUSED
from emu.interop.onnx.operators.integers import OF_CONSTANTS, OF_ELEMENTS, QUANTISERS, bounds_of, is_known
from emu.interop.steps import NOMINAL_BATCH, Steps, names_of_inputs, plain_name, shown_shape
from emu.nn.layer import Shape
from emu.nn.wired import Constant, Read, Step, Wired

Array = NDArray[Any]
_FP32 = PRESETS["fp32"]
#: Types of inputs, as TensorProto numbers them: float32, integers of 8 bits, and tokens.
_FORMATS = {1: _FP32, 2: parse_number("ufix8f0"), 3: parse_number("fix8f0"), 6: None, 7: None}


class LayersOfTensors(NamedTuple):
    """Which layers write the tensors of a file.

    Attributes:
        layers: the step, or input, that has the numbers of a tensor, by the tensor's name.
        inner: tensors that no step writes: products whose bias is added by the node behind them.
        constants: tensors of float32 that are known.
    """

    layers: dict[str, str]
    inner: set[str]
    constants: dict[str, Known]


class Source:
    """An ONNX file, read and checked.

    Attributes:
        path: the file.
        sha256: hash of the file and of its external data.
        version: of ONNX's operators.
        inputs: what the graph is given.
        outputs: names of what it returns.
        module: module of emu whose `load` reads such files.
    """

    module = "onnx"

    def __init__(self, path: str | Path) -> None:
        """Read a file.

        Raises:
            ConfigError: it cannot be used.
        """
        self.path = Path(path)
        self._model, self.sha256 = read_file(self.path)
        self.version = version_of(self._model, self.path)
        graph = self._model.graph
        self._constants = {tensor.name: array_of(tensor, self.path) for tensor in graph.initializer}
        # older files list initialisers among the inputs
        self.inputs = tuple(self._input(info) for info in graph.input if info.name not in self._constants)
        self.outputs = tuple(info.name for info in graph.output)
        self._require_order()

    def _input(self, info: Any) -> Input:
        tensor = info.type.tensor_type
        if info.type.WhichOneof("value") != "tensor_type":
            raise ConfigError(
                f"inputs of a graph must be tensors, got {info.type.WhichOneof('value')} for {info.name!r} of "
                f"{self.path}; export the network without sequences"
            )
        # a size may also have a name, or nothing, or -1, as some exporters write: it is open
        shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim)
        if tensor.elem_type not in _FORMATS:
            kind = load_onnx().TensorProto.DataType.Name(tensor.elem_type)
            raise ConfigError(
                f"inputs of a graph must be float32, integers of 8 bits, or int32 or int64 of tokens, got {kind} for "
                f"{info.name!r} of {self.path}; export the network in float32"
            )
        return Input(info.name, shape, _FORMATS[tensor.elem_type])

    def _require_order(self) -> None:
        """Raise ConfigError unless every node reads what is known, so that there is no cycle."""
        # "" is an operand that is left out
        known = {"", *self._constants, *(item.name for item in self.inputs)}
        for node in self._model.graph.node:
            missing = [name for name in node.input if name not in known]
            if missing:
                raise ConfigError(
                    f"nodes of a graph must read results of earlier ones, got {missing[0]!r} for node "
                    f"{node.name or node.op_type!r} of {self.path}, which is a result of a later one or of none: a "
                    "cycle, or a damaged file; export it again"
                )
            known.update(node.output)
        missing = [name for name in self.outputs if name not in known]
        if missing:
            raise ConfigError(
                f"outputs of a graph must be results of its nodes, got {missing[0]!r} of {self.path}; export it again"
            )

    @property
    def facts(self) -> Mapping[str, int]:
        """What the file says about itself: the version of its operators."""
        return {"opset": self.version}

    @cached_property
    def read(self) -> frozenset[str]:
        """The names of tensors that a node reads, or that are outputs."""
        return frozenset({*self.outputs, *(name for node in self._model.graph.node for name in node.input)})

    @cached_property
    def _readers(self) -> dict[str, list[Any]]:
        readers: dict[str, list[Any]] = {}
        for node in self._model.graph.node:
            # a node that reads a tensor twice is one reader
            for name in dict.fromkeys(node.input):
                readers.setdefault(name, []).append(node)
        return readers

    def only_reader(self, name: str) -> Any | None:
        """Return the node that reads a tensor; None if there are several, or it is an output, or nobody reads it."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    @property
    def batch(self) -> int | None:
        """The batch with which the file declares its first input; None if it is open."""
        return self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else None

    def shapes(self, batch: int | None = None) -> tuple[Shape, ...]:
        """Return the shapes of the inputs with a batch; None is the file's own, or a nominal one.

        Raises:
            ConfigError: another size than the first is open.
        """
        batch = batch or self.batch or NOMINAL_BATCH
        shapes: list[Shape] = []
        for item in self.inputs:
            if None in item.shape[1:]:
                raise ConfigError(
                    f"inputs must have a known shape apart from the batch, got {shown_shape(item.shape)} for "
                    f"{item.name!r} of {self.path}; export the network with these sizes"
                )
            shapes.append((batch, *(size for size in item.shape[1:] if size is not None)) if item.shape else ())
        return tuple(shapes)

    @cached_property
    def text(self) -> str:
        """The file's name and hash."""
        return f"{self.path.name} {self.sha256}"

    @cached_property
    def _names(self) -> dict[int, str]:
        # by place in the file, so that names are the same in every trace
        return names_of(self._model.graph, self._constants, list(self.input_names.values()), OF_CONSTANTS)

    def wired(self, shapes: tuple[Shape, ...] | None = None) -> Wired:
        """Return the graph as a layer.

        Args:
            shapes: of its inputs, the batch included; None takes those of the file.

        Raises:
            ConfigError: a node cannot be computed here; names it and its operator.
        """
        shapes = self.shapes() if shapes is None else shapes
        steps, returns, result = self.traced(shapes)
        return Wired(
            "graph",
            steps,
            tuple(self.input_names[item.name] for item in self.inputs),
            shapes,
            returns,
            result[1:],
            self.text,
            # a layer that is given another batch traces the graph again
            lambda given: self.traced(given)[0],
        )

    def _require_batch(self, shapes: tuple[Shape, ...], result: Shape) -> None:
        """Raise ConfigError if a graph whose file fixes the batch does not compute another one."""
        given, own = shapes[0][0] if shapes and shapes[0] else None, self.batch
        # an open size elsewhere: there is no shape of the file's own to compare with
        if given is None or own in (None, given) or any(None in item.shape for item in self.inputs):
            return
        expected = self.traced(self.shapes(own))[2]
        # a result that does not begin with the batch says nothing about it
        if expected[:1] == (own,) and result != (given, *expected[1:]):
            raise ConfigError(
                f"{self.path} must be given batches of {own}, for which it was exported, got {given}; export it with "
                "an open batch"
            )

    @cached_property
    def input_names(self) -> dict[str, str]:
        """The names of the inputs among the steps, by their names in the file."""
        names = [item.name for item in self.inputs]
        return dict(zip(names, names_of_inputs(names), strict=True))

    def traced(self, shapes: tuple[Shape, ...]) -> tuple[tuple[Step, ...], tuple[str, ...], Shape]:
        """Return the steps for inputs of some shapes, the names of the outputs, and the shape of the first one."""
        trace = self._trace(shapes)
        outputs = [trace.output(name) for name in self.outputs]
        # names of outputs too, because a product takes the place of the sum that returned it
        steps, returns = with_biases(trace.steps, [tensor.name for tensor in outputs])
        result = outputs[0].shape if outputs else ()
        # after the trace: an export that fixes the batch may still compute another one
        self._require_batch(shapes, result)
        return steps, returns, result

    def constants(self) -> Mapping[str, Array]:
        """Return the initialisers by name."""
        return self._constants

    def copied(self) -> Any:
        """Return a copy of the model, external data in it."""
        model = load_onnx().ModelProto()
        model.CopyFrom(self._model)
        return model

    @cached_property
    def _nominal(self) -> tuple[_Trace, dict[str, str]]:
        """The trace of the file's own shapes, and the sums that are biases of products: {sum: product}."""
        trace = self._trace(self.shapes())
        return trace, joined_with(trace.steps, [trace.output(name).name for name in self.outputs])

    def written(self) -> LayersOfTensors:
        """Return what writing the network in a device's formats must know."""
        (trace, joined), chain = self._nominal, self.wired().writers()
        layers = {
            key: chain[joined.get(tensor.name, tensor.name)]
            for key, tensor in trace.tensors.items()
            if isinstance(tensor, Traced)
        }
        inner = {key for key, x in trace.tensors.items() if isinstance(x, Traced) and x.name in joined.values()}
        constants = {key: x for key, x in trace.tensors.items() if isinstance(x, Known) and x.array.dtype == np.float32}
        return LayersOfTensors(layers, inner, constants)

    def tensors(self) -> dict[str, tuple[str, Affine | None]]:
        """Return which step, or input, has the numbers of each tensor of the file, and what its elements stand for.

        A float tensor inside a quantised operator, as what Conv gives before it is quantised, is none.
        """
        trace, joined = self._nominal
        of_elements = {name for node in self._model.graph.node if node.op_type in OF_CONSTANTS for name in node.output}
        tensors: dict[str, tuple[str, Affine | None]] = {}
        for key, tensor in trace.tensors.items():
            # a product whose bias is joined has no result of its own: its name has the sum's numbers
            if isinstance(tensor, Traced) and tensor.name not in joined.values():
                tensors[key] = joined.get(tensor.name, tensor.name), None
            if isinstance(tensor, Dequantised) and isinstance(tensor.elements, Traced) and key in of_elements:
                tensors[key] = tensor.elements.name, tensor.how
        return tensors

    def composed(self) -> dict[str, int]:
        """Return the nodes that write intermediate results, and how many steps each has."""
        trace, _ = self._nominal
        counts = {name: sum(not step.only_moves for step in steps) for name, steps in trace.made.items()}
        for place, node in enumerate(self._model.graph.node):  # alpha is in the weights there, beta in the bias
            if node.op_type == "Gemm" and any(
                item.name in ("alpha", "beta") and item.f != 1 for item in node.attribute
            ):
                counts[self._names[place]] += 1
        return {name: count for name, count in counts.items() if count > 1}

    def _trace(self, shapes: tuple[Shape, ...]) -> _Trace:
        trace = _Trace(self, shapes)
        nodes: list[Any] = list(self._model.graph.node)
        for is_constant in (True, False):  # constants first, so that every node knows those of its readers
            for place, node in enumerate(nodes):
                if (node.op_type == "Constant") is is_constant:
                    trace.add(node, self._names[place])
        return trace


class _Trace:
    """One pass through the nodes.

    Attributes:
        tensors: of the file, by name, as far as nodes were traced.
        made: the steps of each node, by its name.
    """

    def __init__(self, source: Source, shapes: tuple[Shape, ...]) -> None:
        self.source, self._steps = source, Steps()
        self.made: dict[str, list[Step]] = {}
        self._batch = shapes[0][0] if shapes and shapes[0] else 1
        self.tensors: dict[str, Held] = {name: Known(array, name) for name, array in source.constants().items()}
        self._floats: dict[str, Traced] = {}
        self._within = Within(source.version, source.batch, self._batch, self._steps.write, self._as_float)
        for item, shape in zip(source.inputs, shapes, strict=True):
            name = source.input_names[item.name]
            self.tensors[item.name] = self._steps.given(name, shape, item.dtype, item.format)

    @property
    def steps(self) -> list[Step]:
        """The steps that were written."""
        return self._steps.written

    def output(self, name: str) -> Traced:
        """Return an output by its name in the file; an input or a constant becomes a step that gives it."""
        tensor = self.tensors[name]
        if isinstance(tensor, Dequantised):
            tensor = self._as_float(tensor)
        if isinstance(tensor, Traced):
            if any(step.name == tensor.name for step in self.steps):
                return tensor
            options = {"shape": tensor.shape}
            # an input that is returned as it is: a reshape to its own shape is a step that moves only
            return self._steps.write(plain_name(name), "reshape", (Read(tensor.name),), "Identity", (), (), {}, options)
        operands = (Constant(tensor.array),)
        return self._steps.write(
            plain_name(name) or "constant", "expand", operands, "Constant", (), (), {}, {"shape": tensor.shape}
        )

    def add(self, node: Any, name: str) -> None:
        """Trace a node: fold it, or write its steps."""
        before = len(self.steps)
        operands = [self.tensors[key] if key else None for key in node.input]
        are_constant = all(map(_is_constant, operands))
        attributes = {item.name: _attribute(item, self.source.path) for item in node.attribute}
        only_moves = node.op_type in MOVES or (node.op_type == "Cast" and attributes.get("to") == FLOAT32)
        # operators other than moves compute with numbers, not with elements
        if are_constant and not only_moves and node.op_type not in OF_CONSTANTS:
            operands = [self._as_float(x) if isinstance(x, Dequantised) else x for x in operands]
        outputs = list(node.output)
        if node.op_type in ("Shape", "Size") and node.domain in DOMAINS:
            # a graph is traced for fixed shapes, so that these are constants although the operand is not
            results: Sequence[Held] = [Known(_size_of(node.op_type, operands[0], attributes))]
        elif node.op_type not in OF_CONSTANTS and all(
            tensor is None or isinstance(tensor, Known) for tensor in operands
        ):
            results = [
                # a name makes it a parameter; results of arithmetic on constants stay nameless
                Known(array, key if _is_named(node, operands) else "")
                for key, array in zip(outputs, self._folded(node, operands), strict=False)
            ]
        elif are_constant and only_moves and isinstance(operands[0], Dequantised):
            results = [self._moved(node, operands[0], operands[1:], attributes)]
        else:
            # outputs behind the last that is read are not asked for
            wanted = [place for place, key in enumerate(outputs) if key in self.source.read]
            results = self._computed(node, name, attributes, operands, max(wanted, default=0) + 1)
        self.made[name] = self.steps[before:]
        # not strict: rows may leave out outputs that nobody reads
        for key, result in zip(outputs, results, strict=False):
            if key:
                self.tensors[key] = result

    def _moved(self, node: Any, x: Dequantised, rest: Sequence[Held | None], attributes: Mapping[str, Any]) -> Held:
        """Return constant elements that a node moves, as weights of quantised networks are transposed."""
        assert isinstance(x.elements, Known)
        # to float32, which the numbers are already: a cast of the elements would lose their type
        if node.op_type == "Cast":
            return x
        name, how = x.elements.name, x.how
        if how.axis is not None and node.op_type != "Transpose":  # scales would have to be moved, too
            return Known(self._folded(node, [self._as_float(x), *rest])[0], name)
        [elements] = self._folded(node, [x.elements, *rest])
        axes = list(attributes.get("perm", range(len(x.shape))[::-1]))
        axis = None if how.axis is None else axes.index(how.axis)
        return x._replace(elements=Known(elements, name), how=Affine.of(how.format, how.scale, how.zero, axis))

    def _folded(self, node: Any, operands: Sequence[Held | None]) -> list[Array]:
        onnx = load_onnx()
        if node.op_type.startswith(("Random", "Bernoulli", "Multinomial")):
            raise ConfigError(
                f"every node of a graph must give the same numbers each time, got {node.op_type!r} at node "
                f"{node.name!r} of {self.source.path}; export the network for inference"
            )
        # imported here, because only graphs that fold constants need it
        from onnx.reference import ReferenceEvaluator

        names = [key for key in node.input if key]
        arrays = {
            key: tensor.array for key, tensor in zip(node.input, operands, strict=True) if isinstance(tensor, Known)
        }
        infos = [
            onnx.helper.make_tensor_value_info(key, onnx.helper.np_dtype_to_tensor_dtype(arrays[key].dtype), None)
            # a node may read a constant twice; an input is declared once
            for key in dict.fromkeys(names)
        ]
        # type 0: not known before it runs
        outputs = [onnx.helper.make_tensor_value_info(key, 0, None) for key in node.output if key]
        graph = onnx.helper.make_graph([node], "folded", infos, outputs)
        model = onnx.helper.make_model(graph, opset_imports=self.source._model.opset_import)  # pyright: ignore
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                evaluator: Any = ReferenceEvaluator(model)
                results = evaluator.run(None, arrays)
                return [np.asarray(array) for array in results]
        except Exception as error:
            raise ConfigError(
                f"node {node.name or node.op_type!r} ({node.op_type}) must be computed from constants, got "
                f"{type(error).__name__}: {' '.join(str(error).split())}; simplify the file with onnxsim"
            ) from None

    def _computed(
        self, node: Any, name: str, attributes: Mapping[str, Any], operands: Sequence[Held | None], count: int
    ) -> Sequence[Held]:
        operator = node.op_type
        row = OPERATORS.get(operator) if is_known(operator, node.domain) else None
        if row is None:
            reason = (
                REFUSED.get(operator)
                if node.domain in DOMAINS
                else f"operators of domain {node.domain!r} are not known"
            )
            hint = reason or f'it is none of docs/onnx.md, "Operators"{nearest_name(operator, OPERATORS)}'
            raise ConfigError(
                f"every node of a graph must have an operator that emu computes, got {operator!r} at node {name!r} of "
                f"{self.source.path}: {hint}"
            )
        # asked only of operators that may compute with elements: it looks ahead in the graph
        reader_makes = self._reader_makes(node.output[0]) if operator in OF_ELEMENTS else None
        given = Node(operator, name, attributes, operands, self._within, count, len(node.output), reader_makes)
        try:
            of_elements = OF_ELEMENTS.get(operator)
            # None: this node does not fit elements, and stays a float operator
            results = None if of_elements is None else of_elements(given)
            return row(given) if results is None else results
        except ConfigError:
            raise
        except (EmuError, ArithmeticError, LookupError, ValueError, TypeError) as error:
            raise ConfigError(
                f"node {name!r} ({operator}) of {self.source.path} must fit its operands, got "
                f"{[None if x is None else x.shape for x in operands]}: {error}"
            ) from error

    def _as_float(self, x: Dequantised) -> Tensor:
        """Return what elements stand for: constants at once, others by a step, one for all readers."""
        if isinstance(x.elements, Known):
            return Known(x.how.numbers(x.elements.array), x.elements.name)
        # the step keeps `how` alive, so that no other one gets its id
        key = f"{x.elements.name} {id(x.how)}"
        if key not in self._floats:
            operands, options = (Read(x.elements.name),), {"of": x.how}
            name = f"{x.elements.name}.float"
            self._floats[key] = self._steps.write(
                name, "dequantize_linear", operands, "DequantizeLinear", (), (), {}, options
            )
        return self._floats[key]

    def _reader_makes(self, name: str) -> Requantised | None:
        """Return the elements that the only reader of a result makes of it; None if it is used as float32."""
        low, high = -math.inf, math.inf
        # follows relu and clip to what quantises; each must be the only reader of the one before
        while (reader := self.source.only_reader(name)) is not None:
            operands = [self.tensors.get(key) if key else None for key in reader.input[1:]]
            given = [key for key in reader.input[1:] if key]
            arrays = [x.array if isinstance(x, Known) else None for x in operands]
            # a bound, a scale or a zero point is computed by the network
            if sum(array is not None for array in arrays) < len(given):
                return None
            if reader.op_type in QUANTISERS:
                attributes = {item.name: _attribute(item, self.source.path) for item in reader.attribute}
                return QUANTISERS[reader.op_type]([x for x in arrays if x is not None], attributes, low, high)
            if reader.op_type not in ("Relu", "Clip"):
                return None
            least, most = bounds_of(reader.op_type, [*arrays, None, None][:2])
            # the narrowest of all bounds so far
            low, high, name = max(low, least), min(high, most), reader.output[0]
        return None


def _is_constant(tensor: Held | None) -> bool:
    """Return whether an operand is known, by its elements at least."""
    return not isinstance(tensor, Traced) and not (
        isinstance(tensor, Dequantised) and isinstance(tensor.elements, Traced)
    )


#: Operators that give a constant another place or shape: it stays the parameter that it was.
MOVES = {"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
#: float32, as Cast's `to` numbers it: TensorProto.FLOAT.
FLOAT32 = 1


def _is_named(node: Any, operands: Sequence[Held | None]) -> bool:
    """Return whether a folded constant is one that a file has, and not one that the graph computes."""
    if node.op_type == "Constant":
        return True
    first = operands[0] if operands else None
    # a parameter that is transposed, reshaped or cast keeps its name, and so stays a parameter
    return node.op_type in (*MOVES, "Cast") and isinstance(first, Known) and bool(first.name)


def _size_of(operator: str, tensor: Held | None, attributes: Mapping[str, Any]) -> Array:
    assert tensor is not None, "the order of nodes was checked"
    if operator == "Size":
        return np.asarray(int(np.prod(tensor.shape)), np.int64)
    return np.asarray(tensor.shape[attributes.get("start", 0) : attributes.get("end")], np.int64)


def _attribute(item: Any, path: Path) -> Any:
    """Return an attribute as Python has it.

    Raises:
        ConfigError: it is a graph: loops and branches are not computed.
    """
    onnx = load_onnx()
    if item.type in (5, 10):  # AttributeProto.GRAPH, GRAPHS
        raise ConfigError(
            f"nodes of a graph must have no graph of their own, got attribute {item.name!r} in {path}; export the "
            "network without loops and branches"
        )
    value = onnx.helper.get_attribute_value(item)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return array_of(value, path)
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return [x.decode(errors="replace") if isinstance(x, bytes) else x for x in value]
    return value
