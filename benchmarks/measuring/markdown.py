"""Tables as Markdown, and the places of a page that a command fills.

<!-- bench:table begin -->      everything between the two lines is replaced, nothing else is touched
<!-- bench:table end -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benchmarks.measuring.result import Session
from benchmarks.measuring.row import Row
from benchmarks.measuring.sheets import (
    Sheet,
    every_sheet,
    growth_sheets,
    main_sheet,
    matrix_sheets,
    path_sheet,
    peer_sheet,
    summary,
    thread_sheet,
)
from emu.errors import ConfigError

#: Places of the page, in order.
PLACES = ("machine", "table", "peers", "matrix", "growth", "paths")
_BEGIN, _END = "<!-- bench:{} begin -->", "<!-- bench:{} end -->"


def render(sheet: Sheet) -> str:
    r"""Return a table, without its title.

    Examples:
        >>> print(render(Sheet("t", ("a", "b"), (("1", "x | y"),))))
        | a | b |
        |---|---|
        | 1 | x \| y |
    """
    lines = [sheet.columns, ("---",) * len(sheet.columns), *sheet.rows]
    text = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    return text.replace("| --- " * len(sheet.columns) + "|", "|---" * len(sheet.columns) + "|") + _below(sheet)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _below(sheet: Sheet) -> str:
    return f"\n\n{sheet.note}" if sheet.note else ""


def document(session: Session, rows: Sequence[Row]) -> str:
    """Return a whole page: machine, summary, every table that has rows."""
    parts = ["# Speed\n", _machine(session), f"\n{summary(session, rows)}.\n"]
    parts += [f"\n## {sheet.title}\n\n{render(sheet)}\n" for sheet in every_sheet(session, rows)]
    return "\n".join(parts)


def places(session: Session, rows: Sequence[Row]) -> dict[str, str]:
    """Return what stands at each of the page's places; a place without results is left out."""
    growth = [*growth_sheets(session, rows), thread_sheet(session, rows)]
    sheets = {
        "table": [main_sheet(session, rows)],
        "peers": [peer_sheet(session, rows)],
        "matrix": matrix_sheets(session, rows),
        "growth": growth,
        "paths": [path_sheet(session, rows)],
    }
    texts = {name: [s for s in found if s.rows] for name, found in sheets.items()}
    filled = {name: "\n\n".join(_titled(sheet, len(found) > 1) for sheet in found) for name, found in texts.items()}
    filled["machine"] = f"{_machine(session)}\n\n{summary(session, rows)}."
    return {name: filled[name] for name in PLACES if filled[name]}


def _titled(sheet: Sheet, several: bool) -> str:
    return f"{sheet.title}:\n\n{render(sheet)}" if several else render(sheet)


def _machine(session: Session) -> str:
    return "\n".join(f"- {name}: {text}" for name, text in session.machine.items())


def fill(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with new text at its places.

    Args:
        page: Markdown with the marker lines.
        texts: place -> text.

    Raises:
        ConfigError: the page lacks a place.
    """
    for name, text in texts.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        pattern = re.compile(f"^{re.escape(begin)}$.*?^{re.escape(end)}$", re.DOTALL | re.MULTILINE)
        if not pattern.search(page):
            raise ConfigError(f"a page must hold the lines `{begin}` and `{end}`, got neither in order; add them")
        page = pattern.sub(lambda _, new=f"{begin}\n\n{text}\n\n{end}": new, page)
    return page
