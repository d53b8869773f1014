"""Matrix products on a device: which kernel, or which of the vendor's products between two kernels.

exact sums, bounded by the planner's proof      operands packed, multiplied by the vendor's library: int8 into int32,
                                                float32, float64; no sum rounds, so that no order matters; then written
exact sums of fixed-point operands beyond them  tiles of integers, sums of 128 or 192 bits; then written
float32 accumulator, nearest even, along k      tiles of fused multiply-adds in order; then written
everything else                                 one thread per result, add by add
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.cuda import layout
from emu.backends.cuda.launching import Counts, Launcher, counted_bytes
from emu.backends.gathered import Gathered
from emu.backends.interface import (
    BLOCKS,
    EXACT_PATHS,
    SEQUENTIAL,
    FormatCode,
    MacCode,
    Outcome,
    RandomCode,
    RegisterCode,
    StageCode,
    carrier_of,
    encode_format,
)
from emu.backends.proofs import is_plain
from emu.formats import PRESETS

Array = Any
Formats = tuple[FormatCode, FormatCode, FormatCode | None]
#: Packed operands: how kernels name them, and their dtype.
PACKED_F32, PACKED_F64, PACKED_I8, PACKED_I32, PACKED_I64 = range(5)
_PACKED_DTYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.int8, np.int32, np.int64))
_PACKED_NAMES = ("float32", "float64", "int8, sums in int32")
_FLOAT32 = encode_format(PRESETS["fp32"])
#: Terms of a sum of products of 8-bit integers.
MOST_INT8_TERMS = bounded(
    (2**31 - 1) // 2**14, 1, (2**31 - 1) // 2**14, "products are at most 2**14, their sum is an int32"
)
#: Lines of int8 products must have a multiple of this many bytes.
_INT8_LINE = 16
#: Results of a tile's side from which the larger tiles pay; those of a tile of integers.
_LARGE_TILES, _INTEGER_TILE = 512, 64
#: How sums of packed integers lie: in two words, in three.
_SUMS_IN_WORDS = {PACKED_I32: (5, 2), PACKED_I64: (6, 3)}


class Work(NamedTuple):
    """A product on the device: operands, sizes, and what a launch is told of them."""

    left: Gathered
    right: Gathered
    addend: Array | None
    formats: Formats
    sizes: tuple[int, int, int, int]
    numbers: list[int]

    @property
    def results(self) -> int:
        """How many."""
        batches, rows, _, columns = self.sizes
        return batches * rows * columns


def write_product(
    launcher: Launcher,
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
    """Write (a @ b + addend) / divisor; arguments as of `Kernels.product`."""
    xp = launcher.xp
    left, right = (x if isinstance(x, Gathered) else Gathered.of(x) for x in (a, b))
    sizes = (max(left.batches, right.batches), left.rows.size, left.columns.size, right.columns.size)
    steps = [x.batch_stride if x.batches > 1 else 0 for x in (left, right)]
    numbers = [
        *layout.head_numbers(stage, random, register),
        *layout.operand_numbers(left.dtype, formats[0]),
        *layout.operand_numbers(right.dtype, formats[1]),
        *(layout.NO_OPERAND if addend is None else layout.operand_numbers(addend.dtype, formats[2])),
        *sizes,
        divisor,
        *steps,
        *([0, 0, 0] if addend is None else layout.broadcast_steps(addend.shape)),
        *layout.mac_numbers(mac),
        *layout.blocks_numbers(mac, formats),
    ]
    third = None if addend is None else launcher.taken(addend)
    work = Work(left, right, third, formats, sizes, numbers)
    values, counts = xp.empty(work.results, carrier_of(stage.format)), Counts(launcher, register)
    task = layout.task(numbers)
    ending = (third, launcher.recorded(random), values, counts.totals)
    if path in EXACT_PATHS and mac.accumulator is None and mac.product is None:
        sums = _vendor_sums(launcher, work, task, path)
    elif (packing := _tiles_of_integers(formats, mac)) is not None:
        sums = _integer_sums(launcher, work, task, packing)
    elif is_float32_in_order([x.dtype for x in (left, right, addend) if x is not None], formats, mac):
        sums = _sums_in_order(launcher, work, task)
    else:
        sums = None
    if sums is not None:
        kept = layout.kept_bits([stage], divisor, adds=sums.exact and addend is not None)
        words = layout.enough_words(max(sums.bits, _bits(addend)), kept)
        source, kernel = "around", "settle"
        places = (*_places(launcher, left), *_places(launcher, right))
        arguments = (task, sums.array, *sums.numbers, sums.marks, *places, *ending)
    else:
        source, (kernel, extra, words) = "products", kernel_of(launcher, work, mac, stage, divisor)
        arguments = (task, *_places(launcher, left), *_places(launcher, right), *ending, *extra)
    launcher.launch(source, kernel, values.size, arguments, shared_bytes=counted_bytes(register), words=words)
    batches, rows, _, columns = sizes
    return Outcome.owing(launcher.returned(values.reshape(batches, rows, columns), left.data, right.data), counts)


def way(formats: Formats, mac: MacCode, path: str, depth: int) -> str:
    """Return by which kernel a product is computed, in words."""
    if path in EXACT_PATHS and mac.accumulator is None and mac.product is None:
        return f"by cuBLAS in {_PACKED_NAMES[_packing(path, depth)]}"
    if (packing := _tiles_of_integers(formats, mac)) is not None:
        return f"in tiles of {_PACKED_DTYPES[packing]}, sums of {64 * _SUMS_IN_WORDS[packing][1]} bits"
    if is_float32_in_order([carrier_of(fmt) for fmt in formats if fmt is not None], formats, mac):
        return "in tiles of fused multiply-adds"
    return "one thread per result, in integers"


def is_float32_in_order(dtypes: Sequence[np.dtype[Any]], formats: Formats, mac: MacCode) -> bool:
    """Return whether a unit adds exact products of float32 to a float32, nearest even, one after the other."""
    narrow = all(dtype == np.float32 for dtype in dtypes)
    # the kernel writes a flushed operand as 0 of its sign
    signed = all(fmt.has_negative_zero or not fmt.daz for fmt in formats if fmt is not None)
    return mac.product is None and mac.order == SEQUENTIAL and narrow and signed and is_plain(mac.accumulator, _FLOAT32)


def _packing(path: str, depth: int) -> int:
    """Return as what the vendor's library takes the operands of an exact path."""
    if path == "integer_dot" and depth <= MOST_INT8_TERMS:
        return PACKED_I8
    return PACKED_F32 if path == "float32_blas" else PACKED_F64


