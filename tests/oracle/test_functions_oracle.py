"""Function tables against values of 700 bits, written by the rational model: neither shares code with emu."""

from fractions import Fraction
from functools import lru_cache
from itertools import product

import mpmath
import numpy as np
import pytest
from fast_suite import most_are_slow, some_of
from rational_model import FLAGS, INFINITE, MODES, NAN, FixedModel, FloatModel, Real, leading_exponent, settle, write

from emu.backends.functions import FUNCTIONS, function_table
from emu.backends.functions.tables import NO_LEADING
from emu.datapath import OutputStage
from emu.formats import parse

MP = mpmath.MPContext()
MP.prec = 700
#: Farther out than any format reaches: stands for what is larger or smaller still.
HUGE = Fraction(2) ** 3000
R = 11

MODELS = {
    "fp16": FloatModel(5, 10),
    "bf16": FloatModel(8, 7),
    "fix16f8": FixedModel(16, 8),
    "fix16f12": FixedModel(16, 12),
    "fp8_e4m3": FloatModel(4, 3, infinities=False, nans="top"),
    "e5m2 ftz": FloatModel(5, 2, ftz=True),
    "fix8f-2": FixedModel(8, -2),
    "ufix8f7": FixedModel(8, 7, signed=False),
    "fix32f20": FixedModel(32, 20),
}
SOURCES = ("fp16", "bf16", "fix16f8", "fix16f12")
TARGETS = ("fp8_e4m3", "e5m2 ftz", "fix8f-2", "ufix8f7", "fix32f20")


def rational(y):
    sign, man, exp, _ = y._mpf_
    return (-1) ** int(sign) * int(man) * Fraction(2) ** int(exp)


def exp(x):
    return HUGE if x > 3000 else 1 / HUGE if x < -3000 else rational(MP.exp(x))


def inside(y, limit):
    """y, or if its 700 bits already equal the limit that it never reaches, a number just short of that limit."""
    return y if abs(y) < abs(limit) else limit * (1 - Fraction(2) ** -690)


def tanh(x):
    return inside(rational(MP.tanh(x)), 1 if x > 0 else -1)


def sigmoid(x):
    if x < 0:
        return exp(x) / (1 + exp(x))
    return inside(1 - exp(-x) / (1 + exp(-x)), 1)


def erf(x):
    return inside(rational(MP.erf(x)) if abs(x) < 100 else Fraction(1 if x > 0 else -1), 1 if x > 0 else -1)


def gelu(x):
    if abs(x) > 100:
        return inside(Fraction(float(x)), Fraction(float(x))) if x > 0 else -1 / HUGE
    y = rational(x * MP.erfc(-x / MP.sqrt(2)) / 2)
    return inside(y, Fraction(float(x))) if x > 0 else y


def rsqrt(x):
    square = 1 / Fraction(float(x))
    root = Fraction(float(square) ** 0.5)
    return root if root * root == square else rational(1 / MP.sqrt(x))


FINITE = {
    "exp": exp,
    "log": lambda x: rational(MP.log(x)),
    "tanh": tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "gelu": gelu,
    "rsqrt": rsqrt,
}
ZERO, ONE = Fraction(0), Fraction(1)
#: Value at (+0, -0, +inf, -inf); written out from the limits, not computed.
LIMITS = {
    "exp": (Real(False, ONE), Real(False, ONE), Real(False, INFINITE), Real(False, ZERO)),
    "log": (Real(True, INFINITE), Real(True, INFINITE), Real(False, INFINITE), None),
    "tanh": (Real(False, ZERO), Real(True, ZERO), Real(False, ONE), Real(True, ONE)),
    "sigmoid": (Real(False, ONE / 2), Real(False, ONE / 2), Real(False, ONE), Real(False, ZERO)),
    "erf": (Real(False, ZERO), Real(True, ZERO), Real(False, ONE), Real(True, ONE)),
    "gelu": (Real(False, ZERO), Real(True, ZERO), Real(False, INFINITE), Real(True, ZERO)),
    "rsqrt": (Real(False, INFINITE), Real(True, INFINITE), Real(False, ZERO), None),
}


