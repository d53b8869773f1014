"""What a command prints: text for people, or the same as JSON.

A command returns an `Output`, and `printing` of `emu.cli.options` gives it the option `--json`. A table has values, not
texts, and a key for each column: a row is an object of JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # the help of every command is printed without rich
    from emu.cli.tables import Listing


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        head: its head.
        key: its key in JSON, with the unit of a number at the end, such as `energy_j`; "" for none: JSON leaves it out.
        text: returns a value as text.
        absent: text of a value that is None.
        is_number: whether its texts are aligned at the right.
    """

    head: str
    key: str
    text: Callable[[Any], str] = str
    absent: str = ""
    is_number: bool = False

    def cell(self, value: Any) -> str:
        """Return a value as text."""
        return self.absent if value is None else self.text(value)


@dataclass(frozen=True)
class Table:
    """A table of values.

    Attributes:
        columns: its columns.
        rows: values, by row.
        name: its key in the JSON of a command that prints more than this table.
        layout: further arguments of `emu.cli.tables.Listing`: how it fits a narrow screen.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    name: str = ""
    layout: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def plain(self) -> list[dict[str, Any]]:
        """Return a dictionary for each row."""
        return [
            {column.key: value for column, value in zip(self.columns, row, strict=True) if column.key}
            for row in self.rows
        ]

    def __rich__(self) -> Listing:
        """Return its texts."""
        from emu.cli.tables import Listing

        # A value that is None has the column's text for it; in JSON it is null.
        rows = [[column.cell(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]
        numbers = [column.head for column in self.columns if column.is_number]
        return Listing([column.head for column in self.columns], rows, numbers=numbers, **self.layout)


@dataclass(frozen=True)
class Facts:
    """Names with their descriptions, and the same as values.

    Attributes:
        rows: texts by name; without any, only JSON has the values.
        data: values by their key in JSON.
    """

    rows: Mapping[str, str]
    data: Mapping[str, Any]

    def plain(self) -> Mapping[str, Any]:
        """Return the values."""
        return self.data

    def __rich__(self) -> Any:
        """Return the texts."""
        from emu.cli.tables import facts

        return facts(dict(self.rows))


@dataclass(frozen=True)
class Output:
    """Everything that a command prints.

    Attributes:
        parts: in their order: `Table`, `Facts`, text (a line that is never broken), or anything that rich prints. JSON
            has the tables by their names and the values of facts, in one object. A table without a name is all of it.
        data: what JSON has instead of the parts; None: it has the parts, as above.
        exit_code: exit code of the command.
    """

    parts: Sequence[Any]
    data: Any = None
    exit_code: int = 0

    def plain(self) -> Any:
        """Return the data, which `json` can write."""
        if self.data is not None:
            return _plain(self.data)
        merged: dict[str, Any] = {}
        for part in self.parts:
            # Later parts win where keys are equal.
            if isinstance(part, Facts):
                merged |= part.plain()
            elif isinstance(part, Table):
                # Such a table is the whole output: a list of rows instead of an object.
                if not part.name:
                    return _plain(part.plain())
                merged[part.name] = part.plain()
        return _plain(merged)

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            # JSON has no NaN and no infinity: `_plain` has made text of them, and `allow_nan=False` proves it.
            print(json.dumps(self.plain(), indent=2, ensure_ascii=False, allow_nan=False))
            return
        from emu.cli.tables import Trimmed, console

        screen = console()
        for part in self.parts:
            if isinstance(part, str):
                # No markup: a path may have brackets. A line may be longer than the screen, so that it can be copied
                # whole.
                screen.print(part.rstrip(), markup=False, soft_wrap=True)
            elif not isinstance(part, Facts) or part.rows:
                screen.print(Trimmed(part))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: infinities and NaN as text, fractions as the nearest numbers of float64.

    Integers are exact, however large. A fraction nearer to 0 than any of these is a text, "1/2...".
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value) or str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value) if isinstance(value, Path) else value
