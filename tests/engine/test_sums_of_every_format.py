"""A sum multiplies by 1, which not every float format holds: expectations are sums of fractions."""

from __future__ import annotations

import itertools
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import emu
from emu.engine.reductions import average, one_of, total
from emu.formats import Float

sys.path.insert(0, str(Path(__file__).parents[1] / "backends"))
from mac_model import Number, write

#: Whether 1 is a value depends on the bias: it lies below the subnormals, among them, among the normals, or above.
FORMATS = [
    Float(exponent_bits, fraction_bits, bias=bias, infinities=False, nans="none", daz=daz, ftz=daz)
    for exponent_bits, fraction_bits, bias, daz in itertools.product(
        (2, 3, 4), (0, 1, 3), (-40, -3, -1, 0, 1, 3, 9, 20), (False, True)
    )
]


def _terms(fmt: Float) -> np.ndarray:
    values = fmt.decode(fmt.codes())
    return np.random.default_rng(abs(fmt.bias)).choice(values, (3, 5))


def _sum(row: np.ndarray, fmt: Float) -> Fraction:
    read_as_zero = Fraction(fmt.smallest_normal) if fmt.daz else 0
    return sum((Fraction(float(x)) for x in row if abs(Fraction(float(x))) >= read_as_zero), Fraction(0))


def _written(x: Fraction) -> float:
    return write(Number(x < 0, abs(x)), emu.parse("fp32"), "nearest_even", None, 0)[0].to_float()


@pytest.mark.parametrize("order", ["exact", "in order"])
def test_sums_and_means_of_every_format_are_those_of_fractions(order: str, backend: str):
    mac = emu.Mac() if order == "exact" else emu.Mac(accumulator="e8m40", order="pairwise")
    assert len(FORMATS) == 144
    for fmt in FORMATS:
        x = _terms(fmt)
        options = {"x_format": fmt, "axis": 1, "out_format": "fp32", "mac": mac, "backend": backend}
        sums = [_sum(row, fmt) for row in x]
        assert total(x, **options).tolist() == [_written(s) for s in sums], fmt
        assert average(x, **options).tolist() == [_written(s / 5) for s in sums], fmt


@pytest.mark.parametrize(
    ("fmt", "terms", "expected"),
    [
        ("e2m0 finite nans=none bias=0", [2.0, 4.0], 6.0),
        ("e4m3 bias=-20", [2.0**22], 2.0**22),
        ("e4m3 daz bias=0 finite nans=none", [2.0, 4.0], 6.0),
    ],
)
def test_a_unit_adds_up_values_of_formats_without_1(fmt: str, terms: list[float], expected: float, backend: str):
    assert emu.Unit("fp32", inputs=fmt, backend=backend).total(terms).tolist() == expected


def test_the_factor_1_has_the_operands_format_wherever_that_reads_1_as_1():
    for fmt in FORMATS:
        factor = one_of(fmt)
        holds_1 = Fraction(1) in {Fraction(float(x)) for x in fmt.decode(fmt.codes())}
        reads_1 = holds_1 and not (fmt.daz and fmt.smallest_normal > 1)
        assert (factor == fmt) == reads_1
        assert factor.contains(np.float64(1.0))
        assert not (isinstance(factor, Float) and factor.daz and factor.smallest_normal > 1)
