"""Parquet tables, written and read by the calling thread alone.

`pyarrow.parquet.read_table` gives a Python file to threads of Arrow's own. They may drop it when the interpreter has
begun to end; it then ends them in the midst of C++, which aborts the process: "terminate called without an active
exception", one process in twenty that end right after reading on a busy machine (apache/arrow, issue 34314). So the
bytes are Arrow's, and no thread is started. `pyarrow` is loaded when a table is needed: it takes 0.06 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO


def arrow_errors() -> tuple[type[Exception], ...]:
    """Return the errors that `read_parquet` raises for files that are no Parquet tables or cannot be read."""
    return import_module("pyarrow").ArrowException, OSError, ValueError


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return a file as a `pyarrow.Table`.

    Args:
        path: the file.
        columns: which columns to read; all by default. Those that it lacks are left out.

    Raises:
        arrow_errors(): it cannot be read, or is no Parquet table.
    """
    source = import_module("pyarrow").BufferReader(path.read_bytes())
    file = import_module("pyarrow.parquet").ParquetFile(source, pre_buffer=False)
    return file.read(None if columns is None else list(columns), use_threads=False)


def write_parquet(table: Any, file: BinaryIO) -> None:
    """Write a `pyarrow.Table` into a file that is open."""
    import_module("pyarrow.parquet").write_table(table, file, compression="zstd")


def table_of_columns(columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, str]) -> Any:
    """Return columns as a `pyarrow.Table`.

    Args:
        columns: sequences or arrays of one length, for each key of `kinds`; None becomes null, NaN stays NaN.
        kinds: name of the Arrow type of each column, in the table's order.
    """
    arrow = import_module("pyarrow")
    arrays = [arrow.array(columns[name], kind) for name, kind in kinds.items()]
    return arrow.Table.from_arrays(arrays, names=list(kinds))
