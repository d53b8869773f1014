"""The vocabulary of vector code: numbers in sixteen lanes, written with Python's operators.

    v = e.load(F32, pointer, index)          sixteen neighbours
    r = (v * e.splat(F32, 256.0)).rint()     each lane on its own
    tally.add_where(r != v)                  counts the lanes of the mask

A `Vector` stands for an LLVM value; operators emit instructions at the `Emitter`'s position. Comparisons of floats are
false for NaN except `!=`; integers compare as signed unless the name says unsigned.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from llvmlite import binding, ir  # pyright: ignore[reportMissingTypeStubs]
from numba import types
from numba.core import cgutils  # pyright: ignore[reportMissingTypeStubs]
from numba.extending import intrinsic as _numba_intrinsic

from emu.backends.numba.machine import has_ternary_logic

# LLVM's builder says little about its types.
IR: Any = ir
_CODE: Any = cgutils
_BINDING: Any = binding
# Numba needs no assembly as text, and so makes no parser of it: `Emitter.assembly` does.
_BINDING.initialize_native_asmparser()
#: Makes a function that emits its own instructions. Its first parameter is Numba's typing context, which calls in a
#: kernel leave out; the cast tells a type checker so. A constant argument arrives as a literal type, whose value
#: decides what is emitted.
intrinsic = cast("Callable[[Callable[..., Any]], Any]", _numba_intrinsic(prefer_literal=True))
LANES = 16
#: Of a word of 32 bits: the lower half, where the upper one begins, and the sign bit.
LOWER_HALF, HALF_BITS, SIGN_BIT = 0xFFFF, 16, 31
#: Float64 lanes of one AVX-512 instruction, and its operand that says how to round: 1 down, 2 up, 3 toward zero, plus 8
#: to suppress exceptions.
AVX512_LANES, ROUND_DOWN, ROUND_UP, ROUND_TOWARD_ZERO = 8, 9, 10, 11
#: Truth tables of three bits: bit 4a + 2b + c is the result for a, b, c.
ODD, MAJORITY = 0b10010110, 0b11101000
I1, I8, I16, I32, I64 = (IR.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = IR.HalfType(), IR.FloatType(), IR.DoubleType()
#: Bytes of a lane. A bit of a mask has none: it is narrower than every other lane.
BYTES = {I1: 0, I8: 1, I16: 2, F16: 2, I32: 4, F32: 4, I64: 8, F64: 8}
_FLOATS = (F16, F32, F64)
_NAMES = {F16: "f16", F32: "f32", F64: "f64", I8: "i8", I16: "i16", I32: "i32", I64: "i64"}
#: The integer that holds the bits of a float.
INTEGER_OF = {F32: I32, F64: I64}


class Emitter:
    """Emits vector code at a builder's position."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def integer(self, value: int, kind: Any = I64) -> Any:
        """Return a scalar constant."""
        return IR.Constant(kind, value)

    def splat(self, kind: Any, value: Any, lanes: int = LANES) -> Vector:
        """Return a vector with a number, or a scalar of the lanes' type, in each lane."""
        vector = IR.VectorType(kind, lanes)
        if isinstance(value, (int, float)):
            return Vector(self, IR.Constant(vector, [value] * lanes))
        # In lane 0, then shuffled to all: LLVM makes one broadcast of it.
        first = self.builder.insert_element(IR.Constant(vector, IR.Undefined), value, IR.Constant(I32, 0))
        zeros = IR.Constant(IR.VectorType(I32, lanes), [0] * lanes)
        return Vector(self, self.builder.shuffle_vector(first, IR.Constant(vector, IR.Undefined), zeros))

    def constants(self, kind: Any, values: Sequence[int | float]) -> Vector:
        """Return a vector of the given numbers."""
        return Vector(self, IR.Constant(IR.VectorType(kind, len(values)), list(values)))

    def at(self, pointer: Any, index: Any, kind: Any) -> Any:
        """Return the address of element `index` of an array of `kind`."""
        typed = self.builder.bitcast(pointer, kind.as_pointer())
        return self.builder.gep(typed, [index], source_etype=kind)

    def load(self, kind: Any, pointer: Any, index: Any, lanes: int = LANES) -> Vector:
        """Return neighbours from element `index` on; no alignment beyond the element's is assumed."""
        vector = IR.VectorType(kind, lanes)
        address = self.builder.bitcast(self.at(pointer, index, kind), vector.as_pointer())
        value = self.builder.load(address, typ=vector)
        value.align = BYTES[kind]  # LLVM would assume that of the whole vector
        return Vector(self, value)

    def load_where(self, mask: Vector, kind: Any, pointer: Any, index: Any, other: Vector) -> Vector:
        """Return neighbours from element `index` on in the lanes of `mask`, `other` in those where nothing is read."""
        vector = other.value.type
        address = self.builder.bitcast(self.at(pointer, index, kind), vector.as_pointer())
        name = f"llvm.masked.load.v{other.lanes}{_NAMES[kind]}.p0"
        arguments = [address, self.integer(BYTES[kind], I32), mask.value, other.value]
        return Vector(self, self.call(name, vector, arguments))

    def gather(self, kind: Any, base: Any, indices: Vector) -> Vector:
        """Return the elements at `indices` of the array whose address, as an integer, is `base`."""
        # Addresses are computed as integers: `base` may be any, and indices count elements.
        addresses = indices * BYTES[kind] + self.splat(I64, base, indices.lanes)
        pointers = self.builder.inttoptr(addresses.value, IR.VectorType(IR.PointerType(), indices.lanes))
        vector, all_lanes = (
            IR.VectorType(kind, indices.lanes),
            IR.Constant(IR.VectorType(I1, indices.lanes), [1] * indices.lanes),
        )
        name = f"llvm.masked.gather.v{indices.lanes}{_NAMES[kind]}.v{indices.lanes}p0"
        arguments = [pointers, self.integer(BYTES[kind], I32), all_lanes, IR.Constant(vector, IR.Undefined)]
        return Vector(self, self.call(name, vector, arguments))

    def store_where(self, mask: Vector, vector: Vector, pointer: Any, index: Any) -> None:
        """Write neighbours from element `index` on in the lanes of `mask` only."""
        kind = vector.kind
        address = self.builder.bitcast(self.at(pointer, index, kind), vector.value.type.as_pointer())
        name = f"llvm.masked.store.v{vector.lanes}{_NAMES[kind]}.p0"
        self.call(name, IR.VoidType(), [vector.value, address, self.integer(BYTES[kind], I32), mask.value])

    def load_scalar(self, kind: Any, pointer: Any, index: Any) -> Any:
        """Return one element, unaligned."""
        value = self.builder.load(self.at(pointer, index, kind), typ=kind)
        value.align = 1
        return value

    def prefetch(self, kind: Any, pointer: Any, index: Any) -> None:
        """Prefetch the cache line of element `index`, which may lie beyond the array's end."""
        address = self.builder.bitcast(self.at(pointer, index, kind), IR.PointerType(I8))
        signature = IR.FunctionType(IR.VoidType(), [address.type, I32, I32, I32])
        function = _CODE.get_or_insert_function(self.builder.module, signature, "llvm.prefetch.p0")
        # To read, not to write; into all caches; data, not code.
        self.builder.call(function, [address, *(self.integer(number, I32) for number in (0, 3, 1))])

    def store(self, vector: Vector, pointer: Any, index: Any, *, past_caches: bool = False) -> None:
        """Write neighbours from element `index` on; `past_caches` requires addresses aligned to whole vectors."""
        kind, lanes = vector.kind, vector.lanes
        address = self.builder.bitcast(self.at(pointer, index, kind), vector.value.type.as_pointer())
        written = self.builder.store(vector.value, address)
        # Instructions that store past the caches take only addresses aligned to whole vectors.
        written.align = BYTES[kind] * lanes if past_caches else BYTES[kind]
        if past_caches:
            marker = self.builder.module.add_metadata([IR.Constant(I32, 1)])
            written.set_metadata("nontemporal", marker)

    def buffer(self, kind: Any, elements: int) -> Any:
        """Return the address of room for `elements` numbers on the stack, aligned to whole vectors."""
        # Allocated once: room that is allocated in a loop grows the stack with each round.
        with self.builder.goto_entry_block():
            room = self.builder.alloca(IR.ArrayType(kind, elements))
            room.align = 64
        return room

    def variable(self, first: Vector) -> Variable:
        """Return a variable for a vector that changes in a loop; it starts as `first`."""
        # In the entry block, so that LLVM turns it into a register.
        with self.builder.goto_entry_block():
            pointer = self.builder.alloca(first.value.type)
        self.builder.store(first.value, pointer)
        return Variable(self, pointer, first.value.type)

    def scalar_variable(self, first: Any) -> Any:
        """Return the address of a scalar that changes in a loop; it starts as `first`."""
        with self.builder.goto_entry_block():
            pointer = self.builder.alloca(first.type)
        self.builder.store(first, pointer)
        return pointer

    @contextmanager
    def loop(self, count: Any) -> Generator[Any, None, None]:
        """Emit the body once, in a loop that runs it `count` times; yields the index."""
        with _CODE.for_range(self.builder, count) as made:
            yield made.index

    def call(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        """Call an LLVM intrinsic or target instruction."""
        signature = IR.FunctionType(result, [a.type for a in arguments])
        function = _CODE.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, list(arguments))

    def assembly(self, text: str, constraints: str, operands: Sequence[Vector]) -> Vector:
        """Return the result of an instruction that LLVM takes as it is, of the first operand's type.

        Args:
            text: the instruction, AT&T syntax; $0 is the result, $1 the first operand.
            constraints: of result and operands, as LLVM's inline assembly has them.
            operands: vectors.
        """
        values = [x.value for x in operands]
        signature = IR.FunctionType(values[0].type, [value.type for value in values])
        return Vector(self, self.builder.asm(signature, text, constraints, values, side_effect=False))

    def power_of_two(self, kind: Any, exponent: Vector) -> Vector:
        """Return 2**exponent; exponents are integers of the float's width, and those of normal numbers."""
        bias, fraction_bits = (127, 23) if kind is F32 else (1023, 52)
        return ((exponent + bias) << fraction_bits).bits_as(kind)


