"""A network from an ONNX file, as a user has it."""

from __future__ import annotations

from pathlib import Path

from emu.interop.graph import Graph
from emu.interop.onnx.trace import Source


def load(path: str | Path) -> Graph:
    """Read an ONNX file.

    Args:
        path: the file; external data must lie in its folder.

    Returns:
        The network, which computes when it is called.

    Raises:
        ConfigError: the file is missing or damaged, or has something that emu does not compute; names the node.
    """
    return Graph(Source(path))
