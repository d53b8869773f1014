"""Vectors as files: hexadecimal columns for `$readmemh`, and the lines of Berkeley TestFloat, in one folder.

    manifest.json                        what they are, and whose flags `flags.hex` has
    a.hex, b.hex, c.hex, rbits.hex       a code a line; `depth` lines of a factor belong to a result of matmul
    result.hex, flags.hex
    vectors.txt                          operands, result and flags a line, unless a line cannot hold the operation
    result2.hex, result3.hex             further results of the same operands
    scale.hex, tensor_scale.hex          scales that results share: a line a block of results; a line for all of them
    statistics.hex                       what a register of leading bits has counted after the last vector
    cells.txt                            how many vectors reach each cell, for people

Flags are bits: inexact 1, underflow 2, overflow 4, infinite 8, invalid 16, accumulator overflow 32 (`flags.hex` alone).
`flags` of the manifest says whose: `ieee`, those of IEEE 754 as Berkeley SoftFloat has them (the default of float
results), or `emu`, whose underflow is a 0 that was written for another result (that of fixed-point results). Lines of
TestFloat always have IEEE 754's. A description with `tininess` has IEEE 754's underflow of that choice in both.

Folders of the layout "emu vectors 1" had either columns with emu's flags, or lines; they are read as what they were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast, get_args

import numpy as np

from emu._config import Items, Table, checked
from emu._files import read_json, replace_file
from emu.datapath import StatisticsRegister
from emu.errors import ConfigError, nearest_name
from emu.testing.vectors.cells import table_of
from emu.testing.vectors.definition import ACCUMULATOR_BIT, further_results, register_of, with_flags_of
from emu.testing.vectors.description import NAMES, Codes, Description, FlagRule, Vectors
from emu.testing.vectors.everything import Everything, rows_among_all

Style = Literal["both", "hex", "testfloat"]
MANIFEST, LINES, CELLS, REGISTER = "manifest.json", "vectors.txt", "cells.txt", "statistics.hex"
#: Version of the layout, in the manifest, and the one before it.
LAYOUT, EARLIER_LAYOUT = "emu vectors 2", "emu vectors 1"
_FLAG_DIGITS = 2
#: Bits of a code, at most.
_MOST_BITS = 64
#: Bits of flags: those of TestFloat, and the accumulator's.
_FLAG_BITS = ACCUMULATOR_BIT + 1
#: The flags that lines of TestFloat have: all but the accumulator's.
_LINE_FLAGS = np.uint64((1 << ACCUMULATOR_BIT) - 1)


class _Manifest(Table):
    """The manifest of a folder of vectors."""

    layout: str
    flags: FlagRule
    description: Description
    files: Items[str]


class _EarlierManifest(Table):
    """The manifest of a folder of the earlier layout."""

    layout: str
    style: Literal["hex", "testfloat"]
    description: Description
    files: Items[str]


def register_rows(register: StatisticsRegister) -> list[tuple[str, int]]:
    """Return the counts of a register in the order of its file, each with what it counts.

    Positive results by the exponent of their leading bit, from the lowest on; then negative ones; results without a
    leading bit, below the positions, above them, not finite, and all.
    """
    assert register.lowest is not None
    assert register.bins is not None
    exponents = range(register.lowest, register.lowest + register.bins)
    sides = (("positive", register.positive), ("negative", register.negative))
    rows = [(f"{name} results of leading bit 2**{e}", side.get(e, 0)) for name, side in sides for e in exponents]
    scalars = {
        "results without a leading bit": register.none,
        "results below the positions": register.below,
        "results above the positions": register.above,
        "results that are not finite": register.nonfinite,
        "results": register.total,
    }
    return [*rows, *scalars.items()]


def lines_hold(description: Description) -> bool:
    """Return whether a line of TestFloat can hold a vector: operands, result and flags, each once."""
    return description.operation != "matmul" and not description.is_stochastic and description.blocks is None


def write_vectors(
    vectors: Vectors, folder: str | Path, style: str = "both", *, everything: Everything | None = None
) -> list[Path]:
    """Write vectors into a folder; return the files.

    Args:
        vectors: what is written.
        folder: where; it is made.
        style: hex (columns), testfloat (lines), or both; where lines cannot hold the operation, both is hex.
        everything: all inputs of the operation, if they were tried; without, they are if they are few.

    Raises:
        ConfigError: there is no such style, TestFloat's lines cannot hold the operation, or the folder cannot be
            written.
    """
    d, folder = vectors.description, Path(folder)
    if style not in get_args(Style):
        raise ConfigError(
            f"`style` must be both, hex or testfloat, got {style!r}{nearest_name(style, get_args(Style))}"
        )
    if style == "testfloat" and not lines_hold(d):
        what = "products" if d.operation == "matmul" else "random bits" if d.is_stochastic else "scales of blocks"
        raise ConfigError(f"TestFloat's lines must hold operands, result and flags, got {what}; write --style hex")
    texts = _hex_files(vectors) if style != "testfloat" else {}
    if style != "hex" and lines_hold(d):
        texts[LINES] = _testfloat_lines(vectors)
    # `flags` stands beside the description: read back, it is a key of the manifest
    manifest = {"layout": LAYOUT, "flags": d.flag_rule, "description": d.model_dump(mode="json", exclude={"flags"})}
    manifest |= {"files": list(texts)}
    texts[MANIFEST] = json.dumps(manifest, indent=2) + "\n"
    counted = "vectors" if d.blocks is None else "blocks"
    texts[CELLS] = table_of(rows_among_all(vectors, everything=everything), counted)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # each file is replaced as a whole, and the manifest after the columns that it lists; an earlier one would
        # describe columns of both if the process ended between them
        (folder / MANIFEST).unlink(missing_ok=True)
        for name, text in texts.items():
            replace_file(folder / name, partial(_write, text))
    except OSError as error:
        raise ConfigError(
            f"the folder of vectors must be writable, got {error.strerror!r} for {folder}; choose another with --out"
        ) from None
    return [folder / name for name in texts]


def _write(text: str, file: BinaryIO) -> None:
    file.write(text.encode())


def _hex_files(vectors: Vectors) -> dict[str, str]:
    d = vectors.description
    widths = [fmt.width_bits for fmt in d.operand_formats]
    # NAMES has a third name, which most operations do not use
    files = {f"{name}.hex": _column(x, w) for name, x, w in zip(NAMES, vectors.operands, widths, strict=False)}
    if vectors.rbits is not None:
        files["rbits.hex"] = _column(vectors.rbits, d.n_rbits)
    files["result.hex"] = _column(vectors.results, d.stage.format.width_bits)
    files["flags.hex"] = _column(vectors.flags, 4 * _FLAG_DIGITS)
    for (name, fmt), codes in zip(d.scale_formats.items(), vectors.scales, strict=True):
        files[f"{name}.hex"] = _column(codes, fmt.width_bits)
    for name, further in zip(d.result_names[1:], further_results(vectors), strict=True):
        files[f"{name}.hex"] = _column(further.results, further.description.stage.format.width_bits)
    if (register := register_of(vectors)) is not None:
        files[REGISTER] = _column(np.array([count for _, count in register_rows(register)], np.uint64), 32)
    return files


def _column(codes: Codes, bits: int) -> str:
    return "".join(f"{int(code):0{_digits(bits)}x}\n" for code in codes.reshape(-1))


def _testfloat_lines(vectors: Vectors) -> str:
    d = vectors.description
    widths = [*(fmt.width_bits for fmt in d.operand_formats), d.stage.format.width_bits, 4 * _FLAG_DIGITS]
    ieee = with_flags_of("ieee", vectors).flags
    columns = [*vectors.operands, vectors.results, ieee & _LINE_FLAGS]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return "".join(
        " ".join(f"{code:0{_digits(bits)}X}" for code, bits in zip(row, widths, strict=True)) + "\n" for row in rows
    )


def _digits(bits: int) -> int:
    return -(-bits // 4)


def read_vectors(folder: str | Path) -> Vectors:
    """Return the vectors of a folder, from its columns if it has both.

    Raises:
        ConfigError: a file is missing or damaged, or has a code wider than its format.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} must be the manifest of vectors, got {error}; name the folder they are in") from None
    table = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if table.get("layout") not in (LAYOUT, EARLIER_LAYOUT):
        raise ConfigError(f"{path} must be of the layout {LAYOUT!r}, got {table.get('layout')!r}; write it again")
    if table["layout"] == EARLIER_LAYOUT:
        earlier = checked(_EarlierManifest, table, file=str(path))
        d, rule, has_columns = earlier.description, "emu", earlier.style == "hex"
    else:
        manifest = checked(_Manifest, table, file=str(path))
        # a manifest that lists more than lines lists columns
        d, rule, has_columns = manifest.description, manifest.flags, LINES not in manifest.files or (
            len(manifest.files) > 1
        )  # fmt: skip
    # lines of TestFloat have IEEE 754's flags whatever the manifest says
    d = d.model_copy(update={"flags": rule if has_columns else "ieee"})
    d.require_whole_blocks(str(path))
    if not has_columns and not lines_hold(d):
        raise ConfigError(f"{path} must list the columns of {d.out_format}, got {LINES} alone; write them again")
    if not has_columns:
        widths = [*(fmt.width_bits for fmt in d.operand_formats), d.stage.format.width_bits, _FLAG_BITS]
        lines = read_lines(folder / LINES, len(widths), d.count)
        *operands, results, flags = (
            _fitting(folder / LINES, codes, bits) for codes, bits in zip(lines, widths, strict=True)
        )
        return Vectors(d, tuple(operands), None, results, flags)
    operands = [
        _read_column(folder / f"{name}.hex", int(np.prod(d.shape_of(i))), fmt.width_bits).reshape(d.shape_of(i))
        for i, (name, fmt) in enumerate(zip(NAMES, d.operand_formats, strict=False))
    ]
    rbits = _read_column(folder / "rbits.hex", d.count, d.n_rbits) if d.is_stochastic else None
    results = _read_column(folder / "result.hex", d.count, d.stage.format.width_bits)
    flags = _read_column(folder / "flags.hex", d.count, _FLAG_BITS)
    return Vectors(d, tuple(operands), rbits, results, flags, _scales(folder, d))


