"""A value whose elements share scales: elements, scales, and the axis along which blocks lie."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.errors import FormatError, ShapeError
from emu.formats.arrays import shown
from emu.formats.numbers import as_integers
from emu.formats.packing import pack, swizzle, unpack, unswizzle
from emu.formats.scaled import Scaled, Tiling, as_zero_points
from emu.formats.tiles import Tiles, axis_of, canonical_shape

Array = NDArray[Any]
Layout = Literal["plain", "128x4"]
LAYOUTS: tuple[Layout, ...] = ("plain", "128x4")


class Packed(NamedTuple):
    """A scaled value as bytes.

    Attributes:
        elements: uint8, with the axis of the blocks last: codes side by side, the first in the lowest bits.
        scales: codes of each level, the finest first: uint8, or uint32 for binary32. In the layout 128x4 the finest
            are one line.
        zero: zero points; None of formats without.
    """

    elements: NDArray[np.uint8]
    scales: tuple[Array, ...]
    zero: NDArray[np.int32] | None = None


@dataclass(frozen=True, eq=False)
class ScaledValue(Drawn):
    """An array in a scaled format. `emu.quantize(x, "mxfp8_e4m3", axis=-1)` makes one.

    NumPy reads the numbers that it stands for: `np.asarray(v)` multiplies elements by scales as the format's rule says,
    each operation rounded to binary32; `exact()` rounds nothing.

    Attributes:
        array: elements, not multiplied by scales; carriers of the element format, shape of the tensor.
        scales: an array for each level, the finest first: the numbers that the rule stores, as carriers of the scale
            formats. Shape: blocks, with the axis of the value last, and 1 where a scale serves all.
        format: the scaled format.
        axis: along which blocks lie, counted from the end: -1 is the last.
        zero: the elements that stand for 0, int32, shape of the finest scales; None of formats without zero points.

    Examples:
        >>> import emu
        >>> v = emu.quantize([[1.0, 2.0, 3.0, 1000.0]], "block(fp4_e2m1, fp8_e8m0 1x2 floor)")
        >>> v.array.tolist(), v.scales[0].tolist()
        ([[2.0, 4.0, 0.0, 6.0]], [[0.5, 128.0]])
        >>> np.asarray(v).tolist()
        [[1.0, 2.0, 0.0, 768.0]]

    Source: docs/concepts/scaled.md.
    """

    array: Any
    scales: tuple[Array, ...]
    format: Scaled
    axis: int
    zero: NDArray[np.int32] | None = None

    @classmethod
    def of(
        cls,
        array: Any,
        scales: tuple[Array, ...],
        fmt: Scaled,
        axis: int,
        zero: NDArray[np.int32] | None = None,
    ) -> ScaledValue:
        """Return the value of elements, scales and zero points, which belong to their formats; all become read-only.

        Raises:
            ShapeError: an axis that the array lacks, or scales or zero points of another shape.
        """
        axis = axis_of(axis, array.shape, fmt)
        _require_levels(fmt, len(scales))
        if (zero is not None) != fmt.has_zero:
            raise ShapeError(
                f"a value of {fmt} must have {'zero points' if fmt.has_zero else 'no zero points'}, got "
                f"{'none' if zero is None else f'some of shape {zero.shape}'}"
            )
        parts = [("scales", level.tiling, given) for level, given in zip(fmt.levels, scales, strict=True)]
        # zero points have the shape of the finest scales
        parts += [] if zero is None else [("zero points", fmt.tiling, zero)]
        for what, tiling, given in parts:
            counts = Tiles(tiling, array.shape, axis).counts
            if given.shape != counts:
                raise ShapeError(
                    f"{what} of {tiling} must have the shape {counts} for elements {array.shape} and axis {axis}, got "
                    f"{given.shape}: blocks, with the axis last"
                )
        # frozen dataclasses protect the fields only; elements and scales must not change apart from each other
        for part in (array, *(given for _, _, given in parts)):
            if isinstance(part, np.ndarray):
                part.flags.writeable = False
        return cls(array, tuple(scales), fmt, axis, zero)

    def _moved(self, array: Any, axis: int, move: Callable[[Tiling, Array], Array]) -> ScaledValue:
        """Return a value of other elements, whose scales and zero points are moved, level by level."""
        scales = tuple(move(level.tiling, s) for level, s in zip(self.format.levels, self.scales, strict=True))
        zero = None if self.zero is None else move(self.format.tiling, self.zero)
        return ScaledValue.of(array, scales, self.format, axis, zero)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the elements."""
        return self.array.shape

    @property
    def ndim(self) -> int:
        """Axes of the elements."""
        return self.array.ndim

    @property
    def index_bytes(self) -> int:
        """Bytes of positions of entries: every element is there, so that there are none."""
        return 0

    #: Bytes of positions that an operation made beside the value.
    made_index_bytes = index_bytes

    @property
    def tiles(self) -> tuple[Tiles, ...]:
        """The blocks of each level."""
        return tuple(Tiles(level.tiling, self.shape, self.axis) for level in self.format.levels)

    @property
    def codes(self) -> Array:
        """Codes of the elements, shape of the array."""
        return self.format.element.encode(np.asarray(self.array))

    @property
    def scale_codes(self) -> tuple[Array, ...]:
        """Codes of the scales of each level, the finest first."""
        levels = zip(self.format.levels, self.scales, strict=True)
        return tuple(level.scale.encode(np.asarray(scales)) for level, scales in levels)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the numbers that the value stands for, in float32: the rule's own operations, each rounded once."""
        decoded = self._run(np.asarray(self.array), [np.asarray(s) for s in self.scales], np.float32)
        return np.array(decoded, dtype=dtype, copy=copy)

    def _run(self, q: Array, scales: list[Array], number: Any) -> Array:
        spread = [tiles.spread(level) for tiles, level in zip(self.tiles, scales, strict=True)]
        # q: elements, s: scales of the finest level, t: scales of the outer level, if the format has two
        names = dict(zip("qst", [q, *spread], strict=False))
        if self.zero is not None:
            names["z"] = self.tiles[0].spread(self.zero).astype(q.dtype)
        return np.broadcast_to(self.format.rule.value.run(names, number)["v"], q.shape)

    def exact(self) -> Array:
        """Return the numbers that the value stands for, nothing rounded.

        Returns:
            float64 if it holds each of them, else an array of `Fraction`s. What is infinite or NaN, or has a scale that
            is, is the float64 that the rule's operations give: infinite, or NaN where a scale is NaN.
        """
        array, scales = np.asarray(self.array), [np.asarray(s) for s in self.scales]
        # infinity times a scale of 0 is NaN, and no error
        with np.errstate(invalid="ignore"):
            doubles = np.array(self._run(array.astype(np.float64), [s.astype(np.float64) for s in scales], np.float64))
        if len(scales) == 1:  # at most 24 bits of an element times 24 of a scale: float64 has 53
            return doubles
        # a fraction cannot be infinite or NaN: such parts are computed as
        # 0, and the elements that they serve become those of float64
        known = [np.isfinite(part) for part in (array, *scales)]
        finite = known[0].copy()
        for tiles, is_known in zip(self.tiles, known[1:], strict=True):
            finite &= tiles.spread(is_known)
        parts = [_fractions(part) for part in (array, *scales)]
        exact = np.where(finite, self._run(parts[0], parts[1:], Fraction), doubles.astype(object))
        floats = exact.astype(np.float64)
        # floats of Python, whose comparison with a fraction is exact
        is_float = [math.isnan(f) or f == e for f, e in zip(floats.ravel().tolist(), exact.flat, strict=True)]
        return floats if all(is_float) else exact

    def tolist(self) -> Any:
        """Return the numbers that the value stands for as nested lists."""
        return np.asarray(self).tolist()

    # ---- moves ------------------------------------------------------------------------------------------------------

    def along(self, axis: int) -> ScaledValue:
        """Return the value with its blocks seen along another axis: squares and tensors serve either.

        Raises:
            FormatError: blocks lie along one axis only.
        """
        axis = axis_of(axis, self.shape, self.format)
        if axis == self.axis:
            return self
        # only squares and tensors are the same blocks along both of the last two axes
        if not self.format.serves_either_axis or {axis, self.axis} != {-1, -2}:
            raise FormatError(
                f"blocks of {self.format.tiling} along axis {self.axis} must not be read along axis {axis}: quantize "
                "the numbers once more along it, from the array before it was quantized"
            )
        # scales have the axis of the blocks last: the other of the last two axes takes its place
        return self._moved(self.array, axis, lambda _, scales: np.swapaxes(scales, -1, -2))

    def transpose(self, *axes: Any) -> ScaledValue:
        """Return the value with its axes in another order, by the rules of NumPy; the axis of the blocks moves along.

        Args:
            axes: integers, or one sequence of them; nothing, or None, reverses the axes.

        Raises:
            ShapeError: the axes are no permutation.
            FormatError: blocks lie across two axes, and these are no longer the last two.
        """
        try:
            # NumPy's own rules: axis i has the size i, so that the moved shape is the order
            order = np.empty(tuple(range(self.ndim))).transpose(*axes).shape
        except (ValueError, TypeError):
            raise ShapeError(
                f"`axes` must be a permutation of {self.ndim} axes, got {axes}; name each of them once"
            ) from None
        seen = [a for a in order if a != self.axis % self.ndim]  # old axes in the new order, without that of the blocks
        before = [a for a in range(self.ndim) if a != self.axis % self.ndim]
        axis = order.index(self.axis % self.ndim) - self.ndim
        if self.format.is_square and (seen[-1] != before[-1] or axis < -2):
            raise FormatError(
                f"the two axes of blocks of {self.format.tiling} must stay the last two, got axes {order}; quantize "
                "the transposed array"
            )
        if self.format.tiling.is_channel and seen[:1] != before[:1]:
            raise FormatError(
                f"the axis of channels must stay the first one that has no blocks, got axes {order}; quantize the "
                "transposed array"
            )
        # scales have all other axes in their order, then that of the blocks, which stays last
        moved = [before.index(a) for a in seen] + [self.ndim - 1]
        return self._moved(self.array.transpose(order), axis, lambda _, scales: np.transpose(scales, moved))

    @property
    def T(self) -> ScaledValue:  # noqa: N802 - NumPy's name
        """The value with its axes reversed."""
        return self.transpose()

    def __getitem__(self, index: Any) -> ScaledValue:
        """Return the blocks that slices select.

        Raises:
            FormatError: a selection that cuts a block, or that is no slice.
        """
        bounds = self._bounds(index)
        # bounds in the order of the scales, the axis of the blocks last
        canonical = [b for axis, b in enumerate(bounds) if axis != self.axis % self.ndim]
        canonical.append(bounds[self.axis])
        shape = canonical_shape(self.shape, self.axis)
        return self._moved(
            self.array[tuple(slice(*b) for b in bounds)],
            self.axis,
            lambda tiling, part: part[_blocks_of(tiling, canonical, shape)],
        )

    def _bounds(self, index: Any) -> list[tuple[int, int]]:
        """Return first and last element, for each axis, of what slices select.

        Raises:
            FormatError: something else than slices without steps.
        """
        given: list[Any] = list(cast("tuple[Any, ...]", index)) if isinstance(index, tuple) else [index]
        # `is`: an array would compare itself element by element
        place = next((i for i, part in enumerate(given) if part is Ellipsis), None)
        if place is not None:
            # an ellipsis stands for as many full slices as axes are missing
            given[place : place + 1] = [slice(None)] * (self.ndim - len(given) + 1)
        given += [slice(None)] * (self.ndim - len(given))
        slices: list[slice[Any, Any, Any]] = [s for s in given if isinstance(s, slice)]
        if not len(slices) == len(given) == self.ndim or any(s.step not in (None, 1) for s in slices):
            raise FormatError(
                f"a part of a scaled value must be selected by slices without steps, got {index!r}; select from "
                "np.asarray(value), or write v[2:3] for v[2]"
            )
        return [s.indices(size)[:2] for s, size in zip(slices, self.shape, strict=True)]

    def reshape(self, *shape: int | tuple[int, ...]) -> ScaledValue:
        """Return the elements in another shape, whose last axis holds whole blocks; blocks lie along the last axis.

        Raises:
            FormatError: blocks would be cut, lie along another axis than the last, or across two.
        """
        array = self.array.reshape(*shape)
        if not array.ndim or not all(self._fits(level.tiling, array.shape) for level in self.format.levels):
            raise FormatError(
                f"a scaled value's blocks must stay whole and along the last axis, got shape {array.shape} for "
                f"{self.format} of shape {self.shape} along axis {self.axis}; quantize the reshaped array"
            )
        # only a scale for the whole tensor leaves the value with another
        # axis than the last, which the new shape may lack
        axis = self.axis if -self.axis <= array.ndim else -1
        return self._moved(array, axis, lambda tiling, s: s.reshape(Tiles(tiling, array.shape, axis).counts))

    def _fits(self, tiling: Tiling, shape: tuple[int, ...]) -> bool:
        """Return whether the blocks of a level are the same ones, in the same order, in another shape."""
        # a scale for the whole tensor serves any shape
        if tiling.across is None:
            return True
        if tiling.is_channel:
            # an array of one axis is one channel
            is_stacked = len(shape) > 1
            return self.axis == -1 and is_stacked is (self.ndim > 1) and shape[:1] == self.shape[:1]
        if self.axis != -1 or tiling.across != 1:
            return False
        # rows keep their length, and so their blocks, a short last block included; without elements, any number of rows
        # has the same size
        if shape[-1] == self.shape[-1] and math.prod(shape[:-1]) == math.prod(self.shape[:-1]):
            return True
        # else all blocks must be whole, in both shapes: so they are the same runs of elements, in the same order
        return tiling.along is not None and shape[-1] % tiling.along == 0 == self.shape[-1] % tiling.along

    # ---- bytes ------------------------------------------------------------------------------------------------------

    def packed(self, layout: Layout = "plain") -> Packed:
        """Return the value as bytes.

        Args:
            layout: of the finest scales: "plain", rows of blocks, or "128x4", as matrix units read them.

        Raises:
            FormatError: no such layout, or scales of more than 8 bits for 128x4.
            ShapeError: the codes of a row do not fill bytes, or 128x4 for another shape than a matrix.
        """
        _require_layout(layout, self.format)
        # the axis of the blocks last, so that the codes of a block lie in neighbouring bytes
        codes = np.moveaxis(self.codes, self.axis, -1)
        finest, *outer = self.scale_codes
        return Packed(
            pack(codes, self.format.element.width_bits),
            (finest if layout == "plain" else swizzle(finest), *outer),
            self.zero,
        )

    @classmethod
    def from_packed(
        cls,
        packed: Packed | tuple[Array, tuple[Array, ...]] | tuple[Array, tuple[Array, ...], Array | None],
        fmt: Scaled,
        axis: int = -1,
        layout: Layout = "plain",
    ) -> ScaledValue:
        """Return the value that bytes stand for: those that `packed` returned, or those of a checkpoint.

        Args:
            packed: bytes of the elements, with the axis of the blocks last; codes of the scales of each level; and
                zero points, if the format has them.
            fmt: the scaled format.
            axis: along which blocks lie in the value.
            layout: of the finest scales.

        Raises:
            FormatError: `fmt` is no scaled format, no such layout, something else than bytes, or a code that the format
                lacks.
            ShapeError: no such axis, bytes are left over, or scales do not fit the elements.
        """
        if not isinstance(fmt, Scaled):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FormatError(f"`fmt` must be a scaled format, got {fmt!r}; write emu.parse('mxfp8_e4m3')")
        _require_layout(layout, fmt)
        codes = unpack(_as_bytes(packed[0]), fmt.element.width_bits)
        axis = axis_of(axis, codes.shape, fmt)
        codes = np.moveaxis(codes, -1, axis)
        _require_levels(fmt, len(packed[1]))
        finest, *outer = (np.asarray(part) for part in packed[1])
        if layout == "128x4":
            counts = Tiles(fmt.tiling, codes.shape, axis).counts
            if len(counts) != 2:
                raise ShapeError(f"the layout 128x4 must be that of a matrix, got elements of shape {codes.shape}")
            finest = unswizzle(finest.reshape(-1), counts)
        levels = zip(fmt.levels, [finest, *outer], strict=True)
        scales = tuple(level.scale.decode(codes_of_scales) for level, codes_of_scales in levels)
        # a pair, without zero points, is read too
        zero = None if len(packed) < 3 else packed[2]
        zero = None if zero is None else as_zero_points(fmt, zero)
        return cls.of(fmt.element.decode(codes.astype(fmt.element.code_dtype)), scales, fmt, axis, zero)

    def __repr__(self) -> str:
        shown = np.array2string(np.asarray(self), separator=", ", threshold=20, prefix="ScaledValue(")
        return f"ScaledValue({shown}, {str(self.format)!r}, axis={self.axis})"


