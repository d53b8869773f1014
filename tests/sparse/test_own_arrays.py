"""A sparse matrix owns its arrays: nothing done to those it was made from reaches it, and none lies out of bounds."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emu
from emu import sparse
from emu.engine.description import UnitDescription
from emu.sparse import CSR, Compact
from emu.sparse.products import write_sparse
from emu.testing import assert_bits_equal

ROWS, COLUMNS, WIDTH = 3, 5, 2
#: Columns out of order, and column 2 twice in row 1: what SciPy's methods would put right.
DATA, INDICES, INDPTR = [1.0, 2, 3, 4, 5], [4, 0, 2, 2, 3], [0, 2, 5, 5]
FORMATS = {"out_format": "fp32", "mac": emu.Mac(product="fp32", accumulator="fp32")}


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.float32(DATA), np.int32(INDICES), np.int64(INDPTR)


def container() -> Any:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    data, indices, indptr = arrays()
    return scipy_sparse.csr_array((data, indices, indptr), shape=(ROWS, COLUMNS))


def spoil(*parts: np.ndarray) -> None:
    for part in parts:
        part[...] = part.max() + 1_000_000


def sources() -> dict[str, Callable[[], tuple[CSR, Callable[[], None]]]]:
    """Return what makes a matrix, and what changes all that it was made from."""

    def constructed() -> tuple[CSR, Callable[[], None]]:
        data, indices, indptr = arrays()
        return CSR(data, indices, indptr, (ROWS, COLUMNS), emu.parse("fp32")), lambda: spoil(data, indices, indptr)

    def of(check: bool) -> tuple[CSR, Callable[[], None]]:
        data, indices, indptr = arrays()
        x = CSR.of(data, indices, indptr, (ROWS, COLUMNS), "fp32", check=check)
        return x, lambda: spoil(data, indices, indptr)

    def of_views() -> tuple[CSR, Callable[[], None]]:
        whole = [np.repeat(part, 2) for part in arrays()]
        views = [part[::2] for part in whole]
        for view in views:
            view.flags.writeable = False  # read-only, and still changed by who holds the whole
        return CSR.of(*views, (ROWS, COLUMNS), "fp32"), lambda: spoil(*whole)

    def from_scipy(change: Callable[[Any], object]) -> tuple[CSR, Callable[[], None]]:
        given = container()
        return CSR.from_scipy(given, "fp32"), lambda: (change(given), None)[1]

    def with_data() -> tuple[CSR, Callable[[], None]]:
        data, indices, indptr = arrays()
        x = CSR.of(np.ones(5), indices, indptr, (ROWS, COLUMNS), "fp32").with_data(data, "fp32", check=False)
        return x, lambda: spoil(data, indices, indptr)

    return {
        "constructor": constructed,
        "of": lambda: of(True),
        "of, unchecked": lambda: of(False),
        "of read-only views": of_views,
        "with_data": with_data,
        "scipy's entries": lambda: from_scipy(lambda x: spoil(x.data, x.indices, x.indptr)),
        "sum_duplicates": lambda: from_scipy(lambda x: x.sum_duplicates()),
        "sort_indices": lambda: from_scipy(lambda x: x.sort_indices()),
        "eliminate_zeros": lambda: from_scipy(lambda x: (spoil(x.data), x.data.fill(0), x.eliminate_zeros())),
    }


def products(x: CSR, backend: str) -> list[Any]:
    w = np.arange(COLUMNS * WIDTH, dtype=np.float32).reshape(COLUMNS, WIDTH)
    dy = np.float32([[1, -2], [0.5, 3], [7, 7]])
    forward = sparse.matmul(x, w, w_format="fp32", backend=backend, **FORMATS)
    back = sparse.transposed_matmul(x, dy, dy_format="fp32", backend=backend, **FORMATS)
    return [forward, back.rows, back.values]


def by_hand() -> list[Any]:
    """Return the products of these integers, which float32 holds, without a matrix of ours."""
    dense = [[0] * COLUMNS for _ in range(ROWS)]
    for row in range(ROWS):
        for entry in range(INDPTR[row], INDPTR[row + 1]):
            dense[row][INDICES[entry]] += int(DATA[entry])
    w = [[WIDTH * c + h for h in range(WIDTH)] for c in range(COLUMNS)]
    dy = [[1, -2], [0.5, 3], [7, 7]]
    forward = [[sum(dense[r][c] * w[c][h] for c in range(COLUMNS)) for h in range(WIDTH)] for r in range(ROWS)]
    used = sorted(set(INDICES))
    back = [[sum(dense[r][c] * dy[r][h] for r in range(ROWS)) for h in range(WIDTH)] for c in used]
    return [np.float32(forward), used, np.float32(back)]


@pytest.mark.parametrize("built_before", [False, True], ids=["V1 and V2 later", "V1 and V2 before"])
@pytest.mark.parametrize("source", sorted(sources()))
def test_no_change_of_its_source_reaches_a_matrix(source: str, built_before: bool, backend: str):
    x, change = sources()[source]()
    if built_before:
        assert x.unique_columns.tolist() == [0, 2, 3, 4]
    change()
    assert (x.data.tolist(), x.indices.tolist(), x.indptr.tolist()) == (DATA, INDICES, INDPTR)
    assert x.unique_columns.tolist() == [0, 2, 3, 4]
    assert x.transpose_index.tolist() == [3, 0, 1, 1, 2]
    for found, expected in zip(products(x, backend), by_hand(), strict=True):
        assert np.array_equal(found, expected)


def test_a_dense_source_and_chosen_rows_are_copies(backend: str):
    dense = np.zeros((ROWS, COLUMNS), np.float32)
    dense[0, 4], dense[1, 2] = 1, 3
    x = CSR.from_dense(dense, "fp32", backend=backend)
    some = x[:1]
    dense[...] = 9
    assert x.data.tolist() == [1, 3]
    assert some.to_dense().tolist() == [[0, 0, 0, 0, 1]]


def matrices() -> dict[str, Callable[[], CSR]]:
    def made() -> CSR:
        return CSR.of(*arrays(), (ROWS, COLUMNS), "fp32")

    return {
        "of": made,
        "from_dense": lambda: CSR.from_dense(np.eye(3), "fp32"),
        "some rows": lambda: made()[1:],
        "rows by number": lambda: made()[[1, 0, 1]],
        "used": lambda: made().used(),
        "with_data": lambda: made().with_data(np.ones(5), "fix8f4"),
        "pickled": lambda: pickle.loads(pickle.dumps(made())),
        "deep copy": lambda: copy.deepcopy(made()),
        "copy": lambda: copy.copy(made()),
    }


@pytest.mark.parametrize("name", sorted(matrices()))
def test_every_array_of_a_matrix_is_read_only(name: str, backend: str):
    x = matrices()[name]()
    places, used, _ = x.columns(backend)
    own = (x.data, x.indices, x.indptr, places, used, x.transpose_index, x.unique_columns)
    for array in (*own, x.rows, x.unique_rows, x.row_index):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy])
def test_a_copy_is_the_same_matrix(again: Callable[[CSR], CSR], backend: str):
    x = CSR.of(*arrays(), (ROWS, COLUMNS), "fp32")
    products(x, backend)
    other = again(x)
    assert type(other) is CSR
    assert (other.shape, other.format, other.nnz) == (x.shape, x.format, x.nnz)
    for found, expected in zip(products(other, backend), products(x, backend), strict=True):
        assert np.array_equal(found, expected)


def test_a_damaged_pickle_is_refused():
    x = CSR.of(*arrays(), (ROWS, COLUMNS), "fp32")
    make, (data, indices, *rest) = x.__reduce__()
    with pytest.raises(emu.ShapeError, match=r"`indices` must be columns 0\.\.4, got 9 at entry 0, row 0"):
        make(data, indices + 5, *rest)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"indices": [4, 0, 2, 2, 5]}, r"`indices` must be columns 0\.\.4, got 5 at entry 4, row 1"),
        ({"indices": [4, 0, -1, 2, 3]}, r"`indices` must be columns 0\.\.4, got -1 at entry 2, row 1"),
        ({"indices": [4, 0, 2, 2]}, r"one element per entry, got shapes \(5,\) and \(4,\)"),
        ({"indptr": [0, 9, 5, 5]}, r"`indptr` must not descend, got 9 and then 5 at row 1"),
        ({"indptr": [0, 2**63 - 1, -(2**63), 5]}, r"`indptr` must not descend, got 9223372036854775807 and then -92"),
        ({"indptr": [0, 2, 5]}, r"`indptr` must have rows \+ 1 = 4 elements, got 3"),
        ({"indptr": [-1, 2, 5, 5]}, r"`indptr` must begin with 0 and end with the number of entries, 5, got -1 and 5"),
        ({"shape": (ROWS, 3)}, r"`indices` must be columns 0\.\.2, got 4 at entry 0, row 0"),
        ({"shape": (4, COLUMNS)}, r"`indptr` must have rows \+ 1 = 5 elements, got 4"),
        ({"data": [1, 2]}, r"one element per entry, got shapes \(2,\) and \(5,\)"),
    ],
)
def test_places_are_checked_whoever_makes_the_matrix(changes: dict[str, Any], text: str):
    data, indices, indptr = arrays()
    given: dict[str, Any] = {"data": data, "indices": indices, "indptr": indptr, "shape": (ROWS, COLUMNS)} | changes
    whole = CSR.of(data, indices, indptr, (ROWS, COLUMNS), "fp32")
    for make in (
        lambda: CSR.of(**given, fmt="fp32", check=False),
        lambda: CSR(**given, format=emu.parse("fp32")),
        lambda: replace(whole, **changes),
    ):
        with pytest.raises(emu.ShapeError, match=text):
            make()


#: Entries behind the ends of arrays: yesterday compiled loops wrote to whatever lies there.
CRASHING = """
import numpy as np
import emu
from emu import sparse

