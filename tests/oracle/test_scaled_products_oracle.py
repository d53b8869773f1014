"""Products of operands that share scales, against models of their own: fractions, and MMA-Sim where it is installed.

MMA-Sim (Xie et al., arXiv 2511.10909) needs PyTorch, which is no dependency of the tests: `pip install torch==2.13.0
mmasim==2.1.1` runs them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import emu
from emu.formats import ScaledValue, parse

PAIRS = [("fp8_e4m3", "fp8_e4m3"), ("fp8_e5m2", "fp8_e4m3"), ("fp6_e2m3", "fp6_e3m2"), ("fp4_e2m1", "fp8_e5m2"),
         ("fp4_e2m1", "fp4_e2m1")]  # fmt: skip
#: PTX's names of element formats.
PTX = {"fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2", "fp6_e2m3": "e2m3", "fp6_e3m2": "e3m2", "fp4_e2m1": "e2m1"}
STEP = emu.Mac.preset("b200", inputs="mxfp8_e4m3")
GROUPS = emu.Mac.preset("b200", inputs="mxfp4_e2m1", instruction="tcgen05.mxf4")


def drawn(random: np.random.Generator, fmt: str, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Return codes of finite elements: any, small ones, many zeros, or pairs that cancel."""
    element = parse(fmt)
    sign = 1 << (element.width_bits - 1)
    top = element.max_code
    if kind == "small":
        top = min(top, 1 << element.fraction_bits)
    codes = random.integers(0, top + 1, shape) | random.integers(0, 2, shape) * sign
    if kind == "zeros":
        codes = np.where(random.random(shape) < 0.8, codes & sign, codes)
    if kind == "cancelling":
        half = shape[1] // 2
        codes[:, half:] = codes[:, :half]
    return codes.astype(element.code_dtype)


