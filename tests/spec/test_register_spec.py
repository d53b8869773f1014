"""docs/concepts/registers.md: the leading-bit statistics register, every check printed there and its property."""

from __future__ import annotations

import math

import numpy as np
import pytest

import emu

#: Raw integer of a signed register -> position of its leading bit, as printed.
PRINTED = {
    1: 0, 2: 1, 3: 1, 127: 6, 128: 7, 32767: 14, -1: None, 0: None,
    -2: 0, -3: 1, -128: 6, -129: 7, -32768: 14, -32769: 15,
}  # fmt: skip


def position(raw: int, width: int = 40) -> int | None:
    """p(r) = bit_length(r XOR (r >> (A-1))) - 1, in Python integers."""
    p = (raw ^ (raw >> (width - 1))).bit_length() - 1
    return None if p < 0 else p


def observed(x, fmt="fix40f0", backend="reference", **options) -> emu.StatisticsRegister:
    register = emu.StatisticsRegister(**{key: options.pop(key) for key in ("lowest", "bins") if key in options})
    emu.quantize(x, fmt, register=register, backend=backend, **options)
    return register


def through_accumulator(raws, backend, frac_bits=0) -> emu.StatisticsRegister:
    """Send raw integers through a 40-bit accumulator of a multiply-accumulate unit, as products with 1."""
    register = emu.StatisticsRegister()
    a = np.ldexp(np.asarray(raws, np.float64), -frac_bits)[:, None]
    emu.matmul(
        a, np.ones((1, 1)), a_format=emu.Fixed(33, frac_bits), b_format="fix2f0", out_format="fix16f0",
        register=register, mac=emu.Mac(accumulator=emu.Fixed(40, frac_bits)), backend=backend,
    )  # fmt: skip
    return register


def only_exponent(register: emu.StatisticsRegister) -> int | None:
    exponents = list(register.histogram())
    assert len(exponents) + register.none == register.total == 1
    return exponents[0] if exponents else None


@pytest.mark.parametrize(("raw", "printed"), PRINTED.items())
def test_the_leading_bit_of_a_fixed_register_is_where_the_page_prints_it(raw, printed, backend):
    assert position(raw) == printed
    assert only_exponent(through_accumulator([raw], backend)) == printed
    assert only_exponent(observed(np.array([raw]), backend=backend)) == printed  # integers are a fixed register too
    assert only_exponent(observed([float(raw)], x_format="fix40f0", backend=backend)) == printed


def test_every_16_bit_raw_is_counted_where_the_formula_says(backend):
    register = through_accumulator(range(-32768, 32768), backend, frac_bits=8)
    positions = [(raw >= 0, position(raw)) for raw in range(-32768, 32768)]
    for side, counts in ((True, register.positive), (False, register.negative)):
        expected: dict[int, int] = {}
        for nonnegative, p in positions:
            if p is not None and nonnegative is side:
                expected[p - 8] = expected.get(p - 8, 0) + 1
        assert counts == expected
    assert (register.none, register.below, register.above, register.total) == (2, 0, 0, 65536)


def test_the_eight_lanes_of_the_example(backend):
    register = through_accumulator([0, 1, 5, 127, -1, -2, -128, -64], backend)
    assert register.positive == {0: 1, 2: 1, 6: 1}
    assert register.negative == {0: 1, 5: 1, 6: 1}
    assert (register.none, register.total, register.max_exponent) == (2, 8, 7)


@pytest.mark.parametrize("raw", [1, 2, 3, 2**40, 2**63, 2**64 - 1])
def test_an_unsigned_register_counts_at_its_bit_length(raw, backend):
    register = observed(np.array([raw], np.uint64), "ufix64f0", backend)
    assert only_exponent(register) == raw.bit_length() - 1


@pytest.mark.parametrize(
    ("x", "exponent"),
    [
        (1.0, 0),
        (1.5, 0),
        (2.0, 1),
        (-1.0, -1),
        (-1.5, 0),
        (-2.0, 0),
        (-2.5, 1),
        (0.75, -1),
        (-(2.0**-24), -25),
        (3 * 2.0**-24, -23),
    ],
)
def test_a_float_result_counts_at_floor_log2_and_a_negative_power_of_two_one_lower(x, exponent, backend):
    register = observed([x], "fp16", backend, lowest=-60, bins=80)
    assert only_exponent(register) == exponent
    assert register.max_exponent == math.floor(math.log2(abs(x)))


def test_zeros_count_as_none_and_what_is_not_finite_in_nonfinite_only(backend):
    register = observed([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], "fp16", backend)
    assert (register.none, register.nonfinite, register.total) == (2, 3, 6)
    assert (register.positive, register.negative, register.max_exponent) == ({0: 1}, {}, 0)


def test_raw_minus_one_is_none_in_a_fixed_accumulator_and_counted_in_a_float_result(backend):
    assert through_accumulator([-1], backend, frac_bits=4).none == 1
    as_float = observed([-(2.0**-4)], "fp16", backend)
    assert (as_float.none, as_float.negative) == (0, {-5: 1})


