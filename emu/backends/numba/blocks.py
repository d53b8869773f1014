"""The output stage on one block: scale to units of the last place, round, apply the overflow rule, count.

A block is a piece of an array, `compiling.BLOCK` elements that stay in the cache. It holds exact results as float64, or
results rounded to odd that the stage is proved to write as the exact ones. Each pass is one loop over the block, so
that the mode or rule is chosen once a block and the loops vectorise.

Arrays are named alike in all functions: x results, y what is written for them, v results in units of the last place, r
what v is rounded to, u random integers of `n_rbits` bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.bounds import bounded
from emu.backends.numba.bits import BIAS, FIELD, FRACTION, bits_of, power_of_two
from emu.backends.numba.compiling import kernel, part
from emu.backends.proofs import INTO_NORMAL, SAFE_EXPONENT, SUBNORMAL_SHIFT

NEAREST_EVEN, NEAREST_AWAY, NEAREST_UP, NEAREST_DOWN = k.NEAREST_EVEN, k.NEAREST_AWAY, k.NEAREST_UP, k.NEAREST_DOWN
FLOOR, CEIL, TOWARD_ZERO, TO_ODD, STOCHASTIC = k.FLOOR, k.CEIL, k.TOWARD_ZERO, k.TO_ODD, k.STOCHASTIC
HAND_WRITTEN, DRAWN = modes.HAND_WRITTEN, modes.DRAWN
SATURATE_ZERO, WRAP, IEEE = k.SATURATE_ZERO, k.WRAP, k.IEEE
N_FLAGS = k.N_FLAGS
OVERFLOW_FLAG, UNDERFLOW_FLAG, INEXACT_FLAG = k.OVERFLOW_FLAG, k.UNDERFLOW_FLAG, k.INEXACT_FLAG
INVALID_FLAG, SUBNORMAL_FLAG = k.INVALID_FLAG, k.SUBNORMAL_FLAG
BECAME_ZERO, AFTER_ROUNDING = k.BECAME_ZERO, k.AFTER_ROUNDING
#: Larger magnitudes overflow every format that compiled loops write, whatever their digits.
HUGE = bounded(970, 2 * SAFE_EXPONENT, 1022, "above every format's largest number; 2**-HUGE is a normal float64")


class Stage(NamedTuple):
    """An output stage as the loops take it."""

    is_float: int
    rounding: int
    overflow: int
    n_rbits: int
    quantum: int
    precision: int
    emin: int
    ftz: int
    has_nan: int
    has_negative_zero: int
    high: float  # fixed: largest raw; float: largest value
    low: float
    modulus: float  # fixed: 2**width
    above: float  # float: what stands for finite results above `high`
    below: float
    infinite: float  # float: what stands for +inf
    tininess: int  # float: which underflow is counted
    steps: int  # mask of a mode without code of its own


@kernel
def round_block(v: Any, r: Any, u: Any, n: int, stage: Stage) -> None:
    """Round v (in units of the last place) to integers r; zeros keep the sign."""
    # Here and below, a - floor(a) is exact: it is the low bits of a.
    mode = stage.rounding
    if mode == NEAREST_EVEN:
        for i in range(n):
            r[i] = np.rint(v[i])
    elif mode == TOWARD_ZERO:
        for i in range(n):
            r[i] = np.trunc(v[i])
    elif mode == FLOOR:
        for i in range(n):
            r[i] = np.floor(v[i])
    elif mode == CEIL:
        for i in range(n):
            r[i] = np.ceil(v[i])
    elif mode == STOCHASTIC:
        _round_stochastic(v, r, u, n, stage.n_rbits, stage.is_float)
    elif mode in DRAWN:
        _round_fraction(v, r, u, n, stage.n_rbits, stage.is_float, stage.steps)
    elif mode >= HAND_WRITTEN:
        _round_by_steps(v, r, n, stage.is_float, stage.steps)
    else:
        for i in range(n):
            a = abs(v[i])
            t = np.floor(a)
            f = a - t
            negative = v[i] < 0.0
            # From 2**53 on t + 1 may be no float64, but then v is an integer: f is 0, and t is taken.
            if mode == TO_ODD:
                # An even t with a rest moves to the odd neighbour above.
                up = f > 0.0 and t * 0.5 == np.floor(t * 0.5)
            else:
                tie = f == 0.5 and (
                    mode == NEAREST_AWAY or (mode == NEAREST_UP and not negative) or (mode == NEAREST_DOWN and negative)
                )
                up = f > 0.5 or tie
            r[i] = np.copysign(t + 1.0 if up else t, v[i])
    # A result of 0 has the sign of v: ceil(-0.5) is -0.
    if mode in (FLOOR, CEIL):
        for i in range(n):
            r[i] = np.copysign(r[i], v[i])


@part
def _round_stochastic(v: Any, r: Any, u: Any, n: int, n_rbits: int, is_float: int) -> None:
    # b = n_rbits. Magnitudes move away from zero if u and the first b dropped bits, floor(f * 2**b), carry. In two's
    # complement the first b dropped bits of a negative number are those of 1 - f, 2**b - ceil(f * 2**b): with a u from
    # ceil(f * 2**b) on they carry, toward zero. Integers up to 2**(b + 1) are compared: exact.
    scale = power_of_two(n_rbits)
    for i in range(n):
        a = abs(v[i])
        t = np.floor(a)
        f = (a - t) * scale
        drawn = np.float64(u[i])
        complement = is_float == 0 and v[i] < 0.0
        up = drawn < np.ceil(f) if complement else drawn + np.floor(f) >= scale
        r[i] = np.copysign(t + 1.0 if up else t, v[i])


@kernel
def _step(steps: int, whole: float, rest: float, negative: bool) -> float:
    """Return the step of a magnitude, given its whole part and the rest, by a mask of steps (`modes.step_mask`)."""
    # 0 exact, 1 below half a step, 2 a tie, 3 above; then parity and sign. The mask has 16 steps up, then 16 down.
    odd = whole * 0.5 != np.floor(whole * 0.5)
    case = (
        np.int64(rest > 0.0) + np.int64(rest >= 0.5) + np.int64(rest > 0.5) + 4 * np.int64(odd) + 8 * np.int64(negative)
    )
    return np.float64(((steps >> case) & 1) - ((steps >> (case + 16)) & 1))


@part
def _round_by_steps(v: Any, r: Any, n: int, is_float: int, steps: int) -> None:
    for i in range(n):
        a = abs(v[i])
        t = np.floor(a)
        rounded = t + _step(steps, t, a - t, v[i] < 0.0)
        if a == 0.0:  # the zero of two's complement has no sign; a zero of floats stays
            r[i] = v[i] if is_float else rounded
        else:
            r[i] = np.copysign(rounded, v[i])


@part
def _round_fraction(v: Any, r: Any, u: Any, n: int, n_rbits: int, is_float: int, steps: int) -> None:
    # As `_round_stochastic`, but the dropped bits are first rounded to n_rbits bits by the mask.
    scale = power_of_two(n_rbits)
    for i in range(n):
        a = abs(v[i])
        t = np.floor(a)
        f = (a - t) * scale
        whole = np.floor(f)
        first = whole + _step(steps, whole, f - whole, v[i] < 0.0)
        drawn = np.float64(u[i])
        complement = is_float == 0 and v[i] < 0.0
        up = drawn < first if complement else drawn + first >= scale
        r[i] = np.copysign(t + 1.0 if up else t, v[i])


@kernel
def write_fixed(x: Any, y: Any, v: Any, r: Any, u: Any, n: int, stage: Stage, flags: Any) -> None:
    """Write a block into a fixed-point format: values x to values y."""
    scale_fixed(x, v, n, stage)
    round_block(v, r, u, n, stage)
    bound_fixed(y, v, r, n, stage, flags)


@kernel
def scale_fixed(x: Any, v: Any, n: int, stage: Stage) -> None:
    """Write a block in units of a fixed-point format's last place."""
    scale = power_of_two(-stage.quantum)  # a normal number, by `prepared.supports`
    for i in range(n):
        v[i] = x[i] * scale


