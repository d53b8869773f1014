"""Imports point one way, as docs/design/overview.md lists them."""

from __future__ import annotations

from pathlib import Path

from tests.packaging.house import PACKAGE, bundles_of, crosses, lines_of
from tests.packaging.imports import Import, circles, graph_of, imports_of, modules_of
from tests.packaging.layers import ALLOWED, BASE, TOP, part_of, upward

FILES = sorted(modules_of(PACKAGE).values())


def test_each_part_has_its_level_in_the_order_of_packages():
    parts = {part_of(path, PACKAGE) for path in FILES}
    assert parts <= TOP | BASE.keys() | ALLOWED.keys(), "see docs/design/overview.md, and tests/packaging/layers.py"


def test_files_import_only_what_stands_below_them():
    wrong = [f"{path.relative_to(PACKAGE)}:{i.line}: {i.name}" for path in FILES for i in upward(path, PACKAGE)]
    assert wrong == []


def test_the_order_has_no_circle():
    for part, below in ALLOWED.items():
        for name in below:
            assert part not in ALLOWED.get(name, set()), f"{part} and {name} may import each other"


def test_a_forbidden_import_would_be_seen(tmp_path: Path):
    package = tmp_path / "emu"
    for name in ("formats", "engine", "nn", "cli"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    path = package / "formats" / "x.py"
    path.write_text(
        "import emu.engine\nfrom ..nn import a\ndef f():\n    from emu.cli import app\n"
        "    import_module(f'emu.{a}')\n    import_module('emu.engine')\nif TYPE_CHECKING:\n    from emu.nn import b\n"
    )
    assert imports_of(path, package) == {
        Import(1, "emu.engine"),
        Import(2, "emu.nn.a"),
        Import(4, "emu.cli.app"),
        Import(5, "emu.*"),
        Import(6, "emu.engine"),
        Import(8, "emu.nn.b", for_types=True),
    }
    assert len(upward(path, package)) == 6


def test_no_imports_run_in_a_circle_across_packages():
    """Imports in functions count; those for types alone do not: they load nothing."""
    across = [circle for circle in circles(graph_of(PACKAGE)) if crosses(circle)]
    assert across == []


def test_a_circle_would_be_seen():
    graph = {"emu.a.x": {"emu.b.y"}, "emu.b.y": {"emu.b.z"}, "emu.b.z": {"emu.a.x"}, "emu.c": {"emu.a.x"}}
    [circle] = circles(graph)
    assert circle == ["emu.a.x", "emu.b.y", "emu.b.z"]
    assert crosses(circle)
    assert not crosses(["emu.b.y", "emu.b.z"])


def test_lines_and_bundles_are_counted_by_kind():
    text = (
        '"""What it is."""\n\n# why\nx = 1  # beside\n\n\ndef f(formats, mac, stage):\n    """Say."""\n    return x\n'
    )
    assert dict(lines_of(text)) == {"code": 3, "docstrings": 2, "comments": 1, "blank": 3}
    assert bundles_of(text + "def g(formats, mac): ...") == ["f"]
