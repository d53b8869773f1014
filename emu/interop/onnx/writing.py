"""Write a network in the fixed-point formats of a device as QONNX: a Quant behind every tensor that it writes.

    x ──► Conv(w, b) ──► y        x ──► Quant ──► Conv(Quant(w), Quant(b)) ──► Quant ──► y

A Quant rounds a number of float32. So the file has the device's bits where float32 holds what the device rounds: sums
of products of words of at most 8 bits, in exact accumulators, but not of words and a constant such as 0.3.

Source: QONNX 1.0, operator Quant.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from emu._files import replace_file
from emu.datapath import OutputStage, Overflow
from emu.errors import ConfigError
from emu.formats import PRESETS, Fixed
from emu.hardware import Device, load_device
from emu.interop.onnx.files import load_onnx
from emu.interop.onnx.operators.integers import ROWS as QUANTISED
from emu.interop.onnx.operators.qonnx import DOMAINS, ROUNDING
from emu.interop.onnx.operators.qonnx import ROWS as QONNX
from emu.interop.onnx.trace import Source
from emu.precision import Policy

#: QONNX's names of the rounding modes, the first of those that mean the same.
_NAMES = {mode: name for name, mode in reversed(ROUNDING.items())}
#: Roles of the constant operands of each operator, by position; no other operand is a parameter of a layer.
_SCALED = {1: "weight", 2: "bias"}
_ROLES: dict[str, dict[int, str]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), _SCALED),
    **dict.fromkeys(
        ("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization"), _SCALED
    ),
    **{operator: {0: "weight", 1: "weight"} for operator in ("MatMul", "Mul", "Div")},
    **{operator: {0: "bias", 1: "bias"} for operator in ("Add", "Sub", "Max", "Min")},
    **{operator: {1: "weight"} for operator in ("PRelu", "RMSNormalization")},
    "Gather": {0: "weight"},
}
#: Operators whose constants are parameters whatever their size; those of others are numbers if they have one element.
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
#: Operators of quantised networks, which have their formats already.
_QUANTISED = {*QUANTISED, *QONNX}
_FLOAT32 = PRESETS["fp32"]
#: Fraction bits f for which the scale 2**-f is a number of float32 above 0: from its largest power of two to the least.
_LEAST_POINT, _MOST_POINT = -127, 149


def write_qonnx(source: Source, device: str | Path | Device, path: str | Path) -> Path:
    """Write a network in a device's formats as QONNX.

    Args:
        source: the network, without Quant or other quantised operators.
        device: formats of activations, weights and biases: a name, a path, or what `emu.device` returns.
        path: the new file.

    Returns:
        The path.

    Raises:
        ConfigError: Quant does not have a format or a mode, or the file cannot be written.
    """
    machine, file = load_device(device), Path(path)
    if machine.has_open_points:
        raise ConfigError(
            f"a device must say every binary point to be written as QONNX, got {machine.name!r}, whose points follow "
            "from training; calibrate one such as fixed8"
        )
    model = _Quantised(source, Policy(machine.precision)).model()
    try:
        replace_file(file, lambda out: out.write(model.SerializeToString()))
    except OSError as error:
        raise ConfigError(f"{file} must be a file that can be written, got {error.strerror}; choose another") from None
    return file


class _Quantised:
    """A model to which a Quant is added for every tensor."""

    def __init__(self, source: Source, policy: Policy) -> None:
        self._onnx, self._source, self._policy = load_onnx(), source, policy
        self._model, self._written = source.copied(), source.written()
        self._count = 0

    def model(self) -> Any:
        """Return the model with a Quant behind every tensor."""
        graph, nodes = self._model.graph, list[Any]()
        own = next((node for node in graph.node if node.op_type in _QUANTISED), None)
        if own is not None:
            raise ConfigError(
                f"a network that is written as QONNX must be one of floats, got {own.op_type} in {self._source.path}: "
                "it has formats already; give the float network"
            )
        renamed: dict[str, str] = {}
        layers = dict(self._written.layers)
        for item in self._source.inputs:
            # float inputs get a Quant; integers are read as they are
            if item.is_float and (quant := self._quant(item.name, f"{item.name}_written", layers[item.name])):
                nodes.append(quant)
                renamed[item.name] = quant.output[0]
                layers[quant.output[0]] = layers[item.name]
        for node in graph.node:
            layer = layers.get(node.output[0])
            for place, key in enumerate(node.input):
                node.input[place] = renamed.get(key, key)
                # before the node, which reads the Quant's result
                nodes += self._constant(node, place, layer)
            nodes.append(node)
            first = next(iter(node.input), "")
            # written by the step that wrote its operand: numbers are only moved, and have their format
            is_moved = layer == layers.get(first) and first not in self._written.inner
            if layer is None or is_moved or node.output[0] in self._written.inner:
                continue  # a constant, numbers that are only moved, or a product before its bias
            # the Quant takes the tensor's name, so that later nodes and outputs read what is written
            exact = f"{node.output[0]}_exact"
            if quant := self._quant(exact, node.output[0], layer):
                node.output[0] = exact
                nodes.append(quant)
        # copies, because the graph's own nodes are deleted next
        copies = [self._copied(node) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
        del graph.value_info[:]  # those of tensors that were renamed
        if not any(entry.domain == DOMAINS[0] for entry in self._model.opset_import):
            self._model.opset_import.append(self._onnx.helper.make_opsetid(DOMAINS[0], 1))
        return self._model

    def _copied(self, node: Any) -> Any:
        copy = self._onnx.NodeProto()
        copy.CopyFrom(node)
        return copy

    def _constant(self, node: Any, place: int, layer: str | None) -> Iterator[Any]:
        """Yield a Quant of a parameter that a node reads, and let it read that."""
        key, role = node.input[place], _ROLES.get(node.op_type, {}).get(place)
        constant = self._written.constants.get(key)
        if layer is None or role is None or constant is None:
            return
        if node.op_type not in _PRODUCTS and not constant.is_parameter:
            return
        # a Quant for each reader: two layers may have different formats for one constant
        self._count += 1
        quant = self._quant(key, f"{key}_written{self._count}", layer, role)
        if quant:
            node.input[place] = quant.output[0]
            yield quant

    def _quant(self, read: str, written: str, layer: str, role: str = "activation") -> Any | None:
        """Return a Quant from one tensor to another in the format of a role; None if that is float32."""
        stage = self._policy.stage(layer, role)
        if stage.format == _FLOAT32:
            return None
        fmt, rounding, narrow = _described(stage, f"{role} of {layer}")
        # Quant rounds x / 2**-frac_bits, which is the raw
        numbers = {"scale": 2.0**-fmt.frac_bits, "zeropt": 0.0, "bitwidth": float(fmt.width_bits)}
        names = [read]
        for what, number in numbers.items():
            name = f"{written}_{what}"
            self._model.graph.initializer.append(self._onnx.numpy_helper.from_array(np.float32(number), name))
            names.append(name)
        return self._onnx.helper.make_node(
            "Quant", names, [written], name=f"{written}_quant", domain=DOMAINS[0], rounding_mode=rounding,
            signed=int(fmt.signed), narrow=int(narrow),
        )  # fmt: skip


def _described(stage: OutputStage, what: str) -> tuple[Fixed, str, bool]:
    """Return format, rounding mode and narrowness of a Quant.

    Raises:
        ConfigError: Quant does not have the format, the rounding mode or the overflow rule.
    """
    fmt, rounding = stage.format, _NAMES.get(stage.rounding)
    if not isinstance(fmt, Fixed) or fmt.sign_magnitude or fmt.width_bits > 32:
        raise ConfigError(
            f"tensors must be float32 or words of at most 32 bits in QONNX, got {fmt} for {what}; choose one"
        )
    if fmt.signed and fmt.width_bits == 1:
        raise ConfigError(
            f"words with a sign must have at least 2 bits in QONNX, where one stands for -1 and 1, got {fmt} for "
            f"{what}; choose a wider one"
        )
    if not _LEAST_POINT <= fmt.frac_bits <= _MOST_POINT:
        raise ConfigError(
            f"words must have {_LEAST_POINT} to {_MOST_POINT} fraction bits in QONNX, whose scales are float32, got "
            f"{fmt} for {what}; move its point"
        )
    if rounding is None:
        raise ConfigError(
            f"tensors must be rounded by {', '.join(mode.value for mode in _NAMES)} in QONNX, got "
            f"{stage.rounding.value} for {what}; choose one of them in the device"
        )
    if stage.overflow not in (Overflow.SATURATE, Overflow.SATURATE_SYMMETRIC):
        raise ConfigError(f"tensors must saturate in QONNX, got {stage.overflow.value} for {what}; choose saturate")
    # narrow takes the largest code from unsigned words, which have no most negative one to leave out
    return fmt, rounding, fmt.signed and stage.overflow is Overflow.SATURATE_SYMMETRIC
