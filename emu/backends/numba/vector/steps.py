"""The steps of a scale rule in vector code: from the largest magnitudes of sixteen blocks to their scales.

The program is the rule's own (`emu/formats/scale_rules.py`), read as NumPy runs it: each operation becomes one
instruction of float32 lanes, which rounds once; nothing is fused, and subnormals are kept. So a rule is compiled from
its text, and a new rule needs nothing here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from numba import types

from emu.backends.numba.vector.lanes import F32, F64, I8, I32, I64, IR, LANES, Emitter, Vector, intrinsic
from emu.formats.steps import Factor, Steps

#: Numbers that are given to the steps, by position: float64 ones, then int64 ones.
(LARGEST, POWER, TOP, SCALE_MAX, BEYOND) = range(5)
(LOWEST, HIGHEST, SCALE_EMIN, SCALE_DROPPED, DIGITS_DROPPED, IGNORES_NAN) = range(6)
N_NUMBERS, N_INTEGERS = 5, 6
#: Of float32: the magnitude's bits, those of infinity, the exponent of bit 0.
_MAGNITUDE, _INFINITY, _QUANTUM = 0x7FFFFFFF, 0x7F800000, -149
FRACTION_BITS, BIAS = 23, 127
_MAX = float.fromhex("0x1.fffffep127")
_ARITHMETIC: dict[type[ast.operator], Callable[[Vector, Vector], Vector]] = {
    ast.Mult: Vector.__mul__,
    ast.Div: Vector.__truediv__,
}
_CONDITIONS: dict[type[ast.cmpop], Callable[[Vector, Vector], Vector]] = {
    ast.Eq: Vector.__eq__,
    ast.NotEq: Vector.__ne__,
}


class _Rule:
    """Emits the steps of a rule for sixteen blocks at a time."""

    def __init__(self, e: Emitter, parameters: Any) -> None:
        self.e = e
        self.numbers = [e.builder.fptrunc(e.load_scalar(F64, parameters, e.integer(i)), F32) for i in range(N_NUMBERS)]
        self.integers = [
            e.builder.trunc(e.load_scalar(I64, parameters, e.integer(N_NUMBERS + i)), I32) for i in range(N_INTEGERS)
        ]
        self.functions: dict[str, Callable[..., Vector]] = {
            "min": Vector.least_number,
            "max": Vector.largest_number,
            "up": partial(self._power, up=True),
            "down": partial(self._power, up=False),
            "scale": self._scale,
            "digits": self._digits,
        }

    def number(self, position: int) -> Vector:
        """Return a float parameter in each lane."""
        return self.e.splat(F32, self.numbers[position])

    def whole(self, position: int) -> Vector:
        """Return an integer parameter in each lane."""
        return self.e.splat(I32, self.integers[position])

    def run(self, steps: Steps, names: dict[str, Vector]) -> dict[str, Vector]:
        """Return `names` and what the statements add to them."""
        known = dict(names)

        def value_of(node: ast.expr) -> Vector:
            match node:
                case ast.Constant(value=int() | float() as value):
                    return self.e.splat(F32, float(value))
                case ast.Name(id=name):
                    return known[name]
                case ast.BinOp(left=left, op=op, right=right):
                    return _ARITHMETIC[type(op)](value_of(left), value_of(right))
                case ast.Call(func=ast.Name(id=name), args=arguments):
                    return self.functions[name](*map(value_of, arguments))
                case ast.IfExp(test=ast.Compare(left=left, ops=[op], comparators=[right]), body=body, orelse=orelse):
                    chosen = _CONDITIONS[type(op)](value_of(left), value_of(right))
                    return chosen.choose(value_of(body), value_of(orelse))
                case _:
                    raise AssertionError(f"no step: {ast.unparse(node)}")

        for name, expression in steps.statements:
            known[name] = value_of(expression)
        return known

    # Numbers here are not negative, and each function keeps NaN.

    def _power(self, x: Vector, *, up: bool) -> Vector:
        e, bits = self.e, x.bits()
        # The bits of a subnormal are an integer in units of 2**-149: as a float it has a leading bit, and 0 has an
        # exponent below all powers.
        is_subnormal = bits < (1 << FRACTION_BITS)
        normal = is_subnormal.choose(bits.as_kind(F32).bits(), bits)
        exponent = (normal >> FRACTION_BITS) + is_subnormal.choose(e.splat(I32, _QUANTUM - BIAS), -BIAS)
        if up:
            # Any fraction leads to the next power: `up` is a ceiling.
            exponent = exponent + ((normal & ((1 << FRACTION_BITS) - 1)) != 0).as_kind(I32, signed=False)
        exponent = exponent.at_least(self.whole(LOWEST)).at_most(self.whole(HIGHEST))
        # below 2**-126 a power is a subnormal: one bit
        small = e.splat(I32, 1) << (exponent - _QUANTUM).at_least(0).at_most(FRACTION_BITS)
        power = (exponent < 1 - BIAS).choose(small, (exponent + BIAS) << FRACTION_BITS).bits_as(F32)
        finite = (bits == _INFINITY).choose(self.number(BEYOND), power)
        return (x == x).choose(finite, x)

    def _scale(self, x: Vector) -> Vector:
        # c = 2**(last + 23), where `last` is the exponent of x's last place in the scale format: float32 of c..2c lie
        # 2**last apart, so that x + c is x rounded to its last place, nearest even, beside c.
        bounded = (x < self.number(SCALE_MAX)).choose(x, self.number(SCALE_MAX))
        field = (bounded.bits() & _INFINITY).at_least(self.whole(SCALE_EMIN))
        c = (field + self.whole(SCALE_DROPPED)).bits_as(F32)
        return (x == x).choose((bounded + c) - c, x)

    def _digits(self, x: Vector) -> Vector:
        # The low bits of a float are dropped after half of what they stand for is added; what carries goes into the
        # exponent, and beyond the largest number gives the bits of infinity.
        dropped = self.whole(DIGITS_DROPPED)
        one = self.e.splat(I32, 1)
        half = (one << dropped) >> 1
        rounded = ((x.bits() + half) & (self.e.splat(I32, -1) << dropped)).bits_as(F32)
        return (x == x).choose(rounded, x)


@intrinsic
def run_steps(
    typing_context: Any,
    text: Any,
    amax: Any,
    stored: Any,
    factors: Any,
    vectors: Any,
    parameters: Any,
) -> Any:
    """Compute the scales of sixteen times `vectors` blocks; return whether one of them is special.

    A block is special if its largest magnitude is no number, or what its elements are multiplied by is none.

    Args:
        typing_context: Numba's.
        text: outer steps, steps and the step of elements, joined by "|", and " exact" if powers of two divide.
        amax: address of the largest magnitude of each block, float32.
        stored: address of the scales that are written, float32.
        factors: address of what numbers are multiplied, or divided, by.
        vectors: how many times sixteen blocks.
        parameters: address of the numbers of the steps: float64 ones, then int64 ones.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        amax, stored, factors, parameters = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (1, 2, 3, 5))
        return _emit_steps(e, text.literal_value, amax, stored, factors, args[4], parameters)

    return types.int64(text, *[types.int64] * 5), generate


