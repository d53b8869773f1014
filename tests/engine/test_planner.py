"""The planner: every path at the edge of its condition, and the reference's bits on both sides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import emu
from emu import Fixed, Mac, Rounding
from emu.backends.numba import integers
from emu.backends.product import choose
from emu.engine import path as paths
from emu.engine.planner import plan_product, rounded_addend_format
from emu.testing import assert_bits_equal


@pytest.fixture(autouse=True)
def _paths_of_any_processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plan as on a processor without vector code for integers; that is tested beside the kernels."""
    monkeypatch.setattr(integers, "has_pair_products", lambda: False)
    for cached in (choose, paths._path_by_formats):
        cached.cache_clear()
    yield
    for cached in (choose, paths._path_by_formats):
        cached.cache_clear()


def same_bits(a: np.ndarray, b: np.ndarray, expected_path: str, **options: object) -> np.ndarray:
    """Check path and bits of a product; return it."""
    plan = emu.explain(emu.matmul, a, b, **options)
    assert plan.path == expected_path, plan
    results = {}
    for name in ("reference", "numba"):
        flags, register = emu.Flags(), emu.StatisticsRegister()
        results[name] = emu.matmul(a, b, backend=name, flags=flags, register=register, **options), flags, register
    assert_bits_equal(results["numba"][0], results["reference"][0], options["out_format"])
    assert results["numba"][1:] == results["reference"][1:]
    return results["reference"][0]


def full(fmt: str, shape: tuple[int, ...], value: float) -> np.ndarray:
    return np.full(shape, value, emu.parse(fmt).carrier)


FIX8 = {"a_format": "fix8f0", "b_format": "fix8f0", "out_format": "fix32f0"}


@pytest.mark.parametrize(("depth", "path"), [(1024, "float32_blas"), (1025, "float64_blas")])
def test_float32_products_end_at_2_to_the_24(depth: int, path: str):
    """K * 2**7 * 2**7 <= 2**24 exactly up to K = 1024; every element the most negative code reaches the bound."""
    y = same_bits(full("fix8f0", (3, depth), -128), full("fix8f0", (depth, 2), -128), path, **FIX8)
    assert (y == depth * 2**14).all()


def test_an_addend_counts_towards_the_bound():
    """1023 * 2**14 + 2**14 = 2**24 with a 15-bit addend; one more bit is one too many."""
    a, b = full("fix8f0", (3, 1023), -128), full("fix8f0", (1023, 2), -128)
    for bits, path in ((15, "float32_blas"), (16, "float64_blas")):
        fmt = f"fix{bits}f0"
        y = same_bits(a, b, path, addend=full(fmt, (2,), -(2.0 ** (bits - 1))), addend_format=fmt, **FIX8)
        assert (y == 1023 * 2**14 - 2 ** (bits - 1)).all()


def test_an_addend_finer_than_the_products_sets_the_unit():
    """K * 2**14 in units of 2**-4 is K * 2**18: K = 63 leaves room for the addend's 2**7, K = 64 does not."""
    for depth, path in ((63, "float32_blas"), (64, "float64_blas")):
        a, b = full("fix8f0", (1, depth), -128), full("fix8f0", (depth, 1), -128)
        same_bits(a, b, path, addend=full("fix8f4", (1,), -7.9375), addend_format="fix8f4", **FIX8)


def test_float64_products_end_at_2_to_the_53_of_the_formats():
    """K * 2**15 * 2**15 <= 2**53 up to K = 2**23."""
    fmt = Fixed(16, 0)
    assert plan_product(fmt, fmt, None, 2**23, Mac()).path == "float64_blas"
    assert plan_product(fmt, fmt, None, 2**23 + 1, Mac()).path == "wide"


@pytest.mark.parametrize("excess", [0, 1])
def test_measured_maxima_prove_what_formats_cannot(excess: int):
    """2 * 2**26 * 2**26 = 2**53; one more than 2**26 on one side is beyond."""
    formats = {"a_format": "fix32f0", "b_format": "fix32f0", "out_format": "fix64f0"}
    a, b = full("fix32f0", (2, 2), 2.0**26 + excess), full("fix32f0", (2, 2), -(2.0**26) + 1)
    b[0] = -(2.0**26)
    y = same_bits(a, b, "wide" if excess else "float64_blas", **formats)
    assert (y == -(2**26 + excess) * (2**27 - 1)).all()


