"""The output stage in vector code: 512 results are checked, rounded, bounded, written and counted in one pass.

A chunk with a subnormal number, an infinity or a NaN is left to plain loops: all numbers here are normal or zero. Lanes
compute in float32 if that is exact, else in float64:

    fixed   v = x / lsb     r = R(v)   bounded by the overflow rule          y = r * lsb
    float   v = x / ulp     r = R(v)   y = r * ulp, by adding to exponents   bounded by the overflow rule

Source: docs/concepts/flags.md, "The output stage and its flags"; docs/concepts/rounding.md; docs/concepts/overflow.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from numba import types

from emu.backends import interface as k
from emu.backends.numba.vector import arithmetic, leading_bits, philox
from emu.backends.numba.vector.lanes import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    INTEGER_OF,
    IR,
    LANES,
    Count,
    Emitter,
    Vector,
    array_pointer,
    intrinsic,
)
from emu.backends.numba.vector.rounding import Draw, draw_kind, rounded

#: Results of one chunk.
CHUNK = LANES * leading_bits.TREE
#: Array dtypes of those names.
KIND_DTYPES = {"f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "i8": "int8", "i16": "int16"}
#: Added up, the `overflow` of a float format: it may give NaN; subnormal results become zero; there is only one zero.
MAKES_NAN, FLUSHES, ONE_ZERO = 1, 2, 4
#: How many results ahead operands are prefetched, so that memory is read while a chunk is computed.
AHEAD = 2 * CHUNK
KINDS = {"f32": F32, "f64": F64, "i32": I32, "i64": I64, "i8": I8, "i16": I16}


@dataclass(frozen=True)
class Shape:
    """What is fixed when a stage is compiled; everything else is a number that is given to it.

    Attributes:
        operation: "quantize", or an elementwise operation.
        sources: type of each operand, "f32" or "f64", joined by commas.
        lane: float type it is computed in: "f32" or "f64".
        target: type of what is written: "f32" or "f64"; "i8", "i16", "i32" for the raws of a fixed format.
        is_float: whether a floating-point format is written.
        rounding: number of the mode, from `rounding.kind_of`.
        overflow: fixed: number of the rule, 0 if its limits are all that matters; float: the sum of `MAKES_NAN`,
            `FLUSHES` and `ONE_ZERO`.
        fields: random numbers in 128 bits (4, 8 or 16), 0 without random bits.
        words: words of 32 bits for the register's positions and the tallies, 0 without a register.
        directed: whether operations are rounded to odd by directions, else by errors.
    """

    operation: str
    sources: str
    lane: str
    target: str
    is_float: int
    rounding: int
    overflow: int
    fields: int = 0
    words: int = 0
    directed: int = 0

    def text(self) -> str:
        """Return the shape as a text, which compiled code can take as a literal."""
        return " ".join(str(getattr(self, field.name)) for field in fields(self))

    @classmethod
    def of_text(cls, text: str) -> Shape:
        """Return the shape that `text` describes."""
        words: list[Any] = text.split()
        return cls(*words[:4], *map(int, words[4:]))


#: Numbers that are given to a stage: an array of float64, then one of int64, by position.
(SCALE, STEP, HIGH, LOW, MODULUS, ABOVE, BELOW, SMALLEST, NAN, INVERSE, RANDOM_SCALE) = range(11)
(TIE, TIE_SIGN) = range(11, 13)
(QUANTUM, TAIL, LOWEST, BINS, FIXED_ACCUMULATOR, MINUS_ONE, N_RBITS) = range(7)
(DRAW, STREAM, STEP_NUMBER, KEY_LOW, KEY_HIGH) = range(7, 12)
N_NUMBERS, N_INTEGERS = 13, 12
#: Tallies of a stage: five flags (underflow and subnormal count zeros too), zeros, the largest exponent field.
(OVERFLOW, UNDERFLOW, INEXACT, INVALID, SUBNORMAL, ZEROS, TOP) = range(7)
N_TALLIES = 7
#: Bits at the top of the register's last word that count tallies.
TALLY_BITS = TOP


def _tally_bit(tally: int) -> int:
    """Return the bit of a register's last word that counts a tally, as a signed word: bit 31 is negative."""
    bit = 1 << (leading_bits.WORD_BITS - TALLY_BITS + tally)
    return bit - (bit >> (leading_bits.WORD_BITS - 1) << leading_bits.WORD_BITS)


