"""gfloat: float formats and their rounding as readable array code."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.row import Side, StageWork, Task
from emu.formats import parse

PART = 1 << 18
_FORMATS = {
    "fp16": "format_info_binary16",
    "bf16": "format_info_bfloat16",
    "fp8_e4m3": "format_info_ocp_e4m3",
    "fp8_e5m2": "format_info_ocp_e5m2",
}


def sides(task: Task) -> list[Side]:
    """Return its rounding of the formats it names."""
    if not isinstance(task, StageWork) or task.rounding != "nearest_even":
        return []
    name = next((info for text, info in _FORMATS.items() if parse(text) == task.format), None)
    if name is None:
        return []
    library: Any = importlib.import_module("gfloat")
    info = getattr(importlib.import_module("gfloat.formats"), name)
    x = task.x[:PART]
    return [Side("gfloat", lambda: library.round_ndarray(info, x), x.size, "no statistics")]


PEER = Peer("gfloat", "gfloat", "gfloat", sides)
