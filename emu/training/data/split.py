"""The test examples of a data set that has no test set of its own."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from emu.training.data_tables import Labels

#: Key of the split; another text would give another split, and change all accuracies.
SPLIT_KEY = "emu test split 1"


def held_out(labels: Labels, count: int) -> NDArray[np.bool_]:
    """Return a mask of the examples that are held out: from each class its share, chosen by a fixed key.

    The choice depends only on positions and labels: examples are ranked by SHA-256 of the key and their position.

    Args:
        labels: labels of all examples.
        count: number of examples to hold out, fewer than there are.
    """
    total = len(labels)
    # a hash needs no generator: the order is the same for every version of NumPy and Python
    rank = [hashlib.sha256(f"{SPLIT_KEY}/{i}".encode()).digest() for i in range(total)]
    classes, sizes = np.unique(labels, return_counts=True)
    exact = [int(size) * count for size in sizes]  # times `total`: integers, so that no share is rounded
    quota = [share // total for share in exact]
    # largest remainders first, so that the shares add up to `count`
    by_remainder = sorted(range(len(exact)), key=lambda c: (-(exact[c] % total), c))
    for c in by_remainder[: count - sum(quota)]:
        # `count` is below `total`, so a class's share is below its size: rounded up, it is at most the whole class
        quota[c] += 1
    chosen = np.zeros(total, dtype=bool)
    for label, share in zip(classes, quota, strict=True):
        members = np.flatnonzero(labels == label)
        chosen[sorted(members, key=lambda i: rank[i])[:share]] = True
    return chosen
