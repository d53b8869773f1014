"""Texts of testbenches, in which `@NAME@` stands for what a unit decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

from emu.errors import ConfigError

#: Texts by the names of their files.
Files = dict[str, str]
_FOLDER = Path(__file__).parent
_MARK = re.compile(r"@([A-Z_]+)@")


def filled(name: str, marks: Mapping[str, object]) -> str:
    """Return the text of a file of this folder with its marks replaced; a list becomes lines."""

    def value(match: re.Match[str]) -> str:
        # a KeyError if a text has a mark that its language does not fill
        mark = marks[match[1]]
        return "\n".join(cast("list[str]", mark)) if isinstance(mark, list) else str(mark)

    text = _MARK.sub(value, (_FOLDER / name).read_text(encoding="utf-8"))
    # a mark without lines leaves an empty line
    return re.sub(r"\n\n\n+", "\n\n", text)


def require_different_signals(ports: Iterable[str], signal_of: Callable[[str], str]) -> None:
    """Check that no two ports have signals of one name.

    Args:
        ports: their names.
        signal_of: returns the name of a port's signal, in which a language may not keep every underscore.

    Raises:
        ConfigError: two have.
    """
    port_of: dict[str, str] = {}
    for port in dict.fromkeys(ports):
        signal = signal_of(port)
        other = port_of.setdefault(signal, port)
        if other != port:
            raise ConfigError(
                f"ports must have signals of different names in a testbench, got {other} and {port}, which are both "
                f"{signal}; rename one of them, or choose another `testbench`"
            )
