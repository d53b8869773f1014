"""Write into the documentation what its commands print now, after bits changed on purpose.

    python tests/docs/refresh.py

It runs every command whose output a page shows, and those before it, in a temporary folder, as the tests do; and it
lists the bounded constants, and the systems of docs/systems.toml.
"""

from __future__ import annotations

import doctest
import os
import re
import tempfile
from pathlib import Path

import bounds
import systems
from documents import COMPARED, PAGES, Command, commands_of, named_files, run

#: What differs from run to run: wall-clock seconds at the end of a line.
_SECONDS = re.compile(r"\d+(\.\d+)? s *$", re.MULTILINE)


def shown(printed: str) -> str:
    """What a page shows of what was printed."""
    return "\n".join(line.rstrip() for line in _SECONDS.sub("... s", printed).strip("\n").splitlines()) + "\n"


def refreshed(text: str, command: Command) -> str:
    """The page with what a command prints now; as it is if it is right, so that `...` keeps standing for lines."""
    printed = run(command)
    if not command.output or doctest.OutputChecker().check_output(command.output, printed, COMPARED):
        return text
    return text.replace(command.output, shown(printed))


def refresh(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, content in named_files(page).items():
        Path(name).write_text(content)
    commands = list(commands_of(page))
    last = max((i for i, command in enumerate(commands) if command.output), default=-1)
    for command in commands[: last + 1]:
        text = refreshed(text, command)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    bounds.PAGE.write_text(bounds.page(), encoding="utf-8")
    listed = systems.read(systems.DATA.read_text(encoding="utf-8"))
    systems.PAGE.write_text(systems.page(listed), encoding="utf-8")
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            refresh(page)
            os.chdir("/")
