"""The channel between processes that an MPI launcher started: `mpirun -n 4 emu train mlp --set cluster.nodes=4`.

swap     sends to all posted at once, in the order of rounds: in round r, rank i to rank (i + r) mod ranks
waiting  by polling with short sleeps: ranks may be more than processors
late     a rank that waits itself answers when asked; those that do not are named
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from emu.cluster.launcher import started
from emu.cluster.transport import RankError
from emu.errors import BackendUnavailable, ConfigError, EmuError

if TYPE_CHECKING:
    from emu.cluster.watch import Watch

#: Tags of messages: bytes of a swap; questions and answers of those that wait.
_DATA, _ASK = 1, 2
#: Seconds between two looks, the first and the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2e-5, 2e-3
#: Seconds by which a rank leaves the word to the ranks before it, and for how many.
_TURN_S, _MOST_TURNS = 1.0, 10
#: Seconds that a launcher has to hand on what was said, before the end of the job overtakes it.
_HEARD_S = 0.5


class Mpi:
    """The channel between the ranks of MPI's world.

    Attributes:
        rank: number of this process.
        ranks: how many there are.
    """

    def __init__(self, timeout_s: float) -> None:
        """Begin MPI, if it has not begun, together with all ranks.

        Args:
            timeout_s: seconds within which every rank must answer.

        Raises:
            BackendUnavailable: there is no mpi4py, or no MPI for it.
            ConfigError: the launcher is another MPI's.
        """
        self._timeout_s = timeout_s
        self._watch: Watch | None = None
        if sys.platform == "linux":
            from emu.cluster.watch import Watch

            self._watch = Watch(started()[0], timeout_s)
        self._watcher = 0
        try:
            mpi = _mpi()
            self._mpi, self._comm = mpi, mpi.COMM_WORLD.Dup()
            self.rank, self.ranks = self._comm.Get_rank(), self._comm.Get_size()
            if self.ranks < started()[1]:
                library = mpi.Get_library_version().splitlines()[0].strip("\0 ")
                raise ConfigError(
                    f"the launcher must belong to the MPI of mpi4py ({library}), got one that started {started()[1]} "
                    f"processes, of which that MPI finds {self.ranks}; use the mpirun of the same MPI"
                )
            self._swaps, self._waits_too = 0, set[int]()
            self._answers: list[Any] = []
            self._set_watch()
        except BaseException:
            self._end_watch()
            raise
        _open.append(self)

    def _set_watch(self) -> None:
        """Let the watch of the first rank of a machine watch over all of it; the others are not needed."""
        hosts = self.swap([socket.gethostname().encode()] * self.ranks)
        beside = [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]
        if self._watch is None:
            return
        is_first = self.rank == beside[0]
        where = self._watch.over(len(beside)) if is_first else b""
        told = self.swap([b"%d " % self._watch.pid + where] * self.ranks)
        pid, where = told[beside[0]].split(b" ", 1)
        self._watcher = int(pid)
        self._watch.connect(where, self.rank)
        if is_first:
            self._watch.ready()
        else:
            self._watch.done()
        self.swap([b""] * self.ranks)  # nobody begins before all are watched

    def _end_watch(self) -> None:
        if self._watch is not None and self._watcher in (0, self._watch.pid):
            self._watch.done()

    # ---- a swap ----

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Send every rank its parcel, and return what each has sent to this one; its own comes back.

        Raises:
            RankError: a rank has not answered in time.
        """
        self._swaps += 1
        self._waits_too.clear()
        rounds = [(self.rank + r) % self.ranks for r in range(1, self.ranks)]
        byte = self._mpi.BYTE
        sends = {to: self._comm.Isend([parcels[to], byte], dest=to, tag=_DATA) for to in rounds}
        arriving: dict[int, tuple[Any, bytearray]] = {}

        def late() -> set[int]:
            for rank in rounds:
                if rank not in arriving and (found := self._incoming(rank, _DATA)) is not None:
                    arriving[rank] = found[1:]
            open_now = {rank for rank, request in sends.items() if not request.Test()}
            return open_now | {rank for rank in rounds if rank not in arriving or not arriving[rank][0].Test()}

        self._wait(late)
        return [bytes(arriving[rank][1]) if rank != self.rank else parcels[rank] for rank in range(self.ranks)]

    def _incoming(self, source: int, tag: int) -> tuple[int, Any, bytearray] | None:
        """Return sender, request and place of a message, if one is there."""
        status = self._mpi.Status()
        message = self._comm.Improbe(source=source, tag=tag, status=status)
        if message is None:
            return None
        place = bytearray(status.Get_count(self._mpi.BYTE))
        return status.Get_source(), message.Irecv([place, self._mpi.BYTE]), place

    def _wait(self, late: Callable[[], set[int]]) -> None:
        """Wait until no rank is late; ask those that are when half of the time has passed."""
        begun, pause, asked = time.monotonic(), _FIRST_PAUSE_S, False
        while missing := late():
            waited = time.monotonic() - begun
            self._answer()
            if not asked and waited > self._timeout_s / 2:
                asked = True
                for rank in missing:
                    self._tell(rank, b"?" + self._swaps.to_bytes(8, "little"))
            if waited > self._timeout_s:
                raise self._silent(sorted(missing - self._waits_too or missing))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _answer(self) -> None:
        """Answer those that ask, and note who answers."""
        while (found := self._incoming(self._mpi.ANY_SOURCE, _ASK)) is not None:
            rank, request, text = found
            request.Wait()
            if text.startswith(b"?"):
                self._tell(rank, b"!" + text[1:])
            elif int.from_bytes(text[1:], "little") == self._swaps:
                self._waits_too.add(rank)
        self._answers = [request for request in self._answers if not request.Test()]

    def _tell(self, rank: int, text: bytes) -> None:
        self._answers.append(self._comm.Isend([text, self._mpi.BYTE], dest=rank, tag=_ASK))

    def _silent(self, ranks: list[int]) -> RankError:
        named = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"
        return RankError(
            f"{named} not answered within {self._timeout_s:g} s; the job ends, its last checkpoint is intact; look at "
            "that rank's machine, or raise `cluster.timeout_s`, and start again with --resume"
        )

    # ---- the end ----

    def close(self) -> None:
        """Wait for all ranks, and end the watch."""
        self.swap([b""] * self.ranks)
        self._end_watch()
        self.swap([b""] * self.ranks)  # nobody leaves before no watch is left
        if self._watch is not None:
            self._watch.disconnect()
        _open.remove(self)

    def abandon(self) -> None:
        """End the watch of this machine: whoever ends the job has said why."""
        if self._watcher:
            _kill(self._watcher)


