"""A small process beside a rank: it says which rank died where the launcher ends all others at once.

It also ends a rank whose job does not begin in time: while MPI begins, the rank itself can do nothing. Linux orders the
deaths that one `epoll` has seen, so that the first is the one that ended the job.
"""

import os
import select
import subprocess
import sys
from contextlib import suppress

#: Ends the watch.
_ALL_DONE = b"done\n"


class Watch:
    """The process beside a rank.

    Attributes:
        pid: its number.
    """

    def __init__(self, rank: int, timeout_s: float) -> None:
        """Begin to wait for the job's beginning.

        Args:
            rank: of this process.
            timeout_s: within which `over` or `done` must be called.
        """
        command = [sys.executable, "-I", "-S", __file__, str(rank), str(os.getpid()), str(timeout_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env={})
        self.pid = self._process.pid

    def over(self, processes: dict[int, int]) -> None:
        """Say which ranks are to be watched: process number by rank."""
        self._write(" ".join(f"{rank}:{pid}" for rank, pid in processes.items()).encode() + b"\n")

    def done(self) -> None:
        """End the watch."""
        self._write(_ALL_DONE)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(line)
            self._process.stdin.flush()


def _say(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"emu: {text}\n")
        sys.stderr.flush()


def _first_words(rank: str, parent: int, timeout_s: float) -> bytes:
    """Return what the rank says within the time; end it where it says nothing."""
    if select.select([0], [], [], timeout_s)[0]:
        return os.read(0, 1 << 20)
    _say(
        f"rank {rank}: all ranks must have begun within {timeout_s:g} s, and some have not; look at the other "
        "ranks' machines, or raise `cluster.timeout_s`"
    )
    with suppress(OSError):
        os.kill(parent, 9)
    return b""


def _watch(processes: dict[int, int]) -> None:
    """Wait for the first death, or for the end of the watch."""
    waiting, ranks = select.epoll(), dict[int, int]()
    waiting.register(0, select.EPOLLIN)
    for rank, pid in processes.items():
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            _report(rank, pid)
            return
        ranks[handle] = rank
        waiting.register(handle, select.EPOLLIN)
    while True:
        for handle, _ in waiting.poll():
            if handle in ranks:
                _report(ranks[handle], processes[ranks[handle]])
                return
            if os.read(0, 1 << 10):
                return
            waiting.unregister(0)  # its rank has died: its own handle comes, too


def _report(rank: int, pid: int) -> None:
    _say(
        f"rank {rank} has died: process {pid} was killed from outside, or there was no memory left; the job ends, its "
        "last checkpoint is intact; start it again with --resume"
    )


if __name__ == "__main__":
    said = _first_words(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    if said and not said.endswith(_ALL_DONE) and hasattr(select, "epoll"):
        _watch({int(rank): int(pid) for rank, pid in (pair.split(":") for pair in said.decode().split())})
