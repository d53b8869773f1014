"""Room for results, and where arrays lie."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.backends import memory


def arrays() -> list[Any]:
    whole = np.arange(60.0).reshape(3, 4, 5)
    frozen = whole.copy()
    frozen.flags.writeable = False
    made = [memory.empty((size,), np.float32) for size in (1, 300, memory.FEWEST_BYTES // 4, 3 * memory.FEWEST_BYTES)]
    return [whole, whole[1], whole[::-1, 1:, 2], whole.T, whole[1, 2, 3:4], frozen, whole.view(np.recarray), *made]


@pytest.mark.parametrize("address_of", [memory.address_of, memory._read_address, memory._asked_address])
def test_the_address_of_an_array_is_where_its_first_element_lies(address_of: Any):
    for x in arrays():
        assert address_of(x) == x.ctypes.data


def test_a_number_is_no_array_and_has_no_address():
    with pytest.raises(AssertionError, match="float64"):
        memory._read_address(np.float64(1.0))


def test_addresses_are_read_only_from_objects_that_lie_as_expected(monkeypatch: pytest.MonkeyPatch):
    assert memory._is_read_right() == (sys.implementation.name == "cpython")
    monkeypatch.setattr(memory, "_ADDRESS_AT", memory._ADDRESS_AT + 8)  # the number of axes, not the address
    assert not memory._is_read_right()
    monkeypatch.undo()
    monkeypatch.setattr(memory.sys, "implementation", SimpleNamespace(name="pypy"))
    assert not memory._is_read_right()


def test_room_that_was_given_back_is_used_again_and_is_aligned():
    memory.release()
    shape = (memory.FEWEST_BYTES, 3)
    first = memory.empty(shape, np.float32)
    place = memory.address_of(first)
    assert place % memory.ALIGNMENT == 0
    assert first.shape == shape
    assert first.dtype == np.float32
    view = first[5:]
    del first
    assert memory.address_of(memory.empty(shape, np.float32)) != place  # a view lives
    del view
    assert memory.address_of(memory.empty(shape, np.float32)) == place


def test_no_more_than_the_limit_is_kept(monkeypatch: pytest.MonkeyPatch):
    memory.release()
    sizes = [memory.FEWEST_BYTES + n * memory.PAGE for n in range(3)]
    monkeypatch.setattr(memory, "KEPT_BYTES", sum(sizes[:2]) + 2 * memory.ALIGNMENT)
    rooms = [memory.empty((size,), np.uint8) for size in sizes]
    while rooms:
        del rooms[0]
    assert sorted(size for size, free in memory._free.items() if free) == [
        size + memory.ALIGNMENT for size in sizes[:2]
    ]
    assert memory._kept == [memory.KEPT_BYTES]
    memory.release()
    assert (memory._free, memory._kept) == ({}, [0])
