"""Which examples of a data set without a test set of its own are held out."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from emu.training.data_tables import Labels

#: Names the split; another text would be another split, and change every accuracy.
SPLIT_KEY = "emu test split 1"


def held_out(labels: Labels, count: int) -> NDArray[np.bool_]:
    """Return which examples are held out: each class gives its share, chosen by a fixed key.

    The choice depends on positions and labels alone: examples are ranked by SHA-256 of the key and their position.

    Args:
        labels: labels of all examples.
        count: how many are held out, fewer than there are.
    """
    of = len(labels)
    rank = [hashlib.sha256(f"{SPLIT_KEY}/{i}".encode()).digest() for i in range(of)]
    classes, sizes = np.unique(labels, return_counts=True)
    exact = [int(size) * count for size in sizes]
    quota = [share // of for share in exact]
    # largest remainders first, so that the shares add up to `count`
    by_remainder = sorted(range(len(exact)), key=lambda c: (-(exact[c] % of), c))
    for c in by_remainder[: count - sum(quota)]:
        quota[c] += 1
    chosen = np.zeros(of, dtype=bool)
    for label, share in zip(classes, quota, strict=True):
        members = np.flatnonzero(labels == label)
        chosen[sorted(members, key=lambda i: rank[i])[:share]] = True
    return chosen
