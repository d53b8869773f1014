"""Sparse products of the CUDA backend, as source and as PTX run by the host: the reference's bits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from hypothesis import given, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "sparse"))
from device_arrays import DeviceArray, StrictDevice
from host_devices import as_backend
from sparse_cases import UNITS, cases
from test_sparse_backends import assert_equal_to_reference

import emu
from emu import sparse
from emu.backends.cuda import CudaKernels
from emu.backends.reference import ReferenceKernels
from tests.cuda.cuda_on_host import HostDevice


@most_are_slow("name", sorted(UNITS), keep=sorted(UNITS)[::2])
def test_every_unit_has_the_same_bits_on_cuda_as_on_the_reference_e5(name: str, cuda: str):
    for seed in range(2):
        assert_equal_to_reference((name, seed, (17, 12), 17, bool(seed % 2), seed < 1), cuda)


@settings(max_examples=15)
@given(case=cases)
def test_random_matrices_have_the_same_bits_on_cuda_as_on_the_reference_e5(case: Any):
    with as_backend(HostDevice()):
        assert_equal_to_reference(case, "cuda")


@pytest.mark.parametrize("order", ["backward", "shuffled"])
def test_no_bit_depends_on_which_thread_comes_first_e5(order: Any):
    with as_backend(HostDevice(order=order)):
        for name in ("float32-in-order", "saturating-often", "stochastic-inside"):
            assert_equal_to_reference((name, 5, (40, 9), 5, False, True), "cuda")


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 3000])
def test_columns_are_marked_and_counted_up_as_the_reference_does_e1(count: int):
    index = np.random.default_rng(count).integers(0, count, 2 * count).astype(np.int32)[: max(count, 3)]
    found, expected = CudaKernels(HostDevice()).columns(index, count), ReferenceKernels().columns(index, count)
    assert [found.places.tolist(), found.used.tolist(), found.longest] == [
        expected.places.tolist(),
        expected.used.tolist(),
        expected.longest,
    ]


@pytest.mark.parametrize("check", [False, True])
def test_entries_and_places_on_a_device_are_copied_as_well(check: bool):
    """What is written to the sources later changes no product, and no place lies out of bounds."""
    sources = [DeviceArray(np.array(part)) for part in (np.float32([1, 2, 3]), [2, 0, 2], [0, 1, 3])]
    options = {"dy_format": "fp32", "out_format": "fp32", "backend": "cuda"}
    with as_backend(StrictDevice()):
        x = sparse.CSR.of(*sources, (2, 3), "fp32", check=check)
        held = x.with_data(sources[0], "fp32", check=check)
        dense = DeviceArray(np.float32([[1, 10], [100, 1000]]))
        for later in (False, True):
            if later:
                for source in sources:
                    source._memory[...] = 1 << 30
            for matrix in (x, held):
                found = sparse.transposed_matmul(matrix, dense, **options, check=False)
                assert found.rows.tolist() == [0, 2]
                assert found.values.get().tolist() == [[200, 2000], [301, 3010]]
        with pytest.raises(emu.ShapeError, match="`indptr` must begin with 0"):
            sparse.CSR.of(*sources, (2, 3), "fp32", check=False)


def test_a_matrix_whose_entries_lie_on_a_device_is_unpacked_on_the_host():
    x = sparse.CSR.of(DeviceArray(np.float32([1, 2, 3])), [2, 0, 2], [0, 1, 3], (2, 3), "fp32", check=False)
    assert x.to_dense().tolist() == [[0, 0, 1], [2, 0, 3]]
    pytest.importorskip("scipy")
    assert x.to_scipy().toarray().tolist() == [[0, 0, 1], [2, 0, 3]]
