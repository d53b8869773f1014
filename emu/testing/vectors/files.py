"""Vectors as files.

hex         DIR/manifest.json, DIR/a.hex, b.hex, c.hex, rbits.hex, result.hex, flags.hex: a code a line, for $readmemh;
            `depth` lines of a factor belong to a result of matmul
testfloat   DIR/manifest.json, DIR/vectors.txt: operands, result and flags a line, as Berkeley TestFloat writes them

Flags are bits: inexact 1, underflow 2, overflow 4, infinite 8, invalid 16, accumulator overflow 32 (hex alone). In hex,
underflow is emu's: not 0, but 0 was written; in TestFloat's lines IEEE 754's: tiny after rounding, and inexact. A
description with `tininess` has IEEE 754's of that choice in both.
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
from emu.errors import ConfigError, nearest_name
from emu.testing.vectors.definition import ieee_flags
from emu.testing.vectors.description import NAMES, Codes, Description, Vectors

Style = Literal["hex", "testfloat"]
MANIFEST, LINES = "manifest.json", "vectors.txt"
#: Version of the layout, in the manifest.
LAYOUT = "emu vectors 1"
_FLAG_DIGITS = 2
#: Bits of a code, at most.
_MOST_BITS = 64


class _Manifest(Table):
    """The manifest of a folder of vectors."""

    layout: str
    style: Style
    description: Description
    files: Items[str]


def write_vectors(vectors: Vectors, folder: Path, style: str = "hex") -> list[Path]:
    """Write vectors into a folder; return the files.

    Raises:
        ConfigError: there is no such style, TestFloat's lines cannot hold the operation, or the folder cannot be
            written.
    """
    d = vectors.description
    if style not in get_args(Style):
        raise ConfigError(f"`style` must be hex or testfloat, got {style!r}{nearest_name(style, get_args(Style))}")
    if style == "testfloat" and (d.operation == "matmul" or d.is_stochastic):
        what = "products" if d.operation == "matmul" else "random bits"
        raise ConfigError(f"TestFloat's lines must hold operands, result and flags, got {what}; write --style hex")
    texts = _hex_files(vectors) if style == "hex" else {LINES: _testfloat_lines(vectors)}
    manifest = {"layout": LAYOUT, "style": style, "description": d.model_dump(mode="json"), "files": list(texts)}
    texts[MANIFEST] = json.dumps(manifest, indent=2) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
    files = {f"{name}.hex": _column(x, w) for name, x, w in zip(NAMES, vectors.operands, widths, strict=False)}
    if vectors.rbits is not None:
        files["rbits.hex"] = _column(vectors.rbits, d.n_rbits)
    files["result.hex"] = _column(vectors.results, d.stage.format.width_bits)
    files["flags.hex"] = _column(vectors.flags, 4 * _FLAG_DIGITS)
    return files


def _column(codes: Codes, bits: int) -> str:
    return "".join(f"{int(code):0{_digits(bits)}x}\n" for code in codes.reshape(-1))


def _testfloat_lines(vectors: Vectors) -> str:
    d = vectors.description
    widths = [*(fmt.width_bits for fmt in d.operand_formats), d.stage.format.width_bits, 4 * _FLAG_DIGITS]
    columns = [*vectors.operands, vectors.results, ieee_flags(vectors)]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return "".join(
        " ".join(f"{code:0{_digits(bits)}X}" for code, bits in zip(row, widths, strict=True)) + "\n" for row in rows
    )


def _digits(bits: int) -> int:
    return -(-bits // 4)


def read_vectors(folder: Path) -> Vectors:
    """Return the vectors of a folder.

    Raises:
        ConfigError: a file is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} must be the manifest of vectors, got {error}; name the folder they are in") from None
    table = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if table.get("layout") != LAYOUT:
        raise ConfigError(f"{path} must be of the layout {LAYOUT!r}, got {table.get('layout')!r}; write it again")
    manifest = checked(_Manifest, table, file=str(path))
    d = manifest.description
    if manifest.style == "testfloat":
        lines = read_lines(folder / LINES, len(d.formats) + 2, d.count)
        *operands, results, flags = lines
        return Vectors(d, tuple(operands), None, results, flags)
    operands = [
        read_lines(folder / f"{name}.hex", 1, int(np.prod(d.shape_of(i))))[0].reshape(d.shape_of(i))
        for i, name in enumerate(NAMES[: len(d.formats)])
    ]
    rbits = read_lines(folder / "rbits.hex", 1, d.count)[0] if d.is_stochastic else None
    results, flags = (read_lines(folder / f"{name}.hex", 1, d.count)[0] for name in ("result", "flags"))
    return Vectors(d, tuple(operands), rbits, results, flags)


def read_lines(path: Path, columns: int | None, count: int) -> list[Codes]:
    """Return the columns of a file of hexadecimal codes; comments after // or #, and empty lines, are skipped.

    Args:
        path: of the file.
        columns: how many; None takes as many as the first line has.
        count: lines wanted.

    Raises:
        ConfigError: the file is missing, a word is no hexadecimal number, or lines or columns are too few or many.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} must be a text file of hexadecimal codes, got {error}; check the path") from None
    rows: list[list[int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("//")[0].partition("#")[0].split()
        if not words:
            continue
        rows.append(_words(path, number, words, columns or (len(rows[0]) if rows else len(words))))
    if len(rows) != count:
        raise ConfigError(f"{path} must have {count} lines, one per vector, got {len(rows)}; write it again")
    return [np.array(column, np.uint64) for column in zip(*rows, strict=True)]


def _words(path: Path, number: int, words: Sequence[str], columns: int) -> list[int]:
    if len(words) != columns:
        raise ConfigError(f"{path} must have {columns} codes a line, got {len(words)} in line {number}; write it again")
    try:
        codes = [int(word, 16) for word in words]
        if min(codes) < 0 or max(codes) >> _MOST_BITS:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{path} must hold hexadecimal codes, got {' '.join(words)!r} in line {number}; an x or z in a simulator's "
            "dump is a result that was never driven"
        ) from None
    return codes
