"""MMA-Sim, table 8: one sum that cancels has four values on eleven matrix units.

2**23 - 2**23 - 1/2 - 1/4 - 1/8: 2**23 is the addend, -2**23 a product. A unit that shifts the small terms to the
exponent of the large ones cuts them off, some units more than others. Beside it: a product of random matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

import emu
from benchmarks.claims.drawing import BLUE, GRID, ORANGE, box, svg, text
from benchmarks.claims.words import listed
from benchmarks.measuring.markdown import render
from benchmarks.measuring.sheets import Sheet
from emu.datapath.presets import MATRIX_UNITS, MatrixUnit, find_unit
from emu.report.html import Html
from emu.report.words import percent

#: The random product: rows and columns of the result, products of each, the seed.
SIZE, DEPTH, SEED = 64, 64, 1
LARGE, SMALL = 2.0**23, (0.5, 0.25, 0.125)
#: Scales of 16 products, as `nvfp4` has them, without the number for the tensor: it would enter at the result.
ONE_LEVEL = "block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4_one_level)"
FP16, FP8, MX, NV = "fp16", "fp8_e5m2", "mxfp8_e4m3", "nvfp4"
#: Operands of presets -> their format, and in words: elements, scales, -2**23.
OPERANDS = {
    FP16: (FP16, "`fp16`", "none", "2¹² · -2¹¹"),
    FP8: (FP8, "`fp8_e5m2`", "none", "2¹² · -2¹¹"),
    MX: (MX, "`fp8_e4m3`", "powers of two, for each 32", "2⁸ · -2⁸, scales 2⁴ and 2³"),
    NV: (ONE_LEVEL, "`fp4_e2m1`", "`fp8_ue4m3`, for each 16", "eight of 4 · -4, scales 2⁸ and 2⁸"),
}


@dataclass(frozen=True)
class Machine:
    """A matrix unit, and the sum that it is published to have.

    Attributes:
        name: name of the row.
        gpu: its name for `Mac.preset`.
        inputs: key of `OPERANDS`.
        instruction: for `Mac.preset`, where instructions differ.
        published: the sum of MMA-Sim's table.
    """

    name: str
    gpu: str
    inputs: str
    instruction: str | None
    published: float

    @property
    def short(self) -> str:
        """The name without operands."""
        return self.name.partition(" ")[0]

    @property
    def unit(self) -> MatrixUnit:
        """The row of the table of units."""
        return find_unit(self.gpu, self.inputs, instruction=self.instruction)

    @property
    def mac(self) -> emu.Mac:
        """The unit, without the scale of the tensor if it has one."""
        mac = emu.Mac.preset(self.gpu, inputs=self.inputs, instruction=self.instruction)
        return replace(mac, scales="in_block") if self.inputs == NV else mac

    @property
    def instructions(self) -> str:
        """The instructions that give these bits."""
        own = self.unit
        same = (own.gpu, own.inputs, own.output, own.arithmetic)
        rows = [unit for unit in MATRIX_UNITS if (unit.gpu, unit.inputs, unit.output, unit.arithmetic) == same]
        return ", ".join(f"`{unit.instruction}`" for unit in rows or [own])


MACHINES = (
    Machine("V100 fp16", "v100", FP16, None, 0.0),
    Machine("T4 fp16", "t4", FP16, None, -0.5),
    Machine("A100 fp16", "a100", FP16, None, -0.5),
    Machine("Ada fp16", "ada", FP16, None, -0.5),
    Machine("H100 fp16", "h100", FP16, None, -0.75),
    Machine("B200 fp16", "b200", FP16, None, -0.75),
    Machine("Ada FP8", "ada", FP8, None, 0.0),
    Machine("H100 FP8", "h100", FP8, "wgmma", 0.0),
    Machine("B200 FP8", "b200", FP8, "tcgen05", -0.75),
    Machine("B200 MXFP8", "b200", MX, None, -0.75),
    Machine("B200 NVFP4", "b200", NV, None, -0.875),
)
LABEL = (
    "What eleven matrix units make of a sum that cancels, and how many results of a random product are not the exactly "
    "rounded ones"
)
#: "sum", "inexact" (results that are not the exactly rounded ones), "unlike" (results that differ from another machine
#: with the same operands) of each machine.
Data = dict[str, dict[str, Any]]


# ---- the data --------------------------------------------------------------------------------------------------------


def measure() -> Data:
    """Return the sum and the counts of each machine."""
    data: Data = {}
    products = {machine: random_product(machine) for machine in MACHINES}
    for machine, got in products.items():
        exact = random_product(machine, emu.Mac())
        others = {other.name: unlike(got, products[other]) for other in MACHINES if _comparable(machine, other)}
        data[machine.name] = {"sum": cancelling_sum(machine), "inexact": unlike(got, exact), "unlike": others}
    return data


def cancelling_sum(machine: Machine) -> float:
    """Return what the unit makes of 2**23 - 2**23 - 1/2 - 1/4 - 1/8."""
    a, b = _terms(machine.inputs)
    return emu.matmul(a, b, addend=LARGE, addend_format="fp32", out_format="fp32", mac=machine.mac).item()


def _terms(inputs: str) -> tuple[Any, Any]:
    """Return operands whose products are the last four terms."""
    fmt = OPERANDS[inputs][0]
    a, b = np.zeros(64, np.float32), np.zeros(64, np.float32)
    if inputs == NV:  # a group of 16 for each term: elements reach 6, scales 448
        a[:8], b[:8], a[16::16], b[16::16] = 4, -4, -1, 1
        return _scaled(a, [2.0**8, *SMALL], fmt), _scaled(b, [2.0**8, 1, 1, 1], fmt)
    a[1:4], b[1:4] = np.negative(SMALL), 1
    if inputs == MX:  # elements reach 448; the small terms are divided by the scales
        a[0], b[0], b[1:4] = 2.0**8, -(2.0**8), 2.0**-7
        return _scaled(a[:32], [2.0**4], fmt), _scaled(b[:32], [2.0**3], fmt)
    a[0], b[0] = 2.0**12, -(2.0**11)
    return emu.value(a, fmt), emu.value(b, fmt)


def _scaled(elements: Any, scales: list[float], fmt: str) -> Any:
    return emu.value((elements, np.array(scales, np.float32)), fmt)


def random_product(machine: Machine, mac: emu.Mac | None = None) -> npt.NDArray[np.float32]:
    """Return a product of normal numbers, which are equal for all machines, in the machine's formats."""
    rng, fmt = np.random.default_rng(SEED), OPERANDS[machine.inputs][0]
    a, b = (emu.quantize(rng.normal(size=(SIZE, DEPTH)), fmt) for _ in "ab")
    formats: dict[str, Any] = {"a_format": fmt, "b_format": fmt} if machine.inputs in (FP16, FP8) else {}
    return emu.matmul(a, b.T, **formats, out_format="fp32", mac=mac or machine.mac)


