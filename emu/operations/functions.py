"""Elementary functions, and their slopes in terms of the result or the operand."""

from __future__ import annotations

import math
from typing import Any

from emu.backends.arrays import negated
from emu.formats import Value
from emu.operations.asked import as_first, as_first_on_host
from emu.operations.elementwise import fma
from emu.operations.operands import number, rounded
from emu.operations.row import TABLE_AND_LINE, DoneBy, Role, Row


def _function(role: Role, x: Value, *, function: str) -> Value:
    return role.unit().function(function, x)


def _function_float64(xp: Any, x: Any, *, function: str) -> Any:
    if function == "gelu":
        return x * _normal_share(xp, x)
    if function == "erf":
        return _error_function(xp, x)
    return 1 / (1 + xp.exp(-x)) if function == "sigmoid" else getattr(xp, function)(x)


def _normal_share(xp: Any, x: Any) -> Any:
    """Return the share of the normal distribution below x."""
    return (1 + _error_function(xp, x / math.sqrt(2))) / 2


def _error_function(xp: Any, x: Any) -> Any:
    # NumPy has no erf: Python's, number by number, for float64 runs alone
    return xp.asarray([math.erf(float(z)) for z in x.ravel()]).reshape(x.shape)


def _sigmoid_slope(role: Role, y: Value) -> Value:
    """Y * (1 - y) = y - y * y, rounded once."""
    # the slope in terms of the result: y is kept for the backward pass, x is not
    return fma(role, _negated(y), y, y)


def _tanh_slope(role: Role, y: Value) -> Value:
    """1 - y * y, rounded once."""
    return fma(role, _negated(y), y, number(1))


def _negated(y: Value) -> Value:
    return y.with_array(negated(y.array))


def _gelu_slope(role: Role, x: Value) -> Value:
    """Phi(x) + x * phi(x): the host computes both functions, one fused multiply-add writes the result."""
    # Phi(x) = (1 + erf(x / sqrt(2))) / 2
    error = role.on_host("error function").erf(role.on_host("scaled").multiply(x, rounded(math.sqrt(0.5))))
    share = role.on_host("share").fma(error, number(0.5), number(0.5))
    halved = role.on_host("halved square").multiply(role.on_host("square").multiply(x, x), number(-0.5))
    bell = role.on_host("bell").exp(halved)
    density = role.on_host("density").multiply(bell, rounded(1 / math.sqrt(2 * math.pi)))
    return role.unit().fma(x, density, share)


def _gelu_slope_float64(xp: Any, x: Any) -> Any:
    return _normal_share(xp, x) + x * xp.exp(-x * x / 2) / math.sqrt(2 * math.pi)


ROWS = (
    Row("function", _function, _function_float64, as_first, DoneBy.FUNCTION, TABLE_AND_LINE),
    Row("sigmoid_slope", _sigmoid_slope, lambda xp, y: y * (1 - y), as_first, DoneBy.LANES, TABLE_AND_LINE),
    Row("tanh_slope", _tanh_slope, lambda xp, y: 1 - y * y, as_first, DoneBy.LANES, TABLE_AND_LINE),
    Row("gelu_slope", _gelu_slope, _gelu_slope_float64, as_first_on_host(7), DoneBy.HOST, TABLE_AND_LINE),
)
