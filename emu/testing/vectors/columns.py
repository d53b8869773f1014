"""The columns of a dump by what they are, and codes of them that fit their formats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.formats import Fixed, Format
from emu.testing.vectors.description import NAMES, Codes, Description
from emu.testing.vectors.dumps import Dump
from emu.testing.vectors.dumps.dump import FLAGS, RESULT

Mask = NDArray[np.bool_]


class Column(NamedTuple):
    """Codes of a column, and which of them were never driven."""

    codes: Codes
    undriven: Mask


def assigned(dump: Dump, description: Description, count: int | None) -> dict[str, Column]:
    """Return the columns of a dump by what they are: those that have no names by their number.

    Raises:
        ConfigError: no column is the result, or there are too many.
    """
    columns = {name: Column(codes, dump.undriven[name]) for name, codes in dump.columns.items()}
    names = list(columns)
    if any(not name.isdecimal() for name in names):
        if RESULT not in names:
            raise ConfigError(
                f"a column of {dump.source} must be the result, got {', '.join(names)}; add --columns result=NAME"
            )
        return columns
    # a line has no room for the terms of a product
    operands = [] if description.depth > 1 else list(NAMES[: len(description.formats)])
    # lines of TestFloat end with the first result and its flags, whatever further results there are
    results = [RESULT] if dump.is_testfloat else description.result_names
    layouts = {1: [RESULT], len(results): results, len(results) + 1: [*results, FLAGS]}
    if operands:
        layouts |= {len(operands) + len(results) + 1: [*operands, *results, FLAGS]}
        # if a number of columns has two meanings, results with flags are meant, not operands without flags
        layouts.setdefault(len(operands) + len(results), [*operands, *results])
    words = len(names) * len(dump)
    if len(names) > 1 and len(dump) != count and (words == count or len(names) > max(layouts)):  # a memory, row by row
        codes, undriven = (np.stack(parts, axis=1).reshape(-1) for parts in zip(*columns.values(), strict=True))
        return {RESULT: Column(codes, undriven.astype(np.bool_))}
    if len(names) not in layouts:
        raise ConfigError(
            f"a line of {dump.source} must hold a result, a result and its flags, or {len(operands)} operands before "
            f"them, got {len(names)} codes; say what they are with --columns"
        )
    return dict(zip(layouts[len(names)], columns.values(), strict=True))


def fitting(column: Column, fmt: Format, what: str, source: str) -> Codes:
    """Return codes of a format's width; words that are its own with the sign extended are cut.

    Raises:
        ConfigError: a word is wider.
    """
    codes, width = column.codes, fmt.width_bits
    # with 64 bits no code is wider
    beyond = np.flatnonzero(codes >> np.uint64(width)) if width < 64 else np.array([], np.int64)
    if not beyond.size:
        return codes
    # the sign bit and all bits above it: all 0, or all ones up to the width of the dumped word
    above = np.unique(codes >> np.uint64(width - 1))
    if fmt.signed and not (isinstance(fmt, Fixed) and fmt.sign_magnitude) and above.size <= 2:
        extended = int(above[-1])
        # every word is of either sign, and every negative one has the same ones above
        if (extended & (extended + 1)) == 0 and (above.size == 1 or above[0] == 0):
            return codes & np.uint64((1 << width) - 1)
    raise ConfigError(
        f"every {what} must be a code of {width} bits, got 0x{int(codes[beyond[0]]):x} in vector {int(beyond[0])} of "
        f"{source}; dump the format's own word"
    )
