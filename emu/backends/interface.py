"""What every backend implements: kernels on plain arrays and integers.

A kernel knows bits, not objects. Formats, output stages, accumulators, registers and random sources reach it
as tuples of integers, arrays as C-contiguous carriers; it returns an `Outcome`: the written array and
counts. `encode_*` turn descriptions into tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_on_device, namespace
from emu.backends.codecs import CodecKernels
from emu.backends.gathered import Gathered
from emu.backends.pattern import Columns, Indices, Pattern
from emu.datapath import Mac, OutputStage, Philox, RandomSource, RecordedBits, StatisticsRegister
from emu.datapath.order import Blocks, Lanes, Pairwise
from emu.datapath.owed import Counted, Owed
from emu.formats import Fixed, Format

if TYPE_CHECKING:
    from emu.backends.functions import FunctionTable

Array = NDArray[Any]

#: Rounding and overflow numbers, as `Rounding.number` and `Overflow.number` count them.
(NEAREST_EVEN, NEAREST_AWAY, NEAREST_UP, NEAREST_DOWN, NEAREST_ZERO, FLOOR, CEIL, TOWARD_ZERO, TO_ODD, STOCHASTIC) = (
    range(10)
)
(SATURATE, SATURATE_SYMMETRIC, SATURATE_ZERO, WRAP, IEEE, SATFINITE) = range(6)

#: Paths of a product on which no partial sum is ever rounded, whatever the order.
EXACT_PATHS = ("integer_dot", "float32_blas", "float64_blas")


def is_one_number(array: Array) -> bool:
    """Return whether one element of an operand stands for all: kernels read it once."""
    return array.size > 1 and not any(array.strides)


def repeated(number: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of one element as one of any shape, where it stands for all."""
    if is_on_device(number):
        return namespace(number).broadcast_to(number.reshape((1,) * len(shape)), shape)
    return np.ndarray(shape, number.dtype, number, strides=(0,) * len(shape))


#: Positions of the counts in `Outcome.flags`, as `FLAG_NAMES` orders them.
(OVERFLOW_FLAG, UNDERFLOW_FLAG, INEXACT_FLAG, INVALID_FLAG, SUBNORMAL_FLAG, ACCUMULATOR_FLAG, DIVISION_FLAG) = range(7)
N_FLAGS = 7
#: What a stage's `tininess` may be: the underflow counted is a nonzero result that became 0, or IEEE 754's.
(BECAME_ZERO, BEFORE_ROUNDING, AFTER_ROUNDING) = range(3)


class FormatCode(NamedTuple):
    """A format as integers: value = significand * 2**exponent, exponent >= quantum, significand < 2**precision.

    `quantum` is the exponent of the finest step; `precision` 0 means unbounded (fixed point:
    every exponent is the quantum).
    """

    is_float: int
    width_bits: int
    signed: int
    quantum: int
    precision: int
    emin: int
    max_significand: int
    max_exponent: int
    has_infinity: int
    has_nan: int
    has_negative_zero: int
    ftz: int
    daz: int
    carries_raws: int


class StageCode(NamedTuple):
    """An output stage as integers; `tininess` says which underflow a float format counts, after rounding or before.

    Stochastic stages never say after.
    """

    format: FormatCode
    rounding: int
    overflow: int
    n_rbits: int
    tininess: int = BECAME_ZERO


class RegisterCode(NamedTuple):
    """Positions of a statistics register.

    `fixed_quantum`: exponent of the fixed accumulator observed (raw -1 is `none`), or NO_QUANTUM.
    """

    lowest: int
    bins: int
    fixed_quantum: int


NO_QUANTUM = -(1 << 40)


class RandomCode(NamedTuple):
    """Where random bits come from: Philox numbers, or recorded bits of the result's shape.

    `elements`: the number of every result, where these are some of a larger whole; else 0, 1, 2 ... in C order.
    """

    seed: int
    stream: int
    step: int
    draw: int
    recorded: Array | None
    elements: NDArray[np.int64] | None = None


NO_FLOOR = -(1 << 40)


class BlocksCode(NamedTuple):
    """Blocks of products as integers.

    `indices`: the k of one period in the order taken, a multiple of `n` of them; `adds_after`: whether the
    accumulator is added after each period instead of aligned with each block; `min_exponent`: or NO_FLOOR.
    """

    n: int
    fraction_bits: int
    indices: tuple[int, ...]
    adds_after: int
    min_exponent: int


class MacCode(NamedTuple):
    """A multiply-accumulate unit as integers; None stands for an exact product or accumulator."""

    product: StageCode | None
    accumulator: StageCode | None
    order: int
    lanes: int
    blocks: BlocksCode | None = None


(SEQUENTIAL, PAIRWISE, LANES, BLOCKS) = range(4)


Result = TypeVar("Result")


