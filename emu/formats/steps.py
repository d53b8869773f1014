"""Short programs of float operations, as data: how scales follow from numbers, and numbers from codes and scales.

    s = up(amax * (1 / 448))        one statement a line; each operation is rounded once, in the number type in use

A program is read once. It runs on arrays of any number type: float32, whose operations NumPy rounds once, as the
sources of scale rules do; float64, where powers of two alone are multiplied, so that nothing rounds; `Fraction`, where
nothing ever does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

_CHOOSE: Callable[..., Any] = np.where
#: What chooses between two numbers.
_CONDITIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
}
#: Operations between two numbers.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
}


@dataclass(frozen=True)
class Steps:
    """A program: statements `name = expression`, separated by semicolons.

    Attributes:
        text: the statements, as they are written and shown.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def reads(self) -> frozenset[str]:
        """Names that the expressions read, those of functions too."""
        return _reads(self.text)

    @property
    def statements(self) -> tuple[tuple[str, ast.expr], ...]:
        """Name and expression of each statement."""
        return _read(self.text)

    def run(
        self,
        names: Mapping[str, Any],
        number: Callable[[float], Any],
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> dict[str, Any]:
        """Return `names` and what the statements add to them.

        Args:
            names: arrays and numbers, all of one number type.
            number: makes a number of that type from a constant.
            functions: operations that are called by name, beside min and max.
        """
        # a copy: the caller's names stay as they are
        known = dict(names)
        # fmin and fmax ignore a NaN beside a number
        called: dict[str, Callable[..., Any]] = {"min": np.fmin, "max": np.fmax, **(functions or {})}

        def value_of(node: ast.expr) -> Any:
            match node:
                case ast.Constant(value=int() | float() as value):
                    return number(value)
                case ast.Name(id=name):
                    return known[name]
                case ast.BinOp(left=left, op=op, right=right):
                    return _ARITHMETIC[type(op)](value_of(left), value_of(right))
                case ast.Call(func=ast.Name(id=name), args=arguments):
                    return called[name](*map(value_of, arguments))
                case ast.IfExp(test=ast.Compare(left=left, ops=[op], comparators=[right]), body=body, orelse=orelse):
                    chosen = _CONDITIONS[type(op)](value_of(left), value_of(right))
                    # np.where computes both sides: the side that is not chosen may divide by 0
                    return _CHOOSE(chosen, value_of(body), value_of(orelse))
                case _:
                    raise AssertionError(f"no step: {ast.unparse(node)}")

        with np.errstate(all="ignore"):  # infinities, NaN and subnormals are numbers like others here
            for name, expression in self.statements:
                known[name] = value_of(expression)
        return known


class Factor(NamedTuple):
    """How elements follow from numbers: `y = x * name`, or `y = x / name`."""

    name: str
    divides: bool

    @classmethod
    def of(cls, element: Steps) -> Factor | None:
        """Return what the one step of elements applies; None if it is another one."""
        # `y = (x - z) / s` and other steps are no single factor
        match element.statements:
            case (("y", ast.BinOp(left=ast.Name(id="x"), op=ast.Mult() | ast.Div() as op, right=ast.Name(id=name))),):
                return cls(name, isinstance(op, ast.Div))
            case _:
                return None


@lru_cache(maxsize=256)
def _reads(text: str) -> frozenset[str]:
    nodes = (node for _, expression in _read(text) for node in ast.walk(expression))
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name))


@lru_cache(maxsize=256)
def _read(text: str) -> tuple[tuple[str, ast.expr], ...]:
    statements: list[tuple[str, ast.expr]] = []
    for statement in ast.parse(text).body:
        assert isinstance(statement, ast.Assign)
        target = statement.targets[0]
        assert isinstance(target, ast.Name)
        statements.append((target.id, statement.value))
    return tuple(statements)