def test_measured_maxima_reach_float32_too():
    formats = {"a_format": "fix32f16", "b_format": "fix32f16", "out_format": "fix64f32"}
    for value, path in ((2.0**-4, "float32_blas"), (2.0**-4 + 2.0**-16, "float64_blas")):  # raws 2**12, 2**12 + 1
        same_bits(full("fix32f16", (2, 1), value), full("fix32f16", (1, 2), -value), path, **formats)


def test_zeros_alone_prove_nothing_about_the_other_operand():
    """Beside a zero matrix every bound is 0, but raws of 31 bits scaled by 2**100 are no float32."""
    formats = {"a_format": "fix32f-100", "b_format": "fix32f30", "out_format": "fp32"}
    same_bits(full("fix32f-100", (2, 2), 2.0**130), full("fix32f30", (2, 2), 0.0), "float64_blas", **formats)


@pytest.mark.parametrize(
    ("a_frac", "b_frac", "path"),
    [
        (63, 63, "float32_blas"), (63, 64, "float64_blas"), (-51, -52, "float32_blas"), (-52, -52, "float64_blas"),
        (126, 0, "float32_blas"), (127, -1, "float64_blas"), (140, -140, "float64_blas"),
        (500, 522, "float64_blas"), (511, 512, "wide"), (-485, -485, "float64_blas"), (-485, -486, "wide"),
    ],
)  # fmt: skip
def test_points_far_from_zero_leave_the_float_types(a_frac: int, b_frac: int, path: str):
    """No partial sum may be subnormal or overflow: float32 from frac -103 to 126, float64 from -970 to 1022."""
    a_format, b_format = f"fix8f{a_frac}", f"fix8f{b_frac}"
    a, b = full(a_format, (2, 3), -(2.0 ** (7 - a_frac))), full(b_format, (3, 2), -(2.0 ** (7 - b_frac)))
    a[0, 0], b[0, 0] = 2.0**-a_frac, 2.0**-b_frac
    out = Fixed(24, a_frac + b_frac)
    same_bits(a, b, path, a_format=a_format, b_format=b_format, out_format=out)


@pytest.mark.parametrize(("bits", "path"), [(18, "float32_blas"), (17, "in_order")])
def test_a_saturating_accumulator_that_holds_the_bound_is_exact(bits: int, path: str):
    """4 * 2**14 = 2**16: within 2**17 - 1, beyond 2**16 - 1."""
    flags = emu.Flags()
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix32f8"}
    mac = Mac(accumulator=f"fix{bits}f8")
    a, b = full("fix8f4", (1, 4), -8), full("fix8f4", (4, 1), -8)
    y = same_bits(a, b, path, mac=mac, **formats)
    assert y.item() == 256 - (bits == 17) * 2**-8
    emu.matmul(a, b, mac=mac, flags=flags, backend="numba", **formats)
    assert flags.accumulator_overflow == (bits == 17)


def test_data_that_stays_within_a_saturating_accumulator_is_exact_too():
    formats = {"a_format": "fix16f0", "b_format": "fix16f0", "out_format": "fix16f0", "mac": Mac(accumulator="fix16f0")}
    a = full("fix16f0", (1, 7), 1.0)
    same_bits(a, full("fix16f0", (7, 1), 4681), "float32_blas", **formats)  # 7 * 4681 = 2**15 - 1
    same_bits(a, full("fix16f0", (7, 1), 4682), "in_order", **formats)


def test_an_unsigned_accumulator_saturates_below_zero():
    """The bound holds magnitudes: a signed operand may take the sum below 0, where an unsigned register stops."""
    formats = {"b_format": "fix8f4", "out_format": "fix8f4", "mac": Mac(accumulator="ufix32f8")}
    y = same_bits(full("fix8f4", (1, 1), -1), full("fix8f4", (1, 1), 1), "in_order", a_format="fix8f4", **formats)
    assert y.item() == 0
    unsigned = {
        "a_format": "ufix8f4",
        "b_format": "ufix8f4",
        "out_format": "ufix8f4",
        "mac": Mac(accumulator="ufix32f8"),
    }
    same_bits(full("ufix8f4", (1, 3), 15), full("ufix8f4", (3, 1), 1), "float32_blas", **unsigned)


def test_wrapping_and_rounding_accumulators_run_in_order():
    a, b = full("fix8f4", (2, 5), 7.9375), full("fix8f4", (5, 2), -8)
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix16f8"}
    for mac in (
        Mac(accumulator="fix12f8", overflow="wrap"),
        Mac(accumulator="fix40f7"),
        Mac(accumulator="fp32"),
        Mac(product="fix16f8"),
    ):
        same_bits(a, b, "in_order", mac=mac, **formats)


