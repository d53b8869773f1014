"""Binary16 arithmetic in integers alone: unpack, align or multiply, round once, pack. Codes in, codes out.

`add_nearest_even` and `multiply_nearest_even` are branchless and of few bits, so that all 2**32 pairs take seconds.
`compute` knows every operation and mode, exactly; it shares no step with the two, and each judges the other.

Source: IEEE 754-2019 sections 3.4, 4.3, 5.4.1, 6; docs/concepts/.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

SIGN, MAGNITUDE, INFINITY, NAN, LARGEST = 0x8000, 0x7FFF, 0x7C00, 0x7E00, 0x7BFF
HIDDEN, FRACTION = 0x400, 0x3FF
#: The exponent of the smallest subnormal number.
QUANTUM = -24
MODES = (
    "nearest_even", "nearest_away", "nearest_up", "nearest_down", "nearest_zero",
    "floor", "ceil", "toward_zero", "to_odd", "stochastic",
)  # fmt: skip
EVEN, AWAY, UP, DOWN, ZERO, FLOOR, CEIL, TOWARD_ZERO, TO_ODD, STOCHASTIC = range(10)
OPERATIONS = ("add", "subtract", "multiply", "divide", "fma")
ADD, SUBTRACT, MULTIPLY, DIVIDE, FMA = range(5)
#: How far the larger operand of a sum is moved left at most: 2**22 times 2**40 is an int64.
ROOM = 40
compiled = njit(nogil=True, error_model="numpy", boundscheck=False)
inlined = njit(nogil=True, error_model="numpy", boundscheck=False, inline="always")


@intrinsic
def leading_zeros(typing_context: Any, x: Any) -> Any:
    """Zeros above the highest 1 of an int32, 32 for 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int32(types.int32), generate


@inlined
def _packed(negative: int, t: int, unit: int) -> int:
    """The code of t * 2**(unit - 25), rounded to nearest even; t < 2**24."""
    leading = np.int32(31) - leading_zeros(t)
    drop = max(leading - 10, 1 - unit)
    right, left = min(max(drop, 1), 25), max(-drop, 0)
    half_less_one = (np.int32(1) << (right - 1)) - 1
    rounded = (t + half_less_one + ((t >> right) & 1)) >> right if drop > 0 else t << min(left, 24)
    code = ((drop + unit - 1) << 10) + rounded
    code = min(code, np.int32(INFINITY))
    return negative | (code if t > 0 else np.int32(0))


@inlined
def add_nearest_even(a: int, b: int) -> int:
    """The sum of two codes, int32."""
    x, y = a & MAGNITUDE, b & MAGNITUDE
    high, low = max(x, y), min(x, y)
    negative = (a if x >= y else b) & SIGN
    opposite = ((a ^ b) & SIGN) != 0
    field, low_field = high >> 10, low >> 10
    big = ((high & FRACTION) | (np.int32(HIDDEN) if field > 0 else np.int32(0))) << 3
    small = ((low & FRACTION) | (np.int32(HIDDEN) if low_field > 0 else np.int32(0))) << 3
    field, low_field = max(field, np.int32(1)), max(low_field, np.int32(1))
    apart = field - low_field
    kept = small >> apart
    lost = (kept << apart) != small
    kept |= np.int32(1) if lost else np.int32(0)
    total = big - kept if opposite else big + kept
    code = _packed(a & b & SIGN if total == 0 else negative, total, field - 3)
    code = negative | INFINITY if high == INFINITY else code
    nan = high > INFINITY or (opposite and low == INFINITY)
    return np.int32(NAN) if nan else code


@inlined
def multiply_nearest_even(a: int, b: int) -> int:
    """The product of two codes, int32."""
    x, y = a & MAGNITUDE, b & MAGNITUDE
    high, low = max(x, y), min(x, y)
    negative = (a ^ b) & SIGN
    field, low_field = high >> 10, low >> 10
    big = (high & FRACTION) | (np.int32(HIDDEN) if field > 0 else np.int32(0))
    small = (low & FRACTION) | (np.int32(HIDDEN) if low_field > 0 else np.int32(0))
    unit = max(field, np.int32(1)) + max(low_field, np.int32(1)) + (QUANTUM - 1)
    code = _packed(negative, big * small, unit)
    code = negative | INFINITY if high == INFINITY else code
    nan = high > INFINITY or (high == INFINITY and low == 0)
    return np.int32(NAN) if nan else code


@compiled
def compute(operation: int, a: Any, b: Any, c: Any, mode: int, u: Any, n_rbits: int) -> Any:
    """Codes of `operation` of arrays of codes; u of stochastic rounding below 2**n_rbits, n_rbits up to 8."""
    out = np.empty(a.size, np.uint16)
    for i in range(a.size):
        out[i] = _one(operation, np.int64(a[i]), np.int64(b[i]), np.int64(c[i]), mode, np.int64(u[i]), n_rbits)
    return out


