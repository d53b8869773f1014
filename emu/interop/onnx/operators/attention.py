"""Attention: products of queries with keys, shares of them, sums of values; every intermediate result has a format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.interop.onnx.node import Known, Node, Tensor, Traced

Array = NDArray[Any]
#: Operands beside queries, keys and values.
_MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = 3, 4, 5, 6


def _attention(node: Node) -> Sequence[Tensor]:
    """Softmax(q k^T scale + mask) v, both factors times the root of the scale, as the standard has it.

    Operands are (n, heads, length, size), or (n, length, heads * size). Heads of keys serve several of queries.
    """
    given = [node.traced(i) for i in range(3)]
    is_flat = len(given[0].shape) == 3
    heads = [int(node.get(name, 0)) or given[0].shape[1] for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    q, k, v = (
        _with_heads(node, x, count, part) if is_flat else x
        for x, count, part in zip(given, heads, ("q", "k", "v"), strict=True)
    )
    k, v = _after(node, _PAST_KEY, k, "keys"), _after(node, _PAST_VALUE, v, "values")
    present = [k, v]
    if q.shape[1] != k.shape[1]:
        # each head of keys and values serves as many neighbouring heads of queries
        serving = np.repeat(np.arange(k.shape[1]), q.shape[1] // k.shape[1])
        k, v = (node.apply("take", x, part=part, axis=1, places=serving) for x, part in ((k, "k_each"), (v, "v_each")))
    # the root, because both factors are multiplied by it; in float32, as the standard casts it
    scale = float(np.float32(math.sqrt(float(node.get("scale", 0.0)) or 1 / math.sqrt(q.shape[-1]))))
    left = node.apply("multiply", q, scale, part="q_scaled")
    right = node.transposed(node.apply("multiply", k, scale, part="k_scaled"), (0, 1, 3, 2), part="k_columns")
    raw = scores = node.apply("matmul", left, right, part="scores")
    cap = float(node.get("softcap", 0.0))
    # before the mask is added: a cap would make minus infinity finite, so that hidden keys had shares
    if cap:
        bent = node.apply("tanh", node.apply("divide", scores, cap, part="capped_share"), part="capped_tanh")
        scores = node.apply("multiply", bent, cap, part="capped")
    capped, bias = scores, _mask(node, scores.shape, k.shape[2] - given[1].shape[-2])
    if bias is not None:
        scores = node.apply("add", scores, bias, part="masked")
    shares = node.apply("softmax", scores, part="shares", scale=1.0, causal=False)
    y = node.apply("matmul", shares, v)
    # what `qk_matmul_output_mode` 0..3 asks for
    told = (raw, capped, scores, shares)[int(node.get("qk_matmul_output_mode", 0))]
    if is_flat:
        n, count, length, size = y.shape
        y = node.reshaped(
            node.transposed(y, (0, 2, 1, 3), part="lengths_first"), (n, length, count * size), part="flat"
        )
    # outputs that nobody reads are left out
    return [y, *present, told][: node.output_count]


def _with_heads(node: Node, x: Traced, heads: int, part: str) -> Traced:
    n, length, width = x.shape
    split = node.reshaped(x, (n, length, heads, width // heads), part=f"{part}_heads")
    return node.transposed(split, (0, 2, 1, 3), part=f"{part}_lengths")


def _after(node: Node, index: int, x: Traced, part: str) -> Traced:
    """Return keys or values behind those of earlier passes, if there are any."""
    past = node.given(index)
    return x if past is None else node.apply("concatenate", past, x, part=part, axis=2)


def _mask(node: Node, shape: tuple[int, ...], before: int) -> Tensor | None:
    """Return what is added to scores: the mask, and minus infinity for keys that a query must not see.

    Args:
        node: the node.
        shape: of the scores.
        before: how many keys are of earlier passes.

    Raises:
        Refused: a query sees no key, so that its shares would be NaN; or lengths that the network computes.
    """
    given, bias = node.given(_MASK), _unseen(node, shape, before)
    if isinstance(given, Traced):
        # only a constant mask is padded with minus infinity, below
        if given.shape[-1] != shape[-1]:
            raise node.refuse(f"have a mask of {shape[-1]} keys", given.shape, "pad the mask in the network")
        return given if bias is None else node.apply("add", given, Known(bias), part="mask")
    if given is not None:
        array = given.array
        # a mask of booleans says which keys are seen
        own = np.where(array, np.float32(0), np.float32(-np.inf)) if array.dtype == bool else array.astype(np.float32)
        # keys beyond a short mask are hidden
        short = shape[-1] - own.shape[-1]
        if short > 0:
            own = np.pad(own, [(0, 0)] * (own.ndim - 1) + [(0, short)], constant_values=-np.inf)
        bias = own if bias is None else own + bias
    if bias is None:
        return None
    # softmax of a row of minus infinities is 0 / 0
    if np.isneginf(bias).all(axis=-1).any():
        raise node.refuse("let every query see a key", "a row of the mask that hides all", "leave such queries out")
    return Known(bias)


def _unseen(node: Node, shape: tuple[int, ...], before: int) -> Array | None:
    """Return minus infinity for keys after a query, outside its window, or beyond the lengths; None if all are seen."""
    lengths, (queries, keys) = node.constant(_LENGTHS), shape[-2:]
    left, right = (int(node.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    is_causal = bool(node.get("is_causal", 0))
    if lengths is None and not is_causal and max(left, right) < 0:
        return None
    # the place of the first query among the keys
    offset: Any = before
    if lengths is not None and not before:
        # without earlier passes, the queries are the last of `lengths` keys; (n, 1, 1, 1)
        offset = lengths.reshape(-1, 1, 1, 1) - queries
    behind = np.arange(keys) - (np.arange(queries)[:, None] + offset)  # how far a key lies after a query's own
    hidden = np.zeros(behind.shape, bool)
    if is_causal:
        hidden |= behind > 0
    if left >= 0:
        hidden |= -behind > left
    if right >= 0:
        hidden |= behind > right
    if lengths is not None:
        hidden = hidden | (np.arange(keys) >= lengths.reshape(-1, 1, 1, 1))
    return np.where(hidden, np.float32(-np.inf), np.float32(0))


ROWS = {"Attention": _attention}
