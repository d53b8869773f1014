"""The command `emu compare`: write the page of a comparison, and print its numbers and first differences."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emu.cli.tables import Listing, console
from emu.report.comparison import Compared, read_compared
from emu.report.comparison.agreement import losses_agree, sentences, weights_agree
from emu.report.comparison.datapaths import datapaths_of
from emu.report.comparison.numbers import Numbers, numbers_of
from emu.report.comparison.page import write_comparison
from emu.report.comparison.settings import settings_of
from emu.report.words import NO_NUMBER, duration, energy, percent, seconds


def compare_runs(folders: Sequence[Path], out: Path, as_json: bool = False) -> None:
    """Write the page that compares runs, and print a table or, with `as_json`, data.

    Raises:
        ConfigError: there are fewer than two runs, a folder is no run or cannot be read, or the page cannot be written.
    """
    runs = read_compared(folders)
    write_comparison(runs, out)
    if as_json:
        print(json.dumps(_data(runs, out), indent=2, ensure_ascii=False))
    else:
        _print(runs, out)


def _print(runs: Sequence[Compared], out: Path) -> None:
    screen, numbers = console(), [numbers_of(run) for run in runs]
    heads = ("run", "accuracy", "loss", "overflow", "underflow", "energy/step", "simulated", "took")
    screen.print(Listing(heads, [_row(own) for own in numbers], numbers=heads[1:]))
    for other in runs[1:]:
        print(f"\n{other.name} and {runs[0].name}")
        for sentence in sentences(runs[0], other):
            screen.print(f"  {sentence}", markup=False, soft_wrap=True)
    print()
    for line in _differences(runs):
        screen.print(line, markup=False, soft_wrap=True)
    screen.print(f"page      {out}", markup=False, soft_wrap=True)


def _row(own: Numbers) -> tuple[str, ...]:
    return (
        own.name,
        NO_NUMBER if own.test_accuracy is None else f"{own.test_accuracy:.2%}",
        NO_NUMBER if own.test_loss is None else f"{own.test_loss:.4f}",
        NO_NUMBER if own.overflow is None else percent(own.overflow[0]),
        NO_NUMBER if own.underflow is None else percent(own.underflow[0]),
        NO_NUMBER if own.joules is None else energy(own.joules),
        NO_NUMBER if own.simulated_seconds is None else duration(own.simulated_seconds),
        NO_NUMBER if own.seconds is None else seconds(own.seconds),
    )


def _differences(runs: Sequence[Compared]) -> list[str]:
    """Return a line about formats, and one for each of recipe, device and run that has values which differ."""
    datapaths = datapaths_of(runs)
    different = sum(len(set(paths)) > 1 for paths in datapaths.values())
    lines = [f"formats   {different} of {len(datapaths)} tensors differ in format, rounding, overflow rule or unit"]
    for of, settings in settings_of(runs).items():
        keys = [setting.key for setting in settings if setting.differs]
        shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
        lines.append(f"{of:<10}{shown or 'equal'}")
    return lines


def _data(runs: Sequence[Compared], out: Path) -> dict[str, Any]:
    """Return what the page shows besides its curves, as plain data."""
    return {
        "runs": [_without_infinity(asdict(numbers_of(run))) for run in runs],
        "agreement": [
            {
                "run": other.name,
                "with": runs[0].name,
                "weights_equal_to_step": weights_agree(runs[0], other).equal_to,
                "weights_differ_at_step": weights_agree(runs[0], other).differs_at,
                "loss_equal_to_step": losses_agree(runs[0], other).equal_to,
                "loss_differs_at_step": losses_agree(runs[0], other).differs_at,
                "sentences": sentences(runs[0], other),
            }
            for other in runs[1:]
        ],
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


def _without_infinity(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return numbers with None instead of those that JSON lacks; a pair of a number and its tensor stays a pair."""

    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def pair(value: Any) -> Any:
        return [plain(value[0]), *value[1:]] if isinstance(value, tuple) else plain(value)

    return {name: pair(value) for name, value in numbers.items()}
