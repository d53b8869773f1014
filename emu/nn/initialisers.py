"""Seeded initialisers: uniform numbers from Philox, the same bits on every machine.

he       +- sqrt(6 / fan_in)                for layers before relu       He et al., ICCV 2015
xavier   +- sqrt(6 / (fan_in + fan_out))    for sigmoid, tanh, outputs   Glorot & Bengio, AISTATS 2010
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from emu.backends.reference.philox import random_integers
from emu.datapath import stream_of
from emu.errors import ConfigError, nearest_name
from emu.formats.integers import as_integer

__all__ = ["INITIALISERS", "initialise"]

Initialiser = Literal["he", "xavier", "zero", "one"]
INITIALISERS: tuple[Initialiser, ...] = ("he", "xavier", "zero", "one")
RANDOM_BITS = 32


def initialise(
    name: str, kind: str, shape: tuple[int, ...], fan_in: int, fan_out: int, seed: int
) -> NDArray[np.float64]:
    """Return the initial values of a parameter.

    Args:
        name: name of the parameter, which chooses its random stream.
        kind: he, xavier, zero or one.
        shape: shape of the parameter.
        fan_in: inputs that contribute to one output.
        fan_out: outputs to which one input contributes.
        seed: seed of the run, taken modulo 2**64, as that of every source of random bits.

    Returns:
        float64, shape `shape`, uniform in +-bound, symmetric, never 0 for he and xavier.

    Raises:
        ConfigError: no such initialiser, or a size or the seed is not an integer.
    """
    sizes: Any = shape if hasattr(shape, "__iter__") else (shape,)
    shape = tuple(as_integer("shape", size, 0, error=ConfigError) for size in sizes)
    fan_in, fan_out, seed = (
        as_integer(item, value, least, error=ConfigError)
        for item, value, least in (("fan_in", fan_in, 1), ("fan_out", fan_out, 0), ("seed", seed, None))
    )
    if kind not in INITIALISERS:
        raise ConfigError(
            f"`initialiser` must be one of the known ones, got {kind!r}{nearest_name(kind, INITIALISERS)}"
        )
    if kind in ("zero", "one"):
        return np.full(shape, float(kind == "one"))
    bound = math.sqrt(6.0 / (fan_in if kind == "he" else fan_in + fan_out))
    # the stream follows from the name: another layer in between changes no other parameter
    address = {"seed": seed % 2**64, "stream": stream_of(name, "initial"), "step": 0, "draw": 0}
    u = random_integers(math.prod(shape), RANDOM_BITS, **address)
    # odd multiples of 2**-32 in (-1, 1): symmetric, never 0, and exact in float64
    uniform = (2 * u + 1) * 2.0**-RANDOM_BITS - 1.0
    return np.asarray(uniform * bound, dtype=np.float64).reshape(shape)