@compiled
def _one(operation: int, a: int, b: int, c: int, mode: int, u: int, n_rbits: int) -> int:
    if operation == SUBTRACT:
        b ^= SIGN
    special = _special(operation, a, b, c)
    if special >= 0:
        return special
    sa, ea = _unpack(a)
    sb, eb = _unpack(b)
    if operation in (ADD, SUBTRACT):
        return _sum(a & SIGN, sa, ea, b & SIGN, sb, eb, mode, u, n_rbits)
    negative = (a ^ b) & SIGN
    if operation == DIVIDE:
        quotient = (sa << ROOM) // sb
        sticky = 1 if quotient * sb != sa << ROOM else 0
        return _round(negative, quotient << 1 | sticky, ea - eb - ROOM - 1, mode, u, n_rbits)
    if operation == FMA:
        sc, ec = _unpack(c)
        return _sum(negative, sa * sb, ea + eb, c & SIGN, sc, ec, mode, u, n_rbits)
    return _round(negative, sa * sb, ea + eb, mode, u, n_rbits)


@compiled
def _special(operation: int, a: int, b: int, c: int) -> int:
    """The code where NaN, infinity or a zero divisor decides, else -1."""
    x, y, z = a & MAGNITUDE, b & MAGNITUDE, c & MAGNITUDE
    negative = (a ^ b) & SIGN
    if x > INFINITY or y > INFINITY or (operation == FMA and z > INFINITY):
        return NAN
    if operation == DIVIDE:
        if (x == 0 and y == 0) or (x == INFINITY and y == INFINITY):
            return NAN
        if x == INFINITY or y == 0:
            return negative | INFINITY
        return negative if y == INFINITY else -1
    if operation in (MULTIPLY, FMA):
        if (x == INFINITY and y == 0) or (x == 0 and y == INFINITY):
            return NAN
        infinite = x == INFINITY or y == INFINITY
        if operation == FMA and z == INFINITY:
            return NAN if infinite and negative != c & SIGN else c
        return negative | INFINITY if infinite else -1
    if x == INFINITY:
        return NAN if y == INFINITY and negative else a
    return b if y == INFINITY else -1


@compiled
def _unpack(code: int) -> tuple[int, int]:
    """Significand and exponent of a finite code: magnitude = significand * 2**exponent."""
    field = (code & MAGNITUDE) >> 10
    return (code & FRACTION) | (HIDDEN if field > 0 else 0), max(field, 1) - 1 + QUANTUM


@compiled
def _sum(p: int, sp: int, ep: int, q: int, sq: int, eq: int, mode: int, u: int, n_rbits: int) -> int:
    """The sum of two signed numbers; where they are too far apart to align, the smaller is one part in 2**ROOM."""
    if sp == 0 and sq == 0:
        return p if p == q else (SIGN if mode == FLOOR else 0)
    if sp == 0 or (sq != 0 and ep < eq):
        p, sp, ep, q, sq, eq = q, sq, eq, p, sp, ep
    if sq == 0:
        return _round(p, sp, ep, mode, u, n_rbits)
    if ep - eq > ROOM:
        sq, eq = 1, ep - ROOM
    total = (sp << (ep - eq)) + (sq if p == q else -sq)
    if total == 0:
        return SIGN if mode == FLOOR else 0
    return _round(p if total > 0 else p ^ SIGN, abs(total), eq, mode, u, n_rbits)


@compiled
def _round(negative: int, significand: int, exponent: int, mode: int, u: int, n_rbits: int) -> int:
    """The code of significand * 2**exponent."""
    if significand == 0:
        return negative
    length = 0
    while significand >> length:
        length += 1
    last = max(exponent + length - 11, QUANTUM)
    drop = last - exponent
    if drop <= 0:
        kept = significand << -drop
    elif drop > 62:
        kept = _moved(negative, 0, 1, 62, mode, u, n_rbits)
    else:
        kept = _moved(negative, significand >> drop, significand & ((1 << drop) - 1), drop, mode, u, n_rbits)
    code = ((last - QUANTUM) << 10) + kept
    if code >= INFINITY:
        toward_largest = mode in (TOWARD_ZERO, TO_ODD) or mode == (CEIL if negative else FLOOR)
        code = LARGEST if toward_largest else INFINITY
    return negative | code


@compiled
def _moved(negative: int, kept: int, rest: int, drop: int, mode: int, u: int, n_rbits: int) -> int:
    """A magnitude without its last `drop` bits `rest`, or the next one."""
    if rest == 0:
        return kept
    if mode == TO_ODD:
        return kept | 1
    if mode == STOCHASTIC:
        part = rest >> (drop - n_rbits) if drop >= n_rbits else rest << (n_rbits - drop)
        return kept + (1 if u >= (1 << n_rbits) - part else 0)
    if mode in (FLOOR, CEIL, TOWARD_ZERO):
        return kept + (1 if mode == (FLOOR if negative else CEIL) else 0)
    half = 1 << (drop - 1)
    if rest != half:
        return kept + (1 if rest > half else 0)
    tie_moves = (
        mode == AWAY
        or (mode == EVEN and kept & 1 == 1)
        or (mode == UP and negative == 0)
        or (mode == DOWN and negative != 0)
    )
    return kept + (1 if tie_moves else 0)