@pytest.mark.parametrize(("terms", "path"), [(2, "float32_blas"), (3, "in_order")])
def test_a_wrapping_accumulator_that_no_sum_leaves_takes_an_exact_path(terms: int, path: str):
    # 2 * 128**2 = 2**15 units of 2**-8 by the formats and by the data; fix17f8 ends at 2**16 - 1
    a, b = full("fix8f4", (2, terms), -8), full("fix8f4", (terms, 2), -8)
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix17f8"}
    width = {2: "fix17f8", 3: "fix16f8"}[terms]  # 3 * 2**14 is beyond 2**15 - 1
    same_bits(a, b, path, mac=Mac(accumulator=width, overflow="wrap"), **formats)


A, B = np.zeros((2, 100), np.float32), np.zeros((100, 2), np.float32)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"a_format": "fix8f4", "b_format": "fix8f4"},
            "float32_blas: K*max|a|*max|b| + max|addend| <= 2**21 units of 2**-8 by the formats, "
            "exact in float32 in any order",
        ),
        (
            {"a_format": "fix16f8", "b_format": "fix16f4"},
            "float64_blas: K*max|a|*max|b| + max|addend| <= 2**37 units of 2**-12 by the formats, "
            "exact in float64 in any order",
        ),
        (
            {"a_format": "fix8f4", "b_format": "fix8f4", "mac": Mac(accumulator="fix32f8")},
            "float32_blas: K*max|a|*max|b| + max|addend| <= 2**21 units of 2**-8 by the formats, "
            "exact in float32 in any order; "
            "the accumulator fix32f8 never saturates",
        ),
        (
            {"a_format": "fix64f8", "b_format": "fix16f8"},
            "wide: K*max|a|*max|b| + max|addend| <= 2**85 units of 2**-16 by the formats, "
            "beyond float64: wide integers"
            "; left to the reference: operands of more bits than float64 holds have no compiled loop",
        ),
        (
            {"a_format": "fix8f4", "b_format": "fix8f4", "mac": Mac(accumulator="fix32f8", overflow="wrap")},
            "float32_blas: K*max|a|*max|b| + max|addend| <= 2**21 units of 2**-8 by the formats, exact in float32 in "
            "any order; the accumulator fix32f8 never wraps",
        ),
        (
            {"a_format": "fix8f4", "b_format": "fix8f4", "mac": Mac(accumulator="fix32f6")},
            "in_order: the accumulator fix32f6 rounds at every add",
        ),
        (
            {"a_format": "fix8f4", "b_format": "fix8f4", "addend_format": "fix8f11", "mac": Mac(accumulator="fix40f8")},
            "float32_blas: K*max|a|*max|b| + max|addend| <= 2**21 units of 2**-8 by the formats, exact in float32 in "
            "any order; the accumulator fix40f8 never saturates; the addend is rounded to fix6f8 first",
        ),
        (
            {"a_format": "fp16", "b_format": "fp16"},
            "wide: float operands and an exact accumulator: a wide integer sum, rounded once",
        ),
        (
            {"a_format": "fp16", "b_format": "fp16", "mac": Mac(accumulator="fp32", order="lanes(4)")},
            "in_order: fp32 rounds on the way, so adds keep the order lanes(4), vectorised over outputs",
        ),
        (
            {"a_format": "fp16", "b_format": "fp16", "mac": Mac(product="bf16")},
            "in_order: bf16 rounds on the way, so adds keep the order sequential, vectorised over outputs",
        ),
    ],
)  # fmt: skip
def test_explain_gives_path_and_proof(options: dict, text: str):
    plan = emu.explain(emu.matmul, A, B, out_format="fix8f4", **options)
    assert str(plan).partition("; slow")[0] == text  # what would be faster: test_advice.py


def test_explain_knows_the_depth_of_a_convolution():
    x, w = np.zeros((1, 3, 9, 9), np.float32), np.zeros((4, 3, 5, 5), np.float32)
    plan = emu.explain(emu.conv2d, x, w, x_format="fix8f4", w_format="fix8f4", out_format="fix8f4")
    assert plan.path == "float32_blas"
    assert "<= 2**21 units of 2**-8" in plan.proof  # 75 * 2**14 < 2**21


