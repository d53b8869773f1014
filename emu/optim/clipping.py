"""Clipping by norm: gradients longer than a threshold, all parameters together, are shortened to it.

    norm = sqrt(sum of g * g)        squares and pairwise sums per parameter, joined in their order     role norm
    g = g * (threshold / norm)       where norm > threshold                                             role clipped

Norms are computed on the host, in the format of the `loss` role (docs/concepts/roles.md, "Our choices"). A clipped
gradient has the format of a master weight. If the norm is NaN, nothing is clipped.

If squares may overflow or underflow that format, they are computed of gradients times a power of two, and the factor is
split into another power of two and a number near 1. Otherwise nothing is scaled.
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

#: Name of the layer under which the norm of all parameters is counted.
EVERYWHERE = "loss"
#: In fixed point each square loses up to a step. Of a sum of at least 2**12 steps an element this is at most
#: 2**-12: our choice.
_FIXED_BITS = 12
#: 2**-1074 is the smallest float64.
_MOST_HALVINGS = 1074


def clip_by_norm(
    states: Sequence[ParameterState], gradients: dict[str, Value], threshold: float, runner: Runner
) -> dict[str, Value]:
    """Shorten gradients so that their norm, of all together, is at most a threshold.

    The norm of gradients with an infinity is infinite: the factor is 0, finite elements become 0, infinities NaN.

    Args:
        states: parameters, in the order in which their sums are joined.
        gradients: by parameter name.
        threshold: rounded to float32.
        runner: the datapath.

    Returns:
        The gradients by parameter name; the given ones if their norm is not above the threshold.
    """
    if not states:
        return gradients
    # the norm is computed as it would be without scaling: only if its squares may be wrong it is computed again
    limit, norm = scalar(threshold), _norm(states, gradients, runner)
    bound = float(limit.array)
    exponent = _exponent_to_scale(norm, bound, [gradients[state.name] for state in states])
    if exponent is not None:
        return _clipped_scaled(states, gradients, bound, exponent, runner)
    # a comparison with NaN is false: then nothing is clipped
    if not norm.size > bound:
        return gradients
    # below 1, and rounded once; each element is then rounded once more
    factor = runner.run(Operation("divide", (limit, norm.root), part="factor"), "norm", EVERYWHERE)
    return _multiplied(states, gradients, factor, runner)


class _Norm(NamedTuple):
    """The norm of all gradients together.

    Attributes:
        root: the norm as the host wrote it.
        sums: the sums of squares of each parameter, and the partial sums over parameters; each may have overflowed.
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
    """Return the norm of gradients, each multiplied by `factor` if there is one; `step` names the operations."""
    sums: list[Value] = []
    total: Value | None = None
    for state in states:
        squares = UpdateRunner(runner, state).run("squared_norm", "norm", gradients[state.name], *factor, step=step)
        # partial sums join parameter by parameter, in the given order: part of the bits
        joined = Operation("add", (total, squares), part=f"{state.name}{step}") if total else None
        total = runner.run(joined, "norm", EVERYWHERE) if joined else squares
        sums += [squares, total]
    assert total is not None, "there is a parameter"
    return _Norm(runner.run(Operation("sqrt", (total,), part=f"root{step}"), "norm", EVERYWHERE), sums)


def _multiplied(
    states: Sequence[ParameterState], gradients: dict[str, Value], factor: Value, runner: Runner, step: str = ""
) -> dict[str, Value]:
    """Return gradients times a factor, in the format of role `clipped`."""
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
    """Return clipped gradients, whose norm is computed of gradients times 2**exponent."""
    norm = _norm(states, gradients, runner, constant(2.0**exponent), step=".scaled")
    exact = Fraction(norm.size) / Fraction(2) ** exponent  # a float could overflow or underflow here
    if not exact > Fraction(bound):
        return gradients
    # norm / bound in 2**halvings..2**(halvings + 1)
    halvings = _floor_log2(exact / Fraction(bound))
    # the bound brought to the scaled norm's size: their quotient, in (1/2, 1], neither overflows nor underflows
    scaled_bound = constant(math.ldexp(bound, halvings + exponent))
    factor = runner.run(Operation("divide", (scaled_bound, norm.root), part="factor"), "norm", EVERYWHERE)
    fmt = factor.format
    # the factor without the power of two that kept it near 1
    undivided = math.ldexp(float(on_host(factor.array)), -halvings)
    if isinstance(fmt, Float) and undivided >= fmt.smallest_normal:  # then the format holds it: one multiplication
        return _multiplied(states, gradients, factor.with_array(fmt.carrier.type(undivided)), runner)
    # 2**-halvings may be below the smallest float64: then it is applied in two steps
    far = max(halvings - _MOST_HALVINGS, 0)
    halved = _multiplied(states, gradients, constant(2.0 ** (far - halvings)), runner, step=".halved")
    if far:
        halved = _multiplied(states, halved, constant(2.0**-far), runner, step=".halved_again")
    return _multiplied(states, halved, factor, runner)


