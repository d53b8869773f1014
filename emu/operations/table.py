"""The table of operations, gathered from the families: a new family is a file and its name in `FAMILIES`."""

from __future__ import annotations

from typing import NoReturn

from emu.errors import EmuError, nearest_name
from emu.operations import (
    casts,
    choices,
    convolution,
    dropout,
    elementwise,
    embedding,
    functions,
    integers,
    losses,
    normalisation,
    products,
    reference_integers,
    selections,
    softmax,
    sums,
)
from emu.operations.row import Row

FAMILIES = (
    elementwise,
    functions,
    products,
    convolution,
    sums,
    selections,
    choices,
    embedding,
    dropout,
    softmax,
    normalisation,
    losses,
    casts,
    integers,
    reference_integers,
)


class _Table(dict[str, Row]):
    """Rows by name; a name without a row is an error in a rule."""

    def __missing__(self, name: str) -> NoReturn:
        raise EmuError(
            f"an operation must be a row of a family in emu/operations/, got {name!r}{nearest_name(name, self)}"
        )


def _gathered() -> _Table:
    table = _Table()
    for row in (row for family in FAMILIES for row in family.ROWS):
        # names are looked up by text: a second row of the name would hide the first
        assert row.name not in table, f"two rows are called {row.name}"
        table[row.name] = row
    return table


#: Every operation by its name.
OPERATIONS = _gathered()
