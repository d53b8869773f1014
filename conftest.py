"""Doctests are looked for in every module, but in those that need PyTorch where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["emu/torch.py", "emu/interop/torch"]
