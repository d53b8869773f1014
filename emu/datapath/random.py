"""Sources of the random bits of stochastic rounding and of seeded choices: descriptions, not generators.

Philox4x32-10 is addressed, not stepped. The bits of element `index` depend only on (seed, stream, step, draw, index),
so they are the same for all tiles, threads and backends. Recorded bits and those of an `LFSR` belong to elements as
well.

Source: docs/concepts/random-bits.md; Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
2011.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.datapath.lfsr import LFSR
from emu.formats.integers import as_integer


@dataclass(frozen=True)
class Philox:
    """Counter-based random bits.

    Attributes:
        seed: the run's seed, modulo 2**64: the key.
        stream: number of the layer and role that draw, modulo 2**32; see `stream_of`.
        step: the training step, modulo 2**32.
        draw: which draw of the operation, 0..2**32-1: 0 the output stage, then those inside a Mac.

    Raises:
        FormatError: one of them is not an integer, or `draw` is beyond its range.
    """

    seed: int = 0
    stream: int = 0
    step: int = 0
    draw: int = 0

    def __post_init__(self) -> None:
        # any integers: they are taken modulo 2**64 and 2**32 when they are encoded for kernels
        for name in ("seed", "stream", "step"):
            object.__setattr__(self, name, as_integer(name, getattr(self, name)))
        # a draw is not reduced modulo 2**32, so that its range is checked
        object.__setattr__(self, "draw", as_integer("draw", self.draw, 0, 2**32 - 1))


@dataclass(frozen=True, eq=False)
class RecordedBits:
    """Random bits given by the caller.

    Attributes:
        bits: uint32, the shape of the result; each below 2**n_rbits.
    """

    bits: NDArray[np.uint32] | NDArray[Any]


RandomSource: TypeAlias = Philox | RecordedBits | LFSR


def stream_of(layer: str, role: str, node: int = 0) -> int:
    """Return the stream number of a layer's role on a node.

    It is the first 4 bytes of SHA-256("layer/role@node"), little-endian.

    Examples:
        >>> stream_of("conv1", "activation")
        1198927681
    """
    name = f"{layer}/{role}@{as_integer('node', node, 0)}"
    # a hash of the name, so that a layer more or less moves no other layer's stream
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
