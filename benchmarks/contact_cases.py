"""Operations of every kernel on numbers that any NumPy makes alike, and hashes of all they write and count.

Numbers come from integers alone (SplitMix64), so that no version of a random generator decides them: zeros of both
signs, subnormals, the ends of ranges, infinities, NaN, and words drawn over all exponents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import emu
from emu.backends.arrays import on_host
from emu.backends.gathered import Gathered
from emu.backends.modes import HAND_WRITTEN
from emu.datapath import Rounding
from emu.engine import selection

Array = Any
#: Brings an array to where a backend computes.
Bring = Callable[[Array], Array]
#: Returns what a case writes, and counts.
Case = Callable[[Bring, str], "Seen"]
#: Results of the large cases.
LARGE = 2**20 + 1
SIZES = (0, 1, 3, 4099)
STAGES = ("fix8f4", "ufix8f3", "fix16f8", "fix32f12", "fp16", "bf16", "fp8_e4m3", "e2m1 finite nans=none", "fp32")
RANDOM = {"seed": 3, "stream": 9, "step": 1}
FUNCTIONS = ("exp", "log", "tanh", "sigmoid", "erf", "gelu", "rsqrt")
EDGES = (
    0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF,
    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
)  # fmt: skip


class Seen:
    """What a case wrote and counted, in order."""

    def __init__(self) -> None:
        self.register, self.flags = emu.StatisticsRegister(-30, 60), emu.Flags()
        self.arrays: list[Array] = []

    @property
    def counted(self) -> dict[str, Any]:
        """Options of an operation whose results are counted here."""
        return {"register": self.register, "flags": self.flags}

    def add(self, *arrays: Array) -> None:
        """Take results."""
        self.arrays += arrays

    def sha256(self) -> str:
        """Return the hash of everything; NaN counts as one pattern."""
        digest = hashlib.sha256(json.dumps([self.register.to_dict(), self.flags.counts()], sort_keys=True).encode())
        for x in map(on_host, self.arrays):
            plain = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x) if x.dtype.kind == "f" else x
            digest.update(f"{x.dtype.str}{x.shape}".encode() + np.ascontiguousarray(plain).tobytes())
        return digest.hexdigest()


def words(n: int, seed: int) -> Array:
    """Return n words of 64 bits: SplitMix64 of their places."""
    with np.errstate(over="ignore"):
        z = (np.arange(n, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def floats(n: int, seed: int = 1) -> Array:
    """Return n float32: edges, then words, three of four of them near 1."""
    drawn = words(n, seed)
    bits = (drawn >> np.uint64(32)).astype(np.uint32)
    near = (bits & np.uint32(0x807FFFFF)) | (
        (np.uint32(110) + (drawn & np.uint64(31)).astype(np.uint32)) << np.uint32(23)
    )
    bits = np.where(drawn & np.uint64(0x300), near, bits)
    bits[: len(EDGES)] = EDGES[:n]
    return bits.view(np.float32)


def doubles(n: int, seed: int = 2) -> Array:
    """Return n float64: edges, then float32 with more bits below."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide = floats(n, seed).astype(np.float64)
    return (
        wide.view(np.uint64) | np.where(np.isfinite(wide) & (wide != 0), words(n, seed + 7) >> np.uint64(36), 0)
    ).view(np.float64)


def operands(fmt: str, shape: tuple[int, ...], seed: int) -> Array:
    """Return values of a format from drawn codes; of a float format without its largest exponents."""
    found, n = emu.parse(fmt), int(np.prod(shape))
    codes = words(n, seed) >> np.uint64(64 - found.width_bits)
    values = found.decode(codes)
    if isinstance(found, emu.Float) and seed % 2:  # one operand in two is finite, and not too large to add up
        values = np.where(np.abs(values) < 1024, values, np.asarray(1.5, values.dtype))
    return values.reshape(shape)


# ---- the cases ------------------------------------------------------------------------------------------------------


