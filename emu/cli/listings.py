"""The output of `emu devices` and `emu models`: tables of the shipped files, or one file in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from rich.console import Group
from rich.text import Text

from emu.backends.registry import backends
from emu.cli.tables import Listing, console, facts
from emu.datapath import Mac
from emu.hardware import ROLES, ComputeUnit, Device, Link, device_names, load_device
from emu.hardware.precision_table import LayerTables
from emu.nn import Layer, every
from emu.training.data_tables import Frames
from emu.training.recipe import Recipe, load_recipe, model_names
from emu.training.workbench.build import build_network

_DESCRIBED = ("description",)


def print_devices() -> None:
    """Print the shipped devices."""
    rows: list[tuple[str, ...]] = []
    for name in device_names():
        device = load_device(name)
        rows.append((name, _tensors(device), _format(device, "master"), _accumulator(device), device.description))
    table = Listing(("device", "tensors", "master", "accumulator", "description"), rows, under=_DESCRIBED)
    console().print(table, Text("\nemu devices NAME shows one in full; a path of a .toml file works as well."))


def print_backends() -> None:
    """Print which backends can compute here, and why others cannot."""
    console().print(facts(backends()))


def print_device(name_or_path: str | Path) -> None:
    """Print a device: the arithmetic of each role, in the words of its file."""
    device = load_device(name_or_path)
    precision = device.precision
    stages = {role: precision.stage("", role) for role in ROLES}
    roles = Listing(
        ("role", "format", "rounding", "overflow"),
        [(role, _format(device, role), stage.rounding.value, stage.overflow.value) for role, stage in stages.items()],
    )
    mac = precision.mac_of("")
    bins = precision.register.bins or "as many as the format needs"
    rows = {
        "products": str(mac.product),
        "accumulator": _accumulator(device),
        **_adds(mac),
        "registers": f"positions: {bins}; counters of {precision.register.counter_bits} bits, "
        "which stop at their largest",
        **_points(device),
        **{f"unit {name}": _unit(device, unit) for name, unit in device.compute.units.items()},
        **_memory(device),
        **{f"link to {link.to}": _link(link) for link in device.links},
        **_crossbar(device),
        **{f"layers {tables.match}{_times(tables)}": _exception(tables) for tables in precision.layers},
        "source": device.source,
    }
    console().print(Group(Text(f"{device.name}: {device.description}\n"), roles, Text(), facts(rows)))


def _adds(mac: Mac) -> dict[str, str]:
    """Return the order of the adds, and how products and sums are rounded and overflow; nothing if they are exact."""
    if mac.is_exact:
        return {"order": "irrelevant: nothing rounds before the output"}
    fmt = mac.accumulator if mac.accumulator != "exact" else mac.product
    assert not isinstance(fmt, str)
    overflow = mac.stage_of(fmt).overflow.value
    return {"order": str(mac.order), "rounding": f"{mac.rounding.value}, at every add", "overflow": overflow}


def _times(tables: LayerTables) -> str:
    """Return in which steps tables hold, "" for all."""
    if not tables.is_timed:
        return ""
    return f", steps {tables.from_step}..{'' if tables.until_step is None else tables.until_step - 1}"


def _exception(tables: LayerTables) -> str:
    """Return what differs in some layers, in the words of the file."""
    changed: dict[str, Any] = tables.model_dump(exclude_none=True, exclude={"match", "from_step", "until_step"})
    parts: list[str] = []
    for name, value in changed.items():
        words: list[Any] = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else [value]
        parts.append(f"{name} {' '.join(map(str, words))}")
    return "; ".join(parts) or "nothing"


def _points(device: Device) -> dict[str, str]:
    """Return how open binary points are chosen, in the words of the file."""
    table = device.dynamic_point
    if table is None:
        return {}
    text = ", ".join(f"{key} {value}" for key, value in table.model_dump(exclude_none=True).items())
    return {"dynamic point": text}


def _unit(device: Device, unit: ComputeUnit) -> str:
    clock, parts = unit.clock_hz or device.compute.clock_hz, [unit.kind]
    if unit.lanes is not None:
        parts.append(f"{unit.lanes.value:g} lanes")
    if clock is not None:
        parts.append(f"{clock.value / 1e9:g} GHz")
    if unit.tiles is not None and unit.count is not None:
        shapes = ", ".join(f"{tile.rows} x {tile.columns} at {tile.efficiency:.0%}" for tile in unit.tiles.value)
        parts.append(f"{unit.count.value:g} multiprocessors with tiles of {shapes} of the peak")
    if unit.splits is not None:
        parts.append(f"depth in up to {unit.splits.value:g} parts")
    if unit.fill_cycles is not None:
        parts.append(f"{unit.fill_cycles.value:g} cycles to fill")
    if unit.efficiency is not None:
        parts.append(f"{unit.efficiency.value:.0%} of the peak")
    if unit.start_s is not None:
        parts.append(f"{unit.start_s.value * 1e6:.3g} us to start")
    return ", ".join(parts)


def _memory(device: Device) -> dict[str, str]:
    """Return the bandwidth of the memory, and the share of it that is reached."""
    nominal, share = device.compute.memory_bandwidth_bytes_per_s, device.compute.memory_efficiency
    if nominal is None:
        return {}
    return {"memory": f"{nominal.value / 1e9:g} GB/s" + (f", of which {share.value:.0%} are reached" if share else "")}


def _link(link: Link) -> str:
    engines = link.copy_engines
    parts = [
        f"{link.bandwidth_bytes_per_s.value / 1e9:g} GB/s",
        *([f"{link.efficiency.value:.0%} of it are reached"] if link.efficiency else []),
        f"{link.latency_s.value * 1e6:g} us",
        f"{link.duplex} duplex",
        *(["of the host"] if link.at == "host" else []),
        *(["shared by the devices of a node"] if link.shared else []),
        *([] if engines is None else [f"{engines.value:g} copy engines"]),
    ]
    return ", ".join(parts)


def _crossbar(device: Device) -> dict[str, str]:
    """Return ports and topology, in the words of the file."""
    crossbar, topology = device.crossbar, device.topology
    if crossbar is None:
        return {}
    rows = {"crossbar": f"{crossbar.ports.value:g} ports, {crossbar.arbitration}"}
    if topology is not None:
        each = 1 if topology.devices is None else topology.devices.value
        rows["topology"] = f"{topology.nodes.value:g} nodes x {each:g} devices"
    return rows


def _format(device: Device, role: str) -> str:
    return str(device.precision.word("", role) or device.precision.stage("", role).format)


def _tensors(device: Device) -> str:
    formats = [_format(device, role) for role in ("weight", "activation", "error", "gradient")]
    return ", ".join(dict.fromkeys(formats))


def _accumulator(device: Device) -> str:
    table = device.precision.mac
    return str(device.precision.mac_of("").accumulator) if table is None else str(table.accumulator or "exact")


def print_models() -> None:
    """Print the shipped models."""
    rows: list[tuple[str, ...]] = []
    for name in model_names():
        recipe = load_recipe(name)
        texts = (
            name,
            "x".join(str(extent) for extent in recipe.network.input),
            str(len({layer.name for layer, _ in build_network(recipe.network).parameters()})),
            str(_parameters(build_network(recipe.network).layers)),
            _length(recipe),
            recipe.description,
        )
        rows.append(texts)
    heads = ("model", "input", "layers", "parameters", "training", "description")
    table = Listing(heads, rows, under=_DESCRIBED, numbers=("layers", "parameters"))
    console().print(table, Text("\nemu models NAME shows one in full; a path of a .toml file works as well."))


def print_model(name_or_path: str | Path) -> None:
    """Print a model: its layers with the shapes of their outputs, and how it is trained."""
    recipe = load_recipe(name_or_path)
    rows = [("input", "", str(recipe.network.input), "")]
    network = build_network(recipe.network)
    for layer, shape in zip(network.layers, recipe.network.shapes()[1:], strict=True):
        rows.append((layer.name, layer.type_name, str(shape), str(_parameters([layer]) or "")))
        inner = every(layer.parts())
        rows += [(f"  {part.name}", part.type_name, "", str(_parameters([part]) or "")) for part in inner]
    layers = Listing(("layer", "type", "output", "parameters"), rows, numbers=("parameters",))
    optimiser = recipe.training.optimiser
    about = {
        "parameters": str(_parameters(network.layers)),
        "loss": recipe.network.loss,
        "data": _data(recipe),
        "training": f"{_length(recipe)}, batch {recipe.training.batch}, seed {recipe.training.seed}",
        "optimiser": f"{optimiser.name}, learning rate {optimiser.learning_rate:g}, {recipe.training.schedule.name}",
        "source": recipe.source,
    }
    console().print(Group(Text(f"{recipe.name}: {recipe.description}\n"), layers, Text(), facts(about)))


def _parameters(layers: Sequence[Layer]) -> int:
    """Return the number of parameters of layers, including the layers inside them."""
    return sum(math.prod(parameter.shape) for layer in every(layers) for parameter in layer.parameters())


def _length(recipe: Recipe) -> str:
    training = recipe.training
    return f"{training.steps} steps" if training.steps else f"{training.epochs} epochs"


def _data(recipe: Recipe) -> str:
    data = recipe.data
    return f"{data.count} synthetic frames" if isinstance(data, Frames) else data.source
