"""The catalogue of rows, one file per kind of work; adding a row is adding it to its file."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import groupby

from emu.bench.row import Row
from emu.bench.rows import codecs, growth, matrix, pairs, products, sparse, stage, step
from emu.errors import ConfigError


def all_rows() -> list[Row]:
    """Return every row: those of the table first, in the table's order."""
    kinds = (stage, products, codecs, sparse, step, pairs, matrix, growth)
    return [row for kind in kinds for row in kind.rows()]


def select(patterns: list[str]) -> list[Row]:
    """Return the rows whose name matches one of the patterns, or the rows of the table without any.

    Args:
        patterns: a name; a part of names of the table, the begin of others (`matrix/fix8f4`); or with `*` and `?` a
            pattern of the whole name: `product/int*`, `*` for all.

    Raises:
        ConfigError: a pattern matches no row; lists what there is.
    """
    known = all_rows()
    if not patterns:
        return [row for row in known if row.group == "table"]
    for pattern in patterns:
        if not any(_matches(row, pattern) for row in known):
            raise ConfigError(
                f"--rows must match the name of a row, got {pattern!r}; rows are {_described(known)}; * stands for "
                "any letters"
            )
    whole = {row.name for row in known} & set(patterns)
    return [row for row in known if row.name in whole or any(_matches(row, p) for p in patterns if p not in whole)]


def _matches(row: Row, pattern: str) -> bool:
    if any(sign in pattern for sign in "*?["):
        return fnmatchcase(row.name, pattern)
    return row.name.startswith(pattern) or (row.group == "table" and pattern in row.name)


def _described(known: list[Row]) -> str:
    """Return the names of the table's rows, and one line's worth of every other kind."""
    names = [row.name for row in known if row.group == "table"]
    others = [row.name for row in known if row.group != "table"]
    for kind, members in groupby(others, key=lambda name: "/".join(name.split("/")[:2])):
        found = list(members)
        names += found if len(found) == 1 else [f"{kind}/* ({len(found)})"]
    return ", ".join(names)
