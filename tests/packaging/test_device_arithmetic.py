"""Arrays of a device are computed with by emu's kernels alone: CuPy's own arithmetic takes float32 subnormals for 0."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import emu

ROOT = Path(emu.__file__).parent
#: Where arrays may be a device's.
ROOMS = ("autodiff", "engine", "operations", "precision", "nn", "optim", "backends/cuda")
MODULES = [
    *(path for room in ROOMS for path in sorted((ROOT / room).glob("*.py"))),
    *(ROOT / "backends" / name for name in ("arrays.py", "gathered.py")),
    ROOT / "training" / "workbench" / "model.py",
]
#: Mathematics for checking derivatives, on the host.
ON_HOST = {"autodiff/plain.py", "autodiff/check.py"}
#: What a namespace may be asked for: rooms, moves, integers.
MOVES = {
    "empty", "empty_like", "zeros", "ones", "arange", "asarray", "ascontiguousarray", "broadcast_to", "where", "stack",
    "take_along_axis", "concatenate", "cuda", "RawModule", "uint64", "__version__",
}  # fmt: skip
#: Methods of arrays that compute or compare.
ARITHMETIC = {"max", "min", "sum", "mean", "any", "all", "argmax", "argmin", "prod", "round", "clip", "dot", "ldexp"}
#: Values that are integers of the data, no operands.
INTEGERS = {"labels", "tokens", "offsets"}


def _is_namespace(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "namespace"
    return (isinstance(node, ast.Name) and node.id == "xp") or (isinstance(node, ast.Attribute) and node.attr == "xp")


def _is_array(node: ast.expr) -> bool:
    """Whether an expression is a value's array, or what a slice, a method or a sign makes of one."""
    if isinstance(node, ast.Attribute) and node.attr == "array":
        return not (isinstance(node.value, ast.Name) and node.value.id in INTEGERS)
    if isinstance(node, ast.Subscript):
        return _is_array(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _is_array(node.func.value)
    return isinstance(node, ast.UnaryOp) and _is_array(node.operand)


def _on_device(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of functions whose first argument is a namespace: the float64 column of operations."""
    if isinstance(node, ast.FunctionDef | ast.Lambda) and [one.arg for one in node.args.args[:1]] == ["xp"]:
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _on_device(child)


def refused(source: str) -> Iterator[tuple[int, str]]:
    """Lines, and what they compute outside the kernels."""
    for node in _on_device(ast.parse(source)):
        if isinstance(node, ast.Attribute) and _is_namespace(node.value) and node.attr not in MOVES:
            yield node.lineno, f"xp.{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr in ARITHMETIC and _is_array(node.value):
            yield node.lineno, f".{node.attr}"
        elif isinstance(node, ast.BinOp) and (_is_array(node.left) or _is_array(node.right)):
            yield node.lineno, type(node.op).__name__
        elif (
            isinstance(node, ast.Compare)
            and not isinstance(node.ops[0], ast.Is)
            and any(map(_is_array, (node.left, *node.comparators)))
        ):
            yield node.lineno, "comparison"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_array_of_a_device_is_computed_with_outside_the_kernels(path: Path):
    if path.relative_to(ROOT).as_posix() not in ON_HOST:
        assert not list(refused(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('return c.run("select", g, Value(x.array > 0))', "comparison"),
        ("shifted = x.with_array(x.array.max(axis=1, keepdims=True))", ".max"),
        ("return y.with_array(0.0 - y.array)", "Sub"),
        ("return y.with_array(-y.array[0] * 2)", "Mult"),
        ("out[...] = namespace(values).ldexp(values, 3)", "xp.ldexp"),
        ("largest = launcher.xp.abs(x)", "xp.abs"),
        ("return xp.isfinite(x)", "xp.isfinite"),
    ],
)
def test_a_seeded_float_operation_is_found(line: str, found: str):
    assert [name for _, name in refused(f"def f():\n    {line}\n")] == [found]