class Vector:
    """A number in each lane."""

    __slots__ = ("emitter", "value")
    __hash__ = None  # pyright: ignore[reportAssignmentType] - `==` gives a mask

    def __init__(self, emitter: Emitter, value: Any) -> None:
        self.emitter, self.value = emitter, value

    @property
    def kind(self) -> Any:
        """The type of a lane."""
        return self.value.type.element

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return self.value.type.count

    @property
    def is_float(self) -> bool:
        """Whether lanes hold floats."""
        return self.kind in _FLOATS

    def _other(self, other: Vector | float) -> Any:
        return other.value if isinstance(other, Vector) else self.emitter.splat(self.kind, other, self.lanes).value

    def _emit(self, float_name: str, integer_name: str, other: Vector | float) -> Vector:
        emit = getattr(self.emitter.builder, float_name if self.is_float else integer_name)
        return Vector(self.emitter, emit(self.value, self._other(other)))

    def __add__(self, other: Vector | float) -> Vector:
        return self._emit("fadd", "add", other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._emit("fsub", "sub", other)

    def __mul__(self, other: Vector | float) -> Vector:
        return self._emit("fmul", "mul", other)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self._emit("fdiv", "sdiv", other)

    def __and__(self, other: Vector | int) -> Vector:
        return self._emit("and_", "and_", other)

    def __or__(self, other: Vector | int) -> Vector:
        return self._emit("or_", "or_", other)

    def __xor__(self, other: Vector | int) -> Vector:
        return self._emit("xor", "xor", other)

    def __invert__(self) -> Vector:
        return Vector(self.emitter, self.emitter.builder.not_(self.value))

    def __lshift__(self, other: Vector | int) -> Vector:
        return self._emit("shl", "shl", other)

    def __rshift__(self, other: Vector | int) -> Vector:
        """Shift right and fill up with zeros; `shift_signed` fills up with the sign."""
        return self._emit("lshr", "lshr", other)

    def shift_signed(self, other: Vector | int) -> Vector:
        """Shift right and fill up with the sign."""
        return self._emit("ashr", "ashr", other)

    def _compare(self, operator: str, other: Vector | float) -> Vector:
        builder = self.emitter.builder
        if self.is_float:  # unordered comparisons are true if a number is NaN, ordered ones false
            emit = builder.fcmp_unordered if operator == "!=" else builder.fcmp_ordered
        else:
            emit = builder.icmp_signed
        return Vector(self.emitter, emit(operator, self.value, self._other(other)))

    def __lt__(self, other: Vector | float) -> Vector:
        return self._compare("<", other)

    def __le__(self, other: Vector | float) -> Vector:
        return self._compare("<=", other)

    def __gt__(self, other: Vector | float) -> Vector:
        return self._compare(">", other)

    def __ge__(self, other: Vector | float) -> Vector:
        return self._compare(">=", other)

    def __eq__(self, other: Vector | float) -> Vector:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare("==", other)

    def __ne__(self, other: Vector | float) -> Vector:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare("!=", other)

    def below_unsigned(self, other: Vector | int) -> Vector:
        """Compare as unsigned integers: self < other."""
        return Vector(self.emitter, self.emitter.builder.icmp_unsigned("<", self.value, self._other(other)))

    def choose(self, yes: Vector, no: Vector | float) -> Vector:
        """Return `yes` in the lanes of this mask, `no` in the others."""
        return Vector(self.emitter, self.emitter.builder.select(self.value, yes.value, yes._other(no)))

    def clamp(self, low: Vector, high: Vector) -> Vector:
        """Return the nearest number from `low` to `high`; for NaN, which is not below `high`, `high`."""
        bounded = (self < high).choose(self, high)
        return (bounded > low).choose(bounded, low)

    def at_least(self, low: Vector | int) -> Vector:
        """Return the larger of two."""
        return (self > low).choose(self, low)

    def at_most(self, high: Vector | int) -> Vector:
        """Return the smaller of two."""
        return (self < high).choose(self, high)

    def at_most_unsigned(self, high: Vector) -> Vector:
        """Return the smaller of two unsigned integers."""
        return self.below_unsigned(high).choose(self, high)

    def least_number(self, other: Vector) -> Vector:
        """Return the smaller of two floats, and of NaN and a number the number."""
        return self._binary("minnum", other)

    def largest_number(self, other: Vector) -> Vector:
        """Return the larger of two floats, and of NaN and a number the number."""
        return self._binary("maxnum", other)

    def _binary(self, name: str, other: Vector) -> Vector:
        intrinsic_name = f"llvm.{name}.v{self.lanes}{_NAMES[self.kind]}"
        return Vector(self.emitter, self.emitter.call(intrinsic_name, self.value.type, [self.value, other.value]))

    def _unary(self, name: str) -> Vector:
        intrinsic_name = f"llvm.{name}.v{self.lanes}{_NAMES[self.kind]}"
        return Vector(self.emitter, self.emitter.call(intrinsic_name, self.value.type, [self.value]))

    def rint(self) -> Vector:
        """Round to the nearest integer, ties to even."""
        return self._unary("rint")

    def floor(self) -> Vector:
        """Round to the integer below."""
        return self._unary("floor")

    def ceil(self) -> Vector:
        """Round to the integer above."""
        return self._unary("ceil")

    def trunc(self) -> Vector:
        """Round to the integer toward zero."""
        return self._unary("trunc")

    def __abs__(self) -> Vector:
        return self._unary("fabs")

    def sqrt(self) -> Vector:
        """Return square roots, correctly rounded."""
        return self._unary("sqrt")

    def negated(self) -> Vector:
        """Return the numbers with their signs turned."""
        return Vector(self.emitter, self.emitter.builder.fneg(self.value))

    def plus_product(self, a: Vector, b: Vector) -> Vector:
        """Return a * b + self, rounded once."""
        # One instruction where the processor has FMA, which all vector code requires.
        name = f"llvm.fma.v{self.lanes}{_NAMES[self.kind]}"
        return Vector(self.emitter, self.emitter.call(name, self.value.type, [a.value, b.value, self.value]))

    def between(self, instruction: str, *others: Vector) -> tuple[Vector, Vector]:
        """Return an AVX-512 instruction's results rounded down, and rounded up: the same if they are exact."""
        # Of sixteen lanes, an instruction takes eight of float64, or all of float32.
        together = AVX512_LANES * BYTES[F64] // BYTES[self.kind]
        room = IR.VectorType(self.kind, together)
        picks = [range(first, first + together) for first in range(0, self.lanes, together)]
        parts = [[x.shuffled(x, pick).value for x in (self, *others)] for pick in picks]
        results: list[Vector] = []
        for control in (ROUND_DOWN, ROUND_UP):
            mode = self.emitter.integer(control, I32)
            name = f"llvm.x86.avx512.{instruction}"
            lanes, *rest = (Vector(self.emitter, self.emitter.call(name, room, [*x, mode])) for x in parts)
            results.append(lanes.shuffled(rest[0], range(self.lanes)) if rest else lanes)
        return results[0], results[1]

    def with_sign_of(self, other: Vector) -> Vector:
        """Return the magnitudes with the signs of another vector."""
        name = f"llvm.copysign.v{self.lanes}{_NAMES[self.kind]}"
        return Vector(self.emitter, self.emitter.call(name, self.value.type, [self.value, other.value]))

    def bits(self) -> Vector:
        """Return the bit patterns of floats."""
        return self.bits_as(INTEGER_OF[self.kind])

    def bits_as(self, kind: Any) -> Vector:
        """Return the same bits as another type of the same width."""
        return Vector(self.emitter, self.emitter.builder.bitcast(self.value, IR.VectorType(kind, self.lanes)))

    def as_kind(self, kind: Any, *, signed: bool = True) -> Vector:
        """Convert numbers between floats and integers of any width; floats become integers toward zero."""
        if kind is self.kind:
            return self
        builder, target = self.emitter.builder, IR.VectorType(kind, self.lanes)
        if self.is_float:
            if kind in _FLOATS:
                emit = builder.fpext if _width(kind) > _width(self.kind) else builder.fptrunc
            else:
                emit = builder.fptosi if signed else builder.fptoui
        elif kind in _FLOATS:
            emit = builder.sitofp if signed else builder.uitofp
        elif _width(kind) < _width(self.kind):
            # Bits above the narrower type are dropped: nothing saturates.
            emit = builder.trunc
        else:
            emit = builder.sext if signed else builder.zext
        return Vector(self.emitter, emit(self.value, target))

    def reshaped(self, kind: Any, lanes: int) -> Vector:
        """Return the same bits as lanes of another type and number."""
        return Vector(self.emitter, self.emitter.builder.bitcast(self.value, IR.VectorType(kind, lanes)))

    def interleaved(self, other: Vector) -> Vector:
        """Return the lanes of this and another vector alternately, twice as many."""
        return self.shuffled(other, [i + source * self.lanes for i in range(self.lanes) for source in (0, 1)])

    def shuffled(self, other: Vector, order: Sequence[int]) -> Vector:
        """Return the lanes that `order` lists: this vector's are numbered from 0, the other's from `lanes` on."""
        picks = IR.Constant(IR.VectorType(I32, len(order)), list(order))
        return Vector(self.emitter, self.emitter.builder.shuffle_vector(self.value, other.value, picks))

    def count(self) -> Any:
        """Return in how many lanes this mask is true, as int64."""
        builder, integer = self.emitter.builder, IR.IntType(self.lanes)
        # A mask as an integer of as many bits: a population count counts its lanes.
        word = builder.bitcast(self.value, integer)
        return builder.zext(self.emitter.call(f"llvm.ctpop.i{self.lanes}", integer, [word]), I64)

    def any(self) -> Any:
        """Return whether this mask is true in any lane."""
        word = self.emitter.builder.bitcast(self.value, IR.IntType(self.lanes))
        return self.emitter.builder.icmp_unsigned("!=", word, IR.Constant(IR.IntType(self.lanes), 0))

    def total(self) -> Any:
        """Return the sum of integer lanes, modulo their width."""
        name = f"llvm.vector.reduce.add.v{self.lanes}{_NAMES[self.kind]}"
        return self.emitter.call(name, self.kind, [self.value])

    def any_bit(self) -> Any:
        """Return the bitwise or of integer lanes."""
        name = f"llvm.vector.reduce.or.v{self.lanes}{_NAMES[self.kind]}"
        return self.emitter.call(name, self.kind, [self.value])

    def largest_unsigned(self) -> Any:
        """Return the largest of unsigned integer lanes."""
        name = f"llvm.vector.reduce.umax.v{self.lanes}{_NAMES[self.kind]}"
        return self.emitter.call(name, self.kind, [self.value])


class Variable:
    """A vector that changes in a loop."""

    def __init__(self, emitter: Emitter, pointer: Any, kind: Any) -> None:
        self.emitter, self.pointer, self.type = emitter, pointer, kind

    @property
    def now(self) -> Vector:
        """The vector that was set last."""
        return Vector(self.emitter, self.emitter.builder.load(self.pointer, typ=self.type))

    def set(self, value: Vector) -> None:
        """Set the variable to a vector."""
        self.emitter.builder.store(value.value, self.pointer)


class Count:
    """Counts lanes of masks in a loop."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter, self.pointer = emitter, emitter.scalar_variable(emitter.integer(0))

    @property
    def now(self) -> Any:
        """The count so far, int64."""
        return self.emitter.builder.load(self.pointer, typ=I64)

    def add_where(self, mask: Vector) -> None:
        """Count the lanes in which `mask` is true."""
        self.emitter.builder.store(self.emitter.builder.add(self.now, mask.count()), self.pointer)


def carry_save(a: Vector, b: Vector, c: Vector) -> tuple[Vector, Vector]:
    """Add three vectors of sixteen int32 bit by bit: return the sums and the carries of all bits."""
    # The carry is the majority: both of a and b, or one of them and c.
    if has_ternary_logic():
        return _of_three(ODD, a, b, c), _of_three(MAJORITY, a, b, c)
    either = a ^ b
    return either ^ c, (a & b) | (either & c)


def _of_three(table: int, a: Vector, b: Vector, c: Vector) -> Vector:
    """Return the bits that a truth table gives for three vectors of sixteen int32, bit by bit."""
    arguments = [a.value, b.value, c.value, IR.Constant(I32, table)]
    return Vector(a.emitter, a.emitter.call("llvm.x86.avx512.pternlog.d.512", a.value.type, arguments))


def copy(builder: Any, target: Any, source: Any, count: Any) -> None:
    """Copy `count` bytes between two addresses."""
    _CODE.raw_memcpy(builder, target, source, count, 1)


def array_pointer(context: Any, builder: Any, array_type: Any, value: Any) -> Any:
    """Return the address of a Numba array's first element."""
    return context.make_array(array_type)(context, builder, value).data


def _width(kind: Any) -> int:
    return BYTES[kind]


@intrinsic
def address(typing_context: Any, array: Any) -> Any:
    """Return the address of an array's first element, int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(array_pointer(context, builder, signature.args[0], args[0]), I64)

    return types.int64(array), generate
