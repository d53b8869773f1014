"""Leases: which process works on something that several share, and whether it still does.

    the holder    writes who it is, and a count that goes on while it works
    all others    take over if the holder's process has ended, or if its count stands still for long

Where a lease is written is up to what is leased: a run has a file beside it (`emu.jobs.claim`), a trial an attribute in
the storage of its search (`emu.search.ledger`).
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Holder:
    """Who holds a lease.

    Attributes:
        computer: name of the computer.
        process: number of the process.
        token: what tells two holders of one process apart; empty where a process has one.
        count: how often the holder has said that it works.
    """

    computer: str
    process: int
    token: str
    count: int

    @classmethod
    def here(cls, count: int, token: str = "") -> Holder:
        """Return this process as a holder."""
        return cls(platform.node(), os.getpid(), token, count)

    def lines(self) -> str:
        """Return the holder as lines of a file."""
        return f"{self.computer}:{self.process}\n{self.count}\n"

    def plain(self) -> dict[str, Any]:
        """Return the holder as plain data (JSON)."""
        return asdict(self)


def has_ended(holder: Mapping[str, Any]) -> bool:
    """Return whether a holder, as plain data, was a process of this computer and has ended."""
    return holder.get("computer") == platform.node() and not _lives(holder.get("process"))


def _lives(process: object) -> bool:
    """Return whether a process of this computer lives, as far as can be seen."""
    if not isinstance(process, int):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Counts:
    """The counts of holders, as somebody sees them who waits; each as long as it has stood still."""

    def __init__(self, patience_s: float) -> None:
        """Know no holder.

        Args:
            patience_s: seconds without another count after which a holder counts as lost.
        """
        self._patience_s = patience_s
        self._last: dict[Hashable, tuple[object, float]] = {}

    def note(self, key: Hashable, holder: object) -> None:
        """Note what a holder says: its count, among other things.

        Args:
            key: what is leased.
            holder: what the holder has written; another text or another table is another count.
        """
        if key not in self._last or self._last[key][0] != holder:
            self._last[key] = holder, time.monotonic()

    def stands_still(self, key: Hashable) -> bool:
        """Return whether the count of a lease has not changed for longer than the patience."""
        return key in self._last and time.monotonic() - self._last[key][1] > self._patience_s

    def forget(self, key: Hashable) -> None:
        """Forget a lease that has ended."""
        self._last.pop(key, None)


@contextmanager
def counting(write: Callable[[int], None], every_s: float) -> Generator[None]:
    """Write a count that goes on while the block runs, from 0; an error of the system counts only at the beginning.

    Args:
        write: writes the count; called in a thread of its own.
        every_s: seconds between two counts.
    """
    done = threading.Event()
    write(0)
    thread = threading.Thread(target=_count, args=(done, write, every_s), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _count(done: threading.Event, write: Callable[[int], None], every_s: float) -> None:
    number = 0
    while not done.wait(every_s):
        number += 1
        with suppress(OSError):
            write(number)
