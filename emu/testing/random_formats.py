"""The strategy of random formats. Failures shrink to narrow ones."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from emu.errors import FormatError, ShapeError
from emu.formats import PRESETS, Fixed, Float, Format
from emu.formats.floating import NAN_CODES
from emu.formats.integers import as_integer

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

MAX_FIXED_CARRIER_BITS = 54  # a sign and the 53 bits of a float64; wider formats carry raws
POINT_MARGIN = 10  # how far outside the word the binary point of a drawn fixed format may lie


def load(name: str) -> Any:
    """Return a module of Hypothesis, or say what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            "the strategies of emu.testing need hypothesis, which is not installed; pip install 'emu-numerics[test]'"
        ) from error


def as_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape of arrays that are drawn; an integer is that of one axis.

    Raises:
        ShapeError: a size is no integer, or below 0.
    """
    given: tuple[Any, ...] = tuple(shape) if hasattr(shape, "__len__") else (shape,)
    return tuple(as_integer("shape", size, 0, error=ShapeError) for size in given)


def formats(
    *,
    fixed: bool = True,
    floats: bool = True,
    presets: bool = True,
    min_width_bits: int = 1,
    max_width_bits: int = 64,
    raws: bool = False,
    unsigned: bool = True,
    flushing: bool = True,
    zeroless: bool = True,
    unusual: bool = True,
) -> SearchStrategy[Format]:
    """Return a strategy of random formats.

    Args:
        fixed: draw fixed-point formats.
        floats: draw floating-point formats, of every way to place NaN and infinity.
        presets: draw fp16, bf16, ... more often than chance would.
        min_width_bits: narrowest word.
        max_width_bits: widest word.
        raws: also draw fixed formats so wide that their arrays hold raw integers.
        unsigned: also draw unsigned formats.
        flushing: also draw float formats with FTZ or DAZ.
        zeroless: also draw unsigned float formats without zero.
        unusual: also draw fixed-point formats of sign and magnitude, and float formats whose hidden bit is always one.

    Raises:
        ImportError: hypothesis is not installed.
        FormatError: the options leave no format, or a width is not an integer.
    """
    min_width_bits, max_width_bits = (
        as_integer(name, width)
        for name, width in (("min_width_bits", min_width_bits), ("max_width_bits", max_width_bits))
    )
    st = load("hypothesis.strategies")
    families: list[Any] = []
    widest_fixed = max_width_bits if raws else min(max_width_bits, MAX_FIXED_CARRIER_BITS)
    if fixed and min_width_bits <= widest_fixed:
        families.append(_fixed_formats(st, min_width_bits, widest_fixed, raws, unsigned, unusual))
    if floats and max(min_width_bits, 3) <= max_width_bits:
        kinds = {"unsigned": unsigned, "flushing": flushing, "zeroless": zeroless and unsigned, "unusual": unusual}
        families.append(_float_formats(st, max(min_width_bits, 3), max_width_bits, **kinds))
        named = [f for f in PRESETS.values() if min_width_bits <= f.width_bits <= max_width_bits]
        named = [f for f in named if (f.signed or unsigned) and (f.zero or kinds["zeroless"])]
        if presets and named:
            families.append(st.sampled_from(named))
    if not families:
        raise FormatError(
            f"`formats()` must leave a family of formats, got fixed={fixed}, floats={floats} and widths "
            f"{min_width_bits}..{max_width_bits}; floats need at least 3 bits, fixed formats above "
            f"{MAX_FIXED_CARRIER_BITS} bits need raws=True"
        )
    return st.one_of(*families)


def _fixed_formats(st: Any, low: int, high: int, raws: bool, unsigned: bool, unusual: bool) -> Any:
    def draw_format(draw: Any) -> Fixed:
        width_bits = draw(st.integers(low, high))
        signed = not unsigned or draw(st.booleans())
        # without a sign 53 bits are the most that float64 holds
        if not raws and not signed:
            width_bits = max(low, min(width_bits, MAX_FIXED_CARRIER_BITS - 1))
        frac_bits = draw(st.integers(-POINT_MARGIN, width_bits + POINT_MARGIN))
        fmt = Fixed(width_bits, frac_bits, signed, _now_and_then(st, draw, unusual and signed and width_bits > 1))
        # still possible if `min_width_bits` forces 54 unsigned bits
        return load("hypothesis").reject() if fmt.carries_raws and not raws else fmt

    return st.composite(draw_format)()


def _now_and_then(st: Any, draw: Any, wanted: bool) -> bool:
    # two draws make it rare; Hypothesis shrinks booleans to False, so failures shrink to formats without the option
    return wanted and draw(st.booleans()) and draw(st.booleans())


def _float_formats(
    st: Any, low: int, high: int, *, unsigned: bool, flushing: bool, zeroless: bool, unusual: bool
) -> Any:
    now_and_then = partial(_now_and_then, st)

    def draw_format(draw: Any) -> Float:
        signed = not now_and_then(draw, unsigned)
        # the widths of binary64 are the limits: a word of more than a sign and 52 bits needs exponent bits for the rest
        exponent_bits = draw(st.integers(max(0, low - signed - 52), min(11, high - signed)))
        rest = high - signed - exponent_bits
        fraction_bits = draw(st.integers(min(max(0, low - signed - exponent_bits), 52), min(52, rest)))
        zero = signed or not now_and_then(draw, zeroless)
        nans = draw(st.sampled_from([n for n in NAN_CODES if _can_be(n, exponent_bits, signed)]))
        # IEEE's infinity is the top exponent with fraction 0; without fraction bits that code is the NaN
        infinities = draw(st.booleans()) and (nans != "ieee" or fraction_bits > 0)
        # the IEEE bias, and now and then one beside it
        bias = (1 << exponent_bits >> 1) - 1 + draw(st.sampled_from([0, 0, 0, 1, -1, 3]))
        options = {name: now_and_then(draw, flushing and zero and exponent_bits > 1) for name in ("ftz", "daz")}
        # without subnormals there is nothing to flush, so FTZ and DAZ exclude a hidden bit that is always one
        may_be_hidden = unusual and zero and fraction_bits > 0 and not any(options.values())
        options |= {"signed": signed, "zero": zero, "hidden_one": now_and_then(draw, may_be_hidden)}
        try:
            return Float(exponent_bits, fraction_bits, bias, infinities, nans, **options)
        except FormatError:  # the exponents leave the range of float64, or special values take all codes
            return load("hypothesis").reject()

    return st.composite(draw_format)()


def _can_be(nans: str, exponent_bits: int, signed: bool) -> bool:
    """Return whether a float format can have its NaNs there."""
    return not (nans == "ieee" and exponent_bits == 0) and not (nans == "negative_zero" and not signed)
