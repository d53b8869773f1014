"""Vectors reach what hardware gets wrong: each cell is judged by fractions that share nothing with it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_units import HALF, Ieee, floor_log2, word
from typer.testing import CliRunner

from emu.cli import app
from emu.testing.vectors import (
    Description,
    Vectors,
    count_for_cells,
    make_vectors,
    what_they_tell,
    write_vectors,
)
from emu.testing.vectors.cells import cells_of, rows_of
from emu.testing.vectors.everything import Everything
from emu.testing.vectors.pool import Pool

FP16, FP32 = Ieee(5, 10), Ieee(8, 23)


def vectors(operation: str, formats: str, out_format: str, count: int = 2000, **options: Any) -> Vectors:
    names = tuple(formats.split())
    return make_vectors(Description(operation=operation, formats=names, out_format=out_format, count=count, **options))


def reached(v: Vectors) -> dict[str, set[int]]:
    return {cell.name: set(np.flatnonzero(cell.inside).tolist()) for cell in cells_of(v)}


def expected_cells(x: Fraction, out: Ieee) -> set[str]:
    """Cells of a number other than 0 that is rounded to nearest even into a format."""
    sign, emin, names = "negative" if x < 0 else "positive", 1 - out.bias, set[str]()
    exponent = floor_log2(abs(x))
    last = max(exponent, emin) - out.f
    scaled = abs(x) / Fraction(2) ** last
    kept, rest = int(scaled), scaled - int(scaled)
    parity = "odd" if kept & 1 else "even"
    up = rest > HALF or (rest == HALF and kept & 1 == 1)
    top = (2 << out.f) - 1
    largest = kept == top and last == out.bias - out.f
    small = exponent < emin
    beyond = exponent > out.bias or (largest and up)
    if rest == 0:
        names.add("exact")
    else:
        kind = "a tie" if rest == HALF else "above half" if rest > HALF else "below half"
        names.add(f"{kind}, last digit {parity}, {sign}")
    if 0 < abs(rest - HALF) <= Fraction(1, 2**11):
        names.add(f"just {'above' if rest > HALF else 'below'} a tie")
    behind = (rest - HALF) * 2 if rest > HALF else Fraction(0)
    if behind and behind.numerator == 1 and not kept & 1:
        names.add(f"dropped bit {behind.denominator.bit_length() - 1} alone behind the guard")
    if up and kept == top and not beyond:
        names.add("rounding carries into the exponent")
    if largest and rest:
        names.add("the largest number is rounded beyond the range" if up else "rounded, and still the largest number")
    if beyond and not largest:
        names.add(f"beyond the range before rounding, {sign}")
    if kept == 0 and up:
        names.add("rounded from below the smallest number up to it")
    if small and rest == 0:
        names.add("a subnormal result, exact")
    if small and rest and kept + up:
        names.add("a subnormal result, rounded")
    if small and up and kept + 1 == 1 << out.f:
        after = "tiny after rounding" if rest < Fraction(3, 4) else "not tiny after rounding"
        names.add(f"a subnormal rounds to the smallest normal, {after}")
    if kept + up == 0:
        names.add(f"zero: a number rounded to zero, {sign}")
    return names


@pytest.mark.parametrize(
    ("operation", "formats", "out"),
    [
        ("multiply", "fp16 fp16", FP16),
        ("add", "fp16 fp16", FP16),
        ("quantize", "fp32", FP16),
        ("fma", "fp16 fp16 fp16", FP16),
    ],
)
def test_each_cell_has_the_vectors_that_fractions_put_there(operation: str, formats: str, out: Ieee):
    v = vectors(operation, formats, "fp16")
    units = {"fp16": FP16, "fp32": FP32}
    by_name = reached(v)
    judged = 0
    for i, row in enumerate(zip(*(codes.tolist() for codes in v.operands), strict=True)):
        numbers = [units[name].read(code) for name, code in zip(formats.split(), row, strict=True)]
        if not all(x.is_number for x in numbers):
            continue
        x = {"multiply": lambda a, b: a * b, "add": lambda a, b: a + b, "quantize": lambda a: a,
             "fma": lambda a, b, c: a * b + c}[operation](*(x.value for x in numbers))  # fmt: skip
        if not x:
            continue
        others = (
            ("flag", "no flag", "the pair", "the special", "a product of zero by", "dropped bit")
            if operation == "add"
            else ("flag", "no flag", "the pair", "the special", "a product of zero by")
        )
        ours = {name for name, inside in by_name.items() if i in inside and not name.startswith(others)}
        ours = {name for name in ours if not name.endswith("digits cancel")}
        theirs = {name for name in expected_cells(x, out) if name in by_name and not name.startswith(others)}
        assert ours - {"a dropped bit far behind the guard alone"} == theirs, (row, x)
        judged += 1
    assert judged > 1000


@pytest.mark.parametrize(("operation", "formats", "out", "missing"), [
    ("multiply", "fp32 fp32", "fp32", set()),
    ("multiply", "fp16 fp16", "fp16", set()),
    ("quantize", "fp32", "fp16", set()),
    ("fma", "fp16 fp16 fp16", "fp16", set()),
    ("add", "fix16f8 fix16f8", "fix8f4", set()),
    ("add", "fp16 fp16", "fp16",
     {"zero: a number rounded to zero, positive", "zero: a number rounded to zero, negative", "flag underflow"}),
])  # fmt: skip
def test_every_cell_that_operands_reach_has_enough_vectors(operation: str, formats: str, out: str, missing: set[str]):
    """A sum of fp16 numbers is never below the smallest one."""
    rows = rows_of(cells_of(vectors(operation, formats, out)))
    assert {row.name for row in rows if row.full < row.cells} <= missing


def test_every_pair_of_special_values_of_three_operands_is_there():
    v = vectors("fma", "fp16 fp16 fp16", "fp16")
    specials = [0, 0x8000, 1, 0x8001, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pairs = set(zip(v.operands[i].tolist(), v.operands[j].tolist(), strict=True))
        assert set(product(specials, specials)) <= pairs


def test_a_converter_gets_the_ends_of_what_is_tiny_after_rounding():
    """387fe000 and 387fefff give 0400 with underflow and inexact; one step beyond, underflow is not raised."""
    v = vectors("quantize", "fp32", "fp16", tininess="after_rounding")
    rows = {int(a): (int(r), int(f) & 3) for a, r, f in zip(v.operands[0], v.results, v.flags, strict=True)}
    assert rows[0x387FE000] == rows[0x387FEFFF] == (0x400, 3)
    assert rows[0x387FF000] == (0x400, 1)


def test_dropped_bits_of_words_are_counted_in_twos_complement():
    """An adder of two's complement sees -(k + 1/2 - 2**-j) as a guard of 1 and one bit behind it."""
    v = vectors("add", "fix20f12 fix20f12", "fix16f0", rounding="nearest_away")
    counts = Counter[int]()
    for a, b in zip(*(codes.tolist() for codes in v.operands), strict=True):
        total = word(a, 20) + word(b, 20)
        rest = total & 0xFFF
        behind = rest & 0x7FF
        if total < 0 and rest >> 11 and behind and behind & (behind - 1) == 0:
            counts[11 - behind.bit_length() + 1] += 1
    assert set(counts) == set(range(1, 12))
    assert min(counts.values()) >= 8


