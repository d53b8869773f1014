"""Sums of products of integers with zero points: (qa - za) * (qb - zb), in an accumulator of a stated width.

An accumulator that wraps, or that is exact, gives the same sum in any order. Then the elements are multiplied as they
are, and the zero points enter by the sums of rows and columns:

    sum (qa - za)(qb - zb)  =  sum qa qb  -  zb * sum qa  -  za * sum qb  +  K za zb        modulo 2**width

So a product with zero points takes the time of one without. Kernels multiply bytes with a sign: unsigned elements of 8
bits, and their zero points with them, are moved down by 128 first, which changes no difference.

Other accumulators saturate or round at each add: there the zero points are subtracted from the elements first. Where
the order promotes sums of runs, as kernels do that add pairs in 16 bits, the runs are of the elements as they are, and
the zero points enter the outer accumulator.

Source: docs/concepts/scaled.md, "A product"; B. Jacob et al., 2018, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.backends.gathered import Gathered
from emu.backends.memory import empty
from emu.datapath import Flags, Mac, OutputStage, Overflow
from emu.datapath.order import Promote
from emu.engine.description import UnitDescription
from emu.engine.matrices import Matrices
from emu.errors import FormatError
from emu.formats import PRESETS, Fixed, Format, ScaledValue

Array = NDArray[Any]
Integers = NDArray[np.int64]
Multiply = Callable[[UnitDescription, Matrices], Array]
#: Bits of the elements that the fastest kernels multiply.
BYTE = 8
#: Digits of binary32: it holds every integer up to 2**24.
BINARY32_DIGITS = PRESETS["fp32"].significand_bits


class Side(NamedTuple):
    """One operand.

    Attributes:
        elements: stacks of matrices, (B or 1, M, K) or (B or 1, K, N).
        format: of the elements.
        zero: zero points that broadcast to the elements, 1 along k; None without.
    """

    elements: Array | Gathered
    format: Fixed
    zero: Integers | None

    @property
    def points(self) -> Integers | None:
        """The zero points, if any of them is not 0."""
        return self.zero if self.zero is not None and self.zero.any() else None

    def less_zero(self) -> tuple[Array | Gathered, Fixed]:
        """Return the elements less their zero points, and a format that holds them."""
        points = self.points
        if points is None:
            return self.elements, self.format
        wide = Fixed(self.format.width_bits + 1, 0)  # both are codes of n bits: the difference has a sign beside them
        elements = self.elements.array() if isinstance(self.elements, Gathered) else self.elements
        return np.ascontiguousarray(elements - points.astype(elements.dtype)), wide

    def with_signs(self) -> Side:
        """Return the same numbers as differences of elements with a sign, if they have none and at most 8 bits."""
        fmt = self.format
        if fmt.signed or fmt.width_bits > BYTE:
            return self
        # (qa - h) - (za - h) = qa - za: differences stay, and codes 0..2**n - 1 become -2**(n-1)..2**(n-1) - 1
        half = 1 << (fmt.width_bits - 1)
        x = self.elements
        down: Array | Gathered = replace(x, data=_less(x.data, half)) if isinstance(x, Gathered) else _less(x, half)
        # an operand without zero points gets them: its codes have moved, so 0 lies at -half
        zero = np.zeros((1, 1, 1), np.int64) if self.zero is None else self.zero
        return Side(down, Fixed(fmt.width_bits, 0), zero - half)


class IntegerProduct(NamedTuple):
    """What a product of integers multiplies and adds.

    Attributes:
        left: (B or 1, M, K).
        right: (B or 1, K, N).
        bias: integers, (B or 1, M or 1, N or 1), with which the accumulator begins; None without.
        shape: of the result.
    """

    left: Side
    right: Side
    bias: Integers | None
    shape: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Matrices, rows and columns of the result."""
        left, right = self.left.elements.shape, self.right.elements.shape
        return right[0] if left[0] == 1 else left[0], left[1], right[2]


