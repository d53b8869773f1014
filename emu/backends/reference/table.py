"""The reference backend's table of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import largest_magnitude
from emu.backends.gathered import Gathered
from emu.backends.interface import (
    FormatCode,
    Outcome,
    Write,
)
from emu.backends.kernels import Result, SmallOperation, SmallWrite
from emu.backends.pattern import Columns, Indices
from emu.backends.product import Formats, Product, SparseProduct, Way
from emu.backends.reference import arithmetic, scaled, sparse
from emu.backends.reference.codecs import ReferenceCodecs
from emu.backends.reference.definition import DEFINITION, SPARSE_DEFINITION
from emu.backends.reference.stage import draw_bits, finish, to_integral, writing_integers
from emu.formats import Scaled
from emu.formats.arrays import as_float64, code_dtype_for

if TYPE_CHECKING:
    from emu.backends.functions import FunctionTable

Array = NDArray[Any]


class HostKernels:
    """Kernels that are the same in each backend whose arrays are in the host's memory."""

    def place(self, x: Array) -> Array:
        """Return the array itself: it is in the host's memory."""
        return x

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Return the results of tasks, computed one after the other."""
        return [task() for task in tasks]

    def compiling_ahead(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: nothing is compiled."""
        return nullcontext()

    def small_write(self, asked: SmallOperation) -> SmallWrite | None:
        """Return None: there is no shorter way."""
        return None

    def largest_magnitudes(self, arrays: Sequence[Array]) -> list[float]:
        """Return the largest magnitude in each array."""
        return [largest_magnitude(x) for x in arrays]


class ReferenceKernels(ReferenceCodecs, HostKernels):
    """Exact NumPy kernels: the executable definition, with which each other backend is compared."""

    name = "reference"
    ways: tuple[Way[Product], ...] = (DEFINITION,)
    sparse_ways: tuple[Way[SparseProduct], ...] = (SPARSE_DEFINITION,)

    def quantize(
        self,
        x: Array,
        source: FormatCode | None,
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write `x` through the output stage."""
        # flat, in C order: elements are numbered so for random bits
        exact = arithmetic.exact_of(x.reshape(-1), source)
        return _into(out, x.shape, finish(exact, _flat(write)), write.stage.format.quantum)

    def quantize_blocks(
        self, x: Array, fmt: Scaled, axis: int, write: Write, *, counted: bool
    ) -> tuple[Outcome, tuple[Array, ...]]:
        """Write `x` in a format whose elements share scales."""
        return scaled.quantize_blocks(self, x, fmt, axis, write)

    def elementwise(
        self,
        operation: str,
        operands: tuple[Array, ...],
        formats: tuple[FormatCode | None, ...],
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write `operation` of the operands through the output stage."""
        flat = tuple(x.reshape(-1) for x in operands)
        if operation == "round_to_integral":
            return self._round_to_integral(operands[0], formats[0], write, out)
        exact = arithmetic.compute(operation, flat, formats, write.stage)
        # a zero divisor is known from the operands only: an infinite quotient may come from an infinite operand
        by_zero = arithmetic.divides_by_zero(flat, formats) if operation == "divide" else None
        outcome = finish(exact, _flat(write), by_zero=by_zero)
        return _into(out, operands[0].shape, outcome, write.stage.format.quantum)

    def _round_to_integral(
        self,
        x: Array,
        source: FormatCode | None,
        write: Write,
        out: Array | None,
    ) -> Outcome:
        exact, flat, stage = arithmetic.exact_of(x.reshape(-1), source), _flat(write), write.stage
        integers, moved = to_integral(exact, stage, draw_bits(exact.kind.shape, stage, flat.random))
        # counted against the operand, since the integers may be written exactly
        outcome = finish(integers, flat._replace(stage=writing_integers(stage)), moved=moved)
        return _into(out, x.shape, outcome, stage.format.quantum)

    def columns(self, index: Indices, count: int) -> Columns:
        """Return which of `count` columns have entries."""
        return sparse.columns(index, count)

    def dots(self, formats: Formats) -> bool:
        """Return False: the definition has no instructions."""
        return False

    def function(
        self,
        name: str,
        x: Array,
        source: FormatCode | None,
        write: Write,
    ) -> Outcome:
        """Write an elementary function of `x`."""
        # loaded here: functions build on this package
        from emu.backends.functions import evaluate_wide, write_wide

        doubles = as_float64(arithmetic.flush_operands(x, source))
        return write_wide(evaluate_wide(name, doubles), self.quantize, write)

    def tabled(self, table: FunctionTable, x: Array, write: Write) -> Outcome:
        """Write what the function's table holds for `x`."""
        return table.outcome(x, write)

    def relu(self, x: Array) -> Array:
        """Return x where x > 0, NaN where NaN, else +0."""
        return np.where(np.isnan(x) | (x > 0), x, np.zeros((), x.dtype))

    def relu_gradient(self, g: Array, x: Array) -> Array:
        """Return g where x > 0, else +0."""
        return np.where(x > 0, g, np.zeros((), g.dtype))

    def max_pool(self, windows: Array | Gathered) -> tuple[Array, NDArray[np.unsignedinteger[Any]]]:
        """Return maximum and index of the first maximum along the last axis; NaN wins, -0 < +0."""
        windows = windows.array() if isinstance(windows, Gathered) else windows
        dtype = code_dtype_for((windows.shape[-1] - 1).bit_length())
        best, index = windows[..., 0].copy(), np.zeros(windows.shape[:-1], dtype)
        for position in range(1, windows.shape[-1]):
            rival = windows[..., position]
            # -0 == +0, but IEEE 754-2019 section 9.6 orders them: maximum(-0, +0) is +0.
            zeros = (rival == best) & (best == 0) & np.signbit(best) & ~np.signbit(rival)
            wins = ~np.isnan(best) & (np.isnan(rival) | (rival > best) | zeros)  # the first NaN wins, and stays
            best, index = np.where(wins, rival, best), np.where(wins, dtype.type(position), index)
        return best, index

    def unpool(self, values: Array, index: NDArray[np.unsignedinteger[Any]], windows: Gathered) -> Array:
        """Return zeros, (windows.data.size,), with each value as its window's index-th element.

        Windows never overlap; an index outside the window writes nothing.
        """
        spread = np.zeros(windows.data.size, values.dtype)
        # first place of each window, in the order of the values
        first = (np.arange(windows.batches) * windows.batch_stride)[:, None] + windows.rows
        position = index.reshape(-1)
        inside = position < windows.columns.size  # indices are unsigned
        spread[first.reshape(-1)[inside] + windows.columns[position[inside]]] = values.reshape(-1)[inside]
        return spread


def _flat(write: Write) -> Write:
    """Return a write whose recorded bits are flat too, in C order, as the results are while they are computed."""
    recorded = write.random.recorded
    return write if recorded is None else write._replace(random=write.random._replace(recorded=recorded.reshape(-1)))


def _into(out: Array | None, shape: tuple[int, ...], outcome: Outcome, quantum: int) -> Outcome:
    # results are computed flat
    outcome.values = outcome.values.reshape(shape)
    if out is not None:
        # An array of signed integers asks for raws, of a format whose carrier is a float.
        asks_for_raws = out.dtype.kind == "i" and outcome.values.dtype.kind == "f"
        out[...] = np.ldexp(outcome.values, -quantum) if asks_for_raws else outcome.values
        outcome.values = out
    return outcome
