"""The text form of formats, as in device files, on the command line and in error messages.

    fix16f8   ufix8f0   fix8f-2   fix16f?          fixed point; aliases sfix16_En8, ap_fixed<16,8>, sc_fixed<16,8>, Q7.8
    e5m10     e4m3 finite nans=top bias=7 ftz      floating point; aliases fp16, bf16, e4m3fn, e4m3fnuz, ...
    ue4m3     ue8m0 finite nans=top no-zero        without a sign; p3109_k8p4ue: width, precision, unsigned, extended

`str(fmt)` writes it, `parse` reads it back to an equal format.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from emu.errors import FormatError, nearest_name
from emu.formats.fixed import DynamicFixed, Fixed
from emu.formats.floating import MAX_EXPONENT_BITS, NAN_CODES, PRESETS, Float, NanCodes

Format: TypeAlias = Fixed | Float

_ALIASES = {
    "binary16": "fp16", "half": "fp16", "float16": "fp16", "bfloat16": "bf16", "binary32": "fp32", "float32": "fp32",
    "float": "fp32", "binary64": "fp64", "float64": "fp64", "double": "fp64", "fp8e4m3": "fp8_e4m3",
    "fp8e5m2": "fp8_e5m2", "e4m3fn": "fp8_e4m3", "e8m0fnu": "fp8_e8m0",
}  # fmt: skip
#: Names that are a format's only without options: with them the same letters spell a signed format.
_BARE_ALIASES = {"e8m0": "fp8_e8m0"}
_FNUZ = re.compile(r"e(\d+)m(\d+)(?:b(\d+))?fnuz")
_FLOAT = re.compile(r"(u?)e(\d+)m(\d+)")
_P3109 = re.compile(r"p3109_k(\d+)p(\d+)(s|u|)(e|f|)")
_FIXED = re.compile(r"(u?)fix(\d+)f(-?\d+|\?)")
_MATLAB = re.compile(r"([su])fix(\d+)(?:_(En|E)(\d+))?")
_C_FIXED = re.compile(r"(?:ap|sc)_(u?)fixed<(\d+),(-?\d+)>")
_C_INT = re.compile(r"(?:ap|sc)_(u?)int<(\d+)>")
_Q = re.compile(r"(u?)q(-?\d+)\.(-?\d+)", re.IGNORECASE)
_FORMS = "fix16f8, ufix8f0, fix16f?, e5m10, ue4m3, sfix16_En8, ap_fixed<16,8>, Q7.8 or one of " + ", ".join(PRESETS)


def parse(text: str | Format | DynamicFixed) -> Any:
    """Return the format that `text` names; a format is returned as it is.

    Args:
        text: a text form, alias or preset name.

    Returns:
        `Fixed`, `Float`, or `DynamicFixed` for a point chosen at run time (`fix16f?`).

    Raises:
        FormatError: no such form, or the format it names is impossible.

    Examples:
        >>> parse("fix16f8"), parse("sfix16_En8") == parse("ap_fixed<16,8>") == parse("Q7.8")
        (Fixed(16, 8), True)
        >>> parse("fp16"), str(parse("e5m10"))
        (Float(5, 10), 'fp16')
    """
    if isinstance(text, (Fixed, Float, DynamicFixed)):
        return text
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormatError(f"a format must be text or a format, got {text!r}; write it as {_FORMS}")
    return _parse(text.strip())


@lru_cache(maxsize=1024)
def _parse(text: str) -> Format | DynamicFixed:
    fmt = _parse_fixed(text.replace(" ", "")) or _parse_float(text)
    if fmt is None:
        begins_names = text and any(name.startswith(text) for name in PRESETS)
        known = PRESETS if begins_names else [*PRESETS, *_ALIASES, *_BARE_ALIASES]
        hint = nearest_name(text, known).split("; known")[0]
        raise FormatError(f"a format must be written as {_FORMS}; got {text!r}{hint}")
    return fmt


def _parse_fixed(text: str) -> Fixed | DynamicFixed | None:
    if found := _FIXED.fullmatch(text):
        unsigned, width, frac = found.groups()
        word = DynamicFixed(int(width), not unsigned)
        return word if frac == "?" else word.at(int(frac))
    if found := _MATLAB.fullmatch(text):
        sign, width, direction, exponent = found.groups()
        frac = int(exponent or 0) * (1 if direction == "En" else -1)
        return Fixed(int(width), frac, sign == "s")
    if found := _C_FIXED.fullmatch(text):
        unsigned, width, integer_bits = found.groups()
        return Fixed(int(width), int(width) - int(integer_bits), not unsigned)
    if found := _C_INT.fullmatch(text):
        return Fixed(int(found[2]), 0, not found[1])
    if found := _Q.fullmatch(text):
        unsigned, integer_bits, frac = found.groups()
        return Fixed(int(integer_bits) + int(frac) + (not unsigned), int(frac), not unsigned)
    return None


def _parse_float(text: str) -> Float | None:
    name, *options = text.lower().split() or [""]
    name = _ALIASES.get(name, name)
    if not options:
        name = _BARE_ALIASES.get(name, name)
    if found := _FNUZ.fullmatch(name):
        exponent_bits, fraction_bits, bias = found.groups()
        default = _half_of_fields(int(exponent_bits))
        base = {"infinities": False, "nans": "negative_zero", "bias": int(bias) if bias else default}
        return _float(int(exponent_bits), int(fraction_bits), base | _float_options(options))
    if name in PRESETS:
        return replace(PRESETS[name], **_float_options(options))
    if found := _P3109.fullmatch(name):
        fmt = _p3109(int(found[1]), int(found[2]), signed=found[3] != "u", extended=found[4] != "f")
        return replace(fmt, **_float_options(options))
    if found := _FLOAT.fullmatch(name):
        return _float(int(found[2]), int(found[3]), {"signed": not found[1]} | _float_options(options))
    return None


def _p3109(width_bits: int, precision: int, *, signed: bool, extended: bool) -> Float:
    """Return a format of IEEE P3109: one zero, one NaN (at -0, of unsigned formats at the top), at most two infinities.

    Source: IEEE working group P3109, Interim Report on Binary Floating-point Formats for Machine Learning.
    """
    exponent_bits = width_bits - precision + (not signed)
    if precision < 1 or exponent_bits < 0:
        raise FormatError(
            f"a P3109 format must have a precision in 1..{width_bits}, its width, got {precision}; write p3109_k8p4"
        )
    nans: NanCodes = "negative_zero" if signed else "top"
    return Float(exponent_bits, precision - 1, _half_of_fields(exponent_bits), extended, nans, signed=signed)


def _half_of_fields(exponent_bits: int) -> int:
    """Return half the number of exponent fields, rounded down: a bias that puts 1 in the middle."""
    return 1 << min(exponent_bits, MAX_EXPONENT_BITS) >> 1


def _float(exponent_bits: int, fraction_bits: int, options: dict[str, Any]) -> Float:
    return Float(exponent_bits, fraction_bits, **options)


def _float_options(options: list[str]) -> dict[str, Any]:
    flags = {
        "finite": {"infinities": False},
        "ftz": {"ftz": True},
        "daz": {"daz": True},
        "no-zero": {"zero": False},
        "no-subnormals": {"ftz": True, "daz": True},
    }
    chosen: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        if option in flags:
            chosen |= flags[option]
        elif key == "nans" and value in NAN_CODES:
            chosen["nans"] = value
        elif key == "bias" and re.fullmatch(r"-?\d+", value):
            chosen["bias"] = int(value)
        else:
            known = ", ".join([*flags, *(f"nans={n}" for n in NAN_CODES), "bias=N"])
            raise FormatError(f"an option of a float format must be one of {known}; got {option!r}")
    return chosen
