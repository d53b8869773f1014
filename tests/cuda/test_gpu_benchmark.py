"""The benchmark of the GPU, as far as it goes without one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emu.backends.cuda import loader

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile CUDA kernels for the host")
@pytest.mark.skipif(loader.status().state == "ready", reason="there is a GPU: the script would measure it")
def test_without_a_gpu_every_row_is_rehearsed_and_the_script_says_what_it_needs():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("rehearsed on the host, bits compared") == 10
    assert "needs a GPU from here on, to measure 10 rows" in done.stderr
