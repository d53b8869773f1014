"""Elements that share scales on a device: three kernels, of which the second runs a scale rule as a program.

    s = up(amax * (1 / 448))        (MULTIPLY, s.1, amax, 1/448) (UP, s, s.1)          a register a name

Left to the definition: rules with zero points, or with steps of binary64; numbers that are float64; scales that float32
does not carry, of the channels of more than a matrix, or of rows above those of blocks; and stages that kernels do not
write.
"""

from __future__ import annotations

import ast
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.backends.cuda import layout
from emu.backends.cuda.launching import Counts, Launcher, counted_bytes
from emu.backends.interface import Outcome, StageCode, Write, carrier_of, encode_stage
from emu.backends.reference.scaled import FLOAT32, constants_of
from emu.datapath import OutputStage, Overflow, Rounding
from emu.formats import Float, Scaled
from emu.formats.steps import Factor, Steps
from emu.formats.tiles import Tiles, canonical_shape

Array = Any
#: Operations of a program, as `scaled.cu` numbers them.
_OPERATIONS = ("*", "/", "+", "-", "min", "max", "==", "!=", "<", "choose", "up", "down", "scale", "digits")
_NUMBER = {name: i for i, name in enumerate(_OPERATIONS)}
_BINARY: dict[type[ast.operator], str] = {ast.Mult: "*", ast.Div: "/", ast.Add: "+", ast.Sub: "-"}
_COMPARISON: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<"}
#: Where the head of a program says whether no block has a scale.
_HAS_NO_SCALES = 8
#: Registers of a program.
_REGISTERS = 32
#: How elements follow from factors: exactly, by a product, by a quotient.
_BY_POWER, _BY_PRODUCT, _BY_QUOTIENT = range(3)
#: Elements beside each other that a thread looks at.
_RUN = 8
#: Numbers that say where blocks lie.
_BLOCKS_FIELDS = 7
#: Bits of the exact number that the output stage rounds: a float32, or a float32 divided by a power of two.
_BITS = layout.SIGNIFICANT[np.dtype(np.float32)]
#: 64-bit words of the integers of kernels that read or compute scales: their numbers are float32, and what they round,
#: they round to nearest.
_WORDS = 1


class _Program(NamedTuple):
    """A rule's steps for the device.

    Attributes:
        numbers: as `scaled.cu` reads them; registers of the outer level are set for each array.
        outer: places of those registers in `numbers`, by name; empty for rules of one level.
        way: how elements follow from factors.
        to_scale: stage of the operation `scale`.
        to_digits: stage of the operation `digits`.
    """

    numbers: tuple[int, ...]
    outer: dict[str, int]
    way: int
    to_scale: tuple[int, ...]
    to_digits: tuple[int, ...]


class _Compiler:
    """Writes statements as operations on registers."""

    def __init__(self, set_before: dict[str, float]) -> None:
        self.constants = list(set_before.values())
        # names that are set before the program runs have the first registers
        self.register = {name: i for i, name in enumerate(set_before)}
        self._of_constant: dict[float, int] = {}
        self.steps: list[tuple[int, str, int, int, int]] = []
        self.used = len(self.constants)

    def run(self, program: Steps) -> None:
        for name, expression in program.statements:
            self.register[name] = self._value(expression)

    def _value(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int() | float() as value):
                return self._constant(float(value))
            case ast.Name(id=name):
                return self.register[name]
            case ast.BinOp(left=left, op=op, right=right):
                return self._step(_BINARY[type(op)], self._value(left), self._value(right))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._step(name, *map(self._value, arguments))
            case ast.IfExp(test=ast.Compare(left=left, ops=[op], comparators=[right]), body=body, orelse=orelse):
                chosen = self._step(_COMPARISON[type(op)], self._value(left), self._value(right))
                return self._step("choose", chosen, self._value(body), self._value(orelse))
            case _:
                raise AssertionError(f"no step: {ast.unparse(node)}")

    def _constant(self, value: float) -> int:
        if value not in self._of_constant:
            self._of_constant[value] = self._new()
            # Registers of results lie between those of constants: NaN fills
            # their places, which the program writes first.
            self.constants += [math.nan] * (self.used - len(self.constants))
            self.constants[self._of_constant[value]] = value
        return self._of_constant[value]

    def _step(self, operation: str, *operands: int) -> int:
        result = self._new()
        # every operation is stored with three operands; unused ones are register 0
        a, b, c = (*operands, 0, 0)[:3]
        self.steps.append((result, operation, a, b, c))
        return result

    def _new(self) -> int:
        self.used += 1
        assert self.used <= _REGISTERS, "a rule of more steps than the device has registers"
        return self.used - 1


