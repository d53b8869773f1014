"""The numbers that clauses of the contract give a unit: which kinds there are, checked as rationals."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from emu.formats import Float, Format, parse
from emu.testing import check_backend
from emu.testing.contract.data import PARTS, between, summands

ABOVE_A_VALUE, BELOW_A_TIE, ABOVE_A_TIE = "above a value", "below a tie", "above a tie"
BESIDE = {ABOVE_A_VALUE, BELOW_A_TIE, ABOVE_A_TIE}
#: Below this share of an ulp from a value or a tie a number is beside it.
NEAR = Fraction(1, 16)


def part_of(fmt: Format, x: float) -> Fraction:
    """How far a number is above the value next to it toward zero, in ulp."""
    size = abs(Fraction(x))
    if isinstance(fmt, Float):
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= size < Fraction(2) ** exponent
        ulp = Fraction(2) ** (max(exponent, fmt.emin) - fmt.fraction_bits)
    else:
        ulp = Fraction(2) ** -fmt.frac_bits
    return size / ulp % 1


def kind_of(part: Fraction) -> str | float:
    if part < NEAR:
        return ABOVE_A_VALUE
    if abs(part - Fraction(1, 2)) < NEAR:
        return BELOW_A_TIE if part < Fraction(1, 2) else ABOVE_A_TIE
    return float(part)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "e5m2", "fix8f4", "fix16f0", "fix32f40", "e11m49"])
def test_between_two_values_lie_numbers_of_every_part_and_beside_values_and_ties_with_both_signs(name: str):
    fmt = parse(name)
    reals = between(fmt, 3000, 1)
    parts = [part_of(fmt, x) for x in reals]
    assert len(reals) == 3000
    assert not {Fraction(0), Fraction(1, 2)} & set(parts)
    counts = Counter((kind_of(part), bool(x > 0)) for part, x in zip(parts, reals, strict=True))
    kinds = {*PARTS, *(BESIDE if name != "e11m49" else {})}  # an eighth of an ulp is a step of float64 there
    assert set(counts) == {(kind, sign) for kind in kinds for sign in (False, True)}
    assert min(counts.values()) >= 3000 // 20


def test_128_numbers_are_of_every_kind_with_both_signs_too():
    fmt = parse("fp16")
    assert len({(kind_of(part_of(fmt, x)), x > 0) for x in between(fmt, 128, 0)}) == 2 * (len(PARTS) + 3)


def test_between_two_values_of_an_unsigned_format_all_are_positive():
    assert (between(parse("ufix8f3"), 300, 1) > 0).all()


@pytest.mark.parametrize("name", ["fix52f0", "fix60f0", "fix60f60", "e11m50", "e8m50"])
def test_where_doubles_have_no_eighths_what_would_be_a_value_or_a_tie_is_left_out(name: str):
    fmt = parse(name)
    reals = between(fmt, 3000, 1)
    parts = [part_of(fmt, x) for x in reals]
    assert not {Fraction(0), Fraction(1, 2)} & set(parts)
    assert len(reals) >= 3000 * 5 // 9  # in quarters: 1/4 and 3/4, and the three beside values and ties
    for sign in (-1, 1):
        assert {Fraction(1, 4), Fraction(3, 4)} <= {p for p, x in zip(parts, reals, strict=True) if x * sign > 0}


def test_between_two_values_the_largest_are_tried():
    for name, last in (("fp16", 65504), ("fix16f0", 2**15 - 1), ("fix52f0", 2**51 - 1)):
        assert last - parse(name).ulp(float(last)) < np.abs(between(parse(name), 128, 1)).max() < last


@pytest.mark.parametrize("name", ["fp64", "e11m51", "fix2f0", "fix8f1445"])
def test_where_doubles_hold_no_number_between_a_value_and_a_tie_there_is_none(name: str):
    assert len(between(parse(name), 3000, 1)) == 0


def test_summands_of_a_format_far_below_1_have_products_that_do_not_overflow_and_are_of_many_sizes():
    for fmt in (Float(4, 3, bias=20), Float(3, 10, bias=9), Float(2, 1, bias=4)):
        operands = summands(fmt, (5, 64), 0), summands(fmt, (64, 7), 1)
        largest = [Fraction(float(np.abs(x).max())) for x in operands]
        assert 0 < largest[0] * largest[1] <= Fraction(float(fmt.max))
        sizes = np.abs(operands[0][operands[0] != 0])
        assert sizes.max() / sizes.min() >= 2.0**fmt.fraction_bits
        assert fmt.contains(operands[0]).all()


def test_a_format_far_below_1_can_be_checked():
    report = check_backend("reference", formats=[Float(4, 3, bias=20)], roundings=["nearest_even"])
    assert report.require()["matmul: order pairwise"].cases == (4, 0)
