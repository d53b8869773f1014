"""Sparse products by a backend's ordinary ones: results of equal many terms together, their operands gathered.

Random bits of the output stage are drawn for all results at once, and handed to each group as recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import (
    N_FLAGS,
    FormatCode,
    MacCode,
    Outcome,
    RandomCode,
    RegisterCode,
    StageCode,
    carrier_of,
)
from emu.backends.memory import empty
from emu.backends.pattern import Pattern
from emu.backends.reference.sparse import groups_of
from emu.backends.reference.stage import draw_bits
from emu.datapath.owed import NO_EXPONENT
from emu.datapath.registers import SCALARS

Array = NDArray[Any]
WAY = "operands gathered, results of equal many entries together"


def write(
    product: Callable[..., Outcome],
    data: Array,
    dense: Array,
    addend: Array | None,
    pattern: Pattern,
    formats: tuple[FormatCode, FormatCode, FormatCode | None],
    mac: MacCode,
    stage: StageCode,
    random: RandomCode,
    register: RegisterCode | None,
    path: str,
) -> Outcome:
    """Write the products of every group; their counts are added up. Arguments as of `Kernels.sparse_product`.

    `product` is the backend's; no unit draws random bits inside.
    """
    shape = (pattern.results, dense.shape[1])
    bits = draw_bits(shape, stage, random)
    values = empty(shape, carrier_of(stage.format))
    counts: Array | None = None if register is None else np.zeros(2 * register.bins + len(SCALARS), np.int64)
    whole = Outcome(values, np.zeros(N_FLAGS, np.int64), counts, NO_EXPONENT)
    for group in groups_of(data, dense, addend, pattern):
        drawn = random if bits is None else random._replace(recorded=bits[group.results][:, None, :])
        operands = (group.left, group.right, group.addend)
        part = product(*operands, formats, mac, stage, drawn, register, path, 1)
        values[group.results] = part.values[:, 0, :]
        whole.flags += part.flags
        if counts is not None and part.register is not None:
            counts += part.register
        whole.max_exponent = max(whole.max_exponent, part.max_exponent)
    return whole
