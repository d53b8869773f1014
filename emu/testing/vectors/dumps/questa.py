"""The memory files of Questa and ModelSim, as `mem save` writes them.

    // memory data file (do not edit the following line - required for mem load use)
    // instance=/tb/results
    // format=mti addressradix=d dataradix=h version=1.0 wordsperline=4
      0: 3c00 4000 xxxx 7c00

Radixes of addresses and of words are those of its third line; words of radix `d` (signed), `u` (unsigned), `b`, `o`,
`h`, `s` (symbolic, which is binary). Lines of `format=hex` and `format=bin` are as `$readmemh` and `$readmemb` read
them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from emu.errors import ConfigError
from emu.testing.vectors.dumps.dump import Dump, Reading, text_of
from emu.testing.vectors.dumps.memory import Addressed, addressed, read_memory

FIRST_LINE = "// memory data file"
_RADIXES = {"h": "hex", "d": "decimal", "u": "decimal", "b": "binary", "s": "binary", "o": "octal"}
_BASES = {"h": 16, "d": 10, "u": 10, "o": 8, "b": 2}
#: Formats of text with @addresses, whose names say the radix of the words.
_OF_TEXT = {"hex": "hex", "h": "hex", "bin": "binary", "b": "binary"}
_KEY = re.compile(r"(\w+)=(\S+)")


def read_questa(path: Path, reading: Reading) -> Dump:
    """Read a memory file of Questa or ModelSim.

    Raises:
        ConfigError: it is damaged, or of a radix that is unknown.
    """
    keys: dict[str, str] = {}
    elements, address = list[Addressed](), 0
    for number, line in enumerate(text_of(path).splitlines(), 1):
        where = f"line {number} of {path}"
        if line.lstrip().startswith("//"):
            # options are in comments of the head
            keys |= dict(_KEY.findall(line))
            continue
        before, colon, after = line.partition(":")
        if colon:
            address = _address(before, keys.get("addressradix", "d"), where)
        for word in (after if colon else line).split():
            elements.append(Addressed(address, word, where))
            address += 1
    if (text := keys.get("format")) in _OF_TEXT:
        return read_memory(path, replace(reading, radix=_OF_TEXT[text]))
    radix = keys.get("dataradix", "s")
    if radix not in _RADIXES:
        raise ConfigError(f"`dataradix` must be one of {', '.join(_RADIXES)}, got {radix!r} in {path}; save it in hex")
    return addressed(path, elements, _RADIXES[radix])


def _address(text: str, radix: str, where: str) -> int:
    if radix not in _BASES:
        raise ConfigError(f"`addressradix` must be one of {', '.join(_BASES)}, got {radix!r}; {where} needs it")
    try:
        return int(text.strip(), _BASES[radix])
    except ValueError:
        raise ConfigError(
            f"an address must be a number of radix {radix!r}, got {text.strip()!r} in {where}; save it again"
        ) from None
