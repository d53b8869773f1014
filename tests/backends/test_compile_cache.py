"""The compile cache never serves a kernel of other sources."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from fast_suite import most_are_slow

import emu
from emu.backends.numba.cache import Versions
from emu.backends.numba.compiling import kernel

PRINT_FOLDER = "from emu.backends.numba.cache import cache_folder; print(cache_folder())"


def folder_of(copy: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    command = [sys.executable, "-c", PRINT_FOLDER]
    return subprocess.check_output(command, env=environment, cwd=copy.parent, text=True)


@most_are_slow("source", ["backends/numba/blocks.py", "datapath/registers.py"], keep=["datapath/registers.py"])
def test_a_change_in_any_source_moves_the_compile_cache(source: str, tmp_path: Path):
    copy = tmp_path / "emu"
    shutil.copytree(Path(emu.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = folder_of(copy)
    assert folder_of(copy) == before
    with (copy / source).open("a") as file:
        file.write("# another source\n")
    assert folder_of(copy) != before


def test_what_two_processes_compile_at_once_is_never_mistaken(tmp_path: Path):
    """Neither has seen the other's files: numbered ones would get the same number."""
    mine, theirs = Versions(str(tmp_path), "write-7.py311"), Versions(str(tmp_path), "write-7.py311")
    mine.save(("f32", "cpu", ("a", "b")), "mine")
    theirs.save(("f64", "cpu", ("a", "b")), "theirs")
    for files in (mine, theirs, Versions(str(tmp_path), "write-7.py311")):
        assert files.load(("f32", "cpu", ("a", "b"))) == "mine"
        assert files.load(("f64", "cpu", ("a", "b"))) == "theirs"
        assert files.load(("f64", "cpu", ("a", "c"))) is None


def test_a_damaged_or_renamed_file_is_compiled_anew(tmp_path: Path):
    files = Versions(str(tmp_path), "write-7.py311")
    files.save("f32", "mine")
    files.save("f64", "other")
    mine, other = files._path("'f32'"), files._path("'f64'")
    mine.write_bytes(other.read_bytes())  # another version's content under this name
    assert files.load("f32") is None
    other.write_bytes(b"\x80")
    assert files.load("f64") is None
    files.save("f32", "mine")
    assert files.load("f32") == "mine"
    assert not list(tmp_path.glob("*.nbc.*")), "no parts are left behind"
    files.flush()
    assert files.load("f32") is None


def test_a_file_with_a_flipped_bit_raises_nothing(tmp_path: Path):
    """Flipped bits of a pickle name other modules, attributes, sizes: reading them raises errors of many kinds."""
    files = Versions(str(tmp_path), "write-7.py311")
    files.save("f32", Fraction(1, 3))
    path = files._path("'f32'")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert isinstance(files.load("f32"), Fraction | None), place


def test_a_kernel_that_cannot_be_saved_computes_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def is_full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    @kernel
    def twice(x: float) -> float:
        return 2.0 * x

    twice._cache._cache_file = Versions(str(tmp_path), "twice-1.py311")
    monkeypatch.setattr(Path, "write_bytes", is_full)
    assert twice(1.5) == 3.0
    assert not list(tmp_path.iterdir())


COMPILE_SHAPES = """
import sys
import numpy as np
import emu
order = [8, 12, 16, 20, 24][:: int(sys.argv[1])]
x = np.linspace(-900, 900, 1024, dtype=np.float32)
for width in order:
    for out, mode in ((f"fix{width}f2", "floor"), (f"fix{width}f2", "ceil"), (f"e5m{width // 8}", "nearest_even")):
        expected = emu.quantize(x, out, rounding=mode, backend="reference")
        if not np.array_equal(emu.quantize(x, out, rounding=mode, backend="numba"), expected):
            sys.exit(f"{out} {mode} differs")
"""


@pytest.mark.slow
def test_processes_that_compile_side_by_side_leave_right_kernels(tmp_path: Path):
    environment = {**os.environ, "EMU_CACHE_DIR": str(tmp_path)}
    for _ in range(2):  # compiled by all at once, then read by all
        running = [
            subprocess.Popen([sys.executable, "-c", COMPILE_SHAPES, step], env=environment) for step in ("1", "-1", "1")
        ]
        assert [process.wait() for process in running] == [0, 0, 0]


@pytest.mark.parametrize("wanted", ["0", "-1", "two"])
def test_a_thread_count_that_is_no_positive_integer_is_named(wanted: str, monkeypatch: pytest.MonkeyPatch):
    from emu.backends.numba.compiling import thread_count

    monkeypatch.setenv("EMU_THREADS", wanted)
    thread_count.cache_clear()
    with pytest.raises(emu.ConfigError, match=f"EMU_THREADS must be a positive integer, got '{wanted}'; unset it"):
        thread_count()
    thread_count.cache_clear()


COMPUTE = """
import emu, numpy as np
one = np.ones((200, 200))
print(emu.backends()["numba"])
try:
    emu.quantize([1.26], "fix8f4", backend="numba")
except emu.BackendUnavailable as error:
    print(error)
plan = emu.explain(emu.matmul, one, one, a_format="fp16", b_format="fp16", out_format="fp16")
print(emu.quantize([1.26], "fix8f4").tolist(), plan.path)
"""


def test_where_numba_is_told_to_compile_nothing_the_reference_computes():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    out = subprocess.check_output([sys.executable, "-c", COMPUTE], env=environment, text=True).splitlines()
    reason = "Numba compiles nothing, as NUMBA_DISABLE_JIT is 1: unset it"
    assert out == [reason, f"backend 'numba' cannot compute here: {reason}", "[1.25] definition"]


@pytest.mark.parametrize(
    ("setting", "is_ready"),
    [("", True), ("0", True), ("-0", True), ("true", True), ("1", False), ("-1", False), ("+1", False), (" 2 ", False)],
)
def test_the_setting_that_switches_compilation_off_is_read_as_numba_reads_it(
    setting: str, is_ready: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", setting)
    assert (emu.backends()["numba"] == "ready") is is_ready