size = 4096
indices = np.arange(size, dtype=np.int32)
{source}
x = sparse.CSR.{make}
indices[:] = 2**30
formats = {{"out_format": "fp32", "mac": emu.Mac(product="fp32", accumulator="fp32"), "backend": "numba"}}
ones = np.ones((size, 64), np.float32)
assert (sparse.matmul(x, ones, w_format="fp32", **formats) == 1).all()
assert (sparse.transposed_matmul(x, ones, dy_format="fp32", **formats).values == 1).all()
"""
OF = 'of(np.ones(size), indices, np.arange(size + 1), (size, size), "fp32", check=False)'
FROM_SCIPY = 'from_scipy(given, "fp32")'
GIVEN = (
    "from scipy.sparse import csr_array\n"
    "given = csr_array((np.ones(size, np.float32), indices, np.arange(size + 1, dtype=np.int32)), shape=(size, size))\n"
    "indices = given.indices"
)


@pytest.mark.parametrize(("source", "make"), [("", OF), (GIVEN, FROM_SCIPY)], ids=["of", "from_scipy"])
def test_changing_the_source_ends_no_process(source: str, make: str):
    if source:
        pytest.importorskip("scipy")
    script = CRASHING.format(source=source, make=make)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_unchecked_columns_outside_the_matrix_end_no_process():
    script = CRASHING.format(source="indices[:] = 2**30", make=OF)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ShapeError: `indices` must be columns 0..4095, got 1073741824 at entry 0, row 0" in done.stderr


def test_a_runner_refuses_a_dense_operand_of_another_height(backend: str):
    """Its product writes through `write_sparse`, as the functions do."""
    x = CSR.of(*arrays(), (ROWS, COLUMNS), "fp32")
    unit = UnitDescription.of("fp32", mac=FORMATS["mac"], backend=backend)
    short = emu.Value(np.ones((2, WIDTH), np.float32), emu.parse("fp32"))
    for pattern, height in ((x.by_rows, COLUMNS), (x.by_columns(backend), ROWS)):
        with pytest.raises(emu.ShapeError, match=rf"`dense` must be a matrix of {height} rows .*, got shape \(2, 2\)"):
            write_sparse(unit, x, short, None, pattern)


def test_some_rows_of_a_matrix_are_its_own():
    rows, values = np.int64([0, 2]), np.ones((2, 3), np.float32)
    compact = Compact(rows, values, 4, emu.parse("fp32"))
    spoil(rows, values)
    for one in (compact, pickle.loads(pickle.dumps(compact)), copy.deepcopy(compact)):
        assert (one.rows.tolist(), one.values.tolist()) == ([0, 2], [[1, 1, 1], [1, 1, 1]])
        for array in (one.rows, one.values):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0


def test_the_rows_of_a_product_are_read_only_unless_the_caller_gave_them(backend: str):
    x = CSR.of(*arrays(), (ROWS, COLUMNS), "fp32")
    found = sparse.transposed_matmul(x, np.ones((3, 2)), dy_format="fp32", backend=backend, **FORMATS)
    with pytest.raises(ValueError, match="read-only"):
        found.values[...] = 0
    out = np.zeros((4, 2), np.float32)
    given = sparse.transposed_matmul(x, np.ones((3, 2)), dy_format="fp32", backend=backend, out=out, **FORMATS)
    assert given.values is out
    assert_bits_equal(out, found.values, "fp32")
    out[...] = 0
