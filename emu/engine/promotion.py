"""Sums of runs of products, added to a wider accumulator: what the order `promote` does.

    run of n products ──► inner unit ──► p ──► fma(s, p, state) ──► state ──► output stage

Source: docs/concepts/scaled.md, "A product"; DeepSeek-V3 Technical Report, section 3.3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.backends.gathered import Gathered
from emu.backends.product import Alignment
from emu.datapath.order import Promote
from emu.datapath.stage import require_placed
from emu.engine.description import UnitDescription
from emu.engine.elementwise import write_elementwise
from emu.engine.matrices import Matrices
from emu.engine.quantize import write_quantized
from emu.formats import PRESETS, Fixed, parse

Array = NDArray[Any]


def write_promoted(
    unit: UnitDescription,
    matrices: Matrices,
    multiply: Callable[[UnitDescription, Matrices], Array],
    divisor: int = 1,
    scales: tuple[Array, Array] | None = None,
) -> Array:
    """Write a product whose runs of terms are summed by an inner unit, and added to a wider accumulator.

    Args:
        unit: who computes and writes; its order promotes sums.
        matrices: what is multiplied and added.
        multiply: `write_product`, which writes the sum of a run.
        divisor: positive integer by which the sum is divided, rounded once.
        scales: of operands that share them: binary32, (B or 1, M, runs) and (B or 1, runs, N).

    Returns:
        Carriers, `matrices.shape`.
    """
    order, mac, inner_mac = unit.mac.order, unit.mac, unit.mac.inner
    assert isinstance(order, Promote)
    assert mac.accumulator != "exact"
    accumulator_stage = mac.stage_of(mac.accumulator)
    batches, rows, depth, columns = matrices.sizes
    shape = (batches, rows, columns)
    left, right = (on_host(x.array() if isinstance(x, Gathered) else x) for x in (matrices.left, matrices.right))
    # flags are those of what is written: overflow of the accumulators, run by run, is not counted
    outer = unit.writing(accumulator_stage)
    # what a run hands over has the inner accumulator's format: the stage rounds nothing that the adds have not rounded
    inner_stage = inner_mac.stage_of(require_placed(parse(order.accumulator)))
    inner = unit.writing(inner_stage)._replace(mac=inner_mac)
    # the outer accumulator begins with the addend, rounded into it; runs begin without
    start = np.zeros(shape, mac.accumulator.carrier)
    if matrices.addend is not None:
        start = np.broadcast_to(write_quantized(outer, on_host(matrices.addend), matrices.formats[2]), shape)
    # a factor of 1 makes the fma an addition, rounded once
    state, factor = np.ascontiguousarray(start), np.ones((1, 1, 1), np.float32)
    formats = (PRESETS["fp32"], inner_stage.format, mac.accumulator)
    for run, first in enumerate(range(0, depth, order.n)):
        part = slice(first, min(first + order.n, depth))
        cut = matrices._replace(
            left=np.ascontiguousarray(left[:, :, part]), right=np.ascontiguousarray(right[:, part]), addend=None,
            formats=(*matrices.formats[:2], None), shape=shape, alignment=_part_of(matrices.alignment, part),
        )  # fmt: skip
        # a run shorter than n, the last one, is planned by its own depth
        partial = multiply(inner, cut)
        if scales is not None:  # NumPy rounds a product of binary32 once
            with np.errstate(all="ignore"):
                # (B or 1, M, 1) * (B or 1, 1, N): one product of scales for each result
                factor = scales[0][:, :, run, None] * scales[1][:, None, run]
        state = write_elementwise(outer, "fma", [factor, partial, state], formats)
    # the caller's shape, which recorded random bits have: the same elements in the same order
    sums = state.reshape(matrices.shape)
    if divisor == 1:
        return write_quantized(unit, sums, mac.accumulator)
    # an array: `divide` reads as many divisors as there are results
    divisors = np.full(sums.shape, divisor, np.int64)
    return write_elementwise(unit, "divide", [sums, divisors], (mac.accumulator, Fixed(64, 0)))


def _part_of(alignment: Alignment | None, part: slice) -> Alignment | None:
    if alignment is None:
        return None
    return alignment._replace(left=alignment.left[:, :, part], right=alignment.right[:, part])
