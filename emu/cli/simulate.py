"""The command `emu simulate`: energy, area and a table of times; in a folder their data, a picture and a trace.

A device without a clock has energy and area, but no times.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.text import Text

from emu._tables import write_parquet
from emu.cli.options import SimulateOptions
from emu.cli.output import Facts, Output
from emu.cli.tables import Listing
from emu.errors import ConfigError
from emu.hardware import chrome_trace, load_device
from emu.hardware.machine import SECOND_PS, can_be_timed
from emu.report.words import area, energy
from emu.training import load_recipe
from emu.training.cluster_time import SimulatedCluster, SimulatedStep, simulate
from emu.training.cost import Cost, cost_of
from emu.training.folders.run_folder import RunFolder

#: Files of the folder.
DATA, TABLE, PICTURE, TRACE = "simulate.json", "simulate.parquet", "speed-up.svg", "trace.json"
COST, ENERGY = "cost.json", "energy.parquet"
_NO_CLOCK = (
    "{device} has no clock, so there are no times; add `clock_hz` to [compute] and a unit with `lanes` to "
    "[compute.units]"
)
#: Columns of the table: what a row simulates; the unit of its times, if rows differ in it; times; rates.
_KEYS, _UNIT = ("batch", "bits", "nodes"), "times in"
_PARTS = {
    "step": "step_ps", "compute": "compute_ps", "quantise": "quantise_ps", "clip": "clip_ps", "update": "update_ps",
    "wait": "wait_ps", "send": "send_ps",
}  # fmt: skip
#: What a step's time is spent on, in words; sending overlaps with the others.
_SPENT_ON = {
    "compute_ps": "compute", "quantise_ps": "encoding and decoding", "clip_ps": "clipping", "update_ps": "the update",
    "wait_ps": "waiting for messages",
}  # fmt: skip
_RATES = ("samples/s", "speed-up", "bound", "link")
#: Largest batch and number of nodes: shapes of a step stay within 64 bits.
MOST = 2**31 - 1
_COST_COLUMNS = ("part", "energy of a step", "share", "share of the area")
_UNITS = {"s": SECOND_PS, "ms": 10**9, "us": 10**6, "ns": 10**3, "ps": 1}


def simulate_model(model: str, device_name: str, options: SimulateOptions) -> Output:
    """Simulate, write what `--out` asks for, and return the results.

    Raises:
        ConfigError: an option asks for times, and the device has no clock.
    """
    # An option that is not given is an empty tuple: `simulate` chooses then.
    counts, batches, bits = (_numbers(f"--{name}", options.get(name)) for name in ("nodes", "batch", "bits"))
    device, out = load_device(device_name), options.get("out")
    recipe = load_recipe(model, _settings(model, counts, options.get("settings") or []))
    table = options.get("cost")
    costs = [cost_of(recipe, device, batch=batch, table=table) for batch in batches or (recipe.training.batch,)]
    cluster = None
    # An option about time forces the simulation, which explains what the device lacks.
    if can_be_timed(device) or counts or bits:
        cluster = simulate(recipe, device, nodes=counts, batches=batches, bits=bits, keeps_events=out is not None)
    if out is not None:
        write_simulation(cluster, costs, out)
    times = _times(cluster) if cluster else [Text("\n" + _NO_CLOCK.format(device=device.name))]
    return Output([*_costs(costs[0]), *times], rows_of(cluster, costs))


def _settings(model: str, counts: Sequence[int], given: Sequence[str]) -> list[str]:
    """Return the settings of `--set` behind a number of nodes, where a valid `[cluster]` needs it."""
    if counts:
        # Of several numbers the largest, so that a table may name each of its nodes.
        return [f"cluster.nodes={max(counts)}", *given]
    # Keys of a table that the recipe lacks are no valid table without `nodes`.
    lacks_nodes = any(text.startswith("cluster.") for text in given) and load_recipe(model).cluster is None
    return ["cluster.nodes=1", *given] if lacks_nodes else [*given]


def rows_of(cluster: SimulatedCluster | None, costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Return plain data (JSON): a row for each step, with the energy of its batch; without times, one for each batch.

    Args:
        cluster: simulated times; None for a device without a clock.
        costs: costs of each batch.
    """
    energies: dict[int, dict[str, Any]] = {
        cost.batch: {
            "joules_per_step": cost.joules_per_step,
            "joules_per_inference": cost.joules_per_inference,
            "area_mm2": cost.area_mm2,
        }
        for cost in costs
    }
    if cluster is None:
        named = ({"model": cost.model, "device": cost.device, "batch": cost.batch} for cost in costs)
        return [row | energies[cost.batch] for row, cost in zip(named, costs, strict=True)]
    # A row for each number of nodes and bits; energy depends on the batch alone.
    return [row | energies[row["batch"]] for row in cluster.rows()]


def write_simulation(cluster: SimulatedCluster | None, costs: Sequence[Cost], out: Path) -> None:
    """Write data, picture and trace into a folder.

    Raises:
        ConfigError: it cannot be written.
    """
    from emu.report.pictures.speed_up import speed_up_picture

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder of --out must be writable, got {error.strerror!r} for {out}") from None
    folder, rows = RunFolder(out), rows_of(cluster, costs)
    folder.write_json(DATA, rows)
    folder.write_bytes(TABLE, _parquet(rows))
    # `cost.json` and `energy.parquet` are of the first batch; `simulate.json` has the energy of each.
    folder.write_json(COST, {"model": costs[0].model, "device": costs[0].device, **costs[0].described()})
    folder.write_bytes(ENERGY, _parquet([row.row() for row in costs[0].rows]))
    if cluster is not None:
        folder.write_text(PICTURE, speed_up_picture(cluster))
        folder.write_text(TRACE, json.dumps(chrome_trace(cluster.device, cluster.events)))


