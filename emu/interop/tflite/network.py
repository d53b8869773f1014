"""A network from a TFLite file, as a user has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.hardware import Device
from emu.interop.damage import undamaged
from emu.interop.graph import Graph
from emu.interop.tflite.trace import Source

Array = NDArray[Any]


def load(path: str | Path) -> Network:
    """Read a TFLite file.

    Args:
        path: the file, of int8 elements; inputs and outputs may be float32.

    Returns:
        The network, which computes when it is called.

    Raises:
        ConfigError: the file is missing or damaged, or has something that emu does not compute; names the operator.
    """
    with undamaged(Path(path)):
        return Network(Source(path))


class Network(Graph):
    """A network from a TFLite file.

    Attributes:
        path: the file.
        inputs: names of its inputs.
        outputs: names of its outputs.
        sha256: hash of the file.

    Examples:
        >>> network = emu.tflite.load("digits.tflite")  # doctest: +SKIP
        >>> [shares] = network(images)  # doctest: +SKIP
    """

    def tensor_results(
        self, *arrays: Any, device: str | Path | Device = "float32", backend: str = "auto"
    ) -> dict[str, Array]:
        """Return every tensor that the network computes by its name in the file, in the file's order of axes.

        Elements are integers; floats are numbers of the device's formats. Arguments and errors as those of a call.
        """
        results = self.results(*arrays, device=device, backend=backend)
        return {tensor: on_host(results[step].array) for tensor, (step, _) in self.tensors().items()}
