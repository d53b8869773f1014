"""Every accumulator under every mode and rule, operands at its edges: compiled loops give the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest
import swept_units
from fast_suite import some_of
from swept_units import assert_cases_agree
from variants import running

#: What is compiled differently; how work is shared among threads does not depend on the accumulator.
CODE = ("alone", "generic")


def test_every_float_accumulator_gives_the_references_bits_to_nearest_even():
    """Sequential, exact products: a constant of these loops once passed the largest exponent at five fraction bits."""
    for exponent_bits in swept_units.EXPONENT_BITS:
        plain = [
            c for c in swept_units.float_cases(exponent_bits) if c.is_plain and c.formats == ("fp16", "fp16", None)
        ]
        assert len({str(case.mac.accumulator) for case in plain}) == len(swept_units.FRACTION_BITS)
        assert all(assert_cases_agree(plain))


@pytest.mark.slow
@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("exponent_bits", some_of(swept_units.EXPONENT_BITS, 7))
def test_every_float_accumulator_gives_the_references_bits_under_every_mode_and_rule(exponent_bits: int, code: str):
    with running(code):
        compiled = assert_cases_agree(swept_units.float_cases(exponent_bits))
    assert len(compiled) > 1000
    assert np.mean(compiled) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("widths", some_of(swept_units.WIDTHS_IN_PARTS, 4), ids=lambda part: f"{part[0]}..{part[-1]}")
def test_every_fixed_accumulator_gives_the_references_bits_under_every_mode_and_rule(widths: range, code: str):
    with running(code):
        compiled = assert_cases_agree(case for width in widths for case in swept_units.fixed_cases(width))
    assert len(compiled) > 1000
    assert np.mean(compiled) > (0.8 if widths[-1] < 50 else 0.05)  # up to 53 bits, some sums are decided in float64
