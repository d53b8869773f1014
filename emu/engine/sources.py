"""The source of an operation's random bits: checked, and turned into the numbers that a kernel takes.

    random=Philox(...)         addressed by element: kernels draw
    random=RecordedBits(...)   one integer per element of the result, as `rbits=` gives them
    random=LFSR(...)           a register's bits in C order of the result: recorded bits, drawn here

Source: docs/concepts/random-bits.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import RandomCode, encode_random
from emu.datapath import LFSR, Mac, OutputStage, Philox, RandomSource, RecordedBits
from emu.errors import FormatError, ShapeError

Array = NDArray[Any]


def source_of(random: object, rbits: Array | None, seed: int, stream: int, step: int) -> RandomSource:
    """Return the source that a call's options name.

    Raises:
        FormatError: `random` is not a source, or not the only one.
    """
    if random is None:
        return Philox(seed, stream, step) if rbits is None else RecordedBits(rbits)
    source = require_source(random)
    # 0 counts as not given: the option's default cannot be told from it
    others = {"rbits": rbits is not None, "seed": seed != 0, "stream": stream != 0, "step": step != 0}
    given = [f"`{name}`" for name, is_given in others.items() if is_given]
    if given:
        raise FormatError(
            f"`random` must be the only source of random bits, got {' and '.join(given)} beside it; "
            "leave one of them out"
        )
    return source


def require_source(random: object) -> RandomSource:
    """Return a source of random bits.

    Raises:
        FormatError: it is none.
    """
    if not isinstance(random, (Philox, RecordedBits, LFSR)):
        raise FormatError(
            f"`random` must be an emu.Philox, emu.RecordedBits or emu.LFSR, got {random!r}; write emu.Philox(seed)"
        )
    return random


def encode_source(source: RandomSource, stage: OutputStage, shape: tuple[int, ...]) -> RandomCode:
    """Return the numbers of a source for an output stage that writes a result of `shape`.

    Raises:
        FormatError: a recorded integer is not below 2**n_rbits.
        ShapeError: recorded bits of another shape.
    """
    if isinstance(source, RecordedBits):
        return encode_random(RecordedBits(require_rbits(source.bits, stage.n_rbits, shape)))
    if isinstance(source, Philox):
        return encode_random(source)
    if not stage.rounding.draws:
        return encode_random(Philox())  # nothing is drawn: the register need not be run
    from emu.backends.reference.lfsr import lfsr_integers

    # in C order of the result: bit patterns follow each other as the register makes them
    return encode_random(RecordedBits(lfsr_integers(source, math.prod(shape), stage.n_rbits).reshape(shape)))


def require_addressed(source: RandomSource, mac: Mac) -> None:
    """Raise FormatError if the source has no bits for a unit that rounds stochastically at every product and add."""
    if isinstance(source, Philox) or mac.is_exact:
        return
    raise FormatError(
        "a Mac that rounds stochastically draws at every product and add, so its source must be an emu.Philox, got "
        f"{type(source).__name__}, which has bits only for the output stage; give `seed` instead"
    )


def require_rbits(rbits: Array, n_rbits: int, shape: tuple[int, ...]) -> Array:
    """Return recorded random bits, checked against the result's shape and the number of bits."""
    try:
        array = np.asarray(rbits)
    except ValueError:  # a ragged list
        array = np.array(None)
    # an empty list is float64: it holds no wrong integer
    if array.dtype.kind not in "iu" and not (array.dtype.kind == "f" and array.size == 0):
        raise FormatError(
            f"`rbits` must be integers below 2**{n_rbits}, got dtype {array.dtype}; draw them with an integer dtype"
        )
    if array.shape != shape:
        raise ShapeError(
            f"`rbits` must have the shape of the result, {shape}, got {array.shape}; give an integer for each element"
        )
    if array.size and (int(array.min()) < 0 or int(array.max()) >> n_rbits):
        worst = int(array.min()) if array.min() < 0 else int(array.max())
        raise FormatError(
            f"`rbits` must be integers below 2**{n_rbits}, got {worst}; shift or mask them to {n_rbits} bits, or "
            "change `n_rbits`"
        )
    # n_rbits is at most 32
    return array.astype(np.uint32)
