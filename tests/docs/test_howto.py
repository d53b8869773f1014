"""The steps of docs/howto/, done by nothing but what the pages say, on a copy of the package."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from documents import ROOT, blocks_of, named_files

from emu.report.run_data import read_run

#: In the order in which they are followed: a page may use what those before it added.
NAMES = (
    "device", "format", "rounding", "way", "layer", "primitive", "policy", "loss-scale", "system", "picture", "model",
)  # fmt: skip
#: Pages that add nothing to the package: other tests follow them.
OTHERS = {"index.md", "dumps.md", "c-model.md", "rtl.md", "cocotb.md", "check-your-mac.md"}
PAGES = [ROOT / "docs" / "howto" / f"{name}.md" for name in NAMES]
PACKAGE = ("emu", "devices", "models", "costs", "kernels")


def blocks(language: str) -> list[str]:
    return [block.text for page in PAGES for block in blocks_of(page) if block.language == language]


def changes_of(page: Path) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == "diff"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package with every file and every change of the pages."""
    for part in PACKAGE:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for page in PAGES:
        for name, text in named_files(page).items():
            (tmp_path / name).write_text(text)
    apply_changes(tmp_path, PAGES)
    return tmp_path


def apply_changes(folder: Path, pages: list[Path]) -> None:
    """Make the changes of pages, in order."""
    for diff in (text for page in pages for text in changes_of(page)):
        subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=folder, env=no_repository(folder), check=True)


def changed_by(texts: list[str]) -> set[str]:
    """The files that diffs change or add."""
    return {line.removeprefix("+++ b/") for text in texts for line in text.splitlines() if line.startswith("+++ ")}


def no_repository(folder: Path) -> dict[str, str]:
    """An environment in which git takes the folder for itself, whatever lies around it."""
    return {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}


