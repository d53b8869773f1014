"""docs/concepts/scaled.md, "A unit", and docs/concepts/requantise.md: units that write scaled formats."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import emu
from emu.formats import ScaledValue

RANDOM = np.random.default_rng(20261127)
X = RANDOM.normal(size=(32, 64)).astype(np.float32)
W = RANDOM.normal(size=(64, 32)).astype(np.float32)
SCALES = {"a_scale": 0.05, "b_scale": 0.02, "scale": 0.1}


def equal(v: ScaledValue, w: ScaledValue) -> bool:
    zeros = (v.zero is None) == (w.zero is None) and (v.zero is None or np.array_equal(v.zero, w.zero))
    same = v.format == w.format and v.axis == w.axis and np.array_equal(v.codes, w.codes)
    return zeros and same and all(np.array_equal(a, b) for a, b in zip(v.scales, w.scales, strict=True))


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "nvfp4", "fp8_tensor", "uint8_affine", "int8_channel"])
@pytest.mark.parametrize("axis", [-1, -2])
def test_a_unit_writes_results_of_binary32_as_blocks(fmt: str, axis: int):
    unit = emu.Unit(fmt, axis=axis, mac=emu.Mac(accumulator="fp32"))
    plain = emu.Unit("fp32", mac=emu.Mac(accumulator="fp32"))
    a, b = emu.value(X, "fp32"), emu.value(W, "fp32")
    for got, wanted in [
        (unit.matmul(a, b), plain.matmul(a, b)),
        (unit.add(a, 1.0), plain.add(a, 1.0)),
        (unit.tanh(a), plain.tanh(a)),
        (unit.quantize(X), a),
    ]:
        assert equal(got, emu.quantize(wanted, fmt, axis=axis))


def test_a_unit_multiplies_blocks_and_writes_blocks():
    mac = emu.Mac.preset("b200", inputs="mxfp8_e4m3")
    a, b = emu.quantize(X, "mxfp8_e4m3"), emu.quantize(W, "mxfp8_e4m3", axis=-2)
    got = emu.Unit("mxfp8_e4m3 rceil", axis=-2, mac=mac).matmul(a, b)
    assert equal(got, emu.quantize(emu.matmul(a, b, out_format="fp32", mac=mac), "mxfp8_e4m3 rceil", axis=-2))


def test_a_unit_observes_exact_results_and_counts_elements_that_clip():
    register, flags = emu.StatisticsRegister(lowest=-8, bins=24), emu.Flags()
    unit = emu.Unit("block(fp8_e4m3, fp8_e8m0 1x4 floor)", register=register, flags=flags)
    unit.multiply(np.float32([[480.0, 0, 0.25, 8.0]]), 1.0)
    assert register.positive == {-2: 1, 3: 1, 8: 1}
    assert (register.none, register.total, flags.overflow) == (1, 4, 1)


def test_a_unit_of_scaled_formats_is_copied_replaced_and_shown():
    unit = emu.Unit("mxfp8_e4m3", axis=0, rounding="stochastic", mac=emu.Mac(accumulator="fp32"))
    assert pickle.loads(pickle.dumps(unit)) == unit
    assert unit.replace(axis=1) != unit
    assert repr(unit).startswith("Unit('mxfp8_e4m3', axis=0, mac=Mac(")
    assert unit.replace(out="nvfp4", rounding="nearest_even").quantize(X).format == emu.parse("nvfp4")
    assert str(unit.replace(out="fix8f4").stage.format) == "fix8f4"
    by = emu.Unit("uint8_affine", requantise="float32", scale=0.5, zero=3)
    assert pickle.loads(pickle.dumps(by)) == by
    assert repr(by).startswith("Unit('uint8_affine', requantise=Requantiser('float32', scale=0.5, zero=3), mac=Mac(")
    changed = by.replace(scale=0.25, zero=4)
    assert repr(changed).startswith("Unit('uint8_affine', requantise=Requantiser('float32', scale=0.25, zero=4)")
    v = changed.quantize(X)
    assert v.zero is not None
    assert (v.scales[0].item(), v.zero.item()) == (0.25, 4)
    exact = emu.Requantiser("exact", scale=1.0, lowest=0, highest=6, rounding="floor")
    assert repr(exact) == "Requantiser('exact', scale=1.0, zero=0, lowest=0, highest=6, rounding='floor')"


def test_a_fused_activation_bounds_elements_and_counts_them_as_overflow():
    flags = emu.Flags()
    sums = np.arange(-2000, 2000, 100)
    got = emu.requantise(sums, "fix8f0", **SCALES, zero=-10, lowest=-10, highest=5, flags=flags)
    free = np.rint(sums.astype(np.float32) * np.float32(np.float32(0.05) * np.float32(0.02) / np.float32(0.1))) - 10
    assert np.array_equal(got, np.clip(free, -10, 5))
    assert flags.overflow == np.count_nonzero((free < -10) | (free > 5)) > 0


@pytest.mark.parametrize("end", [0, 255])
def test_zero_points_and_bounds_may_be_the_first_and_the_last_element(end: int):
    given = {"kind": "float32", "a_scale": 1.0, "b_scale": 1.0, "scale": 1.0}
    assert emu.requantise([-300, 0, 300], "ufix8f0", zero=end, **given).tolist() == [0, end, 255]
    assert emu.requantise([-300, 7, 300], "ufix8f0", lowest=end, highest=end, **given).tolist() == [end] * 3


def test_scales_of_channels_broadcast_to_sums():
    sums = RANDOM.integers(-9999, 9999, (3, 4))
    scales = np.float32([0.01, 0.02, 0.03, 0.04])
    got = emu.requantise(sums, "fix8f0", a_scale=0.05, b_scale=scales, scale=0.1)
    for j, scale in enumerate(scales):
        alone = emu.requantise(sums[:, j], "fix8f0", a_scale=0.05, b_scale=scale, scale=0.1)
        assert np.array_equal(got.array[:, j], alone)


def test_given_scales_replace_those_of_the_rule():
    v = emu.quantize(X, "int8_channel", scale=np.full((32, 1), 0.05))
    assert np.array_equal(v.array, np.clip(np.rint(X / np.float32(0.05)), -127, 127))
    w = emu.quantize(X, "mxfp8_e4m3", scale=0.5)
    assert np.array_equal(w.array, emu.quantize(X * 2, "fp8_e4m3", overflow="satfinite"))
    counts, flags = emu.ScaleCounts(), emu.Flags()
    u = emu.quantize(X, "uint8_affine", scale=0.01, zero=200, counts=counts, flags=flags)
    wanted = np.rint(X / np.float32(0.01)) + 200
    assert np.array_equal(u.array, np.clip(wanted, 0, 255))
    assert counts.clipped == flags.overflow == np.count_nonzero((wanted < 0) | (wanted > 255)) > 0
    assert counts.clipped_largest == 1


def test_a_line_times_a_stack_has_the_scales_of_each_matrix():
    a = emu.quantize(X[0], "int8_tensor")
    b = emu.quantize(RANDOM.normal(size=(3, 64, 5)), "block(fix8f0, fp32 row symmetric)", axis=-2)
    mac = emu.Mac(accumulator="fix32f0", overflow="wrap", scales="at_result")
    got = emu.matmul(a, b, out_format="fp32", mac=mac)
    for i in range(3):
        assert np.array_equal(got[i], emu.matmul(a, one_of(b, i), out_format="fp32", mac=mac))


def one_of(v: ScaledValue, i: int) -> ScaledValue:
    """Return a matrix of a stack whose blocks lie along its rows."""
    return emu.value((v.array[i], v.scales[0][i]), str(v.format), axis=-2)


@pytest.mark.parametrize("axis", [-1, -2, -3])
@pytest.mark.parametrize(
    "shape",
    [(64, 16, 1, 1), (64, 16, 16), (3, 64, 64), (1, 17, 64), (1, 1, 64), (17, 1, 64), (1, 32, 16), (32, 1, 16)],
)
def test_channels_of_stacks_are_quantised_by_every_backend(shape: tuple[int, ...], axis: int):
    x = RANDOM.normal(size=shape).astype(np.float32)
    v, w = (emu.quantize(x, "int8_channel", axis=axis, backend=backend) for backend in ("auto", "reference"))
    assert equal(v, w)
    if axis == -1:
        assert v.scales[0].shape == (shape[0], *(1,) * (len(shape) - 1))


@pytest.mark.parametrize("fmt", ["fix16f0", "fix12f0", "fix24f0", "fp16"])
def test_bytes_hold_elements_of_more_than_8_bits(fmt: str):
    v = emu.quantize(X, f"block({fmt}, fp32 tensor te)")
    assert np.array_equal(ScaledValue.from_packed(v.packed(), v.format).array, v.array)


def test_a_given_mac_replaces_the_wrapping_one():
    given = emu.Unit("uint8_affine", requantise="exact", scale=1.0, mac=emu.Mac())
    assert given.mac == emu.Mac()
    assert emu.Unit("uint8_affine", requantise="exact", scale=1.0).mac.overflow == "wrap"
    assert emu.Unit("uint8_affine").replace(requantise="exact", scale=1.0).mac.overflow == "wrap"


def test_a_unit_observes_and_counts_what_happened_before_the_blocks():
    register, flags = emu.StatisticsRegister(lowest=-8, bins=24), emu.Flags()
    unit = emu.Unit("mxfp8_e4m3", register=register, flags=flags)
    unit.quantize(np.ones((1, 32), np.float32))
    assert register.total == 32
    unit.divide(np.ones((1, 32), np.float32), 0.0)
    assert flags.division_by_zero == 32
    narrow = emu.Flags()
    a = emu.value((np.full((1, 3), 127.0), [[1.0]]), "int8_tensor")
    b = emu.value((np.full((3, 1), 127.0), [[1.0]]), "int8_tensor", axis=-2)
    mac = emu.Mac(accumulator="fix16f0")
    emu.Unit("int8_tensor", requantise="exact", scale=1.0, mac=mac, flags=narrow).matmul(a, b)
    assert (narrow.accumulator_overflow, narrow.overflow) == (1, 1)


def test_whole_quotients_that_are_bounded_are_inexact():
    flags = emu.Flags()
    emu.quantize(np.float32([-300, 0, 300, 1, 1.5]), "uint8_affine", scale=1, zero=0, flags=flags)
    assert (flags.overflow, flags.inexact) == (2, 3)


@pytest.mark.parametrize("fmt", ["uint8_affine", "int8_affine", "block(fix4f0, fp32 tensor ort)"])
@pytest.mark.parametrize("mode", ["jamming", "magnitude_truncation"])
def test_modes_that_move_integers_move_a_quotient_once_before_its_zero_point_is_added(
    fmt: str, mode: str, backend: str
):
    x, flags, zero = np.arange(-300, 301, dtype=np.float32) / 2, emu.Flags(), 5
    v = emu.quantize(x, fmt, scale=1, zero=zero, rounding=mode, flags=flags, backend=backend)
    low, high = int(v.format.element.min), int(v.format.element.max)
    floors = [math.floor(float(e)) for e in x]
    moved = [q | 1 if mode == "jamming" else q + (e < 0) for q, e in zip(floors, x, strict=True)]
    bounded = [min(max(q + zero, low), high) for q in moved]
    assert v.array.tolist() == bounded
    assert flags.overflow == sum(b != q + zero for b, q in zip(bounded, moved, strict=True))
    assert flags.inexact == sum(q != e or b != q + zero for b, q, e in zip(bounded, moved, x, strict=True))


def test_quotients_by_a_given_power_of_two_may_be_beyond_binary32():
    v = emu.quantize(np.full(32, 1e38, np.float32), "mxfp8_e5m2", scale=2.0**-100, overflow="satpropagate")
    assert v.array[0] == 57344


def test_addends_of_many_bits_enter_saturating_accumulators_exactly():
    a = emu.value((np.float32([[1]]), [[1.0]], [[0]]), "uint8_affine")
    b = emu.value((np.float32([[1]]), [[1.0]], [[0]]), "uint8_affine", axis=-2)
    mac = emu.Mac(accumulator="fix56f0", overflow="saturate", scales="at_result")
    for backend in ("numba", "reference"):
        y = emu.matmul(a, b, out_format="fix64f0", mac=mac, addend=[2**54], addend_format="fix64f0", backend=backend)
        assert y.item() == 2**54


def test_flags_of_a_unit_count_elements_alone():
    a, b = np.float32([[0.1, 0.3, 1e-30, 1.0]]), np.float32([[1 / 3, 1 / 3, 1e-30, 1.0]])
    got, wanted = emu.Flags(), emu.Flags()
    emu.Unit("int8_tensor", flags=got).multiply(a, b)
    emu.quantize(a * b, "int8_tensor", flags=wanted)
    assert got == wanted
    assert (got.underflow, got.inexact) == (0, 2)  # 1e-60 is 0 in binary32, which no flag of the unit counts


def test_a_register_observes_the_sums_that_are_requantised():
    register = emu.StatisticsRegister(lowest=-8, bins=40)
    x, w = X[:4, :8].round(), W[:8, :4].round()
    a, b = (emu.value((array, [[1.0]]), "int8_tensor", axis=axis) for array, axis in ((x, -1), (w, -2)))
    emu.Unit("int8_tensor", requantise="exact", scale=64.0, register=register).matmul(a, b)
    sums = x @ w
    assert register.total == 16
    # the leading bit of a negative word of two's complement is its first 0
    for side, numbers in ((register.positive, sums), (register.negative, -1 - sums)):
        exponents, counts = np.unique(np.frexp(numbers[numbers > 0])[1] - 1, return_counts=True)
        assert side == dict(zip(exponents.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("end", [2**31 - 1, -(2**31)])
def test_sums_of_wider_accumulators_are_requantised_up_to_the_ends_of_32_bits(end: int):
    a, b = emu.value((np.zeros((1, 4)), [[1.0]]), "int8_tensor"), emu.value((np.zeros((4, 1)), [[1.0]]), "int8_tensor")
    unit = emu.Unit(
        "int8_tensor", requantise="exact", scale=2.0**25, mac=emu.Mac(accumulator="fix40f0", overflow="wrap")
    )
    assert unit.matmul(a, b.along(-2), addend=np.array([end])).tolist() == [[2.0**31 if end > 0 else -(2.0**31)]]
    beyond = end + (1 if end > 0 else -1)
    with pytest.raises(emu.FormatError, match=f"must have 32 bits, got {beyond} from the accumulator fix40f0; write"):
        unit.matmul(a, b.along(-2), addend=np.array([beyond]))


def test_a_product_beyond_binary32_is_the_largest_or_smallest_element():
    got = emu.requantise([10, -10], "fix8f0", a_scale=3e38, scale=1.0)
    assert got.tolist() == [127, -128]


@pytest.mark.parametrize("kind", ["double_rounding", "single_rounding"])
def test_multipliers_below_the_least_shift_are_0(kind: str):
    for shift in (-32, -33, -64, -100):
        got = emu.requantise([2**31 - 1, -(2**31)], "fix8f0", kind, multiplier=(2**31 - 1, shift), zero=5)
        assert got.tolist() == [5, 5]


def test_a_multiplier_between_two_of_31_bits_is_the_upper_one():
    # 65533 * 65537 is odd, has 32 bits, and half of it lies over an even number
    got = emu.requantise(2**30 + 1, "fix16f0", "single_rounding", a_scale=65533, b_scale=65537, scale=2.0**48)
    m, total = (65533 * 65537 + 1) // 2, 47
    assert int(got) == (2**30 + 1) * m + 2 ** (total - 1) >> total == 2**14
    assert (2**30 + 1) * (m - 1) + 2 ** (total - 1) >> total == 2**14 - 1


def test_a_multiplier_that_rounds_to_a_power_of_two_is_that_power():
    scales = {"a_scale": 1 + 2.0**-23, "b_scale": 1 - 2.0**-23, "scale": 1.0}
    assert int(emu.requantise(2**30, "fix16f0", "double_rounding", **scales)) == -(2**15)  # 2**31 wraps
    assert int(emu.requantise(2**30, "fix16f0", "single_rounding", **scales)) == 2**15 - 1


@pytest.mark.parametrize(("sign", "even", "floor", "ceil"), [(1, 1, 0, 1), (-1, -1, -1, 0)])
def test_a_product_next_to_a_half_is_rounded_as_it_is(sign: int, even: int, floor: int, ceil: int):
    above = {"a_scale": 16005665, "b_scale": 10325701, "scale": 2.0**55}  # 109 of them: 2**54 + 1
    below = {"a_scale": 1321 * 331 * 31, "b_scale": 151 * 61 * 41 * 13, "scale": 2.0**61}  # 17325 of them: 2**60 - 1
    for mode, wanted in (("nearest_even", even), ("nearest_away", even), ("floor", floor), ("ceil", ceil)):
        assert int(emu.requantise(109 * sign, "fix8f0", "exact", **above, rounding=mode)) == wanted
    for mode, wanted in (("nearest_even", 0), ("nearest_away", 0), ("floor", floor), ("ceil", ceil)):
        assert int(emu.requantise(17325 * sign, "fix8f0", "exact", **below, rounding=mode)) == wanted


def test_what_wraps_in_the_accumulator_is_no_overflow_of_elements():
    flags = emu.Flags()
    a, b = (
        emu.value((np.full(shape, 100), [[1.0]]), "int8_tensor", axis=axis)
        for shape, axis in (((1, 4), -1), ((4, 1), -2))
    )
    mac = emu.Mac(accumulator="fix16f0", overflow="wrap")
    got = emu.Unit("int8_tensor", requantise="exact", scale=1024.0, mac=mac, flags=flags).matmul(a, b)
    assert got.array.tolist() == [[-25]]  # 40000 - 65536
    assert flags == emu.Flags()


@pytest.mark.parametrize("batch", [(2, 3), (3,), (2, 1)])
def test_each_matrix_of_a_batch_is_multiplied_with_its_own_rows_and_zero_points(batch: tuple[int, ...]):
    x, w = RANDOM.normal(size=(*batch, 5, 16)), RANDOM.normal(size=(2, 3, 16, 4))
    a = emu.quantize(x, "block(ufix8f0, fp32 row ort)")
    b = emu.quantize(w, "block(fix8f0, fp32 row tflite)", axis=-2)
    unit = emu.Unit("int8_affine", requantise="exact", scale=0.1, zero=3)
    got = unit.matmul(a, b).array
    rows = np.broadcast_to(x, (2, 3, 5, 16))
    for i, j in np.ndindex(2, 3):
        alone = emu.quantize(rows[i, j], a.format), emu.quantize(w[i, j], b.format, axis=-2)
        assert np.array_equal(got[i, j], unit.matmul(*alone).array)


def test_a_bias_and_zero_points_enter_the_outer_accumulator_of_sums_in_pairs():
    low = RANDOM.integers(0, 90, (5, 8)), RANDOM.integers(-90, 90, (8, 6))
    a = emu.value((low[0], [[0.5]], [[200]]), "uint8_affine")
    b = emu.value((low[1], [[0.5]], [[-100]]), "int8_affine", axis=-2)
    pairs = emu.Mac(accumulator="fix32f0", order="promote(2, sequential, fix16f0, nearest_even)", overflow="wrap")
    unit = UNIT.replace(scale=500.0, zero=99)
    bias = RANDOM.integers(-9999, 9999, 6)
    sums = (low[0] - 200) @ (low[1] + 100) + bias
    wanted = np.clip(np.rint(sums.astype(np.float32) * np.float32(0.25 / 500)) + 99, 0, 255)
    assert np.array_equal(unit.replace(mac=pairs).matmul(a, b, addend=bias).array, wanted)
    assert np.array_equal(unit.matmul(a, b, addend=bias).array, wanted)


def test_the_scale_of_a_result_is_a_normal_number_of_binary32():
    assert emu.Requantiser("exact", scale=2.0**-126).scale == 2.0**-126
    assert emu.Requantiser("exact", scale=0.1).scale == float(np.float32(0.1)) != 0.1


def test_options_are_laid_over_a_requantiser():
    by = emu.Requantiser("exact", scale=1.0, lowest=2, highest=2)
    assert repr(by) == "Requantiser('exact', scale=1.0, zero=0, lowest=2, highest=2)"
    assert emu.requantise([0, 90], "fix8f0", by).tolist() == [2, 2]
    assert emu.requantise([0, 90], "fix8f0", by, zero=5, highest=7).tolist() == [5, 7]


def test_a_bias_may_have_fraction_bits_that_are_0():
    got = UNIT.matmul(*INTEGERS, addend=emu.value(np.full(32, 300.0), "fix24f4"))
    assert equal(got, UNIT.matmul(*INTEGERS, addend=np.full(32, 300)))


@pytest.mark.parametrize(
    ("raw", "fmt", "number"),
    [(2**60, "fix64f30", 2**30), (-(2**61), "fix64f30", -(2**31)), (0, "fix64f70", 0), (-3, "fix64f-2", -12)],
)
def test_sums_of_words_that_floats_do_not_hold_are_the_integers_they_stand_for(raw: int, fmt: str, number: int):
    got = emu.requantise(raw_value(raw, fmt), "fix8f0", "shift", scale=2.0**25)
    assert got.item() == emu.requantise(number, "fix8f0", "shift", scale=2.0**25).item()


@pytest.mark.parametrize(
    ("raw", "fmt", "number"),
    [(2**61 + 2, "fix64f1", 2**60 + 1), (-(2**63), "fix64f0", -(2**63)), (1, "fix64f-62", 2**62)],
)
@pytest.mark.parametrize("overflow", ["wrap", "saturate"])
def test_a_bias_of_64_bits_enters_the_accumulator_exactly(overflow: str, raw: int, fmt: str, number: int):
    """One product, 3 - 1 times 1 or -1, away from the end of the accumulator."""
    a = emu.value((np.float32([[3]]), [[1.0]], [[1]]), "uint8_affine")
    b = emu.value((np.float32([[1 if number < 0 else -1]]), [[1.0]], [[0]]), "int8_affine", axis=-2)
    mac = emu.Mac(accumulator="fix64f0", overflow=overflow, scales="at_result")
    total = emu.matmul(a, b, out_format="fp64", mac=mac, addend=raw_value(raw, fmt), backend="reference")
    # the sum times the scale 1 is rounded to binary32
    assert total.item() == np.float32(number + (2 if number < 0 else -2))


def raw_value(raw: int, fmt: str) -> emu.Value:
    """Return the number raw * 2**-frac_bits of a format that carries raws."""
    parsed = emu.parse(fmt)
    return emu.value(parsed.from_raw(np.array(raw, np.uint64 if raw > 2**62 else np.int64)), parsed)


INTEGERS = emu.quantize(X, "uint8_affine"), emu.quantize(W, "int8_channel", axis=-2)
UNIT = emu.Unit("uint8_affine", requantise="float32", scale=0.5, zero=3)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: emu.quantize(X, "uint8_affine", scale=0.0), "`scale` must be positive, finite and normal, got 0.0; g"),
        (lambda: emu.quantize(X, "uint8_affine", scale=-1), "`scale` must be positive, finite and normal, got -1"),
        (lambda: emu.quantize(X, "uint8_affine", scale=np.nan), "`scale` must be positive, finite and normal, got nan"),
        (lambda: emu.quantize(X, "uint8_affine", scale=1e-40), "`scale` must be positive, finite and normal, got 1e-4"),
        (lambda: emu.quantize(X, "uint8_affine", scale=1, zero=256), "a zero point must be an integer in 0..255, the"),
        (lambda: emu.quantize(X, "uint8_affine", scale=1, zero=0.5), "a zero point must be an integer in 0..255.*got"),
        (lambda: emu.quantize(X, "uint8_affine", zero=1), "`zero` must be given with `scale`, got 1 alone; give both"),
        (lambda: emu.quantize(X, "int8_tensor", scale=1, zero=1), "`zero` must be left out for int8_tensor, which has"),
        (lambda: emu.quantize(X, "nvfp4", scale=1), "`scale` must be left to the rule nvfp4 of nvfp4, which divides b"),
        (lambda: emu.quantize(X, "uint8_affine", overflow="wrap"), "`overflow` must saturate elements with a zero poi"),
        (lambda: emu.parse("block(fix8f4, fp32 tensor ort)"), "elements with a zero point must be integers, got fix8f"),
        (lambda: emu.parse("block(fix17f0, fp32 tensor ort)"), "elements with a zero point must have at most 16 bits,"),
        (lambda: emu.parse("block(fix8f0, fp16 tensor ort)"), "the rule ort needs scales that are binary32, got the s"),
        (lambda: emu.Unit("fp16", axis=1), "`axis` must be left out for a format whose elements share no scales, got"),
        (lambda: emu.Unit("uint8_affine", requantise="flot32", scale=1), "a requantiser must be one of .* did you mea"),
        (lambda: emu.Unit("uint8_affine", requantise="float32"), "`scale` must be given with `requantise`, got none f"),
        (lambda: emu.Unit("uint8_affine", requantise="float32", scale=1, axis=0), "`axis` must be left out where sums"),
        (lambda: emu.Unit("mxfp8_e4m3", requantise="float32", scale=1), "must write integers with a scale for the ten"),
        (lambda: emu.Unit("int8_tensor", requantise="float32", scale=1, zero=3), "`zero` must be 0 for int8_tensor, w"),
        (lambda: emu.Unit("int8_affine", requantise="float32", scale=1, zero=128), "a zero point must be an integer i"),
        (lambda: emu.Unit("uint8_affine", scale=1.0), "`scale` and `zero` of a unit must be given with `requantise`,"),
        (lambda: UNIT.add(X, X), "a unit that requantises must multiply matrices, convolve or quantize, got add; use"),
        (lambda: UNIT.matmul(X, INTEGERS[1]), "`a` must be integers with scales, as those of the other operand or of"),
        (lambda: UNIT.matmul(emu.quantize(X, "block(fix8f0, fp32 1x32 symmetric)"), INTEGERS[1]),
         "scales of `a` must be those of rows, channels or the tensor in a product of integers, got block"),
        (lambda: UNIT.matmul(*INTEGERS, addend=np.full(32, 0.5)), "a bias must be integers where operands have zero p"),
        (lambda: UNIT.replace(mac=emu.Mac(accumulator="fp32")).matmul(*INTEGERS), "`accumulator` must hold integers w"),
        (lambda: UNIT.conv2d(INTEGERS[0], INTEGERS[1]), "scales of `w` must be those of the tensor or of output chann"),
        (lambda: emu.matmul(*INTEGERS, out_format="fp32", mac=emu.Mac.preset("b200", inputs="mxfp8_e4m3")),
         "scales of elements with zero points must enter at_result, got in_block for uint8_affine; give"),
        (lambda: emu.requantise(0.5, "fix8f0", **SCALES), "`sums` must be integers of 32 bits, got 0.5; quantize them"),
        (lambda: emu.requantise(-(2**31) - 1, "fix8f0", **SCALES), "`sums` must be integers of 32 bits, got -21474836"),
        (lambda: emu.requantise(1, "fix17f0", **SCALES), "a requantiser must write integers of at most 16 bit"),
        (lambda: emu.requantise(1, emu.Fixed(8, 0, sign_magnitude=True), **SCALES), "must write integers of at most 1"),
        (lambda: emu.requantise([1, 2], "fix8f0", a_scale=[[1], [1]], b_scale=1, scale=1), r"broadcast to the sums \("),
        (lambda: emu.requantise(1, "fix8f0", "single_rounding", multiplier=(2**31, 0)), r"must be integers, 0 or in 2"),
        (lambda: emu.Unit("int8_channel", requantise="float32", scale=1), "must write integers with a scale for the t"),
        (lambda: emu.Unit("block(fix8f4, fp32 tensor symmetric)", requantise="float32", scale=1),
         "must write integers with a scale for the tensor, got block"),
        (lambda: emu.Unit("uint8_affine", zero=1), "`scale` and `zero` of a unit must be given with `requantise`, got"),
        (lambda: UNIT.matmul(INTEGERS[0].along(-1), emu.quantize(W, "block(fix8f0, fp32 32x1 symmetric)", axis=-2)),
         "scales of `b` must be those of rows, channels or the tensor"),
        (lambda: UNIT.matmul(*(emu.quantize(x, "uint8_affine") for x in (X[0], W[:, 0]))),
         "a product that is requantised must have an axis, got two vectors; give one of them as a matrix"),
        (lambda: emu.requantise(1, "fix8f0", "exact", **SCALES, rounding="jamming"), "must not round by jamming"),
        (lambda: emu.Requantiser("exact", scale=np.inf), "`scale` must be positive, finite and normal, got inf; gi"),
        (lambda: emu.Requantiser("exact", scale=1e39), "`scale` must be positive, finite and normal, got 1e.39; gi"),
        (lambda: emu.requantise(1, "fix8f0", "shift", a_scale=3, b_scale=1, scale=1), "must be a power of two, got 3"),
        (lambda: emu.requantise(2**31, "fix8f0", **SCALES), "`sums` must be integers of 32 bits, got 2147483648"),
        (lambda: emu.requantise(1, "fp16", **SCALES), "a requantiser must write integers of at most 16 bits, got the"),
        (lambda: emu.requantise(1, "fix8f0", **SCALES, zero=200), "a zero point must be an integer in -128..127, the"),
        (lambda: emu.requantise(1, "fix8f0", **SCALES, highest=200), "`highest` must be an integer in -128..127"),
        (lambda: emu.requantise(1, "fix8f0", **SCALES, lowest=5, highest=1), "`lowest` must not exceed `highest`, got"),
        (lambda: emu.requantise(1, "fix8f0"), "must be given `scale`, `a_scale` and `b_scale`, or `multiplier`, got n"),
        (lambda: emu.requantise(1, "fix8f0", **SCALES, rounding="floor"), "`rounding` must be left out for the requan"),
        (lambda: emu.requantise(1, "fix8f0", "exact", **SCALES, rounding="stochastic"), "must not round by stochastic"),
        (lambda: emu.requantise(1, "fix8f0", "shift", **SCALES), "a multiplier of the requantiser shift must be a pow"),
        (lambda: emu.requantise(1, "fix8f0", "exact", multiplier=(2**30, 0)), "`multiplier` must be left out for the"),
        (lambda: emu.requantise(1, "fix8f0", "single_rounding", multiplier=(5, 0)), r"must be integers, 0 or in 2\*\*"),
        (lambda: emu.requantise(1, "fix8f0", "single_rounding", multiplier=(2**30, 31)), r"a multiplier must be below"),
        (lambda: emu.requantise([2**70], "fix8f0", **SCALES), "`sums` must be integers of 32 bits, got"),
        (lambda: emu.requantise(1, "fix8f0", "exact", scale="a"), "`scale` must be positive, finite and normal, got '"),
        (lambda: emu.requantise(1, "fix8f0", scale=2.0**-100, a_scale=2.0**100), "a multiplier must be a finite numbe"),
        (lambda: emu.Requantiser("exact", scale=1.0, zero=None), "`zero` must be an integer, got None; write a whole"),
        (lambda: emu.Unit("uint8_affine", requantise=emu.Requantiser("exact", scale=1.0, lowest=-9)), "`lowest` must"),
        (lambda: emu.Unit("int8_tensor", requantise="exact", scale=1, rounding="floor"), "`rounding` of a unit that r"),
        (lambda: emu.Unit("int8_tensor", requantise="exact", scale=1, overflow="wrap"), "`overflow` of a unit that re"),
        (lambda: emu.requantise(1, "fix8f0", "single_rounding", multiplier=(2**30, 1), scale=2.0), "must be given wit"),
        (lambda: emu.quantize(X, "uint8_affine", scale=1.0, zero="a"), "a zero point must be an integer, got 'a'; cho"),
        (lambda: UNIT.matmul(emu.quantize(np.full((2, 64), np.nan, np.float32), "uint8_affine"), INTEGERS[1]),
         "operands whose sums are requantised must have finite scales, got NaN: there was a NaN"),
        (lambda: UNIT.conv2d(emu.quantize(np.ones((1, 2, 4, 4)), "uint8_affine"),
                             emu.quantize(np.ones((3, 2, 2, 2)), "int8_channel"), bias=[1, 2]),
         r"the bias must have one value per output channel, shape \(3,\), got \(2,\); reshape it"),
        (lambda: emu.requantise([1, 2], "fix8f0", "shift", a_scale=[0.5, 0.75], scale=1), "a power of two, got 0.75; "),
        (lambda: emu.requantise([1], "fix8f0", "double_rounding", multiplier=(1 << 30, 0), a_scale=0.5),
         r"`multiplier` must be given without scales, as a pair .*, got \(1073741824, 0\) and `a_scale`; write"),
        (lambda: emu.requantise([1], "fix8f0", "single_rounding", multiplier=(1 << 30, 0), b_scale=1, scale=2),
         "got .* and `b_scale` and `scale` 2.0; write"),
        (lambda: emu.requantise([1], "fix8f0", "double_rounding", multiplier=([[1 << 30], [0, 0]], 0)),
         "`multiplier` must be integers, 0 or in 2.*, and shifts, got"),
        (lambda: emu.requantise([1, 2], "fix8f0", "double_rounding", multiplier=([1 << 30] * 2, [0] * 3)),
         r"scales must broadcast to the sums \(2,\), got \(3,\); give axes of size 1"),
        (lambda: emu.requantise([[1, 2, 3]], "fix8f0", "exact", a_scale=[1, 1], b_scale=[1, 1, 1], scale=1),
         r"scales must broadcast to the sums \(1, 3\), got \(2,\); give axes of size 1"),
        (lambda: emu.requantise([1, 2], "fix8f0", a_scale=1, b_scale=[1, 1, 1], scale=1), r"scales must broadcast to"),
        (lambda: emu.requantise(585, "fix8f0", "exact", a_scale=[1, 2, 3], b_scale=1, scale=1),
         r"scales must broadcast to the sums \(\), got \(3,\); give axes of size 1"),
        (lambda: emu.requantise([1, 2], "fix8f0", "shift", a_scale=[[1], [2]], b_scale=1, scale=1),
         r"scales must broadcast to the sums \(2,\), got \(2, 1\); give axes of size 1"),
        (lambda: emu.requantise(raw_value(2**60 + 1, "fix64f30"), "fix8f0", scale=2.0**25),
         r"`sums` must be integers of 32 bits, got 1152921504606846977/1073741824; quantize them into fix32f0"),
        (lambda: UNIT.matmul(*INTEGERS, addend=raw_value(2**60 + 1, "fix64f1")),
         "a bias must be integers where operands have zero points or sums are requantised, got 1152921504606846977/2;"),
        (lambda: UNIT.matmul(*INTEGERS, addend=raw_value(2**63, "ufix64f0")), "a bias must be .* 9223372036854775808;"),
        (lambda: UNIT.matmul(*INTEGERS, addend=raw_value(1, "fix64f70")), "a bias must be integers .* 1/118059162071"),
        (lambda: UNIT.matmul(*INTEGERS, addend=np.float64(np.inf)), "a bias must be integers .*, got inf; divide it"),
    ],
)  # fmt: skip
def test_what_cannot_be_requantised_is_refused_with_the_remedy(action: Any, message: str):
    with pytest.raises(emu.EmuError, match=message):
        action()
