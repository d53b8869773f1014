"""A network from an ONNX file, as a user has it."""

from __future__ import annotations

from pathlib import Path

from emu.hardware import Device
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
        ConfigError: the file is missing or damaged, or has something that emu does not compute; names the node.
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
        """The nodes that write intermediate results on a device, and how many steps each has."""
        return self._file.composed()

    def write_qonnx(self, path: str | Path, device: str | Path | Device) -> Path:
        """Write the network in a device's fixed-point formats as QONNX, for tools that read it; return the path.

        Each tensor that the device writes has a Quant behind it, each weight and bias one before it is read. The file
        computes the device's bits where sums are exact, and for nodes of one step: `composed` names the others.

        Args:
            path: the new file.
            device: formats: a name, a path, or what `emu.device` returns.

        Raises:
            ConfigError: Quant does not have a format or a mode, or the file cannot be written.
        """
        return write_qonnx(self._file, device, path)
