"""Hypothesis strategies of scaled formats: numbers at which scales are chosen wrongly, and values of any codes.

Blocks are biased to what breaks scale rules: largest magnitudes at powers of two, at the largest element times one, and
a last place beside these; numbers that come out as ties of the elements, or as nothing; blocks of zeros; numbers that
are subnormal in binary32; NaN and infinities.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import FormatError
from emu.formats import Format, Scaled, ScaledValue, parse
from emu.formats.tiles import Tiles, axis_of
from emu.testing.hard import edge_codes
from emu.testing.random_formats import as_shape, load
from emu.testing.strategies import codes

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Array = NDArray[Any]
#: Exponents of largest magnitudes: all of binary32, its subnormals too.
_LOWEST, _HIGHEST = -149, 127
#: A block of each kind has this many chances.
_PLAIN, _ZERO, _SPECIAL = 5, 1, 1


def block_numbers(
    fmt: str | Scaled, shape: int | tuple[int, ...], *, axis: int = -1, nan: bool = True, infinity: bool = True
) -> SearchStrategy[Array]:
    """Return a strategy of float32 arrays whose blocks are hard to scale; each block shrinks to zeros.

    Args:
        fmt: a scaled format.
        shape: of the arrays; a last block along the axis may be short.
        axis: along which blocks lie.
        nan: NaN may come up.
        infinity: infinities may come up.

    Raises:
        FormatError: the format's elements share no scales.
        ShapeError: no such axis, or a size that is no integer or below 0.
    """
    st = load("hypothesis.strategies")
    scaled, shape = _as_scaled(fmt), as_shape(shape)
    axis = axis_of(axis, shape, scaled)
    special = [*([math.nan] if nan else []), *([math.inf, -math.inf] if infinity else [])]
    # the finest level's blocks, whose scales depend on their largest magnitudes
    blocks = math.prod(Tiles(scaled.tiling, shape, axis).counts)
    kinds = ["zero"] * _ZERO + ["plain"] * _PLAIN + ["special"] * (_SPECIAL if special else 0)
    size = st.builds(_near, st.integers(_LOWEST, _HIGHEST), st.sampled_from(_significands(scaled)), st.integers(-1, 1))
    # Hypothesis draws the kind, the largest magnitude and a seed; NumPy fills the rest of the block from the seed
    block = st.tuples(st.sampled_from(kinds), size, st.integers(0, 2**32 - 1))
    # nothing to draw, and a list of 0 blocks would still be
    if not math.prod(shape):
        return st.builds(np.zeros, st.just(shape), st.just(np.float32))
    filled = partial(_filled, scaled, shape, axis, special)
    return st.lists(block, min_size=blocks, max_size=blocks).map(filled)


def scaled_values(fmt: str | Scaled, shape: int | tuple[int, ...], *, axis: int = -1) -> SearchStrategy[ScaledValue]:
    """Return a strategy of values whose elements, scales and zero points have any codes, edges more often.

    Args:
        fmt: a scaled format.
        shape: of the values; a last block along the axis may be short.
        axis: along which blocks lie.

    Raises:
        FormatError: the format's elements share no scales.
        ShapeError: no such axis, or a size that is no integer or below 0.
    """
    st, extra = load("hypothesis.strategies"), load("hypothesis.extra.numpy")
    scaled, shape = _as_scaled(fmt), as_shape(shape)
    axis = axis_of(axis, shape, scaled)

    def decoded(part: Format, of: tuple[int, ...]) -> Any:
        return codes(part, of).map(part.decode)

    scales = [decoded(level.scale, Tiles(level.tiling, shape, axis).counts) for level in scaled.levels]
    zeros: Any = st.none()
    if scaled.has_zero:
        low, high = int(scaled.element.min), int(scaled.element.max)
        edges = st.sampled_from([low, high, 0 if low <= 0 <= high else low])
        points = st.one_of(edges, st.integers(low, high))
        zeros = extra.arrays(np.int32, Tiles(scaled.tiling, shape, axis).counts, elements=points)
    made = partial(_value_of, scaled, axis)
    return st.builds(made, decoded(scaled.element, shape), st.tuples(*scales), zeros)


def _as_scaled(fmt: str | Scaled) -> Scaled:
    parsed = parse(fmt) if isinstance(fmt, str) else fmt
    if not isinstance(parsed, Scaled):
        raise FormatError(
            f"`fmt` must be a format whose elements share scales, got {parsed}; `emu.testing.arrays` draws its numbers"
        )
    return parsed


def _value_of(fmt: Scaled, axis: int, elements: Array, scales: tuple[Array, ...], zero: Any) -> ScaledValue:
    return ScaledValue.of(elements, scales, fmt, axis, zero)


def _significands(fmt: Scaled) -> list[float]:
    """Return significands at which a rule may take the next scale: of a power of two, and of what elements end at."""
    largest = math.frexp(fmt.largest)[0] * 2
    # half a step of the elements beyond the largest one is where rounding to their digits carries
    digits = math.frexp(fmt.element_digits)[1]
    return [1.0, largest, min(largest * (1 + 2.0**-digits), 2.0), 1.75, 1.5]


def _near(exponent: int, significand: float, side: int) -> float:
    """Return a number of binary32, or its neighbour."""
    with np.errstate(over="ignore", under="ignore"):
        number = np.float32(significand) * np.ldexp(np.float32(1), exponent)
        number = np.nextafter(number, np.float32(side * math.inf)) if side else number
    # significand 2 at exponent 127 overflows; the neighbour below the smallest number is 0
    return abs(float(number)) if np.isfinite(number) else float(np.finfo(np.float32).max)


def _filled(
    fmt: Scaled, shape: tuple[int, ...], axis: int, special: list[float], blocks: list[tuple[str, float, int]]
) -> Array:
    """Return an array: each block has its largest magnitude, and other numbers that are hard to round beside it."""
    tiles = Tiles(fmt.tiling, shape, axis)
    # of each element: its block's number
    number = tiles.spread(np.arange(len(blocks)).reshape(tiles.counts))
    array = np.zeros(shape, np.float32)
    for i, (kind, largest, seed) in enumerate(blocks):
        inside = np.flatnonzero(number == i)
        if kind == "zero" or not inside.size:
            continue
        drawn = np.random.default_rng(seed)
        array.flat[inside] = _numbers_below(fmt, largest, inside.size, drawn)
        # after the others, so that the block's largest magnitude is what was drawn; only a special number may replace
        # it
        array.flat[drawn.choice(inside)] = drawn.choice([-1, 1]) * np.float32(largest)
        if kind == "special":
            array.flat[drawn.choice(inside)] = drawn.choice(special)
    return array


@lru_cache(maxsize=64)
def _edges(fmt: Scaled) -> NDArray[np.float64]:
    """Return finite elements on which units often fail."""
    edges = fmt.element.decode(np.array(edge_codes(fmt.element), np.uint64)).astype(np.float64)
    return edges[np.isfinite(edges)]


def _numbers_below(fmt: Scaled, largest: float, count: int, drawn: np.random.Generator) -> Array:
    """Return numbers up to a magnitude: ties of the elements at the scale of a power of two, their halves, and any."""
    edges = _edges(fmt)
    # the scale that takes the binade of the largest element to that of `largest`
    power = 2.0 ** (math.frexp(largest)[1] - 1 - fmt.element_exponent)
    n_digits = max(fmt.element_digits, 1)
    digits = drawn.integers(-(2**n_digits), 2**n_digits, count)
    # halfway between multiples of a power of two, from the leading bit of the largest element down to 2 * n_digits + 1
    # places below it
    ties = (digits + 0.5) * 2.0 ** (fmt.element_exponent - drawn.integers(0, 2 * n_digits + 2, count))
    kinds = drawn.integers(0, 3, count)
    chosen = np.where(kinds == 0, drawn.choice(edges, count), ties) * power
    chosen = np.where(kinds == 2, drawn.uniform(-largest, largest, count), chosen)
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(chosen, -largest, largest).astype(np.float32)
