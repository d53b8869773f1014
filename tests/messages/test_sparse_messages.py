"""What is wrong with a sparse matrix, in whole sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu import FormatError, ShapeError, sparse
from emu.formats import parse
from emu.sparse import CSR, Compact, update_rows


@pytest.mark.parametrize(
    ("data", "indices", "indptr", "shape", "message"),
    [
        ([1.0, 2], [0, 3], [0, 1, 2], (2, 3), "`indices` must be columns 0..2, got 3 at entry 1, row 1"),
        ([1.0, 2], [0, -1], [0, 1, 2], (2, 3), "`indices` must be columns 0..2, got -1 at entry 1, row 1"),
        ([1.0, 2], [0, 1], [0, 2, 1, 2], (3, 3), "`indptr` must not descend, got 2 and then 1 at row 1"),
        ([1.0, 2], [0, 1], [0, 2], (2, 3), "`indptr` must have rows + 1 = 3 elements, got 2"),
        (
            [1.0, 2], [0, 1], [0, 1, 1], (2, 3),
            "`indptr` must begin with 0 and end with the number of entries, 2, got 0 and 1",
        ),
        (
            [1.0], [0, 1], [0, 1, 2], (2, 3),
            "`data` and `indices` must have one element per entry, got shapes (1,) and (2,)",
        ),
        ([1.0], [[0]], [0, 1], (1, 3), "`indices` must have one dimension, got shape (1, 1)"),
        ([1.0], [0], [0, 1], (1, -3), "`shape` must be rows and columns, 0 or more, got (1, -3)"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_together_are_named(data: Any, indices: Any, indptr: Any, shape: Any, message: str):
    with pytest.raises(ShapeError) as error:
        CSR.of(np.float32(data), indices, indptr, shape, "fp32")
    assert str(error.value) == message


def test_indices_that_are_no_integers_are_refused():
    with pytest.raises(FormatError, match="`indices` must hold integers, got dtype float64"):
        CSR.of(np.float32([1]), [0.0], [0, 1], (1, 1), "fp32")


@pytest.mark.parametrize(("indices", "trouble"), [([2, 1], "column 1 behind column 2"), ([1, 1], "column 1 twice")])
def test_columns_out_of_order_or_twice_are_refused_where_asked(indices: list[int], trouble: str):
    given = (np.float32([1, 2]), indices, [0, 0, 2], (2, 3), "fp32")
    assert CSR.of(*given).nnz == 2
    with pytest.raises(ShapeError) as error:
        CSR.of(*given, canonical=True)
    assert str(error.value) == (
        f"columns must ascend in each row, none of them twice (canonical=True), got {trouble} in row 1"
    )


def test_a_dense_matrix_has_no_place_for_a_column_twice():
    x = CSR.of(np.float32([1, 2]), [1, 1], [0, 2], (1, 3), "fp32")
    with pytest.raises(
        ShapeError, match="a dense matrix has one value per place, got column 1 twice in row 0; multiply by"
    ):
        x.to_dense()


def test_nan_where_the_format_has_none_is_named_with_its_place():
    with pytest.raises(FormatError, match=r"`data`: .*got .*nan.* at index \(1,\)"):
        CSR.of(np.array([1, np.nan]), [0, 1], [0, 2], (1, 2), "fix8f4")


def test_operands_that_do_not_fit_are_named():
    x = CSR.from_dense(np.eye(3), "fp32")
    with pytest.raises(
        ShapeError, match=r"`w` must be a matrix of 3 rows beside this sparse matrix, got shape \(2, 2\)"
    ):
        sparse.matmul(x, np.eye(2), w_format="fp32", out_format="fp32")
    with pytest.raises(
        ShapeError, match=r"`dy` must be a matrix of 3 rows beside this sparse matrix, got shape \(3,\)"
    ):
        sparse.transposed_matmul(x, np.ones(3), dy_format="fp32", out_format="fp32")
    with pytest.raises(ShapeError, match=r"the addend must broadcast to the result \(3, 3\), got shape \(2,\)"):
        sparse.matmul(x, np.eye(3), w_format="fp32", out_format="fp32", addend=[1, 2], addend_format="fp32")
    with pytest.raises(FormatError, match="`addend_format` must be given with `addend`"):
        sparse.matmul(x, np.eye(3), w_format="fp32", out_format="fp32", addend=1.0)
    with pytest.raises(TypeError, match="has no option 'roundng'; did you mean 'rounding'"):
        sparse.matmul(x, np.eye(3), w_format="fp32", out_format="fp32", roundng="floor")


def test_a_gradient_for_other_weights_is_refused():
    gradient = Compact(np.array([0]), np.ones((1, 2), np.float32), 4, parse("fp32"))
    with pytest.raises(ShapeError, match=r"`w` must have the gradient's shape \(4, 2\), got \(3, 2\)"):
        update_rows(np.ones((3, 2), np.float32), gradient, 0.1, w_format="fp32", update_format="fp32")
