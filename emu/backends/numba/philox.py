"""Philox4x32-10 by element index, one block at a time. Source: docs/concepts/random-bits.md; Salmon et al., SC 2011."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.backends.numba.compiling import kernel


def signed(seed: int) -> int:
    """Return the same 64 bits as a signed integer: kernels take int64."""
    return seed - (seed >> 63 << 64)


@kernel
def fill_random(u: Any, start: int, n: int, n_rbits: int, seed: int, stream: int, step: int, draw: int) -> None:
    """Write the random integers of elements start..start+n-1 into u[0..n-1]; `start` is a multiple of 16."""
    # As in `reference/philox.py`: words of 32 bits in 64, so that a product of two fits. A start at a multiple of 16 is
    # the first field of a counter, however many share one.
    per_block = 4 if n_rbits > 16 else (8 if n_rbits > 8 else 16)
    field_bits = 128 // per_block
    per_word = per_block // 4
    mask = np.uint64((1 << field_bits) - 1)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    drop = np.uint64(field_bits - n_rbits)
    words = np.empty(4, np.uint64)
    for block in range((n + per_block - 1) // per_block):
        c0 = np.uint64(start // per_block + block) & low
        c1 = np.uint64(draw)
        c2 = np.uint64(stream)
        c3 = np.uint64(step)
        k0 = np.uint64(seed) & low
        k1 = np.uint64(seed) >> half
        for _ in range(10):
            # The multipliers, and below what is added to the keys after each round, are Philox4x32's constants.
            p0 = c0 * np.uint64(0xD2511F53)
            p1 = c2 * np.uint64(0xCD9E8D57)
            c0 = (p1 >> half) ^ c1 ^ k0
            c1 = p1 & low
            c2 = (p0 >> half) ^ c3 ^ k1
            c3 = p0 & low
            k0 = (k0 + np.uint64(0x9E3779B9)) & low
            k1 = (k1 + np.uint64(0xBB67AE85)) & low
        words[0] = c0
        words[1] = c1
        words[2] = c2
        words[3] = c3
        for j in range(per_block):
            index = block * per_block + j
            if index < n:
                # Fields are taken from the lowest bits of the first word on; of each, the highest `n_rbits` bits.
                field = (words[j // per_word] >> np.uint64((j % per_word) * field_bits)) & mask
                u[index] = np.int64(field >> drop)