def is_in_tiles(formats: Formats, mac: MacCode) -> bool:
    """Return whether a product is an exact sum of integers, by tiles or the vendor's library."""
    return _tiles_of_integers(formats, mac) is not None


def _tiles_of_integers(formats: Formats, mac: MacCode) -> int | None:
    """Return as what the operands of exact sums of fixed-point numbers are packed, None of others."""
    if mac.accumulator is not None or mac.product is not None or any(fmt.is_float for fmt in formats[:2]):
        return None
    bits = max(fmt.width_bits + (not fmt.signed) for fmt in formats[:2])
    return PACKED_I32 if bits <= 32 else PACKED_I64 if bits <= 64 else None


def kernel_of(
    launcher: Launcher, work: Work, mac: MacCode, stage: StageCode, divisor: int
) -> tuple[str, tuple[Any, ...], int]:
    """Return the kernel that runs a unit itself, what it takes beside operands and results, and its words."""
    product_bits = sum(layout.SIGNIFICANT[x.dtype] for x in (work.left, work.right))
    held = [s for s in (mac.product, mac.accumulator) if s is not None]
    widest = max(product_bits, _bits(work.addend), *(layout.SIGNIFICANT[carrier_of(s.format)] for s in (stage, *held)))
    kept = layout.kept_bits([stage, *held], divisor, adds=True)
    if mac.accumulator is None:
        lowest, words = layout.exact_sums(work.formats, mac, work.sizes[2])
        assert words <= layout.MOST_SUM_WORDS
        # a term lies anywhere within a word, and the highest word of a sum may hold one bit
        return "exact_product", (np.int32(lowest), np.int32(words)), layout.enough_words(widest + 63, kept + 64)
    if mac.order != BLOCKS:
        return "ordered_product", (), layout.enough_words(widest, kept)
    assert mac.blocks is not None
    aligned = mac.blocks.fraction_bits + len(mac.blocks.indices).bit_length() + 3
    taken = launcher.constant(_order_of(mac.blocks.indices))
    return "block_product", (taken,), layout.enough_words(max(widest, aligned), kept)


