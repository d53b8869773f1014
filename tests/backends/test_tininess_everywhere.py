"""Underflow told before or after rounding is the same count on the reference and in every variant of Numba."""

from __future__ import annotations

import numpy as np
import pytest
from variants import assert_same_everywhere

import emu

FORMATS = ("fp16", "e4m3", "e5m2", "bf16", "fp32")
TININESS = ("before_rounding", "after_rounding")


def near_the_smallest(fmt: str, count: int, seed: int) -> np.ndarray:
    """Values of a format, most of them around its smallest normal number."""
    parsed, rng = emu.parse(fmt), np.random.default_rng(seed)
    x = np.ldexp(rng.uniform(-2, 2, count), rng.integers(parsed.emin - 3, parsed.emin + 3, count))
    return np.asarray(emu.quantize(x, fmt))


@pytest.mark.parametrize("tininess", TININESS)
@pytest.mark.parametrize("rounding", ["nearest_even", "floor", "to_odd", "stochastic"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_of_elementwise_operations(fmt: str, rounding: str, tininess: str):
    a, b = (near_the_smallest("fp32", 700, seed) for seed in (1, 2))
    scale = np.ldexp(1.0, emu.parse(fmt).emin - emu.parse("fp32").emin)
    operations = {
        "quantize": lambda **k: emu.quantize(a * scale, fmt, **k),
        "add": lambda **k: emu.add(a * scale, b * scale, out_format=fmt, **k),
        "multiply": lambda **k: emu.multiply(a * scale, np.full(700, 0.7), out_format=fmt, **k),
        "divide": lambda **k: emu.divide(a * scale, np.full(700, 3.0), out_format=fmt, **k),
    }
    for name, call in operations.items():

        def run(call=call, **k: object) -> np.ndarray:
            return call(rounding=rounding, random=emu.Philox(5) if rounding == "stochastic" else None, **k)

        assert_same_everywhere(run, fmt, name, tininess=tininess)


@pytest.mark.parametrize("tininess", TININESS)
@pytest.mark.parametrize("accumulator", ["exact", "fp32"])
def test_of_products(accumulator: str, tininess: str):
    a, b = near_the_smallest("fp16", 12 * 20, 3).reshape(12, 20), np.random.default_rng(4).uniform(-1, 1, (20, 33))
    b = np.asarray(emu.quantize(b, "fp16"))

    def run(**k: object) -> np.ndarray:
        formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16"}
        return emu.matmul(a, b, mac=emu.Mac(accumulator=accumulator), **formats, **k)

    assert_same_everywhere(run, "fp16", accumulator, tininess=tininess)
