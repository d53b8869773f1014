"""What people read about a format, in full, in short or in one sentence; the caller only arranges the texts.

in full    command `emu formats`     numbers exact
in short   notebooks                 numbers of six digits
sentence   reports                   numbers of two to six digits
"""

from __future__ import annotations

import math
from typing import NamedTuple

from emu.datapath.overflow import Overflow, default_rule
from emu.datapath.rounding import Rounding
from emu.formats import DynamicFixed, Fixed, Float, Format, Scaled
from emu.formats.notations import Mode, Modes
from emu.formats.numerals import exact_number, exact_power, number, power_of_two, two_digits


class Field(NamedTuple):
    """Bits of a word that mean one thing.

    Attributes:
        name: what they are.
        letter: which stands for each of them.
        bits: how many; may be 0.
    """

    name: str
    letter: str
    bits: int


def fields_of(fmt: Format | DynamicFixed) -> list[Field]:
    """Return the fields of a format's word, the highest bit first."""
    sign = Field("sign", "s", int(fmt.signed))
    if isinstance(fmt, Float):
        return [sign, Field("exponent", "e", fmt.exponent_bits), Field("fraction", "f", fmt.fraction_bits)]
    value_bits = fmt.width_bits - fmt.signed
    if isinstance(fmt, DynamicFixed):
        return [sign, Field("number", "x", value_bits)]
    # if the point lies outside the word, all bits are fraction bits or all are integer bits
    fraction_bits = min(max(fmt.frac_bits, 0), value_bits)
    return [sign, Field("integer", "i", value_bits - fraction_bits), Field("fraction", "f", fraction_bits)]


# ---- in full ----


def facts_in_full(fmt: Format | DynamicFixed | Scaled) -> dict[str, str]:
    """Return facts of a format by their names, numbers exact as far as they can be read."""
    if isinstance(fmt, DynamicFixed):
        return _open_facts(fmt)
    if isinstance(fmt, Scaled):
        return scaled_facts(fmt)
    return _fixed_facts(fmt) if isinstance(fmt, Fixed) else _float_facts(fmt)


#: What becomes of a block with a NaN or an infinity.
_SPECIALS = {
    "nan_block": "the scale of their block is NaN, and its codes are 0",
    "ignore_nan": "NaN does not count for the scale; infinities saturate",
}


#: How the steps of a rule are rounded.
_OPERATIONS = {
    "exact": "exact",
    "float32": "rounded once to binary32",
    "double": "rounded once to binary32, those of the scale and the zero point to binary64",
}


def scaled_facts(fmt: Scaled) -> dict[str, str]:
    """Return facts of a format whose elements share scales, by their names."""
    rule, (finest, *outer) = fmt.rule, fmt.levels
    facts = {
        "elements": f"{fmt.element}, {fmt.element.width_bits} bits, up to {exact_number(fmt.largest)}",
        "scales": f"{finest.scale}, one for each {_shared_by(fmt)}",
    }
    if fmt.has_zero:
        facts["zero points"] = f"an element, one for each {_shared_by(fmt)}"
    for level in outer:
        facts["outer scales"] = f"{level.scale}, one for each {level.tiling}"
    facts |= {
        "bits an element": f"{fmt.bits_per_element:g}" + ("" if fmt.tiling.along else ", and a share of the scales"),
        "scale rule": f"{rule.name}, of {rule.source}",
        # the outer scale first, since the steps of the finest one read it
        "": str(rule.steps) if rule.outer is None else f"{rule.outer}; {rule.steps}",
        "an element": f"{rule.element}, then rounded{', plus z' if fmt.has_zero else ''}",
        "a number": str(rule.value),
        "each operation": _OPERATIONS[rule.reads],
        "NaN, infinities": _SPECIALS[str(finest.special)],
    }
    return facts | {"also written": f"block({fmt.element}, {', '.join(map(str, fmt.levels))})"}


