"""What a reader of a run must know beside its numbers: on the terminal and on the run's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def remarks(info: Mapping[str, Any]) -> list[str]:
    """Return sentences about a run's cluster: nodes that train or were left out, and time that was not simulated.

    Args:
        info: content of `run.json`; what is missing there is not remarked on.
    """
    lines: list[str] = []
    device, recipe = _table(info, "device"), _table(info, "recipe")
    nodes = _nodes(device)
    if nodes > 1 and not recipe.get("cluster"):
        lines.append(
            f"one node of {device.get('name')} was trained, which has {nodes}; --set cluster.nodes={nodes} trains all"
        )
    elif (cluster := _table(recipe, "cluster")).get("nodes", 1) > 1:
        bits = cluster.get("bits", 1)
        lines.append(f"{cluster['nodes']} nodes exchange gradients of {bits} bit{'s' * (bits != 1)}")
    if missing := info.get("simulated_time_missing"):
        lines.append(f"no time was simulated: {missing}")
    return lines


def _table(info: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a table of the run, empty if it is something else."""
    table = info.get(key)
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}


def _nodes(device: Mapping[str, Any]) -> int:
    """Return how many nodes a device has; without a topology, as many as its crossbar has ports."""
    for table, key in (("topology", "nodes"), ("crossbar", "ports")):
        if device.get(table):
            return int(device[table][key]["value"])
    return 1
