"""The gradients of a layer of one worker, before and after a rule of clipping (`rules.py`).

Parts (weight, bias) are arrays (columns, rows): a column has the weights that lead to one output, and a bias is one
column. A layer has one pair of thresholds: its parts are joined in their order before they are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.cluster.codecs.sums import column_means, column_sums

Array = NDArray[Any]
#: What a rule remembers of a worker's layer, by name.
Memory = dict[str, Array]


class Limits(NamedTuple):
    """Both thresholds of a layer: elements above `high` or below `low` are set to it."""

    high: float
    low: float


@dataclass(frozen=True)
class LayerGradients:
    """The input of a rule.

    Attributes:
        gradients: float32, or float64 for carriers of wide formats, (columns, rows), by part.
        carried: what gradients are multiplied by: the loss scale S times a worker's share of the sum.
        masters: masters of the parameters, like the gradients; empty if no rule reads them.
        buffers: momentum of the optimiser, like the gradients; empty if it has none.
        buffers_carry: the loss scale that the momentum is multiplied by.
    """

    gradients: Mapping[str, Array]
    carried: float = 1.0
    masters: Mapping[str, Array] = field(default_factory=dict[str, Array])
    buffers: Mapping[str, Array] = field(default_factory=dict[str, Array])
    buffers_carry: float = 1.0

    @property
    def number(self) -> Any:
        """The NumPy type of all arithmetic for this layer: float64 if one of its parts is, else float32."""
        return np.result_type(*self.gradients.values()).type


@dataclass(frozen=True)
class Clipped:
    """The result of a rule.

    Attributes:
        gradients: gradients by part; a part of which nothing was clipped is the given array itself.
        counts: elements that were clipped, by part.
        memory: what the rule remembers.
        limits: thresholds, multiplied by what gradients carry; None if there were none.
    """

    gradients: Mapping[str, Array]
    counts: Mapping[str, int]
    memory: Memory
    limits: Limits | None = None


def joined(parts: Mapping[str, Array], number: Any) -> Array:
    """Return all parts as one column, (1, elements)."""
    # `[None]`: sums go over rows of one column, as those of codecs
    return np.concatenate([part.ravel() for part in parts.values()]).astype(number)[None]


def mean_and_variance(values: Array) -> tuple[Any, Any] | None:
    """Return mean and variance of the finite values, sums in 64 lanes; None if there are none, or either overflows.

    Args:
        values: float32 or float64, (1, elements).
    """
    counted = np.isfinite(values)
    if not counted.any():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean = column_means(values, counted)[0]
        # the mean in place of values that are not finite makes their deviations 0, not NaN
        deviations = np.where(counted, values, mean) - mean
        variance = column_means(deviations * deviations, counted)[0]
    return (mean, variance) if np.isfinite(mean) and np.isfinite(variance) else None


def root_of_mean_square(values: Array) -> Any:
    """Return the root of the mean square, sums in 64 lanes.

    If squares may overflow or underflow, they are taken of values times a power of two.

    Args:
        values: float32 or float64, (1, elements); with infinities the root is infinite, with NaN it is NaN.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean = column_means(values * values)[0]
        limits = np.finfo(values.dtype)
        # A square that underflows loses less than `tiny`, the smallest normal number, so their mean loses less than
        # that: half an ulp or less of a mean of at least 2 * tiny / eps, whose ulp is at least 2 * tiny.
        if mean >= 2 * limits.tiny / limits.eps and np.isfinite(mean):
            return np.sqrt(mean)
        # some square may be out of range; 0, infinity and NaN are the root themselves
        largest = np.abs(values).max(initial=0)
        if not 0 < largest < np.inf:
            return largest
        # largest = m * 2**exponent with m in [0.5, 1), so the largest scaled square is in [0.25, 1)
        exponent = np.frexp(largest)[1]
        scaled = np.ldexp(values, -exponent)
        return np.ldexp(np.sqrt(column_means(scaled * scaled)[0]), exponent)


class Norms(NamedTuple):
    """Norms of columns as 2**exponents * norms, so that no square overflows.

    Attributes:
        scaled: the columns divided by 2**exponents: below 1 in magnitude, and rounded only where that is subnormal.
        norms: norms of the scaled columns, (columns,).
        exponents: of the least power of two above each column's largest magnitude, 0 if that is 0, (columns,).
    """

    scaled: Array
    norms: Array
    exponents: Array

    @classmethod
    def of(cls, columns: Array) -> Norms:
        """Return the norms of columns, sums of squares in 64 lanes.

        Args:
            columns: float32 or float64, (columns, rows); a column with an infinity has the norm infinity, one with NaN
                the norm NaN.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            # (columns,): each column has a power of two of its own, so a tiny column beside a huge one keeps its digits
            exponents = np.frexp(np.abs(columns).max(axis=1, initial=0))[1]
            scaled = np.ldexp(columns, -exponents[:, None])
            return cls(scaled, np.sqrt(column_sums(scaled * scaled)), exponents)

    def whole(self) -> Array:
        """Return the norms of the columns themselves."""
        with np.errstate(over="ignore"):
            return np.ldexp(self.norms, self.exponents)
