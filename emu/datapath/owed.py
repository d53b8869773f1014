"""Counts that are still on a device: they are added up there, and fetched when they are read.

A kernel on a device returns before it has counted. Registers and flags then hold references to its counts, and fetch
them before the first read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import RLock
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

#: `max_exponent` before anything nonzero was observed, in the array kernels return.
NO_EXPONENT = -(1 << 62)
#: Counts held side by side before a device adds them up.
MOST_OWED = 64


class Counted(NamedTuple):
    """What kernels counted.

    Attributes:
        flags: int64, shape (7,): counts in the order of `FLAG_NAMES`.
        register: int64, shape (2*bins + 5,), or None without a register.
        max_exponent: largest floor(log2|x|) observed, `NO_EXPONENT` if nothing nonzero was.
    """

    flags: NDArray[Any]
    register: NDArray[Any] | None
    max_exponent: int


class Owed(Protocol):
    """Counts on a device.

    Attributes:
        kind: what counts that can be added up there have in common.
    """

    kind: Hashable

    def plus(self, others: Sequence[Any]) -> Owed:
        """Return the sum with others of the same kind, on the device; none of them changes."""
        ...

    def collect(self, others: Sequence[Any]) -> Counted:
        """Return the sum with others of the same kind, once the device is done."""
        ...


def lowered_exponent(exponent: int, by: int) -> int:
    """Return a largest exponent lowered by so many bits; none stays none."""
    return exponent if exponent == NO_EXPONENT else exponent - by


class Lowered:
    """Counts on a device whose exponents are lower than those it observed: its positions were placed accordingly.

    Attributes:
        kind: what counts that can be added up have in common.
    """

    def __init__(self, owed: Owed, by: int) -> None:
        self.kind: Hashable = (owed.kind, by)
        self._owed, self._by = owed, by

    def plus(self, others: Sequence[Lowered]) -> Lowered:
        """Return the sum with others of the same kind, on the device; none of them changes."""
        return Lowered(self._owed.plus([other._owed for other in others]), self._by)

    def collect(self, others: Sequence[Lowered]) -> Counted:
        """Return the sum with others of the same kind, once the device is done."""
        counted = self._owed.collect([other._owed for other in others])
        return counted._replace(max_exponent=lowered_exponent(counted.max_exponent, self._by))


class Debts:
    """The counts on devices that belong to one register, or to one set of flags.

    Attributes:
        lock: held by the thread that adds to the register or flags, or collects for them.
    """

    def __init__(self) -> None:
        self._by_kind: dict[Hashable, list[Owed]] = {}
        self.lock = RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Debts, ()  # a copy is owed nothing

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def add(self, owed: Owed) -> None:
        """Hold counts that are to be collected."""
        held = self._by_kind.setdefault(owed.kind, [])
        held.append(owed)
        if len(held) >= MOST_OWED:
            held[:] = [held[0].plus(held[1:])]

    def clear(self) -> None:
        """Drop all counts."""
        self._by_kind.clear()

    def collect(self, take: Callable[[Counted], None]) -> None:
        """Return all counts, and drop them here once they have arrived."""
        while self._by_kind:
            kind, held = next(iter(self._by_kind.items()))
            counted = held[0].collect(held[1:])
            del self._by_kind[kind]
            take(counted)


class Indebted:
    """Counts of which devices may still hold a part: registers and flags."""

    __slots__ = ()  # flags have slots; no abstract class, whose `isinstance` would cost each operation

    _debts: Debts

    def owe(self, owed: Owed) -> None:
        """Add counts that a device still holds."""
        with self._debts.lock:
            self._debts.add(owed)

    def settle(self) -> None:
        """Fetch the counts that devices still hold."""
        with self._debts.lock:
            if self._debts:
                self._debts.collect(self._take)

    def _take(self, counted: Counted) -> None:
        """Add counts that have arrived."""
        raise NotImplementedError
