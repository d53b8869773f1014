"""Sparse examples from a text: inputs are the n-grams before a byte, hashed to columns; that byte is the label.

    text      ... t h e   c a t    bytes n, distance, c a t  ──► FNV-1a, 64 bits ──► mod columns: one more there
                  └ reach bytes ┘└ label

Source of the hash: Fowler, Noll, Vo, Eastlake, "The FNV non-cryptographic hash algorithm": FNV-1a, 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.sparse import CSR
from emu.training.data.sequences import text_parts
from emu.training.data_tables import Arrays, Labels, Ngrams

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
#: FNV-1a of 64 bits: the hash of no bytes, and the factor after each byte.
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
#: Examples whose n-grams are hashed together: with the 50 n-grams of the default table, 6.6 MB of columns.
BLOCK = 1 << 14


def ngram_examples(spec: Ngrams, columns: int) -> tuple[Arrays, str]:
    """Return sparse examples of a text with the byte after each, to train and to test, and their description.

    Args:
        spec: the text, and its n-grams.
        columns: number of columns that n-grams are hashed to.

    Raises:
        ConfigError: the file is missing, or too short for an example on either side.
    """
    parts, title = text_parts(spec.source, spec.test_share, spec.reach, "`reach` of [data]")
    (train, labels), (test, test_labels) = (_examples(part, spec, columns) for part in parts)
    source = (
        f"{title}: {len(train)} bytes to train, {len(test)} to test; of the {spec.reach} bytes before each, n-grams of "
        f"1 to {spec.longest} bytes in {columns} columns"
    )
    return (train, labels, test, test_labels), source


def fnv1a(bytes_: Array) -> NDArray[np.uint64]:
    """Return FNV-1a, 64 bits, of the bytes along the last axis.

    Examples:
        >>> hex(int(fnv1a(np.frombuffer(b"foobar", np.uint8))))
        '0x85944171f73967e8'
    """
    # FNV-1a: exclusive or with the byte first, then the product
    state = np.full(bytes_.shape[:-1], FNV_OFFSET, np.uint64)
    with np.errstate(over="ignore"):  # the product is modulo 2**64; NumPy warns about scalars only
        for index in range(bytes_.shape[-1]):
            state = (state ^ bytes_[..., index].astype(np.uint64)) * np.uint64(FNV_PRIME)
    return state


def ngram_columns(windows: Bytes, longest: int, columns: int) -> NDArray[np.int64]:
    """Return the column of each n-gram of each window, (windows, n-grams).

    They are ordered by n, then by distance: 1 for the n-gram that ends with the window's last byte, 2 for the one that
    ends a byte before, ...

    Args:
        windows: (windows, reach).
        longest: bytes of the longest n-grams.
        columns: number of columns that they are hashed to.
    """
    count, reach = windows.shape
    hashed: list[NDArray[np.int64]] = []
    for n in range(1, longest + 1):
        for distance in range(1, reach - n + 2):
            end = reach - distance + 1
            # length and distance are hashed as well, so the same bytes elsewhere in the window are another n-gram. Both
            # fit a byte, because `reach` is at most 255
            keys = np.empty((count, n + 2), np.uint8)
            keys[:, 0], keys[:, 1], keys[:, 2:] = n, distance, windows[:, end - n : end]
            hashed.append((fnv1a(keys) % np.uint64(columns)).astype(np.int64))
    return np.stack(hashed, axis=1)


def _examples(text: Bytes, spec: Ngrams, columns: int) -> tuple[CSR, Labels]:
    # (examples, reach + 1): what an example reads, and its label at the end
    windows = np.lib.stride_tricks.sliding_window_view(text, spec.reach + 1)[:: spec.stride]
    data: list[Array] = []
    indices: list[Array] = []
    counts: list[Array] = []
    dtype = np.int32 if columns < 2**31 else np.int64
    for begin in range(0, len(windows), BLOCK):
        # (examples of the block, n-grams): equal columns are neighbours now; n-grams whose
        # hashes collide are counted together
        ascending = np.sort(ngram_columns(windows[begin : begin + BLOCK, :-1], spec.longest, columns), axis=1)
        is_first = np.ones(ascending.shape, bool)
        is_first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
        # from the first of a column to the first of the next: how often the column occurs. Each row begins with a
        # first, so no count crosses rows
        data.append(np.diff(np.flatnonzero(is_first), append=ascending.size).astype(np.float32))
        indices.append(ascending[is_first].astype(dtype))
        counts.append(is_first.sum(axis=1))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
    # unchecked: counts are integers of at most 255 * 256 / 2, which fp32 holds exactly
    matrix = CSR.of(np.concatenate(data), np.concatenate(indices), starts, (len(windows), columns), "fp32", check=False)
    return matrix, windows[:, -1].astype(np.int64)
