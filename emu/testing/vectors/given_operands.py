"""Vectors of operands that somebody else drew: the definition's results and flags for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu._config import checked
from emu.errors import ConfigError
from emu.testing.vectors.columns import Column, assigned, fitting
from emu.testing.vectors.definition import answered
from emu.testing.vectors.description import NAMES, Codes, Description, Vectors
from emu.testing.vectors.dumps import Dump, Reading, read_dump

#: What errors call a description that stands in no file.
SOURCE = "the command line"


def vectors_of(
    table: Mapping[str, Any],
    operands: str | Path | Sequence[str | Path] | Dump,
    *,
    rbits: str | Path | None = None,
    radix: str | None = None,
) -> Vectors:
    """Return vectors of operands that are given.

    Args:
        table: a description, without `count`.
        operands: a file for each operand, one with a column for each, or a dump that has their columns. A product's
            factors have `depth` words for each vector.
        rbits: file of the random bits, if results round stochastically.
        radix: of words in these files that do not say it.

    Raises:
        ConfigError: the description is impossible, a file is missing or damaged, or lengths do not fit.
    """
    # the number of vectors follows from the words that are read; until then it is 1
    d = checked(Description, {**table, "count": 1}, file=SOURCE)
    names = NAMES[: len(d.formats)]
    if isinstance(operands, str | Path):
        operands = [operands]
    if isinstance(operands, Dump):
        # with as many lines as vectors, columns are never taken for a memory that is read row by row
        columns = assigned(operands, d, len(operands))
        sources = dict.fromkeys(names, operands.source)
    else:
        columns, sources = _read(d, operands, radix)
    for name in names:
        if name not in columns:
            where = operands.source if isinstance(operands, Dump) else operands[0]
            raise ConfigError(
                f"operand {name} must be in {where}, or in a file of --operands, got it in neither; add it"
            )
    codes = [
        _codes(columns[name], fitting(columns[name], fmt, f"operand {name}", sources[name]), name, sources[name])
        for name, fmt in zip(names, d.operand_formats, strict=True)
    ]
    count = codes[0].size // d.depth
    if count == 0:
        raise ConfigError(
            f"operand a must have at least {d.depth} words, got {codes[0].size} in {sources['a']}; add them"
        )
    d = checked(Description, {**table, "count": count}, file=SOURCE)
    d.require_whole_blocks(sources["a"])
    for i, (name, column) in enumerate(zip(names, codes, strict=True)):
        wanted = int(np.prod(d.shape_of(i)))
        if column.size != wanted:
            raise ConfigError(
                f"operand {name} must have {wanted} words, for {count} vectors as in {sources['a']}, got "
                f"{column.size} in {sources[name]}; dump as many"
            )
    shaped = tuple(column.reshape(d.shape_of(i)) for i, column in enumerate(codes))
    return answered(d, shaped, _random_bits(d, rbits, radix))


def _read(d: Description, paths: Sequence[str | Path], radix: str | None) -> tuple[dict[str, Column], dict[str, str]]:
    names: list[str] = list(NAMES[: len(d.formats)])
    if len(paths) == len(names):
        return {name: _only(path, name, radix) for name, path in zip(names, paths, strict=True)}, {
            name: str(path) for name, path in zip(names, paths, strict=True)
        }
    if len(paths) != 1:
        raise ConfigError(
            f"`--operands` must name a file for each of {len(names)} operands, or one with a column for each, got "
            f"{len(paths)} files; the operands are {', '.join(names)}"
        )
    dump = read_dump(paths[0], Reading(radix=radix) if radix is not None else None)
    columns = {name: Column(codes, dump.undriven[name]) for name, codes in dump.columns.items()}
    # columns without names are the operands in order
    if all(name.isdecimal() for name in columns):
        columns = dict(zip(names, columns.values(), strict=False))
    return columns, dict.fromkeys(names, str(paths[0]))


def _only(path: str | Path, name: str, radix: str | None) -> Column:
    """Return the column of a name, or the only one of a file; words beside each other follow one another.

    Raises:
        ConfigError: the file is missing or damaged, or a table has several columns, of other names.
    """
    dump = read_dump(path, Reading(radix=radix) if radix is not None else None)
    if dump.is_testfloat and name in NAMES:  # a line has the operands in order, then what is no operand
        name = str(NAMES.index(name) + 1)
    if name in dump.columns:
        return Column(dump.columns[name], dump.undriven[name])
    if len(dump.columns) > 1 and not all(each.isdecimal() for each in dump.columns):
        raise ConfigError(
            f"a column of {path} must be called {name}, got {', '.join(dump.columns)}; name it, or give a file of it "
            "alone"
        )
    codes, mask = (np.stack(list(parts.values()), axis=1).reshape(-1) for parts in (dump.columns, dump.undriven))
    return Column(codes.astype(np.uint64), mask.astype(np.bool_))


def _codes(column: Column, codes: Codes, name: str, source: str) -> Codes:
    if column.undriven.any():
        index = int(np.flatnonzero(column.undriven)[0])
        raise ConfigError(f"operand {name} must be driven in every vector, got x in word {index} of {source}; drive it")
    return codes


def _random_bits(d: Description, path: str | Path | None, radix: str | None) -> Codes | None:
    if not d.is_stochastic:
        if path is not None:
            raise ConfigError(f"`--rbits` is of stochastic rounding, got it for {d.stage.rounding.value}; leave it out")
        return None
    if path is None:
        raise ConfigError("stochastic rounding must have random bits, got none; add --rbits FILE")
    column = _only(path, "rbits", radix)
    codes = _codes(column, column.codes, "rbits", str(path))
    if codes.size != d.count:
        raise ConfigError(f"random bits must be {d.count} words, one per vector, got {codes.size} in {path}")
    if (codes >> np.uint64(d.n_rbits)).any():
        raise ConfigError(f"random bits must have {d.n_rbits} bits, got more in {path}; give --n-rbits")
    return codes
