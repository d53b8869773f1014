"""IEEE 754's underflow: tiny before or after rounding, and inexact, against rational numbers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from rational_model import MODES, FloatModel, Real, settle, write
from whole_arrays import RANDOM_BITS, all_inputs, emu_format, random_bits

import emu

MODELS = [
    FloatModel(4, 3),
    FloatModel(4, 3, infinities=False, nans="top"),
    FloatModel(5, 2),
    FloatModel(4, 3, bias=8, infinities=False, nans="negative_zero"),
    FloatModel(3, 4, infinities=False, nans="none"),
    FloatModel(4, 3, ftz=True),
    FloatModel(4, 0, infinities=False, nans="none"),
    FloatModel(3, 1),
]
#: Exponents by which the grid "without an end" goes on below the smallest normal number; even, so that the last bit of
#: a number without fraction bits stays what it is.
FURTHER = 16
CHOICES = ("before_rounding", "after_rounding")


def smallest_normal(model: FloatModel) -> Fraction:
    return model.value_at(2**model.fraction_bits)


@lru_cache
def endless(model: FloatModel) -> FloatModel:
    """The same precision with exponents so low that nothing here is subnormal."""
    bias = 2 ** (model.exponent_bits - 1) - 1 if model.bias is None else model.bias
    return replace(model, exponent_bits=model.exponent_bits + 3, bias=bias + FURTHER)


def is_tiny(model: FloatModel, x: Real, mode: str, choice: str) -> bool:
    assert isinstance(x.magnitude, Fraction)
    if x.magnitude == 0 or choice == "before_rounding" or mode.startswith("stochastic"):
        return 0 < x.magnitude < smallest_normal(model)
    wide = endless(model)
    number, _ = settle(wide, wide.place(x), mode)
    return wide.value_at(number) < smallest_normal(model)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(emu_format(model)))
def test_underflow_is_tiny_and_inexact(model: FloatModel, mode: str):
    """Binary16 numbers within four binades of the smallest normal, in pieces, on every backend."""
    fmt, everything = emu_format(model), all_inputs("fp16")
    normal = float(smallest_normal(model))
    with np.errstate(invalid="ignore"):
        near = np.sort(everything[(abs(everything) > normal / 16) & (abs(everything) < normal * 16)])
    near = np.concatenate([near[::7], near[abs(abs(near) - normal) < normal / 4]])  # all of them where it is decided
    drawn = random_bits(near.size)
    found: dict[str, list[bool]] = {choice: [] for choice in CHOICES}
    for value, u in zip(near.tolist(), drawn.tolist(), strict=True):
        real = Real.of(value)
        inexact = "inexact" in write(model, real, mode, "ieee", u, RANDOM_BITS).flags
        for choice in CHOICES:
            found[choice].append(inexact and is_tiny(model, real, mode, choice))
    options = {"overflow": "ieee", "rounding": mode, "n_rbits": RANDOM_BITS}
    for choice in CHOICES:
        for piece in np.array_split(np.arange(near.size), 40):
            for backend in ("reference", "numba"):
                flags = emu.Flags(tininess=choice)
                recorded = drawn[piece] if mode.startswith("stochastic") else None
                emu.quantize(near[piece], fmt, **options, rbits=recorded, flags=flags, backend=backend)
                assert flags.underflow == np.array(found[choice])[piece].sum(), (choice, backend, near[piece])


def test_the_two_choices_differ_below_the_smallest_normal_number():
    """Written as the smallest normal; rounded to eleven bits first, it is that already or the number below."""
    x = np.ldexp(1.0 - np.ldexp([0.7, 0.6, 0.5, 0.4, 0.25, 0.1], -11), -14)
    counted = {}
    for choice in (None, *CHOICES):
        flags = emu.Flags(tininess=choice)
        assert (emu.quantize(x, "fp16", flags=flags) == 2.0**-14).all()
        counted[choice] = flags.underflow, flags.inexact
    assert counted == {None: (0, 6), "before_rounding": (6, 6), "after_rounding": (2, 6)}


@pytest.mark.parametrize("choice", CHOICES)
def test_exact_subnormals_raise_nothing_and_flushed_ones_do(choice: str):
    for fmt, expected in (("fp16", 0), ("fp16 ftz", 1)):
        flags = emu.Flags(tininess=choice)
        emu.quantize([2.0**-15, 2.0**-14, 0.0], fmt, flags=flags)
        assert flags.underflow == expected


def test_fixed_point_has_no_tiny_numbers():
    flags = emu.Flags(tininess="after_rounding")
    emu.quantize([0.01, 0.3], "fix8f4", flags=flags)
    assert flags.underflow == 1  # what became 0, as ever


def test_flags_of_different_underflows_are_not_merged():
    with pytest.raises(emu.FormatError, match=r"flags that are merged must count the same underflow, got `tininess` "):
        emu.Flags().merge(emu.Flags(tininess="after_rounding"))


def test_an_unknown_tininess_is_refused_with_the_nearest_name():
    with pytest.raises(emu.FormatError, match=r"got 'after'; did you mean|got 'after'; known"):
        emu.Flags(tininess="after")


def test_flags_keep_their_tininess_when_reset_copied_and_shown():
    flags = emu.Flags(tininess="before_rounding")
    emu.quantize(2.0**-25 * 1.5, "fp16", flags=flags)
    assert "underflow=1" in repr(flags)
    assert repr(flags).endswith("tininess='before_rounding')")
    flags.reset()
    assert (flags.underflow, flags.tininess) == (0, "before_rounding")
    assert "tininess" not in repr(emu.Flags())
