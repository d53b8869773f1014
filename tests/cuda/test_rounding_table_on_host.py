"""The CUDA kernels do in every case what the table of modes says."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from rounding_cases import DRAWING, FORMATS, check, check_far_below

import emu
from emu.datapath.rounding import Rounding


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", list(Rounding))
def test_every_mode_steps_as_the_table_says(mode: Rounding, dtype: type, cuda: str):
    for text in FORMATS:
        check(mode, text, partial(emu.quantize, backend=cuda), dtype)


@pytest.mark.parametrize("mode", DRAWING)
def test_what_lies_far_below_every_bit_still_decides_a_random_step(mode: Rounding, cuda: str):
    check_far_below(mode, partial(emu.add, backend=cuda))
