"""Functions that engines are given in tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def squared(number: int) -> int:
    return number * number


def refused(_: int) -> int:
    raise ValueError("no such number")


def killed_until(marks: str, times: int) -> int:
    """Kill the process that runs this, so many times; then return how often that was."""
    found = len(list(Path(marks).iterdir()))
    if found < times:
        (Path(marks) / str(found)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return found
