"""`import emu` is light: what is heavy is loaded where it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "numba",
    "llvmlite",
    "cupy",
    "sklearn",
    "scipy",
    "pyarrow",
    "altair",
    "pandas",
    "mpmath",
    "pydantic",
    "matplotlib",
)


def loaded_after(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after `statement`."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("statement", ["import emu", "import emu.cli", "import emu; emu.parse('fix16f8').encode"])
def test_nothing_heavy_is_loaded(statement: str):
    assert not loaded_after(statement) & set(HEAVY)


def test_importing_the_package_loads_numpy_alone_of_what_is_installed():
    assert not loaded_after("import emu") & ({"typing_extensions", "filelock", "rich", "typer"} | set(HEAVY))


def test_pictures_are_loaded_when_the_first_one_is_shown():
    script = "import emu, sys; emu.parse('fp16'); print([name for name in sys.modules if 'notebook' in name])\n"
    script += "emu.parse('fp16')._repr_html_(); print('emu.notebook' in sys.modules, 'altair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True False"]


def test_listing_devices_loads_no_compiler():
    script = (
        "import sys; sys.argv = ['emu', 'devices']\nfrom emu.cli import main\ntry:\n    main()\nexcept SystemExit: pass"
    )
    assert not loaded_after(script) & {"numba", "llvmlite", "cupy", "sklearn", "pyarrow"}


def test_reading_the_bundled_digits_loads_no_learning_library():
    statement = "from emu.training.data import load_dataset; from emu.training.recipe import Images\n"
    statement += "load_dataset(Images(), (1, 28, 28), 10)"
    assert not loaded_after(statement) & {"numba", "cupy", "sklearn", "scipy"}


def test_dir_is_what_a_user_may_write_behind_the_dot():
    import emu

    names = dir(emu)
    assert {"train", "evaluate", "device", "model", "matmul", "nn", "formats"} <= set(names)
    assert not {"Any", "importlib", "TYPE_CHECKING", "annotations", "version"} & set(names)
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []
    assert [name for name in names if not hasattr(emu, name)] == []


def test_without_pictures_a_notebook_shows_text():
    script = "import emu, sys; sys.modules['emu.notebook'] = None; print(emu.parse('fp16')._repr_html_())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
