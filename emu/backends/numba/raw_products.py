"""Products of raws as the loops of dot-product instructions take them: their sizes, the room they work in, their words.

carriers -> raws      int8 if both operands have at most 8 bits, else int16
instructions          how many products may be added to 32-bit sums, by the largest raws
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.bounds import bounded
from emu.backends.gathered import Gathered
from emu.backends.interface import FormatCode
from emu.backends.memory import empty
from emu.backends.numba.compiling import only_read
from emu.backends.numba.machine import has_dot_products
from emu.backends.numba.vector import integer_products as loops
from emu.backends.numba.vector import packing
from emu.backends.numba.vector.dot_tiles import NEIGHBOURS, PANEL_COLUMNS, TILE_ROWS, WORD_BYTES
from emu.backends.product import Formats

Array = NDArray[Any]
#: Multiply-adds and results written below which a second thread is not worth waking.
GRAIN_MACS, GRAIN_RESULTS = 1 << 25, 1 << 17
#: Results that pass the output stage together, and bytes of their packed rows: both stay in the second-level cache.
GROUP_RESULTS, GROUP_BYTES = 1 << 14, 1 << 18
#: Instructions between two additions to 64-bit sums below which two passes over bytes are cheaper.
FEWEST_INSTRUCTIONS = bounded(12, 1, loops.INT32_MAX // 2, "a sum of 32 bits takes at least one instruction")
#: Bits of the narrower of the two kinds of raws; bits of the wider one beside its sign.
BYTE = 8
WORD_BITS = bounded(15, 1, 15, "a word of 16 bits has 15 beside its sign")
#: The value 1 has 2**-quantum raws; from this exponent on, float32 does not hold that number.
FLOAT32_EXPONENTS = bounded(128, 1, 128, "2**128 is beyond float32")
#: Largest 8-bit left operand after `loops.OFFSET` was added.
LARGEST_BYTE = bounded(255, 127 + loops.OFFSET, 255, "the instruction takes it unsigned")
NO_ADDEND = np.zeros((1, 1, 1))


class Sizes(NamedTuple):
    """The sizes of one product of raws.

    Attributes:
        rows: M.
        depth: K.
        columns: N.
        bits: of raws, 8 or 16.
    """

    rows: int
    depth: int
    columns: int
    bits: int

    @property
    def panels(self) -> int:
        """How many panels of 32 columns the right operand has."""
        return -(-self.columns // PANEL_COLUMNS)

    @property
    def item(self) -> type[Any]:
        """The dtype of raws."""
        return np.int8 if self.bits == BYTE else np.int16

    @property
    def grain(self) -> int:
        """How many rows are worth a second thread."""
        return grain_of(self.columns, self.depth)

    def group(self, split: int) -> int:
        """Return how many rows are packed and finished together, a multiple of 16, as results are written from these.

        Args:
            split: 1 if left raws of 16 bits are multiplied as two bytes.
        """
        row_bytes = min(self.depth, loops.CHUNK_DEPTH) * np.dtype(self.item).itemsize * (1 + split)
        # Both limits: results of a group, and its packed rows (twice as many bytes if split).
        fitting = min(GROUP_RESULTS // max(self.columns, 1), GROUP_BYTES // max(row_bytes, 1))
        return max(min(fitting, self.rows) // 16, 1) * 16

    def room_for_rows(self, rows: int) -> Array:
        """Return room for that many packed rows."""
        plane = packing.room_of_rows(rows, min(self.depth, loops.CHUNK_DEPTH))
        return empty((2 * plane,), np.uint8 if self.bits == BYTE else np.int16)

    def room_for_panels(self) -> Array:
        """Return room for the packed right operand, (panels, depth * 32), and for a vector that begins at its end."""
        neighbours = NEIGHBOURS[self.bits]
        shape = (self.panels, -(-self.depth // neighbours) * neighbours * PANEL_COLUMNS)
        size = shape[0] * shape[1]
        return empty((size + WORD_BYTES * packing.SLACK,), self.item)[:size].reshape(shape)

    def room_for_tiles(self, rows: int) -> Array:
        """Return room for the sums of that many rows: one tile if each tile is finished before the next."""
        tiles = -(-rows // TILE_ROWS) * self.panels if self.depth > loops.CHUNK_DEPTH else 1
        return empty((tiles * loops.TILE_SUMS,), np.int64)


@dataclass(eq=False)  # not frozen, which takes four times as long to make
class RawProduct:
    """A product of raws, ready for the loops.

    Attributes:
        left: raws, B x M x K.
        right: raws, B x K x N.
        addend: float64 values.
        batches: B.
        sizes: of each product of the batch.
        split: 1 if left raws of 16 bits are multiplied as two bytes.
        instructions: how many may be added to 32-bit sums.
        lsb: the value of 1 in the sums.
    """

    left: Gathered
    right: Gathered
    addend: Array
    batches: int
    sizes: Sizes
    split: int
    instructions: int
    lsb: float

    @property
    def group(self) -> int:
        """How many rows are packed and finished together."""
        return self.sizes.group(self.split)

    @classmethod
    def of(
        cls,
        left: Gathered,
        right: Gathered,
        addend: Array | None,
        formats: Formats,
        *,
        magnitudes: bool = False,
    ) -> RawProduct:
        """Return the product of two operands of values, or that of their magnitudes.

        Args:
            left: values of a fixed-point format, B x M x K.
            right: values, B x K x N.
            addend: values, or None.
            formats: of the three.
            magnitudes: whether to multiply magnitudes; that of a raw of -2**15 is 2**15 - 1.
        """
        bits = bits_of(formats, magnitudes=magnitudes)
        left, largest_left = _raws(left, formats[0], bits, magnitudes=magnitudes)
        right, largest_right = _raws(right, formats[1], bits, magnitudes=magnitudes)
        split, instructions = instructions_of(bits, largest_left, largest_right)
        third = NO_ADDEND
        if addend is not None:
            third = np.ascontiguousarray(np.abs(addend) if magnitudes else addend, np.float64)
        sizes = Sizes(left.rows.size, left.columns.size, right.columns.size, bits)
        return cls(left, right, third, max(left.batches, right.batches), sizes, split, instructions, lsb_of(formats))


def bits_of(formats: Formats, *, magnitudes: bool = False) -> int:
    """Return the bits of raws of both operands, or of their magnitudes: 8 or 16."""
    narrow = not magnitudes and all(f.signed and f.width_bits <= BYTE for f in formats[:2])
    # AVX2 multiplies no bytes, and int8 does not hold the magnitude of -2**7.
    return BYTE if narrow and has_dot_products() else 2 * BYTE


def lsb_of(formats: Formats) -> float:
    """Return the value of 1 in sums of products of raws."""
    return math.ldexp(1.0, formats[0].quantum + formats[1].quantum)


def instructions_of(bits: int, largest_left: int, largest_right: int) -> tuple[int, int]:
    """Return whether to split left raws into bytes, and how many instructions may be added to 32-bit sums.

    Args:
        bits: of raws, 8 or 16.
        largest_left: positive bound on the magnitudes of left raws.
        largest_right: the same of right ones.
    """
    # An instruction adds 2 or 4 products to a lane. Bytes of a split element are at most 128 in magnitude, the high one
    # of 2**15 - 1 = 256 * 128 - 1 too.
    if bits == BYTE:
        return 0, loops.INT32_MAX // (NEIGHBOURS[8] * LARGEST_BYTE * largest_right)
    whole = loops.INT32_MAX // (NEIGHBOURS[16] * largest_left * largest_right)
    if whole >= FEWEST_INSTRUCTIONS:
        return 0, whole
    return 1, loops.INT32_MAX // (NEIGHBOURS[16] * loops.OFFSET * largest_right)


def grain_of(results: int, depth: int) -> int:
    """Return how many parts, each of so many results that are sums of `depth` products, are worth a second thread."""
    return max(1, int(1 / (results * depth / GRAIN_MACS + (results + 1) / GRAIN_RESULTS)))


def _raws(x: Gathered, fmt: FormatCode, bits: int, *, magnitudes: bool) -> tuple[Gathered, int]:
    """Return the same matrices of raws, or of their magnitudes, and a positive bound on the magnitudes."""
    # Raws of at most 16 bits are exact in float32; only their scale may be beyond it.
    data = only_read(x.data if -fmt.quantum < FLOAT32_EXPONENTS else x.data.astype(np.float64))
    kind = np.dtype(np.int8 if bits == BYTE else np.int16)
    raws, largest = packing.raws_of(data, math.ldexp(1.0, -fmt.quantum), kind, packing.SLACK)
    if magnitudes:  # ~x is -x - 1: of -2**15, whose negative int16 does not hold, it is 2**15 - 1
        np.maximum(raws, np.maximum(-raws, ~raws), out=raws)
    return Gathered(raws, x.batches, x.step, x.rows, x.columns), max(largest, 1)
