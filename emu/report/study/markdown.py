"""A study's tables as Markdown: what documentation quotes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev

from emu.report.study.comparison import Row
from emu.report.words import NO_NUMBER

HEADER = (
    "device", "bits", "accuracy", "spread (s.d.)", "worst .. best", "difference to the baseline, paired (95%)",
    "overflow", "underflow", "what went wrong first",
)  # fmt: skip


def cells(row: Row, broken: str) -> list[str]:
    """Return a row's cells, the device first."""
    values, done = list(row.accuracies.values()), f"{len(row.accuracies)} of {row.seeds} runs"
    if not values:
        reason = "; ".join(dict.fromkeys(row.failures.values())) or "not run"
        return [row.called, str(row.bits), f"failed: {reason}", *[NO_NUMBER] * 5, NO_NUMBER]
    missing = f" ({done}; {'; '.join(dict.fromkeys(row.failures.values()))})" if row.failures else ""
    return [
        row.called,
        str(row.bits),
        f"{100 * sum(values) / len(values):.2f} %{missing}",
        f"{100 * stdev(values):.2f}" if len(values) > 1 else NO_NUMBER,
        f"{100 * min(values):.2f} .. {100 * max(values):.2f}",
        NO_NUMBER if row.difference is None else str(row.difference),
        f"{row.overflow:.1e}",
        f"{row.underflow:.1e}",
        broken,
    ]


def tables(groups: Sequence[tuple[str, Sequence[tuple[Row, str]]]]) -> str:
    """Return a table per title, each of its rows with what went wrong first."""
    parts: list[str] = []
    for title, rows in groups:
        lines = [f"### {title}", "", _line(HEADER), _line(["---"] * len(HEADER))]
        parts.append("\n".join([*lines, *(_line(cells(row, broken)) for row, broken in rows)]))
    return "\n\n".join(parts) + "\n"


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(text.replace("|", "\\|").split()) for text in texts) + " |"
