"""Every accumulator under every mode and rule, operands at its edges: CUDA kernels write the reference's bits."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
import swept_units
import test_infinite_sums
import test_one_nan
import wide_words
from fast_suite import some_of
from host_devices import GPU, HOSTS, as_backend, device_of, name_of
from swept_units import assert_cases_agree

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[*some_of(HOSTS, 3), pytest.param(GPU, marks=pytest.mark.gpu)], ids=name_of)
def cuda(request: pytest.FixtureRequest) -> Generator[str, None, None]:
    """Name of the backend, on one of the ways in which the host plays a device: sweeps take minutes on each."""
    with as_backend(device_of(request.param)):
        yield "cuda"


@pytest.mark.parametrize("exponent_bits", some_of(swept_units.EXPONENT_BITS, 7))
def test_every_float_accumulator_writes_the_references_bits(exponent_bits: int, cuda: str):
    compiled = assert_cases_agree(swept_units.float_cases(exponent_bits), cuda)
    assert len(compiled) > 1000
    assert np.mean(compiled) > 0.9


@pytest.mark.parametrize("widths", some_of(swept_units.WIDTHS_IN_PARTS, 4), ids=lambda part: f"{part[0]}..{part[-1]}")
def test_every_fixed_accumulator_writes_the_references_bits(widths: range, cuda: str):
    compiled = assert_cases_agree((case for width in widths for case in swept_units.fixed_cases(width)), cuda)
    assert len(compiled) > 1000
    assert np.mean(compiled) > 0.9


@pytest.mark.parametrize("draw", [wide_words.cases, wide_words.elementwise_cases], ids=["products", "elementwise"])
def test_words_of_up_to_64_bits_give_what_integers_give(draw: wide_words.Draw, cuda: str):
    for case in draw(60, seed=3):
        case.assert_right_on(cuda)


@pytest.mark.parametrize("unit", test_infinite_sums.UNITS[::3], ids=str)
def test_sums_that_become_infinite_are_counted_as_the_rational_model_does(unit: tuple[str, str, str, str], cuda: str):
    count = test_infinite_sums.test_sums_that_become_infinite_are_counted_as_the_rational_model_does
    count(unit, "nearest_even", cuda)


@pytest.mark.parametrize("out_format", ["fp32", "fp8_e4m3"])
def test_every_operation_writes_one_nan(out_format: str, cuda: str):
    for name in test_one_nan.OPERATIONS:
        test_one_nan.assert_one_nan(name, out_format, cuda)
