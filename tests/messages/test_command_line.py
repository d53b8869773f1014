"""The command: tables for people, one line and exit code 2 for what cannot be."""

from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import Run, running

from emu.hardware import device_names
from emu.training.recipe import model_names


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; gives exit code, stdout and stderr."""
    return running(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["devices", "fixed61"],
            "emu: a device must be the name of a shipped device or the path of a .toml file, got 'fixed61'; did you "
            "mean "
            "'fixed16'?\n",
        ),
        (["formats", "fix65f0"], "emu: `width_bits` must be in 1..64, got 65; choose a smaller one\n"),
        (
            ["models", "lenett"],
            "emu: a model must be the name of a shipped model or the path of a .toml file, got 'lenett'; did you mean "
            "'lenet'?\n",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, arguments: list[str], expected: str):
    assert run(*arguments) == (2, "", expected)


@pytest.mark.parametrize("options", [[], ["--rows", "*", "--quick"], ["--out", "speed.md", "more"]])
def test_the_old_command_for_speed_names_the_new_one(run, options: list[str]):
    assert run("bench", *options) == (2, "", "emu: `emu bench` is now `python -m benchmarks`, in a checkout\n")


def test_the_help_lists_no_command_that_is_gone(run):
    code, out, _ = run("--help")
    assert (code, "simulate" in out, "bench" in out) == (0, True, False)


def test_the_module_runs_like_the_command():
    done = subprocess.run([sys.executable, "-m", "emu", "formats", "fp61"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("got 'fp61'; did you mean 'fp64'?\n")


def test_the_version_is_the_packages(run):
    from importlib.metadata import version

    assert run("--version") == (0, f"emu {version('emu-numerics')}\n", "")


def test_devices_lists_every_shipped_device(run):
    code, out, _ = run("devices")
    assert code == 0
    assert all(name in out for name in device_names())


def test_models_lists_every_shipped_model(run):
    code, out, _ = run("models")
    assert code == 0
    assert all(name in out for name in model_names())
    assert "61706" in out  # LeNet-5's weights and biases: 156 + 2416 + 48120 + 10164 + 850


@pytest.mark.parametrize("name", device_names())
def test_every_device_can_be_shown(run, name: str):
    code, out, _ = run("devices", name)
    assert code == 0
    assert "accumulator" in out
    assert "counters of 32 bits, which stop at their largest" in " ".join(out.split())


@pytest.mark.parametrize("name", model_names())
def test_every_model_can_be_shown(run, name: str):
    assert run("models", name)[0] == 0


def rows(out: str) -> dict[str, str]:
    """The rows of a listing: first cell to the others, single spaces."""
    cells = [[" ".join(cell.split()) for cell in line.split("  ") if cell.strip()] for line in out.splitlines()]
    return {row[0]: " | ".join(row[1:]) for row in cells if len(row) > 1}


def test_a_fixed_format_is_shown_with_its_range_and_codes(run):
    shown = rows(run("formats", "fix16f8")[1])
    assert shown["range"] == "-128 to 127.99609375"
    assert shown["layout"] == "s iiiiiii.ffffffff"
    assert shown["ulp"] == "2**-8 = 0.00390625, the same everywhere"
    assert shown["smallest"] == "0x8000 | 1 0000000.00000000 | -128"
    assert shown["one"] == "0x0100 | 0 0000001.00000000 | 1"


def test_a_float_format_is_shown_with_its_special_codes_and_ulps(run):
    shown = rows(run("formats", "fp16")[1])
    assert shown["range"] == "-65504 to 65504"
    assert shown["infinity"] == "0x7c00 | 0 11111 0000000000 | inf"
    assert shown["NaN, as written"] == "0x7e00 | 0 11111 1000000000 | nan"
    assert shown["smallest subnormal"] == "0x0001 | 0 00000 0000000001 | 2**-24 ≈ 5.96046e-08"
    assert shown["smallest normal"] == "0x0400 | 0 00001 0000000000 | 6.103515625e-05"
    assert shown["1000"] == "2**-1 = 0.5 | 0.0005"
    assert shown["negative zero"] == "0x8000 | 1 00000 0000000000 | -0"


def test_a_format_with_options_needs_no_quotes(run):
    shown = rows(run("formats", "e4m3", "finite", "nans=top")[1])
    assert shown["special values"] == "no inf, 2 NaN codes, ±0"
    assert shown["range"] == "-448 to 448"


def test_a_text_that_brings_modes_shows_them(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "130")
    shown = rows(run("formats", "ap_fixed<16,8>")[1])
    assert shown["rounding"] == "floor, AP_TRN by default, unless another one is given"
    assert shown["out of range"] == "wrap, AP_WRAP by default, unless another one is given"
    assert shown["also written"] == "sfix16_En8, Q7.8 (sign not counted), ap_fixed<16,8> (truncates and wraps)"
    shown = rows(run("formats", "ac_fixed<16,8,true,AC_RND,AC_SAT>")[1])
    assert (shown["rounding"], shown["out of range"]) == ("nearest_up, AC_RND", "saturate, AC_SAT")
    assert "rounding" not in rows(run("formats", "fix16f8")[1])


@pytest.mark.parametrize(
    "name",
    ["fix1f0", "ufix1f0", "fix64f63", "ufix64f0", "fix8f-2", "fix8f2000", "fix64f-4000", "ufix4f9", "fix16f?", "fp64",
     "e10m0 finite nans=none", "e2m0 nans=top finite", "fp16 ftz daz", "e4m3fnuz", "e8m0 finite nans=none"],
)  # fmt: skip
def test_odd_formats_are_shown_too(run, name: str):
    code, out, err = run("formats", name)
    assert (code, err) == (0, "")
    assert out


def test_without_a_name_the_presets_are_listed(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "130")
    code, out, _ = run("formats")
    assert code == 0
    assert rows(out)["fp8_e4m3"] == "8 | 448 | 0.015625 | 0.00195312 | 0.125 | no inf, 2 NaN codes, ±0"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("steps = " + "1" * 5000, "Exceeds the limit (4300 digits) for integer string conversion"),
        ("steps = " + "[" * 3000, "arrays or tables are nested too deeply"),
    ],
)
def test_toml_that_its_parser_gives_up_on_is_refused(run, tmp_path, content: str, said: str):
    file = tmp_path / "x.toml"
    file.write_text(content)
    code, out, err = run("devices", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"emu: a configuration file must be TOML, got an error in {file}: {said}")
    assert err.count("\n") == 1


def test_a_setting_of_thousands_of_digits_is_refused(run):
    code, _, err = run("train", "mlp", "--set", "training.steps=" + "1" * 5000)
    assert code == 2
    assert len(err) < 1000
    assert err.startswith("emu: `steps` must be an integer, got '111")


def test_the_middle_of_a_long_message_is_left_out(run, tmp_path):
    code, _, err = run("devices", "x" * 3000)
    assert code == 2
    assert " ... " in err
    assert len(err) < 1000


@pytest.mark.parametrize("command", ["report", "watch", "evaluate", "checkpoint"])
def test_a_name_that_no_file_can_have_is_refused(run, command: str):
    code, out, err = run(command, 300 * "x")
    assert (code, out) == (2, "")
    assert err.startswith("emu: a path must be one that the system opens, got 'File name too long' for '")
    assert err.endswith("'; check the path\n")


def test_arrays_beyond_the_memory_are_refused(run, monkeypatch):
    def greedy() -> None:
        raise MemoryError("Unable to allocate 7.45 EiB")

    monkeypatch.setattr("emu.cli.listings.all_devices", greedy)
    assert run("devices") == (
        2, "", "emu: the arrays must fit the memory, got Unable to allocate 7.45 EiB; choose smaller sizes\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"formats": [{"layer": "a"}]}', "`role` must be given, got nothing in"),
        (
            '{"formats": [{"layer": "a", "role": "weight", "format": "fp16", "rounding": ["x"]}]}',
            "`rounding` must be text",
        ),
        ('{"layers": 3}', "`layers` must be an array, got 3"),
        ('{"status": "\\ud800"}', "run.json must be JSON, got 'utf-8' codec can't encode character"),
        ("[" * 100000, "run.json must be JSON, got arrays or objects nested too deeply"),
    ],
)
def test_a_report_of_a_damaged_run_json_is_refused(run, tmp_path, content: str, said: str):
    (tmp_path / "run.json").write_text(content)
    code, _, err = run("report", str(tmp_path))
    assert code == 2
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
