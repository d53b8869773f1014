"""What the definition answers for each vector: codes, flags, and the exact result as a fraction."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import RandomCode, StageCode, encode_format, encode_mac, encode_stage
from emu.backends.product import ProductCode
from emu.backends.reference import arithmetic, products
from emu.backends.reference.exact import Exact
from emu.backends.reference.stage import to_integral, write, writing_integers
from emu.datapath import FLAG_NAMES, Mac, OutputStage, Tininess
from emu.engine.description import counting
from emu.formats import Fixed, Float, Format
from emu.testing.vectors.description import TESTFLOAT_FLAGS, Codes, Description, Vectors

Array = NDArray[Any]
#: The bit of `accumulator_overflow`, which TestFloat lacks.
ACCUMULATOR_BIT = len(TESTFLOAT_FLAGS)
_INEXACT, _OVERFLOW, _INVALID = (
    np.array(1 << TESTFLOAT_FLAGS.index(name), np.uint64) for name in ("inexact", "overflow", "invalid")
)
_NONE = np.array(0, np.uint64)
#: Bits to which an irrational square root is computed, to be shown and to check its rounding; a sticky bit follows.
ROOT_BITS = 256


class Answer(NamedTuple):
    """Codes and flags of the written results, (count,) each."""

    codes: Codes
    flags: Codes


def answer(
    description: Description,
    operands: tuple[Codes, ...],
    rbits: Codes | None,
    *,
    stage: OutputStage | None = None,
    formats: tuple[Format, ...] | None = None,
    mac: Mac | None = None,
    tininess: Tininess | None = None,
) -> Answer:
    """Return what the definition writes.

    Args:
        description: the operation.
        operands: codes of each operand.
        rbits: random bits.
        stage: output stage that replaces the description's.
        formats: formats that replace the operands'.
        mac: unit that replaces the description's.
        tininess: when a result is tiny, for IEEE 754's underflow; it replaces the description's.
    """
    stage, formats = stage or description.stage, formats or description.operand_formats
    code = counting(encode_stage(stage), tininess or description.tininess)
    carriers = [fmt.decode(x) for fmt, x in zip(formats, operands, strict=True)]
    with np.errstate(all="ignore"):
        # `touched`: where the accumulator overflowed; `u`: random bits; `moved`: where rounding to integers was inexact
        exact, touched = _exact(description.operation, carriers, formats, code, mac or description.mac.mac())
        u = None if rbits is None else rbits.astype(np.int64).reshape(exact.kind.shape)
        moved = None
        if description.operation == "round_to_integral":
            exact, moved = to_integral(exact, code, u)
            code = writing_integers(code)
        values, masks = write(exact, code, u)
    named = dict(zip(FLAG_NAMES, masks, strict=True))
    if moved is not None:
        named["inexact"] |= moved
    if description.operation == "divide":
        operand_codes = tuple(encode_format(fmt) for fmt in formats)
        named["division_by_zero"] |= arithmetic.divides_by_zero(tuple(carriers), operand_codes)
    flags = np.zeros(description.count, np.uint64)
    for bit, name in enumerate(TESTFLOAT_FLAGS):
        own_name = "division_by_zero" if name == "infinite" else name
        flags |= named[own_name].reshape(-1).astype(np.uint64) << np.uint64(bit)
    if touched is not None:
        flags |= touched.reshape(-1).astype(np.uint64) << np.uint64(ACCUMULATOR_BIT)
    return Answer(stage.format.encode(values.reshape(-1)).astype(np.uint64), flags)


def ieee_flags(vectors: Vectors) -> Codes:
    """Return the five flags of IEEE 754; results are tiny after rounding unless the description says otherwise.

    Where the standard leaves it open, flags are those of Berkeley SoftFloat: infinity times zero is invalid whatever is
    added, a quiet NaN too, and a conversion to an integer that is out of range is invalid and nothing else (section
    7.2, c and j); what it rounds to 0 is inexact.
    """
    d = vectors.description
    written = answer(d, vectors.operands, vectors.rbits, tininess=d.tininess or Tininess.AFTER_ROUNDING)
    flags = written.flags & np.uint64((1 << len(TESTFLOAT_FLAGS)) - 1)
    invalid = _signalling(vectors)
    if d.operation == "fma":
        invalid |= _infinity_times_zero(vectors)
    if d.operation == "quantize" and isinstance(d.operand_formats[0], Float) and _is_integer(d.stage.format):
        beyond = flags & (_OVERFLOW | _INVALID) != 0
        # Only inexact (within the range) and invalid (outside) are flags of a conversion to an integer.
        flags, invalid = flags & _INEXACT & ~np.where(beyond, _INEXACT, _NONE), invalid | beyond
    return flags | np.where(invalid, _INVALID, _NONE)


def _signalling(vectors: Vectors) -> NDArray[np.bool_]:
    """Return where an operand is a signalling NaN (IEEE 754-2019 section 6.2); emu's arithmetic has only quiet ones."""
    signalling = np.zeros(vectors.description.count, bool)
    for fmt, codes in zip(vectors.description.operand_formats, vectors.operands, strict=True):
        if isinstance(fmt, Float) and fmt.nans == "ieee" and fmt.fraction_bits > 0:
            quiet = np.uint64(1 << (fmt.fraction_bits - 1))
            signalling |= np.isnan(fmt.decode(codes)) & (codes & quiet == 0)
    return signalling


