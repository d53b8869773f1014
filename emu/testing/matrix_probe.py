"""The results of a GPU's own matrix instructions beside those of the presets: `mma.sync` on cases that nobody recorded.

    cases of an instruction ──► one 16 x 8 x K tile each ──► the GPU's codes
                            └─► Mac.preset(...) ──────────► the model's codes     how many differ, which floor fits

The alignment floor matters only if every term of a block lies below it and the addend is zero: publications
disagree there, so each candidate is tried. Patterns of NaN and signs of zero are listed as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.cuda.device import Device
from emu.datapath import Blocks, Mac
from emu.engine import matmul, quantize
from emu.errors import FormatError
from emu.formats import Float, Format, parse_number

Codes = NDArray[Any]
#: Rows and columns of an instruction's tile, threads of a warp.
ROWS, COLUMNS, WARP = 16, 8, 32
#: Alignment floors that publications name; None: no floor.
FLOORS = (None, -126, -132, -133, -19, -20, -21)
#: Which preset stands for a compute capability. That of 12.0 has scaled operands only, which no instruction here takes.
GPUS = {"75": "t4", "80": "a100", "86": "a100", "89": "ada", "90": "h100", "100": "b200", "120": "b200"}


@dataclass(frozen=True)
class Instruction:
    """A matrix instruction.

    Attributes:
        kernel: its entry point in kernels/probes/matrix_units.cu.
        inputs: format of both operands.
        output: format of addend and result.
        depth: products of each result.
        least: the first compute capability that has it.
        variant: what presets call it.
    """

    kernel: str
    inputs: str
    output: str
    depth: int
    least: int
    variant: str = "mma"

    @property
    def operand_format(self) -> Format:
        """Format of the operands' values."""
        return parse_number(self.inputs)

    @property
    def result_format(self) -> Format:
        """Format of addend and result."""
        return parse_number(self.output)

    @property
    def shift(self) -> np.uint64:
        """Bits below a code in its register: tf32 fills the upper 19 bits of binary32, and units ignore the others."""
        return np.uint64(32 - self.operand_format.width_bits if self.inputs == "tf32" else 0)


INSTRUCTIONS = (
    Instruction("fp16_fp32", "fp16", "fp32", 16, 75),
    Instruction("fp16_fp16", "fp16", "fp16", 16, 75),
    Instruction("bf16_fp32", "bf16", "fp32", 16, 80),
    Instruction("tf32_fp32", "tf32", "fp32", 8, 80),
    Instruction("int8_int32", "int8", "int32", 32, 80),
    Instruction("int8_int32_satfinite", "int8", "int32", 32, 80, "mma.satfinite"),
    Instruction("fp8_e4m3_fp32", "fp8_e4m3", "fp32", 32, 89),
    Instruction("fp8_e5m2_fp32", "fp8_e5m2", "fp32", 32, 89),
    Instruction("fp8_e4m3_fp16", "fp8_e4m3", "fp16", 32, 89),
    Instruction("fp8_e5m2_fp16", "fp8_e5m2", "fp16", 32, 89),
)


def instructions_of(architecture: str) -> list[Instruction]:
    """Return the instructions a GPU of a compute capability ("75" .. "120") has."""
    # below compute capability 80 the kernel asks mma.m16n8k8 where later ones have m16n8k16
    present = [i for i in INSTRUCTIONS if i.least <= int(architecture)]
    return [replace(i, depth=8) for i in present] if int(architecture) < 80 else present


def unit_of(instruction: Instruction, architecture: str) -> Mac:
    """Return the preset that stands for an instruction of a GPU.

    Raises:
        FormatError: no preset does.
    """
    gpu = GPUS.get(architecture)
    if gpu is None:
        raise FormatError(f"no preset stands for sm_{architecture}; there are presets for sm_{', sm_'.join(GPUS)}")
    names = {"inputs": instruction.inputs, "output": instruction.output}
    return Mac.preset(gpu, **names, instruction=instruction.variant)