@lru_cache(maxsize=1 << 20)
def value(name, x):
    """The exact value as a Real; None where there is none (a new NaN)."""
    if x.magnitude == NAN:
        return x
    if x.magnitude in (0, INFINITE):
        return LIMITS[name][2 * (x.magnitude == INFINITE) + x.negative]
    if x.negative and name in ("log", "rsqrt"):
        return None
    y = FINITE[name](MP.mpf(x.signed.numerator) / x.signed.denominator)
    return Real(y < 0, abs(y))


@lru_cache(maxsize=1 << 17)
def placed(model, y):
    """Where a value lies on a model's grid: every mode begins there."""
    return model.place(y)


def written(model, y, mode, rule, u):
    if y is not None and not isinstance(y.magnitude, str):
        rounded, exact = settle(model, placed(model, y), mode, u, R)
        return model.finish(y, rounded, exact, rule, mode)
    if y is not None:
        return write(model, y, mode, rule, u, R)
    return model._nan(made=True) if isinstance(model, FloatModel) else write(model, Real(False, NAN), mode, rule)


def compare(name, source, target, mode, codes, folder, overflow=None):
    stage = OutputStage.of(target, mode, overflow, R)
    table = function_table(name, parse(source), stage, folder=folder)
    rng = np.random.default_rng(5)
    u = rng.integers(0, 2**R, codes.size, dtype=np.uint32) if mode.startswith("stochastic") else None
    values, flags = table.lookup(codes, n_rbits=R, u=u)
    found_codes = parse(target).encode(values)
    for i, code in enumerate(codes.tolist()):
        x = MODELS[source].decode(code)
        y = value(name, x)
        expected = written(MODELS[target], y, mode, stage.overflow.value, 0 if u is None else int(u[i]))
        found_flags = {flag for bit, flag in enumerate(FLAGS) if flags[i] >> bit & 1}
        case = f"{name} of {source} {code:#06x} as {target} {mode}"
        assert (found_codes[i], found_flags) == (expected.code, expected.flags), (
            f"{case}: {found_codes[i]:#x} {found_flags} {expected}"
        )
        finite = y is not None and not isinstance(y.magnitude, str) and y.magnitude != 0
        if finite and 1 / HUGE < y.magnitude < HUGE:
            assert (table.exponent[code], table.negative[code]) == (leading_exponent(y.signed), y.negative), case
        elif not finite:
            assert table.exponent[code] == NO_LEADING, case


def all_codes():
    return np.arange(1 << 16, dtype=np.uint16)


def some_codes(n, seed):
    """Random codes, and those around zero, one, the ends, infinity and NaN."""
    around = np.array(
        [0, 0x8000, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x3C00, 0x3F80, 0x0100, 0x1000, 0xFF00, 0xF000, 0x4400, 0x4080]
    )
    near = (around[:, None] + np.arange(-2, 3)).reshape(-1) % (1 << 16)
    return np.concatenate([near, np.random.default_rng(seed).integers(0, 1 << 16, n)]).astype(np.uint16)


@pytest.mark.slow
def test_tanh_of_every_binary16_number_is_rounded_correctly(tmp_path):
    """The negative half is the positive one with the sign changed: the function is odd, the mode symmetric."""
    positive = all_codes()[: 1 << 15]
    compare("tanh", "fp16", "fp16", "nearest_even", positive, tmp_path)
    table = function_table("tanh", parse("fp16"), OutputStage.of("fp16"), folder=tmp_path)
    np.testing.assert_array_equal(table.values[positive + (1 << 15)], -table.values[positive])
    np.testing.assert_array_equal(table.flags[positive + (1 << 15)], table.flags[positive])


@most_are_slow(
    ("name", "source"),
    product(FUNCTIONS, SOURCES),
    keep=lambda name, source: (sorted(FUNCTIONS).index(name) + SOURCES.index(source)) % 4 == 0,
)
def test_a_sample_of_every_function_and_format_is_rounded_correctly(name, source, tmp_path):
    start = sorted(FUNCTIONS).index(name) + SOURCES.index(source)
    for i, target in enumerate((source, "fp16", "fix16f8")):
        compare(name, source, target, MODES[(3 * start + 7 * i) % len(MODES)], some_codes(150, start), tmp_path)


