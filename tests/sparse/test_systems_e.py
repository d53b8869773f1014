"""System E with its very numbers: E0 forward, dense input; E1 V1, V2; E2 gradient; E3 update; E4 rows; E5 order."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sparse_cases import DY, random_matrix, small_matrix, values

import emu
from emu import Flags, Mac, StatisticsRegister, sparse
from emu.backends.reference.philox import random_integers
from emu.backends.registry import load
from emu.engine.description import UnitDescription
from emu.engine.records import ProductRecord
from emu.sparse import CSR, Compact
from emu.sparse.products import write_sparse
from emu.testing import assert_bits_equal

FLOAT: dict[str, Any] = {"out_format": "fp32", "mac": Mac(product="fp32", accumulator="fp32")}


def gradient_of(x: CSR, dy: Any, backend: str) -> Compact:
    return sparse.transposed_matmul(x, dy, dy_format="fp32", backend=backend, **FLOAT)


def test_v1_and_v2_of_the_example_are_those_of_the_text_e1(backend: str):
    x = CSR.from_dense(small_matrix().to_dense(), "fp32", backend=backend)
    assert x.unique_columns.tolist() == [0, 1, 4, 5]
    assert x.transpose_index.tolist() == [1, 2, 0, 1, 2, 3]


def test_used_columns_side_by_side_keep_all_rows_and_are_as_many_as_v2_e1(backend: str):
    x = small_matrix()
    side_by_side = x.used(backend)
    assert side_by_side.shape == (4, 4)
    assert side_by_side.to_dense().tolist() == x.to_dense()[:, [0, 1, 4, 5]].tolist()
    assert "known" not in repr(x), "two long arrays"


def test_a_backend_is_asked_for_every_column_of_the_matrix_e1(monkeypatch: pytest.MonkeyPatch):
    """It counts into an array of so many; with fewer it would count beyond its end."""
    x, asked, kernels = small_matrix(), list[int](), load("reference")
    through = type(kernels).columns
    monkeypatch.setattr(type(kernels), "columns", lambda self, i, n: asked.append(n) or through(self, i, n))
    CSR.of(x.data, x.indices, x.indptr, x.shape, x.format).columns("reference")
    CSR.from_dense(x.to_dense(), "fp32", backend="reference")
    assert asked == [6, 6]


def test_a_product_is_noted_with_its_entries_as_the_inner_size(backend: str):
    notes: list[ProductRecord] = []
    unit = UnitDescription.of("fp32", backend=backend)._replace(records=notes)
    x = small_matrix()
    write_sparse(unit, x, emu.value(np.ones((6, 3), np.float32), "fp32"), None, x.by_rows)
    assert [(note.sizes, note.multiply_adds) for note in notes] == [((1, 1, 6, 3), 18)]


def test_a_dense_operand_is_checked_unless_the_caller_says_so_and_explained_by_its_own_rows(backend: str):
    x, options = small_matrix("fix8f2"), {"out_format": "fix8f2", "backend": backend}
    products = {sparse.matmul: ("w_format", 6), sparse.compact_matmul: ("w_format", 6)}
    for product, (name, rows) in (products | {sparse.transposed_matmul: ("dy_format", 4)}).items():
        dense = np.full((rows, 2), 0.3, np.float32)
        with pytest.raises(emu.FormatError, match=r"0\.3"):
            product(x, dense, **{name: "fix8f2"}, **options)
        product(x, dense, **{name: "fix8f2"}, **options, check=False)
        assert emu.explain(product, x, np.ones((rows, 2)), **{name: "fix8f2"}, **options).mac == Mac()


def test_a_column_twice_in_any_row_has_no_dense_matrix_and_a_matrix_without_rows_no_longest_one():
    for indptr, row in (([0, 2, 4], 1), ([0, 3, 4], 0)):
        x = CSR.of(np.ones(4, np.float32), [0, 1, 2, 2] if row else [0, 2, 2, 1], indptr, (2, 3), "fp32")
        with pytest.raises(emu.ShapeError, match=f"got column 2 twice in row {row}"):
            x.to_dense()
    assert CSR.of([], [], [0], (0, 3), "fp32").by_rows.longest == 0


def test_the_longest_column_is_the_most_terms_of_a_gradient_e1(backend: str):
    """Column 3 has five entries, no row has more than two."""
    dense = np.zeros((6, 5))
    dense[:5, 3], dense[1:3, 0] = 1, 2
    x = CSR.from_dense(dense, "fix8f2", backend=backend)
    again = CSR.of(x.data, x.indices, x.indptr, x.shape, x.format)
    for one in (x, again):
        assert (
            one.columns(backend).longest == one.by_columns(backend).longest == one.used(backend).columns().longest == 5
        )
        assert one.by_rows.longest == one.by_used_rows.longest == 2
    assert CSR.from_dense(np.zeros((2, 0)), "fp32", backend=backend).columns(backend).longest == 0


def test_a_register_has_the_positions_of_the_most_terms_that_a_result_has_e4(backend: str):
    """Products of 8 x 8 bits have 16, 4 of them fraction; 5 terms of a column take 3 more, 2 of a row take 2."""
    dense = np.zeros((6, 5))
    dense[:5, 3], dense[1:3, 0] = 1, 2
    x, options = CSR.from_dense(dense, "fix8f2"), {"out_format": "fix8f2", "backend": backend}
    forward, back, rows = (StatisticsRegister() for _ in range(3))
    sparse.matmul(x, np.ones((5, 2)), w_format="fix8f2", register=forward, **options)
    sparse.compact_matmul(x, np.ones((5, 2)), w_format="fix8f2", register=rows, **options)
    sparse.transposed_matmul(x, np.ones((6, 2)), dy_format="fix8f2", register=back, **options)
    assert [(one.lowest, one.bins) for one in (forward, rows, back)] == [(-4, 17), (-4, 17), (-4, 18)]


def test_the_gradient_of_the_example_is_that_of_the_text_e2(backend: str):
    found = gradient_of(small_matrix(), DY, backend)
    assert found.rows.tolist() == [0, 1, 4, 5]
    assert found.values.tolist() == [[0.5, 1], [3.5, 1], [1, 3], [-7, 14]]


def test_the_update_of_the_example_is_that_of_the_text_e3(backend: str):
    w = np.ones((6, 2), np.float32)
    gradient = gradient_of(small_matrix(), DY, backend)
    sparse.update_rows(w, gradient, 0.1, w_format="fp32", update_format="fp32", backend=backend)
    expected = np.array([[0.95, 0.9], [0.65, 0.9], [1, 1], [1, 1], [0.9, 0.7], [1.7, -0.4]])
    assert (
        np.abs(w - expected).max() <= 1.5 * 2.0**-23
    )  # 0.1 and -0.1 * 14 rounded to float32, and the sum: half an ulp each
    assert w[2:4].tolist() == [[1, 1], [1, 1]]


class Noting(np.ndarray):
    """An array that notes which rows are read and written by index."""

    def __new__(cls, data: Any) -> Noting:
        array = np.asarray(data).view(cls)
        array.noted = []
        return array

    def __array_finalize__(self, other: Any) -> None:
        self.noted = getattr(other, "noted", [])

    def __getitem__(self, key: Any) -> Any:
        self.noted.append(("read", np.asarray(key).tolist()))
        return np.asarray(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.noted.append(("written", np.asarray(key).tolist()))
        np.asarray(self)[key] = value


def test_an_update_reads_and_writes_the_rows_of_v2_alone_e3(backend: str):
    w = Noting(np.full((6, 2), np.nan, np.float32))  # a NaN that is read ends in the flags
    plain = np.asarray(w)
    plain[[0, 1, 4, 5]] = 1
    flags = Flags()
    options = {"w_format": "fp32", "update_format": "fp32", "flags": flags, "backend": backend}
    sparse.update_rows(w, gradient_of(small_matrix(), DY, backend), 0.1, **options)
    assert w.noted == [("read", [0, 1, 4, 5]), ("written", [0, 1, 4, 5])]
    assert np.isnan(plain[2:4]).all()
    assert flags.invalid == 0


def test_an_update_is_that_of_plain_gradient_descent_on_these_rows_e3(backend: str):
    x, dy, w = small_matrix(), np.float32(DY), np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
    gradient = gradient_of(x, dy, backend)
    update = emu.multiply(gradient.to_dense(), np.float32(-0.3), a_format="fp32", out_format="fp16")
    expected = emu.add(w, update, a_format="fp32", b_format="fp16", out_format="fp32")
    expected[[2, 3]] = w[[2, 3]]
    sparse.update_rows(w, gradient, 0.3, w_format="fp32", update_format="fp16", backend=backend)
    assert_bits_equal(w, expected, emu.parse("fp32"))


def test_the_product_and_the_sum_of_an_update_draw_random_bits_of_their_own_e3(backend: str):
    """The product draws stream 5, the sum stream 6: every element by hand, from the bits of each stream."""
    gradient = Compact(np.array([1, 3]), np.full((2, 64), 1.0, np.float32), 4, emu.parse("fp32"))
    w = np.full((4, 64), 0.25, np.float32)
    options = {"rounding": "stochastic", "n_rbits": 8, "seed": 9, "backend": backend}
    sparse.update_rows(w, gradient, 0.3, w_format="fix12f3", update_format="fix12f5", stream=5, **options)
    bits = [random_integers(128, 8, seed=9, stream=stream, step=0, draw=0).tolist() for stream in (5, 6)]
    exact = Fraction(float(np.float32(-0.3))) * 32
    for product_bits, sum_bits, found in zip(*bits, w[[1, 3]].ravel().tolist(), strict=True):
        product = math.floor(exact + Fraction(product_bits, 256))
        assert found * 8 == math.floor(Fraction(product, 4) + 2 + Fraction(sum_bits, 256))
    assert bits[0] != bits[1]


def test_the_forward_product_and_its_rows_alone_agree_e0_e4(backend: str):
    x, w = small_matrix(), np.arange(12, dtype=np.float32).reshape(6, 2)
    y = sparse.matmul(x, w, w_format="fp32", backend=backend, **FLOAT)
    assert y.tolist() == (x.to_dense() @ w).tolist()
    rows = sparse.compact_matmul(x, w, w_format="fp32", backend=backend, **FLOAT)
    assert rows.rows.tolist() == x.unique_rows.tolist() == [0, 2, 3]
    assert x.row_index.tolist() == [0, 0, 1, 1, 2, 2]
    assert rows.to_dense().tolist() == y.tolist()


def test_a_dense_input_becomes_entries_with_both_indices_in_one_call_e0(backend: str):
    dense = np.array([[0, np.nan, -0.0, 3], [0, 0, 0, 0], [1, 0, 0, 2]], np.float32)
    x = CSR.from_dense(dense, "fp32", backend=backend)
    assert x.indptr.tolist() == [0, 2, 2, 4]
    assert x.indices.tolist() == [1, 3, 0, 3]
    assert x.data.tolist()[1:] == [3, 1, 2]
    assert x.known is not None
    assert (x.unique_columns.tolist(), x.transpose_index.tolist()) == ([0, 1, 3], [1, 2, 0, 2])


def test_two_indices_take_fewer_words_than_a_transposed_copy_e1():
    """Entries + used columns against 2 * entries + columns + 1, counted and measured."""
    rng = np.random.default_rng(1)
    x = random_matrix(rng, 3000, 5000, "fp32", 40, special=False)
    used = np.unique(x.indices).size
    transposed = 2 * x.nnz + 5000 + 1
    assert x.index_words == x.nnz + used
    assert x.index_words < transposed
    fresh = CSR(x.data, x.indices, x.indptr, x.shape, x.format)
    load("numba").columns(x.indices[:10], 5000)  # compiled before it is measured
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    found = fresh.columns("numba")
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert found.places.nbytes + found.used.nbytes == 4 * (x.nnz + used)
    assert 4 * (x.nnz + used) <= kept < 4 * (x.nnz + used) + 20_000 < 4 * transposed


EDGES: dict[str, tuple[list[float], list[int], list[int], tuple[int, int]]] = {
    "no rows": ([], [], [0], (0, 4)),
    "no columns": ([], [], [0, 0, 0], (2, 0)),
    "no entries": ([], [], [0, 0, 0], (2, 3)),
    "empty rows": ([2, 3], [1, 1], [0, 0, 1, 1, 2], (4, 3)),
    "duplicates": ([2, 3, 4], [1, 1, 0], [0, 3, 3], (2, 2)),
    "all columns": ([1, 2, 3], [0, 1, 2], [0, 2, 3], (2, 3)),
    "one column used by every row": ([1, 2, 3], [1, 1, 1], [0, 1, 2, 3], (3, 4)),
    "stored zeros": ([0, 0, 5], [0, 2, 2], [0, 2, 3], (2, 3)),
}


@pytest.mark.parametrize("name", EDGES)
def test_edge_cases_are_what_their_sums_say_e2(name: str, backend: str):
    data, indices, indptr, shape = EDGES[name]
    x = CSR.of(np.float32(data), np.int32(indices), indptr, shape, "fp32")
    dense = np.zeros(shape)
    np.add.at(dense, (x.rows, x.indices), x.data)
    dy, w = np.ones((shape[0], 2), np.float32) * [1, 3], np.ones((shape[1], 2), np.float32) * [1, 3]
    found = gradient_of(x, dy, backend)
    assert found.rows.tolist() == sorted(set(indices))
    assert found.to_dense().tolist() == (dense.T @ dy).tolist()
    assert sparse.matmul(x, w, w_format="fp32", backend=backend, **FLOAT).tolist() == (dense @ w).tolist()


def test_a_stored_zero_counts_as_an_entry_e1():
    x = CSR.of(np.float32([0.0]), np.int32([2]), [0, 1], (1, 4), "fp32")
    assert x.unique_columns.tolist() == [2]
    assert gradient_of(x, np.float32([[5.0]]), "reference").values.tolist() == [[0.0]]


def test_duplicates_are_added_in_the_order_of_storage_e1(backend: str):
    """2**24 + 1 - 2**24 in float32: the order decides."""
    for order, expected in (([2.0**24, 1.0, -(2.0**24)], 0.0), ([2.0**24, -(2.0**24), 1.0], 1.0)):
        x = CSR.of(np.float32(order), np.int32([0, 0, 0]), [0, 3], (1, 1), "fp32")
        assert gradient_of(x, np.float32([[1.0]]), backend).values.tolist() == [[expected]]
        assert sparse.matmul(x, np.float32([[1.0]]), w_format="fp32", backend=backend, **FLOAT).tolist() == [[expected]]


def test_register_and_flags_see_the_compact_rows_alone_e4(backend: str):
    register, flags = StatisticsRegister(), Flags()
    x = small_matrix("fix8f2")
    found = sparse.transposed_matmul(
        x, DY, dy_format="fix8f2", out_format="fix4f1", register=register, flags=flags, backend=backend
    )
    assert register.total == found.values.size == 8
    assert flags.overflow == 2  # -7 and 14 in 4 bits, one of them a fraction bit: -4 .. 3.5
    assert found.values.tolist() == [[0.5, 1], [3.5, 1], [1, 3], [-4, 3.5]]


def test_an_addend_finer_than_the_accumulator_is_rounded_to_it_once_e0(backend: str):
    """0.7265625 is 11.625 in units of 1/16 and begins the sum as 12; the products have no fraction."""
    x = small_matrix("fix8f0")
    options = {"out_format": "fix20f8", "mac": Mac(accumulator="fix20f4"), "backend": backend}
    addend = {"addend": [0.7265625, -0.5], "addend_format": "fix16f8"}
    y = sparse.matmul(x, np.ones((6, 2)), w_format="fix8f0", **addend, **options)
    assert y.tolist() == [[row + 0.75, row - 0.5] for row in (7, 0, 4, 11)]


def test_an_addend_begins_every_row_e0(backend: str):
    x = small_matrix("fix16f4")
    y = sparse.matmul(
        x, np.ones((6, 2)), w_format="fix16f4", out_format="fix16f4", addend=[0.5, -1.0], addend_format="fix8f4",
        backend=backend,
    )  # fmt: skip
    assert y.tolist() == [[7.5, 6.0], [0.5, -1.0], [4.5, 3.0], [11.5, 10.0]]


def test_all_indices_and_results_are_the_same_on_every_backend_e5():
    rng = np.random.default_rng(4)
    x, dy = random_matrix(rng, 60, 30, "fp32", 9, special=False), values(rng, (60, 20), "fp32")
    bits = [
        gradient_of(CSR(x.data, x.indices, x.indptr, x.shape, x.format), dy, b).values for b in ("reference", "numba")
    ]
    assert_bits_equal(bits[1], bits[0], emu.parse("fp32"))
