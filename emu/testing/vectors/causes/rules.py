"""Another rounding mode or overflow rule, or both; habits of what lies beyond the range; intermediates of few bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from emu.datapath import OutputStage, Overflow, Rounding
from emu.datapath.overflow import default_rule
from emu.errors import EmuError
from emu.formats import Fixed, Float
from emu.testing.contract.clauses import rules_of
from emu.testing.vectors.causes.hypothesis import Hypothesis, restaged
from emu.testing.vectors.definition import written
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask, without_spare_zeros

#: Rounding modes in the words of hardware.
MODES = {Rounding.FLOOR: "truncation of two's complement (floor)", Rounding.TOWARD_ZERO: "truncation (toward_zero)"}


def _name_of(mode: Rounding) -> str:
    return MODES.get(mode, f"rounding {mode.value}")


def _other_modes(e: Evidence) -> list[Rounding]:
    """Return the modes that need no random bits, truncation first: it is hardware's likeliest fault."""
    others = [mode for mode in Rounding if mode is not e.description.stage.rounding and not mode.draws]
    return sorted(others, key=lambda mode: mode not in MODES)


def other_rounding(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of other rounding modes; none of a requantiser, which rounds before the output stage."""
    if e.description.requantise is not None:
        return
    stage = e.description.stage
    for mode in _other_modes(e):
        yield f"{_name_of(mode)} instead of {stage.rounding.value}", _written(e, mode, stage.overflow)


def other_overflow(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of other overflow rules."""
    stage = e.description.stage
    for rule in rules_of(e.format):
        if rule is not stage.overflow:
            yield f"overflow rule {rule.value} instead of {stage.overflow.value}", _written(e, stage.rounding, rule)


def both(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of another mode and another rule at once, as an `ap_fixed` with its defaults has them."""
    stage = e.description.stage
    for mode in _other_modes(e):
        for rule in rules_of(e.format):
            if rule is stage.overflow:
                continue
            # a mode that changes nothing beside the rule is not worth a name: `other_overflow` has the rule
            codes, alone = _written(e, mode, rule), _written(e, stage.rounding, rule)
            if not np.array_equal(codes, alone):
                name = f"{_name_of(mode)} and overflow rule {rule.value} instead of {stage.rounding.value} and "
                yield name + stage.overflow.value, codes


def _written(e: Evidence, mode: Rounding, rule: Overflow) -> Codes:
    return restaged(e, OutputStage.of(e.format, mode, rule, e.description.n_rbits))


def beyond_the_range(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of units that answer what lies beyond the range in one way, whatever mode and rule say."""
    if isinstance(e.format, Float):
        yield from _beyond_floats(e, e.format)
    else:
        yield from _beyond_words(e, e.format)


def _beyond_floats(e: Evidence, fmt: Float) -> Iterator[Hypothesis]:
    beyond, sign = e.beyond, np.where(e.exact.negative & fmt.signed, np.uint64(fmt.sign_code), np.uint64(0))
    choices = {"the largest number": fmt.max_code, "infinity": fmt.infinity_code, "NaN": fmt.nan_code}
    for name, code in choices.items():
        if code is not None:
            yield f"overflow gives {name} in every mode", np.where(beyond, sign | np.uint64(code), e.results)
    for name, code in choices.items():
        if code is not None and fmt.signed:
            yield f"overflow gives {name} without its sign", np.where(beyond, np.uint64(code), e.results)
    # an exponent too large for its bits loses the highest one; negative numbers of an unsigned format are not too large
    above = beyond if fmt.signed else beyond & ~e.exact.negative
    for extra in (0, 1):
        bits = fmt.exponent_bits + extra
        # codes count from `lowest_index` on
        whole = (e.steps.rounded - fmt.lowest_index) & ((1 << (bits + fmt.fraction_bits)) - 1)
        # what wraps to another number beyond the range is no number that could be written
        inside = above & (whole <= fmt.max_code).astype(bool)
        wrapped = np.where(inside, whole, 0).astype(np.uint64) | sign
        yield f"an exponent of {bits} bits that wraps", np.where(inside, wrapped, e.results)
    whole = (e.steps.rounded - fmt.lowest_index) & (fmt.sign_code - 1)
    unseen = np.where(beyond, whole, 0).astype(np.uint64) | sign
    yield "overflow unseen: exponent and fraction as they are, the infinity's too", np.where(beyond, unseen, e.results)
    yield from _wrapping_below(e, fmt)
    top = 1 << fmt.fraction_bits
    # without normal numbers there is no largest exponent
    if fmt.max_code >= top and default_rule(fmt) is Overflow.IEEE:
        magnitude = e.results & np.uint64(fmt.sign_code - 1)
        last_binade = (magnitude <= np.uint64(fmt.max_code)) & (magnitude > np.uint64(fmt.max_code - top))
        if fmt.infinity_code is not None:
            infinite = sign | np.uint64(fmt.infinity_code)
            yield "numbers of the largest exponent overflow", np.where(last_binade, infinite, e.results)


def _wrapping_below(e: Evidence, fmt: Float) -> Iterator[Hypothesis]:
    """Yield the codes of results below the smallest normal number whose exponent wraps, with the digits of a normal."""
    if not fmt.has_normals or not fmt.fraction_bits:
        return
    steps, exact = e.steps, e.exact
    small = steps.nonzero & (steps.index < e.normal).astype(bool)
    shift = exact.bit_length - fmt.significand_bits
    digits = exact.as_object().significand
    digits = (digits << np.maximum(-shift, 0).astype(object)) >> np.maximum(shift, 0).astype(object)
    # the field of a number below the smallest normal is 0 or less: in the bits of the exponent, a large one
    field = np.where(small, exact.leading, 0) - fmt.emin + 1
    for name, inside in (("all", small), ("all but those of field 0", small & (field < 0))):
        # `digits` have their leading 1 at 2**fraction_bits, which a code does not store
        whole = ((field.astype(object) << fmt.fraction_bits) + digits - (1 << fmt.fraction_bits)) & (fmt.sign_code - 1)
        codes = np.where(inside, whole, 0).astype(np.uint64)
        codes |= np.where(exact.negative & fmt.signed, np.uint64(fmt.sign_code), np.uint64(0))
        yield f"an exponent that wraps below the smallest one, {name}", np.where(inside, codes, e.results)


def _beyond_words(e: Evidence, fmt: Fixed) -> Iterator[Hypothesis]:
    mask = fmt.n_codes - 1
    lowest = (1 << (fmt.width_bits - 1)) & mask if fmt.signed else 0
    if fmt.sign_magnitude:  # the sign bit alone is -0
        lowest = mask
    # infinities and NaN too
    outside = e.beyond | ~e.steps.finite
    codes = {"the lowest code": lowest, "the largest code": fmt.max_raw, "0": 0, "all ones": mask}
    for name, code in codes.items():
        extra = " (integer indefinite)" if code == lowest and fmt.signed and not fmt.sign_magnitude else ""
        whose = "lies beyond the range and for NaN" if e.is_nan.any() else "lies beyond the range"
        yield f"{name}{extra} for all that {whose}", np.where(outside, np.uint64(code), e.results)
    nan = e.is_nan
    for name, code in codes.items():
        if code:
            yield f"{name} for NaN", np.where(nan, np.uint64(code), e.results)
    # what the largest and the lowest code are for, by the sign alone: NaN has one, too
    by_sign = np.where(_signs(e), np.uint64(lowest), np.uint64(fmt.max_raw))
    yield "the end on the side of the sign for NaN, too", np.where(nan, by_sign, e.results)


def _signs(e: Evidence) -> Mask:
    """Return where results are negative; a float that is converted keeps the sign of its NaN, which has no number."""
    d = e.description
    source = d.operand_formats[0]
    if d.operation == "quantize" and isinstance(source, Float) and source.signed:
        return (e.vectors.operands[0] & np.uint64(source.sign_code)) != 0
    return e.exact.negative


def intermediates(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a fixed-point result that is bounded to some bits before it is rounded."""
    d, fmt = e.description, e.format
    if not isinstance(fmt, Fixed) or not all(isinstance(f, Fixed) for f in d.operand_formats):
        return
    if d.operation not in ("add", "subtract", "multiply", "fma", "matmul", "quantize"):
        return
    # what an accumulator has changed already is not the intermediate result that is meant
    if e.is_product_sum and not e.adds_exactly:
        return
    steps, exact = e.steps, e.exact.as_object()
    if not steps.nonzero.any():
        return
    lowest = int(exact.exponent.min())
    raws = exact.signed() << (exact.exponent - lowest).astype(object)
    raws, spare = without_spare_zeros(raws)
    lowest += spare
    # words of unsigned operands have no sign bit, and neither has what is computed of them, unless it is a difference
    unsigned = d.operation != "subtract" and not any(f.signed for f in d.operand_formats)
    widest = max(int(x).bit_length() for x in (raws.max(initial=0), raws.min(initial=0))) + (not unsigned)
    # in `widest` bits nothing is bounded
    for bits in range(max(widest - MOST_NARROWER, 2), widest):
        low, span = 0 if unsigned else -(1 << (bits - 1)), 1 << bits
        inside = np.clip(raws, low, low + span - 1)
        wrapped = ((raws - low) & (span - 1)) + low
        for how, changed in (("saturates", inside), ("wraps", wrapped)):
            negative = (changed < 0).astype(bool)
            bounded = replace(
                exact, negative=negative, significand=np.abs(changed), exponent=np.full_like(exact.exponent, lowest)
            )
            try:
                codes = written(d, bounded, e.vectors.rbits).codes
            except EmuError:  # pragma: no cover - a mode that cannot round this
                continue
            yield f"an intermediate result of {bits} bits that {how} before it is rounded", codes


#: How many bits narrower than the widest exact result an intermediate one may be.
MOST_NARROWER = 40
