"""Hypothesis strategies: codes, and the numbers where rounding goes wrong.

Everything is biased to what breaks hardware: zeros, +-1, extremes, ties and their neighbours, the ends of the
subnormals, carries that ripple through the whole word, pairs that cancel. Failures shrink to small codes.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.formats import Format, parse_number
from emu.testing.hard import LARGEST_FLOAT, edge_codes, edge_indices, last_index, magnitude, negated
from emu.testing.random_formats import load

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Array = NDArray[Any]


def codes(fmt: str | Format, shape: Any = None) -> SearchStrategy[Any]:
    """Return a strategy of codes of `fmt`: integers, or arrays of `shape` in the smallest unsigned dtype.

    Zeros, ones, extremes, subnormal edges, infinities, NaNs and long carries (x..x 0111..1, x..x 1000..0) come up more
    often than chance would have it.

    Args:
        fmt: the format.
        shape: None for one integer; else a shape, or a strategy of shapes.
    """
    st = load("hypothesis.strategies")
    known: Format = parse_number(fmt)
    # Hypothesis shrinks towards the first alternative: edges, of which code 0 is the first
    code = st.one_of(
        st.sampled_from(edge_codes(known)), _carries(st, known.n_codes - 1), st.integers(0, known.n_codes - 1)
    )
    if shape is None:
        return code
    return load("hypothesis.extra.numpy").arrays(known.code_dtype, shape, elements=code)


def _carries(st: Any, largest: int) -> Any:
    """Return a strategy of integers up to `largest` that end in 0111..1 or 1000..0."""

    def ending(length: int, rest: int, full: bool) -> int:
        top = 1 << length
        # the bits of `rest` above the ending stay
        return min(rest >> (length + 1) << (length + 1) | (top - 1 if full else top), largest)

    return st.builds(ending, st.integers(0, largest.bit_length()), st.integers(0, largest), st.booleans())


def values(
    fmt: str | Format, *, representable: bool = False, nan: bool = True, infinity: bool = True
) -> SearchStrategy[Any]:
    """Return a strategy of real numbers to be rounded into `fmt`, as Python floats.

    They crowd where rounding decides: values of the format, ties, ties one float64 step off, extremes and beyond.

    Args:
        fmt: the format.
        representable: only values of `fmt` (raw integers if it carries raws).
        nan: NaN may come up (if `representable`: if the format has it).
        infinity: infinities may come up (if `representable`: if the format has them).
    """
    st = load("hypothesis.strategies")
    known: Format = parse_number(fmt)
    if representable:
        return codes(known).map(partial(_value_of, known)).filter(partial(_is_wanted, nan=nan, infinity=infinity))

    def near_grid(draw: Any) -> float:
        return _draw_near_grid(draw, st, known)

    # up to twice the largest value, so that overflow comes up too
    bound = min(_to_float(2 * magnitude(known, last_index(known))), LARGEST_FLOAT)
    within = st.floats(-bound, bound, allow_nan=False)
    special = [*([float("nan")] if nan else []), *([float("inf"), -float("inf")] if infinity else [])]
    anything = st.floats(allow_nan=False, allow_infinity=False)
    return st.one_of(st.composite(near_grid)(), within, anything, *([st.sampled_from(special)] if special else []))


def arrays(
    fmt: str | Format, shape: Any, *, representable: bool = True, nan: bool = True, infinity: bool = True
) -> SearchStrategy[Any]:
    """Return a strategy of arrays of `shape`, drawn element by element; `bulk_arrays` is for large ones.

    In some of them every second element along the last axis is the negative of its left neighbour.

    Args:
        fmt: the format.
        shape: a shape, or a strategy of shapes.
        representable: carrier arrays of values of `fmt`; if false float64 arrays of reals to be rounded into it.
        nan: NaN may come up, as in `values`.
        infinity: infinities may come up, as in `values`.
    """
    st = load("hypothesis.strategies")
    known: Format = parse_number(fmt)
    dtype = known.carrier if representable else np.dtype(np.float64)
    elements = values(known, representable=representable, nan=nan, infinity=infinity)
    plain = load("hypothesis.extra.numpy").arrays(dtype, shape, elements=elements)
    cancelling = partial(_with_cancelling_pairs, known, representable)
    return st.builds(cancelling, plain, st.integers(0, 3).map((3).__eq__))  # one array in four; shrinks to none


def _with_cancelling_pairs(fmt: Format, representable: bool, array: Array, wanted: bool) -> Array:
    if not wanted or array.ndim == 0 or array.shape[-1] < 2:
        return array
    left = array[..., : array.shape[-1] // 2 * 2 : 2]
    # by codes: the lowest raw, or a number of an unsigned format, has no negative, and stays
    array[..., 1::2] = fmt.decode(negated(fmt, fmt.encode(left).astype(np.uint64))) if representable else -left
    return array


def _value_of(fmt: Format, code: int) -> float | int:
    return fmt.decode(np.array(code, dtype=np.uint64))[()].item()


def _is_wanted(value: float, *, nan: bool, infinity: bool) -> bool:
    return (nan or value == value) and (infinity or abs(value) != math.inf)


def _draw_near_grid(draw: Any, st: Any, fmt: Format) -> float:
    """Draw a value of the format's grid or a tie, exact or one float64 step to either side."""
    last = last_index(fmt)
    index = draw(st.one_of(st.sampled_from(edge_indices(fmt)), _carries(st, last), st.integers(0, last)))
    exact = magnitude(fmt, index)
    # the tie above; Fractions keep it exact in formats where float64 does not
    if draw(st.booleans()):
        exact = (exact + magnitude(fmt, index + 1)) / 2
    side, negative = draw(st.sampled_from([0, 0, 1, -1])), draw(st.booleans())
    result = _step(_to_float(exact), side)
    return -result if negative else result


def _to_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return LARGEST_FLOAT


def _step(value: float, side: int) -> float:
    moved = math.nextafter(value, math.copysign(math.inf, side)) if side else value
    return moved if math.isfinite(moved) else value
