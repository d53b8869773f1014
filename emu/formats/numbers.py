"""What counts as a number, and how every function takes it: exactly, or not at all.

    floats of 16, 32, 64 bits, integers, bools    as they are
    ml_dtypes arrays (bfloat16, float8, int4)     as the float32 or integer that each of them is
    tensors of PyTorch                            as their numbers, on the host, without gradients
    long doubles, Fraction, Decimal, large int    float64 or 64-bit integers if all fit, else fractions
    masked elements, complex, text, None, dates   refused

An array of numbers has the dtype float32, float64, int64 or uint64. Where none of them holds every element, it is an
array of `Fraction`s, with floats for infinities and NaN.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from emu.errors import FormatError
from emu.formats.arrays import require_all, shown

if TYPE_CHECKING:  # formats are built on these functions
    from emu.formats.parse import Format

Array = NDArray[Any]
#: Decimal exponents beyond these belong to no value of a format, and their fractions take megabytes.
_MOST_DIGITS = 10_000
_NATIVE_SCALARS = (np.float32, np.float64, np.int64, np.uint64)
_NATIVE = tuple(np.dtype(t) for t in _NATIVE_SCALARS)
#: From here on, float64 skips integers.
_FIRST_LOST_INTEGER = 2.0**53
#: What NumPy's `isbuiltin` says of dtypes that another package registered, such as those of ml_dtypes.
_REGISTERED = 2


def as_numbers(x: Any, name: str) -> Array:
    """Return numbers of any kind as an array that holds each of them exactly.

    Args:
        x: an array, nested lists, or one number.
        name: what the caller calls it.

    Returns:
        The array itself, if its dtype is float32, float64, int64 or uint64. Else one of these, or an array of objects:
        integers alone, or `Fraction`s, and floats if a number is not finite.

    Raises:
        FormatError: something that is no real number, or a masked element; says which, and the remedy.

    Examples:
        >>> as_numbers([2**53 + 1, 0.5], "x").tolist()
        [Fraction(9007199254740993, 1), Fraction(1, 2)]
        >>> as_numbers([2**53 + 1, 1], "x").dtype
        dtype('int64')
    """
    # almost every call gives one of these two, which need no look at their elements
    if type(x) is np.ndarray and x.dtype in _NATIVE:
        return x
    if type(x) in _NATIVE_SCALARS:
        return np.asarray(x)
    array = _as_array(_unmasked(x, name), name)
    kind = array.dtype.kind
    if array.dtype.isbuiltin == _REGISTERED:  # asked first: the kind of such a dtype says nothing
        return _of_registered(array, name)
    if kind in "iub":
        # only uint64, in either byte order, has numbers beyond int64
        return array.astype(np.uint64 if array.dtype.newbyteorder("=") == np.uint64 else np.int64)
    if kind == "f" and array.dtype.itemsize <= 8:  # float16, and foreign byte order
        native = _quietly(array, np.float64 if array.dtype.itemsize == 8 else np.float32)
        # an array of floats is what it says; a list may have held integers, which are read again as objects
        # in a list, NumPy rounds 2**53 + 1 beside 0.5 to a float64
        if not isinstance(x, Sequence) or not _may_have_lost_integers(native):
            return native
        array = np.array(x, dtype=object)  # of a list: NumPy makes floats of integers beside floats
    elif kind == "f":
        # long doubles: each element is read by itself, below
        array = array.astype(object)
    if array.dtype == object:
        return _of_objects(array, name)
    raise FormatError(f"`{name}` must hold real numbers, got dtype {array.dtype}; {_remedy_for(kind)}")


def as_integers(x: Any, name: str) -> Array:
    """Return integers as int64 or uint64, or as Python's if neither holds them all.

    Raises:
        FormatError: a number that is not written as an integer.
    """
    array = as_numbers(x, name)
    if holds_integers(array):
        return array
    if array.size == 0:
        return array.astype(np.int64)
    raise FormatError(
        f"`{name}` must hold integers, got {array.flat[0]} of dtype {array.dtype}; convert them with "
        ".astype(np.int64) if each is whole"
    )


def holds_integers(array: Array) -> bool:
    """Return whether an array of numbers holds integers, written as such."""
    return array.dtype.kind in "iu" or (array.dtype == object and all(isinstance(e, int) for e in array.flat))


def as_words(integers: list[int], shape: tuple[int, ...]) -> Array | None:
    """Return integers of Python as int64, else as uint64, in a shape; None if neither holds them all."""
    low, high = min(integers, default=0), max(integers, default=0)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return np.array(integers, dtype).reshape(shape)
    return None


def as_floats(numbers: list[Any], shape: tuple[int, ...]) -> Array | None:
    """Return numbers of Python as float64, in a shape; None if it does not hold each of them exactly."""
    near = [_as_float(e) for e in numbers]
    if all(n is not None and (n == e or n != n) for n, e in zip(near, numbers, strict=True)):  # NaN is NaN
        return np.array(near, np.float64).reshape(shape)
    return None


def as_codes(fmt: Format, codes: Any) -> NDArray[np.uint64]:
    """Return codes of a format.

    Raises:
        FormatError: something else than integers, or a code that does not fit the width.
    """
    array = as_integers(codes, "codes")
    require_all(fmt, array, (array >= 0) & (array <= fmt.n_codes - 1), what="code")
    return array.astype(np.uint64)


def nearest_floats(array: Array) -> Array:
    """Return numbers as float32 if they are that, or as the nearest float64; beyond it, as infinity."""
    if array.dtype != object:
        return array if array.dtype.kind == "f" else array.astype(np.float64)
    # None stands for a number beyond float64
    beyond = {True: math.inf, False: -math.inf}  # Python raises OverflowError where NumPy writes infinity
    near = [_as_float(e) for e in array.flat]
    return np.array([beyond[e > 0] if n is None else n for n, e in zip(near, array.flat, strict=True)]).reshape(
        array.shape
    )


def as_fraction(x: Any) -> Fraction | None:
    """Return an element of an array of numbers as a fraction; None for infinities and NaN."""
    return None if isinstance(x, float) and not math.isfinite(x) else Fraction(x)


def _as_array(x: Any, name: str) -> Any:
    if type(x).__module__.partition(".")[0] == "torch":
        # by name, so that PyTorch is not imported for this question
        x = _of_torch(x)
    try:
        return np.asarray(x)
    except (ValueError, TypeError, OverflowError) as error:
        ragged = "inhomogeneous" in str(error)
        trouble = "lists of different lengths" if ragged else type(x).__name__
        remedy = "make all rows of one length" if ragged else "turn it into a NumPy array first"
        raise FormatError(f"`{name}` must be an array of real numbers, got {trouble}; {remedy}") from None


def _of_torch(x: Any) -> Any:
    """Return a tensor of PyTorch as one that NumPy reads: without its gradient, on the host.

    NumPy has no bfloat16 and no float8: float32 holds each of their numbers.
    """
    if not hasattr(x, "detach"):
        return x
    x = x.detach().cpu()
    is_narrow = str(x.dtype).startswith(("torch.bfloat16", "torch.float8", "torch.float4"))
    return x.float() if is_narrow else x.resolve_conj().resolve_neg()


def _unmasked(x: Any, name: str, most_axes: int = 64) -> Any:
    """Return `x` without its mask; refuse masked elements, and values with a format inside lists.

    Lists nested deeper than NumPy's arrays have axes are left to NumPy, which refuses them.
    """
    from emu.formats.value import Value  # which is built on formats, and they on this module

    if isinstance(x, np.ma.MaskedArray):
        given = cast("Any", x)
        masked = np.argwhere(np.ma.getmaskarray(given))
        if masked.size or x is np.ma.masked:
            where = f"a masked one at index {tuple(masked[0].tolist())}" if x.ndim else "a masked one"
            raise FormatError(
                f"every element of `{name}` must be a number, got {where}; fill the mask with x.filled(0), or drop it "
                "with x.compressed()"
            )
        return np.ma.getdata(given)
    if isinstance(x, (list, tuple)) and most_axes:
        for element in cast("list[Any]", x):
            if isinstance(element, (list, tuple, np.ma.MaskedArray)):
                _unmasked(element, name, most_axes - 1)
            elif isinstance(element, Value):
                raise FormatError(
                    f"`{name}` must hold numbers, got a list with a value of {element.format}; stack arrays first, and "
                    "make a value of the whole"
                )
    return cast("Any", x)


def _of_registered(array: Array, name: str) -> Array:
    """Return the numbers of an array whose dtype another package registered."""
    for dtype in (np.int64, np.float32, np.float64):
        if np.can_cast(array.dtype, dtype):
            return array.astype(dtype)
    raise FormatError(f"`{name}` must hold real numbers, got dtype {array.dtype}; convert it to float64 first")


def _quietly(array: Array, dtype: Any) -> Array:
    """Return floats in another dtype; a signalling NaN becomes a quiet one without NumPy's warning."""
    with np.errstate(invalid="ignore"):
        return array.astype(dtype)