def _shared_by(fmt: Scaled) -> str:
    tiling = fmt.tiling
    if tiling.along is None:
        return str(tiling)
    return f"{tiling.along} in a row" if tiling.across == 1 else f"square or tile of {tiling}"


def facts_of_modes(modes: Modes) -> dict[str, str]:
    """Return the modes that the text of a format brings; nothing of one that brings none."""
    rows = dict[str, str]()
    if modes.rounding.word:
        rows["rounding"] = f"{Rounding.parse(modes.rounding.word).value}, {_origin(modes.rounding)}"
    if modes.overflow.word:
        rows["out of range"] = f"{Overflow.named(modes.overflow.word).value}, {_origin(modes.overflow)}"
    return rows


def _origin(mode: Mode) -> str:
    return mode.word if mode.is_named else f"{mode.word} by default, unless another one is given"


def sign_words(fmt: Fixed | DynamicFixed) -> str:
    """Return what becomes of the sign in a fixed-point word."""
    if fmt.sign_magnitude:
        return "sign and magnitude"
    return "two's complement" if fmt.signed else "unsigned"


def _out_of_range(fmt: Format) -> str:
    return f"{default_rule(fmt).value} unless another rule is given"


def _open_facts(fmt: DynamicFixed) -> dict[str, str]:
    bits = fmt.width_bits
    return {
        "word": f"{bits} bits, {sign_words(fmt)}",
        "point": "chosen while the machine runs, per tensor",
        # the largest number is one step below the power of two that is shown
        "range": f"with f fraction bits: {'-' if fmt.signed else '0 to '}2**({bits - fmt.signed} - f)"
        f"{' to ' + f'2**({bits - 1} - f)' if fmt.signed else ''}, in steps of 2**-f",
    }


def _fixed_facts(fmt: Fixed) -> dict[str, str]:
    integer_bits = fmt.width_bits - fmt.frac_bits
    prefix = "" if fmt.signed else "u"
    rows = {
        "word": f"{fmt.width_bits} bits, {sign_words(fmt)}, value = raw * 2**{-fmt.frac_bits}",
        "layout": _fixed_layout(fmt),
        "range": f"{exact_number(fmt.min)} to {exact_number(fmt.max)}",
        "ulp": f"{exact_power(-fmt.frac_bits)}, the same everywhere",
        "rounding error": f"at most {exact_power(-fmt.frac_bits - 1)} (nearest)",
        "values": f"{_distinct_values(fmt)}; no NaN, no infinity, no -0",
        "out of range": _out_of_range(fmt),
        "carried in": f"{fmt.carrier}" + (" raws" if fmt.carries_raws else ""),
    }
    if fmt.sign_magnitude:
        rows["also written"] = f"smfix{fmt.width_bits}f{fmt.frac_bits}"
    elif fmt.frac_bits >= 0:
        names = [f"{prefix or 's'}fix{fmt.width_bits}_En{fmt.frac_bits}"]
        # Q notation does not count the sign; it has no form for a point outside the word
        whole_bits = fmt.width_bits - fmt.signed - fmt.frac_bits
        names += [f"{prefix}Q{whole_bits}.{fmt.frac_bits} (sign not counted)"] if whole_bits >= 0 else []
        names += [f"ap_{prefix}fixed<{fmt.width_bits},{integer_bits}> (truncates and wraps)"]
        rows["also written"] = ", ".join(names)
    return rows


def _distinct_values(fmt: Fixed) -> str:
    if fmt.sign_magnitude:
        return f"{fmt.n_codes - 1}, one per code, but the sign alone is read as 0, too"
    return f"{fmt.n_codes}, one per code"


def _fixed_layout(fmt: Fixed) -> str:
    value_bits = fmt.width_bits - fmt.signed
    sign = "s " if fmt.signed else ""
    if 0 <= fmt.frac_bits <= value_bits:
        return f"{sign}{'i' * (value_bits - fmt.frac_bits)}.{'f' * fmt.frac_bits}"
    if fmt.frac_bits < 0:
        return f"{sign}{'i' * value_bits}, {-fmt.frac_bits} implied zeros before the point"
    # two's complement implies copies of the sign bit; magnitudes and unsigned words imply zeros
    kind = "sign bits" if fmt.signed and not fmt.sign_magnitude else "zeros"
    return f"{sign}{'f' * value_bits}, {fmt.frac_bits - value_bits} implied {kind} after the point"