def operand(random: np.random.Generator, fmt: str, scale: str, block: int, shape: tuple[int, int], kind: str) -> Any:
    """Return a value (rows, K) with drawn codes and scales, some of them zero or NaN if the scale format has them."""
    rule = "rceil" if scale == "fp8_e8m0" else "nvfp4_one_level"
    codes = drawn(random, fmt, shape, kind)
    scales = parse(scale)
    spread = {"any": 127, "small": 6, "zeros": 20, "cancelling": 3, "low": 12}[kind]
    if scale == "fp8_e8m0":
        middle = 127 if kind != "low" else 14
        exponents = random.integers(middle - spread, middle + spread + 1, (shape[0], shape[1] // block))
        scale_codes = np.clip(exponents, 0, 254)
    else:
        scale_codes = random.integers(0, 127, (shape[0], shape[1] // block))
        scale_codes[random.random(scale_codes.shape) < 0.05] = 0
    elements = parse(fmt).decode(codes)
    return emu.value((elements, scales.decode(scale_codes.astype(np.uint8))), f"block({fmt}, {scale} 1x{block} {rule})")


def addends(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    exponents = random.integers(-140, 60, shape)
    x = np.ldexp(random.normal(size=shape), exponents).astype(np.float32)
    return np.where(random.random(shape) < 0.4, np.float32(0), x)


def floor_log2(x: Fraction) -> int:
    e = abs(x).numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= abs(x) else e - 1


def toward_zero(x: Fraction) -> float:
    """Return a binary32 cut toward zero; infinity from 2**128 on."""
    if x == 0:
        return 0.0
    step = Fraction(2) ** (max(floor_log2(x), -126) - 23)
    cut = math.trunc(x / step) * step
    return math.copysign(math.inf, x) if abs(cut) >= Fraction(2) ** 128 else float(cut)


def exponent_of(x: float, least: int) -> int:
    return max(math.frexp(x)[1] - 1, least)


def stepped(a: ScaledValue, b: ScaledValue, c: float, i: int, j: int, *, block: int) -> float:
    """Return one result of the unit whose products have their scales' exponents: BLOCKS of 32 with 25 bits."""
    least = [parse(str(v.format.element)).emin for v in (a, b)]
    for start in range(0, a.shape[1], 32):
        terms: list[tuple[Fraction, int]] = []
        for k in range(start, start + 32):
            x, y = float(a.array[i, k]), float(b.array[k, j])
            s, t = float(a.scales[0][i, k // block]), float(b.scales[0][j, k // block])
            e = exponent_of(x, least[0]) + exponent_of(y, least[1]) + exponent_of(s, -127) + exponent_of(t, -127)
            terms.append((Fraction(x) * Fraction(y) * Fraction(s) * Fraction(t), e if x and y else -133))
        terms.append((Fraction(0 if math.isinf(c) else c), exponent_of(c, -126) if c else -133))
        c = c if math.isinf(c) else toward_zero(cut_sum(terms, 25, -133))
    return c


def grouped(a: ScaledValue, b: ScaledValue, c: float, i: int, j: int, *, block: int, least: int) -> float:
    """Return one result of the unit that sums groups of 16 exactly: steps of 64 with 35 bits."""
    for start in range(0, a.shape[1], 64):
        terms: list[tuple[Fraction, int]] = []
        for first in range(start, start + 64, 16):
            s, t = float(a.scales[0][i, first // block]), float(b.scales[0][j, first // block])
            products = [
                Fraction(float(a.array[i, k])) * Fraction(float(b.array[k, j])) for k in range(first, first + 16)
            ]
            is_zero = not any(products) or s == 0 or t == 0
            e = exponent_of(s, least) + exponent_of(t, least)
            terms.append((sum(products, Fraction(0)) * Fraction(s) * Fraction(t), -139 if is_zero else e))
        terms.append((Fraction(0 if math.isinf(c) else c), exponent_of(c, -126) if c else -139))
        c = c if math.isinf(c) else toward_zero(cut_sum(terms, 35, -139))
    return c


def cut_sum(terms: list[tuple[Fraction, int]], bits: int, floor: int) -> Fraction:
    last = Fraction(2) ** (max(max(e for _, e in terms), floor) - bits)
    return sum((math.trunc(x / last) * last for x, _ in terms), Fraction(0))


@pytest.mark.parametrize("kind", ["any", "small", "zeros", "cancelling", "low"])
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_a_step_of_32_products_is_cut_below_the_largest_exponent_with_scales(left: str, right: str, kind: str):
    random = np.random.default_rng([1, len(left + right), len(kind)])
    a = operand(random, left, "fp8_e8m0", 32, (4, 64), kind)
    b = operand(random, right, "fp8_e8m0", 32, (5, 64), kind).T
    c = addends(random, (4, 5))
    got = emu.matmul(a, b, addend=c, addend_format="fp32", out_format="fp32", mac=STEP)
    expected = [[stepped(a, b, float(c[i, j]), i, j, block=32) for j in range(5)] for i in range(4)]
    assert np.array_equal(got, np.float32(expected))
    assert not np.signbit(got[got == 0]).any()


@pytest.mark.parametrize("kind", ["any", "zeros", "cancelling", "low"])
@pytest.mark.parametrize(("scale", "block"), [("fp8_e8m0", 32), ("fp8_e8m0", 16), ("fp8_ue4m3", 16)])
def test_a_group_of_16_products_has_the_exponent_of_its_scales(scale: str, block: int, kind: str):
    random = np.random.default_rng([2, block, len(kind), len(scale)])
    a = operand(random, "fp4_e2m1", scale, block, (4, 128), kind)
    b = operand(random, "fp4_e2m1", scale, block, (5, 128), kind).T
    c = addends(random, (4, 5))
    got = emu.matmul(a, b, addend=c, addend_format="fp32", out_format="fp32", mac=GROUPS)
    least = -127 if scale == "fp8_e8m0" else -6
    expected = [[grouped(a, b, float(c[i, j]), i, j, block=block, least=least) for j in range(5)] for i in range(4)]
    assert np.array_equal(got, np.float32(expected))


def torch_codes(torch: Any, codes: np.ndarray, fmt: str) -> Any:
    """Return codes as MMA-Sim's steps read them: 4 bits lie in the middle of a byte."""
    raw = torch.from_numpy(np.ascontiguousarray(codes.astype(np.uint8)))
    if fmt == "fp4_e2m1":
        return raw << 2
    return raw.view({"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}.get(fmt, torch.uint8))


@pytest.mark.parametrize("kind", ["any", "small", "zeros", "cancelling", "low"])
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_a_step_of_32_products_equals_mma_sim(left: str, right: str, kind: str):
    torch, fdpa = pytest.importorskip("torch"), pytest.importorskip("mmasim.arithmetic.fdpa")
    unit = fdpa.MMA_ST_FDPA(25, "RZ-FP32", 32, -133, PTX[left], PTX[right])
    random = np.random.default_rng([3, len(left + right), len(kind)])
    a = operand(random, left, "fp8_e8m0", 32, (24, 32), kind)
    b = operand(random, right, "fp8_e8m0", 32, (20, 32), kind)
    c = addends(random, (24, 20))
    theirs = unit(
        torch_codes(torch, a.codes, left), torch_codes(torch, b.codes, right).T, torch.from_numpy(c),
        torch.from_numpy(a.scale_codes[0]).view(torch.float8_e8m0fnu),
        torch.from_numpy(b.scale_codes[0]).view(torch.float8_e8m0fnu).T,
    )  # fmt: skip
    for backend in ("reference", "numba"):
        options: dict[str, Any] = {"addend_format": "fp32", "out_format": "fp32", "mac": STEP, "backend": backend}
        got = emu.matmul(a, b.T, addend=c, **options)
        assert np.array_equal(got, theirs.numpy(), equal_nan=True)


@pytest.mark.parametrize("kind", ["any", "zeros", "cancelling", "low"])
@pytest.mark.parametrize(("scale", "block"), [("fp8_e8m0", 32), ("fp8_e8m0", 16), ("fp8_ue4m3", 16)])
def test_a_group_of_16_products_equals_mma_sim(scale: str, block: int, kind: str):
    torch, fdpa = pytest.importorskip("torch"), pytest.importorskip("mmasim.arithmetic.fdpa")
    unit = fdpa.MMA_GST_FDPA(16, 35, "RZ-FP32", 64, -139)
    random = np.random.default_rng([4, block, len(kind), len(scale)])
    a = operand(random, "fp4_e2m1", scale, block, (40, 64), kind)
    b = operand(random, "fp4_e2m1", scale, block, (40, 64), kind)
    c = addends(random, (40, 40))
    numbers = [torch.from_numpy(np.array(v.array, np.float16)) for v in (a, b)]
    dtype = torch.float8_e8m0fnu if scale == "fp8_e8m0" else torch.float8_e4m3fn
    codes = [torch.from_numpy(v.scale_codes[0]).view(dtype) for v in (a, b)]
    theirs = unit(numbers[0], numbers[1].T, torch.from_numpy(c), codes[0], codes[1].T)
    for backend in ("reference", "numba"):
        options: dict[str, Any] = {"addend_format": "fp32", "out_format": "fp32", "mac": GROUPS, "backend": backend}
        got = emu.matmul(a, b.T, addend=c, **options)
        assert np.array_equal(got, theirs.numpy(), equal_nan=True)
