"""docs/concepts/index.md: in max pooling NaN wins, -0 < +0, the first of equals is taken."""

from __future__ import annotations

import math

import numpy as np
import pytest

import emu

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("window", "index"),
    [
        ([0.0, 0.0, 0.0], 0), ([-0.0, -0.0], 0), ([-0.0, 0.0, 0.0], 1), ([0.0, -0.0], 0), ([-1.0, -0.0, 0.0], 2),
        ([-2.0, -1.0, -1.0], 1), ([3.0, 3.0], 0), ([1.0, 2.0, 3.0], 2), ([NAN, INF, NAN], 0), ([INF, NAN, NAN], 1),
        ([-INF, -INF], 0), ([-INF, -5e-324, 0.0], 2), ([-1.0], 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_maximum_of_a_window_is_its_first_greatest(window: list[float], index: int, dtype: type, backend: str):
    windows = np.array([window], dtype)
    values, indices = emu.engine.max_pool(windows, backend=backend)
    assert indices.tolist() == [index]
    assert values.tobytes() == windows[:, index].tobytes()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_windows_of_raws_have_their_first_greatest_too(dtype: type, backend: str):
    windows = np.array([[1, 5, 5], [0, 0, 0], [7, 2, 7]], dtype)
    values, indices = emu.engine.max_pool(windows, backend=backend)
    assert (values.tolist(), indices.tolist()) == ([5, 0, 7], [1, 0, 0])
