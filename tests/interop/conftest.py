"""The command `emu`, for tests of networks from elsewhere."""

from __future__ import annotations

import pytest

from tests.command_line import Run, running

#: They import PyTorch, onnxruntime and Brevitas, which tests do without.
collect_ignore = ["make_networks.py", "make_quantised.py", "make_qonnx.py"]


@pytest.fixture
def emu_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capsys)