def _fractions(x: Array) -> Array:
    numbers = [Fraction(e) if math.isfinite(e) else Fraction(0) for e in x.ravel().tolist()]
    exact = np.empty(len(numbers), object)
    exact[:] = numbers
    return exact.reshape(x.shape)


def _as_bytes(packed: Any) -> NDArray[np.uint8]:
    """Return the bytes of packed elements.

    Raises:
        FormatError: something else than integers in 0..255.
        ShapeError: a single number.
    """
    array = np.asarray(packed)
    if array.dtype != np.uint8:
        array = as_integers(array, "packed")
        beyond = array[(array < 0) | (array > 255)]
        if beyond.size:
            raise FormatError(
                f"elements of `packed` must be bytes, 0..255, got {shown(beyond.flat[0])}; give those that `packed()` "
                "returned"
            )
    if not array.ndim:
        raise ShapeError("elements of `packed` must have an axis, got a single number; give what `packed()` returned")
    return array.astype(np.uint8, copy=False)


def _require_levels(fmt: Scaled, given: int) -> None:
    if given != len(fmt.levels):
        raise ShapeError(f"a value of {fmt} must have {len(fmt.levels)} arrays of scales, got {given}")


def _require_layout(layout: str, fmt: Scaled) -> None:
    if layout not in LAYOUTS:
        raise FormatError(f"`layout` must be plain or 128x4, got {layout!r}; leave it out for plain")
    if layout == "128x4" and fmt.levels[0].scale.width_bits > 8:
        raise FormatError(
            f"scales in the layout 128x4 must have at most 8 bits, got {fmt.levels[0].scale}; leave `layout` out"
        )


def _blocks_of(tiling: Tiling, bounds: list[tuple[int, int]], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return which scales serve the elements between bounds, given for each axis, that of the blocks last.

    Raises:
        FormatError: a bound cuts a block.
    """
    if tiling.along is None and tiling.across is None:
        return (slice(None),) * len(bounds)
    # an array of one axis has no axis across
    extents: list[int | None] = [1] * (len(bounds) - 2) + [tiling.across or 1, tiling.along][-len(bounds) :]
    if tiling.is_channel:
        extents[1:] = [None] * (len(bounds) - 1)
    chosen: list[slice] = []
    for (start, stop), extent, size in zip(bounds, extents, shape, strict=True):
        if extent is None:  # a scale for the whole row serves each part of it
            chosen.append(slice(None))
            continue
        # a short block is allowed where the array ends, nowhere else
        if start % extent or (stop % extent and stop != size):
            raise FormatError(
                f"a part of a scaled value must hold whole blocks of {tiling}, got {start}:{stop} of {size}; select "
                f"from np.asarray(value), or at multiples of {extent}"
            )
        chosen.append(slice(start // extent, -(-stop // extent)))
    return tuple(chosen)
