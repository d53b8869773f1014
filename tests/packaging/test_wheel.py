"""The wheel holds the devices and models, and finds them without the checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import emu
from emu._paths import content_folder, content_names, find_content, shown
from emu.export.c.template import TEXTS

ROOT = Path(emu.__file__).resolve().parent.parent


def test_the_checkout_has_them_beside_the_package():
    assert content_folder("devices").is_dir()
    assert content_names("devices") == sorted(path.stem for path in content_folder("devices").glob("*.toml"))


def test_the_wheel_has_them_inside_the_package(tmp_path: Path):
    """Another package's `devices` beside it is never read."""
    inside, beside = tmp_path / "emu" / "_data" / "devices", tmp_path / "devices"
    for folder in (inside, beside):
        folder.mkdir(parents=True)
    assert content_folder("devices", tmp_path / "emu") == inside


def test_a_path_wins_over_a_name_only_if_it_looks_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixed16").write_text("not this")
    (tmp_path / "fixed16.toml").write_text("but this")
    assert find_content("devices", "fixed16") == content_folder("devices") / "fixed16.toml"
    assert find_content("devices", "fixed16.toml") == Path("fixed16.toml")
    assert shown(find_content("devices", "fixed16")) == "devices/fixed16.toml"


def built(folder: Path) -> tuple[Path, set[str]]:
    """The wheel's files, laid out as an installer does, and their names."""
    builder = pytest.importorskip("hatchling.builders.wheel")
    wheel = next(iter(builder.WheelBuilder(str(ROOT)).build(directory=str(folder / "dist"))))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
        return folder / "site", set(archive.namelist())


PROGRAM = """
import numpy as np
import emu

unit = emu.Unit("fp16", inputs="fix8f4", rounding="nearest_even")
a = emu.value(np.ones((2, 3)), "fix8f4")
total: float = float(unit.total(a))
flags, register = emu.Flags(), emu.StatisticsRegister(lowest=-4, bins=8)
y = emu.quantize([0.5, 1.25], "fix8f4", flags=flags, register=register)
plan: str = emu.explain(emu.matmul, a, a.array.T, b_format="fix8f4", out_format="fp16").proof
reveal_type(unit)
wrong: int = plan
""".lstrip()
#: Counted from 0: the last line.
WRONG_LINE = PROGRAM.count("\n") - 1


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="no type checker: pip install '.[lint]'")
def test_a_users_program_is_checked_against_the_types_of_the_installed_wheel(tmp_path: Path):
    site, names = built(tmp_path)
    assert "emu/py.typed" in names
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(site)], "typeCheckingMode": "standard"})
    )
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "program.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    found = [
        (d["range"]["start"]["line"], d["severity"], d["message"])
        for d in json.loads(done.stdout)["generalDiagnostics"]
    ]
    assert [line for line, severity, _ in found if severity == "error"] == [WRONG_LINE], found
    assert any(line == WRONG_LINE - 1 and 'Type of "unit" is "Unit"' in message for line, _, message in found), found


@pytest.mark.slow
def test_an_installed_wheel_finds_its_devices_and_models(tmp_path: Path):
    _, names = built(tmp_path)
    for content in ("devices", "models", "costs"):
        assert {f"emu/_data/{content}/{name}.toml" for name in content_names(content)} <= names
    kernels = content_folder("kernels")
    shipped = {path.relative_to(kernels).as_posix() for path in kernels.rglob("*") if path.is_file()}
    assert {f"emu/_data/kernels/{name}" for name in shipped} <= names
    texts = [path for path in TEXTS.rglob("*") if path.is_file()]
    assert {f"emu/export/c/text/{path.relative_to(TEXTS).as_posix()}" for path in texts} <= names
    top = {name.split("/")[0] for name in names}
    assert top == {"emu", next(name for name in top if name.endswith(".dist-info"))}
    script = "import emu, emu.hardware as h, emu.training as t; print(emu.__file__, h.device_names(), t.model_names())"
    # the editable install's path file is not read under -S; the libraries' folder is given by hand
    libraries = [str(Path(pytest.__file__).parent.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *libraries])}
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert done.stdout.strip() == (
        f"{tmp_path / 'site' / 'emu' / '__init__.py'} {content_names('devices')} {content_names('models')}"
    )
