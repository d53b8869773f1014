"""A hypothesis: the code that a faulty unit would have written for every vector, right ones too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from emu.datapath import OutputStage
from emu.testing.vectors.definition import answer, written
from emu.testing.vectors.description import Codes, Description
from emu.testing.vectors.evidence import Evidence

#: Products of a dump, above which operands are not changed bit by bit.
MOST_PRODUCTS = 1 << 14
#: A fault's name and the codes that it would have written, (count,).
Hypothesis = tuple[str, Codes]
#: Faults of a kind.
Family = Callable[[Evidence], Iterator[Hypothesis]]


def restaged(e: Evidence, stage: OutputStage) -> Codes:
    """Return the codes that another output stage writes of the same exact results."""
    codes = written(e.description, e.exact, e.vectors.rbits, stage).codes
    if e.description.operation not in ("add", "subtract", "fma"):
        return codes
    # `e.exact` has the sign of the description's mode, so these few sums are computed again in the other mode
    zeros = np.flatnonzero(e.exact.significand == 0)  # the sign of a zero sum is the mode's
    some = e.vectors.at(zeros)
    codes[zeros] = answer(some.description, some.operands, some.rbits, stage=stage).codes
    return codes


def of_neighbouring_cycles(column: Codes) -> Iterator[tuple[str, Codes]]:
    """Yield words that come a cycle late, and a cycle early, with the name of the cycle that they belong to.

    Before the first vector and after the last one there is none: the right word is put there, or 0, as after a reset.
    """
    nothing = np.zeros_like(column[:1])
    for end in (column[:1], nothing):
        yield "before", np.concatenate((end, column[:-1]))
    for end in (column[-1:], nothing):
        yield "after", np.concatenate((column[1:], end))


def is_long(e: Evidence) -> bool:
    """Return whether a unit's sums are too long to be computed again for each of hundreds of operands."""
    d = e.description
    return e.is_product_sum and d.count * d.depth > MOST_PRODUCTS


def like(description: Description, **changes: Any) -> Description:
    """Return a description with some keys changed, checked anew.

    Conventions (`conventions.py`) fall back to their defaults: with other formats they may be impossible. Further
    results and a register, which belong to the whole operation, are left out.
    """
    kept = description.model_dump(exclude={"nan", "nan_code", "zero_sign", "invalid", "also", "statistics"})
    if "formats" in changes:
        del kept["stages"], kept["requantise"]  # a part of the operation is rounded once
    return Description.model_validate({**kept, **changes})