def unlike(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> int:
    """Return how many results have other bits."""
    return int(np.count_nonzero(left.view(np.uint32) != right.view(np.uint32)))


def _comparable(one: Machine, other: Machine) -> bool:
    return one is not other and one.inputs == other.inputs


# ---- the picture -----------------------------------------------------------------------------------------------------

TOP, ROW, BAR = 58, 26, 14
#: Where names, terms, sums and shares begin, and pixels of a term of 1 and of a share of 1.
TERMS, SUMS, SHARES, UNIT, WHOLE = 100, 262, 282, 110, 120


def picture(data: Data) -> str:
    """Return a line for each machine: which terms are left of the sum, and the share of results that are inexact."""
    shapes = [
        text(TERMS, 18, "what is left of"),
        text(SHARES, 18, "random results that are"),
        text(SHARES, 38, "not the exactly rounded", colour=ORANGE),
        *(text(x, 38, f"-{term}", colour=BLUE) for x, term in zip(_places(), "½¼⅛", strict=True)),
    ]
    for i, (name, row) in enumerate(data.items()):
        y = TOP + ROW * i
        shapes += [text(0, y + BAR - 2, name), *_terms_left(-row["sum"], y)]
        shapes.append(text(SUMS, y + BAR - 2, f"{row['sum']:g}", anchor="end"))
        share = row["inexact"] / SIZE**2
        shapes += [box(SHARES, y, WHOLE, BAR, GRID, filled=False), box(SHARES, y, WHOLE * share, BAR, ORANGE)]
        shapes.append(text(SHARES + WHOLE + 8, y + BAR - 2, percent(share)))
    return svg(TOP + ROW * len(data), LABEL, *shapes)


def _terms_left(left: float, y: float) -> Iterator[Html]:
    for x, term in zip(_places(), SMALL, strict=True):
        is_left = left >= term
        yield box(x, y, UNIT * term - 2, BAR, BLUE if is_left else GRID, filled=is_left)
        left -= term * is_left


def _places() -> list[float]:
    """Return where the boxes of the terms begin."""
    return [TERMS + UNIT * sum(SMALL[:i]) for i in range(len(SMALL))]


# ---- the paragraph ---------------------------------------------------------------------------------------------------


def section(data: Data) -> str:
    """Return the table of machines, and what the picture shows, in words."""
    between = "\n".join(_between(data, kind, word) for kind, word in ((FP16, "fp16"), (FP8, "FP8")))
    return f"""![{LABEL}](pictures/claims/machines.svg)

Do GPUs agree on a sum? MMA-Sim ([arXiv 2511.10909](https://arxiv.org/abs/2511.10909), version 2, table 8) asks matrix
units for 2²³ - 2²³ - 0.5 - 0.25 - 0.125, which is -0.875. A unit shifts the small terms to the exponent of the large
ones and [cuts them there](concepts/matrix-units.md). How many bits it keeps below decides which of them are left. emu
gives the {len(data)} published values. Here 2²³ is the addend, and -2²³ a product, or a sum of eight.

{_table(data)}

The last column is about a product of random matrices, {SIZE} x {SIZE} results of {DEPTH} products: how many results are
not the exact one rounded once. All rows round the same normal numbers to their operands.
{between}
A unit that cuts far below the largest term seldom cuts anything off products of short operands.

The units are published models; [how sure each one is](concepts/matrix-units.md#how-sure-this-is).

Made by `python -m benchmarks.claims machines`, in seconds."""


def _table(data: Data) -> str:
    columns = ("machine", "operands", "scales", "instruction", "-2²³ is", "sum", "published", "not exactly rounded")
    rows: list[tuple[str, ...]] = []
    for machine in MACHINES:
        _, elements, scales, large = OPERANDS[machine.inputs]
        row = data[machine.name]
        sums = (f"{row['sum']:g}", f"{machine.published:g}", percent(row["inexact"] / SIZE**2))
        rows.append((machine.name, elements, scales, machine.instructions, large, *sums))
    return render(Sheet("machines", columns, tuple(rows)))


def _between(data: Data, inputs: str, word: str) -> str:
    """Return which machines give the same bits, and how often others differ."""
    alike: list[list[Machine]] = []
    for machine in (machine for machine in MACHINES if machine.inputs == inputs):
        unlike_to = data[machine.name]["unlike"]
        group = next((group for group in alike if unlike_to[group[0].name] == 0), None)
        if group is None:
            alike.append([machine])
        else:
            group.append(machine)
    same = [listed([machine.short for machine in group]) for group in alike if len(group) > 1]
    bits = ", ".join(f"as do {names}" if i else f"{names} give the same bits" for i, names in enumerate(same))
    pairs = [(left[0], right[0]) for left, right in combinations(alike, 2)]
    differ = [
        f"{a.short} and {b.short} differ in {percent(data[a.name]['unlike'][b.name] / SIZE**2)}" for a, b in pairs
    ]
    return f"With the same {word} operands, {'; '.join(filter(None, [bits, listed(differ)]))} of the results."
