"""How long a step of a cluster takes: compute, quantise, send, wait, update, in picoseconds.

line.py      resources of all devices at once; processes side by side
program.py   a device's step as tasks, from its demands
striping.py  a layer's units divided over devices
grouping.py  whole layers divided over devices
teams.py     which devices share a model, a node, an exchange
messages.py  sizes of what is sent
rows.py      gradients of some rows: how many, and their messages
kernels.py   what quantising costs
counts.py    what adding up the counts of nodes costs
step_plan.py what is played, and what is known afterwards
step.py      all of it, played
plan.py      from `[cluster]` to what is played
"""

from emu.cluster.timing.counts import counts_ps
from emu.cluster.timing.kernels import Kernels
from emu.cluster.timing.line import Line, Processes, Signal
from emu.cluster.timing.plan import Share, alone, fabric_of, plan_of, teams_of
from emu.cluster.timing.program import Program, Task
from emu.cluster.timing.rows import Rows, arrived_rows
from emu.cluster.timing.step import play
from emu.cluster.timing.step_plan import Clips, Group, Plan, StepTime
from emu.cluster.timing.teams import Teams

__all__ = [
    "Clips",
    "Group",
    "Kernels",
    "Line",
    "Plan",
    "Processes",
    "Program",
    "Rows",
    "Share",
    "Signal",
    "StepTime",
    "Task",
    "Teams",
    "alone",
    "arrived_rows",
    "counts_ps",
    "fabric_of",
    "plan_of",
    "play",
    "teams_of",
]
