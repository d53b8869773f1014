"""Gradients of 1..8 bits: thresholds or equal steps, levels, and how long levels stand.

    steps 2        code = V >= threshold                              levels: means of both sides, or their ends
    steps 3..256   code = floor((V - low) / width), within the range  levels: middles of steps, or means

Source: CN106062786A; Seide et al., Interspeech 2014. Where these are silent, the choice is ours and an option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.philox import random_integers
from emu.cluster.codecs.codec import Address
from emu.cluster.codecs.memory import Memory
from emu.cluster.codecs.message import WORD_BYTES, Message, packed, unpacked, words_of
from emu.cluster.codecs.sums import column_means
from emu.errors import ConfigError, nearest_name

Array = NDArray[Any]
MOST_BITS = 8
#: Draws of a step, by what they decide; bits of each.
_WHETHER, _LEFT_OUT, _DRAWN_BITS = 0, 1, 16
Threshold = Literal["zero", "mean", "previous_mean"]
Levels = Literal["means", "ends", "middles"]
Smoothing = Literal["none", "exponential", "window"]


@dataclass(frozen=True)
class Quantiser:
    """Codes of k steps and the levels they stand for.

    Attributes:
        steps: k, 2..256.
        threshold: of two steps: 0, the column's mean, or its mean in the mini-batch before (its own in the first one).
            -0 counts as 0; NaN lies below.
        levels: "means" of the values that took each code, 0 where none did; of two steps also the "ends", least and
            largest value; of more also the "middles" of the steps. None: means of two steps, middles of more.
        deviations: the range of more than two steps reaches so many standard deviations to both sides of the mean.
        lag: levels are those of so many mini-batches before; until there are any, the mini-batch's own.
        smoothing: of levels over mini-batches: "exponential" with `decay`, or the mean of a "window" of `window`.
        decay: share of what was, 0..1.
        window: mini-batches.
        interval: levels are computed again every so many mini-batches, and stand between.
        at_random: whether instead each mini-batch computes them with a chance of one in `interval`.
        outliers: values farther from the mean than so many standard deviations decide no level; None: all do.
        left_out: share of values, drawn at random, that decide no level.

    Raises:
        ConfigError: an option is out of range, or does not fit the others.
    """

    steps: int = 2
    threshold: Threshold = "zero"
    levels: Levels | None = None
    deviations: float = 4.0
    lag: int = 0
    smoothing: Smoothing = "none"
    decay: float = 0.9
    window: int = 4
    interval: int = 1
    at_random: bool = False
    outliers: float | None = None
    left_out: float = 0.0

    def __post_init__(self) -> None:
        self._require("steps", type(self.steps) is int and 2 <= self.steps <= 1 << MOST_BITS, "2..256")
        for name, kind in (("threshold", Threshold), ("smoothing", Smoothing)):
            self._require_one_of(name, get_args(kind))
        if self.levels is None:
            object.__setattr__(self, "levels", "means" if self.steps == 2 else "middles")
        self._require_one_of("levels", ("means", "ends") if self.steps == 2 else ("means", "middles"))
        self._require("deviations", self.deviations > 0, "above 0")
        for name, least in (("lag", 0), ("window", 1), ("interval", 1)):
            value = getattr(self, name)
            self._require(name, type(value) is int and value >= least, f"a whole number from {least} on")
        self._require("decay", 0 <= self.decay <= 1, "0..1")
        self._require("left_out", 0 <= self.left_out < 1, "0 or more, below 1")
        self._require("outliers", self.outliers is None or self.outliers > 0, "above 0")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f"`{name}` of a gradient codec must be {rule}, got {getattr(self, name)!r}")

    def _require_one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            raise ConfigError(
                f"`{name}` of a gradient codec of {self.steps} steps must be {' or '.join(allowed)}, got {value!r}"
                f"{nearest_name(str(value), allowed)}"
            )

    @property
    def bits(self) -> int:
        """Of a code."""
        return (self.steps - 1).bit_length()

    @property
    def sent_levels(self) -> int:
        """Levels of a column on the wire: both ends of the range, or one for every code there is room for."""
        return 2 if self.levels == "middles" else 1 << self.bits

    # ---- the wire ----

    def message_bytes(self, columns: int, rows: int) -> int:
        """Return how many bytes a message takes."""
        return WORD_BYTES * columns * (self.sent_levels + words_of(rows, self.bits))

    def message_of(self, data: bytes, columns: int, rows: int) -> Message:
        """Return the message of bytes of the wire.

        Raises:
            ShapeError: it has another length.
        """
        return Message.from_bytes(data, columns, self.sent_levels, words_of(rows, self.bits))

    def decode(self, message: Message, rows: int) -> Array:
        """Return what a message says: float32, (columns, rows)."""
        levels = self._middles(message.levels) if self.levels == "middles" else message.levels
        return np.take_along_axis(levels, self.codes(message, rows).astype(np.int64), axis=1)

    def codes(self, message: Message, rows: int) -> NDArray[np.uint8]:
        """Return the codes themselves, (columns, rows)."""
        return unpacked(message.words, rows, self.bits)

    # ---- encoding ----

    def encode(self, gradients: Array, memory: Memory, at: Address) -> Message:
        """Return gradients, with what memory holds back of earlier ones, as a message; what is lost stays in memory."""
        with np.errstate(invalid="ignore", over="ignore"):  # infinities less themselves are NaN, and stay
            return self._encoded(gradients + memory.residual, memory, at)

    def _encoded(self, values: Array, memory: Memory, at: Address) -> Message:
        means = column_means(values)
        renewed = memory.levels is None or self._is_renewed(memory, at)
        if self.levels == "middles":
            levels = self._in_use(self._range(values, means), memory) if renewed else memory.levels
            assert levels is not None
            codes = self._steps_of(values, levels)
        else:
            codes = self._codes(values, means, memory)
            levels = memory.levels
            if renewed:
                levels = self._in_use(self._levels_of(values, codes, means, at), memory)
        assert levels is not None
        message = Message(levels, packed(codes, self.bits))
        memory.residual = values - self.decode(message, values.shape[1])
        memory.means, memory.batches = means, memory.batches + 1
        return message

    def _is_renewed(self, memory: Memory, at: Address) -> bool:
        if not self.at_random:
            return memory.batches % self.interval == 0
        drawn = random_integers(1, _DRAWN_BITS, seed=at.seed, stream=at.stream, step=at.step, draw=_WHETHER)
        return int(drawn[0]) * self.interval < 1 << _DRAWN_BITS

    def _codes(self, values: Array, means: Array, memory: Memory) -> NDArray[np.uint8]:
        """Return the codes of values by threshold, or by the steps of their own range."""
        if self.steps > 2:
            return self._steps_of(values, self._range(values, means))
        limits = np.zeros_like(means)
        if self.threshold == "mean" or (self.threshold == "previous_mean" and memory.means is None):
            limits = means
        elif self.threshold == "previous_mean" and memory.means is not None:
            limits = memory.means
        return (values >= limits[:, None]).astype(np.uint8)

    def _range(self, values: Array, means: Array) -> Array:
        """Return both ends of the range of steps, (columns, 2)."""
        reach = values.dtype.type(self.deviations) * _deviations(values, means)
        return np.stack([means - reach, means + reach], axis=1).astype(np.float32)

    def _width(self, limits: Array) -> Array:
        return (limits[:, 1] - limits[:, 0]) / np.float32(self.steps)

    def _steps_of(self, values: Array, limits: Array) -> NDArray[np.uint8]:
        width = self._width(limits)
        divisor = np.where(width > 0, width, np.float32(1))  # no width: all values are one, at the lower end
        place = np.floor((values - limits[:, :1]) / divisor[:, None])
        return np.where(place > 0, np.minimum(place, np.float32(self.steps - 1)), np.float32(0)).astype(np.uint8)

    def _middles(self, limits: Array) -> Array:
        """Return the middles of the steps, and 0 for codes that no step has, (columns, 2**bits)."""
        places = np.arange(1 << self.bits, dtype=np.float32) + np.float32(0.5)
        middles = limits[:, :1] + places * self._width(limits)[:, None]
        middles[:, self.steps :] = 0
        return middles

    def _levels_of(self, values: Array, codes: NDArray[np.uint8], means: Array, at: Address) -> Array:
        """Return what each code stands for in this mini-batch, (columns, 2**bits)."""
        counted = self._counted(values, means, at)
        if self.levels == "ends":
            least = np.where(counted, values, np.float32(np.inf)).min(axis=1, initial=np.inf)
            most = np.where(counted, values, np.float32(-np.inf)).max(axis=1, initial=-np.inf)
            ends = np.stack([least, most], axis=1).astype(np.float32)
            return np.where(np.isfinite(ends), ends, np.float32(0))
        levels = np.zeros((len(values), 1 << self.bits), np.float32)
        for code in range(self.steps):
            levels[:, code] = column_means(values, counted & (codes == code))
        return levels

    def _counted(self, values: Array, means: Array, at: Address) -> NDArray[np.bool_]:
        """Return which values decide levels."""
        counted = np.ones(values.shape, bool)
        if self.outliers is not None:
            reach = values.dtype.type(self.outliers) * _deviations(values, means)
            counted &= np.abs(values - means[:, None]) <= reach[:, None]
        if self.left_out:
            where = {"seed": at.seed, "stream": at.stream, "step": at.step, "draw": _LEFT_OUT}
            drawn = random_integers(values.size, _DRAWN_BITS, **where).reshape(values.shape)
            counted &= drawn >= round(self.left_out * (1 << _DRAWN_BITS))
        return counted

    def _in_use(self, fresh: Array, memory: Memory) -> Array:
        """Return the levels that the mini-batch uses, given those it computed; memory keeps what later ones need."""
        memory.computed.append(fresh)
        known = memory.computed[: len(memory.computed) - self.lag] or [fresh]
        newest = known[-1]
        levels = newest
        if self.smoothing == "exponential" and memory.levels is not None:
            decay = np.float32(self.decay)
            levels = decay * memory.levels + (np.float32(1) - decay) * newest
        elif self.smoothing == "window":
            seen = known[-self.window :]
            total = seen[0]
            for more in seen[1:]:
                total = total + more
            levels = total / np.float32(len(seen))
        memory.levels = levels
        kept = self.lag + (self.window if self.smoothing == "window" else 1)
        del memory.computed[:-kept]
        return levels


def _deviations(values: Array, means: Array) -> Array:
    """Return the standard deviation of every column, float32."""
    centred = values - means[:, None]
    return np.sqrt(column_means(centred * centred))
