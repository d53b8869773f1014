"""Sign and magnitude, and hidden bits that are always one: every code and every pair of small formats, by fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from fast_suite import most_are_slow
from rational_model import INFINITE, MODES, NAN, FixedModel, FloatModel, Model, Real, settle, write
from unusual_models import HiddenOneModel, MagnitudeModel
from whole_arrays import emu_format

import emu
from emu.testing import assert_bits_equal

MODELS: list[Model] = [
    MagnitudeModel(5, 2),
    MagnitudeModel(6, -3),
    MagnitudeModel(2, 7),
    HiddenOneModel(3, 2),
    HiddenOneModel(2, 3, infinities=False, nans="top"),
    HiddenOneModel(3, 2, bias=4, infinities=False, nans="negative_zero"),
    HiddenOneModel(3, 3, infinities=False, nans="none", signed=False),
    HiddenOneModel(0, 4, bias=-2, infinities=False, nans="none"),
    HiddenOneModel(1, 3, bias=3, nans="top"),
]
WIDE: list[Model] = [MagnitudeModel(11, 4), HiddenOneModel(5, 10), HiddenOneModel(6, 3, nans="top")]
SMALL = MODELS[:5]
ids = [str(emu_format(model)) for model in MODELS]
RULES = {"add": ("nearest_even", "floor"), "multiply": ("toward_zero", "nearest_away"), "subtract": ("ceil", "to_odd")}


def codes_of(model: Model) -> range:
    return range(emu_format(model).n_codes)


def as_float(real: Real) -> float:
    magnitude = float({INFINITE: np.inf, NAN: np.nan}.get(real.magnitude, real.magnitude))
    return -magnitude if real.negative else magnitude


def canonical(model: Model, real: Real) -> int:
    return write(model, real, "toward_zero", model.rules[0]).code


@most_are_slow("model", [*MODELS, *WIDE], keep=[*MODELS, WIDE[2]], ids=lambda model: str(emu_format(model)))
def test_every_code_is_read_as_the_model_says_and_written_back(model: Model):
    fmt, known = emu_format(model), [model.decode(code) for code in codes_of(model)]
    values = fmt.decode(fmt.codes())
    np.testing.assert_array_equal(values, [as_float(real) for real in known])
    back = [canonical(model, real) for real in known]
    assert fmt.encode(values).tolist() == back
    differs = [code for code, again in zip(codes_of(model), back, strict=True) if code != again]
    if isinstance(model, MagnitudeModel):
        assert differs == [2 ** (model.width - 1)]  # the sign alone
        assert not np.signbit(values[differs]).any()
    finite = [real for real in known if not isinstance(real.magnitude, str)]
    assert Fraction(fmt.min) == min(real.signed for real in finite)
    assert Fraction(fmt.max) == max(real.signed for real in finite)
    assert Fraction(fmt.smallest_positive) == min(real.signed for real in finite if real.signed > 0)


@pytest.mark.parametrize("model", MODELS, ids=ids)
def test_exactly_the_values_belong_to_the_format(model: Model):
    fmt = emu_format(model)
    values = {real.signed for real in map(model.decode, codes_of(model)) if not isinstance(real.magnitude, str)}
    step = Fraction(float(fmt.ulp(0.0))) / 2
    numbers = [n * step for n in range(-64, 65)] + [v + d for v in values for d in (-step, 0, step)]
    inside = fmt.contains(np.array([float(x) for x in numbers]))
    assert inside.tolist() == [x in values for x in numbers]
    assert [bool(fmt.contains(np.array([x], object))[0]) for x in numbers] == inside.tolist()


def exact(operation: str, a: Real, b: Real, mode: str) -> Real:
    """IEEE 754-2019 section 6, in the cases that two numbers have."""
    x, y = as_float(a), as_float(b if operation != "subtract" else Real(not b.negative, b.magnitude))
    if operation == "multiply":
        if not (np.isfinite(x) and np.isfinite(y)):
            return Real.of(x * y)
        return Real(a.negative != b.negative, a.magnitude * b.magnitude)
    if not (np.isfinite(x) and np.isfinite(y)):
        return Real.of(x + y)
    total = Fraction(x) + Fraction(y)
    if total == 0:
        signs = np.signbit([x, y])
        return Real(bool(signs.any() if mode == "floor" else signs.all()), Fraction(0))
    return Real(total < 0, abs(total))


@pytest.mark.parametrize("backend", ["reference", "numba"])
@most_are_slow(
    ("operation", "a", "out"),
    [(operation, a, out) for operation in RULES for a, out in product(SMALL, SMALL)],
    keep=lambda operation, a, out: (operation, a, out)
    in [("add", SMALL[0], SMALL[0]), ("multiply", SMALL[0], SMALL[0]), ("add", SMALL[3], SMALL[3]),
        ("multiply", SMALL[3], SMALL[4]), ("subtract", SMALL[4], SMALL[1])],
)  # fmt: skip
def test_every_pair_is_added_subtracted_and_multiplied(operation: str, a: Model, out: Model, backend: str):
    fmt, target = emu_format(a), emu_format(out)
    left, right = (x.reshape(-1) for x in np.meshgrid(fmt.codes(), fmt.codes(), indexing="ij"))
    x, y = fmt.decode(left), fmt.decode(right)
    known = [a.decode(code) for code in codes_of(a)]
    for mode in RULES[operation]:
        with np.errstate(invalid="ignore"):
            results = [exact(operation, p, q, mode) for p, q in product(known, known)]
        made = [r.magnitude == NAN and NAN not in (p.magnitude, q.magnitude)
                for r, (p, q) in zip(results, product(known, known), strict=True)]  # fmt: skip
        for rule in out.rules:
            written = [write(out, real, mode, rule) for real in results]
            flags = emu.Flags()
            y_of = getattr(emu, operation)
            got = y_of(x, y, a_format=fmt, b_format=fmt, out_format=target, rounding=mode, overflow=rule,
                       flags=flags, backend=backend)  # fmt: skip
            assert_bits_equal(got, np.array([w.code for w in written], np.uint64), target)
            invalid = sum("invalid" in w.flags or m for w, m in zip(written, made, strict=True))
            assert flags.invalid == invalid, (mode, rule)
            for name in ("overflow", "underflow", "inexact"):
                assert getattr(flags, name) == sum(name in w.flags for w in written), (mode, rule, name)


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("held", [MagnitudeModel(6, 3), MagnitudeModel(7, 5)], ids=["rounds", "never rounds"])
@pytest.mark.parametrize("rule", MagnitudeModel.rules)
def test_an_accumulator_of_sign_and_magnitude_is_bounded_at_every_add(rule: str, held: MagnitudeModel, backend: str):
    operand = MagnitudeModel(5, 2)
    fmt, accumulator = emu_format(operand), emu_format(held)
    codes = np.random.default_rng(1).integers(0, fmt.n_codes, (2, 60, 7))
    for mode in ("floor", "jamming"):
        expected, touched = [], 0
        for row, column in zip(*codes.tolist(), strict=True):
            total, over = Real(False, Fraction(0)), False
            for p, q in zip(row, column, strict=True):
                term = operand.decode(p).signed * operand.decode(q).signed
                value = total.signed + term
                answer = write(held, Real(value < 0, abs(value)), mode, rule)
                total, over = held.decode(answer.code), over or "overflow" in answer.flags
            expected.append(held.encode(total))
            touched += over
        flags = emu.Flags()
        unit = emu.Unit(accumulator, inputs=fmt, flags=flags, overflow=rule, backend=backend,
                        mac=emu.Mac(accumulator=accumulator, rounding=mode, overflow=rule))  # fmt: skip
        a, b = fmt.decode(codes[0])[:, None, :], fmt.decode(codes[1])[:, :, None]
        assert unit.matmul(a, b).codes.reshape(-1).tolist() == expected, mode
        assert flags.accumulator_overflow == (0 if rule == "wrap" else touched), mode


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_products_and_sums_of_hidden_ones_are_rounded_at_every_step(backend: str):
    operand, product_, held = HiddenOneModel(3, 2), HiddenOneModel(3, 3), HiddenOneModel(4, 3)
    fmt = emu_format(operand)
    finite = [code for code in codes_of(operand) if not isinstance(operand.decode(code).magnitude, str)]
    codes = np.random.default_rng(2).choice(finite, (2, 100, 6))
    expected = []
    for row, column in zip(*codes.tolist(), strict=True):
        total = Real(False, Fraction(0))
        for p, q in zip(row, column, strict=True):
            x, y = operand.decode(p), operand.decode(q)
            term = product_.decode(write(product_, Real(x.negative != y.negative, x.magnitude * y.magnitude),
                                         "nearest_even", "satfinite").code)  # fmt: skip
            exact_sum = exact("add", total, term, "nearest_even")
            total = held.decode(write(held, exact_sum, "nearest_even", "satfinite").code)
        expected.append(canonical(held, total))
    mac = emu.Mac(product=emu_format(product_), accumulator=emu_format(held), overflow="satfinite")
    unit = emu.Unit(emu_format(held), inputs=fmt, mac=mac, backend=backend)
    a, b = fmt.decode(codes[0])[:, None, :], fmt.decode(codes[1])[:, :, None]
    assert unit.matmul(a, b).codes.reshape(-1).tolist() == expected


def is_tiny(model: HiddenOneModel, real: Real, mode: str, choice: str) -> bool:
    """IEEE 754's tininess: below the smallest normal number, that of code 1, before or after rounding."""
    least = model.value_of(1)
    assert isinstance(real.magnitude, Fraction)
    if real.magnitude == 0 or choice == "before_rounding":
        return 0 < real.magnitude < least
    endless = FloatModel(model.exponent_bits + 3, model.fraction_bits, bias=(model.bias or 3) + 16)
    number, _ = settle(endless, endless.place(real), mode)
    return endless.value_at(number) < least


