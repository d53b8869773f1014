"""How each result came about: the exact result, the digits that its format keeps, those it drops, and what they did.

    exact      1 0 1 1 1 . 1 0 0 1          kept 10111, dropped 1001: guard 1, and below it 001
                           | `--- below
                           guard

A magnitude is counted in steps of the format's grid (`index`), which goes on above the largest value.

Source of the words guard and sticky: IEEE 754 arithmetic as built (Hennessy & Patterson, appendix J).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import StageCode, encode_format, encode_stage
from emu.backends.modes import moves_exact
from emu.backends.reference import arithmetic
from emu.backends.reference.exact import FINITE, Exact
from emu.backends.reference.stage import round_to
from emu.datapath import OutputStage
from emu.formats import Fixed, Format
from emu.testing.vectors.definition import through_stages
from emu.testing.vectors.description import Codes, Description
from emu.testing.vectors.selection import SELECTIONS

Array = NDArray[Any]
Mask = NDArray[np.bool_]
#: An exponent below that of every number, of a term that is 0.
NO_DIGIT = -(10**6)


@dataclass(frozen=True, eq=False)
class Steps:
    """Exact results, cut at their last places; arrays are (count,), magnitudes Python integers.

    Attributes:
        exact: the results before the output stage.
        last: exponent of each result's last place.
        kept: magnitude in last places, rounded toward zero.
        drop: how many bits are dropped.
        rest: those bits.
        moved: what rounding added to the magnitude: -1, 0 or 1.
        index: steps of the grid up to `kept`.
    """

    exact: Exact
    last: NDArray[np.int64]
    kept: Array
    drop: NDArray[np.int64]
    rest: Array
    moved: NDArray[np.int64]
    index: Array

    @property
    def finite(self) -> Mask:
        """Where the exact result is a number."""
        return self.exact.kind == FINITE

    @property
    def nonzero(self) -> Mask:
        """Where it is a number other than 0."""
        return self.finite & (self.exact.significand != 0).astype(bool)

    @property
    def inexact(self) -> Mask:
        """Where a dropped bit is 1."""
        return self.nonzero & (self.rest != 0).astype(bool)

    @property
    def rounded(self) -> Array:
        """Steps of the grid up to the rounded magnitude."""
        return self.index + self.moved.astype(object)

    @property
    def magnitude(self) -> Array:
        """The rounded magnitude, in last places."""
        return self.kept + self.moved.astype(object)

    @property
    def guard(self) -> Array:
        """The first dropped bit, 0 or 1."""
        return np.where(self.drop > 0, self.rest >> np.maximum(self.drop - 1, 0).astype(object), 0)

    @property
    def below(self) -> Array:
        """The bits behind the guard, `drop - 1` of them."""
        return self.rest - (self.guard << np.maximum(self.drop - 1, 0).astype(object))

    @property
    def is_tie(self) -> Mask:
        """Where exactly half a step is dropped."""
        return self.inexact & (self.guard == 1).astype(bool) & (self.below == 0).astype(bool)

    @property
    def is_odd(self) -> Mask:
        """Where the last digit that is kept is 1."""
        return (self.kept & 1 == 1).astype(bool)

    def complemented(self, where: Mask) -> Steps:
        """Return the steps in two's complement: of a negative number `kept` is rounded down, and `rest` goes up."""
        # an exact negative number has the same digits in both
        turned = where & self.inexact
        whole = 1 << self.drop.astype(object)
        return replace(
            self,
            kept=np.where(turned, self.kept + 1, self.kept),
            rest=np.where(turned, whole - self.rest, self.rest),
        )

    @property
    def alone(self) -> NDArray[np.int64]:
        """How far behind the guard the only 1 behind it stands, from 1 on; 0: there is none, or there are several."""
        below = self.below
        # a power of two; `below` has drop - 1 bits, so that one of length n stands drop - n places behind the guard
        single = (below != 0) & ((below & (below - 1)) == 0)
        length: Any = np.frompyfunc(int.bit_length, 1, 1)(below)
        return np.where(single.astype(bool), self.drop - length.astype(np.int64), 0)

    def carries_through(self, bits: int) -> Mask:
        """Return where a rounding step runs through the low `bits` digits of the magnitude: they are all ones."""
        ones = (1 << bits) - 1
        return (self.moved == 1) & (self.index & ones == ones).astype(bool)


