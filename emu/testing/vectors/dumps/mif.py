"""Memory initialization files (MIF) of Quartus.

WIDTH = 16;  DEPTH = 4;  ADDRESS_RADIX = HEX;  DATA_RADIX = HEX;
CONTENT BEGIN
    0      : 3c00;
    [1..2] : 0000;      -- a range of one word
    3      : 7c00 7e00; % words from an address on %
END;
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from emu.errors import ConfigError
from emu.testing.vectors.dumps.dump import MOST_BITS, Dump, Reading, text_of
from emu.testing.vectors.dumps.memory import MOST_ELEMENTS, Addressed, addressed

#: Radix as the file writes it -> the name that `addressed` takes, for words; and the base, for addresses.
_RADIXES = {"HEX": "hex", "DEC": "decimal", "UNS": "decimal", "BIN": "binary", "OCT": "octal"}
_BASES = {"HEX": 16, "DEC": 10, "UNS": 10, "BIN": 2, "OCT": 8}
# far above every size: Python reads no numbers of thousands of digits
_SIZE = re.compile(r"[0-9]{1,18}")
_COMMENT = re.compile(r"--[^\n]*|%[^%]*%")
_KEY = re.compile(r"(\w+)\s*=\s*(\w+)\s*;")
_CONTENT = re.compile(r"\bCONTENT\s+BEGIN\b(.*?)(\bEND\s*;|\Z)", re.DOTALL | re.IGNORECASE)
_ENTRY = re.compile(r"\s*(?:(\w+)|\[\s*(\w+)\s*\.\.\s*(\w+)\s*\])\s*:\s*([^;:]+)", re.DOTALL)


def read_mif(path: Path, reading: Reading) -> Dump:
    """Read a MIF file.

    Raises:
        ConfigError: it is damaged, or cut.
    """
    # all readers have this argument; a MIF file says its radix itself
    del reading
    # as many line ends stay, so that messages name the right lines
    text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n") or " ", text_of(path))
    content = _CONTENT.search(text)
    if content is None or not content[2]:
        raise ConfigError(
            f"a MIF file must have CONTENT BEGIN ... END;, got {path} without; it may be cut, write it again"
        )
    keys = {key.upper(): value.upper() for key, value in _KEY.findall(text[: content.start()])}
    radixes = [keys.get(key, "HEX") for key in ("ADDRESS_RADIX", "DATA_RADIX")]
    for radix in radixes:
        if radix not in _RADIXES:
            raise ConfigError(f"a radix of {path} must be one of {', '.join(_RADIXES)}, got {radix!r}; write HEX")
    elements = list[Addressed]()
    offset = content.start(1)
    for entry in content[1].split(";"):
        # the line of the entry's first character after white space
        where = f"line {text.count(chr(10), 0, offset + len(entry) - len(entry.lstrip())) + 1} of {path}"
        offset += len(entry) + 1
        if entry.strip():
            elements += _elements(entry, _BASES[radixes[0]], where)
    dump = addressed(path, elements, _RADIXES[radixes[1]])
    _require_sizes(path, keys, elements, dump, is_signed=radixes[1] == "DEC")
    return dump


def _require_sizes(
    path: Path, keys: Mapping[str, str], elements: Sequence[Addressed], dump: Dump, *, is_signed: bool
) -> None:
    """Check that addresses and words are within the DEPTH and WIDTH that the file says.

    Args:
        path: the file.
        keys: what its head says.
        elements: its words, with their addresses.
        dump: the same as codes of 64 bits.
        is_signed: whether words are decimal numbers that may be negative, of which the codes are two's complement.

    Raises:
        ConfigError: one is not.
    """
    for key in ("DEPTH", "WIDTH"):
        if key in keys and not _SIZE.fullmatch(keys[key]):
            raise ConfigError(f"{key} of {path} must be a number of at most 18 digits, got {keys[key]}; correct it")
    last = max(elements, key=lambda element: element.address)
    if last.address >= int(keys.get("DEPTH", last.address + 1)):
        raise ConfigError(
            f"an address must be below DEPTH = {keys['DEPTH']}, got {last.address} in {last.where}; correct one of them"
        )
    width = int(keys.get("WIDTH", MOST_BITS))
    codes = next(iter(dump.columns.values()))
    if width >= MOST_BITS:
        return
    is_beyond = codes >> np.uint64(width) != 0
    # a negative number fits if the sign and all bits above it are ones
    if is_signed and width:
        is_beyond &= ~codes >> np.uint64(width - 1) != 0
    beyond = np.flatnonzero(is_beyond)
    if beyond.size:
        raise ConfigError(
            f"a word of {path} must have WIDTH = {width} bits, got 0x{int(codes[beyond[0]]):x}; correct one of them"
        )


def _elements(entry: str, base: int, where: str) -> list[Addressed]:
    # `base` is that of addresses: words stay text here
    parts = _ENTRY.fullmatch(entry)
    if parts is None:
        raise ConfigError(
            f"an entry must be ADDRESS : WORDS;, got {' '.join(entry.split())!r} in {where}; write it again"
        )
    try:
        first = int(parts[1] or parts[2], base)
        last = int(parts[3], base) if parts[3] else None
    except ValueError:
        raise ConfigError(f"an address must have the file's ADDRESS_RADIX, got {entry.strip()!r} in {where}") from None
    words = parts[4].split()
    if not words:
        raise ConfigError(
            f"an entry must have at least one word behind its address, got {' '.join(entry.split())!r} in {where}; "
            "add the word"
        )
    if last is None:
        return [Addressed(first + i, word, where) for i, word in enumerate(words)]
    size = last - first + 1
    if not 1 <= size <= MOST_ELEMENTS:
        raise ConfigError(f"a range must go up, by {MOST_ELEMENTS} words at most, got {entry.strip()!r} in {where}")
    # several words repeat over the range
    return [Addressed(first + i, words[i % len(words)], where) for i in range(size)]
