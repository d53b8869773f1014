"""The channel between processes that an MPI launcher started: `mpirun -n 4 emu train mlp --set cluster.nodes=4`.

swap     all sends are posted at once, in the order of rounds: in round r, rank i to rank (i + r) mod ranks
waiting  by polling with short sleeps, because there may be more ranks than processors
late     a rank that waits itself answers when it is asked; an error names the ranks that do not
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from emu.cluster.launcher import started
from emu.cluster.sigterm import EXIT_CODE, Terminated
from emu.cluster.transport import RankError, on_this_machine
from emu.errors import BackendUnavailable, ConfigError, EmuError

if TYPE_CHECKING:
    from emu.cluster.sentinel import Sentinel

#: Tags of messages: bytes of a swap; questions and answers of ranks that wait.
_DATA, _ASK = 1, 2
#: Seconds between two polls: the first pause, and the longest, to which pauses double.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2e-5, 2e-3
#: Before it reports an error, rank r waits for r turns of so many seconds, but for no more than `_MOST_TURNS`. So the
#: first rank reports an error of all ranks, and ends the job.
_TURN_S, _MOST_TURNS = 1.0, 10
#: Seconds that a launcher gets to forward stderr before the job is aborted.
_FORWARDED_S = 0.5


class Mpi:
    """The channel between the ranks of MPI's world.

    Attributes:
        rank: number of this process.
        ranks: how many there are.
    """

    def __init__(self, timeout_s: float) -> None:
        """Initialise MPI together with all ranks, unless it is initialised.

        Args:
            timeout_s: seconds within which every rank must answer.

        Raises:
            BackendUnavailable: there is no mpi4py, or no MPI for it.
            ConfigError: the launcher is another MPI's.
        """
        self._timeout_s = timeout_s
        self._sentinel: Sentinel | None = None
        # the sentinel needs epoll, pidfd and abstract sockets, which only Linux has
        if sys.platform == "linux":
            from emu.cluster.sentinel import Sentinel

            self._sentinel = Sentinel(started()[0], timeout_s)
        self._sentinel_pid = 0
        try:
            # this import initialises MPI, and may wait for other ranks for ever: the sentinel is there already
            mpi = _mpi()
            # a communicator of its own: its messages never meet those of other libraries
            self._mpi, self._comm = mpi, mpi.COMM_WORLD.Dup()
            self.rank, self.ranks = self._comm.Get_rank(), self._comm.Get_size()
            # under another MPI's launcher each process is alone in a world of its own
            if self.ranks < started()[1]:
                library = mpi.Get_library_version().splitlines()[0].strip("\0 ")
                raise ConfigError(
                    f"the launcher must belong to the MPI of mpi4py ({library}), got one that started {started()[1]} "
                    f"processes, of which that MPI finds {self.ranks}; use the mpirun of the same MPI"
                )
            self._swaps, self._waits_too = 0, set[int]()
            self._answers: list[Any] = []
            self._set_sentinel()
        except BaseException:
            self._end_sentinel()
            raise
        _open.append(self)

    def _set_sentinel(self) -> None:
        """Let the sentinel of the first rank of a machine watch all its ranks, and end the others."""
        beside = on_this_machine(self)
        if self._sentinel is None:
            return
        is_first = self.rank == beside[0]
        address = self._sentinel.guard(len(beside)) if is_first else b""
        # each rank tells its own sentinel's process and, if it is the first of its machine, the address
        sentinels = self.swap([b"%d " % self._sentinel.pid + address] * self.ranks)
        pid, address = sentinels[beside[0]].split(b" ", 1)
        self._sentinel_pid = int(pid)
        self._sentinel.connect(address, self.rank)
        if is_first:
            self._sentinel.ready()
        else:
            # only the sentinel of the machine's first rank stays
            self._sentinel.done()
        self.swap([b""] * self.ranks)  # no rank begins before all are watched

    def _end_sentinel(self) -> None:
        # 0: none is chosen yet, so each rank ends its own; later only the rank beside the chosen sentinel ends it
        if self._sentinel is not None and self._sentinel_pid in (0, self._sentinel.pid):
            self._sentinel.done()

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
        # all sends are posted before any receive: no rank waits for another to begin receiving
        sends = {to: self._comm.Isend([parcels[to], byte], dest=to, tag=_DATA) for to in rounds}
        arriving: dict[int, tuple[Any, bytearray]] = {}

        def late() -> set[int]:
            # receives are posted as messages come, since only a probe tells their lengths
            for rank in rounds:
                if rank not in arriving and (incoming := self._incoming(rank, _DATA)) is not None:
                    arriving[rank] = incoming[1:]
            # `Test` also moves messages on inside MPI; for a finished request it is true again
            open_now = {rank for rank, request in sends.items() if not request.Test()}
            return open_now | {rank for rank in rounds if rank not in arriving or not arriving[rank][0].Test()}

        self._wait(late)
        return [bytes(arriving[rank][1]) if rank != self.rank else parcels[rank] for rank in range(self.ranks)]

    def _incoming(self, source: int, tag: int) -> tuple[int, Any, bytearray] | None:
        """Return sender, request and buffer of a message, if one has come."""
        status = self._mpi.Status()
        # a matched probe: no other receive can take the message between probe and receive
        message = self._comm.Improbe(source=source, tag=tag, status=status)
        if message is None:
            return None
        buffer = bytearray(status.Get_count(self._mpi.BYTE))
        return status.Get_source(), message.Irecv([buffer, self._mpi.BYTE]), buffer

    def _wait(self, late: Callable[[], set[int]]) -> None:
        """Wait until no rank is late; when half of the time has passed, ask those that are.

        Args:
            late: moves messages on, and returns the ranks with an open send or receive.
        """
        begun, pause, asked = time.monotonic(), _FIRST_PAUSE_S, False
        while missing := late():
            waited = time.monotonic() - begun
            self._answer()
            if not asked and waited > self._timeout_s / 2:
                asked = True
                for rank in missing:
                    # the number of the swap, so that an answer to an earlier question does not count
                    self._tell(rank, b"?" + self._swaps.to_bytes(8, "little"))
            if waited > self._timeout_s:
                # ranks that answer wait for others themselves; if all answer, all missing ones are named
                raise self._silent(sorted(missing - self._waits_too or missing))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _answer(self) -> None:
        """Answer ranks that ask, and note which ranks have answered."""
        while (incoming := self._incoming(self._mpi.ANY_SOURCE, _ASK)) is not None:
            rank, request, text = incoming
            request.Wait()
            if text.startswith(b"?"):
                self._tell(rank, b"!" + text[1:])
            elif int.from_bytes(text[1:], "little") == self._swaps:
                self._waits_too.add(rank)
        # a request that is not finished must be kept: MPI still reads its buffer
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
        """Wait for all ranks, and end the sentinels."""
        self.swap([b""] * self.ranks)
        self._end_sentinel()
        self.swap([b""] * self.ranks)  # a rank that left earlier would be reported as dead
        if self._sentinel is not None:
            self._sentinel.disconnect()
        _open.remove(self)

    def abandon(self, why: str) -> None:
        """Tell the sentinel of this machine that this rank ends the job, and why; the rank has reported it."""
        if self._sentinel is not None:
            self._sentinel.ends(why)

    def report_sigterm(self) -> bool:
        """Let the sentinel of this machine report that this rank got SIGTERM; return whether there is one."""
        if self._sentinel is not None:
            self._sentinel.got_sigterm()
        return self._sentinel is not None

    def note_run(self, path: str) -> None:
        """Let the sentinel of this rank write into this `run.json` why the job ends, if it ends early."""
        if self._sentinel is not None:
            self._sentinel.note_run(path)


#: Channels of this process that are not closed.
_open: list[Mpi] = []


def leave() -> None:
    """Finalise MPI, which waits for all ranks: one of them may still work alone."""
    if (mpi := _begun()) is not None:
        mpi.Finalize()


def note_run(path: Path) -> None:
    """Let a sentinel write into this `run.json` why the job ends, if it ends early. Called by rank 0."""
    for channel in _open:
        channel.note_run(str(path.resolve()))


def failed(error: BaseException) -> None:
    """End all ranks of the job because of an error of this one.

    An interrupt is reported by rank 0 alone, SIGTERM by the sentinel: it knows whether other ranks got it, too.
    """
    rank = _open[0].rank if _open else started()[0]
    if isinstance(error, Terminated):
        if not any(channel.report_sigterm() for channel in _open):
            end_job(f"emu: rank {rank} got SIGTERM; go on with --resume", EXIT_CODE)
        # by then the sentinel has heard from all ranks (`SIGTERM_S`), and has reported
        time.sleep(_TURN_S * (1 + min(rank, _MOST_TURNS)))
        _mpi().COMM_WORLD.Abort(EXIT_CODE)
    if isinstance(error, KeyboardInterrupt):
        # rank 0 reports the interrupt on its usual way out; the others give it time, and end silently
        if rank:
            time.sleep(2 * _TURN_S)
            end_job("", 130)
        return
    if isinstance(error, EmuError):
        end_job(f"emu: rank {rank}: {' '.join(str(error).split())}", 2)
    end_job(f"emu: rank {rank}: {''.join(traceback.format_exception(error))}", 1)


def end_job(text: str, code: int) -> NoReturn:
    """Print why, and end all ranks of the job.

    Args:
        text: lines for stderr; empty prints nothing.
        code: exit code.
    """
    rank = started()[0]
    # `Abort` needs an initialised MPI; an error may come before that
    if _begun() is None:
        try:
            Mpi(timeout_s=60)
        except Exception:  # there is no job to end
            _exit(text, code)
    # rank 0 does not wait: of an error that all ranks have, it alone is printed
    time.sleep(_TURN_S * min(rank, _MOST_TURNS))
    for channel in _open:
        channel.abandon(text.removeprefix("emu: "))
    if text:
        print(text, file=sys.stderr, flush=True)
        time.sleep(_FORWARDED_S)
    _mpi().COMM_WORLD.Abort(code)
    raise SystemExit(code)


def _exit(text: str, code: int) -> NoReturn:
    if text:
        print(text, file=sys.stderr, flush=True)
    raise SystemExit(code)


def _mpi() -> Any:
    """Return mpi4py's MPI; importing it initialises MPI."""
    try:
        return import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise BackendUnavailable(
            f"`cluster.transport` 'mpi' must have mpi4py and an MPI, got {' '.join(str(error).split())!r}; install "
            "both with pip install -e '.[mpi]', or start one process alone"
        ) from None


def _begun() -> Any | None:
    """Return MPI if it is initialised and not finalised."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None
