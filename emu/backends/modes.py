"""Rounding modes as kernels take them: numbers drawn from the table in `emu/datapath/rounding.py`.

A kernel may have code of its own for the first `HAND_WRITTEN` modes. Any other is a mask of steps: the bit at
`place + 4 * odd + 8 * negative` says that the magnitude takes a step away from zero, 16 bits above it that it takes one
toward zero. The two highest bits say where a float's overflow stays at the largest value.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from emu.backends.interface import StageCode
from emu.datapath.rounding import Meaning, Rounding

#: The modes below this number have code of their own in compiled loops, vector code and CUDA kernels.
HAND_WRITTEN = 10
#: Modes that draw random bits.
DRAWN = tuple(mode.number for mode in Rounding if mode.draws)
#: Bits of a mask that say whether an overflow is the largest value: of positive results, of negative ones.
STAYS_ABOVE, STAYS_BELOW = 32, 33
_MEANINGS = tuple(mode.meaning for mode in Rounding)
#: Steps of the magnitude by mode, family (1: floats) and case; int8, shape (modes, 2, 16).
STEPS = np.array([[meaning.fixed.table, meaning.floating.table] for meaning in _MEANINGS], np.int8)


def meaning_of(stage: StageCode) -> Meaning:
    """Return what the stage's mode means."""
    return _MEANINGS[stage.rounding]


def draws(stage: StageCode) -> bool:
    """Return whether random bits decide how a stage rounds."""
    return stage.rounding in DRAWN


@lru_cache(maxsize=1024)
def moves_exact(stage: StageCode) -> bool:
    """Return whether a stage moves even values of its format: then no shortcut may leave them as they are."""
    return meaning_of(stage).steps(is_float=stage.format.rounds_magnitudes).moves_exact


@lru_cache(maxsize=1024)
def step_mask(stage: StageCode) -> int:
    """Return the mask of a stage's steps, and where its overflow stays."""
    meaning = meaning_of(stage)
    above, below = meaning.stays
    # each flag is a bit of its own above the 32 of the steps
    return meaning.steps(is_float=stage.format.rounds_magnitudes).mask | above << STAYS_ABOVE | below << STAYS_BELOW


@lru_cache(maxsize=1024)
def deciding_bits(stage: StageCode) -> int:
    """Return how many bits behind the last place a mode looks at: one guard bit, or the random ones and their guard."""
    return meaning_of(stage).looked_at_bits(stage.n_rbits)
