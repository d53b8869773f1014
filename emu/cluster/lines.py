"""The lines of a parameter: its numbers that share levels on a wire.

    "outputs"    all weights that lead to one output: they are neighbours in memory
    "inputs"     all weights that leave one input

A vector is one line. The sources speak of columns of a matrix, and do not say which of the two they are.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Lines = Literal["inputs", "outputs"]


def lines_of(array: Array, lines: Lines) -> Array:
    """Return an array of a parameter's shape, (outputs, inputs, ...), as (lines, numbers of a line)."""
    if array.ndim < 2:
        return array.reshape(1, -1)
    matrix = array.reshape(len(array), -1)
    # codecs need the numbers of a line as neighbours in memory
    return np.ascontiguousarray(matrix.T) if lines == "inputs" else matrix


def lines_and_numbers(shape: tuple[int, ...], lines: Lines) -> tuple[int, int]:
    """Return how many lines a parameter of a shape has, and how many numbers each has: the shape that `lines_of` gives.

    Examples:
        >>> lines_and_numbers((10, 3, 5, 5), "outputs"), lines_and_numbers((10, 3, 5, 5), "inputs")
        ((10, 75), (75, 10))
    """
    first, *others = shape
    # a vector is one line of all its numbers, as in `lines_of`
    if not others:
        return 1, first
    return (math.prod(others), first) if lines == "inputs" else (first, math.prod(others))


def shaped(array: Array, shape: tuple[int, ...], lines: Lines) -> Array:
    """Return the array of a parameter's shape from which `lines_of` made lines."""
    if len(shape) > 1 and lines == "inputs":
        array = np.ascontiguousarray(array.T)
    return array.reshape(shape)
