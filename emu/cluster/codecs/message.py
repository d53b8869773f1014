"""A message of a codec: levels and codes of columns, as bytes.

    a column    its levels, float32 │ its codes, b bits each, from bit 0 of the first 32-bit word on

A column is a line (glossary) of gradients, one in each row, that share levels, the numbers for which codes stand. With
one bit, it has two levels and takes 64 + 32 * ceil(rows / 32) bits: with 2048 rows, 31.03 times less than in float32.
All words are little-endian.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import ShapeError

Array = NDArray[Any]
WORD_BITS, WORD_BYTES = 32, 4


class Message(NamedTuple):
    """Columns as they are sent.

    Attributes:
        levels: float32, (columns, levels of one column); of the codec `Float32` the gradients themselves, and no words.
        words: uint32, (columns, words of one column).
    """

    levels: NDArray[np.float32]
    words: NDArray[np.uint32]

    def to_bytes(self) -> bytes:
        """Return the bytes, column by column."""
        # the bits of levels as words: nothing is converted but the byte order
        return np.concatenate([self.levels.view(np.uint32), self.words], axis=1).astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, columns: int, levels: int, words: int) -> Message:
        """Read a message back.

        Args:
            data: what `to_bytes` returned.
            columns: number of columns.
            levels: number of levels of each column.
            words: number of words that hold each column's codes.

        Raises:
            ShapeError: there are more or fewer bytes.
        """
        expected = WORD_BYTES * columns * (levels + words)
        if len(data) != expected:
            raise ShapeError(
                f"a message of {columns} columns must have {expected} bytes, got {len(data)}; sender and receiver must "
                "have the same codec and the same stripes"
            )
        # frombuffer is read-only and little-endian; `astype` makes a writeable copy in the processor's own order
        whole = np.frombuffer(data, "<u4").astype(np.uint32).reshape(columns, levels + words)
        return cls(np.ascontiguousarray(whole[:, :levels]).view(np.float32), np.ascontiguousarray(whole[:, levels:]))
