"""Leases: which process works on a run or a trial that several processes share, and whether it still does.

    the holder    writes its name, and a count that increases while it works
    all others    take over if the holder's process has ended, or if its count has stood still for long

A lease is written in a file beside a run (`emu.training.folders.claim`), or in an attribute of a trial in the storage
of its search (`emu.search.ledger`).
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

#: Whether signal 0 tests for a process. On Windows its number is that of Ctrl-C, which would be sent.
_TESTS_BY_SIGNAL = os.name == "posix"


@dataclass(frozen=True)
class Holder:
    """The holder of a lease.

    Attributes:
        computer: name of the computer.
        process: number of the process.
        token: distinguishes two holders in one process; empty if a process has only one.
        count: number that increases while the holder works.
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
        """Return the holder as the text of a file."""
        return f"{self.computer}:{self.process}\n{self.count}\n"

    @classmethod
    def of_lines(cls, text: str) -> Holder | None:
        """Return the holder that such a text names; None for another text, such as one that is half written."""
        name, _, rest = text.partition("\n")
        # from the right: a colon in the name of the computer does no harm
        computer, _, process = name.rpartition(":")
        count = rest.strip()
        if not (process.isdecimal() and count.isdecimal()):
            return None
        return cls(computer, int(process), "", int(count))

    def plain(self) -> dict[str, Any]:
        """Return the holder as plain data (JSON)."""
        return asdict(self)


def has_ended(holder: Mapping[str, Any]) -> bool:
    """Return whether a holder, given as plain data, was a process of this computer and has ended."""
    # a process of another computer counts as alive here; its count decides
    return holder.get("computer") == platform.node() and not _lives(holder.get("process"))


def _lives(process: object) -> bool:
    """Return whether a process of this computer runs, as far as this process may know."""
    if not isinstance(process, int):
        return False
    if not _TESTS_BY_SIGNAL:
        # as of a process of another computer: its count decides
        return True
    try:
        os.kill(process, 0)  # signal 0 is not delivered: it only tests whether the process exists
    except ProcessLookupError:
        return False
    except OSError:  # it runs, but belongs to another user
        return True
    return True


class Counts:
    """The counts of holders as a waiting process sees them, and how long each has stood still."""

    def __init__(self, patience_s: float) -> None:
        """Begin without holders.

        Args:
            patience_s: seconds without a new count after which a holder counts as lost.
        """
        self._patience_s = patience_s
        self._last: dict[Hashable, tuple[object, float]] = {}

    def note(self, key: Hashable, holder: object) -> None:
        """Note what a holder has written.

        Args:
            key: run or trial that is leased.
            holder: text or table that contains the holder's count; any difference counts as a new count.
        """
        # on this process's own clock: clocks of computers need not agree
        if key not in self._last or self._last[key][0] != holder:
            # what is compared is the whole text or table: another holder with the same count is a change as well
            self._last[key] = holder, time.monotonic()

    def stands_still(self, key: Hashable) -> bool:
        """Return whether the count of a lease has stood still for longer than `patience_s`."""
        # a lease that was never noted does not stand still: patience begins with the first look
        return key in self._last and time.monotonic() - self._last[key][1] > self._patience_s

    def forget(self, key: Hashable) -> None:
        """Forget a lease that has ended."""
        self._last.pop(key, None)


@contextmanager
def counting(write: Callable[[int], None], every_s: float) -> Generator[None]:
    """Write a count that increases from 0 while the block runs. Only the first write may raise an OSError.

    Args:
        write: writes a count; called in a thread of its own.
        every_s: seconds between two counts.
    """
    done = threading.Event()
    # in the caller's thread: its OSError is the caller's, and the lease is written before the block begins
    write(0)
    # daemon: a process that ends while the block runs does not wait for it
    thread = threading.Thread(target=_count, args=(done, write, every_s), name="emu-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _count(done: threading.Event, write: Callable[[int], None], every_s: float) -> None:
    number = 0
    # `wait` returns at once when the block ends, so leaving costs no whole interval
    while not done.wait(every_s):
        number += 1
        # a write that fails is made up for by the next; only many in a row make the holder look lost
        with suppress(OSError):
            write(number)
