"""Imports point one way, as docs/design/overview.md lists them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import emu

PACKAGE = Path(emu.__file__).parent

#: What each part may import, besides itself and what stands below every part.
BASE = {"errors", "_drawn", "_files", "_paths", "_config"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_drawn": set(),
    "_files": set(),
    "_paths": set(),
    "_config": set(),
    "formats": set(),
    "datapath": {"formats"},
    "backends": {"formats", "datapath"},
    "engine": {"formats", "datapath", "backends"},
    "sparse": {"formats", "datapath", "backends", "engine"},
    "autodiff": {"formats", "datapath", "backends", "engine", "sparse"},
    "hardware": {"formats", "datapath", "backends"},
    "testing": {"formats", "datapath", "backends", "engine"},
}
ALLOWED["nn"] = ALLOWED["optim"] = ALLOWED["autodiff"] | {"autodiff"}
ALLOWED["precision"] = ALLOWED["cluster"] = ALLOWED["nn"] | {"nn", "optim", "hardware"}
ALLOWED["training"] = ALLOWED["precision"] | {"precision", "cluster"}
ALLOWED["report"] = ALLOWED["bench"] = ALLOWED["training"] | {"training"}
ALLOWED["jobs"] = ALLOWED["report"] | {"report"}
ALLOWED["watch"] = ALLOWED["search"] = ALLOWED["jobs"] | {"jobs"}
ALLOWED["notebook"] = ALLOWED["report"] | {"report", "testing"}
#: The public face and the command may import everything.
TOP = {"__init__", "__main__", "_runs", "cli"}
#: Below `_config`, in order.
BELOW_BASE = {"errors": set(), "_drawn": set(), "_files": set(), "_paths": {"errors"}, "_config": {"errors", "_paths"}}


def part_of(path: Path) -> str:
    """The subpackage or top-level module a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[tuple[int, str]]:
    """Line and part of every import from emu, those inside functions and `TYPE_CHECKING` included."""
    found: set[tuple[int, str]] = set()
    package = ["emu", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            anchor = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*anchor, *([node.module] if node.module else [])])
            names = [f"emu.{alias.name}" for alias in node.names] if module == "emu" else [module]
        for name in names:
            if name == "emu" or name.startswith("emu."):
                found.add((node.lineno, [*name.split("."), "__init__"][1]))
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_stands_below_it(path: Path):
    part = part_of(path)
    if part in TOP:
        return
    assert part in ALLOWED, f"emu.{part} has no place in the order of docs/design/overview.md; give it one in this test"
    allowed = BELOW_BASE[part] if part in BELOW_BASE else ALLOWED[part] | BASE | {part}
    wrong = {f"line {line}: emu.{name}" for line, name in imports_of(path) if name not in allowed}
    assert not wrong, f"emu.{part} must not import {', '.join(sorted(wrong))}"


def test_the_order_has_no_circle():
    for part, below in ALLOWED.items():
        for name in below:
            assert part not in ALLOWED.get(name, set()), f"{part} and {name} may import each other"


def test_a_forbidden_import_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "formats").mkdir()
    path = tmp_path / "formats" / "x.py"
    path.write_text(
        "import emu.engine\nfrom emu import training\nfrom ..nn import a\ndef f():\n    from emu.cli import app\n"
    )
    assert imports_of(path) == {(1, "engine"), (2, "training"), (3, "nn"), (5, "cli")}


def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found: dict[str, Path] = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("emu", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_by(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a file imports, inside functions and for types alone included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known.keys()


def test_no_imports_run_in_a_circle_of_files():
    known = modules()
    above = {name: imported_by(path, known) - {name} for name, path in known.items()}
    while free := {name for name, imports in above.items() if not imports & above.keys()}:
        for name in free:
            del above[name]
    assert sorted(above) == []
