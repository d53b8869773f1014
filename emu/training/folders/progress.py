"""How far a run is, read from its folder, whose files another process may be writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from emu._files import read_json
from emu._tables import arrow_errors, read_parquet
from emu.training.folders.run_folder import RUN

#: Table with a row for each log point.
METRICS = "metrics.parquet"


@dataclass(frozen=True)
class RunProgress:
    """How far a run is.

    Attributes:
        began: step at which its process began or resumed it.
        done: last step of the table of metrics.
        planned: number of steps; 0 if it is not known.
        spent_s: seconds from step `began` to step `done`.
    """

    began: int
    done: int
    planned: int
    spent_s: float

    @property
    def share(self) -> float | None:
        """Share of the steps that is done, 0..1; None if the number of steps is not known."""
        return self.done / self.planned if self.planned else None

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at the speed so far; None before the first log point."""
        # no speed before the first log point of this process, and nothing left after the last
        if not self.planned > self.done > self.began or self.spent_s <= 0:
            return None
        return self.spent_s / (self.done - self.began) * (self.planned - self.done)


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one if the file cannot be read now."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def progress_of(folder: Path, info: Mapping[str, Any]) -> RunProgress:
    """Return how far a run is.

    Args:
        folder: folder of the run.
        info: content of its `run.json`, which was written when its process began or resumed it.
    """
    began, planned = (_count(info.get(key)) for key in ("steps", "steps_planned"))
    path = folder / METRICS
    try:
        steps: list[int] = read_parquet(path, ["step"]).column("step").to_pylist()
        # run.json is written when the process begins, and again only at its end
        spent_s = path.stat().st_mtime - (folder / RUN).stat().st_mtime
    # KeyError: the table has no column `step`
    except (*arrow_errors(), KeyError):  # not written yet, or being copied
        return RunProgress(began, began, planned, 0.0)
    return RunProgress(began, max([*steps, began]), planned, spent_s)


def _count(number: object) -> int:
    """Return a number of steps; 0 if a damaged file has something else."""
    return number if isinstance(number, int) else 0
