"""Every unit, add by add: one thread per result runs the unit itself, in integers of one, two or four words."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.cuda import layout
from emu.backends.cuda.launching import Launcher, counted_bytes
from emu.backends.cuda.ways.on_device import OnDevice, Results, has_room, needs_every_bit, places
from emu.backends.cuda.ways.settling import outcome_of
from emu.backends.interface import BLOCKS, Outcome, StageCode, Write, carrier_of
from emu.backends.product import Product, ProductCode


class AddByAdd:
    """Any unit whose sums fit a kernel's integers."""

    def __init__(self, launcher: Launcher) -> None:
        """Compute with a launcher's device."""
        self._launcher = launcher

    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return why a product is left to the definition: a kind of mean, sums wider than a kernel's integers."""
        return needs_every_bit(product, stage) or layout.declines_sums(product.formats, product.mac) or None

    def proof(self, product: ProductCode) -> str:
        """Return who computes a result."""
        return "one thread per result, in integers"

    def compute(self, product: Product, write: Write) -> Outcome | None:
        """Write the product; None if a block of threads has no room for the register."""
        if not has_room(write.register):
            return None
        launcher = self._launcher
        device = OnDevice.of(launcher, product, write)
        results = Results.of(launcher, device.results, write)
        kernel, extra, words = kernel_of(launcher, device, write.stage)
        sides = (*places(launcher, device.left), *places(launcher, device.right))
        arguments = (device.task, *sides, device.addend, *results.arguments, *extra)
        room = counted_bytes(write.register)
        launcher.launch("products", kernel, device.results, arguments, shared_bytes=room, words=words)
        return outcome_of(launcher, device, results)


def kernel_of(launcher: Launcher, product: OnDevice, stage: StageCode) -> tuple[str, tuple[Any, ...], int]:
    """Return the kernel that runs a unit itself, what it takes beside operands and results, and its words."""
    mac, divisor = product.code.mac, product.code.divisor
    product_bits = sum(layout.SIGNIFICANT[x.dtype] for x in (product.left, product.right))
    inside = [s for s in (mac.product, mac.accumulator) if s is not None]
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
    aligned = mac.blocks.fraction_bits + len(mac.blocks.indices).bit_length() + 3
    order = launcher.constant(_order_of(mac.blocks.indices))
    return "block_product", (order,), layout.enough_words(max(widest, aligned), kept)


@lru_cache(maxsize=64)
def _order_of(indices: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the k of a period in the order they are added."""
    return np.array(indices, np.int64)