@most_are_slow(
    "mode",
    [mode for mode in MODES if not mode.startswith("stochastic")],
    keep=["nearest_even", "ceil", "toward_zero", "jamming"],
)
def test_ieee_underflow_is_below_the_number_of_code_one(mode: str):
    model = HiddenOneModel(3, 2)
    fmt, step = emu_format(model), model.value_of(1) / 5 / 16
    reals = [Real(sign, n * step) for n in range(1, 140) for sign in (False, True)]
    x = np.array([as_float(real) for real in reals])
    for choice in ("before_rounding", "after_rounding"):
        expected = [
            "inexact" in write(model, real, mode, "ieee").flags and is_tiny(model, real, mode, choice) for real in reals
        ]
        for raised in (False, True):  # none of those where it is not, and each where it is
            flags = emu.Flags(tininess=choice)
            chosen = x[np.array(expected) == raised]
            emu.quantize(chosen, fmt, rounding=mode, flags=flags, backend="reference")
            assert flags.underflow == (chosen.size if raised else 0), choice


def test_the_same_numbers_are_written_with_other_codes_in_two_s_complement():
    """Saturating symmetrically, two's complement has the same values; so every backend writes them."""
    x = np.linspace(-20, 20, 4001)
    for backend in ("reference", "numba"):
        ours = emu.quantize(x, "fix8f4 sign-magnitude", backend=backend)
        theirs = emu.quantize(x, "fix8f4", overflow="saturate_symmetric", backend=backend)
        assert_bits_equal(ours, theirs, "fix8f4 sign-magnitude")
        model = FixedModel(8, 4)
        assert emu_format(model).encode(ours).tolist() == [write(model, Real.of(v), "nearest_even",
                                                                 "saturate_symmetric").code for v in x]  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("mode", [m for m in MODES if m.startswith("stochastic")] + ["jamming", "magnitude_truncation"])
