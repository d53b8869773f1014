"""The catalogue of rows, one file per kind of work; adding a row is adding it to its file."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import groupby

from benchmarks.measuring.row import Row
from benchmarks.rows import blocks, calls, codecs, growth, matrix, pairs, products, scaled, sparse, stage, step
from emu.errors import ConfigError

#: What is measured if nothing is said: one of each kind of work, about a minute on one and on all processors.
CHOICE = (
    "stage/fix8",
    "stage/fix8-r24",
    "stage/fp16",
    "stage/e5m7",
    "product/int16",
    "product/int8",
    "product/fp16-stepwise",
    "product/saturating24",
    "codec/one-bit-encode",
    "sparse/float32-10",
    "step/lenet-fixed16",
)
#: What stands for all rows of the table.
TABLE = "table"


def all_rows() -> list[Row]:
    """Return every row: those of the table first, in the table's order."""
    kinds = (stage, blocks, products, calls, scaled, codecs, sparse, step, pairs, matrix, growth)
    return [row for kind in kinds for row in kind.rows()]


def select(patterns: list[str]) -> list[Row]:
    """Return the rows whose name matches one of the patterns; without any, a choice of about a minute.

    Args:
        patterns: a name; a part of names of the table, the begin of others (`matrix/fix8f4`); with `*` and `?` a
            pattern of the whole name: `product/int*`, `*` for all; or `table`, all rows of the table.

    Raises:
        ConfigError: a pattern matches no row; lists what there is.
    """
    known = all_rows()
    if not patterns:
        return [row for row in known if row.name in CHOICE]
    for pattern in patterns:
        if not any(_matches(row, pattern) for row in known):
            raise ConfigError(
                f"--rows must match the name of a row, got {pattern!r}; rows are {_described(known)}; * stands for "
                f"any letters, {TABLE} for the whole table"
            )
    whole = {row.name for row in known} & set(patterns)
    return [row for row in known if row.name in whole or any(_matches(row, p) for p in patterns if p not in whole)]


def _matches(row: Row, pattern: str) -> bool:
    if pattern == TABLE:
        return row.group == "table"
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
