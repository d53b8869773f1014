"""RTL as a function: Verilog or VHDL in a simulator, called with arrays, so that every check of `emu.testing` takes it.

    unit = Unit("mul.v", "mul", {"a": In("fp16"), "b": In("fp16"), "y": Out("fp16")}, clock="clk")
    unit(x, y)                                                     what the unit computes
    unit.check("vectors/mul")                                      golden vectors, as `emu check`
    check_backend(unit.as_function("multiply"), formats=["fp16"])  the arithmetic contract

bench.py        what a testbench drives       handshakes.py, ports.py    its parts
languages/      testbenches as text           simulators/                who runs them
"""

from emu.testing.rtl.handshakes import HANDSHAKES, Handshake
from emu.testing.rtl.manners import Difference
from emu.testing.rtl.options import UnitOptions
from emu.testing.rtl.ports import Constant, End, Flags, In, Mode, Out, RandomBits
from emu.testing.rtl.unit import Unit

__all__ = [
    "HANDSHAKES",
    "Constant",
    "Difference",
    "End",
    "Flags",
    "Handshake",
    "In",
    "Mode",
    "Out",
    "RandomBits",
    "Unit",
    "UnitOptions",
]
