"""`emu export c`: its options are those of `emu vectors`, and a device's formats and unit are taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.options import UnitOptions, VectorOptions
from emu.errors import ConfigError
from emu.export.c import files_of
from emu.testing.vectors import Description


def exported(*words: str) -> list[str]:
    done = CliRunner().invoke(app, ["export", "c", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_its_options_are_those_of_vectors_that_describe_a_unit():
    assert set(VectorOptions.__annotations__) - set(UnitOptions.__annotations__) == {"count", "seed"}


def test_files_are_those_of_the_description(tmp_path: Path):
    given = {"rounding": "stochastic", "overflow": "wrap", "n_rbits": 7, "depth": 3}
    unit = {"product": "fix12f6", "accumulator": "fix20f8", "order": "pairwise"}
    modes = {"mac_rounding": "floor", "mac_overflow": "saturate"}
    words = [w for key, value in {**given, **unit, **modes}.items() for w in (f"--{key.replace('_', '-')}", str(value))]
    formats = ("--formats", "fix8f4, fix8f4", "--out-format", "fix8f4")
    printed = exported("matmul", *formats, *words, "--name", "dot", "--out", str(tmp_path / "unit"))
    assert printed == [str(tmp_path / "unit" / name) for name in ("dot.c", "dot.h")]
    mac = {**unit, "rounding": "floor", "overflow": "saturate"}
    d = Description(operation="matmul", formats=["fix8f4", "fix8f4"], out_format="fix8f4", mac=mac, **given)
    for name, text in files_of(d, "dot").items():
        assert (tmp_path / "unit" / name).read_text() == text


def test_data_are_the_function_and_its_files(tmp_path: Path):
    formats = ("--formats", "fp16", "--out-format", "fix8f4", "--tininess", "after_rounding")
    printed = exported("quantize", *formats, "--name", "narrow", "--out", str(tmp_path), "--json")
    files = [str(tmp_path / name) for name in ("narrow.c", "narrow.h")]
    assert json.loads("\n".join(printed)) == {"function": "narrow", "files": files}


def test_a_device_gives_formats_and_unit(tmp_path: Path):
    exported("matmul", "--device", "fixed8", "--name", "mac8", "--out", str(tmp_path))
    header = (tmp_path / "mac8.h").read_text()
    assert "a: fix" in header
    assert "uint64_t mac8(const uint64_t *a, const uint64_t *b, size_t k, uint32_t *flags);" in header


def test_missing_formats_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="`--out-format` must be given unless `--device` is, got nothing; add it"):
        exported("add", "--formats", "fp16,fp16", "--name", "unit", "--out", str(tmp_path))
