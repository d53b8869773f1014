"""The vector unit against the engine: equal results, equal registers; and its cycles against its own scoreboard."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu import ConfigError, Fixed, Mac, StatisticsRegister
from emu.datapath import Rounding
from emu.hardware import StatisticsUnit, VectorUnit, load_device
from emu.hardware.machine import Demand, Machine
from emu.hardware.vector_unit import CHUNK_VECTORS, Opcode, _Scoreboard, convert


def saturating(width: int, frac_bits: int) -> Mac:
    return Mac(accumulator=Fixed(width, frac_bits), overflow="saturate")


def assert_counts_are_the_registers(
    unit: StatisticsUnit, sets: tuple[int, int], register: StatisticsRegister, frac: int
):
    for which, side in zip(sets, (register.positive, register.negative), strict=True):
        held = unit.read(which)
        assert {p - frac: int(n) for p, n in enumerate(held.counts) if n} == side
        assert held.results == register.total
    assert register.none == register.total - sum(int(unit.read(which).counts.sum()) for which in sets)


def run_product(a: np.ndarray, b: np.ndarray, sizes: tuple[Fixed, Fixed, Fixed], width: int, rounding: Rounding):
    """Run a product on the model, once for each sign; return raws, the statistics unit and cycles."""
    (rows, depth), columns = a.shape, b.shape[1]
    unit, statistics = VectorUnit(accumulator_bits=width), StatisticsUnit(width_bits=width)
    drops = sizes[0].frac_bits + sizes[1].frac_bits - sizes[2].frac_bits
    for which, signs in enumerate(("positive", "negative")):
        memory = np.concatenate([a.ravel(), b.ravel(), np.zeros(rows * columns, np.int64)])
        options = {"register_set": which, "signs": signs, "rounding": rounding}
        cycles = unit.run(unit.product(rows, depth, columns, sizes[2], drops, **options), memory, statistics)
    return memory[a.size + b.size :].reshape(rows, columns), statistics, cycles


@settings(max_examples=25)
@given(st.data())
def test_a_product_writes_and_counts_what_the_engine_does(data: st.DataObject):
    """Any shape, partial vectors included; narrow accumulators saturate at every add."""
    rows, depth, columns = (data.draw(st.integers(1, most)) for most in (5, 9, 7))
    width = data.draw(st.sampled_from([18, 24, 40]))
    fmts = tuple(Fixed(data.draw(st.integers(2, 16)), data.draw(st.integers(-2, 12))) for _ in range(3))
    rounding = data.draw(st.sampled_from([Rounding.NEAREST_EVEN, Rounding.FLOOR]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    a, b = (
        rng.integers(fmt.min_raw, fmt.max_raw + 1, shape)
        for fmt, shape in zip(fmts, ((rows, depth), (depth, columns)), strict=False)
    )
    raws, statistics, _ = run_product(a, b, fmts, width, rounding)
    frac = fmts[0].frac_bits + fmts[1].frac_bits
    register = StatisticsRegister(-frac, width - 1)
    expected = emu.matmul(
        fmts[0].from_raw(a), fmts[1].from_raw(b), a_format=fmts[0], b_format=fmts[1], out_format=fmts[2],
        mac=saturating(width, frac), rounding=rounding, register=register,
    )  # fmt: skip
    assert raws.tolist() == fmts[2].to_raw(expected).tolist()
    assert_counts_are_the_registers(statistics, (0, 1), register, frac)


def test_a_whole_layer_of_lenet_writes_and_counts_what_the_engine_does():
    """conv1 on 64 images: 301 056 results of 25 products and a bias, zeros around the images."""
    rng = np.random.default_rng(3)
    word, target = Fixed(16, 12), Fixed(16, 11)
    x = rng.integers(-(2**13), 2**13, (64, 1, 28, 28))
    w, bias = rng.integers(-(2**15), 2**15, (6, 1, 5, 5)), rng.integers(-(2**20), 2**20, 6)
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    unit, statistics = VectorUnit(), StatisticsUnit()
    results = 64 * 6 * 28 * 28
    place, valid = unit.lanes_of(results)
    image, channel, row, column = np.unravel_index(place, (64, 6, 28, 28))
    starts = {"a": 0, "b": padded.size, "addend": padded.size + w.size, "out": padded.size + w.size + 6}
    addresses = {
        "a": image * 32 * 32 + row * 32 + column,
        "b": starts["b"] + channel * 25,
        "addend": starts["addend"] + channel,
        "out": starts["out"] + place,
    }
    offsets = [i * 32 + j for i in range(5) for j in range(5)]
    for which, signs in enumerate(("positive", "negative")):
        memory = np.concatenate([padded.ravel(), w.ravel(), bias, np.zeros(results, np.int64)])
        program = unit.sum_of_products(
            offsets, range(25), addresses, valid, target, 24 - 11, register_set=which, signs=signs
        )
        cycles = unit.run(program, memory, statistics)
    register = StatisticsRegister(-24, 39)
    expected = emu.conv2d(
        word.from_raw(x), word.from_raw(w), bias=Fixed(32, 24).from_raw(bias), padding=(2, 2),
        x_format=word, w_format=word, bias_format=Fixed(32, 24), out_format=target, mac=saturating(40, 24),
        register=register,
    )  # fmt: skip
    assert memory[starts["out"] :].tolist() == target.to_raw(expected).ravel().tolist()
    assert_counts_are_the_registers(statistics, (0, 1), register, 24)
    operands = ((word, x.size), (word, w.size), (Fixed(32, 24), 6))
    demand = Demand("conv1", "activation", "conv2d", results, results * 25, 0, operands, target)
    assert cycles == Machine(load_device("dlu16")).time_of(demand).cycles == results // 8 * 26 + 6


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_elementwise_operations_write_what_the_engine_does(name: str):
    rng = np.random.default_rng(5)
    a_format, b_format, target = Fixed(16, 8), Fixed(16, 11), Fixed(16, 7)
    a, b = (rng.integers(-(2**15), 2**15, 1003) for _ in range(2))
    point = 19 if name == "multiply" else 11
    unit, statistics = VectorUnit(), StatisticsUnit()
    memory = np.concatenate([a, b, np.zeros(1003, np.int64)])
    unit.run(unit.elementwise(Opcode(name), 1003, target, point - 7, (3, 0)), memory, statistics)
    register = StatisticsRegister(-point, 39)
    expected = getattr(emu, name)(
        a_format.from_raw(a), b_format.from_raw(b), a_format=a_format, b_format=b_format, out_format=target,
        register=register, backend="reference",
    )  # fmt: skip
    assert memory[2006:].tolist() == target.to_raw(expected).tolist()
    both = statistics.read().counts
    assert {p - point: int(n) for p, n in enumerate(both) if n} == {e: n for e, n in register.histogram().items() if n}


@given(st.data())
def test_d_cnv_rounds_and_saturates_as_the_output_stage_does(data: st.DataObject):
    held, drops = Fixed(40, 20), data.draw(st.integers(-45, 45))
    target = Fixed(data.draw(st.integers(2, 32)), 20 - drops)
    words = data.draw(st.lists(st.integers(-(2**39), 2**39 - 1) | st.integers(-4, 4), min_size=1, max_size=40))
    array = np.array(words, np.int64)
    for rounding in Rounding:
        if not rounding.draws:
            expected = emu.quantize(held.from_raw(array), target, x_format=held, rounding=rounding, backend="reference")
            assert convert(array, drops, target, rounding).tolist() == target.to_raw(expected).tolist(), rounding


#: Modes as integers of a rational.
INTEGERS: dict[Rounding, Callable[[Fraction], int]] = {
    Rounding.NEAREST_EVEN: round,
    Rounding.NEAREST_AWAY: lambda x: floor(abs(x) + Fraction(1, 2)) * (1 if x > 0 else -1),
    Rounding.FLOOR: floor,
    Rounding.CEIL: ceil,
}


@pytest.mark.parametrize("rounding", INTEGERS)
def test_d_cnv_drops_and_appends_as_many_bits_as_a_word_has_and_more(rounding: Rounding):
    ends = [1, 2, 3, *(2**k + d for k in (60, 61, 62) for d in (-1, 0, 1)), 2**63 - 1]
    words = [0, *ends, *(-x for x in ends)]
    for target in (Fixed(16, 8), Fixed(64, 0)):
        for drops in (*range(58, 70), *range(-70, -58)):
            exact = [INTEGERS[rounding](Fraction(x) / Fraction(2) ** drops) for x in words]
            expected = [max(target.min_raw, min(target.max_raw, x)) for x in exact]
            assert convert(np.array(words), drops, target, rounding).tolist() == expected, drops


@given(st.data())
def test_the_cycles_of_many_vectors_are_those_of_timing_each(data: st.DataObject):
    unit = VectorUnit(
        lanes=2,
        read_ports=data.draw(st.integers(1, 3)),
        registers=data.draw(st.integers(4, 9)),
        accumulators=data.draw(st.integers(1, 3)),
        latency={"load": data.draw(st.integers(1, 5)), "convert": data.draw(st.integers(1, 3))},
    )
    vectors, depth = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 7))
    program = unit.product(vectors, depth, 2, Fixed(16, 8), 8)
    board = _Scoreboard(unit, program.instructions)
    assert unit.cycles(program) == [board.advance() for _ in range(vectors)][-1]


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
@pytest.mark.parametrize("results", [1, 8, 9, 800, 8000])
def test_simulated_time_of_elementwise_operations_counts_the_cycles_of_the_model(name: str, results: int):
    word, unit = Fixed(16, 8), VectorUnit()
    program = unit.elementwise(Opcode(name), results, word, 8 if name == "multiply" else 0)
    cycles = unit.run(program, np.zeros(3 * results, np.int64), StatisticsUnit())
    demand = Demand("fc1", "update", name, results, 0, 0, ((word, results), (word, results)), word)
    assert Machine(load_device("dlu16")).time_of(demand).cycles == cycles


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shift", [30, 31, 32, 33, 62])
def test_the_widest_accumulator_saturates_where_int64_would_wrap(sign: int, shift: int):
    memory = np.array([sign * 2**30, sign * 2**30, 0], np.int64)
    unit = VectorUnit(accumulator_bits=62)
    unit.run(unit.elementwise(Opcode.ADD, 1, Fixed(62, 0), 0, (shift, shift)), memory)
    assert memory[2] == min(max(sign * 2 ** (31 + shift), -(2**61)), 2**61 - 1)


def test_an_accumulator_wider_than_int64_holds_is_refused():
    with pytest.raises(ConfigError, match=r"`accumulator_bits` must be in 1..62, got 63; choose a smaller one"):
        VectorUnit(accumulator_bits=63)


def test_the_statistics_unit_takes_one_stream_however_the_model_is_computed():
    unit, statistics, results = VectorUnit(), StatisticsUnit(), 8 * (2 * CHUNK_VECTORS + 3)
    unit.run(unit.elementwise(Opcode.ADD, results, Fixed(16, 8), 0), np.zeros(3 * results, np.int64), statistics)
    assert statistics.cycles == results // 8 + 2


@pytest.mark.parametrize(
    ("word", "shift", "stored"),
    [
        (2**30, 34, 2**31 - 1), (-(2**30), 34, -(2**31)), (0, 62, 1), (3, 2, 13),
        (1, 39, 2**31 - 1), (1, 40, 2**31 - 1), (5, 40, 2**31 - 1), (5, 41, 2**31 - 1), (1, 62, 2**31 - 1),
        (-1, 41, -(2**31)), (-5, 41, -(2**31)), (-1, 99, -(2**31)),
    ],
)  # fmt: skip
def test_a_shift_beyond_the_accumulator_saturates(word: int, shift: int, stored: int):
    memory = np.array([word, 1, 0], np.int64)
    unit = VectorUnit()
    unit.run(unit.elementwise(Opcode.ADD, 1, Fixed(32, 0), 0, (shift, 0)), memory)
    assert memory[2] == stored
    with pytest.raises(
        ConfigError, match="must be shifted to the left when it is added to an accumulator, got -1 bits"
    ):
        unit.run(unit.elementwise(Opcode.ADD, 1, Fixed(32, 0), 0, (-1, 0)), memory)


@pytest.mark.parametrize("counter_bits", [1, 3, 6])
def test_counters_of_the_model_stop_where_those_of_the_register_do(counter_bits: int):
    rng, word = np.random.default_rng(2), Fixed(16, 8)
    a, b = rng.integers(-(2**9), 2**9, (30, 4)), rng.integers(-(2**9), 2**9, (4, 7))
    unit, register = VectorUnit(), StatisticsRegister(-16, 39)
    expected = emu.matmul(
        word.from_raw(a), word.from_raw(b), a_format=word, b_format=word, out_format=word, mac=saturating(40, 16),
        register=register,
    )  # fmt: skip
    held = register.saturated(counter_bits)
    assert held != register
    for signs, side in (("positive", held.positive), ("negative", held.negative)):
        statistics = StatisticsUnit(counter_bits=counter_bits)
        memory = np.concatenate([a.ravel(), b.ravel(), np.zeros(210, np.int64)])
        unit.run(unit.product(30, 4, 7, word, 8, signs=signs), memory, statistics)
        read = statistics.read()
        assert {p - 16: int(n) for p, n in enumerate(read.counts) if n} == side
        assert read.results == held.total
        assert memory[-210:].tolist() == word.to_raw(expected).ravel().tolist()


@pytest.mark.parametrize("ports", [1, 2, 4])
@pytest.mark.parametrize("depth", [1, 2, 25, 400])
def test_simulated_time_counts_the_cycles_of_the_model(ports: int, depth: int):
    device = load_device("dlu16")
    units = dict(device.compute.units)
    read_ports = units["vector"].read_ports
    assert read_ports is not None
    units["vector"] = units["vector"].model_copy(update={"read_ports": read_ports.model_copy(update={"value": ports})})
    machine = Machine(device.model_copy(update={"compute": device.compute.model_copy(update={"units": units})}))
    unit, word = VectorUnit(read_ports=ports), Fixed(16, 12)
    for rows in (1, 3, 40):
        memory = np.zeros(rows * depth + depth * 13 + rows * 13, np.int64)
        cycles = unit.run(unit.product(rows, depth, 13, word, 12), memory, StatisticsUnit())
        operands = ((word, rows * depth), (word, depth * 13))
        demand = Demand("fc1", "activation", "matmul", rows * 13, rows * 13 * depth, 0, operands, word)
        assert machine.time_of(demand).cycles == cycles
        assert machine.time_of(demand).unit_ps == cycles * 1000


def test_a_product_without_results_takes_no_cycles():
    unit = VectorUnit()
    for rows, columns in ((0, 3), (3, 0)):
        memory = np.arange(8)
        assert unit.run(unit.product(rows, 2, columns, Fixed(16, 8), 8), memory) == 0
        assert np.array_equal(memory, np.arange(8))


def test_a_sum_of_nothing_is_no_program():
    with pytest.raises(ConfigError, match="a sum must have a product or an addend, got neither"):
        VectorUnit().product(2, 0, 2, Fixed(16, 8), 8)


def test_parts_that_do_not_fit_are_named():
    unit = VectorUnit()
    program = unit.product(1, 1, 1, Fixed(16, 8), 8)
    with pytest.raises(ConfigError, match="must have the vector unit's 8 lanes of 40 bits, got 4 of 40"):
        unit.run(program, np.zeros(3, np.int64), StatisticsUnit(lanes=4))
    with pytest.raises(ConfigError, match="words of memory must fit 32 bits, got 0 to 2147483648"):
        unit.run(program, np.array([2**31, 0, 0]))
    with pytest.raises(ConfigError, match="must not be stochastic"):
        convert(np.array([1]), 1, Fixed(8, 0), Rounding.STOCHASTIC)
