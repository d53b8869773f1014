"""The storage of a search: a study of Optuna in a journal or a database, which several processes may share.

Errors of a storage that does not answer are raised as a `ConfigError` that names the storage.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from emu.errors import ConfigError
from emu.search.file import Search
from emu.search.journal import open_journal

#: Seconds to wait for a database before it counts as unreachable.
CONNECT_S = 10
#: How often opening a database is tried again, and the seconds between.
MAKING, AGAIN_S = 3, 1.0
#: Seconds for which a process waits for the attributes of a study that another process has just made, and between two
#: looks.
ATTRIBUTES_S, LOOK_S = 2.0, 0.05
#: The storage in the folder of a search.
JOURNAL = "journal.log"


class Storage:
    """The trials of a search, by their numbers.

    Only one process can begin a waiting trial.

    Attributes:
        address: address of the storage, without a password.
    """

    def __init__(self, search: Search, folder: Path, address: str | None) -> None:
        """Open the storage, or make it.

        Args:
            search: the search.
            folder: folder of the search.
            address: URL of a database such as `postgresql://user@host/name`; None for a journal in the folder.

        Raises:
            ConfigError: it does not answer, or is damaged.
        """
        self.address = _shown(address) if address else str(folder / JOURNAL)
        self._objectives = search.objective
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with self._reaching():
            self._trials: Any = (
                optuna.storages.JournalStorage(open_journal(folder / JOURNAL))
                if address is None
                else _database(address)
            )
            directions = [objective.direction for objective in search.objective]
            options: dict[str, Any] = {"storage": self._trials, "study_name": search.name, "directions": directions}
            # whoever comes first makes it, and only one process does
            try:
                self._study, self._is_maker = optuna.create_study(**options), True
            except optuna.exceptions.DuplicatedStudyError:
                self._study, self._is_maker = optuna.create_study(**options, load_if_exists=True), False
            self._study_id: int = self._trials.get_study_id_from_name(search.name)
            with suppress(ValueError), _quiet():  # the ledger refuses a stored study with other objectives
                self._study.set_metric_names([objective.metric for objective in search.objective])

    def attribute(self, name: str, default: str) -> str:
        """Return an attribute of the study; set it to `default` if there is none.

        The process that made the study sets it. Others wait for that, unless it was killed before.
        """
        with self._reaching():
            until = time.monotonic() + (0.0 if self._is_maker else ATTRIBUTES_S)
            while (stored := self._study.user_attrs.get(name)) is None and time.monotonic() < until:
                time.sleep(LOOK_S)
            if stored is None:
                self._study.set_user_attr(name, default)
            return default if stored is None else stored

    def trials(self) -> list[Any]:
        """Return all trials, by number, as objects of Optuna."""
        with self._reaching():
            # not copied, because callers only read them
            return cast("list[Any]", self._study.get_trials(deepcopy=False))

    def trial(self, number: int) -> Any:
        """Return the present state of a trial."""
        with self._reaching():
            return self._trials.get_trial(self._id(number))

    def add(self) -> None:
        """Add a waiting trial."""
        with self._reaching():
            self._study.add_trial(_optuna().trial.create_trial(state=state("WAITING")))

    def begin(self, trial: Any) -> bool:
        """Mark a trial as running; return False if another process has begun or ended it since it was read.

        Args:
            trial: a waiting trial, or a running one that is taken from its holder.
        """
        with self._reaching():
            try:
                own = self._id(trial.number)
                # Optuna lets a single process change a trial from waiting to running, so a lost one waits first
                if trial.state == state("RUNNING"):
                    # its lease has changed since it was read: the holder counts again, or
                    # another process has taken the trial
                    if self._trials.get_trial(own).user_attrs != trial.user_attrs:
                        return False
                    self._trials.set_trial_state_values(own, state("WAITING"))
                return bool(self._trials.set_trial_state_values(own, state("RUNNING")))
            except _optuna().exceptions.UpdateFinishedTrialError:
                return False

    def put_back(self, number: int) -> None:
        """Mark a trial as waiting."""
        with self._reaching():
            self._trials.set_trial_state_values(self._id(number), state("WAITING"))

    def set_attribute(self, number: int, name: str, value: Any) -> None:
        """Set an attribute of a trial."""
        with self._reaching():
            self._trials.set_trial_user_attr(self._id(number), name, value)

    def set_parameter(self, number: int, name: str, spread: Any, value: Any) -> None:
        """Set a parameter of a trial.

        Args:
            number: number of the trial.
            name: name of the parameter.
            spread: Optuna's distribution of the parameter.
            value: value of the parameter.
        """
        with self._reaching():
            self._trials.set_trial_param(self._id(number), name, spread.to_internal_repr(value), spread)

    def end(
        self,
        number: int,
        attributes: Mapping[str, Any],
        values: Sequence[float] | None,
        violations: Mapping[str, float],
    ) -> None:
        """End a trial; do nothing if it has ended.

        Args:
            number: number of the trial.
            attributes: attributes to store with it.
            values: values of its objectives; None if it has failed.
            violations: by how much it misses each constraint, by its name.
        """
        with self._reaching(), suppress(_optuna().exceptions.UpdateFinishedTrialError):
            own = self._id(number)
            # before the state: an ended trial takes no attribute
            for name, value in attributes.items():
                self._trials.set_trial_user_attr(own, name, value)
            for name, violation in violations.items():
                # where `trial.constraints` of this version of Optuna reads them
                self._trials.set_trial_system_attr(own, f"constraints:{name}", violation)
            if values is None:
                self._trials.set_trial_state_values(own, state("FAIL"))
            else:
                self._trials.set_trial_state_values(own, state("COMPLETE"), [float(value) for value in values])

    def _id(self, number: int) -> int:
        return self._trials.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def importances(self) -> dict[str, dict[str, float]]:
        """Return, by objective, how much each variable matters (PED-ANOVA); empty if there are too few trials.

        An objective that is the same in all trials is left out: nothing made a difference to it.
        """
        optuna = _optuna()
        importances: dict[str, dict[str, float]] = {}
        finished = [trial for trial in self.trials() if trial.values]
        for index, objective in enumerate(self._objectives):
            if len({trial.values[index] for trial in finished}) < 2:
                continue

            # defaults bind index and sign now, while the loop goes on; the importance is of low values
            def less_is_better(
                trial: Any, index: int = index, sign: int = -1 if objective.direction == "maximize" else 1
            ) -> float:
                return sign * trial.values[index]

            with suppress(ValueError, RuntimeError), self._reaching(), _quiet():
                importances[objective.metric] = optuna.importance.get_param_importances(
                    self._study,
                    evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
                    target=less_is_better,
                )
        return {metric: shares for metric, shares in importances.items() if shares}

    @contextmanager
    def _reaching(self) -> Generator[None]:
        """Raise a ConfigError of one line instead of the errors of storages that cannot be reached."""
        optuna = _optuna()
        import sqlalchemy.exc

        try:
            yield
        except (ImportError, sqlalchemy.exc.NoSuchModuleError) as error:
            raise ConfigError(
                f"--storage must name a database whose driver is installed, got {str(error)!r} for {self.address}; "
                "install it, or name another one, such as postgresql+psycopg:// for psycopg"
            ) from None
        except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
            cause: BaseException = error
            # the first cause, such as a connection that was refused, says more than what wraps it
            while cause.__cause__ is not None:
                cause = cause.__cause__
            reason = " ".join(str(getattr(cause, "orig", None) or cause).split())
            raise ConfigError(
                f"the storage of a search must answer within {CONNECT_S} s, got {reason!r} from {self.address}; check "
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
    """Silence warnings about experimental parts of Optuna, and about few trials."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def state(name: str) -> Any:
    """Return Optuna's state of trials by its name."""
    return _optuna().trial.TrialState[name]


