"""The command `emu`, run in the process of a test."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from emu import cli

#: Arguments, and columns of the screen -> exit code, stdout and stderr.
Run = Callable[..., tuple[int, str, str]]


def running(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs the command; without `width`, the screen is that of the test's environment."""

    def command(*arguments: str, width: int | None = None) -> tuple[int, str, str]:
        if width is not None:
            monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "argv", ["emu", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return command
