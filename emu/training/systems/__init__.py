"""The systems that training runs on: one module each, one line in the list.

system.py          their shape: what a system may do to a run, and when
dynamic_points.py  points chosen from leading bits, operations that run again
simulated_time.py  the time of each operation on the device's clock
delayed_scales.py  scales of operands from the largest magnitudes of earlier steps
clipping.py        gradients of each processing unit, clipped layer by layer
data_parallel.py   batches divided among nodes, gradients exchanged
contributions.py   gradients of several processing units, before they are added up
joint_points.py    binary points that nodes choose together
summed.py          counts of several processes, added up
loss_scaling.py    the loss at a scale, passes that run again at a smaller one
batch_sizes.py     sizes of mini-batches, and how many nodes share them, by measurement
stop.py            tests that end a run
"""

from emu.training.systems.batch_sizes import BatchSizes
from emu.training.systems.clipping import Clipping
from emu.training.systems.data_parallel import DataParallel
from emu.training.systems.delayed_scales import DelayedScaling
from emu.training.systems.dynamic_points import DynamicPoints
from emu.training.systems.loss_scaling import ScaledLoss
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.systems.stop import Stop
from emu.training.systems.system import (
    AskTimes,
    Attempt,
    Examples,
    PartAttempt,
    Row,
    System,
    Trial,
    require_known,
    step_times_of,
)

#: Every system, the innermost around a pass first.
SYSTEMS: tuple[type[System], ...] = (
    DynamicPoints,
    DelayedScaling,
    SimulatedTime,
    Clipping,
    DataParallel,
    ScaledLoss,
    BatchSizes,
    Stop,
)

__all__ = [
    "SYSTEMS",
    "AskTimes",
    "Attempt",
    "Examples",
    "PartAttempt",
    "Row",
    "System",
    "Trial",
    "require_known",
    "step_times_of",
]
