"""Every small wrong edit of a source file: one operator, constant or statement at a time.

    a < b        -> a <= b          x + y  -> x - y         not x    -> x           n += k  -> pass
    a and b      -> a or b          m & n  -> m | n         min(...) -> max(...)    7       -> 8, 6

Left alone, for no test could or should tell: annotations, decorators, docstrings and other text, what only words an
error (`raise`, f-strings), `assert`, `strict=` and the limits of `bounded` (own guarantees), constants that share out
work and fit it to caches (`WORK_SIZES`). An edit that compiles to the same bytecode is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from types import CodeType
from typing import Any

#: Operator -> what stands in its place.
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
CALLS = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
    "any": "all", "all": "any",
}  # fmt: skip

#: Beginnings of names of constants on which only time depends.
WORK_SIZES = ("GRAIN", "BLAS_GRAIN", "VECTOR_GRAIN", "GROUP_", "AHEAD", "LOOKS", "STREAMED_BYTES", "KEPT_BYTES")


@dataclass(frozen=True)
class Mutant:
    """One edit of one file.

    Attributes:
        path: the file, relative to the checkout.
        line: where, from 1.
        scope: dotted name of the function or class around it, "" for the module.
        kind: what was done.
        start: first byte that is replaced.
        end: byte behind the last.
        before: the text there, on one line.
        after: what is written instead.
        on: the line it starts on, without its indentation.
    """

    path: str
    line: int
    scope: str
    kind: str
    start: int
    end: int
    before: str
    after: str
    on: str

    def applied_to(self, source: bytes) -> bytes:
        """Return the mutated file; every other line keeps its number."""
        lost = source[self.start : self.end].count(b"\n") - self.after.count("\n")
        # a statement may not end in the middle of a line, an expression is always in parentheses
        padding = "\n" * max(lost, 0)
        text = f"({self.after}{padding})" if self.kind != "statement dropped" else self.after + padding
        return source[: self.start] + text.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return every edit of a file, in the order of its lines, those without effect included."""
    lines = source.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    found: list[Mutant] = []
    for node, scope, kind, after in _edits(ast.parse(source), ()):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before = " ".join(source[start:end].decode().split())
        on = lines[node.lineno - 1].decode().strip()
        found.append(Mutant(path, node.lineno, ".".join(scope), kind, start, end, before, after, on))
    return sorted(found, key=lambda m: (m.start, m.end, m.after))


def has_effect(mutant: Mutant, source: bytes) -> bool:
    """Return whether the mutated file compiles, and to other bytecode."""
    try:
        return meaning_of(mutant.applied_to(source)) != meaning_of(source)
    except (SyntaxError, ValueError):
        return False


@lru_cache(maxsize=256)
def meaning_of(source: bytes) -> Any:
    """Return what a file's bytecode does, without its line numbers."""
    return _content(compile(source, "<mutant>", "exec", dont_inherit=True))


def _content(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(_content(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return (code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_exceptiontable, constants)


_Edit = tuple[Any, tuple[str, ...], str, str]


def _edits(node: ast.AST, scope: tuple[str, ...]) -> Iterator[_Edit]:
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr)):
        return
    yield from ((node, scope, kind, after) for kind, after in _replacements(node))
    inner = (*scope, node.name) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else scope
    for child in _children(node):
        yield from _edits(child, inner)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
        return
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()").startswith(WORK_SIZES):
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "bounded":
        yield node.args[0]
        return
    silent = {"annotation", "returns", "decorator_list", "type_comment"}
    for name, value in ast.iter_fields(node):
        if name not in silent:
            children = value if isinstance(value, list) else [value]
            yield from (c for c in children if isinstance(c, ast.AST) and not _is_guarantee(c))


def _is_guarantee(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _replacements(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare():
            yield from _flipped(node)
        case ast.BinOp() if type(node.op) in OPERATORS and not _is_text(node.left) and not _is_text(node.right):
            yield "operator", ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", ast.unparse(ast.BoolOp(other, node.values))
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield "negation removed", ast.unparse(node.operand)
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield "call swapped", ast.unparse(ast.Call(ast.Name(CALLS[name]), node.args, node.keywords))
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CALLS:
            yield "call swapped", ast.unparse(ast.Call(ast.Attribute(owner, CALLS[name]), node.args, node.keywords))
        case ast.Constant(value=bool()):
            yield "constant", str(not node.value)
        case ast.Constant(value=int() | float() as number):
            yield from (("constant", repr(number + change)) for change in (1, -1))
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield "statement dropped", "pass"
        case _:
            pass


def _flipped(node: ast.Compare) -> Iterator[tuple[str, str]]:
    for i, operator in enumerate(node.ops):
        operators = [*node.ops[:i], COMPARISONS[type(operator)](), *node.ops[i + 1 :]]
        yield "comparison", ast.unparse(ast.Compare(node.left, operators, node.comparators))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
