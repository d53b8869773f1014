"""The arguments of a launch, by value: int64 numbers in the order that `task.cuh` and `product.cuh` read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.interface import (
    LANES,
    WRAP,
    FormatCode,
    MacCode,
    RandomCode,
    RegisterCode,
    StageCode,
    Write,
    carrier_of,
    encode_format,
)
from emu.backends.modes import deciding_bits, step_mask
from emu.formats import Float, Format

Array = Any
#: How numbers lie in memory, by dtype.
STORAGE = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.int64): 2, np.dtype(np.uint64): 3}
#: As in `number.cuh`; not in `STORAGE`, because the numbers of no format lie in int32.
STORED_I32 = 4
#: Bits of a significand, by dtype.
SIGNIFICANT = {np.dtype(np.float32): 24, np.dtype(np.float64): 53, np.dtype(np.int64): 64, np.dtype(np.uint64): 64}
#: How many words of 64 bits an exact result may have in a kernel, beside four, which hold any.
_FEW_WORDS = (1, 2)
#: More bits than any word has.
_ALL_BITS = 1 << 20
#: Operands that are not flushed.
NO_FLUSH = bounded(-(1 << 30), -(1 << 31), -(1 << 20), "an int32 below every exponent")
#: Words of 64 bits of an exact sum, as `unit.cuh` has them.
#: Products of float64 span 4198 bits, from 2**-2148 to 2**2050; 2**48 of them and a sign take 50 bits more.
MOST_SUM_WORDS = bounded(72, 67, 512, "exact products of float64 take 67; a thread's memory holds them")
#: Bits of a sum of one block, with its sign, as `unit.cuh` has them.
BLOCK_SUM_BITS = bounded(256, 1, 256, "four words")
#: More terms than any array holds.
_MOST_TERMS = 1 << 48
#: As `operand_numbers` orders them: storage, quantum, what is flushed, has -0, step, bits of a number given by value.
NO_OPERAND = [0, 0, NO_FLUSH, 1, 0, 0]
#: Numbers of the longest task: a product in blocks.
#: 21 + 5 + 3 of the head, 3 operands of 6, 10 of sizes, divisor and steps, 3 + 2 * 21 of the unit, 7 of its blocks.
TASK_NUMBERS = bounded(109, 109, 480, "that long; parameters of a kernel take at most 4096 bytes")
#: How many fields of `FormatCode` kernels read: those before this one. The definition writes a format of which a later
#: field is not 0 (`is_only_defined`).
_FORMAT_FIELDS = FormatCode._fields.index("sign_magnitude")
#: A format's numbers, mode, rule, random bits, storage, tininess and steps.
STAGE_FIELDS = _FORMAT_FIELDS + 6
MASK32 = 0xFFFFFFFF


def head_numbers(write: Write) -> list[int]:
    """Return the numbers that every task begins with: stage, random bits, register."""
    return [*stage_numbers(write.stage), *random_numbers(write.random), *register_numbers(write.register)]


def wraps(stage: StageCode) -> bool:
    """Return whether a stage wraps: then the lowest bits of a result matter, however large it is.

    Only stages of fixed point can: floats have no such rule.
    """
    return stage.overflow == WRAP


def stage_numbers(stage: StageCode) -> list[int]:
    """Return a stage: its format, mode, rule, random bits, storage of results, underflow counted, steps of its mode."""
    storage = STORAGE[carrier_of(stage.format)]
    return [
        *stage.format[:_FORMAT_FIELDS],
        stage.rounding,
        stage.overflow,
        stage.n_rbits,
        storage,
        stage.tininess,
        step_mask(stage),
    ]


def random_numbers(random: RandomCode) -> list[int]:
    """Return key, stream, step and draw."""
    # the key as two words of 32 bits
    return [random.seed & MASK32, random.seed >> 32, random.stream, random.step, random.draw]


def register_numbers(register: RegisterCode | None) -> list[int]:
    """Return the positions of a register; 0 bins stand for no register."""
    return [0, 0, 0] if register is None else list(register)


def operand_numbers(dtype: np.dtype[Any], fmt: FormatCode | None, *, step: int = 1, given: int = 0) -> list[int]:
    """Return how an operand's elements are read.

    Args:
        dtype: of the elements.
        fmt: their format; None if they have none, and are never flushed.
        step: 1, or 0 if one number stands for all.
        given: bits of that number, if it is passed by value.
    """
    if fmt is None:
        return [STORAGE[dtype], 0, NO_FLUSH, 1, step, given]
    # the exponent below which operands count as 0
    return [STORAGE[dtype], fmt.quantum, fmt.emin if fmt.daz else NO_FLUSH, fmt.has_negative_zero, step, given]


def bits_of(number: NDArray[Any]) -> int:
    """Return the bits of the one element of a host's array, shape (1,)."""
    return int(np.ascontiguousarray(number).view(f"u{number.itemsize}")[0])


def mac_numbers(mac: MacCode) -> list[int]:
    """Return order, lanes, and the stages of products and of the accumulator."""
    product, accumulator = (
        [0] * STAGE_FIELDS if stage is None else stage_numbers(stage) for stage in (mac.product, mac.accumulator)
    )
    return [mac.order, mac.lanes if mac.order == LANES else 1, mac.product is not None, *product, *accumulator]


