"""What is said where CUDA cannot compute: without CuPy, with a broken one, without a GPU; everything else works."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu.backends.cuda import layout, loader, nvrtc

#: What stands in a module `cupy` that is found before any other, and what is said of it.
STATES = {
    "broken": ("raise ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
    "no device": ("def is_available(): return False", "sees no GPU: check `nvidia-smi`"),
    "driver": ("def is_available(): raise RuntimeError('cudaErrorInsufficientDriver')", "cudaErrorInsufficientDriver"),
}
SCRIPT = """
import emu
print(emu.backends()["cuda"])
try:
    emu.quantize([1.26], "fix8f4", backend="cuda")
except emu.BackendUnavailable as error:
    print(error)
print(emu.quantize([1.26], "fix8f4", backend="numba").tolist(), emu.quantize([1.26], "fix8f4").tolist())
"""


@most_are_slow("state", STATES, keep=["broken"])
def test_a_cupy_that_cannot_compute_is_named_and_everything_else_works(state: str, tmp_path: Path):
    source, expected = STATES[state]
    (tmp_path / "cupy.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    out = subprocess.check_output([sys.executable, "-c", SCRIPT], env=environment, text=True).splitlines()
    assert expected in out[0]
    assert out[1].startswith("backend 'cuda' cannot compute here: ")
    assert expected in out[1]
    assert out[2] == "[1.25] [1.25]"


def test_without_cupy_the_remedy_is_a_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loader.importlib.util, "find_spec", lambda name: None)
    found = loader.status()
    assert found.state == "absent"
    assert "pip install 'emu-numerics[cuda13]'" in found.reason
    with pytest.raises(emu.BackendUnavailable, match="CuPy is not installed: pip install"):
        loader.CupyDevice()


def test_import_emu_loads_neither_cupy_nor_a_compiler():
    script = "import sys, emu; sys.exit(any(name.split('.')[0] == 'cupy' or 'nvrtc' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nvrtc, "_candidates", lambda: ["/nowhere/libnvrtc.so.13"])
    nvrtc._library.cache_clear()
    with pytest.raises(emu.BackendUnavailable, match=r"not found \(/nowhere/libnvrtc.*pip install nvidia-cuda-nvrtc"):
        nvrtc.version()
    assert not nvrtc.is_here()
    nvrtc._library.cache_clear()


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.is_here(), reason="no NVRTC: pip install '.[nvrtc]'")
def test_code_is_compiled_once_per_content(tmp_path: Path):
    first = loader.compiled("tables", "80", folder=tmp_path)
    written = first.stat().st_mtime_ns
    loader.compiled.cache_clear()
    assert loader.compiled("tables", "80", folder=tmp_path) == first
    assert first.stat().st_mtime_ns == written
    assert loader.compiled("tables", "90", folder=tmp_path) != first
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".cubin", ".cubin"]


def test_code_that_cannot_be_kept_serves_its_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc.Source, "compiled", lambda self, architecture, options: b"code")
    replace = Path.replace

    def full(part: Path, path: Path) -> Path:
        if path.parent == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(part, path)

    (tmp_path / "file").touch()
    monkeypatch.setattr(Path, "replace", full)
    for folder in (tmp_path, tmp_path / "file"):
        path = loader.compiled("tables", "80", folder=folder)
        assert path.read_bytes() == b"code"
        assert tmp_path not in path.parents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    loader.compiled.cache_clear()


@pytest.mark.skipif(not nvrtc.is_here(), reason="no NVRTC: pip install '.[nvrtc]'")
def test_a_source_the_compiler_refuses_is_shown_with_its_message():
    with pytest.raises(emu.BackendUnavailable, match=r"(?s)NVRTC refuses wrong.cu for sm_80.*undefined"):
        nvrtc.compile_kernels("__global__ void f() { undefined_name(); }", "wrong.cu", {}, "80")


def test_a_struct_reaches_cupy_as_an_array_of_one_element_and_no_array_as_a_null_pointer():
    # CuPy 14 takes NumPy arrays of one element by value, of any dtype, and refuses every other one
    device, launched = object.__new__(loader.CupyDevice), []
    device._functions = {(0, "narrow", "kernel", 1): lambda *call, **options: launched.append((call, options))}
    device.xp = SimpleNamespace(cuda=SimpleNamespace(Device=lambda: SimpleNamespace(id=0)))
    numbers = layout.task([1, -2, 2**64 - 1])
    device.launch("narrow", "kernel", 5, 128, (numbers, None, np.int32(7)), 64, 1)
    ((grid, block, given), options), *others = launched
    assert (grid, block, options, others) == ((5,), (128,), {"shared_mem": 64}, [])
    assert (given[0].size, given[0].nbytes) == (1, 8 * layout.TASK_NUMBERS)
    assert np.frombuffer(given[0].tobytes(), np.int64)[:4].tolist() == [1, -2, -1, 0]
    assert given[1:] == (np.uint64(0), np.int32(7))


@pytest.mark.gpu
def test_the_gpu_gives_the_references_bits():
    x = np.random.default_rng(1).normal(0, 40, 5000).astype(np.float32)
    for fmt in ("fix8f4", "fp16", "fp8_e4m3"):
        ours, reference = (emu.quantize(x, fmt, backend=backend) for backend in ("cuda", "reference"))
        assert ours.tobytes() == reference.tobytes()
