"""Circuits of AND gates: folded, cut down, evaluated, written and read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emu.prove import exhaust
from emu.prove.circuit import Builder, Circuit, aiger_of, codes_of, read_aiger, with_prefix, words_of
from emu.prove.exhaust import Blocks, Deadline, OutOfTime


def random_circuit(seed: int, inputs: int, gates: int) -> Circuit:
    """A circuit of random gates; the last one is the output."""
    rng = np.random.default_rng(seed)
    rows = [tuple(int(rng.integers(2, 2 * (1 + inputs + k))) for _ in range(2)) for k in range(gates)]
    return Circuit(inputs, np.array(rows, np.int64), {"bad": (2 * (inputs + gates) + int(rng.integers(2)),)})


def value_of(circuit: Circuit, number: int) -> int:
    """The output for one input, gate by gate."""
    values = [0, *(number >> i & 1 for i in range(circuit.n_inputs))]
    for x, y in circuit.gates.tolist():
        values.append((values[x >> 1] ^ (x & 1)) & (values[y >> 1] ^ (y & 1)))
    [literal] = circuit.outputs["bad"]
    return values[literal >> 1] ^ (literal & 1)


def ones_of(circuit: Circuit) -> list[int]:
    return [number for number in range(1 << circuit.n_inputs) if value_of(circuit, number)]


def test_codes_survive_as_bits_of_words():
    codes = np.random.default_rng(1).integers(0, 1 << 63, 131, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    words = words_of(codes, 64)
    assert words.shape == (64, 3)
    assert codes_of(words, 131).tolist() == codes.tolist()
    assert words_of(np.array([1], np.uint64), 2).tolist() == [[1], [0]]


def test_a_builder_folds_constants_and_has_no_gate_twice():
    builder = Builder(2)
    a, b = 2, 4
    assert [builder.both(*pair) for pair in ((a, 0), (1, b), (a, a), (a, a ^ 1))] == [0, b, a, 0]
    gate = builder.both(a, b)
    assert builder.both(b, a) == gate
    assert builder.both(a ^ 1, b) != gate
    assert builder.built({"out": (gate,)}).n_gates == 1, "a gate that no output needs is left out"


@pytest.mark.parametrize("seed", range(8))
def test_every_way_to_evaluate_gives_the_same(seed: int, tmp_path: Path):
    circuit = random_circuit(seed, inputs=8, gates=40)
    ones = ones_of(circuit)
    numbers = np.arange(256, dtype=np.uint64)
    assert np.flatnonzero(codes_of(circuit.evaluated(words_of(numbers, 8))["bad"], 256)).tolist() == ones
    assert Blocks(circuit, circuit.outputs["bad"][0]).first(Deadline.after(60)) == min(ones, default=None)
    for prefix in range(4):
        half = with_prefix(circuit, prefix, 2)
        assert ones_of(half) == [number - (prefix << 6) for number in ones if number >> 6 == prefix]
    path = tmp_path / "circuit.aag"
    path.write_text(aiger_of(circuit, circuit.outputs["bad"][0]))
    registers, [output], read = read_aiger(path)
    assert (registers, read.n_inputs) == ([], 8)
    assert ones_of(Circuit(8, read.gates, {"bad": (output,)})) == ones


@pytest.mark.parametrize("inputs", [0, 1, 5, 6, 7, 12, 13, 17, 18])
@pytest.mark.parametrize("where", ["first", "last", "middle", "nowhere"])
def test_the_first_input_is_found_wherever_it_is(inputs: int, where: str):
    """The output is 1 for one number alone, its bits compared one by one."""
    wanted = {"first": 0, "last": (1 << inputs) - 1, "middle": (1 << inputs) // 3, "nowhere": 0}[where]
    builder, output = Builder(inputs), 0 if where == "nowhere" else 1
    for bit in range(inputs):
        output = builder.both(output, 2 * (1 + bit) ^ (wanted >> bit & 1 ^ 1))
    circuit = builder.built({"bad": (output,)})
    first = Blocks(circuit, circuit.outputs["bad"][0]).first(Deadline.after(60))
    assert first == (None if where == "nowhere" else wanted)


@pytest.mark.parametrize("at_once", [1, 4096])
@pytest.mark.parametrize("leading", [(), (3, 4, 16, 17), (0, 1, 2, 3), tuple(range(18))])
def test_the_smallest_of_several_inputs_is_found_whichever_bits_lead(
    leading: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
):
    """0x2a5f0 has lower leading bits than 0x10028 if those are the last four, and the smaller number must win."""
    monkeypatch.setattr(exhaust, "_MOST_AT_ONCE", at_once)
    inputs, wrong = 18, (0x2A5F0, 0x10028, 0x10029, 0x3FFFF)
    builder, output = Builder(inputs), 0
    for number in wrong:
        is_it = 1
        for bit in range(inputs):
            is_it = builder.both(is_it, 2 * (1 + bit) ^ (number >> bit & 1 ^ 1))
        output = builder.both(output ^ 1, is_it ^ 1) ^ 1
    circuit = builder.built({"bad": (output,)})
    assert Blocks(circuit, circuit.outputs["bad"][0], leading).first(Deadline.after(60)) == min(wrong)


def test_time_that_is_over_says_how_many_inputs_are_right():
    inputs = 40
    builder, output = Builder(inputs), 1
    for bit in range(inputs):
        output = builder.both(output, 2 * (1 + bit))
    circuit = builder.built({"bad": (output,)})
    with pytest.raises(OutOfTime) as end:
        Blocks(circuit, circuit.outputs["bad"][0]).first(Deadline.after(-1))
    assert (end.value.start, end.value.wrong) == (0, None)
    assert 0 < end.value.right < 1 << inputs


def test_the_inputs_that_a_signal_depends_on_are_known():
    builder = Builder(4)
    out = builder.both(builder.both(2, 6), 6)
    circuit = builder.built({"out": (out,)})
    assert circuit.support(circuit.outputs["out"]) == {0, 2}
