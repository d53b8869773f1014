"""Words of up to 64 bits with raws around 2**52 to 2**64, in every operation: expectations are Python's integers.

Every pair of carriers meets: float32, float64, int64 and uint64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from mac_model import Dot, Number, write

import emu
import emu.sparse
from emu.engine.reductions import average, total
from emu.formats import Fixed

#: Per carrier: float32, float64 (with as many bits as it holds), int64, uint64.
FORMATS = (
    "fix8f4", "ufix24f0", "fix40f3", "fix54f1", "ufix53f0", "fix55f0", "fix60f4", "fix64f0", "fix64f-3", "ufix54f0",
    "ufix60f2", "ufix63f0", "ufix64f0", "ufix64f5",
)  # fmt: skip
NARROW = ("fix8f4", "ufix1f0", "ufix24f0", "fix40f3")
ACCUMULATORS = ("fix56f1", "fix60f0", "fix64f0", "fix64f6", "ufix60f0", "ufix64f0", "ufix64f2", "fix40f4", "fp32")
OUTPUTS = ("fix64f0", "ufix64f0", "fix60f5", "ufix56f-2", "fix64f6", "fix24f0", "fp32")
ORDERS = ("sequential", "pairwise", "lanes(2)")
FIXED_RULES = ("saturate", "wrap", "saturate_symmetric", "saturate_zero")
DOORS: tuple[Callable[..., Any], ...] = (emu.matmul, emu.conv2d, emu.sparse.matmul, total, average)
#: What draws a number of cases with a seed.
Draw = Callable[..., "Iterator[Case]"]
ELEMENTWISE: tuple[tuple[Callable[..., Any], Callable[..., Fraction]], ...] = (
    (emu.add, lambda a, b: a + b),
    (emu.subtract, lambda a, b: a - b),
    (emu.multiply, lambda a, b: a * b),
    (emu.divide, lambda a, b: a / b),
    (emu.fma, lambda a, b, c: a * b + c),
)
ROUNDINGS = ("nearest_even", "floor", "nearest_away", "to_odd", "toward_zero")


class Case(NamedTuple):
    """A call and what must come out of it; `touched`: outputs whose accumulator left its range."""

    call: Callable[..., Any]
    given: dict[str, Any]
    expected: list[Number]
    touched: int

    def assert_right_on(self, backend: str) -> None:
        """Compare every number, and the accumulator's flag."""
        flags = emu.Flags()
        values = np.asarray(self.call(**self.given, backend=backend, flags=flags))
        assert numbers_in(values, self.given["out_format"]) == self.expected
        assert flags.accumulator_overflow == self.touched


def raws_of(fmt: Fixed, rng: np.random.Generator, count: int) -> list[int]:
    """Return raws at and around the powers of two from 2**52 on, at the ends of the format, and small ones."""
    small = [0, 1, -1, 2, 3]
    edges = [*small, fmt.max_raw, fmt.max_raw - 1, fmt.min_raw, fmt.min_raw + 1]
    edges += [sign * (2**power + near) for power in (*range(52, 65), 31, 32) for near in (-1, 0, 1) for sign in (1, -1)]
    inside = [raw for raw in (edges if rng.random() < 0.7 else small) if fmt.min_raw <= raw <= fmt.max_raw]
    return [inside[i] for i in rng.integers(0, len(inside), count)]


def carrier_of(raws: list[int], fmt: Fixed, shape: tuple[int, ...]) -> np.ndarray:
    """Return the carrier array of raws, made without the package."""
    if fmt.carries_raws:
        return np.array(raws, np.int64 if fmt.signed else np.uint64).reshape(shape)
    values = [float(Fraction(raw) * Fraction(2) ** -fmt.frac_bits) for raw in raws]
    return np.array(values, fmt.carrier).reshape(shape)


def number_of(raw: int, fmt: Fixed) -> Number:
    """Return what a raw stands for."""
    return Number(raw < 0, abs(raw) * Fraction(2) ** -fmt.frac_bits)


def cases(count: int, seed: int) -> Iterator[Case]:
    """Return products of every pair of carriers, with addends and accumulators of every kind."""
    rng = np.random.default_rng(seed)

    def pick(things: tuple[str, ...]) -> str:
        return things[int(rng.integers(len(things)))]

    for number in range(count):
        names = [FORMATS[number % len(FORMATS)], pick(FORMATS if rng.random() < 0.5 else NARROW)]
        if rng.random() < 0.5:
            names.reverse()
        third = pick(FORMATS) if rng.random() < 0.5 else None
        mac = _mac(rng, pick)
        yield _case(rng, names[0], names[1], third, mac, pick(OUTPUTS), pick(ROUNDINGS), pick(FIXED_RULES))


def _mac(rng: np.random.Generator, pick: Any) -> emu.Mac:
    if rng.random() < 0.4:
        return emu.Mac()
    name = pick(ACCUMULATORS)
    rule = None if name == "fp32" else pick(FIXED_RULES)
    product = name if rng.random() < 0.2 else "exact"
    return emu.Mac(product, name, pick(ORDERS), pick(ROUNDINGS), rule)


