"""What the definition answers for each vector: codes, flags, and the exact result as a fraction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import RandomCode, StageCode, encode_format, encode_mac, encode_register, encode_stage
from emu.backends.product import ProductCode
from emu.backends.reference import arithmetic, products
from emu.backends.reference.exact import FINITE, NAN, Exact
from emu.backends.reference.stage import observe, to_integral, write, writing_integers
from emu.datapath import FLAG_NAMES, Mac, OutputStage, Rounding, StatisticsRegister, Tininess
from emu.engine.description import counting
from emu.formats import Fixed, Float, Format
from emu.testing.vectors.blocks.quotients import block_scales, codes_of_scales, exact_quotients, numbers_of
from emu.testing.vectors.conventions import has_payloads, invalid_code, is_quiet, with_nans
from emu.testing.vectors.description import TESTFLOAT_FLAGS, Codes, Description, FlagRule, StepTable, Vectors
from emu.testing.vectors.selection import SELECTIONS

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
    steps: Sequence[StepTable] | None = None,
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
        steps: stages before the output stage that replace the description's.
    """
    stage, formats = stage or description.stage, formats or description.operand_formats
    code = encode_stage(stage)
    # carriers: values of the operands in arrays of their formats
    carriers = [fmt.decode(x) for fmt, x in zip(formats, operands, strict=True)]
    with np.errstate(all="ignore"):
        # `touched`: where the accumulator overflowed
        exact, touched = _exact(description, carriers, formats, code, mac or description.mac.mac())
        exact, flags = _staged(description, exact, tininess, steps)
        last = _written(description, exact, rbits, stage, tininess or description.tininess)
    flags |= last.flags
    # the stage is given an infinity, and cannot know what it was divided by
    if description.operation == "divide":
        operand_codes = tuple(encode_format(fmt) for fmt in formats)
        divided = arithmetic.divides_by_zero(tuple(carriers), operand_codes)
        flags |= divided.astype(np.uint64) << np.uint64(TESTFLOAT_FLAGS.index("infinite"))
    if touched is not None:
        flags |= touched.reshape(-1).astype(np.uint64) << np.uint64(ACCUMULATOR_BIT)
    return Answer(last.codes, flags)


def _written(
    d: Description, exact: Exact, rbits: Codes | None, stage: OutputStage, tininess: Tininess | None
) -> Answer:
    """Return codes and flags of exact results after one stage, (count,) each."""
    code = counting(encode_stage(stage), tininess)
    u = None if rbits is None else rbits.astype(np.int64).reshape(exact.kind.shape)
    moved = None  # where rounding to integers was inexact
    if d.operation == "round_to_integral":
        # an integer is then written without rounding: the flag of the first step would be lost
        exact, moved = to_integral(exact, code, u)
        code = writing_integers(code)
    values, masks = write(exact, code, u)
    if moved is not None:
        masks[FLAG_NAMES.index("inexact")] |= moved
    codes = stage.format.encode(values.reshape(-1)).astype(np.uint64)
    if d.invalid != "zero" and isinstance(stage.format, Fixed):
        # `indefinite` is written for everything that is out of range, the other rules for NaN alone
        no_integer = (exact.kind >= NAN) | ((d.invalid == "indefinite") & masks[FLAG_NAMES.index("overflow")])
        codes = np.where(no_integer.reshape(-1), np.uint64(invalid_code(d.invalid, stage.format)), codes)
    return Answer(codes, _bits_of(masks))


def _bits_of(masks: list[NDArray[np.bool_]]) -> Codes:
    """Return masks in the order of `FLAG_NAMES` as the bits of `TESTFLOAT_FLAGS`, (count,)."""
    named = dict(zip(FLAG_NAMES, masks, strict=True))
    flags = np.zeros(masks[0].size, np.uint64)
    for bit, name in enumerate(TESTFLOAT_FLAGS):
        # emu's own name of the flag that TestFloat calls infinite
        own_name = "division_by_zero" if name == "infinite" else name
        flags |= named[own_name].reshape(-1).astype(np.uint64) << np.uint64(bit)
    return flags


def _staged(
    d: Description, exact: Exact, tininess: Tininess | None = None, steps: Sequence[StepTable] | None = None
) -> tuple[Exact, Codes]:
    """Return what the output stage is given, and the flags of the stages before it."""
    flags = np.zeros(exact.kind.size, np.uint64)
    for step in d.pipeline if steps is None else steps:
        exact, raised = _passed(step, multiplied(exact, step.factor), tininess or d.tininess)
        flags |= raised
    # a step of a requantiser whose result is 0 has lost nothing: the zero point is added to it
    return exact, flags if d.requantise is None else flags & (_INEXACT | _OVERFLOW)


