"""The operands of a product that share scales: where each level of scales enters, and what kernels are given.

    in_block        elements times scales are the operands, with the exponents by which blocks align them
    at_promotion    elements are the operands; the scales of a run multiply its sum
    at_result       elements are the operands; what the outer levels store multiplies the finished sum

An exact unit takes scales that enter in_block as exact factors of each term.

Source: docs/concepts/scaled.md, "A product".
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.product import Alignment
from emu.datapath import Mac, OutputStage, Overflow
from emu.datapath.order import Blocks, Promote
from emu.engine.integer_products import (
    IntegerProduct,
    Side,
    as_bias,
    format_of_integers,
    integer_matrices,
    require_integers,
)
from emu.engine.matrices import Matrices
from emu.engine.sliding import Sliding, one_per_channel
from emu.errors import FormatError
from emu.formats import PRESETS, Float, Format, Scaled, ScaledValue

Array = NDArray[Any]
FLOAT32 = PRESETS["fp32"]
#: The stage of results that are scaled afterwards.
BINARY32 = OutputStage(FLOAT32, overflow=Overflow.IEEE)
#: Exponent field of float32: where it begins, its bits, what it has of 1.
FLOAT32_FRACTION_BITS, FLOAT32_FIELD, FLOAT32_BIAS = 23, 0xFF, 127


class ScaledProduct(NamedTuple):
    """A product of operands that share scales, as other products are computed.

    Attributes:
        matrices: what is multiplied and added.
        at_promotion: scales of both operands for each run, binary32 (B or 1, M, runs) and (B or 1, runs, N); or None.
        at_result: what multiplies the sums, binary32 that broadcasts to the result; or None.
        integers: elements with zero points, whose sums are integers, in place of the matrices; None of others.
        after: what is added to sums that were multiplied, and its format; None and None if the accumulator begins with
            it, or if there is nothing.
    """

    matrices: Matrices
    at_promotion: tuple[Array, Array] | None
    at_result: Array | None
    integers: IntegerProduct | None = None
    after: tuple[Array | None, Format | None] = (None, None)


def scaled_matrices(mac: Mac, a: Any, b: Any, addend: tuple[Array | None, Format | None]) -> ScaledProduct:
    """Return a product of operands that share scales.

    Raises:
        FormatError: an operand has no scales, blocks do not lie along k, or a level has no place in the Mac.
        ShapeError: the shapes do not fit together.
    """
    left, right = _operand("a", a, -1), _operand("b", b, -2)
    places = _places_of(mac, left.format, right.format)
    if places[0] == "at_result" and (left.format.has_zero or right.format.has_zero):
        operands = require_integers("a", left), require_integers("b", right)
        inside, after = _divided_addend(addend)
        integers = integer_matrices(*operands, as_bias(*inside))
        # matrices of the shapes alone: `integers` is what is computed
        shapes = Matrices.of(np.asarray(a.array), np.asarray(b.array), (FLOAT32, FLOAT32, None), after[0])
        return ScaledProduct(shapes, None, _at_result(left, right, 0), integers, after)
    # in_block: (element * finest scale) is the number that is multiplied; else the element as it is stored
    (x, fx), (y, fy) = (_factors(value, is_inside=places[0] == "in_block") for value in (left, right))
    array, fmt = addend
    matrices = Matrices.of(x, y, (fx, fy, fmt), array)
    after: tuple[Array | None, Format | None] = (None, None)
    if "at_result" in places:  # a sum that begins with the addend would multiply it as well
        matrices, after = matrices._replace(addend=None, formats=(fx, fy, None)), addend
    # an exact unit aligns nothing: its terms need no exponents
    if places[0] == "in_block" and isinstance(mac.order, Blocks) and not mac.is_exact:
        (top_x, point_x), (top_y, point_y) = (_exponents_of(value, mac.order) for value in (left, right))
        tops = Matrices.of(top_x, top_y, (fx, fy, None))
        points = point_x, point_y
        matrices = matrices._replace(alignment=Alignment(_as_array(tops.left), _as_array(tops.right), points))
    promoted = _promoted(mac, left, right) if places[0] == "at_promotion" else None
    # the first level that multiplies the result: all of them, or those outside the finest
    finest = 0 if places[0] == "at_result" else 1
    factor = _at_result(left, right, finest) if "at_result" in places else None
    return ScaledProduct(matrices, promoted, factor, None, after)


def _divided_addend(
    addend: tuple[Array | None, Format | None],
) -> tuple[tuple[Array | None, Format | None], tuple[Array | None, Format | None]]:
    """Return what a sum of integers begins with, and what is added to it once it is multiplied: integers, or floats."""
    nothing = (None, None)
    return (nothing, addend) if isinstance(addend[1], Float) else (addend, nothing)


def scaled_patches(
    mac: Mac,
    x: Any,
    w: Any,
    bias: tuple[Array | None, Format | None],
    slide: Sliding,
) -> ScaledProduct:
    """Return a convolution of images with kernels that share scales: of the tensor, or of output channels.

    Args:
        mac: the unit.
        x: images (N, C, H, W), a scale for all.
        w: kernels (O, C / groups, KH, KW), a scale for all, or one for each output channel.
        bias: carriers (O,) and their format, or None and None.
        slide: how the kernels slide.

    Raises:
        FormatError: an operand has no scales, or such as lie along k; or a level has no place in the Mac.
        ShapeError: the shapes do not fit together.
    """
    images, kernels = (_convolved(name, operand) for name, operand in (("x", x), ("w", w)))
    # kernels are the left operand of the product, images the right one
    places = _places_of(mac, kernels.format, images.format)
    if places[0] == "at_result" and (images.format.has_zero or kernels.format.has_zero):
        inside, after = _divided_addend(bias)
        integers = integer_patches(images, kernels, inside, slide)
        # stands for no product: `integers` is what is computed
        none = Matrices(integers.left.elements, integers.right.elements, None, (FLOAT32, FLOAT32, None), integers.shape)
        return ScaledProduct(none, None, _of_channels(images, kernels), integers, _per_channel(after, kernels))
    (a, fa), (b, fb) = (_factors(value, is_inside=places[0] == "in_block") for value in (images, kernels))
    if "at_result" not in places:
        return ScaledProduct(slide.matrices((a, fa), (b, fb), bias), None, None)
    matrices = slide.matrices((a, fa), (b, fb), (None, None))
    return ScaledProduct(matrices, None, _of_channels(images, kernels), None, _per_channel(bias, kernels))


def _per_channel(bias: tuple[Array | None, Format | None], kernels: ScaledValue) -> tuple[Array | None, Format | None]:
    """Return a bias of output channels with axes of size 1 for rows and columns.

    Raises:
        ShapeError: it has not one value for each channel.
    """
    array, fmt = bias
    return bias if array is None else (one_per_channel(array, kernels.shape[0])[:, None, None], fmt)


def _convolved(name: str, given: Any) -> ScaledValue:
    x = _require_scaled(name, given)
    tiling = x.format.tiling
    # a patch runs over all channels, rows and columns of a window: one scale must serve all of k
    is_whole = tiling.across is None or (name == "w" and tiling.is_channel and x.axis != -x.ndim)
    if not is_whole or len(x.format.levels) > 1:
        wanted = "the tensor" if name == "x" else "the tensor or of output channels"
        raise FormatError(
            f"scales of `{name}` must be those of {wanted} in a convolution, got {x.format} along axis {x.axis}; "
            f"quantize it into {'uint8_affine or fp8_tensor' if name == 'x' else 'int8_channel or fp8_tensor'}"
        )
    return x


def integer_patches(
    images: Any, kernels: Any, bias: tuple[Array | None, Format | None], slide: Sliding
) -> IntegerProduct:
    """Return a convolution of integers with zero points; images are padded by their zero point, which stands for 0.

    Raises:
        FormatError: an operand without integers and scales, or a bias that is no integer.
        ShapeError: the shapes do not fit together.
    """
    x = _convolved("x", require_integers("x", images))
    w = _convolved("w", require_integers("w", kernels))
    fx, fw = format_of_integers(x), format_of_integers(w)
    # a border of the number 0 is the element of the zero point
    pad = 0 if x.zero is None else int(x.zero.item())
    matrices = slide.matrices((np.asarray(x.array), fx), (np.asarray(w.array), fw), (None, None), pad)
    count = x.shape[0]
    point = None if x.zero is None else x.zero.astype(np.int64).reshape(1, 1, 1)
    points = None if w.zero is None else slide.per_channel(w.zero.astype(np.int64), count)
    third = as_bias(*bias)
    if third is not None:
        third = slide.per_channel(one_per_channel(third, w.shape[0]), count)
    return IntegerProduct(Side(matrices.left, fw, points), Side(matrices.right, fx, point), third, matrices.shape)


def _of_channels(images: ScaledValue, kernels: ScaledValue) -> Array:
    """Return what multiplies the sums of a convolution, (1, O or 1, 1, 1)."""
    # (1, O or 1, 1, 1) and (1, 1, 1, 1): the result is (N, O, OH, OW)
    a = np.asarray(kernels.scales[0], np.float32).reshape(1, -1, 1, 1)
    b = np.asarray(images.scales[0], np.float32).reshape(1, 1, 1, 1)
    return _multiplied(kernels.format, a, b)


def _as_array(x: Any) -> Array:
    return np.ascontiguousarray(x)


def _require_scaled(name: str, x: Any) -> ScaledValue:
    if not isinstance(x, ScaledValue):
        raise FormatError(
            f"`{name}` must share scales as the other operand does, got one without; quantize it, or give "
            "np.asarray(other) with a format"
        )
    return x


def _operand(name: str, given: Any, axis: int) -> ScaledValue:
    x = _require_scaled(name, given)
    if x.ndim == 1:
        return x
    # square blocks, and that of a whole tensor, are the same along both axes of a matrix
    if x.axis != axis and not (x.format.serves_either_axis and {x.axis, axis} == {-1, -2}):
        raise FormatError(
            f"blocks of `{name}` must lie along k, axis {axis}, got axis {x.axis} of shape {x.shape}; quantize it with "
            f"axis={axis}"
        )
    return x.along(axis)


def require_places(mac: Mac, left: Scaled, right: Scaled) -> None:
    """Raise FormatError unless a unit multiplies operands of these formats, each level of which has a place in it."""
    _places_of(mac, left, right)


def _places_of(mac: Mac, left: Scaled, right: Scaled) -> tuple[str, ...]:
    """Return where each level enters.

    Raises:
        FormatError: a level has no place, or one that the unit or its tiling cannot have.
    """
    count = len(left.levels)
    if len(right.levels) != count:
        raise FormatError(
            f"both operands must have as many levels of scales, got {left} and {right}; quantize one of them anew"
        )
    places: tuple[str, ...] = mac.scales
    # the ideal of the standard: an exact unit without `scales` multiplies each term by its scales
    if not places and mac.is_exact and count == 1:
        places = ("in_block",)
    if len(places) < count:
        missing = left.levels[len(places)]
        raise FormatError(
            f"each level of scales must have a place in the Mac, got none for {missing} of {left}; give "
            f"emu.Mac(..., scales='{_suggested(mac, left)}')"
        )
    if len(places) > count or any(place != "at_result" for place in places[1:]):
        raise FormatError(
            f"`scales` of the Mac must have a place for each level, those of outer levels at_result, got "
            f"{', '.join(places)} for {left}; give emu.Mac(..., scales='{_suggested(mac, left)}')"
        )
    if count > 1 and places[0] == "at_result":
        raise FormatError(
            f"one level alone may enter at_result, got {', '.join(places)} for {left}; let the finest enter "
            "in_block or at_promotion"
        )
    if "at_result" in places and left.rule.at_result != right.rule.at_result:
        raise FormatError(
            f"what both operands store at the result must be of one kind, got the rules {left.rule.name} and "
            f"{right.rule.name}; quantize both by one rule"
        )
    if places[0] == "in_block" and not (mac.is_exact or isinstance(mac.order, Blocks)):
        raise FormatError(
            f"scales must not enter in_block where `order` is {mac.order}, which aligns no exponents; choose blocks, "
            "at_result, or an exact Mac"
        )
    for fmt in (left, right):
        _require_place(mac, fmt, places[0])
    return places


def _suggested(mac: Mac, fmt: Scaled) -> str:
    along = fmt.tiling.along
    first = "at_result" if along is None else "at_promotion" if isinstance(mac.order, Promote) else "in_block"
    return ", ".join([first] + ["at_result"] * (len(fmt.levels) - 1))


def _require_place(mac: Mac, fmt: Scaled, place: str) -> None:
    along = fmt.tiling.along
    if fmt.has_zero and not (place == "at_result" or mac.is_exact):
        raise FormatError(
            f"scales of elements with zero points must enter at_result, got {place} for {fmt}; give "
            "emu.Mac(accumulator='fix32f0', overflow='wrap', scales='at_result')"
        )
    if place == "at_result" and along is not None:
        raise FormatError(
            f"scales that enter at_result must be those of rows or the tensor, got {fmt.tiling} of {fmt}; let them "
            "enter in_block or at_promotion"
        )
    if place == "at_promotion":
        assert isinstance(mac.order, Promote)
        if along is not None and along % mac.order.n:
            raise FormatError(
                f"a run of products must have one scale, got {mac.order} and blocks of {fmt.tiling}; promote sums of "
                f"{math.gcd(along, mac.order.n)}"
            )
    # the unit adds the exponents of one pair of scales for a whole group
    group = mac.order.group if isinstance(mac.order, Blocks) else 1
    if place == "in_block" and along is not None and along % group:
        raise FormatError(
            f"a group of products must have one scale, got {mac.order} and blocks of {fmt.tiling}; sum groups of "
            f"{math.gcd(along, group)}"
        )


def _factors(value: ScaledValue, *, is_inside: bool) -> tuple[Array, Format]:
    """Return an operand's carriers and format: elements, times the finest scales if these enter each term."""
    elements, fmt = np.asarray(value.array), value.format
    if value.zero is not None:  # exact: both are integers of at most 16 bits
        elements = elements - value.tiles[0].spread(value.zero).astype(np.float32)
    if not is_inside:
        return elements, fmt.element
    plain = plain_format(fmt)
    with np.errstate(invalid="ignore"):  # of an infinite element and a scale of 0
        # exact: the carrier holds every number of the format
        return np.multiply(elements, _spread(value, np.asarray(value.scales[0])), dtype=plain.carrier), plain


