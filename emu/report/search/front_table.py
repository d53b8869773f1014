"""The table of a search's front, for its page, as Markdown and for the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from emu.formats.numerals import number
from emu.report.search.trials import Searched, Trial
from emu.report.search.words import called, is_cost, value_in_words, values_in_words
from emu.report.study.difference import Difference, between
from emu.report.words import percent

#: Heads of columns beside those of the objectives.
TRIAL, SEEDS, CHANGES = "trial", "seeds", "what it changes"
#: Most trials in the table if no trial holds all constraints.
NEAREST = 5
_NOTHING = "nothing: the device as it is"
#: Keys such as `device.precision.layers[conv*].error.format` and `device.precision.error.format`, which are shortened:
#: the value, a format, says by itself what it is.
_KEY = re.compile(r"device\.precision\.(?:layers\[(?P<layers>.+)\]\.)?(?P<rest>.+?)(?:\.format)?")


def listed(searched: Searched) -> list[Trial]:
    """Return the front; if it is empty, the trials that miss the constraints by least."""

    # A violation of 0 or less is a constraint that holds; the number of the trial breaks ties.
    def missed_by(trial: Trial) -> tuple[float, int]:
        return sum(max(violation, 0.0) for violation in trial.violations.values()), trial.number

    return searched.front() or sorted(searched.finished, key=missed_by)[:NEAREST]


def header(searched: Searched) -> list[str]:
    """Return the heads of the columns."""
    return [TRIAL, *(called(metric) for metric in searched.metrics), SEEDS, CHANGES]


def cells(searched: Searched, trial: Trial) -> list[str]:
    """Return a row: number, objectives with saving or interval, seeds, and what differs from the device as it is."""
    original = searched.original
    values: list[str] = []
    for index, metric in enumerate(searched.metrics):
        value = trial.objectives[index]
        first = original.objectives[index] if original is not None else None
        note = _interval(metric, trial.samples.get(metric, ())) or _saving(metric, value, first)
        values.append(value_in_words(metric, value) + note)
    return [str(trial.number), *values, str(len(trial.runs)), changes_in_words(searched, trial)]


def _saving(metric: str, value: float, first: float | None) -> str:
    if not is_cost(metric) or not first or value == first:
        return ""
    return f" ({percent(abs(1 - value / first))} {'less' if value < first else 'more'})"


def _interval(metric: str, samples: Sequence[float]) -> str:
    """Return the 95% interval of a difference of accuracies over the seeds, or why there is none."""
    if not metric.endswith("accuracy_difference"):
        return ""
    if len(samples) < 2:
        return " (one seed)" if samples else ""
    difference = Difference.of(samples)
    if difference.is_impossible:
        return " (no interval: it reaches beyond what is possible)"
    if difference.interval is None or not difference.is_statement:
        return " (no interval: all seeds are equal)"
    return f" ({between(*difference.interval)})"


def changes_in_words(searched: Searched, trial: Trial) -> str:
    """Return how a trial's device, or recipe, differs from the one that the search starts from.

    Examples:
        A key `device.precision.layers[conv1].weight.format` with the value fix6f4 is "conv1 weight fix6f4".
    """
    if trial.changes is None:
        # The folder is of a version that kept no `changes`: variables that differ from the start stand for them.
        changed = {key: value for key, value in trial.values.items() if value != searched.start.get(key)}
        return values_in_words(changed) or _NOTHING
    return ", ".join(_change_in_words(key, value) for key, value in trial.changes.items()) or _NOTHING


def _change_in_words(key: str, value: Any) -> str:
    text = number(value, 4) if isinstance(value, float) else str(value)
    match = _KEY.fullmatch(key)
    if match is None:
        # Without the first part, which is `device` or `recipe`.
        return f"{key.partition('.')[2]} = {text}"
    where = f"{match['layers']} " if match["layers"] else ""
    return f"{where}{match['rest'].replace('.', ' ')} {text}"
