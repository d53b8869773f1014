"""The definition as the last way of a device: computed on the host, its results moved to where the operands are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from emu.backends.arrays import is_on_device, on_host
from emu.backends.cuda.launching import Launcher
from emu.backends.cuda.ways.on_device import DeviceWay
from emu.backends.gathered import Gathered
from emu.backends.interface import Outcome, Write
from emu.backends.product import Product, SparseProduct
from emu.backends.reference.definition import DEFINITION, SPARSE_DEFINITION, LastWay

Array = Any


class OnHost(DeviceWay[Product], LastWay[Product]):
    """Products of matrices."""

    def compute(self, product: Product, write: Write) -> Outcome:
        """Write the product."""
        # `beside` asks where these were, not their copies
        operands = [x.data if isinstance(x, Gathered) else x for x in (product.left, product.right)]
        left, right = (_on_host(x) for x in (product.left, product.right))
        outcome = DEFINITION.compute(
            Product(product.code, left, right, _copied(product.addend), product.alignment), write
        )
        return beside(self._launcher, outcome, *operands)


class SparseOnHost(DeviceWay[SparseProduct], LastWay[SparseProduct]):
    """Products of sparse matrices."""

    def compute(self, product: SparseProduct, write: Write) -> Outcome:
        """Write the product."""
        data, dense = on_host(product.data), on_host(product.dense)
        copied = SparseProduct(product.code, data, dense, _copied(product.addend), product.pattern)
        return beside(self._launcher, SPARSE_DEFINITION.compute(copied, write), product.data, product.dense)


def beside(launcher: Launcher, outcome: Outcome, *operands: Array) -> Outcome:
    """Return an outcome of the host with its values on the device if an operand is there."""
    return outcome.with_values(launcher.xp.asarray(outcome.values)) if any(map(is_on_device, operands)) else outcome


def _on_host(x: Array | Gathered) -> Array | Gathered:
    return replace(x, data=on_host(x.data)) if isinstance(x, Gathered) else on_host(x)


def _copied(addend: Array | None) -> Array | None:
    return None if addend is None else on_host(addend)