def _spread(value: ScaledValue, finest: Array) -> Array:
    """Return the finest level's numbers, each repeated over its block: shape of the elements."""
    return np.broadcast_to(value.tiles[0].spread(finest), value.shape)


def _exponents_of(value: ScaledValue, order: Blocks) -> tuple[Array, int]:
    """Return the exponents by which blocks align an operand, shape of the elements, and its point (`Alignment`)."""
    fmt, scale = value.format, value.format.levels[0].scale
    tops = _spread(value, _exponents(np.asarray(value.scales[0]), scale.emin))
    if order.group > 1:  # those of the scales alone
        # element = integer * 2**quantum, scale = integer * 2**(exponent - fraction_bits): so the point is fraction_bits
        # - quantum, and a quantum above 0 stays in the integer
        return tops, scale.fraction_bits + max(-_quantum(fmt), 0)
    # of fixed point the exponent of the last place: below it there is no leading bit
    emin = fmt.element.emin if isinstance(fmt.element, Float) else -fmt.element.frac_bits
    exponents = _exponents(np.asarray(value.array), emin)
    exponents += tops
    # number = both significands as integers * 2**(exponent - point): they have element_digits - 1 and fraction_bits
    # bits behind their points
    return exponents, scale.fraction_bits + fmt.element_digits - 1


