"""The compile cache never serves a kernel of other sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import emu

PRINT_FOLDER = "from emu.backends.numba.compiling import cache_folder; print(cache_folder())"


def folder_of(copy: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    command = [sys.executable, "-c", PRINT_FOLDER]
    return subprocess.check_output(command, env=environment, cwd=copy.parent, text=True)


@pytest.mark.parametrize("source", ["backends/interface.py", "backends/numba/blocks.py", "datapath/registers.py"])
def test_a_change_in_any_source_moves_the_compile_cache(source: str, tmp_path: Path):
    copy = tmp_path / "emu"
    shutil.copytree(Path(emu.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = folder_of(copy)
    assert folder_of(copy) == before
    with (copy / source).open("a") as file:
        file.write("# another source\n")
    assert folder_of(copy) != before


@pytest.mark.parametrize("wanted", ["0", "-1", "two"])
def test_a_thread_count_that_is_no_positive_integer_is_named(wanted: str, monkeypatch: pytest.MonkeyPatch):
    from emu.backends.numba.compiling import thread_count

    monkeypatch.setenv("EMU_THREADS", wanted)
    thread_count.cache_clear()
    with pytest.raises(emu.ConfigError, match=f"EMU_THREADS must be a positive integer, got '{wanted}'; unset it"):
        thread_count()
    thread_count.cache_clear()
