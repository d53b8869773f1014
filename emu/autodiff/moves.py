"""Primitives that move numbers: other shapes, other orders, several arrays in one, parts of an array.

What only moves is done here, on the array. Joined arrays, and the border around one, are operations: all numbers of
their result have one format.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff.context import Backward, Context, Primitive, reshaped, summed_to
from emu.backends.arrays import namespace
from emu.errors import ShapeError
from emu.formats import Value


def _reshape(c: Context, x: Value) -> Value:
    return reshaped(x, c.options["shape"])


def _flatten(c: Context, x: Value) -> Value:
    return reshaped(x, (x.shape[0], math.prod(x.shape[1:])))


def _reshape_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return reshaped(g, x.shape)


def _transpose(c: Context, x: Value) -> Value:
    return x.with_array(x.array.transpose(c.options["axes"]))


def _transpose_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    axes = c.options["axes"]
    # `sorted` gives the inverse permutation: where each axis of the operand went
    return g.with_array(g.array.transpose(sorted(range(len(axes)), key=lambda i: axes[i])))


def _expand(c: Context, x: Value) -> Value:
    return x.with_array(namespace(x.array).broadcast_to(x.array, c.options["shape"]))


def _expand_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    return summed_to(c, g, x.shape, "operand0")


def _concatenate(c: Context, *operands: Value) -> Value:
    return c.run("concatenate", *operands, axis=c.options["axis"])


def _part_of(position: int) -> Backward:
    """Return the way back of an operand of `concatenate`: its part of the gradient."""

    def rule(c: Context, g: Value, y: Value, *operands: Value) -> Value:
        axis: int = c.options["axis"]
        first = sum(x.shape[axis] for x in operands[:position])
        return g.with_array(g.array[_along(axis, slice(first, first + operands[position].shape[axis]))])

    return rule


def _along(axis: int, index: Any) -> tuple[Any, ...]:
    return (slice(None),) * axis + (index,)


def _surround(c: Context, x: Value) -> Value:
    return c.run("surround", x, **c.options)


def _surround_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    sides = zip(x.shape, c.options["pads"], strict=True)
    # the border is constant: what arrives there is dropped
    return g.with_array(g.array[tuple(slice(before, before + size) for size, (before, _) in sides)])


def _places_of(c: Context) -> NDArray[np.int64]:
    return np.asarray(c.options["places"], np.int64)


def _take(c: Context, x: Value) -> Value:
    """Elements at constant places along an axis, counted from its end where they are below 0; places may repeat."""
    places, axis = _places_of(c), int(c.options["axis"])
    size = x.shape[axis]
    wrong = places[(places < -size) | (places >= size)]
    if wrong.size:
        rule = f"lie in {-size}..{size - 1} for" if size else "be none for"
        raise ShapeError(
            f"`places` must {rule} axis {axis} of shape {x.shape}, got {wrong[0]}; choose some that it has"
        )
    return x.with_array(x.array[_along(axis, namespace(x.array).asarray(places))])


def _take_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    """Gradients at their places, added where a place repeats, +0 elsewhere."""
    axis = int(c.options["axis"])
    # counted from the front: -1 and the last place are the same one
    places = _places_of(c) % x.shape[axis]
    xp = namespace(g.array)
    # the axes of `places` become one
    flat = g.array.reshape((*x.shape[:axis], places.size, *x.shape[axis + 1 :]))
    # without repeats each place gets at most one gradient: nothing is added, so nothing rounds
    if np.unique(places).size == places.size:
        whole = xp.zeros(x.shape, g.array.dtype)
        whole[_along(axis, xp.asarray(places.reshape(-1)))] = flat
        return g.with_array(whole)
    table = _sources(places.reshape(-1), x.shape[axis])
    # the table has as many columns as the fullest place gets gradients; the other places are filled up with +0, one
    # more element behind the gradients
    border = xp.zeros((*flat.shape[:axis], 1, *flat.shape[axis + 1 :]), g.array.dtype)
    # index `places.size` is this element
    padded = xp.concatenate([flat, border], axis=axis)
    gathered = g.with_array(padded[_along(axis, xp.asarray(table))])
    # (..., size, most repeats, ...): sums along the new axis, as the layer's unit adds
    return c.run("sum", gathered, axis=(axis + 1,))


def _sources(places: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return which gradients go to each of `size` places: (size, most repeats), `places.size` for none."""
    # gradients of a place stand in the order of `places`: the order in which they are added
    table = np.full((size, int(np.bincount(places).max())), places.size)
    filled = np.zeros(size, np.int64)
    for source, place in enumerate(places):
        table[place, filled[place]] = source
        filled[place] += 1
    return table


#: The primitives by name.
MOVES: dict[str, Primitive] = {
    "reshape": Primitive(_reshape, (_reshape_back,)),
    "flatten": Primitive(_flatten, (_reshape_back,)),
    "transpose": Primitive(_transpose, (_transpose_back,)),
    "expand": Primitive(_expand, (_expand_back,)),
    "concatenate": Primitive(_concatenate, _part_of),
    "surround": Primitive(_surround, (_surround_back,)),
    "take": Primitive(_take, (_take_back,)),
}