def require_integers(name: str, x: Any) -> ScaledValue:
    """Return an operand whose elements are integers with one scale along k.

    Raises:
        FormatError: it is none.
    """
    if not isinstance(x, ScaledValue) or not isinstance(x.format.element, Fixed) or x.format.element.frac_bits:
        shown = x.format if isinstance(x, ScaledValue) else "an array without scales"
        raise FormatError(
            f"`{name}` must be integers with scales, as those of the other operand or of the result, got {shown}; "
            "quantize it into uint8_affine or int8_channel"
        )
    if x.format.tiling.along is not None:
        raise FormatError(
            f"scales of `{name}` must be those of rows, channels or the tensor in a product of integers, got "
            f"{x.format}; quantize it with a scale for all that lies along k"
        )
    return x


def as_bias(array: Any, fmt: Format | None) -> Integers | None:
    """Return integers that an accumulator begins with.

    Raises:
        FormatError: other numbers.
    """
    if array is None:
        return None
    integers, wrong = exact_integers(np.asarray(on_host(array)), fmt, 64)
    if wrong:
        raise FormatError(
            f"a bias must be integers where operands have zero points or sums are requantised, got {wrong}; divide it "
            "by the product of both scales, and round it"
        )
    return integers


def exact_integers(carriers: Array, fmt: Format | None, width_bits: int) -> tuple[Integers, str]:
    """Return numbers as int64, and the text of the first that is no integer of a width; "" if all of them are.

    Args:
        carriers: of the format.
        fmt: None of plain numbers.
        width_bits: of integers with a sign, at most 64.
    """
    end = 1 << (width_bits - 1)
    frac_bits = fmt.frac_bits if isinstance(fmt, Fixed) and fmt.carries_raws else 0
    if carriers.dtype.kind == "f":
        # asked before the cast: NaN and floats beyond int64 have none
        is_inside = (carriers >= -end) & (carriers < end)
        integers = np.where(is_inside, carriers, 0).astype(np.int64)
        wrong = ~is_inside | (integers != carriers)
    else:
        # a raw stands for raw * 2**-frac_bits, which a float would round; of raws but 0, shifts by 64 leave nothing
        by = min(abs(frac_bits), 63)
        numbers = carriers >> by if frac_bits > 0 else carriers << by
        back = numbers << by if frac_bits > 0 else numbers >> by
        wrong = (back != carriers) | ((carriers != 0) & (abs(frac_bits) > 63))
        wrong |= (numbers < -end) | (numbers >= end)
        integers = numbers.astype(np.int64)
    if not wrong.any():
        return integers, ""
    first = carriers[wrong].flat[0]
    return integers, str(first if carriers.dtype.kind == "f" else Fraction(int(first)) / Fraction(2) ** frac_bits)


def is_modular(mac: Mac) -> bool:
    """Return whether a unit's sum is the exact one, modulo a power of two, in whatever order it adds."""
    accumulator = mac.accumulator
    if mac.product != "exact" or isinstance(mac.order, Promote) or mac.rounding.moves_exact:
        return False
    if accumulator == "exact":
        return True
    return isinstance(accumulator, Fixed) and mac.overflow is Overflow.WRAP


def integer_sums(unit: UnitDescription, product: IntegerProduct, multiply: Multiply) -> tuple[Integers, Fixed]:
    """Return sums of products, bias included, and the format of the accumulator.

    Args:
        unit: who computes; its Mac says where sums are kept.
        product: what is multiplied and added.
        multiply: `write_product`.

    Returns:
        int64, `product.shape`.

    Raises:
        FormatError: an accumulator that holds no integers.
    """
    accumulator, is_wrapping = _accumulator(unit.mac), is_modular(unit.mac)
    if is_wrapping:
        # moved once, for the products and for what zero points add
        product = product._replace(left=product.left.with_signs(), right=product.right.with_signs())
    by, matrices = matrices_of_integers(unit, product)
    # counted apart: of these events the accumulator's overflow alone is kept, since no element has been written yet
    events = None if unit.flags is None or is_wrapping else Flags()
    written = np.asarray(multiply(by._replace(flags=events), matrices))
    if unit.flags is not None and events is not None:
        unit.flags.add(Flags(accumulator_overflow=events.accumulator_overflow).counts())
    return _wrapped_sums(product, written, accumulator) if is_wrapping else written.astype(np.int64), accumulator


