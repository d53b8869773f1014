"""A device: one machine, described in one TOML file.

    name, description, source        what it is, and where its numbers are from
    [precision]                      formats, rounding, overflow, Mac and registers (`PrecisionTable`)
    [dynamic_point]                  how open points are chosen (`DynamicPoint`)
    [compute]                        clock, lanes, memory bandwidth, units
    [[links]]                        what connects it to others (`Link`)
    [crossbar], [topology]           the switch between nodes, and how many there are
    [cost]                           the table of energies and areas, and the memory (`DeviceCost`)

Each number of the machine has its source beside it, and its unit in its name.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from emu._config import FILE_NAME, Items, Table, checked, load_toml
from emu._paths import content_names, find_content, shown
from emu.errors import ConfigError, FormatError
from emu.hardware.arithmetic_tables import RoleTable
from emu.hardware.cost_table import BASE_TABLE
from emu.hardware.dynamic_point import DynamicPoint
from emu.hardware.interconnect import Crossbar, Link, Topology, require_connected
from emu.hardware.operand_tables import OperandTables
from emu.hardware.precision_table import DEFAULT_LOSS_FORMAT, EVERY_ROLE, ROLES, LayerTables, PrecisionTable
from emu.hardware.quantity import Count, Latency, Rate, Share, Tiles

#: Kinds of compute units; see `ComputeUnit`.
MAC_ARRAY, MATRIX_UNIT, STATISTICS, HOST = "mac_array", "matrix_unit", "statistics", "host"


class ComputeUnit(Table):
    """A compute unit.

    Attributes:
        kind: `mac_array`: lanes that multiply and add; `matrix_unit`: computes matrix products only; `statistics`:
            counts leading bits; `host`: the computer beside the device, which computes what the device cannot.
        lanes: results per cycle.
        clock_hz: its own clock; None means the device's.
        operands: formats that the unit takes, with * for any part of a name; empty for all.
        read_ports: vectors of operands per cycle; None if lanes never wait for operands.
        fill_cycles: cycles from the first operand to the first result in memory, of an operation or of each wave of
            tiles; None for none.
        start_s: from the end of an operation to the beginning of the next; None for none.
        efficiency: share of the peak that is reached; None is all of it.
        count: multiprocessors, which have the lanes in equal parts.
        tiles: tiles of a product, of which each multiprocessor computes one at a time; None if all lanes share one
            evenly.
        splits: parts into which the depth of a product may be divided, so that more tiles are there; their sums are
            added in memory. None for one.
    """

    kind: Literal["mac_array", "matrix_unit", "statistics", "host"]
    lanes: Count | None = None
    clock_hz: Rate | None = None
    # `exclude_if`: keys that a file does not give are left out when the device is written
    operands: Items[str] = Field(default=(), exclude_if=lambda names: not names)
    read_ports: Count | None = Field(default=None, exclude_if=lambda ports: ports is None)
    fill_cycles: Count | None = Field(default=None, exclude_if=lambda cycles: cycles is None)
    start_s: Latency | None = Field(default=None, exclude_if=lambda start: start is None)
    efficiency: Share | None = Field(default=None, exclude_if=lambda share: share is None)
    count: Count | None = Field(default=None, exclude_if=lambda count: count is None)
    tiles: Tiles | None = Field(default=None, exclude_if=lambda tiles: tiles is None)
    splits: Count | None = Field(default=None, exclude_if=lambda splits: splits is None)

    @model_validator(mode="after")
    def _whole(self) -> ComputeUnit:
        if (self.tiles is None) != (self.count is None):
            given, missing = ("tiles", "count") if self.count is None else ("count", "tiles")
            raise ConfigError(
                f"a unit must have `count` and `tiles` together, because each multiprocessor computes a tile, got "
                f"`{given}` alone; add `{missing}`, or remove `{given}`"
            )
        if self.splits is not None and self.tiles is None:
            raise ConfigError(
                "`splits` of a unit must come with `tiles`, whose number it raises, got it alone; add them"
            )
        if self.tiles is not None and self.read_ports is not None:
            raise ConfigError("a unit must have `tiles` or `read_ports`, got both; remove one")
        if self.efficiency is not None and (self.tiles is not None or self.read_ports is not None):
            other, why = (
                ("tiles", "each of which has its share")
                if self.tiles
                else ("read_ports", "which say what it waits for")
            )
            raise ConfigError(f"a unit must have `efficiency` or `{other}`, {why}, got both; remove one")
        return self


class Compute(Table):
    """The compute units and their speed. A device without a clock has bits but no times.

    Attributes:
        clock_hz: clock of every unit without its own.
        lanes: multiply-accumulates per cycle.
        memory_bandwidth_bytes_per_s: between the units and the main memory.
        memory_efficiency: share of it that operations reach; None is all of it.
        units: units by name.
    """

    clock_hz: Rate | None = None
    lanes: Count | None = None
    memory_bandwidth_bytes_per_s: Rate | None = None
    memory_efficiency: Share | None = Field(default=None, exclude_if=lambda share: share is None)
    units: dict[str, ComputeUnit] = Field(default_factory=dict[str, ComputeUnit])

    @property
    def memory_bytes_per_s(self) -> float | None:
        """Bytes per second that operations move through the memory; None if the device does not give its bandwidth."""
        nominal, share = self.memory_bandwidth_bytes_per_s, self.memory_efficiency
        return None if nominal is None else nominal.value * (share.value if share else 1.0)


class DeviceCost(Table):
    """The technology of a device, and the memory that its numbers are in.

    Attributes:
        table: a cost table: its name, or the path of its file.
        memory: level of memory that operands come from and results go to; None is the table's `main` if the device has
            a memory bandwidth, else its `on_chip`.
    """

    table: str = BASE_TABLE
    memory: str | None = None


class Device(Table):
    """One machine.

    Attributes:
        name: what `--device` calls it.
        description: one sentence.
        source: where its numbers are from.
        precision: number formats and arithmetic; each role has a format.
        dynamic_point: how open binary points are chosen; None if formats leave none open.
        compute: units and speeds.
        links: connections to other devices.
        crossbar: the switch between nodes; None if there is none.
        topology: numbers of nodes and devices; None for as many nodes of one device as the crossbar has ports.
        cost: technology and memory; None is the base table.
    """

    name: str = Field(pattern=FILE_NAME)
    description: str = Field(min_length=1)
    source: str = Field(min_length=1)
    precision: PrecisionTable
    dynamic_point: DynamicPoint | None = Field(default=None, exclude_if=lambda table: table is None)
    compute: Compute = Compute()
    links: Items[Link] = ()
    crossbar: Crossbar | None = Field(default=None, exclude_if=lambda table: table is None)
    topology: Topology | None = Field(default=None, exclude_if=lambda table: table is None)
    cost: DeviceCost | None = Field(default=None, exclude_if=lambda table: table is None)

    @model_validator(mode="after")
    def _complete(self) -> Device:
        # `loss`, the last role, may be missing: `load_device` gives it a default, which must fit its other keys
        _loss_table(self.precision)
        tables = {role: self.precision.role(role) for role in ROLES[:-1]}
        missing = [role for role, table in tables.items() if table is None or table.format is None]
        if missing:
            names = ", ".join(f"`{role}`" for role in missing)
            headers = ", ".join(f"[precision.{role}]" for role in missing)
            each = ", each" if len(missing) > 1 else ""
            raise ConfigError(
                f"a device must give every tensor role a format, got none for {names}; add {headers}{each} with "
                "`format = ...`"
            )
        return self

    @model_validator(mode="after")
    def _sound(self) -> Device:
        self._require_points_can_be_chosen()
        self._require_clocks()
        self._require_statistics_keep_up()
        require_connected(self.links, self.crossbar, self.topology)
        return self

    def _require_points_can_be_chosen(self) -> None:
        for tables, role in product((self.precision, *self.precision.layers), ("master", "loss")):
            table = tables.role(role)
            if table is not None and table.word is not None:
                where = f" in layers {tables.match}" if isinstance(tables, LayerTables) else ""
                raise ConfigError(
                    f"the format of role `{role}`{where} must have a fixed binary point, got {table.format}: its "
                    "numbers are kept while other points move; write fraction bits instead of the question mark"
                )
        if self.has_open_points and not any(unit.kind == STATISTICS for unit in self.compute.units.values()):
            raise ConfigError(
                f"device {self.name} has words with open points and must have a unit of kind {STATISTICS!r}, which "
                "counts leading bits, got none; add [compute.units.statistics]"
            )

    def _require_clocks(self) -> None:
        timed = {name: unit for name, unit in self.compute.units.items() if unit.lanes is not None}
        clocked = [name for name, unit in timed.items() if unit.clock_hz is not None]
        unclocked = [name for name in timed if name not in clocked]
        if self.compute.clock_hz is None and clocked and unclocked:
            raise ConfigError(
                f"unit {unclocked[0]!r} must have a clock, because unit {clocked[0]!r} has its own and times need "
                "both, got none; add `clock_hz` to the unit, or to [compute] for all"
            )

    def _require_statistics_keep_up(self) -> None:
        units = self.compute.units
        lanes = {name: unit.lanes.value for name, unit in units.items() if unit.lanes is not None}
        # every pair of units, as a statistics unit counts the results of any array
        for counts, feeds in product(lanes, lanes):
            kinds, taken, given = (units[counts].kind, units[feeds].kind), lanes[counts], lanes[feeds]
            if kinds == (STATISTICS, MAC_ARRAY) and taken < given:
                raise ConfigError(
                    f"unit {counts!r} must have at least the {given:g} lanes of {feeds!r}, because it counts that "
                    f"unit's results in the same cycles, got {taken:g}; give it as many"
                )

    @property
    def has_open_points(self) -> bool:
        """Whether the format of a role leaves its point to dynamic fixed point."""
        tables = [self.precision, *self.precision.layers]
        role_tables = (table.role(role) for table in tables for role in EVERY_ROLE)
        return any(role_table is not None and role_table.word is not None for role_table in role_tables)

    @property
    def has_delayed_scales(self) -> bool:
        """Whether scales of cast operands follow from earlier steps, in some layer."""
        tables = [self.precision, *self.precision.layers]
        return any(isinstance(table.operands, OperandTables) and table.operands.delayed for table in tables)

    def with_dynamic_point(self, over: DynamicPoint | None, *, origin: str) -> Device:
        """Return this device with a recipe's `[dynamic_point]` over its own.

        Raises:
            ConfigError: no format of the device leaves its point open.
        """
        if over is not None and not self.has_open_points:
            raise ConfigError(
                f"[dynamic_point] of {origin} must be used with a device whose words have open points (such as "
                f"fix16f?) and statistics registers, got device {self.name}, which has none; choose a device like "
                "dlu16, or remove the table"
            )
        if not self.has_open_points:
            return self
        return self.model_copy(update={"dynamic_point": (over or DynamicPoint()).over(self.dynamic_point)})

    def with_precision(self, over: PrecisionTable, *, origin: str) -> Device:
        """Return this device with another `[precision]` laid over its own.

        Args:
            over: the upper table, a recipe's for instance; its layers come last and so win.
            origin: what messages call the upper table's source.

        Raises:
            ConfigError: the two cannot be combined.
        """
        try:
            precision = over.over(self.precision)
        except FormatError as error:
            raise ConfigError(f"{error} (in {origin}: precision, laid over device {self.name})") from None
        device = self.model_copy(update={"precision": precision})
        # `model_copy` validates nothing, and the upper table may have opened a point
        device._require_points_can_be_chosen()
        return device


def device_names() -> list[str]:
    """Return the names of the shipped devices, sorted."""
    return content_names("devices")


def load_device(name_or_path: str | Path | Device) -> Device:
    """Return a shipped device by name, or the one a TOML file describes; a device as it is.

    The role `loss` gets its default here, so that a loaded device has a format for each role.

    Raises:
        ConfigError: no such device, or its file breaks a rule.

    Examples:
        >>> load_device("fp16").precision.stage("conv1", "weight").format
        Float(5, 10)
    """
    if isinstance(name_or_path, Device):
        return name_or_path
    path = find_content("devices", name_or_path)
    device = checked(Device, load_toml(path), file=shown(path))
    precision = device.precision.model_copy(update={"loss": _loss_table(device.precision)})
    return device.model_copy(update={"precision": precision})


def _loss_table(precision: PrecisionTable) -> RoleTable:
    """Return the table of the role `loss`, laid over its default.

    Raises:
        FormatError: its overflow rule is none of the default format.
    """
    return (precision.loss or RoleTable()).over(RoleTable(format=DEFAULT_LOSS_FORMAT))
