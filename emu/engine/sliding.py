"""How windows slide over images: what a convolution multiplies, and what pooling chooses from.

    ── padding ──┬───────── image ─────────┬── padding ──        the first window begins with the padding
    [x . x . x]        a window of 3 elements, `dilation` 2 apart: its extent is 5
          [x . x . x]  the next one, `stride` further

Convolutions read the patches under the windows in groups of channels: kernels of a group meet its channels alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous, lasting, namespace
from emu.backends.gathered import Gathered
from emu.engine.matrices import Formats, Matrices
from emu.errors import ShapeError
from emu.formats import Format
from emu.formats.integers import LARGEST, as_integer, as_pair

Array = NDArray[Any]
Pair = tuple[int, int]
#: Elements around images, for rows and columns; or above and below, then left and right.
Padding: TypeAlias = Pair | tuple[Pair, Pair]


class Slides(TypedDict, total=False):
    """How windows slide, as callers of a convolution say it; see `Sliding.of`."""

    stride: Pair
    padding: Padding
    dilation: Pair
    groups: int


SLIDES = frozenset(Slides.__annotations__)


class Sliding(NamedTuple):
    """How windows slide: each pair has a number for rows and one for columns.

    Attributes:
        stride: steps down and right.
        padding: elements above and below, left and right.
        dilation: distance of the elements of a window.
        groups: how many parts the channels are divided into.
    """

    stride: Pair = (1, 1)
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0))
    dilation: Pair = (1, 1)
    groups: int = 1

    @classmethod
    def of(cls, stride: Any = (1, 1), padding: Any = (0, 0), dilation: Any = (1, 1), groups: Any = 1) -> Sliding:
        """Return how windows slide, as a caller describes it.

        Args:
            stride: two integers.
            padding: two integers, or two pairs of them: above and below, left and right.
            dilation: two integers.
            groups: an integer.

        Raises:
            ShapeError: one is no such integer, or too small.
        """
        return cls(
            as_pair("stride", stride, 1),
            as_padding(padding),
            as_pair("dilation", dilation, 1),
            as_integer("groups", groups, 1, LARGEST, error=ShapeError),
        )

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> Sliding:
        """Return how windows slide, from options of a convolution among which are others."""
        return cls.of(**{name: options[name] for name in SLIDES if name in options})

    def extent(self, kernel: Pair) -> Pair:
        """Return how many rows and columns a window spans."""
        return (kernel[0] - 1) * self.dilation[0] + 1, (kernel[1] - 1) * self.dilation[1] + 1

    def sizes(self, image: Pair, kernel: Pair) -> Pair:
        """Return how many windows lie below and beside each other; below 1 if not one fits.

        Args:
            image: rows and columns.
            kernel: elements of a window, down and right.
        """
        # floor division rounds down below 0 as well: a window that does not fit gives 0 or less
        rows, columns = (
            (size + sum(pads) - extent) // step + 1
            for size, pads, extent, step in zip(image, self.padding, self.extent(kernel), self.stride, strict=True)
        )
        return rows, columns

    def require(self, shape: tuple[int, ...], kernel: Pair, name: str) -> None:
        """Raise ShapeError unless windows lie in images of a shape."""
        if len(shape) != 4:
            raise ShapeError(f"`x` must be images (N, C, H, W), got shape {shape}; give axes of size 1")
        if min(self.sizes((shape[2], shape[3]), kernel)) < 1:
            raise ShapeError(
                f"`{name}` must fit the padded image, got {kernel[0]} x {kernel[1]}{self._apart()} for x {shape}, "
                f"padding {shown_padding(self.padding)}; choose a smaller one"
            )

    def _apart(self) -> str:
        return "" if self.dilation == (1, 1) else f" of dilation {self.dilation}"

    def padded(self, x: Array, border: float = 0) -> Array:
        """Return images with their border, which is stored, so that each window is read by the same offsets."""
        (above, below), (left, right) = self.padding
        if not above + below + left + right:
            return x
        n, channels, height, width = x.shape
        images = namespace(x).zeros((n, channels, above + height + below, left + width + right), x.dtype)
        # a border of 0 is there already
        if border:
            images[:] = border
        images[:, :, above : above + height, left : left + width] = x
        return images

    def patches(self, x: Array, kernel: Pair, border: float = 0) -> Gathered:
        """Return what a convolution reads: (N * groups, C / groups * kernel rows * kernel columns, OH * OW)."""
        images = contiguous(self.padded(x, border))
        n, channels, height, width = images.shape
        # one group's channels: the offsets of a patch stay within them
        image = (channels // self.groups, height, width)
        rows, columns = _offsets(image, kernel, self.stride, self.dilation)
        # (n, group) is one index: groups of an image follow each other in memory, `image` elements apart
        return Gathered(images.reshape(-1), n * self.groups, math.prod(image), rows, columns)

    def joined_patches(self, x: Array, kernel: Pair) -> Gathered:
        """Return what the gradient of kernels reads: (groups, N * OH * OW, C / groups * kernel rows * columns)."""
        images = contiguous(self.padded(x))
        n, channels, height, width = images.shape
        image = (channels // self.groups, height, width)
        rows, columns = _offsets(image, kernel, self.stride, self.dilation)
        # offsets of the first group: all images side by side along k, then transposed
        whole = Gathered(images.reshape(-1), n, channels * height * width, rows, columns).joined().transposed()
        # each group begins its own channels further on, in every image alike
        return Gathered(whole.data, self.groups, math.prod(image), whole.rows, whole.columns)

    def windows(self, x: Array, window: Pair, border: float = 0) -> Gathered:
        """Return what pooling reads: (N * C, OH * OW, window rows * window columns)."""
        images = contiguous(self.padded(x, border))
        n, channels, height, width = images.shape
        elements, positions = _offsets((1, height, width), window, self.stride, self.dilation)
        return Gathered(images.reshape(-1), n * channels, height * width, positions, elements)

    def per_channel(self, array: Array, images: int) -> Array:
        """Return a number for each output channel as products have it: (1, O, 1), or (N * groups, O / groups, 1).

        Args:
            array: one number for each output channel in any shape, or one for all.
            images: how many images there are, N.
        """
        # kernels broadcast an axis of size 1: nothing is repeated without groups
        if self.groups == 1 or array.size == 1:
            return array.reshape(1, -1, 1)
        # (N, groups, O / groups, 1), then image and group as one axis, as `patches` numbers them
        grouped = array.reshape(1, self.groups, -1, 1)
        whole = namespace(array).broadcast_to(grouped, (images, *grouped.shape[1:]))
        # sizes in full: without images or channels -1 could be any number
        return whole.reshape(images * self.groups, array.size // self.groups, 1)

    def matrices(
        self,
        images: tuple[Array, Format],
        kernels: tuple[Array, Format],
        bias: tuple[Array | None, Format | None],
        border: float = 0,
    ) -> Matrices:
        """Return a convolution as a product of matrices, from carriers and their formats: kernels times patches.

        Args:
            images: (N, C, H, W).
            kernels: (O, C / groups, KH, KW).
            bias: one value for each output channel, (O,), or None.
            border: the number around the images.

        Returns:
            Matrices whose result has the shape (N, O, OH, OW).

        Raises:
            ShapeError: channels differ, or the kernel is larger than the padded image.
        """
        (x, fx), (w, fw), (third, fb) = images, kernels, bias
        sizes = _sizes_of(x.shape, w.shape, self)
        count, channels = x.shape[0], w.shape[0]
        left = w.reshape(self.groups, channels // self.groups, math.prod(w.shape[1:]))
        # each image has the kernels of every group; without groups, kernels broadcast one stack to all images, not to 0
        if self.groups > 1 or not count:
            left = namespace(w).broadcast_to(left, (count, *left.shape)).reshape(count * self.groups, *left.shape[1:])
        addend = None if third is None else self.per_channel(one_per_channel(third, channels), count)
        formats: Formats = (fw, fx, fb)
        patches = self.patches(x, (w.shape[2], w.shape[3]), border)
        return Matrices(left, patches, addend, formats, (count, channels, *sizes))


def windows_of(x: Array, window: int, stride: int) -> Gathered:
    """Return the square windows that pooling reads, as positions in the images.

    Args:
        x: images, shape `(N, C, H, W)`.
        window: rows and columns of a window.
        stride: steps down and right.

    Returns:
        Shape `(N * C, OH * OW, window * window)`.

    Raises:
        ShapeError: images of other axes, integers that are none or too small, or a window larger than the image.
    """
    window, stride = (
        as_integer(name, size, 1, LARGEST, error=ShapeError) for name, size in (("window", window), ("stride", stride))
    )
    slide = Sliding((stride, stride))
    slide.require(x.shape, (window, window), "window")
    return slide.windows(x, (window, window))


def as_padding(value: Any) -> tuple[Pair, Pair]:
    """Return what surrounds images, above and below, left and right.

    Args:
        value: two integers, for rows and columns, or two pairs.

    Raises:
        ShapeError: neither, or one is below 0.
    """
    sides = cast("Sequence[object]", value if isinstance(value, tuple | list) else ())
    if len(sides) != 2 or not any(isinstance(side, tuple | list) for side in sides):
        down, right = as_pair("padding", value, 0)
        return (down, down), (right, right)
    return as_pair("padding", sides[0], 0), as_pair("padding", sides[1], 0)


def shown_padding(padding: tuple[Pair, Pair]) -> str:
    """Return padding in the shortest form that callers can write: (1, 1), or ((0, 1), (0, 1))."""
    rows, columns = padding
    return str((rows[0], columns[0]) if rows[0] == rows[1] and columns[0] == columns[1] else padding)


@lru_cache(maxsize=256)
def _offsets(
    image: tuple[int, int, int], kernel: Pair, stride: Pair, dilation: Pair
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of the kernel's elements, and of the kernel's positions, in an image of (C, H, W)."""
    channels, height, width = image
    # of images that have their border already: padding is 0 here
    out = Sliding(stride, dilation=dilation).sizes((height, width), kernel)
    # element (c, i, j) of the kernel at position (p, q) is element (c, p * stride + i * dilation, ...) of the image:
    # the offset is a sum of both parts
    inside = np.arange(kernel[0])[:, None] * (dilation[0] * width) + np.arange(kernel[1]) * dilation[1]
    element = np.arange(channels)[:, None, None] * (height * width) + inside
    position = np.arange(out[0])[:, None] * (stride[0] * width) + np.arange(out[1]) * stride[1]
    return lasting(element.reshape(-1)), lasting(position.reshape(-1))