def _quantum(fmt: Scaled) -> int:
    """Return the exponent of the smallest step of elements."""
    element = fmt.element
    return element.emin - element.fraction_bits if isinstance(element, Float) else -element.frac_bits


def _exponents(x: Array, least: int) -> Array:
    """Return the exponents that registers hold: those of leading bits, and of subnormal numbers the smallest one.

    Int32; those of zeros, infinities and NaN are not read.
    """
    # the field read as it is: a subnormal has field 0, so exponent -127, which is exact for 2**-127, the smallest scale
    # of E8M0
    if x.dtype == np.float32 and least >= -FLOAT32_BIAS:  # float32's own subnormals lie below `least`, too
        fields = np.ascontiguousarray(x).view(np.int32) >> FLOAT32_FRACTION_BITS
        fields &= FLOAT32_FIELD
        fields -= FLOAT32_BIAS
        return np.maximum(fields, np.int32(least), out=fields)
    return np.maximum(np.where(x == 0, least, np.frexp(x)[1] - 1), least).astype(np.int32)


@lru_cache(maxsize=256)
def plain_format(fmt: Scaled) -> Float:
    """Return a float format that holds all elements times all scales of the finest level."""
    scale = fmt.levels[0].scale
    # an element less its zero point has a bit more; a product has the bits of both factors, unless one is a power of 2
    digits = fmt.element_digits + fmt.has_zero + scale.fraction_bits + (scale.fraction_bits > 0)
    # exponent of the last place of a product: those of scale and element, added
    quantum = scale.emin - scale.fraction_bits + _quantum(fmt)
    # both significands are below 2, so their product is below 4: an exponent more
    emax = scale.emax + fmt.element_exponent + 1 + fmt.has_zero
    # the smallest normal exponent of a format whose last subnormal place is `quantum`
    emin = quantum + digits - 1
    # codes for emin..emax, one for subnormals, and one for infinities and NaN
    exponent_bits = max((emax - emin + 2).bit_length(), 2)
    return Float(exponent_bits, digits - 1, bias=1 - emin)


