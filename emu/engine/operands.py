"""The beginning of every operation: an operand becomes a carrier array and its format.

v = emu.value([0.5, -1.0], "fix8f4")    the format is given once, the values are checked once
as_operand(v, None, "a", check=True)    a value is taken as it is; a plain array needs the format beside it
"""

from __future__ import annotations

import sys
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_on_device, namespace, on_host
from emu.backends.gathered import Gathered
from emu.backends.interface import FormatCode, RandomCode, Write, encode_format, encode_stage
from emu.backends.kernels import Kernels
from emu.backends.registry import load
from emu.datapath import OutputStage, Overflow
from emu.datapath.stage import require_placed
from emu.errors import BackendUnavailable, FormatError
from emu.formats import PRESETS, Fixed, Float, Format, ScaledValue, Value, parse, parse_number
from emu.formats.arrays import require_all
from emu.formats.fixed import FRAC_BITS_LIMIT
from emu.formats.numbers import as_floats, as_fraction, as_numbers, as_words, shown

Array = NDArray[Any]
#: Numbers from which compiled code checks whether they belong to a format.
COMPILED_FROM = 1 << 10
#: Dtypes of carriers that are floats.
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def as_operand(x: Any, fmt: str | Format | None, name: str, *, check: bool) -> tuple[Array, Format | None]:
    """Return an operand's carrier and format: those of a value, or a plain array's, its elements checked.

    Args:
        x: a `Value`, or numbers.
        fmt: format of numbers; None takes floats and integers at their exact values. With a value: None, or its own.
        name: what the caller calls it.
        check: whether to check that numbers belong to the format; a value was checked when it was made.

    Raises:
        FormatError: a number does not belong to the format; names the operand, the first offender and the remedy. A
            value has another format.
    """
    # the usual operand skips all questions: an operation takes microseconds
    given: object = x
    kind = type(given)
    if fmt is None and kind is Value:
        carrier, own = x.array, x.format
        if type(carrier) is np.ndarray and isinstance(own, (Fixed, Float)) and carrier.dtype == own.carrier:
            return carrier, own
    is_array = kind is np.ndarray
    if not is_array:
        if isinstance(x, Value):
            # a value was checked when it was made, and its format counts: an argument may repeat it, not change it
            x, fmt, check = _of_value(x, fmt, name, check=check)
        is_array = type(x) is np.ndarray or is_on_device(x)
    if fmt is None:
        return as_carrier(x, name)
    # the quick way of networks: unchecked carriers of a known format are taken as they are, no text is parsed
    if is_array and not check and isinstance(fmt, (Fixed, Float)) and x.dtype == fmt.carrier:
        return x, fmt
    parsed = require_placed(parse(fmt))
    if is_on_device(x):
        return _on_device(x, parsed, name, check=check), parsed
    array = as_numbers(x, name)
    may_have_negative_zeros = check and _require_members(array, parsed, name)
    carrier = _carried(array, parsed)
    has_negative_zero = isinstance(parsed, Float) and parsed.has_negative_zero
    if may_have_negative_zeros and carrier.dtype.kind == "f" and not has_negative_zero:
        carrier = carrier + 0.0  # -0.0 counts as 0 if the format has no -0
    return carrier, parsed


def require_reachable(kernels: Kernels, *operands: Array | Gathered | None) -> None:
    """Raise BackendUnavailable if an operand lies in a device's memory, and kernels compute on the host.

    Args:
        kernels: what computes.
        operands: carriers, or matrices in their memory.
    """
    if kernels.name == "cuda":
        return
    for x in operands:
        array = x.data if isinstance(x, Gathered) else x
        if type(array) is not np.ndarray and is_on_device(array):
            raise BackendUnavailable(
                f"operands of the backend {kernels.name} must lie in the host's memory, got an array of "
                f"{type(array).__module__} on a device; write backend='cuda', or copy it by its get()"
            )


