"""Parquet tables are read by the thread that asks: a thread of Arrow's may abort the process at its end."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emu._tables import arrow_errors, read_parquet, table_of_columns, write_parquet
from emu.training.folders.tables import TABLES

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"step": "int64", "loss": "float64", "layer": "string"}
COLUMNS = {"step": [1, 2, 3], "loss": [0.5, None, float("inf")], "layer": ["fc1", None, "fc2"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with (tmp_path / "metrics.parquet").open("wb") as file:
        write_parquet(table_of_columns(COLUMNS, KINDS), file)
    return tmp_path / "metrics.parquet"


def test_a_table_is_read_as_it_was_written(path: Path) -> None:
    table = read_parquet(path)
    assert table.to_pydict() == COLUMNS
    assert {name: str(table.schema.field(name).type).replace("double", "float64") for name in KINDS} == KINDS


@pytest.mark.parametrize("name", TABLES)
def test_each_table_of_a_run_names_types_that_arrow_has(name: str) -> None:
    assert table_of_columns({column: [] for column in TABLES[name]}, TABLES[name]).column_names == list(TABLES[name])


def test_only_the_columns_that_are_asked_for_and_exist_are_read(path: Path) -> None:
    assert read_parquet(path, ["step", "rate"]).to_pydict() == {"step": [1, 2, 3]}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no table at all", None])
def test_what_is_no_table_raises_one_of_the_errors_of_arrow(path: Path, content: bytes | None) -> None:
    damaged = path.read_bytes()[:-9] if content is None else content
    path.write_bytes(damaged)
    with pytest.raises(arrow_errors()):
        read_parquet(path)


def test_a_file_that_is_gone_raises_one_of_the_errors_of_arrow(tmp_path: Path) -> None:
    with pytest.raises(arrow_errors()):
        read_parquet(tmp_path / "none.parquet")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in Linux's /proc")
def test_neither_writing_nor_reading_starts_a_thread(path: Path) -> None:
    program = f"""
import io, os, pyarrow, pyarrow.parquet
from pathlib import Path
from emu._tables import read_parquet, write_parquet
before = len(os.listdir("/proc/self/task"))
table = read_parquet(Path({str(path)!r}))
read_parquet(Path({str(path)!r}), ["step"])
write_parquet(table, io.BytesIO())
print(len(os.listdir("/proc/self/task")) - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_no_other_file_of_emu_loads_the_reader_that_starts_threads() -> None:
    users = {file.name for file in (ROOT / "emu").rglob("*.py") if re.search(r"pyarrow\.parquet", file.read_text())}
    assert users == {"_tables.py"}


def test_tables_are_compressed(path: Path) -> None:
    plain = io.BytesIO()
    write_parquet(table_of_columns({"step": [7] * 100_000}, {"step": "int64"}), plain)
    assert len(plain.getvalue()) < 2_000
