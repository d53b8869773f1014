"""Damaged files end in success or in one short message; and the fuzz notices where they do not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fast_suite import most_are_slow

import emu

from .__main__ import drawn
from .mutations import Mutator
from .runner import Ending, judged
from .targets import TINY, targets

ROOT = Path(emu.__file__).resolve().parent.parent
REFUSED = Ending(2, "", "emu: `x` must be a number, got 'y' in z.toml; write a number without quotes\n", (), 0.1)
ENVIRONMENT = os.environ | {"EMU_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "100"}


def seed_of_the_sources() -> str:
    """Another one whenever a source changes: every change is tried on other files."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "emu").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def fuzzed(*arguments: str, tool: str = "tests.fuzz") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", tool, *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_five_hundred_damaged_files_end_in_success_or_a_short_message():
    done = fuzzed("--cases", "500", "--seed", seed_of_the_sources())
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_some_damaged_files_end_in_success_or_a_short_message():
    done = fuzzed("--cases", "12", "--seed", "fast")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_every_shipped_file_is_a_target():
    shipped = {p.name for folder in ("devices", "models", "benchmarks") for p in (ROOT / folder).glob("*.toml")}
    assert shipped <= {target.file for target in targets()}


def test_the_same_seed_draws_the_same_cases_and_damages():
    first, again = ([(str(case), case.target.file) for case in drawn(30, "s")] for _ in range(2))
    assert first == again
    assert [Mutator("a").toml(TINY), Mutator("b").toml(TINY)] == [Mutator("a").toml(TINY), Mutator("b").toml(TINY)]


def test_most_damages_change_a_file():
    changed = sum(Mutator(str(i)).toml(TINY) != TINY.encode() for i in range(200))
    assert changed > 190


def test_a_refusal_in_one_line_is_no_fault():
    assert judged(REFUSED, (0, 2)) == ""
    warned = Ending(2, "", f"emu: warning: something\n{REFUSED.err}", (), 0.1)
    assert judged(warned, (0, 2)) == ""


@pytest.mark.parametrize(
    ("ending", "fault"),
    [
        (Ending(None, "", "", (), 30.0), "still running after 30 s"),
        (Ending(1, "", "", (), 0.1), "exit code 1"),
        (Ending(-11, "", "", (), 0.1), "exit code -11"),
        (Ending(0, "", "Traceback (most recent call last)\n", (), 0.1), "'Traceback (most recent call last)' was"),
        (Ending(0, "", "x.py:3: RuntimeWarning: overflow\n", (), 0.1), "'Warning:' was printed"),
        (Ending(2, "", "", (), 0.1), "0 messages"),
        (Ending(2, "", "emu: a\nemu: b\n", (), 0.1), "2 messages"),
        (Ending(2, "", f"emu: {'a' * 2000}\n", (), 0.1), "a message of 2005 characters"),
        (Ending(2, "", "emu: a\n", ("out", "out/run.json"), 0.1), "left behind: out, out/run.json"),
        (Ending(0, "", "", ("out/run.json.7.emu-tmp",), 0.1), "left behind: out/run.json.7.emu-tmp"),
    ],
)
def test_a_bad_ending_is_a_fault(ending: Ending, fault: str):
    assert judged(ending, (0, 2)).startswith(fault)


#: Run by a process of its own: a process that forks should have one thread.
CHILDREN = """
import sys, time
from pathlib import Path
import numpy as np
from tests.fuzz.runner import run_in_child
works = {
    "greedy": lambda: int(np.ones(3 << 30, np.uint8).sum()),
    "endless": lambda: time.sleep(60) or 0,
    "messy": lambda: Path("left").write_text("x") and 2,
}
folder = Path(sys.argv[2])
ending = run_in_child(works[sys.argv[1]], folder, 1.5)
print(ending.code, ending.left, "MemoryError" in ending.err)
print(ending.err, file=sys.stderr)
"""


@most_are_slow(
    ("work", "ending"),
    [("greedy", "1 () True"), ("endless", "None () False"), ("messy", "2 ('left',) False")],
    keep=[("endless", "None () False")],
)
def test_a_child_runs_under_limits(work: str, ending: str, tmp_path: Path):
    (tmp_path / "case").mkdir()
    command = [sys.executable, "-c", CHILDREN, work, str(tmp_path / "case")]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == ending, done.stderr


FAULTY = """
import sys, tomllib
import emu._config
emu._config._parsed = tomllib.loads  # as it was: an integer of 5000 digits ends in a ValueError
from tests.fuzz import mutations
from tests.fuzz.__main__ import main
mutations.VALUES = ("1" * 5000,)
sys.exit(main(["--cases", "12", "--seed", "faulty", "--only", "devices fixed16"]))
"""


@pytest.mark.slow
def test_a_seeded_fault_is_found():
    command = [sys.executable, "-c", FAULTY]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "exit code 1" in done.stdout
    assert "ValueError" in done.stdout or "RecursionError" in done.stdout
