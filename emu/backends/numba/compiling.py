"""Compile kernels, and run them on threads.

Kernels release the interpreter lock and compute a range of their output; a small pool runs one range per thread. Ranges
share no output and counts are added afterwards, so the number of threads cannot change a bit.

Compiled code is kept on disk: see `cache.py`.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import event  # pyright: ignore[reportMissingTypeStubs]

from emu.backends.numba.cache import cached
from emu.backends.numba.claims import PassedOverError
from emu.backends.numba.vector.lanes import I64, array_pointer, intrinsic
from emu.errors import ConfigError

_NJIT: Any = numba.njit
#: Elements of one block: of float64, 4 KiB. The five or six that a loop uses stay in a first-level cache of 32 KiB.
BLOCK = 512
#: Work below this many elements is not worth a second thread. Waking one takes 20 us, on a virtual machine 100 to 150
#: (measured); so each `GRAIN` of a loop is the work of about 150 us at its speed, these of plain loops 10 ns each.
GRAIN = 1 << 14
#: How often a thread looks whether another has finished before it sleeps: some hundred microseconds.
LOOKS = 1 << 17


def kernel(
    function: Callable[..., Any], *, any_order: bool = False, inlined: bool = False, by_address: bool = False
) -> Any:
    """Compile a function of arrays and numbers: no interpreter lock, IEEE division, no contraction, cached on disk.

    Numba compiles it again for each constant that a kernel gives it: where it is given numbers as well, write
    `np.int64(0)`. Assigning an array to a slice costs more than a second: Numba compiles the error message too.
    A loop `for i in range(start, stop)` over elements is no vector code, as an index below 0 would count from the end:
    give it a slice, and let it begin at 0.

    Args:
        function: what to compile.
        any_order: its float sums are exact, so that LLVM may add them in the order that is fastest.
        inlined: it becomes part of each loop that calls it, so that the loop vectorises.
        by_address: only compiled code calls it, by the address that `entry_of` returns; without the function that
            Python would call, a fifth less is compiled.
    """
    # "reassoc" alone: of the other flags, "contract" would fuse products and sums, "nsz" would lose the sign of zeros,
    # "arcp" would divide by reciprocals.
    fastmath: Any = {"reassoc"} if any_order else False
    options: dict[str, Any] = {"forceinline": True} if inlined else {}
    options |= {"no_cpython_wrapper": True} if by_address else {}
    options |= {"nogil": True, "error_model": "numpy", "boundscheck": False, "fastmath": fastmath}
    return cached(_NJIT, function, options)


class _Compilations(event.Listener):
    """Counts what is compiled, and keeps the garbage collector off meanwhile.

    Compiling makes many objects and almost no garbage: the collector would take a seventh of the time.
    """

    def __init__(self) -> None:
        self.count = 0
        self._depth, self._was_on = 0, False  # functions are compiled within each other, and by one thread at a time

    def on_start(self, event: Any) -> None:
        """Count a function; switch the collector off when the outermost one begins."""
        self.count += 1
        if self._depth == 0:
            self._was_on = gc.isenabled()
            gc.disable()
        self._depth += 1

    def forget(self) -> None:
        """Begin anew, in a forked process: the thread that compiled is not in it."""
        if self._depth and self._was_on:
            gc.enable()
        self._depth = 0

    def on_end(self, event: Any) -> None:
        """Switch it on again, if it was, when the outermost function is compiled."""
        self._depth -= 1
        if self._depth == 0 and self._was_on:
            gc.enable()


_COMPILATIONS = _Compilations()
_EVENT: Any = event  # Numba says little about its types
_EVENT.register("numba:compile", _COMPILATIONS)


def compiled_count() -> int:
    """Return how many functions this process has compiled, or is compiling; what came from the cache does not count."""
    return _COMPILATIONS.count


def part(function: Callable[..., Any]) -> Any:
    """Compile a function as lines of the one kernel that calls it, which takes half the time of a kernel of its own."""
    return _NJIT(inline="always", nogil=True, error_model="numpy", boundscheck=False)(function)


def only_read(x: Any) -> Any:
    """Return an array as one that is only read.

    Numba compiles a kernel once for arrays that may be written and again for those that may not, in every combination
    of its operands. A user has both: values are read-only, results are not.
    """
    if not x.flags.writeable:
        return x
    view = x.view()
    view.flags.writeable = False
    return view


@lru_cache(maxsize=1)
def thread_count() -> int:
    """Return how many threads kernels use: `EMU_THREADS`, or the processors this process may run on.

    Raises:
        ConfigError: `EMU_THREADS` is not a positive integer.
    """
    wanted = os.environ.get("EMU_THREADS", "")
    if wanted and (not wanted.isdecimal() or int(wanted) == 0):
        raise ConfigError(f"EMU_THREADS must be a positive integer, got {wanted!r}; unset it to use every processor")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(wanted) if wanted else available


@intrinsic
def _flag(typing_context: Any, flags: Any) -> Any:
    """Return an int64 array's first element, read from memory each time: LLVM may not keep it in a register."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(array_pointer(context, builder, signature.args[0], args[0]), "acquire", 8, typ=I64)

    return types.int64(flags), generate


