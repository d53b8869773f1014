"""Dropout: values kept by random numbers, and scaled."""

from __future__ import annotations

from typing import Any

from emu.backends.arrays import namespace
from emu.backends.reference.philox import random_integers
from emu.datapath import Philox
from emu.formats import Value
from emu.operations.asked import as_first, as_first_on_host
from emu.operations.elementwise import multiply
from emu.operations.operands import rounded
from emu.operations.row import MULTIPLIES, TABLE_AND_LINE, DoneBy, Role, Row, one_array

#: Bits of the numbers that decide which values dropout keeps.
MASK_BITS = 32


def _dropout(role: Role, x: Value, *, rate: float) -> Value:
    """Return x * float32(1 / (1 - rate)) where a random number is at least `rate`, else +0; beside it the mask."""
    random = role.on_host("mask").random  # nothing is written by this unit: its address gives the mask's own bits
    assert isinstance(random, Philox)
    address = {"seed": random.seed, "stream": random.stream, "step": random.step, "draw": random.draw}
    drawn = random_integers(x.array.size, MASK_BITS, **address).reshape(x.shape)
    # the rate in units of 2**-32: a drawn number is below it with that probability
    kept = namespace(x.array).asarray(drawn >= round(rate * 2**MASK_BITS))
    return Value((_gradient(role, x, saved=kept, rate=rate).array, kept), role.stage.format)


def _dropout_float64(xp: Any, x: Any, *, rate: float) -> Any:
    """Return the result and the mask, which is the same in each call: without a role there is no address."""
    drawn = random_integers(x.size, MASK_BITS, seed=0, stream=0, step=0, draw=0).reshape(x.shape)
    kept = xp.asarray(drawn >= round(rate * 2**MASK_BITS))
    return _gradient_float64(xp, x, saved=kept, rate=rate), kept


def _gradient(role: Role, g: Value, *, saved: Any, rate: float) -> Value:
    """Return g * float32(1 / (1 - rate)) where the mask `saved` is true, else +0: backward as forward."""
    xp = namespace(g.array)
    # chosen before the multiplication: a dropped infinity or NaN is +0, not NaN
    chosen = g.with_array(xp.where(saved, g.array, xp.zeros((), g.array.dtype)))
    return multiply(role, chosen, rounded(1 / (1 - rate)))


def _gradient_float64(xp: Any, g: Any, *, saved: Any, rate: float) -> Any:
    return xp.where(saved, g, 0.0) / (1 - rate)


ROWS = (
    Row("dropout", _dropout, _dropout_float64, as_first_on_host(1), DoneBy.HOST, TABLE_AND_LINE, beside=one_array),
    Row("dropout_gradient", _gradient, _gradient_float64, as_first, DoneBy.LANES, MULTIPLIES),
)
