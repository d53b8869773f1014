"""The compiled loops of elementwise operations: each block of results, from the operands to what the stage writes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.numba.bits import (
    add_to_odd,
    divide_to_odd,
    fma_to_odd,
    multiply_to_odd,
    remainder_of,
    sqrt_to_odd,
)
from emu.backends.numba.blocks import observe_block, round_block, write_fixed, write_float
from emu.backends.numba.compiling import BLOCK, kernel
from emu.backends.numba.philox import fill_random
from emu.datapath.pending import NO_EXPONENT

# Numba compiles globals of a module as constants, but looks up attributes of another module.
QUANTIZE, ADD, SUBTRACT, MULTIPLY, FMA = k.QUANTIZE, k.ADD, k.SUBTRACT, k.MULTIPLY, k.FMA
DIVIDE, SQRT, REMAINDER, ROUND_TO_INTEGRAL = k.DIVIDE, k.SQRT, k.REMAINDER, k.ROUND_TO_INTEGRAL
FLOOR, DRAWN = k.FLOOR, modes.DRAWN
INEXACT_FLAG, INVALID_FLAG, DIVISION_FLAG = k.INEXACT_FLAG, k.INVALID_FLAG, k.DIVISION_FLAG


@kernel
def _load(
    operation: int, a: Any, b: Any, c: Any, at: int, n: int, scale: float, floor: bool, x: Any, flags: Any
) -> int:
    """Compute one block of results, exact or rounded to odd; return how many are NaN without a NaN among the operands.

    The stage rounds a result that is rounded to odd to the same bits as the exact one.
    Divisions by zero are counted in the flags.
    """
    # Operations are numbers at run time: one compiled loop has them all, and LLVM lifts the choice out of it.
    if operation in (QUANTIZE, ROUND_TO_INTEGRAL):
        for i in range(n):
            x[i] = np.float64(a[at + i]) * scale
        return 0
    new_nans = 0
    by_zero = 0
    for i in range(n):
        p = np.float64(a[at + i])
        q = np.float64(b[at + i])
        s = 0.0
        if operation in (ADD, SUBTRACT):
            q = -q if operation == SUBTRACT else q
            s = add_to_odd(p, q)
            # Toward negative, a zero sum is -0 unless both terms are +0 (IEEE 754-2019 section 6.3).
            if s == 0.0 and floor and (math.copysign(1.0, p) < 0.0 or math.copysign(1.0, q) < 0.0):
                s = -0.0
        elif operation == MULTIPLY:
            s = multiply_to_odd(p, q)
        elif operation == FMA:
            product = p * q
            t = np.float64(c[at + i])
            s = fma_to_odd(p, q, t)
            if s == 0.0 and floor and (math.copysign(1.0, product) < 0.0 or math.copysign(1.0, t) < 0.0):
                s = -0.0
            new_nans += s != s and not (p != p or q != q or t != t)
        elif operation == DIVIDE:
            s = divide_to_odd(p, q)
            # A finite number, not 0, over 0 (IEEE 754-2019 section 7.3).
            by_zero += q == 0.0 and p != 0.0 and abs(p) < np.inf
        elif operation == REMAINDER:
            s = remainder_of(p, q)
        else:
            s = sqrt_to_odd(p)
            new_nans += s != s and p == p
        if operation != FMA and operation != SQRT:  # these have counted theirs
            new_nans += s != s and not (p != p or q != q)
        x[i] = s
    flags[DIVISION_FLAG] += by_zero
    return new_nans


@kernel
def _round_to_integral(x: Any, r: Any, u: Any, n: int, stage: Any) -> None:
    round_block(x, r, u, n, stage)
    for i in range(n):
        x[i] = r[i]


@kernel
def _count_moved(a: Any, at: int, scale: float, x: Any, y: Any, n: int, flags: Any) -> None:
    """Count as inexact the operands that differ from their integers x if the stage wrote x without change."""
    moved = 0
    for i in range(n):
        moved += np.float64(a[at + i]) * scale != x[i] and y[i] == x[i]
    flags[INEXACT_FLAG] += moved


@kernel
def _store(y: Any, scale: float, out: Any, at: int, n: int) -> None:
    for i in range(n):
        out[at + i] = y[i] * scale


@kernel
def _core(
    x: Any,
    y: Any,
    v: Any,
    r: Any,
    u: Any,
    n: int,
    stage: Any,
    lowest: int,
    bins: int,
    fixed_quantum: int,
    flags: Any,
    counts: Any,
    top: int,
) -> int:
    """Write a block's results x as y, observed if there is a register; return the largest exponent observed so far."""
    if bins > 0:
        top = observe_block(x, n, lowest, bins, fixed_quantum, counts, top)
    if stage.is_float:
        write_float(x, y, v, r, u, n, stage, flags)
    else:
        write_fixed(x, y, v, r, u, n, stage, flags)
    return top


