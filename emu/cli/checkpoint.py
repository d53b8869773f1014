"""The output of `emu checkpoint`: the entries of a checkpoint, and what their scales are; elements are not read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from emu.checkpoints import CONVENTIONS, read_checkpoint
from emu.cli.output import Column, Output, Table


def checkpoint_output(path: Path, names: list[str] | None) -> Output:
    """Return the entries of a checkpoint.

    Raises:
        ConfigError: as `read_checkpoint`.
    """
    read = read_checkpoint(path, names)
    columns = (
        Column("name", "name"),
        Column("stored as", "convention"),
        Column("format", "format"),
        Column("shape", "shape", lambda shape: " x ".join(map(str, shape)) or "one number"),
        Column("bits", "bits_per_element", lambda bits: f"{bits:.4g}", "-", is_number=True),
        Column("scales", "scales", str, "-", is_number=True),
        Column("exponents", "exponents", lambda ends: "..".join(map(str, dict.fromkeys(ends))), "-", is_number=True),
        Column("zero", "zero_scales", str, "-", is_number=True),
        Column("NaN", "nan_scales", str, "-", is_number=True),
    )
    rows: list[tuple[Any, ...]] = []
    for name, stored in read.conventions.items():
        shape = read.shape(name)
        size = math.prod(shape)
        bits = 8 * read.size_bytes(name) / size if size else None
        fmt = str(CONVENTIONS[stored].format) if stored in CONVENTIONS else None
        rows.append((name, stored, fmt, shape, bits, *_about(read.scales(name))))
    note = Text("\nexponents are those of the leading bits of the finest scales")
    parts = [Table(columns, rows, layout={"under": ["format"]})]
    return Output([*parts, note] if any(row[2] for row in rows) else parts)


def _about(levels: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the number of the finest scales, the range of their exponents, and how many of them are 0 and NaN."""
    if not levels:
        return None, None, None, None
    # Levels go from fine to coarse: the first one has a scale for the smallest group of elements.
    scales = levels[0]
    ordinary = np.abs(scales[np.isfinite(scales) & (scales != 0)])
    # frexp gives a significand in [0.5, 1), so the leading bit's exponent is one less.
    exponents = np.frexp(ordinary)[1] - 1
    ends = (int(exponents.min()), int(exponents.max())) if ordinary.size else None
    return scales.size, ends, int(np.sum(scales == 0)), int(np.sum(np.isnan(scales)))
