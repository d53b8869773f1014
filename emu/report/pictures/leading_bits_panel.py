"""The leading-bit heatmap of one tensor as plain data: cells, axis, range lines and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats import DynamicFixed
from emu.formats.numerals import power_of_two
from emu.report.evidence import Evidence
from emu.report.histories import LeadingBits, Trajectory
from emu.report.range_of_format import FormatRange, RangeLine, accumulator_lines, range_of
from emu.report.run_data import Tensor
from emu.report.words import (
    decibels,
    format_in_words,
    integer,
    mac_in_words,
    overflow_in_words,
    parse_or_none,
    percent,
    rounding_in_words,
    sentence_case,
)

#: A range line is drawn if it is at most this many powers of two beyond the data.
NEAR = 6
_MILLION = 1_000_000
#: What to do about results outside of a register's positions.
_REMEDY = "Give the device others, with `lowest` and `bins` of [precision.register]."


@dataclass(frozen=True)
class Scene:
    """An axis of magnitudes, and everything on it except the counts.

    Attributes:
        domain: ends of the axis.
        thick: height of a separate row, such as that of zeros.
        ticks: values that are labelled.
        names: value, as `key_of` writes it -> its label.
        lines: ends of the ranges of format and accumulator: `at`, `label`, `kind`, `of`.
        outside: areas beyond the range: `low`, `high`.
        special: separate rows: lower edge, name, one of `SCALAR_KINDS`.
    """

    domain: list[float]
    thick: float
    ticks: list[float]
    names: dict[str, str]
    lines: list[dict[str, Any]]
    outside: list[dict[str, int]]
    special: list[tuple[float, str, str]]

    @classmethod
    def of(
        cls, history: LeadingBits, covered: FormatRange | None, sums: Sequence[RangeLine], low: int, high: int
    ) -> Scene:
        """Return the axis from 2**low to 2**high, with separate rows for the scalar counts of a register."""
        extra = [
            (name, kind) for name, kind in (("above", "above"), ("NaN, ∞", "nonfinite")) if history.scalars[kind].any()
        ]
        under = [("zero", "none"), *([("below", "below")] if history.scalars["below"].any() else [])]
        # A separate row is at least as high as a power of two, and high enough for its label.
        thick = max(1.0, (high - low) / 22)
        # Half a row of space between the scale and the rows above it, then a tenth of a row between rows.
        special = [(high + thick * (0.5 + 1.1 * i), *item) for i, item in enumerate(extra)]
        # Each `at` is a lower edge: 1.7 rows below the scale leave 0.7 of a row between them.
        special += [(low - thick * (1.7 + 1.1 * i), *item) for i, item in enumerate(under)]
        ticks = _ticks(low, high)
        # Labels by the text that JavaScript makes of the tick's value; those of separate rows stand at their middle.
        names = {str(t): power_of_two(t) for t in ticks} | {key_of(at + thick / 2): name for at, name, _ in special}
        lines = [line for line in [*_lines_of(covered), *sums] if low <= line.at <= high]
        return cls(
            domain=[
                round(min(at for at, *_ in special) - 0.1, 2),
                round(max([high + 0.1, *(at + 1.1 * thick for at, *_ in special)]), 2),
            ],
            thick=thick,
            # The value of a tick must be exactly that of its key, so it is rounded by way of the key.
            ticks=[*ticks, *(float(key_of(at + thick / 2)) for at, *_ in special)],
            names=names,
            lines=[asdict(line) for line in lines],
            outside=_outside(covered, low, high),
            special=special,
        )


def panel(evidence: Evidence, tensor: Tensor, history: LeadingBits) -> dict[str, Any]:
    """Return everything that the script shows of a tensor, as plain JSON."""
    datapath = evidence.run.formats.get(tensor)
    covered = range_of(datapath.format if datapath else None)
    trail = _trail(datapath.format if datapath else None, evidence.points.get(tensor, []), int(history.steps[-1]))
    # With an open point the range is all that it ever covered.
    moved = [row[end] for row in trail for end in ("top", "bottom")]
    held = FormatRange(max(moved), min(moved), ()) if moved else covered
    sums = accumulator_lines(datapath.mac if datapath else None, held)
    low, high = visible(history, covered, [*moved, *(line.at for line in [*_lines_of(covered), *sums])])
    scene = Scene.of(history, covered, sums, low, high)
    shares = history.shares()
    rows = [
        [history.lowest + column, _parts(shares[:, column])]
        for column in range(shares.shape[1])
        if history.counts[:, column].any()
    ]
    return {
        "layer": tensor[0],
        "role": tensor[1],
        "steps": history.steps.tolist(),
        "domain": scene.domain,
        "thick": scene.thick,
        "ticks": scene.ticks,
        "names": scene.names,
        "lines": scene.lines,
        "outside": scene.outside,
        "trail": trail,
        "rows": rows,
        "special": [[round(at, 2), name, _parts(history.share(kind))] for at, name, kind in scene.special],
        "summary": summary_of(history, covered, moves=bool(trail)),
        "facts": [*_facts(evidence, tensor), *_out_of_sight([*_lines_of(covered), *sums], low, high)],
    }


def key_of(at: float) -> str:
    """Return the text that JavaScript makes of a number, which is the key of its name."""
    return f"{round(at, 2):g}"


def _parts(shares: NDArray[np.float64]) -> list[int]:
    """Return shares in millionths; a positive share is at least 1."""
    # Whole numbers are shorter in the page than fractions; a share that is not 0 must not look like 0.
    parts = np.round(shares * _MILLION).astype(np.int64)
    return np.where((shares > 0) & (parts == 0), 1, parts).tolist()


def _trail(text: str | None, points: list[Trajectory], last: int) -> list[dict[str, Any]]:
    """Return the ends of the range after each move of a binary point, up to the last step."""
    word, rows = parse_or_none(text), list[dict[str, Any]]()
    if not isinstance(word, DynamicFixed):
        return rows
    for trajectory in points:
        part = trajectory.part
        moves = zip(trajectory.steps.tolist(), trajectory.points.tolist(), trajectory.redone.tolist(), strict=True)
        # The last row carries the last point to the end of the run.
        for step, point, redone in [*moves, (last, int(trajectory.points[-1]), False)]:
            top, bottom = word.width_bits - word.signed - point, -point
            why = "run again" if redone else "moved"
            text = f"step {step + redone}: point {point}, {why}" + (f" ({part})" if part else "")
            rows.append({"x": step, "top": top, "bottom": bottom, "part": part, "redone": redone, "text": text})
    return rows


def visible(history: LeadingBits, covered: FormatRange | None, ends: Iterable[float]) -> tuple[int, int]:
    """Return the lowest and highest power of two shown: all data, and the ends of the range if they are near."""
    seen = history.exponents()
    if seen is None:
        # Nothing was counted: show the format, unless its range is so wide that it would say nothing.
        return (covered.bottom, covered.top) if covered and covered.top - covered.bottom < 64 else (-8, 8)
    low, high = seen[0], seen[1] + 1
    for end in ends:
        # `low` and `high` grow in the loop: an end may bring the next one near.
        if low - NEAR <= end <= high + NEAR:
            low, high = min(low, int(end) - 2), max(high, int(end) + 2)
    return low, high


def _ticks(low: int, high: int) -> list[int]:
    stride = next(s for s in (1, 2, 4, 8, 16, 32, 64) if (high - low) / s <= 12 or s == 64)
    return list(range(math.ceil(low / stride) * stride, high + 1, stride))


def _outside(covered: FormatRange | None, low: int, high: int) -> list[dict[str, int]]:
    if covered is None:
        return []
    # Cut to what is shown; a band without height is left out.
    bands = ((max(covered.top, low), high), (low, min(covered.bottom, high)))
    return [{"low": a, "high": b} for a, b in bands if a < b]


def summary_of(history: LeadingBits, covered: FormatRange | None, *, moves: bool) -> str:
    """Return a few sentences about the picture."""
    total = max(int(history.scalars["total"].sum()), 1)
    seen = history.exponents()
    if seen is None:
        return _unseen(history)
    zeros = percent(int(history.scalars["none"].sum()) / total)
    text = f"Results from {power_of_two(seen[0])} to {power_of_two(seen[1] + 1)}, {zeros} exactly zero."
    if covered is None:
        return text + (
            " The two lines are the ends of the format's range, which follow the point; triangles mark where the "
            "operation ran again."
            if moves
            else " The range of the format is not fixed, so none is drawn."
        )
    beyond, below = history.beyond(covered.top), history.below(covered.bottom)
    if beyond is None:
        return f"{text} {_unknown(history, 'above')}"
    # The largest result is below 2**(seen + 1), so that many powers of two are free.
    over = f"{percent(beyond / total)} beyond the range" if beyond else _headroom(covered.top - seen[1] - 1)
    text = f"{text} {sentence_case(over)}."
    if below is None:
        return f"{text} {_unknown(history, 'below')}"
    return f"{text} {percent(below / total)} smaller than anything the format can write."


def _unknown(history: LeadingBits, kind: str) -> str:
    """Return a sentence about results `above` or `below` positions that cover less than the format."""
    share = percent(int(history.scalars[kind].sum()) / max(int(history.scalars["total"].sum()), 1))
    return f"{share} lie {kind} the register's positions, so that nothing is known about their size. {_REMEDY}"


def _unseen(history: LeadingBits) -> str:
    """Return a sentence about results none of which lies at a position of the register."""
    outside = {kind: int(history.scalars[kind].sum()) for kind in ("below", "above")}
    if not any(outside.values()):
        return "Every result was zero or not a finite number."
    total = max(int(history.scalars["total"].sum()), 1)
    where = " and ".join(f"{percent(count / total)} lie {kind} them" for kind, count in outside.items() if count)
    return f"No result lies within the register's positions: {where}. {_REMEDY}"


def _headroom(powers: int) -> str:
    room = {0: "no headroom to spare", 1: "1 power of two of headroom"}
    return f"none beyond the range, {room.get(powers, f'{powers} powers of two of headroom')}"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{integer(count)} times")


def _lines_of(covered: FormatRange | None) -> tuple[RangeLine, ...]:
    return covered.lines if covered else ()


def _out_of_sight(lines: Sequence[RangeLine], low: int, high: int) -> list[list[str]]:
    """Return the ends of ranges that are too far from the data to be drawn, as a fact."""
    far = [f"{line.label}, {line.at - high:.0f} powers of two above" for line in lines if line.at > high]
    far += [f"{line.label}, {low - line.at:.0f} powers of two below" for line in lines if line.at < low]
    return [["Outside the picture", "; ".join(far)]] if far else []


def _facts(evidence: Evidence, tensor: Tensor) -> list[list[str]]:
    facts: list[list[str]] = []
    if datapath := evidence.run.formats.get(tensor):
        facts.append(["Format", f"{datapath.format}: {format_in_words(datapath.format)}"])
        rounding, overflow = rounding_in_words(datapath.rounding), overflow_in_words(datapath.overflow, datapath.format)
        facts.append(["Rounding", sentence_case(f"{rounding}; {overflow}")])
        if datapath.mac:
            facts.append(["Multiply-accumulate", sentence_case(mac_in_words(datapath.mac))])
    for trajectory in evidence.points.get(tensor, []):
        # The first row is where the point began, and no move.
        moved, again = len(trajectory.points) - 1, int(trajectory.redone.sum())
        moves = f"{integer(int(trajectory.points[-1]))} at the end; moved {_times(moved)}, run again {_times(again)}"
        facts.append([f"Point of {trajectory.part}" if trajectory.part else "Point", moves])
    if history := evidence.flags.get(tensor):
        raised = ((percent(history.share(flag)), flag) for flag in ("overflow", "underflow", "inexact"))
        facts.append(["Flags over the run", ", ".join(f"{share} {flag}" for share, flag in raised)])
    if noise := evidence.noise.get(tensor):
        facts.append(
            [
                "Signal-to-noise",
                f"{decibels(noise.last)} at the end, {decibels(noise.median)} in the middle of all measurements",
            ]
        )
    return facts
