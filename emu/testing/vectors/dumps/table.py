"""Tables with a separator: comma, semicolon or tab.

    time;valid;a;b;y;fflags
    15;1;3c00;4000;4200;00

Columns are named by a first line, or counted from 1. Those that are called as in `ROLES` (a, b, c, result, flags, ...)
are taken; others by `--columns result=y,flags=fflags`, or by position, `--columns result=5,flags=6`.
"""

from __future__ import annotations

import csv
from pathlib import Path

from emu.errors import ConfigError, nearest_first
from emu.testing.vectors.dumps.dump import ROLES, Codes, Dump, Mask, Reading, roles_of, text_of
from emu.testing.vectors.dumps.words import codes_of, have_prefix, is_word, radix_of

SEPARATORS = ",;\t"
#: Names that a message lists.
_MOST_NAMES = 8


def read_table(path: Path, reading: Reading) -> Dump:
    """Read a table.

    Raises:
        ConfigError: a column is missing, a line has too few fields, or a word is no number.
    """
    text = text_of(path)
    kept = [(number, line) for number, line in enumerate(text.splitlines(), 1) if _is_content(line)]
    if not kept:
        raise ConfigError(f"a dump must have a line for each vector, got none in {path}; the simulation wrote nothing")
    # that which the first line has most of
    separator = max(SEPARATORS, key=kept[0][1].count)
    rows = _rows(path, kept, separator)
    numbers = [number for number, _ in kept]
    names = _names(rows[0])
    taken = _taken(path, reading, rows[0], names)
    # no name of a column begins with a digit: what is chosen by its position and does is a word already
    if names and not any(rows[0][i][:1].isdigit() for i in _chosen_by_position(reading, names)):
        rows, numbers = rows[1:], numbers[1:]
    if not rows:
        raise ConfigError(f"a dump must have a line for each vector, got only names in {path}")
    for row, number in zip(rows, numbers, strict=True):
        if len(row) <= max(taken.values()):
            raise ConfigError(
                f"{path} must have {max(taken.values()) + 1} fields a line, got {len(row)} in line {number}; write it "
                "again"
            )
    words = [_filled([row[i] for row in rows]) for i in taken.values()]
    # columns with a prefix of their own say nothing about the radix of the others
    doubtful = [word for column in words if not have_prefix(column) for word in column]
    base = radix_of(doubtful, str(path), reading.radix)
    columns: dict[str, Codes] = {}
    undriven: dict[str, Mask] = {}
    for role, column in zip(taken, words, strict=True):
        own = 16 if have_prefix(column) else base
        columns[role], undriven[role] = codes_of(column, own, lambda i: f"line {numbers[i]} of {path}")
    return Dump(columns, undriven, str(path))


def _chosen_by_position(reading: Reading, names: list[str]) -> list[int]:
    """Return the indices of columns that `--columns` takes by their positions, not by names."""
    chosen = {} if reading.columns is None else roles_of(reading.columns)
    return [int(name) - 1 for name in chosen.values() if name not in names]


def _rows(path: Path, lines: list[tuple[int, str]], separator: str) -> list[list[str]]:
    """Return the fields of numbered lines.

    Raises:
        ConfigError: a quoted field goes on in the next line, or a field is longer than any word.
    """
    reader, rows = csv.reader((line for _, line in lines), delimiter=separator), list[list[str]]()
    try:
        for row in reader:
            # each line is a row, so that messages name the right one
            if reader.line_num > len(rows) + 1:
                number = lines[len(rows)][0]
                raise ConfigError(
                    f"a quoted field must end in its line, got one without an end in line {number} of {path}; close it"
                )
            rows.append([field.strip() for field in row])
    except csv.Error as error:
        number = lines[len(rows)][0]
        raise ConfigError(f"{path} must be a table of words, got in line {number}: {error}; write it again") from None
    return rows


def _filled(column: list[str]) -> list[str]:
    """Return words in which x stands for an empty field, with the prefix that all others have."""
    empty = "0xx" if have_prefix([word for word in column if word]) else "x"
    return [word or empty for word in column]


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(("#", "//"))


def _names(first: list[str]) -> list[str]:
    """Return the names of columns; none if the first line has words already."""
    lowered = [name.lower() for name in first]
    is_header = any(name and not is_word(name) for name in first) or (
        set(lowered) <= set(ROLES) and len(set(lowered)) == len(lowered) > 1
    )
    return first if is_header else []


def _taken(path: Path, reading: Reading, first: list[str], names: list[str]) -> dict[str, int]:
    """Return the index of each column that is taken, by what it holds, or by position if nothing says that."""
    if reading.columns is not None:
        return {role: _index(path, role, name, first, names) for role, name in roles_of(reading.columns).items()}
    if not names:
        return {str(i + 1): i for i in range(len(first))}
    taken = {name.lower(): i for i, name in enumerate(names) if name.lower() in ROLES}
    if not taken:
        listed = ", ".join(names[:_MOST_NAMES])
        raise ConfigError(f"a column of {path} must be called result, got {listed}; add --columns result=NAME")
    return taken


def _index(path: Path, role: str, name: str, first: list[str], names: list[str]) -> int:
    if name in names:
        return names.index(name)
    if name.isdecimal() and 1 <= int(name) <= len(first):
        return int(name) - 1
    nearest = ", ".join(nearest_first(name, names)[:_MOST_NAMES]) if names else f"1..{len(first)}"
    raise ConfigError(f"`--columns` must name columns of {path}, got {role}={name}; its columns: {nearest}")
