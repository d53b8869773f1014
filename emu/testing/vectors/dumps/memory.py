"""Text as `$readmemh` and `$readmemb` read it: words, `@address`, comments, any number of words a line.

    // results of the unit
    @0 3c00 4000     /* the first two */
    xxxx             // never driven
    @10 7c00

Without addresses, lines of two or more words each are columns: result and flags, or operands, result and flags, as
Berkeley TestFloat writes them. They are words in sequence if the lines are of different lengths, or if there are as
many words as vectors. A comment may begin with # as well.

Source: IEEE 1800-2017 section 21.4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from emu.errors import ConfigError
from emu.testing.vectors.dumps.dump import RESULT, Dump, Reading, roles_of, text_of
from emu.testing.vectors.dumps.words import codes_of, radix_of

#: Elements that addresses may span, at most.
MOST_ELEMENTS = 1 << 26
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
_ADDRESS = re.compile(r"@[0-9a-fA-F_]+")


@dataclass(frozen=True)
class _Line:
    number: int
    words: list[str]


def read_memory(path: Path, reading: Reading) -> Dump:
    """Read text as `$readmemh` does; see the module.

    Raises:
        ConfigError: the file is missing or damaged, or its radix uncertain.
    """
    return _read(path, reading, reading.radix)


def read_testfloat(path: Path, reading: Reading) -> Dump:
    """Read the lines of Berkeley TestFloat, which are hexadecimal.

    Raises:
        ConfigError: the file is missing or damaged.
    """
    return replace(_read(path, reading, "hex"), is_testfloat=True)


def _read(path: Path, reading: Reading, radix: str | None) -> Dump:
    lines = _lines(path, text_of(path))
    if not lines:
        raise ConfigError(f"a dump must have a line for each vector, got none in {path}; the simulation wrote nothing")
    if any(word.startswith("@") for line in lines for word in line.words):
        if reading.columns is not None and reading.columns.strip() != RESULT:
            raise ConfigError(
                f"`--columns` must be result for {path}, whose words follow one another from an address on, got "
                f"{reading.columns!r}; leave it out"
            )
        return addressed(path, _with_addresses(path, lines), radix)
    width = len(lines[0].words)
    words = [word for line in lines for word in line.words]
    if _is_sequence(path, lines, len(words), reading):
        numbers = [line.number for line in lines for _ in line.words]
        codes, mask = codes_of(words, radix_of(words, str(path), radix), lambda i: f"line {numbers[i]} of {path}")
        return Dump({RESULT: codes}, {RESULT: mask}, str(path))
    # a simulation that is stopped may cut its last line: what is missing was never driven
    missing = width - len(lines[-1].words)
    base = radix_of(words, str(path), radix)
    codes, mask = codes_of([*words, *["x"] * missing], base, lambda i: f"line {lines[i // width].number} of {path}")
    names = _names(path, reading, width)
    columns = {name: codes[i::width] for name, i in names.items()}
    return Dump(columns, {name: mask[i::width] for name, i in names.items()}, str(path))


def _lines(path: Path, text: str) -> list[_Line]:
    if "/" in text or "#" in text:
        # as many line ends stay, so that messages name the right lines; within a line a space keeps words apart
        text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n") or " ", text)
        # the pattern has removed every comment that ends
        if (start := text.find("/*")) >= 0:
            line = text.count("\n", 0, start) + 1
            raise ConfigError(f"a comment must end with */, got one without in line {line} of {path}; close it")
    lines = (_Line(number, line.split()) for number, line in enumerate(text.split("\n"), 1))
    return [line for line in lines if line.words]


def _is_sequence(path: Path, lines: Sequence[_Line], words: int, reading: Reading) -> bool:
    """Return whether words follow one another; otherwise lines are rows of columns.

    Raises:
        ConfigError: lines are of different lengths, and the words are not as many as vectors.
    """
    width = len(lines[0].words)
    if reading.columns is not None:
        if reading.columns.strip() == RESULT:
            return True
    # a word for each vector: columns would have more
    elif words == reading.count:
        return width > 1 or len(lines) < words
    odd = next((line for line in lines if len(line.words) != width), None)
    if odd is None or (odd is lines[-1] and len(odd.words) < width):
        return False
    raise ConfigError(
        f"{path} must have {width} codes a line, got {len(odd.words)} in line {odd.number}; write it again, or add "
        "--columns result if its words follow one another"
    )


def _names(path: Path, reading: Reading, width: int) -> dict[str, int]:
    """Return the index of each column that is taken, by its name."""
    if reading.columns is None:
        return {str(i + 1): i for i in range(width)}
    names: dict[str, int] = {}
    for role, position in roles_of(reading.columns).items():
        if not position.isdecimal() or not 1 <= int(position) <= width:
            raise ConfigError(
                f"`--columns` must name columns 1..{width} of {path}, got {role}={position}; a line has {width}"
            )
        names[role] = int(position) - 1
    return names


@dataclass(frozen=True)
class Addressed:
    """A word of a memory, with its address and where it stands in the file."""

    address: int
    word: str
    where: str


def _with_addresses(path: Path, lines: Sequence[_Line]) -> list[Addressed]:
    address, elements = 0, list[Addressed]()
    for line in lines:
        where = f"line {line.number} of {path}"
        for word in line.words:
            if not word.startswith("@"):
                elements.append(Addressed(address, word, where))
                address += 1
            elif _ADDRESS.fullmatch(word):
                address = int(word[1:].replace("_", ""), 16)
            else:
                raise ConfigError(f"an address must be @ and hexadecimal digits, got {word!r} in {where}; write @1f")
    return elements


def addressed(path: Path, elements: Sequence[Addressed], radix: str | None) -> Dump:
    """Return a memory as a dump: the lowest address is the first vector's, an address without a word is undriven.

    Raises:
        ConfigError: there is no word, or addresses lie too far apart.
    """
    if not elements:
        raise ConfigError(f"a dump must have a word for each vector, got none in {path}; the simulation wrote nothing")
    words = [element.word for element in elements]
    base = radix_of(words, str(path), radix)
    codes, mask = codes_of(words, base, lambda i: elements[i].where)
    first = min(element.address for element in elements)
    size = max(element.address for element in elements) - first + 1
    if size > MOST_ELEMENTS:
        raise ConfigError(f"addresses must span at most {MOST_ELEMENTS} words, got {size} in {path}; dump a part")
    offsets = np.array([element.address - first for element in elements], np.int64)
    # what no word is written to stays undriven
    whole, undriven = np.zeros(size, np.uint64), np.ones(size, np.bool_)
    # of an address that is given twice the later word stays, as in $readmemh
    whole[offsets], undriven[offsets] = codes, mask
    return Dump({RESULT: whole}, {RESULT: undriven}, str(path))
