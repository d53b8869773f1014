"""Room for results, used again: a fresh page costs more than the arithmetic on it.

An array's memory belongs to a `_Block`; when the last view of it is gone, the block gives its room back, and the next
result of that size takes it.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Smaller arrays, in bytes, are left to the allocator, which keeps their pages itself; no more than so many bytes are
#: kept here.
FEWEST_BYTES, KEPT_BYTES = 1 << 16, 1 << 28
#: Alignment of every room, in bytes: a cache line, and the widest vector. Sizes are whole pages, so that results of
#: nearly the same size share rooms.
ALIGNMENT, PAGE = 64, 4096
#: Where NumPy's array object holds the address of its elements: behind the header of every Python object
#: (`PyArrayObject_fields` of its C interface).
_ADDRESS_AT = object.__basicsize__
_word_at = ctypes.c_size_t.from_address
_free: dict[int, list[Array]] = {}
_kept = [0]  # a list, so that `__del__` can change it by its default argument


class _Block:
    """Owns the room of one array while any view of it lives."""

    def __init__(self, room: Array, address: int) -> None:
        self._room = room
        shape, data = (room.size - ALIGNMENT,), (address, False)
        self.__array_interface__ = {"shape": shape, "typestr": "|u1", "data": data, "version": 3}

    # default arguments: when the interpreter ends, the module's names may be gone before the last array
    def __del__(self, free: dict[int, list[Array]] = _free, kept: list[int] = _kept) -> None:
        # a room beyond the limit is not kept, and so freed
        if kept[0] + self._room.size <= KEPT_BYTES:
            kept[0] += self._room.size
            free.setdefault(self._room.size, []).append(self._room)


def _asked_address(array: Array) -> int:
    """Return the address of an array's first element, as NumPy tells it."""
    address: int = array.__array_interface__["data"][0]
    return address


def _read_address(array: Array) -> int:
    """Return the address of an array's first element, from the array object: a third of the time of asking."""
    # a number of NumPy has the attributes of an array, and its value where an array has the address
    assert isinstance(array, np.ndarray), type(array)
    return _word_at(id(array) + _ADDRESS_AT).value


def _is_read_right() -> bool:
    """Return whether this interpreter lays array objects out as `_read_address` reads them."""
    if sys.implementation.name != "cpython":  # elsewhere `id` is no address
        return False
    whole = np.zeros((4, 4), np.int64)
    return all(_read_address(x) == _asked_address(x) for x in (whole, whole[1:, 2:], whole.T[::-1]))


#: Returns the address of an array's first element; keep the array as long as the address is used.
address_of = _read_address if _is_read_right() else _asked_address


def release() -> None:
    """Give all rooms that are kept back to the system."""
    _free.clear()
    _kept[0] = 0


def empty(shape: tuple[int, ...], dtype: np.dtype[Any] | type[Any]) -> Array:
    """Return an array without content; a large one is aligned to 64 bytes, in room used before if there is some."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < FEWEST_BYTES:
        return np.empty(shape, kind)
    # room for the alignment comes on top; rooms are kept by this size
    whole = -(-size // PAGE) * PAGE + ALIGNMENT
    try:  # no test beforehand: another thread may take the last room in between
        room = _free[whole].pop()
        _kept[0] -= whole
    except (KeyError, IndexError):
        room = np.empty(whole, np.uint8)
    # the spare bytes let the start move up to a multiple of ALIGNMENT
    start = address_of(room)
    # NumPy keeps `_Block` as the base of the array, and of each view of it
    block = np.asarray(_Block(room, start + -start % ALIGNMENT))
    return block[:size].view(kind).reshape(shape)
