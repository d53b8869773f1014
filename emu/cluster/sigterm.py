"""SIGTERM, by which a launcher, a batch system or a person asks a process to end, as an exception.

So a run writes why it stops before its process ends. Only the default action is replaced, for as long as a run is
trained: a program that handles SIGTERM itself keeps its handler.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

#: Exit code of a process that SIGTERM has ended, as shells have it.
EXIT_CODE = 128 + signal.SIGTERM


class Terminated(SystemExit):
    """The process got SIGTERM."""

    def __init__(self) -> None:
        super().__init__(EXIT_CODE)


@contextmanager
def raising_on_sigterm() -> Generator[None]:
    """Raise `Terminated` in the block when SIGTERM arrives; only in the main thread, which alone receives signals."""
    is_main = threading.current_thread() is threading.main_thread()
    # Python lets only the main thread set handlers
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise Terminated
