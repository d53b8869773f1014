"""The output stage over a whole array, fused with the elementwise operation that feeds it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.interface import NO_QUANTUM, Outcome, RandomCode, RegisterCode, StageCode, carrier_of
from emu.backends.numba.bits import add_to_odd, divide_to_odd, fma_to_odd, multiply_to_odd, sqrt_to_odd
from emu.backends.numba.blocks import Stage, observe_block, write_fixed, write_float
from emu.backends.numba.compiling import BLOCK, kernel, over_ranges, thread_count
from emu.backends.numba.philox import fill_random
from emu.backends.numba.vector.choosing import parameters, shape_for
from emu.backends.numba.vector.ranges import empty, write_ranges
from emu.backends.numba.vector.writing import COUNTS_PLACE, TOP_PLACE
from emu.backends.proofs import SAFE_EXPONENT
from emu.datapath.registers import NO_EXPONENT

Array = NDArray[Any]
#: Operations by number: 0 writes the operand itself.
OPERATIONS = {"quantize": 0, "add": 1, "subtract": 2, "multiply": 3, "fma": 4, "divide": 5, "sqrt": 6}
STOCHASTIC, FLOOR = k.STOCHASTIC, k.FLOOR
_NO_BITS = np.zeros(1, np.int64)


@kernel
def _load(operation: int, a: Any, b: Any, c: Any, at: int, n: int, scale: float, floor: bool, x: Any) -> int:
    """Compute one block of exact (or rounded to odd) results; return how many NaNs came from operands without one."""
    if operation == 0:
        for i in range(n):
            x[i] = np.float64(a[at + i]) * scale
        return 0
    new_nans = 0
    for i in range(n):
        p = np.float64(a[at + i])
        q = np.float64(b[at + i])
        s = 0.0
        if operation == 1 or operation == 2:
            q = -q if operation == 2 else q
            s = add_to_odd(p, q)
            if s == 0.0 and floor and (math.copysign(1.0, p) < 0.0 or math.copysign(1.0, q) < 0.0):
                s = -0.0
        elif operation == 3:
            s = multiply_to_odd(p, q)
        elif operation == 4:
            product = p * q
            t = np.float64(c[at + i])
            s = fma_to_odd(p, q, t)
            if s == 0.0 and floor and (math.copysign(1.0, product) < 0.0 or math.copysign(1.0, t) < 0.0):
                s = -0.0
            new_nans += s != s and not (p != p or q != q or t != t)
        elif operation == 5:
            s = divide_to_odd(p, q)
        else:
            s = sqrt_to_odd(p)
            new_nans += s != s and p == p
        if operation == 1 or operation == 2 or operation == 3 or operation == 5:
            new_nans += s != s and not (p != p or q != q)
        x[i] = s
    return new_nans


@kernel
def _store(y: Any, out: Any, at: int, n: int) -> None:
    for i in range(n):
        out[at + i] = y[i]


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
    if bins > 0:
        top = observe_block(x, n, lowest, bins, fixed_quantum, counts, top)
    if stage.is_float:
        write_float(x, y, v, r, u, n, stage, flags)
    else:
        write_fixed(x, y, v, r, u, n, stage, flags)
    return top


@kernel
def _run(
    operation: int,
    a: Any,
    b: Any,
    c: Any,
    scale: float,
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
    x = np.empty(BLOCK, np.float64)
    y = np.empty(BLOCK, np.float64)
    v = np.empty(BLOCK, np.float64)
    r = np.empty(BLOCK, np.float64)
    u = np.zeros(BLOCK, np.int64)
    top = NO_EXPONENT
    for at in range(start, stop, BLOCK):
        n = min(BLOCK, stop - at)
        new_nans = _load(operation, a, b, c, at, n, scale, stage.rounding == FLOOR, x)
        if stage.rounding == STOCHASTIC:
            if recorded.size > 1 or stage.n_rbits == 0:
                for i in range(n):
                    u[i] = recorded[at + i]
            else:
                fill_random(u, at, n, stage.n_rbits, seed, stream, step, draw)
        top = _core(x, y, v, r, u, n, stage, lowest, bins, fixed_quantum, flags, counts, top)
        if stage.is_float and stage.has_nan:
            flags[3] += new_nans
        _store(y, out, at, n)
    return top


def run_stage(
    operation: str,
    operands: tuple[Array, ...],
    stage: StageCode,
    random: RandomCode,
    register: RegisterCode | None,
    *,
    out: Array | None = None,
    scale: float = 1.0,
) -> Outcome:
    """Write an elementwise operation through the output stage.

    Args:
        operation: a key of `OPERATIONS`.
        operands: C-contiguous float32 or float64 arrays of one shape.
        stage: output stage that `supports` accepts.
        random: source of random bits.
        register: positions of the statistics register, or None.
        out: where to write, or None for a fresh carrier array.
        scale: power of two by which a single operand is multiplied first.
    """
    dtype = np.result_type(*operands)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        flat = [np.ascontiguousarray(x, dtype=dtype).reshape(-1) for x in operands]
    flat += [flat[0]] * (3 - len(flat))
    shape, size = operands[0].shape, operands[0].size
    values = empty(shape, carrier_of(stage.format)) if out is None else out
    in_place = values.flags.c_contiguous and not any(_overlaps(values, x) for x in flat)
    target = values.reshape(-1) if in_place else np.empty(size, values.dtype)
    lowest, bins, fixed_quantum = register if register is not None else RegisterCode(0, 0, NO_QUANTUM)
    recorded, code = _recorded(random), prepare(stage)
    seed = random.seed - (random.seed >> 63 << 64)  # the same 64 bits, as the int64 kernels take
    if random.recorded is not None and size == 1:  # one recorded bit looks like none: hand it over twice
        recorded = np.repeat(recorded, 2)
    flags, counts, tops = _count_arrays(size, bins)

    def plain(index: int, start: int, stop: int) -> None:
        top = _run(
            OPERATIONS[operation],
            *flat,
            scale,
            target,
            start,
            stop,
            code,
            seed,
            random.stream,
            random.step,
            random.draw,
            recorded,
            lowest,
            bins,
            fixed_quantum,
            flags[index],
            counts[index],
        )
        tops[index] = max(tops[index], top)

    shape_code = None
    if scale == 1.0 or not stage.format.is_float:
        shape_code = shape_for(operation, dtype, target.dtype, stage, register, random.recorded is not None)
    if shape_code is None:
        over_ranges(plain, size, BLOCK)
    else:
        limits = (code.high, code.low, code.modulus, code.above, code.below)
        numbers = parameters(shape_code, stage, limits, random, register, scale)
        reports = write_ranges(shape_code, flat, target, numbers, bins, plain)
        flags[0] += reports[:, :TOP_PLACE].sum(axis=0)
        counts[0] += reports[:, COUNTS_PLACE:].sum(axis=0)
        tops[0] = max(tops[0], reports[:, TOP_PLACE].max())
    if not in_place:
        values[...] = target.reshape(shape)
    total = counts.sum(axis=0) if register is not None else None
    return Outcome(values, flags.sum(axis=0), total, int(tops.max()))


def _overlaps(values: Array, x: Array) -> bool:
    """Return whether writing `values` could change elements of `x` before they are read: shared, not place by place."""
    same_places = values.ctypes.data == x.ctypes.data and values.dtype == x.dtype and values.size == x.size
    return not same_places and np.may_share_memory(values, x)


def _recorded(random: RandomCode) -> Array:
    return _NO_BITS if random.recorded is None else np.ascontiguousarray(random.recorded, dtype=np.int64).reshape(-1)


def _count_arrays(size: int, bins: int) -> tuple[Array, Array, Array]:
    rows = thread_count() + 1
    return (
        np.zeros((rows, k.N_FLAGS), np.int64),
        np.zeros((rows, 2 * bins + 5), np.int64),
        np.full(rows, NO_EXPONENT, np.int64),
    )


def prepare(stage: StageCode) -> Stage:
    """Return an output stage as the loops want it."""
    fmt = stage.format
    if not fmt.is_float:
        high = float(fmt.max_significand)
        low = 0.0 if not fmt.signed else -high if stage.overflow == k.SATURATE_SYMMETRIC else -high - 1.0
        above = below = infinite = 0.0
    else:
        high = math.ldexp(float(fmt.max_significand), fmt.max_exponent)
        low = -high
        infinity = math.inf if fmt.has_infinity else math.nan
        mode, clamps = stage.rounding, stage.overflow == k.SATFINITE
        above = high if clamps or mode in (k.TOWARD_ZERO, k.TO_ODD, k.FLOOR) else infinity
        below = -high if clamps or mode in (k.TOWARD_ZERO, k.TO_ODD, k.CEIL) else -infinity
        infinite = high if clamps else infinity
    return Stage(
        fmt.is_float,
        stage.rounding,
        stage.overflow,
        stage.n_rbits,
        fmt.quantum,
        fmt.precision,
        fmt.emin,
        fmt.ftz,
        fmt.has_nan,
        fmt.has_negative_zero,
        high,
        low,
        math.ldexp(1.0, fmt.width_bits),
        above,
        below,
        infinite,
    )


def supports(stage: StageCode) -> bool:
    """Return whether results in units of the format's last place, and its values, stay far from the ends of float64."""
    fmt = stage.format
    top = fmt.max_exponent + (fmt.precision if fmt.is_float else fmt.width_bits)
    # with one significant bit, ties look at the exponent's last bit: left to the reference
    return not fmt.carries_raws and fmt.precision != 1 and abs(fmt.quantum) < SAFE_EXPONENT and top < 2 * SAFE_EXPONENT
