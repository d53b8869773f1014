"""Every 16-bit input into 8-bit formats, under every rounding mode and overflow rule, against rational numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from fast_suite import most_are_slow, some_of
from rational_model import FLAGS, MODES, FixedModel, FloatModel, Model
from unusual_models import HiddenOneModel, MagnitudeModel
from whole_arrays import RANDOM_BITS, all_inputs, emu_format, expected, expected_register, random_bits

import emu
from emu.testing import assert_bits_equal

E4M3 = FloatModel(4, 3, infinities=False, nans="top")
E5M2 = FloatModel(5, 2)
#: A mode of each kind, for a pair each; the others are slow.
QUICK = ("nearest_even", "ceil", "stochastic")
QUICK_TOO = ("jamming", "stochastic_nearest_odd", "magnitude_truncation")
FAST = [("fp16", E4M3), ("bf16", E5M2), ("fix16f8", FixedModel(8, 4))]
#: Kinds with rules of their own, in the fast suite in one mode.
UNUSUAL: list[Model] = [
    FloatModel(8, 0, infinities=False, nans="top", signed=False, zero=False),
    FloatModel(5, 3, bias=16, nans="top", signed=False),
    MagnitudeModel(8, 4),
    HiddenOneModel(4, 3),
    HiddenOneModel(3, 5, infinities=False, nans="none", signed=False),
]
TARGETS: list[Model] = [
    E4M3,
    E5M2,
    FloatModel(4, 3),
    FloatModel(4, 3, bias=8, infinities=False, nans="negative_zero"),
    FloatModel(5, 2, bias=16, infinities=False, nans="negative_zero"),
    FloatModel(3, 4, infinities=False, nans="none"),
    FloatModel(3, 4, infinities=True, nans="none"),
    FloatModel(2, 5, infinities=True, nans="top"),
    FloatModel(4, 3, ftz=True),
    FloatModel(6, 1, infinities=False, nans="ieee"),
    FloatModel(7, 0, infinities=True, nans="top"),
    FloatModel(0, 7, infinities=False, nans="negative_zero"),
    FloatModel(1, 6),
    FloatModel(5, 3, nans="top", bias=16, signed=False),
    FloatModel(4, 4, infinities=False, nans="none", signed=False),
    FloatModel(4, 4, infinities=False, signed=False, ftz=True),
    FloatModel(8, 0, nans="top", signed=False),
    FloatModel(8, 0, infinities=False, nans="top", signed=False, zero=False),
    FloatModel(3, 5, infinities=False, nans="none", signed=False, zero=False),
    FixedModel(8, 4),
    FixedModel(8, 4, signed=False),
    FixedModel(8, 7),
    FixedModel(8, 0),
    FixedModel(8, -2, signed=False),
    FixedModel(8, 11),
    MagnitudeModel(8, 4),
    MagnitudeModel(7, -2),
    HiddenOneModel(4, 3),
    HiddenOneModel(5, 2, infinities=False, nans="top"),
    HiddenOneModel(4, 3, bias=8, infinities=False, nans="negative_zero"),
    HiddenOneModel(3, 5, infinities=False, nans="none", signed=False),
    HiddenOneModel(0, 6, infinities=False, nans="none"),
]
SLOW = [
    (source, target) for source in ("fp16", "bf16", "fix16f8") for target in TARGETS if (source, target) not in FAST
]


# the backends one after the other on each case, so that the model's results are computed once
each_backend = pytest.mark.parametrize("backend", ["reference", "numba"])


def name_of(value: tuple[str, Model] | str) -> str:
    return value if isinstance(value, str) else f"{value[0]} to {emu_format(value[1])}"


def check_pair(source: str, model: Model, mode: str, backend: str) -> None:
    x, fmt = all_inputs(source), emu_format(model)
    options = {"rounding": mode, "n_rbits": RANDOM_BITS, "backend": backend}
    drawn = random_bits(x.size) if mode.startswith("stochastic") else None
    for rule in model.rules:
        flags, want = emu.Flags(), expected(source, model, mode, rule)
        written = emu.quantize(x, fmt, overflow=rule, rbits=drawn, flags=flags, **options)
        assert_bits_equal(written, want.codes, fmt)
        counts = {name: int(want.flags[name].sum()) for name in FLAGS}
        assert {name: getattr(flags, name) for name in FLAGS} == counts, f"{mode}, {rule}"
        assert flags.accumulator_overflow == 0


def check_where_flags_rise(source: str, model: Model, mode: str, backend: str) -> None:
    """The counts agree; so do the elements, if those the model flags raise the flag every one."""
    x, fmt = all_inputs(source), emu_format(model)
    for rule in model.rules:
        for name, raised in expected(source, model, mode, rule).flags.items():
            flags = emu.Flags()
            emu.quantize(x[raised], fmt, rounding=mode, overflow=rule, flags=flags, backend=backend)
            assert getattr(flags, name) == raised.sum(), f"{name} under {mode}, {rule}"


@each_backend
@most_are_slow(
    ("pair", "mode"),
    product(FAST, MODES),
    keep=[*zip(FAST, QUICK, strict=True), *zip(FAST, QUICK_TOO, strict=True)],
    ids=name_of,
)
def test_quantize_writes_the_code_and_raises_the_flags_that_rational_numbers_say(pair, mode, backend):
    check_pair(*pair, mode, backend)


@pytest.mark.slow
@each_backend
@pytest.mark.parametrize("pair", some_of(SLOW, 10), ids=name_of)
def test_quantize_writes_what_rational_numbers_say_into_every_kind_of_8_bit_format(pair, backend):
    for mode in MODES:
        check_pair(*pair, mode, backend)


@each_backend
@pytest.mark.parametrize("model", UNUSUAL, ids=lambda model: name_of(("fp16", model)))
def test_formats_of_unusual_kinds_are_written_as_rational_numbers_say(model, backend):
    check_pair("bf16", model, "nearest_even", backend)


@each_backend
@most_are_slow(
    ("pair", "mode"),
    product(FAST, ["nearest_even", "floor"]),
    keep=[(FAST[0], "nearest_even"), (FAST[2], "floor")],
    ids=name_of,
)
def test_flags_rise_at_the_elements_that_rational_numbers_name(pair, mode, backend):
    check_where_flags_rise(*pair, mode, backend)


@each_backend
@most_are_slow(
    ("source", "lowest", "bins"),
    [(source, *positions) for source in ("fp16", "bf16", "fix16f8") for positions in ((-20, 30), (-3, 5))],
    keep=[("fp16", -3, 5), ("bf16", -20, 30), ("fix16f8", -3, 5)],
)
def test_the_register_counts_the_leading_bits_that_rational_numbers_have(source, lowest, bins, backend):
    register = emu.StatisticsRegister(lowest=lowest, bins=bins)
    emu.quantize(all_inputs(source), "fix16f8", register=register, backend=backend)
    for name, counts in expected_register(source, lowest, bins).items():
        assert getattr(register, name) == counts, name


def test_the_inputs_are_all_65536_codes():
    assert np.isnan(all_inputs("fp16")).sum() == 2 * 1023
    assert np.unique(all_inputs("bf16")[np.isfinite(all_inputs("bf16"))]).size == 2 * 255 * 128 - 1
    assert np.unique(all_inputs("fix16f8")).size == 65536
