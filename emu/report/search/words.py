"""Values of metrics and of variables as text for readers."""

from __future__ import annotations

from typing import Any, NamedTuple

from emu.formats.numerals import number
from emu.report.words import area, duration, energy

_ACCURACY, _DIFFERENCE = "accuracy", "_difference"
#: Unit of differences of accuracies.
POINTS = "points"


class Scale(NamedTuple):
    """The scale of a metric's axis.

    Attributes:
        factor: factor of the values.
        unit: unit of the axis.
    """

    factor: float
    unit: str


def scale_of(metric: str, largest: float) -> Scale:
    """Return the scale of a metric's axis.

    Args:
        metric: name of the metric.
        largest: the largest absolute value that is drawn.
    """
    if _ACCURACY in metric:
        return Scale(100.0, POINTS if metric.endswith(_DIFFERENCE) else "%")
    for start, base in (("joules", "J"), ("simulated_seconds", "s")):
        if metric.startswith(start):
            for size, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p")):
                # The largest value decides, so that all values of an axis have one unit; what is smaller than a pico
                # stays in picos.
                if largest >= size or prefix == "p":
                    return Scale(1 / size, prefix + base)
    return Scale(1.0, "mm2" if metric == "area_mm2" else "")


def value_in_words(metric: str, value: float) -> str:
    """Return the value of a metric, with its unit.

    Examples:
        >>> value_in_words("joules_per_step", 8.4e-5), value_in_words("test_accuracy_difference", -0.0022)
        ('84 uJ', '-0.22 points')
        >>> value_in_words("test_accuracy", 0.9822), value_in_words("test_loss", 0.0712)
        ('98.22%', '0.0712')
    """
    if _ACCURACY in metric:
        # Adding 0.0 makes 0.0 of -0.0, which would be shown as -0.00.
        return f"{round(100 * value, 2) + 0.0:+.2f} points" if metric.endswith(_DIFFERENCE) else f"{value:.2%}"
    if metric.startswith("joules"):
        return energy(value)
    if metric == "area_mm2":
        return area(value)
    if metric == "simulated_seconds":
        return duration(value)
    return number(value, 4)


def is_cost(metric: str) -> bool:
    """Return whether a metric is an amount of which less is better, so that it can be saved.

    Examples:
        >>> is_cost("joules_per_step"), is_cost("test_loss")
        (True, False)
    """
    return metric.startswith(("joules", "area", "simulated_seconds", "bytes")) and not metric.endswith(_DIFFERENCE)


def called(metric: str) -> str:
    """Return a metric's name as text.

    Examples:
        >>> called("joules_per_step"), called("test_accuracy_difference")
        ('joules per step', 'test accuracy difference')
    """
    return metric.removesuffix("_mm2").replace("_", " ")


def values_in_words(values: dict[str, Any]) -> str:
    """Return the values of variables.

    Examples:
        >>> values_in_words({"width": 8, "rate": 0.012345})
        'width 8, rate 0.01235'
    """
    return ", ".join(
        f"{name} {number(value, 4) if isinstance(value, float) else value}" for name, value in values.items()
    )
