"""How descriptions reach a kernel, and what it returns.

A kernel works on bits, not on objects. Formats, output stages, accumulators, registers and random sources reach it as
tuples of integers (`encode_*` make them), arrays as C-contiguous carriers. It returns an `Outcome`: the written array
and counts. `kernels.py` lists the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import is_on_device, namespace
from emu.datapath import Mac, OutputStage, Philox, RandomSource, RecordedBits, StatisticsRegister
from emu.datapath.order import Blocks, Lanes, Pairwise, Promote
from emu.datapath.pending import Counted, PendingCounts
from emu.formats import Fixed, Format

Array = NDArray[Any]

#: Rounding and overflow numbers, as `Rounding.number` and `Overflow.number` count them. These modes have code of their
#: own in kernels; all others are masks (`modes.py`).
(NEAREST_EVEN, NEAREST_AWAY, NEAREST_UP, NEAREST_DOWN, NEAREST_ZERO, FLOOR, CEIL, TOWARD_ZERO, TO_ODD, STOCHASTIC) = (
    range(10)
)
(SATURATE, SATURATE_SYMMETRIC, SATURATE_ZERO, WRAP, IEEE, SATFINITE, SATPROPAGATE) = range(7)

#: Elementwise operations by number, as kernels know them: the first writes its operand as it is.
OPERATIONS = {
    name: number
    for number, name in enumerate(
        ("quantize", "add", "subtract", "multiply", "fma", "divide", "sqrt", "remainder", "round_to_integral")
    )
}
(QUANTIZE, ADD, SUBTRACT, MULTIPLY, FMA, DIVIDE, SQRT, REMAINDER, ROUND_TO_INTEGRAL) = OPERATIONS.values()

#: Paths of a product on which no partial sum rounds, in any order.
EXACT_PATHS = ("integer_dot", "float32_blas", "float64_blas")


def is_one_number(array: Array) -> bool:
    """Return whether one element of an operand stands for all: kernels read it once."""
    # an array of one element is read once anyway
    return array.size > 1 and not any(array.strides)


def repeated(number: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of one element in any shape, with all strides 0, so that it stands for all elements."""
    if is_on_device(number):
        return namespace(number).broadcast_to(number.reshape((1,) * len(shape)), shape)
    # the buffer of `number` serves every index
    return np.ndarray(shape, number.dtype, number, strides=(0,) * len(shape))


#: Positions of the counts in `Outcome.flags`, as `FLAG_NAMES` orders them.
(OVERFLOW_FLAG, UNDERFLOW_FLAG, INEXACT_FLAG, INVALID_FLAG, SUBNORMAL_FLAG, ACCUMULATOR_FLAG, DIVISION_FLAG) = range(7)
N_FLAGS = 7
#: What a stage's `tininess` may be: the underflow counted is a nonzero result that became 0, or IEEE 754's.
(BECAME_ZERO, BEFORE_ROUNDING, AFTER_ROUNDING) = range(3)


class FormatCode(NamedTuple):
    """A format as integers: value = significand * 2**exponent, exponent >= quantum, significand < 2**precision.

    `quantum` is the exponent of the finest step; `precision` 0 means that significands have no such limit (fixed point,
    where every exponent is the quantum). `sign_magnitude` is 1 of fixed-point words of sign and magnitude, `hidden_one`
    of floats whose hidden bit is one at exponent field 0 too: then 2**emin has no code.
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
    has_zero: int
    sign_magnitude: int = 0
    hidden_one: int = 0

    @property
    def rounds_magnitudes(self) -> bool:
        """Whether a number is a sign and a magnitude, which is rounded; else it is two's complement."""
        return bool(self.is_float or self.sign_magnitude)

    @property
    def is_only_defined(self) -> bool:
        """Whether only the definition writes the format: no compiled loop, and no kernel of a GPU."""
        return bool(self.sign_magnitude or self.hidden_one)


