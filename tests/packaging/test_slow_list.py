"""Every line of tests/slow.txt names a test that is there; files of tests have names of their own."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
LINES = [line for line in (TESTS / "slow.txt").read_text(encoding="utf-8").splitlines() if line.startswith("tests/")]


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((TESTS.parent / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_lines_are_in_order_each_once():
    assert sorted(set(LINES)) == LINES


def test_lines_of_the_slow_list_name_a_file_or_begin_the_name_of_a_test():
    for line in LINES:
        file, _, name = line.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]  # of a class, or of the file
        assert not name or function in functions_of(file), f"{line}: no such test; remove the line, or correct it"


def test_no_two_files_of_tests_have_one_name():
    """Pytest imports them by their names alone; a second one is an error only where both are collected."""
    counts = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []
