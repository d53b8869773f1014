"""The output stage over a whole array, fused with the elementwise operation that feeds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends import modes
from emu.backends.arrays import frozen
from emu.backends.bounds import bounded
from emu.backends.interface import NO_QUANTUM, Outcome, RandomCode, RegisterCode, StageCode, Write, carrier_of
from emu.backends.memory import address_of, empty
from emu.backends.numba.blocks import Stage
from emu.backends.numba.compiling import BLOCK, GRAIN, over_ranges, thread_count
from emu.backends.numba.operation_loops import Passes
from emu.backends.numba.prepared import prepare
from emu.backends.numba.vector.choosing import addressed, parameters, shape_for
from emu.backends.numba.vector.ranges import MOST_OPERANDS, VECTOR_GRAIN, VectorWriter
from emu.backends.numba.vector.stage import CHUNK
from emu.backends.numba.vector.writing import (
    COUNTS_INDEX,
    TOP_INDEX,
    Sink,
    chunk_code,
    loop_numbers,
    range_entry,
    report_size,
    write_range,
)
from emu.datapath.pending import NO_EXPONENT

Array = NDArray[Any]
_NO_BITS = np.zeros(1, np.int64)
#: Results from which on several threads may be worth waking, and are asked for.
MOST_AT_ONCE = VECTOR_GRAIN
#: Vector code takes no smaller scale: 2**-23 * 2**-126, of the smallest normal float32, is still a float32.
SMALLEST_SCALE = bounded(2.0**-23, 2.0**-23, 1.0, "below it, the smallest normal numbers would become 0")


class Writer:
    """An output stage that writes one result, piece by piece, from any number of threads.

    Attributes:
        values: the array that is written.
    """

    def __init__(
        self,
        operation: str,
        sources: tuple[np.dtype[Any], ...],
        values: Array,
        write: Write,
        scale: float = 1.0,
    ) -> None:
        """Prepare to write.

        Args:
            operation: a key of `interface.OPERATIONS`.
            sources: dtypes of the operands, float32 or float64.
            values: C-contiguous carrier array of the result; raws of a fixed format are written into integers.
            write: output stage that `supports` accepts, random bits, register.
            scale: power of two by which a single operand is multiplied first.
        """
        stage, random, register = write
        self.values = values
        self._target = values.reshape(-1)
        code = stage_writer(operation, sources, values.dtype, stage, register, random.recorded is not None, scale)
        self._code, self._counts, self._draws = code, register is not None, modes.draws(stage)
        recorded = None if random.recorded is None else np.reshape(random.recorded, -1)
        number = k.OPERATIONS[operation]
        self._passes = Passes(number, code.stage, code.positions, scale, code.out_scale, random, recorded)
        # Each thread has a report of its own; they are added up at the end.
        self._reports = np.zeros((thread_count() + 1, code.report_size), np.int64)
        self._reports[:, TOP_INDEX] = NO_EXPONENT
        self._threads: set[int] = set()
        self._vector: VectorWriter | None = None
        if code.chunks is not None:
            numbers = addressed(code.parameters, random) if modes.draws(stage) else code.parameters
            self._vector = VectorWriter(self._target, numbers, self._reports)

    @property
    def grain(self) -> int:
        """Results below which a second thread is not worth waking."""
        return GRAIN if self._vector is None else VECTOR_GRAIN

    @property
    def takes_any_order(self) -> bool:
        """Whether loops may deliver results in pieces of any order: no random bit belongs to a place."""
        return self._vector is not None and not self._draws

    def sink(self, thread: int) -> Sink:
        """Return where compiled loops on that thread deliver results to be quantized; valid while this writer lives."""
        self._threads.add(thread)
        return Sink() if self._vector is None else self._vector.sink(thread)

    def write(self, thread: int, operands: Sequence[Array], start: int, stop: int, origin: int = 0) -> None:
        """Write results `start`..`stop`.

        Args:
            thread: index of the calling thread; no two threads share one.
            operands: flat arrays of the dtypes of `sources`; one that ends before `stop` holds a `CHUNK` of one number
                that stands for all.
            start: first result, a multiple of 16.
            stop: one past the last.
            origin: index of the result that element 0 of the operands belongs to.
        """
        self._threads.add(thread)
        if self._vector is not None:
            self._vector.write(thread, operands, start, stop, origin, self._plain)
        else:
            self._plain(thread, operands, start, stop, origin)

    def _plain(self, thread: int, operands: Sequence[Array], start: int, stop: int, origin: int) -> None:
        if any(x.size < stop - origin for x in operands):  # one number, repeated
            count = stop - start
            pieces = [x[start - origin : stop - origin] for x in operands]
            # Plain loops read each element: the number is repeated as often as there are results.
            operands = [p if p.size == count else np.full(count, x[0]) for p, x in zip(pieces, operands, strict=True)]
            origin = start
        report = self._reports[thread]
        top = self._passes.write(operands, origin, self._target, start, stop, report[:TOP_INDEX], report[COUNTS_INDEX:])
        report[TOP_INDEX] = max(report[TOP_INDEX], top)

    def outcome(self) -> Outcome:
        """Return what was written and counted."""
        # Threads that wrote nothing have empty reports, and are left out.
        total, top = self._reports[0], int(self._reports[0, TOP_INDEX])
        for thread in self._threads - {0}:
            total, top = total + self._reports[thread], max(top, int(self._reports[thread, TOP_INDEX]))
        return Outcome(self.values, total[:TOP_INDEX], total[COUNTS_INDEX:] if self._counts else None, top)


class StageWriter:
    """What writes results of one kind, made once.

    Attributes:
        stage: as plain loops take it.
        out_scale: what values are multiplied by when they are stored.
        positions: of the register; no position without one.
        report_size: length of a thread's report.
        parameters: the numbers of vector code, without the address of random bits.
        chunks: vector code; None if only plain loops write.
    """

    def __init__(
        self,
        prepared: Stage,
        out_scale: float,
        positions: RegisterCode,
        target: np.dtype[Any],
        vector: tuple[NDArray[np.int64], Any] | None,
        *,
        draws: bool,
        counts: bool,
    ) -> None:
        """Keep what writes.

        Args:
            prepared: the stage.
            out_scale: what values are multiplied by when they are stored.
            positions: of the register; no position without one.
            target: carrier dtype of the result.
            vector: the numbers of vector code and its code; None if only plain loops write.
            draws: whether the stage draws random bits.
            counts: whether a register counts.
        """
        self.stage, self.out_scale, self.positions = prepared, out_scale, positions
        self.report_size = report_size(positions.bins)
        self.parameters, self.chunks = (_NO_BITS, None) if vector is None else vector
        self._target, self._draws, self._counts = target, draws, counts
        self._address = address_of(self.parameters)
        # A report: flags, the largest exponent, counts of the register, as `vector/writing.py` orders them.
        self._blank = np.zeros(self.report_size, np.int64)
        self._blank[TOP_INDEX] = NO_EXPONENT

    def begun(self, shape: tuple[int, ...], random: RandomCode) -> Begun:
        """Return a new result and its report, for one thread to write by vector code; there must be some.

        Args:
            shape: of the result.
            random: address of random bits.
        """
        parameters, address = self.parameters, self._address
        if self._draws:
            parameters = addressed(parameters, random)
            address = address_of(parameters)
        return Begun(empty(shape, self._target), self._blank.copy(), parameters, address)

    def outcome(self, begun: Begun) -> Outcome:
        """Return what was written and counted."""
        report = begun.report
        counted = report[COUNTS_INDEX:] if self._counts else None
        return Outcome(begun.values, report[:TOP_INDEX], counted, int(report[TOP_INDEX]))

    def write_small(self, operands: Sequence[Array], shape: tuple[int, ...], random: RandomCode) -> Outcome | None:
        """Write a small result by vector code, on the caller's thread, in a quarter of the time of a `Writer`.

        Returns None if plain loops must write some of it, as infinities. There must be vector code.

        Args:
            operands: C-contiguous arrays of that shape, or of one element, which stands for all.
            shape: of the result; not empty.
            random: address of random bits.
        """
        count, begun = math.prod(shape), self.begun(shape, random)
        # A number that stands for all: its bytes are a key that a cache can hash.
        sources = [x if x.size == count else _chunk_of(x.tobytes(), x.dtype) for x in operands]
        starts = [address_of(x) for x in sources]  # which live as long as their addresses are used
        steps = [x.itemsize if x.size == count else 0 for x in operands]
        unread = MOST_OPERANDS - len(sources)  # the first operand stands for those that are missing: it is not read
        starts += starts[:1] * unread
        steps += steps[:1] * unread
        values, report, _, address = begun
        wrote = write_range(*starts, *steps, address_of(values), 0, count, 0, address, address_of(report))
        return self.outcome(begun) if wrote == count else None


class Begun(NamedTuple):
    """A small result that vector code writes.

    Attributes:
        values: the result.
        report: one thread's: flags, the largest exponent, counts.
        parameters: the numbers of the stage and of the loop, kept as long as their address is used.
        address: of the parameters.
    """

    values: Array
    report: NDArray[np.int64]
    parameters: NDArray[np.int64]
    address: int

    def sink(self) -> Sink:
        """Return where a compiled loop delivers results; valid while this object lives."""
        values = self.values
        return Sink(range_entry(), address_of(values), values.itemsize, 0, self.address, address_of(self.report))


@lru_cache(maxsize=256)
def _chunk_of(number: bytes, dtype: np.dtype[Any]) -> Array:
    """Return a chunk filled with one number, as vector code reads it. It is shared; nobody writes to it."""
    return frozen(np.full(CHUNK, np.frombuffer(number, dtype)[0]))


@lru_cache(maxsize=1024)
def stage_writer(
    operation: str,
    sources: tuple[np.dtype[Any], ...],
    target: np.dtype[Any],
    stage: StageCode,
    register: RegisterCode | None,
    is_recorded: bool,
    scale: float,
) -> StageWriter:
    """Return what writes results of an operation; arguments as of `Writer`, dtypes and codes in place of arrays."""
    prepared = prepare(stage)
    # Raws are values over the last place.
    out_scale = math.ldexp(1.0, -stage.format.quantum) if target.kind == "i" else 1.0
    positions = register if register is not None else RegisterCode(0, 0, NO_QUANTUM)
    # Vector code scales fixed formats alone, by one factor that includes 2**-quantum.
    shape = None
    if scale == 1.0 or (not stage.format.is_float and scale >= SMALLEST_SCALE):
        shape = shape_for(operation, sources, target, stage, register, is_recorded)
    vector = None
    if shape is not None:
        limits = (prepared.high, prepared.low, prepared.modulus, prepared.above, prepared.below)
        chunks, entry = chunk_code(shape)
        numbers = np.concatenate([parameters(shape, stage, limits, register, scale), loop_numbers(shape, entry)])
        vector = numbers, chunks
    given = (prepared, out_scale, positions, target, vector)
    return StageWriter(*given, draws=modes.draws(stage), counts=register is not None)


def run_stage(
    operation: str,
    operands: tuple[Array, ...],
    write: Write,
    *,
    out: Array | None = None,
    scale: float = 1.0,
) -> Outcome:
    """Write an elementwise operation through the output stage.

    Args:
        operation: a key of `interface.OPERATIONS`.
        operands: float32 or float64 arrays of one shape.
        write: output stage that `supports` accepts, random bits, register.
        out: the array to write, or None for a new carrier array; raws are written into signed integers.
        scale: power of two by which a single operand is multiplied first.
    """
    shape, size = operands[0].shape, operands[0].size
    if out is None and 0 < size < MOST_AT_ONCE:
        outcome = _write_small(operation, operands, write, scale)
        if outcome is not None:
            return outcome
    flat = [x.reshape(-1) if x.flags.c_contiguous else _flat(x) for x in operands]
    values = empty(shape, carrier_of(write.stage.format)) if out is None else out
    in_place = out is None or (values.flags.c_contiguous and not any(_overlaps(values, x) for x in flat))
    # Otherwise the result is written elsewhere first, then copied.
    target = values if in_place else np.empty(shape, values.dtype)
    writer = Writer(operation, tuple([x.dtype for x in flat]), target, write, scale)
    over_ranges(lambda thread, start, stop: writer.write(thread, flat, start, stop), size, BLOCK, writer.grain)
    outcome = writer.outcome()
    if not in_place:
        values[...] = target
        outcome.values = values
    return outcome


def _write_small(operation: str, operands: tuple[Array, ...], write: Write, scale: float) -> Outcome | None:
    """Write a small result at once; None if it needs plain loops. Arguments as of `run_stage`."""
    stage, random, register = write
    # NumPy makes a number, which is no array, of a sum without axes
    if random.recorded is not None or not all(type(x) is np.ndarray and x.flags.c_contiguous for x in operands):
        return None
    target = carrier_of(stage.format)
    writer = stage_writer(operation, tuple([x.dtype for x in operands]), target, stage, register, False, scale)
    return None if writer.chunks is None else writer.write_small(operands, operands[0].shape, random)


def _flat(x: Array) -> Array:
    """Return an operand as a flat array; of one number that stands for all, a chunk filled with it."""
    if k.is_one_number(x):
        return np.full(min(CHUNK, x.size), x.flat[0], x.dtype)
    return np.ascontiguousarray(x).reshape(-1)


def _overlaps(values: Array, x: Array) -> bool:
    """Return whether writing `values` could change elements of `x` before they are read."""
    # If element i of both is the same memory, a block is read before it is written.
    same_elements = values.ctypes.data == x.ctypes.data and values.dtype == x.dtype and values.size == x.size
    return not same_elements and np.may_share_memory(values, x)