def _case(
    rng: np.random.Generator, a: str, b: str, c: str | None, mac: emu.Mac, out: str, rounding: str, rule: str
) -> Case:
    rows, depth, columns = 2, int(rng.integers(1, 5)), 2
    options: dict[str, Any] = {"mac": mac, "out_format": out, "rounding": rounding}
    options |= {} if out == "fp32" else {"overflow": rule}
    (fa, left, x), (fb, right, y) = _operand(rng, a, (rows, depth)), _operand(rng, b, (depth, columns))
    door = DOORS[int(rng.integers(len(DOORS)))]
    if door in (total, average):
        fb, right, columns, c = Fixed(1, 0, signed=False), [1] * depth, 1, None
    start = None
    if c is not None and door is not emu.conv2d:
        fc, start, addend = _operand(rng, c, (rows, columns))
        options |= {"addend": addend, "addend_format": c}
    dots = []
    for i in range(rows):
        for j in range(columns):
            dot = Dot(mac, i * columns + j)
            row, column = left[i * depth : (i + 1) * depth], right[j::columns]
            addend = None if start is None else number_of(start[i * columns + j], fc)
            sums = dot.sum_of([number_of(r, fa) for r in row], [number_of(r, fb) for r in column], addend)
            dots.append((sums, dot.touched))
    if door is average:
        dots = [(Number(x.negative, x.magnitude / depth), touched) for x, touched in dots]
    expected = [write(sums, emu.parse(out), rounding, options.get("overflow"), 0)[0] for sums, _ in dots]
    return Case(door, options | _operands(door, (x, a), (y, b)), expected, sum(touched for _, touched in dots))


def _operands(door: Any, left: tuple[np.ndarray, str], right: tuple[np.ndarray, str]) -> dict[str, Any]:
    """Return the same matrices as an operation takes them."""
    (x, a), (y, b) = left, right
    if door in (total, average):
        return {"x": x, "x_format": a, "axis": 1}
    if door is emu.conv2d:
        return {"x": x[:, :, None, None], "w": y.T[:, :, None, None], "x_format": a, "w_format": b}
    if door is emu.sparse.matmul:
        rows, depth = x.shape
        starts = np.arange(rows + 1) * depth
        whole = emu.sparse.CSR.of(x.reshape(-1), np.tile(np.arange(depth), rows), starts, x.shape, a)
        return {"x": whole, "w": y, "w_format": b}
    return {"a": x, "b": y, "a_format": a, "b_format": b}


def _operand(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> tuple[Fixed, list[int], np.ndarray]:
    fmt = emu.parse(name)
    assert isinstance(fmt, Fixed)
    raws = raws_of(fmt, rng, shape[0] * shape[1])
    return fmt, raws, carrier_of(raws, fmt, shape)


def numbers_in(array: np.ndarray, name: str) -> list[Number]:
    """Return what the elements of a carrier array stand for."""
    fmt = emu.parse(name)
    if isinstance(fmt, Fixed) and fmt.carries_raws:
        return [number_of(int(raw), fmt) for raw in array.reshape(-1)]
    return [Number.of(float(x)) for x in array.reshape(-1)]


def elementwise_cases(count: int, seed: int) -> Iterator[Case]:
    """Return sums, differences, products, fused products and quotients of every pair of carriers."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        names = [FORMATS[int(i)] for i in rng.integers(0, len(FORMATS), 3)]
        names[number % 3] = FORMATS[number % len(FORMATS)]
        call, exact = ELEMENTWISE[int(rng.integers(len(ELEMENTWISE)))]
        operands = [_operand(rng, name, (2, 3)) for name in names[: exact.__code__.co_argcount]]
        out, rounding, rule = (things[int(rng.integers(len(things)))] for things in (OUTPUTS, ROUNDINGS, FIXED_RULES))
        given: dict[str, Any] = {"out_format": out, "rounding": rounding}
        given |= {} if out == "fp32" else {"overflow": rule}
        for letter, name, (_, _, array) in zip("abc", names, operands, strict=False):
            given |= {letter: array, f"{letter}_format": name}
        if call is emu.divide:
            operands[1] = (operands[1][0], [raw or 1 for raw in operands[1][1]], operands[1][2])
            given["b"] = carrier_of(operands[1][1], operands[1][0], (2, 3))
        values = [[number_of(raw, fmt).signed for raw in raws] for fmt, raws, _ in operands]
        rows = list(zip(*values, strict=True))
        results = [exact(*row) for row in rows]
        signs = [
            x < 0 or (x == 0 and _is_minus_zero(call, row, rounding)) for x, row in zip(results, rows, strict=True)
        ]
        numbers = [Number(sign, abs(x)) for sign, x in zip(signs, results, strict=True)]
        expected = [write(x, emu.parse(out), rounding, given.get("overflow"), 0)[0] for x in numbers]
        yield Case(call, given, expected, 0)


def _is_minus_zero(call: Any, row: tuple[Fraction, ...], rounding: str) -> bool:
    """Return whether IEEE 754 gives an exact zero a sign: fixed-point operands have no -0 of their own."""
    if call in (emu.multiply, emu.divide):
        return (row[0] < 0) != (row[1] < 0)
    if call is emu.add:
        return rounding == "floor" and any(row)
    if call is emu.fma:  # a product of 0 has a sign, and the addend 0 is positive
        is_cancelled = row[0] * row[1] != 0
        return rounding == "floor" and (is_cancelled or (row[0] < 0) != (row[1] < 0))
    return rounding == "floor"
