"""Elementwise operations of small arrays: everything but the numbers is decided once, then cached.

    unit, operation, formats, dtypes ──► small_write of the backend (cached) ──► one kernel and its counts

Training writes thousands of small arrays, each through the same few units. What an operation decides, from proofs to
positions of registers, takes ten times as long as its arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import NO_QUANTUM, Outcome, RegisterCode, StageCode
from emu.backends.kernels import Kernels, SmallOperation, SmallWrite
from emu.datapath import Flags, StatisticsRegister
from emu.engine.delivery import deliver
from emu.engine.description import UnitDescription
from emu.engine.exact_register import exact_register
from emu.engine.operands import FLOATS, codes_of
from emu.formats import Format, Value

Array = NDArray[Any]
#: Larger arrays may be worth a second thread, which `small_write` does not wake.
MOST_ELEMENTS = 1 << 17


def small_outcome(
    unit: UnitDescription,
    operation: str,
    arrays: Sequence[Array],
    formats: tuple[Format | None, ...],
) -> Outcome | None:
    """Return what a unit writes of small arrays; None if these operands must take the usual way.

    Args:
        unit: who computes and writes.
        operation: "quantize", or an elementwise operation.
        arrays: carriers; the first has the result's shape, others broadcast to it.
        formats: of the operands; None of plain floats.
    """
    register, address = unit.register, unit.address
    shape, size = arrays[0].shape, arrays[0].size
    # addresses of Philox are numbers; recorded bits would have to be checked against the shape
    if not 0 < size < MOST_ELEMENTS or address is None:
        return None
    for i, x in enumerate(arrays):
        # subclasses, arrays of devices and strided ones need to be read in another way
        if type(x) is not np.ndarray or not x.flags.c_contiguous:
            return None
        # single numbers are repeated by the kernel
        if x.shape != shape and (x.size != 1 or x.ndim > len(shape)):
            spread = _spread(x, shape)
            if spread is None:
                return None
            arrays = [*arrays[:i], spread, *arrays[i + 1 :]]
    lowest = bins = None
    if register is not None:
        lowest, bins = register.lowest, register.bins
        if lowest is None or bins is None:
            return None  # the usual way fixes open positions
    # all that decides the kernel; numbers, shapes and addresses come with each call
    decisive = (unit.kernels, unit.code, *formats, *[x.dtype for x in arrays])
    # objects are compared by identity: their hashes would take as long as a small kernel
    key = (operation, lowest, bins, *map(id, decisive))
    kept = _WRITES.get(key)
    if kept is None:
        sources = tuple([x.dtype for x in arrays])
        kept = decisive, _write_of(unit.kernels, operation, sources, formats, unit.code, lowest, bins)
        if len(_WRITES) >= MOST_WRITES:
            _WRITES.clear()
        _WRITES[key] = kept
    write = kept[1]
    return None if write is None else write(arrays, shape, address)


#: What writes an operation, by the identities of all that decides it. Beside it, these objects: as long as they live,
#: no other object has their identities.
_WRITES: dict[tuple[Any, ...], tuple[tuple[Any, ...], SmallWrite | None]] = {}
#: Most entries, after which all are made anew.
MOST_WRITES = 4096


def _spread(x: Array, shape: tuple[int, ...]) -> Array | None:
    """Return an operand repeated along the axes of a result, as a column beside a matrix; None if it has others."""
    if x.ndim > len(shape):
        return None
    repeated = np.empty(shape, x.dtype)
    try:
        repeated[...] = x
    except ValueError:  # the shapes do not fit, which the usual way says in the words of the operation
        return None
    return repeated


class Repeated:
    """An elementwise operation that is repeated with other numbers of the same kinds: only the kinds are asked again.

    Training repeats each of its operations in every step. To make the unit of the next step, and to find what writes,
    takes longer than the arithmetic on a bias.
    """

    __slots__ = ("_dtypes", "_formats", "_positions", "_unit", "_write")

    def __init__(self, unit: UnitDescription, operands: Sequence[Value], write: SmallWrite) -> None:
        """Keep what writes an operation; see `of`."""
        self._unit, self._write, register = unit, write, unit.register
        self._formats, self._dtypes = [x.format for x in operands], [x.array.dtype for x in operands]
        self._positions = None if register is None else (register.lowest, register.bins)

    @classmethod
    def of(cls, unit: UnitDescription, operation: str, operands: Sequence[Value]) -> Repeated | None:
        """Return the operation of a unit on values like these; None if it must take the usual way.

        Args:
            unit: who writes; Philox draws its bits.
            operation: "quantize", or an elementwise operation.
            operands: values.
        """
        register = unit.register
        lowest, bins = (None, None) if register is None else (register.lowest, register.bins)
        assert unit.address is not None
        # positions that are open are fixed by the usual way
        if register is not None and (lowest is None or bins is None):
            return None
        # not of a device, nor of a scaled format
        if not all(type(x) is Value and type(x.array) is np.ndarray for x in operands):
            return None
        # floats are rounded as the numbers that they are, whatever their format
        formats = tuple([None if operation == "quantize" else x.format for x in operands])
        sources = tuple([x.array.dtype for x in operands])
        write = _write_of(unit.kernels, operation, sources, formats, unit.code, lowest, bins)
        return None if write is None else cls(unit, operands, write)

    def written(
        self, operands: Sequence[Value], step: int, register: StatisticsRegister | None, flags: Flags | None
    ) -> Array | None:
        """Return carriers as the unit writes them; None if these operands or counters are of another kind.

        Args:
            operands: values.
            step: training step, whose random bits are drawn.
            register: observes the results; None observes nothing.
            flags: count what happens; None counts nothing.
        """
        unit = self._unit
        assert unit.address is not None
        # `CounterTable.load` replaces registers, and a register may be given other positions
        if register is not unit.register or flags is not unit.flags:
            return None
        if register is not None and self._positions != (register.lowest, register.bins):
            return None
        arrays: list[Array] = []
        for x, fmt, dtype in zip(operands, self._formats, self._dtypes, strict=True):
            array = x.array
            if x.format is not fmt or type(array) is not np.ndarray or array.dtype is not dtype:
                return None
            if not array.flags.c_contiguous:
                return None
            arrays.append(array)
        first = arrays[0]
        shape = first.shape
        if not 0 < first.size < MOST_ELEMENTS:
            return None
        for x in arrays:
            if x.shape != shape and (x.size != 1 or x.ndim > len(shape)):
                return None
        outcome = self._write(arrays, shape, unit.address.at_step(step))
        return None if outcome is None else deliver(unit, outcome)


@lru_cache(maxsize=4096)
def _write_of(
    kernels: Kernels,
    operation: str,
    sources: tuple[np.dtype[Any], ...],
    formats: tuple[Format | None, ...],
    stage: StageCode,
    lowest: int | None,
    bins: int | None,
) -> SmallWrite | None:
    # raws and integers have no kernel here
    if any(source not in FLOATS for source in sources):
        return None
    register = None
    if lowest is not None and bins is not None:
        exact = exact_register(operation, formats)
        register = RegisterCode(lowest, bins, NO_QUANTUM if exact is None else -exact.frac_bits)
    return kernels.small_write(SmallOperation(operation, sources, codes_of(formats), stage, register))