@pytest.mark.parametrize("rounding", ["jamming", "magnitude_truncation", "to_odd"])
def test_a_dropped_bit_alone_has_a_guard_of_0_where_the_guard_does_not_decide(rounding: str):
    v = vectors("quantize", "fix16f8", "fix8f4", count=600, rounding=rounding)
    inside = reached(v)
    for bit in (1, 2, 3):
        # of four dropped bits the first is the guard
        dropped = {int(v.operands[0][row]) & 15 for row in inside[f"dropped bit {bit} alone behind the guard"]}
        assert dropped == {8 >> bit}


def test_products_of_words_whose_points_lie_far_to_the_right_are_never_rounded():
    v = vectors("multiply", "fix8f-40 fix8f-36", "fix32f-76", count=300)
    assert not any(name.startswith(("a tie", "below half", "above half", "dropped bit")) for name in reached(v))


def test_cells_that_few_operands_reach_are_sought_among_all_inputs():
    """Of 2**16 products of fix8f4, 20 are rounded beyond the lowest number, and 32 to the largest."""
    grid = [Fraction(word(code, 8), 16) for code in range(256)]
    products = [x * y for x in grid for y in grid]
    low = [x for x in products if Fraction(-129, 16) < x < -8 - Fraction(1, 32)]
    top = [x for x in products if Fraction(127, 16) < x < Fraction(127, 16) + Fraction(1, 32)]
    v = vectors("multiply", "fix8f4 fix8f4", "fix8f4", count=1000)
    counts = {cell.name: cell.count for cell in cells_of(v)}
    everything = Everything.of(v.description)
    assert everything is not None
    assert everything.counts["rounded, and still the largest number"] >= len(top) > 8
    assert everything.counts["the lowest number is rounded beyond the range"] == len(low) > 8
    assert counts["the lowest number is rounded beyond the range"] >= 8
    assert counts["rounded, and still the largest number"] >= 8
    assert what_they_tell(v)[0] == "cells with enough vectors: 70 of 70"


