"""What an operation must write, in rational numbers: the judge of every result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from .things import INFINITE, NAN, Contents, Real

from rational_model import FixedModel, FloatModel, Model, Place, Written, floor_log2, nearer_end, write  # isort: skip

NOT_A_NUMBER = Real(False, NAN)


@dataclass(frozen=True)
class WideFloat(FloatModel):
    """A float of any width: neighbours are computed, not listed."""

    @property
    def actual_bias(self) -> int:
        default = 2 ** (self.exponent_bits - 1) - 1 if self.exponent_bits else 0
        return default if self.bias is None else self.bias

    @cached_property
    def last(self) -> int:
        if self.nans == "ieee":
            return (2**self.exponent_bits - 1) * 2**self.fraction_bits - 1
        return 2**self.magnitude_bits - 1 - (self.nans == "top") - self.infinities

    @cached_property
    def infinity_code(self) -> int | None:
        return self.last + 1 if self.infinities else None

    @cached_property
    def grid(self) -> list[Fraction]:
        return [self.value_at(0)]

    def place(self, real: Real) -> Place:
        x = real.magnitude
        assert isinstance(x, Fraction)
        if x < self.grid[0]:
            return Place(-1, -1, not real.negative, Fraction(0), "low")
        below = min(self._number_below(x), self.last + 1)
        inner, outer = self.value_at(below), self.value_at(below + 1)
        part = min((x - inner) / (outer - inner), Fraction(1))
        low, high = below, below + (part != 0)
        if real.negative:
            return Place(high, low, False, part, nearer_end(1 - part))
        return Place(low, high, True, part, nearer_end(part))

    def _number_below(self, x: Fraction) -> int:
        exponent = floor_log2(x) if x else -(10**6)
        field = exponent + self.actual_bias
        if self.zero and field < 1:
            return math.floor(x / Fraction(2) ** (1 - self.actual_bias - self.fraction_bits))
        significand = math.floor(x / Fraction(2) ** (exponent - self.fraction_bits))
        return field * 2**self.fraction_bits + significand - 2**self.fraction_bits


def model_of(fmt: Any) -> Model:
    """The model of a format of emu."""
    if hasattr(fmt, "frac_bits"):
        return FixedModel(fmt.width_bits, fmt.frac_bits, fmt.signed)
    names = ["exponent_bits", "fraction_bits", "bias", "infinities", "nans", "ftz", "daz", "signed", "zero"]
    return WideFloat(*[getattr(fmt, name) for name in names])


def holds(model: Model, real: Real) -> bool:
    """Whether a number is a value of a format; -0 counts as 0."""
    x = real.magnitude
    if isinstance(model, FixedModel):
        if isinstance(x, str):
            return False
        raw = real.signed * Fraction(2) ** model.frac
        return raw.denominator == 1 and model.limits[0] <= raw <= model.limits[1]
    if x == NAN:
        return model.nan_code is not None
    if real.negative and not model.signed and x != 0:
        return False
    if x == INFINITE:
        return model.infinity_code is not None
    if x < model.grid[0]:  # type: ignore[operator]
        return False
    place = model.place(real)
    return place.low == place.high <= model.last


def read_as(model: Model, real: Real, *, arithmetic: bool) -> Real:
    """An operand as a unit reads it."""
    flushes = arithmetic and isinstance(model, FloatModel) and model.daz
    if flushes and not isinstance(real.magnitude, str) and real.magnitude < model.value_at(2**model.fraction_bits):
        real = Real(real.negative, Fraction(0))
    has_negative_zero = isinstance(model, FloatModel) and model.signed and model.nans != "negative_zero"
    return real if real.magnitude != 0 or has_negative_zero else Real(False, Fraction(0))


def written(model: Model, real: Real, mode: str, rule: str) -> tuple[Real, Written]:
    """What is written of an exact result, and the flags."""
    done = write(model, real, mode, rule)
    plain = replace(model, daz=False) if isinstance(model, FloatModel) else model
    return plain.decode(done.code), done


def default_rule(model: Model) -> str:
    if isinstance(model, FixedModel):
        return "saturate"
    return "ieee" if model.infinities or model.nans != "none" else "satfinite"


# ---- exact operations ------------------------------------------------------------------------------------------------


def add(x: Real, y: Real, mode: str = "nearest_even") -> Real:
    if NAN in (x.magnitude, y.magnitude):
        return NOT_A_NUMBER
    if INFINITE in (x.magnitude, y.magnitude):
        if x.magnitude == y.magnitude:
            return x if x.negative == y.negative else NOT_A_NUMBER
        return x if x.magnitude == INFINITE else y
    total = x.signed + y.signed
    if total == 0:
        same = x.negative == y.negative and x.magnitude == y.magnitude == 0
        return Real(x.negative if same else mode == "floor", Fraction(0))
    return Real(total < 0, abs(total))


def negated(x: Real) -> Real:
    return x if x.magnitude == NAN else Real(not x.negative, x.magnitude)


def multiply(x: Real, y: Real) -> Real:
    if NAN in (x.magnitude, y.magnitude):
        return NOT_A_NUMBER
    negative = x.negative != y.negative
    if INFINITE in (x.magnitude, y.magnitude):
        return NOT_A_NUMBER if 0 in (x.magnitude, y.magnitude) else Real(negative, INFINITE)
    return Real(negative, x.magnitude * y.magnitude)  # type: ignore[operator]


def divide(x: Real, y: Real) -> Real:
    if NAN in (x.magnitude, y.magnitude) or x.magnitude == y.magnitude == INFINITE:
        return NOT_A_NUMBER
    negative = x.negative != y.negative
    if y.magnitude == 0:
        return NOT_A_NUMBER if x.magnitude == 0 else Real(negative, INFINITE)
    if x.magnitude == INFINITE:
        return Real(negative, INFINITE)
    return Real(negative, Fraction(0) if y.magnitude == INFINITE else x.magnitude / y.magnitude)  # type: ignore[operator]


def sqrt(x: Real) -> Real:
    """The root, its infinite tail cut to one bit far behind every format's last place."""
    if x.magnitude == NAN or (x.negative and x.magnitude != 0):
        return NOT_A_NUMBER
    if x.magnitude in (0, INFINITE):
        return x
    shift = 8192
    square = x.magnitude * 4**shift  # type: ignore[operator]
    root = math.isqrt(math.floor(square))
    tail = Fraction(1, 2) if root * root != square else 0
    return Real(False, (root + tail) / Fraction(2) ** shift)


