"""Which values a node's codes stand for, and its residuals, for the report: no bit depends on them.

A code stands for a level. The values that were sent as this code are the level plus their residuals. They are counted
in units of the tensor's root mean square, so that tensors of any size can be compared in one picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.codecs import BYTE_BITS
from emu.cluster.codecs import Codec, Memory, Message, Quantiser

Array = NDArray[Any]
#: Bins per root mean square, and how many root mean squares they reach to both sides; the last ones have all beyond.
BINS_PER_RMS, REACH = 8, 4


class CodeCount(NamedTuple):
    """How often a code stood for values of a bin.

    Attributes:
        code: the code in the message.
        level: mean of the levels that the code is decoded to, in root mean squares of all values.
        bin: lower end of the bin, in root mean squares.
        values: number of values.
    """

    code: int
    level: float
    bin: float
    values: int


def code_counts(codec: Codec, message: Message, memory: Memory) -> Iterator[CodeCount]:
    """Yield which values the codes of a message stood for; nothing of more than 8 bits, which no picture shows.

    Args:
        codec: codec that encoded the message.
        message: the newest message.
        memory: memory after the message.
    """
    if not isinstance(codec, Quantiser) or codec.bits > BYTE_BITS or not memory.residual.size:
        return
    rows = memory.residual.shape[1]
    codes, levels = codec.codes(message, rows), codec.decode(message, rows)
    with np.errstate(invalid="ignore"):
        # the values before encoding: level plus what it did not express
        values = levels.astype(np.float64) + memory.newest_residual
    finite = np.isfinite(values)
    rms = float(np.sqrt(np.mean(np.square(values[finite])))) if finite.any() else 0.0
    if not 0 < rms < np.inf:
        return
    bins = np.floor(np.clip(values[finite] / rms, -REACH, REACH) * BINS_PER_RMS).astype(np.int64)
    # the upper end itself belongs to the last bin
    bins = np.minimum(bins, REACH * BINS_PER_RMS - 1)
    pairs, counts = np.unique(np.stack([codes[finite], bins]), axis=1, return_counts=True)
    means = {code: float(levels[codes == code].mean(dtype=np.float64)) / rms for code in set(pairs[0].tolist())}
    for (code, bin_), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        yield CodeCount(code, means[code], bin_ / BINS_PER_RMS, count)


def norm(values: Array) -> float:
    """Return the root of the sum of squares, float64."""
    return float(np.sqrt(np.sum(np.square(values, dtype=np.float64))))