def _costs(cost: Cost) -> list[Any]:
    """Return energy and area, in all and by part of the datapath."""
    areas = cost.area_shares()
    rows = [
        [
            unit,
            energy(share * cost.joules_per_step),
            f"{share:.1%}",
            f"{areas[unit]:.1%}" if unit in areas else "",
        ]
        for unit, share in cost.shares().items()
    ]
    totals = {
        "a step": f"{energy(cost.joules_per_step)}, of {cost.batch} examples",
        "an inference": energy(cost.joules_per_inference),
        "area": area(cost.area_mm2),
        "cost table": f"{cost.table}, memory {cost.memory}",
    }
    heading = Text(f"{cost.model} on {cost.device}: energy and area\n")
    return [heading, Facts(totals, {}), Text(), Listing(_COST_COLUMNS, rows, numbers=_COST_COLUMNS[1:])]


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    write_parquet(import_module("pyarrow").Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    """Return the whole numbers of an option, separated by commas.

    Raises:
        ConfigError: the option has something else.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    # ten digits at most, since Python reads no thousands of them
    wrong = next((p for p in parts if not (p.isdecimal() and len(p) <= 10 and 1 <= int(p) <= MOST)), None)
    if wrong is not None:
        raise ConfigError(
            f"{option} must be whole numbers in 1..{MOST}, separated by commas, got {wrong!r} in {text!r}; correct it"
        )
    return tuple(int(part) for part in parts)


def _times(cluster: SimulatedCluster) -> list[Any]:
    """Return the times of each step."""
    clips = any(step.time.clip_ps for step in cluster.steps)
    # The keys of _PARTS are heads of columns, its values fields of `StepTime`.
    parts = [name for name in _PARTS if clips or name != "clip"]
    units = [_unit_of(step.time.step_ps) for step in cluster.steps]
    is_mixed = len(set(units)) > 1
    keys = (*_KEYS, *([_UNIT] if is_mixed else []))
    rows = [
        [str(step.batch), str(step.bits), _nodes_of(step), *([unit] if is_mixed else [])]
        + [_time(getattr(step.time, _PARTS[name]), unit) for name in parts]
        + _rates_of(step)
        for step, unit in zip(cluster.steps, units, strict=True)
    ]
    shared = "" if is_mixed else f"; times in {units[0]}"
    heading = f"\n{cluster.model} on {cluster.device}: {cluster.parameters} parameters{shared}\n"
    heads = (*keys, *parts, *_RATES)
    table = Listing(heads, rows, keys=len(keys), starts=_RATES[:1], numbers=[head for head in heads if head != _UNIT])
    return [Text(heading), table, Text(f"\n{_in_sentences(cluster)}")]


def _in_sentences(cluster: SimulatedCluster) -> str:
    """Return which step of the table is fastest, and what the steps of most nodes spend their time on."""
    best, most = max(cluster.steps, key=lambda step: step.samples_per_s), max(step.nodes for step in cluster.steps)
    lines: list[str] = []
    if len(cluster.steps) > 1:
        # Only if several nodes were asked for, and a single one is the fastest.
        slower = most > 1 and best.nodes == 1
        why = f" More nodes are slower at batch {best.batch}; try a larger --batch." if slower else ""
        lines.append(f"Fastest: {_named(best)}: {best.samples_per_s:.0f} samples/s.{why}")
    for step in cluster.steps:
        # A line for each width of gradients, on the most nodes.
        if (step.nodes, step.batch) == (most, best.batch):
            spent = {words: getattr(step.time, field) for field, words in _SPENT_ON.items()}
            longest = max(spent, key=lambda part: spent[part])
            rest = f" {step.speed_up:.2f} times one node;" if most > 1 else ""
            share = f"{spent[longest] / step.time.step_ps:.0%} of a step is {longest}"
            bound = f", and links alone would allow {step.bound:.2f} times" if step.bound and most > 1 else ""
            lines.append(f"{_named(step)}:{rest} {share}{bound}.")
    return "\n".join(lines)


def _named(step: SimulatedStep) -> str:
    if step.nodes == 1:
        return f"1 node, batch {step.batch}"
    return f"{step.nodes} nodes, {step.bits} bit{'s' * (step.bits != 1)}, batch {step.batch}"


def _unit_of(step_ps: int) -> str:
    """Return the largest unit of which a step takes at least ten, so that two decimals are 0.1 % of it or less."""
    return next((unit for unit, size in _UNITS.items() if step_ps >= 10 * size), "ps")


def _time(picoseconds: int, unit: str) -> str:
    share = picoseconds / _UNITS[unit]
    # 0.005 rounds to 0.01: below it, two decimals would show a time that is not 0 as 0.00.
    return f"{share:.2f}" if share >= 0.005 or not picoseconds else "<0.01"


def _nodes_of(step: SimulatedStep) -> str:
    return str(step.nodes) if step.devices == 1 else f"{step.nodes} x {step.devices}"


def _rates_of(step: SimulatedStep) -> list[str]:
    bound = "" if step.bound is None else f"{step.bound:.{0 if step.bound >= 100 else 2}f}"
    return [f"{step.samples_per_s:.0f}", f"{step.speed_up:.2f}", bound, f"{step.time.link_use:.1%}"]
