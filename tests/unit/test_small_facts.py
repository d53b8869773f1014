"""Small facts that larger results lean on: widths of accumulators, bounds, sums of three numbers, defaults."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import emu
from emu import Fixed, Mac, engine
from emu.backends.arrays import is_lasting, lasting
from emu.backends.interface import EXACT_PATHS, carrier_of, encode_format, encode_mac, encode_stage
from emu.backends.proofs import SAFE_EXPONENT, decides_in_float64, leading_bound
from emu.backends.reference.exact import Exact
from emu.backends.reference.rounding import shift_right_to_odd
from emu.datapath import Blocks, OutputStage
from emu.engine.exact_register import exact_register
from emu.engine.path import accumulator_of
from emu.engine.planner import _Bound
from emu.engine.reductions import one_of
from emu.engine.sliding import Sliding, windows_of
from emu.formats import DynamicFixed
from emu.testing import assert_bits_equal
from tests.backends.table_products import fallback

SIGNED, UNSIGNED = Fixed(8, 4), Fixed(8, 4, signed=False)


@pytest.mark.parametrize(
    ("a", "b", "addend", "depth", "expected"),
    [
        (SIGNED, SIGNED, None, 10, Fixed(20, 8)),
        (UNSIGNED, UNSIGNED, None, 10, Fixed(20, 8, signed=False)),
        (UNSIGNED, SIGNED, None, 10, Fixed(20, 8)),
        (UNSIGNED, UNSIGNED, SIGNED, 10, Fixed(22, 8)),  # a sign, and one bit more for the addend
        (SIGNED, SIGNED, UNSIGNED, 10, Fixed(21, 8)),
        (SIGNED, SIGNED, Fixed(30, 2), 10, Fixed(37, 8)),
        (SIGNED, SIGNED, Fixed(30, 2, signed=False), 10, Fixed(38, 8)),
        (SIGNED, SIGNED, Fixed(16, 12), 10, Fixed(25, 12)),
        (SIGNED, SIGNED, None, 0, Fixed(17, 8)),
        (Fixed(33, 20), Fixed(30, 10), None, 0, Fixed(64, 30)),
        (Fixed(60, 20), Fixed(60, 10), None, 10, Fixed(64, 30)),  # at most 64 bits
    ],
)
def test_an_exact_accumulator_is_as_wide_as_the_worst_case(
    a: Fixed, b: Fixed, addend: Fixed | None, depth: int, expected: Fixed
):
    assert accumulator_of(a, b, addend, depth, Mac()) == expected


@pytest.mark.parametrize(
    ("operation", "formats", "expected"),
    [
        ("add", (SIGNED, SIGNED), Fixed(9, 4)),
        ("add", (UNSIGNED, UNSIGNED), Fixed(9, 4, signed=False)),
        ("add", (UNSIGNED, SIGNED), Fixed(10, 4)),
        ("subtract", (UNSIGNED, UNSIGNED), Fixed(10, 4)),
        ("add", (Fixed(8, 2), Fixed(8, 6)), Fixed(13, 6)),
        ("multiply", (UNSIGNED, SIGNED), Fixed(16, 8)),
        ("multiply", (UNSIGNED, UNSIGNED), Fixed(16, 8, signed=False)),
        ("fma", (UNSIGNED, UNSIGNED, SIGNED), Fixed(18, 8)),
        ("divide", (SIGNED, SIGNED), None),
        ("add", (SIGNED, None), None),
        ("remainder", (SIGNED, Fixed(8, 6)), Fixed(10, 6)),  # no larger than the dividend, in the finer unit
        ("remainder", (UNSIGNED, Fixed(8, 2)), Fixed(9, 4)),
        ("round_to_integral", (SIGNED,), Fixed(5, 0)),  # upward, the largest one needs a bit more
        ("round_to_integral", (Fixed(8, -2),), Fixed(8, -2)),
    ],
)
def test_an_exact_result_is_as_wide_as_its_operation_makes_it(operation: str, formats: tuple, expected: Fixed | None):
    assert exact_register(operation, formats) == expected


@pytest.mark.parametrize(
    ("x", "bound"),
    [
        ([1.0], 0),
        ([-3.5, 0.1], 1),
        ([2.0**-3], -3),
        ([0.0], -SAFE_EXPONENT),
        ([np.inf, -(2.0**7)], 7),
        ([], -SAFE_EXPONENT),
    ],
)
def test_the_leading_bound_is_the_exponent_of_the_largest_finite_number(x: list[float], bound: int):
    assert leading_bound(np.array(x)) == bound


def test_random_numbers_have_their_documented_defaults():
    x = np.linspace(0.1, 0.2, 500)
    said = {"n_rbits": 24, "seed": 0, "stream": 0, "step": 0}
    common = {"rounding": "stochastic", "backend": "reference"}
    for operation in (
        lambda **options: emu.quantize(x, "fp16", **common, **options),
        lambda **options: engine.function("exp", x, out_format="fp16", **common, **options),
    ):
        unsaid = operation()
        assert_bits_equal(unsaid, operation(**said))
        for name in ("seed", "stream", "step"):
            assert (unsaid != operation(**{name: 1})).any()


def to_odd(exact: Fraction) -> float:
    """The neighbour toward zero, or the one with an odd last bit where the number lies between two."""
    near = float(exact)
    if Fraction(near) == exact:
        return near
    inner = near if abs(Fraction(near)) < abs(exact) else float(np.nextafter(near, 0.0))
    bits = int(np.float64(inner).view(np.uint64))
    return float(np.uint64(bits | 1).view(np.float64)) if not bits & 1 else inner


def test_sums_of_three_numbers_are_rounded_to_odd_once():
    pytest.importorskip("numba")
    from emu.backends.numba.ways.ordered import add_three_to_odd

    rng = np.random.default_rng(1)
    for scale in (0, 1, 30, 52, 53, 54, 80, 110):
        for _ in range(300):
            first, second, c = rng.standard_normal(3) * 2.0 ** np.array([0, -30, rng.integers(-scale - 1, scale + 1)])
            high = first + second
            low = float(Fraction(first) + Fraction(second) - Fraction(high))
            assert add_three_to_odd(high, low, c) == to_odd(Fraction(high) + Fraction(low) + Fraction(c))


def test_a_wrong_number_of_threads_is_named_before_a_kernel_runs(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("numba")
    from emu.backends.numba import NumbaKernels, compiling

    monkeypatch.setenv("EMU_THREADS", "none")
    compiling.thread_count.cache_clear()
    with pytest.raises(emu.ConfigError, match="EMU_THREADS"):
        NumbaKernels()
    compiling.thread_count.cache_clear()


@pytest.mark.parametrize("formats", [("fp16 daz", "fp16"), ("fp16", "fp16 daz")])
def test_matrix_units_flush_the_operands_of_a_format_without_subnormals(formats: tuple[str, str], backend: str):
    a, b = np.full((1, 4), 2.0**-24), np.full((4, 1), 2.0**-24)
    a[0, 0] = b[0, 0] = 1.0
    mac = Mac.preset("a100", inputs="fp16", output="fp32")
    y = emu.matmul(a, b, a_format=formats[0], b_format=formats[1], out_format="fp32", mac=mac, backend=backend)
    assert y.item() == 1.0


@pytest.mark.parametrize(
    ("addend", "magnitude", "frac_bits"),
    [
        (None, 10 * 2**14, 8),
        (Fixed(8, 2), 10 * 2**14 + 2**7 * 2**6, 8),
        (Fixed(8, 2, signed=False), 10 * 2**14 + (2**8 - 1) * 2**6, 8),
        (Fixed(8, 11), 10 * 2**14 * 2**3 + 2**7, 11),
    ],
)
def test_a_bound_counts_everything_in_the_finest_unit(addend: Fixed | None, magnitude: int, frac_bits: int):
    bound = _Bound.of(SIGNED, SIGNED, addend, 10)
    assert (bound.magnitude, bound.frac_bits) == (magnitude, frac_bits)


def test_integers_beyond_float64_are_compared_as_integers():
    x = np.array([2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**54 - 2, 2**54])
    assert Fixed(54, -1).contains(x).tolist() == [False, True, False, True, False]


def test_one_new_nan_among_finite_results_is_counted(backend: str):
    a, b, flags = [[np.inf, 1.0], [1.0, 1.0]], [[0.0], [1.0]], emu.Flags()
    mac = Mac(product="fp16", accumulator="fp16")
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16"}
    y = emu.matmul(a, b, mac=mac, flags=flags, backend=backend, **formats)
    assert np.isnan(y).tolist() == [[True], [False]]
    assert flags.invalid == 1


def test_a_number_of_lanes_beyond_31_bits_is_named():
    with pytest.raises(emu.FormatError, match=r"-2147483648\.\.2147483648"):
        emu.datapath.Lanes(-(2**31) - 1)


def test_a_philox_given_whole_has_all_64_bits_of_its_seed(backend: str):
    x, options = np.full(64, 0.3), {"rounding": "stochastic", "backend": backend}
    whole = [emu.quantize(x, "fix8f2", random=emu.Philox(seed), **options).tolist() for seed in (5, 2**63 + 5)]
    assert whole == [emu.quantize(x, "fix8f2", seed=seed, **options).tolist() for seed in (5, 2**63 + 5)]
    assert whole[0] != whole[1]


@pytest.mark.parametrize("fmt", ["fix25f3", "fix26f3", "ufix24f3", "ufix25f3", "e8m23", "e8m24", "e5m2", "fix8f149"])
def test_kernels_and_formats_agree_on_the_carrier(fmt: str):
    assert carrier_of(encode_format(emu.parse(fmt))) == emu.parse(fmt).carrier


def test_the_plan_of_a_convolution_looks_at_every_pixel_as_the_product_does_even_at_those_a_stride_skips():
    pytest.importorskip("numba")  # the definition takes no path that a proof allows
    x, w = np.zeros((1, 1, 2, 2)), np.full((1, 1, 1, 1), 2.0**30)
    x[0, 0, 1, 1] = 2.0**30
    plan = emu.explain(engine.conv2d, x, w, x_format="fix32f0", w_format="fix32f0", out_format="fix32f0")
    assert plan.path not in EXACT_PATHS
    skipped = emu.explain(
        engine.conv2d, x, w, x_format="fix32f0", w_format="fix32f0", out_format="fix32f0", stride=(2, 2)
    )
    assert skipped == plan


def test_the_zero_of_an_exact_accumulator_is_positive(backend: str):
    mac = Mac(product="fp16", order="pairwise")
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16"}
    y = emu.matmul([[-1.0, -1.0]], [[0.0], [0.0]], mac=mac, backend=backend, **formats)
    assert (y.item(), np.signbit(y).item()) == (0.0, False)


def test_a_bound_is_printed_as_the_power_of_two_that_holds_it():
    assert "<= 2**14 units of 2**-8" in str(_Bound.of(SIGNED, SIGNED, None, 1))
    assert "<= 2**15 units of 2**-8" in str(_Bound.of(SIGNED, SIGNED, None, 2))


@pytest.mark.parametrize("x", [1e15, -1e15, 2.0**52 - 0.5])
def test_numbers_of_53_bits_far_above_a_fine_grid_saturate(x: float, backend: str):
    fmt = emu.parse("fix53f52")
    y = emu.quantize([x, 0.5], fmt, backend=backend)
    assert y.tolist() == [fmt.max if x > 0 else fmt.min, 0.5]


@pytest.mark.parametrize("inputs", ["fp8_e4m3", "fp8_e5m2"])
def test_a_warp_group_cuts_8_bit_products_at_13_bits_whatever_it_writes(inputs: str):
    orders = {str(Mac.preset("h100", inputs=inputs, output=o, instruction="wgmma").order) for o in ("fp16", "fp32")}
    assert orders == {str(Blocks(32, 13))}


def test_matrix_units_take_an_addend_of_raw_integers(backend: str):
    addend = np.array([[3 << 30, -1, 1]], np.int64)  # of fix64f30
    mac = Mac.preset("a100", inputs="fp16", output="fp32")
    formats = {"a_format": "fp16", "b_format": "fp16", "addend_format": "fix64f30", "out_format": "fp32"}
    y = emu.matmul(np.zeros((1, 8)), np.zeros((8, 3)), addend=addend, mac=mac, backend=backend, **formats)
    assert y.tolist() == [[3.0, -(2.0**-30), 2.0**-30]]


@pytest.mark.parametrize("accumulator", ["fp32", "fp16", "fix20f8", "bf16"])
@pytest.mark.parametrize("shape", [(2, 1, 1), (2, 3, 1), (1, 1, 5), (2, 1, 5), (3, 1), (5,), ()])
def test_an_addend_reaches_every_matrix_row_and_column_it_is_for(accumulator: str, shape: tuple, backend: str):
    addend = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    fmt = "fix16f4" if accumulator.startswith("fix") else "fp16"
    formats = {"a_format": fmt, "b_format": fmt, "addend_format": fmt, "out_format": "fp32"}
    operands = np.zeros((2, 3, 4)), np.zeros((2, 4, 5))
    y = emu.matmul(*operands, addend=addend, mac=Mac(accumulator=accumulator), backend=backend, **formats)
    assert np.array_equal(y, np.broadcast_to(addend, (2, 3, 5)))


def declined(fmt: str, overflow: str, *, operands: str = "fix16f8", divisor: int = 1) -> str:
    pytest.importorskip("numba")
    from emu.backends.numba import NumbaKernels

    stage = encode_stage(OutputStage.of(fmt, "nearest_even", overflow))
    code = encode_format(emu.parse(operands))
    return fallback(NumbaKernels(), (code, code, None), encode_mac(Mac()), "float64_blas", stage, divisor=divisor)


def test_quotients_are_compiled_up_to_the_last_width_that_float64_decides():
    """A guard bit, a sticky bit, and for wrap the bit above the word: 51 together with the word."""
    assert [declined(f"fix{w}f8", "saturate", divisor=3) == "" for w in (48, 49)] == [True, False]
    assert [declined(f"fix{w}f8", "wrap", divisor=3) == "" for w in (47, 48)] == [True, False]
    assert declined("fix49f8", "saturate", divisor=4) == ""


def test_sums_are_compiled_while_their_units_are_normal_numbers():
    assert declined("fix16f8", "saturate", operands="fix8f400") == ""
    assert declined("fix8f-200", "saturate", operands="fix8f400") != ""
    assert declined("fix8f200", "saturate", operands="fix8f-400") != ""
    assert declined("fix8f-200", "saturate", operands="fix8f-400") == ""


def test_finite_numbers_over_infinity_are_zeros_of_the_quotients_sign(backend: str):
    flags = emu.Flags()
    y = emu.divide(
        [3.0, -3.0, 0.0, 5.0], [np.inf, np.inf, -np.inf, 2.0], out_format="fp16", flags=flags, backend=backend
    )
    assert y.tolist() == [0.0, 0.0, 0.0, 2.5]
    assert np.signbit(y).tolist() == [False, True, True, False]
    assert (flags.underflow, flags.inexact, flags.invalid) == (0, 0, 0)


def test_products_just_below_float32_are_added_before_they_are_rounded(backend: str):
    """2**-149 + 2**-150 is a tie; 2**-150 alone would be rounded to 0 first."""
    formats = {"a_format": "fix8f75", "b_format": "fix8f75", "out_format": "fp32"}
    a, b = np.array([[2.0, 1.0]]) * 2.0**-75, np.array([[1.0], [1.0]]) * 2.0**-75
    assert emu.matmul(a, b, mac=Mac(accumulator="fp32"), backend=backend, **formats).item() == 2.0**-148


@pytest.mark.parametrize("width", [0, 65, True, 16.0])
def test_the_width_of_a_dynamic_format_is_an_integer_of_1_to_64(width: object):
    with pytest.raises(emu.FormatError, match="width_bits"):
        DynamicFixed(width)
    assert type(DynamicFixed(np.int64(16)).width_bits) is int


@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero", "floor", "stochastic"])
@pytest.mark.parametrize("accumulator", ["fp32", "fp16", "bf16", "e4m3"])
def test_a_negative_zero_as_addend_of_nothing_keeps_its_sign(accumulator: str, rounding: str, backend: str):
    mac = Mac(accumulator=accumulator, rounding=rounding)
    formats = {"a_format": "fp16", "b_format": "fp16", "addend_format": "fp16", "out_format": "fp16"}
    addend = np.array([[-0.0, 0.0]], np.float32)
    y = emu.matmul(np.empty((1, 0)), np.empty((0, 2)), addend=addend, mac=mac, backend=backend, **formats)
    assert np.signbit(y).tolist() == [[True, False]]


def test_convolutions_have_neither_stride_nor_margins_unless_asked():
    assert Sliding.among({}) == Sliding.of() == ((1, 1), ((0, 0), (0, 0)), (1, 1), 1)


@pytest.mark.parametrize(
    ("fmt", "leading", "decides"),
    [("fp16", 0, True), ("fp16", 959, True), ("fp16", 960, False), ("e11m4", 0, False), ("fix16f8", 30, True)],
)
def test_float64_decides_only_far_from_its_ends(fmt: str, leading: int, decides: bool):
    assert decides_in_float64(encode_stage(OutputStage.of(fmt)), leading) is decides


def test_the_factor_one_of_a_sum_has_one_unsigned_bit_beside_fixed_numbers():
    assert one_of(Fixed(8, 3)) == one_of(Fixed(9, 0, signed=False)) == Fixed(1, 0, signed=False)
    assert one_of(emu.parse("fp16")) == emu.parse("fp16")


def test_a_register_is_as_wide_as_the_inner_size_asks_for(backend: str):
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"}
    for shape, depth in (((1, 1000), 1000), ((1000, 1), 1)):
        register = emu.StatisticsRegister()
        emu.matmul(np.zeros(shape), np.zeros((depth, 1)), register=register, backend=backend, **formats)
        assert register.bins == accumulator_of(SIGNED, SIGNED, None, depth, Mac()).width_bits - 1


def test_products_above_float32_overflow_once_and_for_all(backend: str):
    """Each product is exact, and beyond the accumulator; two infinities of both signs would be a NaN."""
    formats = {"a_format": "fix8f-60", "b_format": "fix8f-60", "out_format": "fp32"}
    a, b = np.array([[127.0, -127.0]]) * 2.0**60, np.array([[127.0], [127.0]]) * 2.0**60
    assert emu.matmul(a, b, mac=Mac(accumulator="fp32"), backend=backend, **formats).item() == np.inf


@pytest.mark.parametrize(
    ("total", "wrapped"), [(126, 126), (127, 127), (128, -128), (129, -127), (-128, -128), (-129, 127)]
)
def test_a_wrapping_accumulator_wraps_beyond_its_limits_only(total: int, wrapped: int, backend: str):
    formats = {"a_format": "fix10f0", "b_format": "fix10f0", "out_format": "fix8f0"}
    mac = Mac(accumulator="fix8f0", overflow="wrap")
    a, b = np.array([[float(total - 3), 3.0]]), np.ones((2, 1))
    assert emu.matmul(a, b, mac=mac, backend=backend, **formats).item() == wrapped


def test_values_return_to_the_places_their_maxima_came_from(backend: str):
    x = np.array([[[[1.0, 5.0, 2.0, 2.0], [3.0, 4.0, 0.0, 9.0]]]])
    windows = windows_of(x, 2, 2)
    best, index = engine.max_pool(windows, backend=backend)
    assert (best.reshape(-1).tolist(), index.reshape(-1).tolist()) == ([5.0, 9.0], [1, 3])
    spread = engine.unpool(np.array([10.0, 20.0]), index, windows, backend=backend)
    assert spread.reshape(2, 4).tolist() == [[0.0, 10.0, 0.0, 0.0], [0.0, 0.0, 0.0, 20.0]]


def test_numbers_that_vanish_below_a_format_of_huge_ones_do_not_belong():
    fmt = emu.parse("e5m10 bias=-900")
    assert fmt.contains(np.array([1e-300, 5e-324, 0.0, fmt.max, 1.0])).tolist() == [False, False, True, True, False]


def test_infinities_belong_to_no_format_without_them():
    x = np.array([np.inf, -np.inf, 1.0, 1e9])
    for fmt in ("fp8_e4m3", "e2m1 finite nans=none", "e4m3fnuz"):
        assert emu.parse(fmt).contains(x).tolist() == [False, False, True, False]
        assert emu.parse(fmt).contains(x.astype(np.float32)).tolist() == [False, False, True, False]


def test_formats_at_the_end_of_float64_hold_their_smallest_value_and_nothing_below():
    fmt = emu.parse("e5m10 bias=-990")
    smallest = 2.0 ** (fmt.emin - fmt.fraction_bits)
    x = np.array([smallest, 3 * smallest, smallest / 2, 1e-300, 0.0, fmt.max])
    assert fmt.contains(x).tolist() == [True, True, False, False, True, True]


@pytest.mark.parametrize("a", [2.0**60, -3.0, 1.0, 2.0**-40, np.inf, 0.0])
@pytest.mark.parametrize("b", [2.0**-60, 3.0, -0.1, 0.0, np.inf, np.nan])
@pytest.mark.parametrize("operation", ["divide", "multiply", "add", "fma"])
def test_results_that_wrap_are_exact_however_large(operation: str, a: float, b: float):
    """Single numbers and whole arrays, beside others that bound nothing."""
    pytest.importorskip("numba")
    x = np.float32([a, 1.0, 0.3])
    for y in (np.float32([b, 0.7, 2.0]), np.float32(b)):
        operands = (x, y, np.float32(0.25))[: 3 if operation == "fma" else 2]
        options = {"out_format": "fix12f6", "overflow": "wrap", "rounding": "nearest_even"}
        ours, reference = (getattr(emu, operation)(*operands, backend=k, **options) for k in ("numba", "reference"))
        assert_bits_equal(ours, reference, "fix12f6")


def test_products_whose_last_digits_float64_loses_wrap_as_the_exact_ones():
    """Near 2**51 a fraction and its sticky bit no longer fit: just below they do."""
    pytest.importorskip("numba")
    formats = {"a_format": "fix32f5", "b_format": "fp32", "c_format": "fp32", "out_format": "fix8f0"}
    rng = np.random.default_rng(3)
    for shift in range(-6, 3):
        a = (2**31 - 1 - 2 * rng.integers(0, 2**20, 300)) * 2.0**-5
        b = ((2**24 - 1 - 2 * rng.integers(0, 2**12, 300)) * 2.0 ** (1 + shift)).astype(np.float32)
        for c in (np.float32(2.0 ** (47 + shift)), np.float32(0.25)):
            ours, reference = (emu.fma(a, b, c, overflow="wrap", backend=k, **formats) for k in ("numba", "reference"))
            assert_bits_equal(ours, reference, "fix8f0")


def test_a_plan_names_a_misspelt_option():
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"}
    with pytest.raises(TypeError, match=r"matmul\(\) has no option 'rouding'.*rounding"):
        emu.explain(emu.matmul, np.zeros((2, 2)), np.zeros((2, 2)), rouding="floor", **formats)
    assert emu.explain(emu.matmul, np.zeros((2, 2)), np.zeros((2, 2)), rounding="floor", seed=3, **formats)


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_format_whose_largest_number_is_small_overflows_to_the_side_of_its_sign(backend: str):
    tiny = emu.parse("e4m3 bias=40")
    x = np.array([0.25, -0.25, 2.0**-30], np.float32)
    assert emu.quantize(x, tiny, backend=backend).tolist() == [np.inf, -np.inf, 2.0**-30]
    assert emu.quantize(x, tiny, overflow="satfinite", rounding="stochastic", backend=backend)[:2].tolist() == [
        float(tiny.max), -float(tiny.max),
    ]  # fmt: skip


def test_integer_products_stop_before_their_32_bit_sums_overflow():
    """63 instructions of twice 2**24 stay below 2**31, the 64th would not: 126 of them are two parts."""
    a = np.full((1, 252), -4096, np.float32)
    for columns in (1, 2, 40):
        product_of = emu.matmul(
            a, np.full((252, columns), -4096, np.float32), a_format="fix16f0", b_format="fix16f0", out_format="fix48f0"
        )
        assert (product_of == 252.0 * 2**24).all()


def test_seeds_streams_and_steps_are_taken_modulo_their_width():
    x = np.linspace(-1, 1, 50)
    options = {"fmt": "fix8f3", "rounding": "stochastic"}
    for beyond, within in ((emu.Philox(2**64 + 5), emu.Philox(5)), (emu.Philox(1, 2**32 + 7), emu.Philox(1, 7))):
        assert (emu.quantize(x, random=beyond, **options) == emu.quantize(x, random=within, **options)).all()
    assert (emu.quantize(x, seed=2**64 + 5, **options) == emu.quantize(x, random=emu.Philox(5), **options)).all()


def test_a_product_without_a_written_format_is_explained_as_if_it_wrote_its_left_operands():
    a, b = np.ones((2, 3)), np.ones((3, 2))
    options = {"a_format": "fp64", "b_format": "fix8f4", "backend": "numba"}
    plan = emu.explain(emu.matmul, a, b, **options)
    assert plan == emu.explain(emu.matmul, a, b, out_format="fp64", **options)
    assert plan != emu.explain(emu.matmul, a, b, out_format="fix8f4", **options)


def test_the_definition_drops_more_bits_than_a_word_has():
    a = np.array([[2**59 - 1, -(2**58) - 3]], np.int64)
    exact = Fraction(sum(int(x) * int(x) for x in a[0]), 2**100)
    formats = {"a_format": "fix62f50", "b_format": "fix62f50"}
    for rounding, expected in (
        ("floor", math.floor(exact)),
        ("ceil", math.ceil(exact)),
        ("nearest_even", round(exact)),
    ):
        got = emu.matmul(a, a.T, **formats, out_format="fix32f0", rounding=rounding, backend="reference")
        assert got.item() == expected


def test_the_definition_looks_at_the_smallest_operand_too():
    a = np.array([[-(2.0**39), 1.0]])
    got = emu.matmul(a, a.T, a_format="fix40f0", b_format="fix40f0", out_format="fp64", backend="reference")
    assert got.item() == 2.0**78
    wrapped = emu.matmul(
        a, a.T, a_format="fix40f0", b_format="fix40f0", out_format="fix16f0", overflow="wrap", backend="reference"
    )
    assert wrapped.item() == 1.0


def test_membership_of_the_smallest_numbers():
    assert not emu.parse("fix8f-1").contains(np.float32(2.0**-149)).any()
    for name in ("bf16", "e8m3", "fp32", "e8m22"):
        fmt = emu.parse(name)
        step = 2.0 ** (fmt.emin - fmt.fraction_bits)
        x = np.array(
            [step, 3 * step, 2.0**fmt.emin, 2.0**fmt.emin + step, 2.0**fmt.emin - step, 1.5 * step], np.float64
        )
        assert fmt.contains(x).tolist() == [True] * 5 + [False]
        single = x[:5].astype(np.float32)
        assert fmt.contains(single).all()


def test_stages_near_the_end_of_float64_are_not_decided_there():
    for name, decided in (("e11m3", False), ("e8m3", True), ("e10m20 bias=60", False), ("e10m20 bias=64", True)):
        code = encode_stage(OutputStage.of(name, "nearest_even", None, 24))
        assert decides_in_float64(code, 0) == decided, name


def test_blocks_of_integers_are_refused_by_every_product():
    x = np.ones((2, 2))
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fp32"}
    for call in (emu.matmul, lambda *a, **options: emu.explain(emu.matmul, *a, **options)):
        with pytest.raises(emu.FormatError, match="operands must be floats where `order` is blocks"):
            call(x, x, mac=Mac(accumulator="fp32", order="blocks(4, 23)"), **formats)


def test_integers_receive_no_floats():
    with pytest.raises(emu.ShapeError, match="`out` must be a float32 array"):
        emu.quantize(np.ones(2), "fp16", out=np.empty(2, np.int16))


def test_significands_of_the_definition_are_int64_up_to_62_bits_whatever_their_signs():
    limit = 2**62 - 1
    for raws in ([-1, -2], [limit, -limit], [0], []):
        exact = Exact.from_integers(np.array(raws, np.int64), 0)
        assert exact.significand.dtype == np.int64
        assert exact.signed().tolist() == raws
    for raws in ([-1, limit + 1], [-limit - 1], [-(2**63)], [2**63 - 1, -(2**63)]):
        exact = Exact.from_integers(np.array(raws, np.int64), 0)
        assert exact.significand.dtype == object
        assert exact.signed().tolist() == raws


def test_only_arrays_that_were_declared_are_lasting():
    array = np.zeros(3)
    assert not is_lasting(array)
    assert is_lasting(lasting(array))
    assert not is_lasting(array.copy())
    assert not is_lasting(None)


@pytest.mark.parametrize("significand", [2**100 + 1, 2**100])
def test_wide_significands_lose_more_bits_than_a_word_has(significand: int):
    kept = shift_right_to_odd(np.array([significand], object), np.array([80]))
    assert kept.tolist() == [2**20 | (significand & 1)]


def test_an_accumulator_of_blocks_that_stays_finite_says_that_it_was_left():
    """The first block of four leaves fp16 and stays at its largest value; the second brings it back."""
    flags, unit = emu.Flags(), Mac(accumulator="fp16", order=Blocks(4, 24), overflow="satfinite")
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32", "mac": unit, "flags": flags}
    a = np.array([[60000.0, 60000, 0, 0, -1000, 0, 0, 0]])
    y = emu.matmul(a, np.ones((8, 1)), backend="reference", **formats)
    assert y.item() == 64512  # 65504 - 1000, to a multiple of 32
    assert flags.accumulator_overflow == 1


def test_the_places_of_a_format_of_a_single_number_are_listed_once():
    from emu.cli.formats import one_format

    ulps = one_format("e1m1").plain()["ulps"]
    assert len({row["at"] for row in ulps}) == len(ulps)
