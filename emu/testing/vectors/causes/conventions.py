"""Other conventions: another NaN, another integer for what is none, another sign of zero, a stage that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np

from emu.formats import Float
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.conventions import InvalidRule, NanRule, ZeroSign, has_payloads, with_nans
from emu.testing.vectors.definition import answer
from emu.testing.vectors.evidence import Evidence


def other_conventions(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes by each other convention of `conventions.py`, and without each stage before the last."""
    yield from _nans(e)
    d, v = e.description, e.vectors
    for rule in get_args(InvalidRule):
        # of the default rule `rules.py` has the other codes (`_beyond_words`)
        if rule != d.invalid and d.invalid != "zero":
            other = d.model_copy(update={"invalid": rule})
            yield f"`invalid` {rule} instead of {d.invalid}", answer(other, v.operands, v.rbits).codes
    for sign in get_args(ZeroSign):
        # of the default `zeros.py` has each sign by itself (`signs_of_zero`)
        if sign != d.zero_sign and d.zero_sign != "positive":
            other = d.model_copy(update={"zero_sign": sign})
            yield f"signs of zero sums {sign} instead of {d.zero_sign}", answer(other, v.operands, v.rbits).codes
    # a stage that is missing: its operands go on as they are
    for i, row in enumerate(d.stages):
        other = d.model_copy(update={"stages": d.stages[:i] + d.stages[i + 1 :]})
        yield f"without the stage {row.format} before the output stage", answer(other, v.operands, v.rbits).codes


def _nans(e: Evidence) -> Iterator[Hypothesis]:
    d, v, fmt = e.description, e.vectors, e.format
    if d.nan == "canonical" and d.nan_code is None:  # then `specials.py` has them
        return
    assert isinstance(fmt, Float)
    canonical = fmt.nan_code or 0
    for rule in get_args(NanRule):
        # every operand must have payloads, and one code each: a factor of matmul has several
        if rule != "canonical" and not (all(map(has_payloads, d.operand_formats)) and v.operands[0].ndim == 1):
            continue
        for made in dict.fromkeys((d.made_nan, canonical)):
            codes = with_nans(rule, made, fmt, e.results, d.operand_formats, v.operands)
            if not np.array_equal(codes, e.results):
                name = f"NaN by the rule {rule}" if rule != d.nan else "a NaN of another pattern"
                yield f"{name}, 0x{made:x} where none is given", codes
