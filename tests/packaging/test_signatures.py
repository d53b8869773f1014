"""A function has at most ten parameters; what more it takes are the options of a `TypedDict`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import emu

PACKAGE = Path(emu.__file__).parent
MOST = 10
#: Kernels take arrays and numbers one by one: what compiles them knows no records.
KERNELS = (PACKAGE / "backends" / "numba", PACKAGE / "backends" / "cuda")


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller may give: not `self`, not what stands for many."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def too_many(text: str) -> list[str]:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [f"{function.name}: {parameters(function)}" for function in functions if parameters(function) > MOST]


def test_no_function_outside_of_kernels_has_more_than_ten_parameters():
    files = [path for path in PACKAGE.rglob("*.py") if not any(path.is_relative_to(folder) for folder in KERNELS)]
    found = {str(path.relative_to(PACKAGE)): too_many(path.read_text(encoding="utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(("first", "is_seen"), [("self, ", False), ("", False), ("x, ", True)])
def test_an_eleventh_parameter_would_be_seen(first: str, is_seen: bool):
    ten = ", ".join(f"a{number}" for number in range(9)) + ", *, b"
    assert too_many(f"def f({first}{ten}, **options): ...") == ["f: 11"] * is_seen
