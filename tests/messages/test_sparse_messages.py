"""What is wrong with a sparse matrix, in whole sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu import FormatError, ShapeError, sparse
from emu.formats import parse
from emu.sparse import CSR, Compact, update_rows


@pytest.mark.parametrize(
    ("data", "indices", "indptr", "shape", "message"),
    [
        ([1.0, 2], [0, 3], [0, 1, 2], (2, 3),
         "`indices` must be columns 0..2, got 3 at entry 1, row 1; choose another `shape`"),
        ([1.0, 2], [0, -1], [0, 1, 2], (2, 3),
         "`indices` must be columns 0..2, got -1 at entry 1, row 1; choose another `shape`"),
        ([1.0], [0], [0, 1], (1, 0),
         "`indices` must be empty where `shape` has no columns, got 0 at entry 0, row 0; choose another `shape`"),
        ([1.0, 2], [0, 1], [0, 2, 1, 2], (3, 3), "`indptr` must not descend, got 2 and then 1 at row 1; sort the rows"),
        ([1.0, 2], [0, 1], [0, 2], (2, 3),
         "`indptr` must have rows + 1 = 3 elements, got 2; say where each row begins, and the end"),
        (
            [1.0, 2], [0, 1], [0, 1, 1], (2, 3),
            "`indptr` must begin with 0 and end with the number of entries, 2, got 0 and 1; say where "
            "each row begins, and the end",
        ),
        (
            [1.0], [0, 1], [0, 1, 2], (2, 3),
            "`data` and `indices` must have one element per entry, got shapes (1,) and (2,); give a column for each",
        ),
        ([1.0], [[0]], [0, 1], (1, 3), "`indices` must have one dimension, got shape (1, 1); flatten it"),
        ([1.0], [[0], [1, 2]], [0, 1], (1, 3),
         "`indices` must have one dimension, got lists of different lengths; give one list of integers"),
        *(
            (
                [1.0], [0], [0, 1], shape,
                f"`shape` must be rows and columns, 0 or more, got {got}; write (rows, columns)",
            )
            for shape, got in [
                ((1, -3), "(1, -3)"), ((1,), "(1,)"), ((1, 3, 4), "(1, 3, 4)"), (1, "(1,)"), ((1, 3.5), "(1, 3.5)"),
            ]
        ),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_together_are_named(data: Any, indices: Any, indptr: Any, shape: Any, message: str):
    with pytest.raises(ShapeError) as error:
        CSR.of(np.float32(data), indices, indptr, shape, "fp32")
    assert str(error.value) == message


def test_indices_that_are_no_integers_are_refused():
    with pytest.raises(FormatError, match="`indices` must hold integers, got dtype float64"):
        CSR.of(np.float32([1]), [0.0], [0, 1], (1, 1), "fp32")
    beyond = np.array([2**64 - 3], np.uint64)
    with pytest.raises(
        FormatError, match=r"`indices` must hold integers below 2\*\*63, got 18446744073709551613; give"
    ):
        CSR.of(np.float32([1]), beyond, [0, 1], (1, 1), "fp32")


@pytest.mark.parametrize(("indices", "trouble"), [([2, 1], "column 1 behind column 2"), ([1, 1], "column 1 twice")])
def test_columns_out_of_order_or_twice_are_refused_where_asked(indices: list[int], trouble: str):
    given = (np.float32([1, 2]), indices, [0, 0, 2], (2, 3), "fp32")
    assert CSR.of(*given).nnz == 2
    with pytest.raises(ShapeError) as error:
        CSR.of(*given, canonical=True)
    assert str(error.value) == (
        f"columns must ascend in each row, none of them twice (canonical=True), got {trouble} in row 1; sort and "
        "merge them"
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


@pytest.mark.parametrize(
    ("product", "options"),
    [
        (sparse.matmul, {"w_format": "fp32"}),
        (sparse.compact_matmul, {"w_format": "fp32"}),
        (sparse.transposed_matmul, {"dy_format": "fp32"}),
    ],
)
def test_a_dense_array_is_sent_to_from_dense(product: Any, options: dict[str, str]):
    with pytest.raises(ShapeError) as error:
        product(np.eye(3), np.eye(3), out_format="fp32", **options)
    text = "`x` must be an emu.sparse.CSR, got ndarray; make one with CSR.from_dense(x, FORMAT)"
    assert str(error.value) == text
    with pytest.raises(ShapeError) as error:
        emu.explain(product, np.eye(3), np.eye(3), out_format="fp32", **options)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("rows", "shape", "message"),
    [
        (
            [1, 4], (2, 2),
            "`rows` must be rows 0..3 of the matrix, got 4 at index 1; choose rows of the matrix, or another `height`",
        ),
        (
            [-1, 2], (2, 2),
            "`rows` must be rows 0..3 of the matrix, got -1 at index 0; choose rows of the matrix, or another `height`",
        ),
        (
            [0, 3, 1], (3, 2),
            "`rows` must ascend, none of them twice, got row 1 behind row 3 at index 2; sort them, and add up the "
            "values of equal ones",
        ),
        (
            [0, 1, 1], (3, 2),
            "`rows` must ascend, none of them twice, got row 1 twice at index 2; sort them, and add up the values of "
            "equal ones",
        ),
        ([0, 1], (3, 2), "`values` must have a row for each of the 2 `rows`, shape (2, H), got (3, 2); reshape them"),
        ([0, 1], (2,), "`values` must have a row for each of the 2 `rows`, shape (2, H), got (2,); reshape them"),
        ([[0, 1]], (2, 2), "`rows` must have one dimension, got shape (1, 2); flatten it"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_written_in_place_are_named(rows: Any, shape: tuple[int, ...], message: str):
    with pytest.raises(ShapeError) as error:
        Compact(np.array(rows), np.ones(shape, np.float32), 4, parse("fp32"))
    assert str(error.value) == message


def test_rows_of_a_matrix_without_rows_are_refused():
    with pytest.raises(ShapeError, match="`rows` must be empty where `height` is 0, got 2 at index 0; choose rows of"):
        Compact(np.array([2]), np.ones((1, 2), np.float32), 0, parse("fp32"))


def test_rows_and_values_of_another_kind_are_refused():
    with pytest.raises(FormatError, match="`rows` must hold integers, got dtype float64"):
        Compact(np.array([0.0]), np.ones((1, 2), np.float32), 4, parse("fp32"))
    with pytest.raises(ShapeError, match="`values` must be an array of carriers, got list"):
        Compact(np.array([0]), [[1.0, 1.0]], 4, parse("fp32"))  # pyright: ignore[reportArgumentType]


def test_weights_that_cannot_be_written_are_refused_before_anything_is_computed():
    gradient = Compact(np.array([0]), np.ones((1, 2), np.float32), 4, parse("fp32"))
    frozen, flags = np.ones((4, 2), np.float32), emu.Flags()
    frozen.flags.writeable = False
    for w in (frozen, np.ones((4, 2), np.dtype(np.float32).newbyteorder())):
        with pytest.raises(ShapeError, match="`w` must be writable in this machine's byte order, got an array that"):
            update_rows(w, gradient, 0.1, w_format="fp32", update_format="fp8_e4m3", flags=flags)
    assert flags == emu.Flags()


def test_a_gradient_for_other_weights_is_refused():
    gradient = Compact(np.array([0]), np.ones((1, 2), np.float32), 4, parse("fp32"))
    with pytest.raises(ShapeError, match=r"`w` must have the gradient's shape \(4, 2\), got \(3, 2\)"):
        update_rows(np.ones((3, 2), np.float32), gradient, 0.1, w_format="fp32", update_format="fp32")
