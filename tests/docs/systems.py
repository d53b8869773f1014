"""The page of all systems, as `docs/systems.toml` has them, and what is wrong with an entry.

An element of a published system has an entry: what it is, where the code is, the tests that prove it, the page that
tells it. `python tests/docs/refresh.py` writes docs/systems.md from the entries.
"""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from documents import ROOT, headings_of

DATA = ROOT / "docs" / "systems.toml"
PAGE = ROOT / "docs" / "systems.md"
#: Elements of every system, as its source is divided; what systems do together has as many as there are entries.
NUMBERS = {"A": range(1, 10), "B": range(1, 9), "C": range(1, 13), "D": range(1, 5), "E": range(7)}
#: Systems of whose elements each has a test that bears its label.
LABELLED = "CDE"
#: Labels at the end of a test's name: `..._c1_d3`.
_LABELS = re.compile(r"(?:_[a-et]\d+)+$")
_HEAD = """---
search:
  boost: 0.2
---

# Which systems are here

Five published systems for training with reduced precision, and what they do together.

"""
_TABLES = """
Below is a table for each system: what its source describes, the code that does it, the tests that prove it, and the
page that says more. Names of tests are sentences, written here without their underscores.
`python tests/docs/refresh.py` writes this page from `docs/systems.toml`, and a test compares them.
"""


class Element(NamedTuple):
    """One element of a system's source.

    Attributes:
        label: of the system and a number: C4.
        what: it is, in a sentence.
        where: `emu/FILE.py::NAME` of functions and classes, or a file of devices/ or models/.
        tests: `tests/FILE.py::NAME`, as pytest names them.
        page: of docs/, with the anchor of a heading.
        missing: what of it is not there yet; empty where all is.
    """

    label: str
    what: str
    where: Sequence[str]
    tests: Sequence[str]
    page: str
    missing: str = ""


class System(NamedTuple):
    """One system.

    Attributes:
        letter: of its labels.
        name: its title.
        text: an example, and the question that the system answers.
        source: patent and paper.
        page: of docs/.
        elements: all of them.
    """

    letter: str
    name: str
    text: str
    source: str
    page: str
    elements: Sequence[Element]


def read(text: str) -> list[System]:
    """Return the systems of a data file."""
    found: list[System] = []
    for table in tomllib.loads(text)["systems"]:
        elements = [_made(Element, one.get("label", "without label"), one) for one in table.get("elements", [])]
        found.append(_made(System, table.get("letter", "without letter"), table | {"elements": elements}))
    return found


def _made(kind: type[Any], name: str, table: dict[str, Any]) -> Any:
    keys, needed = set(kind._fields), set(kind._fields) - set(kind._field_defaults)
    if set(table) - keys or needed - set(table):
        raise ValueError(
            f"{DATA.name}: entry {name} must have the keys {', '.join(kind._fields)}, got {', '.join(table)}; "
            f"add {sorted(needed - set(table))}, remove {sorted(set(table) - keys)}"
        )
    return kind(**table)


# ---- the page ----


def page(systems: Sequence[System]) -> str:
    """Return the page."""
    return _HEAD + "\n".join(map(_paragraph, systems)) + _TABLES + "".join(map(_section, systems))


def _paragraph(system: System) -> str:
    text = f"**{system.letter}. [{system.name}]({system.page}).** {_one_line(system.text)} Source: {system.source}."
    return textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False) + "\n"


def _section(system: System) -> str:
    rows = "".join(_row(element) for element in system.elements)
    return (
        f"\n## {system.letter}. {system.name}\n\n| | what it is | code | tests | page |\n|---|---|---|---|---|\n{rows}"
    )


def _row(element: Element) -> str:
    missing = f" **Not there yet:** {_one_line(element.missing)}" if element.missing else ""
    where = [": ".join([f"`{file}`", *_code(names)]) for file, names in _by_file(element.where)]
    tests = [f"`{file}`: {'; '.join(map(_sentence, names))}" for file, names in _by_file(element.tests)]
    path, _, anchor = element.page.partition("#")
    title = headings_of(ROOT / "docs" / path).get(anchor, anchor)
    cells = (
        element.label,
        _one_line(element.what) + missing,
        "<br>".join(where),
        "<br>".join(tests),
        f"[{title}]({element.page})",
    )
    return f"| {' | '.join(cells)} |\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _code(names: Sequence[str]) -> list[str]:
    return [", ".join(f"`{name}`" for name in names)] if all(names) else []


