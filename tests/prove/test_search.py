"""The search for the smallest wrong input: with a solver that knows, one that never ends, and no time."""

from __future__ import annotations

import numpy as np
import pytest
from test_circuit import ones_of, random_circuit

from emu.prove import search, yosys
from emu.prove.circuit import Circuit
from emu.prove.exhaust import Deadline, OutOfTime
from emu.prove.sat import Undecided
from emu.prove.search import Search

INPUTS = 7


def knowing(circuit: Circuit, output: int, limit_s: float) -> int | None:
    """A solver that gives the largest input for which the output is 1."""
    assert circuit.outputs["bad"] == (output,)
    return max(ones_of(circuit), default=None)


def endless(circuit: Circuit, output: int, limit_s: float) -> int | None:
    raise Undecided


@pytest.fixture
def solver_alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Inputs are not looked at but one by one."""
    monkeypatch.setattr(search, "LOOKED_AT_S", -1.0)
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 0)
    monkeypatch.setattr(yosys, "version", lambda: "Yosys")
    return monkeypatch


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("solver", [knowing, endless])
def test_the_smallest_input_is_found(seed: int, solver, solver_alone: pytest.MonkeyPatch):
    solver_alone.setattr(search, "model_of", solver)
    circuit = random_circuit(seed, INPUTS, gates=30)
    expected = min(ones_of(circuit), default=None)
    assert Search(Deadline.after(600)).first(circuit) == expected


@pytest.mark.parametrize("seed", range(6))
def test_one_that_is_known_is_no_answer_if_a_smaller_one_is_wrong(seed: int, solver_alone: pytest.MonkeyPatch):
    solver_alone.setattr(search, "model_of", knowing)
    circuit = random_circuit(seed, INPUTS, gates=30)
    ones = ones_of(circuit)
    if ones:
        assert Search(Deadline.after(600), wrong=max(ones)).first(circuit) == min(ones)


def test_a_search_without_time_knows_nothing(solver_alone: pytest.MonkeyPatch):
    solver_alone.setattr(search, "model_of", endless)
    seen = Search(Deadline.after(-1))
    with pytest.raises(OutOfTime) as end:
        seen.first(random_circuit(1, INPUTS, gates=30))
    assert (end.value.start, seen.wrong, seen.gave_up) == (0, None, 1)
    assert seen.how() == "Yosys, 1 block that SAT did not decide"


def test_a_search_without_time_keeps_what_the_solver_gave(solver_alone: pytest.MonkeyPatch):
    circuit = next(c for c in (random_circuit(seed, INPUTS, gates=30) for seed in range(9)) if len(ones_of(c)) > 1)
    solver_alone.setattr(search, "model_of", knowing)
    seen = Search(Deadline.after(-1))
    with pytest.raises(OutOfTime):
        seen.first(circuit)
    assert seen.wrong == max(ones_of(circuit))


def test_a_lower_half_that_is_right_is_counted(solver_alone: pytest.MonkeyPatch):
    """The solver decides the lower half alone: then the time is over."""
    circuit = Circuit(3, np.array([[2, 4]], np.int64), {"bad": (8,)})
    seen = Search(Deadline.after(600))

    def lower_half_alone(part: Circuit, output: int, limit_s: float) -> int | None:
        if part.n_inputs == 3 or seen.solved:
            raise Undecided
        seen.deadline = Deadline.after(-1)
        return None

    solver_alone.setattr(search, "model_of", lower_half_alone)
    with pytest.raises(OutOfTime) as end:
        seen.first(circuit)
    assert end.value.start == 4


def test_what_the_solver_gives_in_an_upper_half_is_its_number_there(solver_alone: pytest.MonkeyPatch):
    circuit = Circuit(3, np.array([[2, 4]], np.int64), {"bad": (8,)})
    seen = Search(Deadline.after(600))

    def upper_half_alone(part: Circuit, output: int, limit_s: float) -> int | None:
        if part.n_inputs == 3:
            raise Undecided
        if not seen.solved:
            return None
        seen.deadline = Deadline.after(-1)
        return 3

    solver_alone.setattr(search, "model_of", upper_half_alone)
    with pytest.raises(OutOfTime):
        seen.first(circuit)
    assert seen.wrong == 7
