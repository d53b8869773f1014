"""Quantiles of Student's t distribution, for whole degrees of freedom.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
"""

from __future__ import annotations

import math

#: Most halvings of an interval: about 53 of them reach neighbouring float64 numbers, unless the quantile is near 0.
_HALVINGS = 200


def within(t: float, freedom: int) -> float:
    """Return the probability that a value of the distribution lies in -t .. t.

    Args:
        t: 0 or more.
        freedom: degrees of freedom, 1 or more.
    """
    # theta of 26.7.3 and 26.7.4, whose sums end: no series is cut off
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    # odd: cos + 2/3 cos**3 + 2*4/(3*5) cos**5 + ...; even: 1 + 1/2 cos**2 + 1*3/(2*4) cos**4 + ...
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


def quantile(probability: float, freedom: int) -> float:
    """Return the t that a value of the distribution exceeds with probability 1 - `probability`.

    Args:
        probability: 0.5 or more, less than 1.
        freedom: degrees of freedom, 1 or more.

    Examples:
        >>> f"{quantile(0.95, 2):.3f} {quantile(0.95, 10):.3f} {quantile(0.975, 4):.3f}"
        '2.920 1.812 2.776'
    """
    # (within(t) + 1) / 2 is the probability of a value of at most t; the quantile lies in
    # low .. high once the loop ends
    low, high = 0.0, 1.0
    while (within(high, freedom) + 1) / 2 < probability:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # neighbouring numbers: nothing lies between them
        if middle in (low, high):
            break
        low, high = (middle, high) if (within(middle, freedom) + 1) / 2 < probability else (low, middle)
    return high
