"""How long a step of a cluster takes: compute, quantise, send, wait, update, in picoseconds.

cycle.py          steps that repeat
timelines.py      resources of all devices at once; processes side by side
program.py        a device's step as tasks, from its demands
striping.py       a layer's output channels divided among devices
grouping.py       whole layers divided among devices
teams.py          which devices share a model, a node, an exchange
messages.py       sizes of messages
rows.py           gradients of some rows: how many, and their messages
kernels.py        how long quantising takes
counts.py         how long adding up the counts of nodes takes
step_schedule.py  what a step consists of, and how long it takes
controlling.py    layers that controllers update: who takes which
scheduling.py     from `[cluster]` to the schedule of a step
step.py           plays a schedule
"""

from emu.cluster.timing.counts import NO_COUNTS, Counts, counts_of
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.program import Part, Program, Task, Use
from emu.cluster.timing.rows import Rows, arrived_rows
from emu.cluster.timing.scheduling import Share, alone, controllers_of, fabric_of, schedule_of, teams_of
from emu.cluster.timing.step import play
from emu.cluster.timing.step_schedule import Clips, Group, StepSchedule, StepTime
from emu.cluster.timing.teams import Teams
from emu.cluster.timing.timelines import DeviceTimelines, Processes, Signal

__all__ = [
    "NO_COUNTS",
    "Clips",
    "Counts",
    "DeviceTimelines",
    "Group",
    "Kernels",
    "Part",
    "Processes",
    "Program",
    "Rows",
    "Share",
    "Signal",
    "StepSchedule",
    "StepTime",
    "Task",
    "Teams",
    "Use",
    "alone",
    "arrived_rows",
    "controllers_of",
    "counts_of",
    "fabric_of",
    "play",
    "schedule_of",
    "teams_of",
]
