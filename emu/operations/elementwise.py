"""Operations on single elements: sums, products and quotients of two operands, roots, conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emu.formats import Value
from emu.operations.asked import as_first, broadcast
from emu.operations.operands import number
from emu.operations.row import ADDS, MOVES, MULTIPLIES, ROUNDS, TABLE_AND_LINE, DoneBy, Role, Row


def elementwise(name: str) -> Callable[..., Value]:
    """Return the operation that writes an elementwise one of the engine through the role's unit."""

    def operation(role: Role, *operands: Value) -> Value:
        return role.elementwise(name, *operands)

    return operation


add, subtract, multiply, divide, fma, sqrt = map(
    elementwise, ("add", "subtract", "multiply", "divide", "fma", "sqrt")
)  # fmt: skip


def quantize(role: Role, x: Value) -> Value:
    """Write values in the format of the role."""
    return role.quantize(x)


def _negate(role: Role, x: Value) -> Value:
    # 0 - x rather than a flipped sign: two's complement has no -min, which saturates and is flagged
    return subtract(role, number(0), x)


def _divide_by(role: Role, x: Value, *, divisor: int) -> Value:
    """Divide by an integer; a power of two has an exact reciprocal, so a multiplication gives the same bits."""
    if divisor & (divisor - 1) == 0:
        return multiply(role, x, number(1 / divisor))
    return divide(role, x, number(divisor))


def _divide_by_float64(xp: Any, a: Any, *, divisor: int) -> Any:
    return a / divisor


#: Sums take two instructions of the lanes: one sets an accumulator, one adds to it.
_SET_AND_ADD = 2

# The sixth column is what costs energy beside rounding and memory. A division or a root is interpolated in a table: one
# multiplication and one addition. `fma` has no table, but a * b + c is also one of each. `divide_by` multiplies by a
# reciprocal, which is known before the operation. `negate` changes the sign, which costs as little as a move.
ROWS = (
    Row("add", add, lambda xp, a, b: a + b, broadcast, DoneBy.LANES, ADDS, lane_instructions=_SET_AND_ADD),
    Row("subtract", subtract, lambda xp, a, b: a - b, broadcast, DoneBy.LANES, ADDS, lane_instructions=_SET_AND_ADD),
    Row("multiply", multiply, lambda xp, a, b: a * b, broadcast, DoneBy.LANES, MULTIPLIES),
    Row("divide", divide, lambda xp, a, b: a / b, broadcast, DoneBy.LANES, TABLE_AND_LINE),
    Row("fma", fma, lambda xp, a, b, c: a * b + c, broadcast, DoneBy.LANES, TABLE_AND_LINE,
        lane_instructions=_SET_AND_ADD),
    Row("sqrt", sqrt, lambda xp, a: xp.sqrt(a), broadcast, DoneBy.LANES, TABLE_AND_LINE),
    Row("quantize", quantize, lambda xp, a: a, as_first, DoneBy.LANES, ROUNDS, takes_any_format=True),
    Row("negate", _negate, lambda xp, a: -a, as_first, DoneBy.LANES, MOVES),
    Row("divide_by", _divide_by, _divide_by_float64, as_first, DoneBy.LANES, MULTIPLIES),
)  # fmt: skip
