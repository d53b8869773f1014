"""Run a search from its file to its report: on an engine, with a progress bar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from emu._interrupt import Interrupted
from emu._toml import toml_of
from emu.errors import ConfigError
from emu.jobs import Runs, open_engine
from emu.jobs.bars import RunsBar
from emu.jobs.engine import LOCAL
from emu.jobs.sending import Sending
from emu.report.search import build_search_report, read_search
from emu.report.search.page import CONFIRM, DEVICES, device_file
from emu.search.confirming import confirming_toml
from emu.search.design import Design
from emu.search.drive import Drive
from emu.search.file import Search, Values, load_search
from emu.search.ledger import Ledger
from emu.search.metrics import Metrics, of_shapes
from emu.search.snapshot import Snapshot
from emu.search.space import Space
from emu.training.folders.run_folder import RunFolder
from emu.training.folders.study_folder import ATTEMPTS, StudyFolder, kept_in

SEARCHES = Path("searches")


@dataclass(frozen=True)
class SearchOptions:
    """How a search is run. These options do not change its trials.

    Attributes:
        on: name of the engine; see `emu.jobs.open_engine`.
        workers: processes of this machine; None for one per processor.
        backend: backend of all runs.
        cache: whether runs are taken from the cache of runs, and kept there.
        store: address of an object store to which workers bring their runs; None if they see the search's folder.
        storage: URL of a database for the trials, which other commands may share; None for a journal in the folder.
    """

    on: str = LOCAL
    workers: int | None = None
    backend: str = "auto"
    cache: bool = True
    store: str | None = None
    storage: str | None = None


def run_search(search_file: Path, out: Path | None = None, options: SearchOptions | None = None) -> Path:
    """Start or continue a search until its trials have ended, and build its report; return the report's path.

    Args:
        search_file: the TOML file.
        out: folder of the search; None for `searches/NAME`.
        options: how it is run.

    Raises:
        ConfigError: the search or an option breaks a rule; the folder or the storage has trials of another search; the
            engine or the storage cannot be reached; or the baseline cannot be trained. Finished runs and trials are
            kept.
        Interrupted: Ctrl-C; it names what is kept.
    """
    options = options or SearchOptions()
    # before the search is loaded, which may take long
    if options.workers is not None and options.workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {options.workers}; leave it out to use every processor")
    search = load_search(search_file)
    space = Space(search, str(search_file))
    metrics = Metrics(search, space, str(search_file))

    # asked for every draw: a trial that must break a bound on area or energy is not worth training
    def is_possible(values: Values) -> bool:
        try:
            setup = space.setup(values)
            return not metrics.bounds_shapes or not metrics.before_training(of_shapes(setup))
        except ConfigError:
            return False

    home = StudyFolder((out or SEARCHES / search.name).resolve())
    snapshot = Snapshot(home)
    # known to the handler of an interrupt, which may come before it is made
    ledger = None
    try:
        ledger = Ledger(search, Design(search, is_possible), home.path, options.storage)
        snapshot.begin(ledger)
        # a search that has ended needs no engine: only its report is built again
        if not ledger.is_done():
            sending = Sending(home, options.backend, options.cache, options.store)
            _run_trials(search, space, metrics, ledger, sending, snapshot, options)
    except KeyboardInterrupt:
        if ledger is None:
            raise Interrupted(f"no trial was begun; {home.path} keeps what it had") from None
        raise Interrupted(kept_in(home, _ended(ledger), search.trials, "trials")) from None
    snapshot.write(ledger)
    _write_devices(search, space, home)
    return build_search_report(home.path)


def _write_devices(search: Search, space: Space, home: StudyFolder) -> None:
    """Write the devices on the front as files, and a study of them; remove the files of what has left it."""
    files: dict[str, str] = {}
    for trial in read_search(home.path).front():
        comment = f"Found by the search {search.name}: trial {trial.number}."
        files[device_file(trial)] = toml_of(space.setup(trial.values).device, comment)
    folder = home.path / DEVICES
    folder.mkdir(exist_ok=True)
    # their trials have left the front since the last command
    for path in folder.glob("trial-*.toml"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        RunFolder(folder).write_text(name, text)
    if files:
        paths = [str(folder / name) for name in sorted(files)]
        RunFolder(home.path).write_text(CONFIRM, confirming_toml(search, paths))
    else:
        # of fewer trials than before: it would name devices that are gone
        (home.path / CONFIRM).unlink(missing_ok=True)


def _run_trials(
    search: Search,
    space: Space,
    metrics: Metrics,
    ledger: Ledger,
    sending: Sending,
    snapshot: Snapshot,
    options: SearchOptions,
) -> None:
    ended = _ended(ledger)
    bar = RunsBar("trials", search.trials, sending.home.path / ATTEMPTS, lambda key, share: _part(search, key, share))

    def say(line: str) -> None:
        # counted when a trial ends, not at each tick: counting reads the storage
        nonlocal ended
        ended = _ended(ledger)
        bar.say(f"{ended}/{search.trials}  {line}")

    with sending, Runs(open_engine(options.on, options.workers)) as runs, bar:
        drive = Drive(space, metrics, ledger, sending, snapshot, say)
        drive.run(runs, lambda: bar.update(ended, sorted(runs.running()), drive.doing(runs)))


def _ended(ledger: Ledger) -> int:
    return sum(trial.state.is_finished() for trial in ledger.trials())


def _part(search: Search, key: str, share: float) -> float:
    """Return how much of its trial is done when so much of a run is: a trial trains its seeds one after the other."""
    trial, _, seed = key.partition("-seed")
    if not trial.startswith("trial-") or not seed:  # the baseline is no trial
        return 0.0
    # earlier seeds are done
    return ([str(seed) for seed in search.seeds].index(seed) + share) / len(search.seeds)
