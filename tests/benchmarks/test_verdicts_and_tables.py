"""What is concluded from figures, and how it is written."""

from __future__ import annotations

import json

import pytest

from benchmarks.measuring.markdown import document, fill, places, render
from benchmarks.measuring.result import PeerResult, Result, Session
from benchmarks.measuring.row import Row
from benchmarks.measuring.sheets import (
    Sheet,
    growth_sheets,
    main_sheet,
    matrix_sheets,
    peer_sheet,
    summary,
    thread_sheet,
)
from benchmarks.measuring.timing import Spread
from benchmarks.measuring.verdict import judge, judge_peer
from emu.errors import ConfigError


def unprepared(quick: bool):
    raise AssertionError(f"tables prepare nothing, quick or not: {quick}")


def exactly(value: float) -> Spread:
    return Spread(value, value, value, 5)


STAGE = Row("stage/x", "float32 to x", "GElem/s", unprepared, 0.5, 0.8, factors={"slowpeer": 15.0})
PAIRS = Row("pairs/x", "all pairs", "Gpair/s", unprepared, 60.0, 5.0, seconds_for=1e9)
PRODUCT = Row("product/x", "a product", "GMAC/s", unprepared, 2.0, 3.0, uses_blas=True)
MATRIX = [
    Row(f"matrix/fix8f4/{mode}/{rule}", "m", "GElem/s", unprepared, 0.5, group="matrix")
    for mode in ("floor", "ceil")
    for rule in ("wrap", "saturate")
]
GROWTH = [Row(f"growth/stage-by-size/{n}", f"{n} elements", "GElem/s", unprepared, group="growth") for n in (1, 2)]
ROWS = [STAGE, PAIRS, PRODUCT, *MATRIX, *GROWTH]


def measured(name: str, ratio: float, threads: int = 1, **more: object) -> Result:
    options = {"blas": "Haswell", "limit_name": "copy", "limit": exactly(4e9), **more}
    return Result(name, threads, ours=exactly(ratio * 4e9), ratio=exactly(ratio), **options)


@pytest.mark.parametrize(
    ("ratio", "standing", "text"),
    [
        (0.49, "below", "0.98 of the bar"),
        (0.5, "bar", "bar; 0.62 of the goal"),
        (0.79, "bar", "bar; 0.99 of the goal"),
        (0.8, "goal", "goal"),
        (2.0, "goal", "goal"),
    ],
)
def test_a_ratio_stands_below_at_the_bar_or_at_the_goal(ratio: float, standing: str, text: str):
    verdict = judge(STAGE, measured("stage/x", ratio))
    assert (verdict.standing, verdict.text) == (standing, text)


@pytest.mark.parametrize(("seconds", "standing"), [(61.0, "below"), (60.0, "bar"), (5.0, "goal"), (1.0, "goal")])
def test_of_seconds_less_is_better(seconds: float, standing: str):
    result = Result("pairs/x", 1, ours=exactly(1e9 / seconds))
    assert judge(PAIRS, result).standing == standing


def test_without_a_limit_or_a_bar_nothing_is_judged():
    assert judge(STAGE, Result("stage/x", 1, ours=exactly(1.0))).standing == "none"
    assert judge(GROWTH[0], measured(GROWTH[0].name, 0.1)).standing == "none"


@pytest.mark.parametrize(("slower", "text"), [(15.0, "at least 15: yes"), (14.9, "at least 15: no")])
def test_a_peer_is_judged_by_how_many_times_slower_it_is(slower: float, text: str):
    assert judge_peer(STAGE, PeerResult("slowpeer", slower=exactly(slower))).text == text
    assert judge_peer(STAGE, PeerResult("otherpeer", slower=exactly(slower))).text == ""


def session(*results: Result, quick: bool = False) -> Session:
    return Session({"date": "2026-01-02", "processor": "one"}, results, quick)


def test_the_main_table_shows_figure_limit_ratio_bar_and_standing():
    sheet = main_sheet(session(measured("stage/x", 0.6, 2)), ROWS)
    assert sheet.rows == (
        (
            "stage/x",
            "float32 to x",
            "2",
            "2.4 GElem/s",
            "copy 4",
            "0.60 (0.60 .. 0.60)",
            "0.5, 0.8",
            "bar; 0.75 of the goal",
        ),
    )


def test_seconds_and_the_kernels_of_blas_are_named():
    found = session(Result("pairs/x", 1, ours=Spread(1e8, 5e7, 2e8, 3)), measured("product/x", 2.0, limit_name="sgemm"))
    pairs, product = main_sheet(found, ROWS).rows
    assert pairs[5] == "10 s (5 .. 20)"
    assert product[4] == "sgemm Haswell 4"


