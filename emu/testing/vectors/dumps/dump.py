"""What a dump is once it is read, and what its reader is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError, nearest_name

Codes = NDArray[np.uint64]
Mask = NDArray[np.bool_]
#: What a column can hold, besides the operands `a`, `b`, `c`.
RESULT, FLAGS, SCALE = "result", "flags", "scale"
ROLES = ("a", "b", "c", "rbits", RESULT, "result2", "result3", "result4", FLAGS, SCALE)
#: In `--columns`, a column that is of no use.
UNUSED = "_"
#: Bits of a word, at most.
MOST_BITS = 64


@dataclass(frozen=True, eq=False)
class Dump:
    """The words of a file, by column.

    Attributes:
        columns: codes by name, (lines,) each; names are those of `ROLES`, or "1", "2", ... if the file has no names. A
            negative number is two's complement of 64 bits.
        undriven: by the same names, which elements have a bit that was never driven (x, z, U, W, -); their codes are 0.
        source: path of the file.
        is_testfloat: whether lines are those of TestFloat, whose flags are always IEEE 754's.
    """

    columns: Mapping[str, Codes]
    undriven: Mapping[str, Mask]
    source: str
    is_testfloat: bool = False

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class Reading:
    """What a reader is told; a reader refuses what it has no use for.

    Attributes:
        dump_format: name of the format; None: known by its content, or by the end of its name.
        radix: hex, decimal, binary or octal, of words that do not say it.
        columns: what the columns hold, "result,flags", or which are taken, "result=y,flags=3"; `_` skips one.
        signal: of a waveform, the result, as in "tb.dut.y" or "tb.dut.out[15:0]".
        flags_signal: the flags.
        clock: the clock, at whose rising edges signals are sampled.
        valid: a signal that is 1 where the result counts.
        ready: another one, of the side that takes the result.
        count: lines that are expected; it settles whether words beside each other are columns.
    """

    dump_format: str | None = None
    radix: str | None = None
    columns: str | None = None
    signal: str | None = None
    flags_signal: str | None = None
    clock: str | None = None
    valid: str | None = None
    ready: str | None = None
    count: int | None = None

    def given(self) -> list[str]:
        """Return the names of what was given, apart from the format and the count."""
        names = [field.name for field in fields(self) if field.name not in ("dump_format", "count")]
        return [name for name in names if getattr(self, name) is not None]


def roles_of(columns: str) -> dict[str, str]:
    """Return which column holds what.

    Raises:
        ConfigError: a role is unknown, or given twice, or there is none.

    Examples:
        >>> roles_of("a,b,result,flags")
        {'a': '1', 'b': '2', 'result': '3', 'flags': '4'}
        >>> roles_of("_,result")
        {'result': '2'}
        >>> roles_of("result=y,flags=3")
        {'result': 'y', 'flags': '3'}
    """
    roles: dict[str, str] = {}
    for position, part in enumerate(columns.split(","), 1):
        role, equals, name = (text.strip() for text in part.partition("="))
        if role == UNUSED:
            continue
        if role not in ROLES:
            raise ConfigError(f"`--columns` must name {', '.join(ROLES)} or _, got {role!r}{nearest_name(role, ROLES)}")
        if role in roles:
            raise ConfigError(f"`--columns` must name every column once, got {role!r} twice; leave one out")
        roles[role] = name if equals else str(position)
    if not roles:
        raise ConfigError(f"`--columns` must name a column that is taken, got {columns!r}; write _,result")
    return roles


def text_of(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: there is none.
    """
    try:
        # -sig: a byte order mark, if there is one, is no part of the first word
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} must be a text file of codes, got {error}; check the path") from None
