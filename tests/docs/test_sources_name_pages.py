"""Where the sources refer to a page of the documentation, the page and the section are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import emu

PACKAGE = Path(emu.__file__).parent
ROOT = PACKAGE.parent
PAGE = re.compile(r"docs/[a-z-]+/?[a-z-]*\.md")
SECTION = re.compile(r'(docs/[a-z-]+/?[a-z-]*\.md),\s+"([^"]+)"')
TEXTS = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")) if "_data" not in path.parts}


def headings(page: str) -> set[str]:
    """The headings of a page, as they are written."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return {line.lstrip("#").strip() for line in lines if line.startswith("#")}


def named(pattern: re.Pattern[str]) -> set[tuple[str, ...]]:
    """Every match of a pattern in the package, with the file that has it."""
    return {
        (str(path.relative_to(PACKAGE)), *found.groups(), found.group())
        for path, text in TEXTS.items()
        for found in pattern.finditer(text)
    }


def test_every_page_that_a_source_names_is_there():
    pages = {(source, page) for source, page in named(PAGE)}
    assert len(pages) > 50
    assert [found for found in sorted(pages) if not (ROOT / found[1]).exists()] == []


def test_every_section_that_a_source_names_is_on_its_page():
    sections = {(source, page, " ".join(section.split())) for source, page, section, _ in named(SECTION)}
    assert len(sections) > 10
    assert [found for found in sorted(sections) if found[2] not in headings(found[1])] == []


@pytest.mark.parametrize("folder", ["docs/concepts/.", "docs/design/.", "docs/."])
def test_no_source_is_a_folder_of_pages(folder: str):
    assert [path.name for path, text in TEXTS.items() if f"Source: {folder}" in text] == []