def _float_facts(fmt: Float) -> dict[str, str]:
    flushes = [text for on, text in ((fmt.ftz, "results are flushed to 0"), (fmt.daz, "operands count as 0")) if on]
    subnormals = ", ".join(flushes) or "supported"
    if not fmt.zero:
        subnormals = "none: the smallest value is normal, and stands for 0"
    elif fmt.hidden_one:
        subnormals = "none: the hidden bit is always one, and smaller results become 0"
    elif not fmt.fraction_bits:
        subnormals = "none: no fraction bits"
    rows = {
        "word": f"{fmt.width_bits} bits, exponent bias {fmt.bias}" + ", unsigned" * (not fmt.signed),
        "layout": " ".join(field.letter * field.bits for field in fields_of(fmt) if field.bits),
        "range": f"{exact_number(fmt.min)} to {exact_number(fmt.max)}",
        "normal from": _normal_from(fmt),
        "smallest": exact_number(fmt.smallest_positive),
        "subnormals": subnormals,
        "precision": f"significant bits: {fmt.significand_bits}, about {_digits(fmt):.1f} decimal digits",
        "rounding error": f"relative, at most {exact_power(-fmt.significand_bits)} (nearest, normal results)",
    }
    if not fmt.has_normals:
        # all values are multiples of the same step
        step = fmt.emin - fmt.fraction_bits
        rows["precision"] = f"significant bits: {fmt.fraction_bits} at most, steps of {exact_power(step)}"
        rows["rounding error"] = f"at most {exact_power(step - 1)} (nearest)"
    return rows | {
        "special values": special_values(fmt),
        "out of range": _out_of_range(fmt),
        "carried in": str(fmt.carrier),
    }


def _normal_from(fmt: Float) -> str:
    if not fmt.has_normals:
        return "nowhere: all values are subnormal"
    return exact_number(fmt.smallest_normal) if fmt.hidden_one else exact_power(fmt.emin)


def _digits(fmt: Float) -> float:
    """Return the decimal digits of a normal value."""
    return fmt.significand_bits * math.log10(2)


def special_values(fmt: Float) -> str:
    """Return which values a format has that are no ordinary numbers, and how many codes NaN has."""
    # from the first special magnitude to the last: infinity, if there is one, and NaNs
    # a sign bit doubles the codes of NaN, unless NaN has the code of -0
    per_sign = fmt.sign_code - fmt.first_special_code - fmt.infinities
    count = {"ieee": per_sign << fmt.signed, "top": 1 << fmt.signed, "negative_zero": 1, "none": 0}[fmt.nans]
    nans = f"{count or 'no'} NaN" + (f" code{'s' * (count > 1)}" if count else "")
    infinity = ("±inf" if fmt.signed else "+inf") if fmt.infinities else "no inf"
    return f"{infinity}, {nans}, {'±0' if fmt.has_negative_zero else 'one 0' if fmt.zero else 'no 0'}"


# ---- in short ----


def facts_in_short(fmt: Format) -> dict[str, str]:
    """Return the most important facts of a format, by their names."""
    limits = {"range": f"{number(fmt.min)} .. {number(fmt.max)}"}
    if isinstance(fmt, Fixed):
        two_codes = " of two codes" if fmt.sign_magnitude else ""
        return limits | {
            "ulp": f"{number(fmt.ulp())}, everywhere",
            "point": _point(fmt),
            "codes": f"{fmt.n_codes:,}, every one a number: no NaN, no infinity, one zero" + two_codes,
            "arrays": _carrier(fmt),
        }
    flushes = (("subnormal results to 0", fmt.ftz), ("subnormal operands to 0", fmt.daz))
    flushed = " and ".join(what for what, on in flushes if on)
    return limits | {
        "smallest normal": _smallest_normal(fmt),
        "smallest above 0": number(fmt.smallest_positive),
        "ulp at 1": number(fmt.ulp(1.0)),
        "bias": str(fmt.bias),
        "special codes": _special_codes(fmt),
        **({"flushes": flushed} if flushed else {}),
        "arrays": _carrier(fmt),
    }


