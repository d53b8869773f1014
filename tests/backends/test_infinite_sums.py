"""A float accumulator or a rounded product that becomes infinite from finite terms raises `accumulator_overflow`.

Expectations are counted by the rational model, add by add, as a unit with sticky flags counts them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from fast_suite import most_are_slow
from mac_model import Dot

import emu
import emu.sparse
from emu import Mac
from emu.engine.reductions import total

#: Operand format, product, accumulator, order: each of the loops that add floats.
UNITS = [
    ("fp16", "exact", "fp16", "sequential"),
    ("fp16", "exact", "fp32", "sequential"),
    ("bf16", "exact", "fp32", "sequential"),
    ("fp32", "exact", "fp32", "sequential"),
    ("fp32", "fp32", "fp32", "sequential"),
    ("fp32", "exact", "bf16", "sequential"),
    ("fp16", "exact", "fp8_e4m3", "sequential"),
    ("fp16", "fp16", "fp16", "sequential"),
    ("fp16", "fp16", "exact", "sequential"),
    ("fp16", "fp16", "fp32", "pairwise"),
    ("fp32", "fp32", "fp32", "pairwise"),
    ("fp16", "exact", "fp16", "pairwise"),
    ("fp16", "exact", "fp16", "lanes(3)"),
    ("bf16", "bf16", "bf16", "lanes(2)"),
    ("fp16", "fp16", "fix20f0", "sequential"),
    ("fp16", "fp8_e4m3", "fix20f0", "sequential"),
    ("fp16", "fp16", "e5m9 finite nans=none", "sequential"),
]
ROUNDINGS = ("nearest_even", "toward_zero", "floor", "stochastic")


def _operands(name: str, seed: int, shape: tuple[int, int]) -> np.ndarray:
    """Numbers around those whose sums and products overflow, small ones, and a few infinities and NaN."""
    fmt = emu.parse(name)
    assert isinstance(fmt, emu.Float)
    rng = np.random.default_rng(seed)
    largest = math.frexp(fmt.max)[1]
    near = [fmt.max, fmt.max / 2, 2.0 ** (largest // 2), 2.0 ** (largest // 2 - 1), 1.0, 2.0**-3, 0.0]
    x = emu.quantize(rng.choice(near, shape) * rng.choice([-1.0, 1.0, 1.0], shape), fmt, overflow="satfinite")
    special = rng.random(shape) < 0.06
    return np.where(special, rng.choice([np.inf, -np.inf, np.nan], shape), x).astype(fmt.carrier)


def _counted(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, mac: Mac, fmt: str, backend: str) -> int:
    flags = emu.Flags()
    third = {} if c is None else {"addend": c, "addend_format": fmt}
    formats = {"a_format": fmt, "b_format": fmt, "out_format": "fp32", **third}
    emu.matmul(a, b, mac=mac, **formats, flags=flags, backend=backend)
    return flags.accumulator_overflow


def _expected(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, mac: Mac) -> int:
    rows, columns = a.shape[0], b.shape[1]
    touched = 0
    for i, j in itertools.product(range(rows), range(columns)):
        dot = Dot(mac, i * columns + j)
        dot.run(list(a[i]), list(b[:, j]), None if c is None else float(c[i, j]))
        touched += dot.touched
    return touched


@most_are_slow("rounding", ROUNDINGS, keep=["toward_zero", "stochastic"])
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_sums_that_become_infinite_are_counted_as_the_rational_model_does(
    unit: tuple[str, str, str, str], rounding: str, backend: str
):
    name, product, accumulator, order = unit
    mac, seen = Mac(product, accumulator, order, rounding), 0
    for seed, shape, has_addend in ((1, (3, 5, 7), False), (2, (2, 4, 34), True), (3, (9, 1, 3), True)):
        a, b = _operands(name, seed, shape[:2]), _operands(name, seed + 10, shape[1:])
        c = _operands(name, seed + 20, shape[::2]) if has_addend else None
        expected = _expected(a, b, c, mac)
        assert _counted(a, b, c, mac, name, backend) == expected
        seen += expected
    if rounding == "nearest_even":  # products of fp16 never make a float32 infinite
        assert (seen > 0) == (unit != ("fp16", "exact", "fp32", "sequential"))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 1, 4), (2, 3, 1), (1, 3, 4), (3, 4), (1, 4), (3, 1)], ids=str)
def test_every_batch_row_and_column_has_its_own_addend_beside_infinite_operands(shape: tuple[int, ...], backend: str):
    """1e6 is infinite in an fp16 accumulator, and an event; what comes after it is infinite either way."""
    a = np.where(np.arange(5) == 4, np.inf, np.ones((2, 3, 5)))
    b = np.ones((2, 5, 4))
    c = np.where(np.random.default_rng(3).random(shape) < 0.4, 1e6, 1.0).astype(np.float32)
    each = np.broadcast_to(c, (2, 3, 4))
    events = int((each == 1e6).sum())
    assert 0 < events < each.size
    assert _counted(a, b, c, Mac(accumulator="fp16"), "fp32", backend) == events


def test_an_addend_too_large_for_the_accumulator_is_an_event_beside_infinite_operands_alone(backend: str):
    a, b, c = np.full((1, 20), np.inf), np.full((20, 2), 6e4), np.float32([[1e6, 1.0]])
    assert _counted(a, b, c, Mac(accumulator="fp16"), "fp32", backend) == 1


#: Formats whose largest value is few units of their last place.
SMALLEST = ("e1m1", "e1m1 finite", "e1m1 nans=negative_zero", "e2m1", "e1m2")


@pytest.mark.parametrize("rounding", ["nearest_even", "nearest_away", "ceil", "floor"])
@pytest.mark.parametrize("fmt", SMALLEST)
def test_a_product_beyond_the_smallest_formats_is_an_event_beside_an_infinite_addend(
    fmt: str, rounding: str, backend: str
):
    mac = Mac(product=fmt, accumulator="exact", rounding=rounding)
    largest = emu.parse(fmt).max
    c = np.full((1, 1), np.inf)
    for sixteenths in range(8, 49):
        a, b = np.array([[sixteenths / 16]]), np.array([[largest]])
        assert _counted(a, b, c, mac, "fp32", backend) == _expected(a, b, c, mac), sixteenths


@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero", "floor", "ceil"])
@pytest.mark.parametrize(("product", "accumulator"), [("exact", "e5m9"), ("e5m9", "fp32"), ("e5m9", "e5m9")])
def test_a_format_with_neither_infinity_nor_nan_counts_the_zeros_that_it_writes_and_no_largest_value(
    product: str, accumulator: str, rounding: str, backend: str
):
    product, accumulator = (f"{name} finite nans=none" if name == "e5m9" else name for name in (product, accumulator))
    mac, seen = Mac(product, accumulator, rounding=rounding, overflow="ieee"), 0
    for row in ([6e4, 1.2e5, 6e4], [-6e4, -1.2e5, 1.0], [6e4, -6e4, 6e4], [5e5, -1.0, -7e5]):
        a, b = np.float32([row]), np.float32([[1.0], [1.0], [1.0]])
        assert _counted(a, b, None, mac, "fp32", backend) == _expected(a, b, None, mac)
        seen += _expected(a, b, None, mac)
    assert (seen > 0) == (rounding != "toward_zero")


@pytest.mark.parametrize("unit", [u for u in UNITS if u[3] == "sequential"], ids=str)
def test_sparse_sums_that_become_infinite_are_counted_likewise(unit: tuple[str, str, str, str], backend: str):
    name, product, accumulator, order = unit
    mac = Mac(product, accumulator, order)
    a, b = _operands(name, 5, (4, 6)), _operands(name, 6, (6, 33))
    whole = emu.sparse.CSR.of(a.reshape(-1), np.tile(np.arange(6), 4), np.arange(5) * 6, a.shape, name)
    flags = emu.Flags()
    emu.sparse.matmul(whole, b, w_format=name, out_format="fp32", mac=mac, flags=flags, backend=backend)
    assert flags.accumulator_overflow == _expected(a, b, None, mac)


@pytest.mark.parametrize("accumulator", ["fp32", "fp16"])
def test_totals_that_become_infinite_are_counted_likewise(accumulator: str, backend: str):
    mac = Mac(accumulator=accumulator, order="pairwise")
    x = _operands(accumulator, 7, (40, 9))
    flags = emu.Flags()
    total(x, x_format=accumulator, axis=1, out_format="fp32", mac=mac, flags=flags, backend=backend)
    assert flags.accumulator_overflow == _expected(x, np.ones((9, 1)), None, mac) > 0


@pytest.mark.parametrize("order", ["sequential", "pairwise", "lanes(2)"])
def test_a_sum_that_becomes_infinite_on_the_way_is_one_event(order: str, backend: str):
    """65504 + 65504 - 3 * 65504 is -65504, and infinite in an fp16 accumulator."""
    flags = emu.Flags()
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp16", "flags": flags, "backend": backend}
    mac = Mac(accumulator="fp16", order=order)
    y = emu.matmul([[65504.0, 65504.0, 65504.0]], [[1.0], [1.0], [-3.0]], mac=mac, **formats)
    assert not np.isfinite(y).any()
    assert flags.accumulator_overflow == 1


@pytest.mark.parametrize(
    ("row", "events"),
    [
        ([np.inf, 65504.0, 65504.0], 0),  # infinite before the finite terms overflow
        ([65504.0, 65504.0, np.inf], 1),
        ([65504.0, np.nan, 65504.0], 0),
        ([65504.0, 1.0, np.inf], 0),
        ([65504.0, 65504.0, np.nan], 1),
    ],
)
@pytest.mark.parametrize(("accumulator", "unit"), [("fp16", 1.0), ("e5m10 bias=40", 2.0**-25)])
def test_an_infinite_operand_is_no_event_and_hides_none_before_it(
    row: list[float], events: int, accumulator: str, unit: float, backend: str
):
    """The accumulator's largest value is 65504 units: a number far above 1, or far below."""
    flags = emu.Flags()
    formats = {"a_format": "fp16", "b_format": "fp32", "out_format": "fp32", "flags": flags, "backend": backend}
    emu.matmul([row], np.full((3, 1), unit), mac=Mac(accumulator=accumulator), **formats)
    assert flags.accumulator_overflow == events


@pytest.mark.parametrize("rule", ["ieee", "satfinite", "satpropagate"])
@pytest.mark.parametrize("addend", ["aligned", "after"])
def test_blocks_that_become_infinite_or_saturate_are_events(rule: str, addend: str, backend: str):
    mac = Mac(accumulator="fp16", order=f"blocks(2, 23, addend={addend})", overflow=rule)
    formats = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32", "mac": mac, "backend": backend}
    for row, events in (([65504.0] * 4, 1), ([65504.0, 1.0, np.inf, 0.0], int(rule == "satfinite")), ([1.0] * 4, 0)):
        flags = emu.Flags()
        emu.matmul([row], np.ones((4, 1)), **formats, flags=flags)
        assert flags.accumulator_overflow == events
