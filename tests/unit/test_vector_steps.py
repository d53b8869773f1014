"""A fault in one step of a unit is named, wherever it acts: in a region, a lane, a shift, a rounding constant."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from fast_suite import most_are_slow
from faulty_steps import AFTER, BEFORE, shift_modulo
from faulty_units import Ieee, word
from test_vector_causes import dumped, vectors

from emu.testing.vectors import Description, make_vectors
from emu.testing.vectors.causes.cover import cover, shared_cell
from emu.testing.vectors.causes.regions import regions_of
from emu.testing.vectors.cells import Cell
from emu.testing.vectors.check import compare
from emu.testing.vectors.definition import answered
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.picture import picture

FAULTS = BEFORE | AFTER


@most_are_slow("fault", FAULTS, keep=["odd roots", "half and a division", "products of 15 bits", "pairs that wrap"])
def test_a_fault_in_a_step_is_named(fault: str):
    (operation, formats, out), options, unit, name = FAULTS[fault]
    v = vectors(operation, formats, out, **options)
    finding = compare(v, dumped(v, unit))
    assert finding is not None
    assert finding.causes[0].startswith(name), finding
    assert len(finding.causes) <= 2
    assert "unknown" not in str(finding)


def test_a_shift_by_another_count_is_named_of_words_without_subnormal_numbers():
    name = "e5m10 hidden-one"
    v = make_vectors(Description(operation="add", formats=(name, name), out_format=name, count=2000))
    codes = dumped(v, shift_modulo(Ieee(5, 10, hidden=True), 3))
    # the lowest binade is left out, where the oracle writes 0 for what is rounded up
    finding = compare(v, np.where(v.results & np.uint64(0x7C00) == 0, v.results, codes))
    assert finding is not None
    assert finding.causes == ("alignment shifts taken modulo 8",)
    assert "unknown" not in str(finding)


@pytest.mark.parametrize("other", ["fix8f4", "fix6f2"])
def test_a_unit_that_ends_after_the_first_term_is_named_whatever_its_factors(other: str):
    v = make_vectors(
        Description(operation="matmul", formats=("fix8f4", other), out_format="fix24f8", depth=4, count=300)
    )
    a, b = (codes[:, 0].tolist() for codes in v.operands)
    width, frac_bits = int(other[3]), int(other[5])
    words = [word(x, 8) * word(y, width) << 8 - 4 - frac_bits for x, y in zip(a, b, strict=True)]
    finding = compare(v, np.array([raw & 0xFFFFFF for raw in words], np.uint64))
    assert finding is not None
    assert finding.causes == ("the first term alone",)


def test_products_of_zero_are_products_of_which_a_factor_is_zero():
    # 1, 2, 0, infinity times 1, -0 and NaN
    a, b = (np.array(words, np.uint64) for words in zip(*product((0x3C00, 0x4000, 0, 0x7C00), (0x3C00, 0x8000, 0x7E00)),
                                                        strict=True))  # fmt: skip
    d = Description(operation="fma", formats=("fp16",) * 3, out_format="fp16", count=12)

    def inside(rows: np.ndarray) -> list[int]:
        v = answered(d.model_copy(update={"count": rows.size}), (a[rows], b[rows], a[rows]), None)
        regions = {region.name: region.inside for region in regions_of(Evidence(v))}
        return rows[regions["products of 0"]].tolist() if "products of 0" in regions else []

    # infinity times -0 is no number
    assert inside(np.arange(12)) == [1, 4, 6, 7]
    # two products, none of them 0
    assert inside(np.array([0, 3])) == []


def test_overflow_that_is_raised_for_infinite_operands_is_named():
    v = vectors("add", "fp16 fp16", "fp16", count=600)
    infinite = v.results & np.uint64(0x7FFF) == 0x7C00
    finding = compare(v, v.results, np.where(infinite, v.flags | np.uint64(4), v.flags))
    assert finding is not None
    assert finding.causes[0] == "overflow for infinite operands, too, without inexact"


@pytest.mark.parametrize("wrong", [2, 40])
def test_results_that_are_wrong_at_random_have_no_cause(wrong: int):
    v = vectors("multiply", "fp16 fp16", "fp16", count=800)
    random = np.random.default_rng(wrong)
    given = v.results.copy()
    given[random.choice(given.size, wrong, replace=False)] ^= random.integers(1, 1 << 16, wrong).astype(np.uint64)
    finding = compare(v, given)
    assert finding is not None
    assert finding.causes == ()


def masks(*rows: str) -> list[np.ndarray]:
    return [np.array([digit == "1" for digit in row]) for row in rows]


def test_a_cell_without_a_flag_or_of_most_vectors_is_not_shared():
    inside, flag, most, few = masks("1100000000", "1110000000", "1111110000", "1111000000")
    cells = [Cell("no flag inexact", flag), Cell("exact", most)]
    assert shared_cell(cells, inside) is None
    assert shared_cell([*cells, Cell("a tie", few)], inside) is not None


@pytest.mark.parametrize(("wrong", "explained", "named"), [(1, 1, True), (2, 1, False), (2, 2, True), (300, 2, False),
                                                           (300, 3, True)])  # fmt: skip
def test_a_cause_explains_two_differences_and_one_in_a_hundred(wrong: int, explained: int, named: bool):
    expected = np.zeros(400, np.uint64)
    given, codes = expected.copy(), expected.copy()
    given[:wrong] = 1
    codes[:explained] = 1
    causes = cover([("a fault", codes)], expected, given).causes
    assert bool(causes) is named


@pytest.mark.parametrize(("source", "out", "code", "bits"), [
    # -3/32 is -2 sixteenths, and 1/2 of one: in two's complement the dropped bits go up
    ("fix16f8", "fix8f4", 0xFFE8, "1 111.1110|1 0 0  guard, round, sticky; last place 2**-4: a tie"),
    ("fix16f8", "fix8f4", 0xFFE7, "1 111.1110|0 1 1  guard, round, sticky; last place 2**-4: below half"),
    ("fix16f8", "fix8f4", 0x0FFC, "0 1111.1111|1 1 0  guard, round, sticky; last place 2**-4: above half"),
    ("fp32", "fp16", 0x387FE000, "0|00000|1111111111|1 0 0  guard, round, sticky; last place 2**-24: a tie"),
    ("fp32", "fp16", 0x477FF000, "0|11110|1111111111|1 0 0  guard, round, sticky; last place 2**5: a tie"),
])  # fmt: skip
def test_the_exact_bits_stand_above_the_expected_ones(source: str, out: str, code: int, bits: str):
    d = vectors("quantize", source, out, count=1).description
    vector = answered(d, (np.array([code], np.uint64),), None)
    *_, exact, expected, _, _ = picture(vector, vector.results, 0)
    assert exact.strip() == bits
    kept = exact.partition("  guard")[0].rpartition("|")[0]
    assert len(kept) == len(expected.rpartition("  ")[0])
