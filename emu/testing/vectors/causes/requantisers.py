"""Faults of requantisers: another kind, another rounding of a step, a zero point, a bound or a bit that is missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from emu.datapath import RequantiserKind, Rounding
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.definition import answer
from emu.testing.vectors.description import Codes, StepTable
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.requantiser_sums import expected_roundings
from emu.testing.vectors.requantisers import IN_31_BITS, LEAST_MULTIPLIER, MULTIPLIER_END, power_text

#: Widths to which sums may have been cut, or held.
_SUM_BITS = (16, 20, 24, 31)
_NEAREST = [mode for mode in Rounding if mode.value.startswith("nearest")]
_MODES = [mode for mode in Rounding if not mode.draws and not mode.moves_exact]


def other_requantisers(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of other requantisers; none of an operation without one."""
    by, steps = e.description.requantise, e.description.pipeline
    if by is None:
        return
    # of kinds that write the same elements, the nearest is named: those with multipliers of 31 bits are alike
    for kind in sorted(RequantiserKind, key=lambda kind: (kind in IN_31_BITS) != (by.kind in IN_31_BITS)):
        other = by.other_kind(kind)
        if other is not None:
            kinds = e.description.model_copy(update={"requantise": other})
            yield f"requantised as {kind.value} instead of {by.kind}", _codes(e, kinds.pipeline)
    yield from _zero_before_rounding(e, steps)
    last = steps[-1]
    for name, number, changed in (
        ("without the zero point", last.plus or None, {"plus": 0}),
        ("the zero point is one larger", 0, {"plus": last.plus + 1}),
        ("the zero point is one smaller", 0, {"plus": last.plus - 1}),
        ("bounded below by the zero point, as by a fused relu", 0, {"lowest": last.plus}),
        ("the zero point is subtracted", last.plus or None, {"plus": -last.plus}),
        ("without the bound `lowest`", last.lowest, {"lowest": None}),
        ("without the bound `highest`", last.highest, {"highest": None}),
    ):
        # None: there is nothing to leave out
        if number is not None:
            yield name, _codes(e, (*steps[:-1], last.model_copy(update=changed)))
    for i, step in enumerate(steps):
        sides = [expected_roundings(e.description, i, negative=negative) for negative in (False, True)]
        ties, others = (sum(counts) for counts in zip(*sides, strict=True))
        for mode in _MODES:
            # two modes to nearest differ at ties alone
            only_ties = mode in _NEAREST and step.stage.rounding in _NEAREST
            # a step that rounds nothing within reach tells no modes apart
            if mode is not step.stage.rounding and (ties if only_ties else others):
                name = f"step {i + 1} of the requantiser rounds by {mode.value} instead of {step.stage.rounding.value}"
                yield name, _codes(e, _with(steps, i, rounding=mode.value))
    for i in range(1, len(steps)):
        # two multipliers without a rounding between them are one
        merged = power_text(steps[i - 1].factor * steps[i].factor)
        name = f"step {i} of the requantiser does not round"
        yield name, _codes(e, (*steps[: i - 1], *_with(steps, i, times=merged)[i:]))
    whole = power_text(math.prod((step.factor for step in steps), start=Fraction(1)))
    for mode in _MODES if len(steps) > 1 else ():
        name = f"the product is rounded once, by {mode.value}"
        yield name, _codes(e, (last.model_copy(update={"times": whole, "rounding": mode.value}),))
    yield from _other_multipliers(e, steps)
    for bits in _SUM_BITS:
        for rule in ("wrap", "saturate"):
            # a step in front that multiplies by 1 is a register of this width
            held = StepTable(format=f"fix{bits}f0", overflow=rule)
            yield f"sums are held in {bits} bits, {rule}", _codes(e, (held, *steps))


def _other_multipliers(e: Evidence, steps: Sequence[StepTable]) -> Iterator[Hypothesis]:
    """Yield the codes by a multiplier whose last bit, or whose exponent, is off by one."""
    # of several steps that multiply, one has the digits, and the last one the shift
    i = max(range(len(steps)), key=lambda k: steps[k].factor.numerator)
    j = max(range(len(steps)), key=lambda k: (steps[k].factor != 1, k))
    assert e.description.requantise is not None
    m = steps[i].factor
    last_bit = m / e.description.requantise.digits
    for name, at, factor in (
        ("the multiplier is one larger in its last bit", i, m + last_bit),
        ("the multiplier is one smaller in its last bit", i, m - last_bit),
        ("the multiplier is shifted by one bit less", j, steps[j].factor * 2),
        ("the multiplier is shifted by one bit more", j, steps[j].factor / 2),
    ):
        if LEAST_MULTIPLIER <= factor < MULTIPLIER_END:
            yield name, _codes(e, _with(steps, at, times=power_text(factor)))


def _zero_before_rounding(e: Evidence, steps: Sequence[StepTable]) -> Iterator[Hypothesis]:
    """Yield the codes if the zero point is added before the last step rounds: ties fall otherwise."""
    last = steps[-1]
    if last.plus:
        # 20 bits behind the point, the last of which is 1 if anything follows, round as the quotient does
        ahead = StepTable(format="fix64f20", rounding="to_odd", overflow="saturate", times=last.times, plus=last.plus)
        rest = last.model_copy(update={"times": "1", "plus": 0})
        yield "the zero point is added before rounding", _codes(e, (*steps[:-1], ahead, rest))


def _with(steps: Sequence[StepTable], at: int, **changed: str) -> tuple[StepTable, ...]:
    return tuple(step.model_copy(update=changed) if i == at else step for i, step in enumerate(steps))


def _codes(e: Evidence, steps: tuple[StepTable, ...]) -> Codes:
    return answer(e.description, e.vectors.operands, e.vectors.rbits, steps=steps).codes
