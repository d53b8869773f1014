"""What `emu.explain` says of slow products: which part of the unit makes them slow, and about how long they take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu import Mac
from emu.backends.numba.compiling import thread_count
from emu.backends.numba.machine import has_pair_products, has_vectors
from emu.backends.numba.table import SPARSE_WAYS, WAYS
from emu.engine.advice import CHANGES, LEAST_GAIN, MOST_SAID, SLOW
from emu.engine.planner import Faster, Plan

needs_vectors = pytest.mark.skipif(not has_vectors(), reason="all ways are slow without vector code")
#: An accumulator that wraps at once, and a mode that moves exact results, of which words that wrap lose the last place.
WRAPPING = Mac(accumulator="fix24f16", overflow="wrap", rounding="floor")
MOVING: dict[str, Any] = {"rounding": "magnitude_truncation", "overflow": "wrap"}
#: For each change: a product that is slow for one part alone. Formats of operands and result, the unit, options.
SLOW_UNITS: dict[str, tuple[str, str, Mac, dict[str, Any]]] = {
    "backend='auto'": ("fix8f4", "fix8f4", Mac(), {"backend": "reference"}),
    "rounding='nearest_even' of the result": ("fix8f4", "fix16f4", Mac(), MOVING),
    "overflow by the default rule of the result's format": ("fix8f4", "fix16f4", Mac(), MOVING),
    "flags that count no IEEE 754 underflow (no `tininess`)": (
        "fix8f4", "ue4m3", Mac(), {"flags": emu.Flags(tininess="after_rounding")},
    ),
    "rounding='nearest_even' in the Mac": ("fp16", "fp16", Mac(accumulator="fp32", rounding="floor"), {}),
    "overflow by the default rules in the Mac": ("fix16f8", "fix16f8", WRAPPING, {}),
    "order='sequential' in the Mac": ("fp16", "fp16", Mac(accumulator="fp16", order="lanes(3)"), {}),
    "accumulator='exact' in the Mac": ("fix16f8", "fix16f8", WRAPPING, {}),
    "accumulator='fp32' in the Mac": ("bf16", "bf16", Mac(accumulator="bf16"), {}),
    "product='exact' in the Mac": ("fp16", "fp16", Mac(product="bf16", accumulator="fp32"), {}),
    "a Mac whose accumulator has 48 bits": ("fix16f8", "fix16f8", WRAPPING, {}),
    "operands of at most 16 bits": ("fix40f8", "fix16f8", Mac(), {}),
    "operands that keep their subnormals (no daz)": ("fp16 daz", "fp16", Mac(accumulator="fp32"), {}),
}  # fmt: skip


def plan_of(operands: str, out: str, mac: Mac, options: dict[str, Any], sizes: tuple[int, int, int]) -> Plan:
    """Explain a product of the largest values, so that no measured maximum helps."""
    largest = float(emu.parse(operands).max)
    a, b = np.full(sizes[:2], largest), np.full(sizes[1:], largest)
    return emu.explain(emu.Unit(out, inputs=operands, mac=mac, **options).matmul, a, b)


def test_every_change_has_a_product_here():
    assert SLOW_UNITS.keys() == CHANGES.keys()


@needs_vectors
@pytest.mark.parametrize("change", SLOW_UNITS)
def test_the_part_that_makes_a_product_slow_is_named(change: str):
    plan = plan_of(*SLOW_UNITS[change], sizes=(9, 4000, 35))
    assert change in [faster.change for faster in plan.faster], plan
    assert all(faster.times >= LEAST_GAIN for faster in plan.faster)
    assert list(plan.faster) == sorted(plan.faster, key=lambda faster: -faster.times)
    assert len(plan.faster) <= MOST_SAID
    assert "; slow; about " in str(plan)
    keeps_bits = change.startswith(("backend", "flags"))
    assert [faster.keeps_bits for faster in plan.faster if faster.change == change] == [keeps_bits]


@needs_vectors
@pytest.mark.parametrize("mac", [Mac(), Mac(accumulator="fp32"), Mac.preset("a100")])
def test_of_a_fast_product_nothing_is_said(mac: Mac):
    plan = plan_of("fix8f4" if mac == Mac() else "fp16", "fp16", mac, {}, (9, 40, 35))
    assert plan.faster == ()
    assert "slow" not in str(plan)
    assert plan.seconds is not None


@needs_vectors
def test_times_grow_with_the_product_and_are_said_if_they_are_long():
    unit = "bf16", "bf16", Mac(accumulator="bf16"), {}
    short, long = plan_of(*unit, (3, 5, 7)), plan_of(*unit, (300, 500, 700))
    assert short.seconds is not None
    assert long.seconds == pytest.approx(short.seconds * 100 * 100 * 100 / thread_count())
    assert "takes about" not in str(short)
    assert f"takes about {long.seconds:.2g} s" in str(long)
    assert Plan("in_order", "p", Mac(), seconds=1234.5).shown_time == "1234 s"
    assert Plan("in_order", "p", Mac(), seconds=0.009).shown_time is None


def test_advice_and_times_do_not_make_two_plans_different():
    assert Plan("in_order", "p", Mac(), seconds=1.0, faster=(Faster("x", 4.0),)) == Plan("in_order", "p", Mac())


def test_gains_are_said_with_one_digit():
    said = {times: str(Faster("x", times)) for times in (3.2, 9.6, 47.0, 173.0, 17500.0)}
    assert [text.split()[1] for text in said.values()] == ["3", "10", "50", "200", "20000"]
    assert str(Faster("x", 3.0)).endswith("with x (other results)")
    assert str(Faster("x", 3.0, keeps_bits=True)).endswith("(the same bits)")


def test_convolutions_functions_and_sparse_products_are_advised_too():
    x, w = np.ones((2, 3, 8, 8)), np.ones((4, 3, 3, 3))
    mac = Mac(accumulator="fp32", rounding="floor")
    unit = emu.Unit("fp16", inputs="fp16", mac=mac)
    given = {"x_format": "fp16", "w_format": "fp16", "out_format": "fp16", "mac": mac}
    plans = [
        emu.explain(unit.conv2d, x, w),
        emu.explain(emu.conv2d, x, w, **given),
        emu.explain(emu.matmul, x[0, 0], x[0, 0], a_format="fp16", b_format="fp16", out_format="fp16", mac=mac),
    ]  # fmt: skip
    assert all(plan.seconds is not None for plan in plans)
    assert not has_vectors() or all("rounding='nearest_even' in the Mac" in str(plan) for plan in plans)
    sparse = emu.sparse.CSR.from_dense(np.eye(5), "fp16"), np.ones((5, 3))
    options = {"w_format": "fp16", "out_format": "fp16", "mac": Mac(accumulator="fp32")}
    assert emu.explain(emu.sparse.matmul, *sparse, **options).seconds is not None


BYTES = emu.quantize(np.ones((4, 64)), "uint8_affine"), emu.quantize(np.ones((64, 8)), "int8_channel", axis=-2)
PIXELS = emu.quantize(np.ones((1, 2, 4, 4)), "uint8_affine"), emu.quantize(np.ones((3, 2, 2, 2)), "int8_tensor")
WRAPS = {"mac": Mac(accumulator="fix32f0", overflow="wrap", scales="at_result"), "backend": "numba"}
REQUANTISES = emu.Unit("uint8_affine", requantise="float32", scale=1.0, backend="numba")


@pytest.mark.parametrize(
    ("operation", "operands", "options", "bits"),
    [
        (emu.matmul, BYTES, {"out_format": "fp32", **WRAPS}, 20),
        (emu.conv2d, PIXELS, {"out_format": "fp32", **WRAPS}, 17),
        (emu.Unit("fp32", **WRAPS).matmul, BYTES, {}, 20),
        (emu.Unit("fp32", **WRAPS).conv2d, PIXELS, {}, 17),
        (REQUANTISES.matmul, BYTES, {"addend": np.full(8, 5)}, 20),
        (REQUANTISES.conv2d, PIXELS, {"bias": np.full(3, 5)}, 17),
    ],
)
def test_products_with_zero_points_are_planned_as_the_products_of_integers_that_they_are(
    operation: Any, operands: Any, options: dict[str, Any], bits: int
):
    """Bytes with a sign are at most 2**7: 64 products, or 2 channels of 2 x 2 pixels, are at most 2**14 each."""
    plan = emu.explain(operation, *operands, **options)
    assert f"<= 2**{bits} units of 2**0" in plan.proof
    assert "rounds on the way" not in plan.proof


def test_operands_that_share_scales_are_planned_for_units_and_convolutions_as_for_products():
    x, y = (emu.quantize(np.ones((32, 32)), "mxfp8_e4m3", axis=axis) for axis in (-1, -2))
    mac = Mac.preset("b200", inputs="mxfp8_e4m3")
    function = emu.explain(emu.matmul, x, y, out_format="fp32", mac=mac)
    assert emu.explain(emu.Unit("fp32", mac=mac).matmul, x, y) == function
    # of results that become blocks it is the product that binary32 holds
    assert emu.explain(emu.Unit("mxfp8_e4m3", mac=mac).matmul, x, y) == function
    images, kernels = (
        emu.quantize(np.ones((1, 2, 4, 4)), "fp8_tensor"),
        emu.quantize(np.ones((3, 2, 2, 2)), "fp8_tensor"),
    )
    mac = Mac(accumulator="fp32", scales="at_result")
    plan = emu.explain(emu.conv2d, images, kernels, out_format="fp32", mac=mac)
    assert "fp32 rounds on the way" in plan.proof
    assert emu.explain(emu.Unit("fp32", mac=mac).conv2d, images, kernels) == plan


@pytest.mark.skipif(not has_pair_products(), reason="the processor has no integer products")
def test_the_speed_of_every_way_of_matrices_is_known_and_plain_loops_are_the_slow_ones():
    speeds = [way.speed for way in WAYS]
    assert all(speed is not None and speed > 0 for speed in speeds)
    assert min(speed for speed in speeds if speed is not None and speed >= SLOW) > LEAST_GAIN * SLOW / 2
    assert SPARSE_WAYS[0].speed is not None


def test_the_page_has_the_speed_of_every_way():
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "fast-paths.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    said: dict[str, float] = {}
    for names, _, speeds in rows:
        ways, numbers = re.findall(r"`(\w+)`", names), [float(text) for text in speeds.split(", ")]
        said |= dict(zip(ways, numbers * len(ways) if len(numbers) == 1 else numbers, strict=True))
    known = {_name_of(way): way.speed for way in (*WAYS, SPARSE_WAYS[0])}
    assert said == known


def _name_of(way: Any) -> str:
    module = way.loops.__name__ if hasattr(way, "loops") else type(way).__module__
    return module.rsplit(".", 1)[-1]
