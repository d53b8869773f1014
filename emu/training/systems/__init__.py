"""The systems that training runs on: one module each, one line in the list.

system.py          their shape: what a system may do to a run, and when
dynamic_points.py  points chosen from leading bits, operations that run again
simulated_time.py  what every operation takes on the device's clock
loss_scaling.py    the loss at a scale, passes that run again at a smaller one
"""

from emu.training.systems.dynamic_points import DynamicPoints
from emu.training.systems.loss_scaling import ScaledLoss
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.systems.system import Attempt, Row, Surroundings, System

#: Every system, the innermost around a pass first.
SYSTEMS: tuple[type[System], ...] = (DynamicPoints, SimulatedTime, ScaledLoss)

__all__ = ["SYSTEMS", "Attempt", "Row", "Surroundings", "System"]
