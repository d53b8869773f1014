"""`emu vectors`: each option stands in the manifest at the key it means."""

from __future__ import annotations

import json
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


def manifest(folder: Path, *options: str) -> dict[str, object]:
    formats = ("--formats", "fix8f4, fix8f4", "--out-format", "fix8f4")
    done = CliRunner().invoke(
        app, ["vectors", "matmul", *formats, "--out", str(folder), *options], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["description"]


def test_every_key_of_vectors_and_of_their_unit_has_an_option():
    assert set(VectorOptions.__annotations__) == GIVEN.keys()
    assert set(VectorOptions.__annotations__) - UNIT.keys() == set(Description.model_fields) - NEEDED - {"mac"}
    assert set(UNIT.values()) == set(MacTable.model_fields)


def test_every_option_stands_in_the_manifest(tmp_path: Path):
    words = [word for key, value in GIVEN.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    found = manifest(tmp_path / "vectors", *words)
    assert found.pop("mac") == {key: GIVEN[option] for option, key in UNIT.items()}
    assert found == {
        "operation": "matmul",
        "formats": ["fix8f4", "fix8f4"],
        "out_format": "fix8f4",
        **{key: value for key, value in GIVEN.items() if key not in UNIT},
    }


def test_without_options_every_key_has_its_default_value(tmp_path: Path):
    given = {"operation": "matmul", "formats": ("fix8f4", "fix8f4"), "out_format": "fix8f4", "count": 5}
    assert manifest(tmp_path / "vectors", "--count", "5") == Description(**given).model_dump(mode="json")


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
