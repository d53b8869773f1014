"""Energy and area from shapes and formats: a network worked out by hand, and that every bit saved shows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from emu.datapath import Mac, OutputStage, Rounding
from emu.datapath.stage import DEFAULT_RANDOM_BITS
from emu.errors import ConfigError
from emu.formats import parse
from emu.hardware import Demand, Device, device_names, load_device
from emu.hardware.cost_table import load_cost_table
from emu.hardware.energy import Datapath, Use, exact_bits, has_host, uses_of
from emu.training.cost import Cost, cost_of


def of(text: str) -> Fraction:
    return Fraction(text)


def test_the_energy_of_a_lenet_inference_by_hand_is_the_one_reported():
    # Picojoules, from the base table. A multiplier of 16 x 16 = 256 pairs lies between those of 64 and 1024.
    multiply = of("0.2") + (of("3.1") - of("0.2")) * (256 - 64) / (1024 - 64)
    assert multiply == of("0.78")
    add16, add32, bit, byte = of("0.05"), of("0.1"), of("0.009"), of("100") / 8
    # A result is rounded by an adder of 16 bits and counted: 32 bits are added to and written.
    written = add16 + add32 + 32 * bit
    # The accumulator holds a product of 32 bits, and log2 of the terms, the bias among them: 26, 151, 401, 121, 85.
    layers = [
        # multiply-adds, accumulator bits, results, numbers read: input, weights, biases
        (117_600, 37, 6 * 28 * 28, 784 + 150 + 6),
        (240_000, 40, 16 * 10 * 10, 1176 + 2400 + 16),
        (48_000, 41, 120, 400 + 48_000 + 120),
        (10_080, 39, 84, 120 + 10_080 + 84),
        (840, 39, 10, 84 + 840 + 10),
    ]
    energy = 784 * (2 * 16 * bit + written) + 784 * 2 * byte  # pixels written in 16 bits
    for times, accumulator, results, read in layers:
        add = add32 * accumulator / 32
        energy += times * (multiply + add + (16 + 16 + accumulator) * bit)
        energy += results * written + (read + results) * 2 * byte
    for size in (4704, 1600, 120, 84):  # relu reads and writes
        energy += 2 * size * 2 * byte
    for size in (4704, 1600):  # of four numbers the largest: three comparisons
        energy += 3 * (size // 4) * add16 + (size + size // 4) * 2 * byte
    found = cost_of("lenet", "fixed16", inference=True)
    assert found.inference_pj == energy
    assert sum(row.energy_pj for row in found.rows) == energy
    assert found.joules_per_inference == float(energy / 10**12)


def test_the_area_of_a_lane_by_hand_is_the_one_reported():
    found = cost_of("lenet", "fixed16", inference=True)
    by_part = {(row.compute_unit, row.unit): row.area_um2 for row in found.areas}
    adder = of("137") / 32
    assert by_part == {
        ("lane", "multiplier"): of("282") * 256 / 64,  # the table has no area of a wider multiplier
        ("lane", "adder"): adder * 41,
        ("lane", "registers"): (16 + 16 + 41) * of("5.98"),
        ("lane", "rounding"): 36 + (of("137") - 36) * 8 / 24,
        ("lane", "statistics"): of("137") + 32 * of("5.98"),
        ("statistics", "statistics"): 41 * 32 * of("5.98"),
    }
    assert found.area_um2 == sum(by_part.values())


def test_rows_add_up_to_a_step_and_shares_to_one():
    found = cost_of("mlp", "fixed16", batch=8)
    assert sum(row.energy_pj for row in found.rows) == found.step_pj
    assert sum(float(row.share) for row in found.rows) == pytest.approx(1)
    assert sum(found.shares().values()) == pytest.approx(1)
    assert {row.kind for row in found.rows} == {"forward", "backward", "update"}


def test_what_run_json_says_of_energy_and_area_adds_up_to_the_whole():
    found = cost_of("mlp", "fixed16", batch=8)
    told = found.described()
    for one in told["energy"]:
        at = (one["layer"], one["unit"], one["kind"])
        rows = [row for row in found.rows if (row.layer, row.unit, row.kind) == at]
        assert one["picojoules"] == float(sum((row.energy_pj for row in rows), Fraction(0)))
        assert one["uses"] == sum(row.uses for row in rows)
    assert sum(one["picojoules"] for one in told["energy"]) == pytest.approx(float(found.step_pj))
    assert sum(one["share"] for one in told["areas"]) == pytest.approx(1)
    assert [one["lanes"] for one in told["areas"]] == [1] * len(told["areas"])


@pytest.mark.parametrize("name", ["p100", "dlu16", "k20x-8x"])
def test_a_unit_has_the_area_of_its_lanes(name: str):
    found, units = cost_of("mlp", name, batch=4), load_device(name).compute.units
    lanes = {row.compute_unit: row.lanes for row in found.areas if row.compute_unit in units}
    expected = {unit: int(units[unit].lanes.value) for unit in lanes if units[unit].kind == "mac_array"}
    assert {unit: lanes[unit] for unit in expected} == expected
    assert max(expected.values()) > 1


def test_an_accumulator_whose_point_is_that_of_its_products_rounds_at_no_addition():
    rows = cost_of("mlp", "dlu16", batch=4).rows
    rounded = [row.uses for row in rows if (row.layer, row.role, row.unit) == ("fc1", "activation", "rounding")]
    assert rounded == [4 * 128]  # each result, once


def test_an_inference_of_a_network_is_the_same_whatever_the_batch():
    assert cost_of("mlp", "fixed16", batch=8).inference_pj == cost_of("mlp", "fixed16", batch=64).inference_pj


@pytest.mark.parametrize("name", device_names())
def test_every_shipped_device_has_a_cost_with_and_without_a_clock(name: str):
    found = cost_of("mlp", name, batch=4)
    assert found.step_pj > found.inference_pj > 0
    assert found.area_um2 is not None
    assert found.area_um2 > 0


def changed(**tables: Any) -> Device:
    """Fixed16 with other keys in tables of [precision]."""
    data = load_device("fixed16").model_dump(mode="json")
    for table, keys in tables.items():
        data["precision"][table] = (data["precision"][table] or {}) | keys
    return Device.model_validate(data)


def cost(device: Device) -> Cost:
    return cost_of("mlp", device, batch=4)


NARROWER = {
    "weight": "fix15f12",
    "bias": "fix15f12",
    "activation": "fix15f8",
    "error": "fix15f17",
    "gradient": "fix15f13",
    "update": "fix31f27",
    "master": "fix31f27",
}


@pytest.mark.parametrize("role", NARROWER)
def test_a_bit_less_in_any_role_costs_less_energy(role: str):
    assert cost(changed(**{role: {"format": NARROWER[role]}})).step_pj < cost(changed()).step_pj


def test_a_bit_less_in_an_accumulator_costs_less_energy_and_area():
    wide, narrow = (cost(changed(mac={"accumulator": f"fix{bits}f22"})) for bits in (41, 40))
    assert narrow.step_pj < wide.step_pj
    assert (narrow.area_um2 or 0) < (wide.area_um2 or 0)


def test_a_bit_less_in_a_counter_costs_less_energy_and_a_position_less_costs_less_area():
    whole, counters, bins = (cost(changed(register=keys)) for keys in ({}, {"counter_bits": 31}, {"bins": 39}))
    assert counters.step_pj < whole.step_pj
    assert bins.step_pj == whole.step_pj
    assert (bins.area_um2 or 0) < (whole.area_um2 or 0)


def test_a_register_whose_bits_fill_no_whole_bytes_has_the_area_of_its_bits():
    (area,) = [row.area_um2 for row in cost(changed(register={"counter_bits": 11})).areas
               if row.compute_unit == row.unit == "statistics"]  # fmt: skip
    assert area == 41 * 11 * of("5.98")


def test_dropping_bits_is_cheaper_than_rounding_and_random_bits_are_dearer_bit_by_bit():
    def rounded(mode: str, **keys: Any) -> Fraction:
        return cost(changed(activation={"rounding": mode, **keys})).step_pj

    few, more = rounded("stochastic", n_rbits=7), rounded("stochastic", n_rbits=8)
    assert rounded("floor") < rounded("nearest_even") < few < more


def test_a_device_without_counters_spends_nothing_on_statistics():
    assert "statistics" not in cost_of("mlp", "float32").shares()
    assert "statistics" in cost_of("mlp", "fixed16").shares()


def adders(device: Device | str, layer: str) -> tuple[int, Fraction]:
    """Uses and energy of the adders of a layer's activations."""
    rows = cost_of("mlp", device, batch=4).rows
    row = next(row for row in rows if (row.layer, row.role, row.unit) == (layer, "activation", "adder"))
    return row.uses, row.energy_pj


