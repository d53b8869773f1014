"""The values of a node's codes, and its residuals: for people who look at a run; no bit depends on them.

A code stands for a level. The values that were sent as this code are the level plus their residuals. They are counted
in parts of the tensor's root mean square, so that tensors of any size can be compared in one picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.cluster.codecs import Codec, Memory, Message, Quantiser

Array = NDArray[Any]
#: Bins of a root mean square; the outermost ones also hold what lies beyond.
BINS_PER_RMS, REACH = 8, 4


class CodeCount(NamedTuple):
    """How often a code stood for values of a bin.

    Attributes:
        code: as it travels.
        level: mean of what the code is decoded to, in root mean squares of all values.
        bin: lower end of the values, in root mean squares.
        values: how many.
    """

    code: int
    level: float
    bin: float
    values: int


def code_counts(codec: Codec, message: Message, memory: Memory) -> Iterator[CodeCount]:
    """Yield what the codes of a message stood for; nothing of gradients that are sent as they are.

    Args:
        codec: codec that encoded it.
        message: the newest one.
        memory: what is remembered after it.
    """
    if not isinstance(codec, Quantiser) or not memory.residual.size:
        return
    rows = memory.residual.shape[1]
    codes, levels = codec.codes(message, rows), codec.decode(message, rows)
    with np.errstate(invalid="ignore"):
        values = levels.astype(np.float64) + memory.residual
    finite = np.isfinite(values)
    rms = float(np.sqrt(np.mean(np.square(values[finite])))) if finite.any() else 0.0
    if not 0 < rms < np.inf:
        return
    places = np.floor(np.clip(values[finite] / rms, -REACH, REACH) * BINS_PER_RMS).astype(np.int64)
    places = np.minimum(places, REACH * BINS_PER_RMS - 1)
    pairs, counts = np.unique(np.stack([codes[finite], places]), axis=1, return_counts=True)
    means = {code: float(levels[codes == code].mean(dtype=np.float64)) / rms for code in set(pairs[0].tolist())}
    for (code, place), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        yield CodeCount(code, means[code], place / BINS_PER_RMS, count)


def norm(values: Array) -> float:
    """Return the root of the sum of squares, float64."""
    return float(np.sqrt(np.sum(np.square(values, dtype=np.float64))))
