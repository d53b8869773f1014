"""The mutation check sees what tests notice, what they do not, and touches no file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .draw import NEWER, SHARES, UNSEEN, candidates_of, counts_of, drawn, share_of
from .mutants import Mutant, has_effect, mutants_of
from .own_tests import OWN_TESTS, OwnTests, own_tests_of
from .page import BEGIN, END, UNJUDGED, difference, judgement_of, judgements, report_of, write_between_markers
from .process import CHILD, SELECTION, Checkout, importers_of, module_of

ROOT = Path(__file__).resolve().parents[2]
TOY = b'''"""A module with 1 sentence."""

from functools import lru_cache

SPARE = 7


@lru_cache(maxsize=4)
def steps(start: int, stop: "3 + 4") -> int:
    """Count 1 by 1."""
    n = 0
    while start < stop:
        start += 1
        n += 1
    assert n >= 0, "1 + 1"
    if n > 99:
        raise ValueError(f"{n + 1} steps" + "2")
    return n


def inside(x: int, low: int, high: int) -> bool:
    return not (x < low or
                x > high)  # both ends belong
'''
TOY_TEST = """
from emu.formats.toy import inside, steps

def test_steps_are_counted():
    assert [steps(1, 4), steps(4, 4), steps(0, 98), steps(0, 99)] == [3, 0, 98, 99]

def test_both_ends_belong():
    assert [inside(x, 2, 4) for x in (1, 2, 3, 4, 5)] == [False, True, True, True, False]
"""
TOY_TEST_THAT_IS_SLOW = """
import pytest
from emu.formats.toy import SPARE

@pytest.mark.slow
def test_seven_are_spare():
    assert SPARE == 7
"""
EDITS = [
    (5, "", "constant", "7", "6"),
    (5, "", "constant", "7", "8"),
    (11, "steps", "constant", "0", "-1"),
    (11, "steps", "constant", "0", "1"),
    (12, "steps", "comparison", "start < stop", "start <= stop"),
    (13, "steps", "statement dropped", "start += 1", "pass"),
    (13, "steps", "constant", "1", "0"),
    (13, "steps", "constant", "1", "2"),
    (14, "steps", "statement dropped", "n += 1", "pass"),
    (14, "steps", "constant", "1", "0"),
    (14, "steps", "constant", "1", "2"),
    (16, "steps", "comparison", "n > 99", "n >= 99"),
    (16, "steps", "constant", "99", "100"),
    (16, "steps", "constant", "99", "98"),
    (22, "inside", "negation removed", "not (x < low or x > high)", "x < low or x > high"),
    (22, "inside", "and/or", "x < low or x > high", "x < low and x > high"),
    (22, "inside", "comparison", "x < low", "x <= low"),
    (23, "inside", "comparison", "x > high", "x >= high"),
]
TESTS = OwnTests(("emu/formats/toy.py", "tests/test_toy.py"))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of one module and its tests."""
    root = tmp_path_factory.mktemp("toy")
    (root / "emu" / "formats").mkdir(parents=True)
    (root / "tests").mkdir()
    for name in ("emu/__init__.py", "emu/formats/__init__.py"):
        (root / name).touch()
    (root / "emu" / "formats" / "toy.py").write_bytes(TOY)
    (root / "tests" / "test_toy.py").write_text(TOY_TEST)
    (root / "tests" / "test_slow_toy.py").write_text(TOY_TEST_THAT_IS_SLOW)
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["slow: long", "gpu: on a GPU"]\n')
    return root