def matrices_of_integers(unit: UnitDescription, product: IntegerProduct) -> tuple[UnitDescription, Matrices]:
    """Return the product of matrices that gives sums of integers, and who computes it.

    Where sums wrap, zero points and bias are not part of it: they are added to what it writes.

    Args:
        unit: its Mac says where sums are kept.
        product: what is multiplied and added.

    Raises:
        FormatError: an accumulator that holds no integers.
    """
    mac = unit.mac
    # the stage has the accumulator's own format: it writes the sum without changing it
    by = unit.writing(OutputStage(_accumulator(mac), overflow=Overflow.WRAP))
    left, right, bias, shape = product
    if is_modular(mac):
        left, right = left.with_signs(), right.with_signs()  # a second time they stay as they are
        # an exact Mac whose stage wraps: sums are exact in any order, so the planner may take the fastest kernel
        formats = (left.format, right.format, None)
        return by._replace(mac=Mac()), Matrices(left.elements, right.elements, None, formats, shape)
    formats = (left.format, right.format, None)
    # the inner accumulator sums the elements as they are, so what the zero points add waits in the outer one
    if isinstance(mac.order, Promote):
        start = _correction(left, right) + (0 if bias is None else bias)
        x, y = left.elements, right.elements
    else:
        (x, fx), (y, fy) = left.less_zero(), right.less_zero()
        formats, start = (fx, fy, None), bias
    addend = None
    if start is not None:
        # the narrowest format with a sign that holds every number the accumulator begins with: the tighter it is, the
        # tighter the planner's bound
        start = np.asarray(start, np.int64)
        # Python's integers: int64 has no magnitude of -2**63
        largest = max(int(start.max(initial=0)), -int(start.min(initial=0)))
        wide = Fixed(min(max(largest.bit_length() + 1, 2), 64), 0)
        formats, addend = (*formats[:2], wide), start.astype(wide.carrier)
        # (B or 1, M or 1, N or 1), as kernels take an addend
        addend = addend.reshape((1,) * (3 - addend.ndim) + addend.shape)
    return by, Matrices(x, y, addend, formats, shape)


def carriers_of_sums(sums: Integers, accumulator: Fixed) -> tuple[Array, Fixed]:
    """Return sums as carriers of a format that an operation reads: binary64 where it holds the accumulator's integers.

    Raws of 64 bits have no vector code.
    """
    fmt = Fixed(64, 0) if accumulator.carries_raws else accumulator
    return sums.astype(fmt.carrier), fmt


def _accumulator(mac: Mac) -> Fixed:
    if mac.accumulator == "exact":
        return Fixed(64, 0)
    if not isinstance(mac.accumulator, Fixed) or mac.accumulator.frac_bits or not mac.accumulator.signed:
        raise FormatError(
            "`accumulator` must hold integers with a sign where operands have zero points or sums are requantised, "
            f"got {mac.accumulator}; write emu.Mac(accumulator='fix32f0', overflow='wrap')"
        )
    return mac.accumulator


def _wrapped_sums(product: IntegerProduct, written: Array, accumulator: Fixed) -> Integers:
    """Return sums of elements with what zero points and bias add to them, modulo the accumulator."""
    sums = empty(product.sizes, np.int64)
    # carriers are integers in float32, float64 or int64; the cast is exact for each of them
    np.copyto(sums, written.reshape(product.sizes), casting="unsafe")
    correction = _correction(product.left, product.right)
    sums += correction if product.bias is None else correction + product.bias
    # shifted to the top and back, an integer keeps its low `width_bits` bits, extended by their sign
    unused = 64 - accumulator.width_bits
    sums <<= unused  # int64 wraps as the accumulator does
    sums >>= unused
    return sums.reshape(product.shape)


