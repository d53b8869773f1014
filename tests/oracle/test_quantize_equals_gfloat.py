"""Agreement with gfloat wherever it defines the mode.

Where gfloat 0.5 and emu differ, and the tests therefore do not compare:

- Modes without a name of gfloat's in the table of modes are not in gfloat.
- Its `Stochastic` and `StochasticOdd` round the dropped fraction first, which `StochasticFast` does by adding half;
  `StochasticFastest` drops what is behind the random bits.
- A value that has no place (NaN into a format without NaN, overflow without infinity, NaN and saturation) raises
  ValueError in gfloat; here it is +0 and the flag `invalid`.
"""

from __future__ import annotations

import numpy as np
import pytest
from whole_arrays import all_inputs

import emu
from emu.testing import assert_bits_equal

gfloat = pytest.importorskip("gfloat")

MODES = {
    "nearest_even": gfloat.RoundMode.TiesToEven,
    "nearest_away": gfloat.RoundMode.TiesToAway,
    "floor": gfloat.RoundMode.TowardNegative,
    "ceil": gfloat.RoundMode.TowardPositive,
    "toward_zero": gfloat.RoundMode.TowardZero,
    "stochastic": gfloat.RoundMode.StochasticFastest,
    "stochastic_nearest_even": gfloat.RoundMode.Stochastic,
    "stochastic_nearest_odd": gfloat.RoundMode.StochasticOdd,
    "stochastic_nearest_up": gfloat.RoundMode.StochasticFast,
}
FAST = ["fp16", "bf16", "e4m3fnuz", "e3m3 finite nans=top", "e2m3 finite nans=none", "e7m0 nans=top"]
SLOW = [
    "fp8_e4m3", "fp8_e5m2", "e4m3", "e3m4", "e5m2fnuz", "e6m9", "e2m5 nans=top", "e5m6 nans=none", "e4m7 bias=11",
    "e3m5 finite", "e8m3 finite nans=none", "e2m1 finite nans=none",
]  # fmt: skip
TARGETS = [*FAST, *(pytest.param(target, marks=pytest.mark.slow) for target in SLOW)]
RANDOM_BITS = 7


def described(fmt: emu.Float) -> gfloat.FormatInfo:
    """The same format in gfloat's words."""
    high_nans = {"ieee": 2**fmt.fraction_bits - fmt.infinities, "top": 1, "negative_zero": 0, "none": 0}[fmt.nans]
    return gfloat.FormatInfo(
        name=str(fmt), k=fmt.width_bits, precision=fmt.fraction_bits + 1, bias=fmt.bias, is_signed=True,
        domain=gfloat.Domain.Extended if fmt.infinities else gfloat.Domain.Finite,
        has_nz=fmt.nans != "negative_zero", num_high_nans=high_nans, has_subnormals=True, is_twos_complement=False,
    )  # fmt: skip


def inputs(fmt: emu.Float, *, saturating: bool) -> np.ndarray:
    """A fifth of the values of fp16 and bf16 and of the ties of the target; without what gfloat refuses."""
    grid = fmt.decode(fmt.codes()).astype(np.float64)
    finite = np.sort(grid[np.isfinite(grid)])
    ties = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate([all_inputs("fp16"), all_inputs("bf16"), ties, np.nextafter(ties, np.inf), -ties])[::5]
    if fmt.nans != "none":
        return x
    x = x[~np.isnan(x)]
    return x if saturating or fmt.infinities else x[np.abs(x) <= fmt.max]


@pytest.mark.parametrize("rule", ["ieee", "satfinite", "satpropagate"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", TARGETS)
def test_quantize_equals_gfloat(target, mode, rule, backend):
    fmt, saturating = emu.parse(target), rule != "ieee"
    x = inputs(fmt, saturating=saturating)
    drawn = np.random.default_rng(1).integers(0, 2**RANDOM_BITS, x.shape, dtype=np.uint32)
    with np.errstate(over="ignore", invalid="ignore"):
        want = gfloat.round_ndarray(
            described(fmt), x, MODES[mode], saturating, srbits=drawn.astype(np.int64), srnumbits=RANDOM_BITS
        )
    if rule == "satpropagate" and fmt.infinities:  # which gfloat lacks
        want = np.where(np.isinf(x), x, want)
    got = emu.quantize(
        x, fmt, rounding=mode, overflow=rule, backend=backend,
        rbits=drawn if mode.startswith("stochastic") else None, n_rbits=RANDOM_BITS,
    )  # fmt: skip
    assert_bits_equal(got, want, fmt)


def test_the_table_of_modes_names_each_of_gfloats_once():
    named = {mode.value: mode.meaning.names.gfloat for mode in emu.Rounding if mode.meaning.names.gfloat}
    assert named == {name: mode.name for name, mode in MODES.items()}
    assert set(named.values()) == {mode.name for mode in gfloat.RoundMode}


@pytest.mark.parametrize("target", TARGETS)
def test_codes_decode_as_gfloat_decodes_them(target):
    fmt = emu.parse(target)
    want = gfloat.decode_ndarray(described(fmt), fmt.codes().astype(np.int64))
    assert_bits_equal(fmt.decode(fmt.codes()), want, fmt)
