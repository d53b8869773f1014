"""What state a run is in: `run.json` says what its process wrote last, and the claim whether that process still lives.

A process that is killed cannot write, so `run.json` of a dead run may say "running". Whoever shows a state asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emu.training.folders.claim import Claim

#: States of a run, as `status` of `run.json` has them.
STOPPED, FINISHED = "stopped", "finished"
#: Why a run was stopped whose process could not write it.
KILLED = "its process was killed, or its computer went off"


def is_trained(folder: Path) -> bool:
    """Return whether a living process trains in a folder. Ask before reading `run.json`: a run may end in between."""
    return Claim.of_run(folder).is_held()


def with_status(info: Mapping[str, Any], is_trained: bool) -> dict[str, Any]:
    """Return the content of `run.json`; its `status` is "stopped" if it has no end and no process trains the run.

    Args:
        info: content of `run.json`.
        is_trained: what `is_trained` returned before it was read.
    """
    if is_trained or info.get("status") in (STOPPED, FINISHED):
        return dict(info)
    return {**info, "status": STOPPED, "stopped_because": KILLED}
