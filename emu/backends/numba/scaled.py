"""Elements that share scales, in one pass over panels that stay in the cache: largest magnitudes, scales, elements.

    panel ──► largest of each block ──► the rule's steps, sixteen blocks at a time ──► scales
          └─────────────────────────────► elements, rounded and counted ◄── factors ──┘

Three pieces of vector code do this: one for each layout of blocks, one for each rule, one for each kind of element.
Blocks with a NaN, an infinity or a scale that is NaN are written afterwards, by the output stage of any array.

The definition (`emu/backends/reference/scaled.py`) keeps other modes than nearest even, random bits, short blocks,
blocks whose rows are no multiples of sixteen elements, and one scale for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends import interface as k
from emu.backends.bounds import bounded
from emu.backends.interface import N_FLAGS, Outcome, StageCode, Write
from emu.backends.memory import empty
from emu.backends.numba.compiling import kernel, only_read, over_ranges, thread_count
from emu.backends.numba.machine import has_vectors
from emu.backends.numba.prepared import prepare, supports
from emu.backends.numba.scaled_loops import INFINITE_BITS, largest_bits, place, quotients, write_panels
from emu.backends.numba.stage import run_stage
from emu.backends.numba.vector import scaled as elements
from emu.backends.numba.vector import steps
from emu.backends.numba.vector.calling import entry_of
from emu.backends.numba.vector.lanes import LANES
from emu.backends.numba.vector.ranges import STREAMED_BYTES, VECTOR_GRAIN
from emu.backends.proofs import has_normals
from emu.backends.reference.scaled import constants_of
from emu.datapath.pending import NO_EXPONENT
from emu.formats import Float, Scaled
from emu.formats.steps import Factor
from emu.formats.tiles import Tiles, canonical_shape

Array = NDArray[Any]
Written = tuple[Outcome, tuple[Array, ...]]
#: Elements of a panel, whose numbers are read twice: those of one row stay in a first-level cache, those of several,
#: which are read row by row, in a second-level cache.
ROW_PANEL, ROWS_PANEL = 1 << 12, 1 << 15
#: Quantum of elements and scales below which a result that is a subnormal float32 might not round to 0.
LEAST_QUANTUM = bounded(-120, -124, 0, "half of it lies above 2**-126, which float32 may have rounded to")
#: Exponent of the power of two to which the largest number of a format is added.
MOST_EXPONENT = bounded(126, 1, 126, "c and 2c of `vector/scaled.py` are float32")
#: Exponents of scales that are powers of two.
LEAST_POWER = bounded(-127, -127, 0, "1 / s is a float32")
#: Exponent of the last place of the largest element.
LEAST_PLACE = bounded(-22, -149 - LEAST_POWER, 0, "times the smallest scale it is a multiple of 2**-149, a float32")
MOST_POWER = bounded(127, 0, 127, "s is a float32, and 1 / s is a subnormal one at least")


class Geometry(NamedTuple):
    """Where blocks lie in memory: in strips, each a row of blocks beside each other.

    Attributes:
        rows: of a block, and of a strip.
        width: elements of a block in a row: 1 of tall blocks, else a multiple of sixteen.
        length: elements of a row.
        strips: how many follow each other.
        columns: elements of a row that belong to one panel.
    """

    rows: int
    width: int
    length: int
    strips: int
    columns: int

    @property
    def panels(self) -> int:
        """How many panels there are."""
        return self.strips * -(-self.length // self.columns)

    @property
    def is_tall(self) -> bool:
        """Whether blocks are one element wide."""
        return self.width == 1

    @property
    def together(self) -> int:
        """How many blocks beside each other are written together."""
        return LANES if self.is_tall else 1

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.strips * (self.length // self.width)

    @classmethod
    def of(cls, tiles: Tiles) -> Geometry | None:
        """Return where the blocks of a C-contiguous array lie; None if vector code does not read them there."""
        shape, axis, size = tiles.shape, tiles.axis, math.prod(tiles.shape)
        across = tiles.tiling.across
        along = shape[axis] if tiles.tiling.along is None else tiles.tiling.along
        # channels, which are those of the first axis beside the blocks' own, are rows if there is no axis between
        is_row = not tiles.tiling.is_channel or math.prod(canonical_shape(shape, axis)[1:-1]) == 1
        if across is None or not is_row or not size or shape[axis] % along:
            return None
        if across > 1:
            rows, width, length = (across, along, shape[-1]) if axis == -1 else (along, across, shape[-1])
            if shape[-2] % rows or length % width:
                return None
        elif axis == -1:
            rows, width, length = 1, along, size  # blocks follow each other
        else:
            rows, width, length = along, 1, math.prod(shape[axis + 1 :])
        # Vectors are whole: of one row of a block, or of sixteen tall blocks beside each other.
        if width % LANES and (width > 1 or length % LANES):
            return None
        # A panel has whole blocks, or whole groups of sixteen tall ones.
        step = max(width, LANES)
        columns = max((ROW_PANEL if rows == 1 else ROWS_PANEL) // (rows * step), 1) * step
        return cls(rows, width, length, size // (rows * length), min(columns, length))


class _Plan(NamedTuple):
    """How an array is quantized.

    Attributes:
        geometry: of its blocks.
        functions: compiled code, referenced as long as its addresses are used.
        entries: addresses of the code of largest magnitudes, of steps, of elements.
        of_steps: numbers of the steps; that of the outer level's largest magnitude is left open.
        of_elements: numbers of the elements.
        exact: whether factors are powers of two.
        divides: whether numbers are divided by factors.
        constants: of the rule, by name, float32.
        scales: shape of the scales before the axis of the blocks becomes the last one.
        outer: shape of the outer level's scales; None without that level.
    """

    geometry: Geometry
    functions: tuple[Any, ...]
    entries: tuple[int, int, int]
    of_steps: NDArray[np.int64]
    of_elements: NDArray[np.int64]
    exact: bool
    divides: bool
    constants: Mapping[str, Any]
    scales: tuple[int, ...]
    outer: tuple[int, ...] | None


def quantize_blocks(x: Array, fmt: Scaled, axis: int, write: Write, *, counted: bool) -> Written | None:
    """Return elements and scales as `Kernels.quantize_blocks` does; None if they are left to the definition."""
    plan = _plan(fmt, write.stage, x.shape, axis, counted) if x.dtype == np.float32 else None
    if plan is None:
        return None
    flat, of_steps, outer = only_read(x.reshape(-1)), plan.of_steps, ()
    if plan.outer is not None:
        assert fmt.rule.outer is not None
        # The outer level's scale is of the whole array: its largest magnitude is known before the first panel.
        top = np.full(plan.outer, _largest(flat, ignores_nan=fmt.ignores_nan))
        names = fmt.rule.outer.run({**plan.constants, "top": top}, np.float32)
        outer, of_steps = (np.asarray(names["t"], np.float32),), of_steps.copy()
        of_steps[: steps.N_NUMBERS].view(np.float64)[steps.TOP] = top.flat[0]
    outcome, stored = _run(plan, flat, of_steps, write, ignores_nan=fmt.ignores_nan)
    stored = np.moveaxis(stored.reshape(plan.scales), axis, -1) if axis != -1 else stored.reshape(plan.scales)
    return outcome.with_values(outcome.values.reshape(x.shape)), (stored, *outer)


def _run(
    plan: _Plan, flat: Array, of_steps: NDArray[np.int64], write: Write, *, ignores_nan: bool
) -> tuple[Outcome, Array]:
    """Return elements, counts and scales as they follow each other in memory."""
    geometry, blocks = plan.geometry, plan.geometry.blocks
    values = empty(flat.shape, np.float32)
    stored, factors = np.empty(blocks, np.float32), np.empty(blocks, np.float32)
    marks = np.zeros(blocks // geometry.together, np.uint8)
    # Large arrays have been aligned by `empty`, as stores past the caches require.
    choices = geometry.is_tall, plan.exact, ignores_nan, int(values.nbytes >= STREAMED_BYTES)
    reports, left_out = np.zeros((thread_count() + 1, N_FLAGS), np.int64), [0] * (thread_count() + 1)

    def work(thread: int, start: int, stop: int) -> None:
        arrays, numbers = (flat, values, stored, factors, marks), (of_steps, plan.of_elements)
        left_out[thread] = write_panels(
            *arrays, geometry, start, stop, plan.entries, choices, *numbers, reports[thread]
        )

    over_ranges(work, geometry.panels, 1, -(-VECTOR_GRAIN // (geometry.rows * geometry.columns)))
    flags = reports.sum(axis=0)
    if any(left_out):
        # Marked groups were not written, and no flag of theirs was counted.
        groups, together = np.flatnonzero(marks), geometry.together
        y = np.empty((groups.size, geometry.rows, together * geometry.width), np.float64)
        quotients(flat, groups, geometry, together, stored, factors, plan.exact, plan.divides, y)
        outcome = run_stage("quantize", (y,), write)
        place(outcome.values, groups, geometry, together, values)
        flags += outcome.flags
    return Outcome(values, flags, None, NO_EXPONENT), stored


def _largest(flat: Array, *, ignores_nan: bool) -> np.float32:
    """Return the largest magnitude of numbers, a multiple of sixteen of them."""
    bits, entry = [0] * (thread_count() + 1), largest_code("wide")[1]

    def work(thread: int, start: int, stop: int) -> None:
        bits[thread] = largest_bits(entry, flat, start, stop)

    over_ranges(work, flat.size, LANES, VECTOR_GRAIN)
    # Patterns above that of infinity are NaN: they hide the largest number, which is looked for once more.
    if max(bits) > INFINITE_BITS and ignores_nan:
        return np.float32(np.max(np.where(np.isnan(flat), np.float32(0), np.abs(flat))))
    return np.int32(max(bits)).view(np.float32)


# ---- what is left to the definition ---------------------------------------------------------------------------------


def _writes_scales(fmt: Scaled) -> bool:
    scale, rule = fmt.levels[0].scale, fmt.rule
    is_for_all = all(level.tiling.across is None for level in fmt.levels[1:])
    if scale.carrier != np.float32 or scale.is_flushed or Factor.of(rule.element) is None or not is_for_all:
        return False
    if rule.stores == "power":
        return scale.emin >= LEAST_POWER and scale.emax <= MOST_POWER
    return rule.stores == "float32" or (not scale.infinities and _is_rounded_by_adding(scale))


def _is_rounded_by_adding(fmt: Float) -> bool:
    """Return whether float32 numbers round to a format by adding and subtracting a power of two."""
    dropped, quantum = steps.FRACTION_BITS - fmt.fraction_bits, fmt.emin - fmt.fraction_bits
    has_all = fmt.has_normals and fmt.has_subnormal_codes
    return has_all and quantum >= LEAST_QUANTUM and dropped >= 1 and fmt.emax + dropped <= MOST_EXPONENT


def _writes_elements(stage: StageCode) -> bool:
    fmt = stage.format
    if stage.rounding != k.NEAREST_EVEN or stage.tininess != k.BECAME_ZERO or not supports(stage):
        return False
    if not LEAST_QUANTUM <= fmt.quantum <= 0 or fmt.max_exponent < LEAST_PLACE or k.carrier_of(fmt) != np.float32:
        return False
    if not fmt.is_float:
        return stage.overflow in (k.SATURATE, k.SATURATE_SYMMETRIC)
    dropped, emax = steps.FRACTION_BITS - (fmt.precision - 1), fmt.max_exponent + fmt.precision - 1
    is_plain = bool(fmt.signed) and not fmt.ftz and has_normals(fmt) and stage.overflow == k.SATFINITE
    return is_plain and dropped >= 1 and emax + 1 + dropped <= MOST_EXPONENT


# ---- compiled code and its numbers ----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _plan(fmt: Scaled, stage: StageCode, shape: tuple[int, ...], axis: int, counted: bool) -> _Plan | None:
    tiles = [Tiles(level.tiling, shape, axis) for level in fmt.levels]
    geometry = Geometry.of(tiles[0])
    if geometry is None or not (has_vectors() and _writes_scales(fmt) and _writes_elements(stage)):
        return None
    rule, factor = fmt.rule, Factor.of(fmt.rule.element)
    assert factor is not None
    exact, one_zero = rule.divides_exactly, not stage.format.has_negative_zero
    divides = factor.divides and not exact
    text = "|".join([str(rule.outer or ""), str(rule.steps), str(rule.element), "exact" if exact else ""])
    parts = geometry.is_tall, divides, exact, stage.format.is_float, one_zero, counted
    codes = [
        largest_code("tall" if geometry.is_tall else "wide"),
        steps_code(text),
        elements_code(elements.Shape(*map(int, parts))),
    ]
    functions, (find, run, write) = zip(*codes, strict=True)
    scales = list(tiles[0].counts)
    # Blocks follow each other in memory in the order of the array's axes; `counts` has the axis of the blocks last.
    scales.insert(axis % len(shape), scales.pop())
    outer = None if rule.outer is None else tiles[1].counts
    numbers = _numbers_of_steps(fmt), _numbers_of_elements(stage, geometry)
    constants = constants_of(fmt, np.float32)
    return _Plan(geometry, functions, (find, run, write), *numbers, exact, divides, constants, tuple(scales), outer)


@lru_cache(maxsize=2)
def largest_code(layout: str) -> tuple[Any, int]:
    """Return the compiled code of largest magnitudes, of "wide" or "tall" blocks, and the address to call."""

    @partial(kernel, by_address=True)
    def find(x: int, stride: int, rows: int, blocks: int, vectors: int, amax: int) -> int:
        return elements.largest_of_blocks(layout, x, stride, rows, blocks, vectors, amax)

    return find, entry_of(find, 6)


@lru_cache(maxsize=256)
def steps_code(text: str) -> tuple[Any, int]:
    """Return the compiled code of a rule's steps, and the address to call."""

    @partial(kernel, by_address=True)
    def run(amax: int, stored: int, factors: int, vectors: int, parameters: int) -> int:
        return steps.run_steps(text, amax, stored, factors, vectors, parameters)

    return run, entry_of(run, 5)


