"""What the machine is: its compute units, number formats and links, one machine per TOML file.

Source: docs/design/machines.md, "Machines and simulated time"; the files are in `devices/`.
"""

from emu.hardware.arithmetic_tables import MacTable, RoleTable
from emu.hardware.device import Compute, ComputeUnit, Device, device_names, load_device
from emu.hardware.dynamic_point import DynamicPoint
from emu.hardware.fabric import Fabric, Path
from emu.hardware.fabric_events import events_of
from emu.hardware.interconnect import Crossbar, Link, Topology
from emu.hardware.machine import DECISION, Demand, Machine, machine_of
from emu.hardware.precision_table import OPTIONAL_ROLES, ROLES, PrecisionTable, RegisterTable
from emu.hardware.quantity import Quantity
from emu.hardware.statistics_unit import StatisticsUnit
from emu.hardware.timeline import Event, Timeline, chrome_trace
from emu.hardware.traffic import Copied, Held, Sent, Traffic
from emu.hardware.vector_unit import VectorUnit

__all__ = [
    "DECISION",
    "OPTIONAL_ROLES",
    "ROLES",
    "Compute",
    "ComputeUnit",
    "Copied",
    "Crossbar",
    "Demand",
    "Device",
    "DynamicPoint",
    "Event",
    "Fabric",
    "Held",
    "Link",
    "MacTable",
    "Machine",
    "Path",
    "PrecisionTable",
    "Quantity",
    "RegisterTable",
    "RoleTable",
    "Sent",
    "StatisticsUnit",
    "Timeline",
    "Topology",
    "Traffic",
    "VectorUnit",
    "chrome_trace",
    "device_names",
    "events_of",
    "load_device",
    "machine_of",
]
