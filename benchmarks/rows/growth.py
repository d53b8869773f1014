"""How cost grows: with the size of the arrays and with the width of the words."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measuring.row import Prepared, Row
from benchmarks.rows.products import exact
from benchmarks.rows.stage import stage

STAGE_SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
PRODUCT_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
STAGE_WIDTHS = (2, 4, 8, 12, 16, 20, 24, 32)
PRODUCT_WIDTHS = (2, 4, 8, 12, 16, 20, 24)
#: What stays the same while the other one grows.
STAGE_SIZE, PRODUCT_SIZE, WIDTH = 1 << 22, 512, 8


def rows() -> list[Row]:
    """Return the rows, named `growth/kind-by-what/value`."""
    stage_sizes = [
        _row("stage-by-size", n, f"float32 to fix8f4, {n} elements", "GElem/s", stage("fix8f4", size=n))
        for n in STAGE_SIZES
    ]
    stage_widths = [
        _row("stage-by-width", w, f"float32 to fix{w}f{w // 2}", "GElem/s", stage(f"fix{w}f{w // 2}", size=STAGE_SIZE))
        for w in STAGE_WIDTHS
    ]
    product_sizes = [
        _row("product-by-size", n, f"int8 @ int8, {n}^3", "GMAC/s", exact(WIDTH, WIDTH, n)) for n in PRODUCT_SIZES
    ]
    product_widths = [
        _row("product-by-width", w, f"int{w} @ int{w}, {PRODUCT_SIZE}^3", "GMAC/s", exact(w, w, PRODUCT_SIZE))
        for w in PRODUCT_WIDTHS
    ]
    return [*stage_sizes, *stage_widths, *product_sizes, *product_widths]


def _row(kind: str, value: int, title: str, unit: str, prepare: Callable[[bool], Prepared]) -> Row:
    return Row(f"growth/{kind}/{value}", title, unit, prepare, group="growth")