def leading_of(x: Exact) -> NDArray[np.int64]:
    """Return the exponent of each number's first digit, (count,); of 0 and of what is no number `NO_DIGIT`."""
    return np.where((x.significand != 0) & (x.kind == FINITE), x.leading, NO_DIGIT)


def without_spare_zeros(raws: Array) -> tuple[Array, int]:
    """Return integers without the low zeros that all of them have, and how many these are, 0 of zeros alone.

    They come from the carriers of a unit's numbers, not from the unit.
    """
    digits = int(np.bitwise_or.reduce(np.append(np.abs(raws), 0)))
    # x & -x is the last 1
    spare = max((digits & -digits).bit_length() - 1, 0)
    return raws >> spare, spare


def exact_results(description: Description, parts: list[Exact], stage: OutputStage) -> Exact:
    """Return what the output stage of an elementwise operation is given, (count,), of which no bit is missing."""
    operation = description.operation
    if operation in ("quantize", "round_to_integral"):
        exact = parts[0]
    elif operation in SELECTIONS:
        exact = SELECTIONS[operation](parts)
    else:
        with np.errstate(all="ignore"):
            exact = arithmetic.compute_exact(operation, parts, encode_stage(stage))
    return through_stages(description, exact) if description.pipeline else exact


def operand_parts(formats: tuple[Format, ...], operands: tuple[Codes, ...]) -> list[Exact]:
    """Return the operands of an elementwise operation as exact numbers, (count,) each."""
    return [
        arithmetic.exact_of(fmt.decode(codes), encode_format(fmt)) for fmt, codes in zip(formats, operands, strict=True)
    ]


def steps_of(exact: Exact, stage: OutputStage, rbits: Codes | None, *, integral: bool = False) -> Steps:
    """Return the steps of exact results, shape (count,).

    Args:
        exact: results before the output stage.
        stage: the output stage.
        rbits: random bits of stochastic rounding.
        integral: whether results are rounded to whole numbers, as round_to_integral does.
    """
    fmt, code = stage.format, encode_stage(stage)
    exact = exact.as_object()
    # infinities and NaN have no digits here, so that no step is a tie or inexact
    significand = np.where(exact.kind == FINITE, exact.significand, 0)
    exact = replace(exact, significand=significand)
    last = _last_places(exact, code, integral)
    # an exact result may end above the last place: then it is filled with zeros, and nothing is dropped
    grow = np.maximum(exact.exponent - last, 0).astype(object)
    drop = np.maximum(last - exact.exponent, 0)
    whole = significand << grow
    kept = whole >> drop.astype(object)
    rest = whole - (kept << drop.astype(object))
    # with a precision of 1, `round_to` would take the parity of a tie from the exponent field, not from the integer
    code = code._replace(format=code.format._replace(precision=0)) if integral else code
    u = None if rbits is None else rbits.astype(np.int64)
    rounded, _ = round_to(exact, last, code, u, 0)
    index = kept
    if not isinstance(fmt, Fixed) and not integral:
        # the digits of a normal number have their leading 1 at 2**fraction_bits: each exponent adds as many steps
        above = np.maximum(last - code.format.quantum, 0).astype(object)
        index = kept + (above << fmt.fraction_bits)
    return Steps(exact, last, kept, drop, rest, (rounded - kept).astype(np.int64), index)


def _last_places(exact: Exact, stage: StageCode, integral: bool) -> NDArray[np.int64]:
    if integral:
        # a number that ends above the point is an integer already; modes that move exact results move it in units of 1
        return np.zeros_like(exact.exponent) if moves_exact(stage) else np.maximum(exact.exponent, 0)
    fmt = stage.format
    if not fmt.is_float:
        return np.full(exact.kind.shape, fmt.quantum, np.int64)
    nonzero = (exact.significand != 0).astype(bool)
    # normal numbers keep `precision` digits, smaller ones end at the quantum
    return np.where(nonzero, np.maximum(exact.leading - (fmt.precision - 1), fmt.quantum), fmt.quantum)
