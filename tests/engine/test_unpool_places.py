"""Values return to places of their windows, and to no other: nothing is written beyond the array."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import emu
from emu import engine
from emu.backends.gathered import Gathered
from emu.backends.registry import load
from emu.engine.sliding import windows_of

X = np.arange(32.0).reshape(1, 2, 4, 4)
VALUES = np.arange(1.0, 9).reshape(1, 2, 2, 2)


def windows() -> Gathered:
    return windows_of(X, 2, 2)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ([0, 1, 2, 3, 4, 0, 9, 0], r"`index` must be places 0\.\.3 of its window, got 4 at index \(4,\); give what"),
        ([0, 1, -1, 3, 0, 0, 0, 0], r"`index` must be places 0\.\.3 of its window, got -1 at index \(2,\)"),
        ([0, 1, 2, 2**62, 0, 0, 0, 0], rf"`index` must be places 0\.\.3 of its window, got {2**62} at index \(3,\)"),
        ([0, 1, 2], r"`values` and `index` must have one element for each of the 8 windows, got shapes .* and \(3,\)"),
    ],
)
def test_a_place_outside_its_window_is_named(index: list[int], text: str, backend: str):
    with pytest.raises(emu.ShapeError, match=text):
        engine.unpool(VALUES, np.array(index), windows(), backend=backend)


def test_places_are_integers(backend: str):
    with pytest.raises(emu.FormatError, match="`index` must hold integers, got dtype float64; give what `max_pool`"):
        engine.unpool(VALUES, np.zeros(8), windows(), backend=backend)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint64", ">i4"])
def test_places_of_any_integer_dtype_are_the_same(dtype: str, backend: str):
    index = np.array([0, 1, 2, 3, 3, 2, 1, 0], dtype).reshape(1, 2, 2, 2)
    spread = engine.unpool(VALUES, index, windows(), backend=backend).reshape(X.shape)
    expected = np.zeros(X.shape)
    for (_, c, i, j), place in np.ndenumerate(index):
        expected[0, c, 2 * i + int(place) // 2, 2 * j + int(place) % 2] = VALUES[0, c, i, j]
    assert np.array_equal(spread, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_a_kernel_leaves_out_a_place_outside_its_window(dtype: Any, backend: str):
    """The table's kernel, and the door without its check: the other values arrive."""
    index = np.array([0, 4, 2, 255, 3, 2, 1, 0], dtype)
    spread = load(backend).unpool(VALUES, index, windows())
    kept = np.array([1, 3, 5, 6, 7, 8])
    assert sorted(spread[spread != 0]) == kept.tolist()
    assert np.array_equal(engine.unpool(VALUES, index, windows(), backend=backend, check=False), spread)


#: A place 2**31 windows away: yesterday's kernel wrote there.
FAR = """
import numpy as np
from emu import engine
from emu.engine.sliding import windows_of

x = np.zeros((1, 1, 4, 4))
index = np.full((1, 1, 2, 2), 2**32 - 1, np.uint32)
engine.unpool(np.ones((1, 1, 2, 2)), index, windows_of(x, 2, 2), backend="numba"{options})
"""


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [("", 1, "ShapeError: `index` must be places 0..3 of its window, got 4294967295"), (", check=False", 0, "")],
)
def test_a_place_far_away_ends_no_process(options: str, code: int, text: str):
    script = FAR.format(options=options)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert text in done.stderr


@pytest.mark.parametrize(
    ("rows", "columns", "batches", "stride", "text"),
    [
        ([0, 40], [0], 1, 0, "places 0..31, got places 0..40"),
        ([0], [0, -1], 1, 0, "places 0..31, got places -1..0"),
        ([0], [0], 3, 16, "places 0..31, got places 0..32"),
        ([16], [0], 3, -9, "places 0..31, got places -2..16"),
    ],
)
def test_windows_outside_their_data_are_refused(
    rows: list[int], columns: list[int], batches: int, stride: int, text: str, backend: str
):
    given = Gathered(X.reshape(-1), batches, stride, np.array(rows), np.array(columns))
    with pytest.raises(emu.ShapeError) as refused:
        engine.max_pool(given, backend=backend)
    assert str(refused.value) == f"gathered matrices must lie in their data, {text}; choose other offsets"
    count = batches * len(rows)
    with pytest.raises(emu.ShapeError, match="gathered matrices must lie in their data"):
        engine.unpool(np.ones(count), np.zeros(count, np.uint8), given, backend=backend)


def test_empty_windows_are_refused(backend: str):
    given = Gathered(X.reshape(-1), 1, 0, np.array([0]), np.zeros(0, np.int64))
    with pytest.raises(emu.ShapeError, match=r"`windows` must hold at least one value in each, got shape \(1, 1, 0\)"):
        engine.max_pool(given, backend=backend)
