"""The CUDA backend's table of kernels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.backends.cuda import layout
from emu.backends.cuda.device import Device
from emu.backends.gathered import Gathered
from emu.backends.interface import (
    BLOCKS,
    N_FLAGS,
    FormatCode,
    MacCode,
    Outcome,
    RandomCode,
    RegisterCode,
    StageCode,
    carrier_of,
    encode_format,
    is_one_number,
)
from emu.datapath.registers import NO_EXPONENT
from emu.formats.arrays import code_dtype_for

if TYPE_CHECKING:
    from emu.backends.functions import FunctionTable

Array = Any
Formats = tuple[FormatCode, FormatCode, FormatCode | None]
OPERATIONS = {"quantize": 0, "add": 1, "subtract": 2, "multiply": 3, "fma": 4, "divide": 5, "sqrt": 6}
THREADS, MOST_BLOCKS = 128, 4096
#: What stands where no result was other than 0.
NO_TOP = -(1 << 62)


class CudaKernels:
    """Kernels on a device, bit for bit the reference's results."""

    name = "cuda"

    def __init__(self, device: Device) -> None:
        """Compute on a device; operands may be arrays of it, or of the host, which come back there."""
        self._device = device

    def _taken(self, x: Array) -> Array:
        """Return an operand on the device, in one line."""
        xp = self._device.xp
        return xp.ascontiguousarray(xp.asarray(x)).reshape(-1)

    def _returned(self, result: Array, *operands: Array) -> Array:
        """Return a result where its operands were."""
        host = self._device.xp is not np and all(isinstance(x, np.ndarray) for x in operands)
        return result.get() if host else result

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
        return self.elementwise("quantize", (x,), (source,), stage, random, register, out)

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
        """Write `operation` of the operands, or one as it is ("quantize"), through the output stage."""
        xp, shape, n = self._device.xp, operands[0].shape, operands[0].size
        numbers = [
            *layout.stage_numbers(stage),
            *layout.random_numbers(random),
            *layout.register_numbers(register),
        ]
        arrays: list[Array] = []
        for x, fmt in zip(operands, formats, strict=True):
            single = is_one_number(x)
            arrays.append(self._taken(x.reshape(-1)[:1] if single else x))
            numbers += layout.operand_numbers(x.dtype, fmt, step=int(not single))
        numbers += layout.NO_OPERAND * (3 - len(operands))
        values = xp.empty(n, carrier_of(stage.format))
        counts = _Counts(xp, register)
        self._launch(
            "elementwise",
            "elementwise",
            n,
            (
                layout.task(xp, numbers),
                np.int32(OPERATIONS[operation]),
                *(arrays + [None] * (3 - len(arrays))),
                self._recorded(random),
                values,
                counts.totals,
                np.int64(n),
            ),
            counts,
        )
        return counts.outcome(_into(out, self._returned(values.reshape(shape), *operands), stage.format.quantum))

    def product(
        self,
        a: Array | Gathered,
        b: Array | Gathered,
        addend: Array | None,
        formats: Formats,
        mac: MacCode,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        path: str,
        divisor: int,
    ) -> Outcome:
        """Write the product: exact sums where nothing rounds between, else the unit add by add."""
        xp = self._device.xp
        left, right = (x if isinstance(x, Gathered) else Gathered.of(x) for x in (a, b))
        batches, rows, depth = max(left.batches, right.batches), left.rows.size, left.columns.size
        columns = right.columns.size
        steps = [x.batch_stride if x.batches > 1 else 0 for x in (left, right)]
        numbers = [
            *layout.stage_numbers(stage),
            *layout.random_numbers(random),
            *layout.register_numbers(register),
            *layout.operand_numbers(left.dtype, formats[0]),
            *layout.operand_numbers(right.dtype, formats[1]),
            *(layout.NO_OPERAND if addend is None else layout.operand_numbers(addend.dtype, formats[2])),
            *(batches, rows, depth, columns, divisor),
            *steps,
            *([0, 0, 0] if addend is None else layout.broadcast_steps(addend.shape)),
            *layout.mac_numbers(mac),
            *layout.blocks_numbers(mac, formats),
        ]
        values = xp.empty(batches * rows * columns, carrier_of(stage.format))
        counts = _Counts(xp, register)
        arguments = [
            layout.task(xp, numbers),
            *(xp.asarray(part) for x in (left, right) for part in (x.data, x.rows, x.columns)),
            None if addend is None else self._taken(addend),
            self._recorded(random),
            values,
            counts.totals,
        ]
        if mac.accumulator is None:
            kernel = "exact_product"
            arguments += [np.int32(n) for n in layout.exact_sums(formats, mac, depth)]
        else:
            kernel = "block_product" if mac.order == BLOCKS else "ordered_product"
        self._launch("products", kernel, values.size, tuple(arguments), counts)
        return counts.outcome(self._returned(values.reshape(batches, rows, columns), left.data, right.data))

    def declines(self, formats: Formats, mac: MacCode, stage: StageCode, path: str, divisor: int) -> str:
        """Return "": every product runs on the device."""
        return ""

    def dots(self, formats: Formats) -> bool:
        """Return whether exact sums of these operands come from integer dot-product instructions."""
        return False

    def spares(self, formats: Formats, mac: MacCode, depth: int) -> bool:
        """Return whether outputs of a saturating accumulator that provably stay inside are summed in any order."""
        return False

    def function(
        self, name: str, x: Array, stage: StageCode, random: RandomCode, register: RegisterCode | None
    ) -> Outcome:
        """Write an elementary function of `x`."""
        from emu.backends.functions import FUNCTIONS, completed, write_wide

        xp = self._device.xp
        flat = self._taken(x)
        doubles = xp.empty(flat.size, np.float64)
        number = np.int32(list(FUNCTIONS).index(name))
        arguments = (number, flat, doubles, np.int64(flat.size))
        self._launch("functions", "float64_function", flat.size, arguments)
        result = completed(name, _on_host(x), _on_host(doubles).reshape(x.shape))
        return write_wide(result, self, stage, random, register)

    def tabled(
        self, table: FunctionTable, x: Array, stage: StageCode, random: RandomCode, register: RegisterCode | None
    ) -> Outcome:
        """Write what the function's table holds for `x`."""
        from emu.backends.functions import register_places

        xp, n = self._device.xp, x.size
        source = encode_format(table.source)
        numbers = [
            *layout.stage_numbers(stage),
            *layout.random_numbers(random),
            *layout.register_numbers(register),
            *layout.operand_numbers(x.dtype, source._replace(daz=0)),
            *layout.source_numbers(table.source),
        ]
        seen = np.zeros(1, np.int64) if register is None else register_places(table, register)
        entries = (table.values, table.flags, seen.astype(np.int32), table.leading)
        entries = (*entries, table.next_values, table.next_flags, table.dropped)
        values, counts = xp.empty(n, table.values.dtype), _Counts(xp, register)
        arguments = (
            layout.task(xp, numbers),
            self._taken(x),
            *(xp.asarray(entry) for entry in entries),
            self._recorded(random),
            values,
            counts.totals,
            np.int64(n),
        )
        self._launch("tables", "gather", n, arguments, counts)
        return counts.outcome(self._returned(values.reshape(x.shape), x))

    def relu(self, x: Array) -> Array:
        """Return x where x > 0, NaN where NaN, else +0."""
        xp = self._device.xp
        flat = self._taken(x)
        out = xp.empty_like(flat)
        arguments = (flat, out, np.int32(layout.STORAGE[flat.dtype]), np.int64(flat.size))
        self._launch("selection", "relu", flat.size, arguments)
        return self._returned(out.reshape(x.shape), x)

    def max_pool(self, windows: Array | Gathered) -> tuple[Array, Array]:
        """Return maximum and index of the first maximum along the last axis; NaN wins, -0 < +0."""
        xp, shape = self._device.xp, windows.shape[:-1]
        if not isinstance(windows, Gathered):
            windows = Gathered.of(windows.reshape(1, -1, windows.shape[-1]))
        n, index_dtype = math.prod(shape), code_dtype_for((windows.columns.size - 1).bit_length())
        best, index = xp.empty(n, windows.dtype), xp.empty(n, index_dtype)
        arguments = (
            *(xp.asarray(windows.data), np.int64(windows.batch_stride)),
            *(xp.asarray(windows.rows), np.int64(windows.rows.size)),
            *(xp.asarray(windows.columns), np.int64(windows.columns.size)),
            *(best, index, np.int32(index_dtype.itemsize)),
            *(np.int32(layout.STORAGE[windows.dtype]), np.int64(n)),
        )
        self._launch("selection", "max_pool", n, arguments)
        found = (best.reshape(shape), index.reshape(shape))
        return self._returned(found[0], windows.data), self._returned(found[1], windows.data)

    def unpool(self, values: Array, index: Array, windows: Gathered) -> Array:
        """Return zeros, (windows.data.size,), with each value at its window's index-th place; windows never overlap."""
        xp = self._device.xp
        flat, where = self._taken(values), self._taken(index)
        spread = xp.zeros(windows.data.size, flat.dtype)
        arguments = (
            *(flat, where, np.int32(where.dtype.itemsize), np.int64(windows.batch_stride)),
            *(xp.asarray(windows.rows), np.int64(windows.rows.size), xp.asarray(windows.columns)),
            *(spread, np.int32(layout.STORAGE[flat.dtype]), np.int64(flat.size)),
        )
        self._launch("selection", "unpool", flat.size, arguments)
        return self._returned(spread, values)

    def _recorded(self, random: RandomCode) -> Array | None:
        if random.recorded is None:
            return None
        return self._taken(random.recorded.astype(np.uint32))

    def _launch(
        self, source: str, kernel: str, n: int, arguments: tuple[Any, ...], counts: _Counts | None = None
    ) -> None:
        """Run a kernel over `n` results; `counts` are what its blocks count in shared memory."""
        blocks = max(1, min(-(-n // THREADS), MOST_BLOCKS))
        shared_bytes = 0 if counts is None else counts.shared_bytes
        self._device.launch(source, kernel, blocks, THREADS, arguments, shared_bytes)


class _Counts:
    """Room on a device for flags, register and largest exponent of one result."""

    def __init__(self, xp: Any, register: RegisterCode | None) -> None:
        self._register = register
        self._size = N_FLAGS + (0 if register is None else 2 * register.bins + 5)
        self.totals = xp.zeros(self._size + 1, np.uint64)
        self.totals[self._size] = NO_TOP & (2**64 - 1)

    @property
    def shared_bytes(self) -> int:
        """Shared memory in which a block counts: one u32 each, and one for the largest exponent."""
        return 4 * (self._size + 1)

    def outcome(self, values: Array) -> Outcome:
        """Return what a kernel wrote and counted."""
        totals = _on_host(self.totals).view(np.int64)
        register = None if self._register is None else totals[N_FLAGS : self._size]
        top = int(totals[self._size])
        return Outcome(
            values, totals[:N_FLAGS], register, NO_EXPONENT if top == NO_TOP or self._register is None else top
        )


def _on_host(x: Array) -> Array:
    get = getattr(x, "get", None)
    return x if get is None else get()


def _into(out: Array | None, values: Array, quantum: int) -> Array:
    """Return `out` with the values in it, or their raws where it holds integers and their carrier does not."""
    if out is None:
        return values
    raws = out.dtype.kind == "i" and values.dtype.kind == "f"
    out[...] = values.__array_namespace__().ldexp(values, -quantum) if raws else values
    return out
