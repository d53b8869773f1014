"""Where the trials of a search are kept: a study of Optuna, which several processes and machines may share.

    waiting ──take──► running, held by a process ──tell──► finished
                         │  the process has ended, or its count stands still
                         └──► waiting

A trial that is held says who holds it: computer, process, a token, and a count that goes on. Storage lets one process
alone take a waiting trial.
"""

from __future__ import annotations

import json
import os
import platform
import time
import uuid
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from emu.errors import ConfigError
from emu.search.file import Search, Values
from emu.search.journal import open_journal
from emu.search.plan import Past, Plan, distribution

#: Seconds between two counts of a trial that is held.
BEAT_S = 10.0
#: Seconds without a count after which a trial's process counts as lost.
LOST_S = 60.0
#: Seconds to wait for a database before it counts as unreachable.
CONNECT_S = 10
#: How often a database is opened again, and the seconds between; a wait for one that does not answer is longer.
MAKING, AGAIN_S = 3, 1.0
#: The storage in the folder of a search.
JOURNAL = "journal.log"
#: User attributes of a study and of its trials.
SEARCH, HOLDER, TOLD = "search", "holder", "emu"
#: What a search may change while its trials stay.
_FREE = {"trials", "description"}


class Ledger:
    """The trials of a search.

    Attributes:
        search: the search.
        plan: which values they have.
        place: where they are kept, without a password.
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
        self.place = _shown(address) if address else str(folder / JOURNAL)
        self._token = uuid.uuid4().hex
        self._held: dict[int, int] = {}
        self._seen: dict[int, tuple[Any, float]] = {}
        self._beaten = time.monotonic()
        self._study = self._opened(folder, address)
        self._require_own()

    def _opened(self, folder: Path, address: str | None) -> Any:
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with self._reaching():
            if address is None:
                storage: Any = optuna.storages.JournalStorage(open_journal(folder / JOURNAL))
            else:
                storage = _database(address)
            study = optuna.create_study(
                storage=storage,
                study_name=self.search.name,
                directions=[one.direction for one in self.search.objective],
                load_if_exists=True,
            )
            with suppress(ValueError), _quiet():  # one that is there with other objectives is refused below
                study.set_metric_names([one.metric for one in self.search.objective])
            return study

    def _require_own(self) -> None:
        own = json.dumps(self.search.model_dump(mode="json", exclude=_FREE), sort_keys=True)
        with self._reaching():
            there = self._study.user_attrs.get(SEARCH)
            if there is None:
                self._study.set_user_attr(SEARCH, own)
                there = own
        if there != own:
            before, now = json.loads(there), json.loads(own)
            changed = [key for key in now if now[key] != before.get(key)]
            raise ConfigError(
                f"trials of one search must be kept under its name, got {self.search.name!r} in {self.place}, whose "
                f"{', '.join(f'`{key}`' for key in changed)} differ from this file's; choose another `name` or --out, "
                "or change the file back"
            )

    # ---- what there is ----

    def trials(self) -> list[Any]:
        """Return the trials of the search, by number, as Optuna has them."""
        with self._reaching():
            return cast("list[Any]", self._study.get_trials(deepcopy=False))[: self.search.trials]

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
            with self._reaching():
                self._study.add_trial(_optuna().trial.create_trial(state=_state("WAITING")))
            return self.take()
        return None

    def _claim(self, trial: Any) -> bool:
        """Return whether a trial is ours now."""
        storage, number = self._study._storage, trial._trial_id
        if trial.state == _state("RUNNING") and not self._is_lost(trial):
            return False
        with self._reaching():
            try:
                if trial.state == _state("RUNNING"):
                    if storage.get_trial(number).user_attrs.get(HOLDER) != trial.user_attrs.get(HOLDER):
                        return False  # another process took it meanwhile
                    storage.set_trial_state_values(number, _state("WAITING"))
                mine = storage.set_trial_state_values(number, _state("RUNNING"))
            except _optuna().exceptions.UpdateFinishedTrialError:
                return False
            if mine:
                self._held[trial.number] = number
                self._say(trial.number, 0)
            return bool(mine)

    def _is_lost(self, trial: Any) -> bool:
        """Return whether the process that holds a trial has ended, or its count has stood still for long."""
        holder: dict[str, Any] = trial.user_attrs.get(HOLDER) or {}
        if holder.get("computer") == platform.node() and not _lives(holder.get("process")):
            return True
        now = time.monotonic()
        if self._seen.get(trial.number, (None, now))[0] != holder:
            self._seen[trial.number] = holder, now
        return now - self._seen[trial.number][1] > LOST_S

    def _drawn(self, trial: Any, trials: Sequence[Any]) -> Values:
        values = self.plan.values(trial.number, self.past(trials))
        with self._reaching():
            for variable in self.search.variable:
                if variable.name in trial.params:
                    continue
                spread, value = distribution(variable), values[variable.name]
                place = self._study._storage, trial._trial_id
                place[0].set_trial_param(place[1], variable.name, spread.to_internal_repr(value), spread)
        return values

    def renew(self) -> list[int]:
        """Say, now and then, that our trials are still held; return those that another process took."""
        if time.monotonic() - self._beaten < BEAT_S:
            return []
        self._beaten = time.monotonic()
        lost: list[int] = []
        for number in list(self._held):
            if self._is_ours(number):
                self._say(number, round(self._beaten))
            else:
                del self._held[number]
                lost.append(number)
        return lost

    def tell(self, number: int, values: Sequence[float], violations: dict[str, float], told: dict[str, Any]) -> None:
        """Keep the result of a trial; one that another process took meanwhile is that one's."""
        if not self._is_ours(number):
            self._held.pop(number, None)
            return
        trial_id = self._held.pop(number)
        storage = self._study._storage
        with self._reaching(), suppress(_optuna().exceptions.UpdateFinishedTrialError):
            storage.set_trial_user_attr(trial_id, TOLD, told)
            for name, violation in violations.items():
                storage.set_trial_system_attr(trial_id, f"constraints:{name}", violation)
            storage.set_trial_state_values(trial_id, _state("COMPLETE"), [float(value) for value in values])

    def fail(self, number: int, told: dict[str, Any]) -> None:
        """Keep that a trial failed."""
        if not self._is_ours(number):
            self._held.pop(number, None)
            return
        trial_id = self._held.pop(number)
        with self._reaching(), suppress(_optuna().exceptions.UpdateFinishedTrialError):
            self._study._storage.set_trial_user_attr(trial_id, TOLD, told)
            self._study._storage.set_trial_state_values(trial_id, _state("FAIL"))

    def let_go(self) -> None:
        """Give back what is held: the command ends before its trials do."""
        for number in list(self._held):
            if self._is_ours(number):
                with self._reaching():
                    self._study._storage.set_trial_state_values(self._held[number], _state("WAITING"))
            del self._held[number]

    def _is_ours(self, number: int) -> bool:
        if number not in self._held:
            return False
        with self._reaching():
            trial = self._study._storage.get_trial(self._held[number])
        return not trial.state.is_finished() and trial.user_attrs.get(HOLDER, {}).get("token") == self._token

    def _say(self, number: int, count: int) -> None:
        holder = {"computer": platform.node(), "process": os.getpid(), "token": self._token, "count": count}
        with self._reaching():
            self._study._storage.set_trial_user_attr(self._held[number], HOLDER, holder)

    def importances(self) -> dict[str, dict[str, float]]:
        """Return by objective how much each variable matters (PED-ANOVA); empty where there are too few trials."""
        optuna = _optuna()
        found: dict[str, dict[str, float]] = {}
        for index, one in enumerate(self.search.objective):

            def less_is_better(
                trial: Any, index: int = index, sign: int = -1 if one.direction == "maximize" else 1
            ) -> float:
                return sign * trial.values[index]

            with suppress(ValueError, RuntimeError), self._reaching(), _quiet():
                found[one.metric] = optuna.importance.get_param_importances(
                    self._study,
                    evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
                    target=less_is_better,
                )
        return {metric: shares for metric, shares in found.items() if shares}

    @contextmanager
    def _reaching(self) -> Generator[None]:
        """Turn what storages raise when they cannot be reached into an error of one line."""
        optuna = _optuna()
        import sqlalchemy.exc

        try:
            yield
        except (ImportError, sqlalchemy.exc.NoSuchModuleError) as error:
            raise ConfigError(
                f"--storage must name a database whose driver is installed, got {str(error)!r} for {self.place}; "
                "install it, or name another one, such as postgresql+psycopg:// for psycopg"
            ) from None
        except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            reason = " ".join(str(getattr(cause, "orig", None) or cause).split())
            raise ConfigError(
                f"the storage of a search must answer within {CONNECT_S} s, got {reason!r} from {self.place}; check "
                "--storage. Finished runs and trials are kept: the same command goes on from them"
            ) from None


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "emu search must have Optuna, which is not installed; run: pip install 'emu-numerics[search]'"
        ) from None
    return optuna


