"""The output of `emu devices` and `emu models`: tables of the shipped files, or one file in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

from rich.text import Text

from emu.backends.registry import backends
from emu.cli.output import Column, Facts, Output, Table
from emu.datapath import Mac
from emu.hardware import OPTIONAL_ROLES, ROLES, ComputeUnit, Device, Link, device_names, load_device
from emu.hardware.operand_tables import FACTORS, OperandTables
from emu.hardware.precision_table import UNITS, LayerTables, PrecisionTable
from emu.interop.loading import is_network
from emu.nn import Layer, every
from emu.training.data_tables import Frames
from emu.training.recipe import Recipe, load_recipe, model_names
from emu.training.workbench.build import build_network

#: The column that is put under its row on a narrow screen.
_DESCRIBED = {"under": ["description"]}


def all_devices() -> Output:
    """Return the shipped devices."""
    columns = (
        Column("device", "device"),
        Column("tensors", "tensors", ", ".join),
        Column("master", "master"),
        Column("accumulator", "accumulator"),
        Column("description", "description"),
    )
    devices = {name: load_device(name) for name in device_names()}
    rows = [
        (name, _tensors(device), _format(device, "master"), _accumulator(device), device.description)
        for name, device in devices.items()
    ]
    hint = Text("\nemu devices NAME shows one in full; a path of a .toml file works as well.")
    return Output([Table(columns, rows, layout=_DESCRIBED), hint])


def all_backends() -> Output:
    """Return which backends can compute here, and why others cannot."""
    states = backends()
    return Output([Facts(states, {})], [{"backend": name, "state": state} for name, state in states.items()])


def one_device(name_or_path: str | Path) -> Output:
    """Return all of a device: the arithmetic of each role, in the words of its file."""
    device = load_device(name_or_path)
    precision = device.precision
    # Roles that need no table are listed only if the device has one.
    own = (role for role in OPTIONAL_ROLES if precision.role(role))
    # No layer is called "": these are the tables of all layers, without those of a glob such as conv*.
    stages = {role: precision.stage("", role) for role in (*ROLES, *own)}
    roles = Table(
        tuple(Column(key, key) for key in ("role", "format", "rounding", "overflow")),
        [(role, _format(device, role), stage.rounding.value, stage.overflow.value) for role, stage in stages.items()],
        "roles",
    )
    mac = precision.mac_of("")
    bins = precision.register.bins or "as many as the format needs"
    rows = {
        "products": str(mac.product),
        "accumulator": _accumulator(device),
        **_adds(mac),
        **_other_units(precision),
        **_operands(precision.operands),
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
    about = Facts(rows, {"device": device.model_dump(mode="json", exclude_none=True)})
    return Output([Text(f"{device.name}: {device.description}\n"), roles, Text(), about])


def _adds(mac: Mac) -> dict[str, str]:
    """Return the order of the adds, and how products and sums are rounded and overflow; nothing if they are exact."""
    if mac.is_exact:
        return {"order": "irrelevant: nothing rounds before the output"}
    # The rule is that of sums; with an exact accumulator only products have one.
    fmt = mac.accumulator if mac.accumulator != "exact" else mac.product
    assert not isinstance(fmt, str)
    # Without a rule in the file, each format has that of its family.
    overflow = mac.stage_of(fmt).overflow.value
    return {"order": str(mac.order), "rounding": f"{mac.rounding.value}, at every add", "overflow": overflow}


def _other_units(precision: PrecisionTable) -> dict[str, str]:
    """Return the units of errors and gradients where they differ, in the words of the file."""
    tables = {name: precision.unit(name) for name in UNITS if name != "mac"}
    words = {name: table.model_dump(exclude_none=True) for name, table in tables.items() if table is not None}
    return {name: ", ".join(f"{key} {value}" for key, value in own.items()) for name, own in words.items()}


def _operands(tables: OperandTables | Literal["stored"] | None) -> dict[str, str]:
    """Return what each product reads where this is not what is stored, and the unit of these operands."""
    if not isinstance(tables, OperandTables):
        return {}
    rows: dict[str, str] = {}
    for product, factors in FACTORS.items():
        casts = tables.casts(product)
        if casts is not None:
            rows[f"{product} reads"] = "; ".join(f"{name} {cast}" for name, cast in zip(factors, casts, strict=True))
            unit = tables.units(product)
            words = [f"{key} {value}" for table in unit for key, value in table.model_dump(exclude_none=True).items()]
            if words:
                rows[f"{product} unit"] = ", ".join(words)
    return rows


def _times(tables: LayerTables) -> str:
    """Return the steps in which tables apply; "" for all steps."""
    if not tables.is_timed:
        return ""
    # `until_step` is the first step that does not count.
    return f", steps {tables.from_step}..{'' if tables.until_step is None else tables.until_step - 1}"


def _exception(tables: LayerTables) -> str:
    """Return what differs in some layers, in the words of the file."""
    # What is left are the roles and units that the table changes.
    changed: dict[str, Any] = tables.model_dump(exclude_none=True, exclude={"match", "from_step", "until_step"})
    parts: list[str] = []
    if isinstance(changed.get("operands"), dict):
        del changed["operands"]
        parts += [f"{name} {text}" for name, text in _operands(tables.operands).items()]
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


def _tensors(device: Device) -> list[str]:
    # Each format once, in the order of the roles.
    formats = [_format(device, role) for role in ("weight", "activation", "error", "gradient")]
    return list(dict.fromkeys(formats))


def _accumulator(device: Device) -> str:
    table = device.precision.mac
    return str(device.precision.mac_of("").accumulator) if table is None else str(table.accumulator or "exact")


def all_models() -> Output:
    """Return the shipped models."""
    columns = (
        Column("model", "model"),
        Column("input", "input", lambda shape: "x".join(map(str, shape))),
        Column("layers", "layers", is_number=True),
        Column("parameters", "parameters", is_number=True),
        Column("training", "training", _length),
        Column("description", "description"),
    )
    rows: list[tuple[Any, ...]] = []
    for name in model_names():
        recipe = load_recipe(name)
        network = build_network(recipe.network)
        # Layers with parameters: pooling and activations do not count.
        layers = len({layer.name for layer, _ in network.parameters()})
        parameters = _parameters(network.layers)
        rows.append((name, recipe.network.input, layers, parameters, _lengths(recipe), recipe.description))
    hint = Text("\nemu models NAME shows one in full; a path of a .toml file works as well.")
    return Output([Table(columns, rows, layout=_DESCRIBED), hint])


def one_model(name_or_path: str | Path) -> Output:
    """Return all of a model: its layers with the shapes of their outputs, and how it is trained."""
    if is_network(name_or_path):
        from emu.cli.graphs import list_network

        return list_network(Path(name_or_path))
    recipe = load_recipe(name_or_path)
    network, training = build_network(recipe.network), recipe.training
    # Shapes have one more item than layers: the first is that of the input.
    rows: list[tuple[Any, ...]] = [("input", None, recipe.network.input, None)]
    inside: set[str] = set()
    for layer, shape in zip(network.layers, recipe.network.shapes()[1:], strict=True):
        parts = list(every(layer.parts()))
        # Parts of layers are indented in the table, and have no shape of their own.
        inside |= {part.name for part in parts}
        rows.append((layer.name, layer.type_name, shape, _parameters([layer]) or None))
        rows += [(part.name, part.type_name, None, _parameters([part]) or None) for part in parts]
    columns = (
        Column("layer", "layer", lambda name: f"  {name}" if name in inside else name),
        Column("type", "type"),
        Column("output", "output_shape"),
        Column("parameters", "parameters", is_number=True),
    )
    optimiser = training.optimiser
    about = {
        "parameters": str(_parameters(network.layers)),
        "loss": recipe.network.loss,
        "data": _data(recipe),
        "training": f"{_length(_lengths(recipe))}, batch {training.batch}, seed {training.seed}",
        "optimiser": f"{optimiser.name}, learning rate {optimiser.learning_rate:g}, {training.schedule.name}",
        "source": recipe.source,
    }
    data = {"model": recipe.model_dump(mode="json", exclude_none=True), "parameters": _parameters(network.layers)}
    heading = Text(f"{recipe.name}: {recipe.description}\n")
    return Output([heading, Table(columns, rows, "layers"), Text(), Facts(about, data)])


def _parameters(layers: Sequence[Layer]) -> int:
    """Return the number of parameters of layers, including the layers inside them."""
    return sum(math.prod(parameter.shape) for layer in every(layers) for parameter in layer.parameters())


def _lengths(recipe: Recipe) -> dict[str, Any]:
    """Return how long a model is trained, in steps or in epochs."""
    training = recipe.training
    return {"steps": training.steps} if training.steps else {"epochs": training.epochs}


def _length(lengths: dict[str, Any]) -> str:
    return ", ".join(f"{count} {unit}" for unit, count in lengths.items())


def _data(recipe: Recipe) -> str:
    data = recipe.data
    return f"{data.count} synthetic frames" if isinstance(data, Frames) else data.source
