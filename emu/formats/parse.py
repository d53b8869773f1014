"""The text form of formats, as in device files, on the command line and in error messages.

    fix16f8   ufix8f0   fix8f-2   fix16f?          fixed point; aliases sfix16_En8, Q7.8, Q15, int8, ap_fixed<16,8>
    e5m10     e4m3 finite nans=top bias=7 ftz      floating point; aliases fp16, bf16, e4m3fn, float8_e4m3fnuz, ...
    ue4m3     ue8m0 finite nans=top no-zero        without a sign; p3109_k8p4ue: width, precision, unsigned, extended
    fix16f8 sign-magnitude   smfix16f8             a sign bit and a magnitude
    e6m10 hidden-one                               the hidden bit is one at exponent field 0 too, whose code 0 is zero
    mxfp8_e4m3, block(fp8_e4m3, fp32 1x128 te)     elements that share scales, in `scaled.py`

`str(fmt)` writes it, `parse` reads it back to an equal format. Types of high-level synthesis are in `notations.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

import numpy as np

from emu.errors import FormatError, nearest_name
from emu.formats.fixed import SIGN_MAGNITUDE, DynamicFixed, Fixed
from emu.formats.floating import MAX_EXPONENT_BITS, NAN_CODES, PRESETS, Float, NanCodes
from emu.formats.notations import NO_MODES, Modes, read_template
from emu.formats.scaled import SCALED_PRESETS, Scaled, parse_scaled

Format: TypeAlias = Fixed | Float

_ALIASES = {
    "binary16": "fp16", "half": "fp16", "float16": "fp16", "f16": "fp16", "bfloat16": "bf16", "binary32": "fp32",
    "float32": "fp32", "float": "fp32", "single": "fp32", "f32": "fp32", "binary64": "fp64", "float64": "fp64",
    "double": "fp64", "f64": "fp64", "fp8e4m3": "fp8_e4m3", "fp8e5m2": "fp8_e5m2", "e4m3fn": "fp8_e4m3",
    "e8m0fnu": "fp8_e8m0", "e3m2fn": "fp6_e3m2", "e2m3fn": "fp6_e2m3", "e2m1fn": "fp4_e2m1",
}  # fmt: skip
#: Texts that mean several formats, and what to write. NumPy counts bytes: its i8 is 64 bits.
_AMBIGUOUS = {
    f"{letter}{size}": f"NumPy's {name}{8 * size} and {name}{size} of others; write {name}{8 * size} or {name}{size}"
    for letter, name in (("i", "int"), ("u", "uint"))
    for size in (1, 2, 4, 8)
} | {
    "f2": "NumPy's float16 and floats of 2 bits; write float16",
    "f4": "NumPy's float32 and floats of 4 bits; write float32 or e2m1fn",
    "f8": "NumPy's float64 and floats of 8 bits; write float64, float8_e4m3fn or float8_e5m2",
    "float8": "all floats of 8 bits; write float8_e4m3fn or float8_e5m2",
    "int": "integers of any width; write it, as int32",
    "uint": "integers of any width; write it, as uint32",
}
#: Characters of the longest text that is read: messages quote a text, and caches keep it.
_LONGEST = 200
#: Names that are a format's only without options: with them the same letters spell a signed format.
_BARE_ALIASES = {"e8m0": "fp8_e8m0"}
_FNUZ = re.compile(r"e(\d+)m(\d+)(?:b(\d+))?fnuz")
_FLOAT = re.compile(r"(u?)e(\d+)m(\d+)")
_P3109 = re.compile(r"p3109_k(\d+)p(\d+)(s|u|)(e|f|)")
_FIXED = re.compile(r"(u|sm|)fix(\d+)f(-?\d+|\?)")
_SIGN_MAGNITUDE = re.compile(r"(.+) sign[-_]magnitude")
#: Words that do not say where the point is, or in another way.
_NO_POINT = re.compile(r"((?:u|sm|)fix)(\d+)(?:[_.:,-](\d+))?")
_MATLAB = re.compile(r"([su])fix(\d+)(?:_(En|E)(\d+))?")
_Q = re.compile(r"(u?)q(-?\d+)\.(-?\d+)", re.IGNORECASE)
#: Fraction bits alone: with a sign bit they fill a word of 8, 16, 32 or 64 bits.
_Q_WORD = re.compile(r"q(7|15|31|63)", re.IGNORECASE)
_Q_OPEN = re.compile(r"(u?)q(\d+)", re.IGNORECASE)
_INTEGER = re.compile(r"(?:(u?)int|([siu]))(\d+)")
#: What ml_dtypes, PyTorch and MLIR put before the fields, beside a width that says the same: float8_e4m3fn, f8e4m3fn.
_SIZED = re.compile(r"f(?:loat)?(\d+)_?(u?e\d+m\d+\w*)")
#: Classes of dtypes and of scalar types, those of ml_dtypes included.
_DTYPE: type = np.dtype
_SCALAR: type = np.generic
#: What libraries put before their names.
_LIBRARIES = ("torch.", "ml_dtypes.")
_FORMS = "fix16f8, ufix8f0, fix16f?, e5m10, ue4m3, sfix16_En8, ap_fixed<16,8>, Q7.8, mxfp8_e4m3 or one of " + ", ".join(
    PRESETS
)


class _Reading(NamedTuple):
    """What a text says: a format, and modes."""

    format: Format | DynamicFixed | Scaled
    modes: Modes


def parse(text: str | Format | DynamicFixed | Scaled | np.dtype[Any] | type[np.generic]) -> Any:
    """Return the format that `text` names; a format is returned as it is.

    A format has no modes. Those that a text brings, as `ap_fixed<16,8,AP_RND,AP_SAT>`, work where the text itself says
    what is written: `emu.quantize`, `emu.Unit`, `emu.OutputStage.of`, `emu.Mac`.

    Args:
        text: a text form, alias or preset name; or a dtype of NumPy, ml_dtypes or PyTorch.

    Returns:
        `Fixed`, `Float`, `DynamicFixed` for a point chosen at run time (`fix16f?`), or `Scaled` for elements that share
        scales (`mxfp8_e4m3`).

    Raises:
        FormatError: no such form, or the format it names is impossible.

    Examples:
        >>> parse("fix16f8"), parse("sfix16_En8") == parse("ap_fixed<16,8>") == parse("Q7.8")
        (Fixed(16, 8), True)
        >>> parse("fp16"), str(parse("e5m10")), parse(np.float16)
        (Float(5, 10), 'fp16', Float(5, 10))
    """
    return text if isinstance(text, (Fixed, Float, DynamicFixed, Scaled)) else _read(_text_of(text)).format


def parse_number(text: str | Format | DynamicFixed | Scaled | np.dtype[Any] | type[np.generic]) -> Any:
    """Return the format of single numbers that `text` names; see `parse`.

    Returns:
        `Fixed`, `Float` or `DynamicFixed`.

    Raises:
        FormatError: no such form, an impossible format, or one whose elements share scales.
    """
    fmt = parse(text)
    if isinstance(fmt, Scaled):
        refuse_scaled(fmt)
    return fmt


def refuse_scaled(fmt: Scaled) -> NoReturn:
    """Raise FormatError: a format whose elements share scales is not one of single numbers."""
    raise FormatError(
        f"a format here must be that of single numbers, got {fmt}, whose elements share scales; write the format "
        f"of its elements, {fmt.element}, or make scaled values with emu.quantize(x, {str(fmt)!r}, axis=-1)"
    )


def modes_of(text: object) -> Modes:
    """Return the modes that the text of a format brings; none of a format.

    Raises:
        FormatError: `text` names no format.

    Examples:
        >>> modes_of("ap_fixed<16,8,AP_RND>").rounding, modes_of("ap_fixed<16,8>").overflow
        (Mode(word='AP_RND', is_named=True), Mode(word='AP_WRAP', is_named=False))
    """
    return _read(text.strip()).modes if isinstance(text, str) else NO_MODES


def _text_of(given: object) -> str:
    """Return the text of a format: `given`, or the name of a dtype.

    A dtype of PyTorch says its name itself, so that nothing is imported.
    """
    if isinstance(given, str):
        return given.strip()
    if isinstance(given, _DTYPE) or (isinstance(given, type) and issubclass(given, _SCALAR)):
        return np.dtype(cast("np.dtype[Any]", given)).name
    if type(given).__module__ == "torch":
        return str(given)
    raise FormatError(f"a format must be text, a format or a dtype, got {given!r}; write it as {_FORMS}")


@lru_cache(maxsize=1024)
def _read(text: str) -> _Reading:
    if len(text) > _LONGEST:
        raise FormatError(f"a format must be written as {_FORMS}; got {len(text)} characters, {text[:20]!r} ...")
    name = text
    for library in _LIBRARIES:
        name = name.removeprefix(library)
    # before the ambiguous names: `int<8>` is a type, `int` is not
    if reading := read_template(name):
        return _Reading(*reading)
    if meant := _AMBIGUOUS.get(name.lower()):
        raise FormatError(f"a format must mean one thing, got {text!r}, which stands for {meant}")
    # each of the three returns None for a form that is not its own, and raises if its own form is impossible
    fmt = parse_scaled(name, parse) or _parse_fixed(name) or _parse_float(name)
    if fmt is None:
        presets = [*PRESETS, *SCALED_PRESETS]
        # "fp8" begins several presets: they are the answer, and aliases would crowd them out
        begins_names = text and any(name.startswith(text) for name in presets)
        known = presets if begins_names else [*presets, *_ALIASES, *_BARE_ALIASES]
        if point := _without_point(name):
            raise FormatError(f"a fixed-point format must say where its point is, got {text!r}{point}")
        # without the list of known names: the message has the forms already
        hint = nearest_name(text, known).split("; known")[0]
        raise FormatError(f"a format must be written as {_FORMS}; got {text!r}{hint}")
    return _Reading(fmt, NO_MODES)


def _without_point(text: str) -> str:
    """Return the end of the message about a fixed-point word without `f` before its fraction bits; "" for others."""
    match = _NO_POINT.fullmatch(text.removesuffix(f" {SIGN_MAGNITUDE}"))
    if match is None:
        return ""
    word, width, after = match.groups()
    if after is not None:
        return f"; did you mean {word}{width}f{after}, which has {after} fraction bits?"
    half = int(width) // 2
    return (
        f"; write {word}{width}f0 for whole numbers, {word}{width}f{half} for "
        f"{half} fraction bits, or {word}{width}f? for a point that moves while a network trains"
    )


def _parse_fixed(text: str) -> Fixed | DynamicFixed | None:
    if match := _SIGN_MAGNITUDE.fullmatch(text):
        word = _parse_word(match[1].replace(" ", ""))
        return word and replace(word, sign_magnitude=True)
    return _parse_word(text.replace(" ", ""))


def _parse_word(text: str) -> Fixed | DynamicFixed | None:
    if match := _FIXED.fullmatch(text):
        kind, width, frac = match.groups()
        # made before the point is read, so that width and sign are checked for open points too
        word = DynamicFixed(int(width), kind != "u", kind == "sm")
        return word if frac == "?" else word.at(int(frac))
    if match := _MATLAB.fullmatch(text):
        sign, width, direction, exponent = match.groups()
        frac = int(exponent or 0) * (1 if direction == "En" else -1)
        return Fixed(int(width), frac, sign == "s")
    if match := _INTEGER.fullmatch(text):
        unsigned, letter, width = match.groups()
        return Fixed(int(width), 0, not unsigned and letter != "u")
    return _parse_q(text)


def _parse_q(text: str) -> Fixed | None:
    """Return the word of Q notation, whose integer bits do not count the sign.

    Raises:
        FormatError: it gives the fraction bits alone, and with a sign bit they fill no usual word.
    """
    if match := _Q.fullmatch(text):
        unsigned, integer_bits, frac = match.groups()
        return Fixed(int(integer_bits) + int(frac) + (not unsigned), int(frac), not unsigned)
    if match := _Q_WORD.fullmatch(text):
        return Fixed(int(match[1]) + 1, int(match[1]))
    if match := _Q_OPEN.fullmatch(text):
        unsigned, frac = match.groups()
        raise FormatError(
            f"a format must say its width, got {text!r}, {frac} fraction bits of an unknown word; write "
            f"{unsigned.lower()}fix16f{frac} for one of 16 bits"
        )
    return None


def _parse_float(text: str) -> Float | None:
    # an empty text has no words
    name, *options = text.lower().split() or [""]
    if match := _SIZED.fullmatch(name):
        return _sized(int(match[1]), " ".join([match[2], *options]), text)
    name, *aliased = _ALIASES[name].split() if name in _ALIASES else [name]
    options = aliased + options
    if not options:
        name = _BARE_ALIASES.get(name, name)
    if match := _FNUZ.fullmatch(name):
        exponent_bits, fraction_bits, bias = match.groups()
        # the bias of fnuz is one more than that of IEEE: 8 of e4m3fnuz
        default = _half_of_fields(int(exponent_bits))
        base: dict[str, Any] = {"infinities": False, "nans": "negative_zero", "bias": int(bias) if bias else default}
        return Float(int(exponent_bits), int(fraction_bits), **(base | _float_options(options)))
    if name in PRESETS:
        return replace(PRESETS[name], **_float_options(options))
    if match := _P3109.fullmatch(name):
        fmt = _p3109(int(match[1]), int(match[2]), signed=match[3] != "u", extended=match[4] != "f")
        return replace(fmt, **_float_options(options))
    if match := _FLOAT.fullmatch(name):
        sign: dict[str, Any] = {"signed": not match[1]}
        return Float(int(match[2]), int(match[3]), **(sign | _float_options(options)))
    return None


def _sized(width_bits: int, fields: str, text: str) -> Float | None:
    """Return the float that `fields` describe, which must be as wide as the text says beside them.

    Raises:
        FormatError: the fields have another width.
    """
    fmt = _parse_float(fields)
    if fmt is not None and fmt.width_bits != width_bits:
        raise FormatError(
            f"the width of a float must be that of its fields, got {text!r}, whose fields have {fmt.width_bits} bits; "
            f"write {fields}"
        )
    return fmt


def _p3109(width_bits: int, precision: int, *, signed: bool, extended: bool) -> Float:
    """Return a format of IEEE P3109: one zero, one NaN (at -0, of unsigned formats at the top), at most two infinities.

    Source: IEEE working group P3109, Interim Report on Binary Floating-point Formats for Machine Learning.
    """
    # width = sign + exponent_bits + (precision - 1), since the leading bit is not stored
    exponent_bits = width_bits - precision + (not signed)
    if precision < 1 or exponent_bits < 0:
        raise FormatError(
            f"a P3109 format must have a precision in 1..{width_bits}, its width, got {precision}; write p3109_k8p4"
        )
    nans: NanCodes = "negative_zero" if signed else "top"
    # extended formats are those with infinities
    return Float(exponent_bits, precision - 1, _half_of_fields(exponent_bits), extended, nans, signed=signed)


def _half_of_fields(exponent_bits: int) -> int:
    """Return half the number of exponent fields, rounded down: a bias that puts 1 in the middle."""
    # a text may ask for any number of bits; those beyond the limit are refused later, without a number that large
    return 1 << min(exponent_bits, MAX_EXPONENT_BITS) >> 1


def _float_options(options: list[str]) -> dict[str, Any]:
    flags = {
        "finite": {"infinities": False},
        "ftz": {"ftz": True},
        "daz": {"daz": True},
        "no-zero": {"zero": False},
        "hidden-one": {"hidden_one": True},
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
