"""The leading-bit statistics register: how large the results of a unit were.

Every exact result is sorted by the position e of its leading bit (-2**m <= x < 2**m exactly
when e <= m-1), positive and negative apart:

    exponent   lowest  lowest+1  ...  lowest+bins-1
    positive      3       17     ...        0            below  above  none  nonfinite   total
    negative      1       20     ...        2

Counts only; the observing is done by the backend that computes the results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emu.errors import FormatError
from emu.formats import Fixed, Format
from emu.formats.arrays import as_integer

DEFAULT_FLOAT_BINS = 40
# Positions and their number beyond this are a mistake: no format reaches them.
POSITION_LIMIT = 1 << 20
#: Position of the scalar counts behind the 2 * bins counts of the positions, as kernels return them.
SCALARS = ("none", "below", "above", "nonfinite", "total")
#: `max_exponent` before anything nonzero was observed, in the array kernels return.
NO_EXPONENT = -(1 << 62)


@dataclass
class StatisticsRegister:
    """Counts of leading-bit positions, mergeable and savable.

    Attributes:
        lowest: exponent of the first position; None until the first observation chooses it.
        bins: number of positions; None until then.
        positive: exponent -> count of results >= 0 with their leading bit there; only nonzero counts.
        negative: the same for negative results.
        none: results without a leading bit: 0, and raw -1 of a fixed accumulator.
        below: results whose leading bit lies below `lowest`.
        above: results whose leading bit lies above the last position.
        nonfinite: NaN and infinite results.
        total: all results.
        max_exponent: largest floor(log2|x|) seen, without the one-lower rule of negative powers of two; None if all
            were 0.

    Raises:
        FormatError: `lowest` or `bins` is not an integer, or `bins` is below 1.

    Source: NUMERICS 6; US 11,593,620 (statistics information acquisition).
    """

    lowest: int | None = None
    bins: int | None = None
    positive: dict[int, int] = field(default_factory=dict[int, int])
    negative: dict[int, int] = field(default_factory=dict[int, int])
    none: int = 0
    below: int = 0
    above: int = 0
    nonfinite: int = 0
    total: int = 0
    max_exponent: int | None = None

    def __post_init__(self) -> None:
        if self.lowest is not None:
            self.lowest = as_integer("lowest", self.lowest, -POSITION_LIMIT, POSITION_LIMIT)
        if self.bins is not None:
            self.bins = as_integer("bins", self.bins, 1, POSITION_LIMIT)

    def place(self, accumulator: Format | None, accumulator_bits: int | None, output: Format) -> None:
        """Fix the positions that are still open.

        Args:
            accumulator: the fixed-point accumulator observed, or None for a float result.
            accumulator_bits: its width A: A-1 positions from -frac_bits; A if unsigned, where the top bit is no sign.
            output: format written; a float result gets 40 positions from its smallest subnormal on.
        """
        if isinstance(accumulator, Fixed) and accumulator_bits is not None:
            lowest, bins = -accumulator.frac_bits, max(accumulator_bits - accumulator.signed, 1)
        elif isinstance(output, Fixed):
            lowest, bins = -output.frac_bits, DEFAULT_FLOAT_BINS
        else:
            lowest, bins = output.emin - output.fraction_bits, DEFAULT_FLOAT_BINS
        self.lowest = lowest if self.lowest is None else self.lowest
        self.bins = bins if self.bins is None else self.bins

    def add_counts(self, counts: Any, max_exponent: int) -> None:
        """Add what a kernel counted.

        Args:
            counts: int64 array, length 2*bins + 5: positive positions, negative positions, then `SCALARS`.
            max_exponent: largest floor(log2|x|), or `NO_EXPONENT`.
        """
        assert self.lowest is not None, "place() comes before add_counts()"
        assert self.bins is not None, "place() comes before add_counts()"
        bins, lowest = self.bins, self.lowest
        seen = counts.nonzero()[0]
        for position, count in zip(seen.tolist(), counts[seen].tolist(), strict=True):
            if position < bins:
                self.positive[lowest + position] = self.positive.get(lowest + position, 0) + count
            elif position < 2 * bins:
                exponent = lowest + position - bins
                self.negative[exponent] = self.negative.get(exponent, 0) + count
        none, below, above, nonfinite, total = counts[2 * bins :].tolist()
        self.none += none
        self.below += below
        self.above += above
        self.nonfinite += nonfinite
        self.total += total
        if max_exponent != NO_EXPONENT:
            self.max_exponent = max_exponent if self.max_exponent is None else max(self.max_exponent, max_exponent)

    def histogram(self) -> dict[int, int]:
        """Return exponent -> count of both signs, sorted by exponent."""
        exponents = sorted({*self.positive, *self.negative})
        return {e: self.positive.get(e, 0) + self.negative.get(e, 0) for e in exponents}

    def count_from(self, exponent: int) -> int:
        """Return how many results had their leading bit at `exponent` or above."""
        return self.above + sum(count for e, count in self.histogram().items() if e >= exponent)

    def merge(self, other: StatisticsRegister) -> None:
        """Add another register's counts; the merged register equals the register of all results together.

        Raises:
            FormatError: the positions differ.
        """
        if other.lowest is None:
            return
        if self.lowest is None:
            self.lowest, self.bins = other.lowest, other.bins
        if (self.lowest, self.bins) != (other.lowest, other.bins):
            raise FormatError(
                f"registers must have the same positions to be merged, got lowest={self.lowest}, bins={self.bins} "
                f"and lowest={other.lowest}, bins={other.bins}; give both the same `lowest` and `bins`"
            )
        for mine, theirs in ((self.positive, other.positive), (self.negative, other.negative)):
            for exponent, count in theirs.items():
                mine[exponent] = mine.get(exponent, 0) + count
        for name in SCALARS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        exponents = [e for e in (self.max_exponent, other.max_exponent) if e is not None]
        self.max_exponent = max(exponents, default=None)

    def reset(self) -> None:
        """Set every count to 0; the positions stay."""
        self.__init__(self.lowest, self.bins)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON), exponents sorted, that `from_dict` reads back to an equal register."""
        sides = {name: {str(e): c for e, c in sorted(getattr(self, name).items())} for name in ("positive", "negative")}
        scalars = {name: getattr(self, name) for name in ("lowest", "bins", *SCALARS, "max_exponent")}
        return {**scalars, **sides}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StatisticsRegister:
        """Return the register `to_dict` wrote."""
        sides: dict[str, Any] = {
            name: {int(e): int(c) for e, c in data[name].items()} for name in ("positive", "negative")
        }
        return cls(**{**data, **sides})
