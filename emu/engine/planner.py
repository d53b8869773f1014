"""The planner: picks the fastest kernel that is proved to return the reference's bits, and says why.

    fixed operands, exact sums           K * max|a| * max|b| + max|addend| in units of the last place
        <= 2**53, at most 16 bits        integer dot products, if the processor has them
        <= 2**24                         float32 BLAS, exact in any order
        <= 2**53                         float64 BLAS, exact in any order
        else                             wide integers
    saturating accumulator, bound below its limit    never saturates: as exact
    rounding accumulator                 in order along k, vectorised over outputs

An addend finer than a fixed accumulator is rounded into it first. Then the adds may never round.

Source: docs/concepts/fast-paths.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.backends.interface import EXACT_PATHS
from emu.datapath import Mac, Overflow
from emu.datapath.order import Blocks, Sequential
from emu.errors import FormatError
from emu.formats import Fixed, Float, Format

Array = NDArray[Any]
#: A plan says how long a product takes from here on.
SHOWN_SECONDS = 0.01
#: From here on times are whole seconds.
ROUND_SECONDS = 10
#: A type with p significant bits holds every integer up to 2**p, the end included. If K*max|a|*max|b| + max|addend| is
#: no larger, so is every partial sum, whatever the order: no add rounds, fused or not.
FLOAT32_INTEGERS, FLOAT64_INTEGERS = 24, 53
#: Fraction bits f between which integers of p bits, times 2**-f, are normal numbers: 2**(p-f) is at most 2**127, the
#: largest power of two of float32 (2**1023 of float64), and 2**-f at least 2**-126 (2**-1022).
FLOAT32_SCALES, FLOAT64_SCALES = (24 - 127, 126), (53 - 1023, 1022)


class Faster(NamedTuple):
    """What would make a product faster.

    Attributes:
        change: what is changed, in words that follow "with".
        times: about how many times as fast the product is then.
        keeps_bits: whether results stay as they are; other changes give other results.
    """

    change: str
    times: float
    keeps_bits: bool = False

    def __str__(self) -> str:
        digits = 10 ** max(len(str(int(self.times))) - 1, 0)
        bits = "the same bits" if self.keeps_bits else "other results"
        return f"about {round(self.times / digits) * digits} times as fast with {self.change} ({bits})"


@dataclass(frozen=True)
class Plan(Drawn):
    """Which path a product takes, and the proof.

    Attributes:
        path: "integer_dot", "float32_blas", "float64_blas", "wide" or "in_order"; of the reference "definition".
        proof: one sentence.
        mac: the unit to emulate; exact if the proof shows that the given one never rounds or saturates.
        fallback: why the backend leaves this path to the reference; empty if it computes it itself.
        addend: format into which the unit rounds a finer addend first; None leaves an addend as it is given.
        seconds: about how long the product takes here, estimated from the speed of its way as measured on a processor
            with AVX-512; None if it was not asked for, or if no speed was measured.
        faster: of a slow way, what would be much faster, the fastest first.
    """

    path: str
    proof: str
    mac: Mac
    fallback: str = ""
    addend: Fixed | None = None
    seconds: float | None = field(default=None, compare=False)
    faster: tuple[Faster, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        """Return path and proof, and of a slow product why it is slow and how long it takes."""
        fallback = f"; left to the reference: {self.fallback}" if self.fallback else ""
        text = f"{self.path}: {self.proof}{fallback}"
        time = [] if self.shown_time is None else [f"takes about {self.shown_time}"]
        return "; ".join([text, *time, *(["slow"] if self.faster else []), *map(str, self.faster)])

    @property
    def shown_time(self) -> str | None:
        """How long the product takes, as text; None if that is short, or not known."""
        if self.seconds is None or self.seconds < SHOWN_SECONDS:
            return None
        return f"{self.seconds:.{'0f' if self.seconds >= ROUND_SECONDS else '2g'}} s"


def plan_product(
    a_format: Format,
    b_format: Format,
    addend_format: Format | None,
    depth: int,
    mac: Mac,
    maxima: Callable[[], tuple[float, float]] | None = None,
    *,
    dots: bool = False,
) -> Plan:
    """Return the plan of a product of inner size `depth`.

    Args:
        a_format: format of the left operand.
        b_format: format of the right operand.
        addend_format: format of the addend, or None.
        depth: K.
        mac: the unit.
        maxima: measures max|a| and max|b|; called only if the formats alone do not prove a fast path.
        dots: whether the backend multiplies these operands by integer dot-product instructions.
    """
    rounded = rounded_addend_format(addend_format, mac)
    # the plan sees the addend that the unit adds: after it was rounded, if it is finer than the accumulator
    addend = addend_format if rounded is None else rounded
    if (
        mac.product == "exact"
        and isinstance(a_format, Fixed)
        and isinstance(b_format, Fixed)
        and not isinstance(addend, Float)
    ):
        plan = _plan_of_integers(_Bound.of(a_format, b_format, addend, depth), mac, dots)
        if plan.path not in EXACT_PATHS and maxima is not None and not (a_format.carries_raws or b_format.carries_raws):
            plan = _plan_of_integers(_Bound.of(a_format, b_format, addend, depth, maxima()), mac, dots)
    else:
        plan = _plan_of_floats(mac)
    if rounded is None:
        return plan
    return replace(plan, addend=rounded, proof=f"{plan.proof}; the addend is rounded to {rounded} first")


def rounded_addend_format(addend: Format | None, mac: Mac) -> Fixed | None:
    """Return the format into which a unit rounds a finer addend before the first product; None if it does not.

    A fixed accumulator that adds in order begins with the addend. If the rounded addend cannot overflow, and no random
    bits are drawn, it can be rounded before the product is planned.

    Args:
        addend: its format as it is given, or None.
        mac: the unit.

    Source: docs/concepts/products.md.
    """
    accumulator = mac.accumulator
    if not isinstance(addend, Fixed) or not isinstance(accumulator, Fixed) or addend.carries_raws:
        return None
    # other orders add the addend last; a mode that moves exact values would move the rounded addend once more
    if not isinstance(mac.order, Sequential) or mac.rounding.draws or mac.rounding.moves_exact:
        return None
    # bits of the addend below the accumulator's last place; 0 or less: nothing is to be rounded
    dropped = addend.frac_bits - accumulator.frac_bits
    width = max(addend.width_bits - dropped, 1) + 1  # rounded up, the largest needs a bit more
    # an unsigned addend lies below the sign bit of a signed accumulator
    room = accumulator.width_bits - (accumulator.signed and not addend.signed)
    if dropped <= 0 or width > room or addend.signed > accumulator.signed:
        return None
    return Fixed(width, accumulator.frac_bits, addend.signed)


def may_gain_from_maxima(a: Format, b: Format, addend: Format | None, mac: Mac) -> bool:
    """Return whether measuring the operands' largest values could prove a faster path than the formats do."""
    fixed = all(isinstance(f, Fixed) for f in (a, b, addend) if f is not None)
    return mac.product == "exact" and fixed and not (a.carries_raws or b.carries_raws)


