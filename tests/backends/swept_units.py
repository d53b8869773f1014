"""Every accumulator of e2..e8 x m1..m23 and of 2..64 bits, under every mode and rule, with operands at its edges.

A sweep is a list of `Case`s: one unit, formats of its operands, an order. The numbers that it is given stand at and
around zero, the subnormals, the largest number, infinity and NaN of the accumulator and of the operands' own formats.
Units that round to nearest even by their format's first rule, for which most special code exists, meet every pair of
operand formats in sequence; the others meet a few each, another few every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

import emu
from emu.datapath import Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.formats import Fixed, Float, Format
from emu.testing import assert_bits_equal

EXPONENT_BITS, FRACTION_BITS = range(2, 9), range(1, 24)
WIDTHS_IN_PARTS = (range(2, 18), range(18, 34), range(34, 50), range(50, 65))
ROWS, DEPTH, COLUMNS = 14, 4, 18
#: Formats of both operands and of the addend, None without one.
FLOAT_OPERANDS = (
    ("fp16", "fp16", None), ("fp32", "fp16", "fp32"), ("fp32", "fp32", None), ("bf16", "bf16", "fp32"),
    ("fp8_e4m3", "fp8_e5m2", None), ("fp16", "fp16", "fp16"), ("fix8f4", "fix8f4", "fix16f8"),
    ("e5m2 daz", "fp16", None), ("fp64", "fp16", "fp64"), ("fix16f8", "bf16", "fp16"),
    ("e2m1 finite nans=none", "e8m23", "fp32"),
)  # fmt: skip
FIXED_OPERANDS = (
    ("fix8f4", "fix8f4", None), ("fix16f8", "fix16f8", "fix16f8"), ("fix8f4", "fix16f12", "fix24f16"),
    ("ufix8f4", "fix8f4", None), ("fix24f12", "fix8f4", "fix32f16"), ("ufix8f0", "ufix8f3", "ufix8f3"),
    ("fix3f1", "fix12f9", None), ("fp16", "fix8f4", "fp32"), ("fp16", "fp16", None), ("fix32f16", "fix24f20", "fp16"),
)  # fmt: skip
ORDERS = ("sequential", "pairwise", "lanes(3)", "sequential")
#: How an accumulator of a width may differ from the IEEE one.
KINDS = ("", " finite nans=none", " nans=top", " ftz", " finite nans=negative_zero", " bias+", "")


class Case(NamedTuple):
    """A unit with operands' formats, by number: what they are given follows from it."""

    number: int
    mac: emu.Mac
    formats: tuple[str, str, str | None]
    is_plain: bool  # IEEE format, nearest even, its first rule, exact products in sequence


def float_cases(exponent_bits: int) -> Iterator[Case]:
    """Return the cases of all float accumulators with that exponent field."""
    number = 10_000 * exponent_bits
    for fraction_bits in FRACTION_BITS:
        for rule in FLOAT_RULES:
            for mode in Rounding:
                plain = mode is Rounding.NEAREST_EVEN and rule is FLOAT_RULES[0]
                for formats in FLOAT_OPERANDS if plain else ():
                    number += 1
                    accumulator = _float(exponent_bits, fraction_bits, "")
                    yield Case(number, emu.Mac(accumulator=accumulator), formats, is_plain=True)
                for turn in (number, 7 * number + 1, 11 * number + 5):
                    number += 1
                    accumulator = _float(exponent_bits, fraction_bits, KINDS[turn % len(KINDS)])
                    product = {0: accumulator, 1: emu.parse("fp32")}.get(number % 5, "exact")
                    mac = emu.Mac(product, accumulator, ORDERS[turn % len(ORDERS)], mode, rule)
                    yield Case(number, mac, FLOAT_OPERANDS[turn % len(FLOAT_OPERANDS)], is_plain=False)


def _float(exponent_bits: int, fraction_bits: int, kind: str) -> Float:
    if kind == " bias+":
        return Float(exponent_bits, fraction_bits, bias=2 ** (exponent_bits - 1) + 5)
    parsed = emu.parse(f"e{exponent_bits}m{fraction_bits}{kind}")
    assert isinstance(parsed, Float)
    return parsed


def fixed_cases(width_bits: int) -> Iterator[Case]:
    """Return the cases of all fixed-point accumulators of that width."""
    number = 1_000_000 + 10_000 * width_bits
    for rule in FIXED_RULES:
        for mode in Rounding:
            plain = mode is Rounding.NEAREST_EVEN and rule in FIXED_RULES[:2]
            every = [(formats, "sequential") for formats in FIXED_OPERANDS] if plain else []
            turns = (number, 7 * number + 1, 11 * number + 5)
            some = [(FIXED_OPERANDS[turn % len(FIXED_OPERANDS)], ORDERS[turn % len(ORDERS)]) for turn in turns]
            for formats, order in every + some:
                number += 1
                finest = sum(getattr(emu.parse(f), "frac_bits", 8) for f in formats[:2] if f)
                frac_bits = (finest, finest, finest + 2, finest - 3, 0, width_bits)[number % 6]
                accumulator = Fixed(width_bits, frac_bits, signed=number % 7 != 0)
                product = {0: accumulator}.get(number % 5, "exact")
                yield Case(number, emu.Mac(product, accumulator, order, mode, rule), formats, is_plain=False)


