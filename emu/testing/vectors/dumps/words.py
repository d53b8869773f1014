"""One word of a dump: `3c00`, `16'h3c00`, `8'sd-3`, `x"3C00"`, `0011_1100_0000_0000`, `xxxx`.

A word that does not say its radix has that of `--radix`, or of the file's name (`.hex`, `.memh`, `.bin`, `.memb`,
`.dec`). Otherwise it is hexadecimal if any word has a letter, decimal if any has a minus sign. If neither has, and
the value depends on the radix, the file is refused: a wrong radix would be a wrong verdict.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence

import numpy as np

from emu.errors import ConfigError, nearest_name
from emu.testing.vectors.dumps.dump import MOST_BITS, Codes, Mask

#: Radixes by name.
RADIXES = {"hex": 16, "decimal": 10, "binary": 2, "octal": 8}
#: Ends of names of files that say the radix of their words.
ENDINGS = {".hex": 16, ".memh": 16, ".bin": 2, ".memb": 2, ".dec": 10}
#: Bits that nobody drives, in Verilog (x, z, ?) and VHDL (U, X, Z, W, -).
_UNDRIVEN = "xXzZ?uUwW-"
_DIGITS = {16: "0-9a-fA-F", 10: "0-9", 8: "0-7", 2: "01"}
_NUMBER = {base: re.compile(f"[{digits}]+") for base, digits in _DIGITS.items()}
_PARTLY_DRIVEN = {base: re.compile(f"[{digits}{re.escape(_UNDRIVEN)}]+") for base, digits in _DIGITS.items()}
# sizes have few digits: Python reads no numbers of thousands of them
_VERILOG = re.compile(r"(-?)([0-9]{0,9})'([sS]?)([hHdDbBoO])(-?)(.+)", re.DOTALL)
_VHDL = re.compile(r"([0-9]{0,9})[uUsS]?([xXbBoOdD])\"(.*)\"", re.DOTALL)
_LETTERS = {"h": 16, "x": 16, "d": 10, "b": 2, "o": 8}
_SIGNED = re.compile(r"-[0-9a-fA-F]+")
#: VHDL's weak bits, driven by a resistor.
WEAK_BITS = str.maketrans("lLhH", "0011")
_HEX_PREFIXES = ("0x", "0X")


def radix_named(name: str) -> int:
    """Return a radix by its name.

    Raises:
        ConfigError: there is no such radix.
    """
    if name not in RADIXES:
        known = ", ".join(RADIXES)
        raise ConfigError(f"`--radix` must be one of {known}, got {name!r}{nearest_name(name, RADIXES)}")
    return RADIXES[name]


def have_prefix(words: Sequence[str]) -> bool:
    """Return whether words begin with `0x`: all of them, since a simulator writes a digit that nobody drove as x."""
    # digits follow a prefix: two binary digits may be 0x, too
    return len(words) > 0 and all(word.startswith(_HEX_PREFIXES) and len(word) > len("0x") for word in words)


def radix_of(words: Sequence[str], source: str, radix: str | None) -> int:
    """Return the radix of a file's words.

    Raises:
        ConfigError: it could be more than one.
    """
    if radix is not None:
        return radix_named(radix)
    for ending, base in ENDINGS.items():
        if source.lower().endswith(ending):
            return base
    # words that say their radix themselves tell nothing about the others
    plain = [word for word in words if "'" not in word and '"' not in word]
    if have_prefix(plain):
        return 16
    letters = set("".join(plain))
    if letters & set("abcdefABCDEF"):
        return 16
    if any(re.fullmatch(r"-\d+", word) for word in plain):
        return 10
    # a single digit has the same value in every radix that has it
    doubtful = next((word for word in plain if re.fullmatch("[0-9]{2,}", word.replace("_", "").lstrip("0"))), None)
    if doubtful is None:
        return 16
    kinds = ["hex", "decimal", *(["binary"] if not letters & set("23456789") else [])]
    raise ConfigError(
        f"the radix of words must be certain, got words without a letter in {source}, such as {doubtful!r}; add "
        f"--radix {' or --radix '.join(kinds)}"
    )


def codes_of(words: Sequence[str], base: int, where: Callable[[int], str]) -> tuple[Codes, Mask]:
    """Return the codes of words, and which have bits that nobody drove.

    Args:
        words: as they stand in the file.
        base: the radix of those that do not say it.
        where: says where the word of an index stands.

    Raises:
        ConfigError: a word is no number, does not fit the bits that it names, or has more than 64.
    """
    # arrays of machine words: a list of Python integers would take several times the memory
    codes, undriven = array("Q", bytes(8 * len(words))), bytearray(len(words))
    prefixed = base == 16 and have_prefix(words)
    # most words are plain digits, which one pattern and `int` read
    number = _NUMBER[base]
    for i, word in enumerate(words):
        try:
            code = int(word, base) if number.fullmatch(word) else _code_of(word[2:] if prefixed else word, base)
        except ValueError:
            raise ConfigError(_refusal(word, base, where(i))) from None
        if code is None:
            undriven[i] = 1
        elif code >> MOST_BITS:
            raise ConfigError(f"a word must have at most {MOST_BITS} bits, got {word!r} in {where(i)}; dump fewer bits")
        else:
            codes[i] = code
    return np.frombuffer(codes, np.uint64), np.frombuffer(undriven, np.bool_)


def is_word(text: str) -> bool:
    """Return whether a text is a word in any radix."""
    for base in (16, 10):
        try:
            _code_of(text.removeprefix("0x").removeprefix("0X"), base)
        except ValueError:
            continue
        return True
    return False


def _refusal(word: str, base: int, where: str) -> str:
    name = next(name for name, value in RADIXES.items() if value == base)
    if _SIGNED.fullmatch(word):
        return f"a code of radix {name} must have no sign, got {word!r} in {where}; add --radix decimal if they are"
    literal = _VERILOG.fullmatch(word) or _VHDL.fullmatch(word)
    size = literal and literal[2 if "'" in word else 1]
    # it would be a number if the named size were 64: so the size is what is wrong
    if literal and size and int(size) < MOST_BITS and is_word(word.replace(size, str(MOST_BITS), 1)):
        return f"a word must fit the {size} bits that it names, got {word!r} in {where}; write as many as it has"
    wanted = {"hex": "hexadecimal codes"}.get(name, f"{name} words")
    return f"a dump must hold {wanted}, got {word!r} in {where}; write it again, or add --radix or --dump-format"


def _code_of(word: str, base: int) -> int | None:
    """Return the code of a word, None if bits were never driven.

    Raises:
        ValueError: it is no number, or does not fit the bits that it names.
    """
    if literal := _VERILOG.fullmatch(word):
        sign, size, _, letter, inner, digits = literal.groups()
        # a minus sign may stand before the size or before the digits; two cancel
        return _sized(digits, _LETTERS[letter.lower()], size, is_negative=(sign == "-") != (inner == "-"))
    if literal := _VHDL.fullmatch(word):
        size, letter, digits = literal.groups()
        return _sized(digits, _LETTERS[letter.lower()], size, is_negative=False)
    if base == 10 and word.startswith("-") and len(word) > 1:
        return _sized(word[1:], base, str(MOST_BITS), is_negative=True)
    if base != 2 and _SIGNED.fullmatch(word):  # in binary words of VHDL - is a bit
        raise ValueError
    return _sized(word, base, "", is_negative=False)


def _sized(digits: str, base: int, size: str, *, is_negative: bool) -> int | None:
    text = digits.replace("_", "")
    if base == 2:
        text = text.translate(WEAK_BITS)
    if not _NUMBER[base].fullmatch(text):
        if _PARTLY_DRIVEN[base].fullmatch(text):
            return None
        raise ValueError
    value, bits = int(text, base), int(size or MOST_BITS)
    if not is_negative:
        if size and value >> bits:
            raise ValueError
        return value
    # -2**(bits - 1) is the lowest number
    if bits > MOST_BITS or value > 1 << (bits - 1):
        raise ValueError
    return -value % (1 << bits)
