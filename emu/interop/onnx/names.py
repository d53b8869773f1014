"""Names of layers, from those of weights and nodes in a file."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from emu.interop.steps import plain_name
from emu.nn.network import INPUT_LAYER, LOSS_LAYER

Array = NDArray[Any]


def names_of(
    graph: Any, constants: Mapping[str, Array], taken: Sequence[str], through: Container[str]
) -> dict[int, str]:
    """Return a name for each node, by its place: that of its weights' module, its own, or its operator's and a number.

    Names have the form of layers' names, so that globs of a recipe match them: letters, digits, `_`, parts with dots.

    Args:
        graph: of the file.
        constants: initialisers by name.
        taken: names that no node may have.
        through: operators through which weights are read, as those of quantised networks.
    """
    used, counts, names = {*taken, INPUT_LAYER, LOSS_LAYER}, dict[str, int](), dict[int, str]()
    # the result of such an operator, by the name of what it reads: the initialiser's name has the module
    origins = {node.output[0]: node.input[0] for node in graph.node if node.op_type in through}
    for place, node in enumerate(graph.node):
        operator = _snake(node.op_type)
        # not operand 0, which is the input
        base = _module_of([origins.get(key, key) for key in node.input[1:]], constants) or _own_name(node)
        if base and base not in used:
            names[place] = base
        else:
            stem = f"{base}.{operator}" if base else operator
            while True:
                counts[stem] = counts.get(stem, 0) + 1
                name = f"{stem}{counts[stem]}"
                if name not in used:
                    break
            names[place] = name
        used.add(names[place])
    return names


def _module_of(read: Sequence[str], constants: Mapping[str, Array]) -> str:
    """Return the module whose parameter a node reads, such as `block.conv` of `block.conv.weight`; "" without."""
    return next((plain_name(key.rpartition(".")[0]) for key in read if key in constants and "." in key), "")


def _own_name(node: Any) -> str:
    """Return a node's own name, or the path before it; "" if it says no more than the operator.

    PyTorch's exporters write `/block/conv/Conv`, `/Relu_1`, `node_add_3`.
    """
    path, _, last = node.name.rpartition("/")
    if path.strip("/"):
        return plain_name(path)
    # without the number that exporters append
    bare = re.sub(r"_?\d*$", "", last).lower()
    says_nothing = last.startswith("node_") or bare in (node.op_type.lower(), _snake(node.op_type))
    return "" if says_nothing else plain_name(last)


def _snake(operator: str) -> str:
    # a boundary before each capital that follows a small letter or a digit
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator).lower()
