"""The reference, plain loops and vector code do in every case what the table of modes says; CUDA: tests/cuda."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from rounding_cases import DRAWING, FORMATS, check, check_far_below
from variants import running

import emu
from emu.backends import modes
from emu.datapath.rounding import Place, Rounding, Steps

WHERE = ["reference", "plain loops", "vector code"]


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("mode", list(Rounding))
def test_every_mode_steps_as_the_table_says(mode: Rounding, where: str, dtype: type):
    quantize = partial(emu.quantize, backend="reference" if where == "reference" else "numba")
    for text in FORMATS:
        with running("generic" if where == "plain loops" else "alone"):
            check(mode, text, quantize, dtype)


@pytest.mark.parametrize("mode", DRAWING)
@pytest.mark.parametrize("where", ["reference", pytest.param("numba", marks=pytest.mark.slow)])
def test_what_lies_far_below_every_bit_still_decides_a_random_step(mode: Rounding, where: str):
    check_far_below(mode, partial(emu.add, backend=where))


def test_the_letters_of_a_step_are_read_by_sign_last_bit_and_place():
    steps = Steps.of(".+-. ++..", "-...")
    assert [steps.at(place, odd=False, negative=False) for place in Place] == [0, 1, -1, 0]
    assert [steps.at(place, odd=True, negative=False) for place in Place] == [1, 1, 0, 0]
    assert [[steps.at(place, odd=odd, negative=True) for place in Place] for odd in (False, True)] == [
        [-1, 0, 0, 0]
    ] * 2
    assert steps.mask == 0b0011_0010 | (0b0001_0001_0000_0100 << 16)
    assert steps.moves_exact
    assert not Steps.of(".+++").moves_exact


def test_numbers_of_modes_are_promises():
    names = [
        *("nearest_even", "nearest_away", "nearest_up", "nearest_down", "nearest_zero"),
        *("floor", "ceil", "toward_zero", "to_odd", "stochastic"),
        *("stochastic_nearest_even", "stochastic_nearest_odd", "stochastic_nearest_up"),
        *("nearest_odd", "away_from_zero", "jamming", "magnitude_truncation"),
    ]
    assert [mode.value for mode in Rounding][: len(names)] == names
    assert [mode.number for mode in Rounding][: len(names)] == list(range(len(names)))


def test_compiled_loops_and_cuda_kernels_know_which_modes_draw():
    """`stage.cuh` compares numbers: stochastic modes lie side by side."""
    assert modes.DRAWN == (9, 10, 11, 12)
    assert modes.HAND_WRITTEN == 10