def _passed(step: StepTable, exact: Exact, tininess: Tininess | None) -> tuple[Exact, Codes]:
    """Return what a stage makes of its operand, which is multiplied already, and the stage's flags."""
    code = counting(encode_stage(step.stage), tininess)
    values, masks = write(exact, code, None)
    # DAZ is about operands: what a unit has written itself keeps its subnormals
    exact = arithmetic.exact_of(values, code.format._replace(daz=False))
    if step.plus or step.lowest is not None or step.highest is not None:
        exact, beyond = _moved(exact, step)
        masks[FLAG_NAMES.index("overflow")] |= beyond
    return exact, _bits_of(masks)


def step_inputs(d: Description, exact: Exact) -> Iterator[tuple[StepTable, Exact]]:
    """Yield each stage before the output stage, and what it is given if exact results enter the first: multiplied."""
    with np.errstate(all="ignore"):
        for step in d.pipeline:
            given = multiplied(exact, step.factor)
            yield step, given
            exact, _ = _passed(step, given, d.tininess)


def multiplied(exact: Exact, factor: Fraction) -> Exact:
    """Return exact results times a number above 0 whose denominator is a power of two."""
    if factor == 1:
        return exact
    # a denominator of 2**k has k + 1 bits
    n, e = factor.numerator, 1 - factor.denominator.bit_length()
    if n == 1:
        return replace(exact, exponent=exact.exponent + e)
    return replace(exact.as_object(), significand=exact.significand.astype(object) * n, exponent=exact.exponent + e)


def _moved(exact: Exact, step: StepTable) -> tuple[Exact, NDArray[np.bool_]]:
    """Return fixed-point numbers with an integer added, bounded; and where they were beyond the bounds."""
    # steps that add write fix64 words, whose raws have an exponent of 0 or less
    quantum = int(exact.exponent.min(initial=0))
    sums = (exact.as_object().signed() << (exact.exponent - quantum).astype(object)) + (step.plus << -quantum)
    bounded = sums if step.lowest is None else np.maximum(sums, step.lowest << -quantum)
    bounded = bounded if step.highest is None else np.minimum(bounded, step.highest << -quantum)
    return Exact.from_integers(bounded, quantum), (bounded != sums).astype(bool)


def answered(description: Description, operands: tuple[Codes, ...], rbits: Codes | None) -> Vectors:
    """Return operands with the definition's results, and the flags of the description's rule."""
    d = description
    # `underflow` is None if the description has emu's own
    written = answer(d, operands, rbits, tininess=d.underflow)
    codes, fmt = written.codes, d.stage.format
    if d.nan != "canonical" or d.nan_code is not None:
        assert isinstance(fmt, Float)
        # conventions about NaN change codes alone, and no flag
        codes = with_nans(d.nan, d.made_nan, fmt, codes, d.operand_formats, operands)
    vectors = Vectors(d, operands, rbits, codes, written.flags, scales_of_operands(d, operands))
    return replace(vectors, flags=_as_ieee(vectors)) if d.flag_rule == "ieee" else vectors


def scales_of_operands(d: Description, operands: tuple[Codes, ...]) -> tuple[Codes, ...]:
    """Return the codes of the scales of results that share them, the finest first; none of single numbers."""
    if d.blocks is None:
        return ()
    source = d.operand_formats[0]
    numbers = numbers_of(d.blocks, source, source.decode(operands[0]))
    return codes_of_scales(d.blocks, block_scales(d.blocks, numbers))


def further_results(vectors: Vectors) -> tuple[Vectors, ...]:
    """Return the further results of a description, each with the operands of the first."""
    return tuple(answered(each, vectors.operands, vectors.rbits) for each in vectors.description.further)


def register_of(vectors: Vectors) -> StatisticsRegister | None:
    """Return what a unit's register of leading bits has counted after the last vector; None without one."""
    d = vectors.description
    if d.statistics is None:
        return None
    register = StatisticsRegister(d.statistics.lowest, d.statistics.bins)
    # a register observes results before the first stage
    exact = _unstaged(d, vectors.operands, d.mac.mac())
    register.add_counts(*observe(exact, encode_register(register, _observed_quantum(d))))
    return register


def _observed_quantum(d: Description) -> int | None:
    """Return the exponent of the last digit of fixed-point results that a register observes; None if there is none."""
    accumulator = d.mac.mac().accumulator
    if d.operation == "matmul" and isinstance(accumulator, Fixed):
        return -accumulator.frac_bits
    digits = [fmt.frac_bits for fmt in d.operand_formats if isinstance(fmt, Fixed)]
    if len(digits) < len(d.operand_formats) or d.operation in ("divide", "sqrt"):
        return None
    if d.operation in ("multiply", "fma", "matmul"):
        digits = [digits[0] + digits[1], *digits[2:]]
    return -max(digits)


