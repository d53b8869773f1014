"""The output of `emu formats`: the named formats, or the tables of one format."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from rich.text import Text

from emu.cli.output import Column, Facts, Output, Table
from emu.datapath.format_facts import facts_in_full, facts_of_modes, special_values
from emu.formats import PRESETS, SCALED_PRESETS, DynamicFixed, Fixed, Float, Format, Scaled, parse
from emu.formats.numerals import exact_number, exact_power
from emu.formats.parse import modes_of

#: Magnitudes at which the ulp of a float format is shown, besides the ends of its range.
_MAGNITUDES = (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6)
#: Codes with more bits are shown in hexadecimal only.
_SHOWN_BITS = 32


#: Ways to write a format that has no name of its own.
_FORMS = {
    "fix16f8": "fixed point: 16 bits, 8 of them fraction bits; ufix16f8 unsigned",
    "fix16f8 sign-magnitude": "a sign bit and a magnitude; smfix16f8 for short",
    "fix16f?": "fixed point, the point chosen while the machine runs",
    "e5m10": "floating point: 5 exponent and 10 fraction bits; options: finite, nans=..., bias=..., ftz, daz",
    "ue4m3": "without a sign; no-zero: code 0 is the smallest value",
    "e6m10 hidden-one": "the hidden bit is one at exponent field 0 too, but code 0 is zero",
    "p3109_k8p4": "IEEE P3109: width 8, precision 4; p3109_k8p4uf unsigned and finite",
    "block(fp8_e4m3, fp32 1x128 te)": "elements, format and shape of what shares a scale, scale rule",
    "others": "sfix16_En8 (MATLAB), Q7.8, Q15, int8, float8_e4m3fnuz, bfloat16, torch.float16, e8m0",
    "ap_fixed<16,8>": "Vitis; also ac_fixed (Algorithmic C), sc_fixed (SystemC), fixed (hls4ml): truncates and "
    "wraps where it is written, unless it says more, as ap_fixed<16,8,AP_RND_CONV,AP_SAT>",
}


def _six_digits(value: float) -> str:
    return f"{value:.6g}"


def all_formats() -> Output:
    """Return the named formats, of floats and of elements that share scales, and the ways to write others."""
    columns = (
        Column("name", "name"),
        Column("bits", "width_bits"),
        Column("largest", "largest", _six_digits),
        Column("smallest normal", "smallest_normal", _six_digits),
        Column("smallest", "smallest_positive", _six_digits),
        Column("ulp(1)", "ulp_of_one", _six_digits),
        Column("special values", "special_values"),
    )
    rows = [(name, fmt.width_bits, *_sizes(fmt), special_values(fmt)) for name, fmt in PRESETS.items()]
    table = Table(columns, rows, layout={"under": ["special values"]})
    scaled = Table(
        (Column("name", "name"), Column("elements", "elements"), Column("scales", "scales"), Column("bits", "bits")),
        [
            (name, str(f.element), ", ".join(map(str, f.levels)), f.bits_per_element)
            for name, f in SCALED_PRESETS.items()
        ],
        "scaled",
    )
    shared = Text("\nElements that share scales; another rule follows the name, as in mxfp8_e4m3 rceil:\n")
    parts = [table, shared, scaled, Text("\nAny other format is written out:\n"), Facts(_FORMS, {})]
    return Output(parts)  # JSON has the first table alone, a list, which has no name


def _sizes(fmt: Float) -> tuple[float, ...]:
    return fmt.max, fmt.smallest_normal, fmt.smallest_positive, fmt.ulp()


def one_format(text: str) -> Output:
    """Return all of a format.

    Raises:
        FormatError: `text` names no format.
    """
    fmt = parse(text)
    rows = facts_in_full(fmt)
    if isinstance(fmt, Scaled):
        return Output([Text(f"{fmt}\n"), Facts(rows, {"format": str(fmt), "bits_per_element": fmt.bits_per_element})])
    data: dict[str, Any] = {"format": str(fmt), "width_bits": fmt.width_bits, "is_signed": fmt.signed}
    if isinstance(fmt, DynamicFixed):
        return Output([Facts(rows, data | {"point": "dynamic"})])
    data |= {"smallest": fmt.min, "largest": fmt.max}
    if isinstance(fmt, Fixed):
        data |= {"frac_bits": fmt.frac_bits, "ulp": Fraction(2) ** -fmt.frac_bits}
    else:
        data |= {
            "exponent_bits": fmt.exponent_bits,
            "fraction_bits": fmt.fraction_bits,
            "smallest_normal": fmt.smallest_normal if fmt.has_normals else None,
            "smallest_positive": fmt.smallest_positive,
            "special_values": special_values(fmt),
        }
    modes = facts_of_modes(modes_of(text))
    parts = [Text(f"{fmt}  {fmt!r}\n"), Facts(rows | modes, data), Text(), _codes(fmt)]
    if isinstance(fmt, Float):
        parts += [Text(), _ulps(fmt)]
    return Output(parts)


def _codes(fmt: Format) -> Table:
    shows_bits = fmt.width_bits <= _SHOWN_BITS
    digits = -(-fmt.width_bits // 4)
    columns = (
        Column("", "name"),
        Column("code", "code"),
        *([Column("bits", "bits")] if shows_bits else []),
        Column("value", "value", exact_number),
    )
    rows: list[tuple[Any, ...]] = []
    codes = _fixed_codes(fmt) if isinstance(fmt, Fixed) else _float_codes(fmt)
    for name, code in codes.items():
        bits = [_separated(fmt, code)] if shows_bits else []
        rows.append((name, f"0x{code:0{digits}x}", *bits, _value_of(fmt, code)))
    return Table(columns, rows, "codes", {"under": ["bits"] if shows_bits else []})


def _fixed_codes(fmt: Fixed) -> dict[str, int]:
    # The raw of 1.0 is 2**frac_bits: no integer if that is negative, too large if no integer bit is left.
    one_raw = 1 << fmt.frac_bits if 0 <= fmt.frac_bits < fmt.width_bits - fmt.signed else None
    raws = {"largest": fmt.max_raw, "one": one_raw, "smallest above 0": 1 if fmt.max_raw else None, "zero": 0}
    if fmt.signed:
        raws |= {"largest below 0": -1, "smallest": fmt.min_raw}
    codes = {name: int(fmt.encode(fmt.from_raw(np.array(raw)))) for name, raw in raws.items() if raw is not None}
    # In sign and magnitude, max_raw + 1 is the sign bit alone: -0, which is read as 0 and never written.
    return codes | ({"read as zero": fmt.max_raw + 1} if fmt.sign_magnitude else {})


def _float_codes(fmt: Float) -> dict[str, int]:
    # The exponent field 1 with an empty fraction; code 0 if zero has no code. With a hidden one the code of 2**emin is
    # that of zero, so the next code is the smallest.
    smallest_normal = (1 << fmt.fraction_bits) - fmt.lowest_index + fmt.hidden_one
    last_subnormal = min(smallest_normal - 1, fmt.max_code)
    codes = {
        "zero": 0 if fmt.zero else None,
        "smallest subnormal": 1 if last_subnormal > 0 else None,
        "largest subnormal": last_subnormal if last_subnormal > 1 and fmt.has_normals else None,
        "smallest normal": smallest_normal if fmt.has_normals else None,
        "one": int(fmt.encode(np.array(1.0))) if bool(fmt.contains(np.array(1.0))) else None,
        "largest": fmt.max_code,
        "infinity": fmt.infinity_code,
        "NaN, as written": fmt.nan_code,
        "negative zero": fmt.sign_code if fmt.has_negative_zero else None,
    }
    return {name: code for name, code in codes.items() if code is not None}


def _separated(fmt: Format, code: int) -> str:
    """Return the bits of a code with spaces between fields, and with the binary point."""
    bits = f"{code:0{fmt.width_bits}b}"
    if isinstance(fmt, Float):
        end = fmt.signed + fmt.exponent_bits
        return " ".join(part for part in (bits[: fmt.signed], bits[fmt.signed : end], bits[end:]) if part)
    sign, rest = bits[: fmt.signed], bits[fmt.signed :]
    # A point inside of the word or before its first bit can be shown; one further off cannot.
    if 0 < fmt.frac_bits <= len(rest):
        rest = f"{rest[: len(rest) - fmt.frac_bits]}.{rest[len(rest) - fmt.frac_bits :]}"
    return f"{sign} {rest}".strip()


def _value_of(fmt: Format, code: int) -> Fraction | float:
    """Return the value of a code: exact, or a float that may be an infinity or NaN."""
    if isinstance(fmt, Fixed):
        # By way of the raw, as a Fraction: wide formats have values that no float64 has.
        raw = int(fmt.to_raw(fmt.decode(np.array([code], np.uint64)))[0])
        return Fraction(raw) * Fraction(2) ** -fmt.frac_bits
    return float(fmt.decode(np.array([code], dtype=fmt.code_dtype))[0])


def _ulps(fmt: Float) -> Table:
    # The ends of the range, and between them the magnitudes that lie in it.
    low = fmt.smallest_normal if fmt.has_normals else fmt.smallest_positive
    inside = [x for x in _MAGNITUDES if low < x < fmt.max]
    columns = (
        Column("at", "at", "{:g}".format),
        Column("ulp", "ulp", lambda ulp: exact_power(math.frexp(ulp)[1] - 1)),
        Column("relative", "relative_ulp", "{:.2g}".format),
    )
    rows = [(value, ulp := fmt.ulp(value), ulp / value) for value in dict.fromkeys((low, *inside, fmt.max))]
    return Table(columns, rows, "ulps")
