"""Coefficient files (COE) of Xilinx.

; a comment
memory_initialization_radix = 16;
memory_initialization_vector =
3c00, 4000,
7c00;
"""

from __future__ import annotations

import re
from pathlib import Path

from emu.errors import ConfigError
from emu.testing.vectors.dumps.dump import RESULT, Dump, Reading, text_of
from emu.testing.vectors.dumps.words import codes_of

_RADIXES = {"2": 2, "8": 8, "10": 10, "16": 16}
# a semicolon ends a statement, too: it begins a comment only at the start of a line, and alone in the last line it ends
# the words
_COMMENT = re.compile(r"^[ \t]*;(?!\s*\Z)[^\n]*", re.MULTILINE)
_RADIX = re.compile(r"\bmemory_initialization_radix\s*=\s*(\w+)\s*;", re.IGNORECASE)
_VECTOR = re.compile(r"\bmemory_initialization_vector\s*=([^;]*)(;?)", re.IGNORECASE)
_WORD = re.compile(r"[^\s,]+")


def read_coe(path: Path, reading: Reading) -> Dump:
    """Read a COE file.

    Raises:
        ConfigError: radix or words are missing, or it is cut.
    """
    del reading
    text = _COMMENT.sub("", text_of(path))
    radix, vector = _RADIX.search(text), _VECTOR.search(text)
    if radix is None or radix[1] not in _RADIXES:
        given = "none" if radix is None else repr(radix[1])
        raise ConfigError(f"`memory_initialization_radix` must be 2, 8, 10 or 16, got {given} in {path}; add it")
    if vector is None or not vector[2]:
        raise ConfigError(
            f"`memory_initialization_vector` must be words and a semicolon, got none in {path}; it may be cut, write "
            "it again"
        )
    words = list(_WORD.finditer(vector[1]))
    if not words:
        raise ConfigError(f"a dump must have a word for each vector, got none in {path}; the simulation wrote nothing")

    def where(i: int) -> str:
        # the offset of the word's list in the text, and the word's in the list
        return f"line {text.count(chr(10), 0, vector.start(1) + words[i].start()) + 1} of {path}"

    codes, mask = codes_of([word[0] for word in words], _RADIXES[radix[1]], where)
    return Dump({RESULT: codes}, {RESULT: mask}, str(path))
