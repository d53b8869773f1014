"""The time of a step by layer and kind of kernel, with the proof of each fast path."""

from __future__ import annotations

import re
from typing import Any

from emu.formats.numerals import number, power_of_two
from emu.report.chart import AXIS_PIXELS, ROW_PIXELS, SERIES_COLOURS, Chart, layer_bars, swatch_legend
from emu.report.evidence import Evidence
from emu.report.html import Html, disclosure, join, paragraph, table
from emu.report.page import Section, figure, missing_section
from emu.report.time_spent import (
    BLAS,
    DOTS,
    ELEMENTWISE,
    FUNCTIONS,
    IN_ORDER,
    KINDS,
    OUTSIDE,
    REFERENCE,
    SELECTIONS,
    WIDE,
    OperationTime,
    TimeSpent,
)
from emu.report.words import NO_NUMBER, integer, percent, seconds

_TITLE = "Where the time went"
_COLOURS = {
    DOTS: SERIES_COLOURS[0],
    BLAS: SERIES_COLOURS[5],
    WIDE: "var(--severe)",
    IN_ORDER: SERIES_COLOURS[4],
    ELEMENTWISE: SERIES_COLOURS[2],
    SELECTIONS: SERIES_COLOURS[3],
    FUNCTIONS: SERIES_COLOURS[1],
    REFERENCE: SERIES_COLOURS[6],
    OUTSIDE: "var(--quiet)",
}
_READING = (
    "Time of one step of training on the computer that ran the emulation, not on the machine it emulates: each bar is "
    "a layer, forward, backward and update together, each colour a kind of kernel. Host is what happens between the "
    "operations of a step, such as keeping account of the graph. Times differ from run to run; the bits do not."
)
_PATHS = {
    "integer_dot": "integer dot products",
    "float32_blas": "float32 BLAS",
    "float64_blas": "float64 BLAS",
    "wide": "wide integers",
    "in_order": "sums in order",
    "definition": "the reference",
}
#: Phrases of proofs, and plainer ones for readers.
_PHRASES = (
    ("K*max|a|*max|b| + max|addend| <= ", "no sum exceeds "),
    ("exact in 64-bit integers in any order", "so 64-bit integers are exact in any order"),
    ("exact in float32 in any order", "so float32 is exact in any order"),
    ("exact in float64 in any order", "so float64 is exact in any order"),
)


def section(evidence: Evidence) -> Section | None:
    """Return time by layer and kernel as bars and as a table; None for a run that measured none."""
    spent = evidence.time
    if spent is None:
        return missing_section("time", _TITLE, evidence.run.missing.get("profile.parquet"))
    sentences = _sentences(evidence, spent)
    rows = _rows(evidence, spent)
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    colours = {kind: _COLOURS[kind] for kind in kinds}
    tips = {"layer": "layer", "kind": "kernel", "time": "per step", "share": "share"}
    spec = layer_bars(rows, layers, colours, value="ms", title="milliseconds per step", tips=tips)
    height = ROW_PIXELS * len(layers) + AXIS_PIXELS
    # The first three sentences are about the step; the others would make the label long.
    chart = Chart("time-chart", f"Time of a step by layer. {' '.join(sentences[:3])}", spec, height)
    picture = figure(
        "Time of a step by layer and kernel", swatch_legend(colours), chart.placeholder(), reading=_READING
    )
    body = [paragraph(" ".join(sentences), class_="summary"), picture]
    return Section(
        "time", _TITLE, join([*body, disclosure("Every operation, with its path and proof", _table(spent))]), (chart,)
    )


def _sentences(evidence: Evidence, spent: TimeSpent) -> list[str]:
    """Return sentences about the time of a step, its largest parts, fallbacks, and first calls."""
    return [
        f"A step took {_time(spent.typical_seconds / spent.steps)}, on average over {integer(spent.steps)} "
        f"step{'s' * (spent.steps != 1)}.",
        *_most_expensive(spent),
        _fallbacks(spent),
        f"The first call of each operation, which loads or compiles its kernel, is not in these figures; first calls "
        f"took {seconds(spent.first_seconds)} in all.",
        *_outside_steps(evidence, spent),
    ]


def _most_expensive(spent: TimeSpent) -> list[str]:
    layers = spent.by_layer()
    if not layers:
        return []
    layer, entries = next(iter(layers.items()))
    slowest = next(entry for entry in spent.entries if entry.layer)  # entries begin with the most expensive
    kernel = f"{slowest.operation} for {slowest.name} ({slowest.kind})"
    # Time between operations: Python, and keeping account of the graph.
    host = spent.share(entry for entry in spent.entries if entry.kind == OUTSIDE)
    return [
        f"The most expensive layer is {layer} with {percent(spent.share(entries))} of it, the most expensive operation "
        f"{_plain(kernel)} with {percent(spent.share([slowest]))}; {percent(host)} passed outside the datapath."
    ]


