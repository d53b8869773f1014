"""Hypothesis strategies: random formats, their codes, and the numbers where rounding goes wrong.

Everything is biased to the edges: zeros, +-1, extremes, ties and their neighbours, the ends of the subnormals. Failures
shrink to narrow formats and small codes.
"""

from __future__ import annotations

import importlib
import math
import sys
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import FormatError
from emu.formats import PRESETS, Fixed, Float, Format, parse
from emu.formats.floating import NAN_CODES

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

MAX_FIXED_CARRIER_BITS = 54  # signed; wider formats carry raws
LARGEST_FLOAT = sys.float_info.max
POINT_MARGIN = 10  # how far outside the word the binary point of a drawn fixed format may lie


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            "the strategies of emu.testing need hypothesis, which is not installed; pip install 'emu-numerics[test]'"
        ) from error


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
) -> SearchStrategy[Format]:
    """Return a strategy of random formats.

    Args:
        fixed: draw fixed-point formats.
        floats: draw floating-point formats, of every way to place NaN and infinity.
        presets: draw fp16, bf16, ... more often than chance would.
        min_width_bits: narrowest word.
        max_width_bits: widest word.
        raws: also draw fixed formats so wide that their arrays hold raw integers.
        unsigned: also draw unsigned fixed formats.
        flushing: also draw float formats with FTZ or DAZ.

    Raises:
        ImportError: hypothesis is not installed.
        FormatError: the options leave no format.
    """
    st = _load("hypothesis.strategies")
    families: list[Any] = []
    widest_fixed = max_width_bits if raws else min(max_width_bits, MAX_FIXED_CARRIER_BITS)
    if fixed and min_width_bits <= widest_fixed:
        families.append(_fixed_formats(st, min_width_bits, widest_fixed, raws, unsigned))
    if floats and max(min_width_bits, 3) <= max_width_bits:
        families.append(_float_formats(st, max(min_width_bits, 3), max_width_bits, flushing))
        named = [f for f in PRESETS.values() if min_width_bits <= f.width_bits <= max_width_bits]
        if presets and named:
            families.append(st.sampled_from(named))
    if not families:
        raise FormatError(
            f"`formats()` must leave a family of formats, got fixed={fixed}, floats={floats} and widths "
            f"{min_width_bits}..{max_width_bits}; floats need at least 3 bits, fixed formats above "
            f"{MAX_FIXED_CARRIER_BITS} bits need raws=True"
        )
    return st.one_of(*families)


def _fixed_formats(st: Any, low: int, high: int, raws: bool, unsigned: bool) -> Any:
    def draw_format(draw: Any) -> Fixed:
        width_bits = draw(st.integers(low, high))
        signed = not unsigned or draw(st.booleans())
        if not raws and not signed:
            width_bits = max(low, min(width_bits, MAX_FIXED_CARRIER_BITS - 1))
        fmt = Fixed(width_bits, draw(st.integers(-POINT_MARGIN, width_bits + POINT_MARGIN)), signed)
        return _load("hypothesis").reject() if fmt.carries_raws and not raws else fmt

    return st.composite(draw_format)()


def _float_formats(st: Any, low: int, high: int, flushing: bool) -> Any:
    def draw_format(draw: Any) -> Float:
        exponent_bits = draw(st.integers(max(2, low - 53), min(11, high - 1)))
        fraction_bits = draw(st.integers(max(0, low - 1 - exponent_bits), min(52, high - 1 - exponent_bits)))
        nans = draw(st.sampled_from(NAN_CODES))
        infinities = draw(st.booleans()) and (nans != "ieee" or fraction_bits > 0)
        bias = (1 << (exponent_bits - 1)) - 1 + draw(st.sampled_from([0, 0, 0, 1, -1, 3]))
        flushes = {name: draw(st.booleans()) and draw(st.booleans()) for name in ("ftz", "daz") if flushing}
        try:
            return Float(exponent_bits, fraction_bits, bias, infinities, nans, **flushes)
        except FormatError:  # the exponents leave the range of float64
            return _load("hypothesis").reject()

    return st.composite(draw_format)()


def codes(fmt: str | Format, shape: Any = None) -> SearchStrategy[Any]:
    """Return a strategy of codes of `fmt`: integers, or arrays of `shape` in the smallest unsigned dtype.

    Zeros, ones, extremes, subnormal edges, infinities and NaNs come up more often than chance would have it.

    Args:
        fmt: the format.
        shape: None for one integer; else a shape, or a strategy of shapes.
    """
    st = _load("hypothesis.strategies")
    known: Format = parse(fmt)
    one = st.one_of(st.sampled_from(_edge_codes(known)), st.integers(0, known.n_codes - 1))
    if shape is None:
        return one
    return _load("hypothesis.extra.numpy").arrays(known.code_dtype, shape, elements=one)


