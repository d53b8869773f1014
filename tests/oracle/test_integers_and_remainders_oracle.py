"""round_to_integral and remainder against rational numbers: every value, and all pairs of values, of narrow formats."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from fast_suite import most_are_slow
from rational_model import FLAGS, INFINITE, MODES, NAN, FixedModel, FloatModel, Model, Real, Written, settle, write
from whole_arrays import RANDOM_BITS, emu_format, random_bits

import emu
from emu.testing import assert_bits_equal

INTEGERS = FixedModel(64, 0)
E3M2 = FloatModel(3, 2)
E4M3 = FloatModel(4, 3, infinities=False, nans="top")
SOURCES: list[Model] = [E3M2, FixedModel(6, 3), E4M3, FixedModel(8, 5, signed=False), FixedModel(7, -2)]
TARGETS: list[Model] = [E3M2, FixedModel(6, 2), FloatModel(5, 10), FixedModel(5, 3, signed=False)]
NOT_A_NUMBER = Real(False, NAN)
#: Modes that move values; integers they have moved are written toward zero.
MOVING = ("jamming", "magnitude_truncation")


def values(model: Model) -> np.ndarray:
    fmt = emu_format(model)
    return fmt.decode(fmt.codes())


def integer_of(real: Real, mode: str, *, is_float: bool, u: int) -> Real:
    """The integer a mode picks; some modes look at a float's magnitude alone, of fixed-point numbers at the raw."""
    if isinstance(real.magnitude, str) or (is_float and real.magnitude == 0):
        return real
    magnitude_alone = is_float and (mode in MOVING or mode.startswith("stochastic"))
    place = INTEGERS.place(Real(False, real.magnitude) if magnitude_alone else real)
    number, _ = settle(INTEGERS, place, mode, u, RANDOM_BITS)
    negative = real.negative and (number <= 0 or magnitude_alone)
    return Real(negative, Fraction(abs(number)))


def remainder_of(x: Real, y: Real) -> tuple[Real, bool]:
    """IEEE 754-2019 section 5.3.1, and whether the operation is invalid (section 7.2)."""
    if NAN in (x.magnitude, y.magnitude):
        return NOT_A_NUMBER, False
    if x.magnitude == INFINITE or y.magnitude == 0:
        return NOT_A_NUMBER, True
    if y.magnitude == INFINITE:
        return x, False
    rest = x.signed - y.signed * round(x.signed / y.signed)  # Python rounds ties to even
    return Real(rest < 0 if rest else x.negative, abs(rest)), False


def compare(written: np.ndarray, flags: emu.Flags, expected: list[Written], model: Model) -> None:
    codes = np.array([w.code for w in expected], np.uint64).reshape(written.shape)
    assert_bits_equal(written, codes, emu_format(model))
    assert {name: getattr(flags, name) for name in FLAGS} == {
        name: sum(name in w.flags for w in expected) for name in FLAGS
    }


@most_are_slow(
    ("source", "target"), product(SOURCES, TARGETS), keep=[(E3M2, E3M2), (SOURCES[1], TARGETS[1]), (E4M3, TARGETS[3])]
)
def test_integers_are_those_that_rational_numbers_give_in_every_mode(source: Model, target: Model, backend: str):
    x, bits = values(source), random_bits(2 ** emu_format(source).width_bits)
    for mode, rule in product(MODES, target.rules):
        flags = emu.Flags()
        drawn = {"rbits": bits, "n_rbits": RANDOM_BITS} if "stochastic" in mode else {}
        written = emu.round_to_integral(
            x, a_format=emu_format(source), out_format=emu_format(target), rounding=mode, overflow=rule, flags=flags,
            backend=backend, **drawn,
        )  # fmt: skip
        expected = []
        for value, u in zip(x.tolist(), bits.tolist(), strict=True):
            real = Real.of(value)
            integer = integer_of(real, mode, is_float=isinstance(target, FloatModel), u=u)
            w = write(target, integer, "toward_zero" if mode in MOVING else mode, rule, u, RANDOM_BITS)
            expected.append(w if integer == real else Written(w.code, w.flags | {"inexact"}))
        compare(written, flags, expected, target)


@lru_cache
def remainders(left: Model, right: Model) -> list[tuple[Real, bool]]:
    rows, columns = ([Real.of(v) for v in values(model).tolist()] for model in (left, right))
    return [remainder_of(x, y) for x in rows for y in columns]


PAIRS = [(E3M2, E3M2), (SOURCES[1], SOURCES[1]), (E3M2, SOURCES[1]), (SOURCES[4], E3M2), (E4M3, E4M3)]


@most_are_slow(("pair", "mode"), product(PAIRS, ["nearest_even", "ceil"]), keep=list(product(PAIRS[:3], ["ceil"])))
def test_remainders_of_all_pairs_are_those_of_rational_numbers(pair: tuple[Model, Model], mode: str, backend: str):
    left, right = pair
    a, b = values(left)[:, None], values(right)[None, :]
    for target in (left, TARGETS[2], TARGETS[3]):
        flags = emu.Flags()
        written = emu.remainder(
            a, b, a_format=emu_format(left), b_format=emu_format(right), out_format=emu_format(target), rounding=mode,
            flags=flags, backend=backend,
        )  # fmt: skip
        expected = []
        for exact, invalid in remainders(left, right):
            w = write(target, exact, mode, target.rules[0])
            expected.append(Written(w.code, w.flags | {"invalid"}) if invalid else w)
        compare(written, flags, expected, target)


def test_a_remainder_written_into_its_own_format_is_exact(backend: str):
    """IEEE 754-2019 section 5.3.1: when y is not 0, remainder(x, y) is exact."""
    flags, x = emu.Flags(), values(FloatModel(5, 10))[::301]
    written = emu.remainder(x[:, None], x[None, :], out_format="fp16", flags=flags, backend=backend)
    assert flags.inexact == flags.overflow == flags.underflow == 0
    finite = np.isfinite(written) & np.isfinite(x)[None, :]
    assert (np.abs(written) <= np.abs(x)[None, :] / 2)[finite].all()


@pytest.mark.parametrize("fmt", ["fp64", "fix64f30", "fp32"])
def test_operands_that_lie_far_apart_have_the_remainders_of_integers(fmt: str, backend: str):
    rng = np.random.default_rng(4)
    a = np.ldexp(rng.integers(1, 2**53, 200).astype(np.float64), rng.integers(-1074, 960, 200)) * rng.choice(
        [-1, 1], 200
    )
    b = np.ldexp(rng.integers(1, 2**53, 200).astype(np.float64), rng.integers(-1074, 960, 200))
    exact = [Fraction(x) - Fraction(y) * round(Fraction(x) / Fraction(y)) for x, y in zip(a, b, strict=True)]
    as_floats = np.array([float(x) for x in exact])
    assert all(Fraction(x) == y for x, y in zip(as_floats, exact, strict=True))
    written = emu.remainder(a, b, out_format=fmt, rounding="floor", backend=backend)
    assert_bits_equal(written, emu.quantize(as_floats, fmt, rounding="floor", backend="reference"), fmt)
