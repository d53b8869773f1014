"""Exported C gives the definition's codes and flags: all pairs, all 16-bit inputs, drawn units, ten million drawn."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_units import COMPILERS, Unit, assert_defined, library, needs_compiler, sanitized
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from unit_cases import (
    FLAG_RULES,
    KINDS,
    MILLIONS,
    NARROWINGS,
    PAIRED,
    PAIRS,
    TININESS,
    UNITS,
    WIDE_OPERATIONS,
    described,
    every_code,
    every_pair,
    hard_operands,
    narrowing,
    random_bits,
    rules_of,
)

import emu
from emu.datapath import Rounding
from emu.errors import FormatError
from emu.testing import formats, macs
from emu.testing.hard import Places, hard_codes
from emu.testing.vectors import Description, make_vectors
from emu.testing.vectors.description import MacTable
from emu.testing.vectors.steering import reach_of

pytestmark = needs_compiler
OF_ONE_OPERAND = ["quantize", "sqrt", "round_to_integral"]
OPERANDS = {"quantize": 1, "sqrt": 1, "round_to_integral": 1, "fma": 3, **dict.fromkeys(PAIRED, 2)}


def assert_pairs(unit: Unit, d: Description) -> None:
    operands = every_pair(d)
    assert_defined(unit, d, operands, random_bits(d, operands[0].size))


@pytest.mark.parametrize(
    ("operation", "name", "mode"),
    [("add", "floats", "floor"), ("divide", "fixed", "stochastic"), ("multiply", "both", "nearest_odd")],
)
def test_all_pairs_of_8_bits_are_the_definitions(operation: str, name: str, mode: str, tmp_path: Path):
    d = described(operation, *PAIRS[name], mode, tininess="after_rounding")
    assert_pairs(library([d], tmp_path, options=["-O1"])[0], d)


def test_all_pairs_of_formats_of_every_kind_are_the_definitions(tmp_path: Path):
    modes, rules = list(Rounding), {name: rules_of(emu.parse(name)) for name in KINDS}
    cases = [
        described(
            ("multiply", "add", "divide", "subtract", "remainder")[i % 5],
            f"{a},{KINDS[5 * i % len(KINDS)]}",
            out := KINDS[(3 * i + 1) % len(KINDS)],
            modes[7 * i % 17].value,
            overflow=rules[out][i % len(rules[out])],
            tininess=TININESS[i % 3],
            flags=FLAG_RULES[i // 3 % 3],
            n_rbits=3,
        )
        for i, a in enumerate(KINDS)
    ]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        assert_pairs(unit, d)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "operation", "name"), [(i, *pair) for i, pair in enumerate(product(PAIRED, PAIRS))])
def test_all_pairs_of_8_bits_are_the_definitions_in_three_modes(number: int, operation: str, name: str, tmp_path: Path):
    """Each mode is among those of some operation and pair of formats, several times."""
    operands, out = PAIRS[name]
    rules, modes = rules_of(emu.parse(out)), list(Rounding)
    cases = [
        described(
            operation,
            operands,
            out,
            modes[i % len(modes)].value,
            overflow=rules[i % len(rules)],
            tininess=TININESS[i % 3],
            flags=FLAG_RULES[i // 3 % 3],
        )
        for i in range(3 * number, 3 * number + 3)
    ]
    for unit, d in zip(library(cases, tmp_path, options=["-O1"]), cases, strict=True):
        assert_pairs(unit, d)


@pytest.mark.parametrize("operation", ["quantize", "sqrt", "round_to_integral"])
def test_all_16_bit_inputs_are_the_definitions_in_two_modes(operation: str, tmp_path: Path):
    turn = ("quantize", "sqrt", "round_to_integral").index(operation)
    cases = [narrowing(operation, *NARROWINGS[turn + i])[20 + 13 * i + turn] for i in (0, 2)]
    for unit, d in zip(library(cases, tmp_path, options=["-O1"]), cases, strict=True):
        codes = every_code(d.operand_formats[0])
        assert_defined(unit, d, (codes,), random_bits(d, codes.size))


@pytest.mark.slow
@pytest.mark.parametrize("operation", OF_ONE_OPERAND)
@pytest.mark.parametrize(("wide", "narrow"), NARROWINGS)
def test_all_16_bit_inputs_are_the_definitions(operation: str, wide: str, narrow: str, tmp_path: Path):
    """Each mode and rule takes its turn, with several operations and formats."""
    turn = OF_ONE_OPERAND.index(operation) + NARROWINGS.index((wide, narrow))
    cases = narrowing(operation, wide, narrow)[turn % 3 :: 3]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        codes = every_code(d.operand_formats[0])
        assert_defined(unit, d, (codes,), random_bits(d, codes.size))


def test_units_of_every_order_are_the_definitions(tmp_path: Path):
    cases = list(UNITS.values())
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        assert_defined(unit, d, hard_operands(d, 120))


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_units_take_any_number_of_terms(depth: int, tmp_path: Path):
    cases = [UNITS[name].model_copy(update={"depth": depth}) for name in ("jamming", "fp32", "matrix unit")]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        assert_defined(unit, d, hard_operands(d, 40))


def test_c_defines_what_units_do(tmp_path: Path):
    """A shift too far, a step beyond an array or an overflow would abort."""
    cases = [UNITS["alternating"], WIDE_OPERATIONS[0]]
    for unit, d in zip(sanitized(cases, tmp_path), cases, strict=True):
        assert_defined(unit, d, hard_operands(d, 60))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_units_are_the_definitions_and_c_defines_what_they_do(compiler: str, tmp_path: Path):
    """Vectors that drive sums beyond limits and back."""
    cases = [d.model_copy(update={"count": 500}) for d in (*UNITS.values(), *WIDE_OPERATIONS)]
    assert_drawn(cases, sanitized(cases, tmp_path, compiler))


def assert_all_inputs(cases: list[Description], folder: Path) -> None:
    """Compare every code of one operand, with all random bits where these are few."""
    for unit, d in zip(library(cases, folder, options=["-O0"]), cases, strict=True):
        codes, u = (
            every_code(d.operand_formats[0]),
            np.arange(1 << d.n_rbits if d.is_stochastic else 1, dtype=np.uint64),
        )
        assert_defined(unit, d, (np.repeat(codes, u.size),), np.tile(u, codes.size) if d.is_stochastic else None)


def test_minus_zero_is_a_positive_number_of_fixed_point_in_modes_that_move_it(tmp_path: Path):
    pairs = product(("quantize", "round_to_integral"), ("jamming", "magnitude_truncation"))
    assert_all_inputs([described(operation, "e3m2", "fix6f1", mode) for operation, mode in pairs], tmp_path)


def test_the_last_bit_of_a_code_decides_ties_with_and_without_a_fraction(tmp_path: Path):
    outs = ("ue5m0 nans=top no-zero", "e5m0 nans=top", "ue4m1 nans=top no-zero", "fix6f1")
    cases = [described("quantize", "fix9f3", out, mode) for out in outs for mode in ("nearest_even", "to_odd")]
    assert_all_inputs(cases, tmp_path)


def test_all_random_bits_decide_as_they_do_in_the_definition(tmp_path: Path):
    modes = [mode.value for mode in Rounding if mode.draws]
    outs = ("fix5f1", "e3m1")
    cases = [described("quantize", "fix9f5", out, mode, n_rbits=3) for out in outs for mode in modes]
    assert_all_inputs(cases, tmp_path)


def test_a_subnormal_that_is_flushed_has_no_sign_where_there_is_no_minus_zero(tmp_path: Path):
    cases = [described("multiply", f"{name} daz,e2m1", "fp16") for name in ("e3m2", "e3m2 nans=negative_zero")]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        assert_pairs(unit, d)


def test_points_a_word_apart_are_the_definitions(tmp_path: Path):
    """Shifts by 62 to 65 places, to the left and to the right."""
    fine = [described("quantize", "fix8f0", f"fix64f{n}", overflow="wrap") for n in range(62, 66)]
    coarse = [described("quantize", f"fix8f{n}", "fix8f0", "nearest_odd") for n in range(62, 66)]
    wide = [described("quantize", "ufix64f0", f"ufix64f-{n}", "stochastic", n_rbits=32) for n in range(62, 66)]
    sums = [described("add", "fix8f0,fix8f63", "fix8f62"), described("subtract", "fix8f0,fix8f64", "fix8f3")]
    rests = [described("remainder", f"ufix64f{n},ufix4f0", "fix64f63") for n in range(62, 66)]
    cases = [*fine, *coarse, *wide, *sums, *rests]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        assert_defined(unit, d, hard_operands(d, 200), random_bits(d, 200))


def test_bits_above_a_format_are_ignored(tmp_path: Path):
    cases = [described("add", "fp16,fix9f2", "fix12f3"), described("quantize", "ufix5f0", "fp16")]
    for unit, d in zip(library(cases, tmp_path, options=["-O0"]), cases, strict=True):
        operands, noise = hard_operands(d, 100), Places.of(7, (100,)).noise(0)
        above = [x | noise << np.uint64(fmt.width_bits) for x, fmt in zip(operands, d.operand_formats, strict=True)]
        assert unit(above, None).codes.tolist() == unit(operands, None).codes.tolist()


@st.composite
def descriptions(draw: Any) -> Description:
    """Any operation on any formats, in any mode, by any rule."""
    operation = draw(st.sampled_from([*OPERANDS, "matmul", "matmul"]))
    words = formats(raws=True)
    out = draw(words)
    more: dict[str, Any] = {}
    if operation == "matmul":
        mac = draw(macs(blocks=True, stochastic=False))
        operands = [draw(words) for _ in range(draw(st.integers(2, 3)))]
        try:
            mac.require_operands(*operands[:2])
        except FormatError:
            assume(False)
        more = {"mac": MacTable.of(mac), "depth": draw(st.integers(1, 20))}
    else:
        operands = [draw(words) for _ in range(OPERANDS[operation])]
    mode, rule = draw(st.sampled_from(list(Rounding))), draw(st.sampled_from(rules_of(out)))
    tininess = draw(st.sampled_from([None, "before_rounding", "after_rounding"]))
    more |= {
        "overflow": rule,
        "n_rbits": draw(st.integers(1, 32)),
        "tininess": tininess,
        "flags": draw(st.sampled_from(FLAG_RULES)),
        "seed": draw(st.integers(0, 99)),
    }
    names = ",".join(str(fmt) for fmt in operands)
    return described(operation, names, str(out), mode.value, count=60, **more)


def assert_drawn(cases: list[Description], units: list[Unit]) -> None:
    for unit, d in zip(units, cases, strict=True):
        vectors = make_vectors(d)
        assert_defined(unit, d, vectors.operands, vectors.rbits)


@given(st.lists(descriptions(), min_size=1, max_size=10))
@settings(max_examples=2, derandomize=True)
def test_drawn_units_are_the_definitions(tmp_path_factory: pytest.TempPathFactory, cases: list[Description]):
    assert_drawn(cases, library(cases, tmp_path_factory.mktemp("units"), COMPILERS[-1], ["-O0"]))


@pytest.mark.slow
@given(st.lists(descriptions(), min_size=4, max_size=8))
@settings(max_examples=4)
def test_many_drawn_units_are_the_definitions(tmp_path_factory: pytest.TempPathFactory, cases: list[Description]):
    folder = tmp_path_factory.mktemp("units")
    assert_drawn(cases, library(cases, folder))
    assert_drawn(cases, sanitized(cases, folder, COMPILERS[-1]))


def assert_many(d: Description, count: int, folder: Path) -> None:
    [unit] = library([d], folder)
    for seed in range(2):
        places = [Places.of(1000 * seed + i, (count // 2,)) for i in range(len(d.formats))]
        operands = [
            hard_codes(fmt, p) if seed == 0 else p.noise(5) & np.uint64(fmt.n_codes - 1)
            for fmt, p in zip(d.operand_formats, places, strict=True)
        ]
        assert_defined(unit, d, operands, random_bits(d, count // 2))


def test_many_drawn_vectors_are_the_definitions(tmp_path: Path):
    assert_many(MILLIONS["quantize"], 100_000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", MILLIONS)
def test_a_million_drawn_vectors_are_the_definitions(name: str, tmp_path: Path):
    assert_many(MILLIONS[name], 1_000_000, tmp_path)


def test_units_can_reach_their_limits_in_these_tests():
    beyond = [name for name, d in UNITS.items() if (reach := reach_of(d)) is not None and reach.is_beyond]
    assert {"saturating", "wrapping"} <= set(beyond)