def _promoted(mac: Mac, left: ScaledValue, right: ScaledValue) -> tuple[Array, Array]:
    """Return the scales of each run of products, (B or 1, M, runs) and (B or 1, runs, N)."""
    assert isinstance(mac.order, Promote)
    # blocks hold whole runs (`_require_place`): the scale of a run's first element is that of all
    firsts = np.arange(0, left.shape[-1], mac.order.n)
    spread: list[Array] = []
    for value, axis in ((left, -1), (right, -2 if right.ndim > 1 else -1)):
        finest = _spread(value, np.asarray(value.scales[0]))
        spread.append(np.take(finest.astype(np.float32, copy=False), firsts, axis=axis))
    stacks = Matrices.of(spread[0], spread[1], (FLOAT32, FLOAT32, None))
    return _as_array(stacks.left), _as_array(stacks.right)


def _multiplied(fmt: Scaled, a: Array, b: Array) -> Array:
    """Return what the rule makes of the scales of both operands, in binary32."""
    return fmt.rule.at_result.run({"a": a, "b": b}, np.float32)["f"]


def _at_result(left: ScaledValue, right: ScaledValue, first: int) -> Array:
    """Return what multiplies the sums: the product of what the levels from `first` on store, in binary32."""
    # the axis of blocks, last in stored scales, goes back to where k lies: then they multiply as the operands' shapes
    # do
    a, b = (
        np.asarray(np.moveaxis(value.scales[first], -1, axis), np.float32)
        for value, axis in ((left, -1), (right, -2 if right.ndim > 1 else -1))
    )
    factor = _multiplied(left.format, a, b)
    if factor.ndim == 1:  # of two lines, whose product is a number
        return factor[0]
    if left.ndim == 1:
        # a vector's axis, of size 1 here, is no axis of the result
        return factor[..., 0, :]
    return factor[..., 0] if right.ndim == 1 else factor
