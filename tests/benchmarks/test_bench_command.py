"""The command itself: a real measurement, small, and the texts of its errors."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.__main__ import main
from benchmarks.measuring.bar import BenchBar
from benchmarks.measuring.processes import jobs
from benchmarks.measuring.result import Result, Session
from benchmarks.measuring.timing import Spread
from benchmarks.measuring.worker import Bench
from benchmarks.rows import all_rows, select
from emu.backends.modes import HAND_WRITTEN
from emu.datapath import Rounding


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command in this process; gives exit code, stdout and stderr."""

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return command


def test_a_quick_measurement_prints_a_table_and_writes_the_data(run, tmp_path: Path):
    code, out, err = run(
        *("--quick", "--rows", "stage/fix8", "--threads", "1", "--against", "numpy"),
        *("--out", str(tmp_path / "speed.json")),
    )
    assert code == 0, err
    assert "Speed beside the limit" in out
    assert "1/1  stage/fix8" in err
    session = Session.from_dict(json.loads((tmp_path / "speed.json").read_text()))
    (result,) = session.results
    assert session.quick
    assert (result.row, result.threads, result.failure) == ("stage/fix8", 1, "")
    assert result.ours is not None
    assert result.ours.median > 0
    assert result.ratio is not None
    assert result.ratio.low <= result.ratio.median <= result.ratio.high
    assert [peer.name for peer in result.peers] == ["numpy"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--rows", "stagee"], "emu: --rows must match the name of a row, got 'stagee'; rows are stage/fix8, "),
        (
            ["--against", "gfloatt"],
            "emu: --against must be `peers` or names of peers with commas between, got 'gfloatt'; ",
        ),
        (["--threads", "0"], "emu: --threads must be numbers from 1 to "),
        (["--threads", "one"], "emu: --threads must be numbers from 1 to "),
        (["--out", "speed.txt"], "emu: --out must end in .md or .json, got 'speed.txt'; choose one of them"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(run, arguments: list[str], expected: str):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(expected)
    assert err.count("\n") == 1


def test_a_row_that_fails_is_reported_and_the_others_are_measured(run, monkeypatch: pytest.MonkeyPatch):
    def results(job):
        yield Result(job.rows[0].name, job.threads, failure="OSError: broken")

    monkeypatch.setattr("benchmarks.measuring.command.run", results)
    code, out, err = run("--rows", "stage/fix8", "--threads", "1")
    assert code == 1
    assert "1 failed" in out
    assert "failed: OSError: broken" in err


def test_without_options_it_says_first_how_many_rows_how_long_and_what_else_there_is(
    run, monkeypatch: pytest.MonkeyPatch
):
    said: list[str] = []

    def results(job):
        said.append(sys.stderr.getvalue())  # what stands there before anything is measured
        yield from (Result(row.name, job.threads) for row in job.rows)

    monkeypatch.setattr("benchmarks.measuring.command.run", results)
    monkeypatch.setattr("benchmarks.measuring.processes.processor_flags", set)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    run("--threads", "1")
    lines = said[0].splitlines()
    assert lines[0] == "python -m benchmarks: 11 measurements of 11 rows (1 thread), about 20 s"
    assert [line.split("  ")[2].strip() for line in lines[3:]] == [
        "python -m benchmarks --rows table",
        "python -m benchmarks --rows '*'",
        "python -m benchmarks --rows 'product/*'",
    ]
    assert all(len(line) < 80 for line in lines)


def test_no_name_of_a_row_is_broken_whatever_the_width(run, monkeypatch: pytest.MonkeyPatch):
    ratio = Spread(0.0831, 0.0812, 0.0951, 15)

    def results(job):
        limit = {"limit_name": "copy (bypassing)", "limit": Spread(1.5e9, 1.4e9, 1.6e9, 15)}
        for row in job.rows:
            yield Result(row.name, job.threads, ours=Spread(1.234e8, 1.2e8, 1.3e8, 15), ratio=ratio, **limit)

    monkeypatch.setattr("benchmarks.measuring.command.run", results)
    for width in ("80", "100"):
        monkeypatch.setenv("COLUMNS", width)
        _, out, _ = run("--threads", "1", "--rows", "table", "--rows", "matrix/fix8f4", "--rows", "growth")
        lines = out.splitlines()
        assert all(len(line) <= int(width) for line in lines)
        starts = {line.split(" ")[0] for line in lines}
        assert {row.name for row in all_rows() if row.group == "table"} <= starts
        heads = {word for line in lines for word in line.split()}
        assert {mode.value for mode in list(Rounding)[:HAND_WRITTEN]} <= heads


def test_the_rest_of_a_slow_machine_is_estimated_from_what_is_done():
    """A start of 2 s and a row of 0.6 s took 15.2 s; with ten trusted seconds, all is twice as slow; 20 s are left."""
    planned = jobs(select(["stage/fix8", "pairs/add"]), [1], [], quick=False)
    (job,), now = planned, [0.0]
    bar = BenchBar(planned, clock=lambda: now[0])
    assert bar.left() == "20 s left"
    now[0] = 15.2
    bar.advance(job, job.rows[0], Result("stage/fix8", 1))
    assert bar.left() == "40 s left"
    bar.advance(job, job.rows[1], Result("pairs/add", 1))
    assert bar.left() == ""


def test_a_line_of_80_columns_holds_the_bar(monkeypatch: pytest.MonkeyPatch):
    """With a terminal, another BLAS, hours to go, and the longest names."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("benchmarks.measuring.processes.processor_flags", lambda: {"avx512bw"})
    planned = jobs(select(["*"]), [16], [], quick=False)
    for job in planned[:2]:
        for row in job.rows:
            if row.group == "table":
                bar = BenchBar(planned)
                bar.show(job, row)
                screen = Console(file=io.StringIO(), width=80, force_terminal=False)
                screen.print(bar.progress.get_renderable())
                (line,) = screen.file.getvalue().splitlines()
                assert row.name in line
                assert line.rstrip().endswith(" left")


def test_an_exception_in_a_row_becomes_its_failure():
    def prepare(quick: bool):
        raise ValueError("no\ndata")

    row = all_rows()[0]
    broken = type(row)(row.name, row.title, row.unit, prepare)
    assert Bench(1, quick=True, peers=[]).measure(broken).failure == "ValueError: no data"


def test_a_process_that_dies_leaves_a_failure_for_every_row_it_owed(monkeypatch: pytest.MonkeyPatch):
    from benchmarks.measuring import processes
    from benchmarks.measuring.processes import Job

    monkeypatch.setattr(processes, "WORKER", "benchmarks.measuring.no_such_worker")
    rows = tuple(all_rows()[:2])
    results = list(processes.run(Job(rows, 1, (), quick=True)))
    assert [result.row for result in results] == [row.name for row in rows]
    assert all("ended with code 1" in result.failure and "no_such_worker" in result.failure for result in results)


@pytest.mark.parametrize("done", [0, 2])
def test_an_interrupted_measurement_prints_and_writes_its_rows_and_names_the_command_for_the_others(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, done: int
):
    def results(job):
        for row in job.rows[:done]:
            yield Result(row.name, job.threads, ours=Spread.of([1.0]))
        raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.measuring.command.run", results)
    rows = [row.name for row in select(["stage/*"])]
    out = tmp_path / "speed.md"
    code, printed, err = run("--rows", "stage/*", "--threads", "1", "--quick", "--out", str(out))
    assert code == 130
    assert [name for name in rows if name in printed] == rows[:done]
    assert out.exists() == bool(done)
    said = [line for line in err.splitlines() if line.startswith("emu: ")]
    left = " ".join(f"--rows {name}" for name in rows[done:])
    kept = f"2 of {len(rows)} measurements are printed above and written to {out}"
    assert said == [
        f"emu: interrupted; {kept if done else f'none of {len(rows)} measurements is made'}",
        f"emu: go on with: python -m benchmarks {left} --threads 1 --quick",
    ]
