"""Types of high-level synthesis as texts: the format that each is, and the modes that it brings.

    ap_fixed<16,8>                            Vitis; truncates and wraps, as its default modes say
    ap_fixed<16,8,AP_RND_CONV,AP_SAT>         the same words, other modes
    ac_fixed<16,8,true>   sc_fixed<16,8>      Algorithmic C, SystemC; fixed<16,8> hls4ml

A format is a set of values and has no modes. What writes a result (`emu.OutputStage`, `emu.Mac`) takes the modes of the
text; what only asks for a format leaves them. Here modes are words of their notation; `emu.Rounding` and `emu.Overflow`
say what the words mean.

Source: AMD UG1399, "Fixed-Point Identifier Summary"; Algorithmic C Datatypes, tables of ac_fixed; IEEE 1666-2011
section 7.10; hls4ml, FixedPrecisionType.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from emu.errors import FormatError, nearest_name
from emu.formats.fixed import Fixed

#: Words of the modes, after AP_, AC_, SC_ or alone; only Algorithmic C has the last rounding mode.
ROUNDING_WORDS = ("TRN", "TRN_ZERO", "RND", "RND_ZERO", "RND_INF", "RND_MIN_INF", "RND_CONV", "RND_CONV_ODD")
OVERFLOW_WORDS = ("WRAP", "SAT", "SAT_ZERO", "SAT_SYM")
#: A mode of SystemC and Vitis for which there is no overflow rule here.
SIGN_MAGNITUDE_WRAP = "WRAP_SM"
PREFIXES = ("AP_", "AC_", "SC_")
_TEMPLATE = re.compile(r"(\w+)<([^<>]*)>")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


class Mode(NamedTuple):
    """A mode that a text brings.

    Attributes:
        word: in the words of its notation, as `AP_TRN`; empty if the text brings none.
        is_named: whether the text itself names it; else it is the notation's default.
    """

    word: str = ""
    is_named: bool = False


class Modes(NamedTuple):
    """The modes that the text of a format brings.

    Attributes:
        rounding: where results between two values go.
        overflow: what is written for results outside.
        bare: the text without the modes that it names.
    """

    rounding: Mode = Mode()
    overflow: Mode = Mode()
    bare: str = ""


NO_MODES = Modes()


class _Type(NamedTuple):
    """A type of a notation.

    Attributes:
        arguments: a letter each: W width, I integer bits, S sign, Q rounding, O overflow, N saturated bits.
        signed: whether it is two's complement, if no argument says so.
        rounding: its default mode. An integer type's is that of its conversion from a fraction.
        overflow: its default mode.
    """

    arguments: str
    signed: bool
    rounding: str
    overflow: str


_TYPES = {
    "ap_fixed": _Type("WIQON", True, "AP_TRN", "AP_WRAP"),
    "ap_ufixed": _Type("WIQON", False, "AP_TRN", "AP_WRAP"),
    "ap_int": _Type("W", True, "AP_TRN_ZERO", "AP_WRAP"),
    "ap_uint": _Type("W", False, "AP_TRN_ZERO", "AP_WRAP"),
    "ac_fixed": _Type("WISQO", True, "AC_TRN", "AC_WRAP"),
    "ac_int": _Type("WS", True, "AC_TRN", "AC_WRAP"),
    "sc_fixed": _Type("WIQON", True, "SC_TRN", "SC_WRAP"),
    "sc_ufixed": _Type("WIQON", False, "SC_TRN", "SC_WRAP"),
    "sc_fixed_fast": _Type("WIQON", True, "SC_TRN", "SC_WRAP"),
    "sc_ufixed_fast": _Type("WIQON", False, "SC_TRN", "SC_WRAP"),
    "sc_int": _Type("W", True, "SC_TRN_ZERO", "SC_WRAP"),
    "sc_uint": _Type("W", False, "SC_TRN_ZERO", "SC_WRAP"),
    "sc_bigint": _Type("W", True, "SC_TRN_ZERO", "SC_WRAP"),
    "sc_biguint": _Type("W", False, "SC_TRN_ZERO", "SC_WRAP"),
    "fixed": _Type("WIQON", True, "TRN", "WRAP"),
    "ufixed": _Type("WIQON", False, "TRN", "WRAP"),
    "int": _Type("W", True, "TRN_ZERO", "WRAP"),
    "uint": _Type("W", False, "TRN_ZERO", "WRAP"),
}
#: Arguments that may be left out, from the last one on.
_OPTIONAL = "SQON"


def word_of(name: str) -> str:
    """Return the name of a mode without the prefix of its notation.

    Examples:
        >>> word_of("AP_RND_CONV"), word_of("SC_SAT"), word_of("TRN")
        ('RND_CONV', 'SAT', 'TRN')
    """
    return name[3:] if name.startswith(PREFIXES) else name


def read_template(text: str) -> tuple[Fixed, Modes] | None:
    """Return the format of `ap_fixed<16,8>` and its like with the modes it brings; None of other texts.

    Args:
        text: spaces do not matter.

    Raises:
        FormatError: no such type, or an argument is missing, too many or impossible; names it, its rule and the remedy.

    Examples:
        >>> read_template("ac_fixed<8,4,false,AC_RND>")[1].rounding
        Mode(word='AC_RND', is_named=True)
    """
    match = _TEMPLATE.fullmatch(text.replace(" ", ""))
    if match is None:
        return None
    name = match[1]
    if name not in _TYPES:
        hint = "; write a float by its fields, as e8m23" if "float" in name else nearest_name(name, _TYPES)
        raise FormatError(f"a type of high-level synthesis must be known, got {text!r}{hint}")
    kind = _TYPES[name]
    given = match[2].split(",") if match[2] else []
    # the letters that may be left out stand at the end, so that stripping them leaves those that are required
    least = len(kind.arguments.rstrip(_OPTIONAL))
    if not least <= len(given) <= len(kind.arguments):
        raise FormatError(
            f"`{name}` must have {least} to {len(kind.arguments)} arguments, {_shape(name)}, got {len(given)} in {text}"
            if least < len(kind.arguments)
            else f"`{name}` must have {least} argument{'s' * (least > 1)}, {_shape(name)}, got {len(given)} in {text}"
        )
    arguments = dict(zip(kind.arguments, given, strict=False))
    width = _integer(arguments["W"], "W", name, text)
    # a type without I holds integers
    integer_bits = _integer(arguments["I"], "I", name, text) if "I" in arguments else width
    signed = _truth(arguments["S"], name, text) if "S" in arguments else kind.signed
    rounding, overflow = _mode("Q", arguments, kind.rounding, text), _mode("O", arguments, kind.overflow, text)
    if _integer(arguments.get("N", "0"), "N", name, text):
        raise FormatError(
            f"`N` of {_shape(name)} must be 0, got {arguments['N']} in {text}: no overflow rule here saturates some "
            "bits and wraps the others; leave it out"
        )
    if overflow.is_named and word_of(overflow.word) == "SAT_SYM" and signed and width == 1:
        raise FormatError(
            f"a signed word of 1 bit must not saturate symmetrically, got {text}: 0 is its only symmetric value, and "
            "the headers of its notation write -1; choose another overflow mode"
        )
    # N is left out as well: it was 0
    kept = [argument for letter, argument in arguments.items() if letter not in "QON"]
    return Fixed(width, width - integer_bits, signed), Modes(rounding, overflow, f"{name}<{','.join(kept)}>")


def _shape(name: str) -> str:
    return f"{name}<{','.join(_TYPES[name].arguments)}>"


def _integer(argument: str, letter: str, name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,4}", argument):
        raise FormatError(f"`{letter}` of {_shape(name)} must be an integer, got {argument!r} in {text}; write digits")
    return int(argument)


def _truth(argument: str, name: str, text: str) -> bool:
    if argument not in _TRUTHS:
        raise FormatError(f"`S` of {_shape(name)} must be true (signed) or false, got {argument!r} in {text}")
    return _TRUTHS[argument]


def _mode(letter: str, arguments: dict[str, str], default: str, text: str) -> Mode:
    if letter not in arguments:
        return Mode(default)
    # The prefix serves the remedy; AC_ also marks the notation that has one more
    # rounding mode. A given mode may have the prefix of another notation.
    name, prefix = arguments[letter], default.removesuffix(word_of(default))
    words = ROUNDING_WORDS[: None if prefix == "AC_" else -1] if letter == "Q" else OVERFLOW_WORDS
    word = word_of(name)
    if word in words:
        return Mode(name, is_named=True)
    hint = nearest_name(name, [prefix + known for known in words])
    if letter == "Q" and word in OVERFLOW_WORDS:
        hint = f", an overflow mode, which comes after the rounding mode; write {prefix}TRN before it"
    elif letter == "O" and word == SIGN_MAGNITUDE_WRAP:
        hint = ": no overflow rule here wraps two's complement as a sign and a magnitude; choose another mode"
    what = "rounding" if letter == "Q" else "overflow"
    raise FormatError(f"the {what} mode of {text} must be known, got {name!r}{hint}")
