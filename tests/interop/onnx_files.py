"""Small ONNX files for tests, made node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NETWORKS = Path(__file__).parent / "networks"


def saved(
    path: Path,
    nodes: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    *,
    inputs: Mapping[str, Sequence[Any]] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
) -> Path:
    """Write a graph whose inputs have these shapes, `x` of (n, 3) if none are given."""
    given = {"x": ("n", 3)} if inputs is None else inputs
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString())
    return path


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    """Return a node."""
    return helper.make_node(operator, list(inputs), list(outputs), **attributes)


def read(path: Path) -> Any:
    """Return the model in a file."""
    return onnx.load(path, load_external_data=False)
