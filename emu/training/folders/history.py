"""The tables of a run: a row of metrics for each log point, and the counts of the interval before it."""

from __future__ import annotations

from typing import Any, NamedTuple

from emu.datapath import FLAG_NAMES, ScaleCounts
from emu.precision import CounterTable, Profile
from emu.training.folders.run_folder import RunFolder
from emu.training.folders.tables import OPTIONAL_TABLES, TABLES

_SCALARS = ("none", "below", "above", "nonfinite", "total")


class History:
    """The tables of a run folder, grown row by row."""

    def __init__(self) -> None:
        self._columns: dict[str, dict[str, list[Any]]] = {
            name: {c: [] for c in columns} for name, columns in TABLES.items()
        }

    @classmethod
    def read(cls, folder: RunFolder, step: int) -> History:
        """Return the history of a run up to a step."""
        history = cls()
        for name in TABLES:
            history._columns[name] = folder.read_table(name, up_to_step=step)
        return history

    def add(self, table: str, **row: Any) -> None:
        """Add a row; columns that are not given are null."""
        for column, values in self._columns[table].items():
            # every column grows by one, so that all stay of one length
            values.append(row.get(column))

    def add_counts(self, step: int, counters: CounterTable, counter_bits: int) -> None:
        """Add the registers and flags of the interval that ends at `step`.

        Args:
            step: training step.
            counters: counters of the interval.
            counter_bits: width of the device's registers.
        """
        for (layer, role), counts in counters.items():
            # nothing was written in this role since the last log point: no rows, rather than rows of 0
            if not counts.elements:
                continue
            where = {"step": step, "layer": layer, "role": role}
            # a table holds what the hardware's counters would show, which stop at their largest value
            register = counts.register.saturated(counter_bits)
            for kind, side in (("positive", register.positive), ("negative", register.negative)):
                for exponent, count in sorted(side.items()):
                    self.add("registers", **where, kind=kind, exponent=exponent, count=count)
            for kind in _SCALARS:
                self.add("registers", **where, kind=kind, count=getattr(register, kind))
            flags = dict(zip(FLAG_NAMES, counts.flags.counts(), strict=True))
            self.add("flags", **where, elements=counts.elements, **flags)
        for (layer, role, factor), counts in counters.scales():
            if counts.blocks:
                self._add_scales({"step": step, "layer": layer, "role": role, "factor": factor}, counts)

    def _add_scales(self, where: dict[str, Any], counts: ScaleCounts) -> None:
        """Add the counts of blocks, in the order of `ScaleCounts`."""
        numbers = counts.to_dict()
        # taken out first: what is left are single numbers, a row for each
        for exponent, count in numbers.pop("exponents"):
            self.add("scales", **where, kind="scale", exponent=exponent, count=count)
        for kind, count in numbers.items():
            self.add("scales", **where, kind=kind, count=count)

    def add_profile(self, step: int, profile: Profile) -> None:
        """Add the times that operations took in the interval that ends at `step`."""
        for row in profile.rows():
            # an empty text in a row of the profile stands for "none", which is null in a table
            self.add("profile", step=step, **{name: None if value == "" else value for name, value in row.items()})

    def last(self, table: str, column: str) -> Any:
        """Return the newest value of a column that is not null, or None."""
        return next((value for value in reversed(self._columns[table][column]) if value is not None), None)

    def write(self, folder: RunFolder) -> None:
        """Write every table."""
        for name, columns in self._columns.items():
            # an optional table without a row would only say that its system is not in use
            if columns["step"] or name not in OPTIONAL_TABLES:
                folder.write_table(name, columns)


class Rates(NamedTuple):
    """Shares of written elements that overflowed, that underflowed, and whose accumulator overflowed."""

    overflow: float
    underflow: float
    accumulator_overflow: float


def rates(counters: CounterTable) -> Rates:
    """Return the shares of written elements by flag; 0 if none were written."""
    # rates are of all elements written, of every role and layer together
    elements = sum(c.elements for _, c in counters.items())
    counted = [[getattr(c.flags, name) for name in Rates._fields] for _, c in counters.items()]
    return (
        Rates(*(sum(column) / max(elements, 1) for column in zip(*counted, strict=True)))
        if counted
        else Rates(0.0, 0.0, 0.0)
    )
