"""Value change dumps (VCD), read once from front to back: memory does not grow with the file.

Source: IEEE 1800-2017 section 21.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from emu.errors import ConfigError
from emu.testing.vectors.dumps.dump import Dump, Reading
from emu.testing.vectors.dumps.sampling import Sampler, Variable

#: Bytes that are read at a time.
CHUNK = 1 << 20
_RANGE = re.compile(r"\[(-?\d+)(?::(-?\d+))?\]")
_WITH_RANGE = re.compile(r"(.+?)(\[-?\d+(?::-?\d+)?\])")
_REALS = ("real", "realtime", "shortreal")
_SCALARS = frozenset(b"01xXzZuUwWlLhH-")


def read_vcd(path: Path, reading: Reading) -> Dump:
    """Sample a signal of a VCD file at the rising edges of a clock.

    Raises:
        ConfigError: the file is missing or damaged, or there is no such signal.
    """
    try:
        with path.open("rb") as file:
            tokens = _tokens(file)
            sampler = Sampler.of(path, reading, _variables(path, tokens))
            _play(path, tokens, sampler)
            return sampler.dump()
    except OSError as error:
        raise ConfigError(f"a dump must be a file, got {error.strerror!r} for {path}; check the path") from None


def _tokens(file: BinaryIO) -> Iterator[bytes]:
    """Yield the words of a file; the last one, if no white space follows, may be cut and is left out."""
    rest = b""
    while chunk := file.read(CHUNK):
        words = (rest + chunk).split()
        rest = words.pop() if words and not chunk[-1:].isspace() else b""
        yield from words
    # a file may end without a line end, but no change of a value is known to be whole then
    if rest == b"$end":
        yield rest


def _section(tokens: Iterator[bytes]) -> list[str]:
    """Return the words up to the next `$end`."""
    words: list[str] = []
    for token in tokens:
        if token == b"$end":
            return words
        words.append(token.decode("latin-1"))
    raise EOFError


def _variables(path: Path, tokens: Iterator[bytes]) -> list[Variable]:
    scopes, variables = list[str](), list[Variable]()
    try:
        for token in tokens:
            if token == b"$enddefinitions":
                _section(tokens)
                return variables
            if token == b"$scope":
                scopes.append(_section(tokens)[-1])
            elif token == b"$upscope":
                _section(tokens)
                del scopes[-1:]
            elif token == b"$var":
                variables.append(_variable(scopes, _section(tokens)))
            elif token.startswith(b"$"):
                _section(tokens)
            else:
                raise ValueError
    # whatever is wrong before $enddefinitions, the file has no complete list of variables
    except (ValueError, IndexError, EOFError):
        pass
    raise ConfigError(f"a VCD file must declare its variables up to $enddefinitions, got {path} without; dump it again")


def _variable(scopes: list[str], words: list[str]) -> Variable:
    kind, bits, key, *reference = words
    name, width = "".join(reference), int(bits)
    left, right = width - 1, 0
    parts = _WITH_RANGE.fullmatch(name)
    indices = parts and _RANGE.fullmatch(parts[2])
    # y[15:0] are its bits, and y[3] of one bit is one of them; y[3] of more bits is an element of an array
    if parts and indices and (indices[2] is not None or width == 1):
        name, left = parts[1], int(indices[1])
        right = int(indices[2]) if indices[2] is not None else left
    return Variable(".".join([*scopes, name]), key, width, left, right, is_real=kind in _REALS)


def _play(path: Path, tokens: Iterator[bytes], sampler: Sampler) -> None:
    wanted = {key.encode("latin-1"): key for key in sampler.widths}
    change, step = sampler.change, sampler.step
    for token in tokens:
        first = token[0]
        # one character of value, then the key without a space
        if first in _SCALARS:
            if token[1:] in wanted:
                change(wanted[token[1:]], chr(first))
        elif first == 35:  # '#'
            step()
        # binary, real, string: the key is the next word
        elif first in b"bBrRsS":
            key = next(tokens, b"")
            if key in wanted:
                change(wanted[key], token[1:].decode("latin-1").lower())
        elif token == b"$comment":
            for word in tokens:
                if word == b"$end":
                    break
        elif first != 36:  # '$' begins $dumpvars, $dumpoff, $end
            text = token[:40].decode("latin-1")
            raise ConfigError(f"a VCD file must hold changes of values, got {text!r} in {path}; dump it again")
