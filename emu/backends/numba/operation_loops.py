"""Elementwise operations without vector code: pieces of results, from the operands to what the stage writes.

A piece is written in passes over arrays of float64, each a kernel of its own or an operation of NumPy, so that only
those passes are compiled that a stage takes. Compiling them all takes six seconds; those of a quantisation to nearest
even take less than one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.interface import RandomCode, RegisterCode
from emu.backends.numba.bits import (
    add_to_odd,
    divide_to_odd,
    fma_to_odd,
    multiply_to_odd,
    remainder_of,
    sqrt_to_odd,
)
from emu.backends.numba.blocks import (
    Stage,
    bound_fixed,
    bound_float,
    count_tiny,
    observe_block,
    round_block,
    scale_fixed,
    scale_float,
)
from emu.backends.numba.compiling import kernel
from emu.backends.numba.philox import fill_random, signed
from emu.datapath.pending import NO_EXPONENT

Array = NDArray[Any]
#: Results of a piece, a multiple of 16 as random bits want it; its eight arrays, 512 KiB, fit a second-level cache.
PIECE = 1 << 13
#: Modes that an operation of NumPy rounds by, zeros with their signs.
_ROUND_AS: dict[int, Callable[..., Any]] = {
    k.NEAREST_EVEN: np.rint,
    k.FLOOR: np.floor,
    k.CEIL: np.ceil,
    k.TOWARD_ZERO: np.trunc,
}


# Results are exact or rounded to odd: the stage rounds those to the same bits as exact ones. Each operation has its own
# kernel, as a program uses few of them.


@kernel
def _add(p: Any, q: Any, n: int, floor: bool, x: Any) -> None:
    for i in range(n):
        x[i] = add_to_odd(p[i], q[i])
    if floor:  # a zero sum is -0 unless both terms are +0 (IEEE 754-2019 section 6.3)
        for i in range(n):
            if x[i] == 0.0 and (math.copysign(1.0, p[i]) < 0.0 or math.copysign(1.0, q[i]) < 0.0):
                x[i] = -0.0


@kernel
def _multiply(p: Any, q: Any, n: int, x: Any) -> None:
    for i in range(n):
        x[i] = multiply_to_odd(p[i], q[i])


@kernel
def _fma(p: Any, q: Any, t: Any, n: int, floor: bool, x: Any) -> None:
    for i in range(n):
        x[i] = fma_to_odd(p[i], q[i], t[i])
        if floor and x[i] == 0.0 and (math.copysign(1.0, p[i] * q[i]) < 0.0 or math.copysign(1.0, t[i]) < 0.0):
            x[i] = -0.0  # as of a sum


@kernel
def _divide(p: Any, q: Any, n: int, x: Any) -> None:
    for i in range(n):
        x[i] = divide_to_odd(p[i], q[i])


@kernel
def _remainder(p: Any, q: Any, n: int, x: Any) -> None:
    for i in range(n):
        x[i] = remainder_of(p[i], q[i])


@kernel
def _sqrt(p: Any, n: int, x: Any) -> None:
    for i in range(n):
        x[i] = sqrt_to_odd(p[i])


def compute_operation(operation: int, operands: Sequence[Array], n: int, floor: bool, x: Array, flags: Array) -> int:
    """Compute results, exact or rounded to odd; return how many are NaN without a NaN among the operands.

    Args:
        operation: its number, none of QUANTIZE and ROUND_TO_INTEGRAL.
        operands: float64, as many as it has; that of SUBTRACT is overwritten.
        n: how many.
        floor: whether zero sums are -0 as under rounding toward negative.
        x: float64; written.
        flags: divisions by zero are added.
    """
    if operation == k.SUBTRACT:
        # A copy: operands have been loaded as float64 into room of this piece.
        np.negative(operands[1], out=operands[1])
    if operation in (k.ADD, k.SUBTRACT):
        _add(*operands, n, floor, x)
    elif operation == k.FMA:
        _fma(*operands, n, floor, x)
    else:
        _PLAIN[operation](*operands, n, x)
    if operation == k.DIVIDE:  # a finite number, not 0, over 0 (IEEE 754-2019 section 7.3)
        p, q = (operand[:n] for operand in operands)
        flags[k.DIVISION_FLAG] += np.count_nonzero((q == 0.0) & (p != 0.0) & np.isfinite(p))
    new_nans = np.isnan(x[:n])
    if new_nans.any():
        for operand in operands:
            new_nans &= ~np.isnan(operand[:n])
    return int(np.count_nonzero(new_nans))


_PLAIN = {k.MULTIPLY: _multiply, k.DIVIDE: _divide, k.REMAINDER: _remainder, k.SQRT: _sqrt}


class Passes(NamedTuple):
    """What writes pieces of an operation's results.

    Attributes:
        operation: number of the operation.
        stage: the output stage.
        positions: of the register; no position without one.
        scale: power of two by which the operand of QUANTIZE and ROUND_TO_INTEGRAL is multiplied first.
        out_scale: what values are multiplied by where they are stored.
        random: numbers of the random bits.
        recorded: recorded random bits of all results, flat; None if there are none.
    """

    operation: int
    stage: Stage
    positions: RegisterCode
    scale: float
    out_scale: float
    random: RandomCode
    recorded: Array | None

    def write(
        self, operands: Sequence[Array], origin: int, out: Array, start: int, stop: int, flags: Array, counts: Array
    ) -> int:
        """Write results `start`..`stop`, piece by piece; return the largest exponent observed.

        Args:
            operands: flat arrays.
            origin: index of the result that element 0 of the operands belongs to.
            out: carriers or raws, flat.
            start: first result.
            stop: one past the last.
            flags: counts of flags; added to.
            counts: counts of the register; added to.
        """
        size = min(PIECE, max(stop - start, 0))
        # Exact results, what is written, results in last places, rounded ones; then the operands.
        x, y, v, r, *loaded = np.empty((4 + len(operands), size))
        u = np.zeros(size, np.int64)
        top = NO_EXPONENT
        with np.errstate(all="ignore"):  # operands may be signalling NaNs, and results infinite: flags count that
            for at in range(start, stop, PIECE):
                n = min(PIECE, stop - at)
                for operand, place in zip(operands, loaded, strict=True):
                    place[:n] = operand[at - origin : at - origin + n]
                self._draw(u, at, n)
                new_nans = self._compute(loaded, x, n, flags)
                if self.operation == k.ROUND_TO_INTEGRAL:
                    self._round(x, r, u, n)
                    x[:n] = r[:n]
                if self.positions.bins:
                    top = observe_block(x, n, *self.positions, counts, top)
                # The register observes results before they are written; integers of `round_to_integral` pass the stage
                # once more.
                self._bound(x, y, v, r, u, n, flags)
                if self.operation == k.ROUND_TO_INTEGRAL:
                    # Writing an integer may be exact although rounding to it was not.
                    moved = (loaded[0][:n] * self.scale != x[:n]) & (y[:n] == x[:n])
                    flags[k.INEXACT_FLAG] += np.count_nonzero(moved)
                # In formats without NaN, the stage counts each NaN as invalid.
                if self.stage.is_float and self.stage.has_nan:
                    flags[k.INVALID_FLAG] += new_nans
                out[at : at + n] = y[:n] if self.out_scale == 1.0 else y[:n] * self.out_scale
        return top

    def _draw(self, u: Array, at: int, n: int) -> None:
        if self.stage.rounding in modes.DRAWN:
            if self.recorded is not None:
                u[:n] = self.recorded[at : at + n]
            elif self.stage.n_rbits:
                seed, stream, step, draw = self.random[:4]
                fill_random(u, at, n, self.stage.n_rbits, signed(seed), stream, step, draw)

    def _compute(self, loaded: Sequence[Array], x: Array, n: int, flags: Array) -> int:
        if self.operation in (k.QUANTIZE, k.ROUND_TO_INTEGRAL):
            np.multiply(loaded[0][:n], self.scale, out=x[:n])
            return 0
        return compute_operation(self.operation, loaded, n, self.stage.rounding == k.FLOOR, x, flags)

    def _round(self, v: Array, r: Array, u: Array, n: int) -> None:
        if (rounded := _ROUND_AS.get(self.stage.rounding)) is not None:
            rounded(v[:n], out=r[:n])
        else:
            round_block(v, r, u, n, self.stage)

    def _bound(self, x: Array, y: Array, v: Array, r: Array, u: Array, n: int, flags: Array) -> None:
        """Write results x as y."""
        stage = self.stage
        if not stage.is_float:
            scale_fixed(x, v, n, stage)
            self._round(v, r, u, n)
            bound_fixed(y, v, r, n, stage, flags)
            return
        scale_float(x, y, v, n, stage)
        self._round(v, r, u, n)
        bound_float(x, y, v, r, n, stage, flags)
        if stage.tininess != k.BECAME_ZERO:
            flags[k.UNDERFLOW_FLAG] += count_tiny(x, y, v, r, u, n, stage)
