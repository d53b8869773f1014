"""Gradient codecs of one bit: columns of float32 in memory, beside a copy, byte for byte.

A ratio of 1 means that as many bytes a second cross the memory as when it is copied. What is counted is what must move:

    encode           gradients and residuals are read, residuals, codes and levels written      12.125 bytes a gradient
    decode           codes and levels are read, float32 written                                  4.125
    decode and sum   codes, levels and a sum are read, the sum written                           8.125
    copy             float32 are read and written                                                8
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.measuring.arrays import SEED, aligned
from benchmarks.measuring.limits import streaming_copy
from benchmarks.measuring.row import CodecWork, Prepared, Row, Side
from emu.cluster.codecs import Address, Memory, Quantiser

#: Columns of a row and gradients of a column; columns of a quick look.
COLUMNS, ROWS, QUICK_COLUMNS = 1 << 13, 1 << 11, 1 << 5
BAR, GOAL = 0.9, 1.0


def codec(action: str) -> Callable[[bool], Prepared]:
    """Return what prepares "encode", "decode" or "sum" of columns beside a copy of them."""

    def prepare(quick: bool) -> Prepared:
        gradients = aligned((QUICK_COLUMNS if quick else COLUMNS, ROWS))
        gradients[...] = np.random.default_rng(SEED).standard_normal(gradients.shape, np.float32)
        quantiser, memory = Quantiser(), Memory(aligned(gradients.shape))
        message, total = quantiser.encode(gradients, memory, Address()), aligned(gradients.shape)
        runs: dict[str, tuple[Callable[[], object], int]] = {
            "encode": (lambda: quantiser.encode(gradients, memory, Address()), 3),
            "decode": (lambda: quantiser.decode(message, ROWS), 1),
            "sum": (lambda: quantiser.decode_and_add(message, total), 2),
        }
        run, crossings = runs[action]
        moved = crossings * gradients.nbytes + quantiser.message_bytes(*gradients.shape)
        copied = streaming_copy(gradients.reshape(-1))
        limit = replace(copied, amount=2 * gradients.nbytes)
        return Prepared(CodecWork(gradients, action), Side("emu", run, moved), limit)

    return prepare


def rows() -> list[Row]:
    """Return the rows of one bit."""
    titles = {
        "one-bit-encode": ("encode", "one bit of float32, with residuals"),
        "one-bit-decode": ("decode", "one bit back to float32"),
        "one-bit-decode-and-sum": ("sum", "one bit added to a sum of float32"),
    }
    return [
        Row(
            f"codec/{name}",
            f"{title}, columns of {ROWS}; bytes that must move",
            "GB/s",
            codec(action),
            BAR,
            GOAL,
        )
        for name, (action, title) in titles.items()
    ]
