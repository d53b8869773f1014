"""`emu vectors`: each option stands in the manifest at the key it means."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.options import VectorOptions
from emu.cli.vectors import UNIT
from emu.errors import ConfigError
from emu.testing.vectors import read_vectors
from emu.testing.vectors.description import Description, MacTable

NEEDED = {"operation", "formats", "out_format"}
#: An option for each key; none has its default value.
GIVEN = {
    "rounding": "stochastic",
    "overflow": "wrap",
    "n_rbits": 7,
    "depth": 3,
    "product": "fix12f6",
    "accumulator": "fix20f8",
    "order": "pairwise",
    "mac_rounding": "floor",
    "mac_overflow": "saturate",
    "count": 5,
    "seed": 9,
    "tininess": "before_rounding",
}
#: Options of conventions, which not every operation has: of a command, what they are there, and in the manifest.
CONVENTIONS = {
    "stages": ("add fix8f4,fix8f4 fix8f4 --stage 'fix9f4 floor wrap' --stage fp16",
               [{"format": "fix9f4", "rounding": "floor", "overflow": "wrap"},
                {"format": "fp16", "rounding": None, "overflow": None}]),
    "nan": ("add fp16,fp16 fp16 --nan signalling_first", "signalling_first"),
    "nan_code": ("add fp16,fp16 fp16 --nan-code 0xfe00", "0xfe00"),
    "invalid": ("quantize fp16 fix8f0 --invalid indefinite", "indefinite"),
    "zero_sign": ("matmul fp16,fp16 fp16 --zero-sign ieee", "ieee"),
    "also": ("divide fix8f0,fix8f0 fix8f0 --also 'remainder fix8f2 floor'",
             [{"format": "fix8f2", "rounding": "floor", "overflow": None, "operation": "remainder"}]),
    "requantise": ("quantize fix32f0 fix8f0 --requantise 'exact 3*2**-9 zero -5 highest 100'",
                   {"kind": "exact", "multiplier": "3*2**-9", "zero": -5, "lowest": None, "highest": 100,
                    "rounding": None}),
    "statistics": ("add fix8f4,fix8f4 fix8f4 --statistics -4:9", {"lowest": -4, "bins": 9}),
}  # fmt: skip


def manifest(folder: Path, *options: str) -> dict[str, object]:
    formats = ("--formats", "fix8f4, fix8f4", "--out-format", "fix8f4")
    done = CliRunner().invoke(
        app, ["vectors", "matmul", *formats, "--out", str(folder), *options], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["description"]


def test_every_key_of_vectors_and_of_their_unit_has_an_option():
    assert set(VectorOptions.__annotations__) == GIVEN.keys() | CONVENTIONS.keys() | {"flags"}
    assert set(VectorOptions.__annotations__) - UNIT.keys() == set(Description.model_fields) - NEEDED - {"mac"}
    assert set(UNIT.values()) == set(MacTable.model_fields)


def test_every_option_stands_in_the_manifest(tmp_path: Path):
    words = [word for key, value in GIVEN.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    found = manifest(tmp_path / "vectors", *words)
    found = {key: value for key, value in found.items() if key not in CONVENTIONS}
    assert found.pop("mac") == {key: GIVEN[option] for option, key in UNIT.items()}
    assert found == {
        "operation": "matmul",
        "formats": ["fix8f4", "fix8f4"],
        "out_format": "fix8f4",
        **{key: value for key, value in GIVEN.items() if key not in UNIT},
    }


def test_the_command_that_checks_a_dump_names_a_folder_with_a_space_as_a_shell_reads_it(tmp_path: Path):
    formats = ("--formats", "fix8f4,fix8f4", "--out-format", "fix8f4", "--count", "5")
    done = CliRunner().invoke(app, ["vectors", "add", *formats, "--out", str(tmp_path / "of mine")])
    command = done.output.splitlines()[-1].partition("emu ")[2]
    assert shlex.split(command) == ["check", str(tmp_path / "of mine"), "DUMP"]


def test_without_options_every_key_has_its_default_value(tmp_path: Path):
    given = {"operation": "matmul", "formats": ("fix8f4", "fix8f4"), "out_format": "fix8f4", "count": 5}
    expected = Description(**given).model_dump(mode="json", exclude={"flags"})
    assert manifest(tmp_path / "vectors", "--count", "5") == expected


@pytest.mark.parametrize("key", CONVENTIONS)
def test_options_of_conventions_stand_in_the_manifest(key: str, tmp_path: Path):
    command, expected = CONVENTIONS[key]
    operation, formats, out_format, *options = shlex.split(command)
    arguments = ["vectors", operation, "--formats", formats, "--out-format", out_format, *options, "--count", "5"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert content["description"][key] == expected
    assert getattr(read_vectors(tmp_path).description, key) == getattr(
        Description.model_validate(content["description"]), key
    )


def test_whose_flags_they_are_stands_beside_the_description(tmp_path: Path):
    formats = ("--formats", "fp16", "--out-format", "fix8f0", "--count", "5", "--out", str(tmp_path))
    for rule in ("emu", "ieee"):
        done = CliRunner().invoke(app, ["vectors", "quantize", *formats, "--flags", rule], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        content = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
        assert (content["flags"], "flags" in content["description"]) == (rule, False)
        assert read_vectors(tmp_path).description.flag_rule == rule


def test_vectors_of_a_tininess_are_read_again(tmp_path: Path):
    manifest(tmp_path / "vectors", "--count", "5", "--tininess", "after_rounding")
    assert read_vectors(tmp_path / "vectors").description.tininess == "after_rounding"


def test_a_wrong_tininess_names_the_nearest_one(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"`tininess` must be .*, got 'before_roundin' in the command line; did you"):
        manifest(tmp_path / "vectors", "--tininess", "before_roundin")


def test_commas_inside_a_format_do_not_end_it_and_its_modes_stand_in_the_manifest(tmp_path: Path):
    formats = ("--formats", "ap_fixed<16, 8>, Q7.8", "--out-format", "ap_fixed<10,4>")
    unit = ("--accumulator", "ap_fixed<20,10,AP_RND,AP_SAT>")
    done = CliRunner().invoke(
        app, ["vectors", "matmul", *formats, *unit, "--count", "6", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["description"]
    assert found["formats"] == ["ap_fixed<16, 8>", "Q7.8"]
    assert (found["rounding"], found["overflow"]) == ("floor", "wrap")
    wanted = {"accumulator": "fix20f10", "rounding": "nearest_up", "overflow": "saturate"}
    assert found["mac"] == {"product": "exact", "order": "sequential", **wanted}
    read = read_vectors(tmp_path)
    assert read.description.stage.rounding.value == "floor"
    lines = (tmp_path / "result.hex").read_text(encoding="utf-8").split()
    (tmp_path / "dump.hex").write_text("\n".join([f"{int(lines[0], 16) ^ 1:x}", *lines[1:]]), encoding="utf-8")
    assert CliRunner().invoke(app, ["check", str(tmp_path), str(tmp_path / "result.hex")]).exit_code == 0
    checked = CliRunner().invoke(app, ["check", str(tmp_path)], catch_exceptions=False)
    assert checked.exit_code == 1
    assert "1 of 6" in checked.output, checked.output


def test_blocks_are_filled_and_counted(tmp_path: Path):
    given = [
        "vectors",
        "quantize",
        "--formats",
        "bf16",
        "--out-format",
        "nvfp4",
        "--count",
        "100",
        "--out",
        str(tmp_path),
    ]
    done = CliRunner().invoke(app, given, catch_exceptions=False)
    last = f"112 vectors, 7 blocks of 16; check a dump of results with: emu check {tmp_path} DUMP --scales SCALES"
    assert done.output.splitlines()[-1] == last
    assert len((tmp_path / "scale.hex").read_text().split()) == 7


def test_a_file_of_scales_with_too_many_lines_is_of_blocks_even_if_there_is_a_single_block(tmp_path: Path):
    given = ["vectors", "quantize", "--formats", "fp32", "--out-format", "mxfp4_e2m1", "--count", "32"]
    CliRunner().invoke(app, [*given, "--out", str(tmp_path)], catch_exceptions=False)
    scales = tmp_path / "scale.hex"
    lines = scales.read_text().split()
    scales.write_text("\n".join([*lines, "7f"]) + "\n")
    with pytest.raises(ConfigError, match=r"must have 1 lines, one per block, got 2; write it again"):
        CliRunner().invoke(app, ["check", str(tmp_path), str(tmp_path / "result.hex")], catch_exceptions=False)


@pytest.mark.parametrize("scales", [True, False])
def test_a_check_says_whether_scales_were_compared(tmp_path: Path, scales: bool):
    given = ["vectors", "quantize", "--formats", "fp32", "--out-format", "mxfp4_e2m1", "--count", "64"]
    CliRunner().invoke(app, [*given, "--out", str(tmp_path)], catch_exceptions=False)
    options = ["--scales", str(tmp_path / "scale.hex")] if scales else []
    dump = str(tmp_path / "result.hex")
    done = CliRunner().invoke(app, ["check", str(tmp_path), dump, *options], catch_exceptions=False)
    assert done.exit_code == 0
    what = "element and every scale of a block" if scales else "element"
    assert done.output.splitlines()[0] == f"{dump}: every {what} is right, bit for bit"
    missing = "not in the dump, and not compared: the scales of blocks (--scales FILE, or a column scale)"
    assert (missing in done.output) != scales
    codes = Path(dump).read_text(encoding="utf-8").split()
    (tmp_path / "dump.hex").write_text("\n".join([f"{int(codes[0], 16) ^ 1:x}", *codes[1:]]), encoding="utf-8")
    command = ["check", str(tmp_path), *options]
    assert (missing in CliRunner().invoke(app, command, catch_exceptions=False).output) != scales
    done = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert done.exit_code == 1
    data = json.loads(done.stdout)
    assert (data["register"], data["tells"]) == ([], [] if scales else [missing])
