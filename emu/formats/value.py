"""A value: an array and its format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.errors import FormatError, ShapeError


@dataclass(frozen=True, eq=False)
class Value(Drawn):
    """An array with its format. Every operation takes such values, and the operations of an `emu.Unit` return them.

    `emu.value(array, "fp16")` makes one and checks it. NumPy reads the array of a value: `np.asarray(v)`.

    Attributes:
        array: carrier array, of any namespace.
        format: a number format; None for plain floats, and for integers that are not operands (labels, indices).

    Raises:
        FormatError: `format` is no format.

    Examples:
        >>> from emu.formats import parse
        >>> Value(np.float32([0.5, -1.0]), parse("fix8f4"))
        Value([ 0.5, -1. ], 'fix8f4')
    """

    array: Any
    format: Any = None

    def __post_init__(self) -> None:
        # anything with a carrier is a format; a text, the usual mistake, has none
        if self.format is not None and not hasattr(self.format, "carrier"):
            raise FormatError(
                f"`format` of a value must be a format, got {self.format!r}; emu.value(x, FORMAT) takes its text"
            )

    def __getstate__(self) -> tuple[dict[str, Any], bool]:
        """Return what a copy holds, and whether its array is read-only: pickles of arrays do not say so."""
        return self.__dict__, _is_read_only(self.array)

    def __setstate__(self, state: tuple[dict[str, Any], bool]) -> None:
        parts, read_only = state
        self.__dict__.update(parts)
        if read_only:
            _protect(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    @property
    def codes(self) -> NDArray[np.unsignedinteger[Any]]:
        """The bits of every element, in the unsigned dtype of `format.encode`, shape of the array."""
        return self.format.encode(np.asarray(self.array))

    def __getitem__(self, index: Any) -> Value:
        """Return a selection, by the rules of NumPy, in the same format."""
        return self._selected(self.array[index])

    def reshape(self, *shape: int | tuple[int, ...]) -> Value:
        """Return the elements in another shape, in the same format."""
        return self._selected(self.array.reshape(*shape))

    def _selected(self, array: Any) -> Value:
        """Return elements of this value as a value of their own, read-only if this is, even if NumPy copied them."""
        if _is_read_only(self.array):
            _protect(array)
        return self.with_array(array)

    def item(self) -> float | int:
        """Return the only element as a Python number."""
        return self.array.item()

    def __float__(self) -> float:
        """Return the value of the only element.

        Raises:
            ShapeError: there is not exactly one element.
            FormatError: it is no float64, as integers above 2**53 may not be.
        """
        element = self._only("float")
        # a float carrier holds the value itself; a raw must be scaled first
        if isinstance(element, float) and not self._is_raw:
            return element
        exact = self._exact(element)
        try:
            near = float(exact)
        except OverflowError:
            # beyond float64: no infinity equals an exact number, so that the message below follows
            near = math.inf
        if near != exact:
            raise FormatError(
                f"float() of a value must be exact, got {self._shown()}, which is no float64; take `.item()`, the raw "
                "integer"
            )
        return near

    def __int__(self) -> int:
        """Return the value of the only element, which is an integer: nothing is rounded, unlike `int(2.5)` of Python.

        Raises:
            ShapeError: there is not exactly one element.
            FormatError: it is no integer.
        """
        element = self._only("int")
        # NaN and infinities have no fraction
        if math.isfinite(element) and (exact := self._exact(element)).denominator == 1:
            return int(exact)
        raise FormatError(
            f"int() of a value must be exact, got {self._shown()}, which is no integer; take int(float(value)) to drop "
            "the fraction, or emu.round_to_integral"
        )

    def _only(self, function: str) -> float | int:
        if math.prod(self.shape) != 1:
            raise ShapeError(
                f"{function}() of a value must have one element, got shape {tuple(self.shape)}; select one, as v[0], "
                "or take `.tolist()`"
            )
        return self.item()

    @property
    def _is_raw(self) -> bool:
        return self.format is not None and self.format.carries_raws

    def _exact(self, element: float) -> Fraction:
        return Fraction(element) * Fraction(2) ** (-self.format.frac_bits if self._is_raw else 0)

    def _shown(self) -> str:
        return f"{self.item()!r}" + (f" * 2**{-self.format.frac_bits}" if self._is_raw else "")

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return self.array.tolist()

    def with_array(self, array: Any) -> Value:
        """Return another array with the same format: the result of a move, a selection or a reshape."""
        return made_value(array, self.format)

    def holding(self, results: Value) -> Value:
        """Return an operation's results, one for each stored element, as a value of this class.

        Values that store only some elements (`emu.sparse`) add the positions.
        """
        return results

    @property
    def index_bytes(self) -> int:
        """Bytes of the elements' positions: 0, because all elements are stored."""
        return 0

    @property
    def made_index_bytes(self) -> int:
        """Bytes of the indices that an operation writes beside a value if it has chosen its entries: 0 here."""
        return 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the array as NumPy's, for functions of NumPy; floats as they are, raws as integers."""
        return np.array(self.array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        """Return the array as a DLPack capsule, for `torch.from_dlpack` and its like: floats, raws as integers.

        A read-only array is copied: its consumer may write.
        """
        array = self.array.copy() if _is_read_only(self.array) else self.array
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where the array lies, as DLPack numbers it."""
        return self.array.__dlpack_device__()

    def __repr__(self) -> str:
        shown = np.array2string(np.asarray(self.array), separator=", ", threshold=20, prefix="Value(")
        fmt = "None" if self.format is None else repr(str(self.format))
        return f"Value({shown}, {fmt})"


def made_value(array: Any, fmt: Any) -> Value:
    """Return a value whose format is known to be one: a third of the constructor's time, which checks it.

    A training step of a small network makes some hundred values.
    """
    value = object.__new__(Value)
    # past `__setattr__` of the frozen class, which refuses each assignment
    parts = value.__dict__
    parts["array"], parts["format"] = array, fmt
    return value


def _is_read_only(array: Any) -> bool:
    return isinstance(array, np.ndarray) and not array.flags.writeable


def _protect(array: Any) -> None:
    if isinstance(array, np.ndarray):  # NumPy gives a single element as a scalar, which cannot be changed
        array.flags.writeable = False
