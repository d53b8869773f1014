"""Matrix units of real GPUs: the arithmetic of one matrix instruction, from operands to result.

    one row = GPU x operands x result x instruction ──► accumulator, order of the adds, source, confidence

Every row has a confidence. "very high" and "high" are models that reproduce outputs recorded on the device, or that two
publications share. Lower ones are models without a recording.

`min_exponent` is the lowest exponent to which terms are aligned. It matters only if all terms of a block lie below it.
An H100 that was asked for such blocks (docs/gpu.md) has the values here, -133 and -21, and no other published one. In
all other rows it is of low confidence: no public recording reaches it, and publications disagree (-126 for every unit
in the first MMA-Sim, the values here in Khattak & Mikaitis and in MMA-Sim 2.1.1). Rows of FP8, and the fp32 results of
t4 and v100, have none, because their terms are never below the published values.

Operands that share scales: units of mxf8f6f4 and mxf4 instructions are those of MMA-Sim 2.1.1, whose authors compared
them with a B200 and an RTX PRO 6000; 6-bit elements they did not. The h100 row of fp8_tile is what DeepGEMM's kernels
do with four wgmma and one fused multiply-add.

Sources: Khattak & Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv 2512.07004, with recorded outputs in
MATLAB-tensor-core; Xie et al., "MMA-Sim", arXiv 2511.10909; the PTX ISA manual.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.datapath.order import Blocks, Order, Promote, Sequential
from emu.errors import FormatError, nearest_first

#: Devices that share a row.
ALIASES = {"a2": "a100", "a30": "a100", "l40s": "ada", "h200": "h100"}


@dataclass(frozen=True)
class MatrixUnit:
    """One row: the unit that computes a matrix instruction.

    Attributes:
        gpu: the device.
        inputs: format of both operands.
        output: format of addend and result.
        instruction: which of the device's instructions.
        accumulator: the format into which every sum is rounded; it has fewer bits than `output` if the unit has.
        order: the order of the adds.
        source: the publication or recording.
        confidence: "very high", "high", "medium-high" or "medium"; not of `min_exponent`, which is low but for h100.
        scales: where each level of scales of the operands enters, as `Mac` takes it; "" of operands without scales.
    """

    gpu: str
    inputs: str
    output: str
    instruction: str
    accumulator: str
    order: Order
    source: str
    confidence: str
    scales: str = ""

    @property
    def rounding(self) -> str:
        """Mode of every sum: binary32 sums are cut, binary16 and promoted ones rounded to nearest; int32 is exact."""
        # a promotion ends in a fused multiply-add in binary32, outside the matrix unit, which rounds to nearest
        cuts = self.output == "fp32" and not isinstance(self.order, Promote)
        return "toward_zero" if cuts else "nearest_even"

    @property
    def overflow(self) -> str | None:
        """Rule of every sum; None is the float format's own."""
        if self.output != "int32":
            return None
        return "saturate" if self.instruction == "mma.satfinite" else "wrap"

    @property
    def arithmetic(self) -> tuple[object, ...]:
        """The arithmetic of the row; rows with the same arithmetic give the same bits."""
        # `min_exponent` is part of the order, so that rows that differ in it alone count as different
        return self.accumulator, self.order, self.rounding, self.overflow, self.scales

    def __str__(self) -> str:
        return f"{self.gpu} {self.inputs} -> {self.output} ({self.instruction})"


KM, SIM, BOTH, PTX = "Khattak & Mikaitis 2025", "MMA-Sim 2025", "Khattak & Mikaitis 2025, MMA-Sim 2025", "PTX ISA"
INT32 = "fix32f0"
#: The FP8 instructions without a unit of their own: operands become binary16, two blocks of 16, then an ordinary add.
#: The conversion normalises e4m3 subnormals, which lowers exponents of their products. That changes no bit: it matters
#: only if such a product has the highest exponent of its block. This is at most 2, so the alignment cuts below 2**-23,
#: and every product is a multiple of 2**-18.
CONVERTED = Blocks(16, 25, index_order="alternating_pairs", addend="after")

