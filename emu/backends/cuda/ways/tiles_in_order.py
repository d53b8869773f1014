"""Float32 accumulators that add exact products of float32 along k, to nearest even: tiles of fused multiply-adds.

A fused multiply-add rounds a * b + c once: that is an exact product, added by an accumulator that rounds.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from emu.backends.cuda.ways.on_device import OnDevice, places
from emu.backends.cuda.ways.settling import PACKED_F32, Settled, Sums
from emu.backends.interface import SEQUENTIAL, Outcome, Write, carrier_of, encode_format
from emu.backends.product import Product, ProductCode
from emu.backends.proofs import is_plain
from emu.formats import PRESETS

_FLOAT32 = encode_format(PRESETS["fp32"])
#: Rows and columns of a result from which tiles of 128 x 128 of its elements are taken, since they are faster; smaller
#: results are computed in tiles of 64 x 64.
_LARGE_TILES = 512
#: Threads of a block, as `in_order.cu` divides a tile among them.
_THREADS = 256


class TilesInOrder(Settled):
    """The device's own float32 fused multiply-adds, in the order of k."""

    @override
    def _takes(self, product: ProductCode) -> bool:
        mac, formats = product.mac, [fmt for fmt in product.formats if fmt is not None]
        narrow = all(carrier_of(fmt) == np.float32 for fmt in formats)
        # The kernel reads a flushed operand as 0 of its sign, so a format that flushes must have -0.
        keeps_sign = all(fmt.has_negative_zero or not fmt.daz for fmt in formats)
        # A product of None is exact, as it is in a fused multiply-add.
        is_fused = mac.product is None and mac.order == SEQUENTIAL and is_plain(mac.accumulator, _FLOAT32)
        return is_fused and narrow and keeps_sign

    @override
    def proof(self, product: ProductCode) -> str:
        """Return how sums are computed."""
        return "in tiles of fused multiply-adds"

    @override
    def compute(self, product: Product, write: Write) -> Outcome | None:
        """Write the product; None if an operand's array is not float32, though its format fits."""
        operands = (product.left, product.right, product.addend)
        if any(x.dtype != np.float32 for x in operands if x is not None):
            return None
        return super().compute(product, write)

    @override
    def _sums(self, product: OnDevice) -> Sums:
        launcher, (batches, rows, _, columns) = self._launcher, product.sizes
        tile_side = 128 if min(rows, columns) >= _LARGE_TILES else 64
        sums = launcher.xp.empty((batches, rows, columns), np.float32)
        # marks, one for each result: its accumulator became infinite from finite terms
        marks = launcher.xp.empty(product.results, np.uint8)
        operands = (*places(launcher, product.left), *places(launcher, product.right))
        arguments = (product.task, *operands, product.addend, sums.reshape(-1), marks)
        tiles = batches * -(-rows // tile_side) * -(-columns // tile_side)
        launcher.launch("in_order", f"in_order_{tile_side}", tiles, arguments, words=1, threads=_THREADS, per_block=1)
        return Sums.of(sums, PACKED_F32, 0, exact=False)._replace(marks=marks)
