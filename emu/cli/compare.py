"""The command `emu compare`: write the page of a comparison, and print its numbers and first differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emu.cli.output import Column, Output, Table
from emu.report.comparison import Compared, read_compared
from emu.report.comparison.agreement import losses_agree, sentences, weights_agree
from emu.report.comparison.datapaths import datapaths_of
from emu.report.comparison.numbers import Numbers, numbers_of
from emu.report.comparison.page import write_comparison
from emu.report.comparison.settings import settings_of
from emu.report.words import NO_NUMBER, duration, energy, percent, seconds

_COLUMNS = (
    Column("run", "name"),
    Column("accuracy", "test_accuracy", "{:.2%}".format, NO_NUMBER, is_number=True),
    Column("loss", "test_loss", "{:.4f}".format, NO_NUMBER, is_number=True),
    Column("overflow", "overflow", percent, NO_NUMBER, is_number=True),
    Column("underflow", "underflow", percent, NO_NUMBER, is_number=True),
    Column("energy/step", "joules", energy, NO_NUMBER, is_number=True),
    Column("simulated", "simulated_s", duration, NO_NUMBER, is_number=True),
    Column("took", "took_s", seconds, NO_NUMBER, is_number=True),
)
#: Most keys of values that differ which a line names.
_NAMED = 4


def comparison_output(folders: Sequence[Path], out: Path) -> Output:
    """Write the page that compares runs; return its numbers and first differences, and as data all that differs.

    Raises:
        ConfigError: there are fewer than two runs, a folder is no run or cannot be read, or the page cannot be written.
    """
    runs = read_compared(folders)
    write_comparison(runs, out)
    parts: list[Any] = [Table(_COLUMNS, [_row(numbers_of(run)) for run in runs])]
    for other in runs[1:]:
        parts += ["", f"{other.name} and {runs[0].name}", *(f"  {text}" for text in sentences(runs[0], other))]
    # The table and the lines are a selection for the terminal; JSON has all of it.
    return Output([*parts, "", *_differences(runs), f"page      {out}"], _data(runs, out))


def _row(own: Numbers) -> tuple[Any, ...]:
    # A pair is (share, tensor); the table shows the share, the page both.
    worst = (pair and pair[0] for pair in (own.overflow, own.underflow))
    return (own.name, own.test_accuracy, own.test_loss, *worst, own.joules, own.simulated_seconds, own.seconds)


def _differences(runs: Sequence[Compared]) -> list[str]:
    """Return a line about formats, and one for each of recipe, device and run that has values which differ."""
    datapaths = datapaths_of(runs)
    different = sum(len(set(paths)) > 1 for paths in datapaths.values())
    lines = [f"formats   {different} of {len(datapaths)} tensors differ in format, rounding, overflow rule or unit"]
    for of, settings in settings_of(runs).items():
        keys = [setting.key for setting in settings if setting.differs]
        shown = ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
        lines.append(f"{of:<10}{shown or 'equal'}")
    return lines


def _data(runs: Sequence[Compared], out: Path) -> dict[str, Any]:
    """Return what the page shows besides its curves, as plain data."""
    return {
        "runs": [asdict(numbers_of(run)) for run in runs],
        "agreement": [_agreement(runs[0], other) for other in runs[1:]],
        "formats": [
            {"layer": layer, "role": role, "differs": len(set(paths)) > 1, "datapaths": paths}
            for (layer, role), paths in datapaths_of(runs).items()
        ],
        "settings": {
            of: {setting.key: setting.values for setting in settings if setting.differs}
            for of, settings in settings_of(runs).items()
        },
        "page": str(out),
    }


def _agreement(first: Compared, other: Compared) -> dict[str, Any]:
    weights, losses = weights_agree(first, other), losses_agree(first, other)
    return {
        "run": other.name,
        "with": first.name,
        "weights_equal_to_step": weights.equal_to,
        "weights_differ_at_step": weights.differs_at,
        "loss_equal_to_step": losses.equal_to,
        "loss_differs_at_step": losses.differs_at,
        "sentences": sentences(first, other),
    }