def _require_members(array: Array, fmt: Format, name: str) -> bool:
    """Raise FormatError unless all numbers belong to a format; return whether one of them may be -0."""
    # Compiled code reads large arrays ten times as fast as NumPy. It is used only where Numba is loaded already: the
    # reference does without.
    if array.size >= COMPILED_FROM and array.dtype in FLOATS and "emu.backends.numba" in sys.modules:
        from emu.backends.numba.members import are_members

        are_inside, has_negative_zeros = are_members(array, fmt)
        # a yes is final; after a no NumPy looks again, since that names the first offender
        if are_inside:
            return has_negative_zeros
    try:
        require_all(fmt, array, fmt.contains(array))
    except FormatError as error:
        raise FormatError(f"`{name}`: {error}") from None
    return True


def _carried(members: Array, fmt: Format) -> Array:
    """Return the carrier array of numbers that belong to a format."""
    # formats of more than 53 bits: float64 would lose their last places, so the carrier holds integers
    if isinstance(fmt, Fixed) and fmt.carries_raws:
        return fmt.raw_of_members(members).astype(fmt.carrier, copy=False)
    if members.dtype == fmt.carrier:
        return members
    # NumPy would warn of signalling NaNs, which become quiet ones, and of numbers beyond the carrier that were not
    # checked.
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(members, dtype=fmt.carrier)


def _of_value(x: Value, fmt: str | Format | None, name: str, *, check: bool) -> tuple[Any, Any, bool]:
    """Return array, format, and whether its elements are still to be checked."""
    if x.format is None:
        return x.array, fmt, check
    if fmt is not None and parse_number(fmt) != x.format:
        raise FormatError(
            f"`{name}` is a value of {x.format}, and `{name}_format` says {fmt}; leave `{name}_format` out"
        )
    return x.array, x.format, False


def in_format(x: Any, fmt: str | Format | None, name: str, *, check: bool) -> tuple[Array, Format]:
    """Return the carrier and format of an operand that needs one.

    Raises:
        FormatError: a plain array without a format; see `as_operand`.
    """
    if isinstance(x, ScaledValue):
        raise FormatError(
            f"`{name}` must be a value whose elements share no scales, got one of {x.format}; give np.asarray({name}) "
            "and the format to read it in, or multiply matrices"
        )
    if fmt is None and (not isinstance(x, Value) or x.format is None):
        raise FormatError(
            f"`{name}` must have a format, got an array without one; give emu.value(array, FORMAT), `{name}_format` "
            "of a function, or `inputs` of a unit"
        )
    array, own_format = as_operand(x, fmt, name, check=check)
    assert own_format is not None
    return array, own_format


def as_carrier(x: Any, name: str = "x") -> tuple[Array, Fixed | None]:
    """Return any real array as float32, float64, or int64/uint64 with the fixed-point format that says so.

    Every integer dtype, and bool, is the same 64-bit integer (unsigned for uint64): registers and flags never depend
    on how narrow an array the caller used. Numbers that only a 64-bit word with fraction bits holds exactly, such as
    2**53 + 1 beside 0.5, become its raws.

    Raises:
        FormatError: something that is no real number, or numbers that neither float64 nor a word of 64 bits holds.
    """
    array = x if is_on_device(x) else as_numbers(x, name)
    if array.dtype == object:
        return _word_of(array, name)
    array = as_native(array, name)
    return array, None if array.dtype.kind == "f" else Fixed(64, 0, signed=array.dtype != np.uint64)


