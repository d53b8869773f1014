"""Large arrays for Hypothesis: a seed and places are drawn, NumPy fills the rest.

    drawn:   seed, then along each axis (size, start)          filled:   e[i, j] = f(seed, start_i + i, start_j + j)

Shrinking walks the window: Hypothesis lowers a size by bisection as long as the test still fails, which leaves the
failing element at the window's end; then it lowers the size and raises the start by as much (it tries this for any two
neighbouring integers), which keeps the end in place. The window closes around one element. A shape that was asked for
stays; what lies outside the window becomes 0, or the smallest value if there is no 0. A shape drawn by a strategy
shrinks itself.

        |x x x x x x x x|   ->   |x x x x x F|   ->   |F|
         start     F                        end
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.formats import Float, Format, parse_number
from emu.testing.hard import Places, hard_reals, hard_values
from emu.testing.random_formats import as_shape, load

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Array = NDArray[Any]
#: Sizes are drawn up to so many times the axis and cut to it, so that most arrays are full.
FULL = 8
_SEEDS = (1 << 32) - 1


def bulk_arrays(
    fmt: str | Format, shape: Any, *, representable: bool = True, nan: bool = True, infinity: bool = True
) -> SearchStrategy[Any]:
    """Return a strategy of large arrays with the biases of `arrays`, drawn as a seed and filled by NumPy.

    Failures shrink to an array whose only nonzero element is the failing one (a drawn shape: to one element).

    Args:
        fmt: the format.
        shape: an integer, a shape, or a strategy of shapes.
        representable: carrier arrays of values of `fmt`; if false float64 arrays of reals to be rounded into it.
        nan: NaN may come up, if the format has it.
        infinity: infinities may come up, if the format has them.

    Raises:
        ImportError: hypothesis is not installed.
        ShapeError: a size of the shape is no integer, or below 0.

    Examples:
        >>> bulk_arrays("fp16", (64, 64)).example().shape  # doctest: +SKIP
        (64, 64)
    """
    st = load("hypothesis.strategies")
    known: Format = parse_number(fmt)
    fill = hard_values if representable else hard_reals

    is_fixed = not isinstance(shape, st.SearchStrategy)
    wanted: Any = as_shape(shape) if is_fixed else shape

    def draw_array(draw: Any) -> Array:
        seed = draw(st.integers(0, _SEEDS))
        full: tuple[int, ...] = wanted if is_fixed else draw(wanted)
        if is_fixed:
            sizes, starts = _draw_window(draw, st, full)
        else:
            # the array is its own window: a start only chooses which part of the seed's endless array it shows
            sizes, starts = full, tuple(draw(st.integers(0, _SEEDS)) for _ in full)
        window = fill(known, Places(seed, starts, sizes), nan=nan, infinity=infinity)
        # the smallest value of an unsigned format without zero is its smallest positive one
        rest = known.min if representable and isinstance(known, Float) and not known.zero else 0
        return window if sizes == full else _placed(window, starts, full, rest)

    return st.composite(draw_array)()


def _draw_window(draw: Any, st: Any, full: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes: list[int] = []
    starts: list[int] = []
    for size in full:
        # at least 1, so that the window has an element, unless the axis is empty
        sizes.append(min(draw(st.integers(min(size, 1), FULL * size)), size))
        starts.append(draw(st.integers(0, size - sizes[-1])))
    return tuple(sizes), tuple(starts)


def _placed(window: Array, starts: tuple[int, ...], full: tuple[int, ...], rest: float) -> Array:
    array = np.full(full, rest, window.dtype)
    array[tuple(slice(start, start + size) for start, size in zip(starts, window.shape, strict=True))] = window
    return array
