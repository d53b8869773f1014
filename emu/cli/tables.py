"""How listings look: the screen they go to, and tables without lines."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Wide enough for a table where the output is no terminal.
_PIPE_WIDTH = 100


def console() -> Console:
    """Return the console listings go to; without a terminal it has a fixed width and no colour."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def grid(*columns: str, title: str | None = None) -> Table:
    """Return an empty table in the style of all listings."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def facts(rows: dict[str, str]) -> Table:
    """Return a table of names and what they are."""
    table = grid("", "")
    table.show_header = False
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(value))
    return table