@kernel
def bound_fixed(y: Any, v: Any, r: Any, n: int, stage: Stage, flags: Any) -> None:
    """Apply the overflow rule of a fixed-point format to a rounded block: values y.

    Of the rules `wrap` and saturation to zero, r changes as well; others leave it as it was rounded.
    """
    step = power_of_two(stage.quantum)  # a normal number, by `prepared.supports`
    high, low, modulus = stage.high, stage.low, stage.modulus
    overflows = 0
    inexacts = 0
    underflows = 0
    # Comparisons with NaN are false: it is neither outside nor an underflow, but differs from itself.
    for i in range(n):
        outside = r[i] > high or r[i] < low
        overflows += outside
        inexacts += outside or r[i] != v[i]
        underflows += r[i] == 0.0 and v[i] != 0.0
    nans = 0
    if stage.overflow == WRAP or stage.overflow == SATURATE_ZERO:
        for i in range(n):
            if r[i] > high or r[i] < low:
                if stage.overflow == SATURATE_ZERO:
                    r[i] = 0.0
                elif not np.isinf(r[i]):
                    # The modulus is a power of two: quotient, product and difference are exact. The residue, from 0 on,
                    # becomes the code's value: codes above `high` are negative in two's complement.
                    r[i] = r[i] - np.floor(r[i] / modulus) * modulus
                    if r[i] > high:
                        r[i] = r[i] - modulus
    for i in range(n):
        # Saturates; of the other rules only an infinity under `wrap` is still outside.
        w = min(max(r[i], low), high)
        nan = r[i] != r[i]
        nans += nan
        y[i] = 0.0 if nan else w * step + 0.0  # + 0.0: fixed point has no -0
    flags[OVERFLOW_FLAG] += overflows
    flags[INEXACT_FLAG] += inexacts - nans  # a NaN compares unequal to itself
    flags[UNDERFLOW_FLAG] += underflows
    flags[INVALID_FLAG] += nans


