"""The Numba backend's table of kernels: fast where the bits are proved equal, the reference elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.arrays import largest_magnitude
from emu.backends.gathered import Gathered, stacks_of
from emu.backends.interface import (
    FormatCode,
    MacCode,
    Outcome,
    RandomCode,
    RegisterCode,
    StageCode,
)
from emu.backends.kernels import Result
from emu.backends.memory import empty
from emu.backends.modes import draws
from emu.backends.numba import (
    blocks_in_tiles,
    dot_add,
    halves,
    in_order,
    in_tiles,
    infinite_sums,
    integers,
    ordered,
    pairwise_sums,
    sparse,
    sparse_groups,
    speculation,
    wide_sums,
)
from emu.backends.numba.blas import exact_sums
from emu.backends.numba.codecs import NumbaCodecs
from emu.backends.numba.compiling import BLOCK, over_ranges, thread_count
from emu.backends.numba.flushing import flushed
from emu.backends.numba.gathering import materialised
from emu.backends.numba.in_doubles import decides, scales_exactly, scales_exactly_from
from emu.backends.numba.machine import has_vectors
from emu.backends.numba.selection import (
    max_pool_in_lanes,
    max_pool_range,
    relu_gradient_range,
    relu_range,
    unpool_range,
)
from emu.backends.numba.stage import run_stage, supports
from emu.backends.pattern import Columns, Indices, Pattern
from emu.backends.proofs import decides_in_float64
from emu.backends.reference import ReferenceKernels
from emu.backends.reference.accumulators import nan_among
from emu.backends.reference.arithmetic import flush_operands
from emu.formats.arrays import as_float64, code_dtype_for

if TYPE_CHECKING:
    from emu.backends.functions import FunctionTable

Array = NDArray[Any]
#: Elements and windows below which a second thread is not worth waking.
GRAIN_ELEMENTS, GRAIN_WINDOWS = 1 << 20, 1 << 16


class NumbaKernels(NumbaCodecs):
    """Compiled CPU kernels, bit for bit the reference's results."""

    name = "numba"

    def __init__(self) -> None:
        self._reference = ReferenceKernels()
        thread_count()  # a wrong EMU_THREADS is named before anything is computed or written

    def place(self, x: Array) -> Array:
        """Return an array of the host's memory: as it is."""
        return x

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Return the results of tasks, one after the other."""
        return [task() for task in tasks]

    def quantize(
        self,
        x: Array,
        source: FormatCode | None,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        out: Array | None,
    ) -> Outcome:
        """Write `x` through the output stage."""
        if x.dtype.kind != "f" or not supports(stage) or not scales_exactly(x, stage):
            return self._reference.quantize(x, source, stage, random, register, out)
        return run_stage("quantize", (flushed(x, source),), stage, random, register, out=out)

    def elementwise(
        self,
        operation: str,
        operands: tuple[Array, ...],
        formats: tuple[FormatCode | None, ...],
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        out: Array | None,
    ) -> Outcome:
        """Write `operation` of the operands through the output stage."""
        if not supports(stage) or not decides(operation, operands, formats, stage):
            return self._reference.elementwise(operation, operands, formats, stage, random, register, out)
        operands = tuple([flushed(x, fmt) for x, fmt in zip(operands, formats, strict=True)])
        return run_stage(operation, operands, stage, random, register, out=out)

    def product(
        self,
        a: Array | Gathered,
        b: Array | Gathered,
        addend: Array | None,
        formats: tuple[FormatCode, FormatCode, FormatCode | None],
        mac: MacCode,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        path: str,
        divisor: int,
    ) -> Outcome:
        """Write the product on the planned path."""
        if self.declines(formats, mac, stage, path, divisor):
            return self._reference.product(a, b, addend, formats, mac, stage, random, register, path, divisor)
        if path == "integer_dot":
            return integers.write_products(a, b, addend, formats, stage, random, register)
        if mac.order == k.PAIRWISE and addend is None:
            left, right = (x if isinstance(x, Gathered) else Gathered.of(x) for x in (a, b))
            if pairwise_sums.applies(left, right, formats, mac):
                contents = pairwise_sums.sums(left, right)
                outcome = _divided(contents, divisor, stage, random, register)
                _count_accumulator_events(outcome, contents, None, (left, right, None), formats, mac, stage, random)
                return outcome
        a, b = stacks_of(a, b, materialised)
        if path in ("float32_blas", "float64_blas"):
            sums = exact_sums(a, b, addend, np.dtype(np.float32 if path == "float32_blas" else np.float64))
            return _divided(sums, divisor, stage, random, register)
        if mac.accumulator is None:
            whole = (
                halves.sums(a, b, addend, formats) if halves.applies(formats, mac, stage, a.shape[2], divisor) else None
            )
            contents, written = (
                (whole, whole)
                if whole is not None
                else wide_sums.sums(a, b, addend, formats, mac, stage, random, divisor)
            )
            outcome = wide_sums.write(contents, written, stage, random, register)
            _count_accumulator_events(outcome, contents, None, (a, b, addend), formats, mac, stage, random)
            return outcome
        if mac.order == k.BLOCKS:
            found = blocks_in_tiles.sums(a, b, addend, formats, mac)
            contents, touched = (
                dot_add.accumulate(a, b, addend, formats, mac, random) if found is None else (found, None)
            )
        elif _spares(formats, mac, a.shape[2]) and (spared := speculation.accumulate(a, b, addend, formats, mac)):
            contents, touched = spared
        elif (tiles := in_tiles.unit_for(mac, formats)) is not None:
            contents, touched = in_tiles.accumulate(a, b, addend, formats, tiles)
        elif (unit := in_order.unit_for(mac, formats)) is not None:
            contents, touched = in_order.accumulate(a, b, addend, formats, unit)
        else:
            contents, touched = ordered.accumulate(a, b, addend, formats, mac, random)
        outcome = _divided(contents, divisor, stage, random, register)
        _count_accumulator_events(outcome, contents, touched, (a, b, addend), formats, mac, stage, random)
        return outcome

    def declines(
        self,
        formats: tuple[FormatCode, FormatCode, FormatCode | None],
        mac: MacCode,
        stage: StageCode,
        path: str,
        divisor: int,
    ) -> str:
        """Return why a product on this path is left to the reference, "" if compiled loops compute it."""
        if not supports(stage):
            return "the written format lies outside what float64 loops round"
        is_exact = path in k.EXACT_PATHS
        if not is_exact and any(
            s and s.format.is_float and not s.format.signed for s in (mac.product, mac.accumulator)
        ):
            return "unsigned floats inside the unit have no compiled loop"
        if not is_exact and (reason := infinite_sums.hides(mac)):
            return reason
        if mac.accumulator is None and not is_exact:
            return wide_sums.declines(formats, mac, stage, divisor)
        power_of_two = divisor & (divisor - 1) == 0
        span = stage.format.width_bits + stage.format.quantum
        undecided = not decides_in_float64(stage, span + (stage.overflow == k.WRAP))
        if not power_of_two and (divisor.bit_length() > wide_sums.MAX_DIVISOR_BITS or undecided):
            return f"a quotient by {divisor} is not decided in float64"
        if is_exact:
            return "" if scales_exactly_from(formats, stage) else "the binary points lie too far from each other"
        if mac.order == k.BLOCKS:
            return dot_add.declines(formats, mac)
        if in_tiles.unit_for(mac, formats) is not None or in_order.unit_for(mac, formats) is not None:
            return ""
        return ordered.declines(formats, mac)

    def sparse_product(
        self,
        data: Array,
        dense: Array,
        addend: Array | None,
        pattern: Pattern,
        formats: tuple[FormatCode, FormatCode, FormatCode | None],
        mac: MacCode,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        path: str,
    ) -> Outcome:
        """Write the dot products of every result's entries: in strips, or gathered."""
        if self.declines_sparse(formats, mac, stage, path):
            given = (data, dense, addend, pattern, formats, mac, stage, random, register, path)
            return self._reference.sparse_product(*given)
        if not sparse.applies(formats, mac, path):
            parts = (data, dense, addend, pattern, formats, mac, stage, random, register, path)
            return sparse_groups.write(self.product, *parts)
        sums, touched = sparse.contents(data, dense, addend, pattern, formats, mac, path)
        outcome = run_stage("quantize", (sums,), stage, random, register)
        asks_where = touched is None and infinite_sums.is_watched(mac)
        if (asks_where or stage.format.has_nan) and not np.isfinite(sums).all():
            if asks_where:
                touched = infinite_sums.overflowed_sparse(sums, data, dense, addend, pattern, formats, mac, random)
            if stage.format.has_nan and (nans := np.isnan(sums)).any():
                seen = sparse.any_operand(np.isnan, data, dense, addend, pattern)
                outcome.flags[k.INVALID_FLAG] += int((nans & ~seen).sum())
        if touched is not None:
            outcome.flags[k.ACCUMULATOR_FLAG] += int(np.count_nonzero(touched))
        return outcome

    def declines_sparse(
        self, formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, stage: StageCode, path: str
    ) -> str:
        """Return why a sparse product on this path is left to the reference."""
        inside = [part for part in (mac.product, mac.accumulator) if part is not None]
        if any(draws(part) for part in inside):
            return "random bits inside the unit are numbered by result, and gathered operands have numbers of their own"
        return self.declines(formats, mac, stage, path, 1)

    def way_of_sparse(self, formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, path: str) -> str:
        """Return whether entries are added in strips or gathered."""
        return sparse.WAY if sparse.applies(formats, mac, path) else sparse_groups.WAY

    def columns(self, index: Indices, count: int) -> Columns:
        """Return which of `count` columns have entries."""
        return sparse.columns(index, count)

    def dots(self, formats: tuple[FormatCode, FormatCode, FormatCode | None]) -> bool:
        """Return whether exact sums of these operands come from integer dot-product instructions."""
        return integers.applies(formats)

    def way(
        self, formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, path: str, depth: int
    ) -> str:
        """Return that outputs of a saturating accumulator that provably stay inside are summed in any order, if so."""
        return speculation.SPARED if path not in k.EXACT_PATHS and _spares(formats, mac, depth) else ""

    def function(
        self,
        name: str,
        x: Array,
        source: FormatCode | None,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
    ) -> Outcome:
        """Write an elementary function of `x`."""
        from emu.backends.functions import write_wide
        from emu.backends.numba.functions import evaluate_wide

        return write_wide(
            evaluate_wide(name, as_float64(flush_operands(x, source))), self.quantize, stage, random, register
        )

    def tabled(
        self, table: FunctionTable, x: Array, stage: StageCode, random: RandomCode, register: RegisterCode | None
    ) -> Outcome:
        """Write what the function's table holds for `x`."""
        from emu.backends.numba import tabled

        return tabled.gather(table, x, stage, random, register)

    def relu(self, x: Array) -> Array:
        """Return x where x > 0, NaN where NaN, else +0."""
        flat, out = np.ascontiguousarray(x).reshape(-1), empty((x.size,), x.dtype)
        over_ranges(lambda _, start, stop: relu_range(flat, out, start, stop), x.size, BLOCK, GRAIN_ELEMENTS)
        return out.reshape(x.shape)

    def relu_gradient(self, g: Array, x: Array) -> Array:
        """Return g where x > 0, else +0."""
        arrived, seen = (np.ascontiguousarray(part).reshape(-1) for part in (g, x))
        out = empty((g.size,), g.dtype)
        over_ranges(
            lambda _, start, stop: relu_gradient_range(arrived, seen, out, start, stop), g.size, BLOCK, GRAIN_ELEMENTS
        )
        return out.reshape(g.shape)

    def largest_magnitudes(self, arrays: Sequence[Array]) -> list[float]:
        """Return the largest magnitude in each array."""
        return [largest_magnitude(x) for x in arrays]

    def max_pool(self, windows: Array | Gathered) -> tuple[Array, NDArray[np.unsignedinteger[Any]]]:
        """Return maximum and index of the first maximum along the last axis; NaN wins, -0 < +0."""
        shape = windows.shape[:-1]
        if not isinstance(windows, Gathered):
            windows = Gathered.of(windows.reshape(1, -1, windows.shape[-1]))
        count, places = math.prod(shape), (windows.data, windows.batch_stride, windows.rows, windows.columns)
        dtype = code_dtype_for((windows.columns.size - 1).bit_length())
        best, index = empty((count,), windows.dtype), empty((count,), dtype)
        pool = max_pool_in_lanes if has_vectors() and windows.dtype.kind == "f" else max_pool_range
        over_ranges(lambda _, start, stop: pool(*places, best, index, start, stop), count, 1, GRAIN_WINDOWS)
        return best.reshape(shape), index.reshape(shape)

    def unpool(self, values: Array, index: NDArray[np.unsignedinteger[Any]], windows: Gathered) -> Array:
        """Return zeros, (windows.data.size,), with each value at its window's index-th place; windows never overlap."""
        flat, where = np.ascontiguousarray(values).reshape(-1), np.ascontiguousarray(index).reshape(-1)
        spread, places = empty((windows.data.size,), values.dtype), (windows.rows, windows.columns)
        spread[...] = 0
        stride = windows.batch_stride
        over_ranges(
            lambda _, start, stop: unpool_range(flat, where, stride, *places, spread, start, stop),
            flat.size,
            1,
            GRAIN_WINDOWS,
        )
        return spread


