"""A small process beside a rank that names the rank that died, because launchers then kill all others at once.

It also kills a rank whose job does not begin in time, because the rank itself can do nothing while MPI begins.

All ranks of a machine are connected to the sentinel of the first of them. When a rank dies, its connections close, the
launcher notices, and the others die. Linux reports events of one `epoll` in order, so the first closed connection is
that of the rank that ended the job. The kernel decides which of its files a process loses first, so each rank has two
connections: the file with the lowest number and the one with the highest.
"""

import fcntl
import os
import select
import socket
import subprocess
import sys
from contextlib import suppress

#: Message that ends the sentinel.
_ALL_DONE = b"done\n"
#: Connections of a rank, and the least file number of the second one.
_CONNECTIONS, _HIGH = 2, 500


class Sentinel:
    """Handle of the process beside a rank.

    Attributes:
        pid: number of the process.
    """

    def __init__(self, rank: int, timeout_s: float) -> None:
        """Start the process.

        Args:
            rank: rank of this process.
            timeout_s: seconds within which `guard` or `done` must be called; then the sentinel kills this process.
        """
        self._low, self._high = os.open(os.devnull, os.O_RDONLY), -1
        command = [sys.executable, "-I", "-S", __file__, str(rank), str(os.getpid()), str(timeout_s)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env={}
        )
        self.pid = self._process.pid

    def guard(self, ranks: int) -> bytes:
        """Let the sentinel watch so many ranks; return the address that they connect to."""
        self._write(b"%d\n" % ranks)
        return self._read()

    def ready(self) -> None:
        """Wait until all ranks are connected to this sentinel."""
        self._read()

    def connect(self, address: bytes, rank: int) -> None:
        """Connect this rank to the sentinel of its machine."""
        for low in (True, False):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(address)
                connection.sendall(f"{rank} {os.getpid()}".encode())
                if low:
                    os.dup2(connection.fileno(), self._low, inheritable=False)
                else:
                    self._high = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)

    def done(self) -> None:
        """End this sentinel; connections to another one stay open."""
        self._write(_ALL_DONE)
        self._process.communicate()

    def disconnect(self) -> None:
        """Close the connections of this rank."""
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


def _first_message(rank: str, parent: int, timeout_s: float) -> bytes:
    """Return the rank's first message; kill the rank if it sends none in time."""
    if select.select([0], [], [], timeout_s)[0]:
        return os.read(0, 1 << 10)
    _say(
        f"rank {rank}: all ranks must have begun within {timeout_s:g} s, and some have not; look at the other "
        "ranks' machines, or raise `cluster.timeout_s`"
    )
    with suppress(OSError):
        os.kill(parent, 9)
    return b""


def _guard(ranks: int) -> None:
    """Let ranks connect; wait for the first lost connection, and name its rank, or for the order to end."""
    listening, waiting = socket.socket(socket.AF_UNIX), select.epoll()
    listening.bind(b"\0emu-%d" % os.getpid())
    listening.listen(ranks * _CONNECTIONS)
    os.write(1, listening.getsockname() + b"\n")
    connections: dict[int, tuple[str, socket.socket]] = {}
    for _ in range(ranks * _CONNECTIONS):
        connection, _ = listening.accept()
        connections[connection.fileno()] = (connection.recv(100).decode(), connection)
    for handle in (0, *connections):
        waiting.register(handle, select.EPOLLIN)
    os.write(1, b"watching\n")
    while True:
        for handle, _ in waiting.poll():
            if handle in connections:
                rank, pid = connections[handle][0].split()
                _say(
                    f"rank {rank} has died: process {pid} was killed from outside, or there was no memory left; the "
                    "job ends, its last checkpoint is intact; start it again with --resume"
                )
                return
            if os.read(0, 1 << 10):
                return
            waiting.unregister(0)  # the rank beside this process has died: its connections close, too


if __name__ == "__main__":
    ranks = _first_message(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    if ranks and not ranks.endswith(_ALL_DONE):
        _guard(int(ranks))
