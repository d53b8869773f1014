"""Every unit, add by add: one thread per result runs the unit itself, in integers of one, two or four words."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.backends.cuda import layout
from emu.backends.cuda.launching import Launcher, counted_bytes
from emu.backends.cuda.ways.on_device import DenseWay, OnDevice, Results, places
from emu.backends.interface import BLOCKS, StageCode, Write, carrier_of
from emu.backends.product import ProductCode


class AddByAdd(DenseWay):
    """Any unit whose sums fit a kernel's integers."""

    @override
    def _takes(self, product: ProductCode) -> bool:
        return True

    @override
    def _declines(self, product: ProductCode) -> str:
        return layout.declines_sums(product.formats, product.mac)

    @override
    def proof(self, product: ProductCode) -> str:
        """Return how a result is computed."""
        return "one thread per result, in integers"

    @override
    def _launch(self, product: OnDevice, results: Results, write: Write) -> None:
        launcher = self._launcher
        kernel, extra, words = kernel_of(launcher, product, write.stage)
        sides = (*places(launcher, product.left), *places(launcher, product.right))
        arguments = (product.task, *sides, product.addend, *results.arguments, *extra)
        room = counted_bytes(write.register)
        launcher.launch("products", kernel, product.results, arguments, shared_bytes=room, words=words)


def kernel_of(launcher: Launcher, product: OnDevice, stage: StageCode) -> tuple[str, tuple[Any, ...], int]:
    """Return the kernel that runs a unit itself, what it takes beside operands and results, and its words."""
    mac, divisor = product.code.mac, product.code.divisor
    # a product has as many bits as both carriers together
    product_bits = sum(layout.SIGNIFICANT[x.dtype] for x in (product.left, product.right))
    inside = [s for s in (mac.product, mac.accumulator) if s is not None]
    # numbers inside the unit lie in carriers too
    written = (layout.SIGNIFICANT[carrier_of(s.format)] for s in (stage, *inside))
    widest = max(product_bits, product.addend_bits, *written)
    kept = layout.kept_bits([stage, *inside], divisor, adds=True)
    if mac.accumulator is None:
        lowest, words = layout.exact_sums(product.formats, mac, product.sizes[2])
        assert words <= layout.MOST_SUM_WORDS
        # A term lies anywhere within a word, and the highest word of a sum may hold one bit.
        return "exact_product", (np.int32(lowest), np.int32(words)), layout.enough_words(widest + 63, kept + 64)
    if mac.order != BLOCKS:
        return "ordered_product", (), layout.enough_words(widest, kept)
    assert mac.blocks is not None
    # terms below 2**(fraction_bits + 2), as many as a period has, and a sign
    aligned = mac.blocks.fraction_bits + len(mac.blocks.indices).bit_length() + 3
    # the order is the same for all products of a unit: the device keeps one copy
    order = launcher.constant(_order_of(mac.blocks.indices))
    return "block_product", (order,), layout.enough_words(max(widest, aligned), kept)


@lru_cache(maxsize=64)
def _order_of(indices: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the k of a period in the order they are added."""
    return np.array(indices, np.int64)
