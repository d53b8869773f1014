"""The bench for cocotb drives every handshake, finds faults, and compares through emu."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from rtl_units import cocotb_runner, needs, sources_of

from emu.errors import BackendUnavailable

HERE = Path(__file__).parent


@pytest.mark.slow
@needs("icarus")
@pytest.mark.parametrize(
    ("top", "fault"),
    [
        *((top, 0) for top in ("multiply16_stream", "mac8_start", "dot4")),
        *(("multiply16_stream", fault) for fault in (1, 2, 6, 7)),
    ],
)  # fmt: skip
def test_in_a_simulation(top: str, fault: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runner_module = cocotb_runner()
    monkeypatch.setenv("FAULT", str(fault))
    monkeypatch.setenv("TOP", top)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    runner = runner_module.get_runner("icarus")
    runner.build(
        sources=sources_of(top),
        hdl_toplevel=top,
        parameters={"FAULT": fault},
        build_dir=tmp_path,
        timescale=("1ns", "1ps"),
    )
    results = runner.test(hdl_toplevel=top, test_module="in_cocotb", build_dir=tmp_path, test_dir=tmp_path)
    ran, failed = runner_module.get_results(results)
    assert ran > 0
    assert failed == 0


@pytest.mark.slow
@needs("icarus")
def test_the_page_of_cocotb_runs_as_it_stands(tmp_path: Path):
    cocotb_runner()
    pages = HERE.parents[1] / "docs" / "howto"
    for page, comment in (("rtl", "//"), ("cocotb", "#")):
        text = (pages / f"{page}.md").read_text()
        for name, block in re.findall(rf"^```\w+\n{comment} (\S+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            (tmp_path / name).write_text(block)
    done = subprocess.run([sys.executable, "run_mul8.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "TESTS=3 PASS=3 FAIL=0 SKIP=0" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.skipif(find_spec("cocotb") is not None, reason="cocotb is installed here")
def test_a_bench_says_that_cocotb_is_missing():
    library = import_module("emu.testing.rtl.cocotb")
    with pytest.raises(
        BackendUnavailable, match=r"needs cocotb, which is not installed; pip install 'emu-numerics\[cocotb\]'"
    ):
        library._library("cocotb")
