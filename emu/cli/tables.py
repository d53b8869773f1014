"""The layout of listings: the console, tables whose cells are never broken, no blanks at the ends of lines."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

#: Columns of the screen if the output is no terminal and COLUMNS is not set.
PIPE_WIDTH = 100
#: Indentation of text under a row.
INDENT = "    "


def console() -> Console:
    """Return the console for listings; without a terminal it has COLUMNS, or 100, columns and no colour."""
    # without emoji, a path such as `a:b:c` stays what it is
    plain = Console(highlight=False, emoji=False)
    if plain.is_terminal or os.environ.get("COLUMNS"):
        return plain
    return Console(highlight=False, emoji=False, width=PIPE_WIDTH)


@dataclass(frozen=True)
class Listing:
    """A table whose cells are never broken, for any width of the screen.

    If it is too wide, the columns of `under` are put under their row, the first of them first. If that is not enough,
    columns are one space apart instead of two. If that is not enough either, further tables have the other columns, and
    repeat the first ones.

    Attributes:
        columns: heads of the columns.
        rows: rows of cells.
        title: a line above.
        under: heads of the columns that may be put under their row.
        keys: number of first columns that a further table repeats.
        names_under: whether a column under its row has its head there even if it is the only one.
        starts: heads of the columns that begin a further table, if there must be one.
        numbers: heads of the columns whose cells are aligned at the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    under: Sequence[str] = ()
    names_under: bool = False
    keys: int = 1
    starts: Sequence[str] = ()
    numbers: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines that fit the console."""
        width = options.max_width
        below = self._below(width)
        in_line = [i for i in range(len(self.columns)) if i not in below]
        blocks = self._blocks(in_line, width)
        # `_blocks` makes tables that fit with a gap of 1; they are two apart if there is room for that.
        gap = 2 if max(self._width(block) for block in blocks) <= width else 1
        if self.title:
            yield Text(self.title, style="bold")
        for number, block in enumerate(blocks):
            if number:
                yield Text()
            yield Text(self._line(block, self.columns, gap), style="bold")
            for row in self.rows:
                yield Text(self._line(block, row, gap))
                # Text under a row stands in the first table only.
                if not number:
                    yield from self._under(row, below, width)

    def _below(self, width: int) -> list[int]:
        """Return the columns that are put under their row, in the table's order."""
        left, below = list(range(len(self.columns))), list[int]()
        for head in self.under:
            if self._width(left) <= width:
                break
            # Indices of `columns`: `left` are those that are still in line.
            left.remove(self.columns.index(head))
            below.append(self.columns.index(head))
        return sorted(below)

    def _blocks(self, columns: list[int], width: int) -> list[list[int]]:
        """Return the columns of each table; only the key columns are repeated."""
        keys, blocks = columns[: self.keys], [columns[: self.keys]]
        # If all columns fit in one table, none must begin another.
        starts = self.starts if self._width(columns, 1) > width else ()
        for column in columns[self.keys :]:
            is_full = self._width([*blocks[-1], column], 1) > width
            # A table of keys alone takes a column in any case, however wide: otherwise the loop would only make empty
            # tables.
            if len(blocks[-1]) > self.keys and (is_full or self.columns[column] in starts):
                blocks.append([*keys])
            blocks[-1].append(column)
        return blocks

    def _width(self, columns: Iterable[int], gap: int = 2) -> int:
        widths = [self._column_width(column) for column in columns]
        return sum(widths) + gap * (len(widths) - 1)

    def _column_width(self, column: int) -> int:
        return max(cell_len(row[column]) for row in (self.columns, *self.rows))

    def _line(self, columns: Sequence[int], cells: Sequence[str], gap: int) -> str:
        parts: list[str] = []
        for column in columns:
            space = " " * (self._column_width(column) - cell_len(cells[column]))
            parts.append(space + cells[column] if self.columns[column] in self.numbers else cells[column] + space)
        return (" " * gap).join(parts).rstrip()

    def _under(self, row: Sequence[str], below: list[int], width: int) -> Iterable[Text]:
        """Return the lines under a row; a single column there has no head, unless `names_under` is set."""
        cells = [(self.columns[column], row[column]) for column in below if row[column]]
        is_plain = len(below) == 1 and not self.names_under
        text = "; ".join(cell if is_plain else f"{head}: {cell}" for head, cell in cells)
        room = textwrap.TextWrapper(width, INDENT, INDENT, break_on_hyphens=False, break_long_words=False)
        for line in room.wrap(text):
            yield Text(line)


def facts(rows: dict[str, str]) -> Table:
    """Return a table of names and descriptions."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(name), Text(value))
    return table


@dataclass(frozen=True)
class Trimmed:
    """What rich prints, without blanks at the ends of lines: cells of tables and broken lines have them.

    Attributes:
        content: anything that rich prints.
    """

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        # A line is a list of segments, pieces of one style: empty ones at its end go, and the last that stays is
        # stripped.
        for line in console.render_lines(self.content, options, pad=False):
            while line and not line[-1].text.rstrip():
                line.pop()
            yield from line[:-1]
            if line:
                yield Segment(line[-1].text.rstrip(), line[-1].style)
            yield Segment.line()
