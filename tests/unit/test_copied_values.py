"""What was checked once stays a value of its format: copies, pickles and selections are read-only as well."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emu
from emu.sparse import CSR
from emu.sparse.value import RowsValue, SparseValue

FMT = "fix8f4"
COPIES: dict[str, Callable[[Any], Any]] = {
    **{f"pickle {n}": lambda v, n=n: pickle.loads(pickle.dumps(v, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)},
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "twice": lambda v: copy.deepcopy(pickle.loads(pickle.dumps(v))),
    "in a list": lambda v: copy.deepcopy([v, v])[1],
}


def plain() -> emu.Value:
    return emu.value([[0.5, -1.0], [2.0, 0.0]], FMT)


def sparse() -> SparseValue:
    matrix = CSR.from_dense([[0, 2.0], [1, 0]], FMT)
    return SparseValue(matrix.data, matrix.format, matrix)


def rows() -> RowsValue:
    return RowsValue(plain().array, plain().format, np.array([0, 3]))


VALUES: dict[str, Callable[[], emu.Value]] = {
    "value": plain,
    "result": lambda: emu.Unit(FMT, inputs=FMT).add([0.5, 1.0], [1.0, 0.25]),
    "one element": lambda: emu.value([0.5], FMT),
    "sparse": sparse,
    "rows": rows,
}


@pytest.mark.parametrize("name", sorted(VALUES))
@pytest.mark.parametrize("how", sorted(COPIES))
def test_a_copy_is_read_only_and_the_same_value(name: str, how: str):
    value = VALUES[name]()
    other = COPIES[how](value)
    assert type(other) is type(value)
    assert (other.shape, other.format) == (value.shape, value.format)
    assert np.array_equal(other.array, value.array)
    with pytest.raises(ValueError, match="read-only"):
        other.array[...] = 1000
    assert other != value  # two values are the same only if they are one, as before
    assert len({value, other}) == 2


def test_the_parts_of_a_value_of_some_elements_are_copied_with_it():
    assert copy.deepcopy(sparse()).structure.indices.tolist() == [1, 0]  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(rows())).rows.tolist() == [0, 3]


def test_an_array_that_its_holder_may_write_stays_so():
    """Masters of an optimiser are written row by row."""
    value = emu.Value(np.zeros(3, np.float32), emu.parse("fp32"))
    for again in COPIES.values():
        other = again(value)
        other.array[0] = 1
        assert other.array.flags.writeable


@pytest.mark.parametrize(
    "move", [lambda v: v[0], lambda v: v[[1, 0]], lambda v: v[v.array > 0], lambda v: v[:, ::-1].reshape(4)]
)
def test_a_selection_is_read_only_even_where_numpy_copies(move: Callable[[Any], Any]):
    moved = move(plain())
    with pytest.raises(ValueError, match="read-only"):
        moved.array[...] = 1000
    assert emu.parse(FMT).contains(moved.array).all()


def test_one_element_of_a_value_is_a_value():
    assert plain()[1, 0].item() == 2.0
