"""Cost tables: the line between formats at its ends, and the text of each error."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from emu._config import checked, load_toml
from emu._paths import content_folder
from emu.errors import ConfigError
from emu.hardware.cost_table import CostTable, cost_table_names, load_cost_table

BASE = load_cost_table("horowitz-45nm")


def of(text: str) -> Fraction:
    return Fraction(text)


@pytest.mark.parametrize(("operation", "family", "size", "energy_pj"), [
    ("add", "fixed", 8, of("0.03")),
    ("add", "fixed", 16, of("0.05")),
    ("add", "fixed", 32, of("0.1")),
    ("add", "fixed", 12, of("0.04")),
    ("add", "fixed", 4, of("0.015")),
    ("add", "fixed", 0, of("0")),
    ("add", "fixed", 64, of("0.2")),
    ("add", "float", 11, of("0.4")),
    ("add", "float", 24, of("0.9")),
    ("add", "float", 48, of("1.8")),
    ("multiply", "fixed", 8 * 8, of("0.2")),
    ("multiply", "fixed", 32 * 32, of("3.1")),
    ("multiply", "fixed", 4 * 8, of("0.1")),
    ("multiply", "fixed", 64 * 32, of("6.2")),
    ("multiply", "float", 11 * 11, of("1.1")),
    ("multiply", "float", 24 * 24, of("3.7")),
    ("multiply", "float", 8 * 8, of("1.1") * 64 / 121),
    ("multiply", "float", 11 * 24, of("1.1") + of("2.6") * (264 - 121) / (576 - 121)),
])  # fmt: skip
def test_formats_between_those_of_the_table_lie_on_a_line(operation: Any, family: Any, size: int, energy_pj: Fraction):
    assert BASE.cost(operation, family, size, "energy_pj") == energy_pj


@pytest.mark.parametrize("name", cost_table_names())
@pytest.mark.parametrize("family", ["fixed", "float"])
@pytest.mark.parametrize("operation", ["add", "multiply"])
def test_every_bit_more_costs_more(name: str, operation: Any, family: Any):
    table = load_cost_table(name)
    sizes = range(65) if operation == "add" else [a * b for a in range(1, 17) for b in (a, a + 1)]
    costs = [table.cost(operation, family, size, "energy_pj") or Fraction(0) for size in sorted(set(sizes))]
    assert costs == sorted(set(costs))


def test_registers_are_linear_in_bits():
    assert BASE.register(40, "energy_pj") == 40 * of("0.009")
    assert BASE.register(1, "area_um2") == of("5.98")


def test_a_row_without_an_area_is_left_out_of_the_line_of_areas():
    assert BASE.cost("add", "fixed", 20, "area_um2") == 36 + of("101") * 12 / 24
    assert load_cost_table("jouppi-7nm").cost("add", "fixed", 8, "area_um2") is None


def test_registers_of_a_table_that_gives_none_cost_nothing():
    table = load_cost_table("jouppi-7nm")
    assert (table.register(32, "energy_pj"), table.register(32, "area_um2")) == (0, 0)


def data(**over: Any) -> dict[str, Any]:
    return load_toml(content_folder("costs") / "horowitz-45nm.toml") | over


ROW = {"operation": "add", "format": "fix8f0", "energy_pj": 0.03, "source": "here"}


@pytest.mark.parametrize(("over", "message"), [
    ({"on_chip": "cache"},
     "`on_chip` of cost table horowitz-45nm must name a level of [[memory]], got 'cache'; levels: sram-8kb, "
     "sram-32kb, sram-1mb, dram"),
    ({"operations": [ROW, {**ROW, "format": "fix9f0"}]},
     "energies of `add` must rise with the fixed format, got 0.03 pJ of fix8f0 and 0.03 pJ of fix9f0 in cost table "
     "horowitz-45nm; correct one of them, or leave it out"),
    ({"operations": [{**ROW, "format": "fix16f?"}]},
     "`format` of a cost must have its point in place, got 'fix16f?'; write fix16f0"),
    ({"operations": [{"operation": "add", "format": "fix8f0", "energy_pj": 0.03}]}, "`source` must be given"),
    ({"operations": [{**ROW, "operation": "ad"}]}, "`operation` must be one of add, multiply, got 'ad'"),
    ({"operations": [{**ROW, "energy_pj": -1}]}, "`energy_pj` must be above 0.0, got -1"),
    ({"registers": {}}, "`registers` is not a key of the top level"),
])  # fmt: skip
def test_a_wrong_table_is_refused_with_its_remedy(over: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as refused:
        checked(CostTable, data(**over), file="mine.toml")
    assert message in str(refused.value)


LEVEL = {"name": "sram", "access_bits": 1, "energy_pj": 0.001, "source": "here"}
SMALLEST: dict[str, Any] = {
    "description": "x",
    "operations": [{**ROW, "energy_pj": 0.001, "area_um2": 0.001, "source": "x"}],
    "register_bit": {"energy_pj": 0, "area_um2": 0, "source": "x"},
    "memory": [LEVEL],
    "on_chip": "sram",
    "main": "sram",
}


def test_the_smallest_numbers_that_may_be_are_taken_as_they_are():
    found = checked(CostTable, data(**SMALLEST), file="mine.toml")
    assert (found.cost("add", "fixed", 8, "area_um2"), found.register(9, "area_um2")) == (of("0.001"), 0)
    assert (found.level("sram", "it").access_bits, found.description) == (1, "x")


@pytest.mark.parametrize(("key", "change"), [
    ("operations", {"energy_pj": 0}), ("operations", {"area_um2": 0}), ("operations", {"source": ""}),
    ("register_bit", {"energy_pj": -0.001}), ("register_bit", {"area_um2": -0.001}), ("register_bit", {"source": ""}),
    ("memory", {"access_bits": 0}), ("memory", {"energy_pj": 0}), ("memory", {"source": ""}), ("description", ""),
    ("source", ""),
])  # fmt: skip
def test_a_number_below_the_smallest_and_an_empty_word_are_refused(key: str, change: Any):
    there = SMALLEST.get(key)
    if isinstance(there, list):
        change = [there[0] | change]
    elif isinstance(there, dict):
        change = there | change
    with pytest.raises(ConfigError, match="must be"):
        checked(CostTable, data(**{**SMALLEST, key: change}), file="mine.toml")


def test_a_name_that_no_table_has_is_refused_with_those_there_are():
    with pytest.raises(ConfigError) as refused:
        load_cost_table("horowitz")
    assert "a cost table must be the name of a shipped cost table or the path of a .toml file, got 'horowitz'" in str(
        refused.value
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="a cost table file must exist"):
        load_cost_table(tmp_path / "mine.toml")