def test_positions_outside_the_register_count_below_and_above(backend):
    register = observed([0.25, 0.5, 1.0, 2.0, 4.0, -0.25, -4.0, -8.0], "fp16", backend, lowest=-1, bins=3)
    assert register.positive == {-1: 1, 0: 1, 1: 1}
    assert register.negative == {1: 1}
    assert (register.below, register.above, register.total) == (2, 2, 8)


def test_the_default_positions_follow_the_accumulator_or_the_output_format(backend):
    fixed = through_accumulator([1], backend, frac_bits=12)
    assert (fixed.lowest, fixed.bins) == (-12, 39)
    for name, lowest in (("fp16", -24), ("bf16", -133), ("fp32", -149)):
        float_result = observed([1.0], name, backend)
        assert (float_result.lowest, float_result.bins) == (lowest, 40)


def test_all_zero_results_have_no_max_exponent(backend):
    assert observed([0.0, 0.0], "fp16", backend).max_exponent is None


def test_the_register_sees_the_exact_result_before_rounding_and_overflow(backend):
    register, flags = emu.StatisticsRegister(lowest=-40, bins=80), emu.Flags()
    emu.quantize([1e6, 2.0**-30], "fix8f0", register=register, flags=flags, backend=backend)
    assert register.positive == {19: 1, -30: 1}
    assert (flags.overflow, flags.underflow) == (1, 1)


@pytest.mark.parametrize(
    ("raw", "e", "written", "overflow"), [(2047, 6, 127, 1), (-2049, 7, -128, 0)]
)  # m = 7, n = 0: within one last place of the limit, range and overflow counter differ both ways
def test_the_range_that_exponents_predict_is_not_the_overflow_counter(raw, e, written, overflow, backend):
    register, flags = emu.StatisticsRegister(), emu.Flags()
    x = np.array([[raw / 16]])
    y = emu.matmul(
        x, np.ones((1, 1)), a_format="fix16f4", b_format="fix2f0", out_format="fix8f0", register=register, flags=flags,
        backend=backend,
    )  # fmt: skip
    assert only_exponent(register) == e
    assert (y.item(), flags.overflow) == (written, overflow)


def test_registers_merge_reset_compare_and_save():
    x = np.random.default_rng(2).normal(size=1000)
    whole, first, second = (observed(part, "fp16") for part in (x, x[:300], x[300:]))
    first.merge(second)
    assert first == whole
    assert emu.StatisticsRegister.from_dict(whole.to_dict()) == whole
    empty = emu.StatisticsRegister()
    empty.merge(whole)
    assert empty == whole
    whole.reset()
    assert (whole.total, whole.positive, whole.max_exponent, whole.lowest, whole.bins) == (0, {}, None, -24, 40)


def test_registers_of_other_positions_do_not_merge():
    with pytest.raises(
        emu.FormatError, match=r"must have the same positions .* give both the same `lowest` and `bins`"
    ):
        observed([1.0], "fp16").merge(observed([1.0], "bf16"))


@pytest.mark.parametrize("given", [{}, {"lowest": -24}, {"bins": 40}, {"lowest": -24, "bins": 40}])
def test_positions_left_open_are_those_of_what_is_merged(given):
    whole, register = observed([1.0, 3.0], "fp16"), emu.StatisticsRegister(**given)
    register.merge(emu.StatisticsRegister(**given))  # nothing was counted in either
    register.merge(whole)
    assert register == whole


@pytest.mark.parametrize("given", [{"lowest": -20}, {"bins": 39}])
def test_positions_half_given_must_be_those_of_what_is_merged(given):
    with pytest.raises(emu.FormatError, match="must have the same positions"):
        emu.StatisticsRegister(**given).merge(observed([1.0], "fp16"))


@pytest.mark.parametrize("depth", [1, 3, 4, 65])
@pytest.mark.parametrize(("a", "b"), [("fix8f4", "fix8f0"), ("ufix8f0", "fix8f2")])
def test_an_exact_accumulator_is_as_wide_as_the_worst_case_needs(a, b, depth, backend):
    """Sums of the largest magnitudes, an addend on top, lead inside the register that the formats and K give."""
    low, high = (np.array([getattr(emu.parse(f), name) for f in (a, b)], np.float32) for name in ("min", "max"))
    for x, y, c in ((low[0], low[1], 127), (high[0], high[1], 127), (high[0], low[1], -128)):
        for addend in ({}, {"addend": [[float(c)]], "addend_format": "fix8f0"}):
            register = emu.StatisticsRegister()
            operands = np.full((1, depth), x), np.full((depth, 1), y)
            formats = {"a_format": a, "b_format": b, "out_format": "fix8f0"}
            emu.matmul(*operands, **formats, **addend, register=register, backend=backend)
            assert (register.above, register.below, register.total) == (0, 0, 1)
            assert register.lowest == -(emu.parse(a).frac_bits + emu.parse(b).frac_bits)