@kernel
def write_float(x: Any, y: Any, v: Any, r: Any, u: Any, n: int, stage: Stage, flags: Any) -> None:
    """Write a block into a floating-point format: values x to values y."""
    scale_float(x, y, v, n, stage)
    round_block(v, r, u, n, stage)
    bound_float(x, y, v, r, n, stage, flags)
    if stage.tininess != BECAME_ZERO:
        flags[UNDERFLOW_FLAG] += count_tiny(x, y, v, r, u, n, stage)


@kernel
def scale_float(x: Any, y: Any, v: Any, n: int, stage: Stage) -> None:
    """Write a block in units of each number's last place in a floating-point format, which becomes y."""
    # In units of its last place, 2**last, a number has its significant bits before the binary point. Below the format's
    # smallest normal number the last place is the quantum; a subnormal x, of exponent field 0, lies far below.
    quantum, tail = stage.quantum, stage.precision - 1
    huge = power_of_two(HUGE)
    for i in range(n):
        magnitude = abs(x[i])
        exponent = ((bits_of(x[i]) >> 52) & FIELD) - BIAS
        last = max(min(exponent, HUGE) - tail, quantum)
        limited = np.copysign(huge, x[i]) if magnitude > huge and magnitude < np.inf else x[i]
        v[i] = limited * power_of_two(-last)
        y[i] = power_of_two(last)


@kernel
def bound_float(x: Any, y: Any, v: Any, r: Any, n: int, stage: Stage, flags: Any) -> None:
    """Write a rounded block as values of a floating-point format; y is each number's last place, and becomes its value.

    Underflows are counted as `BECAME_ZERO` wants it.
    """
    inexacts = 0
    underflows = 0
    beyond = 0
    nans = 0
    largest, lowest = stage.high, stage.low
    for i in range(n):
        inexacts += r[i] != v[i]
        underflows += r[i] == 0.0 and v[i] != 0.0
        y[i] = r[i] * y[i]  # exact: r has at most `precision` bits, or is 2**precision
        beyond += y[i] > largest or y[i] < lowest
        nans += y[i] != y[i]
    inexacts -= nans
    if stage.ftz:
        smallest = power_of_two(stage.emin)
        for i in range(n):
            # Not counted before as an underflow, as r is not 0; nor as inexact, if the subnormal number was exact.
            if y[i] != 0.0 and abs(y[i]) < smallest:
                underflows += 1
                inexacts += r[i] == v[i]
                y[i] = np.copysign(0.0, y[i])
    if beyond > 0:  # infinities are beyond, too
        _apply_overflow(x, y, v, r, n, stage, flags)
    flags[INEXACT_FLAG] += inexacts
    if stage.tininess == BECAME_ZERO:
        flags[UNDERFLOW_FLAG] += underflows
    if nans > 0 or beyond > 0:
        for i in range(n):
            if y[i] != y[i]:
                flags[INVALID_FLAG] += not stage.has_nan
                y[i] = np.nan if stage.has_nan else 0.0  # one NaN: processors write different ones
    if not stage.has_negative_zero:  # -0 + 0 is +0
        for i in range(n):
            y[i] = y[i] + 0.0
    normal = power_of_two(stage.emin)
    subnormals = 0
    for i in range(n):
        subnormals += y[i] != 0.0 and abs(y[i]) < normal
    flags[SUBNORMAL_FLAG] += subnormals


