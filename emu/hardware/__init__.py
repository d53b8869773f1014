"""What the machine is: its compute units, number formats and links, one machine per TOML file.

Source: ARCHITECTURE, "Layout"; the files are in `devices/`.
"""

from emu.hardware.device import Compute, Device, Link, Quantity, Unit, device_names, load_device
from emu.hardware.dynamic_point import DynamicPoint
from emu.hardware.precision_table import ROLES, MacTable, PrecisionTable, RegisterTable, RoleTable

__all__ = [
    "ROLES",
    "Compute",
    "Device",
    "DynamicPoint",
    "Link",
    "MacTable",
    "PrecisionTable",
    "Quantity",
    "RegisterTable",
    "RoleTable",
    "Unit",
    "device_names",
    "load_device",
]