class _Chunk:
    """Emits the code of one chunk: constants once, then vectors."""

    def __init__(self, e: Emitter, shape: Shape, numbers: Any, integers: Any) -> None:
        self.e, self.shape = e, shape
        self.lane, self.sources = KINDS[shape.lane], [KINDS[name] for name in shape.sources.split(",")]
        self.integer = INTEGER_OF[self.lane]
        self.fraction_bits, self.bias = (23, 127) if self.lane is F32 else (52, 1023)
        self.largest_field = 2 * self.bias + 1
        self.numbers = [self._splat_number(numbers, i) for i in range(N_NUMBERS)]
        self.integers = [e.load_scalar(I64, integers, e.integer(i)) for i in range(N_INTEGERS)]
        # With a register, tallies are bits of its last word: the same adders count them.
        self.tallies: dict[int, Count] = {} if shape.words else {t: Count(e) for t in range(TOP)}
        self.hot: list[Vector] = []
        self.top = e.variable(e.splat(self.integer, 0))

    def _splat_number(self, numbers: Any, position: int) -> Vector:
        scalar = self.e.load_scalar(F64, numbers, self.e.integer(position))
        return self.e.splat(self.lane, scalar if self.lane is F64 else self.e.builder.fptrunc(scalar, F32))

    def number(self, position: int) -> Vector:
        """Return a float parameter in each lane."""
        return self.numbers[position]

    def whole(self, position: int, kind: Any = None) -> Vector:
        """Return an integer parameter in each lane."""
        kind = kind or self.integer
        scalar = self.integers[position]
        return self.e.splat(kind, scalar if kind is I64 else self.e.builder.trunc(scalar, kind))

    def read(self, operands: list[Any], which: int, index: Any) -> Vector:
        """Return sixteen elements of an operand, in the lanes' float type."""
        return self.e.load(self.sources[which], operands[which], index).as_kind(self.lane)

    def compute(self, operands: list[Any], index: Any) -> tuple[Vector, list[Vector]]:
        """Return sixteen results of the operation, and its operands."""
        arrays = [self.read(operands, which, index) for which in range(len(self.sources))]
        operations = arithmetic.BY_DIRECTIONS if self.shape.directed else arithmetic.BY_ERRORS
        result = operations[self.shape.operation](self.e, *arrays)
        if self.shape.rounding == k.FLOOR and self.shape.operation in arithmetic.SUMS:
            result = arithmetic.zero_sum_under_floor(result, *arithmetic.SUMS[self.shape.operation](arrays))
        return result, arrays

    def magnitude(self, x: Vector) -> Vector:
        """Return the bits without the sign: integers in the order of magnitudes."""
        return x.bits() & ((1 << (self.integer.width - 1)) - 1)

    def examined(self, operands: list[Any], results: Any) -> tuple[Any, Vector]:
        """Return whether a chunk needs plain loops, and the largest magnitudes of its lanes.

        It does if it has a subnormal, an infinity or a NaN, or an operand has one of the latter. The results of an
        operation are written into the buffer `results`.
        """
        e = self.e
        none, least_special = e.splat(self.integer, -1), self.largest_field << self.fraction_bits
        # Magnitudes less 1: a zero becomes -1, as a signed integer below all others, as an unsigned one above them. So
        # neither the largest nor the smallest is a zero's, and one comparison finds both.
        largest, smallest, operand = e.variable(none), e.variable(none), e.variable(e.splat(self.integer, 0))
        with e.loop(e.integer(leading_bits.TREE)) as i:
            offset = e.builder.mul(i, e.integer(LANES))
            if self.shape.operation == "quantize":
                x = self.read(operands, 0, offset)
            else:
                x, arrays = self.compute(operands, offset)
                e.store(x, results, offset)
                for array in arrays:
                    # A subnormal operand is no exception: of operands, only infinities and NaN are looked for.
                    operand.set(self.magnitude(array).at_least(operand.now))
            below = self.magnitude(x) - 1
            largest.set(below.at_least(largest.now))
            smallest.set(below.at_most_unsigned(smallest.now))
        # Below the magnitude of the smallest normal number, a field of 1 and no fraction, are the subnormals.
        top = largest.now + 1
        normal = smallest.now.below_unsigned((1 << self.fraction_bits) - 1)
        return (normal | (top.at_least(operand.now) >= least_special)).any(), top

    def raise_top(self, magnitudes: Vector) -> None:
        """Remember the largest magnitudes seen."""
        self.top.set(magnitudes.at_least(self.top.now))

    def positions(self, x: Vector, zero: Vector) -> Vector:
        """Return the position at which each lane is counted: its leading bit less the lowest, or the tally of zeros."""
        bits = x.bits()
        # Less 1 in the pattern, -2**m has the exponent field below; other magnitudes keep theirs.
        lower_if_negative = self.magnitude(x) - (bits >> (self.integer.width - 1))  # -2**m counts one lower
        exponent = lower_if_negative >> self.fraction_bits  # biased, as `LOWEST` is
        # Above the last position, results are counted at `BINS`; below the first, positions are negative, and set no
        # bit.
        position = (exponent - self.whole(LOWEST)).at_most(self.whole(BINS))
        tally = leading_bits.WORD_BITS * self.shape.words - TALLY_BITS + ZEROS
        return zero.choose(self.e.splat(self.integer, tally), position).as_kind(I32)

    def observe(self, x: Vector, zero: Vector) -> None:
        """Count sixteen results: with a register, one-hot words of all and of the negative ones; else zeros."""
        if self.shape.words:
            # A word for each 32 positions; negative results are counted again in a second set.
            both = leading_bits.one_hot(self.e, self.positions(x, zero), self.shape.words)
            negative = x < 0.0
            self.hot = [*both, *(negative.choose(word, 0) for word in both)]
        else:
            self.count(zero, ZEROS)

    def count(self, where: Vector, *tallies: int) -> None:
        """Count the lanes of a mask: if there is a register, in the last word of all results."""
        if self.shape.words:
            last = self.shape.words - 1
            self.hot[last] = where.choose(self.hot[last] | sum(map(_tally_bit, tallies)), self.hot[last])
        else:
            for tally in tallies:
                self.tallies[tally].add_where(where)

    def draw(self, buffer: Any, index: Any) -> Draw | None:
        """Return the random integers of sixteen results from the chunk's buffer; None if the mode draws none."""
        if not self.shape.fields:
            return None
        e, bits = self.e, 128 // self.shape.fields
        field = e.load(IR.IntType(bits), buffer, e.builder.mul(index, e.integer(LANES)))
        kind: Any = draw_kind(self.lane)
        n_rbits = self.whole(N_RBITS, kind)
        # An integer is the highest bits of its field.
        u = field.as_kind(kind, signed=False) >> (e.splat(kind, bits) - n_rbits)
        return Draw(u.as_kind(self.lane), self.number(RANDOM_SCALE))

    def write(self, x: Vector, zero: Vector, draw: Draw | None) -> Vector:
        """Return what the stage writes for sixteen results; count the flags."""
        return self._write_float(x, zero, draw) if self.shape.is_float else self._write_fixed(x, draw)

    def rounded(self, v: Vector, draw: Draw | None) -> Vector:
        """Return results in units of the last place, rounded."""
        ties = self.number(TIE), self.number(TIE_SIGN)
        complement = not self.shape.is_float
        return rounded(self.e, v, self.shape.rounding, two_s_complement=complement, ties=ties, draw=draw)

    def _write_fixed(self, x: Vector, draw: Draw | None) -> Vector:
        shape = self.shape
        v = x * self.number(SCALE)
        r = self.rounded(v, draw)
        high = self.number(HIGH)
        # What clamping changes lies outside. r is no NaN: results are numbers, which scaling makes infinite at most.
        bounded = r.clamp(self.number(LOW), high)
        outside = bounded != r
        self.count(outside, OVERFLOW)
        self.count(bounded != v, INEXACT)  # only an exact result within the limits is unchanged
        self.count(r == 0.0, UNDERFLOW)  # zeros, which never move, are subtracted at the end
        if shape.overflow == k.SATURATE_ZERO:
            bounded = outside.choose(self.e.splat(self.lane, 0.0), r)
        elif shape.overflow == k.WRAP:
            bounded = outside.choose(self._wrapped(r, high), r)  # within the limits, r + 2**width might not be exact
        if shape.target in ("i8", "i16", "i32"):
            return bounded
        # + 0.0, as fixed point has no -0.
        return self.e.splat(self.lane, 0.0).plus_product(bounded, self.number(STEP))

    def _wrapped(self, r: Vector, high: Vector) -> Vector:
        """Return r modulo 2**width; 0 for an infinity: numbers as large as that are multiples of 2**width."""
        # Times the inverse of a power of two is division by it; the rest is rounded once, and exact.
        modulus = self.number(MODULUS)
        rest = r.plus_product((r * self.number(INVERSE)).floor(), modulus.negated())
        rest = (rest > high).choose(rest - modulus, rest)
        return (rest == rest).choose(rest, 0.0)  # infinity less infinity is NaN

    def _write_float(self, x: Vector, zero: Vector, draw: Draw | None) -> Vector:
        e, bits = self.e, self.fraction_bits
        # `last` is the exponent of the last place, in an exponent's field: of the number's own, not below the quantum.
        # Subtracting it from a normal number's bits scales that exactly; so does adding it to an integer's.
        field = x.bits() & (self.largest_field << bits)
        last = (field - ((self.whole(TAIL) + self.bias) << bits)).at_least(self.whole(QUANTUM) << bits)
        v = zero.choose(x, (x.bits() - last).bits_as(self.lane))
        r = self.rounded(v, draw)
        # A zero has no exponent that could be added to: it stays.
        became_zero = r == 0.0
        y = became_zero.choose(r, (r.bits() + last).bits_as(self.lane))
        beyond = abs(y) > self.number(HIGH)
        small = abs(y) < self.number(SMALLEST)
        if self.shape.overflow & FLUSHES:
            y = small.choose(e.splat(self.lane, 0.0).with_sign_of(y), y)
            self.count(small, UNDERFLOW)  # zeros are subtracted at the end
        else:
            self.count(became_zero, UNDERFLOW)
            self.count(small, SUBNORMAL)  # what became 0 is subtracted at the end
        makes_nan = self.shape.overflow & MAKES_NAN
        if makes_nan and self.shape.rounding not in (k.FLOOR, k.CEIL):
            self.count(beyond, OVERFLOW, INVALID)
            y = beyond.choose(self.number(NAN), y)
        else:
            self.count(beyond, OVERFLOW)
            y = beyond.choose((x < 0.0).choose(self.number(BELOW), self.number(ABOVE)), y)
            if makes_nan:  # on one side: on the other, the mode stops at the largest number
                nan = y != y
                self.count(nan, INVALID)
                y = nan.choose(self.number(NAN), y)
        self.count(y != x, INEXACT)  # an infinity or NaN that is written for a finite x, too
        return y + 0.0 if self.shape.overflow & ONE_ZERO else y


