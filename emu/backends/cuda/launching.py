"""Launches: operands go to the device, memory is made for counts, results go back to where the operands were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_lasting, on_host
from emu.backends.cuda.device import Device
from emu.backends.interface import N_FLAGS, RandomCode, RegisterCode
from emu.datapath.pending import NO_EXPONENT, Counted
from emu.datapath.registers import SCALARS

Array = Any
#: Dtype, shape and BLAKE2b digest of the bytes of a constant.
Content = tuple[str, tuple[int, ...], bytes]
#: Threads of a block, and the most blocks of a grid; only time depends on them.
THREADS, MOST_BLOCKS = 128, 4096
#: Threads of a warp.
WARP = 32
#: Counts of a register beyond those of its positions.
N_SCALARS = len(SCALARS)
#: Shared memory that a block of every GPU has.
SHARED_BYTES = 48 * 1024
#: A row's largest exponent before a block adds one. Blocks mark theirs by a NO_TOP of 32 bits (`register.cuh`), and
#: never add that.
NO_TOP = -(1 << 62)
#: Constant arrays that are kept on the device.
_MOST_CONSTANTS = 512
#: Operations whose counts lie in one page: fetched together, since each fetch waits for the device.
_ROWS = 64


class Launcher:
    """Runs kernels on a device.

    Attributes:
        device: which.
        xp: namespace of its arrays.
        least_words: kernels take at least so many 64-bit words, 1, 2 or 4, even if fewer are enough.
        launches: number of launches so far.
    """

    def __init__(self, device: Device, least_words: int = 1) -> None:
        """Make a launcher of a device, which has launched nothing yet."""
        self.device, self.xp, self.least_words = device, device.xp, least_words
        self._constants: OrderedDict[Content, Array] = OrderedDict()
        self._contents: OrderedDict[int, tuple[NDArray[Any], Content]] = OrderedDict()
        self._pages: dict[tuple[int, int], _Page] = {}
        self.launches = 0

    def taken(self, x: Array) -> Array:
        """Return an operand on the device, flat and contiguous."""
        return self.xp.ascontiguousarray(self.operand(x)).reshape(-1)

    def operand(self, x: Array) -> Array:
        """Return an array on the device: as it is, copied now, or copied before if it never changes."""
        return self.constant(x) if is_lasting(x) else self.xp.asarray(x)

    def returned(self, result: Array, *operands: Array) -> Array:
        """Return a result where its operands were."""
        # on the host only if all operands were
        host = self.xp is not np and all(isinstance(x, np.ndarray) for x in operands)
        return result.get() if host else result

    def constant(self, x: NDArray[Any]) -> Array:
        """Return the device's copy of a host array that never changes; arrays of the same content share one copy.

        Any queue may read it: the device finishes all work after a copy is made, and before one is dropped.
        """
        if self.xp is np:
            return x
        known = self._contents.get(id(x))
        # the entry keeps its array alive, so that no other array has the `id` while it is there
        if known is None or known[0] is not x:
            known = self._contents[id(x)] = (x, _content_of(x))
            if len(self._contents) > _MOST_CONSTANTS:
                self._contents.popitem(last=False)
        content = known[1]
        copied = self._constants.pop(content, None)  # and put back at the end: the first is the one unused for longest
        if copied is None:
            copied = self.xp.asarray(x)
            # the copy may have been queued on another stream than the next reader's
            self.device.finish()
        self._constants[content] = copied
        if len(self._constants) > _MOST_CONSTANTS:
            # a kernel may still read the copy that is dropped
            self.device.finish()
            self._constants.popitem(last=False)
        return copied

    def room(self, size: int) -> tuple[_Page, int]:
        """Return a page and the number of one of its rows, in which nothing is counted yet."""
        # pages belong to a queue: see `Counts.kind`
        key = self.device.queue, size
        page = self._pages.get(key)
        # those who have rows of a full page keep it alive
        if page is None or page.used == _ROWS:
            page = self._pages[key] = _Page(self, size)
        page.used += 1
        return page, page.used - 1

    def recorded(self, random: RandomCode) -> Array | None:
        """Return recorded random bits on the device."""
        return None if random.recorded is None else self.taken(random.recorded.astype(np.uint32))

    def launch(
        self,
        source: str,
        kernel: str,
        n: int,
        arguments: tuple[Any, ...],
        *,
        shared_bytes: int = 0,
        words: int = 4,
        threads: int = THREADS,
        per_block: int = 0,
    ) -> None:
        """Run a kernel over `n` results.

        Args:
            source: name of the file in `kernels/`.
            kernel: its entry point.
            n: results.
            arguments: of the kernel.
            shared_bytes: room in which a block counts.
            words: 64-bit words of its wide integers.
            threads: of a block.
            per_block: results that a block takes at once; 0 is one per thread.
        """
        self.launches += 1
        # threads loop over results, so that fewer blocks than results are enough
        blocks = max(1, min(-(-n // (per_block or threads)), MOST_BLOCKS))
        self.device.launch(source, kernel, blocks, threads, arguments, shared_bytes, max(words, self.least_words))


def _content_of(x: NDArray[Any]) -> Content:
    return x.dtype.str, x.shape, blake2b(np.ascontiguousarray(x).data, digest_size=32).digest()


def counted(register: RegisterCode | None) -> int:
    """Return how many numbers a kernel counts: flags, and what a register has."""
    return N_FLAGS + (0 if register is None else 2 * register.bins + N_SCALARS)


def counted_bytes(register: RegisterCode | None, *, columns: bool = False) -> int:
    """Return the shared memory in which a block counts: one u32 each, and one for the largest exponent.

    With columns (`narrow_loop.cuh`), each of a warp's 32 threads also has counters of its own for all positions and for
    the scalars except the total, so that threads that count at one position do not wait for each other.
    """
    own = 0 if register is None or not columns else WARP * (2 * register.bins + N_SCALARS - 1)
    return 4 * (counted(register) + 1 + own)


@lru_cache(maxsize=64)
def _nothing(size: int) -> NDArray[np.uint64]:
    """Return a page's rows before anything is counted."""
    totals = np.zeros((_ROWS, size + 1), np.int64)
    # the last number of a row is its largest exponent
    totals[:, size] = NO_TOP
    return totals.view(np.uint64)