@lru_cache(maxsize=64)
def elements_code(shape: elements.Shape) -> tuple[Any, int]:
    """Return the compiled code of elements, and the address to call."""
    text = shape.text()

    @partial(kernel, by_address=True)
    def write(
        x: int,
        out: int,
        stride: int,
        rows: int,
        blocks: int,
        vectors: int,
        factors: int,
        scales: int,
        past_caches: int,
        parameters: int,
        tallies: int,
    ) -> int:
        return elements.write_elements(
            text, x, out, stride, rows, blocks, vectors, factors, scales, past_caches, parameters, tallies
        )

    return write, entry_of(write, 11)


def _numbers_of_steps(fmt: Scaled) -> NDArray[np.int64]:
    scale = fmt.levels[0].scale
    block = np.zeros(steps.N_NUMBERS + steps.N_INTEGERS, np.int64)
    numbers, integers = block[: steps.N_NUMBERS].view(np.float64), block[steps.N_NUMBERS :]
    numbers[[steps.LARGEST, steps.POWER]] = [fmt.largest, 2.0**fmt.element_exponent]
    numbers[[steps.SCALE_MAX, steps.BEYOND]] = [scale.max, scale.max if fmt.ignores_nan else math.nan]
    integers[[steps.LOWEST, steps.HIGHEST]] = [scale.emin, scale.emax]
    integers[steps.SCALE_EMIN] = (scale.emin + steps.BIAS) << steps.FRACTION_BITS
    integers[steps.SCALE_DROPPED] = (steps.FRACTION_BITS - scale.fraction_bits) << steps.FRACTION_BITS
    integers[steps.DIGITS_DROPPED] = max(steps.FRACTION_BITS + 1 - fmt.element_digits, 0)
    integers[steps.IGNORES_NAN] = fmt.ignores_nan
    return block


def _numbers_of_elements(stage: StageCode, geometry: Geometry) -> NDArray[np.int64]:
    fmt, prepared = stage.format, prepare(stage)
    block = np.zeros(elements.N_NUMBERS + elements.N_INTEGERS, np.int64)
    numbers, integers = block[: elements.N_NUMBERS].view(np.float64), block[elements.N_NUMBERS :]
    numbers[[elements.HIGH, elements.LOW]] = [prepared.high, prepared.low]
    numbers[[elements.SCALE, elements.STEP]] = [2.0**-fmt.quantum, 2.0**fmt.quantum]
    # What is prefetched while a panel is written: the next panel, beside it or in the next strip.
    is_last = geometry.columns == geometry.length
    integers[elements.AHEAD] = geometry.rows * geometry.length if is_last else geometry.columns
    if fmt.is_float:
        numbers[elements.SMALLEST] = math.ldexp(1.0, fmt.emin)
        dropped = steps.FRACTION_BITS - (fmt.precision - 1)
        integers[elements.EMIN_FIELD] = (fmt.emin + steps.BIAS) << steps.FRACTION_BITS
        integers[elements.DROPPED] = dropped << steps.FRACTION_BITS
    return block