@lru_cache(maxsize=64)
def _order_of(indices: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the k of a period in the order they are added."""
    return np.array(indices, np.int64)


class _Sums(NamedTuple):
    """Sums on the device: what `settle` is told of them, bits of their significands, marks of those that overflowed."""

    array: Array
    numbers: tuple[Any, ...]
    bits: int
    exact: bool
    marks: Array | None = None


def _vendor_sums(launcher: Launcher, work: Work, task: np.void, path: str) -> _Sums:
    """Return exact sums by the vendor's library."""
    batches, rows, depth, columns = work.sizes
    packing = _packing(path, depth)
    height, width = columns, depth
    if packing == PACKED_I8:
        height, width = (-(-n // _INT8_LINE) * _INT8_LINE for n in (columns, depth))
    left = _packed(launcher, task, 0, work.left, packing, (rows, width))
    right = _packed(launcher, task, 1, work.right.transposed(), packing, (height, width))
    sums = launcher.device.multiply(left, right, batches)
    if packing != PACKED_I8:
        return _settled(sums, packing, 0, exact=True)
    return _settled(sums, layout.STORED_I32, work.formats[0].quantum + work.formats[1].quantum, exact=True)


def _integer_sums(launcher: Launcher, work: Work, task: np.void, packing: int) -> _Sums:
    """Return exact sums of more bits than floats have."""
    batches, rows, depth, columns = work.sizes
    left = _packed(launcher, task, 0, work.left, packing, (rows, depth))
    right = _packed(launcher, task, 1, work.right.transposed(), packing, (columns, depth))
    storage, words = _SUMS_IN_WORDS[packing]
    sums = launcher.xp.empty((batches, rows, columns * words), np.uint64)
    steps = (x.shape[1] * depth if x.shape[0] > 1 else 0 for x in (left, right))
    numbers = (np.int64(n) for n in (*work.sizes, *steps))
    tiles = batches * -(-rows // _INTEGER_TILE) * -(-columns // _INTEGER_TILE)
    kernel, arguments = f"sum_products_{64 if words > 2 else 32}", (left, right, *numbers, sums.reshape(-1))
    launcher.launch("integer_tiles", kernel, tiles, arguments, words=1, threads=256, per_block=1)
    a, b, _ = work.formats
    bits = sum(fmt.width_bits - fmt.signed for fmt in (a, b)) + depth.bit_length()
    return _settled(sums, storage, a.quantum + b.quantum, exact=True, width=columns, bits=bits)


def _settled(
    sums: Array, storage: int, quantum: int, *, exact: bool, width: int | None = None, bits: int | None = None
) -> _Sums:
    """Return sums (B, height, width) as `settle` takes them: their storage, how far apart they are, their bits."""
    _, height, columns = sums.shape
    numbers = (np.int32(storage), np.int32(quantum), np.int64(height), np.int64(width or columns), np.int32(exact))
    known = {PACKED_F32: 24, PACKED_F64: 53, layout.STORED_I32: 32}
    return _Sums(sums.reshape(-1), numbers, known[storage] if bits is None else bits, exact)


def _packed(
    launcher: Launcher, task: np.void, operand: int, x: Gathered, packing: int, shape: tuple[int, int]
) -> Array:
    """Return an operand as matrices of the shape, (B or 1, height, width), zeros beyond its own."""
    out = launcher.xp.empty((x.batches if x.batch_stride else 1, *shape), _PACKED_DTYPES[packing])
    if out.size:
        places = ((launcher.constant(offsets), np.int64(offsets.size)) for offsets in (x.rows, x.columns))
        arguments = (
            *(task, np.int32(operand), launcher.operand(x.data), *(part for place in places for part in place)),
            *(np.int64(x.batch_stride), np.int32(packing), *(np.int64(size) for size in shape)),
            *(out.reshape(-1), np.int64(out.size)),
        )
        launcher.launch("around", "pack", out.size, arguments, words=1)
    return out


def _sums_in_order(launcher: Launcher, work: Work, task: np.void) -> _Sums:
    """Return what float32 accumulators hold."""
    batches, rows, _, columns = work.sizes
    side = 128 if min(rows, columns) >= _LARGE_TILES else 64
    sums = launcher.xp.empty((batches, rows, columns), np.float32)
    marks = launcher.xp.empty(work.results, np.uint8)
    places = (*_places(launcher, work.left), *_places(launcher, work.right))
    arguments = (task, *places, work.addend, sums.reshape(-1), marks)
    tiles = batches * -(-rows // side) * -(-columns // side)
    launcher.launch("in_order", f"in_order_{side}", tiles, arguments, words=1, threads=256, per_block=1)
    return _settled(sums, PACKED_F32, 0, exact=False)._replace(marks=marks)


def _places(launcher: Launcher, x: Gathered) -> tuple[Array, Array, Array]:
    return launcher.operand(x.data), launcher.constant(x.rows), launcher.constant(x.columns)


def _bits(addend: Array | None) -> int:
    return 0 if addend is None else layout.SIGNIFICANT[addend.dtype]
