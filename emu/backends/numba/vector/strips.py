"""Vector code of sparse products: the entries of one stored row, with a strip of columns.

    spread_row     strip[index[p], :] += data[p] * row            the row stays in registers
    gather_row     sums += data[p] * strip_of_dense[index[p], :]  the sums stay in registers

Entries are added in storage order. In float32, each product and each sum is rounded; in float64, strips hold exact
sums, so that one instruction does both.
"""

from __future__ import annotations

from typing import Any

from numba import types

from emu.backends.numba.vector.lanes import F32, F64, I8, I32, I64, IR, LANES, Emitter, Vector, intrinsic

_FLOATS, _INTEGERS = {32: F32, 64: F64}, {32: I32, 64: I64}


def _plus(total: Vector, value: Vector, factor: Vector) -> Vector:
    """Return total + value * factor: rounded twice in float32; in float64 it is exact, so one instruction may do it."""
    return total.plus_product(value, factor) if total.kind is F64 else total + value * factor


class _Entries:
    """The entries of a row, by a kernel's arguments: addresses, and a number of each kind, which tells the type."""

    def __init__(self, e: Emitter, args: Any, signature: Any) -> None:
        self.e, builder = e, e.builder
        self._index_kind, self._data_kind = _INTEGERS[signature.args[1].bitwidth], _FLOATS[signature.args[3].bitwidth]
        self._index, self._data = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (0, 2))
        self.first, self.count = args[4], builder.sub(args[5], args[4])

    def at(self, number: Any, kind: Any) -> tuple[Any, Vector]:
        """Return an entry's index, 64 bits, and its value in all lanes."""
        builder = self.e.builder
        entry = builder.add(self.first, number)
        index = self.e.load_scalar(self._index_kind, self._index, entry)
        value = self.e.load_scalar(self._data_kind, self._data, entry)
        # Offsets are 64 bits.
        index = index if self._index_kind is I64 else builder.sext(index, I64)
        return index, self.e.splat(self._data_kind, value).as_kind(kind)


@intrinsic
def spread_row(
    typing_context: Any,
    index: Any,
    index_kind: Any,
    data: Any,
    data_kind: Any,
    start: Any,
    stop: Any,
    row: Any,
    row_kind: Any,
    strip: Any,
    kind: Any,
    lanes: Any,
) -> Any:
    """Add the product of each entry and one row to the row of a strip that the entry's index names.

    Args:
        typing_context: Numba's.
        index: address of the entries' indices, rows of the strip.
        index_kind: a number of its kind, int32 or int64.
        data: address of the entries.
        data_kind: a number of their kind.
        start: first entry.
        stop: one past the last.
        row: address of the row.
        row_kind: a number of the kind of its elements.
        strip: address of the sums.
        kind: a number of their kind, which holds every operand.
        lanes: columns of the strip, a literal multiple of 16.
    """
    arguments = (index, index_kind, data, data_kind, start, stop, row, row_kind, strip, kind, lanes)
    width = lanes.literal_value

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element, source = Emitter(builder), _FLOATS[kind.bitwidth], _FLOATS[row_kind.bitwidth]
        entries = _Entries(e, args, signature)
        # The row is read once, for all entries.
        factors, sums = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (6, 8))
        row_vectors = [e.load(source, factors, e.integer(j)).as_kind(element) for j in range(0, width, LANES)]
        with e.loop(entries.count) as number:
            target, value = entries.at(number, element)
            # The strip's rows follow each other, `width` sums each.
            first = builder.mul(target, e.integer(width))
            for j, factor in enumerate(row_vectors):
                offset = builder.add(first, e.integer(j * LANES))
                e.store(_plus(e.load(element, sums, offset), value, factor), sums, offset)
        return context.get_dummy_value()

    return types.void(*arguments), generate


@intrinsic
def gather_row(
    typing_context: Any,
    index: Any,
    index_kind: Any,
    data: Any,
    data_kind: Any,
    start: Any,
    stop: Any,
    dense: Any,
    row_kind: Any,
    row_stride: Any,
    result: Any,
    kind: Any,
    lanes: Any,
) -> Any:
    """Add the product of each entry and the row of the dense operand that its index names to one row of sums.

    Args:
        typing_context: Numba's.
        index: address of the entries' indices, rows of the dense operand.
        index_kind: a number of its kind, int32 or int64.
        data: address of the entries.
        data_kind: a number of their kind.
        start: first entry.
        stop: one past the last.
        dense: address of the strip's first column in the dense operand.
        row_kind: a number of the kind of its elements.
        row_stride: elements from one of its rows to the next.
        result: address of the sums.
        kind: a number of their kind, which holds every operand.
        lanes: how many sums, a literal multiple of 16.
    """
    arguments = (index, index_kind, data, data_kind, start, stop, dense, row_kind, row_stride, result, kind, lanes)
    width = lanes.literal_value

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element, source = Emitter(builder), _FLOATS[kind.bitwidth], _FLOATS[row_kind.bitwidth]
        entries = _Entries(e, args, signature)
        rows, sums = (builder.inttoptr(args[i], IR.PointerType(I8)) for i in (6, 9))
        # The sums are read and written once, for all entries.
        totals = [e.variable(e.load(element, sums, e.integer(j))) for j in range(0, width, LANES)]
        with e.loop(entries.count) as number:
            row, value = entries.at(number, element)
            first = builder.mul(row, args[8])
            for j, total in enumerate(totals):
                factor = e.load(source, rows, builder.add(first, e.integer(j * LANES))).as_kind(element)
                total.set(_plus(total.now, value, factor))
        for j, total in enumerate(totals):
            e.store(total.now, sums, e.integer(j * LANES))
        return context.get_dummy_value()

    return types.void(*arguments), generate
