"""Who holds which trial, where several processes share a search."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from sqlalchemy.exc import IntegrityError

from emu.errors import ConfigError
from emu.search import Search, ledger, load_search, storage
from emu.search.design import Design
from emu.search.ledger import Ledger
from searches import SEARCH, written


@pytest.fixture(params=["journal", pytest.param("sqlite", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return None if request.param == "journal" else f"sqlite:///{tmp_path / 'trials.db'}"


@pytest.fixture
def search(tmp_path: Path) -> Search:
    return load_search(written(tmp_path))


def opened(search: Search, folder: Path, address: str | None) -> Ledger:
    return Ledger(search, Design(search), folder, address)


def told(ledger: Ledger, number: int, value: float = 1.0) -> None:
    ledger.tell(number, (value, -value), {"lost": -1.0}, {"metrics": {"test_accuracy": value}})


def test_two_ledgers_never_hold_one_trial(search: Search, tmp_path: Path, address: str | None):
    one, other = (opened(search, tmp_path, address) for _ in range(2))
    taken = [one.take(), other.take(), one.take()]
    assert [found[0] for found in taken if found] == [0, 1, 2]
    assert other.take() is None  # trial 3 follows from those three
    told(one, 0)
    assert other.take() is None
    told(other, 1)
    told(one, 2)
    assert [found[0] for found in (other.take(), one.take()) if found] == [3, 4]


def test_a_trial_of_sqlite_is_begun_by_a_single_process_of_two_that_read_it_at_the_same_moment(
    search: Search, tmp_path: Path
):
    """The second one begins it between the first one's read and write."""
    first, second = (storage.Storage(search, tmp_path, f"sqlite:///{tmp_path / 'trials.db'}") for _ in range(2))
    first.add()
    (waiting,) = first.trials()
    begun: list[bool] = []
    other = threading.Thread(target=lambda: begun.append(second.begin(waiting)))

    def interrupted(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("UPDATE trials") and not other.ident:
            other.start()
            other.join(0.5)  # it ends in this time unless it has to wait

    sqlalchemy.event.listen(first._trials.engine, "before_cursor_execute", interrupted)
    begun.append(first.begin(waiting))
    other.join()
    assert sorted(begun) == [False, True]


def test_of_two_processes_that_open_a_search_at_the_same_moment_the_text_of_its_maker_counts(
    search: Search, tmp_path: Path, address: str | None
):
    """The second one looks before the first one has stored its text."""
    maker, other = (storage.Storage(search, tmp_path, address) for _ in range(2))
    stored: list[str] = []
    looking = threading.Thread(target=lambda: stored.append(other.attribute("search", "the other's")))
    looking.start()
    looking.join(0.1)
    assert maker.attribute("search", "the maker's") == "the maker's"
    looking.join()
    assert stored == ["the maker's"]


def test_a_search_whose_maker_was_killed_before_it_stored_its_text_goes_on(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(storage, "ATTRIBUTES_S", 0.0)
    _, other = (storage.Storage(search, tmp_path, None) for _ in range(2))
    assert other.attribute("search", "its own") == other.attribute("search", "a third") == "its own"


def test_every_trial_is_taken_and_kept_once(search: Search, tmp_path: Path, address: str | None):
    ledgers = [opened(search, tmp_path, address) for _ in range(2)]
    done: list[int] = []
    while not ledgers[0].is_done():
        for one in ledgers:
            if found := one.take():
                done.append(found[0])
                told(one, found[0], float(found[0]))
    assert done == list(range(search.trials))
    assert ledgers[1].take() is None
    assert [trial.values[0] for trial in ledgers[1].trials()] == [float(number) for number in done]


def test_trials_of_a_process_that_has_ended_are_taken_at_once_with_their_values(
    search: Search, tmp_path: Path, address: str | None, monkeypatch: pytest.MonkeyPatch
):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    first = opened(search, tmp_path, address)
    monkeypatch.setattr(os, "getpid", lambda: child.pid)
    taken = first.take()
    monkeypatch.undo()
    second = opened(search, tmp_path, address)
    assert second.take() == taken
    told(first, 0, 5.0)  # the first one is not heard any more
    assert not second.trials()[0].state.is_finished()
    told(second, 0, 7.0)
    assert second.trials()[0].values[0] == 7.0


def test_a_lost_trial_that_another_process_took_meanwhile_is_left_to_it(
    search: Search, tmp_path: Path, address: str | None, monkeypatch: pytest.MonkeyPatch
):
    """Both see that it is lost; one takes it between the other's two looks."""
    lost, quick, slow = (opened(search, tmp_path, address) for _ in range(3))
    first, looks = lost.take(), list[int]()
    monkeypatch.setattr(quick, "_is_lost", lambda trial: True)

    def look(trial: Any) -> bool:
        looks.append(trial.number)
        if len(looks) == 1:
            assert quick.take() == first
        return len(looks) == 1

    monkeypatch.setattr(slow, "_is_lost", look)
    second = slow.take()
    assert second is not None
    assert (looks[0], second[0]) == (0, 1)
    told(quick, 0, 5.0)
    assert slow.trials()[0].values[0] == 5.0


def test_violations_of_constraints_are_kept_with_a_trial(search: Search, tmp_path: Path, address: str | None):
    first, second = (opened(search, tmp_path, address) for _ in range(2))
    for number, violation in enumerate((-1.0, 0.5)):
        assert first.take() is not None
        first.tell(number, (1.0, 2.0), {"lost": violation}, {})
    past = second.past(second.trials())
    assert [one.violations for one in past] == [{"lost": -1.0}, {"lost": 0.5}]
    assert [one.is_feasible for one in past] == [True, False]


def test_what_is_told_of_a_trial_is_kept_with_it(search: Search, tmp_path: Path, address: str | None):
    first, second = (opened(search, tmp_path, address) for _ in range(2))
    for _ in range(2):
        assert first.take() is not None
    told(first, 0, 0.5)
    first.fail(1, {"failure": "broken"})
    kept = [trial.user_attrs[ledger.RESULTS] for trial in second.trials()]
    assert kept == [{"metrics": {"test_accuracy": 0.5}}, {"failure": "broken"}]


@pytest.mark.parametrize("kind", ["postgresql", "postgresql+psycopg", "mysql", "mariadb+pymysql"])
def test_a_database_of_a_server_is_asked_whether_it_is_there_and_not_waited_for(kind: str):
    assert storage._impatient(f"{kind}://user@host/name") == {
        "connect_args": {"connect_timeout": 10}, "pool_pre_ping": True
    }  # fmt: skip
    assert storage._impatient("sqlite:///trials.db") == {"connect_args": {"timeout": 10}}
    assert storage._impatient("sqlite:///trials.db?timeout=60") == {}  # the user's own


def test_a_trial_says_who_holds_it_as_searches_in_progress_have_it(search: Search, tmp_path: Path, address: str | None):
    """Another version of emu may hold trials of the same storage."""
    one = opened(search, tmp_path, address)
    assert one.take() is not None
    holder = one.trials()[0].user_attrs[ledger.HOLDER]
    assert len(holder.pop("token")) == 32
    assert holder == {"computer": platform.node(), "process": os.getpid(), "count": 0}


def test_searches_touch_no_private_part_of_optuna():
    for path in Path(ledger.__file__).parent.glob("*.py"):
        assert not re.search(r"\b(trial|study|_study|one)\._[a-z]", path.read_text(encoding="utf-8")), path.name


def test_a_database_whose_tables_another_process_makes_slowly_is_opened_again(monkeypatch: pytest.MonkeyPatch):
    clock, tried = [1000.0], list[str]()
    monkeypatch.setattr(storage.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(storage, "AGAIN_S", 0.0)

    def opened_late(address: str, **_: Any) -> str:
        tried.append(address)
        clock[0] += 3.0  # seconds, on a computer that is busy
        if len(tried) < 3:
            raise IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed: alembic_version.version_num"))
        return "open"

    monkeypatch.setattr(optuna.storages, "RDBStorage", opened_late)
    assert storage._database("postgresql://user@host/name") == "open"
    assert len(tried) == 3


def test_trials_whose_count_stands_still_are_taken_after_a_while(
    search: Search, tmp_path: Path, address: str | None, monkeypatch: pytest.MonkeyPatch
):
    clock = [1000.0]
    monkeypatch.setattr(ledger.time, "monotonic", lambda: clock[0])
    first, second = (opened(search, tmp_path, address) for _ in range(2))
    assert first.take() is not None
    assert second.take() is not None  # trial 1: trial 0 is seen for the first time
    clock[0] += ledger.LOST_S - 1
    first.renew()  # its count goes on
    found = second.take()
    assert found is not None
    assert found[0] == 2
    clock[0] += ledger.LOST_S - 1
    assert second.take() is None
    clock[0] += 2
    found = second.take()
    assert found is not None
    assert found[0] == 0
    assert first.renew() == [0]
    told(first, 0, 5.0)
    assert not second.trials()[0].state.is_finished()


def test_what_a_command_gives_back_can_be_taken(search: Search, tmp_path: Path, address: str | None):
    first, second = (opened(search, tmp_path, address) for _ in range(2))
    taken = first.take()
    first.let_go()
    assert second.take() == taken


def test_a_failed_trial_has_ended(search: Search, tmp_path: Path, address: str | None):
    one = opened(search, tmp_path, address)
    for number in range(3):
        assert one.take() is not None
        if number == 1:
            one.fail(1, {"failure": "broken"})
        else:
            told(one, number)
    assert one.take() is not None
    assert [past.objectives is None for past in one.past(one.trials())] == [False, True, False]


def test_a_search_may_get_more_trials_and_another_search_of_its_name_is_refused(
    search: Search, tmp_path: Path, address: str | None
):
    opened(search, tmp_path, address)
    opened(search.model_copy(update={"trials": 20, "description": "More."}), tmp_path, address)
    path = tmp_path / "other.toml"
    path.write_text(SEARCH.replace("low = 4", "low = 5"))
    with pytest.raises(ConfigError, match="whose `variable` differ from this file's; choose another `name` or --out"):
        opened(load_search(path), tmp_path, address)


def test_a_database_that_cannot_be_reached_is_named_without_its_password(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(storage, "AGAIN_S", 0.0)
    with pytest.raises(
        ConfigError, match="the storage of a search must answer within 10 s, got 'unable to open"
    ) as caught:
        opened(search, tmp_path, "sqlite:////no/such/folder/trials.db")
    assert "the same command goes on from them" in str(caught.value)
    with pytest.raises(
        ConfigError, match=r"must name a database whose driver is installed, got .* for foo://u:\*\*\*@h/d"
    ):
        opened(search, tmp_path, "foo://u:secret@h/d")
    with pytest.raises(ConfigError, match="--storage must be the URL of a database"):
        opened(search, tmp_path, "trials.db")


def test_variables_that_matter_are_given_by_objective(search: Search, tmp_path: Path):
    one = opened(search, tmp_path, None)
    assert one.importances() == {}
    while found := one.take():
        told(one, found[0], float(found[1]["width"]))
    shares = one.importances()
    assert set(shares) == {"joules_per_step", "test_accuracy_difference"}
    assert set(shares["joules_per_step"]) == {"width", "mode"}


def test_no_variable_matters_to_what_is_the_same_in_all_trials(search: Search, tmp_path: Path):
    ledger = opened(search, tmp_path, None)
    while taken := ledger.take():
        number, values = taken
        ledger.tell(number, [float(values["width"]), 0.0], {}, {})
    assert set(ledger.importances()) == {"joules_per_step"}


# ---- a journal that a process which was killed has torn ----


TORN = [b'{"op_code":8,"worker_id":"ab', b"{", b"\x00" * 17, b'{"op_code":8,"worker_id":"ab\n', b"\x00\n", b"7\n"]


@pytest.mark.parametrize("torn", TORN, ids=str)
def test_a_torn_last_line_is_cut_off_once_and_that_is_said(
    torn: bytes, search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    first = opened(search, tmp_path, None)
    assert first.take()
    told(first, 0)
    journal = tmp_path / "journal.log"
    whole = journal.read_bytes()
    journal.write_bytes(whole + torn)
    again = opened(search, tmp_path, None)
    assert capsys.readouterr().err == (
        f"{journal}: the last line was torn, as by a process that was killed; cut it off ({len(torn)} bytes)\n"
    )
    assert journal.read_bytes().startswith(whole)
    assert again.trials()[0].values == [1.0, -1.0]
    assert [one[0] for one in (again.take(), again.take()) if one] == [1, 2]
    told(again, 1)
    assert opened(search, tmp_path, None).trials()[1].state.is_finished()
    assert not capsys.readouterr().err


def test_who_goes_on_writes_behind_whole_lines_though_another_was_killed(
    search: Search, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    one = opened(search, tmp_path, None)
    with (tmp_path / "journal.log").open("ab") as file:
        file.write(b'{"op_code":' + b" " * 200_000)
    assert one.take()
    told(one, 0)
    assert capsys.readouterr().err.count("cut it off (200011 bytes)") == 1
    assert [trial.state.name for trial in opened(search, tmp_path, None).trials()] == ["COMPLETE"]
    assert not list(tmp_path.glob("journal.log.lock*"))


def test_a_journal_damaged_before_its_last_line_is_refused_with_the_line(search: Search, tmp_path: Path):
    assert opened(search, tmp_path, None).take()
    journal = tmp_path / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = b'{"op_co{"op\n'
    journal.write_bytes(b"".join([lines[0], damaged, *lines[1:]]))
    before = journal.read_bytes()
    with pytest.raises(ConfigError) as found:
        opened(search, tmp_path, None)
    assert str(found.value) == (
        f"every line of a search's journal must be JSON, got {damaged!r} in line 2 of "
        f"{len(lines) + 1} in {journal}; remove that line, or begin again with another --out. Finished runs are kept"
    )
    assert journal.read_bytes() == before
    assert not list(tmp_path.glob("journal.log.lock*"))