def _spares(formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, depth: int) -> bool:
    """Return whether outputs of a saturating accumulator that provably stay inside are summed in any order."""
    return speculation.applies(mac, formats, depth) and not _is_marked(mac, formats)


def _is_marked(mac: MacCode, formats: tuple[FormatCode, FormatCode, FormatCode | None]) -> bool:
    """Return whether tiles tell a touched limit from a bit below the word, at one instruction an add."""
    tiles = in_tiles.unit_for(mac, formats)
    return tiles is not None and tiles.step == "marked"


def _divided(sums: Array, divisor: int, stage: StageCode, random: RandomCode, register: RegisterCode | None) -> Outcome:
    """Observe accumulator contents, and write them divided by a positive integer."""
    if divisor == 1:
        return run_stage("quantize", (sums,), stage, random, register)
    if divisor & (divisor - 1) == 0:
        outcome = run_stage("quantize", (sums,), stage, random, None, scale=1.0 / divisor)
    elif stage.overflow == k.WRAP:
        outcome = run_stage("quantize", (wide_sums.quotients(sums, stage, divisor),), stage, random, None)
    else:
        outcome = run_stage("divide", (sums, np.full(sums.shape, divisor, sums.dtype)), stage, random, None)
    if register is not None:
        seen = run_stage("quantize", (sums,), stage, random, register)
        outcome.register, outcome.max_exponent = seen.register, seen.max_exponent
    return outcome


def _count_accumulator_events(
    outcome: Outcome,
    contents: Array,
    touched: Array | None,
    operands: tuple[Array | Gathered, Array | Gathered, Array | None],
    formats: tuple[FormatCode, FormatCode, FormatCode | None],
    mac: MacCode,
    stage: StageCode,
    random: RandomCode,
) -> None:
    """Add the flags that only the accumulator shows.

    Limits touched, numbers that became infinite, NaN out of operands that were not NaN.
    """
    asks_where = touched is None and infinite_sums.is_watched(mac)  # loops with marks of their own looked on the way
    if (asks_where or stage.format.has_nan) and not np.isfinite(contents).all():
        addend = operands[2]
        a, b = stacks_of(operands[0], operands[1], materialised)
        if asks_where:
            touched = infinite_sums.overflowed(contents, a, b, addend, formats, mac, random)
        if stage.format.has_nan and (nans := np.isnan(contents)).any():
            outcome.flags[k.INVALID_FLAG] += int((nans & ~nan_among(a, b, addend, contents.shape)).sum())
    if touched is not None:
        outcome.flags[k.ACCUMULATOR_FLAG] += int(np.count_nonzero(touched))