@kernel
def _comes_up(flags: Any, looks: int) -> bool:
    left = looks
    while left > 0 and _flag(flags) == 0:
        left -= 1
    return left > 0


class _Job:
    """Work for a thread of the pool."""

    def __init__(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._work, self._arguments = work, arguments
        # The lock is taken at once: whoever waits sleeps until `run` releases it. The flag is for those who look before
        # that.
        self._flag, self._done = np.zeros(1, np.int64), threading.Lock()
        self._error: BaseException | None = None
        self._done.acquire()

    def run(self) -> None:
        """Do the work; keep what it raises."""
        try:
            self._work(*self._arguments)
        except BaseException as error:  # `result` raises it in the thread that asked for the work
            self._error = error
        # The flag first: a thread that still looks need not sleep.
        self._flag[0] = 1
        self._done.release()

    def result(self) -> None:
        """Wait for the end, and raise what the work raised.

        Most work takes less time than waking a sleeping thread: look for a while, without the interpreter lock, then
        sleep.
        """
        if not _comes_up(self._flag, LOOKS):
            self._done.acquire()
        if self._error is not None:
            raise self._error


class _Pool:
    """Threads that take jobs in turn."""

    def __init__(self, threads: int) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        for number in range(threads):
            # Daemons: the process may end while they wait for jobs.
            threading.Thread(target=self._serve, name=f"emu-{number}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._jobs.get().run()

    def submit(self, work: Callable[..., None], *arguments: Any) -> _Job:
        """Have a thread do `work(*arguments)`."""
        job = _Job(work, arguments)
        self._jobs.put(job)
        return job


@lru_cache(maxsize=1)
def _pool() -> _Pool:
    # The thread that asks computes a range, too.
    return _Pool(max(thread_count() - 1, 1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads
    os.register_at_fork(after_in_child=_COMPILATIONS.forget)


def over_ranges(work: Callable[[int, int, int], None], size: int, align: int, grain: int = GRAIN) -> None:
    """Call `work(index, start, stop)` for consecutive ranges of 0..size, one per thread.

    Args:
        work: computes one range; ranges never overlap.
        size: number of elements or rows.
        align: starts are multiples of this.
        grain: ranges smaller than this are not split.
    """
    # No pool is made, and no thread woken, for work of one range; an empty result is one range, too.
    if size < 2 * max(grain, 1) or thread_count() == 1:
        work(0, 0, size)
        return
    threads = min(thread_count(), size // max(grain, 1))
    step = -(-size // threads)
    # Rounded up to the alignment, steps may leave fewer ranges than threads.
    step = max(-(-step // align) * align, align)
    ranges = [(i, start, min(start + step, size)) for i, start in enumerate(range(0, size, step))]
    jobs = [_pool().submit(work, *r) for r in ranges[1:]]
    errors: list[BaseException] = []
    for part in [lambda: work(*ranges[0]), *(job.result for job in jobs)]:
        try:
            part()
        except PassedOverError:  # in a copy of this process, which has none of its threads: nothing to wait for
            raise
        except BaseException as error:  # each part writes into arrays that the caller may free: wait for all of them
            errors.append(error)
    if errors:
        raise errors[0]