def _may_have_lost_integers(array: Array) -> bool:
    return bool(array.size) and bool((np.abs(array[np.isfinite(array)]) >= _FIRST_LOST_INTEGER).any())


def _of_objects(array: Array, name: str) -> Array:
    exact = [_number(e, name) for e in array.flat]
    shape = array.shape
    # integers alone stay integers: of a format that carries raws they are raws, not values
    if all(isinstance(e, int) for e in exact):
        words = as_words([int(e) for e in exact], shape)
        return _objects(exact, shape) if words is None else words  # raws, if a carrier holds raws
    floats = as_floats(exact, shape)
    if floats is not None:
        return floats
    # infinities and NaN, of which as_fraction is None, stay floats
    return _objects([e if as_fraction(e) is None else Fraction(e) for e in exact], shape)


def _objects(elements: list[Any], shape: tuple[int, ...]) -> Array:
    # np.array(elements) would choose the dtype itself
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def _as_float(e: int | float | Fraction) -> float | None:
    try:
        return float(e)
    except OverflowError:
        return None


def _number(e: Any, name: str) -> int | float | Fraction:
    """Return one element as a Python number, exactly."""
    if isinstance(e, (bool, np.bool_, numbers.Integral)):
        return int(cast("Any", e))
    if isinstance(e, float):
        return e
    is_decimal = isinstance(e, Decimal)
    if is_decimal and (not e.is_finite() or e == 0):  # the sign of a zero stays
        return float("nan") if e.is_nan() else float(e)  # float() refuses a signalling one
    if isinstance(e, numbers.Rational) or (is_decimal and abs(e.adjusted()) <= _MOST_DIGITS):
        return Fraction(e)
    # what is no scalar of NumPy stands as a plain float64 here, and is refused below
    generic = cast("Any", e) if isinstance(e, np.generic) else np.float64(0)
    if generic.dtype.isbuiltin == _REGISTERED:
        return _of_registered(np.asarray(generic), name).item()
    if isinstance(e, np.floating):  # a long double
        is_float = generic == 0 or not np.isfinite(generic)  # the sign of a zero stays
        return float(generic) if is_float else Fraction(*generic.as_integer_ratio())
    raise FormatError(f"every element of `{name}` must be a real number, got {shown(e)}; give floats or integers")


def _remedy_for(kind: str) -> str:
    text = "convert text by .astype(float)"
    return {"c": "take its .real and its .imag", "U": text, "S": text}.get(kind, "give floats or integers")
