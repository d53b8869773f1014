"""A cell: a name for what hardware gets wrong, the vectors that reach it, and how many should."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emu.testing.vectors.steps import Mask

#: Vectors that a cell wants, and a pair of special values.
WANTED, WANTED_OF_PAIR = 8, 1


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell and the vectors in it.

    Attributes:
        name: what happens there.
        inside: which vectors reach it, (count,).
        wanted: how many should.
        group: name under which cells of a kind are counted together; "" if it is counted by its own name.
        place: of a dropped bit alone, how far behind the guard it stands; else 0.
        together: how many vectors count as one: those of a block.
    """

    name: str
    inside: Mask
    wanted: int = WANTED
    group: str = ""
    place: int = 0
    together: int = 1

    @property
    def count(self) -> int:
        """How many vectors, or blocks of them, reach it."""
        return int(self.by_block.sum())

    @property
    def by_block(self) -> Mask:
        """Which vectors, or blocks of them, reach it."""
        # a block is reached if any of its vectors is
        return np.any(self.inside.reshape(-1, self.together), axis=1)
