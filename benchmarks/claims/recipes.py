"""Published recipes of 8 and 4 bits for training, each against bfloat16, with and without each of their parts.

The runs are those of `benchmarks/recipes.toml`, 14 settings from five seeds, hours on two processors. The command may
be stopped and started again: it goes on with the runs that the data lack, and shows the seeds for which all are there.

Sources of the claims: Micikevicius et al., "FP8 Formats for Deep Learning", arXiv 2209.05433; DeepSeek-V3, arXiv
2412.19437; NVIDIA, "Recipes for Pre-training LLMs with MXFP8", arXiv 2506.08027; NVIDIA, "Pretraining Large Language
Models with NVFP4", arXiv 2509.25149.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from benchmarks.claims.drawing import BLUE, GRID, INK, ORANGE, circle, line, svg, text
from benchmarks.measuring.markdown import render
from benchmarks.measuring.sheets import Sheet
from emu.hardware.operand_tables import FACTORS
from emu.report.html import Html
from emu.report.study.difference import half_width
from emu.training.folders.study_folder import StudyFolder
from emu.training.study import Case, load_study

ROOT = Path(__file__).resolve().parents[2]
STUDY, DATA = ROOT / "benchmarks" / "recipes.toml", Path(__file__).with_suffix(".json")
#: Where the command's runs are, from where it is called.
FOLDER = Path("studies") / "recipes"
BASELINE = "bf16"
LABEL = (
    "Test loss of each recipe less that of bfloat16 from the same seed: a dot for each seed, and a line at their mean"
)


class Recipe(NamedTuple):
    """A setting of the study, as the page shows it.

    Attributes:
        setting: its name in the study.
        name: what the page calls it.
        operands: what linear layers read.
    """

    setting: str
    name: str
    operands: str


RECIPES = (
    Recipe("float32", "float32", "float32, products and sums in float32"),
    Recipe("fp8-current", "FP8, current scales", "e4m3, errors e5m2; a scale for the tensor"),
    Recipe("fp8-delayed", "FP8, delayed scales", "the same; the scale is that of earlier steps"),
    Recipe("fp8-tile", "FP8 tiles, promoted", "e4m3; scales of 1 x 128 and 128 x 128; sums of 128 added in float32"),
    Recipe("fp8-tile-22-bits", "FP8 tiles, 22 bits", "the same; these sums added in 22 bits"),
    Recipe("mxfp8-rceil", "MXFP8, scales up", "e4m3; powers of two for 32, rounded up"),
    Recipe("mxfp8-floor", "MXFP8, scales down", "the same, rounded down (OCP)"),
    Recipe("mxfp4", "MXFP4", "e2m1; powers of two for 32"),
    Recipe("nvfp4", "NVFP4", "e2m1; e4m3 scales for 16; all four parts below"),
    Recipe("nvfp4-nearest", "NVFP4, nearest", "errors rounded to nearest, not stochastically"),
    Recipe("nvfp4-no-hadamard", "NVFP4, not rotated", "no Hadamard transform before weight gradients"),
    Recipe("nvfp4-1x16", "NVFP4, 1 x 16", "scales of weights for 1 x 16, not 16 x 16"),
    Recipe("nvfp4-all-blocks", "NVFP4, all blocks", "the last block in NVFP4 too, not in bfloat16"),
)


class Claim(NamedTuple):
    """A published order of two recipes.

    Attributes:
        worse: setting whose loss is said to be higher.
        better: setting whose loss is said to be lower.
        words: the claim.
        source: who says it.
    """

    worse: str
    better: str
    words: str
    source: str


CLAIMS = (
    Claim("fp8-tile-22-bits", "fp8-tile", "sums in 22 bits cost accuracy", "DeepSeek-V3, 3.3.2"),
    Claim("mxfp8-floor", "mxfp8-rceil", "scales rounded down cost accuracy", "arXiv 2506.08027, 3"),
    Claim("mxfp4", "nvfp4", "MXFP4 is worse than NVFP4", "arXiv 2509.25149"),
    Claim("nvfp4-nearest", "nvfp4", "errors need stochastic rounding", "arXiv 2509.25149, 4"),
    Claim("nvfp4-no-hadamard", "nvfp4", "weight gradients need the transform", "arXiv 2509.25149, 4"),
    Claim("nvfp4-1x16", "nvfp4", "weights need scales of 16 x 16", "arXiv 2509.25149, 4"),
    Claim("nvfp4-all-blocks", "nvfp4", "some blocks must stay in bfloat16", "arXiv 2509.25149, 4"),
)
#: Published closeness: recipe, largest loss beyond bfloat16's, relatively, who says it.
CLOSE = (
    ("fp8-tile", 0.0025, "DeepSeek-V3, 3.3"),
    ("nvfp4", 0.015, "arXiv 2509.25149, against FP8"),
)
#: Products of a linear layer.
PRODUCTS = tuple(FACTORS)
#: Setting -> seed -> test loss of its last step.
Losses = dict[str, dict[str, float]]


class Differences(NamedTuple):
    """Differences of two losses, paired by seed.

    Attributes:
        values: one for each seed.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return mean(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of Student's t; None of a single seed."""
        if len(self.values) < 2:
            return None
        half = half_width(stdev(self.values), len(self.values))
        return self.mean - half, self.mean + half


class Data(NamedTuple):
    """What was measured.

    Attributes:
        identity: hash of the study and its model: runs of others do not count.
        losses: of all runs that are finished.
    """

    identity: str
    losses: Losses


def measure(folder: Path = FOLDER) -> dict[str, Any]:
    """Run what the data lack, and return the losses of all runs; whatever is there if it is interrupted."""
    known, cases = _known(), list(load_study(STUDY).cases())
    left = [case for case in cases if str(case.seed) not in known.losses.get(case.setting.name, {})]
    if left:
        only = [word for case in left for word in ("--only", case.key)]
        command = [sys.executable, "-m", "emu", "study", str(STUDY), "--out", str(folder), *only]
        try:
            subprocess.run(command, check=False, cwd=ROOT)
        except KeyboardInterrupt:
            print("stopped; the page has the seeds that are finished, and the same command goes on")
    return with_runs(known, left, StudyFolder(ROOT / folder))._asdict()


def with_runs(known: Data, cases: Sequence[Case], home: StudyFolder) -> Data:
    """Return data with the runs of a folder that are finished."""
    losses = {setting: dict(seeds) for setting, seeds in known.losses.items()}
    for case in cases:
        info = home.result(case)
        if info is not None:
            losses.setdefault(case.setting.name, {})[str(case.seed)] = float(f"{info['metrics']['test_loss']:.6g}")
    order = [BASELINE, *(recipe.setting for recipe in RECIPES)]
    return Data(known.identity, {name: losses[name] for name in order if name in losses})


def _known() -> Data:
    """Return what was measured before of the same study, nothing of another one."""
    identity = hashlib.sha256(STUDY.read_bytes() + (STUDY.parent / "transformer256.toml").read_bytes()).hexdigest()
    if DATA.is_file():
        data = json.loads(DATA.read_text(encoding="utf-8"))
        if data["identity"] == identity:
            return Data(**data)
    return Data(identity, {})


def whole_seeds(losses: Losses) -> list[str]:
    """Return the seeds for which the runs of all recipes are there."""
    settings = [BASELINE, *(recipe.setting for recipe in RECIPES)]
    seeds = [set(losses.get(setting, {})) for setting in settings]
    return sorted(seeds[0].intersection(*seeds[1:]), key=int)


def between(losses: Losses, worse: str, better: str) -> Differences:
    """Return the differences of the test losses of two settings."""
    return Differences(tuple(losses[worse][seed] - losses[better][seed] for seed in whole_seeds(losses)))


def verdict(difference: Differences) -> str:
    """Return whether the first of two losses is the higher one, in words."""
    interval = difference.interval
    if interval is None:
        return f"{difference.mean:+.4f}, one seed: nothing is sure"
    low, high = interval
    words = "holds here" if low > 0 else "the other way here" if high < 0 else "not told apart"
    return f"{words}: {difference.mean:+.4f} ({low:+.4f} .. {high:+.4f})"


# ---- the picture -----------------------------------------------------------------------------------------------------

NAMES, LEFT, RIGHT, TOP, ROW = 0, 150, 446, 46, 24


def picture(data: dict[str, Any]) -> str:
    """Return the differences of each recipe to bfloat16, seed by seed."""
    losses: Losses = data["losses"]
    rows = [(recipe.name, between(losses, recipe.setting, BASELINE).values) for recipe in RECIPES]
    ends = [value for _, values in rows for value in values] + [0.0]
    low, high = min(ends), max(ends)
    room = 0.04 * ((high - low) or 1)
    low, high = low - room, high + room

    def x(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * (value - low) / (high - low)

    bottom = TOP + ROW * len(rows)
    shapes = [text(NAMES, 18, "test loss less that of bfloat16, by seed"), line(x(0), TOP - 12, x(0), bottom, INK)]
    shapes += _ticks(x, low, high, bottom)
    for i, (name, values) in enumerate(rows):
        y = TOP + ROW * i
        colour = BLUE if name in ("float32", "FP8 tiles, promoted", "MXFP8, scales up", "NVFP4") else ORANGE
        middle = mean(values)
        shapes += [text(NAMES, y + 5, name), line(LEFT, y, RIGHT, y)]
        shapes += [circle(x(value), y, colour, filled=False) for value in values]
        shapes.append(line(x(middle), y - 8, x(middle), y + 8, colour))
    return svg(bottom + 30, LABEL, *shapes)


def _ticks(x: Any, low: float, high: float, bottom: float) -> Iterator[Html]:
    step = next(size for size in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5) if (high - low) / size < 7)
    for k in range(int(low / step), int(high / step) + 1):
        yield line(x(k * step), TOP - 12, x(k * step), bottom, GRID)
        yield text(x(k * step), bottom + 16, f"{k * step:+g}" if k else "0", anchor="middle")


# ---- the paragraph ---------------------------------------------------------------------------------------------------


def section(data: dict[str, Any]) -> str:
    """Return tables of recipes and of claims, and what they are worth."""
    losses: Losses = data["losses"]
    seeds = whole_seeds(losses)
    planned = len({case.seed for case in load_study(STUDY).cases()})
    several = "An interval is the 95% interval of Student's t of paired differences. " if len(seeds) > 1 else ""
    part = ""
    if len(seeds) < planned:
        part = f" Of {planned} planned seeds {len(seeds)} {'is' if len(seeds) == 1 else 'are'} measured so far."
    end = _of_baseline(losses)
    return f"""![{LABEL}](pictures/claims/recipes.svg)

What do recipes of 8 and 4 bits cost, and what is each part of them worth? A transformer of four blocks, 256 features
wide and 1024 inside (`benchmarks/transformer256.toml`), foretells bytes of a text for 60 steps. Its linear layers, but
for the last, read what a recipe casts. Weights, activations and errors are stored in bfloat16, in the row float32 in
float32. Runs of one seed have equal weights and batches. bfloat16 ends at a test loss of {end:.4f}.{part}

{_recipes(losses)}

Published claims, about models and runs thousands of times as large:

{_claims(losses)}

{several}The last two rows hold the mean, against bfloat16. FP8 runs on the units of an H100, bfloat16, MXFP and NVFP4
on those of a B200. MXFP4 is in all blocks, and has none of the parts of NVFP4's recipe. Sums here have 256 to 1024
products, and 60 steps are the beginning of a training: a claim that is not told apart here may hold where it was made.
Units are [published models](concepts/matrix-units.md#how-sure-this-is); in 22 bits means that the unit's own
accumulator also adds the sums of tiles, a unit that nobody sells.

Made by `python -m benchmarks.claims recipes`, in hours."""


def _of_baseline(losses: Losses) -> float:
    return mean(losses[BASELINE][seed] for seed in whole_seeds(losses))


def _recipes(losses: Losses) -> str:
    rows = [
        (recipe.name, recipe.operands, _shown(between(losses, recipe.setting, BASELINE), losses)) for recipe in RECIPES
    ]
    return render(Sheet("recipes", ("recipe", "operands of linear layers", "test loss less bfloat16's"), tuple(rows)))


def _shown(difference: Differences, losses: Losses) -> str:
    share = difference.mean / _of_baseline(losses)
    interval = difference.interval
    beside = "" if interval is None else f", {interval[0]:+.4f} .. {interval[1]:+.4f}"
    return f"{difference.mean:+.4f} ({share:+.2%}{beside})"


def _claims(losses: Losses) -> str:
    rows = [(claim.words, claim.source, verdict(between(losses, claim.worse, claim.better))) for claim in CLAIMS]
    for setting, most, source in CLOSE:
        name = next(recipe.name for recipe in RECIPES if recipe.setting == setting)
        share = between(losses, setting, BASELINE).mean / _of_baseline(losses)
        words = "holds here" if share <= most else "not here"
        words = words if len(whole_seeds(losses)) > 1 else f"{words}, in one seed"
        rows.append((f"{name} loses less than {most:.2%}", source, f"{words}: {share:+.2%}"))
    return render(Sheet("claims", ("claim", "who says it", "here"), tuple(rows)))
