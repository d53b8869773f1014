"""Make the golden vectors: `python tests/golden/make_vectors.py`, from the repository's root.

Run it only when bits are meant to change, and say so in the changelog (BREAKING). A line is read without this file:

    operands NAME FORMAT : codes in hexadecimal           what the lines below take
    CALL | flags o,u,i,v,s,a | codes in hexadecimal       overflow, underflow, inexact, invalid, subnormal, accumulator

Codes are those of `Format.encode`, one word each, in C order; of values that share scales those of elements, of the
scales of each level, and zero points.
Random bits are addressed (docs/concepts/random-bits.md): seed 3, stream 9, step 1.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import emu
from emu import training
from emu.datapath import SCALED_MATRIX_UNITS, Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats.scale_rules import SCALE_RULES
from emu.hardware import load_device

FOLDER = Path(__file__).parent
SEED = 1
#: Flags of a line, as its form says.
SHOWN_FLAGS = 6
RANDOM = {"seed": 3, "stream": 9, "step": 1}
MODES = tuple(Rounding)
QUANTIZED = [
    "fix8f4",
    "ufix8f3",
    "fix16f-4",
    "fix64f20",
    "fp16",
    "bf16",
    "fp8_e4m3",
    "fp8_e5m2 ftz",
    "e4m3fnuz",
    "e2m1 finite nans=none",
    "fp32",
]
ELEMENTWISE = [
    ("fp16", "fp16"),
    ("fp16", "fix16f8"),
    ("fix16f8", "fix16f8"),
    ("fp8_e4m3", "fp8_e4m3"),
    ("fp32", "bf16"),
]
PRODUCTS = [
    ("fix8f4", "fix8f4", emu.Mac()),
    ("fix16f8", "fix16f10", emu.Mac(accumulator="fix24f16")),
    ("fix16f8", "fix16f10", emu.Mac(accumulator="fix24f16", overflow="wrap")),
    ("fix8f4", "fix8f4", emu.Mac(accumulator="fix12f6", rounding="stochastic")),
    ("fp16", "fp16", emu.Mac()),
    ("fp16", "fp16", emu.Mac(accumulator="fp16")),
    ("fp16", "fp16", emu.Mac(accumulator="fp32")),
    ("bf16", "bf16", emu.Mac(accumulator="fp32", order="pairwise")),
    ("fp8_e4m3", "fp16", emu.Mac(product="fp16", accumulator="fp16", order="lanes(3)", rounding="stochastic")),
    ("fp32", "fp32", emu.Mac("fp32", "fp32")),
]
M, K, N = 3, 6, 4


def codes_near(fmt: Any, n: int, rng: random.Random) -> np.ndarray:
    """Random codes of finite values, with +-0, +-1, extremes and what is special in front."""
    one = (
        int(fmt.encode(np.array(1, np.int64) << fmt.frac_bits)) if fmt.carries_raws else int(fmt.encode(np.array(1.0)))
    )
    first = [0, 1, one, fmt.n_codes - 1, fmt.n_codes // 2, fmt.n_codes // 2 + one, fmt.n_codes // 2 - 1]
    first += [
        code
        for code in (
            getattr(fmt, "infinity_code", None),
            getattr(fmt, "nan_code", None),
            getattr(fmt, "max_code", None),
        )
        if code
    ]
    middle = [one ^ rng.getrandbits(fmt.width_bits - 3) | rng.getrandbits(1) << (fmt.width_bits - 1) for _ in range(n)]
    return np.array((first + middle)[:n], np.uint64)


def words(codes: Any, fmt: Any) -> str:
    return " ".join(f"{int(code):0{-(-fmt.width_bits // 4)}x}" for code in np.asarray(codes).reshape(-1))


def codes_of(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint64)


def operand_line(name: str, fmt: Any, codes: np.ndarray) -> str:
    return f"operands {name} {fmt} : {words(codes, fmt)}"


def result_line(call: str, result: np.ndarray, flags: emu.Flags, fmt: Any) -> str:
    return f"{call} | flags {','.join(map(str, flags.counts()[:SHOWN_FLAGS]))} | {words(fmt.encode(result), fmt)}"


def rules_of(fmt: Any) -> tuple[Any, ...]:
    return FIXED_RULES if isinstance(fmt, emu.Fixed) else FLOAT_RULES


def quantize_lines(backend: str) -> Iterator[str]:
    rng, double = random.Random(SEED), emu.parse("fp64")
    values = [
        0.0,
        -0.0,
        float("inf"),
        -float("inf"),
        float("nan"),
        1.0,
        -1.0,
        2.5,
        -3.5,
        7.96875,
        -8.03125,
        448.0,
        65519.0,
        -65520.0,
        1e-9,
    ]
    values += [rng.choice((-1, 1)) * rng.getrandbits(9) / 2**8 * 2.0 ** rng.randint(-12, 10) for _ in range(33)]
    x = np.array(values)
    yield operand_line("x", double, double.encode(x))
    for name in QUANTIZED:
        fmt = emu.parse(name)
        for mode in MODES:
            for rule in rules_of(fmt) if mode in MODES[:1] else rules_of(fmt)[:1]:
                flags = emu.Flags()
                y = emu.quantize(x, fmt, rounding=mode, overflow=rule, flags=flags, backend=backend, **RANDOM)
                yield result_line(f"quantize {fmt} {mode.value} {rule.value}", y, flags, fmt)


def elementwise_lines(backend: str) -> Iterator[str]:
    rng = random.Random(SEED)
    for source, target in ELEMENTWISE:
        fmt, out = emu.parse(source), emu.parse(target)
        codes = [codes_near(fmt, 24, rng) for _ in range(3)]
        codes = [codes[0], np.roll(codes[1], 5), np.roll(codes[2], 11)]
        for name, c in zip("abc", codes, strict=True):
            yield operand_line(name, fmt, c)
        a, b, c = (fmt.decode(x) for x in codes)
        formats = {"a_format": fmt, "b_format": fmt, "out_format": out}
        for mode in ("nearest_even", "floor", "to_odd", "stochastic"):
            calls = {name: (getattr(emu, name), (a, b), formats) for name in ("add", "subtract", "multiply", "divide")}
            calls["fma"] = (emu.fma, (a, b, c), formats | {"c_format": fmt})
            calls["sqrt"] = (emu.sqrt, (a,), {"a_format": fmt, "out_format": out})
            for name, (operation, operands, known) in calls.items():
                flags = emu.Flags()
                y = operation(*operands, rounding=mode, flags=flags, backend=backend, **known, **RANDOM)
                yield result_line(f"{name} {out} {mode}", y, flags, out)


def product_lines(backend: str) -> Iterator[str]:
    rng = random.Random(SEED)
    for a_name, b_name, mac in PRODUCTS:
        formats = [emu.parse(a_name), emu.parse(b_name), emu.parse(a_name)]
        codes = [codes_near(fmt, n + 10, rng)[10:] for fmt, n in zip(formats, (M * K, K * N, N), strict=True)]
        for name, fmt, c in zip("abc", formats, codes, strict=True):
            yield operand_line(name, fmt, c)
        a, b, c = (
            fmt.decode(x).reshape(shape) for fmt, x, shape in zip(formats, codes, ((M, K), (K, N), (N,)), strict=True)
        )
        for target in ("fix16f6", "fp16"):
            out, flags = emu.parse(target), emu.Flags()
            y = emu.matmul(
                a, b, a_format=a_name, b_format=b_name, out_format=out, addend=c, addend_format=a_name, mac=mac,
                rounding="stochastic", flags=flags, backend=backend, **RANDOM,
            )  # fmt: skip
            yield result_line(f"matmul {M}x{K}x{N} {out} stochastic {mac!r}", y, flags, out)


def words_of(value: emu.ScaledValue) -> str:
    """Return elements, scales of each level and zero points of a value, the parts with bars between them."""
    fmt = value.format
    parts = [words(value.codes, fmt.element)]
    parts += [words(codes, level.scale) for codes, level in zip(value.scale_codes, fmt.levels, strict=True)]
    parts += [] if value.zero is None else [" ".join(map(str, value.zero.ravel()))]
    return " | ".join(parts)


def scaled_lines(backend: str) -> Iterator[str]:
    """Every scale rule on numbers of all sizes, products of each unit, requantisers."""
    rng, single = random.Random(SEED), emu.parse("fp32")
    numbers = [rng.choice((-1, 1)) * rng.getrandbits(9) / 2**8 * 2.0 ** rng.randint(-12, 10) for _ in range(96)]
    x = np.array(numbers, np.float32).reshape(3, 32)
    x[1, 3], x[2, 8:] = np.nan, 0
    yield operand_line("x", single, single.encode(x))
    for name, rule in SCALE_RULES.items():
        element = "ufix8f0" if rule.has_zero else "fix8f0" if name == "symmetric" else "fp4_e2m1"
        scale = {"power": "fp8_e8m0 1x16", "float32": "fp32 row", "float": "fp8_ue4m3 1x16"}[rule.stores]
        fmt = f"block({element}, {scale} {name}{', fp32 tensor' if rule.outer else ''})"
        for mode in (rule.rounding, "stochastic"):
            flags = emu.Flags()
            v = emu.quantize(x, fmt, rounding=mode, flags=flags, backend=backend, **RANDOM)
            yield f"quantize {fmt} {mode} | flags {','.join(map(str, flags.counts()[:SHOWN_FLAGS]))} | {words_of(v)}"
    finite = np.where(np.isnan(x), 1, x)
    for unit in SCALED_MATRIX_UNITS:
        a = emu.quantize(finite, unit.inputs, backend=backend, pad=True)
        b = emu.quantize(finite[::-1].T.copy(), unit.inputs, axis=-2, backend=backend, pad=True)
        mac = emu.Mac.preset(unit.gpu, inputs=unit.inputs, instruction=unit.instruction)
        y = emu.matmul(a, b, out_format="fp32", mac=mac, backend=backend)
        yield f"matmul {unit} | {words(single.encode(y), single)}"
    a, b = emu.quantize(finite, "uint8_affine"), emu.quantize(finite.T.copy(), "int8_channel", axis=-2)
    for kind in ("float32", "double_rounding", "single_rounding", "exact"):
        by = emu.Unit("uint8_affine", requantise=kind, scale=3.0, zero=120, backend=backend)
        yield f"requantise {kind} | {words_of(by.matmul(a, b, addend=np.array([5, -900, 70])))}"


def cast_lines(backend: str) -> Iterator[str]:
    """Networks whose products read casts: stochastic, rotated, promoted, with zero points."""
    short = ("training.steps=2", "training.batch=2", "data.test_share=0.006")
    for device in ("b200-mxfp8", "b200-nvfp4", "h800-fp8-tile"):
        yield trained_line(backend, "transformer", device, *short)
    yield trained_line(backend, "mlp", "int8-npu", "training.steps=5", "data.test_images=50")


def trained_line(backend: str, model: str, device: str, *settings: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        run = training.train(
            training.load_recipe(model, settings), load_device(device), out=Path(folder) / "run", backend=backend
        )
    call = " ".join([model, device, *settings])
    return f"{call} | weights {run.weights_sha256} | registers {run.registers_sha256}"


def training_lines(backend: str) -> Iterator[str]:
    yield trained_line(backend, "mlp", "fixed16", "training.steps=5", "data.test_images=50")


def network_lines(backend: str) -> Iterator[str]:
    """Convolutions, residual connections, normalisations, embeddings, attention and Adam, in two steps."""
    short = ("training.steps=2", "training.batch=2")
    for device in ("fp16-mixed", "dlu16"):
        yield trained_line(backend, "resnet8", device, *short, "data.test_images=2")
        yield trained_line(backend, "transformer", device, *short, "data.test_share=0.006")


VECTORS = {
    "quantize": quantize_lines,
    "elementwise": elementwise_lines,
    "matmul": product_lines,
    "training": training_lines,
    "networks": network_lines,
    "scaled": scaled_lines,
    "casts": cast_lines,
}
#: What runs a network, and takes seconds.
RUNS = ("training", "networks", "casts")


def text_of(name: str, backend: str) -> str:
    """Return the content of a file of vectors."""
    header = (
        f"# {name}: golden vectors, seed {SEED}, made by python tests/golden/make_vectors.py; see there for the form\n"
    )
    return header + "\n".join(VECTORS[name](backend)) + "\n"


if __name__ == "__main__":
    for vectors in VECTORS:
        (FOLDER / f"{vectors}.txt").write_text(text_of(vectors, "reference"))
        print(FOLDER / f"{vectors}.txt")
