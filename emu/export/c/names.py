"""Names that a function can have in C, C++ and SystemVerilog."""

from __future__ import annotations

import re
from collections.abc import Collection

from emu.errors import ConfigError
from emu.export.c.template import TEXTS

# No `_` first: C reserves such names in a file.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
#: Words, and comments after #.
_RESERVED = "reserved.txt"
_ENDINGS = ("f", "l")


def require_name(name: str, used: Collection[str]) -> None:
    """Raise unless a function can have this name.

    Args:
        name: of the function.
        used: other names of its file.

    Raises:
        ConfigError: no identifier, a word that a language or its library has, or a name that the file uses itself.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"`name` must be an identifier of C, letters, digits and _ after a letter, got {name!r}; choose another"
        )
    reserved = _reserved_words()
    # sinf and sinl are the float and long double forms of <math.h>'s sin.
    if name in reserved or (name.endswith(_ENDINGS) and name[:-1] in reserved):
        raise ConfigError(
            f"`name` must be no word of C, C++, SystemVerilog or C's library, got {name!r}; add something to it"
        )
    if name in used:
        raise ConfigError(f"`name` must not be used inside the file, got {name!r}; add something to it")


def _reserved_words() -> set[str]:
    lines = (TEXTS / _RESERVED).read_text(encoding="utf-8").splitlines()
    return {word for line in lines if not line.startswith("#") for word in line.split()}