#: gpu, inputs, output, instructions, accumulator, order, source, confidence
_ROWS: tuple[tuple[str, str, str, str, str, Order, str, str], ...] = (
    ("v100", "fp16", "fp32", "mma", "fp32", Blocks(4, 23), KM, "very high"),
    ("v100", "fp16", "fp16", "mma", "fp16", Blocks(4, 23, min_exponent=-19), KM, "very high"),
    ("t4", "fp16", "fp32", "mma", "fp32", Blocks(8, 24), SIM, "medium-high"),
    ("t4", "fp16", "fp16", "mma", "fp16", Blocks(8, 24, min_exponent=-20), SIM, "medium-high"),
    ("a100", "fp16 bf16", "fp32", "mma", "fp32", Blocks(8, 24, min_exponent=-132), KM, "very high"),
    ("a100", "fp16", "fp16", "mma", "fp16", Blocks(8, 24, min_exponent=-20), KM, "very high"),
    ("a100", "tf32", "fp32", "mma", "fp32", Blocks(4, 24, min_exponent=-132), KM, "very high"),
    ("ada", "fp16 bf16", "fp32", "mma", "fp32", Blocks(8, 24, min_exponent=-132), KM, "very high"),
    ("ada", "fp16", "fp16", "mma", "fp16", Blocks(8, 24, min_exponent=-20), KM, "very high"),
    ("ada", "tf32", "fp32", "mma", "fp32", Blocks(4, 24, min_exponent=-132), KM, "very high"),
    ("ada", "fp8_e4m3 fp8_e5m2", "fp32", "mma", "e8m13", Blocks(16, 13), KM, "very high"),
    ("ada", "fp8_e4m3 fp8_e5m2", "fp16", "mma", "fp16", Blocks(16, 13), KM, "very high"),
    ("h100", "fp16 bf16", "fp32", "mma wgmma", "fp32", Blocks(16, 25, min_exponent=-133), KM, "very high"),
    ("h100", "fp16", "fp16", "mma wgmma", "fp16", Blocks(16, 25, min_exponent=-21), KM, "very high"),
    ("h100", "tf32", "fp32", "mma", "fp32", Blocks(8, 25, min_exponent=-133), BOTH, "very high"),
    ("h100", "tf32", "fp32", "wgmma", "fp32", Blocks(8, 25, min_exponent=-133), BOTH, "high"),
    ("h100", "fp8_e4m3 fp8_e5m2", "fp32", "wgmma", "e8m13", Blocks(32, 13), BOTH, "medium-high"),
    ("h100", "fp8_e4m3 fp8_e5m2", "fp16", "wgmma", "fp16", Blocks(32, 13), BOTH, "medium-high"),
    ("h100", "fp8_e4m3 fp8_e5m2", "fp32", "mma", "fp32", CONVERTED, KM, "very high"),
    ("h100", "fp8_e4m3 fp8_e5m2", "fp16", "mma", "fp16", CONVERTED, KM, "very high"),
    ("b200", "fp16 bf16", "fp32", "mma", "fp32", Blocks(16, 25, min_exponent=-133), KM, "very high"),
    ("b200", "fp16", "fp16", "mma", "fp16", Blocks(16, 25, min_exponent=-21), KM, "very high"),
    ("b200", "tf32", "fp32", "mma", "fp32", Blocks(8, 25, min_exponent=-133), BOTH, "high"),
    ("b200", "fp8_e4m3 fp8_e5m2", "fp32", "tcgen05", "fp32", Blocks(32, 25), SIM, "high"),
    ("b200", "fp8_e4m3 fp8_e5m2", "fp32", "mma", "fp32", CONVERTED, KM, "very high"),
    ("b200", "fp8_e4m3 fp8_e5m2", "fp16", "mma", "fp16", CONVERTED, KM, "very high"),
    ("t4", "int8", "int32", "mma", INT32, Sequential(), PTX, "high"),
    ("a100", "int8", "int32", "mma", INT32, Sequential(), PTX, "high"),
    ("ada", "int8", "int32", "mma", INT32, Sequential(), PTX, "high"),
    ("h100", "int8", "int32", "mma", INT32, Sequential(), PTX, "high"),
    ("b200", "int8", "int32", "mma", INT32, Sequential(), PTX, "high"),
    # where inside an instruction a unit saturates is not published: here at every add
    ("t4", "int8", "int32", "mma.satfinite", INT32, Sequential(), PTX, "medium"),
    ("a100", "int8", "int32", "mma.satfinite", INT32, Sequential(), PTX, "medium"),
    ("ada", "int8", "int32", "mma.satfinite", INT32, Sequential(), PTX, "medium"),
    ("h100", "int8", "int32", "mma.satfinite", INT32, Sequential(), PTX, "medium"),
    ("b200", "int8", "int32", "mma.satfinite", INT32, Sequential(), PTX, "medium"),
)

