"""A product on a device: its operands there, the arguments of a launch, and what the ways to compute it share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.backends.cuda import layout
from emu.backends.cuda.launching import SHARED_BYTES, Counts, Launcher, counted_bytes
from emu.backends.gathered import Gathered
from emu.backends.interface import Outcome, RegisterCode, StageCode, Write, carrier_of
from emu.backends.product import Formats, Given, Product, ProductCode, Way

Array = Any


class OnDevice(NamedTuple):
    """Operands, sizes, and the numbers of a launch.

    Attributes:
        code: the product without its numbers.
        left: left operand.
        right: right operand.
        addend: flat, or None.
        sizes: matrices, rows, inner size, columns.
        task: the numbers, as `kernels/include/task.cuh` reads them.
    """

    code: ProductCode
    left: Gathered
    right: Gathered
    addend: Array | None
    sizes: tuple[int, int, int, int]
    task: np.void

    @property
    def formats(self) -> Formats:
        """Formats of the operands and the addend."""
        return self.code.formats

    @property
    def results(self) -> int:
        """Number of results."""
        batches, rows, _, columns = self.sizes
        return batches * rows * columns

    @property
    def addend_bits(self) -> int:
        """Bits of the addend's significands."""
        return 0 if self.addend is None else layout.SIGNIFICANT[self.addend.dtype]

    def outcome(self, launcher: Launcher, results: Results) -> Outcome:
        """Return what kernels wrote, where the operands are."""
        batches, rows, _, columns = self.sizes
        values = results.values.reshape(batches, rows, columns)
        return Outcome.with_pending(launcher.returned(values, self.left.data, self.right.data), results.counts)

    @classmethod
    def of(cls, launcher: Launcher, product: Product, write: Write) -> OnDevice:
        """Return a product of matrices."""
        left, right = product.gathered()
        sizes = (max(left.batches, right.batches), left.rows.size, left.columns.size, right.columns.size)
        # step 0: one matrix serves all results
        steps = (left.batch_stride if left.batches > 1 else 0, right.batch_stride if right.batches > 1 else 0)
        return cls.laid_out(launcher, product.code, left, right, product.addend, sizes, steps, write)

    @classmethod
    def laid_out(
        cls,
        launcher: Launcher,
        code: ProductCode,
        left: Gathered,
        right: Gathered,
        addend: Array | None,
        sizes: tuple[int, int, int, int],
        steps: tuple[int, int],
        write: Write,
    ) -> OnDevice:
        """Return a product with these operands.

        Args:
            launcher: of the device.
            code: the product without its numbers.
            left: left operand.
            right: right operand.
            addend: three axes, each of one element or the result's.
            sizes: matrices, rows, inner size, columns.
            steps: from one matrix of an operand to the next.
            write: output stage, random bits, register.
        """
        formats = code.formats
        # the order is that of `task.cuh`
        numbers = [
            *layout.head_numbers(write),
            *layout.operand_numbers(left.dtype, formats[0]),
            *layout.operand_numbers(right.dtype, formats[1]),
            *(layout.NO_OPERAND if addend is None else layout.operand_numbers(addend.dtype, formats[2])),
            *sizes,
            code.divisor,
            *steps,
            *([0, 0, 0] if addend is None else layout.broadcast_steps(addend.shape)),
            *layout.mac_numbers(code.mac),
            *layout.blocks_numbers(code.mac, formats),
        ]
        third = None if addend is None else launcher.taken(addend)
        return cls(code, left, right, third, sizes, layout.task(numbers))


class Results(NamedTuple):
    """Room for results and counts on the device."""

    values: Array
    counts: Counts
    recorded: Array | None

    @classmethod
    def of(cls, launcher: Launcher, size: int, write: Write) -> Results:
        """Return room for `size` results."""
        values = launcher.xp.empty(size, carrier_of(write.stage.format))
        return cls(values, Counts(launcher, write.register), launcher.recorded(write.random))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments that kernels take."""
        return self.recorded, self.values, self.counts.totals


class DeviceWay(Way[Given]):
    """A way whose kernels write results on a device."""

    def __init__(self, launcher: Launcher) -> None:
        """Compute with a launcher's device."""
        self._launcher = launcher


class DenseWay(DeviceWay[Product]):
    """A way to compute products of matrices."""

    @abstractmethod
    def _takes(self, product: ProductCode) -> bool:
        """Return whether a product is of this way's kind."""

    def _declines(self, product: ProductCode) -> str:
        """Return why a product of this way's kind is left to the ways that follow; "" if it is not."""
        return ""

    @override
    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        if not self._takes(product):
            return ""
        is_float = any(fmt.is_float for fmt in product.formats if fmt is not None)
        # kernels keep the highest digits of a sum of floats, and wrapping needs the lowest
        if layout.wraps(stage) and product.divides_oddly and is_float:
            return "a mean of floats that wraps needs every bit of their sum"
        return self._declines(product) or None

    @override
    def compute(self, product: Product, write: Write) -> Outcome | None:
        """Write the product; None if a block of threads has no room for the register."""
        if not has_room(write.register):
            return None
        launcher, device = self._launcher, OnDevice.of(self._launcher, product, write)
        results = Results.of(launcher, device.results, write)
        self._launch(device, results, write)
        return device.outcome(launcher, results)

    @abstractmethod
    def _launch(self, product: OnDevice, results: Results, write: Write) -> None:
        """Launch the kernels that write the results."""


def has_room(register: RegisterCode | None) -> bool:
    """Return whether a block of threads has room for a register's positions."""
    return counted_bytes(register) <= SHARED_BYTES


def places(launcher: Launcher, x: Gathered) -> tuple[Array, Array, Array]:
    """Return an operand's elements and the offsets of its rows and columns, on the device."""
    return launcher.operand(x.data), launcher.constant(x.rows), launcher.constant(x.columns)


def packed(
    launcher: Launcher, product: OnDevice, operand: int, packing: int, dtype: np.dtype[Any], shape: tuple[int, int]
) -> Array:
    """Return an operand as matrices of a shape, (B or 1, height, width), zeros beyond its own.

    Args:
        launcher: of the device.
        product: whose operand.
        operand: 0 is the left one, 1 the right one transposed.
        packing: how elements are packed; a number that `around.cu` knows.
        dtype: the same in NumPy.
        shape: height, width.
    """
    x = product.right.transposed() if operand else product.left
    # a matrix that serves all products is packed once
    out = launcher.xp.empty((x.batches if x.batch_stride else 1, *shape), dtype)
    if out.size:
        offsets: tuple[NDArray[np.int64], NDArray[np.int64]] = (x.rows, x.columns)
        sides = ((launcher.constant(side), np.int64(side.size)) for side in offsets)
        arguments = (
            *(product.task, np.int32(operand), launcher.operand(x.data), *(part for side in sides for part in side)),
            *(np.int64(x.batch_stride), np.int32(packing), *(np.int64(size) for size in shape)),
            *(out.reshape(-1), np.int64(out.size)),
        )
        launcher.launch("around", "pack", out.size, arguments, words=1)
    return out