def _infinity_times_zero(vectors: Vectors) -> NDArray[np.bool_]:
    formats = vectors.description.operand_formats
    x, y = (fmt.decode(codes) for fmt, codes in zip(formats[:2], vectors.operands[:2], strict=True))
    return (np.isinf(x) & (y == 0)) | (np.isinf(y) & (x == 0))


def _is_integer(fmt: Format) -> bool:
    return isinstance(fmt, Fixed) and fmt.frac_bits == 0


def _exact(
    operation: str, carriers: list[Array], formats: tuple[Format, ...], stage: StageCode, mac: Mac
) -> tuple[Exact, Array | None]:
    """Return exact results before the output stage, and where an accumulator overflowed (None if none can)."""
    codes = tuple(encode_format(fmt) for fmt in formats)
    if operation in ("quantize", "round_to_integral"):  # the operand itself: callers round it
        return arithmetic.exact_of(carriers[0], codes[0]), None
    if operation != "matmul":
        return arithmetic.compute(operation, tuple(carriers), codes, stage), None
    a, b = carriers[0][:, None, :], carriers[1][:, :, None]
    addend = carriers[2][:, None, None] if len(carriers) > 2 else None
    with_addend = (codes[0], codes[1], codes[2] if len(codes) > 2 else None)
    if mac.is_exact:
        return products.exact_sums(a, b, addend, with_addend), None
    product = ProductCode(with_addend, encode_mac(mac), "definition", a.shape[2])
    no_random_bits = RandomCode(0, 0, 0, 0, None)  # a description's unit does not round stochastically
    return products.ordered_sums(a, b, addend, product, no_random_bits)


def answer_without_sticky(description: Description, operands: tuple[Codes, ...]) -> Codes:
    """Return the codes that are written if nothing below the guard bit is looked at; the unit is exact."""
    stage, formats = description.stage, description.operand_formats
    carriers = [fmt.decode(x) for fmt, x in zip(formats, operands, strict=True)]
    with np.errstate(all="ignore"):
        exact, _ = _exact(description.operation, carriers, formats, encode_stage(stage), Mac())
        fmt, leading = stage.format, exact.leading
        # `last` is the exponent of each result's last place, for fixed formats the same everywhere; the guard bit is
        # the next one
        last = (
            leading * 0 - fmt.frac_bits if isinstance(fmt, Fixed) else np.maximum(leading, fmt.emin) - fmt.fraction_bits
        )
        dropped = np.clip(last - 1 - exact.exponent, 0, exact.bit_length)
        cut = replace(exact, significand=(exact.significand >> dropped) << dropped)
        values, _ = write(cut, encode_stage(stage), None)
    return fmt.encode(values.reshape(-1)).astype(np.uint64)


def exact_value(description: Description, operands: tuple[Codes, ...], index: int) -> Fraction | None:
    """Return the exact result of one vector before anything rounds, None if it is no number.

    An irrational square root is cut after about 256 bits, and a sticky bit is appended.
    """
    parts: list[list[Fraction]] = []
    for fmt, codes in zip(description.operand_formats, operands, strict=True):
        values = [_fraction(fmt, int(code)) for code in np.atleast_1d(codes[index])]
        if any(value is None for value in values):
            return None
        parts.append([value for value in values if value is not None])
    first = [part[0] for part in parts]
    match description.operation:
        case "quantize" | "round_to_integral":
            return first[0]
        case "add":
            return first[0] + first[1]
        case "subtract":
            return first[0] - first[1]
        case "multiply":
            return first[0] * first[1]
        case "divide":
            return first[0] / first[1] if first[1] else None
        case "fma":
            return first[0] * first[1] + first[2]
        case "remainder":
            return first[0] - first[1] * round(first[0] / first[1]) if first[1] else None
        case "sqrt":
            return _root(first[0]) if first[0] >= 0 else None
        case _:
            products_of = (x * y for x, y in zip(parts[0], parts[1], strict=True))
            return sum(products_of, first[2] if len(first) > 2 else Fraction(0))


def last_place(exact: Fraction, fmt: Format) -> int:
    """Return the exponent of a nonzero number's last place in a format, as if the format had no largest value."""
    if isinstance(fmt, Fixed):
        return -fmt.frac_bits
    magnitude = abs(exact)
    # n/d lies between 2**(e-1) and 2**(e+1) if n has e more bits than d
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    return max(exponent, fmt.emin) - fmt.fraction_bits


def _fraction(fmt: Format, code: int) -> Fraction | None:
    value = fmt.decode(np.array(code, np.uint64))[()]
    if isinstance(fmt, Fixed):
        raw = int(value) if fmt.carries_raws else int(Fraction(float(value)) * Fraction(2) ** fmt.frac_bits)
        return Fraction(raw) / Fraction(2) ** fmt.frac_bits
    if not math.isfinite(float(value)):
        return None
    if fmt.daz and abs(float(value)) < fmt.smallest_normal:
        return Fraction(0)
    return Fraction(float(value))


def _root(x: Fraction) -> Fraction:
    length = x.numerator.bit_length() - x.denominator.bit_length()
    shift = max(ROOT_BITS - length // 2, 0)  # the root has about length / 2 bits left of its binary point
    scaled = x * 2 ** (2 * shift)
    root = math.isqrt(scaled.numerator // scaled.denominator)
    sticky = root * root != scaled
    return Fraction(2 * root + sticky, 2 ** (shift + 1))
