"""The scales of a dump: a file of their own, a code a block, or a column beside the elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emu.errors import ConfigError
from emu.testing.vectors.columns import Column, fitting
from emu.testing.vectors.description import Description
from emu.testing.vectors.dumps import Reading, read_dump
from emu.testing.vectors.dumps.dump import SCALE


def read_scales(d: Description, path: Path, *, radix: str | None = None) -> Column:
    """Return the scales of a file, a code for each block, in any format of dumps.

    Args:
        d: of vectors of blocks.
        path: of the file; words beside each other follow one another.
        radix: of words that do not say it.

    Raises:
        ConfigError: results share no scales, the file is missing or damaged, or it has another number of words.
    """
    if d.blocks is None:
        raise ConfigError(
            f"`--scales` must be of results that share scales, got {path} for {d.out_format}; leave it out"
        )
    count = d.count // d.together
    dump = read_dump(path, Reading(radix=radix, count=count))
    # by lines: words beside each other are blocks one after the other
    codes = np.stack(list(dump.columns.values()), axis=1).reshape(-1)
    undriven = np.stack(list(dump.undriven.values()), axis=1).reshape(-1)
    if codes.size != count:
        raise ConfigError(
            f"scales must be {count} words, one for each block of {d.together}, got {codes.size} in {path}; dump one a "
            "block"
        )
    column = Column(codes.astype(np.uint64), undriven.astype(np.bool_))
    return column._replace(codes=fitting(column, d.scale_formats[SCALE], SCALE, str(path)))


def scales_of_lines(column: Column, together: int) -> Column:
    """Return the scale of each block from a column with one in each line, or in some lines of the block.

    Args:
        column: by vectors, (count,).
        together: vectors of a block.

    Raises:
        ConfigError: lines of a block have different scales.
    """
    codes, undriven = column.codes.reshape(-1, together), column.undriven.reshape(-1, together)
    # the last driven line of each block: a scale may be known only after the whole block; without any it is the last
    # line, which stays undriven
    last = together - 1 - np.argmin(undriven[:, ::-1], axis=1)
    chosen = codes[np.arange(codes.shape[0]), last]
    differs = ((codes != chosen[:, None]) & ~undriven).any(axis=1)
    if differs.any():
        block = int(np.flatnonzero(differs)[0])
        several = ", ".join(f"0x{int(code):x}" for code in np.unique(codes[block][~undriven[block]]))
        raise ConfigError(
            f"the lines of a block must have one scale, got {several} in block {block}, {int(differs.sum())} such "
            "blocks; leave the column empty, or x, where the scale does not count yet, or give --scales FILE"
        )
    return Column(chosen, np.all(undriven, axis=1))