class StageCode(NamedTuple):
    """An output stage as integers; `tininess` says which underflow a float format counts.

    A stochastic stage never has AFTER_ROUNDING: `emu.engine.description.counting` says why.
    """

    format: FormatCode
    rounding: int
    overflow: int
    n_rbits: int
    tininess: int = BECAME_ZERO

    @property
    def lowest(self) -> int:
        """Smallest significand that a fixed-point stage writes."""
        if not self.format.signed:
            return 0
        is_symmetric = self.format.sign_magnitude or self.overflow == SATURATE_SYMMETRIC
        return -self.format.max_significand - (not is_symmetric)


class RegisterCode(NamedTuple):
    """Positions of a statistics register.

    `fixed_quantum`: exponent of the fixed accumulator observed (raw -1 is `none`), or NO_QUANTUM.
    """

    lowest: int
    bins: int
    fixed_quantum: int


#: No fixed accumulator: no exponent lies that low.
NO_QUANTUM = -(1 << 40)


class RandomCode(NamedTuple):
    """A source of random bits: the numbers of Philox, or recorded bits of the result's shape.

    `elements`: the number of each result, if these results are part of a larger array; None is 0, 1, 2 ... in C order.
    """

    seed: int
    stream: int
    step: int
    draw: int
    recorded: Array | None
    elements: NDArray[np.int64] | None = None

    def at_step(self, step: int) -> RandomCode:
        """Return the same numbers of Philox for the results of a training step."""
        # the step is a 32-bit word of Philox's counter
        return RandomCode(self.seed, self.stream, step % 2**32, self.draw, None)


class Write(NamedTuple):
    """How exact results are written.

    Attributes:
        stage: output stage that rounds, bounds and flags them.
        random: source of random bits.
        register: positions of the statistics register that observes them, or None.
    """

    stage: StageCode
    random: RandomCode
    register: RegisterCode | None


#: No smallest exponent of blocks: every term lies above it.
NO_FLOOR = -(1 << 40)


class BlocksCode(NamedTuple):
    """Blocks of products as integers.

    `indices`: the k of one period in the order taken, a multiple of `n` of them; `adds_after`: whether the
    accumulator is added after each period instead of aligned with each block; `min_exponent`: or NO_FLOOR; `group`: how
    many products are summed exactly before they are aligned as one term.
    """

    n: int
    fraction_bits: int
    indices: tuple[int, ...]
    adds_after: int
    min_exponent: int
    group: int = 1


class MacCode(NamedTuple):
    """A multiply-accumulate unit as integers; None stands for an exact product or accumulator."""

    product: StageCode | None
    accumulator: StageCode | None
    order: int
    lanes: int
    blocks: BlocksCode | None = None


(SEQUENTIAL, PAIRWISE, LANES, BLOCKS) = range(4)


@dataclass
class Outcome:
    """What a kernel wrote and counted.

    Attributes:
        values: carrier array of the output format.
        flags: int64, shape (7,): counts in the order of `FLAG_NAMES`.
        register: int64, shape (2*bins + 5,), or None if none was asked for.
        max_exponent: largest floor(log2|x|) observed, `NO_EXPONENT` if nothing nonzero was.
        pending: flags, register and exponent if they are still on a device, else None; reading one of them fetches all.
    """

    values: Array
    flags: NDArray[np.int64]
    register: NDArray[np.int64] | None
    max_exponent: int
    pending: PendingCounts | None = None

    @classmethod
    def with_pending(cls, values: Array, pending: PendingCounts) -> Outcome:
        """Return what a kernel wrote whose counts are still on a device."""
        return _PendingOutcome(values, pending)

    def with_values(self, values: Array) -> Outcome:
        """Return the same counts with values that were moved: into `out`, to a device, or into another shape."""
        return replace(self, values=values)


