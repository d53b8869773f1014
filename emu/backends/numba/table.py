"""The Numba backend's table of kernels: fast if the bits are proved equal, else the reference."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.gathered import Gathered
from emu.backends.interface import FormatCode, Outcome, Write
from emu.backends.kernels import SmallOperation, SmallWrite
from emu.backends.memory import empty
from emu.backends.numba import ahead, integers, scaled
from emu.backends.numba.codecs import NumbaCodecs
from emu.backends.numba.compiling import BLOCK, only_read, over_ranges, thread_count
from emu.backends.numba.ending import Ended, EndedSparse
from emu.backends.numba.flushing import flushed
from emu.backends.numba.in_doubles import decides, scales_exactly
from emu.backends.numba.machine import has_vectors
from emu.backends.numba.prepared import supports
from emu.backends.numba.selection import (
    max_pool_in_lanes,
    max_pool_range,
    unpool_range,
    write_relu,
    write_relu_gradient,
)
from emu.backends.numba.small import small_write
from emu.backends.numba.stage import run_stage
from emu.backends.numba.ways import (
    blas,
    blocks_in_tiles,
    dot_add,
    groups_in_tiles,
    halves,
    in_order,
    in_tiles,
    ordered,
    pairwise_sums,
    speculation,
    strips,
    wide_sums,
)
from emu.backends.numba.ways.groups import Groups
from emu.backends.numba.ways.integer_dot import IntegerDot
from emu.backends.pattern import Columns, Indices
from emu.backends.product import Formats, Product, SparseProduct, Way
from emu.backends.reference import scaled as definition
from emu.backends.reference.arithmetic import flush_operands
from emu.backends.reference.definition import DEFINITION, SPARSE_DEFINITION
from emu.backends.reference.table import HostKernels, ReferenceKernels
from emu.formats import Scaled
from emu.formats.arrays import as_float64, code_dtype_for

if TYPE_CHECKING:
    from emu.backends.functions import FunctionTable

Array = NDArray[Any]
#: Elements and windows below which a second thread is not worth waking.
GRAIN_ELEMENTS, GRAIN_WINDOWS = 1 << 20, 1 << 17
#: The ways to compute a product, in the order in which they are asked.
WAYS: tuple[Way[Product], ...] = (
    IntegerDot(),
    Ended(pairwise_sums, is_partial=True),
    Ended(blas),
    Ended(halves, is_partial=True),
    Ended(wide_sums, divides=True),
    Ended(blocks_in_tiles, is_partial=True, reads_alignment=True),
    Ended(groups_in_tiles, is_partial=True, reads_alignment=True),
    Ended(dot_add),
    Ended(speculation, speculation.SPARED, is_partial=True),
    Ended(in_tiles),
    Ended(in_order),
    Ended(ordered),
    DEFINITION,
)
#: The same for sparse products.
SPARSE_WAYS: tuple[Way[SparseProduct], ...] = (EndedSparse(strips, strips.WAY), Groups(WAYS), SPARSE_DEFINITION)


class NumbaKernels(NumbaCodecs, HostKernels):
    """Compiled CPU kernels, bit for bit the reference's results."""

    name = "numba"
    ways = WAYS
    sparse_ways = SPARSE_WAYS

    def __init__(self) -> None:
        self._reference = ReferenceKernels()
        thread_count()  # a wrong EMU_THREADS raises here, before anything is computed or written

    def compiling_ahead(self) -> AbstractContextManager[None]:
        """Return a context in which copies of this process compile ahead, if it comes to a kernel to be compiled."""
        return ahead.compiling_ahead(NumbaKernels, self._reference, (*WAYS, *SPARSE_WAYS))

    def quantize(
        self,
        x: Array,
        source: FormatCode | None,
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write `x` through the output stage."""
        if x.dtype.kind != "f" or not supports(write.stage) or not scales_exactly(x, write.stage):
            return self._reference.quantize(x, source, write, out)
        return run_stage("quantize", (flushed(x, source),), write, out=out)

    def quantize_blocks(
        self, x: Array, fmt: Scaled, axis: int, write: Write, *, counted: bool
    ) -> tuple[Outcome, tuple[Array, ...]]:
        """Write `x` in a format whose elements share scales."""
        # The definition is given these kernels: its elements pass this backend's output stage.
        written = scaled.quantize_blocks(x, fmt, axis, write, counted=counted)
        return definition.quantize_blocks(self, x, fmt, axis, write) if written is None else written

    def elementwise(
        self,
        operation: str,
        operands: tuple[Array, ...],
        formats: tuple[FormatCode | None, ...],
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write `operation` of the operands through the output stage."""
        if not supports(write.stage) or not decides(operation, operands, formats, write.stage):
            return self._reference.elementwise(operation, operands, formats, write, out)
        operands = tuple([flushed(x, fmt) for x, fmt in zip(operands, formats, strict=True)])
        return run_stage(operation, operands, write, out=out)

    def small_write(self, asked: SmallOperation) -> SmallWrite | None:
        """Return what writes an operation of small arrays without asking again, if its numbers do not matter."""
        return small_write(asked)

    def columns(self, index: Indices, count: int) -> Columns:
        """Return which of `count` columns have entries."""
        return strips.columns(index, count)

    def dots(self, formats: Formats) -> bool:
        """Return whether exact sums of these operands come from integer dot-product instructions."""
        return integers.applies(formats)

    def function(
        self,
        name: str,
        x: Array,
        source: FormatCode | None,
        write: Write,
    ) -> Outcome:
        """Write an elementary function of `x`."""
        from emu.backends.functions import write_wide
        from emu.backends.numba.functions import evaluate_wide

        return write_wide(evaluate_wide(name, as_float64(flush_operands(x, source))), self.quantize, write)

    def tabled(self, table: FunctionTable, x: Array, write: Write) -> Outcome:
        """Write what the function's table holds for `x`."""
        from emu.backends.numba import tabled

        return tabled.gather(table, x, write)

    def relu(self, x: Array) -> Array:
        """Return x where x > 0, NaN where NaN, else +0."""
        flat, out = only_read(np.ascontiguousarray(x).reshape(-1)), empty((x.size,), x.dtype)
        over_ranges(lambda _, i, j: write_relu(flat[i:j], out[i:j]), x.size, BLOCK, GRAIN_ELEMENTS)
        return out.reshape(x.shape)

    def relu_gradient(self, g: Array, x: Array) -> Array:
        """Return g where x > 0, else +0."""
        errors, inputs = (only_read(np.ascontiguousarray(part).reshape(-1)) for part in (g, x))
        out = empty((g.size,), g.dtype)

        def work(_: int, start: int, stop: int) -> None:
            write_relu_gradient(errors[start:stop], inputs[start:stop], out[start:stop])

        over_ranges(work, g.size, BLOCK, GRAIN_ELEMENTS)
        return out.reshape(g.shape)

    def max_pool(self, windows: Array | Gathered) -> tuple[Array, NDArray[np.unsignedinteger[Any]]]:
        """Return maximum and index of the first maximum along the last axis; NaN wins, -0 < +0."""
        shape = windows.shape[:-1]
        if not isinstance(windows, Gathered):
            windows = Gathered.of(windows.reshape(1, -1, windows.shape[-1]))
        count, elements = (
            math.prod(shape),
            (only_read(windows.data), windows.batch_stride, windows.rows, windows.columns),
        )
        dtype = code_dtype_for((windows.columns.size - 1).bit_length())
        best, index = empty((count,), windows.dtype), empty((count,), dtype)
        # Raws are integers, which vector code does not pool.
        pool = max_pool_in_lanes if has_vectors() and windows.dtype.kind == "f" else max_pool_range
        over_ranges(lambda _, start, stop: pool(*elements, best, index, start, stop), count, 1, GRAIN_WINDOWS)
        return best.reshape(shape), index.reshape(shape)

    def unpool(self, values: Array, index: NDArray[np.unsignedinteger[Any]], windows: Gathered) -> Array:
        """Return zeros, (windows.data.size,), with each value as its window's index-th element.

        Windows never overlap; an index outside the window writes nothing.
        """
        flat, position = (only_read(np.ascontiguousarray(part).reshape(-1)) for part in (values, index))
        spread, offsets = empty((windows.data.size,), values.dtype), (windows.rows, windows.columns)
        # Windows that do not overlap may leave gaps: elements of no window are 0.
        spread[...] = 0
        stride = windows.batch_stride
        over_ranges(
            lambda _, start, stop: unpool_range(flat, position, stride, *offsets, spread, start, stop),
            flat.size,
            1,
            GRAIN_WINDOWS,
        )
        return spread
