"""Products of operands that share scales, beside the same product of FP8 without scales, on the units of a B200."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.measuring.row import Prepared, Row, Side
from emu.datapath import Mac
from emu.engine import Unit, explain, matmul, quantize

#: Matrices of a quick look.
QUICK_SIZE = 64
FP8 = "fp8_e4m3"


def scaled(fmt: str, size: int) -> Callable[[bool], Prepared]:
    """Return what prepares `emu.matmul` of square matrices in a scaled format, beside the FP8 unit's.

    Args:
        fmt: the scaled format.
        size: rows and columns.
    """

    def prepare(quick: bool) -> Prepared:
        n = min(size, QUICK_SIZE) if quick else size
        draw = np.random.default_rng(1).standard_normal
        x, y = (draw((n, n)).astype(np.float32) for _ in "ab")
        left, right, mac = quantize(x, fmt), quantize(y, fmt, axis=0), Mac.preset("b200", inputs=fmt)
        plain = [quantize(operand, FP8) for operand in (x, y)]
        unit = Mac.preset("b200", inputs=FP8, instruction="tcgen05")

        def run() -> None:
            matmul(left, right, out_format="fp32", mac=mac)

        def run_plain() -> None:
            matmul(*plain, a_format=FP8, b_format=FP8, out_format="fp32", mac=unit, check=False)

        path = str(explain(matmul, left, right, out_format="fp32", mac=mac))
        return Prepared(None, Side("emu", run, n**3), Side("emu, FP8 without scales", run_plain, n**3), path)

    return prepare


def affine(size: int) -> Callable[[bool], Prepared]:
    """Return what prepares a requantised product of bytes with zero points, beside the same product without them."""

    def prepare(quick: bool) -> Prepared:
        n = min(size, QUICK_SIZE) if quick else size
        draw = np.random.default_rng(1).standard_normal
        x, y = (draw((n, n)).astype(np.float32) for _ in "ab")
        weights = quantize(y, "int8_channel", axis=0)

        def side(name: str, fmt: str) -> Side:
            unit = Unit(fmt, requantise="float32", scale=2.0)
            return Side(name, partial(unit.matmul, quantize(x, fmt), weights), n**3)

        return Prepared(None, side("emu", "uint8_affine"), side("emu, int8 without zero points", "int8_tensor"))

    return prepare


def rows() -> list[Row]:
    """Return the rows, named `product/format` and, of small matrices, `product/format-256`."""
    return [
        Row(
            f"product/uint8-affine-{size}",
            f"uint8_affine @ int8_channel, requantised by float32, {size}^3",
            "GMAC/s",
            affine(size),
            0.9,
            0.95,
        )
        for size in (1024, 2048)
    ] + [
        Row(
            f"product/{name}",
            f"{fmt} @ {fmt}, a matrix unit of the B200, {size}^3",
            "GMAC/s",
            scaled(fmt, size),
            bar,
            goal,
        )
        for name, fmt, size, bar, goal in (
            ("mxfp8", "mxfp8_e4m3", 1024, 0.75, 0.9),
            ("mxfp8-256", "mxfp8_e4m3", 256, 0.5, 0.75),
            ("nvfp4", "nvfp4", 1024, 0.5, 1.75),
            ("nvfp4-256", "nvfp4", 256, 0.5, 1.0),
        )
    ]