def _exponent_to_scale(norm: _Norm, bound: float, gradients: Sequence[Value]) -> int | None:
    """Return the exponent of the power of two that keeps squares within their formats; None if they are within them.

    Underflow takes less than the smallest normal number from each square. So if the sum is at least
    low = count * 2**p * smallest normal, p bits of precision, all squares together lose less than half an ulp of it. A
    sum below `low` may be wrong, but does no harm if the threshold's square is at least `low`: nothing is clipped.
    """
    if not 0 < bound < math.inf:
        return None
    # sums of several layers may have several formats: the narrowest decides
    formats, count = {total.format for total in norm.sums}, sum(gradient.array.size for gradient in gradients)
    # bounds as fractions: products of these may leave float64
    low = max(_lowest_sum(fmt, count) for fmt in formats)
    high = min(Fraction(fmt.max) / 2 for fmt in formats)
    if len(formats) == 1 and isinstance(norm.root.format, Float) and math.isfinite(norm.size):
        # an overflow shows: the norm is infinite, or its square near the largest value
        total = Fraction(norm.size) ** 2
        if total < high and max(total, Fraction(bound) ** 2) >= low:
            return None
    # the norm cannot be trusted, so the elements themselves are read
    sizes = [_largest(gradient) for gradient in gradients]
    largest = max(sizes) if all(map(math.isfinite, sizes)) else math.inf
    # all zeros, or an element that is not finite; or every square and the sum lie within the formats
    if not 0 < largest < math.inf or low <= Fraction(largest) ** 2 <= high / count:
        return None
    # the largest element is brought to just below 2**(largest exponent)
    exponent = min(_largest_exponent(fmt, count) for fmt in formats) - _floor_log2(Fraction(largest)) - 1
    # From -1022 to 1023 the power is a normal float64. Gradients that would take a larger one are below 2**-511, and a
    # threshold is a float32: nothing is clipped, even if their squares still underflow.
    return min(max(exponent, -1022), 1023)


def _lowest_sum(fmt: Format, count: int) -> Fraction:
    """Return the smallest sum of squares for which underflow does not matter; see `_exponent_to_scale`."""
    if isinstance(fmt, Float):
        return count * Fraction(fmt.smallest_normal) * 2**fmt.significand_bits
    return count * Fraction(fmt.smallest_positive) * 2**_FIXED_BITS


def _largest_exponent(fmt: Format, count: int) -> int:
    """Return the exponent that the largest element may have without the sum of `count` squares leaving the format.

    A float needs no more than 0, elements near 1. Fixed point loses the low bits of small squares, so its elements are
    made as large as they may be.
    """
    # count squares of at most 2**(2 e) have a sum of at most 2**(2 e + bit_length): the largest e that fits
    highest = (_floor_log2(Fraction(fmt.max)) - count.bit_length()) // 2
    return min(highest, 0) if isinstance(fmt, Float) else highest


def _largest(gradient: Value) -> float:
    """Return the largest magnitude in a gradient: 0 if it is empty, NaN if it has a NaN."""
    array = on_host(gradient.array)
    # a maximum with NaN is NaN
    return _real(max(float(array.max()), -float(array.min())), gradient.format) if array.size else 0.0


def _real(element: float, fmt: Format) -> float:
    """Return the real number that an element of a format's carrier stands for: carriers of wide formats hold raws."""
    return math.ldexp(element, -fmt.frac_bits) if isinstance(fmt, Fixed) and fmt.carries_raws else element


def _floor_log2(x: Fraction) -> int:
    """Return the exponent of the power of two at or below a positive number."""
    # within one of the answer: lengths of n bits lie in 2**(n-1)..2**n
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if x >= Fraction(2) ** exponent else exponent - 1
