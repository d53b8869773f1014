"""Laws of the statistics register."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu.testing import arrays, formats

backends = st.sampled_from(["reference", "numba"])


def observe(x, fmt, backend, **place) -> emu.StatisticsRegister:
    register = emu.StatisticsRegister(**place)
    emu.quantize(x, fmt, register=register, backend=backend)
    return register


@given(st.data(), formats(), st.integers(0, 20), backends)
def test_merged_registers_equal_the_register_of_the_whole(data, fmt, cut, backend):
    x = data.draw(arrays(fmt, 20, representable=False))
    place = data.draw(st.sampled_from([{}, {"lowest": -5, "bins": 9}]))
    whole, merged, rest = (observe(part, fmt, backend, **place) for part in (x, x[:cut], x[cut:]))
    merged.merge(rest)
    assert merged == whole
    twice = observe(x[:cut], fmt, backend, **place)
    emu.quantize(x[cut:], fmt, register=twice, backend=backend)
    assert twice == whole


@given(st.data(), formats(), backends)
def test_every_result_is_counted_once(data, fmt, backend):
    x = data.draw(arrays(fmt, 20, representable=False))
    register = observe(x, fmt, backend, lowest=data.draw(st.integers(-60, 10)), bins=data.draw(st.integers(1, 70)))
    counted = sum(register.histogram().values()) + register.below + register.above
    assert counted + register.none + register.nonfinite == register.total == 20
    assert register.nonfinite == (~np.isfinite(x)).sum()
    assert register.none == (x == 0).sum()


@given(st.data(), formats(), backends)
def test_an_exponent_says_which_powers_of_two_bound_the_number(data, fmt, backend):
    """-2**m <= x < 2**m exactly when e <= m - 1."""
    x = data.draw(arrays(fmt, 1, representable=False, nan=False, infinity=False))
    if x[0] == 0:
        return
    register = observe(x, fmt, backend, lowest=-1100, bins=2200)
    (e,) = register.histogram()
    for m in (e - 1, e, e + 1, e + 2):
        assert (-(Fraction(2) ** m) <= Fraction(x[0]) < Fraction(2) ** m) == (e <= m - 1)
    assert register.max_exponent in (e, e + 1 if x[0] < 0 else e)


@given(st.lists(st.integers(-(2**39), 2**39 - 1), min_size=1, max_size=12), st.integers(-10, 50), backends)
def test_a_fixed_accumulator_counts_as_the_hardware_finds_the_leading_bit(raws, frac_bits, backend):
    register = emu.StatisticsRegister()
    fmt = emu.Fixed(40, frac_bits)
    emu.quantize(fmt.from_raw(np.array(raws)), "fix16f8", x_format=fmt, register=register, backend=backend)
    expected: dict[str, dict[int, int]] = {"positive": {}, "negative": {}}
    for raw in raws:
        p = (raw ^ (raw >> 39)).bit_length() - 1
        if p >= 0:
            side = expected["negative" if raw < 0 else "positive"]
            side[p - frac_bits] = side.get(p - frac_bits, 0) + 1
    assert (register.positive, register.negative) == (expected["positive"], expected["negative"])
    assert register.none == sum(raw in (0, -1) for raw in raws)


@given(st.data(), formats())
def test_a_register_survives_being_saved_as_json(data, fmt):
    register = observe(data.draw(arrays(fmt, 10, representable=False)), fmt, "reference", lowest=-20, bins=30)
    assert emu.StatisticsRegister.from_dict(json.loads(json.dumps(register.to_dict()))) == register


@given(st.lists(st.lists(st.floats(-9, 9, width=32), max_size=9), max_size=5), st.integers(1, 5), backends)
def test_counts_cut_once_are_those_of_counters_that_stop_at_every_add(vectors, counter_bits, backend):
    held: dict[object, int] = {}
    for vector in vectors:
        alone = observe(vector, emu.parse("fix8f4"), backend, lowest=-4, bins=9)
        for name, count in names_and_counts(alone).items():
            held[name] = min(held.get(name, 0) + count, 2**counter_bits - 1)
    whole = observe([x for vector in vectors for x in vector], emu.parse("fix8f4"), backend, lowest=-4, bins=9)
    assert names_and_counts(whole.saturated(counter_bits)) == {name: n for name, n in held.items() if n}


def names_and_counts(register: emu.StatisticsRegister) -> dict[object, int]:
    scalars = ("none", "below", "above", "nonfinite", "total")
    sides = {(sign, e): n for sign in ("positive", "negative") for e, n in getattr(register, sign).items()}
    return {name: n for name, n in (sides | {name: getattr(register, name) for name in scalars}).items() if n}
