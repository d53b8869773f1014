"""How listings look: the screen they go to, and tables whose cells are never broken."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

#: Columns of the screen where the output is no terminal and COLUMNS does not say.
PIPE_WIDTH = 100
#: Before what stands under a row.
INDENT = "    "


def console() -> Console:
    """Return the console listings go to; without a terminal it has COLUMNS, or 100, and no colour."""
    plain = Console(highlight=False)
    if plain.is_terminal or os.environ.get("COLUMNS"):
        return plain
    return Console(highlight=False, width=PIPE_WIDTH)


@dataclass(frozen=True)
class Listing:
    """A table whose cells are never broken, whatever the width of the screen.

    Where it is too wide, columns that may leave it stand under their row, the first of `under` first. Where that is
    not enough, columns are one space apart instead of two; and where that is not, further tables below have the other
    columns, each with the first ones again.

    Attributes:
        columns: heads.
        rows: cells.
        title: a line above.
        under: heads of the columns that may stand under their row.
        keys: how many columns a further table repeats.
        numbers: heads of the columns whose cells end below each other.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    under: Sequence[str] = ()
    keys: int = 1
    numbers: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines that fit the console."""
        width = options.max_width
        below = self._below(width)
        beside = [i for i in range(len(self.columns)) if i not in below]
        gap = 2 if self._width(beside) <= width else 1
        if self.title:
            yield Text(self.title, style="bold")
        for number, block in enumerate(self._blocks(beside, width, gap)):
            if number:
                yield Text()
            yield Text(self._line(block, self.columns, gap), style="bold")
            for row in self.rows:
                yield Text(self._line(block, row, gap))
                if not number:
                    yield from self._under(row, below, width)

    def _below(self, width: int) -> list[int]:
        """Return the columns that stand under their row, in the table's order."""
        left, below = list(range(len(self.columns))), list[int]()
        for head in self.under:
            if self._width(left) <= width:
                break
            left.remove(self.columns.index(head))
            below.append(self.columns.index(head))
        return sorted(below)

    def _blocks(self, columns: list[int], width: int, gap: int) -> list[list[int]]:
        """Return the columns of each table; none but the keys stands twice."""
        keys, blocks = columns[: self.keys], [columns[: self.keys]]
        for column in columns[self.keys :]:
            if len(blocks[-1]) > self.keys and self._width([*blocks[-1], column], gap) > width:
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
        """Return the lines under a row; a column that stands there alone needs no head."""
        cells = [(self.columns[column], row[column]) for column in below if row[column]]
        text = "; ".join(cell if len(below) == 1 else f"{head}: {cell}" for head, cell in cells)
        room = textwrap.TextWrapper(width, INDENT, INDENT, break_on_hyphens=False, break_long_words=False)
        for line in room.wrap(text):
            yield Text(line)


def facts(rows: dict[str, str]) -> Table:
    """Return a table of names and what they are."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(name), Text(value))
    return table
