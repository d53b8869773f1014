"""The wheel holds the devices and models, and finds them without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import emu
from emu._paths import content_folder, content_names, find_content, shown

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


@pytest.mark.slow
def test_an_installed_wheel_finds_its_devices_and_models(tmp_path: Path):
    builder = pytest.importorskip("hatchling.builders.wheel")
    wheel = next(iter(builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "dist"))))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        names = set(archive.namelist())
    for content in ("devices", "models", "costs"):
        assert {f"emu/_data/{content}/{name}.toml" for name in content_names(content)} <= names
    kernels = content_folder("kernels")
    shipped = {path.relative_to(kernels).as_posix() for path in kernels.rglob("*") if path.is_file()}
    assert {f"emu/_data/kernels/{name}" for name in shipped} <= names
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
