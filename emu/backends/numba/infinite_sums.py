"""Which accumulators became infinite by themselves: the flag `accumulator_overflow` of floats, found afterwards.

An accumulator that is infinite or NaN never becomes finite again. So the fast loops look at nothing on the way:

    contents all finite                            nothing overflowed
    content not finite, its operands all finite    its accumulator overflowed
    content not finite, nor is an operand          a bound shows that it did not, or the definition adds once more

Source: docs/concepts/flags.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import FormatCode, MacCode, RandomCode
from emu.backends.pattern import Pattern
from emu.backends.proofs import becomes_infinite
from emu.backends.reference import sparse as definition_of_sparse
from emu.backends.reference.accumulators import any_operand
from emu.backends.reference.products import ordered_sums

Array = NDArray[np.generic]
Mask = NDArray[np.bool_]
Formats = tuple[FormatCode, FormatCode, FormatCode | None]
#: Operands gathered at once, at most, where one result does not need more.
GATHERED_ELEMENTS = 1 << 20
#: Natural logarithm of a sum's growth by roundings, beyond which no bound is tried: float64 holds e**100.
_MOST_GROWTH = 100.0


def hides(mac: MacCode) -> str:
    """Return why contents do not show that a product or sum became infinite, "" if they do.

    (That a product did, in a unit whose accumulator never does, ordered.py marks on the way.)
    """
    shows = all(s.format.has_nan for s in (mac.product, mac.accumulator) if s is not None and becomes_infinite(s))
    return "" if shows else "without NaN, an accumulator does not show that it became infinite"


def overflowed(
    contents: Array,
    a: Array,
    b: Array,
    addend: Array | None,
    formats: Formats,
    mac: MacCode,
    random: RandomCode,
) -> Mask:
    """Return which (B, M, N) contents became infinite from finite terms.

    Args:
        contents: of accumulators, float.
        a: (B, M, K) carriers.
        b: (B, K, N) carriers.
        addend: broadcasts to the contents, or None.
        formats: formats of the three.
        mac: a unit whose contents show it; see `hides`.
        random: Philox numbers of the product.
    """
    infinite = ~np.isfinite(contents)
    unclear = infinite & any_operand(is_special, a, b, addend, contents.shape)
    marks = infinite & ~unclear
    if unclear.any() and not _stays_finite(a, b, addend, a.shape[2], mac):
        for places, touched in _again(np.flatnonzero(unclear), a, b, addend, formats, mac, random):
            marks.reshape(-1)[places] = touched
    return marks


def overflowed_sparse(
    contents: Array,
    data: Array,
    dense: Array,
    addend: Array | None,
    pattern: Pattern,
    formats: Formats,
    mac: MacCode,
    random: RandomCode,
    special: Mask,
) -> Mask:
    """Return which (R, H) contents of a sparse product became infinite from finite terms.

    Args:
        contents: of accumulators, float.
        data: entries.
        dense: the dense operand.
        addend: broadcasts to the contents, or None.
        pattern: which entries each result adds.
        formats: formats of the three.
        mac: a unit whose contents show it; see `hides`.
        random: Philox numbers of the product.
        special: which results have an operand that is not finite.
    """
    infinite = ~np.isfinite(contents)
    unclear = infinite & special
    if not unclear.any() or _stays_finite(data, dense, addend, pattern.longest, mac):
        return infinite & ~unclear
    touched = definition_of_sparse.sums(data, dense, addend, pattern, formats, mac, random)[1]
    return (infinite & ~unclear) | (unclear & (touched is not None and touched))


def has_infinite(contents: Array, mac: MacCode) -> bool:
    """Return whether a content may have become infinite from finite terms."""
    return (becomes_infinite(mac.product) or becomes_infinite(mac.accumulator)) and not np.isfinite(contents).all()


def is_special(x: Array) -> Mask:
    """Return which numbers are infinite or NaN."""
    return ~np.isfinite(x)


def _again(
    places: NDArray[np.int64],
    a: Array,
    b: Array,
    addend: Array | None,
    formats: Formats,
    mac: MacCode,
    random: RandomCode,
) -> Iterator[tuple[NDArray[np.int64], Mask]]:
    """Yield places among the results, and whether the definition overflows there; a few at a time."""
    shape = (a.shape[0], a.shape[1], b.shape[2])
    third = None if addend is None else np.broadcast_to(addend, shape).reshape(-1)
    most = max(1, GATHERED_ELEMENTS // max(a.shape[2], 1))
    for first in range(0, places.size, most):
        chosen = places[first : first + most]
        batch, row, column = np.unravel_index(chosen, shape)
        left, right = a[batch, row][:, None, :], b[batch, :, column][:, :, None]
        start = None if third is None else third[chosen][:, None, None]
        numbers = random._replace(elements=chosen[:, None, None].astype(np.int64))
        touched = ordered_sums(left, right, start, formats, mac, numbers)[1]
        yield chosen, np.zeros(chosen.size, bool) if touched is None else touched.reshape(-1)


def _stays_finite(a: Array, b: Array, addend: Array | None, depth: int, mac: MacCode) -> bool:
    """Return whether no sum of finite terms can become infinite.

    A sum of magnitudes grows by at most one unit in the last place at every rounding: by a factor of 1 + 2**(1 - p) or,
    among subnormals, by a step. There are no more than 2 * depth + 3 roundings, of products and of joins.
    """
    product = _largest(a) * _largest(b)
    total = depth * product + (0.0 if addend is None else _largest(addend))
    roundings = 2 * depth + 3
    for stage, bound in ((mac.product, product), (mac.accumulator, total)):
        if stage is None or not becomes_infinite(stage):
            continue
        fmt = stage.format
        steps = roundings * math.ldexp(1.0, fmt.quantum)
        growth = roundings * sum(2.0 ** (1 - s.format.precision) for s in (mac.product, mac.accumulator) if s)
        limit = math.ldexp(float(fmt.max_significand), fmt.max_exponent)
        # exp(x) >= (1 + x/n)**n; the factor of 2 is room for the roundings of this estimate
        if growth > _MOST_GROWTH or not 2 * (bound + steps) * math.exp(growth) < limit:
            return False
    return True


def _largest(x: Array) -> float:
    magnitudes = np.abs(x.astype(np.float64))
    return float(np.max(magnitudes, initial=0.0, where=np.isfinite(magnitudes)))