#: A block of MX is a step of the sum; its scales are part of each product's exponent.
MX_STEP = Blocks(32, 25, min_exponent=-133)
#: Groups of 16 products, whose exponents are those of their scales.
FP4_STEP = Blocks(64, 35, min_exponent=-139, group=16)
#: Runs of 128 products: four steps of an FP8 instruction, then a fused multiply-add in binary32.
PROMOTED = Promote(128, Blocks(32, 13), "e8m13", "toward_zero")
_EIGHT, _SIX = "mxfp8_e4m3 mxfp8_e5m2 mxfp4_e2m1", "mxfp6_e2m3 mxfp6_e3m2"
#: gpu, inputs, instructions, accumulator, order, where scales enter, source, confidence; results are binary32
_SCALED_ROWS: tuple[tuple[str, str, str, str, Order, str, str, str], ...] = (
    ("b200", _EIGHT, "tcgen05.mxf8f6f4", "fp32", MX_STEP, "in_block", SIM, "high"),
    ("b200", _SIX, "tcgen05.mxf8f6f4", "fp32", MX_STEP, "in_block", SIM, "medium"),
    ("b200", "mxfp4_e2m1", "tcgen05.mxf4", "fp32", FP4_STEP, "in_block", SIM, "high"),
    ("b200", "nvfp4 nvfp4_16x16", "tcgen05.mxf4nvf4", "fp32", FP4_STEP, "in_block, at_result", SIM, "high"),
    ("rtx-blackwell", _EIGHT, "mma.mxf8f6f4", "fp32", MX_STEP, "in_block", SIM, "high"),
    ("rtx-blackwell", _SIX, "mma.mxf8f6f4", "fp32", MX_STEP, "in_block", SIM, "medium"),
    ("rtx-blackwell", "mxfp4_e2m1", "mma.mxf4nvf4", "fp32", FP4_STEP, "in_block", SIM, "high"),
    ("rtx-blackwell", "nvfp4 nvfp4_16x16", "mma.mxf4nvf4", "fp32", FP4_STEP, "in_block, at_result", SIM, "high"),
    ("h100", "fp8_tile fp8_tile_128x128", "wgmma", "fp32", PROMOTED, "at_promotion", BOTH, "medium-high"),
    ("h100", "fp8_tensor fp8_row", "wgmma", "e8m13", Blocks(32, 13), "at_result", BOTH, "medium-high"),
)

#: Every unit of `Mac.preset` whose operands are single numbers.
MATRIX_UNITS = tuple(
    MatrixUnit(gpu, operands, output, instruction, accumulator, order, source, confidence)
    for gpu, inputs, output, instructions, accumulator, order, source, confidence in _ROWS
    for operands in inputs.split()
    for instruction in instructions.split()
)
#: Every unit of `Mac.preset` whose operands share scales.
SCALED_MATRIX_UNITS = tuple(
    MatrixUnit(gpu, operands, "fp32", instruction, accumulator, order, source, confidence, scales)
    for gpu, inputs, instruction, accumulator, order, scales, source, confidence in _SCALED_ROWS
    for operands in inputs.split()
)


#: Formats that `find_unit` takes if none is given: binary16 operands, summed in binary32, as every GPU here can whose
#: rows are not of scaled operands alone.
DEFAULT_INPUTS, DEFAULT_OUTPUT = "fp16", "fp32"
INTEGER_INPUTS, INTEGER_OUTPUT = "int8", "int32"


def find_unit(
    gpu: str, inputs: str | None = None, output: str | None = None, instruction: str | None = None
) -> MatrixUnit:
    """Return the unit of a matrix instruction; without `instruction`, the unit that all instructions of the GPU share.

    Args:
        gpu: the device, or an alias of it.
        inputs: format of both operands; None is int8 for results of int32, else fp16.
        output: format of addend and result; None is int32 for operands of int8, else fp32.
        instruction: which of the device's instructions.

    Raises:
        FormatError: no such unit, or several that differ; lists those that exist.

    Examples:
        >>> print(find_unit("h200", "fp8_e5m2", "fp32", "wgmma"))
        h100 fp8_e5m2 -> fp32 (wgmma)
        >>> print(find_unit("a100"))
        a100 fp16 -> fp32 (mma)
    """
    of_gpu = _units_of(gpu)
    inputs = inputs or (INTEGER_INPUTS if output == INTEGER_OUTPUT else DEFAULT_INPUTS)
    output = output or (INTEGER_OUTPUT if inputs == INTEGER_INPUTS else DEFAULT_OUTPUT)
    fitting = [unit for unit in of_gpu if (unit.inputs, unit.output) == (str(inputs), str(output))]
    chosen = [unit for unit in fitting if instruction in (None, unit.instruction)]
    if not chosen:
        wanted = f"{inputs} -> {output}" + (f" ({instruction})" if instruction else "")
        # the message names the GPU already
        there = ", ".join(str(unit).partition(" ")[2] for unit in fitting or of_gpu)
        raise FormatError(f"{gpu} must have the matrix unit asked for, got {wanted}; it has {there}")
    # instructions with the same arithmetic give the same bits: then any of them will do
    if len({unit.arithmetic for unit in chosen}) > 1:
        names = " or ".join(unit.instruction for unit in chosen)
        raise FormatError(
            f"`instruction` must be given for {inputs} -> {output} on {gpu}, got None: name {names}, whose bits differ"
        )
    return chosen[0]


def _units_of(gpu: str) -> list[MatrixUnit]:
    """Return the rows of a GPU.

    Raises:
        FormatError: none is known; lists the GPUs that are, the nearest name first.
    """
    # a GPU may have rows for scaled operands only, as rtx-blackwell
    known_units = MATRIX_UNITS + SCALED_MATRIX_UNITS
    units = [unit for unit in known_units if unit.gpu == ALIASES.get(str(gpu), gpu)]
    if not units:
        known = ", ".join(nearest_first(str(gpu), [*dict.fromkeys(unit.gpu for unit in known_units), *ALIASES]))
        raise FormatError(
            f"`gpu` must be one whose matrix unit is known, got {gpu!r}; known, the nearest name first: {known}"
        )
    return units
