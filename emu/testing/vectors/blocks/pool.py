"""The pool from which the blocks of the cells are chosen, and vectors made of it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from emu.testing.vectors.blocks.drawing import anchor_of, drawn_blocks
from emu.testing.vectors.cells import Cell, cells_of
from emu.testing.vectors.definition import answered
from emu.testing.vectors.description import Codes, Description, Vectors
from emu.testing.vectors.everything import Everything
from emu.testing.vectors.pool import chosen, random_bits_of, sized

#: Numbers of all blocks of the pool together, about, and the fewest blocks.
NUMBERS, FEWEST_BLOCKS = 1 << 15, 256


class BlockPool:
    """Blocks among which those of the cells are chosen.

    Args:
        description: of vectors of blocks.

    Attributes:
        vectors: what there is to choose from; if the tensor has a scale of its own, the block that decides it is first.
        cells: those of the vectors.
        everything: None, because blocks are too many to try all of them.
    """

    everything: Everything | None = None

    def __init__(self, description: Description) -> None:
        d = description
        self._anchor = anchor_of(d)
        count = max(NUMBERS // d.together, FEWEST_BLOCKS)
        self._blocks = drawn_blocks(d, count, d.seed)
        if self._anchor is not None:
            self._blocks = np.concatenate([self._anchor, self._blocks])
        self._rbits = _random_bits(d, self._blocks.shape[0], draw=1)
        self.vectors: Vectors = _answered(d, self._blocks, self._rbits)
        self.cells: list[Cell] = cells_of(self.vectors)

    @property
    def wanted(self) -> int:
        """How many vectors there are if each cell has as many blocks as it wants, or as there are."""
        return int(self._order.size) * self.vectors.description.together

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        masks, wanted = [cell.by_block for cell in self.cells], [cell.wanted for cell in self.cells]
        order = chosen(masks, wanted, most_wanted=True)
        # the anchor, block 0, always comes first: without it the tensor would have another largest magnitude
        return order if self._anchor is None else np.array([0, *order[order != 0]], np.int64)

    def vectors_of(self, description: Description, of_cells: int) -> Vectors:
        """Return as many vectors as a description has, whole blocks: those of cells first, then others.

        Args:
            description: that of the pool, of any count.
            of_cells: how many of them may be there for cells.
        """
        d = description.in_whole_blocks
        kept = self._order[: max(of_cells // d.together, 1)]
        rest = max(d.count // d.together - kept.size, 0)
        # seed + 1 is the anchor's, so the further blocks are others than those of the pool
        more = drawn_blocks(d, rest, d.seed + 2) if rest else self._blocks[:0]
        blocks = np.concatenate([self._blocks[kept], more])
        rbits = None if self._rbits is None else self._rbits[kept]
        if rbits is not None and rest:
            further = _random_bits(d, rest, draw=2)
            assert further is not None
            rbits = np.concatenate([rbits, further])
        return _answered(d, blocks, rbits)


def _answered(d: Description, blocks: Codes, rbits: Codes | None) -> Vectors:
    """Return vectors of blocks, codes and random bits (blocks, together)."""
    flat = None if rbits is None else rbits.reshape(-1)
    return answered(sized(d, blocks.size), (blocks.reshape(-1),), flat)


def _random_bits(d: Description, blocks: int, *, draw: int) -> Codes | None:
    if not d.is_stochastic:
        return None
    return random_bits_of(d, blocks * d.together, draw=draw).reshape(blocks, d.together)
