"""Counts that are still on a device: they are added up there, and fetched when they are read.

    kernel returns ──► register and flags keep its PendingCounts ──► 64 of a kind: one sum, on the device
                                                                 └─► a count is read: fetched, and added here

A kernel on a device returns before it has counted. Waiting for each kernel's counts would leave the device idle.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from threading import RLock
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

#: `max_exponent` if nothing nonzero was observed, in the array that kernels return: an int64 far below every exponent,
#: from which positions can be subtracted without overflow.
NO_EXPONENT = -(1 << 62)
#: Counts of a kind kept side by side before the device adds them up, so that its memory stays bounded. No bit depends
#: on the number: more would take more memory, fewer would add up more often.
MOST_PENDING = 64


class Counted(NamedTuple):
    """What kernels counted.

    Attributes:
        flags: int64, shape (7,): counts in the order of `FLAG_NAMES`.
        register: int64, shape (2*bins + 5,): positions of positive and of negative results, then the five `SCALARS` of
            `registers.py`; None without a register.
        max_exponent: largest floor(log2|x|) observed, `NO_EXPONENT` if nothing nonzero was.
    """

    flags: NDArray[Any]
    register: NDArray[Any] | None
    max_exponent: int


class PendingCounts(Protocol):
    """Counts of one kernel, or of several together, on a device.

    Attributes:
        kind: equal for counts that the device can add up.
    """

    kind: Hashable

    def plus(self, others: Sequence[Any]) -> PendingCounts:
        """Return the sum with others of the same kind, on the device; none of them changes."""
        ...

    def collect(self, others: Sequence[Any]) -> Counted:
        """Return the sum with others of the same kind, once the device is done."""
        ...


def lowered_exponent(exponent: int, by: int) -> int:
    """Return a largest exponent minus `by`; `NO_EXPONENT` stays."""
    return exponent if exponent == NO_EXPONENT else exponent - by


class Lowered:
    """Counts of a kernel that observed sums before their division; results count with exponents lower by `by`.

    `by` is floor(log2 divisor). The kernel was given positions that are higher by it, so only the largest exponent is
    still to be lowered.

    Attributes:
        kind: equal for counts that the device can add up.
    """

    def __init__(self, counts: PendingCounts, by: int) -> None:
        # `by` is part of the kind: counts that are lowered by other exponents are added up apart
        self.kind: Hashable = (counts.kind, by)
        self._counts, self._by = counts, by

    def plus(self, others: Sequence[Lowered]) -> Lowered:
        """Return the sum with others of the same kind, on the device; none of them changes."""
        return Lowered(self._counts.plus([other._counts for other in others]), self._by)

    def collect(self, others: Sequence[Lowered]) -> Counted:
        """Return the sum with others of the same kind, once the device is done."""
        counted = self._counts.collect([other._counts for other in others])
        return counted._replace(max_exponent=lowered_exponent(counted.max_exponent, self._by))


class PendingList:
    """The counts on devices that are still to be added to one register, or to one set of flags.

    Attributes:
        lock: a thread takes it to add to the register or flags, or to fetch counts for them.
    """

    def __init__(self) -> None:
        self._by_kind: dict[Hashable, list[PendingCounts]] = {}
        self.lock = RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return PendingList, ()  # a copy has no pending counts: they are fetched before the copy is made

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def add(self, counts: PendingCounts) -> None:
        """Keep counts until they are fetched."""
        # kinds that the device cannot add up are kept apart
        alike = self._by_kind.setdefault(counts.kind, [])
        alike.append(counts)
        if len(alike) >= MOST_PENDING:
            # in place: `alike` is the list in the dictionary
            alike[:] = [alike[0].plus(alike[1:])]

    def clear(self) -> None:
        """Drop all counts."""
        self._by_kind.clear()

    def collect(self, take: Callable[[Counted], None]) -> None:
        """Fetch all counts and give them to `take`."""
        while self._by_kind:
            kind, alike = next(iter(self._by_kind.items()))
            counted = alike[0].collect(alike[1:])
            del self._by_kind[kind]  # only now: an interrupted fetch loses no count, and adds none twice
            take(counted)


class WithPending:
    """What devices may still have counts for: registers and flags."""

    __slots__ = ()  # flags have slots; no abstract class, whose `isinstance` would cost each operation

    _pending: PendingList

    def add_pending(self, counts: PendingCounts) -> None:
        """Add counts that are still on a device."""
        with self._pending.lock:
            self._pending.add(counts)

    def fetch_pending(self) -> None:
        """Fetch the counts that are still on devices."""
        with self._pending.lock:
            if self._pending:
                self._pending.collect(self._add_counted)

    def settle(self) -> None:
        """Old name of `fetch_pending`."""
        warnings.warn("`settle` of registers and flags is `fetch_pending` now", DeprecationWarning, stacklevel=2)
        self.fetch_pending()

    def _add_counted(self, counted: Counted) -> None:
        """Add counts that were fetched."""
        raise NotImplementedError
