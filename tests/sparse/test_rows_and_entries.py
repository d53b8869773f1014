"""Rows of a sparse matrix are chosen as NumPy chooses them, and entries are exchanged in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sparse_cases import random_matrix

from emu import FormatError, ShapeError, sparse
from emu.sparse import CSR
from emu.testing import assert_bits_equal

FMT = "fix8f0"


def matrix(rows: int, columns: int, seed: int) -> CSR:
    """Unsorted columns, some twice, zeros stored, rows without an entry."""
    return random_matrix(np.random.default_rng(seed), rows, columns, FMT, 4, special=False)


def entries_of(x: CSR) -> list[list[tuple[int, float]]]:
    """What each row stores, in order, read entry by entry."""
    rows: list[list[tuple[int, float]]] = []
    for r in range(x.shape[0]):
        places = range(int(x.indptr[r]), int(x.indptr[r + 1]))
        rows.append([(int(x.indices[p]), float(x.data[p])) for p in places])
    return rows


matrices = st.builds(matrix, st.integers(0, 7), st.integers(0, 5), st.integers(0, 2**32 - 1))
bounds = st.none() | st.integers(-9, 9)
slices = st.builds(slice, bounds, bounds, st.none() | st.integers(-4, 4).filter(bool))


def assert_chooses_as_a_list_does(x: CSR, chosen: Any, expected: list[list[tuple[int, float]]]) -> None:
    found = x[chosen]
    assert entries_of(found) == expected
    assert (found.shape, len(found)) == ((len(expected), x.shape[1]), len(expected))
    assert found.size == found.nnz == sum(map(len, expected))
    used = sorted({column for row in expected for column, _ in row})
    assert found.unique_columns.tolist() == used
    assert found.transpose_index.tolist() == [used.index(column) for row in expected for column, _ in row]
    assert (found.indices.dtype, found.data.dtype, found.format) == (x.indices.dtype, x.data.dtype, x.format)


@given(matrices, slices)
def test_a_slice_of_any_step_gives_these_rows_e1(x: CSR, chosen: slice):
    x.columns()  # built: those of the rows chosen are others
    assert_chooses_as_a_list_does(x, chosen, entries_of(x)[chosen])


@given(matrices, st.lists(st.integers(-10, 10), max_size=12))
def test_integers_give_rows_in_their_order_repeated_and_from_the_end_as_numpy_e1(x: CSR, wanted: list[int]):
    chosen = np.array(wanted, np.int64)
    rows = entries_of(x)
    if any(not -len(x) <= i < len(x) for i in wanted):
        with pytest.raises(IndexError) as theirs:
            np.zeros(len(x))[chosen]
        with pytest.raises(IndexError) as ours:
            x[chosen]
        assert str(ours.value) == str(theirs.value)
        return
    assert_chooses_as_a_list_does(x, chosen, [rows[i] for i in wanted])


@given(matrices, st.data())
def test_a_mask_gives_the_rows_where_it_is_true_e1(x: CSR, data: st.DataObject):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))), bool)
    assert_chooses_as_a_list_does(x, mask, [row for row, kept in zip(entries_of(x), mask, strict=True) if kept])


@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(0, 5), slices, st.lists(st.integers(-3, 2)))
def test_rows_of_a_dense_matrix_and_of_its_entries_are_the_same_e1(
    seed: int, rows: int, columns: int, part: slice, wanted: list[int]
):
    rng = np.random.default_rng(seed)
    dense = rng.integers(-3, 4, (rows, columns)) * rng.integers(0, 2, (rows, columns))
    x = CSR.from_dense(dense, FMT)
    assert (x[part].to_dense() == dense[part]).all()
    if rows >= 3:
        assert (x[np.array(wanted, int)].to_dense() == dense[np.array(wanted, int)]).all()


@given(matrices, slices, slices)
def test_rows_of_rows_are_rows_e1(x: CSR, one: slice, other: slice):
    assert entries_of(x[one][other]) == entries_of(x)[one][other]


@pytest.mark.parametrize("chosen", [2, np.int64(1), None, [[0, 1], [1, 2]]])
def test_what_names_no_row_of_rows_is_refused(chosen: Any):
    with pytest.raises(ShapeError) as caught:
        matrix(4, 3, 1)[chosen]
    assert str(caught.value) == (
        f"rows must be chosen by a slice or by a vector of integers, got {chosen!r}; `x[3:4]` is one row"
    )


@pytest.mark.parametrize("chosen", [(1, 2), [0.5], [True, False]])
def test_what_numpy_refuses_is_refused(chosen: Any):
    with pytest.raises(IndexError):
        matrix(4, 3, 1)[chosen]


@given(matrices, st.booleans(), st.integers(0, 2**32 - 1))
def test_other_entries_have_the_same_places_e1(x: CSR, is_built: bool, seed: int):
    if is_built:
        x.columns(), x.by_rows, x.by_used_rows, x.row_index, x.rows
    data = np.random.default_rng(seed).integers(-8, 8, x.nnz) / 4
    other = x.with_data(data, "fix6f2")
    afresh = CSR.of(data, x.indices, x.indptr, x.shape, "fix6f2")
    assert entries_of(other) == entries_of(afresh)
    assert other.format == afresh.format
    for name in ("unique_columns", "transpose_index", "unique_rows", "row_index", "rows"):
        assert getattr(other, name).tolist() == getattr(afresh, name).tolist()
    w = np.random.default_rng(seed).integers(-4, 4, (x.shape[1], 2)).astype(np.float64)
    dy = np.random.default_rng(seed).integers(-4, 4, (x.shape[0], 2)).astype(np.float64)
    given_formats = {"out_format": "fix32f4"}
    products = [sparse.matmul(one, w, w_format="fix4f0", **given_formats) for one in (other, afresh)]
    assert_bits_equal(*products, "fix32f4")
    gradients = [sparse.transposed_matmul(one, dy, dy_format="fix4f0", **given_formats) for one in (other, afresh)]
    assert_bits_equal(*(one.values for one in gradients), "fix32f4")


def test_what_is_built_once_is_shared_with_other_entries():
    x = matrix(6, 5, 3)
    v1, v2, pattern, used = x.transpose_index, x.unique_columns, x.by_rows, x.by_used_rows
    other = x.with_data(np.ones(x.nnz), "fp16")
    assert (other.transpose_index is v1, other.unique_columns is v2) == (True, True)
    assert (other.by_rows is pattern, other.by_used_rows is used) == (True, True)
    assert (other.indices is x.indices, other.indptr is x.indptr) == (True, True)
    known = CSR.from_dense([[0, 1.0], [2, 0]], "fp32")
    assert known.with_data([3, 4], "fp16").unique_columns is known.unique_columns


def test_other_entries_are_checked():
    x = CSR.from_dense([[0, 2.0], [1, 0]], "fp32")
    with pytest.raises(ShapeError) as shape:
        x.with_data(np.ones(3), "fp32")
    assert str(shape.value) == "`data` must have one element per entry, shape (2,), got (3,)"
    with pytest.raises(FormatError, match="`data`"):
        x.with_data([0.5, 300], "fix8f0")
    assert x.with_data(np.float32([0.5, 300]), "fp16", check=False).data.tolist() == [0.5, 300]