@intrinsic
def write_chunks(
    typing_context: Any,
    shape: Any,
    a: Any,
    b: Any,
    c: Any,
    a_step: Any,
    b_step: Any,
    c_step: Any,
    out: Any,
    index: Any,
    chunks: Any,
    past_caches: Any,
    parameters: Any,
    planes: Any,
    tallies: Any,
) -> Any:
    """Write up to `chunks` chunks of results; return how many were written before a chunk that needs plain loops.

    Args:
        typing_context: Numba's.
        shape: text of a `Shape`, a literal.
        a: address of the results, or of the first operand.
        b: address of the second operand, if there is one.
        c: address of the third.
        a_step: bytes from one element of the first to the next, 0 if a chunk of one number stands for all.
        b_step: the same of the second.
        c_step: the same of the third.
        out: address of what is written.
        index: index of the first in the logical result, a multiple of 16.
        chunks: how many.
        past_caches: whether to write past the caches; `out` must be aligned to 64 bytes then.
        parameters: address of the stage's numbers: float64 ones, int64 ones.
        planes: address of the register's counters, uint32.
        tallies: address of the tallies, int64, added to.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        integers = builder.add(args[11], e.integer(8 * N_NUMBERS))
        pointers = [
            builder.inttoptr(x, IR.PointerType(I8)) for x in (*args[1:4], args[7], args[11], integers, *args[12:])
        ]
        compiled = Shape.of_text(shape.literal_value)
        return _emit_chunks(e, compiled, pointers[:3], args[4:7], pointers[3], *args[8:11], *pointers[4:])

    return types.int64(shape, *[types.int64] * 13), generate


def _emit_chunks(
    e: Emitter,
    shape: Shape,
    operands: list[Any],
    steps: list[Any],
    out: Any,
    index: Any,
    chunks: Any,
    past_caches: Any,
    numbers: Any,
    integers: Any,
    planes: Any,
    tallies: Any,
) -> Any:
    builder = e.builder
    chunk = _Chunk(e, shape, numbers, integers)
    sets = 2 * shape.words
    quads = [leading_bits.Quads(e) for _ in range(sets)]
    carries, random = leading_bits.Carries(e, sets), e.buffer(I32, CHUNK)
    # Results of an operation are computed once, while they are examined, and read again from the stack.
    computed = e.buffer(F64, CHUNK) if shape.operation != "quantize" else None
    done = e.scalar_variable(e.integer(0))
    past = builder.icmp_signed("!=", past_caches, e.integer(0))
    address = philox.Address(*(chunk.integers[i] for i in (DRAW, STREAM, STEP_NUMBER, KEY_LOW, KEY_HIGH)))
    # A loop by hand, as a chunk that needs plain loops leaves it from `check`.
    head, check, body, end = (builder.append_basic_block(name) for name in ("head", "check", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.load(done, typ=I64)
    builder.cbranch(builder.icmp_signed("<", number, chunks), check, end)
    builder.position_at_end(check)
    start = builder.mul(number, e.integer(CHUNK))
    here = [
        e.at(x, builder.mul(number, builder.mul(step, e.integer(CHUNK))), I8)
        for x, step in zip(operands, steps, strict=True)
    ]
    exceptional, largest = chunk.examined(here, computed)
    builder.cbranch(exceptional, end, body)
    builder.position_at_end(body)
    chunk.raise_top(largest)
    if shape.fields:
        # `fields` elements share a counter.
        first = builder.sdiv(builder.add(index, start), e.integer(shape.fields))
        philox.fill(e, random, first, CHUNK // shape.fields // LANES, address)
    with e.loop(e.integer(leading_bits.TREE // leading_bits.QUAD)) as quad:
        hot: list[list[Vector]] = []
        written: list[tuple[Vector, Any]] = []
        for i in range(leading_bits.QUAD):
            vector = builder.add(builder.mul(quad, e.integer(leading_bits.QUAD)), e.integer(i))
            within = builder.mul(vector, e.integer(LANES))
            for kind, operand in zip(chunk.sources, here, strict=False):
                e.prefetch(kind, operand, builder.add(within, e.integer(AHEAD)))
            results = chunk.read(here, 0, within) if computed is None else e.load(F64, computed, within)
            zero = results == 0.0
            chunk.observe(results, zero)
            y = chunk.write(results, zero, chunk.draw(random, vector)).as_kind(KINDS[shape.target])
            hot.append(chunk.hot)
            written.append((y, builder.add(start, within)))
        # Whether to write past the caches is known at run time, but LLVM's stores are of one kind: both are emitted.
        with builder.if_else(past) as branches:
            for branch, past_caches in zip(branches, (True, False), strict=True):
                with branch:
                    for y, offset in written:
                        e.store(y, out, offset, past_caches=past_caches)
        for kind in range(sets):
            carries.keep(quads[kind].add([words[kind] for words in hot]), quad, kind)
    if shape.words:
        carries.add_chunk(planes, number)
    builder.store(builder.add(number, e.integer(1)), done)
    builder.branch(head)
    builder.position_at_end(end)
    for kind, quad in enumerate(quads):
        quad.store(e, planes, kind)
    if shape.words:
        carries.add_group(planes)
    _emit_tallies(e, chunk, tallies)
    return builder.load(done, typ=I64)


def _emit_tallies(e: Emitter, chunk: _Chunk, tallies: Any) -> None:
    """Add what the lanes counted to the tallies."""
    for tally, lanes in chunk.tallies.items():
        pointer = e.at(tallies, e.integer(tally), I64)
        total = lanes.now
        e.builder.store(e.builder.add(e.builder.load(pointer, typ=I64), total), pointer)
    field = e.builder.lshr(chunk.top.now.largest_unsigned(), chunk.integer(chunk.fraction_bits))
    wide = field if chunk.integer is I64 else e.builder.zext(field, I64)
    pointer = e.at(tallies, e.integer(TOP), I64)
    largest = e.builder.load(pointer, typ=I64)
    e.builder.store(e.builder.select(e.builder.icmp_signed(">", wide, largest), wide, largest), pointer)


@intrinsic
def drain_counters(typing_context: Any, sets: Any, planes: Any, used: Any, totals: Any) -> Any:
    """Add the register's counters, at the address `planes`, to `totals` (int64, 32 per set) and clear them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        counters = builder.inttoptr(args[1], IR.PointerType(I8))
        leading_bits.drain(
            Emitter(builder), counters, args[0], args[2], array_pointer(context, builder, signature.args[3], args[3])
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, totals), generate
