"""Which reader a network's file has, by its suffix: the one place that decides. Readers are loaded when needed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emu.interop.graph import Graph

#: Packages with a `load`, by suffix; files of any other suffix are tried as ONNX.
READERS = {".onnx": "emu.interop.onnx", ".tflite": "emu.interop.tflite"}


def is_network(path: str | Path) -> bool:
    """Return whether a path has the suffix of a network's file."""
    return Path(path).suffix in READERS


def load(path: str | Path) -> Graph:
    """Return the network in a file.

    Raises:
        ConfigError: the file cannot be read, or has something that emu does not compute.
    """
    # a reader of one kind must not need the packages of the other
    return import_module(READERS.get(Path(path).suffix, READERS[".onnx"])).load(path)
