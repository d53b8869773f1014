"""Counts that a device still holds: added up there, fetched when somebody reads them.

A kernel that runs elsewhere returns before it has counted. Registers and flags then hold what it owes them, and collect
it before the first look.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

#: Counts held side by side before a device adds them up.
MOST_OWED = 64


class Counted(NamedTuple):
    """What kernels counted.

    Attributes:
        flags: int64, shape (6,): counts in the order of `FLAG_NAMES`.
        register: int64, shape (2*bins + 5,), or None where none was asked for.
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

    def collect(self) -> Counted:
        """Return the counts, once the device is done."""
        ...


class Debts:
    """What devices owe one register, or one set of flags."""

    def __init__(self) -> None:
        self._by_kind: dict[Hashable, list[Owed]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def add(self, owed: Owed) -> None:
        """Hold counts that are to be collected."""
        held = self._by_kind.setdefault(owed.kind, [])
        held.append(owed)
        if len(held) >= MOST_OWED:
            held[:] = [held[0].plus(held[1:])]

    def collect(self) -> list[Counted]:
        """Return everything owed, which is forgotten."""
        found, self._by_kind = self._by_kind, {}
        return [(held[0].plus(held[1:]) if held[1:] else held[0]).collect() for held in found.values()]