@dataclass
class Outcome:
    """What a kernel wrote and counted.

    Attributes:
        values: carrier array of the output format.
        flags: int64, shape (7,): counts in the order of `FLAG_NAMES`.
        register: int64, shape (2*bins + 5,), or None where none was asked for.
        max_exponent: largest floor(log2|x|) observed, `NO_EXPONENT` if nothing nonzero was.
        owed: flags, register and exponent where a device still holds them, else None; to look at them fetches them.
    """

    values: Array
    flags: NDArray[np.int64]
    register: NDArray[np.int64] | None
    max_exponent: int
    owed: Owed | None = None

    @classmethod
    def owing(cls, values: Array, owed: Owed) -> Outcome:
        """Return what a kernel wrote whose counts are on a device."""
        return _Owing(values, owed)

    def elsewhere(self, values: Array) -> Outcome:
        """Return the same counts beside the values in another place; what is owed stays so."""
        return replace(self, values=values)


class _Owing(Outcome):
    """An outcome whose counts are fetched when they are looked at."""

    def __init__(self, values: Array, owed: Owed) -> None:
        self.values, self.owed = values, owed

    def __getattr__(self, name: str) -> Any:
        if name not in Counted._fields:
            raise AttributeError(name)
        assert self.owed is not None
        for field, value in self.owed.collect(())._asdict().items():
            setattr(self, field, value)
        return self.__dict__[name]

    def elsewhere(self, values: Array) -> Outcome:
        """Return the same counts beside the values in another place."""
        assert self.owed is not None
        return _Owing(values, self.owed)


