"""Elementary functions: compiled doubles and tables give the definition's bits, registers, flags and random draws."""

# ruff: noqa: B023 - every call happens before its loop moves on
from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
from kernel_inputs import patterns, reals
from variants import assert_same_everywhere

import emu
from emu.backends.functions import FUNCTIONS, store
from emu.backends.functions.double import FUNCTIONS as DEFINITION
from emu.backends.numba import functions, tabled
from emu.datapath import Rounding
from emu.engine import function
from emu.formats import Float
from emu.testing import assert_bits_equal

MODES = tuple(mode.value for mode in Rounding)
EDGES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 4.0, 0.25, 5e-324, -5e-324, 800.0, -800.0, 1e308, -1e308)
ENDS = (-745.2, -708.4, 709.78, 2.0**-28, 2.0**-60, 0.5, 6.0, -40.0, 40.0, -8.5, 22.0, 2.0**-1022)


@pytest.fixture(autouse=True, scope="module")
def tables_in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[None, None, None]:
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "default_folder", lambda: folder)
        yield


def arguments(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    ends = np.outer(ENDS, (-1, 1)).reshape(-1)
    near = [np.nextafter(ends, np.inf), np.nextafter(ends, -np.inf)]
    sizes = np.ldexp(rng.uniform(1, 2, n), rng.integers(-80, 12, n)) * rng.choice([-1.0, 1.0], n)
    return np.concatenate(
        [EDGES, ends, *near, sizes, rng.normal(0, 3, n), rng.uniform(-750, 710, n), patterns(n, seed, np.float64)]
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_doubles_are_those_of_the_definition(name: str):
    x = arguments(3000, 1)
    result = functions.evaluate_wide(name, x.reshape(-1, 1))
    assert_bits_equal(result.doubles.reshape(-1), DEFINITION[name](x))
    assert (result.exact is None) == (name in ("tanh", "erf"))  # those never leave float64


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_of_elements_is_evaluated(name: str):
    x = np.random.default_rng(2).uniform(0.1, 9.0, 71)
    for n in range(71):
        result = functions.evaluate_wide(name, x[:n])
        assert_bits_equal(result.doubles, DEFINITION[name](x[:n]))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", ["fix16f8", "fp16"])
def test_wide_functions_are_the_same(name: str, target: str):
    with np.errstate(all="ignore"):
        x = arguments(200, 3).astype(np.float32)
    for rounding in MODES:
        assert_same_everywhere(
            lambda **where: function(name, x, x_format="fp32", out_format=target, rounding=rounding, **where), target
        )


SOURCES = ["fp16", "bf16", "fp8_e4m3", "e4m3fnuz", "e5m2 daz", "e8m0 finite nans=top", "fix16f12", "ufix7f3", "fix9f-2"]


@pytest.mark.parametrize("source", SOURCES)
def test_tabled_functions_are_the_same(source: str):
    """Every code where there are few, one register beside the values and one around them."""
    fmt = emu.parse(source)
    x = fmt.decode(fmt.codes() if fmt.width_bits <= 10 else np.random.default_rng(4).permutation(fmt.codes())[:3001])
    if isinstance(fmt, Float) and fmt.has_negative_zero:
        x = np.append(x, np.array([-np.nan, np.nan], x.dtype)) if fmt.nans != "none" else x
    for name, target, rounding in (
        ("exp", "fix16f8", "floor"), ("tanh", "fp16", "nearest_even"), ("log", "fp8_e4m3", "stochastic"),
        ("gelu", "fix12f9", "stochastic"), ("sigmoid", "bf16", "ceil"),
    ):  # fmt: skip
        options = {"rounding": rounding, "n_rbits": 7, "seed": 2**63 + 1, "stream": 3, "step": 2}
        for place in ({}, {"lowest": -2, "bins": 3}):
            assert_same_everywhere(
                lambda **where: function(name, x, x_format=source, out_format=target, **options, **where),
                target,
                (name, source),
                **place,
            )


def test_tables_take_any_shape_layout_and_recorded_bits():
    x = reals("fp16", 40, 5, np.float32)
    x = emu.quantize(x[np.isfinite(x)], "fp16").reshape(-1)[:340].reshape(17, 20).T
    for rbits in (np.arange(340).reshape(20, 17) % 128, None):
        assert_same_everywhere(
            lambda **where: function(
                "tanh", x, x_format="fp16", out_format="fix8f6", rounding="stochastic", n_rbits=7, rbits=rbits, **where
            ),
            "fix8f6",
        )
    assert function("exp", np.float32(1.0), x_format="fp16", out_format="fp16", backend="numba").shape == ()
    assert function("exp", np.empty((0, 3)), x_format="fp16", out_format="fp16", backend="numba").shape == (0, 3)


def test_one_recorded_random_number_is_no_missing_one():
    for u in (0, 127):
        assert_same_everywhere(
            lambda **where: function(
                "exp", [0.5], x_format="fp16", out_format="fix8f2", rounding="stochastic", n_rbits=7, rbits=[u], **where
            ),
            "fix8f2",
        )


def test_values_that_belong_to_no_code_stay_inside_the_table():
    """Unchecked operands may be anything: what they give is undefined, where they read is not."""
    x = patterns(2000, 6, np.float32)
    for source in ("fp8_e4m3", "fix8f4", "e4m3fnuz", "ufix3f1"):
        y = function("tanh", x, x_format=source, out_format="fp16", check=False, backend="numba")
        assert y.shape == x.shape


def test_points_beyond_float64_are_left_to_the_definition():
    assert_same_everywhere(
        lambda **where: function("tanh", [0.0, 2.0**-980], x_format="fix4f980", out_format="fp16", **where), "fp16"
    )
    assert abs(emu.parse("fix4f980").frac_bits) > tabled.SAFE_EXPONENT
