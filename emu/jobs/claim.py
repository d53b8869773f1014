"""Who trains a run: a lock of the system, and beside it who holds it and a count that goes on while the holder lives.

A process that ends gives its locks back, however it ends. One that hangs keeps them, but its count stands still.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

#: Seconds between two counts.
BEAT_S = 2.0


class Claim:
    """The right to train a run in a folder that others see.

    Attributes:
        lock: path of the lock.
        holder: path of the file that says who holds it.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.lock, self.holder = folder / f"{key}.lock", folder / f"{key}.process"

    @contextmanager
    def held(self) -> Generator[bool, None, None]:
        """Hold it as long as the block runs; gives whether it could be had."""
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.lock)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            yield False
            return
        done = threading.Event()
        beat = threading.Thread(target=self._count, args=(done,), daemon=True)
        try:
            self._say(0)
            beat.start()
            yield True
        finally:
            done.set()
            beat.join()
            self.holder.unlink(missing_ok=True)
            lock.release()

    def seen(self) -> str:
        """Return who holds it, with the count; empty where nobody does, or did until its process ended."""
        try:
            return self.holder.read_text(encoding="utf-8")
        except OSError:
            return ""

    def _count(self, done: threading.Event) -> None:
        number = 0
        while not done.wait(BEAT_S):
            number += 1
            with suppress(OSError):
                self._say(number)

    def _say(self, number: int) -> None:
        self.holder.write_text(f"{platform.node()}:{os.getpid()}\n{number}\n", encoding="utf-8")
