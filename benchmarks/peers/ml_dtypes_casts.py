"""ml_dtypes: narrow floats as NumPy dtypes; a cast there and back is its output stage."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.row import Side, StageWork, Task
from emu.formats import parse

PART = 1 << 22
_DTYPES = {"bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}


def sides(task: Task) -> list[Side]:
    """Return its cast to the formats it has, and back to float32."""
    if not isinstance(task, StageWork) or task.rounding != "nearest_even":
        return []
    name = next((dtype for text, dtype in _DTYPES.items() if parse(text) == task.format), None)
    if name is None:
        return []
    dtype: Any = getattr(importlib.import_module("ml_dtypes"), name)
    x = task.x[:PART]
    return [Side("ml_dtypes", lambda: x.astype(dtype).astype(np.float32), x.size, "no statistics")]


PEER = Peer("ml_dtypes", "ml_dtypes", "ml_dtypes", sides)
