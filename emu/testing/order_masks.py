"""Masked operands: a product function called with products of our choice, 0, 1, M and -M.

M = 2**huge = 2**huge_a * 2**huge_b            1 stands for 2**small, which M hides
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import ShapeError
from emu.formats import Fixed, Format
from emu.formats.numbers import as_numbers

#: Exponents of the normal powers of two of likely accumulators: binary64, binary32, binary16, OCP e4m3.
RANGES = ((-1022, 1023), (-126, 127), (-14, 15), (-6, 8))


@dataclass(frozen=True)
class Masks:
    """Exponents of the huge and the small product, M = 2**huge and the "1" 2**small, and of the two factors of each."""

    huge: int
    small: int
    huge_factors: tuple[int, int]
    small_factors: tuple[int, int]

    def __str__(self) -> str:
        return f"M = 2**{self.huge}, 1 as 2**{self.small}"


@dataclass(frozen=True)
class Probe:
    """The function under test, called with products of our choice."""

    product: Callable[..., Any]
    k: int
    a_format: Format
    b_format: Format
    addend_format: Format | None
    shape: tuple[int, int] | None

    @property
    def n_terms(self) -> int:
        """Products, and the addend."""
        return self.k + (self.addend_format is not None)

    @property
    def formats_text(self) -> str:
        """The formats, for a message."""
        return " x ".join(str(f) for f in (self.a_format, self.b_format, self.addend_format) if f is not None)

    def __call__(self, masks: Masks, kinds: NDArray[np.int8]) -> float:
        """Return the function's value for terms that are 0, 1, M (2) and -M (-2), as a multiple of 1."""
        a, b = (
            # the rest is M or -M, kinds 2 and -2; the sign follows below
            np.select([kinds == 0, kinds == 1], [0.0, math.ldexp(1.0, small)], math.ldexp(1.0, huge))
            for huge, small in zip(masks.huge_factors, masks.small_factors, strict=True)
        )
        # the sign of -M goes to the operand whose format has one; the product function sees the same products
        sign = np.where(kinds == -2, -1.0, 1.0)
        a, b = (a * sign, b) if self.a_format.signed else (a, b * sign)
        arguments: list[Any] = [_carried(self.a_format, a[: self.k]), _carried(self.b_format, b[: self.k])]
        if self.addend_format is not None:
            # the last term enters as one number: the product of its factors, which is the same M or 1
            arguments.append(_carried(self.addend_format, a[-1] * b[-1]))
        with np.errstate(all="ignore"):
            # in units of 1 = 2**small
            return math.ldexp(self._value(arguments), -masks.small)

    def _value(self, arguments: list[Any]) -> float:
        if self.shape is None:
            result = self._result(arguments)
            if result.size != 1:
                raise ShapeError(f"`product` must return one number, got shape {result.shape}; say its `shape`")
            return float(result.reshape(()))
        m, n = self.shape
        arguments[0], arguments[1] = np.tile(arguments[0], (m, 1)), np.tile(arguments[1][:, None], (1, n))
        arguments[2:] = [np.full(self.shape, c) for c in arguments[2:]]
        result = self._result(arguments)
        if result.shape != self.shape:
            raise ShapeError(
                f"`product` must return an array of `shape` {self.shape}, got {result.shape}; change `shape`"
            )
        return float(result[-1, -1])

    def _result(self, arguments: list[Any]) -> NDArray[Any]:
        """Return the function's result, as numbers.

        Raises:
            FormatError: it returns no numbers.
        """
        return as_numbers(self.product(*arguments), "product(a, b)")


def _carried(fmt: Format, values: Any) -> Any:
    """Return values in the carrier of their format, in which wide fixed-point formats have raws."""
    if isinstance(fmt, Fixed) and fmt.carries_raws:
        values = np.ldexp(values, fmt.frac_bits)
    return values.astype(fmt.carrier)


def guesses(probe: Probe, accumulator: Format | None) -> Iterator[Masks]:
    """Yield masks as far apart as the ranges of operands and accumulator allow."""
    a, b = range_of(probe.a_format), range_of(probe.b_format)
    # without a known accumulator the usual ranges come widest first, then that of the operands
    known = [range_of(accumulator)] if accumulator is not None else [*RANGES, a]
    seen: set[Masks] = set()
    for low, high in known:
        if probe.addend_format is not None:
            least, largest = range_of(probe.addend_format)
            # an addend is given as one number, so M and 1 must be values of its format
            low, high = max(low, least), min(high, largest)
        huge, small = factors_of(high - 1, a, b), factors_of(low, a, b)
        masks = Masks(sum(huge), sum(small), huge, small)
        if masks.huge > masks.small and masks not in seen:
            seen.add(masks)
            yield masks


def range_of(fmt: Format) -> tuple[int, int]:
    """Return the exponents of the smallest and the largest power of two, subnormals excepted if there are others."""
    if isinstance(fmt, Fixed):
        # raw 1, and the largest power of two up to max_raw
        return -fmt.frac_bits, fmt.max_raw.bit_length() - 1 - fmt.frac_bits
    return fmt.emin if fmt.has_normals else fmt.emin - fmt.fraction_bits, fmt.emax


def factors_of(exponent: int, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Return the exponents of two factors in their ranges whose product comes nearest to 2**exponent."""
    # b gets half, as far as its range goes; a gets the rest; what a cannot take goes back to b
    second = min(max(exponent // 2, b[0]), b[1])
    first = min(max(exponent - second, a[0]), a[1])
    return first, min(max(exponent - first, b[0]), b[1])