class Kernels(CodecKernels, Protocol):
    """The table of kernels. Each method is one; shapes and dtypes are the engine's to check.

    Those of gradient codecs are in `codecs.py`.
    """

    name: str

    def place(self, x: Array) -> Array:
        """Return an array where this backend computes; results stay where an operand is."""
        ...

    def together(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Return the results of tasks of which none needs another's; what follows finds all of them done."""
        ...

    def quantize(
        self,
        x: Array,
        source: FormatCode | None,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        out: Array | None,
    ) -> Outcome:
        """Write `x` (any shape; float32, float64, or raws of `source`) through the output stage.

        Where `out` holds signed integers and the format's carrier does not, raws are written.
        """
        ...

    def elementwise(
        self,
        operation: str,
        operands: tuple[Array, ...],
        formats: tuple[FormatCode | None, ...],
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        out: Array | None,
    ) -> Outcome:
        """Write an operation of operands of equal shape: add, ... sqrt, remainder, round_to_integral."""
        ...

    def product(
        self,
        a: Array | Gathered,
        b: Array | Gathered,
        addend: Array | None,
        formats: tuple[FormatCode, FormatCode, FormatCode | None],
        mac: MacCode,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        path: str,
        divisor: int,
    ) -> Outcome:
        """Write a (B, M, K) times b (B, K, N) plus addend (B or 1, M or 1, N or 1), divided by a positive integer.

        Gathered operands may have one matrix for the whole batch.
        """
        ...

    def declines(
        self,
        formats: tuple[FormatCode, FormatCode, FormatCode | None],
        mac: MacCode,
        stage: StageCode,
        path: str,
        divisor: int,
    ) -> str:
        """Return why a product on this path is left to the reference, "" if this backend computes it."""
        ...

    def sparse_product(
        self,
        data: Array,
        dense: Array,
        addend: Array | None,
        pattern: Pattern,
        formats: tuple[FormatCode, FormatCode, FormatCode | None],
        mac: MacCode,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
        path: str,
    ) -> Outcome:
        """Write for every result the dot products of its entries, in storage order, plus an addend: (R, H).

        Args:
            data: carriers of the stored entries, one line.
            dense: carriers (rows, H).
            addend: carriers (R or 1, H or 1), or None.
            pattern: what is multiplied with what.
            formats: of the three.
            mac: the unit.
            stage: output stage.
            random: source of random bits, numbered over all results.
            register: positions of the statistics register, or None.
            path: the plan's.
        """
        ...

    def declines_sparse(
        self, formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, stage: StageCode, path: str
    ) -> str:
        """Return why a sparse product on this path is left to the reference, "" if this backend computes it."""
        ...

    def way_of_sparse(self, formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, path: str) -> str:
        """Return how a sparse product on this path is computed, in words behind its proof."""
        ...

    def columns(self, index: Indices, count: int) -> Columns:
        """Return which of `count` columns have entries, (entries,) int32 or int64: marked and counted up."""
        ...

    def dots(self, formats: tuple[FormatCode, FormatCode, FormatCode | None]) -> bool:
        """Return whether exact sums of these operands come from integer dot-product instructions."""
        ...

    def function(
        self,
        name: str,
        x: Array,
        source: FormatCode | None,
        stage: StageCode,
        random: RandomCode,
        register: RegisterCode | None,
    ) -> Outcome:
        """Write an elementary function of `x`, float32 or float64 of a source format, any shape.

        It is the double of `functions/double.py`, rounded.
        """
        ...

    def tabled(
        self, table: FunctionTable, x: Array, stage: StageCode, random: RandomCode, register: RegisterCode | None
    ) -> Outcome:
        """Write what the function's table holds for `x`, values of its input format, any shape."""
        ...

    def way(
        self, formats: tuple[FormatCode, FormatCode, FormatCode | None], mac: MacCode, path: str, depth: int
    ) -> str:
        """Return how a product on this path is computed, in words behind its proof; "" if the proof says it."""
        ...

    def relu(self, x: Array) -> Array:
        """Return x where x > 0, NaN where NaN, else +0."""
        ...

    def relu_gradient(self, g: Array, x: Array) -> Array:
        """Return g where x > 0, else +0; arrays of the same shape, each of any carrier dtype."""
        ...

    def largest_magnitudes(self, arrays: Sequence[Array]) -> list[float]:
        """Return the largest magnitude in each array of carriers: 0.0 of none, NaN where there is one."""
        ...

    def max_pool(self, windows: Array | Gathered) -> tuple[Array, NDArray[np.unsignedinteger[Any]]]:
        """Return maximum and index of the first maximum along the last axis; NaN wins, -0 < +0.

        Indices are of the smallest unsigned dtype that counts a window: uint8 up to 256 values, then uint16, uint32.
        """
        ...

    def unpool(self, values: Array, index: NDArray[np.unsignedinteger[Any]], windows: Gathered) -> Array:
        """Return zeros, (windows.data.size,), with each value at its window's index-th place; windows never overlap."""
        ...


@lru_cache(maxsize=1024)
def encode_format(fmt: Format) -> FormatCode:
    """Return the integers of a format."""
    if isinstance(fmt, Fixed):
        return FormatCode(
            is_float=0,
            width_bits=fmt.width_bits,
            signed=int(fmt.signed),
            quantum=-fmt.frac_bits,
            precision=0,
            emin=-fmt.frac_bits,
            max_significand=fmt.max_raw,
            max_exponent=-fmt.frac_bits,
            has_infinity=0,
            has_nan=0,
            has_negative_zero=0,
            ftz=0,
            daz=0,
            carries_raws=int(fmt.carries_raws),
        )
    quantum = fmt.emin - fmt.fraction_bits
    field = max(fmt.max_code >> fmt.fraction_bits, 1)
    hidden = 1 << fmt.fraction_bits if fmt.max_code >> fmt.fraction_bits else 0
    return FormatCode(
        is_float=1,
        width_bits=fmt.width_bits,
        signed=1,
        quantum=quantum,
        precision=fmt.significand_bits,
        emin=fmt.emin,
        max_significand=(fmt.max_code & ((1 << fmt.fraction_bits) - 1)) + hidden,
        max_exponent=quantum + field - 1,
        has_infinity=int(fmt.infinities),
        has_nan=int(fmt.nans != "none"),
        has_negative_zero=int(fmt.has_negative_zero),
        ftz=int(fmt.ftz),
        daz=int(fmt.daz),
        carries_raws=0,
    )


@lru_cache(maxsize=1024)
def encode_stage(stage: OutputStage) -> StageCode:
    """Return the integers of an output stage."""
    return StageCode(encode_format(stage.format), stage.rounding.number, stage.overflow.number, stage.n_rbits)


@lru_cache(maxsize=1024)
def encode_mac(mac: Mac) -> MacCode:
    """Return the integers of a multiply-accumulate unit."""
    product = None if mac.product == "exact" else encode_stage(mac.stage_of(mac.product))
    accumulator = None if mac.accumulator == "exact" else encode_stage(mac.stage_of(mac.accumulator))
    if isinstance(mac.order, Lanes):
        return MacCode(product, accumulator, LANES, mac.order.count)
    if isinstance(mac.order, Blocks):
        return MacCode(product, accumulator, BLOCKS, 1, _encode_blocks(mac.order))
    return MacCode(product, accumulator, PAIRWISE if isinstance(mac.order, Pairwise) else SEQUENTIAL, 1)


def _encode_blocks(order: Blocks) -> BlocksCode:
    floor = NO_FLOOR if order.min_exponent is None else order.min_exponent
    return BlocksCode(order.n, order.fraction_bits, order.indices, int(order.addend == "after"), floor)


def encode_random(source: RandomSource) -> RandomCode:
    """Return the numbers of a random source."""
    if isinstance(source, RecordedBits):
        return RandomCode(0, 0, 0, 0, source.bits)
    assert isinstance(source, Philox)
    return RandomCode(source.seed % 2**64, source.stream % 2**32, source.step % 2**32, source.draw, None)


def encode_register(register: StatisticsRegister, fixed_quantum: int | None) -> RegisterCode:
    """Return the positions of a placed register."""
    assert register.lowest is not None
    assert register.bins is not None
    return RegisterCode(register.lowest, register.bins, NO_QUANTUM if fixed_quantum is None else fixed_quantum)


@lru_cache(maxsize=1024)
def carrier_of(fmt: FormatCode) -> np.dtype[Any]:
    """Return the carrier dtype of a format given as integers."""
    if fmt.carries_raws:
        return np.dtype(np.int64 if fmt.signed else np.uint64)
    significant = fmt.precision if fmt.is_float else fmt.width_bits - fmt.signed
    top = fmt.max_exponent + (fmt.precision - 1 if fmt.is_float else significant)
    narrow = significant <= 24 and fmt.quantum >= -149 and top <= 127
    return np.dtype(np.float32 if narrow else np.float64)
