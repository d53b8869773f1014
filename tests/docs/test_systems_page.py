"""The page of all systems is what its data file says, and the data file is what the code is."""

from __future__ import annotations

import pytest
import systems
from documents import ROOT

TEXT = systems.DATA.read_text(encoding="utf-8")


def test_every_element_of_every_system_has_its_code_its_tests_and_its_page():
    assert systems.problems(systems.read(TEXT)) == []


def test_the_page_of_all_systems_is_written_from_the_data_file():
    assert systems.PAGE.read_text(encoding="utf-8") == systems.page(systems.read(TEXT)), (
        "docs/systems.md must be what docs/systems.toml says, and is not; run python tests/docs/refresh.py"
    )


@pytest.mark.parametrize(
    ("here", "changed", "said"),
    [
        ('label = "D3"', 'label = "D7"', "entries of system D must be D1, D2, D3, D4, each once"),
        ("layout.py::stripes_of", "layout.py::strips_of", "C5: `where` must name what is there, got emu/cluster/"),
        ("emu/cluster/layout.py::", "emu/cluster/lay.py::", "C5: `where` must name what is there, got emu/cluster/"),
        ("emu/cluster/timing/grouping.py::grouped", "emu/cluster/timing/grouping.py", "C9: `where` must name what is"),
        ("models/dnn46m.toml", "docs/index.md", "C11: `where` must name what is there, got docs/index.md"),
        ("::test_any_all_or", "::test_all_or", "C10: `tests` must name tests that exist, got tests/training/test_stop"),
        (
            "test_stop.py::test_each",
            "stop.py::test_each",
            "C10: `tests` must name tests that exist, got tests/training",
        ),
        (
            "_of_the_paper_c11",
            "_of_the_paper",
            "C11: `tests` must name one that bears the label, got none; let the name",
        ),
        ("sparse.md#by-hand", "sparse.md#by-heart", "E1: `page` must be a page of docs/ and the anchor of a heading"),
        ('["emu/precision/redo.py::run_and_redo"]', "[]", "T4: `where` must name at least one, got none"),
    ],
)
def test_an_entry_that_is_wrong_is_named_with_what_to_do(here: str, changed: str, said: str):
    assert TEXT.count(here) >= 1
    found = systems.problems(systems.read(TEXT.replace(here, changed, 1)))
    assert any(problem.startswith(said) for problem in found), found


def test_a_test_whose_label_has_no_entry_is_named_with_what_to_do():
    some = [one._replace(elements=one.elements[:-1]) if one.letter == "E" else one for one in systems.read(TEXT)]
    test = "tests/cluster/test_touched_rows.py::test_residuals_stay_with_their_lines_e6"
    assert (
        f"{test} ends in E6, which has no entry; write one into docs/systems.toml, or give the test another name"
        in systems.problems(some)
    )


def test_an_entry_with_another_key_or_without_one_is_named():
    with pytest.raises(ValueError, match=r"entry C12 must have .* add \['tests'\], remove \['test'\]"):
        systems.read(TEXT.replace('tests = ["tests/cluster/test_cluster_training.py', 'test = ["tests/cluster/'))


def test_labels_are_those_at_the_end_of_a_name():
    assert systems.labels_of("test_owners_add_stripes_c1_c5") == ["C1", "C5"]
    assert systems.labels_of("test_c1_is_met_by_owners") == []
    assert systems.tests_of(ROOT / "tests" / "nowhere.py") == frozenset()