def count_reference_products(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record every product the reference computes from now on."""
    from emu.backends.reference.definition import Definition

    calls: list[str] = []
    real = Definition.compute

    def product(self, *arguments):
        calls.append("product")
        return real(self, *arguments)

    monkeypatch.setattr(Definition, "compute", product)
    return calls


@pytest.mark.parametrize(
    "options",
    [
        {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"},
        {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix60f8"},
        {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "mac": Mac(accumulator="fp16")},
        {
            "a_format": "fp16",
            "b_format": "fp16",
            "out_format": "fp16",
            "mac": Mac(accumulator="fp16", order="lanes(2)"),
        },
        {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16"},
    ],
    ids=str,
)
def test_explain_names_the_reference_exactly_when_it_computes(options: dict, monkeypatch: pytest.MonkeyPatch):
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    calls = count_reference_products(monkeypatch)
    plan = emu.explain(emu.matmul, a, b, backend="numba", **options)
    emu.matmul(a, b, backend="numba", **options)
    assert bool(plan.fallback) == bool(calls)
    assert emu.explain(emu.matmul, a, b, backend="reference", **options).path == "definition"


@pytest.mark.parametrize("formats", ["fix8f4", "fix16f8", "fix30f8", "fp16"])
@pytest.mark.parametrize("accumulator", ["exact", "fix40f16", "fix12f3"])
def test_the_reference_keeps_the_given_unit_whatever_a_proof_allows(formats: str, accumulator: str):
    mac = Mac(accumulator=accumulator)
    named = {"a_format": formats, "b_format": formats, "out_format": formats, "mac": mac}
    plan = emu.explain(emu.matmul, np.zeros((2, 3)), np.zeros((3, 2)), backend="reference", **named)
    assert (plan.path, plan.mac, plan.fallback) == ("definition", mac, "")


def test_explain_checks_shapes_and_operations():
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix8f4"}
    with pytest.raises(emu.ShapeError, match="inner sizes must agree"):
        emu.explain(emu.matmul, np.zeros((1, 1)), np.zeros((2, 1)), **formats)
    with pytest.raises(emu.FormatError, match=r"`explain` must be given emu\.matmul or emu\.conv2d, got quantize"):
        emu.explain(emu.quantize, [1.0], "fix8f4")


def test_integer_dot_products_come_first_where_the_backend_has_them():
    """Up to 2**53, binary points included."""
    small, wide = Fixed(8, 4), Fixed(16, 0)
    assert plan_product(small, small, None, 4, Mac(), dots=True).path == "integer_dot"
    assert plan_product(wide, wide, None, 2**23, Mac(), dots=True).path == "integer_dot"
    assert plan_product(wide, wide, None, 2**23 + 1, Mac(), dots=True).path == "wide"
    assert plan_product(Fixed(16, 511), Fixed(16, 511), None, 4, Mac(), dots=True).path == "integer_dot"
    assert plan_product(Fixed(16, 511), Fixed(16, 512), None, 4, Mac(), dots=True).path == "wide"
    saturating = plan_product(wide, wide, None, 9, Mac(accumulator="fix32f0"), dots=True)
    assert saturating.path == "in_order"


#: Modes in which an addend can be rounded beforehand.
BEFOREHAND = [mode for mode in Rounding if not (mode.draws or mode.moves_exact)]


@pytest.mark.parametrize("rounding", BEFOREHAND)
@pytest.mark.parametrize("addend", ["fix8f11", "fix8f17", "fix16f12", "ufix8f11", "fix8f40"])
def test_an_addend_finer_than_its_accumulator_is_rounded_before_products_are_planned(rounding: Rounding, addend: str):
    rng = np.random.default_rng(5)
    a, b = (emu.parse("fix8f5").decode(rng.integers(0, 256, shape)) for shape in ((3, 20), (20, 70)))
    fmt = emu.parse(addend)
    third = fmt.decode(rng.integers(0, fmt.n_codes, (3, 70)))
    third[0, :2] = fmt.max, fmt.min
    formats = {"a_format": "fix8f5", "b_format": "fix8f5", "addend_format": fmt}
    for accumulator, path in (("fix40f10", "float32_blas"), ("fix14f10", "in_order")):
        mac = Mac(accumulator=accumulator, rounding=rounding)
        same_bits(a, b, path, addend=third, mac=mac, out_format="fix40f10", **formats)


@pytest.mark.parametrize("rounding", BEFOREHAND)
def test_every_addend_rounds_to_the_same_in_the_format_it_is_held_in_and_in_the_accumulator(rounding: Rounding):
    narrowed = set()
    for bits, signed, dropped in itertools.product(range(1, 7), (False, True), range(-1, 9)):
        given = Fixed(bits, dropped, signed)
        values = given.decode(np.arange(given.n_codes, dtype=np.uint64))
        for accumulator, overflow in itertools.product(
            (Fixed(2, 0), Fixed(3, 0), Fixed(7, 0), Fixed(4, 0, signed=False)), ("saturate", "saturate_symmetric")
        ):
            rounded = rounded_addend_format(given, Mac(accumulator=accumulator, rounding=rounding, overflow=overflow))
            if rounded is not None:
                narrowed.add((given, accumulator))
                flags = emu.Flags()
                inside, whole = (
                    emu.quantize(values, f, rounding=rounding, overflow=overflow, backend="reference", flags=flags)
                    for f in (rounded, accumulator)
                )
                assert np.array_equal(inside, whole), (given, accumulator, rounded)
                assert flags.overflow == 0
    assert len(narrowed) == 259


@pytest.mark.parametrize("rounding", ["jamming", "magnitude_truncation"])
def test_sums_that_move_although_they_are_exact_are_added_in_order(rounding: str):
    """A wide accumulator never rounds, unless its mode moves what needs no rounding: zeros and values too."""
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, shape) / 8 for shape in ((4, 9), (9, 5)))
    a[0] = 0
    formats = {"a_format": "fix8f4", "b_format": "fix8f4", "out_format": "fix40f12"}
    moved = same_bits(a, b, "in_order", mac=Mac(accumulator="fix40f10", rounding=rounding), **formats)
    still = same_bits(a, b, "float32_blas", mac=Mac(accumulator="fix40f10", rounding="toward_zero"), **formats)
    assert not np.array_equal(moved, still)


def test_an_addend_stays_as_it_is_where_the_unit_does_not_round_it_first():
    given = Fixed(8, 20)
    first = Mac(accumulator="fix40f10")
    assert rounded_addend_format(given, first) == Fixed(2, 10)
    for mac in (
        Mac(),
        Mac(accumulator="fp32"),
        Mac(accumulator="fix40f20"),
        Mac(accumulator="fix40f10", order="pairwise"),
        Mac(accumulator="fix40f10", order="lanes(4)"),
        Mac(accumulator="fix40f10", rounding="stochastic"),
        Mac(accumulator="fix40f10", rounding="stochastic_nearest_odd"),
        Mac(accumulator="fix40f10", rounding="magnitude_truncation"),  # which moves a rounded number once more
        Mac(accumulator="ufix40f10"),
    ):
        assert rounded_addend_format(given, mac) is None
    assert rounded_addend_format(emu.parse("fp16"), first) is None
    assert rounded_addend_format(Fixed(16, 11), Mac(accumulator="fix15f10")) is None  # the largest rounds up to 2**14
    assert rounded_addend_format(Fixed(16, 11), Mac(accumulator="fix16f10")) == Fixed(16, 10)
    assert rounded_addend_format(Fixed(16, 11, signed=False), Mac(accumulator="fix16f10")) is None
    assert rounded_addend_format(None, first) is None


@pytest.mark.parametrize(("a", "b"), [("fix8f0", "ufix8f0"), ("ufix8f0", "fix8f0")])
def test_one_signed_operand_may_take_an_unsigned_accumulator_below_zero(a: str, b: str):
    """-2 stops at 0, and 3 more is 3: in order, whichever operand has the sign."""
    x, y = np.array([[-2.0, 3.0]]), np.array([[1.0], [1.0]])
    given = (x, y) if a == "fix8f0" else (y.T, x.T)
    options = {"a_format": a, "b_format": b, "out_format": "fix24f0", "mac": Mac(accumulator="ufix20f0")}
    assert same_bits(*given, "in_order", **options).tolist() == [[3.0]]


def test_a_proof_names_the_power_of_two_that_bounds_every_sum():
    one, seven = Fixed(1, 0, signed=False), Fixed(3, 0, signed=False)
    for a, depth, power in ((one, 1, 0), (one, 2, 1), (one, 3, 2), (seven, 1, 6)):
        assert f"<= 2**{power} units of 2**0 by the formats" in plan_product(a, a, None, depth, Mac()).proof


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_that_no_fixed_point_has_are_named_in_a_plan(wrong: float):
    a, b = np.full((4, 5), wrong), np.zeros((5, 3))
    with pytest.raises(emu.FormatError, match=f"every value must belong to fix40f4, got {wrong}; quantize it first"):
        emu.explain(emu.matmul, a, b, a_format="fix40f4", b_format="fix20f4", backend="numba")
