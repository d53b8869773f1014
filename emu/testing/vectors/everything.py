"""All inputs of a small operation: then a cell without vectors is one that no operands reach.

multiply fix8f4, fix8f4        2**16 pairs: 20 of them are rounded beyond the lowest number, 32 stay the largest
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emu.testing.vectors.cells import Cell, Row, cells_of, rows_of
from emu.testing.vectors.definition import answered
from emu.testing.vectors.description import Codes, Description, Vectors
from emu.testing.vectors.evidence import Evidence

#: Bits of all operands together, random bits included, of which every combination is tried: a second's work.
MOST_INPUT_BITS = 18


def input_bits(description: Description) -> int:
    """Return how many bits an operation's inputs have together, random bits included."""
    d = description
    widths = (fmt.width_bits * int(np.prod(d.shape_of(i)[1:])) for i, fmt in enumerate(d.operand_formats))
    return sum(widths) + (d.n_rbits if d.is_stochastic else 0)


class Everything:
    """Every combination of inputs, and the cells that it reaches.

    Args:
        description: an operation of few inputs.

    Attributes:
        vectors: all of them.
        cells: with every vector that there is.
    """

    def __init__(self, description: Description) -> None:
        # vector i has the bits of the number i as its inputs, the first operand's in the lowest bits
        d = description.model_copy(update={"count": 1 << input_bits(description)})
        numbers, low = np.arange(d.count, dtype=np.uint64), 0

        def bits(width: int) -> Codes:
            nonlocal low
            low += width
            return numbers >> np.uint64(low - width) & np.uint64((1 << width) - 1)

        operands: list[Codes] = []
        for i, fmt in enumerate(d.operand_formats):
            terms = [bits(fmt.width_bits) for _ in range(int(np.prod(d.shape_of(i)[1:])))]
            operands.append(np.stack(terms, axis=1).reshape(d.shape_of(i)))
        self.vectors: Vectors = answered(d, tuple(operands), bits(d.n_rbits) if d.is_stochastic else None)
        self.cells: list[Cell] = cells_of(self.vectors)

    @classmethod
    def of(cls, description: Description) -> Everything | None:
        """Return every combination of inputs, None if there are too many, as a block of numbers has."""
        if description.blocks is not None:
            return None
        return cls(description) if input_bits(description) <= MOST_INPUT_BITS else None

    @property
    def counts(self) -> dict[str, int]:
        """How many vectors reach each cell, of all that there are."""
        return {cell.name: cell.count for cell in self.cells}


def rows_among_all(
    vectors: Vectors, evidence: Evidence | None = None, everything: Everything | None = None
) -> list[Row]:
    """Return the table of cells; where all inputs are few, with what no operands reach.

    Args:
        vectors: operands and results.
        evidence: about them, if it is there.
        everything: all inputs, if they were tried before.
    """
    cells = cells_of(vectors, evidence)
    rows = rows_of(cells)
    # then nothing has to be known about what exists, which costs a computation of all inputs
    if all(row.full == row.cells for row in rows):
        return rows
    everything = everything or Everything.of(vectors.description)
    if everything is None:
        return rows
    # `counts` has each input once: a repeated vector must not count twice beside it
    kept = first_of_each(vectors)
    return rows_of([replace(cell, inside=cell.inside[kept]) for cell in cells], everything.counts)


def first_of_each(vectors: Vectors) -> NDArray[np.int64]:
    """Return which vectors there are without those that stand there a second time."""
    rows = [codes.reshape(vectors.description.count, -1) for codes in vectors.operands]
    if vectors.rbits is not None:
        rows.append(vectors.rbits.reshape(-1, 1))
    first: dict[bytes, int] = {}
    together: Codes = np.concatenate(rows, axis=1)
    for i, row in enumerate(together):
        first.setdefault(row.tobytes(), i)
    return np.array(list(first.values()), np.int64)


def distinct(vectors: Vectors) -> Vectors:
    """Return vectors without repetitions, each where it stands first."""
    return vectors.at(first_of_each(vectors))
