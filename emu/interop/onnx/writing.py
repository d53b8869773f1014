"""Write a network in the fixed-point formats of a device as QONNX: a Quant behind every tensor that it writes.

    x ──► Conv(w, b) ──► y        x ──► Quant ──► Conv(Quant(w), Quant(b)) ──► Quant ──► y

Sums are exact there. A device whose accumulators round or overflow on the way writes other bits.

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
from emu.interop.onnx.operators.qonnx import DOMAINS, ROUNDING
from emu.interop.onnx.trace import Source
from emu.precision import Policy

#: QONNX's names of the rounding modes, the first of those that mean the same.
_NAMES = {mode: name for name, mode in reversed(ROUNDING.items())}
#: Operators whose second constant operand is added.
_BIASED = ("Conv", "ConvTranspose", "Gemm")
_ADDS = ("Add", "Sub", "Sum")
_FLOAT32 = PRESETS["fp32"]


def write_qonnx(source: Source, device: str | Path | Device, path: str | Path) -> Path:
    """Write a network in a device's formats as QONNX.

    Args:
        source: the network, without Quant or other quantised operators.
        device: formats of activations, weights and biases: a name, a path, or what `emu.device` returns.
        path: the new file.

    Returns:
        The path.

    Raises:
        ConfigError: a format or a mode that Quant has not, or the file cannot be written.
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
        self._model, self._writers = source.copied(), source.writers()
        self._written = dict(self._writers)
        self._constants = {name for name, array in source.constants().items() if array.dtype == np.float32}
        self._count = 0

    def model(self) -> Any:
        """Return the model with a Quant behind every tensor."""
        graph, nodes = self._model.graph, list[Any]()
        renamed: dict[str, str] = {}
        for item in self._source.inputs:
            if item.is_float and (quant := self._quant(item.name, f"{item.name}_written", self._writers[item.name])):
                nodes.append(quant)
                renamed[item.name] = quant.output[0]
                self._written[quant.output[0]] = self._writers[item.name]
        for node in graph.node:
            layer = self._writers.get(node.output[0])
            for place, key in enumerate(node.input):
                node.input[place] = renamed.get(key, key)
                if place or node.op_type in _ADDS or node.op_type in ("Mul", "MatMul"):
                    nodes += self._constant(node, place, layer)
            nodes.append(node)
            if layer is None or layer == self._written.get(next(iter(node.input), "")):
                continue  # a constant, or numbers that are only moved
            exact = f"{node.output[0]}_exact"
            if quant := self._quant(exact, node.output[0], layer):
                node.output[0] = exact
                nodes.append(quant)
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
        key = node.input[place]
        if layer is None or key not in self._constants or self._source.constants()[key].size < 2:
            return
        is_bias = node.op_type in _ADDS or (node.op_type in _BIASED and place == 2)
        self._count += 1
        quant = self._quant(key, f"{key}_written{self._count}", layer, "bias" if is_bias else "weight")
        if quant:
            node.input[place] = quant.output[0]
            yield quant

    def _quant(self, read: str, written: str, layer: str, role: str = "activation") -> Any | None:
        """Return a Quant from one tensor to another in the format of a role; None if that is float32."""
        stage = self._policy.stage(layer, role)
        if stage.format == _FLOAT32:
            return None
        fmt, rounding, narrow = _described(stage, f"{role} of {layer}")
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
        ConfigError: Quant has no such.
    """
    fmt, rounding = stage.format, _NAMES.get(stage.rounding)
    if not isinstance(fmt, Fixed) or fmt.sign_magnitude or fmt.width_bits > 32:
        raise ConfigError(
            f"tensors must be float32 or words of at most 32 bits in QONNX, got {fmt} for {what}; choose one"
        )
    if rounding is None:
        raise ConfigError(
            f"tensors must be rounded by {', '.join(mode.value for mode in _NAMES)} in QONNX, got "
            f"{stage.rounding.value} for {what}; choose one of them in the device"
        )
    if stage.overflow not in (Overflow.SATURATE, Overflow.SATURATE_SYMMETRIC):
        raise ConfigError(f"tensors must saturate in QONNX, got {stage.overflow.value} for {what}; choose saturate")
    return fmt, rounding, stage.overflow is Overflow.SATURATE_SYMMETRIC
