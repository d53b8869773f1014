"""Results as tables of text: the rows with their bars, peers, the matrix of modes, growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measuring.matrix_sheet import matrix_cells
from benchmarks.measuring.result import Result, Session
from benchmarks.measuring.row import Group, Row
from benchmarks.measuring.timing import Spread
from benchmarks.measuring.verdict import judge, judge_peer, value_of

#: Prefix of units whose figures are shown in thousand millions.
GIGA = "G"
#: What is said of a quick look.
QUICK = "quick: small sizes and few rounds, so nothing is judged and no figure is for the record"
PATHS = "First call and path"


@dataclass(frozen=True)
class Sheet:
    """A table of text.

    Attributes:
        title: what it shows.
        columns: heads.
        rows: cells.
        note: a sentence below it.
        keys: how many of the first columns say what a row is.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    keys: int = 1


def figure(rate: Spread | None, unit: str) -> str:
    """Return a rate in its unit, three digits.

    Examples:
        >>> figure(Spread(3.456e9, 3e9, 4e9, 5), "GElem/s"), figure(Spread(50.0, 49, 51, 5), "step/s")
        ('3.46 GElem/s', '50 step/s')
    """
    if rate is None:
        return ""
    return f"{rate.median / (1e9 if unit.startswith(GIGA) else 1):.3g} {unit}"


def spread(ratio: Spread | None) -> str:
    """Return a ratio with its quartiles.

    Examples:
        >>> spread(Spread(0.8312, 0.82, 0.851, 15))
        '0.83 (0.82 .. 0.85)'
    """
    if ratio is None:
        return ""
    return f"{_short(ratio.median)} ({_short(ratio.low)} .. {_short(ratio.high)})"


def _short(value: float) -> str:
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.3g}"


def of_group(session: Session, rows: Sequence[Row], group: Group) -> list[tuple[Row, Result]]:
    """Return the results of a group with their rows: in the order of the rows, then of the session."""
    members = [row for row in rows if row.group == group]
    return [(row, result) for row in members for result in session.results if result.row == row.name]


def main_sheet(session: Session, rows: Sequence[Row]) -> Sheet:
    """Return the rows with limit, ratio, spread, bar, goal and where they stand."""
    columns = ("row", "work", "threads", "emu", "limit", "ratio (quartiles)", "bar, goal", "stands")
    found = of_group(session, rows, "table")
    note = "The limit's figure is in the unit of emu's."
    return Sheet(
        "Speed beside the limit", columns, tuple(_main_row(row, result, session.quick) for row, result in found), note
    )


def _main_row(row: Row, result: Result, quick: bool) -> tuple[str, ...]:
    name = (row.name, row.title, str(result.threads))
    if result.failure:
        return (*name, "", "", "", "", f"failed: {result.failure}")
    limit, stands = limit_of(row, result), "" if quick else judge(row, result).text
    return (*name, figure(result.ours, row.unit), limit, _ratio(row, result), _asked(row), stands)


def limit_of(row: Row, result: Result) -> str:
    """Return the limit's name and rate, and which kernels BLAS used."""
    kernel = result.blas if row.uses_blas else ""
    return " ".join(part for part in (result.limit_name, kernel, figure(result.limit, row.unit).split(" ")[0]) if part)


def _asked(row: Row) -> str:
    unit = " s" if row.seconds_for else ""
    return ", ".join(f"{value:g}{unit}" for value in (row.bar, row.goal) if value is not None)


def _ratio(row: Row, result: Result) -> str:
    if row.seconds_for is None or result.ours is None:
        return spread(result.ratio)
    low, high = row.seconds_for / result.ours.high, row.seconds_for / result.ours.low
    return f"{value_of(row, result):.3g} s ({low:.3g} .. {high:.3g})"


def peer_sheet(session: Session, rows: Sequence[Row]) -> Sheet:
    """Return every peer beside every row it can do."""
    columns = ("row", "threads", "peer", "its rate", "emu is faster by (quartiles)", "asked", "its work")
    found = [
        (
            row.name,
            str(result.threads),
            peer.name,
            peer.failure or figure(peer.rate, row.unit),
            spread(peer.slower),
            judge_peer(row, peer).text,
            peer.note,
        )
        for row, result in of_group(session, rows, "table")
        for peer in result.peers
    ]
    return Sheet("Peers on the same work", columns, tuple(found))


