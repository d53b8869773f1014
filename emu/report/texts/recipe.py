"""The section of a run's recipe, changed by the settings that were given: network, data, training, other tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from emu.report.evidence import Evidence
from emu.report.html import Html, definitions, element, join, paragraph, table
from emu.report.page import Section
from emu.report.run_data import table_of
from emu.report.words import NO_NUMBER, integer

_FIRST = ("data", "training", "precision")
#: Keys of a layer that list the layers inside it.
_INSIDE = ("layers", "shortcut")


def section(evidence: Evidence) -> Section:
    """Return the layers as a table and the other tables of the recipe as lists."""
    recipe = evidence.run.section("recipe")
    if not recipe:
        return Section("recipe", "Training recipe", paragraph("run.json holds no recipe.", class_="missing"))
    given = evidence.run.info.get("network")
    parts = [_network(network, evidence)] if (network := table_of(recipe.get("network"))) and not given else []
    if given:
        parts.append(join([element("h3", "Network"), paragraph("Given from Python:"), element("pre", str(given))]))
    # Tables of _FIRST in that order, then the others by name.
    others = sorted(
        (key for key in recipe if key != "network"),
        key=lambda key: (_FIRST.index(key) if key in _FIRST else len(_FIRST), key),
    )
    loose = {key: recipe[key] for key in others if not isinstance(recipe[key], dict)}
    tables = {key: values for key in others if _flat(values := table_of(recipe[key]))}
    parts += [_settings(key.replace("_", " ").capitalize(), values) for key, values in tables.items()]
    if loose:
        parts.append(_settings("Other", loose))
    return Section("recipe", "Training recipe", join(parts))


def _network(network: Mapping[str, Any], evidence: Evidence) -> Html:
    rows = _layers(network.get("layers"))
    shape = " x ".join(str(size) for size in network.get("input") or ())
    count = evidence.run.info.get("parameters")
    facts = [("Input", shape), ("Classes", str(network.get("classes", ""))), ("Loss", str(network.get("loss", "")))]
    facts.append(("Parameters", integer(count) if isinstance(count, int) else ""))
    shown = [element("h3", "Network"), definitions([fact for fact in facts if fact[1]])]
    if rows:
        shown.append(
            table("Layers in network order", ["layer", "type", "settings"], rows, numeric_from=None, stacks=True)
        )
    return join(shown)


def _layers(listed: Any) -> list[list[str]]:
    """Return a row for each layer: name, type and settings; after it, the rows of the layers inside it."""
    rows: list[list[str]] = []
    for item in listed or ():
        if layer := table_of(item):
            rows.append([str(layer.get("name") or layer.get("type")), str(layer.get("type")), _options(layer)])
            for key in _INSIDE:
                rows += _layers(layer.get(key))
    return rows


def _options(layer: Mapping[str, Any]) -> str:
    left_out = ("type", "name", *_INSIDE)
    kept = {key: value for key, value in layer.items() if key not in left_out and value is not None}
    return ", ".join(f"{key} {_text(value)}" for key, value in kept.items()) or NO_NUMBER


def _settings(title: str, values: Mapping[str, Any]) -> Html:
    return join([element("h3", title), definitions(_flat(values))])


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return dotted keys and their values, without those that are empty."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            pairs += _flat(table_of(value), f"{name}.")
        elif value is not None and value not in ([], ""):
            pairs.append((name, _text(value)))
    return pairs


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
