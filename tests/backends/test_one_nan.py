"""Whatever NaN comes in or arises, every operation writes the quiet NaN of sign + and payload 0, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emu
from emu import Mac
from emu.engine.reductions import total

#: NaNs of both signs, quiet and signalling, with payloads.
ODD = np.array([0x7FC00001, 0xFFC00000, 0x7F800001, 0xFF812345, 0x7FC00000], np.uint32).view(np.float32)
INFINITE = np.full(5, np.inf, np.float32)
ROWS, COLUMN = np.vstack([ODD, INFINITE]), np.array([[1.0], [-1.0], [1.0], [0.0], [1.0]], np.float32)
UNITS = [
    Mac(product, accumulator, order)
    for order in ("sequential", "pairwise", "lanes(2)")
    for accumulator in ("fp32", "fp16", "exact")
    for product in ("exact", "fp32")
] + [Mac(accumulator="fp32", order="blocks(4, 23)"), Mac(accumulator="fp16", order="blocks(2, 11, addend=after)")]
SIGNS = np.tile(np.float32([1, -1]), (8, 32)) * np.tile(np.float32([[1], [-1]]), (4, 64))

OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "quantize": lambda **given: emu.quantize(ODD, given.pop("out_format"), **given),
    "quantize many": lambda **given: emu.quantize(np.tile(ODD, 300), given.pop("out_format"), **given),
    "quantize float64": lambda **given: emu.quantize(ODD.astype(np.float64), given.pop("out_format"), **given),
    "add": lambda **given: emu.add(ODD, INFINITE, **given),
    "inf - inf": lambda **given: emu.subtract(INFINITE, INFINITE, **given),
    "inf * -0": lambda **given: emu.multiply(INFINITE, -0.0, **given),
    "0 / 0": lambda **given: emu.divide(np.zeros(5), -0.0, **given),
    "root": lambda **given: emu.sqrt([-1.0] * 5, **given),
    "fma": lambda **given: emu.fma(INFINITE, 0.0, ODD, **given),
    "exp": lambda **given: emu.exp(ODD, **given),
    "log": lambda **given: emu.log([-1.0], **given),
    "log from a table": lambda **given: emu.log([-1.0, np.nan], x_format="fp16", **given),
    "remainder": lambda **given: emu.remainder(INFINITE, 1.0, **given),
    "round_to_integral": lambda **given: emu.round_to_integral(ODD, **given),
    "total": lambda **given: total(
        ROWS, x_format="fp32", axis=1, mac=Mac(accumulator="fp32", order="pairwise"), **given
    ),
    "many columns": lambda **given: emu.matmul(
        np.full((40, 8), np.inf), SIGNS, a_format="fp16", b_format="fp16", mac=Mac(accumulator="fp16"), **given
    ),
    **{
        str(mac): lambda mac=mac, **given: emu.matmul(
            ROWS, COLUMN, a_format="fp32", b_format="fp32", mac=mac, **given
        )
        for mac in UNITS
    },
}  # fmt: skip


def patterns_of_nans(y: Any) -> set[str]:
    """The bits of every NaN in an array."""
    bits = y.view(np.uint32 if y.dtype == np.float32 else np.uint64)
    return {hex(pattern) for pattern in bits[np.isnan(y)].tolist()}


def assert_one_nan(name: str, out_format: str, backend: str) -> None:
    with np.errstate(all="ignore"):
        y = OPERATIONS[name](out_format=out_format, backend=backend)
    canonical = "0x7fc00000" if y.dtype == np.float32 else "0x7ff8000000000000"
    assert patterns_of_nans(y) == {canonical}


@pytest.mark.parametrize("out_format", ["fp32", "fp16", "fp8_e4m3", "fp64"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_writes_one_nan(name: str, out_format: str, backend: str):
    assert_one_nan(name, out_format, backend)


@pytest.mark.parametrize("rounding", ["floor", "ceil", "nearest_even"])
def test_a_format_without_infinities_overflows_to_that_nan_on_both_sides(rounding: str, backend: str):
    y = emu.quantize([1e9, -1e9] * 600, "fp8_e4m3", rounding=rounding, backend=backend)
    assert patterns_of_nans(y) == {"0x7fc00000"}


def test_a_value_and_decoded_codes_hold_that_nan():
    assert patterns_of_nans(emu.value(ODD, "fp32").array) == {"0x7fc00000"}
    wide = np.array([0x7FF0000000000001, 0xFFF8000000000003], np.uint64).view(np.float64)
    assert patterns_of_nans(emu.value(wide, "fp64").array) == {"0x7ff8000000000000"}
    assert patterns_of_nans(emu.value(wide, "fp32").array) == {"0x7fc00000"}
    assert patterns_of_nans(emu.parse("fp16").decode([0xFE00, 0x7E01, 0x7C01])) == {"0x7fc00000"}


def test_nan_of_a_format_without_zero_is_encoded_without_a_warning():
    fmt = emu.parse("e8m0")
    for given in (np.float32(np.nan), np.array(np.nan), np.array([np.nan, 1.0])):
        assert np.ravel(fmt.encode(given)).tolist() == [255, 127][: np.size(given)]
