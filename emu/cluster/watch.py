"""A small process beside a rank: it names the rank that died if the launcher ends all others at once.

It also ends a rank whose job does not begin in time, because the rank itself can do nothing while MPI begins.

The ranks of a machine are connected to the watch of the first of them. One that dies loses its connections, and the
launcher loses sight of it; then the others die. Linux reports events of one `epoll` in order, so the first is the one
that ended the job. The kernel decides which of its files a process loses first, so connections have the lowest and the
highest numbers.
"""

import fcntl
import os
import select
import socket
import subprocess
import sys
from contextlib import suppress

#: Ends the watch.
_ALL_DONE = b"done\n"
#: Connections of a rank, and the number of the file that the second one is.
_CONNECTIONS, _HIGH = 2, 500


class Watch:
    """The process beside a rank.

    Attributes:
        pid: its number.
    """

    def __init__(self, rank: int, timeout_s: float) -> None:
        """Begin to wait for the job's beginning.

        Args:
            rank: rank of this process.
            timeout_s: within which `over` or `done` must be called.
        """
        self._low, self._high = os.open(os.devnull, os.O_RDONLY), -1
        command = [sys.executable, "-I", "-S", __file__, str(rank), str(os.getpid()), str(timeout_s)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env={}
        )
        self.pid = self._process.pid

    def over(self, ranks: int) -> bytes:
        """Watch this number of ranks; return where they connect."""
        self._write(b"%d\n" % ranks)
        return self._read()

    def ready(self) -> None:
        """Wait until all ranks are connected."""
        self._read()

    def connect(self, where: bytes, rank: int) -> None:
        """Connect this rank to the watch of its machine."""
        for low in (True, False):
            with socket.socket(socket.AF_UNIX) as made:
                made.connect(where)
                made.sendall(f"{rank} {os.getpid()}".encode())
                if low:
                    os.dup2(made.fileno(), self._low, inheritable=False)
                else:
                    self._high = fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)

    def done(self) -> None:
        """End the watch, not what is connected to another one."""
        self._write(_ALL_DONE)
        self._process.communicate()

    def disconnect(self) -> None:
        """Close what is connected: nobody watches any more."""
        for handle in (self._low, self._high):
            with suppress(OSError):
                os.close(handle)

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip(b"\n")


def _say(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"emu: {text}\n")
        sys.stderr.flush()


def _first_words(rank: str, parent: int, timeout_s: float) -> bytes:
    """Return what the rank says within the time; end it where it says nothing."""
    if select.select([0], [], [], timeout_s)[0]:
        return os.read(0, 1 << 10)
    _say(
        f"rank {rank}: all ranks must have begun within {timeout_s:g} s, and some have not; look at the other "
        "ranks' machines, or raise `cluster.timeout_s`"
    )
    with suppress(OSError):
        os.kill(parent, 9)
    return b""


def _watch(ranks: int) -> None:
    """Let ranks connect, and wait for the first that is lost, or for the end of the watch."""
    listening, waiting = socket.socket(socket.AF_UNIX), select.epoll()
    listening.bind(b"\0emu-%d" % os.getpid())
    listening.listen(ranks * _CONNECTIONS)
    os.write(1, listening.getsockname() + b"\n")
    held: dict[int, tuple[str, socket.socket]] = {}
    for _ in range(ranks * _CONNECTIONS):
        made, _ = listening.accept()
        held[made.fileno()] = (made.recv(100).decode(), made)
    for handle in (0, *held):
        waiting.register(handle, select.EPOLLIN)
    os.write(1, b"watching\n")
    while True:
        for handle, _ in waiting.poll():
            if handle in held:
                rank, pid = held[handle][0].split()
                _say(
                    f"rank {rank} has died: process {pid} was killed from outside, or there was no memory left; the "
                    "job ends, its last checkpoint is intact; start it again with --resume"
                )
                return
            if os.read(0, 1 << 10):
                return
            waiting.unregister(0)  # the rank beside it has died: its connections are lost, too


if __name__ == "__main__":
    said = _first_words(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    if said and not said.endswith(_ALL_DONE):
        _watch(int(said))
