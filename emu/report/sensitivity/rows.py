"""What a sensitivity analysis has measured, read from its folder.

sensitivity.json    network, device, baseline, what is asked
rows.json           a row for each change that is measured: a role of a layer in a narrower format
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from emu._config import checked
from emu._files import read_json
from emu.errors import ConfigError
from emu.report.guessing import is_guess
from emu.report.run_data import table_of
from emu.report.study.difference import Difference

#: Files of the folder.
SENSITIVITY, ROWS = "sensitivity.json", "rows.json"
#: How changes are measured.
EVALUATION, TRAINING = "evaluation", "training"


class Measured(NamedTuple):
    """The result of a change with one seed.

    Attributes:
        accuracy: share of the test examples that is answered right.
        baseline: the same of the unchanged device.
        loss: mean loss of the test examples.
        baseline_loss: the same of the unchanged device.
        overflow: share of the tensor's results that overflowed; None if nothing was written.
        underflow: share that underflowed; likewise.
        changed: number of test answers that differ from the unchanged device's; None of a training.
        spoilt: number of those that were right and are wrong; None of a training.
        mended: number of those that were wrong and are right; None of a training.
    """

    accuracy: float
    baseline: float
    loss: float | None
    baseline_loss: float | None
    overflow: float | None
    underflow: float | None
    changed: int | None = None
    spoilt: int | None = None
    mended: int | None = None


@dataclass(frozen=True)
class Row:
    """A change, and what was measured of it.

    Attributes:
        layer: layer that writes the values.
        role: their role.
        passes: layers that pass them on, and were narrowed with it.
        own: format of the unchanged device.
        format: format that was tried.
        own_bits: width of `own`.
        bits: width of `format`.
        saving: share of the energy that is saved; None if it is not known.
        results: what was measured, by seed; empty if it failed.
        failure: why it could not be measured; empty if it could.
    """

    layer: str
    role: str
    passes: tuple[str, ...]
    own: str
    format: str
    own_bits: int
    bits: int
    saving: float | None
    results: dict[int, Measured] = field(default_factory=dict[int, Measured])
    failure: str = ""

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Row:
        """Return the row that `rows.json` has as plain data."""
        known: dict[str, Any] = {name: value for name, value in plain.items() if name in cls.__dataclass_fields__}
        known["passes"] = tuple(plain["passes"])
        known["results"] = {int(seed): Measured(**measured) for seed, measured in plain.get("results", {}).items()}
        return cls(**known)

    @property
    def tensor(self) -> tuple[str, str]:
        """Layer and role."""
        return self.layer, self.role

    @property
    def lost(self) -> float | None:
        """Accuracy of the unchanged device minus that of the change, a mean over the seeds; None if it failed."""
        # 0.0 minus and not a plain sign: no difference is 0.0, and not -0.0.
        return None if self.difference is None else 0.0 - self.difference.mean

    @property
    def difference(self) -> Difference | None:
        """Accuracy minus the unchanged device's, paired by seed; None if it failed."""
        if not self.results:
            return None
        differences = [measured.accuracy - measured.baseline for measured in self.results.values()]
        # The baseline's mean bounds what a difference can be.
        return Difference.of(differences, mean(measured.baseline for measured in self.results.values()))

    @property
    def loss_increase(self) -> float | None:
        """Test loss minus the unchanged device's, a mean over the seeds; None if it is not a number."""
        pairs = [(measured.loss, measured.baseline_loss) for measured in self.results.values()]
        known = [loss - base for loss, base in pairs if loss is not None and base is not None]
        # A mean over some of the seeds would be of other pairs than the accuracies.
        return mean(known) if known and len(known) == len(pairs) else None

    def share(self, event: str) -> float | None:
        """Return the mean share of `overflow` or `underflow` over the seeds; None if it is not known."""
        shares = [share for measured in self.results.values() if (share := getattr(measured, event)) is not None]
        return mean(shares) if shares else None

    @property
    def answers(self) -> Measured | None:
        """The result of an evaluation, which counts changed answers; None of trainings."""
        first = next(iter(self.results.values()), None)
        # An evaluation trains nothing, so it has a single result.
        return None if first is None or first.changed is None else first


@dataclass(frozen=True)
class Together:
    """All tensors that tolerate a width or a format alone, narrowed at the same time.

    Attributes:
        column: the width or the format, as `Sensitivity.columns` names it.
        tensors: how many tensors were narrowed.
        accuracy: share of the test examples that is answered right.
        lost: accuracy of the unchanged device minus that.
        saving: share of the energy that is saved; None if it is not known.
    """

    column: str
    tensors: int
    accuracy: float
    lost: float
    saving: float | None


