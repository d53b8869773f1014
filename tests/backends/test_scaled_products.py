"""Blocks of products whose operands share scales: compiled code gives the reference's bits, or leaves them to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from variants import assert_same_everywhere, needs_vectors

import emu
from emu import Mac
from emu.backends.numba import centred
from emu.backends.numba.ways import groups_in_tiles
from emu.backends.numba.ways.groups_in_tiles import LARGEST_GROUP, Step
from emu.backends.reference import blocks
from emu.formats import ScaledValue

SHORT = "block(fp8_e4m3, fp8_e8m0 1x8 floor)"
MX = Mac.preset("b200", inputs="mxfp8_e4m3")


def drawn(seed: int, shape: tuple[int, int], spread: int = 3) -> np.ndarray:
    """Return normal numbers times powers of two, one for each row and four columns."""
    random = np.random.default_rng(seed)
    x = random.normal(size=shape)
    x[random.random(shape) < 0.2] = 0
    return np.ldexp(
        x, np.repeat(random.integers(-spread, spread + 1, (shape[0], -(-shape[1] // 4))), 4, 1)[:, : shape[1]]
    )


def operands(fmt: str, x: np.ndarray, y: np.ndarray) -> tuple[ScaledValue, ScaledValue]:
    return emu.quantize(x, fmt), emu.quantize(y, fmt, axis=0)


def check(a: ScaledValue, b: ScaledValue, mac: Mac, out: str = "fp32", note: Any = "", **more: Any) -> np.ndarray:
    if "addend" in more:
        more |= {"addend_format": "fp32"}
    return assert_same_everywhere(
        lambda **where: emu.matmul(a, b, out_format=out, mac=mac, **more, **where), out, note, lowest=-60, bins=120
    )


@pytest.mark.parametrize("floor", [-133, -3, 5, 20, 96, 110, 128])
def test_a_floor_above_the_exponents_of_scaled_operands_cuts_as_the_reference_does(floor: int):
    mac = Mac(
        accumulator="fp32", order=f"blocks(32, 25, min_exponent={floor})", rounding="toward_zero", scales="in_block"
    )
    check(*operands("mxfp8_e4m3", drawn(1, (5, 64)), drawn(2, (64, 33))), mac, note=floor)


def test_products_that_fill_up_a_last_block_have_no_exponents():
    """40 products: those of the last block of 32 are small, and 24 of them are missing."""
    x, y = drawn(3, (5, 40)), drawn(4, (40, 33))
    x[:, 32:] *= 2.0**-20
    x[:, :32], y[0] = 0, 0
    x[0, 0] = 2.0**40  # times 0: it moves the middle of all exponents far above the others
    check(*operands(SHORT, x, y), MX)


# ---- every bit of elements times scales -----------------------------------------------------------------------------


def widest(fmt: str, element: float, scale: float, shape: tuple[int, int]) -> tuple[ScaledValue, ScaledValue]:
    """Return two operands of a format with one level of scales, (M, K) and (K, N), every number element * scale."""
    along = emu.parse(fmt).levels[0].tiling.along
    m, k = shape
    parts = np.full((m, k), element, np.float32), np.full((m, -(-k // along)), scale, np.float32)
    return emu.value(parts, fmt), emu.value(parts, fmt).T


def test_an_exact_sum_keeps_the_last_bit_of_elements_times_scales():
    """1.5 * 1.875 is 45/16, of 6 bits, and its square is 2025/256."""
    a, b = widest("block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)", 1.5, 1.875, (1, 1))
    assert check(a, b, Mac(scales="in_block")).item() == 2025 / 256


def test_exact_products_of_54_bits_keep_the_last():
    """A = 7 * (2**24 - 1): from A * A, 54 bits, the upper ones are subtracted in pieces, and the last one remains."""
    fmt, product = "block(fp8_e5m2, ue5m23 1x2 nvfp4_one_level)", (7 * (2**24 - 1)) ** 2
    # in units of 2**-50 this is the square of the element 7/4 and the scale 2 - 2**-23
    left, right, scales, rest = [1.75, 0], [1.75, 0], ([2 - 2.0**-23], [2 - 2.0**-23]), product - 1
    while rest:
        places = max(rest.bit_length() - 24, 0)
        piece, exponent = rest >> places << places, rest.bit_length() - 51
        # its exponent is shared out among two elements and a scale, none of which reaches so far
        left += [-(2.0 ** (exponent // 3)), 0]
        right += [2.0 ** (exponent // 3), 0]
        scales[0].append(math.ldexp(piece, -50 - 2 * (exponent // 3)))
        scales[1].append(1)
        rest -= piece
    a, b = (emu.value((np.float32([x]), np.float32([y])), fmt) for x, y in ((left, scales[0]), (right, scales[1])))
    assert check(a, b.T, Mac()).item() == 2.0**-50


def test_an_element_times_its_scale_is_not_rounded_where_it_has_25_bits():
    fmt, (element, scale) = "block(fp16, ue4m13 1x16 nvfp4_one_level)", (2 - 2.0**-10, 2 - 2.0**-13)
    ones = emu.value((np.float32([[1]]), np.float32([[1]])), fmt).T
    a, _ = widest(fmt, element, scale, (1, 1))
    product = emu.matmul(a, ones, out_format="fp64", mac=Mac(scales="in_block"), backend="reference")
    assert product.item() == (2**11 - 1) * (2**14 - 1) / 2**23


@pytest.mark.parametrize("order", ["blocks(16, 25)", "blocks(3, 27)", "blocks(32, 24)"])
def test_blocks_of_the_largest_significands_of_elements_and_scales_are_the_same(order: str):
    """Elements times scales are up to 3.75 relative to their exponents: in such units 16 products pass 2**31."""
    for element, scale in ((1.5, 1.875), (-1.5, 1.875), (6.0, 240.0)):
        a, b = widest("block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)", element, scale, (33, 64))
        check(a[:5], b, unit(order), note=(order, element))


# ---- groups of products ---------------------------------------------------------------------------------------------

NV = "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)"
POWERS = "block(fp4_e2m1, fp8_e8m0 1x16 rceil)"
GROUPS = "blocks(64, 35, min_exponent=-139, group=16)"


def unit(order: str = GROUPS, rounding: str = "toward_zero", **more: Any) -> Mac:
    return Mac(**{"accumulator": "fp32", "order": order, "rounding": rounding, "scales": "in_block", **more})


def value(random: np.random.Generator, fmt: str, shape: tuple[int, int], scale_codes: Any = None) -> ScaledValue:
    """Return any elements, a third of them 0, with the scales of these codes, or any: one in ten is the least."""
    parsed = emu.parse(fmt)
    element, scale = parsed.element, parsed.levels[0].scale
    counts = shape[0], -(-shape[1] // parsed.levels[0].tiling.along)
    codes = random.integers(0, 1 << element.width_bits, shape).astype(element.code_dtype)
    elements = np.nan_to_num(element.decode(codes), posinf=1, neginf=-1) * (random.random(shape) > 0.3)
    if scale_codes is None:
        middle, spread = (127, 12) if scale.fraction_bits == 0 else (64, 60)
        scale_codes = random.integers(middle - spread, middle + spread, counts)
        scale_codes = np.where(random.random(counts) < 0.1, 0 if scale.fraction_bits else middle - spread, scale_codes)
    return emu.value((elements, scale.decode(np.broadcast_to(scale_codes, counts).astype(np.uint8))), fmt)


@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
@pytest.mark.parametrize("fmt", [NV, POWERS, "mxfp4_e2m1", "block(fp6_e2m3, fp8_ue4m3 1x16 nvfp4_one_level)"])
def test_groups_of_every_size_are_the_same(fmt: str, rounding: str):
    """Rows around tiles of 4, columns around panels of 32, depths around groups and blocks; addends; outputs."""
    random = np.random.default_rng([1, len(fmt)])
    for i, n in enumerate((1, 31, 32, 33, 65)):
        m, depth = (3, 4, 5, 1, 9)[i], (1, 17, 64, 80, 200)[i]
        a, b = value(random, fmt, (m, depth)), value(random, fmt, (n, depth)).T
        out = ("fp32", "bf16", "fp16")[i % 3]
        check(a, b, unit(rounding=rounding), out, (fmt, depth))
        addend = np.ldexp(random.normal(size=(m, n)), random.integers(-30, 30, (m, n))).astype(np.float32)
        check(a, b, unit(rounding=rounding), out, (fmt, depth), addend=addend * (random.random((m, n)) < 0.7))


@needs_vectors
@pytest.mark.parametrize("fmt", [NV, POWERS])
def test_the_definition_is_not_asked_for_groups_near_each_other(fmt: str, monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(2)
    a, b = value(random, fmt, (5, 128)), value(random, fmt, (33, 128)).T
    expected = emu.matmul(a, b, out_format="fp32", mac=unit(), backend="reference")
    monkeypatch.setattr(blocks, "block_sums", None)
    assert np.array_equal(emu.matmul(a, b, out_format="fp32", mac=unit(), backend="numba"), expected)


def groups(*parts: tuple[float, float, float]) -> tuple[ScaledValue, ScaledValue]:
    """Return a line of groups of 16, 12 products x * y and 4 of 0 in each, whose scales are both s, for (x, y, s)."""
    lines = [np.zeros(16 * len(parts), np.float32) for _ in range(2)]
    for i, (x, y, _) in enumerate(parts):
        lines[0][16 * i : 16 * i + 12], lines[1][16 * i : 16 * i + 16] = x, y
    scales = np.float32([s for *_, s in parts])
    a, b = (emu.value((line[None], scales[None]), NV) for line in lines)
    return a, b.T


@pytest.mark.parametrize("far", [2.0**-k for k in range(1, 10)])
def test_a_group_far_below_another_is_cut_at_every_place(far: float):
    """Scales from 2**8 * 2**8 down to 2**-9 * 2**-9, the last three of which are subnormal: 34 places apart."""
    for near in (2.0**8, 240.0, 2.0**-6):
        for sign in (1.0, -1.0):
            a, b = groups((6.0, 0.5, near), (sign * 0.5, 0.5, far), (sign * 1.5, 0.5, far * 2), (0.5, -0.5, far))
            check(a, b, unit(), note=(near, far))
            check(a, b, unit(GROUPS.replace("35", "20")), note=(near, far))


def test_a_group_of_zeros_has_no_exponent_and_one_that_cancels_keeps_its_own():
    small = (0.5, 0.5, 2.0**-9)
    zeros, cancelling = groups((0.0, 6.0, 256.0), small), groups((6.0, 6.0, 256.0), small)
    cancelling[0].array.flags.writeable = True
    cancelling[0].array[0, :6] *= -1
    # exponents: 16 of the first group, -12 of the second, whose scales are subnormal, -14 of the addend
    addend = np.float32([[2.0**-14 + 2.0**-32]])
    order = GROUPS.replace("35", "20")
    kept = [check(*pair, unit(order), addend=addend)[0, 0] for pair in (zeros, cancelling)]
    assert kept[0] == np.float32(12 * 2.0**-20) + addend[0, 0]
    assert kept[1] == 0
    # zeros of one operand where the other one has numbers, all the way
    a, b = groups((6.0, 6.0, 256.0), small)
    for x, part in ((a.array, np.s_[:, :6]), (b.array.base, np.s_[:, 6:12])):
        x.flags.writeable = True
        x[part] = 0
    assert check(a, b, unit(order), addend=addend)[0, 0] == kept[0]


def test_a_group_of_32_uses_every_bit_of_a_word():
    """A number in each place of a group of either operand: where they meet, the next group is far below and is cut."""
    elements = np.zeros((32, 64), np.float32)
    elements[:, :32], elements[:, 63] = 6 * np.eye(32), 0.5
    scales = np.tile(np.float32([[1, 2.0**-19]]), (32, 1))
    a = emu.value((elements, scales), "mxfp4_e2m1")
    b = emu.value((np.where(elements == 0.5, np.float32(-0.5), elements), scales), "mxfp4_e2m1").T
    got = check(a, b, unit("blocks(64, 38, min_exponent=-139, group=32)"))
    assert np.array_equal(got, np.where(np.eye(32), 36, -(2.0**-40)))
    assert LARGEST_GROUP == 32


def test_a_scale_of_zero_makes_a_group_of_zeros():
    check(*groups((6.0, 6.0, 0.0), (0.5, 0.5, 2.0**-9), (0.5, -0.5, 2.0**-9)), unit())
    check(*groups((6.0, 6.0, 0.0)), unit(), addend=np.float32([[-0.0]]))
    check(*groups((6.0, 6.0, 0.0)), unit(), addend=np.float32([[-1.5]]))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_of_groups_are_the_same(sign: int):
    """Every element 6, every scale 15 * 2**4 or 14 * 2**5: what comes nearest to the widest sums, either way."""
    elements = np.full((33, 256), np.float32(6))
    for scale in (240.0, 448.0):
        scales = np.full((33, 16), np.float32(scale))
        a, b = emu.value((sign * elements, scales), NV), emu.value((elements, scales), NV).T
        for order in (GROUPS, "blocks(64, 38, group=16)", "blocks(64, 39, group=16)", "blocks(8, 3, group=4)"):
            check(a[:5], b, unit(order), note=order)


@pytest.mark.parametrize("floor", [-139, -40, -3, 5, 20, 96, 128])
def test_a_floor_above_the_exponents_of_groups_cuts_as_the_reference_does(floor: int):
    random = np.random.default_rng(5)
    a, b = value(random, NV, (5, 64)), value(random, NV, (33, 64)).T
    mac = unit(f"blocks(64, 20, min_exponent={floor}, group=16)")
    check(a, b, mac, note=floor)
    # negative terms alone, all of which may be cut to nothing: +0
    negative = emu.value((-np.abs(a.array) - (a.array == 0), a.scales[0]), NV)
    positive = emu.value((np.abs(b.array) + (b.array == 0), b.scales[0]), NV, axis=0)
    check(negative, positive, mac, note=floor, addend=np.float32(-(2.0**-20)))


@pytest.mark.parametrize("middle", [8, 30, 60, 127, 160, 190, 240])
def test_groups_near_the_ends_of_float32_are_the_same(middle: int):
    """Scales that are powers of two, so that sums are subnormal, normal or infinite."""
    random = np.random.default_rng([6, middle])
    codes = random.integers(middle - 6, middle + 7, (9, 8))
    a, b = value(random, POWERS, (9, 128), codes), value(random, POWERS, (5, 128), codes[:5]).T
    check(a, b, unit(), "fp32", middle)
    check(a, b, unit(), "fp32", middle, addend=np.float32(2.0**-149))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3e38, 1e-45])
def test_scales_that_are_nan_and_addends_that_are_special_are_the_same(special: float):
    random = np.random.default_rng(7)
    a, b = value(random, NV, (5, 64)), value(random, NV, (3, 64)).T
    check(a, b, unit(), addend=np.float32(special))
    if np.isnan(special):
        scales = np.array(a.scales[0])
        scales[2, 1] = special
        check(emu.value((a.array, scales), NV), b, unit())


def test_stacks_of_groups_and_one_matrix_for_all_are_the_same():
    random = np.random.default_rng(8)
    wide = [value(random, NV, (12, 64)) for _ in range(2)]
    a = emu.value((wide[0].array.reshape(3, 4, 64), wide[0].scales[0].reshape(3, 4, 4)), NV)
    b = emu.value((wide[1].array.reshape(3, 4, 64), wide[1].scales[0].reshape(3, 4, 4)), NV).transpose(0, 2, 1)
    one = value(random, NV, (4, 64))
    for left, right in ((a, b), (a, one.T), (one, b)):
        got = check(left, right, unit())
        assert got.shape == (3, 4, 4)
        check(left, right, unit(), addend=np.arange(3, dtype=np.float32)[:, None, None])


@pytest.mark.parametrize(
    ("digits", "group", "bits", "holds"),
    [(16, 16, 38, True), (16, 16, 39, False), (20, 16, 20, True), (21, 16, 20, False), (19, 32, 20, True)],
)
def test_sums_are_held_up_to_24_bits_of_a_group_and_53_of_a_block(digits: int, group: int, bits: int, holds: bool):
    step = Step(64, group, bits, 1)
    assert groups_in_tiles._holds(step, (8, digits - 8), (4, 4)) is holds


@needs_vectors
@pytest.mark.parametrize(
    ("order", "more", "reason"),
    [
        (GROUPS, {"accumulator": "bf16"}, "the accumulator of groups is no float32 that becomes infinite"),
        (GROUPS, {"overflow": "satfinite"}, "the accumulator of groups is no float32 that becomes infinite"),
        (GROUPS, {"rounding": "floor"}, "sums of groups are rounded neither toward zero nor to nearest even"),
        ("blocks(64, 35, addend=after, group=16)", {}, "the accumulator is added after its groups"),
        ("blocks(128, 35, group=64)", {}, "groups have more than 32 products"),
        ("blocks(32, 31)", {}, "only the definition aligns operands by the exponents of their scales"),
        (GROUPS, {}, ""),
    ],
)
def test_a_unit_of_groups_that_is_left_to_the_definition_has_a_reason(order: str, more: dict[str, Any], reason: str):
    a, b = operands("block(fp4_e2m1, fp8_e8m0 1x64 floor)", np.ones((2, 128)), np.ones((128, 3)))
    mac = unit(order, **more)
    assert emu.explain(emu.matmul, a, b, out_format="fp32", mac=mac, backend="numba").fallback == reason
    check(a, b, mac)


@needs_vectors
def test_an_addend_wider_than_float32_is_left_to_the_definition():
    a, b = groups((6.0, 6.0, 1.0))
    more: dict[str, Any] = {"addend": np.float64([[2.0**-60]]), "addend_format": "fp64", "out_format": "fp32"}
    plan = emu.explain(emu.matmul, a, b, mac=unit(), backend="numba", **more)
    assert plan.fallback == "the addend of groups is wider than float32 or flushes subnormals"
    results = [emu.matmul(a, b, mac=unit(), backend=name, **more) for name in ("numba", "reference")]
    assert np.array_equal(*results)


def test_what_is_measured_of_an_operand_leaves_out_zeros():
    """6 * 240 is 180 * 2**(7 - 4), 8 bits whose leading one is 2**10; -6 * 2**-9 is -12 * 2**(-6 - 4)."""
    x, exponents = np.float32([[1440, 0, -12 * 2.0**-10]]), np.int32([[7, 50, -6]])
    assert centred._range_of(x, exponents, 4) == (-6, 7, 10, 8)
    assert centred._range_of(x[:, 1:2], exponents, 4) == (0, 0, 0, 0)
    for special in (np.inf, np.nan):
        assert centred._range_of(np.float32([special]), exponents, 4) is None