class _Page:
    """Rows of totals on the device, each for one operation, made and fetched together.

    Attributes:
        used: rows that were given away.
    """

    def __init__(self, launcher: Launcher, size: int) -> None:
        """Make rows of so many counts and a largest exponent."""
        self._launcher = launcher
        self._totals = launcher.constant(_nothing(size)).copy()
        # no launch has this number, so that the first read fetches
        self._fetched: tuple[int, NDArray[np.int64]] = (-1, np.empty((0, 0), np.int64))
        self.used = 0

    def row(self, number: int) -> Array:
        """Return a row's totals on the device."""
        return self._totals[number]

    def rows(self) -> NDArray[np.int64]:
        """Return all rows on the host, copied once until the next launch."""
        # if nothing was launched since, what was fetched still holds
        if self._fetched[0] != self._launcher.launches:
            self._launcher.device.finish()
            self._fetched = self._launcher.launches, on_host(self._totals).view(np.int64)
        return self._fetched[1]


class Counts:
    """The counts of one kernel on the device: flags, register and largest exponent."""

    def __init__(self, launcher: Launcher, register: RegisterCode | None) -> None:
        """Take a row of totals."""
        size = counted(register)
        self._launcher, self._size, self._register = launcher, size, register
        self._page, self._row = launcher.room(size)
        # Counts of one queue: a sum is made on that queue, so memory that it frees is given only to later arrays of the
        # same queue, which are written after it.
        self.kind: Hashable = (id(launcher), launcher.device.queue, size, register is None)

    @property
    def totals(self) -> Array:
        """The array to which a kernel adds: uint64, flat: flags, the register's counts if any, the largest exponent."""
        return self._page.row(self._row)

    def plus(self, others: Sequence[Counts]) -> Counts:
        """Return the sum with others of the same kind, on the device."""
        # (counts, size + 1); as signed numbers, since exponents may be negative
        every = self._launcher.xp.stack([x.totals.view(np.int64) for x in (self, *others)])
        whole = Counts(self._launcher, self._register)
        totals = whole.totals.view(np.int64)
        totals[:-1], totals[-1] = every[:, :-1].sum(axis=0), every[:, -1].max()
        # the sum was launched by the array library, past `launch`: pages must be fetched once more
        self._launcher.launches += 1
        return whole

    def collect(self, others: Sequence[Counts]) -> Counted:
        """Return the sum with others of the same kind, once every kernel of every queue is done."""
        rows = np.stack([x._page.rows()[x._row] for x in (self, *others)])
        totals, top = rows[:, :-1].sum(axis=0), int(rows[:, -1].max())
        # only registers observe exponents
        if self._register is None:
            return Counted(totals[:N_FLAGS], None, NO_EXPONENT)
        return Counted(totals[:N_FLAGS], totals[N_FLAGS:], NO_EXPONENT if top == NO_TOP else top)
