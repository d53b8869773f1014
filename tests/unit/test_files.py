"""Files are complete or not there, whoever writes them at the same time and whatever fails."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

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


def test_a_folder_that_cannot_be_forced_to_the_disk_has_the_new_file_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sync = os.fsync

    def refusing(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(handle)

    monkeypatch.setattr(os, "fsync", refusing)
    replace_file(tmp_path / "x", lambda file: file.write(b"new"))
    assert (tmp_path / "x").read_bytes() == b"new"
