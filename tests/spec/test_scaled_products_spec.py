"""docs/concepts/scaled.md, "A product": where scales enter, promotion, units of GPUs, messages."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import emu
from emu.datapath.presets import SCALED_MATRIX_UNITS
from emu.formats import ScaledValue, parse

RANDOM = np.random.default_rng(20260902)
PROMOTE = "promote(128, blocks(32, 13), e8m13, toward_zero)"
TILES = emu.Mac(accumulator="fp32", order=PROMOTE, scales="at_promotion")
FP8: dict[str, Any] = {"a_format": "fp8_e4m3", "b_format": "fp8_e4m3"}


def drawn(shape: tuple[int, ...], fmt: str, axis: int = -1) -> ScaledValue:
    return emu.quantize(RANDOM.normal(size=shape).astype(np.float32), fmt, axis=axis)


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return emu.fma(x, y, z, a_format="fp32", b_format="fp32", c_format="fp32", out_format="fp32", backend="reference")


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("depth", [128, 256, 320])
def test_promotion_is_a_sum_of_two_levels(depth: int, backend: str):
    a, b = (emu.quantize(RANDOM.normal(size=shape), "fp8_e4m3") for shape in ((3, depth), (depth, 4)))
    inner = emu.Mac(accumulator="e8m13", order="blocks(32, 13)", rounding="toward_zero")
    state = np.zeros((3, 4), np.float32)
    for start in range(0, depth, 128):
        part = np.s_[start : start + 128]
        options: dict[str, Any] = {"out_format": "fp32", "mac": inner, "backend": "reference"}
        partial = emu.matmul(a[:, part], b[part], **FP8, **options)
        state = fma(np.ones_like(partial), partial, state)
    mac = emu.Mac(accumulator="fp32", order=PROMOTE)
    assert np.array_equal(emu.matmul(a, b, **FP8, out_format="fp32", mac=mac, backend=backend), state)


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(("left", "right"), [("fp8_tile", "fp8_tile_128x128"), ("fp8_tile", "fp8_tile")])
def test_scales_of_tiles_multiply_the_sum_of_a_run_as_it_is_promoted(left: str, right: str, backend: str):
    a, b = drawn((2, 256), left), drawn((256, 128), right, -2)
    inner = emu.Mac(accumulator="e8m13", order="blocks(32, 13)", rounding="toward_zero")
    addend = RANDOM.normal(size=(2, 128)).astype(np.float32)
    state = addend
    across = b.format.tiling.across
    assert across is not None
    for run in range(2):
        part = np.s_[128 * run : 128 * run + 128]
        options: dict[str, Any] = {"out_format": "fp32", "mac": inner, "backend": "reference"}
        partial = emu.matmul(a.array[:, part], b.array[part], **FP8, **options)
        scale = a.scales[0][:, run, None] * np.repeat(b.scales[0][:, run], across)[None, :128]
        state = fma(scale, partial, state)
    got = emu.matmul(a, b, addend=addend, addend_format="fp32", out_format="fp32", mac=TILES, backend=backend)
    assert np.array_equal(got, state)
    narrow = emu.matmul(a, b, addend=addend, addend_format="fp32", out_format="bf16", mac=TILES, backend=backend)
    assert np.array_equal(narrow, emu.quantize(state, "bf16"))


@pytest.mark.parametrize("fmt", ["fp8_tensor", "fp8_row"])
def test_scales_at_the_result_multiply_the_finished_sum_in_float32(fmt: str):
    a, b = drawn((3, 96), fmt), drawn((96, 5), fmt, -2)
    mac = emu.Mac.preset("h100", inputs=fmt)
    plain = emu.Mac(accumulator="e8m13", order="blocks(32, 13)", rounding="toward_zero")
    sums = emu.matmul(a.array, b.array, **FP8, out_format="fp32", mac=plain)
    factor = a.scales[0] * b.scales[0].T
    assert factor.dtype == np.float32
    assert np.array_equal(emu.matmul(a, b, out_format="fp32", mac=mac), sums * factor)
    assert np.array_equal(emu.matmul(a, b, out_format="fp16", mac=mac), emu.quantize(sums * factor, "fp16"))


def test_the_outer_levels_of_nvfp4_multiply_the_finished_sum_in_the_published_order():
    a, b = drawn((3, 64), "nvfp4"), drawn((64, 5), "nvfp4", -2)
    mac = emu.Mac.preset("b200", inputs="nvfp4")
    one = np.ones((1, 1), np.float32)
    steps = "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)"
    inner_a, inner_b = (emu.value((v.array, v.scales[0]), steps, axis=v.axis) for v in (a, b))
    inner = emu.Mac(accumulator="fp32", order=mac.order, rounding="toward_zero", scales="in_block")
    sums = emu.matmul(inner_a, inner_b, out_format="fp32", mac=inner)
    alpha = (a.scales[1] * b.scales[1]) * (one / np.float32(6 * 6 * 448 * 448))
    assert np.array_equal(emu.matmul(a, b, out_format="fp32", mac=mac), sums * alpha)
    torchao = [emu.value((v.array, v.scales[0], v.scales[1]), "nvfp4 nvfp4_torchao", axis=v.axis) for v in (a, b)]
    got = emu.matmul(*torchao, out_format="fp32", mac=mac)
    assert np.array_equal(got, sums * (a.scales[1] * b.scales[1]))


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp4_e2m1", "mxint8", "fp8_tile_128x128", "fp8_row"])
def test_an_exact_unit_takes_scales_as_exact_factors(fmt: str, backend: str):
    a, b = drawn((128, 128), fmt), drawn((128, 128), fmt, -2)
    got = emu.matmul(a, b, out_format="fp64", backend=backend)[:3, :3]
    for i in range(3):
        for j in range(3):
            terms = zip(a.exact()[i].tolist(), b.exact()[:, j].tolist(), strict=True)
            assert got[i, j] == float(sum(Fraction(x) * Fraction(y) for x, y in terms))


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("exponent", [-90, -60, 0, 60, 110])
def test_blocks_far_from_one_are_aligned_as_near_ones_are(exponent: int, backend: str):
    """Scaling an operand by a power of two scales the sums, as long as they stay normal numbers of binary32."""
    mac = emu.Mac.preset("b200", inputs="mxfp8_e4m3")
    x, y = RANDOM.normal(size=(4, 64)).astype(np.float32), RANDOM.normal(size=(64, 33)).astype(np.float32)
    near = emu.matmul(emu.quantize(x, "mxfp8_e4m3"), emu.quantize(y, "mxfp8_e4m3", axis=0), out_format="fp32", mac=mac)
    far = np.ldexp(x.astype(np.float64), exponent)
    got = emu.matmul(
        emu.quantize(far, "mxfp8_e4m3"),
        emu.quantize(y, "mxfp8_e4m3", axis=0),
        out_format="fp64",
        mac=mac,
        backend=backend,
    )
    assert np.array_equal(got, near.astype(np.float64) * 2.0**exponent)


def test_backends_agree_on_products_of_spread_scales_and_special_values():
    mac = emu.Mac.preset("b200", inputs="mxfp8_e5m2")
    x = (RANDOM.normal(size=(9, 96)) * np.exp2(RANDOM.integers(-60, 60, (9, 1)))).astype(np.float32)
    for special in (0.0, np.inf, np.nan):
        x[2, 5] = special
        a = emu.quantize(x, "mxfp8_e5m2 floor ignore_nan")
        b = emu.quantize(RANDOM.normal(size=(96, 40)), "mxfp8_e5m2", axis=0)
        for addend in (None, np.float32(3.0e30), np.float32(1e-40)):
            options: dict[str, Any] = {"out_format": "fp32", "mac": mac}
            if addend is not None:
                options |= {"addend": addend, "addend_format": "fp32"}
            flags = [emu.Flags(), emu.Flags()]
            got = emu.matmul(a, b, **options, backend="numba", flags=flags[0])
            expected = emu.matmul(a, b, **options, backend="reference", flags=flags[1])
            assert np.array_equal(got, expected, equal_nan=True)
            assert str(flags[0]) == str(flags[1])


def test_stacks_and_lines_are_multiplied_as_matrices_are():
    mac = emu.Mac.preset("b200", inputs="mxfp8_e4m3")
    x, y = RANDOM.normal(size=(2, 3, 64)).astype(np.float32), RANDOM.normal(size=(2, 64, 5)).astype(np.float32)
    a, b = emu.quantize(x, "mxfp8_e4m3"), emu.quantize(y, "mxfp8_e4m3", axis=1)
    whole = emu.matmul(a, b, out_format="fp32", mac=mac)
    for i in range(2):
        one = emu.matmul(
            emu.quantize(x[i], "mxfp8_e4m3"), emu.quantize(y[i], "mxfp8_e4m3", axis=0), out_format="fp32", mac=mac
        )
        assert np.array_equal(whole[i], one)
    line = emu.matmul(
        emu.quantize(x[0, 0], "mxfp8_e4m3"), emu.quantize(y[0, :, 0], "mxfp8_e4m3"), out_format="fp32", mac=mac
    )
    assert line == whole[0, 0, 0]
    for fmt in ("fp8_row", "nvfp4"):
        gpu, alone = ("h100", "fp8_row") if fmt == "fp8_row" else ("b200", "nvfp4")
        unit = emu.Mac.preset(gpu, inputs=alone)
        m, n = emu.quantize(x[0], fmt), emu.quantize(y[0], fmt, axis=0)
        whole = emu.matmul(m, n, out_format="fp32", mac=unit)
        row = emu.value((m.array[1], *(s[1 if s.shape[0] > 1 else 0] for s in m.scales)), fmt)
        assert np.array_equal(emu.matmul(row, n, out_format="fp32", mac=unit), whole[1])


def test_a_unit_multiplies_values_that_share_scales():
    unit = emu.Unit("bf16", mac=emu.Mac.preset("b200", inputs="mxfp8_e4m3"), flags=emu.Flags())
    a, b = drawn((3, 64), "mxfp8_e4m3"), drawn((64, 5), "mxfp8_e4m3", -2)
    value = unit.matmul(a, b, emu.value(np.ones(5), "bf16"))
    assert str(value.format) == "bf16"
    mac: dict[str, Any] = {"addend": np.ones(5), "addend_format": "bf16", "out_format": "bf16", "mac": unit.mac}
    assert np.array_equal(np.asarray(value), emu.matmul(a, b, **mac))
    assert unit.flags is not None
    assert unit.flags.inexact > 0


@pytest.mark.parametrize("backend", ["numba"])
def test_a_product_of_scaled_operands_has_a_plan(backend: str):
    a, b = drawn((3, 64), "mxfp8_e4m3"), drawn((64, 5), "mxfp8_e4m3", -2)
    plan = emu.explain(
        emu.matmul, a, b, out_format="fp32", mac=emu.Mac.preset("b200", inputs="mxfp8_e4m3"), backend=backend
    )
    assert plan.path == "in_order"
    assert str(plan.proof).startswith("blocks of 32 products and the accumulator, cut 25 bits below")
    assert emu.explain(emu.matmul, a, b, out_format="fp32", backend=backend).path == "wide"


@pytest.mark.parametrize("unit", SCALED_MATRIX_UNITS, ids=str)
def test_every_unit_multiplies_operands_of_its_format(unit: Any):
    mac = emu.Mac.preset(unit.gpu, inputs=unit.inputs, instruction=unit.instruction)
    a, b = drawn((128, 256), unit.inputs), drawn((256, 128), unit.inputs, -2)
    got = emu.matmul(a[:16] if a.format.tiling.across == 1 else a, b, out_format="fp32", mac=mac)
    near = (np.asarray(a).astype(np.float64) @ np.asarray(b))[: got.shape[0]]
    assert np.abs(got - near).max() < 2e-3 * np.abs(near).max()
    assert str(unit) == f"{unit.gpu} {unit.inputs} -> fp32 ({unit.instruction})"


#: 2**23 - 2**23 - 0.5 - 0.25 - 0.125, as MMA-Sim's paper asks each machine: table 8 of its second version.
ASKED = {
    "v100 fp16": ("fp16", emu.Mac.preset("v100"), 0.0),
    "t4 fp16": ("fp16", emu.Mac.preset("t4"), -0.5),
    "a100 fp16": ("fp16", emu.Mac.preset("a100"), -0.5),
    "ada fp16": ("fp16", emu.Mac.preset("ada"), -0.5),
    "h100 fp16": ("fp16", emu.Mac.preset("h100"), -0.75),
    "b200 fp16": ("fp16", emu.Mac.preset("b200"), -0.75),
    "ada fp8": ("fp8_e5m2", emu.Mac.preset("ada", inputs="fp8_e5m2"), 0.0),
    "h100 fp8": ("fp8_e5m2", emu.Mac.preset("h100", inputs="fp8_e5m2", instruction="wgmma"), 0.0),
    "b200 fp8": ("fp8_e5m2", emu.Mac.preset("b200", inputs="fp8_e5m2", instruction="tcgen05"), -0.75),
}


@pytest.mark.parametrize("machine", ASKED)
def test_a_sum_that_cancels_tells_machines_apart(machine: str):
    fmt, mac, expected = ASKED[machine]
    a, b = np.float32([2**12, -0.5, -0.25, -0.125]), np.float32([-(2**11), 1, 1, 1])
    options: dict[str, Any] = {"addend": 2.0**23, "addend_format": "fp32", "out_format": "fp32", "mac": mac}
    assert emu.matmul(a, b, a_format=fmt, b_format=fmt, **options) == expected


def test_a_sum_that_cancels_keeps_more_where_scales_are_part_of_it():
    """MXFP8 gives -0.75, NVFP4 -0.875: all of it."""
    a, b = np.zeros(64, np.float32), np.zeros(64, np.float32)
    a[[0, 32, 33, 34]], b[[0, 32, 33, 34]] = [2**12, -0.5, -0.25, -0.125], [-(2**11), 1, 1, 1]
    options: dict[str, Any] = {"addend": 2.0**23, "addend_format": "fp32", "out_format": "fp32"}
    mx = emu.Mac.preset("b200", inputs="mxfp8_e4m3")
    left, right = np.zeros(32, np.float32), np.zeros(32, np.float32)
    left[:4], right[:4] = [2**8, -0.5, -0.25, -0.125], [-(2**8), 2.0**-7, 2.0**-7, 2.0**-7]
    scaled = [emu.value((x, np.float32([s])), "mxfp8_e4m3") for x, s in ((left, 2.0**4), (right, 2.0**3))]
    assert emu.matmul(*scaled, **options, mac=mx) == -0.75
    # four of sixteen groups: 16 * 8 times scales of 2**8 each, then 1/2, 1/4 and 1/8
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    x[:8], y[:8], x[[16, 32, 48]], y[[16, 32, 48]] = 4, -4, [-1, -1, -1], [1, 1, 1]
    scales = [np.float32([256, 2**-1, 2**-2, 2**-3]), np.float32([256, 1, 1, 1])]
    fmt = "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)"
    groups = emu.Mac.preset("b200", inputs="mxfp4_e2m1", instruction="tcgen05.mxf4")
    values = [emu.value((v, s), fmt) for v, s in ((x, scales[0]), (y, scales[1]))]
    assert emu.matmul(*values, **options, mac=groups) == -0.875


A, B = drawn((4, 64), "mxfp8_e4m3"), drawn((64, 3), "mxfp8_e4m3", -2)
N, M = drawn((4, 64), "nvfp4"), drawn((64, 3), "nvfp4", -2)
STEP, ROWS = "blocks(32, 25)", "block(fp4_e2m1, fp8_ue4m3 row nvfp4, fp32 tensor)"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: emu.matmul(A, np.ones((64, 3)), out_format="fp32"),
         r"`b` must share scales as the other operand does, got one without; quantize it, or give np.asarray\(other\)"),
        (lambda: emu.matmul(A, drawn((64, 32), "mxfp8_e4m3"), out_format="fp32"),
         r"blocks of `b` must lie along k, axis -2, got axis -1 of shape \(64, 32\); quantize it with axis=-2"),
        (lambda: emu.matmul(A, B, out_format="fp32", mac=emu.Mac(accumulator="fp32", order=STEP)),
         r"must have a place in the Mac, got none for fp8_e8m0 1x32 floor of mxfp8_e4m3; .* scales='in_block'\)"),
        (lambda: emu.matmul(N, M, out_format="fp32"), r"got none for fp8_ue4m3 .* scales='in_block, at_result'"),
        (lambda: emu.matmul(A, B, out_format="fp32", mac=emu.Mac(accumulator="fp32", scales="in_block")),
         "scales must not enter in_block where `order` is sequential, which aligns no exponents"),
        (lambda: emu.matmul(A, B, out_format="fp32", mac=emu.Mac(accumulator="fp32", order=STEP, scales="at_result")),
         "scales that enter at_result must be those of rows or the tensor, got 1x32 of mxfp8_e4m3"),
        (lambda: emu.matmul(A, B, out_format="fp32", mac=TILES),
         "a run of products must have one scale, got promote.* and blocks of 1x32; promote sums of 32"),
        (lambda: emu.matmul(A, B, out_format="fp32", mac=emu.Mac.preset("b200", inputs="nvfp4")),
         "`scales` of the Mac must have a place for each level, those of outer levels at_result"),
        (lambda: emu.matmul(N, emu.value((M.array, *M.scales), "nvfp4 nvfp4_torchao", axis=-2), out_format="fp32",
                            mac=emu.Mac.preset("b200", inputs="nvfp4")),
         "what both operands store at the result must be of one kind, got the rules nvfp4 and nvfp4_torchao"),
        (lambda: emu.matmul(drawn((2, 64), ROWS), drawn((64, 2), ROWS, -2), out_format="fp32",
                            mac=emu.Mac(scales="at_result, at_result")),
         "one level alone may enter at_result, got at_result, at_result for block"),
        (lambda: emu.matmul(A, N.T, out_format="fp32"), "both operands must have as many levels of scales"),
        (lambda: emu.matmul(np.ones((2, 64)), np.ones((64, 2)), **FP8, out_format="fp32",
                            mac=emu.Mac.preset("b200", inputs="nvfp4")),
         "operands must share scales that enter in_block where `order` sums groups"),
        (lambda: emu.matmul(drawn((2, 64), "block(fp4_e2m1, fp8_e8m0 1x8 floor)"),
                            drawn((64, 2), "block(fp4_e2m1, fp8_e8m0 1x8 floor)", -2), out_format="fp32",
                            mac=emu.Mac.preset("b200", inputs="mxfp4_e2m1", instruction="tcgen05.mxf4")),
         "a group of products must have one scale, got blocks.* and blocks of 1x8; sum groups of 8"),
        (lambda: emu.conv2d(A, B, out_format="fp32"), "scales of `x` must be those of the tensor in a convolution"),
        (lambda: emu.Mac(scales="in_blok"), "`scales` must be in_block, .* got 'in_blok'; did you mean"),
        (lambda: emu.Mac(scales="at_promotion"), "must not be at_promotion where `order` is sequential"),
        (lambda: emu.Mac(accumulator="fp32", order="blocks(64, 35, group=7)"), "`group` must divide `n`, .* got 7 of"),
        (lambda: emu.Mac(accumulator="fp32", order="blocks(64, 35, index_order=alternating_pairs, group=16)"),
         "got 16 of 64 alternating_pairs ones; choose a group of 1, or consecutive ones"),
        (lambda: emu.Mac(accumulator="fp32", order="blocks(64, 35, group=24)"),
         "got 24 of 64 .* ones; choose a group of 8"),
        (lambda: emu.Mac(accumulator="fp32", order="promote(128, promote(4, sequential, fp32, floor), fp32, floor)"),
         "`order` inside promote must be another one, got promote"),
        (lambda: emu.Mac(accumulator="fp32", order="promote(128, blocks(32, 13), fix8f4, floor)"),
         "`accumulator` must be a float format where `order` is blocks, got fix8f4"),
        (lambda: emu.Mac(accumulator="fp32", order=PROMOTE, rounding="stochastic"),
         "a unit that promotes sums must not round stochastically, got stochastic and toward_zero"),
        (lambda: emu.Mac(accumulator="fp32", order=PROMOTE.replace("toward_zero", "stochastic")),
         "must not round stochastically, got nearest_even and stochastic"),
        (lambda: emu.Mac(order=PROMOTE), "`accumulator` must be a format where `order` is promote, got exact"),
        (lambda: emu.Mac(accumulator="fp32", order="promote(0, blocks(32, 13), e8m13, floor)"), "`n` must be in 1"),
        (lambda: parse("mxfp8"), "did you mean 'mxfp8_e4m3' or 'mxfp8_e5m2'"),
    ],
)  # fmt: skip
def test_operands_and_units_that_do_not_fit_are_refused_with_the_remedy(action: Any, message: str):
    with pytest.raises(emu.FormatError, match=message):
        action()


def test_squares_and_tensors_are_multiplied_along_either_axis():
    x, w = RANDOM.normal(size=(16, 32)).astype(np.float32), RANDOM.normal(size=(32, 48)).astype(np.float32)
    for fmt, gpu in (("nvfp4_16x16", "b200"), ("fp8_tensor", "h100")):
        mac = emu.Mac.preset(gpu, inputs=fmt)
        values = [emu.quantize(w, fmt, axis=axis) for axis in (-1, -2)]
        products = [emu.matmul(emu.quantize(x, fmt), value, out_format="fp32", mac=mac) for value in values]
        assert np.array_equal(*products)
    stack = emu.quantize(RANDOM.normal(size=(2, 32, 48)), "fp8_tensor", axis=0)
    with pytest.raises(emu.FormatError, match="blocks of `b` must lie along k, axis -2, got axis -3"):
        emu.matmul(
            emu.quantize(x, "fp8_tensor"), stack, out_format="fp32", mac=emu.Mac.preset("h100", inputs="fp8_tensor")
        )


def test_means_of_promoted_sums_are_divided_once():
    x = emu.quantize(RANDOM.normal(size=(300, 3)), "fp8_e4m3")
    mac = emu.Mac(accumulator="fp32", order=PROMOTE)
    unit = emu.Unit("bf16", inputs="fp8_e4m3", mac=mac)
    sums = emu.Unit("fp32", inputs="fp8_e4m3", mac=mac).total(x, 0)
    mean = emu.divide(sums.array, 300.0, a_format="fp32", out_format="bf16")
    assert np.array_equal(unit.average(x, 0).array, mean)
    assert not np.array_equal(unit.total(x, 0).array, mean)


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_recorded_random_bits_of_promoted_sums_have_the_shape_of_the_result(backend: str):
    """x + u / 2**24 floored: u = 0 leaves 0.5 below 1, the largest u does not."""
    mac = emu.Mac(accumulator="fp32", order="promote(2, sequential, fp32, nearest_even)")
    options: dict[str, Any] = {"mac": mac, "out_format": "fix8f0", "rounding": "stochastic", "backend": backend}
    factors = {"a_format": "fp16", "b_format": "fp16"}
    for left, right in (((2, 4), (4, 3)), ((4,), (4, 3)), ((5, 2, 4), (4, 3)), ((4,), (4,))):
        a, b = np.full(left, 0.125), np.ones(right)
        drawn = np.arange(np.matmul(a, b).size).reshape(np.shape(np.matmul(a, b))) % 2
        assert np.array_equal(emu.matmul(a, b, rbits=drawn * (2**24 - 1), **factors, **options), drawn)
    unit = emu.Unit("fix8f0", inputs="fp16", mac=mac, rounding="stochastic", random=emu.RecordedBits([0, 2**24 - 1, 0]))
    assert unit.average(np.full((4, 3), 0.5), 0).tolist() == [0, 1, 0]


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_recorded_random_bits_may_be_wider_than_those_of_intermediate_results(backend: str):
    a, b = emu.quantize(np.ones((3, 32)), "fp8_row"), emu.quantize(np.full((32, 2), 0.515625), "fp8_row", axis=0)
    options: dict[str, Any] = {"mac": emu.Mac.preset("h100", inputs="fp8_row"), "backend": backend}
    drawn = np.array([[0, 2**32 - 1], [2**31 - 1, 2**31], [2**30, 3 * 2**30]])
    written = emu.matmul(a, b, out_format="fix8f0", rounding="stochastic", n_rbits=32, rbits=drawn, **options)
    assert np.array_equal(written, 16 + (drawn >= 2**31))


def test_flags_of_a_product_of_several_steps_are_those_of_the_last_one():
    """0 times an infinite product of scales is NaN, the operand of the step that writes it."""
    x = np.full((1, 64), 1e38)
    x[0, 32:] = -1e38
    a, b = emu.quantize(x, "fp8_row"), emu.quantize(np.full((64, 1), 3e38), "fp8_row", axis=0)
    flags = emu.Flags()
    mac = emu.Mac.preset("h100", inputs="fp8_row")
    assert np.isnan(emu.matmul(a, b, out_format="fp32", mac=mac, flags=flags)).all()
    assert not any(flags.counts())
    # a format without NaN writes 0 in the last step, and counts it
    emu.matmul(a, b, out_format="fix8f0", mac=mac, flags=flags)
    assert flags.invalid == 1


def test_flags_do_not_count_what_overflows_in_a_run_of_promoted_sums():
    flags = emu.Flags()
    mac = emu.Mac(accumulator="fp32", order="promote(2, sequential, fp16, nearest_even)")
    x = np.full((1, 4), 60000.0)
    options: dict[str, Any] = {"a_format": "fp16", "b_format": "fp16", "out_format": "fp32", "mac": mac, "flags": flags}
    assert np.isinf(emu.matmul(x, np.ones((4, 1)), **options)).all()
    assert not any(flags.counts())


def test_a_line_on_the_right_has_its_scale_at_the_result():
    mac = emu.Mac.preset("h100", inputs="fp8_row")
    x, y = RANDOM.normal(size=(3, 64)), RANDOM.normal(size=64)
    a, b = emu.quantize(x, "fp8_row"), emu.quantize(y, "fp8_row")
    column = emu.quantize(y[:, None], "fp8_row", axis=0)
    assert np.array_equal(
        emu.matmul(a, b, out_format="fp32", mac=mac), emu.matmul(a, column, out_format="fp32", mac=mac)[:, 0]
    )
    assert emu.matmul(b, b, out_format="fp32", mac=mac).shape == ()
