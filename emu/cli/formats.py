"""What `emu formats` prints: the table of a number format."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from emu.cli.tables import Listing, console, facts
from emu.datapath import Overflow, Rounding
from emu.formats import PRESETS, DynamicFixed, Fixed, Float, Format, parse
from emu.formats.notations import Mode
from emu.formats.parse import modes_of

#: Where the ulp of a float format is shown, besides the ends of its range.
_MAGNITUDES = (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6)
#: Codes of more bits are shown in hexadecimal only.
_SHOWN_BITS = 32
#: Longer decimals are rounded.
_SHOWN_DIGITS = 18


def print_presets() -> None:
    """Print the named float formats and the ways to write others."""
    rows = [(name, str(fmt.width_bits), *_sizes(fmt), _special_words(fmt)) for name, fmt in PRESETS.items()]
    heads = ("name", "bits", "largest", "smallest normal", "smallest", "ulp(1)", "special values")
    table = Listing(heads, rows, under=heads[-1:])
    forms = facts(
        {
            "fix16f8": "fixed point: 16 bits, 8 of them behind the point; ufix16f8 unsigned",
            "fix16f?": "fixed point, the point chosen while the machine runs",
            "e5m10": "floating point: 5 exponent and 10 fraction bits; options: finite, nans=..., bias=..., ftz, daz",
            "ue4m3": "without a sign; no-zero: code 0 is the smallest value",
            "p3109_k8p4": "IEEE P3109: width 8, precision 4; p3109_k8p4uf unsigned and finite",
            "others": "sfix16_En8 (MATLAB), Q7.8, Q15, int8, float8_e4m3fnuz, bfloat16, torch.float16, e8m0",
            "ap_fixed<16,8>": "Vitis; also ac_fixed (Algorithmic C), sc_fixed (SystemC), fixed (hls4ml): truncates and "
            "wraps where it is written, unless it says more, as ap_fixed<16,8,AP_RND_CONV,AP_SAT>",
        }
    )
    console().print(Group(table, Text("\nAny other format is written out:\n"), forms))


def _sizes(fmt: Float) -> list[str]:
    return [f"{x:.6g}" for x in (fmt.max, fmt.smallest_normal, fmt.smallest_positive, fmt.ulp())]


def print_format(text: str) -> None:
    """Print a format.

    Raises:
        FormatError: `text` names no format.
    """
    fmt = parse(text)
    if isinstance(fmt, DynamicFixed):
        console().print(_dynamic(fmt))
        return
    parts: list[Table | Listing | Text] = [
        Text(f"{fmt}  {fmt!r}\n"),
        facts((_fixed_facts(fmt) if isinstance(fmt, Fixed) else _float_facts(fmt)) | _brought_facts(text)),
    ]
    parts += [Text(), _codes(fmt)]
    if isinstance(fmt, Float):
        parts += [Text(), _ulps(fmt)]
    console().print(Group(*parts))


def _brought_facts(text: str) -> dict[str, str]:
    """Return the modes that the text of a format brings; nothing of one that brings none."""
    modes, rows = modes_of(text), dict[str, str]()
    if modes.rounding.word:
        rows["rounding"] = f"{Rounding.parse(modes.rounding.word).value}, {_origin(modes.rounding)}"
    if modes.overflow.word:
        rows["out of range"] = f"{Overflow.named(modes.overflow.word).value}, {_origin(modes.overflow)}"
    return rows


def _origin(mode: Mode) -> str:
    return mode.word if mode.is_named else f"{mode.word} by default, unless another one is given"


def _sign_words(fmt: Fixed | DynamicFixed) -> str:
    return "two's complement" if fmt.signed else "unsigned"


def _dynamic(fmt: DynamicFixed) -> Table:
    bits = fmt.width_bits
    return facts(
        {
            "word": f"{bits} bits, {_sign_words(fmt)}",
            "point": "chosen while the machine runs, per tensor",
            "range": f"with f fraction bits: {'-' if fmt.signed else '0 to '}2**({bits - fmt.signed} - f)"
            f"{' to ' + f'2**({bits - 1} - f)' if fmt.signed else ''}, in steps of 2**-f",
        }
    )


def _fixed_facts(fmt: Fixed) -> dict[str, str]:
    integer_bits = fmt.width_bits - fmt.frac_bits
    prefix = "" if fmt.signed else "u"
    rows = {
        "word": f"{fmt.width_bits} bits, {_sign_words(fmt)}, value = raw * 2**{-fmt.frac_bits}",
        "layout": _fixed_layout(fmt),
        "range": f"{number(fmt.min)} to {number(fmt.max)}",
        "ulp": f"{_power(-fmt.frac_bits)}, the same everywhere",
        "rounding error": f"at most {_power(-fmt.frac_bits - 1)} (nearest)",
        "values": f"{fmt.n_codes}, one per code; no NaN, no infinity, no -0",
        "out of range": f"{Overflow.parse(None, fmt).value} unless another rule is given",
        "carried in": f"{fmt.carrier}" + (" raws" if fmt.carries_raws else ""),
    }
    if fmt.frac_bits >= 0:
        names = [f"{prefix or 's'}fix{fmt.width_bits}_En{fmt.frac_bits}"]
        whole_bits = fmt.width_bits - fmt.signed - fmt.frac_bits
        names += [f"{prefix}Q{whole_bits}.{fmt.frac_bits} (sign not counted)"] if whole_bits >= 0 else []
        names += [f"ap_{prefix}fixed<{fmt.width_bits},{integer_bits}> (truncates and wraps)"]
        rows["also written"] = ", ".join(names)
    return rows


def _fixed_layout(fmt: Fixed) -> str:
    value_bits = fmt.width_bits - fmt.signed
    sign = "s " if fmt.signed else ""
    if 0 <= fmt.frac_bits <= value_bits:
        return f"{sign}{'i' * (value_bits - fmt.frac_bits)}.{'f' * fmt.frac_bits}"
    if fmt.frac_bits < 0:
        return f"{sign}{'i' * value_bits}, {-fmt.frac_bits} implied zeros before the point"
    kind = "sign bits" if fmt.signed else "zeros"
    return f"{sign}{'f' * value_bits}, {fmt.frac_bits - value_bits} implied {kind} behind the point"


def _float_facts(fmt: Float) -> dict[str, str]:
    digits = fmt.significand_bits * math.log10(2)
    flushes = [text for on, text in ((fmt.ftz, "results are flushed to 0"), (fmt.daz, "operands count as 0")) if on]
    subnormals = ", ".join(flushes) or "supported"
    if not fmt.zero:
        subnormals = "none: the smallest value is normal, and stands for 0"
    elif not fmt.fraction_bits:
        subnormals = "none: no fraction bits"
    rows = {
        "word": f"{fmt.width_bits} bits, exponent bias {fmt.bias}" + ", unsigned" * (not fmt.signed),
        "layout": " ".join(
            part for part in ("s" * fmt.signed, "e" * fmt.exponent_bits, "f" * fmt.fraction_bits) if part
        ),
        "range": f"{number(fmt.min)} to {number(fmt.max)}",
        "normal from": _power(fmt.emin) if fmt.has_normals else "nowhere: all values are subnormal",
        "smallest": number(fmt.smallest_positive),
        "subnormals": subnormals,
        "precision": f"significant bits: {fmt.significand_bits}, about {digits:.1f} decimal digits",
        "rounding error": f"relative, at most {_power(-fmt.significand_bits)} (nearest, normal results)",
    }
    if not fmt.has_normals:
        step = fmt.emin - fmt.fraction_bits
        rows["precision"] = f"significant bits: {fmt.fraction_bits} at most, steps of {_power(step)}"
        rows["rounding error"] = f"at most {_power(step - 1)} (nearest)"
    return rows | {
        "special values": _special_words(fmt),
        "out of range": f"{Overflow.parse(None, fmt).value} unless another rule is given",
        "carried in": str(fmt.carrier),
    }


def _special_words(fmt: Float) -> str:
    per_sign = fmt.sign_code - fmt.first_special_code - fmt.infinities
    count = {"ieee": per_sign << fmt.signed, "top": 1 << fmt.signed, "negative_zero": 1, "none": 0}[fmt.nans]
    nans = f"{count or 'no'} NaN" + (f" code{'s' * (count > 1)}" if count else "")
    infinity = ("±inf" if fmt.signed else "+inf") if fmt.infinities else "no inf"
    return f"{infinity}, {nans}, {'±0' if fmt.has_negative_zero else 'one 0' if fmt.zero else 'no 0'}"


def _codes(fmt: Format) -> Listing:
    shows_bits = fmt.width_bits <= _SHOWN_BITS
    rows: list[tuple[str, ...]] = []
    codes = _fixed_codes(fmt) if isinstance(fmt, Fixed) else _float_codes(fmt)
    for name, code in codes.items():
        digits = -(-fmt.width_bits // 4)
        bits = [_separated(fmt, code)] if shows_bits else []
        rows.append((name, f"0x{code:0{digits}x}", *bits, _value_of(fmt, code)))
    return Listing(("", "code", *["bits"] * shows_bits, "value"), rows, under=("bits",) if shows_bits else ())


def _fixed_codes(fmt: Fixed) -> dict[str, int]:
    mask = fmt.n_codes - 1
    one = 1 << fmt.frac_bits if 0 <= fmt.frac_bits < fmt.width_bits - fmt.signed else None
    raws = {"largest": fmt.max_raw, "one": one, "smallest above 0": 1 if fmt.max_raw else None, "zero": 0}
    if fmt.signed:
        raws |= {"largest below 0": -1, "smallest": fmt.min_raw}
    return {name: raw & mask for name, raw in raws.items() if raw is not None}


def _float_codes(fmt: Float) -> dict[str, int]:
    smallest_normal = (1 << fmt.fraction_bits) - fmt.lowest_index
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
    """Return the bits of a code with a space between fields, a point where the point is."""
    bits = f"{code:0{fmt.width_bits}b}"
    if isinstance(fmt, Float):
        end = fmt.signed + fmt.exponent_bits
        return " ".join(part for part in (bits[: fmt.signed], bits[fmt.signed : end], bits[end:]) if part)
    sign, rest = bits[: fmt.signed], bits[fmt.signed :]
    if 0 < fmt.frac_bits <= len(rest):
        rest = f"{rest[: len(rest) - fmt.frac_bits]}.{rest[len(rest) - fmt.frac_bits :]}"
    return f"{sign} {rest}".strip()


def _value_of(fmt: Format, code: int) -> str:
    if isinstance(fmt, Fixed):
        raw = code - fmt.n_codes if fmt.signed and code > fmt.max_raw else code
        return number(Fraction(raw) * Fraction(2) ** -fmt.frac_bits)
    return number(float(fmt.decode(np.array([code], dtype=fmt.code_dtype))[0]))


def _ulps(fmt: Float) -> Listing:
    rows: list[tuple[str, ...]] = []
    low = fmt.smallest_normal if fmt.has_normals else fmt.smallest_positive
    inside = [x for x in _MAGNITUDES if low < x < fmt.max]
    for value in (low, *inside, fmt.max):
        ulp = fmt.ulp(value)
        rows.append((f"{value:g}", _power(math.frexp(ulp)[1] - 1), f"{ulp / value:.2g}"))
    return Listing(("at", "ulp", "relative"), rows)


def _power(exponent: int) -> str:
    """Return a power of two and, where it can be read, its decimals."""
    power = f"2**{exponent}"
    near = number(Fraction(2) ** exponent)
    return near if near.startswith(power) else f"{power} = {near}"


def number(value: float | Fraction) -> str:
    """Return a real in decimals: exact ones up to 17 digits, else rounded behind an approximation sign.

    Examples:
        >>> number(127.99609375), number(2.0**-24), number(Fraction(2**63 - 1)), number(Fraction(2) ** -2000)
        ('127.99609375', '2**-24 ≈ 5.96046e-08', '≈ 9.22337e+18', '2**-2000')
    """
    if isinstance(value, float) and (not math.isfinite(value) or not value):
        return f"{value:g}"
    exact = Fraction(value)
    near = _float_of(exact)
    if near is not None and Fraction(text := repr(near).removesuffix(".0")) == exact and len(text) <= _SHOWN_DIGITS:
        return text
    top, bottom = abs(exact).as_integer_ratio()
    exponent = round(math.log2(top) - math.log2(bottom))
    approximation = f"≈ {near:.6g}" if near is not None else ""
    if abs(exact) == Fraction(2) ** exponent:
        return f"{'-' * (exact < 0)}2**{exponent} {approximation}".rstrip()
    return approximation or f"≈ {'-' * (exact < 0)}2**{exponent}"


def _float_of(exact: Fraction) -> float | None:
    """Return the nearest float64, None where that says nothing: beyond its range or below its normals."""
    try:
        near = float(exact)
    except OverflowError:
        return None
    return near if not exact or abs(near) >= 2.0**-1022 else None
