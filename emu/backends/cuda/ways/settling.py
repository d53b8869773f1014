"""Sums that lie on the device pass the output stage: the last kernel of the ways that only add."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from emu.backends.cuda import layout, narrow
from emu.backends.cuda.launching import counted_bytes
from emu.backends.cuda.ways.on_device import DenseWay, OnDevice, Results, places
from emu.backends.interface import Write

Array = Any
#: How operands are packed, and how sums are stored: numbers that `around.cu` knows.
PACKED_F32, PACKED_F64, PACKED_I8, PACKED_I32, PACKED_I64 = range(5)
PACKED_DTYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.int8, np.int32, np.int64))
#: Bits of the significands of sums, by their storage.
_BITS_OF_SUMS = {PACKED_F32: 24, PACKED_F64: 53, layout.STORED_I32: 32}
_NARROW_STORAGES = (PACKED_F32, PACKED_F64, layout.STORED_I32)


class Sums(NamedTuple):
    """Sums on the device.

    Attributes:
        array: flat.
        numbers: arguments of the kernel `settle` that describe them.
        bits: of their significands.
        exact: whether the addend is still to be added.
        marks: 1 for each sum whose accumulator overflowed, or None.
    """

    array: Array
    numbers: tuple[Any, ...]
    bits: int
    exact: bool
    marks: Array | None = None

    @classmethod
    def of(
        cls, sums: Array, storage: int, quantum: int, *, exact: bool, width: int | None = None, bits: int | None = None
    ) -> Sums:
        """Return sums (B, height, width).

        Args:
            sums: on the device.
            storage: how a sum is stored; a number that `around.cu` knows.
            quantum: exponent of its last place, of integers.
            exact: whether the addend is still to be added.
            width: sums in a row, if a sum takes several elements.
            bits: of their significands, if the storage does not determine them.
        """
        _, height, columns = sums.shape
        numbers = (np.int32(storage), np.int32(quantum), np.int64(height), np.int64(width or columns), np.int32(exact))
        return cls(sums.reshape(-1), numbers, _BITS_OF_SUMS[storage] if bits is None else bits, exact)


class Settled(DenseWay):
    """A way whose kernels leave sums on the device."""

    @abstractmethod
    def _sums(self, product: OnDevice) -> Sums:
        """Return the sums of a product."""

    @override
    def _launch(self, product: OnDevice, results: Results, write: Write) -> None:
        launcher, sums = self._launcher, self._sums(product)
        # an addend may lie so far below that its digits are cut
        kept = layout.kept_bits([write.stage], product.code.divisor, adds=sums.exact and product.addend is not None)
        sides = (*places(launcher, product.left), *places(launcher, product.right))
        words = layout.enough_words(max(sums.bits, product.addend_bits), kept)
        rest = (sums.marks, *sides, product.addend, *results.arguments)
        # the fast stage takes what fits one word and is written as it is
        if words == 1 and _is_narrow(product, sums) and narrow.writes(launcher, write.stage, write.register):
            storage, quantum, _, _, exact = sums.numbers
            arguments = (product.task, sums.array, storage, quantum, exact, *rest)
            narrow.launch(launcher, "narrow_sums", "narrow_sums", product.results, arguments, write.register)
            return
        launcher.launch(
            *("around", "settle", product.results, (product.task, sums.array, *sums.numbers, *rest)),
            shared_bytes=counted_bytes(write.register),
            words=words,
        )


def _is_narrow(product: OnDevice, sums: Sums) -> bool:
    """Return whether sums lie as results do, in a storage that `narrow_sums.cu` reads, and are what is written."""
    undivided = product.code.divisor == 1 and not (sums.exact and product.addend is not None)
    return undivided and int(sums.numbers[0]) in _NARROW_STORAGES and sums.array.size == product.results
