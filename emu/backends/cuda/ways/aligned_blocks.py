"""Blocks of products of operands that share scales, and groups of them: one thread per result runs the unit itself."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from emu.backends.cuda import layout
from emu.backends.cuda.launching import counted_bytes
from emu.backends.cuda.ways.add_by_add import kernel_of
from emu.backends.cuda.ways.on_device import DeviceWay, OnDevice, Results, has_room, places
from emu.backends.interface import Outcome, StageCode, Write
from emu.backends.product import Product, ProductCode
from emu.backends.reference.blocks import aligned_bits

#: Bits of a kernel's integers that stay free.
FREE_BITS = 4


class AlignedBlocks(DeviceWay[Product]):
    """Units of blocks whose operands have exponents beside them."""

    reads_alignment = True

    @override
    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        return None if product.is_aligned and product.mac.blocks is not None else ""

    @override
    def proof(self, product: ProductCode) -> str:
        return "one thread per result, in integers"

    @override
    def compute(self, product: Product, write: Write) -> Outcome | None:
        """Write the product; None if a kernel's integers do not hold its sums, or a block of threads its register."""
        launcher, alignment, blocks = self._launcher, product.alignment, product.code.mac.blocks
        assert alignment is not None
        assert blocks is not None
        # measured of these operands, since scales may spread exponents widely
        bits = max(aligned_bits(*product.stacks(), alignment, blocks)) + 1  # and a sign
        if bits + FREE_BITS > layout.BLOCK_SUM_BITS or not has_room(write.register):
            return None
        device = OnDevice.of(launcher, product, write)
        results = Results.of(launcher, device.results, write)
        kernel, (order,), words = kernel_of(launcher, device, write.stage)
        # from one matrix of exponents to the next; 0: one matrix serves all results
        steps = [np.int64(0 if len(x) == 1 else x[0].size) for x in alignment[:2]]
        arguments = (
            *(device.task, *places(launcher, device.left), *places(launcher, device.right), device.addend),
            *(*results.arguments, order, *map(launcher.taken, alignment[:2]), *steps),
            *(np.int64(blocks.group), np.int32(sum(alignment.points))),
        )
        launcher.launch(
            "products",
            f"aligned_{kernel}",
            device.results,
            arguments,
            shared_bytes=counted_bytes(write.register),
            # wide enough for this product's blocks, which `kernel_of` does not know
            words=max(words, layout.enough_words(bits, 0)),
        )
        return device.outcome(launcher, results)
