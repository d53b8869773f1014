"""Values of recipe, device and run that differ between runs, and those that do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from emu.report.comparison.runs import Compared
from emu.report.html import Html, disclosure, element, join, paragraph, table
from emu.report.page import Section
from emu.report.run_data import table_of
from emu.report.words import NO_NUMBER

#: Entries of `run.json` besides recipe and device that say where a run's bits and times come from.
_RUN_KEYS = ("network", "data", "seed", "backend", "versions", "steps_planned", "parameters", "history")


class Setting(NamedTuple):
    """A value by run.

    Attributes:
        key: its dotted path.
        values: its text in each run; None where a run does not have it.
    """

    key: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether two runs have other values."""
        return len(set(self.values)) > 1


def settings_of(runs: Sequence[Compared]) -> dict[str, list[Setting]]:
    """Return the settings of runs, by what they are of."""
    takes: dict[str, Callable[[Compared], Any]] = {
        "recipe": lambda run: run.evidence.run.section("recipe"),
        "device": lambda run: run.evidence.run.section("device"),
        "run": lambda run: {key: run.evidence.run.info.get(key) for key in _RUN_KEYS},
    }
    return {name: _settings([dict(_flat(take(run))) for run in runs]) for name, take in takes.items()}


def _settings(flat: Sequence[Mapping[str, str]]) -> list[Setting]:
    keys = dict.fromkeys(key for values in flat for key in values)
    return [Setting(key, tuple(values.get(key) for values in flat)) for key in keys]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys with the texts of their values; a table in a list is named by its `name`, or by its number.

    Prose is left out: descriptions, and sources of a file and of its numbers.
    """
    if isinstance(value, dict):
        values = table_of(value)
        for key, inner in values.items():
            # A quantity of a device is a table of `value` and `source`; at the top, `source` is that of the whole file.
            # Elsewhere, as in [data], `source` says what is read, and counts.
            is_prose = key == "description" or (key == "source" and (not path or "value" in values))
            if not is_prose:
                yield from _flat(inner, f"{path}.{key}" if path else str(key))
    # Layers are compared by name: an inserted one does not shift all that follow.
    elif isinstance(value, list) and any(isinstance(item, dict) for item in cast("list[Any]", value)):
        for number, item in enumerate(cast("list[Any]", value), 1):
            yield from _flat(item, f"{path}[{table_of(item).get('name', number)}]")
    elif value is not None and value != []:
        yield path, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def settings_section(runs: Sequence[Compared]) -> Section:
    """Return the values that differ as a table for recipe, device and run, and the others folded away."""
    names, parts, same = [run.name for run in runs], list[Html](), list[Html]()
    for of, settings in settings_of(runs).items():
        different = [setting for setting in settings if setting.differs]
        rest = [[setting.key, str(setting.values[0])] for setting in settings if not setting.differs]
        parts.append(element("h3", of.capitalize()))
        if different:
            rows = [[setting.key, *(NO_NUMBER if v is None else v for v in setting.values)] for setting in different]
            caption = f"Values of the {of} that differ"
            parts.append(table(caption, ["value", *names], rows, numeric_from=None, stacks=True))
        else:
            parts.append(paragraph(f"No value of the {of} differs."))
        if rest:
            equal = table(f"Values of the {of} that are equal", ["value", "in all runs"], rest, numeric_from=None)
            same.append(disclosure(f"{len(rest)} values of the {of} are equal in all runs", equal))
    return Section("settings", "Recipe, device and run", join([*parts, *same]))
