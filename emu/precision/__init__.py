"""Who decides formats.

A policy gives every tensor role of every layer its output stage and its multiply-accumulate unit.

    policy.py       role and layer -> output stage, Mac
    counters.py     registers and flags per layer and role
    profile.py      where the time goes, by layer, role and operation
    layer_role.py   the unit that writes a tensor, and where its counts go
    runner.py       runs operations (emu.operations) by a policy; control loops are runners around it
    shapes.py       asks what operations cost, by shapes alone

Loss scaling and dynamic fixed point are control loops: they run, measure, compare and run again.
"""

from emu.precision.counters import Counters, CounterTable
from emu.precision.policy import BACKWARD_ROLES, DERIVED_ROLES, Policy
from emu.precision.profile import Profile
from emu.precision.runner import DatapathRunner, RecordingRunner

__all__ = [
    "BACKWARD_ROLES",
    "DERIVED_ROLES",
    "CounterTable",
    "Counters",
    "DatapathRunner",
    "Policy",
    "Profile",
    "RecordingRunner",
]
