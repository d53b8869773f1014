"""SciPy's containers in and out, and its sums: integers exactly, float32 in the order it adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sparse_cases import random_matrix, values

import emu
from emu import Mac, sparse
from emu.sparse import CSR
from emu.testing import assert_bits_equal

containers = pytest.importorskip("scipy.sparse")


@pytest.mark.parametrize("seed", range(6))
def test_scipy_agrees_exactly_on_integers_e2(seed: int, backend: str):
    rng = np.random.default_rng(seed)
    x = random_matrix(rng, 30, 20, "fix12f0", 8, special=False)
    w, dy = values(rng, (20, 5), "fix12f0"), values(rng, (30, 5), "fix12f0")
    theirs = x.to_scipy().astype(np.int64)
    options: dict[str, Any] = {"out_format": "fix40f0", "backend": backend}
    assert (sparse.matmul(x, w, w_format="fix12f0", **options) == theirs @ w.astype(np.int64)).all()
    found = sparse.transposed_matmul(x, dy, dy_format="fix12f0", **options)
    assert (found.to_dense() == theirs.T @ dy.astype(np.int64)).all()


@pytest.mark.parametrize("seed", range(6))
def test_scipy_adds_float32_in_storage_order_each_product_and_sum_rounded_e2(seed: int, backend: str):
    """`A @ B` of CSR and `A.T @ B` (CSC) walk the entries as stored, y += a * b in float32: sequential from +0."""
    rng = np.random.default_rng(seed)
    x = random_matrix(rng, 40, 25, "fp32", 12, special=False)
    w, dy = values(rng, (25, 9), "fp32"), values(rng, (40, 9), "fp32")
    options: dict[str, Any] = {"out_format": "fp32", "mac": Mac(product="fp32", accumulator="fp32"), "backend": backend}
    theirs, fmt = x.to_scipy(), emu.parse("fp32")
    assert_bits_equal(sparse.matmul(x, w, w_format="fp32", **options), theirs @ w, fmt)
    found = sparse.transposed_matmul(x, dy, dy_format="fp32", **options)
    assert_bits_equal(found.to_dense(), theirs.T @ dy, fmt)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_containers_keep_duplicates_and_stored_zeros_e1(kind: str):
    entries = (np.float32([3, 0, 4, 5]), ([1, 1, 0, 1], [2, 0, 1, 2]))
    given = containers.coo_array(entries, shape=(2, 3))
    if kind == "csr":
        given = containers.csr_array((np.float32([4, 3, 0, 5]), [1, 2, 0, 2], [0, 1, 4]), shape=(2, 3))
    if kind == "csc":
        given = containers.csc_array((np.float32([0, 4, 3, 5]), [1, 0, 1, 1], [0, 1, 2, 4]), shape=(2, 3))
    x = CSR.from_scipy(given, "fp32")
    assert x.nnz == 4
    assert x.indptr.tolist() == [0, 1, 4]
    order = {
        "csr": ([1, 2, 0, 2], [4, 3, 0, 5]),
        "coo": ([1, 2, 0, 2], [4, 3, 0, 5]),
        "csc": ([1, 0, 2, 2], [4, 0, 3, 5]),
    }
    assert (x.indices.tolist(), x.data.tolist()) == order[kind]
    back = x.to_scipy()
    assert (back.indices.tolist(), back.data.tolist()) == order[kind]


def test_entries_of_a_row_keep_the_order_in_which_a_container_stores_them_e1():
    """Two thousand entries of three rows, columns in no order: more than sorting by insertion takes."""
    rng = np.random.default_rng(2)
    rows, columns = rng.integers(0, 3, 2000), rng.integers(0, 50, 2000)
    x = CSR.from_scipy(containers.coo_array((np.arange(2000.0), (rows, columns)), shape=(3, 50)), "fp64")
    stored = [[p for p in range(2000) if rows[p] == row] for row in range(3)]
    assert x.indptr.tolist() == [0, *np.cumsum([len(row) for row in stored]).tolist()]
    assert x.data.tolist() == [p for row in stored for p in row]
    assert x.indices.tolist() == [columns[p] for row in stored for p in row]


def test_zeros_of_other_containers_stay_where_scipy_keeps_them():
    blocks = containers.bsr_array(np.float32([[1, 0], [0, 2]]), blocksize=(2, 2))
    assert CSR.from_scipy(blocks, "fp32").data.tolist() == [1, 0, 0, 2]
    diagonal = containers.dia_array((np.float32([[1, 0, 3]]), [0]), shape=(3, 3))
    assert CSR.from_scipy(diagonal, "fp32").data.tolist() == [1, 3]


def test_what_is_no_container_is_refused_by_name():
    with pytest.raises(
        emu.ShapeError, match=r"`x` must be a matrix of scipy\.sparse, got ndarray; CSR\.from_dense takes"
    ):
        CSR.from_scipy(np.eye(2), "fp32")
