"""How long operations take, worked by hand; and which unit takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import emu
from emu import ConfigError
from emu.cluster.settings import ClusterTable
from emu.formats import Format
from emu.hardware import DECISION, Demand, Device, Machine, device_names, load_device, machine_of
from emu.hardware.machine import register_bits, register_bytes
from emu.training import load_recipe
from emu.training.time.work import work_of

FP16, FP32, WORD, MASTER = (emu.parse(name) for name in ("fp16", "fp32", "fix16f10", "fix32f28"))


def product(rows: int, depth: int, columns: int, fmt: Format, result: Format | None = None) -> Demand:
    operands = ((fmt, rows * depth), (fmt, depth * columns))
    results = rows * columns
    return Demand("fc1", "activation", "matmul", results, results * depth, 0, operands, result or fmt)


def elementwise(results: int, *formats: Format) -> Demand:
    return Demand("fc1", "update", "add", results, 0, 0, tuple((fmt, results) for fmt in formats), formats[0])


def without_tiles(name: str, unit: str) -> Device:
    """Return a device whose unit works evenly on all lanes, and starts at once."""
    device = load_device(name)
    gone = dict.fromkeys(("tiles", "count", "splits", "fill_cycles", "start_s"))
    units = device.compute.units | {unit: device.compute.units[unit].model_copy(update=gone)}
    return device.model_copy(update={"compute": device.compute.model_copy(update={"units": units})})


def test_a_large_product_takes_the_lanes_of_its_unit():
    """1024**3 multiply-adds on 7168 lanes: 149 797 cycles of 1.48 GHz."""
    time = Machine(without_tiles("p100", "fp16")).time_of(product(1024, 1024, 1024, FP16))
    assert (time.unit, time.cycles, time.unit_ps) == ("fp16", 149797, 101214190)
    assert time.bytes == 3 * 2 * 1024**2
    assert time.duration_ps == time.unit_ps > time.memory_ps


def test_kernels_that_quantise_start_as_the_first_unit_does_that_takes_float32():
    device = load_device("p100")
    units = device.compute.units
    assert units["fp32"].start_s is not None
    late = units["fp32"].model_copy(update={"start_s": units["fp32"].start_s.model_copy(update={"value": 1e-3})})
    for order, start_ps in (
        ({"fp16": units["fp16"], "fp32": units["fp32"], "late": late}, 8_000_000),
        ({"fp16": units["fp16"], "late": late, "fp32": units["fp32"]}, 10**9),
        ({"late": late, "fp16": units["fp16"]}, 10**9),
    ):
        compute = device.compute.model_copy(update={"units": order})
        machine = Machine(device.model_copy(update={"compute": compute}))
        assert machine.kernel_start_ps == start_ps
        assert machine.time_of(elementwise(8, FP32, FP32)).start_ps == start_ps


def test_the_former_name_of_an_operations_time_warns_and_returns_the_same():
    machine, demand = Machine(load_device("p100")), product(8, 8, 8, FP16)
    with pytest.warns(emu.EmuWarning, match=r"^Machine\.cost is called Machine\.time_of now"):
        assert machine.cost(demand) == machine.time_of(demand)


def test_an_elementwise_operation_takes_the_memorys_time():
    """3 * 4 MiB at 0.753 of 732 GB/s: 22.8 us; 293 cycles of 3584 lanes: 0.2 us; before both, the start."""
    device = load_device("p100")
    time = Machine(device).time_of(elementwise(2**20, FP32, FP32))
    assert (time.unit, time.cycles, time.bytes) == ("fp32", 293, 12 * 2**20)
    assert time.memory_ps == -(-12 * 2**20 * 10**12 // round(0.753 * 732e9))
    start = device.compute.units["fp32"].start_s
    assert start is not None
    assert time.start_ps == round(start.value * 10**12) > 0
    assert time.duration_ps == time.start_ps + time.memory_ps


@pytest.mark.parametrize(("device", "demand", "unit"), [
    ("p100", product(8, 8, 8, FP16), "fp16"),
    ("p100", product(8, 8, 8, FP32), "fp32"),
    ("p100", elementwise(8, FP16, FP16), "fp16"),
    ("p100", elementwise(8, FP32, FP16), "fp32"),
    ("v100", product(8, 8, 8, FP16), "matrix"),
    ("v100", product(8, 8, 8, FP32), "fp32"),
    ("v100", elementwise(8, FP16, FP16), "fp32"),
    ("dlu16", product(8, 8, 8, WORD), "vector"),
    ("dlu16", elementwise(8, MASTER, MASTER), "vector"),
    ("dlu16", product(8, 8, 8, FP32), "host"),
    ("dlu16", Demand("loss", "loss", "mse", 1, 0, 3, ((WORD, 80), (None, 8)), FP32), "host"),
    ("dlu16", Demand("fc1", "update", "multiply", 8, 0, 0, ((FP32, 1), (WORD, 8)), MASTER), "vector"),
    ("dlu16", Demand("input", "activation", "quantize", 8, 0, 0, ((FP32, 8),), WORD), "vector"),
])  # fmt: skip
def test_operations_go_to_the_first_unit_that_takes_their_operands(device: str, demand: Demand, unit: str):
    assert Machine(load_device(device)).unit_of(demand) == unit


def test_matrix_units_compute_no_elements_even_if_no_unit_takes_their_format():
    device = load_device("v100").model_dump(mode="json")
    units = device["compute"]["units"]
    device["compute"]["units"] = {"fp32": units["fp32"] | {"operands": ["bf16"]}, "matrix": units["matrix"]}
    assert Machine(Device.model_validate(device)).unit_of(elementwise(8, FP32, FP32)) == "fp32"


def test_the_host_moves_words_and_keeps_floats():
    machine = Machine(load_device("dlu16"))
    demand = Demand(
        "loss", "error", "softmax_cross_entropy_gradient", 80, 0, 4, ((WORD, 80), (FP32, 80), (None, 8)), WORD
    )
    assert machine.host_bytes(demand) == (160, 160)
    assert machine.time_of(demand).operations == 4 * 80
    assert machine.transfer_ps(7880) == 10**6 + 10**6
    assert machine.decision_bytes() == (39 + 1) * 4


@pytest.mark.parametrize(("accumulator", "register", "bits", "sent"), [
    # (positions + 1) * counter_bits, sent in whole bytes
    ("exact", {"bins": 40, "counter_bits": 12}, 41 * 12, 62),
    ("exact", {"counter_bits": 32}, (40 + 1) * 32, 164),
    ("fp32", {"bins": 96, "counter_bits": 32}, 97 * 32, 388),
    ("fix40f0", {"counter_bits": 32}, (39 + 1) * 32, 160),
    ("ufix40f0", {"counter_bits": 32}, (40 + 1) * 32, 164),
    ("fix40f0", {"bins": 20, "counter_bits": 32}, 21 * 32, 84),
    # the exponents of all points that the accumulator may have are no positions of the hardware's
    ("fix40f?", {"bins": 160, "counter_bits": 32}, (39 + 1) * 32, 160),
])  # fmt: skip
def test_a_statistics_register_has_the_positions_of_its_file_or_of_its_accumulator(
    accumulator: str, register: dict[str, int], bits: int, sent: int
):
    data = load_device("fixed16").model_dump(mode="json")
    data["precision"] |= {"mac": {"accumulator": accumulator}, "register": register}
    precision = Device.model_validate(data).precision
    assert (register_bits(precision), register_bytes(precision)) == (bits, sent)


def test_a_device_without_a_clock_has_no_time():
    assert machine_of(load_device("fixed16")) is None
    with pytest.raises(
        ConfigError, match="must give a clock and the lanes of a 'mac_array' to have times, got none in fixed16"
    ):
        Machine(load_device("fixed16"))


def test_roofs_are_lanes_times_clock_and_the_memory():
    roofs = {roof.unit: roof for roof in Machine(load_device("v100")).roofs()}
    assert roofs["matrix"].operations_per_s == pytest.approx(62.7e12, rel=1e-3)
    assert roofs["fp32"].bytes_per_s == 0.93 * 900e9


def test_a_partial_vector_takes_as_long_as_a_full_one():
    machine = Machine(load_device("dlu8"))
    cycles = [machine.time_of(product(1, 5, results, WORD)).cycles for results in (1, 8, 9)]
    assert cycles == [11, 11, 16]


def test_an_unknown_kind_of_unit_is_refused():
    data = load_device("p100").model_dump()
    data["compute"]["units"]["fp16"]["kind"] = "gpu"
    with pytest.raises(ValueError, match="kind"):
        Device.model_validate(data)


@pytest.mark.parametrize("name", device_names())
def test_what_a_step_asks_is_read_back_as_it_was_written(name: str):
    recipe = load_recipe("lenet")
    work = work_of(recipe, recipe.machine(load_device(name)), 8, table=ClusterTable(nodes=2))
    for demand in (
        *work.first_pass,
        *work.arrived,
        *work.update,
        Demand("fc", "error", DECISION, 0, 0, 0, (), None, True),
    ):
        assert Demand.of_list(json.loads(json.dumps(demand.to_list()))) == demand


# ---- a transposed copy ----

#: The gradient of docs/sparse.md, "By hand": 6 entries of a matrix of 4 x 6, in 4 of its columns, times 4 x 2; columns
#: have 4 bytes each, and the 5 numbers that say where rows begin 8.
BY_HAND = Demand("words", "gradient", "sparse_transposed_matmul", 8, 12, 0, ((FP32, 6), (FP32, 8)), FP32, False, 64)
#: A byte takes a nanosecond, four lanes a nanosecond.
BYTES: dict[str, Any] = {
    "clock_hz": {"value": 1e9, "source": "s"},
    "memory_bandwidth_bytes_per_s": {"value": 1e9, "source": "s"},
    "units": {"vector": {"kind": "mac_array", "lanes": {"value": 4, "source": "s"}}},
}


def with_compute(compute: dict[str, Any]) -> Machine:
    return Machine(Device.model_validate(load_device("float32").model_dump() | {"compute": compute}))


def test_a_product_with_a_transpose_moves_operands_results_and_indices_once_e1():
    """24 bytes of entries, 32 of errors, 32 of results, 24 of columns and 40 of row starts; 12 products on 4 lanes."""
    time = with_compute(BYTES).time_of(BY_HAND)
    assert (time.bytes, time.memory_ps, time.cycles, time.duration_ps) == (152, 152_000, 3, 152_000)


def test_a_transposed_copy_reads_the_matrix_and_writes_19_words_e1():
    """24 bytes of entries, 24 of columns, 40 of row starts in; 6 entries, 6 rows and 7 column starts out: 76 bytes."""
    time = with_compute(BYTES).transposed_copy(BY_HAND, 6)
    assert (time.bytes, time.memory_ps, time.cycles, time.duration_ps) == (88 + 76, 164_000, 2, 164_000)
    assert (time.unit, time.operations) == ("vector", 6)


def test_a_copy_writes_where_every_column_begins_not_only_those_with_entries_e1():
    machine = with_compute(BYTES)
    assert machine.transposed_copy(BY_HAND, 65536).bytes - machine.transposed_copy(BY_HAND, 6).bytes == 4 * 65530


def test_a_copy_of_narrow_entries_moves_fewer_bytes_of_them():
    time = with_compute(BYTES).transposed_copy(BY_HAND._replace(operands=((FP16, 6), (FP16, 8))), 6)
    assert time.bytes == 12 + 64 + 12 + 4 * 13


def test_without_a_bandwidth_a_copy_takes_the_cycles_of_its_entries_and_on_a_host_those_of_its_lanes():
    silent = with_compute({name: value for name, value in BYTES.items() if name.startswith(("clock", "units"))})
    assert silent.transposed_copy(BY_HAND, 6).duration_ps == 2000
    host = Machine(load_device("dlu16"))
    time = host.transposed_copy(BY_HAND, 6)  # float32 is the host's
    lanes = load_device("dlu16").compute.units["host"].lanes
    assert lanes is not None
    assert (time.unit, time.bytes, time.memory_ps) == (host.host, 164, 0)
    assert time.cycles == -(-6 // int(lanes.value))