def as_native(x: Any, name: str) -> Array:
    """Return numbers of the host or of a device as float32, float64, int64 or uint64.

    Raises:
        FormatError: something that is no real number, or numbers that none of these dtypes holds exactly.
    """
    if not is_on_device(x):
        array = as_numbers(x, name)
        if array.dtype != object:
            return array
        # objects: numbers that no dtype of NumPy holds exactly, all of them together
        words = _words_at(array, 0)
        if words is not None:
            return words
        floats = as_floats(list(array.flat), array.shape)  # such as 2**1023
        if floats is not None:
            return floats
        raise _inexact(array, name, "float64 or an integer of 64 bits")
    array = x.astype(x.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype.kind in "iub":
        return array.astype(np.uint64 if array.dtype == np.uint64 else np.int64, copy=False)
    if array.dtype in FLOATS:
        return array
    raise FormatError(f"`{name}` must hold real numbers, got dtype {array.dtype}; convert it to float64 first")


def _word_of(exact: Array, name: str) -> tuple[Array, Fixed]:
    """Return the raws of fractions in a word of 64 bits, and its format."""
    # fraction bits that each number needs: the word must have the most of them and still hold the largest number
    lowest = [_last_place(e) for e in exact.flat]
    if None not in lowest:
        frac_bits = max(bits for bits in lowest if bits is not None)  # the finest number decides for all
        raws = _words_at(exact, frac_bits)
        if raws is not None:
            return raws, Fixed(64, frac_bits, signed=raws.dtype != np.uint64)
    raise _inexact(exact, name, "float64 or a word of 64 bits")


def _words_at(exact: Array, frac_bits: int) -> Array | None:
    """Return fractions as raws of 64 bits with `frac_bits`; None unless all of them are such raws."""
    fractions = [as_fraction(e) for e in exact.flat]
    scaled = [x * Fraction(2) ** frac_bits for x in fractions if x is not None]
    if len(scaled) < exact.size or any(x.denominator != 1 for x in scaled):
        return None
    return as_words([x.numerator for x in scaled], exact.shape)


def _inexact(exact: Array, name: str, holders: str) -> FormatError:
    # the first number that no float64 holds; if each fits alone, they do not fit one word together
    lost = next((e for e in exact.flat if as_floats([e], ()) is None), exact.flat[0])
    return FormatError(
        f"`{name}` must hold numbers that {holders} holds exactly, all of them together, got {shown(lost)}; round it "
        "first, by float()"
    )


def _last_place(e: Any) -> int | None:
    """Return the fraction bits that a number needs, below 0 for a multiple of 2; None if no number of them suffices."""
    # 0 for NaN and infinities, which have no fraction
    denominator = getattr(as_fraction(e), "denominator", 0)
    if denominator & (denominator - 1) or not denominator:  # no power of two, as of 1/3; or not finite
        return None
    if denominator > 1 or e == 0:
        return min(denominator.bit_length() - 1, FRAC_BITS_LIMIT)
    # n & -n is the lowest set bit: an integer with z trailing zeros needs -z fraction bits
    return max(-((e.numerator & -e.numerator).bit_length() - 1), -FRAC_BITS_LIMIT)


def _on_device(x: Any, fmt: Format, name: str, *, check: bool) -> Array:
    """Return an operand's carrier on its device; its values are checked, and floats become raws, on the host."""
    # a check needs `contains`, which reads bit patterns by NumPy: an unchecked operand leaves the device only if floats
    # become raws
    if not check:
        if isinstance(fmt, Fixed) and fmt.carries_raws and x.dtype.kind == "f":
            return namespace(x).asarray(_carried(on_host(x), fmt))
        return x if x.dtype == fmt.carrier else _converted(x, fmt.carrier)
    checked = as_operand(on_host(x), fmt, name, check=True)[0]
    return namespace(x).asarray(checked)


def _converted(x: Any, carrier: np.dtype[Any]) -> Array:
    """Return a device's array in another carrier; floats by kernels, since CuPy takes float32 subnormals for 0."""
    if x.dtype not in FLOATS or carrier not in FLOATS:
        return x.astype(carrier)
    # binary32 to binary64 is exact; the other way rounds once, and infinities stay, by the rule `ieee`
    stage = encode_stage(OutputStage(PRESETS["fp64" if carrier == np.float64 else "fp32"], overflow=Overflow.IEEE))
    return load("cuda").quantize(x, None, Write(stage, RandomCode(0, 0, 0, 0, None), None), None).values


@lru_cache(maxsize=1024)
def codes_of(formats: tuple[Format | None, ...]) -> tuple[FormatCode | None, ...]:
    """Return the integers of several formats."""
    return tuple(code_of(fmt) for fmt in formats)


def code_of(fmt: Format | None) -> FormatCode | None:
    """Return the integers of a format, None for a plain float array."""
    return None if fmt is None else encode_format(fmt)