def _scales(folder: Path, d: Description) -> tuple[Codes, ...]:
    """Return the scales of the blocks of a folder, then that of the tensor, if there are such."""
    scales = list[Codes]()
    counts = (d.count // d.together, "block"), (1, "tensor")
    for (name, fmt), (count, each) in zip(d.scale_formats.items(), counts, strict=False):
        scales.append(_read_column(folder / f"{name}.hex", count, fmt.width_bits, each))
    return tuple(scales)


def _read_column(path: Path, count: int, bits: int, each: str = "vector") -> Codes:
    """Return the only column of a file, (count,), whose codes have so many bits."""
    [codes] = read_lines(path, 1, count, each)
    return _fitting(path, codes, bits)


def _fitting(path: Path, codes: Codes, bits: int) -> Codes:
    # with 64 bits no code is wider
    if bits < _MOST_BITS and (wide := codes[codes >> np.uint64(bits) != 0]).size:
        raise ConfigError(f"{path} must hold codes of {bits} bits, got 0x{int(wide[0]):x}; write it again")
    return codes


def read_lines(path: Path, columns: int, count: int, each: str = "vector") -> list[Codes]:
    """Return the columns of a file of hexadecimal codes; comments after // or #, and empty lines, are skipped.

    Args:
        path: of the file.
        columns: how many.
        count: lines wanted.
        each: what has a line.

    Raises:
        ConfigError: the file is missing, a word is no hexadecimal number, or lines or columns are too few or many.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path} must be a text file of hexadecimal codes, got {why}; check the path") from None
    rows: list[list[int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("//")[0].partition("#")[0].split()
        if not words:
            continue
        rows.append(_words(path, number, words, columns))
    if len(rows) != count:
        raise ConfigError(f"{path} must have {count} lines, one per {each}, got {len(rows)}; write it again")
    return [np.array(column, np.uint64) for column in zip(*rows, strict=True)]


def _words(path: Path, number: int, words: Sequence[str], columns: int) -> list[int]:
    if len(words) != columns:
        raise ConfigError(f"{path} must have {columns} codes a line, got {len(words)} in line {number}; write it again")
    try:
        codes = [int(word, 16) for word in words]
        # `int` also takes a minus sign
        if min(codes) < 0 or max(codes) >> _MOST_BITS:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{path} must hold hexadecimal codes, got {' '.join(words)!r} in line {number}; write it again"
        ) from None
    return codes