class _PendingOutcome(Outcome):
    """An outcome whose counts are fetched when any of them is read; until then it lacks these attributes."""

    def __init__(self, values: Array, pending: PendingCounts) -> None:
        # the counts stay unset, so that reading them comes to `__getattr__`
        self.values, self.pending = values, pending

    def __getattr__(self, name: str) -> Any:
        if name not in Counted._fields:
            raise AttributeError(name)
        assert self.pending is not None
        # all at once: from here on the names are ordinary attributes
        for field, value in self.pending.collect(())._asdict().items():
            setattr(self, field, value)
        return self.__dict__[name]

    def with_values(self, values: Array) -> Outcome:
        """Return the same counts with values that were moved; nothing is fetched."""
        assert self.pending is not None
        return _PendingOutcome(values, self.pending)


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
            has_zero=1,
            sign_magnitude=int(fmt.sign_magnitude),
        )
    quantum = fmt.emin - fmt.fraction_bits
    # exponent field and significand of the largest value; subnormals (field 0) have the exponent of field 1
    field = max(fmt.max_index >> fmt.fraction_bits, 1)
    # without normal values even the largest one is subnormal, and has no hidden bit
    hidden = 1 << fmt.fraction_bits if fmt.has_normals else 0
    return FormatCode(
        is_float=1,
        width_bits=fmt.width_bits,
        signed=int(fmt.signed),
        quantum=quantum,
        precision=fmt.significand_bits,
        emin=fmt.emin,
        max_significand=(fmt.max_index & ((1 << fmt.fraction_bits) - 1)) + hidden,
        # field 1 has the last place `quantum`, each field after it one more
        max_exponent=quantum + field - 1,
        has_infinity=int(fmt.infinities),
        has_nan=int(fmt.nans != "none"),
        has_negative_zero=int(fmt.has_negative_zero),
        ftz=int(fmt.ftz),
        daz=int(fmt.daz),
        carries_raws=0,
        has_zero=int(fmt.zero),
        hidden_one=int(fmt.hidden_one),
    )


@lru_cache(maxsize=1024)
def encode_stage(stage: OutputStage) -> StageCode:
    """Return the integers of an output stage.

    If the mode treats both alike, saturation into a word of sign and magnitude writes the same values as symmetric
    saturation into two's complement. Kernels are given the latter, so that each of them can write it.
    """
    fmt, overflow, meaning = encode_format(stage.format), stage.overflow.number, stage.rounding.meaning
    if fmt.sign_magnitude and overflow in (SATURATE, SATURATE_SYMMETRIC) and meaning.is_alike:
        # the same limits, and both write a 0 without sign
        fmt, overflow = fmt._replace(sign_magnitude=0), SATURATE_SYMMETRIC
    return StageCode(fmt, stage.rounding.number, overflow, stage.n_rbits)


@lru_cache(maxsize=1024)
def encode_mac(mac: Mac) -> MacCode:
    """Return the integers of a multiply-accumulate unit, which promotes no sums: `Mac.inner` of one that does."""
    assert not isinstance(mac.order, Promote)
    product = None if mac.product == "exact" else encode_stage(mac.stage_of(mac.product))
    accumulator = None if mac.accumulator == "exact" else encode_stage(mac.stage_of(mac.accumulator))
    if isinstance(mac.order, Lanes):
        return MacCode(product, accumulator, LANES, mac.order.count)
    if isinstance(mac.order, Blocks):
        return MacCode(product, accumulator, BLOCKS, 1, _encode_blocks(mac.order))
    # the number of lanes matters for LANES alone
    return MacCode(product, accumulator, PAIRWISE if isinstance(mac.order, Pairwise) else SEQUENTIAL, 1)


def _encode_blocks(order: Blocks) -> BlocksCode:
    floor = NO_FLOOR if order.min_exponent is None else order.min_exponent
    return BlocksCode(order.n, order.fraction_bits, order.indices, int(order.addend == "after"), floor, order.group)


def keeps_infinities(stage: StageCode) -> bool:
    """Return whether a stage whose finite results saturate writes an infinity as one."""
    return stage.overflow == SATPROPAGATE and bool(stage.format.has_infinity)


def encode_random(source: RandomSource) -> RandomCode:
    """Return the numbers of a random source."""
    if isinstance(source, RecordedBits):
        return RandomCode(0, 0, 0, 0, source.bits)
    assert isinstance(source, Philox)
    # kernels take 64 bits of the seed, and 32 of the others
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
    # of fixed point the most negative value, a power of two, is the largest magnitude
    top = fmt.max_exponent + (fmt.precision - 1 if fmt.is_float else significant)
    # as `Float.carrier` and `Fixed.carrier` decide: precision, smallest subnormal and largest exponent of float32
    narrow = significant <= 24 and fmt.quantum >= -149 and top <= 127
    return np.dtype(np.float32 if narrow else np.float64)
