"""Files are complete or not there, whoever writes them at the same time and whatever fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from emu._files import replace_file


def test_threads_that_write_one_file_leave_one_of_their_contents_and_nothing_else(tmp_path: Path):
    path, contents = tmp_path / "x", [bytes([i]) * 100_000 for i in range(4)]

    def write(i: int) -> None:
        for _ in range(30):
            replace_file(path, lambda file: file.write(contents[i]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