def values(
    fmt: str | Format, *, representable: bool = False, nan: bool = True, infinity: bool = True
) -> SearchStrategy[Any]:
    """Return a strategy of real numbers to be rounded into `fmt`, as Python floats.

    They crowd where rounding decides: values of the format, ties, ties one float64 step off, extremes and beyond.

    Args:
        fmt: the format.
        representable: only values of `fmt` (raw integers if it carries raws).
        nan: NaN may come up (if `representable`: where the format has it).
        infinity: infinities may come up (if `representable`: where the format has them).
    """
    st = _load("hypothesis.strategies")
    known: Format = parse(fmt)
    if representable:
        return codes(known).map(partial(_value_of, known)).filter(partial(_is_wanted, nan=nan, infinity=infinity))

    def near_grid(draw: Any) -> float:
        return _draw_near_grid(draw, st, known)

    bound = min(_to_float(2 * _magnitude(known, _last_index(known))), LARGEST_FLOAT)
    within = st.floats(-bound, bound, allow_nan=False)
    special = [*([float("nan")] if nan else []), *([float("inf"), -float("inf")] if infinity else [])]
    anything = st.floats(allow_nan=False, allow_infinity=False)
    return st.one_of(st.composite(near_grid)(), within, anything, *([st.sampled_from(special)] if special else []))


def arrays(
    fmt: str | Format, shape: Any, *, representable: bool = True, nan: bool = True, infinity: bool = True
) -> SearchStrategy[Any]:
    """Return a strategy of arrays of `shape`.

    Args:
        fmt: the format.
        shape: a shape, or a strategy of shapes.
        representable: carrier arrays of values of `fmt`; if false float64 arrays of reals to be rounded into it.
        nan: NaN may come up, as in `values`.
        infinity: infinities may come up, as in `values`.
    """
    known: Format = parse(fmt)
    dtype = known.carrier if representable else np.dtype(np.float64)
    elements = values(known, representable=representable, nan=nan, infinity=infinity)
    return _load("hypothesis.extra.numpy").arrays(dtype, shape, elements=elements)


def _value_of(fmt: Format, code: int) -> float | int:
    return fmt.decode(np.array(code, dtype=np.uint64))[()].item()


def _is_wanted(value: float, *, nan: bool, infinity: bool) -> bool:
    return (nan or value == value) and (infinity or abs(value) != math.inf)


def _draw_near_grid(draw: Any, st: Any, fmt: Format) -> float:
    """Draw a value of the format's grid or a tie, exact or one float64 step to either side."""
    index = draw(st.one_of(st.sampled_from(_edge_indices(fmt)), st.integers(0, _last_index(fmt))))
    exact = _magnitude(fmt, index)
    if draw(st.booleans()):
        exact = (exact + _magnitude(fmt, index + 1)) / 2
    side, negative = draw(st.sampled_from([0, 0, 1, -1])), draw(st.booleans())
    magnitude = _step(_to_float(exact), side)
    return -magnitude if negative else magnitude


# Indices count the nonnegative values of a format from 0; past the last one the grid goes on.


def _last_index(fmt: Format) -> int:
    return fmt.max_code if isinstance(fmt, Float) else fmt.max_raw


def _magnitude(fmt: Format, index: int) -> Fraction:
    """Return the nonnegative value number `index`."""
    if isinstance(fmt, Fixed):
        return index * Fraction(2) ** -fmt.frac_bits
    field, fraction = divmod(index, 1 << fmt.fraction_bits)
    significand = fraction + (1 << fmt.fraction_bits) if field else fraction
    return significand * Fraction(2) ** (max(field, 1) - 1 + fmt.emin - fmt.fraction_bits)


@lru_cache(maxsize=256)
def _edge_indices(fmt: Format) -> list[int]:
    last = _last_index(fmt)
    marks = [0, last]
    if isinstance(fmt, Float):
        normal = 1 << fmt.fraction_bits
        marks += [normal, 2 * normal, (1 - fmt.emin) << fmt.fraction_bits if fmt.emin < 1 else 0]
    else:
        marks += [1 << fmt.frac_bits if 0 <= fmt.frac_bits < 64 else 1]
    near = {mark + offset for mark in marks for offset in (-2, -1, 0, 1, 2)}
    return sorted(index for index in near if 0 <= index <= last + 1)


@lru_cache(maxsize=256)
def _edge_codes(fmt: Format) -> list[int]:
    magnitudes = [i for i in _edge_indices(fmt) if i <= _last_index(fmt)]
    if isinstance(fmt, Fixed):
        negatives = [fmt.n_codes - i for i in magnitudes if i > 0] + [1 << (fmt.width_bits - 1)]
        return [*magnitudes, *(sorted(negatives) if fmt.signed else [])]
    special = [c for c in (fmt.infinity_code, fmt.nan_code) if c is not None]
    return sorted(
        {*magnitudes, *(m | fmt.sign_code for m in magnitudes), *special, *(s | fmt.sign_code for s in special)}
    )


def _to_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return LARGEST_FLOAT


def _step(value: float, side: int) -> float:
    moved = math.nextafter(value, math.copysign(math.inf, side)) if side else value
    return moved if math.isfinite(moved) else value
