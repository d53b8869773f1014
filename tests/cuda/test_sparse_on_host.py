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
from host_devices import as_backend
from sparse_cases import UNITS, cases
from test_sparse_backends import assert_equal_to_reference

from emu.backends.cuda import CudaKernels
from emu.backends.reference import ReferenceKernels
from emu.testing.cuda_on_host import HostDevice


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
