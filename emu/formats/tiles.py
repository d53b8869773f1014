"""Where the blocks of an array lie that share scales: how their numbers are reduced, and their scales spread again.

Blocks are counted with the axis of the value last: an array (K, N) whose blocks lie along its first axis is seen as
(N, K). Scales have that order too, as many axes as the array, and 1 where they serve all: so a transposed array keeps
its scales as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import ShapeError
from emu.formats.integers import as_integer
from emu.formats.scaled import Scaled, Tiling

Array = NDArray[Any]


def axis_of(axis: object, shape: tuple[int, ...], fmt: Scaled) -> int:
    """Return an axis counted from the end, -1 for the last.

    Raises:
        ShapeError: the array has no such axis; or blocks lie across two axes, and this is neither of the last two.
    """
    if not shape:
        raise ShapeError(f"a scaled value must have an axis along which blocks lie, got a single number for {fmt}")
    index = as_integer("axis", axis, -len(shape), len(shape) - 1, error=ShapeError)
    index = index if index < 0 else index - len(shape)
    if fmt.is_square and (len(shape) < 2 or index < -2):
        raise ShapeError(
            f"`axis` must be one of an array's last two for blocks of {fmt.tiling}, got {axis} for shape {shape}; "
            "reshape it to matrices"
        )
    return index


def require_whole_blocks(fmt: Scaled, shape: tuple[int, ...], axis: int) -> None:
    """Raise ShapeError unless blocks divide an array: its sizes along and across the axis."""
    seen = canonical_shape(shape, axis)
    # an array of one axis has one row
    for extent, size, where in ((fmt.tiling.along, seen[-1], "along"), (fmt.tiling.across, (1, *seen)[-2], "across")):
        if extent not in (1, None) and size % extent:
            short = size % extent
            raise ShapeError(
                f"blocks of {fmt.tiling} must divide the size {where} the axis, got {size} of shape {shape} for axis "
                f"{axis}, which leaves {short}; give pad=True for a short last block, or pad the array by "
                f"{extent - short} zeros"
            )


def canonical_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return an array's shape with the axis of its blocks last."""
    along = shape[axis]
    rest = list(shape)
    del rest[axis]
    return (*rest, along)


@dataclass(frozen=True)
class Tiles:
    """The blocks of one level in an array.

    Attributes:
        tiling: what shares a scale.
        shape: of the array.
        axis: along which blocks lie, counted from the end.
    """

    tiling: Tiling
    shape: tuple[int, ...]
    axis: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Shape of the scales: blocks, with the axis last; 1 where a scale serves all."""
        seen = canonical_shape(self.shape, self.axis)
        *rest, along = seen
        if self.tiling.along is None:
            # axes with scales of their own: none for the tensor, the first for channels, all but the last for rows
            kept = rest[: {"tensor": 0, "channel": 1}.get(str(self.tiling), len(rest))]
            return (*kept, *(1,) * (len(seen) - len(kept)))
        # the last block of an axis may be short
        if rest:
            rest[-1] = -(-rest[-1] // self._across)
        return (*rest, -(-along // self.tiling.along))

    @property
    def _across(self) -> int:
        return self.tiling.across or 1

    def largest(self, numbers: Array) -> Array:
        """Return the largest of 0 and the numbers of each block, shape `counts`; NaN if a number is NaN.

        Args:
            numbers: shape `shape`.
        """
        seen = np.moveaxis(numbers, self.axis, -1)
        if self.tiling.along is None:
            counts = self.counts
            # axes that a scale serves as a whole; the last one always is,
            # also if it has one element and equals its count
            axes = tuple(i for i, size in enumerate(seen.shape) if counts[i] != size or i == seen.ndim - 1)
            return np.maximum.reduce(seen, axis=axes, keepdims=True, initial=0)
        counts, along, across = self.counts, self.tiling.along, self._across
        # zeros fill the last blocks: the largest of 0 and a block's numbers does not change
        missing = [(0, 0)] * seen.ndim
        missing[-1] = (0, counts[-1] * along - seen.shape[-1])
        if seen.ndim > 1:
            missing[-2] = (0, counts[-2] * across - seen.shape[-2])
        if any(end for _, end in missing):
            seen = np.pad(seen, missing)
        if across == 1:
            # (..., blocks along, along)
            return np.maximum.reduce(seen.reshape(*counts, along), axis=-1, initial=0)
        # (..., blocks across, across, blocks along, along)
        blocks = seen.reshape(*counts[:-1], across, counts[-1], along)
        return np.maximum.reduce(blocks, axis=(-3, -1), initial=0)

    def spread(self, scales: Array) -> Array:
        """Return scales, shape `counts`, for every element: an array that broadcasts to `shape`."""
        if self.tiling.along is not None:
            seen = canonical_shape(self.shape, self.axis)
            # each scale for `along` elements; the last block may be short, so the rest is cut
            scales = np.repeat(scales, self.tiling.along, axis=-1)[..., : seen[-1]]
            if self._across > 1:
                scales = np.repeat(scales, self._across, axis=-2)[..., : seen[-2], :]
        return np.moveaxis(scales, -1, self.axis)
