"""PyTorch: fake quantisation, casts to narrow floats, and its integer product."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.row import ProductWork, Side, StageWork, Task
from emu.formats import Fixed, Format, parse

_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
NOTE = "no statistics"


def sides(task: Task) -> list[Side]:
    """Return what it can do with the hardware's own types."""
    torch: Any = importlib.import_module("torch")
    if isinstance(task, StageWork) and task.rounding == "nearest_even":
        return _fixed_stage(task, torch) if isinstance(task.format, Fixed) else _float_stage(task, torch)
    if isinstance(task, ProductWork) and task.mac.is_exact and _is_int8(task.a_format):
        a, b = (torch.from_numpy(x.astype(np.int8)) for x in (task.a, task.b))
        return [Side("torch _int_mm", lambda: torch._int_mm(a, b), task.macs, "int32 out: no rounding, no statistics")]
    return []


def _is_int8(fmt: Format) -> bool:
    return isinstance(fmt, Fixed) and fmt == Fixed(8, 0)


def _fixed_stage(task: StageWork, torch: Any) -> list[Side]:
    fmt, x = task.format, torch.from_numpy(task.x)
    if not isinstance(fmt, Fixed):
        return []
    step, limits = math.ldexp(1.0, -fmt.frac_bits), (fmt.min_raw, fmt.max_raw)
    run = lambda: torch.fake_quantize_per_tensor_affine(x, step, 0, *limits)  # noqa: E731
    return [Side("torch fake_quantize", run, x.numel(), NOTE)]


def _float_stage(task: StageWork, torch: Any) -> list[Side]:
    name = next((dtype for text, dtype in _DTYPES.items() if parse(text) == task.format), None)
    if name is None:
        return []
    x, dtype = torch.from_numpy(task.x), getattr(torch, name)
    return [Side("torch", lambda: x.to(dtype).to(torch.float32), x.numel(), NOTE)]


PEER = Peer("torch", "torch", "torch", sides)
