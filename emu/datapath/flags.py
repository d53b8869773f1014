"""Sticky flags with counts: what happened to the elements a unit wrote."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.datapath.pending import Counted, PendingList, WithPending
from emu.errors import FormatError, nearest_name


# A data descriptor: attribute access of `flags` comes here although the count lies in its `__dict__`.
class _Count:
    """A count as a field: a read first fetches what devices have counted."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, flags: Any, owner: type | None = None) -> int:
        if flags is None:
            return 0  # asked of the class: `dataclass` takes this as the field's default
        flags.fetch_pending()
        return flags.__dict__[self._name]

    def __set__(self, flags: Any, value: int) -> None:
        # fetched before it is written: else counts that are still on a device would be added to the new number
        with flags._pending.lock:
            flags.fetch_pending()
            flags.__dict__[self._name] = value


class Tininess(StrEnum):
    """When IEEE 754 calls a result of a float format tiny: each unit chooses one of two moments.

    Source: IEEE 754-2019 section 7.5.
    """

    #: the exact result is not 0 and smaller than the smallest normal number (Arm)
    BEFORE_ROUNDING = "before_rounding"
    #: so is the result, rounded to the format's precision as if exponents had no end (x86, RISC-V)
    AFTER_ROUNDING = "after_rounding"

    @property
    def number(self) -> int:
        """The choice as the integer that kernels take: 1 before, 2 after rounding; 0 means none."""
        return list(Tininess).index(self) + 1


@dataclass
class Flags(WithPending, Drawn):
    """How many written elements raised each flag. Sticky: counts only grow until `reset`.

    Counts made on a GPU stay there until one is read. Operations of several threads may count in the same flags. The
    five flags of IEEE 754 are `invalid`, `division_by_zero`, `overflow`, `inexact`, and `underflow` if `tininess` is
    given.

    Attributes:
        overflow: an overflow rule was applied.
        underflow: a nonzero result became 0, by rounding or by flushing; with `tininess`, a float result was tiny and
            inexact.
        inexact: the finite value written differs from the exact result, overflow included.
        invalid: NaN was written into a format without NaN, or the result is NaN and no operand was.
        subnormal: the written code is subnormal.
        accumulator_overflow: on the way to the output, a saturating accumulator reached a limit, or a float accumulator
            or a rounded product became infinite from finite terms.
        division_by_zero: an exact infinity came from finite operands: x/0, log(0), rsqrt(0).
        tininess: when `underflow` calls a result tiny, "before_rounding" or "after_rounding"; None: it counts results
            that became 0.

    Raises:
        FormatError: no such `tininess`, or a count that is none.

    Examples:
        >>> import emu
        >>> flags = Flags(tininess="after_rounding")
        >>> emu.quantize([2.0**-20, 2.0**-20 * 1.1], "fp16", flags=flags).tolist()
        [9.5367431640625e-07, 1.0728836059570312e-06]
        >>> flags.underflow, flags.subnormal
        (1, 2)

    Source: docs/concepts/flags.md; IEEE 754-2019 section 7.
    """

    overflow: int = cast(int, _Count())
    underflow: int = cast(int, _Count())
    inexact: int = cast(int, _Count())
    invalid: int = cast(int, _Count())
    subnormal: int = cast(int, _Count())
    accumulator_overflow: int = cast(int, _Count())
    division_by_zero: int = cast(int, _Count())
    tininess: Tininess | str | None = field(default=None, kw_only=True)

    __slots__ = ("__dict__", "__weakref__", "_pending")  # beside `__dict__`, so that `vars` gives counts alone

    def __new__(cls, *_: Any, **__: Any) -> Flags:
        """Return flags without pending counts; here, since the first field that `__init__` sets needs the lock."""
        flags = super().__new__(cls)
        flags._pending = PendingList()
        return flags

    def __post_init__(self) -> None:
        for name in FLAG_NAMES:
            # read past the descriptors, which would fetch; `type(...) is` refuses bools
            count: object = self.__dict__[name]
            if type(count) is not int or count < 0:
                raise FormatError(f"`{name}` must be a count, got {count!r}; leave it out for 0")
        if self.tininess is not None:
            names = [choice.value for choice in Tininess]
            if self.tininess not in names:
                raise FormatError(
                    f"`tininess` must be {' or '.join(names)}, got {self.tininess!r}"
                    f"{nearest_name(str(self.tininess), names)}"
                )
            self.tininess = Tininess(self.tininess)

    def __repr__(self) -> str:
        counts = [f"{name}={getattr(self, name)}" for name in FLAG_NAMES]
        return f"Flags({', '.join(counts + ([f'tininess={str(self.tininess)!r}'] if self.tininess else []))})"

    def __getstate__(self) -> dict[str, Any]:
        """Return counts and choice, for a copy, which has no pending counts."""
        with self._pending.lock:
            self.fetch_pending()
            return dict(self.__dict__)

    def add(self, counts: Iterable[int]) -> None:
        """Add counts, in the order of the attributes.

        Raises:
            FormatError: something else than an integer for each flag.
        """
        try:
            # strict, so that counts of another length are refused; operator.index refuses floats
            added = [count for _, count in zip(FLAG_NAMES, map(operator.index, counts), strict=True)]
        except (TypeError, ValueError):
            raise FormatError(
                f"`counts` must be {len(FLAG_NAMES)} integers, those of {', '.join(FLAG_NAMES)}, got {counts!r}; give "
                "what `counts()` of other flags returns"
            ) from None
        self._add(added)

    def add_counts(self, counts: NDArray[np.int64]) -> None:
        """Add the counts of a kernel, in the order of the attributes."""
        added = counts.tolist()
        if any(added):  # most kernels raise no flag
            self._add(added)

    def _add(self, counts: Sequence[int]) -> None:
        fetched = self.__dict__  # past the fields, whose reads would fetch what is pending
        with self._pending.lock:
            for name, count in zip(FLAG_NAMES, counts, strict=True):
                if count:  # most kernels raise few flags
                    fetched[name] += count

    def _add_counted(self, counted: Counted) -> None:
        self.add_counts(counted.flags)

    def merge(self, other: Flags) -> None:
        """Add the counts of another unit's flags.

        Raises:
            FormatError: the two have different `tininess`, or `other` is none.
        """
        if not isinstance(other, Flags):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FormatError(f"`other` must be emu.Flags, got {other!r}; give the flags of another unit")
        if other.tininess != self.tininess:
            raise FormatError(
                f"flags that are merged must count the same underflow, got `tininess` {self.tininess} and "
                f"{other.tininess}; make both with the same"
            )
        # counts() has released the lock of `other` before `add` takes the lock of these flags: no thread ever holds two
        self.add(other.counts())

    def reset(self) -> None:
        """Set every count to 0."""
        with self._pending.lock:
            self._pending.clear()
            # the lock is reentrant: each field that `__init__` sets takes it once more
            self.__init__(tininess=self.tininess)

    def counts(self) -> tuple[int, ...]:
        """Return the counts, in the order of the attributes."""
        # under one lock, so that no count of an operation is read without the others
        with self._pending.lock:
            return tuple(getattr(self, name) for name in FLAG_NAMES)


#: Flag names in the order kernels count them.
FLAG_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Flags) if not f.kw_only)
