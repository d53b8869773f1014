"""Means: the accumulator's content divided once, observed with its point moved; other results a register must see."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import emu
from emu import Flags, Mac, StatisticsRegister
from emu.engine import average, conv2d


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("rounding", ["nearest_even", "floor", "to_odd"])
def test_a_mean_of_fixed_numbers_is_the_rational_mean_rounded_once(count: int, rounding: str, backend: str):
    fmt = emu.parse("fix8f4")
    values = fmt.decode(np.random.default_rng(count).integers(0, 256, (200, count), dtype=np.uint64))
    means = average(values, x_format=fmt, out_format="fix16f6", axis=1, rounding=rounding, backend=backend)
    for row, mean in zip(values, means, strict=True):
        exact = sum(Fraction(float(x)) for x in row) / count
        below = exact * 64 // 1
        rest = exact * 64 - below
        step_up = {
            "floor": False,
            "nearest_even": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1),
            "to_odd": rest > 0 and below % 2 == 0,
        }[rounding]
        assert Fraction(float(mean)) * 64 == below + step_up


def test_a_mean_near_a_tie_is_not_rounded_twice(backend: str):
    window = np.float32([[31352794, 0.5, -(2.0**-80)]])
    exact = sum(Fraction(float(x)) for x in window[0]) / 3
    mean = average(window, x_format="fp32", out_format="fp32", axis=1, backend=backend)
    neighbours = [Fraction(float(np.nextafter(mean[0], np.float32(s)))) for s in (0, np.inf)]
    assert all(abs(Fraction(float(mean[0])) - exact) < abs(n - exact) for n in neighbours)


@pytest.mark.parametrize(
    ("fmt", "out"),
    [("bf16", "fix24f20"), ("bf16", "fix16f-90"), ("fix16f-200", "fix8f0"), ("fix40f-880", "fix8f0"),
     ("fix16f880", "fix16f470"), ("fix16f-20", "fix16f12"), ("fp16", "fix8f4")],
)  # fmt: skip
@pytest.mark.parametrize("rounding", ["nearest_even", "ceil"])
def test_a_mean_that_wraps_keeps_its_lowest_bits_wherever_the_sum_lies(fmt: str, out: str, rounding: str, backend: str):
    source, target = emu.parse(fmt), emu.parse(out)
    assert isinstance(target, emu.Fixed)
    rng = np.random.default_rng(5)
    scale = float(source.max) / 8
    for count in (3, 5, 7):
        numbers = emu.quantize(rng.uniform(-scale, scale, (20, count)), fmt)
        means = average(
            numbers, x_format=fmt, out_format=out, axis=1, rounding=rounding, overflow="wrap", backend=backend
        )
        for row, mean in zip(numbers, means, strict=True):
            steps = sum(Fraction(float(x)) for x in row) / count * Fraction(2) ** target.frac_bits
            whole = round(steps) if rounding == "nearest_even" else -(-steps // 1)  # `round` takes the even one of two
            raw = (whole - target.min_raw) % 2**target.width_bits + target.min_raw
            assert Fraction(float(mean)) * Fraction(2) ** target.frac_bits == raw


@pytest.mark.parametrize(("count", "moved"), [(1, 0), (2, 1), (3, 1), (4, 2), (9, 3), (64, 6)])
def test_the_register_of_a_mean_observes_the_sum_with_its_point_moved(count: int, moved: int, backend: str):
    sums, means = StatisticsRegister(), StatisticsRegister()
    x = np.array([[-1.0] + [0] * (count - 1), [-1.0] * count, [3.0] * count])
    emu.engine.total(x, x_format="fix8f0", out_format="fix8f4", axis=1, register=sums, backend=backend)
    average(x, x_format="fix8f0", out_format="fix8f4", axis=1, register=means, backend=backend)
    assert means.histogram() == {exponent - moved: n for exponent, n in sums.histogram().items()}
    assert (means.lowest, means.bins) == (-moved, sums.bins)
    assert sums.max_exponent is not None
    assert means.max_exponent == sums.max_exponent - moved
    assert means.none == sums.none >= 1  # raw -1


@pytest.mark.parametrize("count", [2, 4, 16, 64])
def test_a_mean_over_a_power_of_two_counts_what_the_exact_quotient_written_alone_counts(count: int, backend: str):
    """Positions of a register that is placed beforehand: exponents of the means, whatever was added up."""
    x = emu.parse("fix16f8").decode(np.random.default_rng(count).integers(0, 2**16, (300, count), dtype=np.uint64))
    means, written = (StatisticsRegister(lowest=-14, bins=30) for _ in range(2))
    average(x, x_format="fix16f8", out_format="fix8f2", axis=1, register=means, backend=backend)
    quotients = [float(sum(Fraction(float(v)) for v in row) / count) for row in x]
    emu.quantize(quotients, "fix8f2", register=written, backend="reference")
    assert (means.positive, means.negative, means.total) == (written.positive, written.negative, written.total)
    assert means.max_exponent == written.max_exponent


def test_a_mean_of_zeros_has_no_largest_exponent(backend: str):
    register = StatisticsRegister()
    average(np.zeros((3, 4)), x_format="fix8f0", out_format="fix8f0", axis=1, register=register, backend=backend)
    assert (register.max_exponent, register.none) == (None, 3)


def test_a_mean_through_a_rounding_accumulator_divides_its_content(backend: str):
    mean = average(
        [[1.0, 1, 0]], x_format="fp16", out_format="fp16", axis=1, mac=Mac(accumulator="fp16"), backend=backend
    )
    assert mean.item() == float(np.float16(2 / 3))


def test_registers_of_tiny_quotients_see_the_true_leading_bit(backend: str):
    register = StatisticsRegister(lowest=-120, bins=100)
    a, b = np.float32([-3e-30, 1 / (3 * 2.0**100), -(2.0**-101) * 3]), np.float32([32, 1, 1])
    emu.divide(a, b, out_format="fix16f18", register=register, backend=backend)
    assert (register.positive, register.negative) == ({-102: 1}, {-104: 1, -100: 1})
    assert register.max_exponent == -100


def test_quotients_of_wide_integers_are_observed_where_they_are():
    register = StatisticsRegister(lowest=-80, bins=100)
    emu.divide(np.int64([3]), np.int64([2**60 + 1]), out_format="fix8f4", register=register)
    assert register.positive == {-59: 1}


def test_a_subnormal_operand_of_a_daz_format_times_infinity_is_invalid(backend: str):
    flags = Flags()
    formats = {"a_format": "fp16 daz", "b_format": "fp16", "out_format": "fp16"}
    assert np.isnan(emu.matmul([[2.0**-24]], [[np.inf]], flags=flags, backend=backend, **formats)).all()
    assert flags.invalid == 1


def test_a_product_rounded_to_a_float_is_observed_as_a_float(backend: str):
    register = StatisticsRegister()
    formats = {"a_format": "fix8f0", "b_format": "fix8f0", "out_format": "fix8f0"}
    emu.matmul([[-1.0]], [[1.0]], mac=Mac(product="fp16"), register=register, backend=backend, **formats)
    assert register.none == 0
    assert register.total == 1


def test_a_convolution_takes_out_and_random_bits_in_its_own_shape(backend: str):
    x, w = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
    formats = {"x_format": "fix8f0", "w_format": "fix8f1", "out_format": "fix8f-1"}
    rbits = np.array([[[[0, 2**24 - 1], [0, 2**24 - 1]]]], np.uint32)
    out = np.empty((1, 1, 2, 2), np.float32)
    y = conv2d(x, w, **formats, out=out, rbits=rbits, rounding="stochastic", backend=backend)
    assert y is out
    assert y.tolist() == [[[[8, 12], [20, 24]]]]
    with pytest.raises(emu.ShapeError, match="`stride` must be two integers of at least 1"):
        conv2d(x, w, **formats, stride=(0, 1), backend=backend)
