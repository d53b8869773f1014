"""Conditions under which a float64 result is written as the exact one would be, with their proofs."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import FormatCode, StageCode, is_one_number
from emu.backends.modes import moves_exact
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64, largest_exponent, leading_bound

Array = NDArray[Any]

#: A number that is wrapped, in units of the last place, lies below this power of two.
WRAPPED_TOP = bounded(1000, 1, 1023, "it is a finite float64")
#: Exponents of sums, and of sums in units of the last place, lie nearer to 0 than this.
FLOAT64_CENTRAL = bounded(
    900, 1, 1022 - 53, "integers of 53 bits and sums of two of them are normal, finite float64 numbers"
)


def scales_exactly(x: Array, stage: StageCode) -> bool:
    """Return whether x in units of the last place is a float64, or so large that only its size matters."""
    # `supports` keeps the quantum within +-SAFE_EXPONENT: float32's exponents, -149 to 127, may move so far.
    if x.dtype == np.float32:
        return True
    if stage.overflow == k.WRAP and leading_bound(x) - stage.format.quantum >= WRAPPED_TOP:
        return False
    # A positive quantum makes numbers smaller: some would be subnormal, and inexact. Another one makes them larger, at
    # worst infinite, which each rule but `wrap` treats as it would the number.
    return stage.format.quantum <= 0


def declines_points(formats: tuple[FormatCode, FormatCode, FormatCode | None], stage: StageCode) -> str:
    """Return why sums, or sums in units of the last place, might be no normal float64 numbers; "" if they are."""
    lowest = formats[0].quantum + formats[1].quantum
    is_central = abs(lowest) < FLOAT64_CENTRAL and abs(lowest - stage.format.quantum) < FLOAT64_CENTRAL
    return "" if is_central else "the binary points lie too far from each other"


def decides(
    operation: str, operands: tuple[Array, ...], formats: tuple[FormatCode | None, ...], stage: StageCode
) -> bool:
    """Return whether the operation in float64, rounded to odd, is written as the exact result would be."""
    if any(x.dtype.kind != "f" for x in operands) or any(f is not None and f.carries_raws for f in formats):
        return False
    # Both are exact, and no larger than the first operand or the next integer.
    if operation in ("remainder", "round_to_integral"):
        return not (operation == "round_to_integral" and moves_exact(stage)) and all(
            scales_exactly(x, stage) for x in operands
        )
    sums = operation in ("add", "subtract")
    for x, fmt in zip(operands, formats, strict=True):
        # Of float32 and of central formats, results and their errors are far from the ends of float64. Other sums need
        # an upper bound alone: near the lower end a sum of float64 numbers is exact.
        if x.dtype == np.float32 or (fmt is not None and _is_central(fmt) and not (sums and stage.format.quantum > 0)):
            continue
        if not sums or stage.format.quantum > 0 or leading_bound(x) > FLOAT64_CENTRAL:
            return False
    leading = 0
    if not stage.format.is_float:
        leading = stage.format.width_bits + stage.format.quantum  # a larger result saturates: only its sign matters
        if stage.overflow == k.WRAP:
            leading = max(leading, _result_bound(operation, operands))
    return decides_in_float64(stage, leading)


def decides_all(
    operation: str, sources: tuple[np.dtype[Any], ...], formats: tuple[FormatCode | None, ...], stage: StageCode
) -> bool:
    """Return whether an operation of all numbers of these dtypes and formats is written as the exact result would be.

    False if that depends on the numbers: then `decides` or `scales_exactly` looks at them.
    """
    if stage.overflow == k.WRAP:
        return False
    zeros = tuple([np.zeros(1, dtype) for dtype in sources])
    if operation == "quantize":
        return scales_exactly(zeros[0], stage)
    for dtype, fmt in zip(sources, formats, strict=True):
        if dtype != np.float32 and (fmt is None or not _is_central(fmt)):
            return False
    # of float64 numbers, a stage with a positive quantum makes `decides` look at the largest
    return stage.format.quantum <= 0 and decides(operation, zeros, formats, stage)


def _result_bound(operation: str, operands: tuple[Array, ...]) -> int:
    """Return an exponent whose power of two no finite result exceeds."""
    # Of operands below 2**(e + 1) each.
    bounds = [leading_bound(x) + 1 for x in operands]
    if operation in ("add", "subtract"):
        return max(bounds) + 1
    if operation in ("multiply", "fma"):
        # One more for the sum of a product and an addend.
        return max(sum(bounds[:2]), *bounds[2:], 0) + 1
    if operation == "sqrt":
        # A root of a number below 2**e is below 2**(e / 2).
        return bounds[0] // 2 + 1
    # The largest quotient is by the smallest divisor; one by 0 is no finite result.
    divisors = np.abs(operands[1].flat[0] if is_one_number(operands[1]) else operands[1])
    smallest = float(np.min(divisors, initial=math.inf, where=divisors > 0))
    return bounds[0] - (math.frexp(smallest)[1] - 1) if math.isfinite(smallest) else bounds[0]


@lru_cache(maxsize=1024)
def _is_central(fmt: FormatCode) -> bool:
    """Return whether products, quotients and their errors stay far from the ends of float64."""
    # Products lie between 2**-SAFE_EXPONENT and 2**SAFE_EXPONENT, quotients too; errors are 53 bits below.
    return fmt.quantum > -SAFE_EXPONENT // 2 and largest_exponent(fmt) < SAFE_EXPONENT // 2