def test_magnitudes_are_rounded_where_two_s_complement_would_be_rounded_otherwise(mode: str, backend: str):
    model, r = MagnitudeModel(5, 2), 3
    fmt = emu_format(model)
    x = np.repeat(np.arange(-300, 301) / 64, 8)
    u = np.tile(np.arange(8), x.size // 8)
    for rule in model.rules:
        written = [write(model, Real.of(v), mode, rule, b, r) for v, b in zip(x.tolist(), u.tolist(), strict=True)]
        bits = u if mode.startswith("stochastic") else None
        got = emu.quantize(x, fmt, rounding=mode, overflow=rule, n_rbits=r, rbits=bits, backend=backend)
        assert_bits_equal(got, np.array([w.code for w in written], np.uint64), fmt)


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_table_of_a_function_is_read_by_the_codes_of_its_input(backend: str):
    """erf is odd, and the smallest of these inputs are rounded to themselves."""
    for model in (MagnitudeModel(6, 3), HiddenOneModel(3, 2)):
        fmt = emu_format(model)
        x = fmt.decode(fmt.codes())
        y = emu.erf(x, x_format=fmt, out_format="fp32", backend=backend)
        plain = emu.erf(x.astype(np.float32), x_format="fp16", out_format="fp32", backend=backend)
        assert_bits_equal(y, plain, "fp32")
