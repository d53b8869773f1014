"""Learning rates by step: the same float64 operations on every machine, no library cosine."""

from __future__ import annotations

import math

from emu.training.recipe import Cosine, Schedule, Step

#: Terms of the cosine's Taylor series for 0 <= x <= pi: the first one left out, pi**32 / 32!, is below 1e-19.
COSINE_TERMS = 16


def learning_rate(base: float, schedule: Schedule, step: float, steps: int) -> float:
    """Return the learning rate of a step.

    Args:
        base: the optimiser's rate.
        schedule: constant, step or cosine, with an optional warm-up.
        step: 0..steps-1; fractional if mini-batches have another size than the one in which `steps` is counted.
        steps: length of the run.
    """
    done = step / steps
    if done < schedule.warmup:
        # the rise may end within a step. Shares are compared, because they are equal where it ends with a step;
        # warmup * steps may then be rounded to less
        if (step + 1) / steps > schedule.warmup:
            return base
        # step + 1: the first step has a rate above 0
        return base * (step + 1) / (schedule.warmup * steps)
    if isinstance(schedule, Step):
        # repeated products instead of a power, which is a function of the C library
        return base * math.prod([schedule.factor] * sum(done >= milestone for milestone in schedule.milestones))
    if isinstance(schedule, Cosine):
        # 0..1 from the end of the warm-up to the end of the run
        progress = (done - schedule.warmup) / (1 - schedule.warmup)
        share = (1 + cosine(math.pi * progress)) / 2
        return base * (schedule.final_factor + (1 - schedule.final_factor) * share)
    return base


def cosine(x: float) -> float:
    """Return cos(x) for 0 <= x <= pi, as a fixed sequence of additions, multiplications and divisions.

    Examples:
        >>> cosine(0.0), abs(cosine(math.pi) + 1) < 1e-15
        (1.0, True)
    """
    term = total = 1.0
    for k in range(1, COSINE_TERMS):
        # (-1)**k x**(2 k) / (2 k)!, from the term before
        term = -term * x * x / ((2 * k - 1) * (2 * k))
        total += term
    return total
