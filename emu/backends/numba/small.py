"""Small arrays: the arithmetic takes less time than a question, so what formats and stage decide is asked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends import modes
from emu.backends.arrays import frozen
from emu.backends.interface import Outcome, RandomCode, carrier_of
from emu.backends.kernels import SmallOperation
from emu.backends.memory import empty
from emu.backends.numba.in_doubles import decides_all
from emu.backends.numba.prepared import supports
from emu.backends.numba.stage import StageWriter, stage_writer
from emu.backends.numba.vector.calling import address_of
from emu.backends.numba.vector.choosing import addressed
from emu.backends.numba.vector.ranges import MOST_OPERANDS
from emu.backends.numba.vector.stage import CHUNK
from emu.backends.numba.vector.writing import COUNTS_INDEX, TOP_INDEX, write_range
from emu.datapath.pending import NO_EXPONENT

Array = NDArray[Any]


class SmallWrite:
    """Writes one elementwise operation of small arrays through an output stage, by vector code, on one thread."""

    def __init__(self, writer: StageWriter, target: np.dtype[Any], *, draws: bool, counts: bool) -> None:
        """Prepare to write.

        Args:
            writer: what writes results of one kind; it has vector code.
            target: carrier dtype of the result.
            draws: whether the stage draws random bits.
            counts: whether a register counts.
        """
        self._parameters, self._target, self._draws, self._counts = writer.parameters, target, draws, counts
        self._address = address_of(writer.parameters)
        # A report: flags, the largest exponent, counts of the register, as `vector/writing.py` orders them.
        self._blank = np.zeros(writer.report_size, np.int64)
        self._blank[TOP_INDEX] = NO_EXPONENT

    def __call__(self, operands: Sequence[Array], shape: tuple[int, ...], random: RandomCode) -> Outcome | None:
        """Return what was written and counted; None if plain loops must write some of it, as infinities.

        Args:
            operands: C-contiguous arrays of that shape, or of one element, which stands for all.
            shape: of the result; not empty.
            random: address of random bits.
        """
        count = math.prod(shape)
        values, report = empty(shape, self._target), self._blank.copy()
        parameters, address = self._parameters, self._address
        if self._draws:
            parameters = addressed(parameters, random)
            address = address_of(parameters)
        sources: list[Array] = []  # they live as long as their addresses are used
        starts: list[int] = []
        steps: list[int] = []
        for x in operands:
            if x.size == count:
                source, step = x, x.itemsize
            else:
                # The number's bytes are a key that a cache can hash.
                source, step = _chunk_of(x.tobytes(), x.dtype), 0
            sources.append(source)
            starts.append(address_of(source))
            steps.append(step)
        for _ in range(MOST_OPERANDS - len(starts)):  # an address that is not read
            starts.append(starts[0])
            steps.append(steps[0])
        # No thread is woken: the caller's does it all.
        wrote = write_range(*starts, *steps, address_of(values), 0, count, 0, address, address_of(report))
        if wrote < count:
            return None
        counted = report[COUNTS_INDEX:] if self._counts else None
        return Outcome(values, report[:TOP_INDEX], counted, int(report[TOP_INDEX]))


@lru_cache(maxsize=256)
def _chunk_of(number: bytes, dtype: np.dtype[Any]) -> Array:
    """Return a chunk filled with one number, as vector code reads it. It is shared; nobody writes to it."""
    return frozen(np.full(CHUNK, np.frombuffer(number, dtype)[0]))


def small_write(asked: SmallOperation) -> SmallWrite | None:
    """Return what writes an operation of any numbers of its formats; None if that depends on the numbers."""
    operation, sources, formats, stage, register = asked
    # Operands that read subnormals as 0 would have to be looked at, or copied, first.
    if any(fmt is not None and fmt.daz for fmt in formats) or not supports(stage):
        return None
    if not decides_all(operation, sources, formats, stage):
        return None
    target = carrier_of(stage.format)
    writer = stage_writer(operation, sources, target, stage, register, is_recorded=False, scale=1.0)
    if writer.chunks is None:
        return None
    return SmallWrite(writer, target, draws=modes.draws(stage), counts=register is not None)
