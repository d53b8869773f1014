"""What the machine is: its compute units, number formats and links, one machine per TOML file.

Source: docs/design/machines.md; the files are in `devices/`.
"""

from emu.hardware.device import Compute, Device, Link, Quantity, Unit, device_names, load_device
from emu.hardware.dynamic_point import DynamicPoint
from emu.hardware.machine import DECISION, Demand, Machine, machine_of
from emu.hardware.precision_table import ROLES, MacTable, PrecisionTable, RegisterTable, RoleTable
from emu.hardware.statistics_unit import StatisticsUnit
from emu.hardware.timeline import Event, Timeline, chrome_trace
from emu.hardware.vector_unit import VectorUnit

__all__ = [
    "DECISION",
    "ROLES",
    "Compute",
    "Demand",
    "Device",
    "DynamicPoint",
    "Event",
    "Link",
    "MacTable",
    "Machine",
    "PrecisionTable",
    "Quantity",
    "RegisterTable",
    "RoleTable",
    "StatisticsUnit",
    "Timeline",
    "Unit",
    "VectorUnit",
    "chrome_trace",
    "device_names",
    "load_device",
    "machine_of",
]