def compare(x: Real, y: Real) -> int:
    if NAN in (x.magnitude, y.magnitude):
        return 2
    left, right = (
        (-1 if r.negative else 1) * Fraction(2) ** 20000 if r.magnitude == INFINITE else r.signed for r in (x, y)
    )
    return (left > right) - (left < right)


ELEMENTWISE: dict[str, Callable[..., Real]] = {
    "add": lambda mode, x, y: add(x, y, mode),
    "subtract": lambda mode, x, y: add(x, negated(y), mode),
    "multiply": lambda _, x, y: multiply(x, y),
    "divide": lambda _, x, y: divide(x, y),
    "fma": lambda mode, x, y, z: add(multiply(x, y), z, mode),
    "sqrt": lambda _, x: sqrt(x),
    "quantize": lambda _, x: x,
}


def summed(terms: Sequence[Real]) -> Real:
    """The sum of all; the sign of a sum 0 is left open by giving it none."""
    total = Real(False, Fraction(0))
    for term in terms:
        total = add(total, term)
    return total if total.magnitude != 0 else Real(False, Fraction(0))


def matmul(a: Contents, b: Contents) -> Any | None:
    """The exact product as an array of objects; None where the shapes do not fit."""
    if not a.shape or not b.shape:
        return None
    left = a.grid[None, :] if len(a.shape) == 1 else a.grid
    right = b.grid[:, None] if len(b.shape) == 1 else b.grid
    if left.shape[-1] != right.shape[-2]:
        return None
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        return None
    left = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    result = np.empty((*batch, left.shape[-2], right.shape[-1]), object)
    for place in np.ndindex(result.shape):
        row, column = left[(*place[:-2], place[-2])], right[(*place[:-2], slice(None), place[-1])]
        result[place] = summed([multiply(x, y) for x, y in zip(row, column, strict=True)])
    if len(a.shape) == 1:
        result = result[..., 0, :]
    return result[..., 0] if len(b.shape) == 1 else result


def conv2d(x: Contents, w: Contents, stride: tuple[int, int], padding: tuple[int, int]) -> Any | None:
    """The exact convolution; None where the shapes do not fit."""
    if len(x.shape) != 4 or len(w.shape) != 4 or x.shape[1] != w.shape[1]:
        return None
    n, channels, height, width = x.shape
    sizes = [(x.shape[2 + i] + 2 * padding[i] - w.shape[2 + i]) // stride[i] + 1 for i in (0, 1)]
    if min(sizes) < 1:
        return None
    images, kernels = x.grid, w.grid
    result = np.empty((n, w.shape[0], *sizes), object)
    for i, o, r, c in np.ndindex(result.shape):
        terms: list[Real] = []
        for k, down, right in np.ndindex(channels, *w.shape[2:]):
            row, column = r * stride[0] + down - padding[0], c * stride[1] + right - padding[1]
            inside = 0 <= row < height and 0 <= column < width
            pixel = images[i, k, row, column] if inside else Real(False, Fraction(0))
            terms.append(multiply(pixel, kernels[o, k, down, right]))
        result[i, o, r, c] = summed(terms)
    return result


def total(x: Contents, axis: Any, *, averaged: bool = False) -> Any | None:
    """The exact sums over axes; None where an axis is none."""
    ndim = len(x.shape)
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(not -ndim <= a < ndim for a in axes) or len({a % ndim for a in axes}) < len(axes):
        return None
    summed_axes = tuple(a % ndim for a in axes)
    kept = tuple(a for a in range(ndim) if a not in summed_axes)
    depth = math.prod(x.shape[a] for a in summed_axes)
    rows = x.grid.transpose(*kept, *summed_axes).reshape(*[x.shape[a] for a in kept], depth)
    result = np.empty(rows.shape[:-1], object)
    for place in np.ndindex(result.shape):
        found = summed(list(rows[place]))
        if averaged and isinstance(found.magnitude, Fraction):
            found = Real(found.negative, found.magnitude / max(depth, 1))
        result[place] = found
    return result
