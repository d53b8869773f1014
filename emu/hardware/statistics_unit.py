"""The statistics unit, cycle by cycle: from results in the lanes to counts in a register file.

    ST_AC        each lane: a result -> a one-hot word of its leading position, and its sign
    ST_AGR_1     all lanes: valid one-hot words of the chosen signs -> a count per position
    ST_AGR_2     counts added, saturating, into one set of the statistics register file

Three stages, one vector of results each per cycle: n vectors take n + 2 cycles. The leading position of a word is its
leftmost 1, of a negative word its leftmost 0; 0 and -1 have none (docs/concepts/registers.md). Cycles are array rows:
each function works on a whole stream of vectors at once, and returns the state after each cycle.

Source: US 2020/0134434, block diagram. Which signs a set counts, and a count of valid results beside the positions, are
our choice: the source leaves open where they are kept.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError, ShapeError
from emu.formats.integers import as_integer

Words = NDArray[np.int64]
#: Widest words whose leading bits `frexp` finds: as float64 they are exact, because it has 53 significant bits.
MAX_WIDTH_BITS = 52
#: Stages between a result and its count.
STAGES = 3


class Signs(StrEnum):
    """Which results ST_AGR_1 counts."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    BOTH = "both"


class OneHot(NamedTuple):
    """The output of ST_AC for a stream of vectors.

    Attributes:
        words: one bit at the leading position, 0 if there is none; int64, (cycles, lanes).
        negative: signs; bool, (cycles, lanes).
    """

    words: Words
    negative: NDArray[np.bool_]


class RegisterSet(NamedTuple):
    """The contents of one set of the register file.

    Attributes:
        counts: by leading position; position 0 is the last bit of a result; int64, (width_bits - 1,).
        results: valid results of any sign.
    """

    counts: Words
    results: int


