"""A network from an ONNX file, as a user has it."""

from __future__ import annotations

from pathlib import Path

from emu.hardware import Device, load_device
from emu.interop import graph
from emu.interop.damage import undamaged
from emu.interop.onnx.trace import Source
from emu.interop.onnx.writing import write_qonnx


def load(path: str | Path) -> Graph:
    """Read an ONNX file.

    Args:
        path: the file; external data must lie in its folder.

    Returns:
        The network, which computes when it is called.

    Raises:
        ConfigError: the package onnx is not installed; the file is missing, damaged, too large or of a version that is
            not understood; or it has something that emu does not compute: names the node.
    """
    with undamaged(Path(path)):
        return Graph(Source(path))


class Graph(graph.Graph):
    """A network from an ONNX file.

    Attributes:
        path: the file.
        inputs: names of its inputs.
        outputs: names of its outputs.
        sha256: hash of the file and its external data.

    Examples:
        >>> network = emu.onnx.load("digits.onnx")  # doctest: +SKIP
        >>> [scores] = network(images, device="fixed16")  # doctest: +SKIP
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._file = source

    @property
    def composed(self) -> dict[str, int]:
        """The nodes that a device computes in several steps, each of which it writes, and how many steps each has.

        Raises:
            ConfigError: fields of the file do not fit together.
        """
        with undamaged(self.path):
            return self._file.composed()

    def write_qonnx(self, path: str | Path, device: str | Path | Device) -> Path:
        """Write the network in a device's fixed-point formats as QONNX, for tools that read it; return the path.

        A Quant follows each tensor that the device writes, and each weight and bias. The file computes the device's
        bits where sums are exact, and where a node is one step: `composed` names the others.

        Args:
            path: the new file.
            device: formats: a name, a path, or what `emu.device` returns.

        Raises:
            ConfigError: the device is unknown, or its binary points follow from training; Quant does not have one of
                its formats or modes; the network has formats already; fields of its file do not fit together; or the
                new file cannot be written.
        """
        # outside: what is wrong with an argument is not the file's fault
        machine, file = load_device(device), Path(path)
        with undamaged(self.path):
            return write_qonnx(self._file, machine, file)
