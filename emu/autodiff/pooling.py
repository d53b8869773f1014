"""Primitives of pooling: the largest value, or the mean, of windows that slide over images.

Both have the options `window`, `stride`, `padding` and `dilation`, each for rows and columns. The border of `max_pool`
is below every number, so that it is never chosen. `avg_pool` divides by the number of elements that count: those of
the image, with `counts_padding` those of the padding too, but never those `beyond`, with which the last windows end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.autodiff.context import Context, Primitive
from emu.backends.arrays import namespace
from emu.engine.sliding import Pair, Sliding
from emu.formats import Value
from emu.operations.selections import sliding, windows_of


def _max_pool(c: Context, x: Value) -> Value:
    result = c.run("max_pool", x, **c.options)
    c.saved = result.array[1]
    return result.with_array(result.array[0])


def _max_pool_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    # each element of the image lies in one window at most: a gradient is moved, and nothing is added
    if not _overlap(c.options):
        return c.run("unpool", g, x, saved=c.saved, **c.options)
    xp = namespace(g.array)
    zero = xp.zeros((), g.array.dtype)
    # `saved` is the index of the chosen element in its window: everything else gets +0
    return _spread(c, g, x.shape, lambda position: xp.where(c.saved == position, g.array, zero))


def _overlap(options: Mapping[str, Any]) -> bool:
    """Return whether windows share elements, or might: those with gaps count as if they had none."""
    # windows with gaps may overlap without sharing an element; they are added up then, with zeros
    extent = sliding(options).extent(options["window"])
    return any(step < size for step, size in zip(options["stride"], extent, strict=True))


def _spread(c: Context, g: Value, shape: tuple[int, ...], values_at: Callable[[int], Any]) -> Value:
    """Return pooled gradients spread over their windows, and added if windows overlap.

    Args:
        c: context of the rule.
        g: gradient of the pooled image.
        shape: shape of the image.
        values_at: returns the gradients that go to one position of each window.
    """
    how, window = sliding(c.options), c.options["window"]
    (above, below), (left, right) = how.padding
    xp = namespace(g.array)
    rows, columns = g.shape[2:]
    overlapping = _overlap(c.options)
    count = window[0] * window[1]
    # positions are those of the image with its border, which is cut off before gradients are added
    padded = (*shape[:2], above + shape[2] + below, left + shape[3] + right)
    # (positions or 1, N, C, H, W): overlapping windows write one layer each, so that no write meets another
    spread = xp.zeros((count if overlapping else 1, *padded), dtype=g.array.dtype)
    for position in range(count):
        i, j = (place * apart for place, apart in zip(divmod(position, window[1]), how.dilation, strict=True))
        down, along = how.stride
        target = spread[position if overlapping else 0]
        target[:, :, i : i + down * (rows - 1) + 1 : down, j : j + along * (columns - 1) + 1 : along] = values_at(
            position
        )
    spread = spread[:, :, :, above : above + shape[2], left : left + shape[3]]
    if not overlapping:
        return g.with_array(spread[0])
    # an element's gradients are added in the order of its positions in the windows
    return c.run("sum", g.with_array(spread), axis=(0,))


@dataclass(frozen=True, eq=False)
class _Counted:
    """The windows whose elements of a certain number count.

    Attributes:
        count: how many elements count.
        windows: places of the windows among all, row by row.
        elements: places of the elements in the padded image, (windows, count).
    """

    count: int
    windows: NDArray[np.int64]
    elements: NDArray[np.int64]


def _counted(options: Mapping[str, Any], image: Pair) -> list[_Counted] | None:
    """Return windows by the number of their elements that count; None if all elements of all windows do."""
    how, window = sliding(options), options["window"]
    inside = [
        list(_inside(*parts, counts_padding=options.get("counts_padding", True)))
        for parts in zip(
            image, how.padding, window, how.stride, how.dilation, options.get("beyond", (0, 0)), strict=True
        )
    ]
    # the usual case: every window has `count` elements, and one mean computes all of them
    if all(len(elements) == size for axis, size in zip(inside, window, strict=True) for elements in axis):
        return None
    width = image[1] + sum(how.padding[1])
    by_count: dict[int, tuple[list[int], list[NDArray[np.int64]]]] = {}
    # rows and columns count apart: a window's elements are their product
    for place, (rows, columns) in enumerate((r, k) for r in inside[0] for k in inside[1]):
        windows, elements = by_count.setdefault(len(rows) * len(columns), ([], []))
        windows.append(place)
        # offsets in the padded image, row by row
        elements.append((np.array(rows)[:, None] * width + np.array(columns)).reshape(-1))
    # sorted, so that parts are named and computed in the same order in each run
    return [_Counted(n, np.array(windows), np.stack(elements)) for n, (windows, elements) in sorted(by_count.items())]


def _inside(
    size: int, padding: Pair, window: int, stride: int, apart: int, beyond: int, *, counts_padding: bool
) -> Iterator[list[int]]:
    """Yield, for each window along an axis, the places of its elements that count."""
    first, end = (0, sum(padding) + size - beyond) if counts_padding else (padding[0], padding[0] + size)
    for begin in range(0, sum(padding) + size - (window - 1) * apart, stride):
        yield [place for place in range(begin, begin + window * apart, apart) if first <= place < end]


def _avg_pool(c: Context, x: Value) -> Value:
    # windows at the border, of which fewer elements count, are averaged apart: a mean has one divisor
    parts = _counted(c.options, (x.shape[2], x.shape[3]))
    if parts is None:
        return c.run("average", x.with_array(windows_of(x.array, c.options)))
    how, xp = sliding(c.options), namespace(x.array)
    sizes = how.sizes((x.shape[2], x.shape[3]), c.options["window"])
    padded = how.padded(x.array)
    flat = padded.reshape(*x.shape[:2], padded.shape[2] * padded.shape[3])
    means: list[Value] = []
    for part in parts:
        # (N, C, windows, count): elements gathered by their places
        chosen = x.with_array(flat[:, :, xp.asarray(part.elements)])
        means.append(c.run("average", chosen, part=f"count{part.count}"))
    # back to the order of the windows: places of the parts are a permutation of all
    order = np.argsort(np.concatenate([part.windows for part in parts]))
    whole = xp.concatenate([mean.array for mean in means], axis=2)[:, :, xp.asarray(order)]
    return means[0].with_array(whole.reshape(*x.shape[:2], *sizes))


def _avg_pool_back(c: Context, g: Value, y: Value, x: Value) -> Value:
    window, how = c.options["window"], sliding(c.options)
    parts = _counted(c.options, (x.shape[2], x.shape[3]))
    if parts is not None:
        share = _shares(c, g, parts)
        return _spread(c, share, x.shape, lambda _: share.array)
    share = c.run("divide_by", g, part="share", divisor=window[0] * window[1])
    # windows side by side, without border: each number is repeated, no sum is needed
    if how == Sliding(window):
        return _tiled(share, x.shape, window)
    return _spread(c, share, x.shape, lambda _: share.array)


def _shares(c: Context, g: Value, parts: list[_Counted]) -> Value:
    """Return what each element of a window gets of its gradient."""
    xp = namespace(g.array)
    flat = g.array.reshape(*g.shape[:2], g.shape[2] * g.shape[3])
    shares = [
        c.run(
            "divide_by", g.with_array(flat[:, :, xp.asarray(part.windows)]), part=f"share{part.count}",
            divisor=part.count,
        )
        for part in parts
    ]  # fmt: skip
    order = np.argsort(np.concatenate([part.windows for part in parts]))
    whole = xp.concatenate([share.array for share in shares], axis=2)[:, :, xp.asarray(order)]
    return shares[0].with_array(whole.reshape(g.shape))


def _tiled(share: Value, shape: tuple[int, ...], window: Pair) -> Value:
    """Repeat each number over its window; windows are next to each other, and the rest of the image is +0."""
    xp, (rows, columns) = namespace(share.array), share.shape[2:]
    seen = share.array[:, :, :, None, :, None]
    # (N, C, rows, KH, columns, KW): a view, which the reshape copies once
    tiles = xp.broadcast_to(seen, (*share.shape[:3], window[0], columns, window[1]))
    tiled = tiles.reshape(*share.shape[:2], rows * window[0], columns * window[1])
    if tiled.shape == shape:
        return share.with_array(tiled)
    spread = xp.zeros(shape, dtype=tiled.dtype)
    spread[:, :, : rows * window[0], : columns * window[1]] = tiled
    return share.with_array(spread)


#: The primitives by name.
POOLING: dict[str, Primitive] = {
    "max_pool": Primitive(_max_pool, (_max_pool_back,)),
    "avg_pool": Primitive(_avg_pool, (_avg_pool_back,)),
}