def with_flags_of(rule: FlagRule, vectors: Vectors) -> Vectors:
    """Return vectors with the flags of a rule."""
    d = vectors.description
    if rule == d.flag_rule:
        return vectors
    return answered(d.model_copy(update={"flags": rule}), vectors.operands, vectors.rbits)


def _as_ieee(vectors: Vectors) -> Codes:
    """Return the flags of IEEE 754 from those of the output stage, whose underflow is IEEE 754's already.

    Where the standard leaves it open, flags are those of Berkeley SoftFloat: infinity times zero is invalid whatever is
    added, a quiet NaN too, and a conversion to an integer that is out of range is invalid and nothing else (section
    7.2, c and j); what it rounds to 0 is inexact.
    """
    d, flags, invalid = vectors.description, vectors.flags, signalling(vectors)
    # the NaN that is added hides it from the arithmetic, where a NaN operand is quiet
    if d.operation == "fma":
        invalid |= _infinity_times_zero(vectors)
    if is_to_integer(d):
        beyond = flags & (_OVERFLOW | _INVALID) != 0
        # Only inexact (within the range) and invalid (outside) are flags of a conversion to an integer.
        flags, invalid = flags & _INEXACT & ~np.where(beyond, _INEXACT, _NONE), invalid | beyond
    return flags | np.where(invalid, _INVALID, _NONE)


def signalling(vectors: Vectors) -> NDArray[np.bool_]:
    """Return where an operand is a signalling NaN (IEEE 754-2019 section 6.2); emu's arithmetic has only quiet ones."""
    noisy = np.zeros(vectors.description.count, bool)
    for fmt, codes in zip(vectors.description.operand_formats, vectors.operands, strict=True):
        if has_payloads(fmt):
            is_signalling = np.isnan(fmt.decode(codes)) & ~is_quiet(fmt, codes)
            noisy |= is_signalling.reshape(noisy.size, -1).any(axis=1)  # a factor of matmul has terms
    return noisy


def _infinity_times_zero(vectors: Vectors) -> NDArray[np.bool_]:
    formats = vectors.description.operand_formats
    x, y = (fmt.decode(codes) for fmt, codes in zip(formats[:2], vectors.operands[:2], strict=True))
    zeros = [
        # `decode` keeps subnormals, which a DAZ format reads as 0
        (values == 0) | (isinstance(fmt, Float) and fmt.daz and np.abs(values) < fmt.smallest_normal)
        for fmt, values in zip(formats[:2], (x, y), strict=True)
    ]
    return (np.isinf(x) & zeros[1]) | (np.isinf(y) & zeros[0])


def is_to_integer(description: Description) -> bool:
    """Return whether an operation converts floats to integers."""
    fmt = description.stage.format
    from_float = description.operation == "quantize" and isinstance(description.operand_formats[0], Float)
    return from_float and isinstance(fmt, Fixed) and fmt.frac_bits == 0


def _exact(
    d: Description, carriers: list[Array], formats: tuple[Format, ...], stage: StageCode, mac: Mac
) -> tuple[Exact, Array | None]:
    """Return exact results before any stage, and where an accumulator overflowed (None if none can)."""
    operation = d.operation
    if d.blocks is not None:
        numbers = numbers_of(d.blocks, formats[0], carriers[0])
        return exact_quotients(d.blocks, numbers, block_scales(d.blocks, numbers)), None
    codes = tuple(encode_format(fmt) for fmt in formats)
    if operation in ("quantize", "round_to_integral"):  # the operand itself: callers round it
        return arithmetic.exact_of(carriers[0], codes[0]), None
    if operation in SELECTIONS:
        parts = [arithmetic.exact_of(x, code) for x, code in zip(carriers, codes, strict=True)]
        return SELECTIONS[operation](parts), None
    if operation != "matmul":
        return arithmetic.compute(operation, tuple(carriers), codes, stage), None
    # (count, 1, depth) times (count, depth, 1): a product of matrices for each vector, its sum (count, 1, 1)
    a, b = carriers[0][:, None, :], carriers[1][:, :, None]
    addend = carriers[2][:, None, None] if len(carriers) > 2 else None
    with_addend = (codes[0], codes[1], codes[2] if len(codes) > 2 else None)
    if mac.is_exact:
        sums = products.exact_sums(a, b, addend, with_addend)
        return _with_signs_of_zeros(d, sums, carriers, formats) if d.zero_sign == "ieee" else sums, None
    product = ProductCode(with_addend, encode_mac(mac), "definition", a.shape[2])
    no_random_bits = RandomCode(0, 0, 0, 0, None)  # a description's unit does not round stochastically
    return products.ordered_sums(a, b, addend, product, no_random_bits)


