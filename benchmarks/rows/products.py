"""Matrix products: exact ones of fixed point, and those whose accumulator rounds or saturates at every add."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.measuring.arrays import aligned, floats, integers
from benchmarks.measuring.limits import blas_product
from benchmarks.measuring.row import Array, Prepared, ProductWork, Row, Side
from emu.datapath import Flags, Mac, StatisticsRegister
from emu.engine import explain, matmul
from emu.formats import Fixed, Float, parse

#: Matrices of a quick look.
QUICK_SIZE = 64
Matrix = tuple[str, int]


def product(
    a: Matrix,
    b: Matrix,
    out: str,
    size: int,
    *,
    mac: Mac = Mac(),  # noqa: B008 - frozen
    limit: type[np.floating[Any]] = np.float32,
) -> Callable[[bool], Prepared]:
    """Return what prepares `emu.matmul` of square matrices beside a BLAS product of their size.

    Args:
        a: format of the left operand, and the bits its raws use (fixed point; floats are normal numbers).
        b: the same of the right one.
        out: format written.
        size: rows and columns.
        mac: the unit.
        limit: float32 for sgemm, float64 for dgemm.
    """

    def prepare(quick: bool) -> Prepared:
        n = min(size, QUICK_SIZE) if quick else size
        formats = {"a_format": parse(a[0]), "b_format": parse(b[0]), "out_format": parse(out)}
        left, right = _operand(a, n, seed=1), _operand(b, n, seed=2)
        task = ProductWork(left, right, **formats, mac=mac)
        target, register, flags = aligned((n, n), task.out_format.carrier), StatisticsRegister(), Flags()

        def run() -> None:
            matmul(left, right, **formats, mac=mac, register=register, flags=flags, out=target, check=False)

        path = str(explain(matmul, left, right, **formats, mac=mac))
        return Prepared(task, Side("emu", run, task.macs), blas_product(n, n, n, limit), path)

    return prepare


def _operand(matrix: Matrix, n: int, seed: int) -> Array:
    fmt: Fixed | Float = parse(matrix[0])
    if isinstance(fmt, Fixed):
        return integers((n, n), fmt, matrix[1], seed)
    return floats((n, n), fmt, seed)


def exact(
    width: int, bits: int, size: int, *, limit: type[np.floating[Any]] = np.float32
) -> Callable[[bool], Prepared]:
    """Return the exact product of `width`-bit words of which `bits` are used; the output is scaled to just fit.

    A sum of `size` products of uniform raws has deviation 2**(2*bits - 2) / 3 * sqrt(size); three fill the word.
    """
    dropped = 2 * bits - 2 + round(math.log2(math.sqrt(size))) - (width - 1)
    word = f"fix{width}f0"
    return product((word, bits), (word, bits), f"fix{width}f{-dropped}", size, limit=limit)


STEPWISE_HALF = Mac(product="fp16", accumulator="fp16")
IN_ORDER = Mac(accumulator="fp32")
SATURATING = Mac(accumulator="fix24f12")


def rows() -> list[Row]:
    """Return the rows of the products."""
    int16 = MappingProxyType({"apytypes": 8.0})
    half = ("fp16", 16)
    saturating = {
        bits: product(("fix12f6", bits), ("fix12f6", bits), "fix16f4", 1024, mac=SATURATING) for bits in (10, 12)
    }
    return [
        _row(
            "int16",
            "int16 @ int16, exact, 1024^3, full-range data",
            exact(16, 16, 1024, limit=np.float64),
            2.0,
            3.5,
            int16,
        ),
        _row(
            "int16-11-bit",
            "int16 @ int16, exact, 1024^3, 11-bit data",
            exact(16, 11, 1024, limit=np.float64),
            2.0,
            3.5,
            int16,
        ),
        _row("int8", "int8 @ int8, exact, 2048^3", exact(8, 8, 2048), 4.0, 6.0),
        _row(
            "fp16-in-order",
            "binary16 @ binary16, float32 accumulator in order, 1024^3",
            product(half, half, "fp32", 1024, mac=IN_ORDER),
            0.75,
            1.5,
        ),
        _row(
            "fp16-stepwise",
            "binary16, rounded after every product and add, 1024^3",
            product(half, half, "fp16", 1024, mac=STEPWISE_HALF),
            0.22,
            0.26,
            MappingProxyType({"apytypes": 150.0}),
        ),
        _row("saturating24", "24-bit accumulator saturating at every add, 1024^3, rarely", saturating[10], 0.7, 1.5),
        _row(
            "saturating24-often", "24-bit accumulator saturating at every add, 1024^3, often", saturating[12], 0.7, 1.5
        ),
    ]


def _row(
    name: str,
    title: str,
    prepare: Callable[[bool], Prepared],
    bar: float,
    goal: float,
    factors: MappingProxyType[str, float] = MappingProxyType({}),
) -> Row:
    return Row(f"product/{name}", title, "GMAC/s", prepare, bar, goal, uses_blas=True, factors=factors)
