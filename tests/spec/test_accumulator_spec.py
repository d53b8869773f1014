"""docs/concepts/products.md for operands that differ, or lie at the end of a format; every step in integers."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from emu import Fixed, Mac

FIXED = ("fix8f4", "fix6f1", "ufix7f0", "fix5f-2", "ufix4f9")


def limited(total: int, fmt: Fixed, rule: str) -> int:
    if rule == "wrap":
        return (total - fmt.min_raw) % 2**fmt.width_bits + fmt.min_raw
    low = -fmt.max_raw if rule == "saturate_symmetric" and fmt.signed else fmt.min_raw
    if rule == "saturate_zero":
        return total if low <= total <= fmt.max_raw else 0
    return min(max(total, low), fmt.max_raw)


@pytest.mark.parametrize("rule", ["saturate", "saturate_symmetric", "saturate_zero", "wrap"])
@pytest.mark.parametrize("second", FIXED)
@pytest.mark.parametrize("first", FIXED)
def test_a_fixed_accumulator_takes_operands_of_different_formats(first: str, second: str, rule: str, backend: str):
    """Raws times raws, in units of the accumulator two bits finer; 6, 12 and 18 bits wide, so that it runs over."""
    a_format, b_format, c_format = emu.parse(first), emu.parse(second), emu.parse("fix9f1")
    generator = np.random.default_rng(len(first) * 7 + len(second))
    a, b = (generator.integers(f.min_raw, f.max_raw + 1, 9) for f in (a_format, b_format))
    frac_bits = max(a_format.frac_bits + b_format.frac_bits, c_format.frac_bits) + 2
    shift, addend = frac_bits - a_format.frac_bits - b_format.frac_bits, int(generator.integers(-256, 256))
    for width in (6, 12, 18):
        fmt = Fixed(width, frac_bits)
        state = limited(addend << (frac_bits - c_format.frac_bits), fmt, rule)
        for x, y in zip(a, b, strict=True):
            state = limited(state + (int(x) * int(y) << shift), fmt, rule)
        formats = {"a_format": a_format, "b_format": b_format, "out_format": fmt, "addend_format": c_format}
        y = emu.matmul(
            a_format.from_raw(a),
            b_format.from_raw(b),
            addend=c_format.from_raw(np.array(addend)),
            mac=Mac(accumulator=fmt, overflow=rule),
            backend=backend,
            **formats,
        )
        assert fmt.to_raw(y) == state


@pytest.mark.parametrize("order", ["sequential", "pairwise", "lanes(2)"])
def test_an_accumulator_counts_the_smallest_numbers_of_float64(order: str, backend: str):
    """Every partial sum is a few units of 2**-1074, the last place of a subnormal."""
    formats = {"a_format": "fp64", "b_format": "fp64", "out_format": "fp64"}
    for depth in range(1, 6):
        a, b = np.full((1, depth), 2.0**-1074), np.ones((depth, 1))
        y = emu.matmul(a, b, mac=Mac(accumulator="fp64", order=order), backend=backend, **formats)
        assert y.item() == depth * 2.0**-1074
        y = emu.matmul(-a, b, mac=Mac(accumulator="fp64", order=order), backend=backend, **formats)
        assert y.item() == -depth * 2.0**-1074


def test_an_accumulator_of_two_units_beside_operands_of_different_ranges(backend: str):
    """bf16 reaches beyond fp16: products are exact in 24 bits, sums are small integers times 2**100."""
    a, b = np.array([[3.0, -5.0, 7.0]]) * 2.0**104, np.array([[2.0], [4.0], [1.0]]) * 2.0**-4
    formats = {"a_format": "bf16", "b_format": "fp16", "out_format": "fp32", "mac": Mac(accumulator="fp32")}
    assert emu.matmul(a, b, backend=backend, **formats).item() == (6 - 20 + 7) * 2.0**100
    swapped = {**formats, "a_format": "fp16", "b_format": "bf16"}
    assert emu.matmul(b.T, a.T, backend=backend, **swapped).item() == (6 - 20 + 7) * 2.0**100


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_wide_fixed_accumulator_rounds_right_beside_outputs_that_are_zero(zeros: int, backend: str):
    """2**32 + a quarter of the last place is 2**32: no float64 holds the sum, whatever the other outputs hold."""
    a = np.array([[2.0**32, 2.0**-22], [-(2.0**32), -(2.0**-22)], *[[0.0, 1.0]] * zeros])
    formats = {"a_format": "fp32", "b_format": "fp32", "out_format": "fix60f20", "mac": Mac(accumulator="fix60f20")}
    y = emu.matmul(a, np.ones((2, 1)), backend=backend, **formats)
    assert y.ravel().tolist() == [2**52, -(2**52), *[2**20] * zeros]


@pytest.mark.parametrize("rule", ["saturate", "saturate_symmetric", "saturate_zero"])
@pytest.mark.parametrize(("last", "limit", "touches"), [(7, 127, False), (8, 127, True), (-7, -127, False)])
def test_a_sum_that_reaches_the_limit_is_no_overflow(last: int, limit: int, touches: bool, rule: str, backend: str):
    """100 + 20 + 7 = 127 is the largest of eight bits, and its negative; one more is too many."""
    sign = 1 if limit > 0 else -1
    a, flags = np.array([[100.0 * sign, 20.0 * sign, last]]), emu.Flags()
    formats = {"a_format": "fix8f0", "b_format": "fix8f0", "out_format": "fix8f0", "flags": flags}
    y = emu.matmul(a, np.ones((3, 1)), mac=Mac(accumulator="fix8f0", overflow=rule), backend=backend, **formats)
    assert y.item() == (0 if touches and rule == "saturate_zero" else limit)
    assert flags.accumulator_overflow == touches


@pytest.mark.parametrize(("rounding", "want"), [("ceil", 1 + 2.0**-23), ("floor", 1.0), ("to_odd", 1 + 2.0**-23)])
def test_a_product_below_every_float64_still_counts(rounding: str, want: float, backend: str):
    """1 + 2**-2000: no float64 holds the product, and directed modes tell."""
    tiny = {"a_format": "e11m5", "b_format": "e11m5", "out_format": "fp32"}
    a, b = np.array([[1.0, 2.0**-1000]]), np.array([[1.0], [2.0**-1000]])
    assert emu.matmul(a, b, mac=Mac(accumulator="fp32", rounding=rounding), backend=backend, **tiny).item() == want


@pytest.mark.parametrize(
    ("accumulator", "rule", "want", "events"),
    [
        ("fp32", "satpropagate", -float(2**128 - 2**104), 1),  # which leaves infinities as they are
        ("fp32", "ieee", -np.inf, 1),
        ("fix16f0", "wrap", 15.0, 0),  # 2**2000 is 0 modulo 2**16
        ("fix16f0", "saturate_zero", 15.0, 1),
    ],
)
def test_a_product_beyond_every_float64_is_finite(accumulator: str, rule: str, want: float, events: int, backend: str):
    """2**1000 * -2**1000 + 3 * 5: no float64 holds the first product, whose overflow is that of a finite number."""
    flags, huge = emu.Flags(), "e10m5 bias=0"
    formats = {"a_format": huge, "b_format": huge, "out_format": "fp32", "flags": flags, "backend": backend}
    mac = Mac(accumulator=accumulator, overflow=rule)
    assert emu.matmul([[2.0**1000, 3.0]], [[-(2.0**1000)], [5.0]], mac=mac, **formats).item() == want
    assert flags.accumulator_overflow == events


@pytest.mark.parametrize("left", [True, False])
def test_an_infinity_times_zero_beside_finite_products_is_a_new_nan(left: bool, backend: str):
    flags, unit = emu.Flags(), Mac(accumulator="fp32")
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "mac": unit, "flags": flags}
    several, zero = np.array([[np.inf], [1.0], [2.0]]), np.array([[0.0]])
    operands = (several, zero) if left else (zero, several.T)
    y = emu.matmul(*operands, backend=backend, **formats).ravel()
    assert np.isnan(y[0])
    assert y[1:].tolist() == [0, 0]
    assert flags.invalid == 1


@pytest.mark.parametrize(("a", "b"), [(2039016529, 1366547672), (2137680573, 2119326701), (1326970309, 1991117905)])
def test_a_product_beside_the_middle_that_float64_cannot_hold_is_rounded_once(a: int, b: int, backend: str):
    """Of 62 bits, less than 2**8 beside the middle of two binary32 numbers: float64 would lose on which side."""
    half, rest = 2**37, a * b % 2**38
    assert 0 < abs(rest - half) < 2**8
    formats = {"a_format": "fix32f0", "b_format": "fix32f0", "out_format": "fp32", "mac": Mac(accumulator="fp32")}
    y = emu.matmul([[float(a)]], [[float(b)]], backend=backend, **formats)
    assert int(y.item()) == a * b - rest + (2**38 if rest > half else 0)


@pytest.mark.parametrize("order", ["sequential", "pairwise", "lanes(2)"])
def test_an_addend_beside_the_middle_that_float64_cannot_hold_is_rounded_once(order: str, backend: str):
    middle = 2**61 + 2**37
    addend = np.array([[middle + 1, middle, middle - 1]])
    formats = {"a_format": "fp16", "b_format": "fp16", "addend_format": "fix64f0", "out_format": "fp32"}
    mac = Mac(accumulator="fp32", order=order)
    y = emu.matmul(np.zeros((1, 3)), np.zeros((3, 3)), addend=addend, mac=mac, backend=backend, **formats)
    assert y.ravel().tolist() == [2**61 + 2**38, 2**61, 2**61]
