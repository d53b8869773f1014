"""What the definition of scaled formats makes of operands: numbers, scales, and what the stage of elements is given.

    codes ──► numbers as the rule reads them ──► scales ──► quotients, as the rule divides ──► Exact

Each step is a function of `emu.backends.reference.scaled` or of the engine; blocks lie one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import contiguous
from emu.backends.reference.exact import Exact
from emu.backends.reference.scaled import Scales, quotients_of, scales_of
from emu.backends.reference.table import ReferenceKernels
from emu.engine.scaled import as_read
from emu.formats import Format, Scaled
from emu.formats.steps import Steps

Array = NDArray[Any]
Codes = NDArray[np.uint64]
# the definition, whatever backend is chosen: vectors must not depend on it
_KERNELS = ReferenceKernels()


def numbers_of(fmt: Scaled, source: Format, carriers: Array) -> Array:
    """Return operands as a rule reads them, (count,): float32, or float64 that are exact.

    Args:
        fmt: format of the results.
        source: of the operands.
        carriers: the operands, (count,).
    """
    with np.errstate(all="ignore"):
        return as_read(_KERNELS, fmt, contiguous(carriers), source)


def block_scales(fmt: Scaled, numbers: Array) -> Scales:
    """Return the scales of blocks that lie one after the other, by the rule of the format.

    Args:
        fmt: of the results.
        numbers: as its rule reads them, (count,), whole blocks.
    """
    with np.errstate(all="ignore"):
        return scales_of(_KERNELS, fmt, numbers, -1)


def with_stored(fmt: Scaled, scales: Scales, stored: Array) -> Scales:
    """Return scales of which the finest are others; what the rule computes from them follows.

    Args:
        fmt: of the results.
        scales: of its rule.
        stored: the finest scales, (blocks,), in the carrier of their format.
    """
    # A rule is a text of assignments, of which the last to `s` is the stored scale. What stands behind it is computed
    # from the stored scale, so it is run again with the other one.
    statements = fmt.rule.steps.text.split(";")
    last = max(i for i, text in enumerate(statements) if text.split("=")[0].strip() == "s")
    names = {**scales.names, "s": stored}
    if rest := ";".join(statements[last + 1 :]).strip():
        names = Steps(rest).run(names, stored.dtype.type)
    # blocks are lost if the other scale is NaN
    return Scales((stored, *scales.stored[1:]), names, np.isnan(stored))


def exact_quotients(fmt: Scaled, numbers: Array, scales: Scales) -> Exact:
    """Return what the output stage of the elements is given, (count,): numbers divided by scales as the rule says."""
    with np.errstate(all="ignore"):
        return Exact.from_float(np.asarray(quotients_of(fmt, numbers, scales, -1)))


def codes_of_scales(fmt: Scaled, scales: Scales) -> tuple[Codes, ...]:
    """Return the codes of each level of scales, the finest first: (blocks,), and (1,) of an outer one."""
    return tuple(
        level.scale.encode(stored.reshape(-1)).astype(np.uint64)
        for level, stored in zip(fmt.levels, scales.stored, strict=True)
    )
