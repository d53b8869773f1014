"""Small arrays: the arithmetic takes less time than a question, so what formats and stage decide is asked once."""

from __future__ import annotations

from emu.backends.interface import carrier_of
from emu.backends.kernels import SmallOperation, SmallWrite
from emu.backends.numba.in_doubles import decides_all
from emu.backends.numba.prepared import supports
from emu.backends.numba.stage import stage_writer


def small_write(asked: SmallOperation) -> SmallWrite | None:
    """Return what writes an operation of any numbers of its formats; None if that depends on the numbers."""
    operation, sources, formats, stage, register = asked
    # Operands that read subnormals as 0 would have to be looked at, or copied, first.
    if any(fmt is not None and fmt.daz for fmt in formats) or not supports(stage):
        return None
    if not decides_all(operation, sources, formats, stage):
        return None
    writer = stage_writer(operation, sources, carrier_of(stage.format), stage, register, is_recorded=False, scale=1.0)
    return None if writer.chunks is None else writer.write_small