def quantized(fmt: str, mode: str, n: int) -> Case:
    def case(bring: Bring, backend: str) -> Seen:
        seen, options = Seen(), {"rounding": mode, "n_rbits": 11, "backend": backend, **RANDOM}
        whole = bring(floats(n))
        for x in (whole, whole[1:], whole[3:-2]) if n > 8 else (whole,):
            seen.add(emu.quantize(x, fmt, **options, **seen.counted))
        return seen

    return case


def narrowed(fmt: str) -> Case:
    def case(bring: Bring, backend: str) -> Seen:
        seen, x = Seen(), bring(doubles(2053))
        for mode in ("nearest_even", "to_odd", "stochastic"):
            seen.add(emu.quantize(x, fmt, rounding=mode, backend=backend, **RANDOM, **seen.counted))
        return seen

    return case


def elementwise(operation: str, source: str, target: str) -> Case:
    def case(bring: Bring, backend: str) -> Seen:
        seen, count = Seen(), {"sqrt": 1, "fma": 3}.get(operation, 2)
        given = [bring(operands(source, (1025,), seed)) for seed in range(4, 4 + count)]
        formats = {f"{name}_format": source for name in "abc"[:count]}
        for mode in ("nearest_even", "stochastic"):
            options = {"out_format": target, "rounding": mode, "check": False, "backend": backend, **RANDOM}
            seen.add(getattr(emu, operation)(*given, **formats, **options, **seen.counted))
        return seen

    return case


def function(name: str, source: str) -> Case:
    def case(bring: Bring, backend: str) -> Seen:
        seen, ordinary = Seen(), floats(515, 3)
        with np.errstate(invalid="ignore"):
            ordinary = np.where(
                np.isfinite(ordinary) & (ordinary > 2.0**-20) & (ordinary < 30), ordinary, np.float32(0.75)
            )
        for x in (ordinary, floats(16)):  # the second holds what doubles cannot say
            values = emu.quantize(x, source, backend="reference")
            options = {"x_format": source, "out_format": "fp16", "check": False, "backend": backend}
            seen.add(getattr(emu, name)(bring(values), **options, **seen.counted))
        return seen

    return case


def product(a: str, b: str, out: str, shape: tuple[int, int, int], mac: emu.Mac, addend: bool = True) -> Case:
    def case(bring: Bring, backend: str) -> Seen:
        seen, (rows, depth, columns) = Seen(), shape
        left, right = operands(a, (rows, depth), 11), operands(b, (depth, columns), 13)
        third = {"addend": bring(operands(a, (columns,), 15)), "addend_format": a} if addend else {}
        formats = {"a_format": a, "b_format": b, "out_format": out, "mac": mac}
        options = {"rounding": "stochastic", "check": False, "backend": backend, **RANDOM}
        seen.add(emu.matmul(bring(left), bring(right), **formats, **third, **options, **seen.counted))
        return seen

    return case


def selected(bring: Bring, backend: str) -> Seen:
    seen, x, g = Seen(), floats(1027), floats(1027, 5)
    seen.add(selection.relu(bring(x), backend=backend), selection.relu_gradient(bring(g), bring(x), backend=backend))
    raws = words(1027, 6).view(np.int64)
    seen.add(
        selection.relu(bring(raws), backend=backend), selection.relu_gradient(bring(g), bring(raws), backend=backend)
    )
    windows = floats(360, 8).reshape(40, 9)
    best, index = selection.max_pool(bring(windows), backend=backend)
    places = Gathered(bring(windows.reshape(-1)), 1, 0, np.arange(40) * 9, np.arange(9))
    seen.add(best, index, selection.unpool(best, index, places, backend=backend))
    magnitudes = selection.largest_magnitudes([bring(v) for v in (x[1:11], g[:0], raws)], backend=backend)
    seen.add(np.array(magnitudes))
    out = bring(np.zeros(1027, np.int32))
    seen.add(emu.quantize(bring(x), "fix16f8", out=out, backend=backend))
    seen.add(
        emu.multiply(bring(x), np.float32(-0.75), a_format="fp32", b_format="fp32", out_format="fp16", backend=backend)
    )
    return seen


