"""The control loop of loss scaling and dynamic fixed point: run, measure, compare, run once more with a better scale.

Loss scaling does it with an iteration, dynamic fixed point with an operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

ScaleT = TypeVar("ScaleT")
ResultT = TypeVar("ResultT")


class Settled(NamedTuple, Generic[ScaleT, ResultT]):
    """The final result of repeated runs.

    Attributes:
        scale: scale of the last run.
        result: result of the last run.
        redos: how many runs came before the last one.
    """

    scale: ScaleT
    result: ResultT
    redos: int


def run_and_redo(
    scale: ScaleT,
    run: Callable[[ScaleT], ResultT],
    better: Callable[[ScaleT, ResultT], ScaleT | None],
    most: int,
) -> Settled[ScaleT, ResultT]:
    """Run at a scale, and again as long as the measurement gives another scale.

    Args:
        scale: scale of the first run.
        run: does the work; every run begins from the same state, random numbers included.
        better: returns the scale that follows from a scale and its result; None if the result is final.
        most: largest number of further runs.

    Examples:
        >>> run_and_redo(8, lambda s: s * 5, lambda s, result: s // 2 if result > 15 else None, most=4)
        Settled(scale=2, result=10, redos=2)
    """
    result, redos = run(scale), 0
    # the last run is not measured: it is final, whatever it gives
    while redos < most and (wanted := better(scale, result)) is not None:
        scale, redos = wanted, redos + 1
        result = run(scale)
    return Settled(scale, result, redos)