def path_sheet(session: Session, rows: Sequence[Row]) -> Sheet:
    """Return how emu computed what it computed, and how long the first call took."""
    found = [
        (row.name, str(result.threads), f"{result.first_s:.2f} s", result.path)
        for row, result in of_group(session, rows, "table")
        if not result.failure and not result.core_type
    ]
    return Sheet(PATHS, ("row", "threads", "first call", "path"), tuple(found))


def thread_sheet(session: Session, rows: Sequence[Row]) -> Sheet:
    """Return how every row's speed grows with threads."""
    counts = sorted({result.threads for result in session.results})
    found: list[tuple[str, ...]] = []
    for row in rows:
        rates = {r.threads: r.ours for r in session.results if r.row == row.name and not r.core_type and r.ours}
        first = rates.get(counts[0])
        if row.group == "table" and first is not None and len(rates) > 1:
            cells = [figure(rates.get(count), row.unit) for count in counts]
            gains = [f"{rates[count].median / first.median:.2f}" if count in rates else "" for count in counts[1:]]
            found.append((row.name, *cells, *gains))
    columns = ("row", *(f"threads: {n}" for n in counts), *(f"{n} over {counts[0]}" for n in counts[1:]))
    return Sheet("Growth with threads", columns, tuple(found))


def growth_sheets(session: Session, rows: Sequence[Row]) -> list[Sheet]:
    """Return one table per thing that grows."""
    found = of_group(session, rows, "growth")
    kinds = list(dict.fromkeys(row.name.split("/")[1] for row, _ in found))
    return [_growth_sheet(kind, [pair for pair in found if pair[0].name.split("/")[1] == kind]) for kind in kinds]


def _growth_sheet(kind: str, found: list[tuple[Row, Result]]) -> Sheet:
    work, _, grows = kind.partition("-by-")
    cells = [
        (
            row.title,
            str(r.threads),
            figure(r.ours, row.unit),
            limit_of(row, r),
            spread(r.ratio),
        )
        if not r.failure
        else (row.title, str(r.threads), "", "", f"failed: {r.failure}")
        for row, r in found
    ]
    columns = ("what", "threads", "emu", "limit", "ratio (quartiles)")
    return Sheet(f"Growth of the {work} with {grows}", columns, tuple(cells))


def matrix_sheets(session: Session, rows: Sequence[Row]) -> list[Sheet]:
    """Return, per number of threads, format and rule against rounding mode: ratios to the copy."""
    found = of_group(session, rows, "matrix")
    sheets: list[Sheet] = []
    for threads in dict.fromkeys(result.threads for _, result in found):
        columns, cells, note = matrix_cells([pair for pair in found if pair[1].threads == threads])
        title = f"Every mode and rule over a streaming copy, threads: {threads}"
        sheets.append(Sheet(title, columns, cells, note, keys=2))
    return sheets


def every_sheet(session: Session, rows: Sequence[Row]) -> list[Sheet]:
    """Return all tables that have something in them."""
    sheets = [
        main_sheet(session, rows),
        peer_sheet(session, rows),
        thread_sheet(session, rows),
        path_sheet(session, rows),
    ]
    return [sheet for sheet in (*sheets, *matrix_sheets(session, rows), *growth_sheets(session, rows)) if sheet.rows]


def summary(session: Session, rows: Sequence[Row]) -> str:
    """Return how many figures reach bar and goal: every thread count for itself, BLAS as the environment has it."""
    failed = sum(bool(result.failure) for result in session.results)
    broken = f"; {failed} failed" if failed else ""
    if session.quick:
        return f"{QUICK}{broken}"
    verdicts = [judge(row, r) for row, r in of_group(session, rows, "table") if not r.core_type]
    asked = [verdict for verdict in verdicts if verdict.standing != "none"]
    bars = sum(verdict.standing in ("bar", "goal") for verdict in asked)
    goals = sum(verdict.standing == "goal" for verdict in asked)
    retaken = sum(result.retaken for result in session.results)
    again = f"; {retaken} rounds were taken again" if retaken else ""
    return f"{bars} of {len(asked)} figures reach their bar, {goals} their goal{broken}{again}"
