"""Gradient codecs, compiled: a column is read from memory once, and from the caches as often as needed.

Two steps with means are vector code (`codecs_of_sides.py`); everything else, and all of it on other processors, is
loops (`codecs_in_loops.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.codecs import MEANS, MIDDLES, Coded, ColumnsCode, are_ends, bits_of, code_type, code_words
from emu.backends.memory import empty
from emu.backends.numba.codecs_in_loops import (
    Columns,
    Encoding,
    Received,
    decode_and_add_range,
    decode_range,
    encode_range,
)
from emu.backends.numba.codecs_of_sides import decode_and_add_sides_range, decode_sides_range, encode_sides_range
from emu.backends.numba.compiling import GRAIN, only_read, over_ranges
from emu.backends.numba.machine import has_vectors
from emu.backends.numba.vector.lanes import LANES as VECTOR_LANES
from emu.backends.reference.column_sums import LANES

Array = NDArray[Any]
#: Results of so many bytes are written past the caches, where they would only displace others; `empty` aligns them.
STREAMED_BYTES = 1 << 22


class NumbaCodecs:
    """`CodecKernels` as compiled loops, columns shared by threads."""

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
        """Return columns as codes; write what the codes lose into the residual."""
        columns, rows = gradients.shape
        used = (
            np.zeros((columns, 2 if code.levels == MIDDLES else 1 << code.bits), np.float32)
            if levels is None
            else levels
        )
        # Arrays stand for what is absent, so that the loops are compiled once; `counted` of size 0 lets all decide.
        task = Columns(
            only_read(np.ascontiguousarray(gradients)),
            residual,
            only_read(np.zeros(columns, gradients.dtype) if limits is None else np.ascontiguousarray(limits)),
            only_read(np.zeros((1, 0), np.bool_) if counted is None else np.ascontiguousarray(counted)),
            np.ascontiguousarray(used),
            np.empty(columns, gradients.dtype),
            empty((columns, code_words(rows, code.bits)), np.uint32),
            np.empty(0, code_type(code.bits)),
        )
        encoding = Encoding.of(code, computes_levels=levels is None, drawn=counted is not None, settles=settles)
        # A column of fewer rows than lanes has no whole block for vector code.
        sides = (
            code.steps == 2
            and code.levels == MEANS
            and not encoding.leaves_some_out
            and rows >= LANES
            and has_vectors()
        )
        work = encode_sides_range if sides else encode_range
        over_ranges(lambda _, start, stop: work(task, encoding, start, stop), columns, 1, _grain(rows))
        return Coded(task.means, used, task.words)

    def decode_columns(
        self, words: NDArray[np.uint32], levels: NDArray[np.float32], steps: int, rows: int, total: Array | None
    ) -> Array:
        """Return what codes stand for, or `total` after adding it."""
        code_rows, tables = only_read(np.ascontiguousarray(words)), only_read(np.ascontiguousarray(levels))
        out = empty((len(words), rows), np.float32) if total is None else total
        bits = bits_of(steps)
        received = Received(code_rows, tables, steps, bits, are_ends(levels, steps), np.empty(0, code_type(bits)))
        sides = bits == 1 and has_vectors()
        # Stores past the caches must be aligned: each column must begin at a whole vector, as the first one does.
        streams = out.nbytes >= STREAMED_BYTES and rows % VECTOR_LANES == 0

        def work(_: int, start: int, stop: int) -> None:
            if total is None and sides:
                decode_sides_range(code_rows, tables, out, streams, start, stop)
            elif total is None:
                decode_range(received, out, start, stop)
            elif sides:
                decode_and_add_sides_range(code_rows, tables, total, start, stop)
            else:
                decode_and_add_range(received, total, start, stop)

        over_ranges(work, len(words), 1, _grain(rows))
        return out


def _grain(rows: int) -> int:
    """Return how many columns are worth a second thread."""
    return max(1, GRAIN // max(rows, 1))