def _correction(left: Side, right: Side) -> Integers:
    """Return what zero points add to sums of elements, (B or 1, M or 1, N or 1); modulo 2**64."""
    total: Integers = np.zeros((1, 1, 1), np.int64)
    depth = left.elements.shape[-1]
    # (B or 1, M or 1, 1) and (B or 1, 1, N or 1): the products below broadcast to (B or 1, M or 1, N or 1)
    za, zb = left.points, right.points
    if zb is not None:
        total = total - zb * _sums_along(left, -1)
    if za is not None:
        total = total - za * _sums_along(right, -2)
    return total if za is None or zb is None else total + depth * (za * zb)


def _sums_along(side: Side, axis: int) -> Integers:
    elements = side.elements
    array = elements.array() if isinstance(elements, Gathered) else np.asarray(elements)
    # integers up to 2**24 are exact in binary32; elements, numbers of binary32 themselves, are at most 2**24, so 2**29
    # of them are exact in binary64
    is_short = array.shape[axis] << side.format.width_bits <= 1 << BINARY32_DIGITS
    return array.sum(axis=axis, keepdims=True, dtype=np.float32 if is_short else np.float64).astype(np.int64)


def _less(x: Array, half: int) -> Array:
    return np.subtract(x, half, out=empty(x.shape, x.dtype))


def integer_matrices(a: ScaledValue, b: ScaledValue, bias: Array | None) -> IntegerProduct:
    """Return a product of matrices of integers with zero points.

    Args:
        a: (*batch, M, K), blocks along K.
        b: (*batch, K, N), blocks along K.
        bias: integers that broadcast to the result, or None.

    Raises:
        ShapeError: the shapes do not fit together.
    """
    fa, fb = format_of_integers(a), format_of_integers(b)
    matrices = Matrices.of(np.asarray(a.array), np.asarray(b.array), (fa, fb, None), bias)
    left, right = stacks_of_blocks(a, b, [x.zero for x in (a, b)])
    third = None if matrices.addend is None else np.asarray(matrices.addend).astype(np.int64)
    sides = Side(matrices.left, fa, left), Side(matrices.right, fb, right)
    return IntegerProduct(*sides, third, matrices.shape)


def format_of_integers(x: ScaledValue) -> Fixed:
    """Return the format of elements that are known to be integers."""
    assert isinstance(x.format.element, Fixed)
    return x.format.element


def stacks_of_blocks(a: ScaledValue, b: ScaledValue, parts: list[Array | None]) -> list[Array | None]:
    """Return numbers of rows of `a` and of columns of `b`, as stacks of matrices: (B, M or 1, 1), (B, 1, N or 1).

    Args:
        a: (*batch, M, K).
        b: (*batch, K, N).
        parts: of `a` and of `b`, in the shape of their finest scales; None stays None.
    """
    whole: list[Array] = []
    for x, part in zip((a, b), parts, strict=True):
        # scales have the axis of k last, whichever axis it is of the value; here it returns to its place, with size 1
        moved = np.moveaxis(np.zeros(x.scales[0].shape) if part is None else np.asarray(part), -1, x.axis)
        whole.append(np.broadcast_to(moved, (*x.shape[:-2], *moved.shape[-2:])) if x.ndim > 2 else moved)
    # the formats stand in for none: only shapes are of interest here
    stacks = Matrices.of(whole[0], whole[1], (Fixed(32, 0), Fixed(32, 0), None))
    arrays = np.asarray(stacks.left), np.asarray(stacks.right)
    return [None if part is None else array for part, array in zip(parts, arrays, strict=True)]