PRODUCTS: tuple[tuple[str, str, str, tuple[int, int, int], emu.Mac], ...] = (
    ("fix8f4", "fix8f4", "fix8f4", (33, 70, 17), emu.Mac()),  # int8
    ("fix8f4", "fix16f8", "fix16f8", (33, 70, 17), emu.Mac()),  # float32 or float64
    ("fix16f8", "fix16f8", "fix32f12", (64, 128, 64), emu.Mac()),
    ("fix32f16", "fix32f16", "fix32f16", (65, 33, 67), emu.Mac()),  # tiles of integers
    ("fix50f20", "fix64f20", "fix64f20", (65, 33, 67), emu.Mac()),
    ("fp16", "fp16", "fp16", (67, 65, 130), emu.Mac(accumulator="fp32")),  # in order, small tiles
    ("fp16", "fp16", "fp32", (520, 9, 515), emu.Mac(accumulator="fp32")),  # and large ones
    ("fp16", "fp16", "fp16", (5, 37, 9), emu.Mac()),  # exact sums of floats
    ("fp16", "fp16", "fp16", (5, 37, 9), emu.Mac(accumulator="fp16")),
    ("bf16", "bf16", "bf16", (5, 37, 9), emu.Mac(accumulator="fp32", order="pairwise")),
    ("fp8_e4m3", "fp16", "fp16", (5, 37, 9), emu.Mac("fp16", "fp16", order="lanes(3)", rounding="stochastic")),
    ("fix16f8", "fix16f10", "fix16f6", (5, 37, 9), emu.Mac(accumulator="fix24f16")),
    ("fix16f8", "fix16f10", "fix16f6", (5, 37, 9), emu.Mac(accumulator="fix24f16", overflow="wrap")),
    ("fp16", "fp16", "fp32", (5, 70, 9), emu.Mac.preset("h100", inputs="fp16", output="fp32", instruction="mma")),
    ("fp16", "fp16", "fp16", (1, 0, 3), emu.Mac()),  # no products at all
)


def cases() -> Iterator[tuple[str, Case]]:
    """Yield every case with its name: source of the kernel first."""
    for fmt in STAGES:
        for mode in list(Rounding)[:HAND_WRITTEN]:
            yield f"narrow: {fmt} {mode.value}", quantized(fmt, mode.value, SIZES[-1])
    for n in SIZES[:-1]:
        yield f"narrow: fix8f4 stochastic, {n} numbers", quantized("fix8f4", "stochastic", n)
    for fmt in ("fix16f8", "fp8_e4m3"):
        for mode in ("nearest_even", "stochastic"):
            yield f"narrow: {fmt} {mode}, {LARGE} numbers", quantized(fmt, mode, LARGE)
    for fmt in (*STAGES, "fix64f20", "fp64"):
        yield f"elementwise: float64 to {fmt}", narrowed(fmt)
    for fmt in ("fix8f4", "fp16"):
        for mode in list(Rounding)[HAND_WRITTEN:]:
            yield f"elementwise: float32 to {fmt}, {mode.value}", quantized(fmt, mode.value, SIZES[-1])
    for operation in ("add", "subtract", "multiply", "divide", "fma", "sqrt"):
        for source, target in (("fp16", "fp16"), ("fp32", "bf16"), ("fix16f8", "fix16f8"), ("fp64", "fp64")):
            yield f"elementwise: {operation} {source} to {target}", elementwise(operation, source, target)
    for name in FUNCTIONS:
        yield f"functions: {name}", function(name, "fp64")
    for name in ("exp", "tanh"):
        yield f"tables: {name}", function(name, "fp8_e4m3")
    yield "selection", selected
    for a, b, out, shape, mac in PRODUCTS:
        yield f"products: {a} {b} {'x'.join(map(str, shape))} to {out}, {mac}", product(a, b, out, shape, mac)
