"""The origin of the numbers: versions, seed, backend, hashes; enough to repeat the run and compare bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emu.report.evidence import Evidence
from emu.report.html import Html, definitions, element, join, paragraph
from emu.report.page import Section
from emu.report.words import integer, seconds

_READING = (
    "The same recipe, device and seed give the same bits on every backend and any number of threads. "
    "Two runs agree in every bit of every weight exactly when their weights' hashes are equal."
)


def section(evidence: Evidence) -> Section:
    """Return hashes, run and versions as lists."""
    info = evidence.run.info
    hashes = [(name, element("code", str(info[key]))) for key, name in _HASHES.items() if info.get(key)]
    parts = [paragraph(_READING)]
    parts += [element("h3", "Hashes (SHA-256)"), definitions(hashes, class_="hashes")] if hashes else []
    if run := _run(info):
        parts += [element("h3", "Run"), definitions(run)]
    if measured := _scalars(evidence.run.section("metrics")):
        parts += [element("h3", "Final metrics"), definitions(measured)]
    if versions := _scalars(evidence.run.section("versions")):
        parts += [element("h3", "Versions"), definitions(versions)]
    return Section("provenance", "Versions and hashes", join(parts))


_HASHES = {"weights_sha256": "weights", "registers_sha256": "registers"}


def _run(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    known = [
        (name, str(info[name]))
        for name in ("status", "started", "ended", "seed", "backend", "emu_version")
        if info.get(name) is not None
    ]
    if isinstance(info.get("steps"), int):
        known.append(("steps", integer(info["steps"])))
    for key, name in (("seconds", "time taken"), ("simulated_seconds", "time on the simulated machine")):
        if isinstance(info.get(key), int | float):
            known.append((name, seconds(float(info[key]))))
    return [(name.replace("_", " "), value) for name, value in known]


def _scalars(values: Mapping[str, Any]) -> list[tuple[str, str | Html]]:
    return [
        (str(key).replace("_", " "), str(value))
        for key, value in values.items()
        if not isinstance(value, Mapping | list)
    ]