def _with_signs_of_zeros(d: Description, sums: Exact, carriers: list[Array], formats: tuple[Format, ...]) -> Exact:
    """Return sums whose zeros have IEEE 754's signs: that of all terms, else the rounding mode's (section 6.3)."""
    parts = [arithmetic.exact_of(x, encode_format(fmt)) for x, fmt in zip(carriers, formats, strict=True)]
    terms = parts[0].negative ^ parts[1].negative
    zeros = (parts[0].significand == 0) | (parts[1].significand == 0)
    all_minus, any_minus, all_zero = terms.all(axis=1), terms.any(axis=1), zeros.all(axis=1)
    if len(parts) > 2:
        all_minus, any_minus = all_minus & parts[2].negative, any_minus | parts[2].negative
        all_zero &= parts[2].significand == 0
    # zeros of both signs give +0, and -0 toward negative; so do terms that cancel
    mixed = any_minus if d.stage.rounding is Rounding.FLOOR else np.zeros_like(any_minus)
    cancelled = np.full(any_minus.shape, d.stage.rounding is Rounding.FLOOR)
    sign = np.where(all_zero, all_minus | mixed, cancelled).reshape(sums.negative.shape)
    is_zero = (sums.kind == FINITE) & (sums.significand == 0).astype(bool)
    return replace(sums, negative=np.where(is_zero, sign, sums.negative).astype(bool))


def exact_before_stage(description: Description, operands: tuple[Codes, ...]) -> Exact:
    """Return what the first stage of any operation is given, (count,)."""
    exact = _unstaged(description, operands, description.mac.mac())
    return Exact(
        exact.negative.reshape(-1), exact.significand.reshape(-1), exact.exponent.reshape(-1), exact.kind.reshape(-1)
    )


def exact_sums_of(description: Description, operands: tuple[Codes, ...], mac: Mac | None = None) -> Exact:
    """Return what the output stage of matmul is given, shape (count, 1, 1); `mac` replaces the description's unit."""
    return through_stages(description, _unstaged(description, operands, mac or description.mac.mac()))


def _unstaged(d: Description, operands: tuple[Codes, ...], mac: Mac) -> Exact:
    """Return exact results before any stage."""
    carriers = [fmt.decode(x) for fmt, x in zip(d.operand_formats, operands, strict=True)]
    with np.errstate(all="ignore"):
        return _exact(d, carriers, d.operand_formats, encode_stage(d.stage), mac)[0]


def stages_overflow(description: Description, exact: Exact) -> NDArray[np.bool_]:
    """Return where exact results are beyond the range of a stage before the output stage."""
    with np.errstate(all="ignore"):
        return (_staged(description, exact)[1] & _OVERFLOW) != 0


def through_stages(description: Description, exact: Exact) -> Exact:
    """Return what the output stage is given of exact results: what the stages before it write."""
    with np.errstate(all="ignore"):
        return _staged(description, exact)[0]


def written(description: Description, exact: Exact, rbits: Codes | None, stage: OutputStage | None = None) -> Answer:
    """Return codes and flags of exact results, shape (count,), after the output stage (or another one)."""
    with np.errstate(all="ignore"):
        return _written(description, exact, rbits, stage or description.stage, None)


def exact_value(description: Description, operands: tuple[Codes, ...], index: int) -> Fraction | None:
    """Return the exact result of one vector before anything rounds, None if it is no number.

    A requantiser's is multiplied, and has its zero point. An irrational square root is cut after about 256 bits, and a
    sticky bit is appended.
    """
    plain = _exact_value(description, operands, index)
    return None if plain is None else description.after_pipeline(plain)


def _exact_value(description: Description, operands: tuple[Codes, ...], index: int) -> Fraction | None:
    # a quotient is what the rule divides, rounded where the rule rounds: it is no fraction of the operands' values
    if description.blocks is not None:
        quotients = exact_before_stage(description, operands)
        if quotients.kind[index] != FINITE:
            return None
        digits = int(quotients.significand[index]) * (-1 if quotients.negative[index] else 1)
        return digits * Fraction(2) ** int(quotients.exponent[index])
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
        case "minimum" | "minimum_number":
            return min(first)
        case "maximum" | "maximum_number":
            return max(first)
        case "divide":
            return first[0] / first[1] if first[1] else None
        case "fma":
            return first[0] * first[1] + first[2]
        case "remainder":
            # Python rounds a Fraction to the nearest integer, ties to even, as IEEE 754's remainder does
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
        # wide words are carried as raws, others as values; both give the raw exactly
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
    # the square of the root in units of 2**-shift
    scaled = x * 2 ** (2 * shift)
    root = math.isqrt(scaled.numerator // scaled.denominator)
    sticky = root * root != scaled
    # one bit more than the root has, for the sticky bit
    return Fraction(2 * root + sticky, 2 ** (shift + 1))
