"""Gradients of 1..16 bits: thresholds or equal steps, levels, and how long levels are used.

    steps 2          code = V >= threshold                              levels: means of both sides, or their ends
    steps 3..65536   code = floor((V - low) / width), within the range  levels: middles of steps, or means (up to 256)

Source: CN106062786A; Seide et al., Interspeech 2014. Where these are silent, the choice is ours and an option.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.backends.codecs import (
    AT_GIVEN,
    AT_MEAN,
    AT_ZERO,
    BYTE_BITS,
    ENDS,
    MEANS,
    MIDDLES,
    ColumnsCode,
    bits_of,
    code_words,
)
from emu.backends.reference.codecs import unpacked
from emu.backends.reference.column_sums import one_nan
from emu.backends.reference.philox import random_integers
from emu.backends.registry import load
from emu.cluster.codecs.codec import Address, Codec
from emu.cluster.codecs.memory import Memory
from emu.cluster.codecs.message import WORD_BYTES, Message
from emu.errors import ConfigError, ShapeError, nearest_name

Array = NDArray[Any]
#: A code fits two bytes.
MOST_BITS = 16
#: Levels of more steps than a byte tells apart take more bytes than the gradients of most columns.
MOST_MEANS = 1 << BYTE_BITS
#: Axes of arrays: (columns, rows).
_AXES = 2
#: Philox draws of a mini-batch: whether levels are computed again, which values decide no level; bits of each number.
_WHETHER, _LEFT_OUT, _DRAWN_BITS = 0, 1, 16
Threshold = Literal["zero", "mean", "previous_mean"]
Levels = Literal["means", "ends", "middles"]
Smoothing = Literal["none", "exponential", "window"]
#: Options that change levels from mini-batch to mini-batch, which middles of a given range never do.
_OF_LEVELS = ("lag", "smoothing", "interval", "outliers", "left_out")


@dataclass(frozen=True)
class Quantiser(Codec):
    """Codes of k steps and the levels they stand for.

    Attributes:
        steps: k, 2..65536.
        threshold: threshold of two steps: 0, the column's mean, or its mean in an earlier mini-batch. -0 counts as 0;
            NaN lies below.
        threshold_lag: the "previous_mean" is that of this many mini-batches before; the mini-batch's own until there
            is one.
        levels: "means" of the values that took each code, 0 where none did; of two steps also the "ends", least and
            largest value; of more also the "middles" of the steps, the only choice above 256 steps. None: means of two
            steps, middles of more.
        deviations: the range of more than two steps reaches this many standard deviations to both sides of the mean.
        range: both ends of the range of more than two steps, in place of deviations; values beyond take the outer
            steps. None: deviations.
        lag: levels are those of this many mini-batches before, of those that computed levels; the mini-batch's own
            until there are any.
        smoothing: smoothing of levels over mini-batches: "exponential" with `decay`, or the mean of a "window" of
            `window`.
        decay: share of what was, 0..1.
        window: mini-batches that computed levels.
        interval: mini-batches for which levels are used before they are computed again.
        at_random: whether instead each mini-batch computes them with a probability of 1 / `interval`, at least 2**-16.
        outliers: standard deviations from the mean beyond which values do not decide levels; None: all do.
        left_out: share of values, drawn at random, that decide no level, rounded to a multiple of 2**-16 below 1.
        residual_lag: the residual that is added is that of this many mini-batches before; 0 until there is one.
        backend: "auto", or the one of `emu.backends()` that computes; all give the same bits.

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
    backend: str = "auto"
    threshold_lag: int = 1
    residual_lag: int = 1
    range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self._require("steps", type(self.steps) is int and 2 <= self.steps <= 1 << MOST_BITS, f"2..{1 << MOST_BITS}")
        for name, kind in (("threshold", Threshold), ("smoothing", Smoothing)):
            self._require_one_of(name, get_args(kind))
        if self.levels is None:
            object.__setattr__(self, "levels", "means" if self.steps == 2 else "middles")
        more = ("means", "middles") if self.steps <= MOST_MEANS else ("middles",)
        self._require_one_of("levels", ("means", "ends") if self.steps == 2 else more)
        self._require("deviations", self.deviations > 0, "above 0")
        for name, least in (("lag", 0), ("window", 1), ("interval", 1), ("threshold_lag", 1), ("residual_lag", 1)):
            value = getattr(self, name)
            self._require(name, type(value) is int and value >= least, f"a whole number from {least} on")
        self._require("decay", 0 <= self.decay <= 1, "0..1")
        self._require("left_out", 0 <= self.left_out < 1, "0 or more, below 1")
        # both are drawn in steps of 2**-16: a smaller probability, or a share that rounds to 1, would be another number
        drawn = 1 << _DRAWN_BITS
        self._require("interval", not self.at_random or self.interval <= drawn, f"1..{drawn} if `at_random` is true")
        self._require("left_out", round(self.left_out * drawn) < drawn, f"at most 1 - 2**-{_DRAWN_BITS}")
        self._require("outliers", self.outliers is None or self.outliers > 0, "above 0")
        for name in ("deviations", "outliers"):
            # kernels multiply them in the dtype of gradients: infinity times a deviation of 0 would be NaN
            largest = float(np.finfo(np.float32).max)
            self._require(name, (getattr(self, name) or 0) <= largest, f"at most {largest:g}, the largest float32")
        self._require_threshold_lag()
        self._require_range()

    def _require_threshold_lag(self) -> None:
        if self.threshold_lag > 1 and self.threshold != "previous_mean":
            raise ConfigError(
                f"`threshold_lag` of a gradient codec must be left out if `threshold` is {self.threshold!r}, got "
                f"{self.threshold_lag!r}; remove it, or choose `threshold` 'previous_mean'"
            )

    def _require_range(self) -> None:
        if self.range is None:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            # kernels compute the width of steps in float32: both ends may be different doubles, but one float32
            low, high = map(np.float32, self.range)
            width = high - low
        self._require(
            "range", bool(0 < width < np.inf), "two numbers, the first below the second, their difference in float32"
        )
        if self.steps == 2:
            raise ConfigError(
                f"`range` of a gradient codec of 2 steps must be left out, got {self.range!r}; remove it, or choose "
                "more `bits` or `steps`"
            )
        unused = ["deviations", *(_OF_LEVELS if self.levels == "middles" else ())]
        given = [field.name for field in fields(self) if field.name in unused and self._is_given(field.name)]
        if given:
            raise ConfigError(
                f"`{given[0]}` of a gradient codec must be left out if `range` says where the {self.levels} lie, got "
                f"{getattr(self, given[0])!r}; remove one of the two"
            )

    def _is_given(self, name: str) -> bool:
        # a dataclass keeps defaults as attributes of the class; an option given as its default counts as not given
        return getattr(self, name) != getattr(type(self), name)

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
        """Bits of a code."""
        return bits_of(self.steps)

    @property
    @override
    def looks_back(self) -> bool:
        """Whether a threshold or levels are from earlier mini-batches, or residuals from before the last one."""
        old_levels = self.interval > 1 or self.lag > 0 or self.smoothing != "none"
        return old_levels or self.threshold == "previous_mean" or self.residual_lag > 1

    @property
    def sent_levels(self) -> int:
        """Levels of a column on the wire: both ends of the range, or one for every code there is room for."""
        # with steps other than a power of two, levels of codes that no value takes travel as well, as 0
        return 2 if self.levels == "middles" else 1 << self.bits

    # ---- the wire ----

    @override
    def message_bytes(self, columns: int, rows: int) -> int:
        return WORD_BYTES * columns * (self.sent_levels + code_words(rows, self.bits))

    @override
    def message_of(self, data: bytes, columns: int, rows: int) -> Message:
        return Message.from_bytes(data, columns, self.sent_levels, code_words(rows, self.bits))

    @override
    def decode(self, message: Message, rows: int) -> Array:
        """Return the gradients of a message: float32, (columns, rows).

        Raises:
            ShapeError: the message is of another number of rows, or another codec.
        """
        self._require_message(message, len(message.levels), rows)
        return load(self.backend).decode_columns(message.words, message.levels, self.steps, rows, None)

    @override
    def decode_and_add(self, message: Message, total: Array) -> None:
        """Add the gradients of a message to a sum, float32 or float64, (columns, rows), in place.

        Raises:
            ShapeError: the sum has another shape.
        """
        if total.ndim != _AXES:
            raise ShapeError(f"`total` must have the shape (columns, rows), got {total.shape}")
        self._require_message(message, *total.shape)
        kernels, sums = load(self.backend), np.ascontiguousarray(total)
        kernels.decode_columns(message.words, message.levels, self.steps, total.shape[1], sums)
        # kernels add in place, and need a contiguous array: a view of a tensor was copied
        if sums is not total:
            total[...] = sums

    def _require_message(self, message: Message, columns: int, rows: int) -> None:
        """Check the shapes of a message: kernels would read or write beyond the ends of other arrays."""
        expected = (columns, self.sent_levels), (columns, code_words(rows, self.bits))
        if (message.levels.shape, message.words.shape) != expected:
            raise ShapeError(
                f"a message of {columns} columns of {rows} rows must have levels {expected[0]} and words "
                f"{expected[1]}, got {message.levels.shape} and {message.words.shape}; decode it with the codec and "
                "the sizes that it was made with"
            )

    def codes(self, message: Message, rows: int) -> NDArray[np.unsignedinteger[Any]]:
        """Return the codes themselves, uint8, or uint16 of more than 8 bits, (columns, rows)."""
        return unpacked(message.words, rows, self.bits)

    # ---- encoding ----

    @override
    def encode(self, gradients: Array, memory: Memory, at: Address) -> Message:
        """Return a message of gradients and residuals; what the message does not express is the new residual.

        Raises:
            ShapeError: gradients are not (columns, rows), or memory has another shape.
        """
        _require_columns(gradients, memory)
        kernels, dtype = load(self.backend), np.result_type(gradients, memory.residual)
        means = memory.means_before(self.threshold_lag)
        # kernels write the new residual into this very array
        memory.residual = memory.residual.astype(dtype, order="C", copy=False)
        given = gradients.astype(dtype, copy=False), memory.residual, self._code(means), means
        levels, counted = memory.levels, None
        # no levels yet, or their interval is over
        if levels is None or self._is_renewed(memory, at):
            levels, counted = None, self._counted(gradients.shape, at)
            if self.lag or self.smoothing != "none":  # the codes need levels that follow from this mini-batch's own
                fresh = kernels.encode_columns(*given, counted, None, settles=False).levels
                levels = self._in_use(fresh, memory)
        coded = kernels.encode_columns(*given, counted, levels, settles=True)
        # the kernel computed this mini-batch's own levels; here only memory notes them
        if levels is None:
            self._in_use(coded.levels, memory)
        memory.note_means(coded.means, self.threshold_lag)
        # after encoding: the kernel has written the residual of this mini-batch
        memory.put_residual_away(self.residual_lag)
        memory.batches += 1
        return Message(coded.levels, coded.words)

    def _code(self, means: Array | None) -> ColumnsCode:
        """Return this codec as numbers for kernels; `means` are those of the mini-batch that gives the threshold."""
        threshold = {"zero": AT_ZERO, "mean": AT_MEAN, "previous_mean": AT_GIVEN}[self.threshold]
        # no earlier mini-batch yet: its own mean, as the class says
        if threshold == AT_GIVEN and means is None:
            threshold = AT_MEAN
        assert self.levels is not None, "chosen when it was made"
        levels = {"means": MEANS, "ends": ENDS, "middles": MIDDLES}[self.levels]
        low, high = self.range or (0, 0)
        of_values = float(self.deviations), float(self.outliers or 0)
        return ColumnsCode(self.steps, threshold, levels, *of_values, float(low), float(high))

    def _is_renewed(self, memory: Memory, at: Address) -> bool:
        if not self.at_random:
            return memory.batches % self.interval == 0
        drawn = random_integers(1, _DRAWN_BITS, seed=at.seed, stream=at.stream, step=at.step, draw=_WHETHER)
        # drawn / 2**16 < 1 / interval, without a division
        return int(drawn[0]) * self.interval < 1 << _DRAWN_BITS

    def _counted(self, shape: tuple[int, ...], at: Address) -> NDArray[np.bool_] | None:
        """Return which values are drawn to decide levels; None is all."""
        if not self.left_out:
            return None
        where = {"seed": at.seed, "stream": at.stream, "step": at.step, "draw": _LEFT_OUT}
        drawn = random_integers(math.prod(shape), _DRAWN_BITS, **where).reshape(shape)
        # the share is rounded to a multiple of 2**-16; values are counted with probability 1 - share
        return drawn >= round(self.left_out * (1 << _DRAWN_BITS))

    def _in_use(self, fresh: Array, memory: Memory) -> Array:
        """Return the levels that the mini-batch uses, given those it computed; memory keeps what later ones need."""
        memory.computed.append(fresh)
        known = memory.computed[: max(len(memory.computed) - self.lag, 0)] or [fresh]  # below 0 counts from the end
        newest = known[-1]
        levels = newest
        with np.errstate(invalid="ignore", over="ignore"):
            if self.smoothing == "exponential" and memory.levels is not None:
                decay = np.float32(self.decay)
                levels = decay * memory.levels + (np.float32(1) - decay) * newest
            elif self.smoothing == "window":
                first, *later = known[-self.window :]
                total = first
                for computed in later:  # one after the other: NumPy's sum may add in another order
                    total = total + computed
                levels = total / np.float32(1 + len(later))
        # smoothing of the next mini-batch starts from what is in use now, not from what was computed
        memory.levels = levels = one_nan(levels)
        # what is older than the lag and the window is never read again, and checkpoints need not hold it
        kept = self.lag + (self.window if self.smoothing == "window" else 1)
        del memory.computed[:-kept]
        return levels


def _require_columns(gradients: Array, memory: Memory) -> None:
    """Check that memory has the shape of the gradients: kernels write residuals of the gradients' size."""
    if gradients.ndim != _AXES or memory.residual.shape != gradients.shape:
        raise ShapeError(
            "gradients must have the shape (columns, rows) and memory residuals of the same, got "
            f"{gradients.shape} and {memory.residual.shape}; begin with Memory.empty(columns, rows)"
        )
    columns = gradients.shape[0]
    for means in [*memory.older_means, *([] if memory.means is None else [memory.means])]:
        if means.shape != (columns,):
            raise ShapeError(f"`means` of a codec's memory must have the shape ({columns},), got {means.shape}")
    for levels in [*memory.computed, *([] if memory.levels is None else [memory.levels])]:
        if levels.shape[0] != columns:
            raise ShapeError(
                f"levels in a codec's memory must be of {columns} columns, got {levels.shape[0]}; load the memory of "
                "this stripe"
            )
