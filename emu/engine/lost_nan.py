"""The warning of NaN that was written as 0 where no flags count it: once for each line that called an operation."""

from __future__ import annotations

import sys
import warnings

from emu.errors import EmuWarning
from emu.formats import Format

#: What stands between a caller's line and an operation; other packages of emu, such as networks, call without asking.
_OPERATIONS = ("emu.engine.", "emu.sparse.")


def warn_of_lost_nan(fmt: Format) -> None:
    """Warn at the line that called an operation, unless emu itself called it.

    Python shows a warning once for each line and text: its filters decide, as `warnings.filterwarnings` sets them.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_OPERATIONS):
        frame, level = frame.f_back, level + 1
    if str(frame.f_globals.get("__name__")).startswith("emu."):
        return
    text = f"NaN was written as 0, since {fmt} has no NaN; mask NaN first, or count such results: `flags=emu.Flags()`"
    warnings.warn(text, EmuWarning, stacklevel=level)
