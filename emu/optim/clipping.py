"""Clipping by norm: gradients longer than a threshold, all parameters together, are shortened to it.

    norm = sqrt(sum of g * g)        squares and pairwise sums per parameter, joined in their order     role norm
    g = g * (threshold / norm)       where norm > threshold                                             role clipped

Norms are computed on the host, in the format of the `loss` role (docs/concepts/roles.md, "Our choices"); what is
clipped is held like a master weight. If the norm is not a number, nothing is clipped.

Where squares may overflow or underflow that format, gradients are scaled for them by a power of two, and the factor is
divided into another power of two and a number near 1. Elsewhere nothing is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from emu.autodiff import Operation, Runner, Value
from emu.backends.arrays import on_host
from emu.formats import Fixed, Float, Format
from emu.optim.optimiser import ParameterState, UpdateRunner, constant, scalar

#: The layer that the norm of all parameters is counted under.
EVERYWHERE = "loss"
#: Leading bits that a sum of squares in fixed point has at least, unless the threshold is far above it.
_FIXED_BITS = 12


def clip_by_norm(
    states: Sequence[ParameterState], gradients: dict[str, Value], threshold: float, runner: Runner
) -> dict[str, Value]:
    """Return gradients whose norm, all together, is at most a threshold.

    Gradients with infinities are as long as infinity: what is finite in them becomes 0, infinities NaN.

    Args:
        states: parameters, in the order in which their sums are joined.
        gradients: by parameter name.
        threshold: rounded to float32.
        runner: the datapath.
    """
    if not states:
        return gradients
    limit, norm = scalar(threshold), _norm(states, gradients, runner)
    bound = float(limit.array)
    exponent = _exponent_to_scale(norm, bound, [gradients[state.name] for state in states])
    if exponent is not None:
        return _clipped_scaled(states, gradients, bound, exponent, runner)
    if not norm.size > bound:
        return gradients
    factor = runner.run(Operation("divide", (limit, norm.root), part="factor"), "norm", EVERYWHERE)
    return _multiplied(states, gradients, factor, runner)


class _Norm(NamedTuple):
    """The norm of gradients, all together.

    Attributes:
        root: the norm as the host wrote it.
        sums: sums of squares that it was made of, of each parameter and joined.
    """

    root: Value
    sums: list[Value]

    @property
    def size(self) -> float:
        """The norm as a number."""
        return _real(float(on_host(self.root.array)), self.root.format)


def _norm(
    states: Sequence[ParameterState], gradients: dict[str, Value], runner: Runner, *factor: Value, step: str = ""
) -> _Norm:
    """Return the norm of gradients, times a factor."""
    sums: list[Value] = []
    total: Value | None = None
    for state in states:
        squares = UpdateRunner(runner, state).run("squared_norm", "norm", gradients[state.name], *factor, step=step)
        joined = Operation("add", (total, squares), part=f"{state.name}{step}") if total else None
        total = runner.run(joined, "norm", EVERYWHERE) if joined else squares
        sums += [squares, total]
    assert total is not None, "there is a parameter"
    return _Norm(runner.run(Operation("sqrt", (total,), part=f"root{step}"), "norm", EVERYWHERE), sums)


def _multiplied(
    states: Sequence[ParameterState], gradients: dict[str, Value], factor: Value, runner: Runner, step: str = ""
) -> dict[str, Value]:
    return {
        s.name: gradients[s.name].holding(
            UpdateRunner(runner, s).run("multiply", "clipped", gradients[s.name], factor, step=step)
        )
        for s in states
    }


# ---- squares that may overflow or underflow -------------------------------------------------------------------------


def _clipped_scaled(
    states: Sequence[ParameterState], gradients: dict[str, Value], bound: float, exponent: int, runner: Runner
) -> dict[str, Value]:
    """Return gradients clipped by a norm that is computed of 2**exponent times as large ones."""
    norm = _norm(states, gradients, runner, constant(2.0**exponent), step=".scaled")
    exact = Fraction(norm.size) / Fraction(2) ** exponent
    if not exact > Fraction(bound):
        return gradients
    halvings = _floor_log2(exact / Fraction(bound))
    near = constant(math.ldexp(bound, halvings + exponent))  # as long as the scaled norm, or at most half less
    factor = runner.run(Operation("divide", (near, norm.root), part="factor"), "norm", EVERYWHERE)
    fmt = factor.format
    whole = math.ldexp(float(on_host(factor.array)), -halvings)
    if isinstance(fmt, Float) and whole >= fmt.smallest_normal:
        return _multiplied(states, gradients, factor.with_array(fmt.carrier.type(whole)), runner)  # exact
    halved = _multiplied(states, gradients, constant(2.0**-halvings), runner, step=".halved")
    return _multiplied(states, halved, factor, runner)


def _exponent_to_scale(norm: _Norm, bound: float, gradients: Sequence[Value]) -> int | None:
    """Return the exponent of the power of two that keeps squares within their formats; None where they are.

    From low = count * 2**p * smallest normal on, p bits of precision, all that underflow lacks is below half an ulp of
    the sum. A norm below it is right enough if the threshold is not.
    """
    if not 0 < bound < math.inf:
        return None
    formats, count = {total.format for total in norm.sums}, sum(gradient.array.size for gradient in gradients)
    low = max(_lowest_sum(fmt, count) for fmt in formats)
    high = min(Fraction(fmt.max) / 2 for fmt in formats)
    if len(formats) == 1 and isinstance(norm.root.format, Float) and math.isfinite(norm.size):
        total = Fraction(norm.size) ** 2  # after an overflow: infinite, or the largest value
        if total < high and max(total, Fraction(bound) ** 2) >= low:
            return None
    sizes = [_largest(gradient) for gradient in gradients]
    largest = max(sizes) if all(map(math.isfinite, sizes)) else math.inf
    if not 0 < largest < math.inf or low <= Fraction(largest) ** 2 <= high / count:
        return None
    return max(min(_place(fmt, count) for fmt in formats) - _floor_log2(Fraction(largest)) - 1, -1022)


def _lowest_sum(fmt: Format, count: int) -> Fraction:
    """Return the sum of squares from which on underflow does not matter."""
    if isinstance(fmt, Float):
        return count * Fraction(fmt.smallest_normal) * 2**fmt.significand_bits
    return count * Fraction(fmt.smallest_positive) * 2**_FIXED_BITS


def _place(fmt: Format, count: int) -> int:
    """Return the exponent below which elements may lie: at 1, or lower, so that the sum of squares is in the format.

    Fixed point needs all of its bits: there elements are as large as they may be.
    """
    highest = (_floor_log2(Fraction(fmt.max)) - count.bit_length()) // 2
    return min(highest, 0) if isinstance(fmt, Float) else highest


def _largest(gradient: Value) -> float:
    """Return the largest magnitude of a gradient, 0 of none; NaN if there is one."""
    array = on_host(gradient.array)
    return _real(max(float(array.max()), -float(array.min())), gradient.format) if array.size else 0.0


def _real(held: float, fmt: Format) -> float:
    """Return what a number of a format's carrier stands for."""
    return math.ldexp(held, -fmt.frac_bits) if isinstance(fmt, Fixed) and fmt.carries_raws else held


def _floor_log2(x: Fraction) -> int:
    """Return the exponent of the power of two at or below a positive number."""
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if x >= Fraction(2) ** exponent else exponent - 1
