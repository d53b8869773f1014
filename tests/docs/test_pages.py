"""The documentation is complete and holds together: links, names, dependencies, the two commands."""

from __future__ import annotations

import importlib
import re
import tomllib
from importlib.util import find_spec

import bounds
import pytest
import typer
from documents import PAGES, ROOT, anchors_of, links_of, name_of, prose_of, public_names

import emu
import emu.export
import emu.testing.rtl
import emu.testing.vectors
from emu.cli import app
from emu.cluster.batch_sizes import BatchSizeTable
from emu.cluster.settings import ClusterTable, CodecOptions
from emu.training.folders.run_folder import RUN

CONCEPTS = ROOT / "docs" / "concepts"
REFERENCE = ROOT / "docs" / "reference"
#: Pages with tables that programs write.
MADE = ("benchmarks", "mutation", "results")
SITE = [page for page in PAGES if ROOT / "docs" in page.parents]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EVERYTHING = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TWO_COMMANDS = ("pip install -e . && emu train lenet --device fixed16", "pip install -e '.[test]' && pytest")


def package_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0]


def test_the_readme_is_under_150_lines():
    assert len(README.splitlines()) < 150


def test_the_readme_names_the_two_commands_and_ci_runs_both():
    assert all(command in README for command in TWO_COMMANDS)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    parts = [part for command in TWO_COMMANDS for part in command.split(" && ")]
    assert [part for part in parts if part not in script and part != "pip install -e ."] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for link in links_of(page):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        assert ROOT in target.parents, f"{name_of(page)}: {link} leaves the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{name_of(page)}: {link}"


@pytest.mark.parametrize("page", SITE, ids=name_of)
def test_pages_of_the_site_link_to_pages_of_the_site_alone(page):
    for link in links_of(page):
        target = page.parent / link.partition("#")[0]
        assert link.startswith(("https://", "#")) or ROOT / "docs" in target.resolve().parents, (
            f"{name_of(page)}: {link}"
        )


@pytest.mark.parametrize("page", [page for page in SITE if page.stem not in MADE], ids=name_of)
def test_powers_are_code_for_two_of_them_would_be_bold(page):
    assert re.findall(r"[\w)]\*\*[-\w(].*", prose_of(page)) == []


@pytest.mark.parametrize("folder", ["concepts", "howto", "reference"])
def test_a_folder_of_pages_has_a_list_of_them_all(folder):
    index = ROOT / "docs" / folder / "index.md"
    assert {page.name for page in index.parent.glob("*.md")} - {"index.md"} <= set(links_of(index))


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_is_in_the_documentation(name):
    assert re.search(rf"\bemu\.{name}\b", EVERYTHING), f"emu.{name} is documented nowhere"


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("command", sorted(name for name, command in COMMANDS.items() if not command.hidden))
def test_every_command_is_in_the_documentation(command):
    assert f"emu {command}" in EVERYTHING


@pytest.mark.parametrize("mode", [mode.value for mode in emu.Rounding])
def test_every_rounding_mode_is_on_its_page_with_a_picture(mode):
    text = (CONCEPTS / "rounding.md").read_text(encoding="utf-8")
    assert f"| `{mode}` |" in text
    assert f"](../pictures/rounding-{mode}.svg)" in text


@pytest.mark.parametrize("rule", [rule.value for rule in emu.Overflow])
def test_every_overflow_rule_is_on_its_page(rule):
    assert f"| `{rule}`" in (CONCEPTS / "overflow.md").read_text(encoding="utf-8")


def reference_members() -> list[tuple[str, str]]:
    """Module and name of everything that the pages of the API reference show."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    listed = re.findall(r"^::: (\S+)\n(?: {4}.*\n)*? {6}members: \[(.*)\]$", text, re.MULTILINE)
    return [(module, name.strip()) for module, names in listed for name in names.split(",")]


@pytest.mark.parametrize(
    "package",
    [
        emu,
        emu.nn,
        emu.optim,
        emu.cluster,
        emu.cluster.codecs,
        emu.cluster.clipping,
        emu.sparse,
        emu.testing,
        emu.testing.vectors,
        emu.export,
        emu.testing.rtl,
    ],
    ids=lambda m: m.__name__,
)
def test_every_public_name_is_on_a_page_of_the_reference(package):
    shown = {name for module, name in reference_members() if module.startswith(package.__name__)}
    assert [name for name in package.__all__ if name not in shown and name != "__version__"] == []


def test_the_reference_shows_only_what_exists_and_nothing_twice():
    members = [(m, name) for m, name in reference_members() if m != "emu.torch" or find_spec("torch")]
    assert [f"{module}.{name}" for module, name in members if not hasattr(importlib.import_module(module), name)] == []
    assert len(set(members)) == len(members)


def test_the_glossary_is_alphabetical_and_every_word_leads_to_a_page():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    words = [re.match(r"\*\*(.+?)\*\*", entry)[1].lower() for entry in entries]
    assert words == sorted(words)
    assert [word for word, entry in zip(words, entries, strict=True) if not re.search(r"\]\(\S+\.md", entry)] == []


def test_every_dependency_has_its_reason_and_nothing_else_has():
    text = (ROOT / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
    reasons = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, re.MULTILINE))
    extras = [requirement for group in PROJECT["optional-dependencies"].values() for requirement in group]
    wanted = {package_of(requirement) for requirement in [*PROJECT["dependencies"], *extras]}
    assert set(reasons) == wanted
    assert all(len(reason) > 10 for reason in reasons.values())


def test_the_changelog_has_this_version_and_says_when_bits_change():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{PROJECT['version']}]" in text
    assert "BREAKING" in text


def test_the_tutorial_names_every_file_of_a_run():
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    tables = [f"{name}.parquet" for name in ("metrics", "registers", "flags", "snr", "profile")]
    assert [name for name in (RUN, *tables, "checkpoint.safetensors", "report.html") if name not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_promises_to_be_written_later(page):
    assert not re.search(r"\b(TODO|FIXME|XXX|TBD|coming soon|lorem)\b", prose_of(page), re.IGNORECASE)


def test_the_page_of_bounded_constants_lists_what_the_sources_define():
    assert bounds.PAGE.read_text(encoding="utf-8") == bounds.page()


@pytest.mark.parametrize(
    ("heading", "table"),
    [("cluster", ClusterTable), ("cluster.codec", CodecOptions), ("cluster.search", BatchSizeTable)],
)
def test_the_page_of_many_nodes_lists_every_key_of_a_table(heading, table):
    """And none that the table lacks."""
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    rows = page.split(f"| key of `[{heading}]` |")[1].split("\n\n")[0].splitlines()[2:]
    keys = [key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])]
    beside = {"decay", "window"} if table is CodecOptions else set()  # named with `smoothing`
    assert set(keys) | beside == set(table.model_fields)
    assert len(keys) == len(set(keys))
