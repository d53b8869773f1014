"""What cuBLAS is asked for, on a stand-in that multiplies column by column as it does."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.backends.cuda import loader

TYPES = {0: np.float32, 1: np.float64, 3: np.int8, 10: np.int32}


def matrices(address: int, kind: int, lines: int, line: int, step: int, batches: int) -> np.ndarray:
    """Return matrices as they lie in memory, one line after the other, `step` elements from one to the next."""
    dtype = np.dtype(TYPES[kind])
    size = (batches - 1) * step + lines * line
    flat = np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(flat, (batches, lines, line), [n * dtype.itemsize for n in (step, line, 1)])


def gemm(
    handle: Any, transa: int, transb: int, m: int, n: int, k: int, alpha: int,
    a: int, a_kind: int, lda: int, a_step: int, b: int, b_kind: int, ldb: int, b_step: int, beta: int,
    c: int, c_kind: int, ldc: int, c_step: int, batches: int, computed: int, algorithm: int,
) -> None:  # fmt: skip
    """Multiply as cuBLAS defines it: column by column, `op(A)` m x k, `op(B)` k x n; a line of memory is a column."""
    assert (transa, transb) == (1, 0)
    assert (ctypes.c_char * 1).from_address(alpha)
    left = matrices(a, a_kind, m, lda, a_step, batches)[:, :, :k]  # its columns are A's rows: op(A) has m of them
    right = matrices(b, b_kind, n, ldb, b_step, batches)[:, :, :k].swapaxes(1, 2)
    out = matrices(c, c_kind, n, ldc, c_step, batches)
    assert {0: 69, 1: 70, 3: 72}[a_kind] == computed
    out[:, :, :m] = np.matmul(left.astype(out.dtype), right.astype(out.dtype)).swapaxes(1, 2)


class Memory(np.ndarray):
    """An array whose address is where CuPy's is."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("batches", [(1, 1), (3, 3), (1, 3), (3, 1)])
def test_cublas_is_asked_for_the_product_of_every_pair_of_matrices(
    dtype: Any, batches: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    cublas = ModuleType("cublas")
    cublas.__dict__.update(gemmStridedBatchedEx=gemm, CUBLAS_OP_T=1, CUBLAS_OP_N=0, CUBLAS_GEMM_DEFAULT=-1)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", cublas)
    device = object.__new__(loader.CupyDevice)
    handle = SimpleNamespace(device=SimpleNamespace(get_cublas_handle=lambda: None))
    device.xp = SimpleNamespace(empty=lambda shape, kind: np.full(shape, 99, kind).view(Memory), cuda=handle)
    rng = np.random.default_rng(1)
    left = rng.integers(-9, 9, (batches[0], 5, 16)).astype(dtype).view(Memory)
    right = rng.integers(-9, 9, (batches[1], 32, 16)).astype(dtype).view(Memory)
    out = device.multiply(left, right, 3 if 3 in batches else 1)
    expected = np.matmul(left.astype(np.int64), right.astype(np.int64).swapaxes(1, 2))
    assert out.dtype == (np.int32 if dtype == np.int8 else dtype)
    assert np.array_equal(out, expected)


def test_a_product_of_no_terms_is_zero_and_cublas_is_not_asked():
    device = object.__new__(loader.CupyDevice)
    device.xp = SimpleNamespace(zeros=np.zeros)
    out = device.multiply(np.zeros((2, 3, 0), np.int8), np.zeros((2, 16, 0), np.int8), 2)
    assert (out.dtype, out.shape, out.any()) == (np.int32, (2, 3, 16), False)
