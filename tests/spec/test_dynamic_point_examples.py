"""The published example of dynamic fixed point: histogram and product, as far as a datapath carries them."""

from __future__ import annotations

import numpy as np
import pytest

import emu

HISTOGRAM = {-12: 10, -9: 100, -6: 3000, -3: 5000, -1: 1500, 0: 300, 1: 80, 2: 9, 3: 1}


def results() -> np.ndarray:
    """10000 numbers with their leading bits where the histogram counts them, of both signs."""
    magnitudes = np.concatenate([np.full(count, 1.5 * 2.0**e) for e, count in HISTOGRAM.items()])
    return magnitudes * np.where(np.arange(magnitudes.size) % 3 == 0, -1, 1)


def smallest_m(register: emu.StatisticsRegister, r_max: float) -> int:
    """B3: the smallest m with (sum over e >= m of H[e]) / N <= r_max."""
    return next(m for m in range(-40, 40) if register.count_from(m) / register.total <= r_max)


@pytest.mark.parametrize(("r_max", "m"), [(0, 4), (1e-4, 3), (1e-3, 2), (1e-2, 1)])
@pytest.mark.parametrize("width", [16, 8])
def test_the_histogram_of_the_example_gives_the_points_it_prints(r_max, m, width, backend):
    printed = {16: {4: "Q4.11", 3: "Q3.12", 2: "Q2.13", 1: "Q1.14"}, 8: {4: "Q4.3", 3: "Q3.4", 2: "Q2.5", 1: "Q1.6"}}
    register = emu.StatisticsRegister(lowest=-20, bins=39)
    emu.quantize(results(), "fix16f8", register=register, backend=backend)
    assert (register.histogram(), register.total) == (HISTOGRAM, 10000)
    assert smallest_m(register, r_max) == m
    assert emu.parse(printed[width][m]) == emu.Fixed(width, width - 1 - m)


@pytest.mark.parametrize(("point", "overflows"), [("Q4.11", 0), ("Q3.12", 1), ("Q2.13", 10), ("Q1.14", 90)])
def test_writing_the_example_at_each_point_overflows_as_often_as_the_histogram_says(point, overflows, backend):
    flags = emu.Flags()
    emu.quantize(results(), point, flags=flags, backend=backend)
    assert flags.overflow == overflows  # no result lies within one last place of a power of two


@pytest.mark.parametrize(("out", "raw", "overflow"), [("Q5.10", -2312, 0), ("Q2.13", -18498, 0), ("Q1.14", -32768, 1)])
def test_the_product_of_the_example_is_stored_as_it_prints(out, raw, overflow, backend):
    a, b = emu.quantize([[3.14159]], "Q5.10"), emu.quantize([[-0.71875]], "Q1.14")
    assert (emu.parse("Q5.10").to_raw(a).item(), emu.parse("Q1.14").to_raw(b).item()) == (3217, -11776)
    assert a.item() * b.item() * 2**24 == -37883392
    register, flags = emu.StatisticsRegister(), emu.Flags()
    y = emu.matmul(
        a, b, a_format="Q5.10", b_format="Q1.14", out_format=out, mac=emu.Mac(accumulator="fix40f24"),
        register=register, flags=flags, backend=backend,
    )  # fmt: skip
    assert emu.parse(out).to_raw(y).item() == raw
    assert (register.lowest, register.negative) == (-24, {1: 1})  # p = 25 of 24 fraction bits
    assert flags.overflow == overflow
    assert (emu.multiply(a, b, out_format=out, backend=backend) == y).all()