@dataclass(frozen=True)
class _Bound:
    """A bound on the magnitude of every partial sum, in any order, in units of 2**-frac_bits.

    Attributes:
        magnitude: K * max|a| * max|b| + max|addend|.
        frac_bits: of the finer one of products and addend.
        operands: formats of operands and addend.
        origin: where the maxima come from, for the proof.
    """

    magnitude: int
    frac_bits: int
    operands: tuple[Fixed, ...]
    origin: str

    @property
    def signed(self) -> bool:
        """Whether a partial sum can be negative."""
        return any(f.signed for f in self.operands)

    def scales_within(self, points: tuple[int, int]) -> bool:
        """Return whether the binary points of operands and sums lie in a range."""
        return all(points[0] <= frac <= points[1] for frac in (self.frac_bits, *(f.frac_bits for f in self.operands)))

    @classmethod
    def of(
        cls, a: Fixed, b: Fixed, addend: Fixed | None, depth: int, maxima: tuple[float, float] | None = None
    ) -> _Bound:
        """Return the bound by the operands' formats, or by their measured largest magnitudes.

        Raises:
            FormatError: a measured magnitude is NaN or infinite, as no number of fixed point is.
        """
        if maxima is None:
            max_a, max_b, origin = _largest_raw(a), _largest_raw(b), "the formats"
        else:
            for measured, fmt in zip(maxima, (a, b), strict=True):
                if not math.isfinite(measured):
                    raise FormatError(f"every value must belong to {fmt}, got {measured}; quantize it first")
            # at least 1: beside zeros alone the other operand would have no bound
            # exact: ldexp moves the binary point of a number whose raw is an integer
            max_a, max_b = (max(int(np.ldexp(m, f.frac_bits)), 1) for m, f in zip(maxima, (a, b), strict=True))
            origin = "the data's measured maxima"
        frac_bits = a.frac_bits + b.frac_bits
        # products and addend in one unit, that of the finer: the other is shifted up, which is exact
        finest = max(frac_bits, addend.frac_bits) if addend else frac_bits
        total = depth * max_a * max_b << (finest - frac_bits)
        if addend:
            total += _largest_raw(addend) << (finest - addend.frac_bits)
        return cls(total, finest, tuple(f for f in (a, b, addend) if f), origin)

    def __str__(self) -> str:
        limit = max(self.magnitude - 1, 0).bit_length()  # the least power of two that is not below it
        return f"K*max|a|*max|b| + max|addend| <= 2**{limit} units of 2**{-self.frac_bits} by {self.origin}"


