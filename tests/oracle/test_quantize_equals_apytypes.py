"""Agreement with APyTypes wherever it defines the mode.

Its `STOCH_WEIGHTED` and `STOCH_EQUAL` draw their own random bits, so neither is compared. `JAM_UNBIASED` is to_odd.
Saturation is compared for fixed point only: its floats overflow as `ieee` says.

`TRN_MAG` adds the sign bit where bits are dropped and leaves words as they are where none are; here a result has no
bits, so that exact negative values always move. Compared are casts that drop bits. In floats it adds the sign bit to a
magnitude, which takes negative results away from zero: magnitude_truncation goes toward zero there, as its name says,
and positive numbers alone are compared. `JAM` jams words always, and floats where the target has fewer fraction bits.

Known error of APyTypes 0.5.1: a source with fewer fraction bits than the target, rounded up to a power of two among
the target's subnormals, comes out as the smallest normal: bfloat16 0x1.FEp-18 to binary16 gives 0x0400 = 2**-14 where
2**-17 (0x0080) is right. `test_an_error_of_apytypes_is_not_ours` holds our side of it; no other case is compared.
"""

from __future__ import annotations

import numpy as np
import pytest
from fast_suite import most_are_slow
from whole_arrays import all_inputs

import emu
from emu.testing import assert_bits_equal

apytypes = pytest.importorskip("apytypes")

_Q = apytypes.QuantizationMode
MODES = {
    "nearest_even": _Q.TIES_EVEN,
    "nearest_away": _Q.TIES_AWAY,
    "nearest_up": _Q.TIES_POS,
    "nearest_down": _Q.TIES_NEG,
    "nearest_zero": _Q.TIES_ZERO,
    "floor": _Q.TO_NEG,
    "ceil": _Q.TO_POS,
    "toward_zero": _Q.TO_ZERO,
    "to_odd": _Q.JAM_UNBIASED,
    "nearest_odd": _Q.TIES_ODD,
    "away_from_zero": _Q.TO_AWAY,
    "jamming": _Q.JAM,
    "magnitude_truncation": _Q.TRN_MAG,
}
RULES = {"saturate": apytypes.OverflowMode.SAT, "wrap": apytypes.OverflowMode.WRAP}
FIXED = [
    ("fix16f8", "fix8f4"),
    ("fix16f8", "fix8f0"),
    ("fix16f12", "fix12f3"),
    ("fix16f3", "fix16f10"),
    ("fix16f0", "fix8f-3"),
]
DROPPING = [(source, target) for source, target in FIXED if emu.parse(source).frac_bits > emu.parse(target).frac_bits]
FLOATS = [("fp16", "e4m3"), ("fp16", "fp8_e5m2"), ("fp16", "bf16"), ("bf16", "e4m3"), ("bf16", "e8m3")]
MORE_FLOATS = [("fp16", "e2m5"), ("fp16", "e6m1"), ("fp16", "e4m7"), ("fp16", "e6m12"), ("bf16", "fp8_e5m2")]


@most_are_slow(
    ("source", "target", "rule", "mode"),
    [
        (*pair, rule, mode)
        for pair in FIXED
        for rule in RULES
        for mode in MODES
        if mode != "magnitude_truncation" or pair in DROPPING
    ],
    keep=lambda source, target, rule, mode: (
        (FIXED.index((source, target)) + list(RULES).index(rule) + list(MODES).index(mode)) % 3 == 0
    ),
)
def test_quantize_to_fixed_equals_apytypes(source, target, rule, mode, backend):
    source, target = emu.parse(source), emu.parse(target)
    given = apytypes.APyFixedArray(source.codes().tolist(), bits=16, frac_bits=source.frac_bits)
    cast = given.cast(
        bits=target.width_bits, frac_bits=target.frac_bits, quantization=MODES[mode], overflow=RULES[rule]
    )
    x = source.decode(source.codes())
    got = emu.quantize(x, target, rounding=mode, overflow=rule, backend=backend)
    assert_bits_equal(got, np.asarray(cast.to_bits(numpy=True)), target)


@most_are_slow(
    ("source", "target", "mode"),
    [
        (*pair, mode)
        for pair in FLOATS + MORE_FLOATS
        for mode in MODES
        if mode != "jamming" or pair != ("fp16", "e6m12")  # which has more fraction bits
    ],
    keep=lambda source, target, mode: (
        (source, target) in FLOATS and (FLOATS.index((source, target)) + list(MODES).index(mode)) % 3 == 0
    ),
)
def test_quantize_to_float_equals_apytypes(source, target, mode, backend):
    fmt, given = emu.parse(target), emu.parse(source)
    values = apytypes.APyFloatArray.from_bits(range(2**16), given.exponent_bits, given.fraction_bits)
    cast = values.cast(fmt.exponent_bits, fmt.fraction_bits, quantization=MODES[mode])
    x, want = all_inputs(source), np.asarray(cast.to_bits(numpy=True))
    if mode == "magnitude_truncation":
        compared = (x >= 0) & (x <= fmt.max)  # beyond, APyTypes writes infinity
        x, want = x[compared], want[compared]
    assert_bits_equal(emu.quantize(x, fmt, rounding=mode, backend=backend), want, fmt)


def test_the_table_of_modes_names_each_of_apytypes_once():
    named = {mode.value: mode.meaning.names.apytypes for mode in emu.Rounding if mode.meaning.names.apytypes}
    assert named == {name: mode.name for name, mode in MODES.items()}
    assert set(named.values()) == {mode.name for mode in _Q} - {"STOCH_WEIGHTED", "STOCH_EQUAL"}


def test_an_error_of_apytypes_is_not_ours(backend):
    written = emu.quantize([float.fromhex("0x1.FEp-18")], "fp16", backend=backend)
    assert_bits_equal(written, [2.0**-17], "fp16")