@contextmanager
def _quiet() -> Generator[None]:
    """Silence warnings about parts of Optuna that may change, and about few trials."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _state(name: str) -> Any:
    return _optuna().trial.TrialState[name]


def _database(address: str) -> Any:
    """Open a database; where another process makes its tables at the same time, once more."""
    import sqlalchemy.exc

    optuna = _optuna()
    for _ in range(MAKING):
        began = time.monotonic()
        try:
            return optuna.storages.RDBStorage(address, engine_kwargs=_impatient(address))
        except sqlalchemy.exc.NoSuchModuleError:
            raise
        except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError):
            if time.monotonic() - began > AGAIN_S:
                raise
            time.sleep(AGAIN_S)
    return optuna.storages.RDBStorage(address, engine_kwargs=_impatient(address))


def _impatient(address: str) -> dict[str, Any]:
    """Return options that end the wait for a database that does not answer."""
    kind = address.partition(":")[0].partition("+")[0]
    if kind in ("postgresql", "mysql", "mariadb"):
        return {"connect_args": {"connect_timeout": CONNECT_S}, "pool_pre_ping": True}
    return {}


def _shown(address: str) -> str:
    """Return an address without its password."""
    import sqlalchemy
    import sqlalchemy.exc

    try:
        return sqlalchemy.make_url(address).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        raise ConfigError(
            f"--storage must be the URL of a database such as postgresql://user@host/name, got {address!r}"
        ) from None


def _lives(process: object) -> bool:
    """Return whether a process of this computer lives, as far as can be seen."""
    if not isinstance(process, int):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
