"""The documentation is complete and holds together: links, names, dependencies, the two commands."""

from __future__ import annotations

import re
import tomllib

import pytest
import typer
from documents import PAGES, ROOT, anchors_of, links_of, name_of, prose_of, public_names

import emu
from emu.cli import app
from emu.training.run_folder import RUN

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


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_is_in_the_documentation(name):
    assert re.search(rf"\bemu\.{name}\b", EVERYTHING), f"emu.{name} is documented nowhere"


@pytest.mark.parametrize("command", sorted(typer.main.get_command(app).commands))
def test_every_command_is_in_the_documentation(command):
    assert f"emu {command}" in EVERYTHING


@pytest.mark.parametrize("name", [*(mode.value for mode in emu.Rounding), *(rule.value for rule in emu.Overflow)])
def test_every_rounding_mode_and_overflow_rule_is_on_the_arithmetic_page(name):
    assert f"| `{name}`" in (ROOT / "docs" / "arithmetic.md").read_text(encoding="utf-8")


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
