"""Formats of IEEE P3109 and the scale of OCP MX: codes and rounding are those of gfloat, by its own names.

Where gfloat 0.5 and emu differ, and the tests therefore do not compare:

- Negative numbers into an unsigned format: gfloat returns numbers that are not in it.
- Numbers below the smallest value of e8m0: gfloat rounds as if smaller powers of two were there.
- `max` and `min` of a format whose largest value is subnormal (k2p2, unsigned, extended): gfloat's own codes say less.
- P3109 formats whose special values leave no finite one above zero (k2p1, extended): emu has no such format.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow
from whole_arrays import all_inputs

import emu
from emu.testing import assert_bits_equal

gfloat = pytest.importorskip("gfloat")
formats = pytest.importorskip("gfloat.formats")

MODES = {mode.value: gfloat.RoundMode[mode.meaning.names.gfloat] for mode in emu.Rounding if mode.meaning.names.gfloat}
VARIANTS = ("se", "sf", "ue", "uf")
RANDOM_BITS = 7


def information(name: str) -> Any:
    """What gfloat knows of a name such as p3109_k8p4ue."""
    width, precision = (int(part) for part in name.removeprefix("p3109_k")[:-2].split("p"))
    signedness = gfloat.Signedness.Signed if name[-2] == "s" else gfloat.Signedness.Unsigned
    domain = gfloat.Domain.Extended if name[-1] == "e" else gfloat.Domain.Finite
    info = formats.format_info_p3109(width, precision, signedness, domain)
    assert info.name == name
    return info


def names(widths: range) -> Iterator[str]:
    """Every width, precision and variant that gfloat has and float64 holds."""
    for width, variant in product(widths, VARIANTS):
        for precision in range(1, width + 1):
            exponent_bits = width - precision + (variant[0] == "u")
            codes = 2 ** (width - (variant[0] == "s"))  # zero or positive, special ones included
            if exponent_bits <= 11 and codes - (variant[0] == "u") - (variant[1] == "e") >= 2:
                yield f"p3109_k{width}p{precision}{variant}"


def check_codes(name: str) -> None:
    fmt, info = emu.parse(name), information(name)
    codes = fmt.codes()
    values = fmt.decode(codes)
    known = gfloat.decode_ndarray(info, codes.astype(np.int64))
    assert_bits_equal(values, known, fmt)
    assert fmt.encode(values).tolist() == codes.tolist()  # one NaN, one zero: every code is canonical
    finite = known[np.isfinite(known)]
    assert (fmt.max, fmt.min, fmt.width_bits, fmt.nan_code) == (finite.max(), finite.min(), info.k, info.code_of_nan)
    assert fmt.smallest_positive == info.smallest


def test_codes_of_narrow_p3109_formats_are_gfloats():
    for name in names(range(2, 9)):
        check_codes(name)


@pytest.mark.slow
@pytest.mark.parametrize("width", range(9, 17))
def test_codes_of_every_p3109_format_are_gfloats(width: int):
    for name in names(range(width, width + 1)):
        check_codes(name)


def test_a_name_without_letters_is_signed_and_extended():
    for name in ("p3109_k8p3", "p3109_k8p4", "p3109_k6p2"):
        assert emu.parse(name) == emu.parse(f"{name}se") == emu.parse(f"{name}s") == emu.parse(f"{name}e")
        assert emu.parse(f"{name}u") == emu.parse(f"{name}ue")


@most_are_slow(
    ("name", "mode"),
    product(names(range(8, 9)), MODES),
    keep=[("p3109_k8p4se", "nearest_even"), ("p3109_k8p3ue", "ceil"), ("p3109_k8p8sf", "toward_zero"),
          ("p3109_k8p1ue", "nearest_even"), ("p3109_k8p7uf", "nearest_away"), ("p3109_k8p8ue", "floor")],
)  # fmt: skip
def test_all_16_bit_inputs_are_rounded_as_gfloat_rounds_them(name: str, mode: str, backend: str):
    fmt, info = emu.parse(name), information(name)
    x = np.concatenate([all_inputs("fp16"), all_inputs("bf16")])
    x = x if fmt.signed else x[~(x < 0)]
    drawn = np.random.default_rng(1).integers(0, 2**RANDOM_BITS, x.shape, dtype=np.uint32)
    with np.errstate(over="ignore", invalid="ignore"):
        open_ended, saturated = (
            gfloat.round_ndarray(info, x, MODES[mode], sat, srbits=drawn.astype(np.int64), srnumbits=RANDOM_BITS)
            for sat in (False, True)
        )
    # P3109's third mode in gfloat's two: infinities are those of an extended domain, everything else saturates
    propagated = np.where(np.isinf(x) & (name[-1] == "e"), open_ended, saturated)
    for rule, want in {"ieee": open_ended, "satfinite": saturated, "satpropagate": propagated}.items():
        got = emu.quantize(
            x, fmt, rounding=mode, overflow=rule, backend=backend, n_rbits=RANDOM_BITS,
            rbits=drawn if emu.Rounding(mode).draws else None,
        )  # fmt: skip
        assert_bits_equal(got, want, fmt)


SCALE = formats.format_info_ocp_e8m0


def test_codes_of_the_scale_of_ocp_mx_are_gfloats():
    fmt = emu.parse("e8m0")
    codes = fmt.codes()
    values = fmt.decode(codes)
    assert_bits_equal(values, gfloat.decode_ndarray(SCALE, codes.astype(np.int64)), fmt)
    assert fmt.encode(values).tolist() == codes.tolist()
    assert (fmt.max, fmt.min, fmt.nan_code) == (SCALE.max, SCALE.min, SCALE.code_of_nan)


def test_codes_of_the_scale_of_ocp_mx_are_those_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = np.arange(256, dtype=np.uint8)
    assert_bits_equal(emu.parse("e8m0").decode(codes), codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), "e8m0")


@pytest.mark.parametrize("rule", ["ieee", "satfinite"])
@pytest.mark.parametrize("mode", MODES)
def test_scales_are_rounded_as_gfloat_rounds_them(mode: str, rule: str, backend: str):
    x = all_inputs("bf16")
    x = x[~(x < 2.0**-127)]
    drawn = np.random.default_rng(2).integers(0, 2**RANDOM_BITS, x.shape, dtype=np.uint32)
    with np.errstate(over="ignore", invalid="ignore"):
        want = gfloat.round_ndarray(
            SCALE, x, MODES[mode], rule == "satfinite", srbits=drawn.astype(np.int64), srnumbits=RANDOM_BITS
        )
    got = emu.quantize(
        x, "e8m0", rounding=mode, overflow=rule, backend=backend, n_rbits=RANDOM_BITS,
        rbits=drawn if emu.Rounding(mode).draws else None,
    )  # fmt: skip
    assert_bits_equal(got, want, "e8m0")
