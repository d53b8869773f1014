"""What the files of a package import: in their heads, in functions, for types alone, and by a name in a string."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Functions that import the module whose name they are given.
BY_NAME = {"import_module", "__import__"}


@dataclass(frozen=True, order=True)
class Import:
    """A name that a file imports.

    Attributes:
        line: where it does.
        name: the whole dotted name; `emu.*` if a string is put together, so that it may be any module.
        for_types: whether it stands under `if TYPE_CHECKING:`, where nothing is loaded.
    """

    line: int
    name: str
    for_types: bool = False


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name, without the files that a wheel carries as data."""
    found: dict[str, Path] = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        if "_data" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, package: Path) -> set[Import]:
    """What a file imports of its own package.

    A string that is the dotted name of a module counts: tables of such names are handed to `import_module`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typed = {id(inner) for node in ast.walk(tree) if _asks_for_types(node) for inner in _below(node)}
    above = [package.name, *path.relative_to(package).parts[:-1]]
    return {
        Import(node.lineno, name, id(node) in typed)
        for node in ast.walk(tree)
        for name in _names(node, above, package)
        if name == package.name or name.startswith(f"{package.name}.")
    }


def _asks_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _below(node: ast.AST) -> Iterator[ast.AST]:
    assert isinstance(node, ast.If)
    for statement in node.body:
        yield from ast.walk(statement)


def _names(node: ast.AST, above: list[str], package: Path) -> Iterator[str]:
    """The dotted names that a node imports; `above` are the packages that its file lies in."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        anchor = above[: len(above) - node.level + 1] if node.level else []
        module = ".".join([*anchor, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if _is_module(node.value, package):
            yield node.value
    elif isinstance(node, ast.Call) and _called(node) in BY_NAME and any(map(_is_put_together, node.args)):
        yield f"{package.name}.*"


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_put_together(name: ast.expr) -> bool:
    """Whether the name of a module is computed, or relative: what it loads cannot be read."""
    if isinstance(name, ast.Constant):
        return isinstance(name.value, str) and name.value.startswith(".")
    return isinstance(name, ast.JoinedStr | ast.BinOp)


def _is_module(text: str, package: Path) -> bool:
    """Whether a text is the dotted name of a module within the package."""
    first, *parts = text.split(".")
    if first != package.name or not parts or not all(part.isidentifier() for part in parts):
        return False
    place = package.joinpath(*parts)
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def graph_of(package: Path) -> dict[str, set[str]]:
    """The modules that every module loads, now or later: what is imported for types alone is left out."""
    known = modules_of(package)
    return {
        module: {
            loaded
            for found in imports_of(path, package)
            if not found.for_types and (loaded := _module(found.name, known)) not in (None, module)
        }
        for module, path in known.items()
    }


def _module(name: str, known: Mapping[str, Path]) -> str | None:
    """The module that an imported name is, or lies in."""
    return name if name in known else parent if (parent := name.rpartition(".")[0]) in known else None


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of two modules and more that all reach one another, the largest first."""
    reached = {module: _reached_from(module, graph) for module in graph}
    groups = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph}
    return sorted((sorted(group) for group in groups if len(group) > 1), key=len, reverse=True)


def _reached_from(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += graph[module]
    return reached
