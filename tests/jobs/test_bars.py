"""Lines about progress: which parts stay on a narrow screen, how far runs are, how long the rest takes."""

from __future__ import annotations

import json
import os
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from emu.backends.numba import compiling
from emu.cli.runs import Bar
from emu.jobs.bars import MOST_RUNS, Part, RunsBar, Screen, bar, clock, fitted, left, shortened
from emu.training.folders.history import History
from emu.training.folders.progress import RunProgress, progress_of

PARTS = [Part("a title", 0, 4), Part("step 7/20", 0), Part("loss 0.5", 2), Part("bar", 3), Part("2 min left", 1)]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, "a title  step 7/20  loss 0.5  bar  2 min left"),
        (45, "a title  step 7/20  loss 0.5  bar  2 min left"),
        (44, "a ..le  step 7/20  loss 0.5  bar  2 min left"),
        (42, "a..e  step 7/20  loss 0.5  bar  2 min left"),
        (41, "a title  step 7/20  loss 0.5  2 min left"),
        (37, "a..e  step 7/20  loss 0.5  2 min left"),
        (36, "a title  step 7/20  2 min left"),
        (27, "a..e  step 7/20  2 min left"),
        (26, "a title  step 7/20"),
        (15, "a..e  step 7/20"),
    ],
)
def test_parts_leave_a_narrow_line_by_rank_and_the_step_stays(width: int, expected: str):
    line = fitted(PARTS, width).plain
    assert cell_len(line) <= width
    assert line == expected


def test_a_part_without_text_leaves_no_gap():
    assert fitted([Part("a"), Part(""), Part("b")], 20).plain == "a  b"


@pytest.mark.parametrize(
    ("width", "expected"), [(9, "abcdefghi"), (8, "abc..ghi"), (7, "ab..ghi"), (2, ".."), (0, "..")]
)
def test_a_name_loses_its_middle(width: int, expected: str):
    assert shortened("abcdefghi", width) == expected


@pytest.mark.parametrize(
    ("width", "expected"),
    [(17, "層層層層abc層層層"), (15, "層層層..c層層層"), (10, "層層..層層"), (9, "層..層層"), (2, "..")],
)
def test_a_name_of_wide_characters_loses_its_middle_by_columns(width: int, expected: str):
    name = "層層層層abc層層層"
    assert cell_len(name) == 17
    assert shortened(name, width) == expected
    assert cell_len(fitted([Part(name, 0, 4), Part("step 7/20")], 19).plain) <= 19


@pytest.mark.parametrize(("share", "full"), [(-1.0, 0), (0.0, 0), (0.5, 12), (1.0, 24), (2.0, 24)])
def test_a_bar_has_as_many_columns_for_every_share(share: float, full: int):
    assert bar(share) == "━" * full + "─" * (24 - full)


def test_times_are_written_for_people():
    assert (clock(0), clock(59.9), clock(3723)) == ("0:00:00", "0:00:59", "1:02:03")
    assert (left(None), left(74.2), left(8000)) == ("", "74 s left", "2 h 13 min left")