def _emit_steps(e: Emitter, text: str, amax: Any, stored: Any, factors: Any, vectors: Any, parameters: Any) -> Any:
    outer, steps, element, exact = text.split("|")
    factor = Factor.of(Steps(element))
    assert factor is not None
    rule = _Rule(e, parameters)
    special = e.variable(e.splat(I32, 0))
    ignores = rule.whole(IGNORES_NAN) != 0
    with e.loop(vectors) as i:
        at = e.builder.mul(i, e.integer(LANES))
        largest = e.load(F32, amax, at)
        names = {
            "amax": largest,
            "top": rule.number(TOP),
            "M": rule.number(LARGEST),
            "P": rule.number(POWER),
            "MAX": e.splat(F32, _MAX),
        }
        names = rule.run(Steps(outer), names) if outer else names
        names = rule.run(Steps(steps), names)
        # True of NaN, too: comparisons with it are false.
        infinite = ~((largest < float("inf")) & (names["top"] < float("inf")))
        s = names["s"]
        lost = (infinite & ~ignores) | (s != s)
        s = lost.choose(e.splat(F32, float("nan")), s)
        e.store(s, stored, at)
        by = e.splat(F32, 1.0) / s if exact else names[factor.name]
        e.store(by, factors, at)
        unusual = infinite | lost | ~(by < float("inf"))
        special.set(special.now | unusual.as_kind(I32, signed=False))
    return e.builder.zext(special.now.any_bit(), I64)
