"""What a unit does that writes a scaled format: results in binary32 become blocks, or integer sums are requantised.

    operation ──► binary32, register observes ──► scales of blocks ──► elements                    mxfp8_e4m3, axis=-1
    integer sums ──► register observes ──► requantiser ──► elements with a given scale               uint8_affine

Source: docs/concepts/scaled.md, "A unit"; docs/concepts/requantise.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Flags, Mac, Requantiser
from emu.engine.description import UnitDescription
from emu.engine.integer_products import (
    IntegerProduct,
    as_bias,
    integer_matrices,
    integer_sums,
    require_integers,
    stacks_of_blocks,
)
from emu.engine.products import write_product
from emu.engine.requantise import INT32, multipliers_of, require_elements, write_requantised
from emu.engine.scaled import observe, write_scaled
from emu.engine.scaled_products import BINARY32, FLOAT32, integer_patches
from emu.engine.sliding import Sliding
from emu.errors import FormatError, ShapeError
from emu.formats import Fixed, Format, Scaled, ScaledValue
from emu.formats.integers import as_integer
from emu.formats.tiles import Tiles

Array = NDArray[Any]
#: The accumulator of a unit that requantises, unless its Mac says another.
WRAPPING = Mac(accumulator="fix32f0", overflow="wrap")


@dataclass(frozen=True)
class ScaledOutput:
    """The scaled format that a unit writes.

    Attributes:
        format: the scaled format.
        axis: along which blocks lie in every result.
        requantiser: makes elements of integer sums; None of units that choose scales for each result.

    Raises:
        FormatError: a requantiser that cannot write the format.
    """

    format: Scaled
    axis: int = -1
    requantiser: Requantiser | None = None

    def __post_init__(self) -> None:
        by, fmt = self.requantiser, self.format
        if by is None:
            return
        element = fmt.element
        if not isinstance(element, Fixed) or element.frac_bits or fmt.tiling.across is not None:
            raise FormatError(
                f"a unit that requantises must write integers with a scale for the tensor, got {fmt}; name "
                "uint8_affine, int8_affine or int8_tensor"
            )
        if not fmt.has_zero and by.zero:
            raise FormatError(f"`zero` must be 0 for {fmt}, which has no zero points, got {by.zero}; name int8_affine")
        require_elements(by, element)

    def of_operations(self, unit: UnitDescription) -> UnitDescription:
        """Return the unit that computes results, which are then written as blocks."""
        # flags of binary32 results are counted apart: of these `Unit._keep_events` keeps those that blocks do not show
        events = None if unit.flags is None else Flags()
        return unit.writing(BINARY32, events)._replace(register=unit.register)

    def written(self, unit: UnitDescription, array: Any, source: Format | None = FLOAT32) -> ScaledValue:
        """Return results as a value of the format."""
        by = self.requantiser
        if by is None:
            return write_scaled(unit, self.format, array, source, self.axis)
        given = by.scale, by.zero if self.format.has_zero else None
        return write_scaled(unit, self.format, array, source, self.axis, given=given)

    def refuse(self, operation: str) -> None:
        """Raise FormatError if the unit requantises: it has no scale for the results of other operations."""
        if self.requantiser is not None:
            raise FormatError(
                f"a unit that requantises must multiply matrices, convolve or quantize, got {operation}; use a unit of "
                "another format"
            )

    def matmul(self, unit: UnitDescription, a: Any, b: Any, bias: tuple[Array | None, Format | None]) -> ScaledValue:
        """Return a product of matrices of integers, requantised; shapes as in numpy.matmul.

        Raises:
            FormatError: an operand without integers and scales, or a bias that is no integer.
            ShapeError: the shapes do not fit together.
        """
        product = integer_product(a, b, bias)
        scales = stacks_of_blocks(a, b, [a.scales[0], b.scales[0]])
        return self._requantised(unit, product, scales)

    def conv2d(
        self,
        unit: UnitDescription,
        x: Any,
        w: Any,
        bias: tuple[Array | None, Format | None],
        slide: Sliding,
    ) -> ScaledValue:
        """Return a convolution of integers, requantised; images are padded by their zero point.

        Raises:
            FormatError: an operand without integers and scales, or a bias that is no integer.
            ShapeError: the shapes do not fit together.
        """
        product = integer_patches(x, w, bias, slide)
        # kernels are the left operand: (1, O, 1) or (N * groups, O / groups, 1), as their zero points lie
        scales = [slide.per_channel(np.asarray(w.scales[0]), x.shape[0]), np.asarray(x.scales[0]).reshape(1, 1, 1)]
        return self._requantised(unit, product, scales)

    def _requantised(self, unit: UnitDescription, product: IntegerProduct, scales: list[Any]) -> ScaledValue:
        assert self.requantiser is not None
        assert isinstance(self.format.element, Fixed)
        # scales are looked at before anything is counted
        if not all(np.isfinite(part).all() for part in scales):
            raise FormatError(
                "operands whose sums are requantised must have finite scales, got NaN: there was a NaN or an infinity "
                "in what was quantized; replace it first"
            )
        made = multipliers_of(self.requantiser, *scales)
        sums, accumulator = integer_sums(unit, product, write_product)
        # sums of an accumulator of at most 32 bits need no look
        is_wide = accumulator.width_bits > INT32.bits
        if is_wide and (beyond := sums[(sums < INT32.min) | (sums > INT32.max)]).size:
            raise FormatError(
                f"sums that are requantised must have 32 bits, got {beyond.flat[0]} from the accumulator "
                f"{accumulator}; write emu.Mac(accumulator='fix32f0', overflow='wrap')"
            )
        # the sums as the accumulator has them, before zero point and multiplier
        if unit.register is not None:
            observe(unit, sums, accumulator)
        # (B, M, N), to which scales of rows (B, M, 1) and of columns (B, 1, N) broadcast
        stacked = sums.reshape(product.sizes)
        elements = write_requantised(self.requantiser, self.format.element, stacked, made, unit.flags)
        return self._with_scale(elements.reshape(product.shape))

    def _with_scale(self, elements: Array) -> ScaledValue:
        assert self.requantiser is not None
        if elements.ndim == 0:
            raise ShapeError(
                "a product that is requantised must have an axis, got two vectors; give one of them as a matrix"
            )
        counts = Tiles(self.format.tiling, elements.shape, -1).counts
        scale = np.full(counts, self.requantiser.scale, np.float32)
        zero = np.full(counts, self.requantiser.zero, np.int32) if self.format.has_zero else None
        return ScaledValue.of(elements, (scale,), self.format, -1, zero)


def integer_product(a: Any, b: Any, bias: tuple[Array | None, Format | None]) -> IntegerProduct:
    """Return the product of matrices whose sums are requantised.

    Raises:
        FormatError: an operand without integers and scales, or a bias that is no integer.
        ShapeError: the shapes do not fit together.
    """
    return integer_matrices(require_integers("a", a), require_integers("b", b), as_bias(*bias))


def scaled_output(
    fmt: Scaled, axis: int | None, requantise: str | Requantiser | None, scale: Any, zero: Any
) -> ScaledOutput:
    """Return the output that the options of a unit describe.

    Raises:
        FormatError: options that do not belong together.
    """
    if requantise is None:
        if scale is not None or zero is not None:
            raise FormatError(
                "`scale` and `zero` of a unit must be given with `requantise`, got them alone; name a requantiser, as "
                "float32"
            )
        return ScaledOutput(fmt, -1 if axis is None else as_integer("axis", axis))
    if axis is not None:
        raise FormatError(f"`axis` must be left out where sums are requantised, got {axis}: a tensor has one scale")
    if isinstance(requantise, Requantiser):
        # a zero point of 0 is given, too: None alone leaves the requantiser's own
        changed = {name: given for name, given in (("scale", scale), ("zero", zero)) if given is not None}
        return ScaledOutput(fmt, -1, replace(requantise, **changed))
    if scale is None:
        raise FormatError(
            f"`scale` must be given with `requantise`, got none for {requantise}; give that of calibration"
        )
    return ScaledOutput(fmt, -1, Requantiser(requantise, scale, 0 if zero is None else zero))
