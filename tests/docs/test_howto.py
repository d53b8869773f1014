"""The steps of docs/howto.md, done by nothing but what the page says, on a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks_of, named_files

PAGE = ROOT / "docs" / "howto.md"


@pytest.mark.slow
def test_a_reader_adds_a_device_a_format_a_layer_and_a_model_by_the_page_alone(tmp_path: Path):
    for part in ("emu", "devices", "models", "kernels"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in named_files(PAGE).items():
        (tmp_path / name).write_text(text)
    for block in blocks_of(PAGE):
        if block.language == "diff":
            subprocess.run(["git", "apply", "-"], input=block.text, text=True, cwd=tmp_path, check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    commands = [line for block in blocks_of(PAGE) if block.language == "bash" for line in block.text.splitlines()]
    assert len(commands) == 7
    printed = ""
    for command in commands:
        name, *arguments = command.split()
        assert name == "emu"
        done = subprocess.run(
            [sys.executable, "-m", "emu", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        printed += done.stdout
    assert "fp6_e3m2" in printed
    assert "gate.gate" in (tmp_path / "runs" / "gated" / "run.json").read_text()
