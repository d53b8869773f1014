"""Operations that a step repeats: the bits and counts of a first one, whatever has changed in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_datapath_runner import device, runner_of, value

import emu
from emu.autodiff import Operation, Value
from emu.engine.small import MOST_ELEMENTS, Repeated
from emu.precision import DatapathRunner
from emu.testing import assert_bits_equal

STOCHASTIC = device(
    update={"format": "fix16f8", "rounding": "stochastic"},
    loss={"format": "fp32"},
    gradient={"format": "fix24f12", "rounding": "stochastic"},
)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each repeated operation was written at once."""
    answered: list[bool] = []
    write = Repeated.written

    def asked(*given: Any) -> Any:
        array = write(*given)
        answered.append(array is not None)
        return array

    monkeypatch.setattr(Repeated, "written", asked)
    return answered


def numbers(shape: tuple[int, ...], seed: int, fmt: str = "fix32f16") -> Value:
    return value(np.random.default_rng(seed).uniform(-150, 150, shape), fmt)


def step(runner: DatapathRunner, number: int, operation: Operation, role: str = "update") -> Value:
    runner.step = number
    return runner.run(operation, role, "a")


def same_as_first(runner: DatapathRunner, number: int, operation: Operation, role: str = "update") -> None:
    """Compare an operation with that of the reference, which has done nothing before."""
    before = runner.counters.to_dict() if runner.counters is not None else {}
    actual = step(runner, number, operation, role)
    assert not actual.array.flags.writeable
    fresh = runner_of(STOCHASTIC, "reference", seed=runner.seed)
    if before:
        fresh.counters.load(before)
    expected = step(fresh, number, operation, role)
    assert actual.format == expected.format
    assert_bits_equal(actual.array, expected.array, str(expected.format))
    if runner.counters is not None:
        assert runner.counters.to_dict() == fresh.counters.to_dict()


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "fma", "quantize", "sqrt"])
@pytest.mark.parametrize("role", ["update", "gradient", "moment"])
def test_each_step_has_its_random_bits_and_counts(name: str, role: str, written: list[bool]):
    runner = runner_of(STOCHASTIC, "numba", seed=5)
    count = {"fma": 3, "quantize": 1, "sqrt": 1}.get(name, 2)
    for number in (0, 1, 2, 2**32 + 1, 7):
        operands = tuple(numbers((3, 50), number + 10 * i) for i in range(count))
        if name == "sqrt":
            operands = (value(np.abs(operands[0].array), "fix32f16"),)
        same_as_first(runner, number, Operation(name, operands), role)
    assert written == [True] * len(written)


def test_operands_of_other_kinds_take_the_usual_way(written: list[bool]):
    """And the next ones of the first kind are written at once again."""
    runner = runner_of(STOCHASTIC, "numba", seed=5)
    usual = (numbers((4, 6), 1), numbers((4, 6), 2))
    transposed = Value(np.asfortranarray(usual[0].array), usual[0].format)
    cases = [
        (usual, True),
        ((usual[0], numbers((1, 6), 3)), False),  # repeated along an axis
        (usual, True),
        ((usual[0], numbers((4, 6), 3, "fix40f16")), False),  # another format, then the kind that is kept
        (usual, False),
        (usual, True),
        ((usual[0], numbers((), 3)), True),  # one number stands for all
        ((transposed, usual[1]), False),
        ((numbers((2, 3, 5), 4), numbers((2, 3, 5), 5)), True),
        ((numbers((6,), 3), numbers((4, 6), 3)), False),  # the result has another shape than the first operand
        ((numbers((1,), 3), numbers((1, 1), 3)), False),
        ((numbers((0, 6), 3), numbers((0, 6), 3)), False),
        (usual, True),
    ]
    step(runner, 0, Operation("multiply", usual))
    for number, (operands, at_once) in enumerate(cases):
        written.clear()
        same_as_first(runner, number, Operation("multiply", operands))
        assert written == [at_once], number


@pytest.mark.parametrize("excess", [0, 1])
def test_operations_are_repeated_up_to_a_number_of_elements(excess: int, written: list[bool]):
    runner, size = runner_of(STOCHASTIC, "numba"), MOST_ELEMENTS - 1 + excess
    operands = Value(np.full(size, 0.75, np.float32), emu.parse("fix16f8")), value(0.5, "fix16f8")
    for number in range(2):
        result = step(runner, number, Operation("multiply", operands), "activation")
        assert (result.array == 0.375).all()
    assert written == ([] if excess and not written else [not excess])
    assert dict(runner.counters.items())["a", "activation"].elements == 2 * size


def test_registers_that_were_replaced_count_what_follows():
    """A table that is loaded, as from a checkpoint, has other registers than those that an operation knew."""
    runner, operation = runner_of(STOCHASTIC, "numba"), Operation("add", (numbers((7,), 1), numbers((7,), 2)))
    step(runner, 0, operation)
    step(runner, 1, operation)
    kept = runner.counters.to_dict()
    runner.counters.load(kept)
    for number in (2, 3):
        step(runner, number, operation)
    assert dict(runner.counters.items())["a", "update"].elements == 4 * 7


def test_registers_whose_positions_were_changed_count_at_the_new_ones():
    runner, operation = runner_of(STOCHASTIC, "numba"), Operation("add", (numbers((7,), 1), numbers((7,), 2)))
    for number in range(2):
        step(runner, number, operation)
    counters = dict(runner.counters.items())["a", "update"]
    register = counters.register
    register.__init__(lowest=register.lowest - 3, bins=register.bins + 5)
    for number in (2, 3):
        step(runner, number, operation)
    assert register.total == 14
    once = runner_of(STOCHASTIC, "numba")
    for number in (2, 3):
        step(once, number, operation)
    assert register.histogram() == dict(once.counters.items())["a", "update"].register.histogram()


def test_a_runner_without_counters_repeats_as_well(written: list[bool]):
    runner = runner_of(STOCHASTIC, "numba")
    runner.counters = None
    for number in range(3):
        same_as_first(runner, number, Operation("add", (numbers((7,), 1), numbers((7,), 2))))
    assert written == [True] * 2