def blocks_numbers(mac: MacCode, formats: tuple[FormatCode, FormatCode, FormatCode | None]) -> list[int]:
    """Return blocks, the smallest exponents of both operands, and how many k a period has."""
    if mac.blocks is None:
        return []
    # groups are left out: `aligned_blocks`, the only way that takes them, passes them itself
    n, fraction_bits, indices, adds_after, min_exponent, _ = mac.blocks
    return [n, fraction_bits, adds_after, min_exponent, formats[0].emin, formats[1].emin, len(indices)]


def broadcast_steps(shape: tuple[int, ...]) -> list[int]:
    """Return the steps of batch, row and column in a contiguous array (B or 1, M or 1, N or 1)."""
    _, rows, columns = shape
    # an axis of one element is repeated: its step is 0
    return [0 if size == 1 else step for size, step in zip(shape, (rows * columns, columns, 1), strict=True)]


def source_numbers(fmt: Format) -> list[int]:
    """Return how a table's input format turns values into codes."""
    code = encode_format(fmt)
    specials = (fmt.infinity_code, fmt.nan_code) if isinstance(fmt, Float) else (None, None)
    codes = [0 if special is None else special for special in specials]
    return [code.width_bits, code.precision, code.emin, code.quantum, code.is_float, code.has_negative_zero, *codes]


def exact_sums(formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, depth: int) -> tuple[int, int]:
    """Return the exponent below which no term of an exact sum has a bit, and the 64-bit words that hold every sum."""
    if mac.product is None:
        lowest, top = formats[0].quantum + formats[1].quantum, _top(formats[0]) + _top(formats[1])
    else:
        lowest, top = mac.product.format.quantum, _top(mac.product.format)
    # an addend may lie outside the products' range
    if formats[2] is not None:
        lowest, top = min(lowest, formats[2].quantum), max(top, _top(formats[2]))
    # depth products and an addend, each at most 2**top, and a sign
    return lowest, -(-(top - lowest + (depth + 1).bit_length() + 1) // 64)


def declines_sums(formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode) -> str:
    """Return why the integers of kernels do not hold the sums of a unit, "" if they do."""
    if mac.blocks is not None:
        # terms are cut to integers below 2**(fraction_bits + 2), the accumulator is one more of them
        bits = mac.blocks.fraction_bits + 2 + mac.blocks.n.bit_length() + 1
        return f"a block's sum takes {bits} bits, a kernel has {BLOCK_SUM_BITS}" if bits > BLOCK_SUM_BITS else ""
    if mac.accumulator is not None:
        return ""
    # asked before the operands are known, so for the longest sum
    words = exact_sums(formats, mac, _MOST_TERMS)[1]
    return f"an exact sum takes {64 * words} bits, a kernel has {64 * MOST_SUM_WORDS}" if words > MOST_SUM_WORDS else ""


def kept_bits(stages: Iterable[StageCode], divisor: int = 1, *, adds: bool) -> int:
    """Return how many bits of an exact result, from its highest, its stages must tell apart from a sticky one.

    Args:
        stages: that round it.
        divisor: what it is divided by before.
        adds: whether bits can lie so far apart that the lowest are cut: what wraps needs them all.
    """
    # a quotient by a power of two has no further digits
    divides = divisor & (divisor - 1) != 0
    return (divisor.bit_length() if divides else 0) + max(
        _ALL_BITS
        if (adds or divides) and stage.overflow == WRAP
        else (stage.format.precision if stage.format.is_float else stage.format.width_bits) + deciding_bits(stage)
        for stage in stages
    )


def enough_words(widest: int, kept: int) -> int:
    """Return the 64-bit words that exact results take: 1, 2 or 4.

    Args:
        widest: bits of the widest operand or product.
        kept: bits that must be told apart from a sticky bit (`kept_bits`).
    """
    for words in _FEW_WORDS:
        # `add` of `arithmetic.cuh` moves the larger term up to two places below the top, so that a carry fits above it.
        # It cuts low bits off the smaller term only if that moves down, and then it lies below a quarter of the larger
        # one, because it has at most 64 * words - 4 bits: a difference loses one more place at most. So three places
        # are not kept, and three are left unused.
        if widest <= 64 * words - 4 and kept <= 64 * words - 6:
            return words
    return 4


def _top(fmt: FormatCode) -> int:
    """Return an exponent e so that no value exceeds 2**e."""
    # plus 1: two's complement reaches one further below 0
    return fmt.max_exponent + (fmt.max_significand + 1).bit_length()


def task(numbers: Sequence[int]) -> np.void:
    """Return the numbers as the struct `Task` of `task.cuh`, which a launch takes by value.

    Numbers above int64 are the same 64 bits; after the last one are zeros.
    """
    # the struct has a fixed size
    given = np.zeros(TASK_NUMBERS, np.uint64)
    given[: len(numbers)] = [int(n) & (2**64 - 1) for n in numbers]
    return np.void(given.tobytes())
