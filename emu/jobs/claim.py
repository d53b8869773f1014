"""The claim of a process to train a run: a lock of the operating system, and a file with the holder's lease.

A process that ends, for any reason, releases its locks. A process that hangs keeps them, but its count stands still.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from emu.jobs.lease import Holder, counting

#: Seconds between two counts.
BEAT_S = 2.0


class Claim:
    """The right to train a run in a folder that others see.

    Attributes:
        lock: path of the lock.
        holder: path of the file that names the holder.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.lock, self.holder = folder / f"{key}.lock", folder / f"{key}.process"

    @contextmanager
    def hold(self) -> Generator[bool, None, None]:
        """Hold the claim while the block runs; yield whether it was free."""
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.lock)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            yield False
            return
        try:
            with counting(self._write, BEAT_S):
                yield True
        finally:
            self.holder.unlink(missing_ok=True)
            lock.release()

    def read(self) -> str:
        """Return the text of the holder's file, with its count; empty if there is none."""
        try:
            return self.holder.read_text(encoding="utf-8")
        except OSError:
            return ""

    def _write(self, count: int) -> None:
        self.holder.write_text(Holder.here(count).lines(), encoding="utf-8")