def quantize_blocks(
    launcher: Launcher, x: Array, fmt: Scaled, axis: int, write: Write
) -> tuple[Outcome, tuple[NDArray[np.float32], ...]] | None:
    """Return elements and scales as `Kernels.quantize_blocks` does; None if they are left to the definition.

    Args:
        launcher: of the device.
        x: numbers, on the host or the device.
        fmt: the scaled format.
        axis: along which blocks lie, counted from the end.
        write: through which stage elements are written; no register observes them.
    """
    # what is left to the definition is known before anything is launched; so is an array without elements, which may
    # have an axis of size 0 and then has no blocks along it
    if not x.size or x.dtype != np.float32 or not _writes(write):
        return None
    program, where = _program_of(fmt), _where(fmt, x.shape, axis)
    if program is None or where is None:
        return None
    xp, n, flat = launcher.xp, x.size, launcher.taken(x)
    tiles = [Tiles(level.tiling, x.shape, axis) for level in fmt.levels]
    numbers, outer = list(program.numbers), ()
    if fmt.rule.outer is not None:
        # The outer level has one number for the whole tensor. It follows from the tensor's largest magnitude, which is
        # fetched from the device, and the programs of all blocks read it.
        top = _largest(launcher, flat, leaves_nan_out=fmt.ignores_nan)
        names = fmt.rule.outer.run({**constants_of(fmt, np.float32), "top": np.full(tiles[1].counts, top)}, np.float32)
        outer = (np.asarray(names["t"], np.float32),)
        # 1 says that no block has a scale: the tensor's largest magnitude is infinite, or it has a NaN that counts
        numbers[_HAS_NO_SCALES] = int(not (np.isfinite(top) or fmt.ignores_nan))
        # numbers of the program are bits of binary32, set anew for each array
        for name, place in program.outer.items():
            numbers[place] = int(np.float32(np.ravel(names[name])[0]).view(np.uint32))
    blocks = math.prod(tiles[0].counts)
    largest = _found(launcher, flat, where, blocks, leaves_nan_out=fmt.ignores_nan)
    scales, factors = (xp.empty(blocks, np.float32) for _ in "sf")
    stages = (xp.asarray(np.array(stage, np.int64)) for stage in (program.to_scale, program.to_digits))
    arguments = (xp.asarray(np.array(numbers, np.int64)), *stages, largest, scales, factors, np.int64(blocks))
    launcher.launch("scaled", "scales_of_blocks", blocks, arguments, words=_WORDS)
    values, counts = xp.empty(n, carrier_of(write.stage.format)), Counts(launcher, None)
    task = layout.task([*layout.head_numbers(write), *layout.NO_OPERAND, *where])
    recorded = launcher.recorded(write.random)
    chosen = (task, flat, scales, factors, np.int32(program.way), recorded, values, counts.totals, np.int64(n))
    words = layout.enough_words(_BITS, layout.kept_bits([write.stage], adds=False))
    launcher.launch("scaled", "elements_of_blocks", n, chosen, shared_bytes=counted_bytes(None), words=words)
    # scales are returned in the host's memory, as the definition returns them
    stored = np.asarray(scales.get() if xp is not np else scales).reshape(tiles[0].counts)
    return Outcome.with_pending(launcher.returned(values.reshape(x.shape), x), counts), (stored, *outer)


