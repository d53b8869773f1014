"""The data that clauses give a unit: numbers of one kind at a time, so that a fault shows in its own clause."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.engine import quantize
from emu.formats import Fixed, Float, Format
from emu.testing.hard import Places, hard_reals, hard_values, last_index, magnitudes, normal_index

Array = NDArray[Any]
Reals = NDArray[np.float64]
#: Largest index of a tie in fixed point: below 2**52 float64 holds index + 1/2 exactly.
TIES_END = 1 << 51
#: Distances from a value to numbers above it that are neither values nor ties, in ulp; the first two need fewest bits.
PARTS = (0.25, 0.75, 0.125, 0.375, 0.625, 0.875)


def _indices(low: int, high: int, n: int, seed: int) -> NDArray[np.uint64]:
    """Return indices in low .. high: the ends, five of sixteen that end in a run of ones, and uniform ones."""
    if high < low:
        return np.zeros(0, np.uint64)
    # all callers start at low >= 1, so high - low + 1 is below 2**64 even if high is the last raw of 64 bits
    noise = Places.of(seed, (n,)).noise(5)
    lengths = Places.of(seed, (n,)).noise(6) % np.uint64(max(high.bit_length(), 1))
    uniform = noise % np.uint64(high - low + 1) + np.uint64(low)
    # a run of `lengths` ones at the low end: rounding up carries through all of them
    carries = np.clip(uniform | ((np.uint64(1) << lengths) - np.uint64(1)), low, high)
    picked = np.where(noise >> np.uint64(60) < 5, carries, uniform).astype(np.uint64)
    ends = [i for i in (low, low + 1, high - 1, high) if low <= i <= high]
    picked[: len(ends)] = ends[:n]
    return picked


def _signed(fmt: Format, magnitude: Reals) -> Reals:
    """Return magnitudes with alternating signs; all positive for an unsigned format."""
    if not fmt.signed:
        return magnitude
    return np.where(np.arange(len(magnitude)) % 2 == 1, -magnitude, magnitude)


def normal_values(fmt: Format, n: int, seed: int) -> Reals:
    """Return finite values of the format, subnormals and zeros excepted."""
    # from index 1 on, for fixed point, whose index 0 is zero
    return _signed(fmt, magnitudes(fmt, _indices(max(normal_index(fmt), 1), last_index(fmt), n, seed), 0))


def ties(fmt: Format, n: int, seed: int) -> Reals:
    """Return numbers halfway between two normal values; none if float64 does not hold them."""
    high = min(last_index(fmt) - 1, TIES_END if isinstance(fmt, Fixed) else last_index(fmt))
    if isinstance(fmt, Float) and fmt.fraction_bits > 51:  # a tie has one bit more, and float64 has 52
        high = -1
    return _signed(fmt, magnitudes(fmt, _indices(max(normal_index(fmt), 1), high, n, seed), 1))


def between(fmt: Format, n: int, seed: int) -> Reals:
    """Return numbers between two normal values that are no ties, of nine kinds, each with both signs.

    Three kinds are one step of float64 from a value or a tie: above a value, below a tie, above a tie. Six have a part
    of `PARTS`. They are rounded to float64, and those that become values or ties are left out. So of `n` numbers fewer
    remain where float64's steps are 1/4 ulp of the format, and none where they are 1/2 ulp or more, as in fp64.
    """
    high = min(last_index(fmt) - 1, TIES_END if isinstance(fmt, Fixed) else last_index(fmt))
    index = _indices(max(normal_index(fmt), 1), high, n, seed)
    below, tie, above = (magnitudes(fmt, index, halves) for halves in (0, 1, 2))
    with np.errstate(over="ignore"):  # indices of a format beyond float64 are its largest number
        beside = np.nextafter(below, np.inf), np.nextafter(tie, 0), np.nextafter(tie, np.inf)
    # the ends of the range are the first indices, so the kinds that need fewest bits are first
    kinds = [*beside, *(magnitudes(fmt, index, 2 * part) for part in PARTS)]  # in halves of an ulp
    # signs alternate, and the number of kinds is odd: so each kind gets both
    reals = np.choose(np.arange(len(index)) % len(kinds), kinds)
    return _signed(fmt, reals)[(below < reals) & (reals < above) & (reals != tie)]


def subnormals(fmt: Format, n: int, seed: int) -> Reals:
    """Return subnormal values and what lies between them, from the smallest one on; none in fixed point."""
    if isinstance(fmt, Fixed):
        return np.zeros(0)
    index = _indices(1, normal_index(fmt) - 1, n, seed)
    # an odd number of kinds, so that alternating signs give each kind both; values come twice
    return _signed(fmt, magnitudes(fmt, index, 2 * np.resize([0, 0.25, 0.5, 0.75, 0], len(index))))


def around_zero(fmt: Format) -> Reals:
    """Return both zeros, and numbers too small for the format's last place."""
    quantum = float(magnitudes(fmt, np.ones(1, np.uint64), 0)[0])
    small = [quantum / 2, quantum / 4, 0.75 * quantum, quantum * 2.0**-40]
    return np.array([0.0, -0.0, *(s * x for x in small for s in (1, -1))])


