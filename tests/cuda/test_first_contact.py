"""The first command that runs on a GPU: rehearsed without one, its golden hashes held against the host's backends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import some_of

from emu.backends.cuda import loader, nvrtc

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "first_contact.py"
no_gpu = pytest.mark.skipif(loader.status().state == "ready", reason="there is a GPU: the script would use it")
needs_compilers = pytest.mark.skipif(
    shutil.which("g++") is None or not nvrtc.is_here(), reason="no g++, or no NVRTC: pip install '.[nvrtc]'"
)


def recorded(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "first_contact.json").read_text())


def contact(folder: Path, *options: str, modules: Path | None = None) -> dict[str, Any]:
    """Run the script as a user does, and return its record."""
    path = [str(modules)] if modules else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, str(SCRIPT), "--out", str(folder), *options]
    subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return recorded(folder)


def scripted(folder: Path, lines: str) -> dict[str, Any]:
    """Run lines with the script imported as `contact`, and return the record."""
    before = f"import sys; sys.path[:0] = {[str(BENCHMARKS), str(BENCHMARKS.parent)]!r}\n"
    before += f"from pathlib import Path\nimport first_contact as contact\nfolder = Path({str(folder)!r})\n"
    subprocess.run([sys.executable, "-c", before + lines], check=True, capture_output=True)
    return recorded(folder)


@no_gpu
@pytest.mark.slow
@pytest.mark.parametrize("state", some_of(["absent", "no device"], 2))  # a minute each
def test_without_a_gpu_the_record_is_complete_and_says_what_is_missing(state: str, tmp_path: Path):
    modules = None
    if state == "no device":
        (tmp_path / "cupy.py").write_text("__version__ = '14.2.0'\ndef is_available(): return False\n")
        modules = tmp_path
    elif loader.status().state != "absent":
        pytest.skip(loader.status().reason)
    record = contact(tmp_path / "out", modules=modules)
    assert record["complete"]
    assert record["items"]["versions"]["cuda backend"]["state"] == state
    assert "failed" not in record["states"]
    assert record["items"]["bits narrow"]["state"] == "lacks something"
    said = "CuPy is not installed" if state == "absent" else "CuPy sees no GPU"
    assert said in record["items"]["training dlu16"]["reason"]


@pytest.mark.slow
@needs_compilers
def test_every_item_is_rehearsed_on_the_host_with_the_golden_bits(tmp_path: Path):
    record = contact(tmp_path / "out", "--rehearse", "--seconds", "1500")
    unfinished = {name: entry for name, entry in record["items"].items() if entry["state"] != "done"}
    assert not unfinished
    assert record["complete"]
    assert record["items"]["bits products"]["right"] == 15
    assert record["items"]["training fixed16"]["hashes_equal"]


@needs_compilers
def test_another_bit_is_found_and_named(tmp_path: Path):
    lines = """
import json
golden = json.loads(contact.GOLDEN.read_text())
golden["cases"]["selection"] = "0" * 64
contact.GOLDEN = folder / "golden.json"
contact.GOLDEN.write_text(json.dumps(golden))
contact.Record(folder).begin(10, True)
contact.run_item(folder, "bits selection", True)
"""
    entry = scripted(tmp_path, lines)["items"]["bits selection"]
    assert (entry["state"], entry["right"], list(entry["wrong"])) == ("failed", 0, ["selection"])


def test_an_item_that_hangs_or_breaks_stops_no_other(tmp_path: Path):
    lines = """
contact.item_names = lambda: ["compile", "no such item", "versions"]
contact.MOST_SECONDS["compile"] = 0.01
contact.run_all(folder, 60, False)
"""
    record = scripted(tmp_path, lines)
    states = {name: entry["state"] for name, entry in record["items"].items()}
    assert states == {"compile": "failed", "no such item": "failed", "versions": "done"}
    assert record["items"]["compile"]["reason"].startswith("not done after")
    assert record["complete"]


def test_no_item_begins_when_the_time_is_over(tmp_path: Path):
    record = scripted(tmp_path, "contact.run_all(folder, 1, False)\n")
    assert {entry["state"] for entry in record["items"].values()} == {"no time was left"}
    assert record["complete"]


def test_the_golden_hashes_are_those_of_the_cases():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import contact_cases
    finally:
        sys.path.remove(str(BENCHMARKS))
    golden = json.loads((BENCHMARKS / "golden_bits.json").read_text())["cases"]
    assert [name for name, _ in contact_cases.cases()] == list(golden)
    for name, case in contact_cases.cases():
        if name.startswith(("selection", "tables", "functions")) or "fix8f4" in name:
            assert case(np.asarray, "reference").sha256() == golden[name], name


@pytest.mark.slow
def test_all_golden_hashes_are_the_hosts(tmp_path: Path):
    lines = "import numpy as np, contact_cases, json\n"
    lines += "golden = json.loads(contact.GOLDEN.read_text())\n"
    lines += "for name, case in contact_cases.cases():\n"
    lines += "    for backend in ('reference', 'numba'):\n"
    lines += "        assert case(np.asarray, backend).sha256() == golden['cases'][name], (backend, name)\n"
    lines += "for name, hashes in golden['training'].items():\n"
    lines += "    assert contact.trained(name, 'numba', 20)[0] == hashes['20'], name\n"
    lines += "contact.Record(folder).begin(0, False)\n"
    scripted(tmp_path, lines)