@pytest.fixture(scope="module")
def checkout(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout(toy, tmp_path_factory.mktemp("work"), grace_s=1.0)
    checkout.measure(TESTS)
    return checkout


def edit(before: str, after: str, line: int) -> Mutant:
    mutants = mutants_of("emu/formats/toy.py", TOY)
    return next(m for m in mutants if (m.before, m.after, m.line) == (before, after, line))


def test_every_edit_of_a_module_is_found_and_text_decorators_annotations_and_errors_are_left_alone():
    found = mutants_of("toy.py", TOY)
    assert sorted((m.line, m.scope, m.kind, m.before, m.after) for m in found) == sorted(EDITS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a and b", ["a or b"]),
        ("a + b", ["a - b"]),
        ("a & b | c", ["a & b & c", "a | b"]),
        ("a << b", ["a >> b"]),
        ("-a", ["a"]),
        ("~a", ["a"]),
        ("a is None", ["a is not None"]),
        ("a in b", ["a not in b"]),
        ("a == b < c", ["a != b < c", "a == b <= c"]),
        ("min(a, b)", ["max(a, b)"]),
        ("np.maximum(a, b)", ["np.minimum(a, b)"]),
        ("a.any()", ["a.all()"]),
        ("True", ["False"]),
        ("0.5", ["-0.5", "1.5"]),
        ("zip(a, b, strict=True)", []),
        ("bounded(7, 1, 2 + 8, 'why')", ["6", "8"]),
        ("f'{a + 1}' + b", []),
    ],
)
def test_an_expression_has_these_edits(source: str, expected: list[str]):
    assert sorted(m.after for m in mutants_of("x.py", f"x = {source}".encode())) == expected


def test_a_call_whose_result_nobody_reads_can_be_dropped():
    assert [m.applied_to(b"f(x)\n") for m in mutants_of("x.py", b"f(x)\n")] == [b"pass\n"]


def test_an_edit_keeps_the_number_of_every_other_line():
    source = b"x = f(\n    a +\n    b\n)\nn += (\n    k\n)\ny = g\n"
    for m in mutants_of("x.py", source):
        lines = m.applied_to(source).splitlines()
        assert len(lines) == 8
        assert lines[7] == b"y = g"


def test_an_edit_that_compiles_to_the_same_bytecode_has_no_effect():
    sources = {b"x = 3 << 0\n": "3 >> 0", b"x = 3 << 1\n": "3 >> 1"}
    effects = [[has_effect(m, s) for m in mutants_of("x.py", s) if m.after == after] for s, after in sources.items()]
    assert effects == [[False], [True]]


@pytest.mark.slow
def test_a_mutant_is_killed_survives_or_runs_out_of_time_as_its_tests_say_and_no_file_changes(
    toy: Path, checkout: Checkout
):
    killed = checkout.judge(edit("n > 99", "n >= 99", 16), TESTS, 0)
    survivor = checkout.judge(edit("7", "8", 5), TESTS, 1)
    endless = checkout.judge(edit("start += 1", "pass", 13), TESTS, 2)
    assert (killed.outcome, survivor.outcome, endless.outcome) == ("killed", "survived", "timed out")
    assert (killed.by, survivor.by, endless.by) == ("tests/test_toy.py::test_steps_are_counted", "", "")
    for root in (toy, checkout.root):
        assert (root / "emu" / "formats" / "toy.py").read_bytes() == TOY
        assert not list((root / "emu").rglob("*.pyc"))
    report = report_of([killed, survivor, endless], checkout, "this", 90.0)
    assert "| `emu/formats` | 3 | 1 | 1 | 1 |" in report
    assert "| all | 3 | 1 | 1 | 1 |" in report
    assert "- `emu/formats/toy.py`: not judged yet\n\n    ```diff\n    @@ line 5 @@\n    -SPARE = 7" in report


@pytest.mark.slow
@pytest.mark.parametrize(("with_slow", "outcome"), [(False, "survived"), (True, "killed")])
def test_slow_tests_judge_where_a_file_asks_for_them(checkout: Checkout, with_slow: bool, outcome: str):
    tests = OwnTests((*TESTS.paths, "tests/test_slow_toy.py"), with_slow=with_slow)
    checkout.measure(tests)
    assert checkout.judge(edit("7", "8", 5), tests, 3).outcome == outcome