def _by_file(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name in names:
        file, _, inside = name.partition("::")
        found.setdefault(file, []).append(inside)
    return list(found.items())


def _sentence(test: str) -> str:
    return _LABELS.sub("", test.rpartition("::")[2]).removeprefix("test_").replace("_", " ")


# ---- what is wrong ----


def problems(systems: Sequence[System]) -> list[str]:
    """Return what is wrong with the entries, and what to do about it."""
    elements = [element for system in systems for element in system.elements]
    found = [problem for system in systems for problem in _missing_labels(system)]
    found += [problem for element in elements for problem in _problems_of(element)]
    return found + list(_labels_without_entry({element.label for element in elements}))


def _missing_labels(system: System) -> Iterator[str]:
    labels = [element.label for element in system.elements]
    numbers = NUMBERS.get(system.letter, range(1, len(labels) + 1))
    wanted = [f"{system.letter}{number}" for number in numbers]
    if labels != wanted:
        yield (
            f"entries of system {system.letter} must be {', '.join(wanted)}, each once and in this order, got "
            f"{', '.join(labels)}; write one for each into docs/systems.toml"
        )


def _problems_of(element: Element) -> Iterator[str]:
    for key in ("where", "tests"):
        if not getattr(element, key):
            yield f"{element.label}: `{key}` must name at least one, got none; say where it is in docs/systems.toml"
    for name in element.where:
        if not _is_there(name):
            yield (
                f"{element.label}: `where` must name what is there, got {name}; write emu/FILE.py::NAME of the "
                "function or class that does it now, or a file of devices/ or models/"
            )
    for name in element.tests:
        file, _, inside = name.partition("::")
        if inside not in tests_of(ROOT / file):
            yield (
                f"{element.label}: `tests` must name tests that exist, got {name}; write tests/FILE.py::NAME of the "
                "test that proves the element now"
            )
    if element.label[0] in LABELLED and not any(element.label in labels_of(name) for name in element.tests):
        yield (
            f"{element.label}: `tests` must name one that bears the label, got none; let the name of the test that "
            f"proves the element end in _{element.label.lower()}"
        )
    path, _, anchor = element.page.partition("#")
    if not (ROOT / "docs" / path).is_file() or anchor not in headings_of(ROOT / "docs" / path):
        yield (
            f"{element.label}: `page` must be a page of docs/ and the anchor of a heading, got {element.page}; write "
            "FILE.md#the-heading"
        )


def _is_there(name: str) -> bool:
    file, _, inside = name.partition("::")
    if not (ROOT / file).is_file() or bool(inside) != file.startswith("emu/"):
        return False
    if not inside:
        return file.startswith(("devices/", "models/"))
    found: Any = importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for part in inside.split("."):
        found = getattr(found, part, None)
    return found is not None


@cache
def tests_of(path: Path) -> frozenset[str]:
    """Return the tests of a file as pytest names them behind it; none where there is no such file."""
    if not path.is_file():
        return frozenset()
    return frozenset(_tests_in(ast.parse(path.read_text(encoding="utf-8"))))


def _tests_in(node: ast.Module | ast.ClassDef) -> Iterator[str]:
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
            yield one.name
        elif isinstance(one, ast.ClassDef) and one.name.startswith("Test"):
            yield from (f"{one.name}::{inside}" for inside in _tests_in(one))


def labels_of(test: str) -> list[str]:
    """Return the labels that a test's name ends with.

    Examples:
        >>> labels_of("test_owners_add_stripes_in_node_order_c1_c5")
        ['C1', 'C5']
    """
    found = _LABELS.search(test)
    return found[0].upper().split("_")[1:] if found else []


def _labels_without_entry(labels: set[str]) -> Iterator[str]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in sorted(tests_of(path)):
            for label in labels_of(test):
                if label not in labels:
                    yield (
                        f"{path.relative_to(ROOT)}::{test} ends in {label}, which has no entry; write one into "
                        "docs/systems.toml, or give the test another name"
                    )