def _largest_raw(fmt: Fixed) -> int:
    return max(-fmt.min_raw, fmt.max_raw)


def _plan_of_integers(bound: _Bound, mac: Mac, dots: bool) -> Plan:
    # the proof that the accumulator drops out; empty if it is exact anyway
    why = ""
    if mac.accumulator != "exact":
        moves = mac.rounding.moves_exact  # such a mode changes a sum at every add, although nothing is dropped
        # a float accumulator, one with fewer fraction bits than the terms, or such a mode: sums depend on the order
        if not isinstance(mac.accumulator, Fixed) or mac.accumulator.frac_bits < bound.frac_bits or moves:
            return Plan("in_order", f"the accumulator {mac.accumulator} rounds at every add", mac)
        # max_raw is the nearer of both limits of two's complement. -1 lies below every bound: whatever the operands, an
        # unsigned accumulator may meet a negative sum.
        limit = mac.accumulator.max_raw if mac.accumulator.signed or not bound.signed else -1
        if bound.magnitude << (mac.accumulator.frac_bits - bound.frac_bits) > limit:
            return Plan("in_order", f"the accumulator {mac.accumulator} may leave its range: {bound}", mac)
        never = "wraps" if mac.overflow is Overflow.WRAP else "saturates"
        why = f"; the accumulator {mac.accumulator} never {never}"
        # shown never to round or to overflow, the accumulator is the exact one
        mac = Mac()
    if dots and bound.magnitude <= 1 << FLOAT64_INTEGERS and bound.scales_within(FLOAT64_SCALES):
        return Plan("integer_dot", f"{bound}, exact in 64-bit integers in any order{why}", mac)
    if bound.magnitude <= 1 << FLOAT32_INTEGERS and bound.scales_within(FLOAT32_SCALES):
        return Plan("float32_blas", f"{bound}, exact in float32 in any order{why}", mac)
    if bound.magnitude <= 1 << FLOAT64_INTEGERS and bound.scales_within(FLOAT64_SCALES):
        return Plan("float64_blas", f"{bound}, exact in float64 in any order{why}", mac)
    return Plan("wide", f"{bound}, beyond float64: wide integers{why}", mac)


def _plan_of_floats(mac: Mac) -> Plan:
    if mac.is_exact:
        return Plan("wide", "float operands and an exact accumulator: a wide integer sum, rounded once", mac)
    if isinstance(mac.order, Blocks):
        return Plan("in_order", _sentence_of_blocks(mac, mac.order), mac)
    rounding = mac.accumulator if mac.accumulator != "exact" else mac.product
    return Plan(
        "in_order", f"{rounding} rounds on the way, so adds keep the order {mac.order}, vectorised over outputs", mac
    )


def _sentence_of_blocks(mac: Mac, order: Blocks) -> str:
    """Return what a unit of blocks does, in one sentence."""
    if order.addend == "aligned":
        terms, joined = "products and the accumulator", "one after the other along k"
    else:
        terms, joined = (
            "products",
            f"from +0 over {len(order.indices)} k, then added to the running sum by an IEEE adder",
        )
    cut = f"cut {order.fraction_bits} bits below their largest exponent"
    return f"blocks of {order.n} {terms}, {cut}, round once into {mac.accumulator}, {joined}; vectorised over outputs"
