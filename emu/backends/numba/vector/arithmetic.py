"""Elementwise operations in vector code: float64 results, exact or rounded to odd.

A result that is not exact moves to the neighbour with an odd last bit, so that no later rounding takes it for a
tie. Operands stay far from the ends of float64. Two ways:

    by errors       the error of the nearest result, itself exact, says whether and where to
    by directions   rounded down and up, an inexact result has two neighbours, one of them odd (AVX-512)

Source: Knuth (TwoSum); Boldo & Melquiond 2008 (rounding to odd).
"""

from __future__ import annotations

from collections.abc import Callable

from emu.backends.numba.vector.lanes import Emitter, Vector


def _to_odd(e: Emitter, x: Vector, error: Vector) -> Vector:
    """Return x or, if x + error is not x, its neighbour toward `error` or itself, whichever has an odd last bit."""
    # Patterns of one sign ascend with the magnitude. An inexact x is not 0.
    bits = x.bits()
    moves = (abs(error) > 0.0) & ((bits & 1) == 0)  # the error of an infinity is NaN, which moves nothing
    outward = (error.bits() ^ bits) >= 0  # the same sign: away from zero
    moved = outward.choose(bits + 1, bits - 1)
    return moves.choose(moved, bits).bits_as(x.kind)


def add(e: Emitter, a: Vector, b: Vector) -> Vector:
    """Return a + b rounded to odd."""
    return _to_odd(e, *_two_sum(a, b))


def subtract(e: Emitter, a: Vector, b: Vector) -> Vector:
    """Return a - b rounded to odd."""
    return add(e, a, b.negated())


def multiply(e: Emitter, a: Vector, b: Vector) -> Vector:
    """Return a * b rounded to odd."""
    product = a * b  # fused, a * b - product is its error, exactly
    return _to_odd(e, product, product.negated().plus_product(a, b))


def fma(e: Emitter, a: Vector, b: Vector, c: Vector) -> Vector:
    """Return a * b + c rounded to odd: a sum of three numbers, its smaller parts rounded to odd first.

    Source: Boldo & Melquiond 2008, figure 4, its last addition rounded to odd as well.
    """
    product = a * b
    # The exact result is s + (rest + low). An error of 0 is added as -0: +0 would turn a c or a sum of -0 into +0.
    high, low = _two_sum(c, _neutral(product.negated().plus_product(a, b)))
    s, rest = _two_sum(product, high)
    return add(e, s, _neutral(add(e, low, rest)))


def _neutral(x: Vector) -> Vector:
    """Return x with -0 for each zero: adding that changes no number, not even -0."""
    return (x == 0.0).choose(x.emitter.splat(x.kind, -0.0, x.lanes), x)


def _two_sum(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """Return a + b and its error, exactly."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def divide(e: Emitter, a: Vector, b: Vector) -> Vector:
    """Return a / b rounded to odd; the sign of the remainder, exact as it is fused, says on which side it lies."""
    q = a / b
    # a - q * b is itself a float64: the fused operation does not round it.
    remainder = a.plus_product(q.negated(), b)
    return _to_odd(e, q, remainder * b)  # the sign of remainder / b


def sqrt(e: Emitter, a: Vector) -> Vector:
    """Return the square root of a rounded to odd."""
    s = a.sqrt()
    # As of a quotient: a - s * s is exact, and has the sign of the error.
    return _to_odd(e, s, a.plus_product(s.negated(), s))


BY_ERRORS: dict[str, Callable[..., Vector]] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "fma": fma,
    "divide": divide,
    "sqrt": sqrt,
}


def _by_directions(instruction: str) -> Callable[..., Vector]:
    def operation(_: Emitter, first: Vector, *others: Vector) -> Vector:
        down, up = first.between(instruction, *others)
        # The neighbours around an inexact result differ in the last bit. An exact sum of 0 is -0 rounded down, +0
        # rounded up: patterns that end in 0, so that +0 is taken.
        return ((down.bits() & 1) != 0).choose(down, up)

    return operation


_INSTRUCTIONS = {"add": "add", "subtract": "sub", "multiply": "mul", "fma": "vfmadd", "divide": "div", "sqrt": "sqrt"}
BY_DIRECTIONS = {name: _by_directions(f"{instruction}.pd.512") for name, instruction in _INSTRUCTIONS.items()}

ARITY = {"quantize": 1, "add": 2, "subtract": 2, "multiply": 2, "fma": 3, "divide": 2, "sqrt": 1}
#: The two terms of operations that end in a sum.
SUMS: dict[str, Callable[[list[Vector]], tuple[Vector, Vector]]] = {
    "add": lambda x: (x[0], x[1]),
    "subtract": lambda x: (x[0], x[1].negated()),
    "fma": lambda x: (x[0] * x[1], x[2]),
}


def zero_sum_under_floor(s: Vector, a: Vector, b: Vector) -> Vector:
    """Return the sum s = a + b, with -0 for each zero unless both terms are +0: the sign rule of `floor`.

    Source: IEEE 754-2019 section 6.3.
    """
    minus = ((a.bits() | b.bits()) >> 63) << 63
    return (s == 0.0).choose((s.bits() | minus).bits_as(s.kind), s)