def python_in(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy of the package in a folder, with variables of the environment."""
    environment = {**no_repository(folder), "PYTHONPATH": str(folder), **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_page_that_adds_something_is_followed():
    assert {page.name for page in (ROOT / "docs" / "howto").glob("*.md")} == {page.name for page in PAGES} | OTHERS


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_changes_at_most_two_files(page: Path):
    assert 1 <= len(changed_by(changes_of(page)) | named_files(page).keys()) <= 2


@pytest.mark.parametrize("page", [page for page in PAGES if changes_of(page)], ids=lambda page: page.stem)
def test_the_changes_of_a_page_fit_the_files_as_they_are(page: Path, tmp_path: Path):
    for name in changed_by(changes_of(page)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path / name)
    apply_changes(tmp_path, [page])
    for name in changed_by(changes_of(page)):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert not (ROOT / name).exists() or text != (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            compile(text, name, "exec")


def test_a_named_format_takes_one_file_and_every_backend_knows_it(tmp_path: Path):
    """Nothing but the change of its page, on a copy of the package."""
    shutil.copytree(ROOT / "emu", tmp_path / "emu", ignore=shutil.ignore_patterns("__pycache__"))
    page = ROOT / "docs" / "howto" / "format.md"
    assert len(changed_by(changes_of(page))) == 1
    apply_changes(tmp_path, [page])
    environment = no_repository(tmp_path)
    script = (
        "import emu; f = emu.parse('fp8_e3m4'); c = f.codes()[:112]; print(emu.__file__, f, f.max, "
        "f.encode(f.decode(c)).tolist() == c.tolist(), emu.quantize([1.1, 99.0], f, backend='reference').tolist())"
    )
    environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split(maxsplit=1) == [
        str(tmp_path / "emu" / "__init__.py"),
        "fp8_e3m4 15.5 True [1.125, inf]\n",
    ]


def test_a_way_takes_two_files_and_has_the_definitions_bits(tmp_path: Path):
    """Nothing but the changes of its page, on a copy of the package, and the script that the page shows."""
    for part in PACKAGE:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    page = ROOT / "docs" / "howto" / "way.md"
    apply_changes(tmp_path, [page])
    [script] = [block.text for block in blocks_of(page) if block.language == "py"]
    done = python_in(tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("; one multiplication a result\n")


def test_a_layer_takes_one_file_and_a_recipe_trains_with_it(tmp_path: Path):
    """Nothing but the change of its page, on a copy of the package."""
    for part in ("emu", "devices", "costs"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    page = ROOT / "docs" / "howto" / "layer.md"
    assert changed_by(changes_of(page)) == {"emu/nn/layers.py"}
    apply_changes(tmp_path, [page])
    recipe = {
        "name": "tiny",
        "network": {
            "input": [1, 8, 8],
            "classes": 10,
            "layers": [{"type": "flatten"}, {"type": "swish"}, {"type": "linear", "out_features": 10}],
        },
        "training": {"steps": 1, "batch": 2, "optimiser": {"name": "sgd", "learning_rate": 0.1}},
        "data": {"test_images": 2},
    }
    script = (
        "import sys, emu; from emu import nn; from emu.training import Recipe\n"
        f"recipe = Recipe.model_validate({recipe!r})\n"
        "print(emu.__file__, recipe.network.built()[1] == nn.Swish('swish1'))\n"
        "run = emu.train(recipe, 'float32', out=sys.argv[1], backend='reference')\n"
        "print(run.info['layers'], run.info['steps'])\n"
        "settings = {'precision.layers': [{'match': 'swish1.gate', 'activation': {'format': 'fix62f3'}}]}\n"
        "try: emu.train(recipe.with_settings(settings), 'float32', out=sys.argv[1] + '2', backend='reference')\n"
        "except emu.ConfigError as refused: print(refused)"
    )
    done = python_in(tmp_path, "-c", script, str(tmp_path / "run"))
    assert done.stdout.splitlines() == [
        f"{tmp_path / 'emu' / '__init__.py'} True",
        "['input', 'flatten1', 'swish1.gate', 'swish1', 'linear1', 'loss'] 1",
        "`precision.activation.format` of layer 'swish1.gate' must fit float64 exactly as the result of sigmoid, got "
        "fix62f3; choose a narrower format",
    ], done.stderr


#: A network that has the primitive of its page, its derivative, and what its run says.
SQUARED = """
import json
import numpy as np
from dataclasses import dataclass
import emu
from emu import nn
from emu.autodiff import Operation, Value, check_gradient
from emu.hardware import Machine, load_device
from emu.precision import Policy
from emu.precision.shapes import ShapeArray, ShapeRunner

@dataclass(frozen=True)
class Square(nn.Layer):
    def forward(self, graph, x, parameters):
        return graph.apply("square", x, layer=self.name)

network = nn.Network((nn.Flatten("flat"), nn.Linear("first", 784, 8), Square("square"), nn.Linear("second", 8, 10)))
short = {"training.steps": 2, "training.batch": 8, "data.test_images": 10}
run = emu.train("mlp", "dlu16", out="runs/squared", overrides=short, network=network, backend="reference", report=False)
device = load_device("dlu16")
shapes = ShapeRunner(Policy(device.precision))
tensor = Value(ShapeArray((8, 8), float), emu.parse("fix16f8"))
shapes.run(Operation("square", (tensor,), {}), "activation", "square")
asked = shapes.demands[0]
assert Machine(device).time_of(asked).duration_ps > 0
x = np.random.default_rng(1).normal(size=(3, 4))
tape, difference = check_gradient(lambda graph, inputs: graph.apply("square", *inputs, layer="l"), [x])
print(json.dumps([emu.__file__, "square" in run.info["layers"], [asked.results, asked.kind], tape / difference]))
"""


def test_a_network_trains_with_the_primitive_that_a_reader_adds(tmp_path: Path):
    """Nothing but the changes of its page, on a copy of the package."""
    for part in PACKAGE:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    apply_changes(tmp_path, [ROOT / "docs" / "howto" / "primitive.md"])
    done = python_in(tmp_path, "-c", SQUARED)
    assert done.returncode == 0, done.stderr
    path, has_layer, asked, ratio = json.loads(done.stdout.splitlines()[-1])
    assert path == str(tmp_path / "emu" / "__init__.py")
    assert has_layer
    assert asked == [64, "forward"]
    assert ratio == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_a_reader_adds_one_of_each_by_the_pages_alone(package: Path):
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(commands) == 13
    printed = ""
    for command in commands:
        name, *arguments = command.split()
        assert name == "emu"
        done = python_in(package, "-m", "emu", *arguments)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        printed += done.stdout
    assert "fp8_e3m4" in printed
    assert "gate.gate" in (package / "runs" / "gated" / "run.json").read_text()
    leading, largest = (
        json.loads((package / "runs" / name / "run.json").read_text()) for name in ("leading", "largest")
    )
    assert largest["weights_sha256"] != leading["weights_sha256"]
    assert largest["metrics"]["overflow_rate"] < leading["metrics"]["overflow_rate"]
    scales = read_run(package / "runs" / "scaled").tables["loss_scaling.parquet"]["scale"]
    assert scales.tolist() == [256.0, 512.0, 1024.0, 2048.0, 4096.0]
    stalled = pq.read_table(package / "runs" / "stalled" / "stalled.parquet").to_pydict()
    assert stalled["step"] == [2] * 6 + [4] * 6
    assert stalled["parameter"][:2] == ["fc1.weight", "fc1.bias"]
    assert all(still < whole for still, whole in zip(stalled["stalled"], stalled["elements"], strict=True))
    assert stalled["stalled"][0] > stalled["stalled"][6] > 0
    report = (package / "runs" / "pictured" / "report.html").read_text()
    assert '<h2 id="inexact-title">Rounded results</h2>' in report
    assert "Most results are rounded in " in report


@pytest.mark.slow
def test_the_mode_that_a_reader_adds_is_the_same_on_every_backend(package: Path):
    """By the command of its page: the tests that are drawn from the table, of the reference, loops and kernels."""
    shutil.copytree(ROOT / "tests", package / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", package)
    page = ROOT / "docs" / "howto" / "rounding.md"
    [[variable, *command]] = [shlex.split(block.text) for block in blocks_of(page) if block.language == "sh"]
    assert variable == "EMU_CASES=all"
    options = ["-n", "0", "-k", "to_even or numbers", "-rp", "--no-header"]
    done = python_in(package, "-m", *command, *options, EMU_CASES="all")
    assert done.returncode == 0, done.stdout + done.stderr
    where = ["to_even-reference", "to_even-plain loops", "to_even-vector code"]
    kernels = ["source-to_even"] if shutil.which("g++") else []
    for case in [f"[{place}-{dtype}]" for place in [*where, *kernels] for dtype in ("float32", "float64")]:
        assert f"test_every_mode_steps_as_the_table_says{case}" in done.stdout, done.stdout
    assert "test_numbers_of_modes_are_promises" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed: pip install -e '.[lint]'")
def test_what_the_pages_change_is_formatted_and_clean(package: Path):
    shutil.copy(ROOT / "pyproject.toml", package)
    changed = sorted(name for name in changed_by(blocks("diff")) if name.endswith(".py"))
    assert len(changed) == 14
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", *changed],
            cwd=package,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