def test_what_no_operands_reach_and_what_few_do_is_said_of_small_operations():
    lines = what_they_tell(vectors("add", "fp8_e4m3 fp8_e4m3", "fp8_e4m3", count=600))
    assert (
        "cells with fewer vectors than wanted, as no others exist: zero: a sum of zeros, all 4 that exist" not in lines
    )
    assert lines[0].startswith("cells with enough vectors: ")
    (none,) = [line for line in lines if line.startswith("cells that no operands reach: ")]
    assert "no number: infinity - infinity" not in none
    assert "zero: a number rounded to zero, positive" in none
    assert not any("perhaps" in line for line in lines)
    squares = what_they_tell(vectors("multiply", "ufix4f2 ufix4f2", "ufix4f2", count=200))
    assert any("that exist" in line for line in squares), squares


def test_too_few_vectors_of_a_small_operation_are_not_called_all_that_exist():
    few = what_they_tell(vectors("multiply", "fix8f4 fix8f4", "fix8f4", count=40))
    assert any(line.startswith("cells with too few vectors: ") for line in few)
    assert not any("that exist" in line for line in few)


def test_a_pool_has_no_vector_twice_and_is_the_same_for_the_count():
    d = Description(operation="quantize", formats=("fp32",), out_format="fp16", count=2000)
    pool = Pool(d)
    assert np.unique(pool.vectors.operands[0]).size == pool.vectors.description.count
    assert count_for_cells(d, pool) == count_for_cells(d)
    given, drawn = make_vectors(d, pool), make_vectors(d)
    assert np.array_equal(given.operands[0], drawn.operands[0])


def test_the_pool_is_computed_once_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[Description] = []
    original = Pool.__init__

    def counting(self: Pool, description: Description) -> None:
        made.append(description)
        original(self, description)

    monkeypatch.setattr(Pool, "__init__", counting)
    words = ["vectors", "add", "--formats", "fix6f2,fix6f2", "--out-format", "fix5f1", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, [*words, "--count", "100"]).exit_code == 0
    assert len(made) == 1


def test_a_converter_gets_signalling_nans_of_either_sign_and_other_payloads():
    v = vectors("quantize", "fp32", "fp16", count=800)
    signalling = {int(a) for a in v.operands[0] if a & 0x7FC00000 == 0x7F800000 and a & 0x3FFFFF}
    assert len(signalling) >= 8
    assert {a >> 31 for a in signalling} == {0, 1}


def test_few_vectors_have_one_of_each_cell_before_a_second_and_say_how_many_are_wanted(tmp_path: Path):
    v = vectors("multiply", "fp16 fp16", "fp16", count=100)
    single = [cell for cell in cells_of(v) if not cell.group]
    assert all(cell.count for cell in single)
    wanted = count_for_cells(v.description)
    assert 300 < wanted < 1000
    words = ["vectors", "multiply", "--formats", "fp16,fp16", "--out-format", "fp16", "--out", str(tmp_path)]
    few = CliRunner().invoke(app, [*words, "--count", "100"])
    assert f"too few vectors for all cells: --count {wanted} has room for them" in few.output
    assert "too few vectors for all" not in CliRunner().invoke(app, [*words, "--count", str(wanted)]).output


def test_the_table_of_cells_lies_in_the_folder(tmp_path: Path):
    v = vectors("multiply", "fp16 fp16", "fp16", count=1000)
    write_vectors(v, tmp_path)
    lines = (tmp_path / "cells.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0].split("  ") == ["vectors", "cells with enough", "cell"]
    rows = rows_of(cells_of(v))
    assert len(lines) == 1 + len(rows)
    assert any(line.endswith("196 of 196  each pair of special values of a and b") for line in lines)


@pytest.mark.parametrize(("options", "cells"), [
    ({"accumulator": "fix16f8"}, ("comes back", "stays there")),
    ({"accumulator": "fp16"}, ("comes back", "stays there", "overflows to infinity")),
])  # fmt: skip
def test_accumulators_leave_their_range(options: dict[str, str], cells: tuple[str, ...]):
    formats = "fix8f2 fix8f2" if options["accumulator"].startswith("fix") else "bf16 bf16"
    v = vectors("matmul", formats, options["accumulator"], count=600, depth=24, mac=options)
    counts = {cell.name: cell.count for cell in cells_of(v) if "accumulator" in cell.name and "flag" not in cell.name}
    assert all(any(name.endswith(ending) and count >= 8 for name, count in counts.items()) for ending in cells), counts
