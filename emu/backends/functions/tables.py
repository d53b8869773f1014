"""Function tables: for an input format of up to 16 bits, a function's result for every code, rounded once.

    code ──► table ──► value, register exponent, flags
                └────► stochastic: value below, value above, first r dropped bits:  above if u >= 2**r - dropped

Tables are made on the host on first use, kept in memory, and kept on disk for the next run. Every backend gathers from
the same table.

Source: docs/concepts/functions.md; rounding, overflow and flags are those of the reference backend's output stage.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.functions import store
from emu.backends.functions.double import FUNCTIONS
from emu.backends.functions.evaluation import LEADING_LIMIT, NO_LEADING, Shortened, evaluate
from emu.backends.functions.grid import Grid
from emu.backends.interface import (
    BECAME_ZERO,
    DIVISION_FLAG,
    Outcome,
    RegisterCode,
    StageCode,
    Write,
    encode_stage,
)
from emu.backends.modes import draws, meaning_of
from emu.backends.reference.exact import FINITE, INFINITE, Exact
from emu.backends.reference.stage import draw_bits, observe, write
from emu.datapath import FLAG_NAMES, OutputStage
from emu.datapath.pending import NO_EXPONENT
from emu.errors import FormatError, nearest_name
from emu.formats import Format
from emu.formats.arrays import MAX_ENUMERABLE_BITS

Array = NDArray[Any]

#: Tables kept in memory: about 1 MB each at 16 bits.
TABLES_IN_MEMORY = 64

__all__ = [
    "LEADING_LIMIT",
    "NO_LEADING",
    "FunctionTable",
    "flag_counts",
    "function_table",
    "is_tabled",
    "register_places",
]


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """What a function writes for every code of an input format.

    All arrays have shape (2**width,), are indexed by code, and cannot be written.

    Attributes:
        source: the input format.
        values: what is written, in the carrier of the output format; for stochastic rounding what is written if u
            does not move it: the neighbour below (fixed) or toward zero (float), after the overflow rule.
        flags: uint8; bit i is flag i of `FLAG_NAMES`.
        leading: int32; floor(log2|y|) of the exact function value y, cut to +-LEADING_LIMIT; NO_LEADING for 0,
            infinity, NaN.
        exponent: int32; the same for the statistics register: one lower if y is exactly -2**n, whose leading bit in
            two's complement is that of weight 2**(n-1).
        negative: sign of y.
        kind: uint8; FINITE, INFINITE, NAN or NEW_NAN of `emu.backends.reference.exact`.
        next_values: stochastic only, else empty: what is written if u moves it.
        next_flags: the flags that go with it.
        dropped: uint32; the first r dropped bits, as the mode rounds them: `next_values` is written if u + dropped
            >= 2**r.
    """

    source: Format
    values: Array
    flags: NDArray[np.uint8]
    leading: NDArray[np.int32]
    exponent: NDArray[np.int32]
    negative: NDArray[np.bool_]
    kind: NDArray[np.uint8]
    next_values: Array
    next_flags: NDArray[np.uint8]
    dropped: NDArray[np.uint32]

    def lookup(self, codes: Array, *, n_rbits: int = 0, u: Array | None = None) -> tuple[Array, NDArray[np.uint8]]:
        """Return values and flag bits for `codes` (any shape, unsigned).

        Args:
            codes: codes of the input format.
            n_rbits: r, if the table is for stochastic rounding.
            u: random integers below 2**r, the shape of `codes`; None for the other modes.
        """
        values, flags = self.values[codes], self.flags[codes]
        if u is None:
            return values, flags
        moves = u.astype(np.int64) + self.dropped[codes] >= 1 << n_rbits
        return np.where(moves, self.next_values[codes], values), np.where(moves, self.next_flags[codes], flags)

    def observed(self, codes: Array) -> Exact:
        """Return what a statistics register sees: numbers with the sign, leading bit and kind of the exact values."""
        leading, negative, kind = self.leading[codes], self.negative[codes], self.kind[codes]
        # a register tells -2**n from other numbers with its leading bit: 1 stands for it, 1.1 in binary (3/2) for those
        is_power = self.exponent[codes] < leading
        significand = np.where(leading == NO_LEADING, 0, np.where(is_power, 1, 3)).astype(np.int64)
        return Exact(negative, significand, leading - (significand == 3).astype(np.int64), kind)

    def outcome(self, x: Array, write: Write) -> Outcome:
        """Return what a kernel returns: values, flag counts, register counts.

        Args:
            x: values of `source`, any shape.
            write: the output stage the table was made for, the source of u for stochastic rounding, and the register.
        """
        stage, random, register = write
        codes = self.source.encode(x)
        values, flags = self.lookup(codes, n_rbits=stage.n_rbits, u=draw_bits(x.shape, stage, random))
        # how often each of the 256 patterns of flags occurs
        by_pattern = np.bincount(flags.reshape(-1), minlength=256)
        positions, max_exponent = (
            observe(self.observed(codes), register) if register is not None else (None, NO_EXPONENT)
        )
        return Outcome(np.asarray(values), flag_counts(by_pattern), positions, max_exponent)


#: Shape (flags, 256): 1 if a pattern, a byte of `FunctionTable.flags`, has the flag.
_RAISED_BY_PATTERN = (np.arange(256) >> np.arange(len(FLAG_NAMES))[:, None] & 1).astype(np.int64)


def flag_counts(by_pattern: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each flag was raised, from how often each of the 256 patterns of flags was."""
    return _RAISED_BY_PATTERN @ by_pattern