def _database(address: str) -> Any:
    """Open a database; try again if it answers with an error, for example while another process makes its tables."""
    import sqlalchemy.exc

    optuna = _optuna()
    # the try after the loop raises its error
    for _ in range(MAKING):
        began = time.monotonic()
        try:
            return _opened(address)
        except sqlalchemy.exc.NoSuchModuleError:
            raise
        except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError):
            if time.monotonic() - began > CONNECT_S / 2:  # no answer: another try would take as long
                raise
            time.sleep(AGAIN_S)
    return _opened(address)


def _opened(address: str) -> Any:
    from sqlalchemy.event import listen

    storage = _optuna().storages.RDBStorage(address, engine_kwargs=_impatient(address))
    if _kind(address) == "sqlite":
        # SQLite has no SELECT FOR UPDATE, with which Optuna lets a single process begin a trial: two processes would
        # both read "waiting", and both begin it. So each transaction locks the database before its first read
        listen(storage.engine, "begin", _lock_whole)
    return storage


def _lock_whole(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _impatient(address: str) -> dict[str, Any]:
    """Return options that limit the wait for a database that does not answer."""
    kind = _kind(address)
    if kind in ("postgresql", "mysql", "mariadb"):
        # `pool_pre_ping`: a connection that the server has closed meanwhile is replaced before it is used
        return {"connect_args": {"connect_timeout": CONNECT_S}, "pool_pre_ping": True}
    if kind == "sqlite" and "timeout=" not in address:
        # a URL that has a timeout of its own keeps it
        return {"connect_args": {"timeout": CONNECT_S}}
    return {}


def _kind(address: str) -> str:
    """Return the kind of a database, such as `sqlite`, from its URL."""
    return address.partition(":")[0].partition("+")[0]


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
