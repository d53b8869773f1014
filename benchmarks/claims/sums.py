"""DeepSeek-V3, section 3.3.2: FP8 sums on Hopper lose digits, and promotion to binary32 keeps them.

Operands are e4m3. The largest error of 64 x 64 results is taken: relative to the result, but to the largest result
where numbers have the mean 0, because results may lie as near to 0 as they like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import emu
from benchmarks.claims.drawing import BLUE, INK, ORANGE, circle, curve, line, svg, text
from benchmarks.claims.words import listed
from emu.datapath.presets import find_unit
from emu.report.html import Html
from emu.report.words import percent

DEPTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
#: Rows and columns of a result, and the seed; each depth draws numbers of its own.
SIZE, SEED = 64, 1
#: The depth of the published claim, and its error.
CLAIMED_DEPTH, CLAIMED = 4096, 0.02
CHAIN, PROMOTED = "22 bits", "promoted"
UNITS = {
    CHAIN: emu.Mac.preset("h100", inputs="fp8_e4m3", instruction="wgmma"),
    PROMOTED: emu.Mac(accumulator="fp32", order="promote(128, blocks(32, 13), e8m13, toward_zero)"),
}
UNIFORM, MAGNITUDES, NORMAL = "uniform", "|normal|", "normal"
NUMBERS: dict[str, Callable[[np.random.Generator, tuple[int, int]], npt.NDArray[np.float64]]] = {
    UNIFORM: lambda rng, shape: rng.random(shape),
    MAGNITUDES: lambda rng, shape: np.abs(rng.normal(size=shape)),
    NORMAL: lambda rng, shape: rng.normal(size=shape),
}
#: What the text calls them.
NAMES = {UNIFORM: "uniform numbers in [0, 1)", MAGNITUDES: "magnitudes of normal ones", NORMAL: "normal ones"}
LABEL = (
    "Largest error of a sum of FP8 products over the number of products: it grows where sums are held in 22 bits, "
    "and stays level where they are promoted to binary32 every 128 products"
)
#: Numbers -> unit -> K, as JSON has it -> error.
Data = dict[str, dict[str, dict[str, float]]]


def measure(depths: Sequence[int] = DEPTHS) -> Data:
    """Return the largest error of each distribution, unit and K, in four digits."""
    data: Data = {numbers: {unit: {} for unit in UNITS} for numbers in NUMBERS}
    for numbers in NUMBERS:
        for k in depths:
            for unit, error in _errors(numbers, k).items():
                data[numbers][unit][str(k)] = float(f"{error:.4g}")
    return data


def _errors(numbers: str, k: int) -> dict[str, float]:
    """Return unit -> largest error."""
    rng, fmt = np.random.default_rng([SEED, k]), "fp8_e4m3"
    a, b = (emu.quantize(NUMBERS[numbers](rng, (SIZE, k)), fmt) for _ in "ab")
    # exact in any order: products are multiples of 2**-18 below 2**18, 8192 of them below 2**31, which is 49 bits
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    size = np.abs(exact).max() if numbers == NORMAL else exact
    formats: dict[str, Any] = {"a_format": fmt, "b_format": fmt, "out_format": "fp32"}
    sums = {unit: emu.matmul(a, b.T, **formats, mac=mac) for unit, mac in UNITS.items()}
    return {unit: float(np.max(np.abs(got - exact) / size)) for unit, got in sums.items()}


# ---- the picture -----------------------------------------------------------------------------------------------------

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 62, 326, 44, 330, 374
#: Errors at the bottom and at the top of the picture.
LEAST, MOST = 1e-4, 0.2
#: Dashes of each distribution, and the fewest pixels between two texts.
DASHES, LINE_PIXELS = {UNIFORM: "", MAGNITUDES: "2 4", NORMAL: "8 4"}, 17


def _x(k: int) -> float:
    return LEFT + (RIGHT - LEFT) * math.log(k / DEPTHS[0]) / math.log(DEPTHS[-1] / DEPTHS[0])


def _y(error: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * math.log(error / LEAST) / math.log(MOST / LEAST)


def picture(data: Data) -> str:
    """Return errors over K, both logarithmic: a colour for each unit, dashes for each distribution."""
    shapes = [*_axes()]
    for unit, colour in ((CHAIN, ORANGE), (PROMOTED, BLUE)):
        ends: list[tuple[float, str]] = []
        for numbers, dashes in DASHES.items():
            points = [(_x(int(k)), _y(error)) for k, error in data[numbers][unit].items()]
            shapes += [curve(points, colour, dashes), *(circle(x, y, colour) for x, y in points)]
            ends.append((points[-1][1], numbers))
        shapes += [text(RIGHT + 10, y + 5, names, colour=colour) for y, names in _together(ends)]
    x, y = _x(CLAIMED_DEPTH), _y(CLAIMED)
    shapes += [circle(x, y, INK, filled=False), text(RIGHT + 10, y + 5, "DeepSeek-V3")]
    shapes.append(text(LEFT, 16, "sums in 22 bits", colour=ORANGE))
    shapes.append(text(LEFT + 120, 16, "promoted to binary32 every 128", colour=BLUE))
    return svg(HEIGHT, LABEL, *shapes)


def _axes() -> Iterator[Html]:
    yield text(0, TOP - 2, "largest error")
    for error in (1e-4, 1e-3, 1e-2, 1e-1):
        yield line(LEFT, _y(error), RIGHT, _y(error))
        yield text(LEFT - 8, _y(error) + 5, percent(error), anchor="end")
    for k in DEPTHS[::2]:
        yield line(_x(k), BOTTOM, _x(k), BOTTOM + 5)
        yield text(_x(k), BOTTOM + 20, str(k), anchor="middle")
    yield text((LEFT + RIGHT) / 2, BOTTOM + 39, "products in a sum (K)", anchor="middle")


def _together(ends: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return texts at the ends of lines; lines that end side by side share one."""
    texts: list[tuple[float, str]] = []
    for y, name in ends:
        beside = next((i for i, (other, _) in enumerate(texts) if abs(y - other) < LINE_PIXELS), None)
        if beside is None:
            texts.append((y, name))
        else:
            texts[beside] = ((y + texts[beside][0]) / 2, f"{texts[beside][1]}, {name}")
    return texts