@lru_cache(maxsize=64)
def register_places(table: FunctionTable, register: RegisterCode) -> NDArray[np.int64]:
    """Return, per code, the index of the register's count that goes up."""
    bins, none = register.bins, 2 * register.bins
    position = table.exponent.astype(np.int64) - register.lowest
    # negative positions follow the positive ones
    places = np.where(table.negative, position + bins, position)
    # after the positions of both signs, in the order of `SCALARS`: none, below, above, nonfinite
    places[position < 0] = none + 1
    places[position >= bins] = none + 2
    # raw -1, a negative power of two at the accumulator's last place, is all ones: it has no leading bit
    minus_one = (table.exponent < table.leading) & (table.leading == register.fixed_quantum)
    places[(table.leading == NO_LEADING) | minus_one] = none
    places[table.kind != FINITE] = none + 3
    # the last assignment wins: what is not finite is nothing else
    return places


def is_tabled(source: Format) -> bool:
    """Return whether functions of this input format are tables (up to 16 bits) instead of float64 sequences."""
    return source.width_bits <= MAX_ENUMERABLE_BITS


def function_table(
    name: str, source: Format, stage: OutputStage, *, tininess: int = BECAME_ZERO, folder: Path | None = None
) -> FunctionTable:
    """Return the table of a function, from memory, from disk, or made now (0.1 to a few seconds).

    Args:
        name: one of `FUNCTIONS`.
        source: input format, at most 16 bits.
        stage: format, rounding and overflow of what is written.
        tininess: which underflow is flagged: a result that became 0, or IEEE 754's (`StageCode.tininess`).
        folder: where tables are kept; None is the user's cache.

    Raises:
        FormatError: no such function, an input format of more than 16 bits, or one whose values float64 cannot hold.

    Exactness: every entry is correctly rounded. Under `wrap` a finite value of 2**1024 or more counts as infinite.
    """
    if name not in FUNCTIONS:
        raise FormatError(f"a function must be one of emu's, got {name!r}{nearest_name(name, FUNCTIONS)}")
    if not is_tabled(source):
        raise FormatError(
            f"the input format of a tabled function must have at most {MAX_ENUMERABLE_BITS} bits, {source} has "
            f"{source.width_bits}; wider inputs are computed in float64"
        )
    if source.carries_raws:
        raise FormatError(
            "the values of a tabled function's input format must be float64 numbers, "
            f"those of {source} are not; move its point"
        )
    return _table(name, source, stage, tininess, folder or store.default_folder())