@dataclass(frozen=True)
class Sensitivity:
    """A sensitivity analysis.

    Attributes:
        path: its folder.
        about: content of `sensitivity.json`.
        rows: the measured rows that are asked for, in the network's order.
    """

    path: Path
    about: dict[str, Any]
    rows: tuple[Row, ...]

    @property
    def together(self) -> list[Together]:
        """What all tolerated changes of a column do together; only an evaluation measures it, at its end."""
        return [Together(**plain) for plain in self.about.get("together", [])]

    @property
    def is_evaluation(self) -> bool:
        """Whether a trained network was evaluated; if not, networks were trained."""
        return self.about["how"] == EVALUATION

    @property
    def margin(self) -> float:
        """Loss of accuracy that is tolerated, as a share of 1."""
        return float(self.about["margin"])

    @property
    def baseline(self) -> float:
        """Accuracy of the unchanged device, a mean over the seeds."""
        return mean(self.about["baseline"].values())

    @property
    def is_at_chance(self) -> bool:
        """Whether the unchanged device is no better than guessing, so that no loss means anything."""
        return is_guess(self.baseline, self.about["chance"])

    def ranked(self) -> list[Row]:
        """Return the rows by the accuracy that they lose, the largest first; rows that failed come first of all.

        If several lose the same, those that change more answers come first, and of these those that raise the test loss
        by more.
        """

        def sensitive(row: Row) -> tuple[float, int, float]:
            lost = math.inf if row.lost is None else row.lost
            increase = math.inf if row.loss_increase is None else row.loss_increase
            # Rounded, so that losses that differ only by the rounding of their subtraction count as equal.
            return -round(lost, 12), -(row.answers.changed or 0) if row.answers else 0, -increase

        return list(self.rows) if self.is_at_chance else sorted(self.rows, key=sensitive)

    def is_tolerated(self, row: Row) -> bool:
        """Return whether a change loses at most the margin."""
        # accuracies are quotients: half a point of 1,000 images may be 0.0050000000000000044
        return not self.is_at_chance and row.lost is not None and row.lost <= self.margin + 1e-9

    def columns(self) -> list[str]:
        """Return what the columns of the analysis are called: widths, or the formats that were given."""
        if formats := self.about["formats"]:
            return list(formats)
        widths = sorted({row.bits for row in self.rows}, reverse=True)
        return [f"{width} bits" for width in widths]

    def column_of(self, row: Row) -> str:
        """Return the column of a row."""
        return row.format if self.about["formats"] else f"{row.bits} bits"

    def tolerated(self, column: str) -> list[Row]:
        """Return the tolerated changes of a column."""
        return [row for row in self.rows if self.column_of(row) == column and self.is_tolerated(row)]

    def narrowest(self) -> dict[tuple[str, str], Row]:
        """Return, for each tensor with a tolerated change, the one of the fewest bits."""
        best: dict[tuple[str, str], Row] = {}
        for row in self.rows:
            known = best.get(row.tensor)
            if self.is_tolerated(row) and (known is None or row.bits < known.bits):
                best[row.tensor] = row
        return best


class _Together(BaseModel):
    """An entry of `together` in `sensitivity.json`."""

    column: str
    tensors: int
    accuracy: float
    lost: float
    saving: float | None


class _About(BaseModel):
    """What the page reads of `sensitivity.json`."""

    model_config = ConfigDict(strict=True)

    network: str
    device: str
    how: Literal["evaluation", "training"]
    steps: int | None
    examples: int | None
    chance: float | None
    baseline: dict[str, float] = Field(min_length=1)
    margin: float
    formats: list[str]
    asked: list[list[str]]
    energy_of: str
    why_no_energy: str | None
    together: list[_Together] = Field(default_factory=list[_Together])
    search: str | None = None


class _Rows(BaseModel):
    """The content of `rows.json`."""

    rows: list[Row]


def read_sensitivity(folder: Path) -> Sensitivity:
    """Return what an analysis has measured.

    Raises:
        ConfigError: the folder has no sensitivity analysis, or a file of it lacks what the page reads.
    """
    try:
        about = table_of(read_json(folder / SENSITIVITY))
        written = table_of(read_json(folder / ROWS)) if (folder / ROWS).is_file() else dict[str, Any](rows=[])
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the folder of a sensitivity analysis must have a readable {SENSITIVITY} and {ROWS}, got "
            f"{type(error).__name__}: {error} for {folder}; name another folder"
        ) from None
    # Only to raise: the page reads the plain tables, which may have entries of other versions.
    checked(_About, about, file=str(folder / SENSITIVITY))
    checked(_Rows, written, file=str(folder / ROWS))
    return Sensitivity(folder, about, tuple(_asked(about, [Row.of(plain) for plain in written["rows"]])))


def _asked(about: dict[str, Any], rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are asked for now, in their order: the folder may have others from before."""
    known = {(row.layer, row.role, row.format): row for row in rows}
    # JSON has lists, which are no keys of a dict.
    return [known[key] for key in map(tuple, about["asked"]) if key in known]