@most_are_slow(
    ("name", "target"),
    product(FUNCTIONS, TARGETS),
    keep=lambda name, target: (sorted(FUNCTIONS).index(name) + TARGETS.index(target)) % 5 == 0,
)
def test_a_sample_of_every_function_into_other_formats_is_rounded_correctly(name, target, tmp_path):
    start = sorted(FUNCTIONS).index(name)
    for i, source in enumerate(SOURCES):
        compare(name, source, target, MODES[(start + 3 * i) % len(MODES)], some_codes(40, start), tmp_path)


@most_are_slow(
    "mode", MODES, keep=["nearest_even", "ceil", "to_odd", "stochastic", "stochastic_nearest_odd", "jamming"]
)
def test_every_mode_rounds_what_lies_next_to_a_value_of_the_format_correctly(mode, tmp_path):
    """Small and large arguments, where functions come within 2**-100 of 0, 1/2, 1, x and x/2."""
    magnitudes = np.concatenate([np.arange(1, 40), np.arange(0x3C00, 0x7F80, 389)])
    codes = np.concatenate([magnitudes, magnitudes + 0x8000]).astype(np.uint16)
    for name in ("exp", "tanh", "sigmoid", "gelu", "erf"):
        compare(name, "bf16", "bf16", mode, codes, tmp_path)


@pytest.mark.parametrize("overflow", ["saturate", "saturate_symmetric", "saturate_zero"])
def test_every_fixed_overflow_rule_is_applied(overflow, tmp_path):
    for name in ("exp", "log", "gelu"):
        compare(name, "fp16", "fix16f8", "floor", some_codes(100, 3), tmp_path, overflow)


def test_wrapped_values_keep_their_lowest_bits(tmp_path):
    """exp up to 2**1024 is wrapped digit by digit; beyond, it counts as infinite."""
    codes = np.array([parse("fix16f4").encode(np.array([x]))[0] for x in (3.5, 20.0625, -1.0, 88.5, 300.0, 700.0)])
    table = function_table("exp", parse("fix16f4"), OutputStage.of("fix16f12", "floor", "wrap"), folder=tmp_path)
    for code, x in zip(codes, (3.5, 20.0625, -1.0, 88.5, 300.0, 700.0), strict=True):
        with mpmath.workprec(1400):
            raw = int(mpmath.floor(mpmath.exp(mpmath.mpf(x)) * 2**12)) % 2**16
        assert table.values[code] * 2**12 % 2**16 == raw
    beyond = parse("fix16f4").encode(np.array([711.0]))[0]
    assert table.values[beyond] == parse("fix16f12").max


def test_float32_results_of_fp16_arguments_are_rounded_correctly(tmp_path):
    codes = some_codes(400, 8)
    for name in FUNCTIONS:
        table = function_table(name, parse("fp16"), OutputStage.of("fp32"), folder=tmp_path)
        for code, found in zip(codes.tolist(), table.values[codes], strict=True):
            y = value(name, MODELS["fp16"].decode(code))
            if y is None or isinstance(y.magnitude, str) or y.magnitude >= 2**127:
                continue
            # to odd at 41 bits, exact in float64: then rounding to float32 is rounding the exact value
            quantum = Fraction(2) ** max(leading_exponent(y.magnitude) - 40, -190) if y.magnitude else ONE
            units = y.magnitude // quantum
            odd = float((units | (units * quantum != y.magnitude)) * quantum)
            assert found == np.float32(-odd if y.negative else odd), (name, hex(code))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "source"), some_of(product(FUNCTIONS, SOURCES), 10))
def test_every_16_bit_input_of_every_function_is_rounded_correctly(name, source, tmp_path):
    for mode in ("nearest_even", "floor", "to_odd", "stochastic"):
        compare(name, source, source, mode, all_codes(), tmp_path)
