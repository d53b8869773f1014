"""The warning of NaN that was written as 0 if no flags count it: once for each line that called an operation."""

from __future__ import annotations

import inspect
import warnings
from types import FrameType

from emu.errors import EmuWarning
from emu.formats import Format

#: Packages whose frames lie between a user's line and the warning. Other packages of emu, such as networks, get none.
_OPERATIONS = ("emu.engine.", "emu.sparse.")


def warn_of_lost_nan(fmt: Format) -> None:
    """Warn at the line that called an operation, unless emu itself called it.

    Python shows a warning once for each line and text: its filters decide, as `warnings.filterwarnings` sets them.
    """
    frame, level = inspect.currentframe(), 1
    # up to the first frame outside the engine, counted for `stacklevel`, which names the line that the user sees
    while frame is not None and _name(frame).startswith(_OPERATIONS):
        frame, level = frame.f_back, level + 1
    if frame is not None and _name(frame).startswith("emu."):
        return
    text = f"NaN was written as 0, since {fmt} has no NaN; mask NaN first, or count such results: `flags=emu.Flags()`"
    warnings.warn(text, EmuWarning, stacklevel=level)


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
