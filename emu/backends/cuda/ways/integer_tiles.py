"""Exact sums of fixed-point operands of more bits than floats have: tiles of integers, sums of 128 or 192 bits."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from emu.backends.cuda.ways.on_device import OnDevice, packed
from emu.backends.cuda.ways.settling import PACKED_DTYPES, PACKED_I32, PACKED_I64, Settled, Sums
from emu.backends.product import ProductCode

#: Results of a tile's side.
_TILE = 64
#: Storage of the sums of packed integers, and their 64-bit words.
_SUMS_IN_WORDS = {PACKED_I32: (5, 2), PACKED_I64: (6, 3)}


class IntegerTiles(Settled):
    """Exact accumulators of fixed-point operands."""

    @override
    def _takes(self, product: ProductCode) -> bool:
        return _packing(product) is not None

    @override
    def proof(self, product: ProductCode) -> str:
        """Return the integers of operands and sums."""
        packing = _packing(product)
        assert packing is not None
        return f"in tiles of {PACKED_DTYPES[packing]}, sums of {64 * _SUMS_IN_WORDS[packing][1]} bits"

    @override
    def _sums(self, product: OnDevice) -> Sums:
        packing = _packing(product.code)
        assert packing is not None
        launcher, (batches, rows, depth, columns) = self._launcher, product.sizes
        left = packed(launcher, product, 0, packing, PACKED_DTYPES[packing], (rows, depth))
        right = packed(launcher, product, 1, packing, PACKED_DTYPES[packing], (columns, depth))
        storage, words = _SUMS_IN_WORDS[packing]
        sums = launcher.xp.empty((batches, rows, columns * words), np.uint64)
        steps = (x.shape[1] * depth if x.shape[0] > 1 else 0 for x in (left, right))
        numbers = (np.int64(n) for n in (*product.sizes, *steps))
        # the last tiles of a row or column may be cut
        tiles = batches * -(-rows // _TILE) * -(-columns // _TILE)
        kernel, arguments = f"sum_products_{64 if words > 2 else 32}", (left, right, *numbers, sums.reshape(-1))
        launcher.launch("integer_tiles", kernel, tiles, arguments, words=1, threads=256, per_block=1)
        a, b, _ = product.formats
        # bits of a product, and of as many terms as a sum has
        bits = sum(fmt.width_bits - fmt.signed for fmt in (a, b)) + depth.bit_length()
        return Sums.of(sums, storage, a.quantum + b.quantum, exact=True, width=columns, bits=bits)


def _packing(product: ProductCode) -> int | None:
    """Return how the operands are packed; None if the product is no exact sum of fixed-point numbers."""
    formats, mac = product.formats, product.mac
    if mac.accumulator is not None or mac.product is not None or any(fmt.is_float for fmt in formats[:2]):
        return None
    # an unsigned word needs a bit more as a signed integer
    bits = max(fmt.width_bits + (not fmt.signed) for fmt in formats[:2])
    return PACKED_I32 if bits <= 32 else PACKED_I64 if bits <= 64 else None