@dataclass(frozen=True)
class Case:
    """Tiles of one kind.

    Attributes:
        name: the kind.
        a: codes (cases, 16, K).
        b: codes (cases, K, 8).
        c: codes (cases, 16, 8).
    """

    name: str
    a: Codes
    b: Codes
    c: Codes


def cases_of(instruction: Instruction, count: int = 64, seed: int = 1) -> list[Case]:
    """Return the kinds of tiles that an instruction is given, `count` of each.

    Random codes; numbers of like size; tiny products without an addend, around every candidate floor; exact
    cancellation and zeros of both signs; infinities and NaN of every sign and payload; the ends of the range; tiny
    products beside zeros of both signs; sums beside the smallest result, which a floor moves across a boundary.
    """
    rng = np.random.default_rng([seed, *instruction.kernel.encode()])
    fmt, result, depth = instruction.operand_format, instruction.result_format, instruction.depth
    shapes = ((count, ROWS, depth), (count, depth, COLUMNS), (count, ROWS, COLUMNS))
    tops = [fmt.width_bits, fmt.width_bits, result.width_bits]

    # codes at random: NaNs, infinities and subnormals are among them
    def anything() -> tuple[Codes, ...]:
        return tuple(rng.integers(0, 2**bits, shape, np.uint64) for bits, shape in zip(tops, shapes, strict=True))

    def values(scale: float, addend: float) -> tuple[Codes, ...]:
        drawn = [rng.standard_normal(shape) for shape in shapes]
        sizes = (scale, scale, addend)
        formats = (fmt, fmt, result)
        return tuple(_codes(f, x * size) for f, x, size in zip(formats, drawn, sizes, strict=True))

    if not isinstance(fmt, Float):
        # the lowest number of two's complement in all operands: the largest products beside the lowest addend
        full = [np.full(shape, 1 << (bits - 1), np.uint64) for bits, shape in zip(tops, shapes, strict=True)]
        return [_case("any codes", instruction, anything()), _case("the smallest of all", instruction, tuple(full))]
    assert isinstance(result, Float)
    zero = np.zeros(shapes[2], np.uint64)
    a, b, c = values(1.0, 1.0)
    cases = [_case("any codes", instruction, anything()), _case("numbers of like size", instruction, (a, b, c))]
    floors = [floor for floor in FLOORS if floor is not None]
    # factors of half the exponent make products around 2**exponent; 2 * emin - fraction_bits is that of the smallest
    # normal number times the smallest subnormal
    for exponent in sorted({2 * fmt.emin - fmt.fraction_bits, -40, -60, *floors}):
        tiny = values(2.0 ** (exponent / 2), 1.0)
        cases.append(_case(f"products near 2**{exponent}, no addend", instruction, (tiny[0], tiny[1], zero)))
    # products at odd k are the negatives of those before them
    mirrored = a.copy()
    mirrored[:, :, 1::2] = a[:, :, ::2] ^ np.uint64(1 << (fmt.width_bits - 1))
    paired = b.copy()
    paired[:, 1::2] = b[:, ::2]
    cases.append(_case("exact cancellation", instruction, (mirrored, paired, zero)))
    signs = [
        rng.integers(0, 2, shape).astype(np.uint64) << np.uint64(bits - 1)
        for bits, shape in zip(tops, shapes, strict=True)
    ]
    cases.append(_case("zeros of both signs", instruction, tuple(signs)))
    # one element in twenty is any code at all, so that most sums meet few special ones
    special = anything()
    share = [rng.random(shape) < 0.05 for shape in shapes]
    mixed = tuple(np.where(pick, odd, x) for pick, odd, x in zip(share, special, (a, b, c), strict=True))
    cases.append(_case("some of them NaN or infinite", instruction, mixed))
    largest = float(fmt.max)
    cases.append(_case("the ends of the range", instruction, values(largest / 2, float(result.max) / 2)))
    # products of about 2**(emin - 2 * fraction_bits), below half of the result's smallest subnormal; 0 if the operands'
    # format does not reach so far down
    lost = values(2.0 ** (result.emin // 2 - result.fraction_bits), 1.0)
    cases.append(_case("products near nothing, addend 0 or -0", instruction, (lost[0], lost[1], signs[2])))
    if (operands := _beside_the_smallest(rng, fmt, result, shapes)) is not None:
        left, right = (_codes(fmt, x) for x in operands)
        cases.append(_case("sums beside the smallest result", instruction, (left, right, zero)))
    return cases


def _beside_the_smallest(
    rng: np.random.Generator, fmt: Float, result: Float, shapes: Sequence[tuple[int, ...]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return operands whose first product is the smallest result or half of it, and whose others are far below.

    The others have one sign and one size for each result, from a quarter of the smallest result down to 2**-24 of that:
    a unit that cuts them away rounds the sum to another number than one that keeps them. None if the operands have no
    products that small.
    """
    smallest, least = result.emin - result.fraction_bits, fmt.emin - fmt.fraction_bits
    # the exponents are divided between both factors, so that neither leaves its format; the sum of both halves is the
    # exponent again
    of_b, below = smallest // 2, smallest - 2
    # 2**(2 * least) is the smallest product of two operands; a quarter of the smallest result must be a product
    if below < 2 * least:
        return None
    (count, rows, _), (_, _, columns) = shapes[:2]
    a, b = (np.zeros(shape) for shape in shapes[:2])
    a[:, :, 0] = rng.choice([-1, 1], (count, rows)) * 2.0 ** (smallest - of_b - rng.integers(0, 2, (count, rows)))
    b[:, 0] = 2.0**of_b
    # up to 2**-12 in each factor, 2**-24 in the product, as far as the operands' smallest number allows
    span = min(12, below // 2 - least)
    sizes = [half - rng.integers(0, span + 1, n) for half, n in ((below // 2, rows), (below - below // 2, columns))]
    # about half of the other terms are 0; those of a row have one sign, so that they do not cancel
    kept = rng.random((count, rows, shapes[0][2] - 1)) < 0.5
    a[:, :, 1:] = kept * rng.choice([-1, 1], (count, rows, 1)) * 2.0 ** sizes[0][:, None]
    b[:, 1:] = 2.0 ** sizes[1]
    return a, b


def _case(name: str, instruction: Instruction, codes: Sequence[Codes]) -> Case:
    a, b, c = (x.astype(np.uint64) for x in codes)
    # operands stand in their registers as the unit reads them; `_modelled` shifts them back
    return Case(name, a << instruction.shift, b << instruction.shift, c)


def _codes(fmt: Format, x: NDArray[np.float64]) -> Codes:
    return fmt.encode(quantize(x, fmt, overflow="satfinite" if isinstance(fmt, Float) else None)).astype(np.uint64)


@dataclass(frozen=True)
class Answer:
    """The results of an instruction for one kind of tiles, compared with the preset.

    Attributes:
        instruction: which.
        case: the kind.
        results: how many.
        wrong: how many differ from the preset.
        floors: alignment floor -> how many differ with it; empty for integers.
        nans: patterns of NaN among the results.
        negative_zeros: how many results are -0.
    """

    instruction: str
    case: str
    results: int
    wrong: int
    floors: dict[int | None, int]
    nans: tuple[str, ...]
    negative_zeros: int


def probe(device: Device, architecture: str, count: int = 64) -> list[Answer]:
    """Ask every matrix instruction of a GPU.

    Args:
        device: runs kernels/probes/matrix_units.cu.
        architecture: its compute capability, "75" .. "120".
        count: tiles of each kind.
    """
    return [
        compare(instruction, unit_of(instruction, architecture), case, ask(device, instruction, case))
        for instruction in instructions_of(architecture)
        for case in cases_of(instruction, count)
    ]


def ask(device: Device, instruction: Instruction, case: Case) -> Codes:
    """Return the codes an instruction gives, (cases, 16, 8)."""
    xp, count = device.xp, case.a.shape[0]
    # elements lie side by side in memory: tf32 in words of 32 bits, the others in 1 or 2 bytes
    register = np.dtype(f"u{4 if instruction.inputs == 'tf32' else max(instruction.operand_format.width_bits // 8, 1)}")
    a, b = (xp.asarray(np.ascontiguousarray(x, register).view(np.uint8)) for x in (case.a, case.b))
    c, d = xp.asarray(case.c.astype(np.uint32)), xp.zeros(case.c.shape, np.uint32)
    device.launch("probes/matrix_units", instruction.kernel, count, WARP, (a, b, c, d), 0)
    return d if xp is np else d.get()


def compare(instruction: Instruction, unit: Mac, case: Case, codes: Codes) -> Answer:
    """Return how an instruction's codes differ from a unit's, every NaN counting as the same."""
    result = instruction.result_format
    got = result.decode(codes)

    def wrong(mac: Mac) -> int:
        expected = _modelled(instruction, mac, case)
        # 0 and -0 are equal as numbers, so signs are compared too
        same = (expected == got) & (np.signbit(expected) == np.signbit(got)) | (np.isnan(expected) & np.isnan(got))
        return int((~same).sum())

    floors: dict[int | None, int] = {}
    if isinstance(unit.order, Blocks):
        floors = {floor: wrong(_with_floor(unit, unit.order, floor)) for floor in FLOORS}
    nans = np.unique(codes[np.isnan(got)]) if isinstance(result, Float) else codes[:0]
    digits = result.width_bits // 4
    return Answer(
        instruction.kernel,
        case.name,
        int(codes.size),
        wrong(unit),
        floors,
        tuple(f"0x{int(code):0{digits}X}" for code in nans[:8]),
        int(((got == 0) & np.signbit(got)).sum()),
    )


def _with_floor(unit: Mac, order: Blocks, floor: int | None) -> Mac:
    # products of a unit of blocks are exact, which is the default
    return Mac(
        accumulator=unit.accumulator,
        order=replace(order, min_exponent=floor),
        rounding=unit.rounding,
        overflow=unit.overflow,
    )


def _modelled(instruction: Instruction, mac: Mac, case: Case) -> NDArray[Any]:
    fmt, result = instruction.operand_format, instruction.result_format
    left, right = (fmt.decode((codes >> instruction.shift).astype(np.uint32)) for codes in (case.a, case.b))
    return matmul(
        left,
        right,
        a_format=fmt,
        b_format=fmt,
        addend=result.decode(case.c.astype(np.uint32)),
        addend_format=result,
        out_format=result,
        mac=mac,
        overflow=mac.overflow,
        check=False,
    )


def page(gpu: str, architecture: str, answers: Sequence[Answer]) -> str:
    """Return answers as Markdown: a row for each instruction, and one for each kind of tiles that differs."""
    lines = [
        f"{gpu} (sm_{architecture}), against the preset `{GPUS.get(architecture, 'none')}`:",
        "",
        "| instruction | kinds of tiles | results | differ | floors that fit | NaN | -0 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(answer.instruction for answer in answers):
        kinds = [answer for answer in answers if answer.instruction == name]
        different = [answer for answer in kinds if answer.wrong]
        lines.append(_row(name, str(len(kinds)), kinds))
        lines += [_row("", answer.case, [answer]) for answer in different]
    return "\n".join(lines)


def _row(name: str, tiles: str, answers: Sequence[Answer]) -> str:
    """Return one row for some kinds of tiles of an instruction."""
    results, wrong = (sum(getattr(answer, part) for answer in answers) for part in ("results", "wrong"))
    nans = sorted({pattern for answer in answers for pattern in answer.nans})
    zeros = sum(answer.negative_zeros for answer in answers)
    return f"| {name} | {tiles} | {results} | {wrong} | {_floors(answers)} | {', '.join(nans)} | {zeros} |"


def _floors(answers: Sequence[Answer]) -> str:
    """Return the floors with which fewest results differ, and how many do; "any" if no tile tells floors apart."""
    wrong = {floor: sum(answer.floors[floor] for answer in answers) for floor in answers[0].floors}
    fewest = min(wrong.values(), default=0)
    if len(set(wrong.values())) < 2:
        return "any" if wrong else ""
    fitting = ", ".join("none" if floor is None else str(floor) for floor, count in wrong.items() if count == fewest)
    return fitting + (f" ({fewest} differ)" if fewest else "")