def test_an_exact_accumulator_of_floats_is_as_wide_as_all_their_products():
    floats = load_device("fp16").model_dump(mode="json")
    floats["precision"]["mac"] = {"product": "exact", "accumulator": "exact"}
    # words of 1 + 40 bits (2**-24 .. 2**15), and 10 bits for 785 terms: 784 inputs and a bias
    times = 4 * 784 * 128
    assert adders(Device.model_validate(floats), "fc1") == (times, times * of("0.1") * (2 * 41 + 10) / 32)


def test_a_float_accumulator_adds_in_its_own_format():
    times = 4 * 784 * 128
    assert adders("fp16", "fc1") == (times, times * of("0.4"))
    assert adders("fp16-mixed", "fc1") == (times, times * of("0.9"))


def test_blocks_add_aligned_products_and_a_float_once_a_block():
    times = 4 * 784 * 128  # blocks(4, 23): words of 23 + 3 bits, between the adders of 16 and 32
    aligned = of("0.05") + of("0.05") * (26 - 16) / 16
    assert adders("v100", "fc1") == (times + times // 4, times * aligned + times // 4 * of("0.9"))


FP16, FP32 = parse("fp16"), parse("fp32")


def parts_of(demand: Demand, mac: Mac, stage: str = "fp32", rounding: str = "nearest_even") -> dict[str, list[Use]]:
    """What an operation uses of a datapath without counters and host, by part."""
    path = Datapath(mac, OutputStage.of(stage, rounding), FP32, 0, on_host=False)
    found: dict[str, list[Use]] = {}
    for use in uses_of(demand, path):
        found.setdefault(use.part, []).append(use)
    return found


@pytest.mark.parametrize(
    ("depth", "results", "blocks"), [(10, 1, 3), (10, 2, 6), (8, 3, 6), (3, 5, 5), (1, 1, 1), (9, 7, 21)]
)
def test_the_last_block_of_a_result_is_a_block_however_few_products_it_has(depth: int, results: int, blocks: int):
    mac = Mac(accumulator="fp32", order="blocks(4, 23)")
    operands = ((FP16, results * depth), (FP16, depth))
    found = parts_of(Demand("fc", "activation", "matmul", results, results * depth, 0, operands, FP32), mac)
    assert [(use.family, use.times) for use in found["adder"]] == [("fixed", results * depth), ("float", blocks)]


@pytest.mark.parametrize(
    ("depth", "results", "runs"), [(10, 100, 300), (10, 1, 3), (8, 3, 6), (3, 5, 5), (1, 1, 1), (9, 7, 21)]
)
def test_each_result_ends_with_a_run_of_its_own_however_few_products_it_has(depth: int, results: int, runs: int):
    mac = Mac(accumulator="fp32", order="promote(4, sequential, fp16, nearest_even)")
    operands = ((FP16, results * depth), (FP16, depth))
    found = parts_of(Demand("fc", "activation", "matmul", results, results * depth, 0, operands, FP32), mac)
    assert [(use.size, use.times) for use in found["adder"]] == [(11, results * depth), (24, runs)]
    assert [use.times for use in found["multiplier"]] == [results * depth, runs]


def product_of(formats: Sequence[str], times: int, results: int = 1, operation: str = "matmul") -> Demand:
    """A demand of operands of 100 numbers each."""
    return Demand("fc", "activation", operation, results, times, 0, tuple((parse(f), 100) for f in formats), FP16)


def test_products_that_do_not_divide_evenly_among_results_begin_a_block_of_their_own():
    mac = Mac(accumulator="fp32", order="blocks(4, 23)")
    found = parts_of(product_of(["fp16", "fp16"], 10, results=4), mac)  # two each, and two more
    assert found["adder"][1].times == 4 + 1


@pytest.mark.parametrize(("order", "rounded"), [("sequential", 10), ("blocks(4, 23)", 4 + 1)])
def test_a_stochastic_accumulator_writes_random_bits_as_often_as_it_rounds(order: str, rounded: int):
    mac = Mac(accumulator="fp32", order=order, rounding="stochastic")
    found = parts_of(product_of(["fp16", "fp16"], 10, results=4), mac, rounding="toward_zero")
    assert found["rounding"] == [Use("rounding", "register", "fixed", DEFAULT_RANDOM_BITS, rounded)]


@pytest.mark.parametrize(("formats", "accumulator", "rounds"), [
    (["fix8f4", "fix8f4"], "fix20f8", False), (["fix8f4", "fix8f4"], "fix20f9", False),
    (["fix8f4", "fix8f4"], "fix20f7", True), (["fp16", "fp16"], "fix40f30", True),
])  # fmt: skip
def test_a_fixed_accumulator_rounds_where_it_has_fewer_fraction_bits_than_its_products(
    formats: list[str], accumulator: str, rounds: bool
):
    found = parts_of(product_of(formats, 10), Mac(accumulator=accumulator), rounding="toward_zero")
    width = parse(accumulator).width_bits
    assert found["adder"] == [Use("adder", "add", "fixed", width, 10)]
    assert found.get("rounding", []) == [Use("rounding", "add", "fixed", width, 10)] * rounds


def test_a_multiplier_is_as_large_as_its_two_operands_and_an_adder_behind_it_as_the_product():
    found = parts_of(product_of(["fix8f4", "fix5f2", "fix20f0"], 0, 7, "fma"), Mac())
    assert found["multiplier"] == [Use("multiplier", "multiply", "fixed", 8 * 5, 7)]
    assert [use.size for use in found["adder"]] == [20]
    found = parts_of(product_of(["fix8f4", "fix5f2", "fix9f0"], 0, 7, "fma"), Mac())
    assert [use.size for use in found["adder"]] == [8 + 5]
    assert [use.size for use in found["registers"]] == [8 + 5 + 9 + 16]
    found = parts_of(product_of(["fix8f4"], 10, 1, "squared_norm"), Mac(accumulator="fix40f8"))
    assert found["multiplier"] == [Use("multiplier", "multiply", "fixed", 8 * 8, 10)]


def test_a_sum_reads_its_first_operand_alone():
    found = parts_of(product_of(["fp16", "fp32"], 10, 2, "sum"), Mac(accumulator="fp32"))
    assert "multiplier" not in found
    assert found["registers"] == [Use("registers", "register", "fixed", 16 + 32, 10)]


def test_a_device_has_a_host_where_it_says_so_or_says_nothing_of_its_units():
    base = load_device("float32").model_dump(mode="json")

    def host_of(*kinds: str) -> bool:
        units = {kind: {"kind": kind} for kind in kinds}
        return has_host(Device.model_validate(base | {"compute": {"units": units}}))

    assert [host_of(), host_of("statistics"), host_of("mac_array", "host")] == [True, True, True]
    assert [host_of("mac_array"), host_of("mac_array", "statistics")] == [False, False]


@pytest.mark.parametrize(("operation", "multiplies", "adds"), [
    ("quantize", False, False), ("add", False, True), ("subtract", False, True), ("multiply", True, False),
    ("divide_by", True, False), ("dropout_gradient", True, False), ("divide", True, True), ("fma", True, True),
    ("sqrt", True, True), ("function", True, True), ("relu", False, False), ("negate", False, False),
])  # fmt: skip
def test_an_operation_on_single_elements_multiplies_and_adds_once_for_each_result(
    operation: str, multiplies: bool, adds: bool
):
    found = parts_of(Demand("fc", "activation", operation, 5, 0, 0, ((FP16, 5), (FP16, 5)), FP16), Mac(), "fp16")
    of_each = {"multiplier": [Use("multiplier", "multiply", "float", 11 * 11, 5)] * multiplies}
    of_each["adder"] = [Use("adder", "add", "float", 11, 5)] * adds
    assert {part: found.get(part, []) for part in of_each} == of_each
    moves = operation in ("relu", "negate")
    assert [use.size for use in found.get("registers", [])] == ([] if moves else [3 * 16])


def test_only_modes_that_drop_bits_of_their_family_round_without_an_adder():
    def has_adder(fmt: str, rounding: str) -> bool:
        written = Demand("fc", "activation", "quantize", 5, 0, 0, ((FP16, 5),), parse(fmt))
        return "rounding" in parts_of(written, Mac(), fmt, rounding)

    dropping = {
        "fix8f4": {"floor", "to_odd", "jamming"},
        "fp16": {"toward_zero", "magnitude_truncation", "to_odd", "jamming"},
    }
    for fmt, modes in dropping.items():
        assert {mode.value for mode in Rounding if not has_adder(fmt, mode.value)} == modes


@pytest.mark.parametrize(
    ("fmt", "bits"),
    # from the smallest subnormal to the largest value: fp16 2**-24..2**15, e2m1 2**-1..2**2, ue4m3 2**-9..2**8
    [("fp16", 1 + 40), ("e2m1 finite nans=none", 1 + 4), ("ue4m3 nans=top", 18), ("ufix7f3", 7), ("fix7f3", 7)],
)
def test_a_float_in_an_exact_sum_is_a_word_with_a_sign_only_where_the_format_has_one(fmt: str, bits: int):
    assert exact_bits([parse(fmt)] * 2, 1) == 2 * bits


# ---- tables ----


def test_a_device_names_its_table_and_its_memory_and_another_table_replaces_it():
    data = load_device("fixed16").model_dump(mode="json")
    apart = Device.model_validate(data | {"cost": {"table": "jouppi-7nm", "memory": "sram-8kb"}})
    found = cost_of("mlp", apart)
    assert (found.table, found.memory, found.area_mm2) == ("jouppi-7nm", "sram-8kb", None)
    moved = sum(row.uses for row in found.rows if row.unit == "memory")
    assert sum(row.energy_pj for row in found.rows if row.unit == "memory") == moved * of("7.5") / 8
    replaced = cost_of("mlp", apart, table="horowitz-45nm")
    assert (replaced.table, replaced.memory) == ("horowitz-45nm", "sram-8kb")


def test_a_device_with_a_memory_bandwidth_reads_the_main_memory():
    assert (cost_of("mlp", "fixed16").memory, cost_of("mlp", "p100").memory) == ("sram-1mb", "dram")


def test_a_device_that_names_no_cost_is_what_it_was():
    assert "cost" not in load_device("fixed16").model_dump(mode="json")


def test_a_memory_that_the_table_lacks_is_refused_with_those_that_it_has():
    data = load_device("fixed16").model_dump(mode="json") | {"cost": {"memory": "hbm9"}}
    with pytest.raises(ConfigError) as refused:
        cost_of("mlp", Device.model_validate(data))
    assert str(refused.value) == (
        "`memory` of [cost] of device fixed16 must name a level of [[memory]], got 'hbm9'; levels: sram-8kb, "
        "sram-32kb, sram-1mb, dram"
    )


def test_an_operation_that_the_table_lacks_is_refused_by_name():
    table = load_cost_table("horowitz-45nm")
    fixed = table.model_copy(update={"operations": tuple(row for row in table.operations if row.family == "fixed")})
    with pytest.raises(ConfigError) as refused:
        cost_of("mlp", "float32", table=fixed)
    assert str(refused.value) == (
        "cost table horowitz-45nm must give the cost of `multiply` of a floating-point format, got none; add "
        "[[operations]] for it, or choose another table"
    )
