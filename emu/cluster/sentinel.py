"""A small process beside a rank that says why a job ends, and writes it into `run.json`, when no rank can any more.

It also kills a rank whose job does not begin in time, because the rank itself can do nothing while MPI begins.

All ranks of a machine are connected to the sentinel of the first of them. It says which of these has happened:

    a rank got SIGTERM      the rank says so, and ends the job; all ranks say so if their launcher passes it on
    a rank ends the job     because of an error, which it has printed: the sentinel is silent
    the launcher has died   so nothing has told the terminal why the job ends
    a rank has died         its connections close, the launcher notices, and kills the others

It writes to the stderr of the launcher itself, if that is on this machine: a launcher that ends forwards nothing. If
that is a file, it writes after the launcher's last words, which would otherwise overwrite it.

In the last case the first closed connection is that of the rank that ended the job, because Linux reports events of one
`epoll` in order. The kernel decides which of its files a process loses first, so each rank has two connections: the
file with the lowest number and the one with the highest.
"""

# the standard library alone: this file is run as a script with -I, so that emu is not on its path
import fcntl
import os
import select
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

#: Message that ends the sentinel, and the beginning of the one that names `run.json`.
_ALL_DONE, _RUN = b"done\n", b"run "
#: Messages of ranks: it got SIGTERM; the beginning of why it ends the job.
_GOT_SIGTERM, _ENDS = b"sigterm", b"ends "
#: Seconds within which several ranks that a launcher sends SIGTERM say so. Ranks end the job only after that.
SIGTERM_S = 0.8
#: Seconds for which the sentinel waits until the ranks of an ending job are gone.
_GONE_S = 15.0
#: How the names of launchers' processes begin: MPICH and Intel MPI, Open MPI, Slurm.
_LAUNCHERS = ("mpi", "hydra", "orte", "prte", "slurm", "srun")
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
        # a low file number is taken now, before MPI and others open files; `connect` puts a connection in its place
        self._low, self._high = os.open(os.devnull, os.O_RDONLY), -1
        # -I -S: no site packages, which would take time to load. A session of its own, and so a process group of its
        # own: signals to that of the job do not reach it
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
            # the socket itself is closed: its copies, with the lowest and the highest number, stay
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(address)
                connection.sendall(f"{rank} {os.getpid()}".encode())
                if low:
                    os.dup2(connection.fileno(), self._low, inheritable=False)
                else:
                    self._high = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)

    def note_run(self, path: str) -> None:
        """Let the sentinel write into this `run.json` why the job ends, if the job ends early."""
        # messages are lines: a path with a line break could not be told from two of them
        if "\n" not in path:
            self._write(_RUN + os.fsencode(path) + b"\n")

    def got_sigterm(self) -> None:
        """Tell the sentinel of this machine that this rank got SIGTERM."""
        self._tell(_GOT_SIGTERM)

    def ends(self, why: str) -> None:
        """Tell the sentinel of this machine that this rank ends the job, and has printed why."""
        self._tell(_ENDS + " ".join(why.split()).encode(errors="replace"))

    def done(self) -> None:
        """End this sentinel; connections to another one stay open."""
        self._write(_ALL_DONE)
        # waits until the process has ended, and leaves no zombie
        self._process.communicate()

    def disconnect(self) -> None:
        """Close the connections of this rank."""
        for handle in (self._low, self._high):
            with suppress(OSError):
                os.close(handle)

    def _tell(self, line: bytes) -> None:
        with suppress(OSError):  # not connected yet
            os.write(self._low, line + b"\n")

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        # the sentinel may have ended: then nobody is left to tell
        with suppress(OSError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip(b"\n")


class Launcher(NamedTuple):
    """A process that has started ranks.

    Attributes:
        name: its name and number.
        handle: file that can be read when it has ended.
        stderr: its stderr, opened once more; None if that is impossible.
    """

    name: str
    handle: int
    stderr: int | None

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return bool(select.select([self.handle], [], [], 0)[0])

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended, at most so many seconds."""
        select.select([self.handle], [], [], timeout_s)


def _launchers(pid: int) -> list[Launcher]:
    """Return the launchers among the ancestors of a process on this machine, the next one first."""
    launchers: list[Launcher] = []
    with suppress(OSError):
        while True:
            # the name in parentheses may have spaces and parentheses; after the last one come state and parent
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                name = file.read().strip()
            if not name.startswith(_LAUNCHERS):
                break
            # a pidfd can be read when the process has ended, and never names a later process of the same number
            launchers.append(Launcher(f"{name} (process {pid})", os.pidfd_open(pid), _stderr_of(pid)))
    return launchers


def _stderr_of(pid: int) -> int | None:
    try:
        # NOCTTY: a session without a terminal must not get this one; NONBLOCK: a full pipe must not stop the sentinel
        return os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None


def _say(text: str, to: int | None = None) -> None:
    # on a line of its own: a rank may have died within a line of its progress
    with suppress(OSError):
        os.write(2 if to is None else to, f"\nemu: {text}\n".encode(errors="replace"))


def _first_message(rank: str, parent: int, timeout_s: float) -> bytes:
    """Return the rank's first message; kill the rank if it sends none in time."""
    # stdin is the pipe from the rank
    if select.select([0], [], [], timeout_s)[0]:
        return os.read(0, 1 << 10)
    _say(
        f"rank {rank}: all ranks must have begun within {timeout_s:g} s, and some have not; look at the other "
        "ranks' machines, or raise `cluster.timeout_s`"
    )
    # no message can reach a rank that waits inside MPI, so it is killed
    with suppress(OSError):
        os.kill(parent, 9)
    return b""


class Guard:
    """The ranks of a machine, and what they say.

    Attributes:
        died: rank and process of the first lost connection; None before.
        terminated: ranks that got SIGTERM.
        ended: why a rank ends the job; empty if none does.
        run: path of `run.json`; None on machines without rank 0.
        is_over: whether the job has ended as it should.
    """

    def __init__(self, ranks: int, parent: int) -> None:
        """Let so many ranks connect."""
        self.died: tuple[str, str] | None = None
        self.terminated: set[int] = set()
        self.ended, self.run, self.is_over = "", "", False
        self._ranks, self._launchers, self._waiting = ranks, _launchers(parent), select.epoll()
        # an address that begins with a zero byte is no file: nothing is left behind
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(b"\0emu-%d" % os.getpid())
        listening.listen(ranks * _CONNECTIONS)
        os.write(1, listening.getsockname() + b"\n")
        self._open: dict[int, tuple[str, str, socket.socket]] = {}
        for _ in range(ranks * _CONNECTIONS):
            connection, _ = listening.accept()
            rank, pid = connection.recv(100).decode().split()
            self._open[connection.fileno()] = rank, pid, connection
        # 0: what the rank beside this process says
        for handle in (0, *self._open):
            self._waiting.register(handle, select.EPOLLIN)
        os.write(1, b"watching\n")

    def watch(self) -> None:
        """Wait until the job ends; if it ends early, say why, and write it into `run.json`."""
        while not (self.is_over or self.died or self.terminated or self.ended):
            self._look(None)
        if self.terminated and not self.ended:
            until = time.monotonic() + SIGTERM_S
            # several ranks may have got the signal: wait for what the others say, to tell one from all
            while len(self.terminated) < self._ranks and (left := until - time.monotonic()) > 0:
                self._look(left)
        if self.is_over:
            return
        why = self.ended or self._why()
        # the last one is the outermost launcher
        stderr = self._launchers[-1].stderr if self._launchers else None
        is_late = stderr is not None and stat.S_ISREG(os.fstat(stderr).st_mode)
        if not self.ended and not is_late:
            self._say_why(why, stderr)
        until = time.monotonic() + _GONE_S
        # run.json is written when no rank can write it any more
        while self._open and (left := until - time.monotonic()) > 0:
            self._look(left)
        if self.run:
            sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            # as a module of its own, from emu's folder: `import emu` would load much more
            import_module("_files").mark_stopped(import_module("pathlib").Path(self.run), why)
        if not self.ended and is_late:
            # in a file, a launcher that still writes would overwrite what stands at its own offset
            self._launchers[-1].wait(_GONE_S)
            self._say_why(why, stderr)

    def _why(self) -> str:
        """Return why the job ends."""
        # the outermost that has ended is named
        launcher = next((launcher for launcher in reversed(self._launchers) if launcher.has_ended()), None)
        if self.terminated:
            return _of_sigterm(sorted(self.terminated), self._ranks)
        if launcher:
            return f"{launcher.name}, which started the ranks, was killed"
        assert self.died is not None
        rank, pid = self.died
        return f"rank {rank} has died: process {pid} was killed from outside, or there was no memory left"

    def _say_why(self, why: str, stderr: int | None) -> None:
        """Write why to a launcher's own stderr, because a launcher that has died, or is about to, forwards nothing."""
        folder = f" {os.path.dirname(self.run)}" if self.run else ""
        _say(f"{why}; the job ends, its last checkpoint is intact; start it again with --resume{folder}", stderr)

    def _look(self, timeout_s: float | None) -> None:
        """Take what ranks and the process beside this one say."""
        for handle, _ in self._waiting.poll(timeout_s):
            if handle in self._open:
                self._take(handle)
            elif data := os.read(0, 1 << 16):
                # whole lines: a rank writes each with one call
                for line in data.splitlines(keepends=True):
                    self.is_over |= line == _ALL_DONE
                    if line.startswith(_RUN):
                        self.run = os.fsdecode(line.removeprefix(_RUN).strip(b"\n"))
            else:
                self._waiting.unregister(0)  # the rank beside this process has died: its connections close, too

    def _take(self, handle: int) -> None:
        rank, pid, connection = self._open[handle]
        try:
            data = connection.recv(1 << 16)
        except OSError:
            data = b""
        for line in data.splitlines():
            if line == _GOT_SIGTERM:
                self.terminated.add(int(rank))
            elif line.startswith(_ENDS) and not self.ended:
                self.ended = line.removeprefix(_ENDS).decode(errors="replace") or f"rank {rank} ended the job"
        if not data:
            self.died = self.died or (rank, pid)
            self._waiting.unregister(handle)
            del self._open[handle]
            connection.close()


def _of_sigterm(ranks: list[int], of: int) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} got SIGTERM"
    if len(ranks) == of:
        return "all ranks got SIGTERM, as when their launcher or a batch system ends them"
    return f"ranks {', '.join(map(str, ranks))} got SIGTERM"


if __name__ == "__main__":
    parent = int(sys.argv[2])
    ranks = _first_message(sys.argv[1], parent, float(sys.argv[3]))
    if ranks and not ranks.endswith(_ALL_DONE):
        Guard(int(ranks), parent).watch()