def _found(launcher: Launcher, flat: Array, where: list[int], blocks: int, *, leaves_nan_out: bool) -> Array:
    """Return the bits of each block's largest magnitude, plus 1; 0 if it has only NaN, and NaN is left out."""
    largest = launcher.xp.zeros(blocks, np.uint32)
    # only the end of the task is read: where blocks lie
    task = layout.task([0] * (len(layout.NO_OPERAND) + _HEAD) + where)
    arguments = (task, flat, np.int32(leaves_nan_out), largest, np.int64(flat.size))
    launcher.launch("scaled", "largest_of_blocks", -(-flat.size // _RUN), arguments, words=_WORDS)
    return largest


def _largest(launcher: Launcher, flat: Array, *, leaves_nan_out: bool) -> np.float32:
    found = int(_found(launcher, flat, [0] * _BLOCKS_FIELDS, 1, leaves_nan_out=leaves_nan_out)[0])
    # 1 is added to the bits, so that 0 can mean a block without numbers
    return np.uint32(max(found - 1, 0)).view(np.float32)


#: Numbers of a task before its operands.
#: The stage, 5 numbers of random bits and 3 of a register: `OPERANDS_AT` of `task.cuh`.
_HEAD = layout.STAGE_FIELDS + 5 + 3


def _where(fmt: Scaled, shape: tuple[int, ...], axis: int) -> list[int] | None:
    """Return where blocks lie, as `scaled.cu` reads it; None if `scaled.cu` cannot address such blocks.

    Args:
        fmt: the scaled format.
        shape: of an array with elements.
        axis: along which blocks lie, counted from the end.
    """
    tiling = fmt.tiling
    # one block for the whole tensor: `scaled.cu` knows it by a size of 0
    if tiling.across is None:
        return [0] * _BLOCKS_FIELDS
    if tiling.is_channel and math.prod(shape[:-2]) != 1:
        return None
    along = shape[axis] if tiling.along is None else tiling.along
    lines = canonical_shape(shape, axis)[-2] if len(shape) > 1 else 1
    # elements between neighbours along the axis
    inner = math.prod(shape[len(shape) + axis + 1 :])
    # size along, distance, block along, blocks along, size across, block across, blocks across
    return [shape[axis], inner, along, -(-shape[axis] // along), lines, tiling.across, -(-lines // tiling.across)]


def _writes(write: Write) -> bool:
    stage = write.stage
    only_defined = stage.format.sign_magnitude or stage.format.hidden_one
    return write.register is None and not only_defined and not layout.wraps(stage)


@lru_cache(maxsize=256)
def _program_of(fmt: Scaled) -> _Program | None:
    """Return the program of a format's rule; None if it has operations of binary64."""
    rule, scale = fmt.rule, fmt.levels[0].scale
    if fmt.has_zero or rule.reads == "double" or scale.carrier != np.float32:
        return None
    # registers that a program finds set
    known = {"amax": 0.0, **{name: float(value) for name, value in constants_of(fmt, np.float32).items()}}
    outer = [] if rule.outer is None else ["top", *(name for name, _ in rule.outer.statements)]
    # an outer level of rows has a number for each row, a program one for all
    if any(level.tiling.across is not None for level in fmt.levels[1:]):
        return None
    known |= dict.fromkeys(outer, 0.0)
    compiler = _Compiler(known)
    set_before = {name: compiler.register[name] for name in outer}
    compiler.run(rule.steps)
    factor = Factor.of(rule.element)
    if factor is None:
        return None
    way = _BY_POWER if rule.divides_exactly else _BY_QUOTIENT if factor.divides else _BY_PRODUCT
    constants = [int(np.float32(value).view(np.uint32)) for value in compiler.constants]
    head = [
        *(len(constants), len(compiler.steps), compiler.register["s"], compiler.register[factor.name]),
        # the last one is the place of `_HAS_NO_SCALES`, which is set for each array
        *(scale.emin, scale.emax, fmt.ignores_nan, fmt.ignores_nan and rule.divides_exactly, 0),
    ]
    steps = [number for r, name, *operands in compiler.steps for number in (_NUMBER[name], r, *operands)]
    digits = Float(FLOAT32.exponent_bits, fmt.element_digits - 1)
    stages = [(scale, Rounding.NEAREST_EVEN, Overflow.SATFINITE), (digits, Rounding.NEAREST_AWAY, Overflow.IEEE)]
    to_scale, to_digits = (tuple(layout.stage_numbers(_stage(*stage))) for stage in stages)
    # places in `numbers`: after the head come the constants
    places = {name: len(head) + place for name, place in set_before.items()}
    return _Program((*map(int, head), *constants, *steps), places, way, to_scale, to_digits)


def _stage(fmt: Float, rounding: Rounding, overflow: Overflow) -> StageCode:
    return encode_stage(OutputStage(fmt, rounding, overflow))