@kernel
def write_operation(
    operation: int,
    a: Any,
    b: Any,
    c: Any,
    origin: int,
    scale: float,
    out_scale: float,
    out: Any,
    start: int,
    stop: int,
    stage: Any,
    seed: int,
    stream: int,
    step: int,
    draw: int,
    recorded: Any,
    lowest: int,
    bins: int,
    fixed_quantum: int,
    flags: Any,
    counts: Any,
) -> int:
    """Write results `start`..`stop` of an operation, block by block; return the largest exponent observed.

    Args:
        operation: number of the operation.
        a: first operand, flat.
        b: second operand; if the operation has none, any array as long as `a`.
        c: third operand, likewise.
        origin: index of the result that element 0 of the operands belongs to.
        scale: power of two by which the operand of QUANTIZE and ROUND_TO_INTEGRAL is multiplied first.
        out_scale: what values are multiplied by where they are stored.
        out: carriers or raws, flat.
        start: first result.
        stop: one past the last.
        stage: a prepared stage.
        seed: of the random bits, as int64.
        stream: of the random bits.
        step: of the random bits.
        draw: of the random bits.
        recorded: recorded random bits of all results; one element if there are none.
        lowest: exponent of the register's first position.
        bins: positions; 0 without a register.
        fixed_quantum: exponent of the fixed accumulator observed, or `NO_QUANTUM`.
        flags: counts of flags; added to.
        counts: counts of the register; added to.
    """
    # Of a block: exact results, what is written, results in last places, rounded ones, random integers.
    x = np.empty(BLOCK, np.float64)
    y = np.empty(BLOCK, np.float64)
    v = np.empty(BLOCK, np.float64)
    r = np.empty(BLOCK, np.float64)
    u = np.zeros(BLOCK, np.int64)
    top = NO_EXPONENT
    for at in range(start, stop, BLOCK):
        n = min(BLOCK, stop - at)
        new_nans = _load(operation, a, b, c, at - origin, n, scale, stage.rounding == FLOOR, x, flags)
        if stage.rounding in DRAWN:
            if recorded.size > 1 or stage.n_rbits == 0:  # without recorded bits, the array has one element
                for i in range(n):
                    u[i] = recorded[at + i]
            else:
                fill_random(u, at, n, stage.n_rbits, seed, stream, step, draw)
        if operation == ROUND_TO_INTEGRAL:
            _round_to_integral(x, r, u, n, stage)
        top = _core(x, y, v, r, u, n, stage, lowest, bins, fixed_quantum, flags, counts, top)
        # Writing an integer may be exact although rounding to it was not.
        if operation == ROUND_TO_INTEGRAL:
            _count_moved(a, at - origin, scale, x, y, n, flags)
        # In formats without NaN, `write_float` and `write_fixed` count each NaN as invalid.
        if stage.is_float and stage.has_nan:
            flags[INVALID_FLAG] += new_nans
        _store(y, out_scale, out, at, n)
    return top