def written(folder: Path, steps: list[int], began: int = 0, planned: int = 40, spent_s: float = 10.0) -> None:
    """A run's files, the table of metrics `spent_s` younger than `run.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"steps": began, "steps_planned": planned}))
    history = History()
    for step in steps:
        history.add("metrics", step=step, train_loss=0.5)
    if steps:
        from emu.training.folders.run_folder import RunFolder

        history.write(RunFolder(folder))
        start = (folder / "run.json").stat().st_mtime
        os.utime(folder / "metrics.parquet", (start + spent_s, start + spent_s))


def test_a_run_is_as_far_as_its_last_log_point(tmp_path: Path):
    written(tmp_path / "run", [5, 10], began=0)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    progress = progress_of(tmp_path / "run", info)
    assert (progress.began, progress.done, progress.planned) == (0, 10, 40)
    assert progress.spent_s == pytest.approx(10.0, abs=0.01)
    assert progress.share == 0.25
    assert progress.left_s == pytest.approx(30.0, rel=0.01)


def test_the_time_of_a_resumed_run_counts_from_where_it_was_resumed():
    assert RunProgress(began=20, done=30, planned=40, spent_s=5.0).left_s == 5.0
    assert RunProgress(began=30, done=30, planned=40, spent_s=5.0).left_s is None
    assert RunProgress(began=0, done=40, planned=40, spent_s=5.0).left_s is None
    assert RunProgress(began=0, done=0, planned=0, spent_s=0.0).share is None


def test_a_run_without_a_table_has_not_begun(tmp_path: Path):
    assert progress_of(tmp_path, {"steps_planned": 40}) == RunProgress(0, 0, 40, 0.0)
    assert progress_of(tmp_path, {"steps": "x", "steps_planned": [40]}) == RunProgress(0, 0, 0, 0.0)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def live(*arguments: Any, **options: Any) -> RunsBar:
    """A bar on a terminal, which is not drawn."""
    made = RunsBar(*arguments, **options)
    made._screen.is_live = True
    return made


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_bar_of_runs_has_the_step_of_each_run_and_the_time_left_at_any_width(tmp_path: Path, width: int):
    now = Clock()
    key = "lenet-fixed16-plain-seed12"
    written(tmp_path / key, [10])
    shown = live("runs", 12, tmp_path, now=now)
    shown.update(2, [])
    now.now += 100
    shown.update(3, [key, "mlp-fixed8-plain-seed1"])
    lines = [line.plain for line in shown.lines(width)]
    assert max(map(cell_len, lines)) <= width
    assert lines[0].startswith("3/12 runs")
    # 1.25 of the runs took 100 s, so that the other 8.75 take 700 s
    assert lines[0].endswith("12 min left")
    assert "step 10/40" in lines[1]
    assert lines[1].startswith("  lenet-")
    assert "seed12" in lines[1]
    assert lines[2].endswith("mlp-fixed8-plain-seed1  starting")
    assert (bar(3.25 / 12) in lines[0]) == (width >= 60)
    assert ("30 s left" in lines[1]) == (width >= 60)


def test_the_time_left_is_not_said_before_anything_is_done(tmp_path: Path):
    now = Clock()
    shown = live("runs", 4, tmp_path, now=now)
    shown.update(1, [])
    now.now += 50
    assert [line.plain[-7:] for line in shown.lines(80)] == ["0:00:50"]


def test_a_bar_that_knows_nothing_yet_shows_what_there_is_to_do(tmp_path: Path):
    assert [line.plain for line in live("runs", 4, tmp_path).lines(40)] == ["0/4 runs  0:00:00"]


def test_on_a_very_narrow_screen_names_steps_and_the_time_left_stay(tmp_path: Path):
    now = Clock()
    written(tmp_path / "lenet-fixed16-plain-seed12", [10])
    shown = live("runs", 12, tmp_path, now=now)
    shown.update(2, [])
    now.now += 100
    shown.update(3, ["lenet-fixed16-plain-seed12"])
    assert [line.plain for line in shown.lines(25)] == ["3/12 runs  12 min left", "  lene..eed12  step 10/40"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """What a terminal of 60 columns is sent."""
    out = StringIO()
    monkeypatch.setattr("emu.jobs.bars.Console", lambda **_: Console(file=out, force_terminal=True, width=60))
    return out


def test_a_terminal_has_the_lines_until_the_end_and_what_is_said_stands_above_unbroken(
    tmp_path: Path, terminal: StringIO
):
    line = "1/4  " + "a-long-name-" * 9
    with RunsBar("runs", 4, tmp_path) as shown:
        assert shown._screen._live.is_started
        shown.update(1, ["run"])
        shown.say(line)
    assert not shown._screen._live.is_started
    assert line in terminal.getvalue()
    assert "1/4 runs" in terminal.getvalue().rpartition(line)[2]


def test_without_a_terminal_nothing_is_drawn_and_no_table_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    written(tmp_path / "run", [5])
    with RunsBar("runs", 4, tmp_path) as shown:
        shown.update(1, ["run"])
        shown.say("1/4  run: 97%")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "1/4  run: 97%\n")
    assert shown._known == {}


def test_a_terminal_without_the_characters_of_a_bar_gets_others():
    raw = BytesIO()
    console = Console(file=TextIOWrapper(raw, encoding="ascii", write_through=True), width=60)
    console.print(Screen(lambda _: [fitted([Part(bar(0.5))], 60)]))
    assert raw.getvalue() == b"############------------\n"


def test_runs_beyond_the_first_are_counted(tmp_path: Path):
    shown = live("runs", 9, tmp_path)
    shown.update(0, [f"run{number}" for number in range(MOST_RUNS + 2)])
    assert [line.plain for line in shown.lines(80)][1:] == [
        *(f"  run{n}  starting" for n in range(MOST_RUNS)),
        "  and 2 more",
    ]
    shown.update(0, [f"run{number}" for number in range(MOST_RUNS)])
    assert len(shown.lines(80)) == 1 + MOST_RUNS


def test_what_is_waited_for_stands_where_no_run_is(tmp_path: Path):
    shown = live("trials", 9, tmp_path)
    shown.update(0, [], "trials of other processes")
    assert shown.lines(80)[1].plain == "  trials of other processes"
    shown.update(0, ["run"], "trials of other processes")
    assert shown.lines(80)[1].plain == "  run  starting"


def test_a_table_is_read_again_only_after_it_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written(tmp_path / "run", [5])
    asked: list[Path] = []

    def counted(folder: Path, info: dict[str, Any]) -> RunProgress:
        asked.append(folder)
        return progress_of(folder, info)

    monkeypatch.setattr("emu.jobs.bars.progress_of", counted)
    shown = live("runs", 1, tmp_path)
    for _ in range(3):
        shown.update(0, ["run"])
    assert len(asked) == 1
    written(tmp_path / "run", [5, 10], spent_s=20)
    shown.update(0, ["run"])
    assert len(asked) == 2
    assert "step 10/40" in shown.lines(80)[1].plain


def test_the_bar_of_a_training_says_that_its_first_step_waits_for_compiled_code(monkeypatch: pytest.MonkeyPatch):
    shown = Bar("lenet on fixed16")
    shown.steps = 938
    monkeypatch.setattr(compiling, "compiled_count", lambda: 0)
    assert "compiling" not in shown._line(100).plain
    monkeypatch.setattr(compiling, "compiled_count", lambda: 7)
    assert "step 0/938  compiling, once for this machine: 7 functions" in shown._line(100).plain
    shown.update(1, 0.31, 0.9, 0.0, 1e-3)
    assert "compiling" not in shown._line(100).plain


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_bar_of_a_training_keeps_its_step_and_the_time_left(width: int):
    shown = Bar("lenet on fixed16")
    shown.steps, shown.began_at = 938, shown.began_at - 60
    shown.update(240, 0.31, 0.9, 0.0, 1e-3)
    line = shown._line(width).plain
    assert cell_len(line) <= width
    assert "step 240/938" in line
    assert line.endswith("3 min left")
    assert ("loss 0.310" in line) == (width >= 80)
    assert ("underflow 1.0e-03" in line) == (width >= 140)
