"""Units that tests of exported C compile: formats of every kind, each order of adds, and operands for them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

import emu
from emu.datapath import Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats import Fixed, Format
from emu.testing.hard import Places, hard_codes
from emu.testing.vectors import Description
from emu.testing.vectors.description import MacTable

PAIRED = ("add", "subtract", "multiply", "divide", "remainder")


def described(operation: str, operands: str, out: str, mode: str = "nearest_even", **more: Any) -> Description:
    return Description(operation=operation, formats=operands.split(","), out_format=out, rounding=mode, **more)


def rules_of(fmt: Format) -> list[str]:
    return [rule.value for rule in (FIXED_RULES if isinstance(fmt, Fixed) else FLOAT_RULES)]


def random_bits(d: Description, count: int) -> np.ndarray | None:
    if not d.is_stochastic:
        return None
    return Places.of(99, (count,)).noise(0) >> np.uint64(64 - d.n_rbits)


def every_code(fmt: Format) -> np.ndarray:
    return np.arange(fmt.n_codes, dtype=np.uint64)


def every_pair(d: Description) -> tuple[np.ndarray, ...]:
    a, b = (every_code(fmt) for fmt in d.operand_formats)
    return np.repeat(a, b.size), np.tile(b, a.size)


TININESS = (None, "before_rounding", "after_rounding")
FLAG_RULES = (None, "emu", "ieee")
#: Operands and results of all pairs of codes; modes and rules take turns.
PAIRS = {
    "floats": ("fp8_e4m3,fp8_e5m2", "fp8_e4m3"),
    "fixed": ("fix8f4,fix8f4", "fix8f3"),
    "floats to fixed": ("fp8_e5m2,fp8_e5m2", "fix12f8"),
    "fixed to floats": ("ufix8f6,fix8f-2", "e4m2 ftz"),
    "both": ("fix8f4,e4m3 daz", "e5m1 nans=negative_zero"),
    "no sign": ("ue4m4 finite,ue4m4 finite", "ue3m4"),
}
#: Small formats of every kind: where NaN is, whether there are infinities, a sign, a zero, normals, what is
#: flushed, how a sign is written, what the hidden bit is at exponent field 0.
KINDS = (
    "e3m2", "e3m2 ftz", "e3m2 daz", "e3m2 nans=negative_zero daz", "e3m2 nans=negative_zero finite ftz",
    "e3m2 nans=top", "e2m3 finite nans=none", "ue3m3", "ue3m3 ftz daz", "ue3m3 nans=top no-zero",
    "ue3m3 finite nans=none no-zero", "e5m0 nans=top", "ue5m0 nans=top no-zero", "e0m5 finite nans=none",
    "fix6f3", "ufix6f4", "fix6f-1", "fix6f3 sign-magnitude", "e3m2 hidden-one", "ue3m3 nans=top hidden-one",
)  # fmt: skip
#: Operands of 16 bits, and narrower results.
NARROWINGS = [
    ("fp16", "fp8_e4m3"),
    ("fp16", "fix8f4"),
    ("fp16", "fix8f0"),
    ("fix16f9", "e5m2 ftz"),
    ("ufix16f4", "ufix9f3"),
    ("bf16", "ue4m3 no-zero finite nans=none"),
]


def narrowing(operation: str, wide: str, narrow: str) -> list[Description]:
    """Every mode with every rule; whose flags, and the underflow of IEEE 754, take turns."""
    cases = product(Rounding, rules_of(emu.parse(narrow)))
    return [
        described(
            operation,
            wide,
            narrow,
            mode.value,
            overflow=rule,
            n_rbits=(24, 5)[i % 2],
            tininess=TININESS[i % 3],
            flags=FLAG_RULES[i // 3 % 3],
        )
        for i, (mode, rule) in enumerate(cases)
    ]


def unit_of(formats: str, out: str, depth: int = 7, mode: str = "nearest_even", **mac: str) -> Description:
    return described("matmul", formats, out, mode, depth=depth, mac=MacTable(**mac))


#: Units of every order, with what is hard about each.
UNITS = {
    "exact": unit_of("fp64,fp64,fp32", "fp64", mode="floor"),
    "exact, rounded products": unit_of("fp16,fp8_e4m3", "fp16", product="fp16"),
    "saturating": unit_of("fix8f4,fix8f4,fix16f8", "fix8f4", accumulator="fix10f6", overflow="saturate_symmetric"),
    "wrapping": unit_of("ufix16f8,fix16f8", "fix20f10", accumulator="fix20f14", overflow="wrap", rounding="floor"),
    "jamming": unit_of("fix8f4,fix8f4", "fix20f9", accumulator="fix16f6", order="lanes(8)", rounding="jamming"),
    "fp32": unit_of("fp16,bf16,fp32", "fp32", accumulator="fp32", order="pairwise", rounding="floor"),
    "no NaN": unit_of("fp16,fp16", "fp16", accumulator="e4m3 finite nans=none", overflow="ieee", order="lanes(3)"),
    "no infinity": unit_of("fp16,fp16", "fp16", product="fp8_e4m3", accumulator="fp8_e5m2", rounding="ceil"),
    "small sums": unit_of("bf16,bf16", "fp32", 1, accumulator="fp16", order="blocks(2, 30)"),
    "matrix unit": unit_of("fp16,fp16,fp32", "fp32", 37, accumulator="fp32", order="blocks(4, 23)", rounding="floor"),
    "least exponent": unit_of("e3m2,e3m2", "fp32", accumulator="fp32", order="blocks(3, 4, min_exponent=2)"),
    "alternating": unit_of(
        "fp8_e4m3,fp8_e5m2,fp16",
        "fp16",
        70,
        accumulator="fp16",
        order="blocks(16, 25, index_order=alternating_pairs, addend=after, min_exponent=-20)",
    ),
    "sign and magnitude": unit_of(
        "fix8f4 sign-magnitude,fix8f4", "fix8f4 sign-magnitude", accumulator="fix10f6 sign-magnitude", overflow="wrap"
    ),
    "jamming magnitudes": unit_of(
        "fix8f4 sign-magnitude,fp8_e4m3",
        "fix9f4",
        mode="jamming",
        product="fix10f6 sign-magnitude",
        accumulator="fix12f6 sign-magnitude",
        rounding="magnitude_truncation",
    ),
    "hidden one": unit_of(
        "e4m3 hidden-one,fp16,fp16",
        "e4m3 hidden-one",
        product="e4m4 hidden-one",
        accumulator="e5m6 hidden-one",
        order="lanes(2)",
    ),
    "hidden one in blocks": unit_of(
        "e4m3,e4m3 hidden-one", "ue4m3 no-zero", accumulator="e5m6 hidden-one", order="blocks(4, 7)"
    ),
    "wide products": unit_of("fix64f32,fix40f20", "fix64f30", accumulator="fix64f40", order="pairwise"),
}


def hard_operands(d: Description, count: int) -> list[np.ndarray]:
    """Difficult numbers, infinities and NaN among them."""
    sized = d.model_copy(update={"count": count})
    return [hard_codes(fmt, Places.of(i, sized.shape_of(i))) for i, fmt in enumerate(d.operand_formats)]


#: Operations on wide formats.
WIDE_OPERATIONS = [
    described("fma", "fp64,fp64,fp64", "fp64", tininess="after_rounding"),
    described("divide", "fix64f10,fp32", "fix64f60", "stochastic_nearest_even", n_rbits=32, overflow="wrap"),
    described("remainder", "fp64,fix64f-20", "fp32"),
    described("sqrt", "ufix64f63", "fp64", "stochastic", n_rbits=32),
    described("round_to_integral", "fp64", "fix64f0", "jamming", overflow="wrap"),
]
#: Ten million vectors in all: half of them hard, half uniform.
MILLIONS = {
    "add fp16": described("add", "fp16,fp16", "fp16", tininess="after_rounding"),
    "add fp32": described("add", "fp32,fp32", "fp32", "ceil"),
    "subtract fix": described("subtract", "fix32f20,fix24f10", "fix16f8", "nearest_away"),
    "multiply fp32": described("multiply", "fp32,fp32", "fp32", tininess="before_rounding"),
    "fma fp16": described("fma", "fp16,fp16,fp16", "fp16", tininess="after_rounding"),
    "quantize": described("quantize", "fp32", "fp16", tininess="after_rounding"),
    "stochastic": described("quantize", "fp32", "fp8_e4m3", "stochastic", overflow="satfinite"),
    "fixed": described("quantize", "fix64f40", "fix16f8", overflow="wrap"),
    "to integers": described("round_to_integral", "fp32", "fix32f0", "toward_zero"),
    "scale": described("multiply", "fix16f12,fix16f12", "fix16f12", "nearest_up"),
}