def _fallbacks(spent: TimeSpent) -> str:
    left = [entry for entry in spent.entries if entry.fallback]
    products = [entry for entry in spent.entries if entry.path]
    if left:
        reasons: dict[str, list[str]] = {}
        for entry in left:
            reasons.setdefault(entry.fallback, []).append(f"{_plain(entry.operation)} for {entry.name}")
        named = "; ".join(f"{', '.join(those)} ({reason})" for reason, those in reasons.items())
        return f"Left to the reference, {percent(spent.share(left))} of the time: {named}."
    # Nothing was left to the reference if the reference was chosen.
    if products and all(entry.path == "definition" for entry in products):
        return "The reference ran every product by its definition: choose another backend for speed."
    return "No product was left to the reference."


def _outside_steps(evidence: Evidence, spent: TimeSpent) -> list[str]:
    whole, steps = evidence.run.info.get("seconds"), sum(entry.seconds for entry in spent.entries)
    # run.json of an unfinished run has the time up to its last start, which may be less than that of its steps
    if not isinstance(whole, int | float) or whole < steps:
        return []
    trials = ", trials of their sizes" if evidence.run.table("search") is not None else ""
    return [
        # the clock of run.json stops with the last step: tests and files that follow it are not measured
        f"Up to the end of its last step the run took {seconds(whole)}. Steps took {seconds(steps)} of it; choosing "
        f"mini-batches{trials}, tests, noise and files took the rest."
    ]


def _time(value: float) -> str:
    return seconds(value) if value >= 1 else f"{number(value * 1e3, 3)} ms"


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _rows(evidence: Evidence, spent: TimeSpent) -> list[dict[str, Any]]:
    """Return a bar for each kind of work in each layer, in network order, the host last."""
    grouped: dict[tuple[str, str], list[OperationTime]] = {}
    for entry in spent.entries:
        grouped.setdefault((entry.layer or OUTSIDE, entry.kind), []).append(entry)
    index = {name: i for i, name in enumerate(evidence.run.layers)}
    last = len(index)
    # False sorts first: the host comes last, and layers that the network does not name before it.
    keys = sorted(grouped, key=lambda key: (key[1] == OUTSIDE, index.get(key[0], last), KINDS.index(key[1])))
    return [_row(spent, layer, kind, grouped[layer, kind]) for layer, kind in keys]


def _row(spent: TimeSpent, layer: str, kind: str, entries: list[OperationTime]) -> dict[str, Any]:
    # Without first calls: these are charged at the price of later ones.
    of_a_step = sum(entry.typical_seconds for entry in entries) / spent.steps
    return {
        "layer": layer,
        "kind": kind,
        "place": KINDS.index(kind),
        "ms": float(f"{of_a_step * 1e3:.4g}"),
        "time": _time(of_a_step),
        "share": percent(spent.share(entries)),
    }


def _table(spent: TimeSpent) -> Html:
    header = ["result", "operation", "path and proof", "calls", "per call", "share", "speed"]
    rows = (
        [
            entry.name,
            NO_NUMBER if entry.kind == OUTSIDE else _plain(entry.operation),
            _path(entry),
            integer(entry.calls),
            _time(entry.seconds_per_call),
            percent(spent.share([entry])),
            _speed(entry),
        ]
        for entry in spent.entries
    )
    return table(
        "Time by operation, the most expensive first; calls of the host are steps", header, rows, numeric_from=3
    )


def _path(entry: OperationTime) -> str:
    if not entry.path:
        return NO_NUMBER
    left = f"left to the reference: {entry.fallback}; otherwise " if entry.fallback else ""
    return f"{left}{_PATHS.get(entry.path, entry.path)}: {proof_in_words(entry.proof)}"


def proof_in_words(proof: str) -> str:
    """Return a planner's proof in plainer words.

    Examples:
        >>> proof_in_words("K*max|a|*max|b| + max|addend| <= 2**21 units of 2**-8 by the formats")
        'no sum exceeds 2²¹ units of 2⁻⁸ by the formats'
    """
    for phrase, words in _PHRASES:
        proof = proof.replace(phrase, words)
    return re.sub(r"2\*\*(-?\d+)", lambda power: power_of_two(int(power[1])), proof)


def _speed(entry: OperationTime) -> str:
    """Return multiply-adds per second of a product, else elements per second; nothing for a loss, which does both."""
    # A multiply-add counts as one.
    done, unit = (entry.multiply_adds, "MAC/s") if entry.multiply_adds else (entry.elements, "Elem/s")
    if not done or not entry.typical_seconds or (entry.kind == FUNCTIONS and entry.multiply_adds):
        return NO_NUMBER
    billions = done / entry.typical_seconds / 1e9
    scaled, prefix = (billions, "G") if billions >= 0.1 else (billions * 1e3, "M")
    return f"{number(scaled, 2) if scaled < 100 else round(scaled)} {prefix}{unit}"