def edges(fmt: Format) -> np.ndarray:
    """Return numbers at and around a format's edges, float64, both signs; not all of them are in the format."""
    if isinstance(fmt, Fixed):
        least, largest = float(np.ldexp(1.0, -fmt.frac_bits)), float(np.ldexp(float(fmt.max_raw), -fmt.frac_bits))
        scales = np.array([0.5, 1.0, 1.5, 2.0, 3.0]) * least
        around = largest + least * np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0])
        near = np.concatenate([scales, around, [largest / 2, largest * 2, 1.0]])
    else:
        least, normal = np.ldexp(1.0, fmt.emin - fmt.fraction_bits), fmt.smallest_normal
        last = fmt.ulp(fmt.max)
        small = np.array([0.25, 0.5, 0.5 + 2.0**-9, 0.5 - 2.0**-9, 1.0, 1.5, 2.0, 3.0]) * least
        middle = normal + least * np.array([-1.0, -0.5, -0.25, 0.0, 0.5, 1.0])
        with np.errstate(over="ignore"):
            around = fmt.max + last * np.array([-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0])
        near = np.concatenate([small, middle, around, [fmt.max / 2, 1.0, 1.5, 1.0 + 2.0**-fmt.fraction_bits, 3.0]])
    return np.concatenate([near, -near, [0.0, -0.0, 1.0, 0.5, 2.0]])


def _operand(name: str, near: np.ndarray, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return carriers of a format: numbers `near`, those at its own edges, a few infinities and NaN where it has them.

    A third of the rows has small numbers alone: beside large ones they would not be seen.
    """
    fmt = emu.parse(name)
    assert isinstance(fmt, (Fixed, Float))
    pool = np.concatenate([near, near, edges(fmt), rng.standard_normal(20)])
    pool = pool[np.isfinite(pool)]
    small = pool[np.abs(pool) <= np.median(np.abs(pool))]
    x = rng.choice(pool, shape)
    x[::3] = rng.choice(small, x[::3].shape)
    overflow = "saturate" if isinstance(fmt, Fixed) else "satfinite"
    values = emu.quantize(x, fmt, overflow=overflow, backend="reference")
    special = [np.inf] * _has(fmt, "infinities") + [-np.inf] * _has(fmt, "infinities") + [np.nan] * _has(fmt, "nans")
    if special:
        values = np.where(rng.random(shape) < 0.02, rng.choice(special, shape), values)
    return values.astype(fmt.carrier)


def _has(fmt: Format, special: str) -> bool:
    return isinstance(fmt, Float) and getattr(fmt, special) not in (False, "none")


def arguments(case: Case) -> dict[str, Any]:
    """Return what `emu.matmul` is given."""
    rng, accumulator = np.random.default_rng(case.number), case.mac.accumulator
    assert accumulator != "exact"
    near, factors = edges(accumulator), np.array([0.0, 1.0, -1.0, 1.0, -1.0, 0.5, 2.0, 1.5])
    a, b, c = case.formats
    given: dict[str, Any] = {
        "a": _operand(a, near, (ROWS, DEPTH), rng),
        "b": _operand(b, factors, (DEPTH, COLUMNS), rng),
        "a_format": a,
        "b_format": b,
        "mac": case.mac,
        # shows the accumulator as it is; float64 itself is left to the reference
        "out_format": accumulator if isinstance(accumulator, Fixed) else emu.parse("e9m23"),
        "seed": case.number,
    }
    if c is not None:
        given |= {"addend": _operand(c, near, (ROWS, COLUMNS), rng), "addend_format": c}
    return given


def is_compiled(given: dict[str, Any], backend: str) -> bool:
    """Return whether a backend computes a case itself: the others compare the reference with itself."""
    return not emu.explain(emu.matmul, **given, backend=backend).fallback


def _computed(given: dict[str, Any], backend: str) -> tuple[np.ndarray, emu.StatisticsRegister, emu.Flags]:
    register, flags = emu.StatisticsRegister(), emu.Flags()
    with np.errstate(all="ignore"):
        return emu.matmul(**given, backend=backend, register=register, flags=flags), register, flags


def assert_cases_agree(cases: Iterable[Case], backend: str = "numba") -> list[bool]:
    """Compare values, registers and flags of cases with the reference's; return which the backend computes itself."""
    compiled = []
    for case in cases:
        given = arguments(case)
        values, *counts = _computed(given, backend)
        expected, *expected_counts = _computed(given, "reference")
        try:
            assert_bits_equal(values, expected, given["out_format"])
            assert counts == expected_counts
        except AssertionError as error:
            error.add_note(f"{backend}: {case}")
            raise
        compiled.append(is_compiled(given, backend))
    return compiled
