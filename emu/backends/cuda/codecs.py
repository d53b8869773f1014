"""Gradient codecs on a device: `kernels/codecs.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.backends.codecs import MIDDLES, Coded, ColumnsCode, are_ends, bits_of, code_words
from emu.backends.cuda import layout
from emu.backends.cuda.launching import Launcher
from emu.backends.reference.column_sums import LANES

Array = Any


class CudaCodecs:
    """`CodecKernels`, a block of threads for every column."""

    _launcher: Launcher

    def encode_columns(
        self,
        gradients: Array,
        residual: Array,
        code: ColumnsCode,
        limits: Array | None,
        counted: Array | None,
        levels: Array | None,
        *,
        settles: bool,
    ) -> Coded:
        """Return columns as codes; what codes do not stand for is written into the residual."""
        launcher, xp, (columns, rows) = self._launcher, self._launcher.xp, gradients.shape
        # MIDDLES have two ends for a column, others a level for each code
        per_column, fresh = 2 if code.levels == MIDDLES else 1 << code.bits, levels is None
        # a view of the device's residual, which is contiguous, or a copy of the host's, written back below
        left = launcher.taken(residual)
        means, words = xp.empty(columns, gradients.dtype), xp.zeros(columns * code_words(rows, code.bits), np.uint32)
        used = xp.zeros(columns * per_column, np.float32) if levels is None else launcher.taken(levels)
        numbers = [columns, rows, code.steps, code.bits, code.threshold, code.levels, int(fresh), int(settles)]
        floats = code.deviations, code.outliers, code.low, code.high
        # floats travel as their bits
        numbers += [layout.bits_of(np.array([number])) for number in floats]
        arguments = (
            layout.task(numbers),
            np.int32(layout.STORAGE[gradients.dtype]),
            *(launcher.taken(gradients), left),
            *(None if x is None else launcher.taken(x) for x in (limits, counted)),
            *(used, means, words),
        )
        # a block of LANES threads for each column
        launcher.launch("codecs", "encode_columns", columns * LANES, arguments, words=1, threads=LANES)
        if settles and (back := launcher.returned(left, residual)) is not left:
            residual[...] = back.reshape(residual.shape)
        written = means, used.reshape(columns, per_column), words.reshape(columns, code_words(rows, code.bits))
        return Coded(*(launcher.returned(x, gradients) for x in written))

    def decode_columns(self, words: Array, levels: Array, steps: int, rows: int, total: Array | None) -> Array:
        """Return what codes stand for, or `total` after adding it there."""
        launcher, n = self._launcher, len(words) * rows
        out = launcher.xp.empty(n, np.float32) if total is None else launcher.taken(total)
        storage, adds = np.int32(layout.STORAGE[out.dtype]), np.int32(total is not None)
        # 0 says that there is a level for each code
        of_ends = np.int32(steps if are_ends(levels, steps) else 0)
        codes = launcher.taken(words), launcher.taken(levels), of_ends, np.int32(bits_of(steps))
        arguments = (*codes, np.int64(rows), out, storage, adds)
        launcher.launch("codecs", "decode_columns", n, (*arguments, np.int64(n)), words=1)
        if total is None:
            return launcher.returned(out.reshape(len(words), rows), words)
        if (back := launcher.returned(out, total)) is not out:
            total[...] = back.reshape(total.shape)
        return total