@lru_cache(maxsize=1024)
def _sizes_of(images: tuple[int, ...], kernels: tuple[int, ...], slide: Sliding) -> Pair:
    """Return rows and columns of a convolution's result.

    Raises:
        ShapeError: channels differ, or the kernel is larger than the padded image.
    """
    groups = slide.groups
    if len(images) != 4 or len(kernels) != 4 or images[1] != groups * kernels[1]:
        kernel = "C" if groups == 1 else f"C / {groups} groups"
        raise ShapeError(
            f"conv2d: x must be (N, C, H, W) and w (O, {kernel}, KH, KW) with the same C, got {images} and {kernels}; "
            "reshape one of them"
        )
    if kernels[0] % groups:
        raise ShapeError(
            f"conv2d: output channels must be a multiple of {groups} groups, got w {kernels}; change `groups`"
        )
    sizes = slide.sizes((images[2], images[3]), (kernels[2], kernels[3]))
    if min(sizes) < 1:
        raise ShapeError(
            f"conv2d: the kernel must fit the padded image, got x {images}, w {kernels}, padding "
            f"{shown_padding(slide.padding)}; pad more, or choose a smaller one"
        )
    return sizes


def one_per_channel(bias: Array, channels: int) -> Array:
    """Return a bias of a convolution.

    Raises:
        ShapeError: it has not one value for each output channel.
    """
    if bias.shape != (channels,):
        raise ShapeError(
            f"conv2d: the bias must have one value per output channel, shape ({channels},), got {bias.shape}; "
            "reshape it"
        )
    return bias
