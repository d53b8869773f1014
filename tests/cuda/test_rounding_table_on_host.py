"""The CUDA kernels do in every case what the table of modes says."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from rounding_cases import FORMATS, check

import emu
from emu.datapath.rounding import Rounding


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", list(Rounding))
def test_every_mode_steps_as_the_table_says(mode: Rounding, dtype: type, cuda: str):
    for text in FORMATS:
        check(mode, text, partial(emu.quantize, backend=cuda), dtype)