class StatisticsUnit:
    """ST_AC, ST_AGR_1, ST_AGR_2 and the statistics register file.

    Attributes:
        lanes: results per cycle.
        width_bits: width of a result, its sign included.
        counter_bits: width of every count; they stop at their largest value.
        cycles: cycles that streams have taken so far.

    Examples:
        >>> unit = StatisticsUnit(lanes=8, width_bits=40)
        >>> unit.run([[0, 1, 5, 127, -1, -2, -128, -64]], signs="positive")
        >>> {p: int(n) for p, n in enumerate(unit.read().counts) if n}, unit.cycles
        ({0: 1, 2: 1, 6: 1}, 3)
    """

    def __init__(self, lanes: int = 8, width_bits: int = 40, counter_bits: int = 32, sets: int = 16) -> None:
        """Build a unit with cleared registers.

        Args:
            lanes: results per cycle.
            width_bits: width of a result, 2 to 52.
            counter_bits: width of a count, 1 to 62.
            sets: sets of the register file.

        Raises:
            ConfigError: one of them is not an integer, or not in its range.
        """
        lanes, width_bits, counter_bits, sets = (
            as_integer(name, value, least, most, error=ConfigError)
            for name, value, least, most in (
                ("lanes", lanes, 1, 65536),
                ("width_bits", width_bits, 2, MAX_WIDTH_BITS),
                ("counter_bits", counter_bits, 1, 62),
                ("sets", sets, 1, 65536),
            )
        )
        self.lanes, self.width_bits, self.counter_bits = lanes, width_bits, counter_bits
        self.cycles = 0
        # a row for each set, a column for each position: all bits of a word but its sign
        self._counts = np.zeros((sets, width_bits - 1), np.int64)
        self._results = np.zeros(sets, np.int64)

    @property
    def limit(self) -> int:
        """Largest count a register holds."""
        return 2**self.counter_bits - 1

    # ---- stages ----

    def leading(self, words: Any) -> OneHot:
        """ST_AC: return one-hot words of leading positions, and signs.

        Args:
            words: results, int64, (cycles, lanes).

        Raises:
            ShapeError: not a matrix of `lanes` columns.
            ConfigError: a result does not fit `width_bits`.
        """
        words = self._as_words(words)
        folded = words ^ (words >> 63)  # the complement of a negative word: its leftmost 0 becomes the leftmost 1
        # frexp gives m * 2**e with 0.5 <= m < 1: the leading bit of an integer has the position e - 1
        position = np.frexp(folded.astype(np.float64))[1] - 1
        return OneHot(np.where(folded > 0, np.int64(1) << np.maximum(position, 0), 0), words < 0)

    def aggregated(self, one_hot: OneHot, valid: Any = None, signs: str = Signs.BOTH) -> Words:
        """ST_AGR_1: return how many lanes lead at each position, (cycles, width_bits - 1).

        Args:
            one_hot: words of ST_AC.
            valid: which lanes hold results, bool, (cycles, lanes); None: all.
            signs: signs whose results are counted.
        """
        words = np.where(
            self._chosen(one_hot.negative, self._as_mask(valid, one_hot.words.shape), signs), one_hot.words, 0
        )
        cycles, positions = len(words), self.width_bits - 1
        # row by row, as the mask in the next line: both are in the same order
        row, _ = np.nonzero(words)
        position = np.frexp(words[words > 0].astype(np.float64))[1] - 1
        # pairs of cycle and position as one number
        counts = np.bincount(row * positions + position, minlength=cycles * positions)
        return counts.reshape(cycles, positions)

    def accumulated(self, counts: Words, results: Any, into: int = 0) -> Words:
        """ST_AGR_2: add counts to a set; return its counts after each cycle, (cycles, width_bits - 1).

        Counts are never negative, so saturating at each add gives the same as saturating their sum once.

        Args:
            counts: counts of ST_AGR_1.
            results: valid results of each cycle, (cycles,).
            into: the set.
        """
        # int64 holds the sums: a count has at most 62 bits, and is kept at `limit` between calls
        after = np.minimum(self._counts[into] + np.cumsum(counts, axis=0), self.limit)
        if len(after):
            self._counts[into] = after[-1]
        self._results[into] = min(int(self._results[into] + np.sum(results)), self.limit)
        return after

    # ---- the register file ----

    def clear(self, which: int = 0) -> None:
        """Set every count of a set to 0."""
        self._counts[which] = 0
        self._results[which] = 0

    def read(self, which: int = 0) -> RegisterSet:
        """Return the contents of a set."""
        return RegisterSet(self._counts[which].copy(), int(self._results[which]))

    def run(self, words: Any, valid: Any = None, into: int = 0, signs: str = Signs.BOTH) -> None:
        """Send a stream of vectors through the three stages.

        Args:
            words: results, int64, (cycles, lanes).
            valid: which lanes hold results; None: all.
            into: set that counts them, in addition to its earlier counts.
            signs: signs whose results are counted.

        Raises:
            ShapeError: shapes do not fit.
            ConfigError: a result does not fit `width_bits`.
        """
        words = self._as_words(words)
        mask = self._as_mask(valid, words.shape)
        # the stages overlap: a vector enters in every cycle, and the last one leaves STAGES - 1 cycles after it has
        # entered
        self.cycles += len(words) + STAGES - 1 if len(words) else 0
        chunk = max(1, 2**22 // self.width_bits)  # rows of counts at a time
        for begin in range(0, len(words), chunk):
            part = slice(begin, begin + chunk)
            counts = self.aggregated(self.leading(words[part]), mask[part], signs)
            self.accumulated(counts, mask[part].sum(axis=1), into)

    # ---- operands ----

    def _as_words(self, words: Any) -> Words:
        array = np.asarray(words, np.int64)
        if array.ndim != 2 or array.shape[1] != self.lanes:
            raise ShapeError(
                f"`words` must be vectors of {self.lanes} lanes, (cycles, {self.lanes}), got {array.shape}"
            )
        limit = 2 ** (self.width_bits - 1)
        wrong = np.argwhere((array < -limit) | (array >= limit))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            raise ConfigError(
                f"`words` must fit {self.width_bits} bits, got {array[at]} at index {at}; saturate results before they "
                "are counted, or take a wider unit"
            )
        return array

    def _as_mask(self, valid: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        if valid is None:
            return np.ones(shape, np.bool_)
        mask = np.asarray(valid, np.bool_)
        if mask.shape != shape:
            raise ShapeError(f"`valid` must have the shape of `words`, {shape}, got {mask.shape}")
        return mask

    @staticmethod
    def _chosen(negative: NDArray[np.bool_], valid: NDArray[np.bool_], signs: str) -> NDArray[np.bool_]:
        try:
            kind = Signs(signs)
        except ValueError:
            names = ", ".join(sign.value for sign in Signs)
            raise ConfigError(f"`signs` must be one of {names}, got {signs!r}") from None
        if kind is Signs.BOTH:
            return valid
        return valid & (negative if kind is Signs.NEGATIVE else ~negative)
