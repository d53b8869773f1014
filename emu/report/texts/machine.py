"""The device, its formats and its multiply-accumulate unit in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from emu.formats.numerals import number
from emu.report.evidence import Evidence
from emu.report.html import Html, bullets, definitions, element, join, paragraph, table
from emu.report.page import Section
from emu.report.run_data import TensorFormat, table_of
from emu.report.words import (
    ROLE_MEANINGS,
    format_in_words,
    mac_in_words,
    overflow_in_words,
    role_order,
    rounding_in_words,
    sentence_case,
)

_UNITS = {"_bytes_per_s": " bytes/s", "_hz": " Hz", "_s": " s"}


def section(evidence: Evidence) -> Section:
    """Return the description of the device, and the formats of roles and layers."""
    device = evidence.run.section("device")
    formats = list(evidence.run.formats.values())
    parts = [paragraph(text) for key in ("description", "source") if (text := _line(device, key))]
    if formats:
        parts += [_formats(formats), _roles(formats), _table(formats), _macs(formats)]
    else:
        parts.append(
            paragraph("run.json names no formats, so this page cannot say which tensor had which.", class_="missing")
        )
    if compute := _quantities(device):
        parts += [element("h3", "Speed"), definitions(compute)]
    return Section("machine", "Device and formats", join(parts))


def _line(device: Mapping[str, Any], key: str) -> str:
    text = str(device.get(key) or "")
    return f"Source: {text}" if key == "source" and text else text


def _formats(formats: Iterable[TensorFormat]) -> Html:
    names = list(dict.fromkeys(tensor.format for tensor in formats))
    items = (join([element("code", name), f": {format_in_words(name)}"]) for name in names)
    return join([element("h3", "Number formats"), bullets(items, class_="plain")])


def _roles(formats: Iterable[TensorFormat]) -> Html:
    present = {tensor.role for tensor in formats}
    known = [(role, meaning) for role, meaning in ROLE_MEANINGS.items() if role in present]
    return join([element("h3", "Roles of a tensor"), definitions(known, class_="glossary")]) if known else Html("")


def _table(formats: list[TensorFormat]) -> Html:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for tensor in formats:
        rules = sentence_case(
            f"{rounding_in_words(tensor.rounding)}; {overflow_in_words(tensor.overflow, tensor.format)}"
        )
        groups.setdefault((tensor.role, tensor.format, rules), []).append(tensor.layer)
    # How many layers have the role at all: a group of all of them is not listed by name.
    all_of = {role: sum(tensor.role == role for tensor in formats) for role in {tensor.role for tensor in formats}}
    rows = [
        [role, fmt, rules, "every layer that has one" if len(layers) == all_of[role] else ", ".join(layers)]
        for (role, fmt, rules), layers in sorted(groups.items(), key=lambda item: role_order(item[0][0]))
    ]
    shown = table(
        "Format, rounding and overflow by role",
        ["role", "format", "rounding and overflow", "layers"],
        rows,
        numeric_from=None,
        stacks=True,
    )
    return join([element("h3", "Which tensor has which"), shown])


def _macs(formats: Iterable[TensorFormat]) -> Html:
    groups: dict[str, list[str]] = {}
    for tensor in formats:
        if tensor.mac:
            layers = groups.setdefault(sentence_case(mac_in_words(tensor.mac)), [])
            layers += [tensor.layer] if tensor.layer not in layers else []
    if not groups:
        return Html("")
    items = (f"{words}." if len(groups) == 1 else f"{words}: {', '.join(layers)}." for words, layers in groups.items())
    return join([element("h3", "Multiply-accumulate"), bullets(items, class_="plain")])


def _quantities(device: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in table_of(device.get("compute")).items():
        # A quantity has a value and its source; other entries, such as units, are shown as JSON.
        if "value" in (quantity := table_of(value)):
            pairs.append(_quantity(key, quantity))
        elif value:
            pairs.append((key, json.dumps(value, sort_keys=True)))
    return pairs


def _quantity(key: str, value: Mapping[str, Any]) -> tuple[str, str]:
    suffix = next((suffix for suffix in _UNITS if key.endswith(suffix)), "")
    name = key.removesuffix(suffix).replace("_", " ")
    source = f" ({value['source']})" if value.get("source") else ""
    return name, f"{number(float(value['value']), 6)}{_UNITS.get(suffix, '')}{source}"
