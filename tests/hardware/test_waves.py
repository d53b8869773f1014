"""Products in waves of tiles: by hand, and against a count of every tile."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
from emu._config import checked
from emu.errors import ConfigError
from emu.formats import Float
from emu.hardware import ComputeUnit, Demand, Machine, load_device
from emu.hardware.waves import LEAST_DEPTH, PART_BYTES, Product, ways_of

FP32 = Float(8, 23)


def said(value: Any) -> dict[str, Any]:
    return {"value": value, "source": "made up"}


def unit(**numbers: Any) -> ComputeUnit:
    """Return a unit of 4 multiprocessors with 64 lanes each, and tiles of 16 x 8 at half of the peak."""
    whole = {"lanes": 256, "count": 4, "tiles": [[16, 8, 0.5]]} | numbers
    return ComputeUnit.model_validate({"kind": "mac_array"} | {name: said(value) for name, value in whole.items()})


def product_of(rows: int, columns: int, depth: int, operation: str = "matmul", *, index_bytes: int = 0) -> Demand:
    results, operands = rows * columns, ((FP32, rows * depth), (FP32, depth * columns))
    return Demand("fc", "activation", operation, results, results * depth, 0, operands, FP32, index_bytes=index_bytes)


def test_tiles_that_are_cut_take_as_long_as_whole_ones():
    """16 x 8 x 10 multiply-adds are 1280; 64 lanes at half of the peak do 32 in a cycle: 40 cycles for a wave of 4."""
    times = {size: min(way.cycles for way in ways_of(unit(), Product(*size, 10))) for size in
             [(1, 1), (16, 8), (32, 16), (33, 16), (64, 16), (16, 32), (17, 32)]}  # fmt: skip
    assert times == {(1, 1): 40, (16, 8): 40, (32, 16): 40, (33, 16): 80, (64, 16): 80, (16, 32): 40, (17, 32): 80}


def test_a_tile_may_be_laid_either_way():
    """8 x 64 results are one wave of tiles of 8 x 16, and two of 16 x 8."""
    assert sorted(way.cycles for way in ways_of(unit(), Product(8, 64, 10))) == [40, 80]


def test_each_wave_is_filled_and_the_fastest_tile_is_chosen():
    both = unit(fill_cycles=7, tiles=[[16, 8, 0.5], [32, 32, 1.0]])
    assert min(way.cycles for way in ways_of(both, Product(16, 8, 10))) == 40 + 7
    assert min(way.cycles for way in ways_of(both, Product(64, 64, 10))) == 160 + 7  # 4 tiles of 1024 * 10 / 64 cycles


def test_the_depth_is_divided_if_more_tiles_are_faster_and_its_parts_pass_the_memory():
    ways = sorted(ways_of(unit(splits=8), Product(16, 8, 4 * LEAST_DEPTH)))
    fastest, slowest = ways[0], ways[-1]
    assert fastest == (16 * 8 * LEAST_DEPTH // 32, PART_BYTES * 4 * 16 * 8)
    assert slowest == (4 * fastest.cycles, 0)
    assert all(way.moved_bytes == 0 for way in ways_of(unit(splits=8), Product(16, 8, LEAST_DEPTH)))


@given(
    product=st.builds(Product, *[st.integers(1, 300)] * 2, st.integers(1, 2000)),
    tile=st.tuples(st.integers(1, 64), st.integers(1, 64), st.sampled_from([0.25, 0.5, 1.0])),
    count=st.integers(1, 9),
    splits=st.integers(1, 12),
)
def test_ways_are_those_of_a_count_tile_by_tile(product: Product, tile: Any, count: int, splits: int):
    of = unit(count=count, lanes=count * 8, tiles=[list(tile)], splits=splits, fill_cycles=3)
    expected: set[tuple[int, int]] = set()
    for height, width in {tile[:2], tile[1::-1]}:
        starts = [(r, c) for r in range(0, product.rows, height) for c in range(0, product.columns, width)]
        for parts in range(1, splits + 1):
            depth = ceil(Fraction(product.depth, parts))
            if parts > 1 and depth < LEAST_DEPTH:
                continue
            work = [start for start in starts for _ in range(parts)]
            waves = [work[i : i + count] for i in range(0, len(work), count)]
            cycles = ceil(Fraction(height * width * depth) / (8 * Fraction(tile[2]))) + 3
            expected.add((len(waves) * cycles, 8 * parts * product.rows * product.columns if parts > 1 else 0))
    assert set(ways_of(of, product)) == expected


def test_any_number_of_parts_may_be_allowed():
    product = Product(100, 100, 9 * LEAST_DEPTH)
    assert set(ways_of(unit(splits=2**31), product)) == set(ways_of(unit(splits=9), product))
    parts = [len(list(ways_of(unit(splits=99), Product(1, 1, depth)))) // 2 for depth in (1020, 1021)]
    assert parts == [3, 4], "ceil(1021 / 4) is 256, ceil(1020 / 4) is 255"


@given(st.builds(Product, *[st.integers(1, 500)] * 3))
def test_the_sizes_of_a_product_follow_from_its_numbers(product: Product):
    results = product.rows * product.columns
    assert Product.of(results, results * product.depth, product.depth * product.columns) == product


def test_an_operation_starts_after_the_one_before_and_takes_the_longer_of_unit_and_memory():
    device = load_device("v100")
    machine, whole = Machine(device), product_of(2048, 2048, 2048)
    time = machine.time_of(whole)
    matrix = device.compute.units["fp32"]
    assert matrix.start_s is not None
    assert time.start_ps == round(matrix.start_s.value * 1e12)
    assert time.duration_ps == time.start_ps + max(time.unit_ps, time.memory_ps)
    rate = round(0.93 * 900e9)
    ways = ways_of(matrix, Product(2048, 2048, 2048))
    taken = {-(-way.cycles * 10**12 // 1530000000) - (-way.moved_bytes * 10**12 // rate): way.cycles for way in ways}
    assert (time.unit_ps, time.cycles) == min(taken.items())


def test_only_products_that_fill_tiles_are_computed_in_them():
    machine = Machine(load_device("v100"))
    lanes = -(-(64 * 64 * 64) // 5120)
    assert machine.time_of(product_of(64, 64, 64, "sparse_matmul", index_bytes=4)).cycles == lanes
    assert machine.time_of(product_of(64, 64, 64, "sum")).cycles == lanes
    assert machine.time_of(product_of(64, 64, 64)).cycles > lanes


@pytest.mark.parametrize("operation", ["sum", "softmax_cross_entropy"])
def test_a_matrix_unit_computes_products_alone(operation: str):
    fp16 = Float(5, 10)
    operands = ((fp16, 640), (fp16, 640))
    assert Machine(load_device("v100")).unit_of(Demand("a", "loss", operation, 10, 640, 0, operands, fp16)) == "fp32"
    assert Machine(load_device("v100")).unit_of(Demand("a", "loss", "matmul", 10, 640, 0, operands, fp16)) == "matrix"


@pytest.mark.parametrize(("numbers", "rule"), [
    ({"count": None}, "must have `count` and `tiles` together.*got `tiles` alone; add `count`"),
    ({"tiles": None}, "must have `count` and `tiles` together.*got `count` alone; add `tiles`"),
    ({"tiles": None, "count": None, "splits": 2}, "`splits` of a unit must come with `tiles`"),
    ({"read_ports": 2}, "must have `tiles` or `read_ports`, got both"),
    ({"efficiency": 0.5}, "must have `efficiency` or `tiles`, each of which has its share, got both; remove one"),
    ({"tiles": None, "count": None, "read_ports": 2, "efficiency": 0.5},
     "must have `efficiency` or `read_ports`, which say what it waits for, got both; remove one"),
])  # fmt: skip
def test_numbers_of_tiles_go_together(numbers: dict[str, Any], rule: str):
    whole = {"lanes": 256, "count": 4, "tiles": [[16, 8, 0.5]]} | numbers
    text = {name: said(value) for name, value in whole.items() if value is not None}
    with pytest.raises(ConfigError, match=rule):
        checked(ComputeUnit, {"kind": "mac_array"} | text, file="made up")


#: Devices that stand for real GPUs.
GPUS = ("a100", "dgx-a100-8x", "dgx-h200-8x", "dgx-v100-8x", "h100", "h100-fp8", "k20x-8x", "k20x-dual-24", "p100",
        "v100")  # fmt: skip


@pytest.mark.parametrize("name", GPUS)
def test_the_unit_of_a_gpu_that_trains_works_below_its_peak_and_starts(name: str):
    device = load_device(name)
    fmt = emu.parse(device.precision.activation.format)
    demand = Demand("a", "activation", "matmul", 1 << 12, 1 << 18, 0, ((fmt, 1 << 12),) * 2, fmt)
    machine = Machine(device)
    unit = device.compute.units[machine.unit_of(demand)]
    assert unit.tiles is not None
    assert unit.start_s is not None
    assert device.compute.memory_efficiency is not None
    assert machine.time_of(demand).start_ps > 0
