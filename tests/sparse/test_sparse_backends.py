"""Every backend gives the reference's bits; the reference gives those of one dense product per result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sparse_cases import UNITS, cases, random_matrix, values

import emu
from emu import Flags, Mac, StatisticsRegister, sparse
from emu.backends.pattern import Pattern
from emu.sparse import CSR
from emu.testing import assert_bits_equal


def computed(unit: Any, x: CSR, w: Any, dy: Any, bias: Any, backend: str) -> list[Any]:
    """Return results and counts of both products."""
    found: list[Any] = []
    options = {"mac": unit.mac, "out_format": unit.out, "backend": backend, **unit.options}
    for transposed in (False, True):
        register, flags = StatisticsRegister(), Flags()
        counted = {"register": register, "flags": flags, **options}
        if transposed:
            known = CSR(x.data, x.indices, x.indptr, x.shape, x.format)
            columns = known.columns(backend)
            results = sparse.transposed_matmul(known, dy, dy_format=unit.dense, **counted).values
            found += [columns.places.tolist(), columns.used.tolist(), columns.longest]
        else:
            added = {} if bias is None else {"addend": bias, "addend_format": unit.addend}
            results = sparse.matmul(x, w, w_format=unit.dense, **added, **counted)
        found += [results, repr(flags), register.to_dict()]
    return found


def assert_equal_to_reference(case: Any, backend: str) -> None:
    name, seed, (rows, columns), width, special, biased = case
    unit, rng = UNITS[name], np.random.default_rng(seed)
    x = random_matrix(rng, rows, columns, unit.x, 6, special=special)
    w, dy = (values(rng, (n, width), unit.dense, special=special) for n in (columns, rows))
    bias = values(rng, (width,), unit.addend) if biased else None
    expected = computed(unit, x, w, dy, bias, "reference")
    for actual, right in zip(computed(unit, x, w, dy, bias, backend), expected, strict=True):
        if isinstance(right, np.ndarray):
            assert_bits_equal(actual, right, emu.parse(unit.out))
        else:
            assert actual == right


@given(case=cases)
def test_random_matrices_have_the_same_bits_on_numba_as_on_the_reference_e2(case: Any):
    assert_equal_to_reference(case, "numba")


@pytest.mark.parametrize("name", sorted(UNITS))
def test_every_unit_has_the_same_bits_on_numba_as_on_the_reference_e4(name: str):
    for seed in range(4):
        assert_equal_to_reference((name, seed, (17, 12), 40, bool(seed % 2), seed < 2), "numba")


@pytest.mark.parametrize(
    "name", sorted(set(UNITS) - {"stochastic-results", "stochastic-gathered", "stochastic-inside"})
)
def test_each_result_is_the_dense_product_of_its_entries_in_storage_order_e2(name: str, backend: str):
    unit, rng = UNITS[name], np.random.default_rng(7)
    x = random_matrix(rng, 9, 7, unit.x, 5, special=False)
    w, dy = (values(rng, (n, 3), unit.dense) for n in (7, 9))
    options = {"mac": unit.mac, "out_format": unit.out, **unit.options}
    forward = sparse.matmul(x, w, w_format=unit.dense, backend=backend, **options)
    backward = sparse.transposed_matmul(x, dy, dy_format=unit.dense, backend=backend, **options)
    formats = {"a_format": unit.x, "b_format": unit.dense}
    for row in range(9):
        inside = slice(x.indptr[row], x.indptr[row + 1])
        expected = emu.matmul(x.data[inside], w[x.indices[inside]], **formats, **options, backend="reference")
        assert_bits_equal(forward[row], expected, emu.parse(unit.out))
    for place, column in enumerate(backward.rows):
        mine = np.flatnonzero(x.indices == column)
        expected = emu.matmul(x.data[mine], dy[x.rows[mine]], **formats, **options, backend="reference")
        assert_bits_equal(backward.values[place], expected, emu.parse(unit.out))


def test_random_bits_inside_a_unit_are_numbered_by_the_result_among_all_results_e4(backend: str):
    """A full matrix is multiplied as a dense one is: the same random bits at the same results."""
    rng = np.random.default_rng(3)
    dense, w = values(rng, (5, 6), "fp16"), values(rng, (6, 4), "fp16")
    dense[dense == 0] = 1
    x = CSR.from_dense(dense, "fp16")
    mac = Mac(accumulator="fp16", rounding="stochastic")
    options = {"out_format": "fp8_e4m3", "mac": mac, "rounding": "stochastic", "seed": 11, "backend": backend}
    expected = emu.matmul(x.to_dense(), w, a_format="fp16", b_format="fp16", **options)
    assert_bits_equal(sparse.matmul(x, w, w_format="fp16", **options), expected, emu.parse("fp8_e4m3"))


@pytest.mark.parametrize("width", [1, 15, 16, 17, 32, 33, 63, 64, 65, 80, 96, 128, 130, 160, 224])
def test_strips_of_every_width_and_many_threads_give_the_same_bits_e2(width: int, monkeypatch: pytest.MonkeyPatch):
    from emu.backends.numba import compiling
    from emu.backends.numba.ways import strips

    rng = np.random.default_rng(width)
    monkeypatch.setattr(strips, "GRAIN_MACS", 1)
    for fmt, out, mac in (
        ("fp32", "fp32", Mac(product="fp32", accumulator="fp32")),
        ("fix16f8", "fix16f4", Mac()),
        ("fix16f8", "fix16f4", Mac(accumulator="fix40f16")),
    ):
        x = random_matrix(rng, 60, 40, fmt, 8, special=False)
        dy, w = values(rng, (60, width), fmt), values(rng, (40, width), fmt)
        options = {"out_format": out, "mac": mac}
        expected = [
            sparse.transposed_matmul(x, dy, dy_format=fmt, **options, backend="reference").values,
            sparse.matmul(x, w, w_format=fmt, **options, backend="reference"),
        ]
        for threads in (1, 2, 3):
            monkeypatch.setattr(strips, "thread_count", lambda threads=threads: threads)
            monkeypatch.setattr(compiling, "thread_count", lambda threads=threads: threads)
            back = sparse.transposed_matmul(x, dy, dy_format=fmt, **options, backend="numba").values
            assert_bits_equal(back, expected[0], emu.parse(out))
            there = sparse.matmul(x, w, w_format=fmt, **options, backend="numba")
            assert_bits_equal(there, expected[1], emu.parse(out))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("block_rows", [1, 7, 50, 64, 300])
@pytest.mark.parametrize(
    ("fmt", "out", "mac"),
    [("fp32", "fp32", Mac(product="fp32", accumulator="fp32")), ("fix16f8", "fix16f4", Mac()), ("fp16", "fp16", Mac())],
)
def test_blocks_of_any_height_give_the_bits_of_entries_as_they_lie_e2(
    fmt: str, out: str, mac: Mac, block_rows: int, special: bool, monkeypatch: pytest.MonkeyPatch
):
    """Empty rows, several entries in one place, more blocks than are sorted at a time, a last one with fewer rows."""
    from emu.backends.numba.ways import strips

    rng = np.random.default_rng(block_rows)
    x = random_matrix(rng, 300, 40, fmt, 30, special=special)
    dy, bias = values(rng, (300, 128), fmt, special=special), values(rng, (128,), fmt)
    options = {"dy_format": fmt, "out_format": out, "mac": mac, "addend": bias, "addend_format": fmt}
    found = {}
    for name, rows in (("blocks", block_rows), ("as they lie", 0)):
        monkeypatch.setattr(strips, "rows_of_a_block", lambda *_, rows=rows: rows)
        counted = {"register": emu.StatisticsRegister(), "flags": emu.Flags()}
        product = sparse.transposed_matmul(x, dy, **options, **counted, backend="numba")
        found[name] = (product.values, counted["register"].to_dict(), counted["flags"])
    assert_bits_equal(found["blocks"][0], found["as they lie"][0], emu.parse(out))
    assert found["blocks"][1:] == found["as they lie"][1:]
    expected = sparse.transposed_matmul(x, dy, **options, backend="reference")
    assert_bits_equal(found["blocks"][0], expected.values, emu.parse(out))


@pytest.mark.parametrize(
    ("rows", "columns", "entries", "width", "itemsize", "expected"),
    [
        (4096, 4096, 4096 * 410, 256, 4, 80),  # 8 entries of a result in a block
        (4096, 4096, 4096 * 128, 256, 4, 256),
        (4096, 4096, 4096 * 128 - 1, 256, 4, 0),  # too few to be worth sorting
        (4096, 4096, 4096 * 128, 256, 8, 256),
        (1 << 16, 4096, 4096 * 128, 256, 8, 512),  # as many rows as the cache holds
        (4096, 4096, 4096 * 410, 250, 4, 0),  # no whole strips
        (64, 64, 0, 256, 4, 0),
        (128, 64, 64 * 128, 64, 4, 8),
        (2, 1, 256, 64, 4, 1),
    ],
)
def test_as_many_rows_are_sorted_as_give_a_result_some_entries(
    rows: int, columns: int, entries: int, width: int, itemsize: int, expected: int
):
    from emu.backends.numba.ways.sparse_blocks import rows_of_a_block

    starts = np.zeros(rows + 1, np.int64)
    pattern = Pattern(starts, np.zeros(entries, np.int32), columns, True, 1)
    assert rows_of_a_block(pattern, width, itemsize) == expected


@pytest.mark.parametrize(("percent", "share"), [(10, 0.1), (4, 0.25)])
def test_a_product_by_blocks_holds_less_than_a_transposed_copy(
    percent: int, share: float, monkeypatch: pytest.MonkeyPatch
):
    """Measured: every array that the blocks of two threads make, beside SciPy's transposed copy of the same matrix."""
    from emu.backends.numba.ways import sparse_blocks

    scipy_sparse = pytest.importorskip("scipy.sparse")
    made: list[int] = []
    real = sparse_blocks.empty

    def empty(shape: Any, dtype: Any) -> Any:
        array = real(shape, dtype)
        made.append(array.nbytes)
        return array

    monkeypatch.setattr(sparse_blocks, "empty", empty)
    monkeypatch.setattr(sparse_blocks, "thread_count", lambda: 2)
    places = np.flatnonzero(np.random.default_rng(0).random(4096 * 4096) < percent / 100)
    starts = np.searchsorted(places, np.arange(4097) * 4096)
    x = CSR.of(np.ones(places.size, np.float32), places % 4096, starts, (4096, 4096), "fp32", check=False)
    pattern = x.by_columns("numba")
    rows = sparse_blocks.rows_of_a_block(pattern, 64, 8)
    assert rows > 0
    for blocks in sparse_blocks.sorted_blocks(pattern, x.data, rows, np.dtype(np.float64)):
        assert blocks.edges.size <= 3
    whole = scipy_sparse.csr_array((x.data, x.indices, x.indptr), shape=x.shape).T.tocsr()
    copy = whole.data.nbytes + whole.indices.nbytes + whole.indptr.nbytes
    assert sum(made) < share * copy