def test_tests_that_fail_without_a_mutant_do_not_judge(toy: Path, checkout: Checkout):
    (checkout.root / "tests" / "test_wrong.py").write_text("def test_wrong():\n    assert False\n")
    with pytest.raises(RuntimeError, match="the tests must pass before they judge, got exit code 1"):
        checkout.measure(OwnTests(("tests/test_wrong.py",)))


def test_tests_of_the_definition_start_where_numba_is_hidden():
    given = [str(CHILD), "hidden", "", "", "-q", "-p", "no:cacheprovider", *SELECTION, "tests/unit/test_toml.py"]
    done = subprocess.run([sys.executable, *given], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_difference_shows_the_lines_an_edit_changes(checkout: Checkout):
    shown = difference(edit("x < low or x > high", "x < low and x > high", 22), checkout)
    assert [line.strip() for line in shown] == [
        "@@ line 22 @@",
        "-    return not (x < low or",
        "-                x > high)  # both ends belong",
        "+    return not ((x < low and x > high",
        "+))  # both ends belong",
    ]


def test_a_draw_is_the_same_for_the_same_seed_and_another_for_another():
    first, again, other = (drawn(ROOT, 20, seed, ["emu/datapath", "emu/formats"]) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_draw_has_the_wanted_size_no_edit_twice_and_every_folders_share():
    mutants = drawn(ROOT, 100, 3)
    assert len(set(mutants)) == 100
    counts = {share: sum(share_of(m.path) == share for m in mutants) for share in SHARES}
    assert counts == counts_of(SHARES, 100) == SHARES


def test_newer_folders_are_drawn_from_by_their_names_alone():
    assert not {share_of(m.path) for m in drawn(ROOT, 40, 5)} & set(NEWER)
    for folder in ("emu/jobs", "emu/hardware/energy.py"):
        assert {share_of(m.path) for m in drawn(ROOT, 5, 5, [folder])} == {folder}
    assert [share_of(path) for path in UNSEEN] == [None] * len(UNSEEN)
    assert sum(NEWER.values()) == 100


def test_shares_divide_any_number():
    for n in (0, 1, 7, 99, 100, 1000):
        assert sum(counts_of(SHARES, n).values()) == n


def test_every_file_with_mutants_has_tests_that_exist():
    for mutants in candidates_of(ROOT, ["emu"]).values():
        for path in {m.path for m in mutants}:
            tests = own_tests_of(path).paths
            assert tests, path
            assert all((ROOT / test.split("::")[0]).exists() for test in tests), path
    for name in (*OWN_TESTS, *UNSEEN):
        assert (ROOT / name).exists(), name


def test_kernels_that_use_a_mutated_file_compile_anew():
    stale = {file.name for file in importers_of(ROOT, "emu/backends/numba/bits.py")}
    assert {"bits.py", "blocks.py", "stage.py"} <= stale
    assert "compiling.py" not in stale
    assert module_of("emu/formats/__init__.py") == "emu.formats"


def test_a_survivor_gets_what_was_said_about_its_edit():
    m = edit("7", "8", 5)
    entry = {"path": m.path, "on": "SPARE = 7", "before": "7", "after": "8", "why": "nobody reads it"}
    assert judgement_of(m, [entry]) == "nobody reads it"
    assert judgement_of(m, [{**entry, "after": "6"}]) == UNJUDGED


def test_a_page_is_written_between_its_markers(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_between_markers(page, "new\n")
    write_between_markers(page, "newer\n")
    assert page.read_text() == f"before\n{BEGIN}\nnewer\n{END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="must hold the markers"):
        write_between_markers(page, "new\n")


def test_every_judgement_is_about_a_place_and_says_why():
    for entry in judgements():
        assert (ROOT / entry["path"]).exists(), entry
        assert entry["before"] in entry["on"], entry
        assert entry["why"], entry
