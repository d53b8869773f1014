"""What all commands share: help, completion, one line for a wrong word, data in place of text, no blanks at ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from command_line import Run, running

import emu
from emu.cli import app
from emu.formats import PRESETS
from emu.hardware import device_names
from emu.testing.vectors.files import MANIFEST
from emu.training.recipe import model_names

#: All commands that people see, with their options.
COMMANDS: dict[str, Any] = {
    name: command for name, command in typer.main.get_command(app).commands.items() if not command.hidden
}


def prints(command: Any) -> bool:
    """Whether a command, or one of its group, has data to print."""
    parts = getattr(command, "commands", {}).values()
    return any("--json" in option.opts for option in command.params) or any(map(prints, parts))


PRINTING = [name for name, command in COMMANDS.items() if prints(command)]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process, on a screen of 100 columns; gives exit code, stdout and stderr."""
    return partial(running(monkeypatch, capsys), width=100)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, whose weights can be evaluated."""
    folder = tmp_path_factory.mktemp("shared") / "run"
    settings = {"training.steps": 2, "training.batch": 8, "data.test_images": 20}
    emu.train("mlp", "fixed16", out=folder, overrides=settings)
    return folder


@pytest.fixture
def lines(run: Run, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], list[str]]:
    """The arguments of a command line whose words in capitals are files, made where they are needed."""
    vectors, wrong, checkpoint = (tmp_path / name for name in ("vectors", "wrong.hex", "w.safetensors"))

    def filled(line: str) -> list[str]:
        if "VECTORS" in line or "WRONG" in line:
            formats = ("--formats", "fix8f4,fix8f4", "--out-format", "fix8f4", "--count", "6")
            assert run("vectors", "add", *formats, "--out", str(vectors))[0] == 0
            right = (vectors / "result.hex").read_text()
            wrong.write_text(right.replace(right.split()[0], "7e", 1))
        if "CHECKPOINT" in line:
            value = emu.quantize(np.ones((2, 32), np.float32), "mxfp8_e4m3")
            emu.write_checkpoint(checkpoint, {"scaled": value, "plain": np.zeros(3)}, "mxfp8")
        weights = request.getfixturevalue("weights") if "WEIGHTS" in line else None
        names = {
            "CHECKPOINT": checkpoint,
            "WEIGHTS": weights,
            "VECTORS": vectors,
            "RIGHT": vectors / "result.hex",
            "WRONG": wrong,
        }
        return [str(names.get(word, word)).replace("OUT", str(tmp_path / "out")) for word in line.split()]

    return filled


#: A command line of every kind of output, and its exit code.
OUTPUTS = {
    "devices": 0,
    "devices h100": 0,
    "devices dlu8": 0,
    "devices --backends": 0,
    "models": 0,
    "models resnet8": 0,
    "formats": 0,
    "formats fix16f8": 0,
    "formats fix64f3": 0,
    "formats fix16f?": 0,
    "formats fp16": 0,
    "formats ap_fixed<16,8>": 0,
    "checkpoint CHECKPOINT": 0,
    "evaluate WEIGHTS": 0,
    "simulate mlp --device k20x-8x --nodes 1,2": 0,
    "simulate mlp --device fixed16": 0,
    "vectors add --formats fix8f4,fix8f4 --out-format fix8f4 --count 6 --out OUT": 0,
    "export c add --formats fix8f4,fix8f4 --out-format fix8f4 --name add8 --out OUT": 0,
    "check VECTORS RIGHT": 0,
    "check VECTORS WRONG": 1,
}


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("line", OUTPUTS)
def test_no_line_of_an_output_ends_with_blanks(run: Run, lines: Any, line: str, width: int):
    code, out, err = run(*lines(line), width=width)
    assert code == OUTPUTS[line], err
    assert [text for text in (out + err).splitlines() if text != text.rstrip()] == []


@pytest.mark.parametrize(
    "line", ["report WEIGHTS", "train mlp --set training.steps=2 --set training.batch=8 --out OUT"]
)
def test_no_line_of_a_command_that_prints_paths_ends_with_blanks(run: Run, lines: Any, line: str):
    code, out, err = run(*lines(line))
    assert code == 0, err
    assert [text for text in (out + err).splitlines() if text != text.rstrip()] == []


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_short_and_long_help_are_the_same_and_fit_the_screen_without_blanks_at_ends(run: Run, name: str, width: int):
    words = [name] if name else []
    code, short, _ = run(*words, "-h", width=width)
    assert (code, short) == (0, run(*words, "--help", width=width)[1])
    assert "-h, --help" in short
    assert max(map(len, short.splitlines())) <= width
    assert [text for text in short.splitlines() if text != text.rstrip()] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_flags_without_a_value(run: Run, name: str):
    assert "bool" not in run(name, "-h")[1]


def test_help_has_the_whole_first_sentence_of_each_command(run: Run):
    shown = " ".join(run("-h", width=60)[1].split())
    for name, command in COMMANDS.items():
        assert f"{name} {' '.join(command.help.split())}".replace("- ", "-") in shown.replace("- ", "-")
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "a command must be one that `emu -h` lists, got 'trian'; did you mean 'train'?"),
        (["devises", "h100"], "a command must be one that `emu -h` lists, got 'devises'; did you mean 'devices'?"),
        (["--versoin"], "an option must be one that `emu -h` lists, got '--versoin'; did you mean '--version'?"),
        (
            ["train", "lenet", "--devcie", "fixed16"],
            "an option must be one that `emu train -h` lists, got '--devcie'; did you mean '--device'?",
        ),
        (
            ["simulate", "--jsno"],
            "an option must be one that `emu simulate -h` lists, got '--jsno'; did you mean '--json'?",
        ),
        (["simulate"], "missing argument 'model'; `emu simulate -h` lists what it takes"),
        (["train", "--device"], "option '--device' requires an argument; `emu train -h` lists what it takes"),
    ],
)
def test_a_wrong_word_is_one_line_with_the_nearest_right_one(run: Run, arguments: list[str], expected: str):
    assert run(*arguments) == (2, "", f"emu: {expected}\n")


def test_a_word_that_is_near_to_nothing_gets_the_list(run: Run):
    code, _, err = run("zzzz")
    assert code == 2
    assert "known: check, checkpoint, compare, devices, evaluate, " in err
    assert "bench" not in err, "a command that is gone is no suggestion"


def completed(words: str, shell: str = "bash") -> list[str]:
    """What the shell is offered for the last word of a line."""
    environment = {**os.environ, "_EMU_COMPLETE": f"complete_{shell}", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(words.count(" "))
    script = "import sys; sys.argv = ['emu']; from emu.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("emu tr", ["train"]),
        ("emu train le", [name for name in model_names() if name.startswith("le")]),
        ("emu train lenet --device fix", [name for name in device_names() if name.startswith("fix")]),
        ("emu train lenet --backend num", ["numba"]),
        ("emu devices h", [name for name in device_names() if name.startswith("h")]),
        ("emu simulate lenet --cost horo", ["horowitz-45nm"]),
        ("emu simulate lenet --js", ["--json"]),
    ],
)
def test_a_shell_completes_commands_options_and_names(words: str, expected: list[str]):
    assert completed(words) == expected


def test_the_script_of_completion_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "--install-completion" in run("-h")[1]
    assert "`emu --install-completion`" in PAGE


def keys_in(value: Any) -> set[str]:
    """Every key of data, those of a device's or a model's own file left out."""
    if isinstance(value, list):
        return {key for item in value for key in keys_in(item)}
    if not isinstance(value, dict):
        return set()
    inner = (item for key, item in value.items() if key not in ("device", "model"))
    return set(value) | {key for item in inner for key in keys_in(item)}


@pytest.mark.parametrize("line", OUTPUTS)
def test_data_are_json_whose_keys_are_documented_under_their_command(run: Run, lines: Any, line: str):
    code, out, err = run(*lines(line), "--json")
    assert (code, err) == (OUTPUTS[line], "")
    data = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    command = line.split()[0]
    rows = " ".join(row for row in PAGE.splitlines() if row.startswith(f"| `emu {command}"))
    assert rows, f"docs/commands.md has no row for emu {command}"
    keys = keys_in(data) - ({"device", "model"} if command not in ("devices", "models", "simulate") else set())
    assert keys, "no data"
    assert {key for key in keys if f"`{key}`" not in rows} == set()


def test_every_documented_command_prints_data_and_the_others_print_no_table():
    documented = set(re.findall(r"^\| `emu (\w+)", PAGE, re.MULTILINE))
    assert documented == set(PRINTING)
    judged_elsewhere = {"compare", "prove", "search", "sensitivity", "warm"}  # by tests in the folders of those things
    assert documented - {line.split()[0] for line in OUTPUTS} == judged_elsewhere
    assert set(COMMANDS) - set(PRINTING) == {"train", "study", "watch", "report"}


def data_of(run: Run, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--json")[1])


def test_the_data_of_a_table_have_its_rows_in_its_order_and_numbers_as_numbers(run: Run):
    rows = data_of(run, "formats")
    assert [row["name"] for row in rows] == list(PRESETS)
    assert rows[0]["smallest_normal"] == 2.0**-14
    models = {row["model"]: row for row in data_of(run, "models")}
    assert models["lenet"]["parameters"] == 61706
    assert models["lenet"]["input"] == [1, 28, 28]
    assert models["lenet"]["training"] == {"epochs": 15}
    assert [row["device"] for row in data_of(run, "devices")] == device_names()


def test_the_data_of_a_device_are_its_roles_and_its_whole_file(run: Run):
    data = data_of(run, "devices", "h100")
    assert list(data) == ["roles", "device"]
    assert data["roles"][0] == {"role": "weight", "format": "bf16", "rounding": "nearest_even", "overflow": "ieee"}
    assert data["device"]["compute"]["units"]["matrix"]["lanes"]["value"] == 270336


def test_the_data_of_a_model_name_inner_layers_without_the_blanks_that_text_has(run: Run):
    layers = data_of(run, "models", "resnet8")["layers"]
    assert {"layer": "block1.conv1", "type": "conv2d", "output_shape": None, "parameters": 2304} in layers
    assert layers[0] == {"layer": "input", "type": None, "output_shape": [1, 32, 32], "parameters": None}


def test_values_of_codes_are_exact_numbers_and_what_json_lacks_is_text(run: Run):
    codes = {row["name"]: row for row in data_of(run, "formats", "fp16")["codes"]}
    assert codes["smallest subnormal"] == {
        "name": "smallest subnormal", "code": "0x0001", "bits": "0 00000 0000000001", "value": 2.0**-24,
    }  # fmt: skip
    assert (codes["infinity"]["value"], codes["NaN, as written"]["value"]) == ("inf", "nan")
    largest = data_of(run, "formats", "fix64f0")["codes"][0]
    assert largest == {"name": "largest", "code": "0x7fffffffffffffff", "value": 2**63 - 1}
    assert data_of(run, "formats", "fix8f2000")["ulp"] == f"1/{2**2000}"
    assert data_of(run, "formats", "fix8f-2")["ulp"] == 4


def test_the_data_of_an_evaluation_are_shares(run: Run, weights: Path):
    data = data_of(run, "evaluate", str(weights))
    info = json.loads((weights / "run.json").read_text())
    assert data["test_accuracy"] == info["metrics"]["test_accuracy"]
    assert data["weights_sha256"] == info["weights_sha256"]
    assert data["images"] == 20
    shares = [row[f"{name}_share"] for row in data["tensors"] for name in ("overflow", "underflow", "inexact")]
    assert all(0 <= share <= 1 for share in shares)
    assert any(shares)
    text = run("evaluate", str(weights))[1]
    first = data["tensors"][0]
    row = next(line for line in text.splitlines() if line.split()[:2] == [first["layer"], first["role"]])
    assert f"{first['inexact_share']:.2%}" in row
    assert text.splitlines()[0].endswith(f"   +0.00 points to the run on {info['device']['name']}")
    assert "points to the run" not in run("evaluate", str(weights), "--model", "mlp")[1]
    assert f"< 2**{first['largest_exponent'] + 1}" in row


def test_the_data_of_vectors_and_of_a_comparison_say_what_their_text_says(run: Run, lines: Any, tmp_path: Path):
    made = data_of(run, *lines("vectors add --formats fix8f4,fix8f4 --out-format fix8f4 --count 6 --out OUT"))
    assert made["vectors"] == 6
    assert str(tmp_path / "out" / MANIFEST) in made["files"]
    right = data_of(run, *lines("check VECTORS RIGHT"))
    assert (right["is_right"], right["wrong"]) == (True, 0)
    code, out, _ = run(*lines("check VECTORS WRONG"), "--json")
    wrong = json.loads(out)
    assert (code, wrong["is_right"], wrong["wrong"], wrong["results"], wrong["first_wrong"]) == (1, False, 1, 6, 0)
    assert "\n".join(wrong["explanation"]) + "\n" == run(*lines("check VECTORS WRONG"))[1]


def test_an_error_with_json_is_still_one_line_on_stderr(run: Run):
    code, out, err = run("devices", "fixed61", "--json")
    assert (code, out) == (2, "")
    assert err.endswith("did you mean 'fixed16'?\n")
