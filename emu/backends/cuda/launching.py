"""Launches: operands to the device, room for what a kernel counts, results back to where the operands were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.backends.cuda.device import Device
from emu.backends.interface import N_FLAGS, RandomCode, RegisterCode
from emu.datapath.owed import NO_EXPONENT, Counted
from emu.datapath.registers import SCALARS

Array = Any
THREADS, MOST_BLOCKS = 128, 4096
LANES = 32
#: Counts of a register beside its positions.
N_SCALARS = len(SCALARS)
#: Shared memory that a block of every GPU has.
SHARED_BYTES = 48 * 1024
#: What stands where no result was other than 0.
NO_TOP = -(1 << 62)
#: Arrays of places that are kept on the device.
_MOST_CONSTANTS = 512


class Launcher:
    """Runs kernels on a device.

    Attributes:
        device: where.
        xp: its arrays.
        least_words: kernels take at least so many 64-bit words, 1, 2 or 4, even where fewer are enough.
    """

    def __init__(self, device: Device, least_words: int = 1) -> None:
        """Launch on a device."""
        self.device, self.xp, self.least_words = device, device.xp, least_words
        self._constants: OrderedDict[int, tuple[Array, Array]] = OrderedDict()

    def taken(self, x: Array) -> Array:
        """Return an operand on the device, in one line."""
        return self.xp.ascontiguousarray(self.xp.asarray(x)).reshape(-1)

    def returned(self, result: Array, *operands: Array) -> Array:
        """Return a result where its operands were."""
        host = self.xp is not np and all(isinstance(x, np.ndarray) for x in operands)
        return result.get() if host else result

    def constant(self, x: NDArray[Any]) -> Array:
        """Return a host array that never changes on the device: copied once, as long as it is used.

        Every queue may read it, from the first moment to the last: both are waited for.
        """
        if self.xp is np:
            return x
        known = self._constants.pop(id(x), None)
        if known is None or known[0] is not x:
            known = (x, self.xp.asarray(x))
            self.device.finish()
        self._constants[id(x)] = known
        if len(self._constants) > _MOST_CONSTANTS:
            self.device.finish()
            self._constants.popitem(last=False)
        return known[1]

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
        blocks = max(1, min(-(-n // (per_block or threads)), MOST_BLOCKS))
        self.device.launch(source, kernel, blocks, threads, arguments, shared_bytes, max(words, self.least_words))


def counted(register: RegisterCode | None) -> int:
    """Return how many numbers a kernel counts: flags, and what a register has."""
    return N_FLAGS + (0 if register is None else 2 * register.bins + N_SCALARS)


def counted_bytes(register: RegisterCode | None, *, columns: bool = False) -> int:
    """Return the shared memory in which a block counts: one u32 each, and one for the largest exponent.

    With columns, each of 32 lanes also has positions and scalars, but their total, of its own.
    """
    own = 0 if register is None or not columns else LANES * (2 * register.bins + N_SCALARS - 1)
    return 4 * (counted(register) + 1 + own)


@lru_cache(maxsize=64)
def _nothing(size: int) -> NDArray[np.uint64]:
    """Return the totals before anything is counted."""
    totals = np.zeros(size + 1, np.int64)
    totals[size] = NO_TOP
    return totals.view(np.uint64)


class Counts:
    """What kernels count of results, on the device: flags, register and largest exponent.

    Attributes:
        totals: uint64, flat: flags, the register's counts if there is one, the largest exponent.
    """

    def __init__(self, device: Device, totals: Array, *, observes: bool) -> None:
        """Take totals of this layout; `observes` says whether there is a register."""
        self.totals, self._device, self._observes = totals, device, observes
        # of one queue: what it adds up is free for its next arrays alone, which come behind
        self.kind: Hashable = (device.xp, device.queue, totals.size, observes)

    @classmethod
    def nothing(cls, launcher: Launcher, register: RegisterCode | None) -> Counts:
        """Return room to count in."""
        totals = launcher.constant(_nothing(counted(register))).copy()
        return cls(launcher.device, totals, observes=register is not None)

    def plus(self, others: Sequence[Counts]) -> Counts:
        """Return the sum with others of the same kind, on the device."""
        every = self._device.xp.stack([x.totals.view(np.int64) for x in (self, *others)])
        totals = every.sum(axis=0)
        totals[-1] = every[:, -1].max()
        return Counts(self._device, totals.view(np.uint64), observes=self._observes)

    def collect(self, others: Sequence[Counts]) -> Counted:
        """Return the sum with others of the same kind, once every kernel is done, whoever's stream it was given."""
        self._device.finish()
        whole = self.plus(others) if others else self
        totals = on_host(whole.totals).view(np.int64)
        top = int(totals[-1])
        if not self._observes:
            return Counted(totals[:N_FLAGS], None, NO_EXPONENT)
        return Counted(totals[:N_FLAGS], totals[N_FLAGS:-1], NO_EXPONENT if top == NO_TOP else top)
