"""The tensor whose arithmetic went wrong first in a run, and its register in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.formats.numerals import power_of_two
from emu.report.diagnosis import OVERFLOW_NOTABLE, UNDERFLOW_NOTABLE
from emu.report.evidence import Evidence, gather
from emu.report.run_data import Tensor
from emu.report.words import percent

#: Flags that count as wrong arithmetic if more than this share of a tensor's results raises them.
#: Above 0 for `invalid`: one NaN is enough, since it spreads.
_LIMITS = {"invalid": 0.0, "overflow": OVERFLOW_NOTABLE, "underflow": UNDERFLOW_NOTABLE}


@dataclass(frozen=True)
class Break:
    """The first tensor whose arithmetic went wrong.

    Attributes:
        tensor: layer and role.
        flag: flag that its results raised.
        share: share of its results in the interval that raised the flag.
        step: last step of that interval.
        register: range and median of the leading bits of its results in the whole run, in words.
    """

    tensor: Tensor
    flag: str
    share: float
    step: int
    register: str

    def __str__(self) -> str:
        layer, role = self.tensor
        return f"{role} of {layer}: {percent(self.share)} {self.flag} by step {self.step}; {self.register}"


def first_break(folder: Path) -> Break | None:
    """Return the tensor that first passed a limit: the earliest step, then the largest share; None if none did.

    Raises:
        ConfigError: the run folder has no flags, or they cannot be read.
    """
    evidence = gather(folder)
    if evidence.run.flags is None:
        raise ConfigError(evidence.run.missing["flags.parquet"])
    breaks: list[tuple[int, float, Tensor, str]] = []
    for tensor, history in evidence.flags.items():
        for flag, limit in _LIMITS.items():
            if flag not in history.counts:
                continue
            shares = history.shares(flag)
            passed = np.flatnonzero(shares > limit)
            if passed.size:
                first = int(passed[0])
                breaks.append((int(history.steps[first]), -float(shares[first]), tensor, flag))
    if not breaks:
        return None
    step, negated, tensor, flag = min(breaks)  # the share is negated, so that the largest comes first
    return Break(tensor, flag, -negated, step, _register(evidence, tensor))


def _register(evidence: Evidence, tensor: Tensor) -> str:
    """Return range and median of a tensor's leading bits in words, or why there are none."""
    if evidence.run.registers is None:
        return f"its register is unknown: {evidence.run.missing['registers.parquet']}"
    bits = evidence.bits.get(tensor)
    extremes = bits.exponents() if bits is not None else None
    if bits is None or extremes is None:  # never observed, or only zeros and results that are not finite
        return "its register is empty"
    totals: NDArray[np.int64] = bits.counts.sum(axis=0)
    # the median: the first exponent up to which at least half of the results are counted
    middle = bits.lowest + int((2 * np.cumsum(totals) < totals.sum()).sum())
    low, high = (power_of_two(exponent) for exponent in extremes)
    return f"leading bits from {low} to {high}, half of them below {power_of_two(middle + 1)}"