@kernel
def count_tiny(x: Any, y: Any, v: Any, r: Any, u: Any, n: int, stage: Stage) -> int:
    """Count the results x, written as y, that IEEE 754 calls tiny and inexact; v and r are overwritten.

    Source: IEEE 754-2019 section 7.5.
    """
    normal = power_of_two(stage.emin)
    carried = np.inf
    if stage.tininess == AFTER_ROUNDING:
        # IEEE 754 rounds as if exponents had no lower end. The last place below 2**emin is then 2**(emin - precision).
        # A result between 2**(emin - 1) and 2**emin is not tiny if it is rounded up to 2**emin, `carried` last places.
        scale, carried = power_of_two(stage.precision - stage.emin), power_of_two(stage.precision)
        for i in range(n):
            magnitude = abs(x[i])
            v[i] = x[i] * scale if 0.5 * normal <= magnitude < normal else 0.0
        round_block(v, r, u, n, stage)
    count = 0
    for i in range(n):
        magnitude = abs(x[i])
        # `carried` is infinite if tininess is detected before rounding: then no rounding makes a result normal.
        count += 0.0 < magnitude < normal and y[i] != x[i] and (carried == np.inf or abs(r[i]) < carried)
    return count


@part
def _apply_overflow(x: Any, y: Any, v: Any, r: Any, n: int, stage: Stage, flags: Any) -> None:
    for i in range(n):
        if y[i] > stage.high or y[i] < stage.low:
            finite = abs(x[i]) < np.inf
            if finite:
                y[i] = stage.above if x[i] > 0.0 else stage.below
            elif x[i] < 0.0 and stage.low == 0.0:  # an unsigned format
                y[i] = np.nan if stage.overflow == IEEE else 0.0
            else:
                y[i] = np.copysign(stage.infinite, x[i])
            if finite or not np.isinf(y[i]):
                flags[OVERFLOW_FLAG] += 1
                flags[INEXACT_FLAG] += r[i] == v[i]  # otherwise counted already
            if stage.has_nan and y[i] != y[i]:
                flags[INVALID_FLAG] += 1


@kernel
def observe_block(x: Any, n: int, lowest: int, bins: int, fixed_quantum: int, counts: Any, max_exponent: int) -> int:
    """Count the leading bits of a block in a statistics register; return the largest exponent so far.

    In two's complement -2**m has its leading bit, the leftmost 0, at m - 1; raw -1 of a fixed accumulator has none.
    """
    scalars = 2 * bins  # from here on `datapath.registers.SCALARS`: none, below, above, nonfinite, total
    for i in range(n):
        bits = bits_of(x[i])
        field = (bits >> 52) & FIELD
        fraction = bits & FRACTION
        if field == FIELD:
            counts[scalars + 3] += 1
            continue
        if field == 0:
            if fraction == 0:
                counts[scalars] += 1
                continue
            # A subnormal float64 times 2**SUBNORMAL_SHIFT is normal: the field counts from its leading bit.
            bits = bits_of(x[i] * INTO_NORMAL)
            field = ((bits >> 52) & FIELD) - SUBNORMAL_SHIFT
            fraction = bits & FRACTION
        exponent = field - BIAS
        max_exponent = max(max_exponent, exponent)
        side = 0
        # The register of a negative number is the second half of the bins.
        if bits < 0:
            side = bins
            if fraction == 0:
                if exponent == fixed_quantum:
                    counts[scalars] += 1
                    continue
                exponent -= 1
        position = exponent - lowest
        if position < 0:
            counts[scalars + 1] += 1
        elif position >= bins:
            counts[scalars + 2] += 1
        else:
            counts[side + position] += 1
    counts[scalars + 4] += n
    return max_exponent
