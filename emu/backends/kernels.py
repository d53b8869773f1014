"""The table of kernels that every backend implements, on plain arrays and integers.

Descriptions reach a kernel as the tuples of `interface.py`; it returns an `Outcome`: the written array and counts.
Two take an object: `tabled` the function's table, with its formats, `quantize_blocks` a scaled format, with its rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from emu.backends.codecs import CodecKernels
from emu.backends.gathered import Gathered
from emu.backends.interface import FormatCode, Outcome, RandomCode, RegisterCode, StageCode, Write
from emu.backends.pattern import Columns, Indices
from emu.backends.product import Formats, Product, SparseProduct, Way
from emu.formats import Scaled

if TYPE_CHECKING:  # it takes long to load
    from emu.backends.functions import FunctionTable

Array = NDArray[Any]
Result = TypeVar("Result")


class SmallOperation(NamedTuple):
    """An elementwise operation of small arrays, without its numbers.

    Attributes:
        operation: "quantize", or an operation of `elementwise`.
        sources: dtypes of the operands.
        formats: of the operands; None of plain floats.
        stage: output stage.
        register: positions of the register that observes exact results, or None.
    """

    operation: str
    sources: tuple[np.dtype[Any], ...]
    formats: tuple[FormatCode | None, ...]
    stage: StageCode
    register: RegisterCode | None


class SmallWrite(Protocol):
    """Writes one elementwise operation of small arrays through one output stage."""

    def __call__(self, operands: Sequence[Array], shape: tuple[int, ...], random: RandomCode) -> Outcome | None:
        """Return what was written and counted; None if these numbers take `quantize` or `elementwise`.

        Args:
            operands: C-contiguous arrays of that shape, or of one element, which stands for all.
            shape: of the result; not empty.
            random: address of random bits.
        """
        ...


class Kernels(CodecKernels, Protocol):
    """The table of kernels: each method is a kernel. The engine has checked shapes and dtypes.

    Those of gradient codecs are in `codecs.py`.
    """

    name: str

    @property
    def ways(self) -> tuple[Way[Product], ...]:
        """The ways to compute a product, the most special one first, the definition last; see `choose`."""
        ...

    @property
    def sparse_ways(self) -> tuple[Way[SparseProduct], ...]:
        """The ways to compute a sparse product."""
        ...

    def place(self, x: Array) -> Array:
        """Return an array in the memory in which this backend computes; results lie where their operands lie."""
        ...

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run independent tasks, which may overlap, and return their results; later kernels find all of them done."""
        ...

    def compiling_ahead(self) -> AbstractContextManager[None]:
        """Return a context in which copies of this process may run what it runs, and compile what it has not reached.

        The block must change this process's memory alone.
        """
        ...

    def quantize(
        self,
        x: Array,
        source: FormatCode | None,
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write `x` (any shape; float32, float64, or raws of `source`) through the output stage.

        If `out` holds signed integers and the format's carrier does not, raws are written.
        """
        ...

    def quantize_blocks(
        self, x: Array, fmt: Scaled, axis: int, write: Write, *, counted: bool
    ) -> tuple[Outcome, tuple[Array, ...]]:
        """Write `x` in a format whose elements share scales; return the elements and the scales of each level.

        Args:
            x: numbers as the format's rule reads them, float32 or float64, any shape with an axis.
            fmt: the scaled format; its rule is data.
            axis: along which blocks lie, counted from the end; the last block along it may be short.
            write: the output stage of the elements and random bits; no register.
            counted: whether all flags are read; if not, those but `invalid` may be left 0.
        """
        ...

    def elementwise(
        self,
        operation: str,
        operands: tuple[Array, ...],
        formats: tuple[FormatCode | None, ...],
        write: Write,
        out: Array | None,
    ) -> Outcome:
        """Write an operation of operands of equal shape: add, ... sqrt, remainder, round_to_integral."""
        ...

    def small_write(self, asked: SmallOperation) -> SmallWrite | None:
        """Return what writes an operation of small arrays at once; None if the backend has no such thing."""
        ...

    def columns(self, index: Indices, count: int) -> Columns:
        """Return which of `count` columns have entries, (entries,) int32 or int64: marked and counted up."""
        ...

    def dots(self, formats: Formats) -> bool:
        """Return whether this backend multiplies operands of these formats by integer dot-product instructions.

        The planner then names that as the proof (`plan_product`).
        """
        ...

    def function(
        self,
        name: str,
        x: Array,
        source: FormatCode | None,
        write: Write,
    ) -> Outcome:
        """Write an elementary function of `x`, float32 or float64 of a source format, any shape.

        It is the double of `functions/double.py`, rounded.
        """
        ...

    def tabled(self, table: FunctionTable, x: Array, write: Write) -> Outcome:
        """Write what the function's table holds for `x`, values of its input format, any shape."""
        ...

    def relu(self, x: Array) -> Array:
        """Return x where x > 0, NaN where NaN, else +0."""
        ...

    def relu_gradient(self, g: Array, x: Array) -> Array:
        """Return g where x > 0, else +0; arrays of the same shape, each of any carrier dtype."""
        ...

    def largest_magnitudes(self, arrays: Sequence[Array]) -> list[float]:
        """Return the largest magnitude in each array of carriers: 0.0 of none, NaN if there is one."""
        ...

    def max_pool(self, windows: Array | Gathered) -> tuple[Array, NDArray[np.unsignedinteger[Any]]]:
        """Return maximum and index of the first maximum along the last axis; NaN wins, -0 < +0.

        Indices are of the smallest unsigned dtype that counts a window: uint8 up to 256 values, then uint16, uint32.
        """
        ...

    def unpool(self, values: Array, index: NDArray[np.unsignedinteger[Any]], windows: Gathered) -> Array:
        """Return zeros, (windows.data.size,), with each value at its window's index-th element; windows never overlap.

        A value whose index lies outside its window is left out: nothing is written beyond the array.
        """
        ...