#: Channels that are not closed.
_open: list[Mpi] = []


def leave() -> None:
    """End MPI together with all ranks, so that none waits for what another one still does alone."""
    if (mpi := _begun()) is not None:
        mpi.Finalize()


def failed(error: BaseException) -> None:
    """End all ranks of the job because of an error here; an interrupt is rank 0's to tell."""
    rank = _open[0].rank if _open else started()[0]
    if isinstance(error, KeyboardInterrupt):
        if rank:
            time.sleep(2 * _TURN_S)
            end_job("", 130)
        return
    if isinstance(error, EmuError):
        end_job(f"emu: rank {rank}: {' '.join(str(error).split())}", 2)
    end_job(f"emu: rank {rank}: {''.join(traceback.format_exception(error))}", 1)


def end_job(text: str, code: int) -> NoReturn:
    """Say why, and end all ranks of the job.

    Args:
        text: lines for stderr; empty says nothing.
        code: exit code.
    """
    rank = started()[0]
    if _begun() is None:
        try:
            Mpi(timeout_s=60)
        except Exception:  # there is no job to end
            _say(text, code)
    time.sleep(_TURN_S * min(rank, _MOST_TURNS))  # what all ranks say, the first says
    for channel in _open:
        channel.abandon()
    if text:
        print(text, file=sys.stderr, flush=True)
        time.sleep(_HEARD_S)
    _mpi().COMM_WORLD.Abort(code)
    raise SystemExit(code)


def _say(text: str, code: int) -> NoReturn:
    if text:
        print(text, file=sys.stderr, flush=True)
    raise SystemExit(code)


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, 9)


def _mpi() -> Any:
    """Return MPI, begun."""
    try:
        return import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailable(
            f"`cluster.transport` 'mpi' must have mpi4py and an MPI, got {' '.join(str(error).split())!r}; install "
            "both with pip install -e '.[mpi]', or start one process alone"
        ) from None


def _begun() -> Any | None:
    """Return MPI where it has begun and not ended."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None
