"""Philox4x32-10, addressed by element index.

Source: Salmon, Moraes, Dror, Shaw, SC 2011 (Random123); docs/concepts/random-bits.md for the counter and the fields.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emu.errors import ShapeError

#: Constants of Random123. The keys' increments are the golden ratio's and the square root of 3's fraction in 32 bits.
ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
#: The counter's first word, 32 bits, numbers blocks of elements.
INDEX_LIMIT = 1 << 32
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox4x32(counter: NDArray[np.uint32], key: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the ten-round Philox of counters, shape (4, n), uint32, under one key, shape (2,), uint32."""
    c0, c1, c2, c3 = (c.astype(np.uint64) for c in counter)
    # a key of two words: the low and the high half of the seed
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(ROUNDS):
        # Words of 32 bits in 64: a product of two fits, its halves are the high and the low word.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        # Weyl sequences: a round's key is the one before plus a constant, modulo 2**32
        k0, k1 = (k0 + np.uint64(WEYL[0])) & _LOW, (k1 + np.uint64(WEYL[1])) & _LOW
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def fields_per_block(n_rbits: int) -> int:
    """Return how many elements share the 128 bits of one counter: 4, 8 or 16."""
    return 4 if n_rbits > 16 else 8 if n_rbits > 8 else 16


def random_integers(n: int, n_rbits: int, *, seed: int, stream: int, step: int, draw: int) -> NDArray[np.int64]:
    """Return the random integers of elements 0..n-1: uniform below 2**n_rbits, int64.

    Raises:
        ShapeError: the result needs 2**32 counters or more.
    """
    per_block = _numbered(n, n_rbits)
    fields = _fields(np.arange(-(-n // per_block)), per_block, seed, stream, step, draw)
    # An integer is the highest n_rbits bits of its field.
    return (fields.reshape(-1)[:n] >> np.uint32(128 // per_block - n_rbits)).astype(np.int64)


def random_integers_of(
    elements: NDArray[np.int64], n_rbits: int, *, seed: int, stream: int, step: int, draw: int
) -> NDArray[np.int64]:
    """Return the random integers of the elements of given numbers, any shape: those of `random_integers`.

    Raises:
        ShapeError: a number needs 2**32 counters or more.
    """
    per_block = _numbered(int(elements.max(initial=-1)) + 1, n_rbits)
    blocks, within = np.divmod(elements.reshape(-1), per_block)
    # each counter is computed once, though several elements share it
    counters, row = np.unique(blocks, return_inverse=True)
    fields = _fields(counters, per_block, seed, stream, step, draw).reshape(-1, per_block)
    u = fields[row.reshape(-1), within] >> np.uint32(128 // per_block - n_rbits)
    return u.astype(np.int64).reshape(elements.shape)


def _numbered(n: int, n_rbits: int) -> int:
    """Return how many elements share a counter; raise `ShapeError` if `n` elements need too many counters."""
    per_block = fields_per_block(n_rbits)
    if -(-n // per_block) >= INDEX_LIMIT:
        raise ShapeError(
            f"stochastic rounding numbers fewer than 2**32 blocks of {per_block} elements, got {n} elements; "
            "split the array"
        )
    return per_block


def _fields(
    blocks: NDArray[np.int64], per_block: int, seed: int, stream: int, step: int, draw: int
) -> NDArray[np.uint32]:
    """Return the fields of some counters, (blocks, 4, fields per word)."""
    counter = np.empty((4, blocks.size), np.uint32)
    # block numbers are below 2**32, as `_numbered` has checked
    counter[0] = blocks.astype(np.uint64).astype(np.uint32)
    counter[1], counter[2], counter[3] = draw, stream, step
    words = philox4x32(counter, np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)).T  # (blocks, 4), word 0 lowest
    # Elements share a counter's 128 bits: each has a field of 8, 16 or 32 bits, the lowest field first.
    field_bits = 128 // per_block
    shifts = np.arange(0, 32, field_bits, dtype=np.uint32)
    return (words[:, :, None] >> shifts) & np.uint32((1 << field_bits) - 1)