def _point(fmt: Fixed) -> str:
    last = f"the last bit weighs {power_of_two(-fmt.frac_bits)}"
    if fmt.frac_bits < 0:
        return f"{-fmt.frac_bits} places behind the word; {last}"
    if fmt.frac_bits > fmt.width_bits:
        return f"{fmt.frac_bits - fmt.width_bits} places before the word; {last}"
    return f"{fmt.frac_bits} bits behind it; {last}"


def _smallest_normal(fmt: Float) -> str:
    if not fmt.has_normals:
        return "none: every value is subnormal"
    smallest = number(fmt.smallest_normal)
    return f"{smallest}, the hidden bit is always one" if fmt.hidden_one else f"{smallest} = {power_of_two(fmt.emin)}"


def _special_codes(fmt: Float) -> str:
    digits = -(-fmt.width_bits // 4)
    infinity = "no infinity" if fmt.infinity_code is None else f"+inf 0x{fmt.infinity_code:0{digits}x}"
    nan = "no NaN" if fmt.nan_code is None else f"NaN 0x{fmt.nan_code:0{digits}x}"
    zero = "-0 and +0" if fmt.has_negative_zero else "one zero" if fmt.zero else "no zero"
    return f"{infinity}, {nan}, {zero}"


def _carrier(fmt: Format) -> str:
    return f"{fmt.carrier}, which holds {'raw integers' if fmt.carries_raws else 'every value exactly'}"


# ---- in a sentence ----


def format_sentence(fmt: Format | DynamicFixed) -> str:
    """Return what a format's bits are, its range and its steps.

    Examples:
        >>> format_sentence(Fixed(16, 13))
        '16 bits, 13 fraction bits, -4 .. 3.99988, steps of 1.2e-4'
    """
    if isinstance(fmt, Float):
        return _float_sentence(fmt)
    word = f"{_bits(fmt.width_bits)}{'' if fmt.signed else ' unsigned'}{', sign and magnitude' * fmt.sign_magnitude}"
    if isinstance(fmt, DynamicFixed):
        return f"{word}, the point moves while the machine runs"
    last = f"the last one weighs {power_of_two(-fmt.frac_bits)}"
    point = f"{fmt.frac_bits} fraction bits" if fmt.frac_bits >= 0 else last
    return f"{word}, {point}, {number(fmt.min)} .. {number(fmt.max)}, steps of {number(fmt.ulp(), 2)}"


def _bits(width: int) -> str:
    return f"{width} bit{'' if width == 1 else 's'}"


def _float_sentence(fmt: Float) -> str:
    # at least one digit, also of formats with a single bit of precision
    digits = max(1, math.floor(_digits(fmt)))
    parts = [f"{number(fmt.min)} .. {number(fmt.max)}"]
    if fmt.has_normals:
        parts.append(
            f"full precision (about {digits} digit{'s' * (digits > 1)}) down to {two_digits(fmt.smallest_normal)}"
        )
    if fmt.smallest_positive < fmt.smallest_normal:
        parts.append(f"smallest {two_digits(fmt.smallest_positive)}")
    if fmt.ftz or fmt.hidden_one:
        parts.append("smaller results are flushed to 0")
    has = (("infinity", fmt.infinities), ("NaN", fmt.nans != "none"), ("zero", fmt.zero))
    parts += [f"no {name}" for name, there in has if not there]
    sign = "sign" if fmt.signed else "no sign"
    fields = f"{_bits(fmt.width_bits)}: {sign}, {fmt.exponent_bits} exponent, {fmt.fraction_bits} fraction"
    return f"{fields}; {', '.join(parts)}"
