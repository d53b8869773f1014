"""Checks of arrays that fixed and floating formats share: dtypes, ranges, the first element outside a format."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import FormatError

if TYPE_CHECKING:  # formats are built on these functions
    from emu.formats.parse import Format

#: Bits of the widest format whose codes are listed, and whose functions are tables: 65536 codes at most.
MAX_ENUMERABLE_BITS = 16
_MOST_CHARACTERS = 40
#: Integers of more bits are not written out: Python refuses texts of more than 4300 digits, about 14,000 bits.
_MOST_BITS = 10_000
# 1 and 0 are refused: 1 == True, so that a cache would mix up what was made of each
_BOOLS: tuple[type[Any], ...] = (bool, np.bool_)


def as_bool(name: str, value: Any) -> bool:
    """Return `value` as a bool, NumPy's included.

    Raises:
        FormatError: `value` is not a bool.
    """
    if isinstance(value, _BOOLS):
        return bool(value)
    raise FormatError(f"`{name}` must be True or False, got {value!r}")


def code_dtype_for(width_bits: int) -> np.dtype[Any]:
    """Return the smallest unsigned dtype of at least `width_bits` bits.

    Examples:
        >>> code_dtype_for(9)
        dtype('uint16')
    """
    return next(np.dtype(f"uint{n}") for n in (8, 16, 32, 64) if width_bits <= n)


def as_float64(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return `values` in float64. A signalling NaN becomes a quiet one, without NumPy's warning."""
    with np.errstate(invalid="ignore"):
        return np.asarray(values).astype(np.float64)


def require_codes(fmt: Format) -> NDArray[Any]:
    """Return all codes of a format of up to 16 bits, in order."""
    if fmt.width_bits > MAX_ENUMERABLE_BITS:
        raise FormatError(
            f"a format whose codes are listed must have at most {MAX_ENUMERABLE_BITS} bits, "
            f"{fmt} has {fmt.width_bits}; encode the values you need instead"
        )
    # uint32 first, since the end of the range, 65536 for 16 bits, is no uint16
    return np.arange(1 << fmt.width_bits, dtype=np.uint32).astype(code_dtype_for(fmt.width_bits))


def shown(element: Any) -> str:
    """Return an element as a text of at most 40 characters; of a longer one, its type and length."""
    if isinstance(element, (Fraction, int)):
        bits = max(element.numerator.bit_length(), element.denominator.bit_length())
        if bits > _MOST_BITS:
            return f"{_kind(element)} of {bits} bits"
    text = str(element) if isinstance(element, (Fraction, int)) else repr(element)
    return text if len(text) <= _MOST_CHARACTERS else f"{_kind(element)} of {len(text)} characters"


def _kind(element: object) -> str:
    name = type(element).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def require_all(fmt: object, array: NDArray[Any], inside: NDArray[np.bool_], *, what: str = "value") -> None:
    """Raise FormatError unless all elements are inside `fmt`: with the first one outside, its index, the remedy.

    Args:
        fmt: a format.
        array: elements of any shape.
        inside: which of them belong to the format.
        what: they are values, raws or codes.
    """
    if inside.all():
        return
    index = tuple(int(i) for i in np.argwhere(~inside)[0]) if array.ndim else ()
    element = array[index]
    count = int((~inside).sum())
    others = f" ({count} such elements)" if count > 1 else ""
    remedies = {"value": "quantize it first", "code": "mask it to the width", "raw": "saturate or wrap it first"}
    raise FormatError(
        f"every {what} must belong to {fmt}, got {shown(element)} at index {index}{others}; {remedies[what]}"
    )
