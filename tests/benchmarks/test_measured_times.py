"""Published measured times: the page shows what is simulated now, and products are as near as promised."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.measured import __main__ as page
from benchmarks.measured import moving
from benchmarks.measured.products import UNITS, Fit, Row, rows, simulated, times
from emu.hardware import Machine

#: Root mean square and largest relative error of products that nothing was fitted to; on H100 one is larger.
MOST_RMS, MOST, MOST_ON_H100 = 0.12, 0.30, 0.31


def of_unit(key: str, *, is_fitted: bool) -> list[Row]:
    return [row for row in rows() if row.unit == key and row.is_fitted == is_fitted]


@pytest.mark.parametrize("key", UNITS)
def test_products_that_nothing_was_fitted_to_are_simulated_as_measured(key: str):
    shown = of_unit(key, is_fitted=False)
    assert len(shown) >= 30
    rms, worst = page.errors(simulated(shown), [row.seconds for row in shown])
    assert rms <= MOST_RMS
    assert worst <= (MOST_ON_H100 if key == "h100" else MOST)


def test_no_size_is_fitted_and_shown():
    for key in UNITS:
        fitted, shown = ({row[1:4] for row in of_unit(key, is_fitted=like)} for like in (True, False))
        assert fitted
        assert not fitted & shown


def test_kernels_that_go_once_through_memory_are_simulated_as_measured():
    once = [kernel for kernel in moving.kernels() if kernel.operation not in moving.SEVERAL]
    assert len(once) == 120
    rms, worst = page.errors([moving.simulated_kernel(k) for k in once], [kernel.seconds for kernel in once])
    assert rms <= 0.06
    assert worst <= 0.12


@pytest.mark.parametrize("key", UNITS)
def test_the_formula_that_is_fitted_is_that_of_the_machine(key: str):
    about, of = UNITS[key], of_unit(key, is_fitted=True)
    device = about.card()
    unit = device.compute.units[about.name]
    assert unit.tiles is not None
    assert unit.start_s is not None
    assert unit.fill_cycles is not None
    fit = Fit(unit.start_s.value, unit.fill_cycles.value, tuple(tile.efficiency for tile in unit.tiles.value))
    sizes = np.array([row[1:4] for row in of], np.float64)
    clock, width = Machine(device).clock_hz(about.name), about.operand.width_bits // 8
    found = times(fit, unit, sizes, clock, device.compute.memory_bytes_per_s or np.inf, width)
    np.testing.assert_allclose(found, simulated(of), rtol=1e-3)  # the machine rounds cycles and picoseconds up


def test_no_smaller_tile_is_more_efficient_than_a_larger_one():
    for about in UNITS.values():
        tiles = about.card().compute.units[about.name].tiles
        assert tiles is not None
        by_area = sorted(tiles.value, key=lambda tile: -tile.rows * tile.columns)
        assert [tile.efficiency for tile in by_area] == sorted((tile.efficiency for tile in by_area), reverse=True)


def test_the_page_shows_the_tables_of_now():
    assert page.PAGE.read_text(encoding="utf-8") == page.page()
