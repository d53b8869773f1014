"""Integers that stand for numbers: (q - zero) * scale, for a whole tensor or for each index of an axis.

Source: ONNX, operators QuantizeLinear and DequantizeLinear; docs/concepts/requantise.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.errors import FormatError
from emu.formats import Fixed, Format, parse_number

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Affine(Drawn):
    """How the elements of a tensor stand for numbers.

    Attributes:
        format: of the elements: integers, or floats.
        scale: float32, () for the tensor or (count,) for each index of an axis.
        zero: the elements that stand for 0, int64, in the shape of the scale.
        axis: the axis, counted from the front, along which scales differ; None is a scale for the tensor.

    Raises:
        FormatError: fixed-point elements that are no integers of two's complement, a scale that is not above 0, or a
            zero point that is no element.

    Examples:
        >>> import numpy as np
        >>> points = Affine.of("ufix8f0", 0.5, 128)
        >>> points.numbers(np.array([128, 130])).tolist()
        [0.0, 1.0]
    """

    format: Format
    scale: NDArray[np.float32]
    zero: NDArray[np.int64]
    axis: int | None = None

    @classmethod
    def of(cls, fmt: str | Format, scale: Any, zero: Any = 0, axis: int | None = None) -> Affine:
        """Return the description of a tensor; a zero point serves every scale."""
        scales = np.asarray(scale, np.float32)
        # a single scale serves every index, so that its axis means nothing
        if scales.size == 1:
            scales, axis = scales.reshape(()), None
        # () or (count,): a single zero point is repeated for every scale
        points = np.broadcast_to(np.asarray(zero, np.int64).reshape(-1 if np.size(zero) > 1 else ()), scales.shape)
        return cls(parse_number(fmt), scales, points, axis)

    def __post_init__(self) -> None:
        fmt = self.format
        if isinstance(fmt, Fixed) and (fmt.frac_bits or fmt.sign_magnitude):
            raise FormatError(
                f"elements with a zero point must be integers, got the format {fmt}; name ufix8f0 or fix8f0"
            )
        # NaN fails the comparison, so that it is refused too
        if not (np.isfinite(self.scale) & (self.scale > 0)).all():
            wrong = self.scale[~(np.isfinite(self.scale) & (self.scale > 0))]
            raise FormatError(f"scales must be positive and finite, got {wrong.flat[0]}; give those of calibration")
        if (
            isinstance(fmt, Fixed)
            and self.zero.size
            and not fmt.min <= int(self.zero.min()) <= int(self.zero.max()) <= fmt.max
        ):
            raise FormatError(
                f"zero points must be elements of {fmt}, {fmt.min:g}..{fmt.max:g}, got "
                f"{int(self.zero.min())}..{int(self.zero.max())}; choose some of them"
            )

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers; else they are floats."""
        return isinstance(self.format, Fixed)

    @property
    def is_whole(self) -> bool:
        """Whether one scale serves the tensor."""
        return self.scale.ndim == 0

    def equals(self, other: Affine) -> bool:
        """Return whether the same elements stand for the same numbers."""
        # by values: dataclasses would compare the arrays element by element, hence `eq=False`
        mine, theirs = (self.scale, self.zero), (other.scale, other.zero)
        same = all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
        return same and self.format == other.format and self.axis == other.axis

    def beside(self, ndim: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scales and zero points in a shape that broadcasts to a tensor of so many axes."""
        if self.axis is None:
            return self.scale, self.zero
        shape = [1] * ndim
        # (count,) along `axis`, 1 along all others
        shape[self.axis] = self.scale.size
        return self.scale.reshape(shape), self.zero.reshape(shape)

    def numbers(self, elements: Array) -> NDArray[np.float32]:
        """Return what elements stand for, each difference and product rounded to float32."""
        scale, zero = self.beside(elements.ndim)
        if not self.is_integer:
            return elements.astype(np.float32) * scale
        # the difference is exact in int64; it is rounded to float32, and so is the product
        return (elements.astype(np.int64) - zero).astype(np.float32) * scale
