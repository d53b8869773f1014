"""Panels of a right operand: the same numbers whichever way it lies in memory, fillers too."""

from __future__ import annotations

import numpy as np
import pytest

from emu.backends.numba.vector.dot_tiles import PANEL_COLUMNS
from emu.backends.numba.vector.ordered_products import packed_panels


@pytest.mark.parametrize("columns", [1, 33, 64])
def test_panels_end_in_zeros_and_are_the_same_for_columns_that_are_neighbours_and_apart(columns: int):
    """K of 3 or more stands for a row of fillers."""
    b = np.arange(1, 2 * 3 * columns + 1, dtype=np.int32).reshape(2, 3, columns)
    apart = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    order = np.array([2, 3, 0, 9, 1], np.int64)
    panels = -(-columns // PANEL_COLUMNS)
    rows = np.zeros((2, 5, panels * PANEL_COLUMNS), np.int32)
    rows[:, [0, 2, 4], :columns], rows[:, [1, 3], :columns] = b[:, [2, 0, 1]], -7
    whole = rows.reshape(2, 5, panels, PANEL_COLUMNS).swapaxes(1, 2).reshape(2, panels, -1)
    for operand in (b, apart):
        assert np.array_equal(packed_panels(operand, np.int32, order=order, filler=-7), whole)