def test_a_failed_row_says_why_and_is_counted():
    found = session(Result("stage/x", 1, failure="ValueError: no"), measured("stage/x", 0.9, 2))
    assert main_sheet(found, ROWS).rows[0][-1] == "failed: ValueError: no"
    assert summary(found, ROWS) == "1 of 1 figures reach their bar, 1 their goal; 1 failed"


def test_an_absent_peer_shows_how_to_install_it():
    peers = (
        PeerResult("apeer", failure="absent: pip install apeer"),
        PeerResult("slowpeer", "a note", exactly(1e9), exactly(2.5)),
    )
    rows = peer_sheet(session(measured("stage/x", 0.6, peers=peers)), ROWS).rows
    assert rows[0] == ("stage/x", "1", "apeer", "absent: pip install apeer", "", "", "")
    assert rows[1] == ("stage/x", "1", "slowpeer", "1 GElem/s", "2.50 (2.50 .. 2.50)", "at least 15: no", "a note")


def test_the_matrix_has_a_cell_per_mode_and_marks_what_is_below_the_bar():
    results = [measured(row.name, ratio) for row, ratio in zip(MATRIX, (0.7, 0.5, 0.4, 0.9), strict=True)]
    (sheet,) = matrix_sheets(session(*results), ROWS)
    assert sheet.columns == ("format", "rule", "floor", "ceil")
    assert sheet.rows == (("fix8f4", "wrap", "0.70", "0.40 ↓"), ("fix8f4", "saturate", "0.50", "0.90"))
    assert sheet.note == "3 of 4 reach the bar of 0.5; those that do not are marked ↓."


def test_growth_has_a_table_per_kind_and_threads_are_compared_with_the_fewest():
    results = [
        measured(GROWTH[0].name, 0.2),
        measured(GROWTH[1].name, 0.3),
        measured("stage/x", 0.5),
        measured("stage/x", 0.8, 2),
    ]
    (sheet,) = growth_sheets(session(*results), ROWS)
    assert [row[0] for row in sheet.rows] == ["1 elements", "2 elements"]
    assert thread_sheet(session(*results), ROWS).rows == (("stage/x", "2 GElem/s", "3.2 GElem/s", "1.60"),)


def test_the_other_blas_kernels_do_not_count_twice():
    found = session(measured("product/x", 2.0), measured("product/x", 1.0, core_type="SkylakeX", blas="SkylakeX"))
    assert summary(found, ROWS) == "1 of 1 figures reach their bar, 0 their goal"
    assert [row[4] for row in main_sheet(found, ROWS).rows] == ["copy Haswell 4", "copy SkylakeX 4"]


def test_results_survive_json():
    peers = (PeerResult("slowpeer", "n", exactly(1.0), exactly(2.0)), PeerResult("apeer", failure="absent"))
    before = session(measured("stage/x", 0.6, peers=peers, path="p"), Result("pairs/x", 2, failure="f"), quick=True)
    assert Session.from_dict(json.loads(json.dumps(before.to_dict()))) == before


def test_markdown_escapes_what_would_end_a_cell():
    text = render(Sheet("t", ("a", "b"), (("x|y", "1\n2"),), "below"))
    assert text == "| a | b |\n|---|---|\n| x\\|y | 1 2 |\n\nbelow"


def test_a_page_is_filled_between_its_markers_and_nowhere_else():
    page = "before\n<!-- bench:table begin -->\nold\n<!-- bench:table end -->\nafter\n"
    once = fill(page, {"table": "new"})
    assert once == "before\n<!-- bench:table begin -->\n\nnew\n\n<!-- bench:table end -->\nafter\n"
    assert fill(once, {"table": "new"}) == once


def test_a_page_without_a_marker_is_refused():
    with pytest.raises(ConfigError, match="must hold the lines `<!-- bench:table begin -->` and `<!-- bench:table end"):
        fill("nothing", {"table": "new"})


def test_every_place_with_results_is_filled_and_quick_figures_are_called_so():
    results = [measured(row.name, 0.6) for row in (STAGE, *MATRIX, *GROWTH)]
    texts = places(session(*results, quick=True), ROWS)
    assert list(texts) == ["machine", "table", "matrix", "growth", "paths"]
    assert "no figure is for the record" in texts["machine"]
    assert "of the bar" not in texts["table"]
    assert "| stage/x |" in document(session(*results), ROWS)
