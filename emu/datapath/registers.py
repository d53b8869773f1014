"""The leading-bit statistics register: how large the results of a unit were.

Every exact result x is counted at the position e of its leading bit, positive and negative results apart. It fits a
word, -2**m <= x < 2**m, if and only if e <= m-1: the leading bit of -2**m lies at m-1, that of 2**m at m.

    exponent   lowest  lowest+1  ...  lowest+bins-1
    positive      3       17     ...        0            below  above  none  nonfinite   total
    negative      1       20     ...        2

Counts only; the observing is done by the backend that computes the results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn, drawers
from emu.datapath.pending import NO_EXPONENT, Counted, PendingList, WithPending
from emu.errors import FormatError
from emu.formats import DynamicFixed, Fixed, Format
from emu.formats.integers import as_integer

if TYPE_CHECKING:
    import altair as alt

#: Positions that a float result gets, from the last place of the format written on.
DEFAULT_FLOAT_BINS = 40
# Positions and their number beyond this are a mistake: exponents of formats stay within a few thousand (a fixed-point
# word has at most 4096 fraction bits, `FRAC_BITS_LIMIT`), those of products within twice as many.
POSITION_LIMIT = 1 << 20
# these counts stand at the end, so that their places, seen from there, do not depend on `bins`
#: The scalar counts, in the order in which kernels return them after the 2 * bins counts of the positions.
SCALARS = ("none", "below", "above", "nonfinite", "total")


class StatisticsRegister(WithPending, Drawn):
    """Counts of leading-bit positions, mergeable and savable. Two are equal if positions and counts are.

    Counts made on a GPU stay there until one is read. Operations of several threads may count in one register.

    Attributes:
        lowest: exponent of the first position; None until the first observation chooses it.
        bins: number of positions; None until then.

    Source: docs/concepts/registers.md; US 11,593,620 (statistics information acquisition).
    """

    def __init__(self, lowest: int | None = None, bins: int | None = None) -> None:
        """Make an empty register.

        Args:
            lowest: exponent of the first position; None leaves it to the first observation.
            bins: number of positions; None leaves it to the first observation.

        Raises:
            FormatError: `lowest` or `bins` is not an integer, or `bins` is below 1.
        """
        self.lowest = None if lowest is None else as_integer("lowest", lowest, -POSITION_LIMIT, POSITION_LIMIT)
        self.bins = None if bins is None else as_integer("bins", bins, 1, POSITION_LIMIT)
        self._max_exponent: int | None = None
        self._fetched = np.zeros(self._size, np.int64)
        self._pending = PendingList()

    @property
    def max_exponent(self) -> int | None:
        """Largest floor(log2|x|) observed, without the one-lower rule of negative powers of two; None if all were 0."""
        self.fetch_pending()
        return self._max_exponent

    @property
    def _counts(self) -> NDArray[np.int64]:
        self.fetch_pending()
        return self._fetched

    @property
    def _size(self) -> int:
        return 2 * (self.bins or 0) + len(SCALARS)

    @property
    def positive(self) -> dict[int, int]:
        """Exponent -> count of results >= 0 with their leading bit there; only nonzero counts."""
        return self._side(0)

    @property
    def negative(self) -> dict[int, int]:
        """Exponent -> count of results < 0 with their leading bit there; only nonzero counts."""
        return self._side(1)

    @property
    def none(self) -> int:
        """Results without a leading bit: 0, and raw -1 of a fixed accumulator."""
        return self._scalar("none")

    @property
    def below(self) -> int:
        """Results whose leading bit lies below `lowest`."""
        return self._scalar("below")

    @property
    def above(self) -> int:
        """Results whose leading bit lies above the last position."""
        return self._scalar("above")

    @property
    def nonfinite(self) -> int:
        """NaN and infinite results."""
        return self._scalar("nonfinite")

    @property
    def total(self) -> int:
        """All results."""
        return self._scalar("total")

    def _side(self, side: int) -> dict[int, int]:
        if self.lowest is None or self.bins is None:
            return {}
        return self._by_exponent(self._counts[side * self.bins : (side + 1) * self.bins])

    def _by_exponent(self, counts: NDArray[np.int64]) -> dict[int, int]:
        seen = counts.nonzero()[0]
        return dict(zip((seen + (self.lowest or 0)).tolist(), counts[seen].tolist(), strict=True))

    def _scalar(self, name: str) -> int:
        return int(self._counts[SCALARS.index(name) - len(SCALARS)])

    def __eq__(self, other: object) -> bool:
        """Return whether positions and counts are the same."""
        return isinstance(other, StatisticsRegister) and self.to_dict() == other.to_dict()

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it changes

    def __repr__(self) -> str:
        """Return everything that is counted, as text."""
        return f"StatisticsRegister({', '.join(f'{name}={value}' for name, value in self._parts().items())})"

    def _parts(self) -> dict[str, Any]:
        # one lock for all parts: no operation counts between two of them
        with self._pending.lock:
            return {name: getattr(self, name) for name in _PARTS}

    def place(self, accumulator: Format | None, accumulator_bits: int | None, output: Format) -> None:
        """Fix the positions that are still open; those of a register that has them stay, and so do its counts.

        Args:
            accumulator: the fixed-point accumulator observed, or None for a float result.
            accumulator_bits: its width A: A-1 positions from -frac_bits; A if unsigned, where the top bit is no sign.
            output: format written; a float result gets 40 positions, the first that of its smallest subnormal.
        """
        if isinstance(accumulator, Fixed) and accumulator_bits is not None:
            # A bits of two's complement have A - 1 positions of a leading bit, without a sign all A
            lowest, bins = -accumulator.frac_bits, max(accumulator_bits - accumulator.signed, 1)
        elif isinstance(output, Fixed):
            lowest, bins = -output.frac_bits, DEFAULT_FLOAT_BINS
        else:
            lowest, bins = output.emin - output.fraction_bits, DEFAULT_FLOAT_BINS
        with self._pending.lock:
            if self.lowest is not None and self.bins is not None:
                return  # another thread has fixed them meanwhile
            self.lowest = lowest if self.lowest is None else self.lowest
            self.bins = bins if self.bins is None else self.bins
            self._fetched = np.zeros(self._size, np.int64)

    def add_counts(self, counts: Any, max_exponent: int) -> None:
        """Add the counts of a kernel.

        Args:
            counts: int64 array, length 2*bins + 5: positive positions, negative positions, then `SCALARS`.
            max_exponent: largest floor(log2|x|), or `NO_EXPONENT`.
        """
        # an open register has no positions yet to which counts could be added
        assert self.lowest is not None, "place() comes before add_counts()"
        assert self.bins is not None, "place() comes before add_counts()"
        with self._pending.lock:
            self._fetched += counts
            self._raise_to(None if max_exponent == NO_EXPONENT else max_exponent)

    def _raise_to(self, exponent: int | None) -> None:
        if exponent is not None and (self._max_exponent is None or exponent > self._max_exponent):
            self._max_exponent = exponent

    def _add_counted(self, counted: Counted) -> None:
        self.add_counts(counted.register, counted.max_exponent)

    def __getstate__(self) -> dict[str, Any]:
        """Return everything that is counted, for a copy, which has no pending counts."""
        with self._pending.lock:
            self.fetch_pending()
            # the copy has an array and a lock of its own; what was pending here has been fetched
            return self.__dict__ | {"_fetched": self._fetched.copy(), "_pending": PendingList()}

    def histogram(self) -> dict[int, int]:
        """Return exponent -> count of both signs, sorted by exponent."""
        if self.lowest is None or self.bins is None:
            return {}
        return self._by_exponent(self._counts[: self.bins] + self._counts[self.bins : 2 * self.bins])

    def plot(self, fmt: str | Format | DynamicFixed | None = None) -> alt.LayerChart:
        """Return the histogram as a chart of Altair: the share of results at each leading bit.

        Results without a leading bit, NaN and infinities, and what lies beyond the positions have rows of their own.

        Args:
            fmt: a format whose range is drawn: what lies above it overflows, what lies below it underflows. None, or a
                word whose point is open: the histogram alone.

        Raises:
            FormatError: no such format.

        Source: docs/notebook.md.
        """
        return drawers().plot_register(self, fmt)

    def count_from(self, exponent: int) -> int:
        """Return how many results had their leading bit at `exponent` or above, for an exponent among the positions.

        Outside them a register knows no exponents, as its counters do not: above the last position, all of `above` are
        counted, wherever they led; below `lowest`, none of `below` are.

        Raises:
            FormatError: `exponent` is not an integer.
        """
        first = as_integer("exponent", exponent)
        return self.above + sum(count for e, count in self.histogram().items() if e >= first)

    def merge(self, other: StatisticsRegister) -> None:
        """Add another register's counts; the merged register equals the register of all results together.

        Raises:
            FormatError: the positions differ, or `other` is no register.
        """
        if not isinstance(other, StatisticsRegister):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FormatError(f"`other` must be an emu.StatisticsRegister, got {other!r}; give another unit's")
        other = copy(other)  # as it is now: no thread ever waits for two registers, so none can block another
        if other.lowest is None or other.bins is None:
            return  # it has no positions yet, and no counts
        with self._pending.lock:
            # an open `lowest` or `bins` takes what the other has
            open_positions = self.lowest is None or self.bins is None
            lowest = other.lowest if self.lowest is None else self.lowest
            bins = other.bins if self.bins is None else self.bins
            if (lowest, bins) != (other.lowest, other.bins):
                raise FormatError(
                    f"registers must have the same positions to be merged, got lowest={self.lowest}, bins={self.bins} "
                    f"and lowest={other.lowest}, bins={other.bins}; give both the same `lowest` and `bins`"
                )
            if open_positions:
                # an open register has counted nothing, so that its array can be replaced
                self.lowest, self.bins, self._fetched = lowest, bins, np.zeros_like(other._fetched)
            self._fetched += other._fetched
            self._raise_to(other._max_exponent)

    def saturated(self, counter_bits: int) -> StatisticsRegister:
        """Return what counters of that width would hold: each stops at its largest value, 2**counter_bits - 1.

        Counts only grow, so limiting them here gives the same as a counter that stops at its largest value. Returns the
        register itself if every count fits.

        Raises:
            FormatError: `counter_bits` is not an integer from 1 on.
        """
        limit = (1 << as_integer("counter_bits", counter_bits, 1)) - 1
        # each result is counted in `total`, so that no count is larger
        if self.total <= limit:
            return self
        limited = copy(self)
        np.minimum(limited._fetched, limit, out=limited._fetched)
        return limited

    def reset(self) -> None:
        """Set every count to 0; the positions stay."""
        with self._pending.lock:
            # in place: positions, and with them the size, stay
            self._fetched[:] = 0
            self._max_exponent = None
            self._pending.clear()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON), exponents sorted, that `from_dict` reads back to an equal register."""
        parts = self._parts()
        return parts | {side: {str(e): count for e, count in parts[side].items()} for side in ("positive", "negative")}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StatisticsRegister:
        """Return the register `to_dict` wrote.

        Raises:
            FormatError: a part is missing, a count is no integer from 0 on, has an exponent outside the positions, or
                belongs to a register whose positions are open, which has counted nothing.
        """
        missing = [name for name in _PARTS if name not in _mapping("data", data)]
        if missing:
            raise FormatError(
                f"`data` must be what a register's `to_dict` returned, got none of {', '.join(missing)}; save the "
                "register again"
            )
        register = cls(data["lowest"], data["bins"])
        if data["max_exponent"] is not None:
            # nothing has been counted yet that `_raise_to` could compare with
            register._max_exponent = as_integer("max_exponent", data["max_exponent"], -POSITION_LIMIT, POSITION_LIMIT)
        # `_counts` is the array itself, so that these assignments fill it
        register._counts[-len(SCALARS) :] = [_count(name, data[name]) for name in SCALARS]
        for side, name in enumerate(("positive", "negative")):
            for exponent, count in _counts_of(name, data[name]):
                position = exponent - (register.lowest or 0)
                if not 0 <= position < (register.bins or 0):
                    raise FormatError(
                        f"a register's counts must belong to its positions, got `{name}` at exponent {exponent} with "
                        f"lowest={register.lowest}, bins={register.bins}; save the register again"
                    )
                register._counts[side * (register.bins or 0) + position] = count
        is_open = register.lowest is None or register.bins is None
        if is_open and (register._max_exponent is not None or register._counts.any()):
            raise FormatError(
                "a register whose positions are open must have counted nothing, got counts with "
                f"lowest={register.lowest}, bins={register.bins}; save the register again"
            )
        return register


_PARTS = ("lowest", "bins", *SCALARS, "max_exponent", "positive", "negative")


def _count(name: str, value: Any) -> int:
    return as_integer(name, value, 0, np.iinfo(np.int64).max)


def _counts_of(name: str, side: Any) -> Iterator[tuple[int, int]]:
    """Yield the exponents and counts of one side.

    Raises:
        FormatError: it is no dictionary of counts by exponents.
    """
    for exponent, count in _mapping(name, side).items():
        if not re.fullmatch(r"-?[0-9]{1,12}", str(exponent)):
            raise FormatError(f"`{name}` must have integers as exponents, got {exponent!r}; save the register again")
        yield int(exponent), _count(name, count)


def _mapping(name: str, given: Any) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise FormatError(
            f"`{name}` must be a dictionary that a register's `to_dict` made, got {given!r}; save it again"
        )
    return cast("Mapping[Any, Any]", given)
