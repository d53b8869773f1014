"""The cells of a requantiser: ties of each of its steps, its bounds, and where other kinds write another element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.backends.reference.exact import to_common_exponent
from emu.datapath import RequantiserKind
from emu.testing.vectors.cell import WANTED, Cell
from emu.testing.vectors.definition import answer, step_inputs
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.requantiser_sums import bounds_of, expected_roundings
from emu.testing.vectors.steps import Mask, steps_of


def requantiser_cells(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of a requantiser, none of an operation without."""
    by = e.description.requantise
    if by is None:
        return
    below, above = _beyond(e, -1), _beyond(e, 1)
    inside = ~_beyond(e, -1, room=1) & ~_beyond(e, 1, room=1)  # what is rounded out of the elements tells too
    # `given` is what the step rounds: already multiplied, and rounded by the steps before
    for number, (step, given) in enumerate(step_inputs(e.description, e.unstaged), 1):
        steps, what = steps_of(given, step.stage, None), f"step {number} of the requantiser"
        guard = (steps.guard == 1).astype(bool)
        for sign, side in (("positive", ~given.negative), ("negative", given.negative)):
            ties, others = expected_roundings(e.description, number - 1, negative=sign == "negative")
            if ties:
                # no more are wanted than sums within reach have
                yield Cell(f"{what}, a tie, {sign}", steps.is_tie & inside & side, min(ties, WANTED))
            if others:
                yield Cell(f"{what}, below half, {sign}", steps.inexact & ~guard & inside & side)
                yield Cell(f"{what}, above half, {sign}", steps.inexact & guard & ~steps.is_tie & inside & side)
    yield Cell("bounded by the smallest element", below)
    yield Cell("bounded by the largest element", above)
    # the zero point's code, in two's complement
    zero = np.uint64(by.zero & (e.format.n_codes - 1))
    # of a conversion a single operand is 0
    yield Cell("a sum of 0", e.unstaged.significand == 0, 1 if e.description.operation == "quantize" else WANTED)
    yield Cell("a sum other than 0 becomes the zero point", (e.results == zero) & (e.unstaged.significand != 0))
    for kind in RequantiserKind:
        other = by.other_kind(kind)
        if other is not None:
            # vectors that tell the kinds apart, one cell for each other kind
            changed = e.description.model_copy(update={"requantise": other})
            codes = answer(changed, e.vectors.operands, e.vectors.rbits).codes
            yield Cell(f"another element than {kind.value} writes", codes != e.results)


def _beyond(e: Evidence, side: int, room: int = 0) -> Mask:
    """Return where an exact result is beyond the smallest (side -1) or the largest element, by more than `room`."""
    by, (low, high) = e.description.requantise, bounds_of(e.description)
    assert by is not None
    n, d = by.factor.numerator, by.factor.denominator
    (sums,), exponent = to_common_exponent([e.unstaged.as_object()])
    scaled = (sums << exponent if exponent > 0 else sums >> -exponent) * n  # in units of 1 / d; sums are integers
    # s * n / d + zero compared with the limit, both sides times d, less the zero point
    limit = ((low if side < 0 else high) + side * room - by.zero) * d
    return (scaled < limit if side < 0 else scaled > limit).astype(bool)
