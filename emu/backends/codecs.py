"""The protocol of gradient codecs, which every backend implements: columns become codes, and codes become columns.

    V = gradients + residual        code = Q(V)        residual = V - level of the code

The elements of a column are contiguous in an array. `reference/codecs.py` says what decides the bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Thresholds of two steps: 0, the column's mean, or a given number.
(AT_ZERO, AT_MEAN, AT_GIVEN) = range(3)
#: What codes stand for: means of the values that took them, least and largest value, middles of the steps.
(MEANS, ENDS, MIDDLES) = range(3)
#: Codes are packed into words of so many bits.
CODE_WORD_BITS = 32
#: A code of more bits than a byte takes two.
BYTE_BITS = 8


class ColumnsCode(NamedTuple):
    """How columns of gradients become codes: a codec as numbers.

    `deviations`: the range of more than two steps reaches so many standard deviations to both sides of the mean;
    `outliers`: values farther from the mean than so many standard deviations decide no level; 0 lets all values decide;
    `low`, `high`: both ends of the range, float32, in place of deviations; if they are equal, the deviations decide.
    """

    steps: int
    threshold: int
    levels: int
    deviations: float
    outliers: float
    low: float = 0.0
    high: float = 0.0

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return bits_of(self.steps)

    @property
    def has_range(self) -> bool:
        """Whether the range of steps is given."""
        return self.low < self.high


class Coded(NamedTuple):
    """Columns as codes.

    Attributes:
        means: dtype of the values, (columns,).
        levels: float32, (columns, levels of a column); of `MIDDLES` both ends of the range.
        words: uint32, (columns, `code_words`): code i from bit i * bits on.
    """

    means: Array
    levels: NDArray[np.float32]
    words: NDArray[np.uint32]


def bits_of(steps: int) -> int:
    """Return how many bits a code of so many steps takes."""
    return (steps - 1).bit_length()


def code_type(bits: int) -> type[np.unsignedinteger[Any]]:
    """Return the dtype of codes."""
    return np.uint8 if bits <= BYTE_BITS else np.uint16


def are_ends(levels: Array, steps: int) -> bool:
    """Return whether levels, (columns, levels of a column), are both ends of a range of so many steps."""
    return steps > 2 and levels.shape[1] == 2  # more than two steps have at least four levels


def code_words(rows: int, bits: int) -> int:
    """Return how many words the codes of a column take."""
    return -(-rows * bits // CODE_WORD_BITS)


class CodecKernels(Protocol):
    """Kernels of gradient codecs."""

    def encode_columns(
        self,
        gradients: Array,
        residual: Array,
        code: ColumnsCode,
        limits: Array | None,
        counted: NDArray[np.bool_] | None,
        levels: NDArray[np.float32] | None,
        *,
        settles: bool,
    ) -> Coded:
        """Return gradients and the residual of earlier ones as codes: V = gradients + residual.

        Args:
            gradients: float32 or float64, (columns, rows).
            residual: the same dtype and shape, contiguous; V minus what its code stands for is written into it.
            code: the codec.
            limits: thresholds of `AT_GIVEN`, of the dtype, (columns,).
            counted: which values may decide levels, (columns, rows); None is all.
            levels: what codes stand for, float32, (columns, levels of a column); None computes it.
            settles: whether the residual is written; False leaves it as it is.
        """
        ...

    def decode_columns(
        self, words: NDArray[np.uint32], levels: NDArray[np.float32], steps: int, rows: int, total: Array | None
    ) -> Array:
        """Return what codes stand for, float32, (columns, rows); or `total`, after adding it there.

        Args:
            words: (columns, `code_words`).
            levels: a level for each code, (columns, 2**bits); or, of `MIDDLES`, both ends of the range, (columns, 2).
            steps: of the codec that made the codes.
            rows: of a column.
            total: float32 or float64, (columns, rows), contiguous.
        """
        ...