@lru_cache(maxsize=TABLES_IN_MEMORY)
def _table(name: str, source: Format, stage: OutputStage, tininess: int, folder: Path) -> FunctionTable:
    # without random bits their number does not matter: stages that differ in it alone share a file
    n_rbits = stage.n_rbits if stage.rounding.draws else 0
    key = f"{name} {source} {stage.format} {stage.rounding.value} {stage.overflow.value} {n_rbits} {tininess}"
    path = store.path_of(folder, key)
    arrays = store.load(path, key)
    # a file with other arrays was not written by this code: it is made again
    if arrays is None or arrays.keys() != {f.name for f in fields(FunctionTable)} - {"source"}:
        arrays = _make(name, source, encode_stage(stage)._replace(tininess=tininess))
        store.save(path, key, arrays)
    # all callers share these arrays
    for array in arrays.values():
        array.flags.writeable = False
    return FunctionTable(source, **arrays)


def _make(name: str, source: Format, stage: StageCode) -> store.Arrays:
    # values of all codes in order; a DAZ format gives 0 for subnormal codes
    x = source.decode(source.codes()).astype(np.float64)
    grid = Grid.of(stage)
    shortened = evaluate(name, x, grid)
    exact, leading = shortened.exact, shortened.leading
    poles = (x == 0) & (exact.kind == INFINITE)  # as 1/0: they raise the flag of a division by zero
    # the table's exponents have 32 bits; `leading` was cut to them
    arrays: store.Arrays = {
        "leading": leading.astype(np.int32),
        "exponent": (leading - (shortened.is_power & exact.negative)).astype(np.int32),
        "negative": exact.negative,
        "kind": exact.kind,
    }
    if not draws(stage):
        arrays["values"], arrays["flags"] = _written(exact, poles, stage, None)
        return arrays | {
            "next_values": arrays["values"][:0],
            "next_flags": arrays["flags"][:0],
            "dropped": np.empty(0, np.uint32),
        }
    # every u gives what u = 0 gives, or what the largest u gives
    u = np.zeros(x.shape, np.int64)
    arrays["values"], arrays["flags"] = _written(exact, poles, stage, u)
    arrays["next_values"], arrays["next_flags"] = _written(exact, poles, stage, u + ((1 << stage.n_rbits) - 1))
    arrays["dropped"] = _dropped(shortened, grid, stage)
    return arrays


def _written(exact: Exact, poles: Array, stage: StageCode, u: Array | None) -> tuple[Array, NDArray[np.uint8]]:
    with np.errstate(all="ignore"):
        values, masks = write(exact, stage, u)
    masks[DIVISION_FLAG] |= poles
    # seven masks, a bit each
    return values, np.packbits(np.stack(masks), axis=0, bitorder="little")[0]


def _dropped(shortened: Shortened, grid: Grid, stage: StageCode) -> NDArray[np.uint32]:
    """Return the r bits below the last one written, rounded by the mode's steps from all bits that follow.

    They are bits of the magnitude (floats, words of sign and magnitude) or of the two's complement. If the rounding
    carries into the last bit written, the r bits are 0, and every u moves the value: `values`, written for u = 0, has
    moved already.
    """
    exact = shortened.exact.as_object()  # Python integers: a step may lie far below 64 bits
    shift = (grid.step(shortened.leading) - exact.exponent).astype(object)
    # the bits down to the grid's last spare bit
    left, right = np.maximum(-shift, 0), np.maximum(shift, 0)
    significand: Array = exact.significand << left
    kept: Array = significand >> right
    cut = (kept << right) != significand  # the sticky bit
    if not stage.format.rounds_magnitudes:
        kept = np.where(exact.negative, -kept - cut.astype(object), kept)  # floor: bits of two's complement are dropped
    guard_bits = grid.spare_bits - stage.n_rbits  # 1 if the mode rounds the r bits to nearest, else 0
    first: Array = kept >> guard_bits
    case = 2 * (kept - (first << guard_bits)) + cut  # guard and sticky bit: the `Place` that selects the step
    steps = np.array(meaning_of(stage).steps(is_float=stage.format.rounds_magnitudes).table)
    moved = first + steps[(case + 4 * (first & 1)).astype(np.intp)]
    return (moved & ((1 << stage.n_rbits) - 1)).astype(np.uint32)
