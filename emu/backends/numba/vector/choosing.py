"""Which output stages vector code computes, and the numbers it is given.

Lanes compute in float32 if values, results in units of the last place and the format's limits are all exact there:

    fixed   binary point 0..126, at most 24 bits beside the sign, at most 24 random bits
    float   24 significant bits, at most 24 random bits

and in float64 otherwise, as the plain loops do.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import NO_QUANTUM, RandomCode, RegisterCode, StageCode, carrier_of
from emu.backends.modes import HAND_WRITTEN, meaning_of
from emu.backends.numba.machine import has_directed_rounding, has_vectors
from emu.backends.numba.vector import arithmetic, leading_bits, stage
from emu.backends.numba.vector.rounding import TIES, kind_of
from emu.backends.numba.vector.stage import Shape
from emu.backends.proofs import has_normals

#: Significant bits of float32: it holds integers up to 2**24, the scale of 24 random bits too.
FLOAT32_BITS = bounded(24, 1, 24, "float32 holds no wider integer")
#: Lowest quantum (exponent of the last place) of fixed formats that float32 lanes write.
FLOAT32_LANE_QUANTUM = bounded(-126, -126, 0, "2**quantum, which scales results back, is a normal float32")
#: Bias of a lane's exponents: vector code reads positions of the register from the exponent's field.
_BIAS = {"f32": 127, "f64": 1023}
_NAMES: dict[Any, str] = {np.dtype(dtype): name for name, dtype in stage.KIND_DTYPES.items()}
#: 32-bit words of a register: two for most, three for those of exact sums, six for those of floats of any exponent.
#: Then the positions for which they have room, beside the tallies and the last position, `above`.
WORDS = (2, 3, 6)
BINS = tuple(words * leading_bits.WORD_BITS - stage.TALLY_BITS - 1 for words in WORDS)
MAX_BINS = BINS[-1]


@lru_cache(maxsize=1024)
def shape_for(
    operation: str,
    sources: tuple[np.dtype[Any], ...],
    target: np.dtype[Any],
    code: StageCode,
    register: RegisterCode | None,
    recorded: bool,
) -> Shape | None:
    """Return the shape that computes an output stage; None if only plain loops do, which support the stage.

    Args:
        operation: "quantize", or an elementwise operation that float64 decides.
        sources: dtype of each operand.
        target: dtype of what is written.
        code: the stage.
        register: positions of the statistics register, or None.
        recorded: whether random bits are recorded ones.
    """
    fmt, stochastic = code.format, code.rounding == k.STOCHASTIC
    # Left to plain loops: modes without code of their own, recorded bits, float formats without a sign or without
    # normal numbers, or with a quantum above 1 (small numbers divided by it leave the exponent's field), and IEEE 754's
    # underflow, for which results may be rounded again.
    if (
        not has_vectors()
        or code.rounding >= HAND_WRITTEN
        or operation not in arithmetic.ARITY
        or any(source not in _NAMES for source in sources)
        or target not in _NAMES
        or (fmt.is_float and (fmt.quantum > 0 or not fmt.signed or not has_normals(fmt)))
        or (stochastic and recorded)
        or code.tininess != k.BECAME_ZERO
    ):
        return None
    if register is not None and not _can_count(register):
        return None
    # Results of operations are float64, rounded to odd. Only `quantize`, which computes nothing, may round in float32.
    narrow = operation == "quantize" and sources[0] == np.float32 and _fits_float32(code)
    return Shape(
        operation,
        ",".join(_NAMES[source] for source in sources),
        "f32" if narrow else "f64",
        _NAMES[target],
        fmt.is_float,
        kind_of(code.rounding),
        _float_overflow(code) if fmt.is_float else _fixed_overflow(code),
        _fields(code.n_rbits) if stochastic else 0,
        0 if register is None else WORDS[bisect_left(BINS, register.bins)],
        int(operation != "quantize" and has_directed_rounding()),
    )


def _fixed_overflow(code: StageCode) -> int:
    return code.overflow if code.overflow in (k.SATURATE_ZERO, k.WRAP) else k.SATURATE  # others differ in limits alone


def _float_overflow(code: StageCode) -> int:
    fmt = code.format
    stays = all(meaning_of(code).stays)  # an overflow is the largest number, on both sides
    makes_nan = code.overflow == k.IEEE and not fmt.has_infinity and not stays
    return stage.MAKES_NAN * makes_nan + stage.FLUSHES * fmt.ftz + stage.ONE_ZERO * (not fmt.has_negative_zero)


def _can_count(register: RegisterCode) -> bool:
    # The raw -1 of a fixed accumulator has no leading bit. Vector code counts it one below the last place, and nothing
    # else there if that is a position, or if the positions begin at the last place.
    fixed = register.fixed_quantum != NO_QUANTUM
    return register.bins <= MAX_BINS and (not fixed or -1 <= _minus_one(register) < register.bins)


def _minus_one(register: RegisterCode) -> int:
    """Return the position at which vector code counts the raw -1 of a fixed accumulator."""
    return register.fixed_quantum - 1 - register.lowest


def _fits_float32(code: StageCode) -> bool:
    fmt = code.format
    if carrier_of(fmt) != np.float32 or (code.rounding == k.STOCHASTIC and code.n_rbits > FLOAT32_BITS):
        return False
    # A float is scaled by its own exponent, whichever that is. Fixed results are scaled by 2**-quantum, and back by
    # 2**quantum, which is a normal float32 from 2**-126 on; a quantum above 0 would scale small numbers below the
    # normal ones.
    in_lanes = FLOAT32_LANE_QUANTUM <= fmt.quantum <= 0 and fmt.width_bits - fmt.signed <= FLOAT32_BITS
    return bool(fmt.is_float) or in_lanes


def _fields(n_rbits: int) -> int:
    """Return how many random numbers 128 bits are cut into: of 32, 16 or 8 bits each."""
    return 4 if n_rbits > 16 else 8 if n_rbits > 8 else 16


@lru_cache(maxsize=1024)
def parameters(
    shape: Shape, code: StageCode, limits: tuple[float, ...], register: RegisterCode | None, scale: float
) -> NDArray[np.int64]:
    """Return the numbers of a stage as its loop reads them: float64 ones, then int64 ones; 0 for the random address.

    Args:
        shape: from `shape_for`.
        code: the stage.
        limits: `high`, `low`, `modulus`, `above` and `below` of the prepared `Stage`.
        register: positions of the statistics register; None if there is none.
        scale: power of two by which results are multiplied first; 1 for float formats, whose other scales plain loops
            compute.
    """
    block = np.zeros(stage.N_NUMBERS + stage.N_INTEGERS, np.int64)
    _put_numbers(block[: stage.N_NUMBERS].view(np.float64), code, limits, scale)
    register = register if register is not None else RegisterCode(0, 0, NO_QUANTUM)
    is_fixed = register.fixed_quantum != NO_QUANTUM
    integers, fmt = block[stage.N_NUMBERS :], code.format
    integers[[stage.QUANTUM, stage.TAIL]] = [fmt.quantum, fmt.precision - 1]
    # With the bias added, positions are differences of exponent fields.
    integers[[stage.LOWEST, stage.BINS]] = [register.lowest + _BIAS[shape.lane], register.bins]
    integers[[stage.FIXED_ACCUMULATOR, stage.MINUS_ONE]] = [is_fixed, _minus_one(register) if is_fixed else -1]
    integers[stage.N_RBITS] = code.n_rbits
    return block


def addressed(block: NDArray[np.int64], random: RandomCode) -> NDArray[np.int64]:
    """Return a stage's numbers with the address of its random bits."""
    filled = block.copy()
    # The 64 bits of the seed are Philox's two keys.
    keys = random.seed & 0xFFFFFFFF, random.seed >> 32
    first = stage.N_NUMBERS + stage.DRAW
    filled[first : stage.N_NUMBERS + stage.N_INTEGERS] = [random.draw, random.stream, random.step, *keys]
    return filled


def _put_numbers(numbers: NDArray[np.float64], code: StageCode, limits: tuple[float, ...], scale: float) -> None:
    fmt = code.format
    high, low, modulus, above, below = limits
    numbers[stage.SCALE] = 1.0 if fmt.is_float else math.ldexp(scale, -fmt.quantum)
    numbers[stage.STEP] = math.ldexp(1.0, fmt.quantum)
    numbers[[stage.HIGH, stage.LOW, stage.MODULUS, stage.ABOVE, stage.BELOW]] = [high, low, modulus, above, below]
    numbers[stage.SMALLEST] = math.ldexp(1.0, fmt.emin)
    # A format without NaN writes 0, and counts it as invalid.
    numbers[stage.NAN] = math.nan if fmt.has_nan else 0.0
    # A power of two, and exact.
    numbers[stage.INVERSE] = 1.0 / modulus
    positive, negative = TIES.get(code.rounding, (0.0, 0.0))
    # -0.0 is a sign bit alone: it turns the tie of negative numbers (`rounding.rounded`).
    numbers[[stage.TIE, stage.TIE_SIGN]] = [positive, -0.0 if positive != negative else 0.0]
    numbers[stage.RANDOM_SCALE] = math.ldexp(1.0, code.n_rbits)
