"""Who holds which trial of a search, where several processes and machines share its storage.

    waiting ──take──► running, leased to a process ──tell──► finished
                         │  the process has ended, or its count stands still
                         └──► waiting

A trial that runs says who holds it (`emu.jobs.lease`): computer, process, a token, and a count that goes on.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emu.errors import ConfigError
from emu.jobs.lease import Counts, Holder, has_ended
from emu.search.file import Search, Values
from emu.search.plan import Past, Plan, distribution
from emu.search.storage import Storage, state

#: Seconds between two counts of a trial that is held.
BEAT_S = 10.0
#: Seconds without a count after which a trial's process counts as lost.
LOST_S = 60.0
#: User attributes of a study and of its trials.
SEARCH, HOLDER, TOLD = "search", "holder", "emu"
#: What a search may change while its trials stay.
_FREE = {"trials", "description"}


class Ledger:
    """The trials of a search.

    Attributes:
        search: the search.
        plan: which values they have.
    """

    def __init__(self, search: Search, plan: Plan, folder: Path, address: str | None = None) -> None:
        """Open the storage, or make it.

        Args:
            search: the search.
            plan: its plan.
            folder: folder of the search.
            address: URL of a database such as `postgresql://user@host/name`; None keeps a journal in the folder.

        Raises:
            ConfigError: it does not answer, is damaged, or holds another search of this name.
        """
        self.search, self.plan = search, plan
        self._storage = Storage(search, folder, address)
        self._token = uuid.uuid4().hex
        self._held: set[int] = set()
        self._counts = Counts(LOST_S)
        self._beaten = time.monotonic()
        self._require_own()

    def _require_own(self) -> None:
        own = json.dumps(self.search.model_dump(mode="json", exclude=_FREE), sort_keys=True)
        there = self._storage.attribute(SEARCH, own)
        if there != own:
            before, now = json.loads(there), json.loads(own)
            changed = [key for key in now if now[key] != before.get(key)]
            raise ConfigError(
                f"trials of one search must be kept under its name, got {self.search.name!r} in "
                f"{self._storage.address}, whose {', '.join(f'`{key}`' for key in changed)} differ from this file's; "
                "choose another `name` or --out, or change the file back"
            )

    # ---- what there is ----

    def trials(self) -> list[Any]:
        """Return the trials of the search, by number, as Optuna has them."""
        return self._storage.trials()[: self.search.trials]

    def past(self, trials: Sequence[Any]) -> list[Past]:
        """Return the trials that have ended."""
        return [
            Past(one.number, one.params, tuple(one.values) if one.values else None, dict(one.constraints))
            for one in trials
            if one.state.is_finished()
        ]

    def is_done(self) -> bool:
        """Return whether every trial has ended."""
        trials = self.trials()
        return len(trials) == self.search.trials and all(one.state.is_finished() for one in trials)

    # ---- a trial's way ----

    def take(self) -> tuple[int, Values] | None:
        """Take the first trial that nobody holds and that can be drawn; return its number and values, None if none can.

        The trial is ours until `tell` or `fail`, or until `renew` says that it was lost.
        """
        trials = self.trials()
        ended = [one.state.is_finished() for one in trials]
        for one in trials:
            if one.number in self._held or one.state.is_finished():
                continue
            if not all(ended[: self.plan.waits_for(one.number)]):
                return None  # those behind it wait for as much
            if self._claim(one):
                return one.number, self._drawn(one, trials)
        if len(trials) < self.search.trials:
            self._storage.add()
            return self.take()
        return None

    def _claim(self, trial: Any) -> bool:
        """Return whether a trial is ours now."""
        if trial.state == state("RUNNING") and not self._is_lost(trial):
            return False
        if not self._storage.begin(trial):
            return False
        self._held.add(trial.number)
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
        values = self.plan.values(trial.number, self.past(trials))
        for variable in self.search.variable:
            if variable.name not in trial.params:
                spread, value = distribution(variable), values[variable.name]
                self._storage.set_parameter(trial.number, variable.name, spread, value)
        return values

    def renew(self) -> list[int]:
        """Say, now and then, that our trials are still held; return those that another process took."""
        if time.monotonic() - self._beaten < BEAT_S:
            return []
        self._beaten = time.monotonic()
        lost: list[int] = []
        for number in sorted(self._held):
            if self._is_ours(number):
                self._write_lease(number, round(self._beaten))
            else:
                self._held.remove(number)
                lost.append(number)
        return lost

    def tell(self, number: int, values: Sequence[float], violations: dict[str, float], told: dict[str, Any]) -> None:
        """Keep the result of a trial; one that another process took meanwhile is that one's."""
        self._end(number, told, values, violations)

    def fail(self, number: int, told: dict[str, Any]) -> None:
        """Keep that a trial failed; one that another process took meanwhile is that one's."""
        self._end(number, told, None, {})

    def _end(
        self, number: int, told: dict[str, Any], values: Sequence[float] | None, violations: Mapping[str, float]
    ) -> None:
        if self._is_ours(number):
            self._storage.end(number, {TOLD: told}, values, violations)
        self._held.discard(number)

    def let_go(self) -> None:
        """Give back what is held: the command ends before its trials do."""
        for number in sorted(self._held):
            if self._is_ours(number):
                self._storage.put_back(number)
            self._held.remove(number)

    def _is_ours(self, number: int) -> bool:
        if number not in self._held:
            return False
        trial = self._storage.trial(number)
        return not trial.state.is_finished() and trial.user_attrs.get(HOLDER, {}).get("token") == self._token

    def _write_lease(self, number: int, count: int) -> None:
        self._storage.set_attribute(number, HOLDER, Holder.here(count, self._token).plain())

    def importances(self) -> dict[str, dict[str, float]]:
        """Return by objective how much each variable matters (PED-ANOVA); empty where there are too few trials."""
        return self._storage.importances()
