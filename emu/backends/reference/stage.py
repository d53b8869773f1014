"""The output stage: observe, round, apply the overflow rule, count flags.

Each element that the reference writes passes `write`.

Source: docs/concepts/flags.md, "The output stage and its flags"; docs/concepts/rounding.md; docs/concepts/overflow.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import FormatCode, Outcome, RandomCode, RegisterCode, StageCode, Write, carrier_of
from emu.backends.modes import draws, meaning_of, moves_exact
from emu.backends.reference.exact import FINITE, INFINITE, INT64_BITS, NAN, NEW_NAN, Exact
from emu.backends.reference.philox import random_integers, random_integers_of
from emu.backends.reference.rounding import round_magnitude
from emu.datapath.pending import NO_EXPONENT

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Doubles = NDArray[np.float64]


def finish(
    exact: Exact,
    output: Write,
    touched: Mask | None = None,
    observed: Exact | None = None,
    by_zero: Mask | None = None,
    moved: Mask | None = None,
) -> Outcome:
    """Observe exact results, write them, and count.

    Args:
        exact: results of any shape, in logical C order.
        output: output stage, random bits, and positions of the statistics register.
        touched: where a saturating accumulator touched a limit, or None.
        observed: what the register observes if `exact` is not it, as a sum that is divided before it is written.
        by_zero: where a finite number was divided by zero, or None.
        moved: where the exact result differs from the operand, so that it is inexact even if it is written as it is; or
            None.
    """
    stage, random, register = output
    # what is observed and what is written differ only if a sum is divided in between
    if observed is None:
        observed = exact
    counts, max_exponent = observe(observed, register) if register is not None else (None, NO_EXPONENT)
    values, flags = write(exact, stage, draw_bits(exact.kind.shape, stage, random))
    # masks of one flag each: NumPy's sum of booleans is their or
    if touched is not None:
        flags[k.ACCUMULATOR_FLAG] += touched
    if by_zero is not None:
        flags[k.DIVISION_FLAG] += by_zero
    if moved is not None:
        flags[k.INEXACT_FLAG] = flags[k.INEXACT_FLAG] | moved
    return Outcome(values, np.array([np.count_nonzero(flag) for flag in flags], np.int64), counts, max_exponent)


def draw_bits(shape: tuple[int, ...], stage: StageCode, random: RandomCode) -> Array | None:
    """Return the random integers a stage needs for a result of `shape`, or None."""
    if not draws(stage):
        return None
    if random.recorded is not None:
        return random.recorded.astype(np.int64)
    # bits belong to elements in C order
    n = int(np.prod(shape, dtype=np.int64))
    numbers = {"seed": random.seed, "stream": random.stream, "step": random.step, "draw": random.draw}
    if random.elements is not None:
        return random_integers_of(random.elements, stage.n_rbits, **numbers)
    return random_integers(n, stage.n_rbits, **numbers).reshape(shape)


def observe(exact: Exact, register: RegisterCode) -> tuple[NDArray[np.int64], int]:
    """Return the counts of a statistics register, and the largest floor(log2|x|)."""
    finite = exact.kind == FINITE
    nonzero = finite & (exact.significand != 0).astype(bool)
    # of zeros it means nothing: they are masked out below
    leading = exact.leading
    trailing = exact.significand & (exact.significand - 1)  # without the lowest 1
    power_of_two = nonzero & (trailing == 0).astype(bool)
    # In two's complement -2**m is 1..10..0 with m zeros: its leading bit, the leftmost 0, has the exponent m - 1.
    e = leading - (exact.negative & power_of_two)
    # Raw -1 of a fixed accumulator is all ones: it has no leading bit.
    minus_one = exact.negative & power_of_two & (leading == register.fixed_quantum)
    placed = nonzero & ~minus_one
    position = e - register.lowest
    inside = placed & (position >= 0) & (position < register.bins)
    # Positions of positive numbers, of negative ones, then: none, below, above, not finite, all.
    counts = np.zeros(2 * register.bins + 5, np.int64)
    # positive positions first, then negative ones
    for side, sign in enumerate((~exact.negative, exact.negative)):
        counts[side * register.bins : (side + 1) * register.bins] = np.bincount(
            position[inside & sign], minlength=register.bins
        )
    below, above = placed & (position < 0), placed & (position >= register.bins)
    counts[2 * register.bins :] = [(finite & ~placed).sum(), below.sum(), above.sum(), (~finite).sum(), finite.size]
    return counts, int(leading[nonzero].max()) if nonzero.any() else NO_EXPONENT


def write(exact: Exact, stage: StageCode, u: Array | None) -> tuple[Array, list[Mask]]:
    """Round exact results and apply the overflow rule; return what is written, and the flags.

    Args:
        exact: results of any shape.
        stage: format, rounding, overflow.
        u: random integers of that shape for stochastic rounding.

    Returns:
        The carrier array, and one mask per flag in the order of `FLAG_NAMES`.
    """
    return _write_float(exact, stage, u) if stage.format.is_float else _write_fixed(exact, stage, u)


def round_to(
    exact: Exact, target: NDArray[np.int64], stage: StageCode, u: Array | None, widest: int
) -> tuple[Array, Mask]:
    """Return results rounded to multiples of 2**target, in such units, and where that is inexact.

    Args:
        exact: results of any shape.
        target: exponents of last places.
        stage: the mode that rounds.
        u: random integers, or None.
        widest: bits of what may be written instead: a limit of 64 bits is no int64.
    """
    # An exponent above the last place moves the digits up; one below it drops digits.
    grow = np.maximum(exact.exponent - target, 0)
    if exact.significand.dtype != object and (
        widest > INT64_BITS or (exact.bit_length + grow).max(initial=0) > INT64_BITS
    ):
        exact = exact.as_object()
    significand = exact.significand << (grow.astype(object) if exact.significand.dtype == object else grow)
    return round_magnitude(
        significand,
        np.maximum(target - exact.exponent, 0),
        exact.negative,
        rounding=stage.rounding,
        n_rbits=stage.n_rbits,
        u=u,
        two_s_complement=not (stage.format.is_float or stage.format.sign_magnitude),
        # Without fraction bits, the last bit of a code is that of its exponent; code 0 is 0, or the smallest value.
        parity=target - stage.format.quantum + (not stage.format.has_zero) if stage.format.precision == 1 else None,
    )


def to_integral(exact: Exact, stage: StageCode, u: Array | None) -> tuple[Exact, Mask]:
    """Return results rounded to integers in the stage's mode, with the signs of zeros, and where that changed them.

    Source: IEEE 754-2019 section 5.9.
    """
    whole = stage._replace(format=stage.format._replace(precision=0))  # an integer's last bit is its own
    finite = exact.kind == FINITE
    # numbers that are whole keep their exponents, so that huge ones need
    # no shift; a mode that moves whole numbers needs it
    target = np.zeros_like(exact.exponent) if moves_exact(stage) else np.maximum(exact.exponent, 0)
    if not stage.format.is_float:  # as in `_write_fixed`
        exact = replace(exact, negative=exact.negative & ((exact.significand != 0).astype(bool) | ~finite))
    integers, moved = round_to(exact, target, whole, u, 0)
    return Exact(exact.negative, np.where(finite, integers, 0), target, exact.kind), moved & finite


def writing_integers(stage: StageCode) -> StageCode:
    """Return the stage that writes integers already rounded: toward zero if its mode would move them again."""
    return stage._replace(rounding=k.TOWARD_ZERO) if moves_exact(stage) else stage


def _write_fixed(exact: Exact, stage: StageCode, u: Array | None) -> tuple[Array, list[Mask]]:
    fmt = stage.format
    target = np.full(exact.kind.shape, fmt.quantum, np.int64)
    finite = exact.kind == FINITE if moves_exact(stage) else None
    if finite is not None:  # the mode moves zeros too, and the zero of two's complement is positive
        exact = replace(exact, negative=exact.negative & ((exact.significand != 0).astype(bool) | ~finite))
    quotient, inexact = round_to(exact, target, stage, u, fmt.width_bits)
    # in two's complement and sign and magnitude alike: magnitudes were rounded
    rounded = np.where(exact.negative, -quotient, quotient)
    if finite is not None:
        rounded, inexact = np.where(finite, rounded, 0), inexact & finite
    high, low = fmt.max_significand, stage.lowest
    # `kind` NAN or NEW_NAN
    infinite, nan = exact.kind == INFINITE, exact.kind >= NAN
    too_high = (rounded > high).astype(bool) | (infinite & ~exact.negative)
    too_low = (rounded < low).astype(bool) | (infinite & exact.negative)
    overflow = too_high | too_low
    if stage.overflow == k.WRAP:  # infinities have no residue: they saturate
        wrapped = _wrap(rounded, fmt) if overflow.any() else rounded
        limits = np.array([high, low], rounded.dtype)  # 2**64 - 1 is no int64
        raw = np.where(infinite, limits[exact.negative.astype(np.intp)], wrapped)
    elif stage.overflow == k.SATURATE_ZERO:
        raw = np.where(overflow, 0, rounded)
    else:
        raw = np.where(too_high, high, np.where(too_low, low, rounded))
    raw = np.where(nan, 0, raw)
    nonzero = (exact.significand != 0).astype(bool)
    # of the rounded result, not of what is written: one that wraps to 0 has overflowed
    underflow = nonzero & ~overflow & (rounded == 0).astype(bool)
    none = np.zeros(nan.shape, bool)
    return _carry_fixed(raw, fmt), [overflow, underflow, inexact | overflow, nan, none, none.copy(), none.copy()]


def _wrap(rounded: Array, fmt: FormatCode) -> Array:
    if fmt.sign_magnitude:  # the sign stays, and the magnitude loses its high bits
        magnitude = np.abs(rounded) & fmt.max_significand
        return np.where((rounded < 0).astype(bool), -magnitude, magnitude)
    modulus = 1 << fmt.width_bits
    residue = rounded.astype(object) & (modulus - 1)
    return np.where((residue > fmt.max_significand).astype(bool), residue - modulus, residue)


def _carry_fixed(raw: Array, fmt: FormatCode) -> Array:
    if fmt.carries_raws:
        return raw.astype(carrier_of(fmt))
    # Raws that are not carried as such have at most 53 bits beside the sign: float64 holds them.
    return np.ldexp(raw.astype(np.float64), fmt.quantum).astype(carrier_of(fmt))


def _write_float(exact: Exact, stage: StageCode, u: Array | None) -> tuple[Array, list[Mask]]:
    fmt = stage.format
    # the last place of the result's binade, or the finest one
    target = np.where(exact.significand != 0, np.maximum(exact.leading - (fmt.precision - 1), fmt.quantum), fmt.quantum)
    quotient, inexact = round_to(exact, target, stage, u, fmt.precision)
    # A quotient has at most 53 bits and is an exact float64. From 2**1024 on it is infinite, as it is at 2**2000: above
    # every limit. The minimum keeps the exponent in int32.
    with np.errstate(over="ignore"):
        magnitude = np.ldexp(quotient.astype(np.float64), np.minimum(target, 2000).astype(np.int32))
    nonzero = (exact.significand != 0).astype(bool)
    # The smallest normal number: a step above 2**emin if that is the code of zero.
    smallest = math.ldexp((1 << (fmt.precision - 1)) + fmt.hidden_one, fmt.quantum)
    if fmt.ftz or fmt.hidden_one:
        flushed = (magnitude != 0) & (magnitude < smallest)
        magnitude = np.where(flushed, 0.0, magnitude)
        inexact = inexact | flushed
    least = 0.0 if fmt.has_zero else smallest  # the smallest value stands for 0
    became_zero = magnitude == 0
    if not fmt.has_zero:
        # Of magnitudes below the smallest value, 0 too, that value is written: such a format has no subnormals.
        lifted = (exact.kind == FINITE) & ~(nonzero & (exact.leading >= fmt.emin))
        magnitude, inexact = np.where(lifted, least, magnitude), inexact | lifted
        became_zero = became_zero | lifted
    infinite = exact.kind == INFINITE
    limit: Any = math.ldexp(float(fmt.max_significand), fmt.max_exponent)
    # NaN stands for infinity in formats without it
    infinity: Any = np.inf if fmt.has_infinity else np.nan
    overflow = magnitude > limit
    if not fmt.signed:  # negative results lie below the range, where NaN stands for infinity
        below = exact.negative & (infinite | ~became_zero)
        limit, infinity = np.where(below, least, limit), np.where(below, np.nan, infinity)
        overflow |= below & ~infinite
    counts_zeros = stage.tininess == k.BECAME_ZERO
    underflow = nonzero & became_zero if counts_zeros else inexact & _is_tiny(exact, stage, u) & ~overflow
    beyond = overflow | infinite
    magnitude = np.where(beyond, _overflow_magnitude(exact, stage, limit, infinity, overflow), magnitude)
    # an infinity that is written as one has not overflowed
    applied = overflow | (infinite & ~np.isinf(magnitude))
    made_nan = np.isnan(magnitude) | (exact.kind == NEW_NAN)
    nan = made_nan | (exact.kind == NAN)  # without a NaN, each is invalid and written as the value that stands for 0
    value = np.where(exact.negative, -magnitude, magnitude) if fmt.signed else magnitude
    value = np.where(nan, np.nan if fmt.has_nan else least, value)
    if not fmt.has_negative_zero:
        value = np.where(value == 0, 0.0, value)
    invalid = made_nan if fmt.has_nan else nan
    subnormal = (np.abs(value) < smallest) & (value != 0)
    none = np.zeros(nan.shape, bool)
    flags = [applied, underflow & ~nan, inexact | applied, invalid, subnormal & ~nan, none, none.copy()]
    return value.astype(carrier_of(fmt)), flags


def _is_tiny(exact: Exact, stage: StageCode, u: Array | None) -> Mask:
    """Return which results IEEE 754 calls tiny: not 0, and below the smallest normal number.

    Tininess is detected before rounding, or after rounding to the format's precision as if exponents had no lower end.

    Source: IEEE 754-2019 section 7.5.
    """
    fmt, nonzero = stage.format, (exact.significand != 0).astype(bool)
    below = nonzero & (exact.leading < fmt.emin)
    if fmt.hidden_one:  # the smallest normal number is a step above 2**emin, and what is rounded below it is tiny
        if stage.tininess == k.BEFORE_ROUNDING:
            stage = stage._replace(rounding=k.TOWARD_ZERO)
        grid = np.maximum(exact.leading - (fmt.precision - 1), fmt.quantum)
        quotient, _ = round_to(exact, grid, stage, u, fmt.precision)
        return below | ((exact.leading == fmt.emin) & (quotient == 1 << (fmt.precision - 1)).astype(bool))
    if stage.tininess == k.BEFORE_ROUNDING:
        return below
    grid = np.where(below, exact.leading - (fmt.precision - 1), fmt.quantum)
    quotient, _ = round_to(exact, grid, stage, u, fmt.precision)
    # Rounded up to 2**precision last places of its binade, a result reaches the smallest normal number.
    reaches = (exact.leading == fmt.emin - 1) & (quotient >> fmt.precision != 0).astype(bool)
    return below & ~reaches


def _overflow_magnitude(exact: Exact, stage: StageCode, limit: Doubles, infinity: Doubles, overflow: Mask) -> Doubles:
    """Return what is written for a result outside the range: the limit on its side, or infinity, or else NaN."""
    if stage.overflow == k.SATFINITE:
        return limit
    if stage.overflow == k.SATPROPAGATE:
        return np.where(overflow | np.isnan(infinity), limit, infinity)
    # IEEE 754-2019 section 7.4: a directed mode that rounds toward zero on a side stops at the largest number there.
    above, below = meaning_of(stage).stays
    stays: Any = above if above == below else np.where(exact.negative, below, above)
    return np.where(stays & overflow, limit, infinity)  # infinite operands stay infinite in every mode
