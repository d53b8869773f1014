"""Which numbers of a parameter share levels: its columns, as the wire has them.

    "outputs"    all weights that lead to one output: they lie side by side in memory
    "inputs"     all weights that leave one input

A vector is one line. The sources name columns of a matrix and do not say which way it lies.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Lines = Literal["inputs", "outputs"]


def lines_of(array: Array, lines: Lines) -> Array:
    """Return a parameter, (outputs, inputs, ...), or what is shaped like it, as (lines, numbers of a line)."""
    if array.ndim < 2:
        return array.reshape(1, -1)
    matrix = array.reshape(len(array), -1)
    return np.ascontiguousarray(matrix.T) if lines == "inputs" else matrix


def lines_and_numbers(shape: tuple[int, ...], lines: Lines) -> tuple[int, int]:
    """Return how many lines a parameter of a shape has, and how many numbers each: the shape that `lines_of` gives.

    Examples:
        >>> lines_and_numbers((10, 3, 5, 5), "outputs"), lines_and_numbers((10, 3, 5, 5), "inputs")
        ((10, 75), (75, 10))
    """
    first, *others = shape
    if not others:
        return 1, first
    return (math.prod(others), first) if lines == "inputs" else (first, math.prod(others))


def shaped(found: Array, shape: tuple[int, ...], lines: Lines) -> Array:
    """Return what `lines_of` made lines of, in its own shape again."""
    if len(shape) > 1 and lines == "inputs":
        found = np.ascontiguousarray(found.T)
    return found.reshape(shape)