def beyond(fmt: Format) -> Reals:
    """Return numbers around both ends of the range and far beyond."""
    last = float(magnitudes(fmt, np.array([last_index(fmt)], np.uint64), 0)[0])
    ulp = float(fmt.ulp(last))
    # the thresholds of overflow lie here: 1/2 ulp above the largest value in modes to nearest, 1 ulp if modes truncate
    with np.errstate(over="ignore"):
        steps = [last + part * ulp for part in (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3)]
        far = [last * factor for factor in (1.5, 2, 3.25, 5, 1000.125)]
    finite = [x for x in (*steps, *far) if math.isfinite(x)]
    below = [-x for x in finite]
    if isinstance(fmt, Fixed):
        # two's complement reaches one step further down than up, so the lower end has points of its own
        below += [float(fmt.min) - part * ulp for part in (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 17)]
    return np.array([*finite, *below])


def specials(fmt: Format, *, nan: bool) -> Reals:
    """Return infinities or NaN among ordinary numbers."""
    return np.array([np.nan, 1.0, np.nan] if nan else [np.inf, -np.inf, 1.0, -np.inf, np.inf])


def mixture(fmt: Format, n: int, seed: int) -> Reals:
    """Return numbers of every kind."""
    return hard_reals(fmt, Places.of(seed, (n,)))


def finite_operands(fmt: Format, count: int, n: int, seed: int) -> tuple[Array, ...]:
    """Return operands with finite values, hard ones paired with hard ones."""
    return tuple(hard_values(fmt, Places.of(seed + i, (n,)), nan=False, infinity=False) for i in range(count))


def every_combination(fmt: Format, count: int, values: list[float]) -> tuple[Array, ...]:
    """Return operands that hold every combination of some values, leaving out values that the format lacks."""
    members = [x for x in values if bool(fmt.contains(np.array([x]))[0])]
    columns = list(zip(*itertools.product(members, repeat=count), strict=True))
    return tuple(np.array(column).astype(fmt.carrier) for column in columns)


def summands(fmt: Format, shape: tuple[int, ...], seed: int) -> Array:
    """Return operands of a product: of many sizes, so that the order of the adds decides bits, and without overflow."""
    random = np.random.default_rng(seed)
    if isinstance(fmt, Fixed):
        # with the endpoint, because n_codes of a word of 64 bits is no uint64
        codes = random.integers(0, fmt.n_codes - 1, shape, np.uint64, endpoint=True)
        return fmt.decode(codes)
    # no product overflows, and exponents of products lie within plus and minus the precision: sums lose low bits
    spread, middle = fmt.fraction_bits // 2 + 1, 0
    if fmt.emax >= 0:
        spread = min(fmt.emax // 2, spread)
    else:  # products are smaller than their factors; the largest power is a quarter of 2**emax: few draws exceed 4
        middle = fmt.emax - 2 - spread
    reals = random.standard_normal(shape) * 2.0 ** (middle + random.integers(-spread, spread + 1, shape))
    # a draw beyond the range becomes the largest value, never an infinity
    return quantize(reals, fmt, overflow="satfinite", backend="reference")


def random_bits(n: int, n_rbits: int, seed: int) -> NDArray[np.uint32]:
    """Return random bits to be given as recorded ones, all 0 and all 1 among them."""
    bits = (Places.of(seed, (n,)).noise(9) >> np.uint64(64 - n_rbits)).astype(np.uint32)
    bits[:2] = [0, (1 << n_rbits) - 1][:n]
    return bits
