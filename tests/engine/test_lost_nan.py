"""NaN that becomes 0 is warned of once for each line, where no flags count it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emu
from emu.autodiff import Operation
from emu.precision import DatapathRunner, Policy

NAN = np.array([np.nan, 1.0])
TEXT = "NaN was written as 0, since fix8f4 has no NaN; mask NaN first, or count such results: `flags=emu.Flags()`"
OPERATIONS: dict[str, Callable[..., Any]] = {
    "quantize": lambda **options: emu.quantize(NAN, "fix8f4", **options),
    "add": lambda **options: emu.add(NAN, 1.0, out_format="fix8f4", **options),
    "matmul": lambda **options: emu.matmul(NAN, NAN, a_format="fp16", b_format="fp16", out_format="fix8f4", **options),
    "exp": lambda **options: emu.exp(NAN, out_format="fix8f4", **options),
    "unit": lambda **options: emu.Unit("fix8f4", **options).add(NAN, 1.0),
}


def heard(action: Callable[[], object], how: str = "always") -> list[warnings.WarningMessage]:
    """What an action warns of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(how)  # pyright: ignore[reportArgumentType]
        action()
    return found


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_nan_into_fixed_point_is_warned_of_at_the_callers_line(name: str, backend: str):
    (one,) = heard(lambda: OPERATIONS[name](backend=backend))
    assert (str(one.message), one.category, one.filename) == (TEXT, emu.EmuWarning, __file__)


@pytest.mark.parametrize("name", OPERATIONS)
def test_flags_that_count_nan_are_enough(name: str):
    flags = emu.Flags()
    assert heard(lambda: OPERATIONS[name](flags=flags, backend="reference")) == []
    assert flags.invalid >= 1


def test_a_line_is_warned_of_once_and_another_line_once_more():
    def two_lines() -> None:
        for _ in range(3):
            emu.quantize(NAN, "fix8f4", backend="reference")
        emu.quantize(NAN, "fix8f4", backend="reference")

    assert len(heard(two_lines, "default")) == 2


def test_a_format_with_nan_and_numbers_alone_are_silent():
    assert heard(lambda: emu.quantize(NAN, "fp16", backend="reference")) == []
    assert heard(lambda: emu.quantize([1.0, np.inf], "fix8f4", backend="reference")) == []


def test_a_float_format_without_nan_is_warned_of():
    (one,) = heard(lambda: emu.quantize(NAN, "e2m1 finite nans=none", backend="reference"))
    assert "since fp4_e2m1 has no NaN" in str(one.message)


def test_networks_are_silent():
    runner = DatapathRunner(Policy(emu.device("fixed16").precision), backend="reference")
    written: list[Any] = []

    def layer() -> None:
        x = emu.Value(NAN, emu.parse("fp64"))
        written.append(runner.run(Operation("add", (x, x)), "activation", "a").array)

    assert heard(layer) == []
    assert written[0][0] == 0  # NaN was lost there, too
