"""The site of the documentation: what mkdocs is told, and what the pages tell the site's search."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from documents import ROOT, blocks_of, links_of

DOCS = ROOT / "docs"
CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
REFERENCE = [page for page in PAGES if page.startswith("reference/")]
INSTALL = "pip install -e . && emu train lenet --device fixed16"
#: The weight in the search of pages that have every word many times: code, figures, lists. Other pages have 1.
LOW = 0.2
FULL_OF_WORDS = [*REFERENCE, "benchmarks.md", "measured-times.md", "mutation.md", "results.md", "systems.md"]


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def front_matter_of(page: str) -> str:
    found = re.match(r"---\n(.*?)^---\n", text_of(page), re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def weight_of(page: str) -> float:
    """How much the search takes a page for."""
    found = re.search(r"^search:\n  boost: (\S+)$", front_matter_of(page), re.MULTILINE)
    return float(found[1]) if found else 1.0


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    specification = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_once():
    navigation = CONFIGURATION.partition("\nnav:\n")[2].partition("\nvalidation:")[0]
    assert sorted(re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)) == PAGES


def test_the_reference_is_in_pages_that_weigh_little_in_the_search():
    assert len(REFERENCE) > 10
    assert [page for page in REFERENCE if weight_of(page) > 0.02] == []


@pytest.mark.parametrize("page", FULL_OF_WORDS)
def test_pages_full_of_words_weigh_little_in_the_search(page: str):
    assert weight_of(page) <= LOW


def test_pages_for_readers_weigh_as_much_as_they_are():
    told = [page for page in PAGES if page not in FULL_OF_WORDS and not page.startswith("design/")]
    assert [page for page in told if weight_of(page) != 1 and page != "glossary.md"] == []


def test_no_page_of_the_reference_shows_many_names():
    """A page on a phone is as long as its names are many."""
    for page in REFERENCE:
        names = [name for names in re.findall(r"members: \[(.*)\]", text_of(page)) for name in names.split(",")]
        assert len(names) <= 28, page


def test_home_says_how_to_install_and_shows_a_picture():
    [command] = [block.text for block in blocks_of(DOCS / "index.md") if block.language == "sh"]
    assert command.strip() == INSTALL
    pictures = [link for link in links_of(DOCS / "index.md") if link.startswith("pictures/")]
    assert pictures
    assert all((DOCS / picture).is_file() for picture in pictures)


@pytest.mark.parametrize("path", [ROOT / "README.md", DOCS / "index.md"], ids=lambda path: path.name)
def test_the_first_screen_says_what_for_whom_and_how(path: Path):
    """Before the picture, in the first lines."""
    text = re.sub(r"\A---\n.*?^---\n", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    first = text.partition("![")[0]
    assert "What does this hardware's arithmetic do to my numbers" in first
    assert "It is for engineers who" in first
    assert INSTALL in first
    assert len(first.splitlines()) < 30


def test_a_session_of_python_is_told_from_a_program(hooks: ModuleType):
    session, program = "```python\n>>> 1 + 1\n2\n```\n", "```python\nprint(1)\n```\n"
    told = hooks.on_page_markdown(session + program)
    assert told == session.replace("python", "pycon") + program


def test_what_is_copied_of_a_session_is_what_a_reader_types(hooks: ModuleType):
    lines = [
        '<span class="gp">&gt;&gt;&gt; </span><span class="k">for</span> x in &quot;a&lt;b&quot;:',
        '<span class="gp">... </span>    <span class="nb">print</span>(x)',
        '<span class="go">a&lt;b</span>',
        '<span class="gp">$ </span>emu<span class="w"> </span>devices',
    ]
    shown = hooks.on_page_content("<pre><span></span><code>" + "\n".join(lines) + "\n</code></pre>")
    copied = re.search(r'<code data-copy="([^"]*)">', shown)
    assert copied is not None
    assert html.unescape(copied[1]) == 'for x in "a<b":\n    print(x)\nemu devices'
    assert "\n".join(lines) in shown


def test_a_block_without_prompts_is_copied_as_it_stands(hooks: ModuleType):
    block = '<pre><code><span class="k">pass</span>\n</code></pre><p><code>x</code></p>'
    assert hooks.on_page_content(block) == block


def test_the_search_does_not_read_source_code(hooks: ModuleType):
    shown = hooks.on_page_content('<details class="mkdocstrings-source"><summary>Source code</summary></details>')
    assert re.match(r'<details class="mkdocstrings-source" data-search-exclude="[^"]+">', shown)