# ---- the paragraph ---------------------------------------------------------------------------------------------------


def section(data: Data) -> str:
    """Return what the picture shows, in words."""

    def error(numbers: str, k: int) -> str:
        return percent(data[numbers][CHAIN][str(k)])

    first, last = DEPTHS[0], DEPTHS[-1]
    grown = [f"from {error(name, first)} to {error(name, last)} for {NAMES[name]}" for name in NUMBERS]
    errors = {unit: [data[name][unit][str(CLAIMED_DEPTH)] for name in NUMBERS] for unit in UNITS}
    ratios = [f"{chain / promoted:.0f}" for chain, promoted in zip(*errors.values(), strict=True)]
    confidence = find_unit("h100", "fp8_e4m3", instruction="wgmma").confidence
    claimed = [error(name, CLAIMED_DEPTH) for name in NUMBERS]
    return f"""![{LABEL}](pictures/claims/sums.svg)

What does a long sum of FP8 products lose on Hopper? Its unit holds sums in 22 bits, 13 of them of the fraction, and
cuts every step of 32 products toward zero. So the largest error grows with K: between K = {first} and {last},
{listed(grown)}.

If sums are promoted to binary32 every 128 products, as kernels of DeepGEMM do, the error does not grow. At
K = {CLAIMED_DEPTH} it is {listed(ratios)} times smaller.

DeepSeek-V3 ([arXiv 2412.19437](https://arxiv.org/abs/2412.19437), section 3.3.2) reports "nearly 2%" at
K = {CLAIMED_DEPTH}, the ring in the picture, and does not name the matrices. So the growth and its removal are
reproduced here, and the 2% is not: these three kinds of numbers give {listed(claimed)}.

Operands are e4m3 without scales. Errors are those of the sum alone, the largest of {SIZE} x {SIZE} results, relative to
the exact one. Normal numbers have results near 0, so their errors are relative to the largest result. The unit,
`wgmma` of h100, is a [published model](concepts/matrix-units.md#how-sure-this-is) of {confidence} confidence; no GPU
was asked.

Made by `python -m benchmarks.claims sums`, in seconds."""
