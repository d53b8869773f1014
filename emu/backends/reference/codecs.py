"""Gradient codecs in NumPy: the definition of codes, levels and residuals.

    V = G + residual        code = Q(V)        residual = V - level of the code

A column is a row of an array: its numbers are neighbours in memory. Sums are those of 64 lanes, a mean is one division,
nothing is contracted, and each NaN that is written is the quiet one without a sign. What remains are additions,
products, quotients and roots of IEEE 754, each rounded once: they are the same on every computer.

Source: CN106062786A; Seide et al., Interspeech 2014. Where these are silent, the choice is ours.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.backends.codecs import (
    AT_GIVEN,
    AT_MEAN,
    CODE_WORD_BITS,
    ENDS,
    MIDDLES,
    Coded,
    ColumnsCode,
    are_ends,
    bits_of,
    code_type,
    code_words,
)
from emu.backends.reference.column_sums import column_means, one_nan

Array = NDArray[Any]
#: uint8, or uint16 of more than 8 bits.
Codes: TypeAlias = NDArray[np.unsignedinteger[Any]]


class ReferenceCodecs:
    """The definition of `CodecKernels`."""

    def encode_columns(
        self,
        gradients: Array,
        residual: Array,
        code: ColumnsCode,
        limits: Array | None,
        counted: NDArray[np.bool_] | None,
        levels: NDArray[np.float32] | None,
        *,
        settles: bool,
    ) -> Coded:
        """Return columns as codes; write what the codes lose into the residual."""
        with np.errstate(invalid="ignore", over="ignore"):  # infinity less infinity is NaN, and stays
            # V of the module's formulas, (columns, rows)
            values = gradients + residual
            means = column_means(values)
            if code.levels == MIDDLES:
                # given levels are both ends of the range
                used = _range(values, means, code) if levels is None else levels
                codes = _steps_of(values, used, code.steps)
            else:
                codes = _codes(values, means, limits, code)
                used = _levels_of(values, codes, means, counted, code) if levels is None else levels
            if settles:
                residual[...] = one_nan(values - _levels_at(codes, used, code.steps))
            # one NaN, so that bits do not depend on the processor's
            return Coded(one_nan(means), used, packed(codes, code.bits))

    def decode_columns(
        self, words: NDArray[np.uint32], levels: NDArray[np.float32], steps: int, rows: int, total: Array | None
    ) -> Array:
        """Return what codes stand for, or `total` after adding it."""
        with np.errstate(invalid="ignore", over="ignore"):
            # (columns, rows)
            decoded = _levels_at(unpacked(words, rows, bits_of(steps)), levels, steps)
            if total is None:
                return decoded
            total[...] = one_nan(total + decoded)
        return total


def packed(codes: Codes, bits: int) -> NDArray[np.uint32]:
    """Return codes (columns, rows) as words: code i from bit i * bits on."""
    columns, rows = codes.shape
    # (columns, rows, bits), the lowest bit first
    spread = (codes[:, :, None] >> np.arange(bits, dtype=codes.dtype)) & codes.dtype.type(1)
    room = np.zeros((columns, code_words(rows, bits) * CODE_WORD_BITS), np.uint8)
    room[:, : rows * bits] = spread.reshape(columns, rows * bits)
    # "<u4" is little-endian whatever the processor is: bit i of a column is bit i % 32 of word i // 32.
    return np.packbits(room, axis=1, bitorder="little").view("<u4").astype(np.uint32)


def unpacked(words: NDArray[np.uint32], rows: int, bits: int) -> Codes:
    """Return the codes of words."""
    kind = code_type(bits)
    spread = np.unpackbits(words.astype("<u4").view(np.uint8), axis=1, bitorder="little")[:, : rows * bits]
    weights = kind(1) << np.arange(bits, dtype=kind)
    # sums of distinct powers of two stay below 2**bits, so that the dtype holds them
    return (spread.reshape(len(words), rows, bits) * weights).sum(axis=2, dtype=kind)


def _levels_at(codes: Codes, levels: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    """Return what each code stands for: its level, or the middle of its step if levels are both ends of the range."""
    if not are_ends(levels, steps):
        # levels (columns, codes), picked by codes (columns, rows)
        return np.take_along_axis(levels, codes.astype(np.int64), axis=1)
    halfway = codes.astype(np.float32) + np.float32(0.5)
    return one_nan(levels[:, :1] + halfway * _width(levels, steps)[:, None])


def _codes(values: Array, means: Array, limits: Array | None, code: ColumnsCode) -> Codes:
    """Return the codes of values by threshold, or by the steps of their own range."""
    if code.steps > 2:  # the range decides codes; levels may be other numbers
        return _steps_of(values, _range(values, means, code), code.steps)
    threshold = np.zeros_like(means)
    if code.threshold == AT_MEAN:
        threshold = means
    elif code.threshold == AT_GIVEN:
        assert limits is not None, "a given threshold is given"
        threshold = limits
    return (values >= threshold[:, None]).astype(np.uint8)


def _range(values: Array, means: Array, code: ColumnsCode) -> NDArray[np.float32]:
    """Return both ends of the range of steps, (columns, 2)."""
    if code.has_range:
        # (columns, 2), the same for each column
        return np.tile(np.array([code.low, code.high], np.float32), (len(values), 1))
    reach = values.dtype.type(code.deviations) * _deviations(values, means)
    return one_nan(np.stack([means - reach, means + reach], axis=1).astype(np.float32))


def _width(limits: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    return (limits[:, 1] - limits[:, 0]) / np.float32(steps)


def _steps_of(values: Array, limits: NDArray[np.float32], steps: int) -> Codes:
    width = _width(limits, steps)
    divisor = np.where(width > 0, width, np.float32(1))  # without width all values are equal, at the lower end
    step = np.floor((values - limits[:, :1]) / divisor[:, None])
    # NaN is not above 0: its code is 0.
    return np.where(step > 0, np.minimum(step, np.float32(steps - 1)), np.float32(0)).astype(code_type(bits_of(steps)))


def _levels_of(
    values: Array, codes: Codes, means: Array, drawn: NDArray[np.bool_] | None, code: ColumnsCode
) -> NDArray[np.float32]:
    """Return what each code stands for, (columns, codes there is room for)."""
    counted = np.ones(values.shape, bool) if drawn is None else drawn
    if code.outliers:
        reach = values.dtype.type(code.outliers) * _deviations(values, means)
        counted = counted & (np.abs(values - means[:, None]) <= reach[:, None])
    if code.levels == ENDS:
        # infinity stands for values that do not count: if none counts, an end stays infinite, and becomes 0 below
        least = np.where(counted, values, np.float32(np.inf)).min(axis=1, initial=np.inf)
        most = np.where(counted, values, np.float32(-np.inf)).max(axis=1, initial=-np.inf)
        ends = np.stack([least, most], axis=1).astype(np.float32)
        return np.where(np.isfinite(ends), ends, np.float32(0)) + np.float32(0)  # -0 and +0 are one least value: +0
    levels = np.zeros((len(values), 1 << code.bits), np.float32)
    for number in range(code.steps):
        levels[:, number] = column_means(values, counted & (codes == number))
    return one_nan(levels)


def _deviations(values: Array, means: Array) -> Array:
    """Return the standard deviation of each column."""
    centred = values - means[:, None]
    return np.sqrt(column_means(centred * centred))
