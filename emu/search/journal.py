"""The journal in the folder of a search: a line of JSON for each change.

A process that is killed may leave half a line at the end, which means nothing. It is cut off under the lock that all
writers of the journal take: when the journal is opened, and before a line is written, because the new line would
otherwise be appended to the torn one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emu.errors import ConfigError

#: Bytes that are read at a time, from the end backwards, to find the last line.
_BLOCK = 1 << 16


def open_journal(path: Path) -> Any:
    """Return Optuna's journal of a file, which is made if it does not exist.

    A torn line at the end is cut off, and a message about it is printed.

    Raises:
        ConfigError: a line before the last one is damaged.
        OSError: the file cannot be read or written.
    """
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    lock = JournalFileSymlinkLock(str(path))

    class Journal(JournalFileBackend):
        """Appends to complete lines only."""

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            """Append lines in a single write."""
            # JSON text of these settings has no line break inside, so each line break ends a record
            lines = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
            with _locked(lock):
                # another writer may have been killed since this process opened the journal
                _cut(path, _torn(path))
                with path.open("ab") as file:
                    file.write(lines)
                    file.flush()
                    # on the disk before the lock is released, so that a trial that was told survives a loss of power
                    os.fsync(file.fileno())

    backend = Journal(str(path), lock)
    with _locked(lock):
        _cut(path, _damaged_end(path))
    return backend


@contextmanager
def _locked(lock: Any) -> Generator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _torn(path: Path) -> int:
    """Return the number of bytes after the last end of a line."""
    with path.open("rb") as file:
        left = file.seek(0, os.SEEK_END)
        torn = 0
        while left:
            begin = max(left - _BLOCK, 0)
            file.seek(begin)
            block = file.read(left - begin)
            if b"\n" in block:
                return torn + len(block) - block.rindex(b"\n") - 1
            # no end of a line in this block: all of it belongs to the torn line
            torn, left = torn + len(block), begin
        return torn


def _damaged_end(path: Path) -> int:
    """Return the number of bytes of a last line that is not JSON; raise ConfigError if an earlier line is damaged."""
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        # an end that is complete as a line may still be no JSON, as after a crash of the file system
        if not _is_whole(line):
            if number == len(lines):
                return len(line)
            raise ConfigError(
                f"every line of a search's journal must be JSON, got {line[:40]!r} in line {number} of {len(lines)} in "
                f"{path}; remove that line, or begin again with another --out. Finished runs are kept"
            )
    return 0


def _is_whole(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _cut(path: Path, count: int) -> None:
    if count:
        size = path.stat().st_size - count
        os.truncate(path, size)
        print(
            f"{path}: the last line was torn, as by a process that was killed; cut it off ({count} bytes)",
            file=sys.stderr,
        )
