"""The CUDA backend's table of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.backends.arrays import is_on_device, on_host
from emu.backends.cuda import layout, narrow
from emu.backends.cuda import scaled as blocks
from emu.backends.cuda.codecs import CudaCodecs
from emu.backends.cuda.device import Device
from emu.backends.cuda.launching import SHARED_BYTES, Counts, Launcher, counted_bytes
from emu.backends.cuda.ways import entries
from emu.backends.cuda.ways.add_by_add import AddByAdd
from emu.backends.cuda.ways.aligned_blocks import AlignedBlocks
from emu.backends.cuda.ways.integer_tiles import IntegerTiles
from emu.backends.cuda.ways.on_host import OnHost, SparseOnHost, beside
from emu.backends.cuda.ways.tiles_in_order import TilesInOrder
from emu.backends.cuda.ways.vendor import VendorSums
from emu.backends.gathered import Gathered
from emu.backends.interface import (
    OPERATIONS,
    FormatCode,
    Outcome,
    StageCode,
    Write,
    carrier_of,
    encode_format,
    is_one_number,
)
from emu.backends.kernels import Result, SmallOperation, SmallWrite
from emu.backends.modes import moves_exact
from emu.backends.pattern import Columns, Indices
from emu.backends.product import Formats
from emu.backends.reference import ReferenceKernels
from emu.backends.reference import scaled as definition
from emu.backends.reference.arithmetic import flush_operands
from emu.formats import Scaled
from emu.formats.arrays import as_float64, code_dtype_for

if TYPE_CHECKING:
    from emu.backends.functions import FunctionTable

Array = Any
#: Widest raws of the integer products of 8 bits.
_INT8_BITS = 8
#: Elements of each array in which a block of threads finds the largest.
_LOOKED_AT = 2048
#: The positions that are passed if there is no register.
_NO_PLACES = np.zeros(1, np.int64)


class CudaKernels(CudaCodecs):
    """Kernels on a device, bit for bit the reference's results."""

    name = "cuda"

    def __init__(self, device: Device, least_words: int = 1) -> None:
        """Compute on a device; operands may be arrays of it, or of the host, which come back there.

        Args:
            device: where.
            least_words: kernels compute with at least so many 64-bit words, to be compared with those of fewer.
        """
        self._launcher = launcher = Launcher(device, least_words)
        #: The ways to compute a product, in the order in which they are tried.
        self.ways = (
            VendorSums(launcher),
            IntegerTiles(launcher),
            TilesInOrder(launcher),
            AlignedBlocks(launcher),
            AddByAdd(launcher),
            OnHost(launcher),
        )
        self.sparse_ways = (entries.Entries(launcher), SparseOnHost(launcher))

    def quantize(
        self,
        x: Array,
        source: FormatCode | None,
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write `x` through the output stage."""
        # the fast stage reads float32 as it is
        if _is_float32(x, source) and narrow.writes(self._launcher, write.stage, write.register):
            return self._narrow(x, write, out)
        return self.elementwise("quantize", (x,), (source,), write, out)

    def place(self, x: Array) -> Array:
        """Return an array in the device's memory."""
        return self._launcher.xp.asarray(x)

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run independent tasks, which may overlap on the device, and return their results."""
        return self._launcher.device.together(tasks)

    def compiling_ahead(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: a driver of a device survives no fork."""
        return nullcontext()

    def _narrow(self, x: Array, write: Write, out: Array | None) -> Outcome:
        """Write float32 as float32, fast."""
        launcher, xp = self._launcher, self._launcher.xp
        values, counts = xp.empty(x.size, np.float32), Counts(launcher, write.register)
        task = layout.task(layout.head_numbers(write))
        recorded = launcher.recorded(write.random)
        arguments = (task, launcher.taken(x), recorded, values, counts.totals, np.int64(x.size))
        narrow.launch(launcher, "narrow", "narrow_stage", x.size, arguments, write.register)
        written = launcher.returned(values.reshape(x.shape), x)
        return Outcome.with_pending(self._into(out, written, write.stage.format.quantum), counts)

    def quantize_blocks(
        self, x: Array, fmt: Scaled, axis: int, write: Write, *, counted: bool
    ) -> tuple[Outcome, tuple[Array, ...]]:
        """Write `x` in a format whose elements share scales; what the device does not, the definition does."""
        written = blocks.quantize_blocks(self._launcher, x, fmt, axis, write)
        return definition.quantize_blocks(self, x, fmt, axis, write) if written is None else written

    def elementwise(
        self,
        operation: str,
        operands: tuple[Array, ...],
        formats: tuple[FormatCode | None, ...],
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write `operation` of the operands, or one as it is ("quantize"), through the output stage."""
        stage, random, register = write
        # A root that wraps needs all bits down to the word's last place, and a mode that moves exact values moves
        # integers however large: more bits than kernels keep. And a block needs room for the counts.
        irrational = operation == "sqrt" and layout.wraps(stage)
        moves_integers = operation == "round_to_integral" and moves_exact(stage)
        only_defined = stage.format.sign_magnitude or stage.format.hidden_one
        if only_defined or irrational or moves_integers or counted_bytes(register) > SHARED_BYTES:
            hosts = tuple(on_host(x) for x in operands)
            outcome = beside(self._launcher, _definition_of(operation, hosts, formats, write), *operands)
            return outcome.with_values(self._into(out, outcome.values, stage.format.quantum))
        xp, shape, n = self._launcher.xp, operands[0].shape, operands[0].size
        numbers = layout.head_numbers(write)
        arrays: list[Array] = []
        for x, fmt in zip(operands, formats, strict=True):
            single = is_one_number(x)
            number = x.reshape(-1)[:1] if single else x
            given = single and not is_on_device(x)  # by value
            arrays.append(None if given else self._launcher.taken(number))
            numbers += layout.operand_numbers(
                x.dtype, fmt, step=int(not single), given=layout.bits_of(number) if given else 0
            )
        # tasks have room for three operands
        numbers += layout.NO_OPERAND * (3 - len(operands))
        values = xp.empty(n, carrier_of(stage.format))
        counts = Counts(self._launcher, register)
        arguments = (
            layout.task(numbers),
            np.int32(OPERATIONS[operation]),
            *(arrays + [None] * (3 - len(arrays))),
            self._launcher.recorded(random),
            values,
            counts.totals,
            np.int64(n),
        )
        words = _words_of(operation, [x.dtype for x in operands], stage)
        self._launcher.launch(
            "elementwise", "elementwise", n, arguments, shared_bytes=counted_bytes(register), words=words
        )
        written = self._launcher.returned(values.reshape(shape), *operands)
        return Outcome.with_pending(self._into(out, written, write.stage.format.quantum), counts)

    def _into(self, out: Array | None, values: Array, quantum: int) -> Array:
        """Return `out` with the values in it, or their raws if it holds integers and their carrier does not."""
        if out is None:
            return values
        if out.dtype.kind != "i" or values.dtype.kind != "f":
            out[...] = values
            return out
        flat, raws = self._launcher.taken(values), self._launcher.xp.empty(values.size, np.int64)
        arguments = (flat, np.int32(layout.STORAGE[flat.dtype]), np.int32(quantum), raws, np.int64(flat.size))
        self._launcher.launch("selection", "raws", flat.size, arguments)
        out[...] = self._launcher.returned(raws.reshape(values.shape), values)
        return out

    def columns(self, index: Indices, count: int) -> Columns:
        """Return which of `count` columns have entries."""
        # indices of 32 bits are enough for all but such sizes
        if max(index.size, count) >= entries.MOST_ENTRIES:
            return ReferenceKernels().columns(index, count)
        return entries.columns(self._launcher, index, count)

    def dots(self, formats: Formats) -> bool:
        """Return whether exact sums of these operands come from products of 8-bit integers."""
        # an unsigned word needs one more bit as a signed one
        return all(not f.is_float and f.width_bits + (not f.signed) <= _INT8_BITS for f in formats[:2])

    def function(
        self,
        name: str,
        x: Array,
        source: FormatCode | None,
        write: Write,
    ) -> Outcome:
        """Write an elementary function of `x`."""
        from emu.backends.functions import FUNCTIONS, completed, write_wide

        xp = self._launcher.xp
        flat = self._launcher.taken(x)
        # `beyond` is not 0 if a double does not say all of its function's value
        doubles, beyond = xp.empty(flat.size, np.float64), xp.zeros(1, np.uint32)
        number = np.int32(list(FUNCTIONS).index(name))
        storage, _, flush_below, has_negative_zero, *_ = layout.operand_numbers(flat.dtype, source)
        element = (np.int32(storage), np.int32(flush_below), np.int32(has_negative_zero))
        arguments = (number, flat, *element, doubles, beyond, np.int64(flat.size))
        self._launcher.launch("functions", "float64_function", flat.size, arguments)
        # this read waits for the kernel
        if not int(on_host(beyond)[0]):
            written = self.quantize(doubles.reshape(x.shape), None, write, None)
            written.values = self._launcher.returned(written.values, x)
            return written
        # rare: on the host, values get what their doubles cannot say
        seen = as_float64(flush_operands(on_host(x), source))
        result = completed(name, seen, on_host(doubles).reshape(x.shape))
        written = write_wide(result, ReferenceKernels().quantize, write)
        return beside(self._launcher, written, x)

    def tabled(self, table: FunctionTable, x: Array, write: Write) -> Outcome:
        """Write what the function's table holds for `x`."""
        from emu.backends.functions import register_places

        register = write.register
        source = encode_format(table.source)
        has_others = not source.has_zero or source.sign_magnitude or source.hidden_one  # codes than kernels compute
        if has_others or counted_bytes(register) > SHARED_BYTES:
            return beside(self._launcher, ReferenceKernels().tabled(table, on_host(x), write), x)
        xp, n = self._launcher.xp, x.size
        numbers = [
            *layout.head_numbers(write),
            # codes are looked up as they are: the table was made with flushed operands
            *layout.operand_numbers(x.dtype, source._replace(daz=0)),
            *layout.source_numbers(table.source),
        ]
        # kernels get an address even without a register
        seen = _NO_PLACES if register is None else register_places(table, register)
        columns = (table.values, table.flags, seen, table.leading)
        columns = (*columns, table.next_values, table.next_flags, table.dropped)
        values, counts = xp.empty(n, table.values.dtype), Counts(self._launcher, register)
        arguments = (
            layout.task(numbers),
            self._launcher.taken(x),
            *(self._launcher.constant(column) for column in columns),
            self._launcher.recorded(write.random),
            values,
            counts.totals,
            np.int64(n),
        )
        self._launcher.launch("tables", "gather", n, arguments, shared_bytes=counted_bytes(register))
        return Outcome.with_pending(self._launcher.returned(values.reshape(x.shape), x), counts)

    def relu(self, x: Array) -> Array:
        """Return x where x > 0, NaN where NaN, else +0."""
        xp = self._launcher.xp
        flat = self._launcher.taken(x)
        out = xp.empty_like(flat)
        arguments = (flat, out, np.int32(layout.STORAGE[flat.dtype]), np.int64(flat.size))
        self._launcher.launch("selection", "relu", flat.size, arguments)
        return self._launcher.returned(out.reshape(x.shape), x)

    def relu_gradient(self, g: Array, x: Array) -> Array:
        """Return g where x > 0, else +0."""
        arrived, seen = (self._launcher.taken(part) for part in (g, x))
        out = self._launcher.xp.empty_like(arrived)
        storages = [np.int32(layout.STORAGE[part.dtype]) for part in (arrived, seen)]
        arguments = (arrived, storages[0], seen, storages[1], out, np.int64(out.size))
        self._launcher.launch("selection", "relu_gradient", out.size, arguments)
        return self._launcher.returned(out.reshape(g.shape), g, x)

    def small_write(self, asked: SmallOperation) -> SmallWrite | None:
        """Return None: a launch takes longer than all questions."""
        return None

    def largest_magnitudes(self, arrays: Sequence[Array]) -> list[float]:
        """Return the largest magnitude in each array: two arrays by a launch, all of them by one read."""
        launcher = self._launcher
        flat = [launcher.taken(x) for x in arrays]
        # of an odd number of arrays the last is looked at twice
        flat += flat[-1:] * (len(flat) % 2)
        largest = launcher.xp.zeros(len(flat), np.uint64)
        for i in range(0, len(flat), 2):
            pair = [(x, np.int32(layout.STORAGE[x.dtype]), np.int64(x.size)) for x in flat[i : i + 2]]
            n = max(x.size for x in flat[i : i + 2])
            arguments = (*pair[0], *pair[1], largest[i : i + 2])
            launcher.launch("selection", "largest_magnitudes", n, arguments, per_block=_LOOKED_AT)
        bits = on_host(largest)
        return [_magnitude(bits[i : i + 1], x.dtype) for i, x in enumerate(arrays)]

    def max_pool(self, windows: Array | Gathered) -> tuple[Array, Array]:
        """Return maximum and index of the first maximum along the last axis; NaN wins, -0 < +0."""
        xp, shape = self._launcher.xp, windows.shape[:-1]
        # (1, windows, K) offsets of an array
        if not isinstance(windows, Gathered):
            windows = Gathered.of(windows.reshape(1, -1, windows.shape[-1]))
        n, index_dtype = math.prod(shape), code_dtype_for((windows.columns.size - 1).bit_length())
        best, index = xp.empty(n, windows.dtype), xp.empty(n, index_dtype)
        arguments = (
            *(xp.asarray(windows.data), np.int64(windows.batch_stride)),
            *(self._launcher.constant(windows.rows), np.int64(windows.rows.size)),
            *(self._launcher.constant(windows.columns), np.int64(windows.columns.size)),
            *(best, index, np.int32(index_dtype.itemsize)),
            *(np.int32(layout.STORAGE[windows.dtype]), np.int64(n)),
        )
        self._launcher.launch("selection", "max_pool", n, arguments)
        return (
            self._launcher.returned(best.reshape(shape), windows.data),
            self._launcher.returned(index.reshape(shape), windows.data),
        )

    def unpool(self, values: Array, index: Array, windows: Gathered) -> Array:
        """Return zeros, (windows.data.size,), with each value at its window's index-th element."""
        xp = self._launcher.xp
        flat, where = self._launcher.taken(values), self._launcher.taken(index)
        spread = xp.zeros(windows.data.size, flat.dtype)
        arguments = (
            *(flat, where, np.int32(where.dtype.itemsize), np.int64(windows.batch_stride)),
            *(self._launcher.constant(windows.rows), np.int64(windows.rows.size)),
            *(self._launcher.constant(windows.columns), np.int64(windows.columns.size)),
            *(spread, np.int32(layout.STORAGE[flat.dtype]), np.int64(flat.size)),
        )
        self._launcher.launch("selection", "unpool", flat.size, arguments)
        return self._launcher.returned(spread, values)


def _definition_of(
    operation: str,
    operands: tuple[Array, ...],
    formats: tuple[FormatCode | None, ...],
    write: Write,
) -> Outcome:
    """Return what the reference writes of an operation, or of one operand as it is ("quantize")."""
    reference = ReferenceKernels()
    if operation == "quantize":
        return reference.quantize(operands[0], formats[0], write, None)
    return reference.elementwise(operation, operands, formats, write, None)


def _is_float32(x: Array, source: FormatCode | None) -> bool:
    """Return whether an operand is an array of float32 whose numbers are taken as they are."""
    plain = source is None or not (source.daz or source.carries_raws)
    return plain and x.dtype == np.float32 and not is_one_number(x)


def _words_of(operation: str, dtypes: list[np.dtype[Any]], stage: StageCode) -> int:
    """Return how many 64-bit words hold an operation's exact results."""
    if operation in ("divide", "sqrt", "remainder"):
        return 4
    bits = [layout.SIGNIFICANT[dtype] for dtype in dtypes]  # a product has as many as both factors together
    widest = max(sum(bits[:2]), *bits) if operation in ("multiply", "fma") else max(bits)
    return layout.enough_words(widest, layout.kept_bits([stage], adds=operation in ("add", "subtract", "fma")))


def _magnitude(bits: Array, dtype: np.dtype[Any]) -> float:
    """Return a magnitude of a carrier given by its bits, as `selection.cu` orders them."""
    if dtype.kind != "f":
        return float(int(bits[0]))
    return float(bits.astype(f"u{dtype.itemsize}").view(dtype)[0])
