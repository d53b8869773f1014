"""Whether a network is better than guessing. If it is not, a difference to it says nothing about arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emu.report.run_data import table_of
from emu.report.words import percent

#: An accuracy of at most this multiple of guessing counts as guessing: on a small test set, guesses may reach it.
CHANCE_FACTOR = 1.5


def chance_of(recipe: Mapping[str, Any]) -> float | None:
    """Return the accuracy of guessing, 0..1.

    Args:
        recipe: a recipe as `run.json` has it.

    Returns:
        1 divided by the number of classes; None if the recipe does not say how many there are.
    """
    classes = table_of(recipe.get("network")).get("classes")
    # Classes are taken as equally frequent: the data set is not read.
    return 1 / classes if isinstance(classes, int) and classes > 1 else None


def is_guess(accuracy: float | None, chance: float | None) -> bool:
    """Return whether an accuracy is no better than guessing; False if either is unknown."""
    return accuracy is not None and chance is not None and accuracy <= CHANCE_FACTOR * chance


def of_a_baseline(model: str, baseline: str, accuracy: float, chance: float) -> str:
    """Return what to say, and to do, about a baseline that guesses."""
    return (
        f"{baseline}, the baseline of {model}, has learned nothing: it reaches {percent(accuracy)}, and guessing gets "
        f"{percent(chance)}. So a difference to it says nothing about a device. Train longer, or choose a baseline "
        "that learns."
    )
