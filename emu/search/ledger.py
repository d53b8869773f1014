"""The trials of a search, and which process holds which, if several processes and machines share the storage.

    waiting ──take──► running, leased to a process ──tell──► finished
                         │  the process has ended, or its count stands still
                         └──► waiting

A running trial names its holder (`emu.training.folders.lease`): computer, process, a token, and a count that increases.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emu.errors import ConfigError
from emu.search.design import Design, Past, distribution
from emu.search.file import Search, Values
from emu.search.storage import Storage, state
from emu.training.folders.lease import Counts, Holder, has_ended

#: Seconds between two counts of a trial that is held.
BEAT_S = 10.0
#: Seconds without a new count after which a trial's process counts as lost: six counts.
LOST_S = 60.0
#: User attributes of a study and of its trials.
SEARCH, HOLDER, RESULTS = "search", "holder", "emu"
#: Keys of a search that may be changed without invalidating its trials.
#: more trials continue a search; the first of them stay the same
_FREE = {"trials", "description"}


class Ledger:
    """The trials of a search.

    Attributes:
        search: the search.
        design: gives each trial its values.
    """

    def __init__(self, search: Search, design: Design, folder: Path, address: str | None = None) -> None:
        """Open the storage, or make it.

        Args:
            search: the search.
            design: gives each trial its values.
            folder: folder of the search.
            address: URL of a database such as `postgresql://user@host/name`; None for a journal in the folder.

        Raises:
            ConfigError: it does not answer, is damaged, or has another search of this name.
        """
        self.search, self.design = search, design
        self._storage = Storage(search, folder, address)
        self._token = uuid.uuid4().hex
        self._held: set[int] = set()
        self._counts = Counts(LOST_S)
        self._renewed_at = time.monotonic()
        self._require_own()

    def _require_own(self) -> None:
        # as text, because the storage keeps texts; the first process stores it
        own = json.dumps(self.search.model_dump(mode="json", exclude=_FREE), sort_keys=True)
        stored = self._storage.attribute(SEARCH, own)
        if stored != own:
            before, now = json.loads(stored), json.loads(own)
            changed = [key for key in now if now[key] != before.get(key)]
            raise ConfigError(
                f"trials of one search must be kept under its name, got {self.search.name!r} in "
                f"{self._storage.address}, whose {', '.join(f'`{key}`' for key in changed)} differ from this file's; "
                "choose another `name` or --out, or change the file back"
            )

    # ---- trials ----

    def trials(self) -> list[Any]:
        """Return the trials of the search, by number, as objects of Optuna."""
        # the storage may have more, if the file asked for more before
        return self._storage.trials()[: self.search.trials]

    def past(self, trials: Sequence[Any]) -> list[Past]:
        """Return the trials that have ended."""
        return [
            Past(trial.number, trial.params, tuple(trial.values) if trial.values else None, dict(trial.constraints))
            for trial in trials
            if trial.state.is_finished()
        ]

    def first_with(self, values: Values) -> int:
        """Return the number of the first trial that has these values, which one must have."""
        return next(trial.number for trial in self.trials() if trial.params == values)

    def is_done(self) -> bool:
        """Return whether every trial has ended."""
        trials = self.trials()
        return len(trials) == self.search.trials and all(trial.state.is_finished() for trial in trials)

    # ---- take a trial, hold it, end it ----

    def take(self) -> tuple[int, Values] | None:
        """Take the first free trial whose values can be drawn; return its number and values, or None if there is none.

        This process holds the trial until `tell` or `fail`, or until `renew` returns it as lost.
        """
        trials = self.trials()
        ended = [trial.state.is_finished() for trial in trials]
        for trial in trials:
            if trial.number in self._held or trial.state.is_finished():
                continue
            # its values depend on results that are not there yet
            if not all(ended[: self.design.waits_for(trial.number)]):
                return None  # later trials wait for at least as many
            if self._claim(trial):
                return trial.number, self._drawn(trial, trials)
        if len(trials) < self.search.trials:
            # then taken like any other, because another process may be faster
            self._storage.add()
            return self.take()
        return None

    def _claim(self, trial: Any) -> bool:
        """Take a trial if it is free or its holder is lost; return whether this process holds it now."""
        if trial.state == state("RUNNING") and not self._is_lost(trial):
            return False
        if not self._storage.begin(trial):
            return False
        self._held.add(trial.number)
        # before values are drawn: drawing may take long
        self._write_lease(trial.number, 0)
        return True

    def _is_lost(self, trial: Any) -> bool:
        """Return whether the process that holds a trial has ended, or its count has stood still for long."""
        holder: dict[str, Any] = trial.user_attrs.get(HOLDER) or {}
        if has_ended(holder):
            return True
        self._counts.note(trial.number, holder)
        return self._counts.stands_still(trial.number)

    def _drawn(self, trial: Any, trials: Sequence[Any]) -> Values:
        values = self.design.values(trial.number, self.past(trials))
        for variable in self.search.variable:
            # a lost trial may have some already: the same values, because they are a function of its number
            if variable.name not in trial.params:
                spread, value = distribution(variable), values[variable.name]
                self._storage.set_parameter(trial.number, variable.name, spread, value)
        return values

    def renew(self) -> list[int]:
        """Renew the leases of this process if that is due; return the trials that another process has taken."""
        if time.monotonic() - self._renewed_at < BEAT_S:
            return []
        self._renewed_at = time.monotonic()
        lost: list[int] = []
        for number in sorted(self._held):
            # asked of the storage, which another process may have written since
            if self._is_ours(number):
                # seconds of a monotonic clock: any number that grows will do
                self._write_lease(number, round(self._renewed_at))
            else:
                self._held.remove(number)
                lost.append(number)
        return lost

    def tell(self, number: int, values: Sequence[float], violations: dict[str, float], results: dict[str, Any]) -> None:
        """Record the results of a trial, unless another process has taken it."""
        self._end(number, results, values, violations)

    def fail(self, number: int, results: dict[str, Any]) -> None:
        """Record that a trial failed, unless another process has taken it."""
        self._end(number, results, None, {})

    def _end(
        self, number: int, results: dict[str, Any], values: Sequence[float] | None, violations: Mapping[str, float]
    ) -> None:
        # a trial that was taken over is the other process's to end
        if self._is_ours(number):
            self._storage.end(number, {RESULTS: results}, values, violations)
        self._held.discard(number)

    def let_go(self) -> None:
        """Give back all trials that this process holds, because the command ends before them."""
        for number in sorted(self._held):
            if self._is_ours(number):
                self._storage.put_back(number)
            self._held.remove(number)

    def _is_ours(self, number: int) -> bool:
        if number not in self._held:
            return False
        trial = self._storage.trial(number)
        # by token: after a restart, another process may have this process's number
        return not trial.state.is_finished() and trial.user_attrs.get(HOLDER, {}).get("token") == self._token

    def _write_lease(self, number: int, count: int) -> None:
        self._storage.set_attribute(number, HOLDER, Holder.here(count, self._token).plain())

    def importances(self) -> dict[str, dict[str, float]]:
        """Return, by objective, how much each variable matters (PED-ANOVA); empty if there are too few trials."""
        return self._storage.importances()
