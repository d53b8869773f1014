"""Batch search in a report, from made-up tables."""

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq

from emu.report.evidence import gather
from emu.report.pictures import batch_sizes
from emu.report.words import NO_NUMBER

TRIALS = [
    {"step": step, "size": size, "criterion": criterion, "kept": kept}
    for step, size, criterion, kept in (
        (11, 64, 1.0, False),
        (11, 96, 1.005, False),
        (11, 128, 1.01, True),
        (21, 64, 0.5, False),
        (21, 128, 0.502, True),
        (21, 256, math.nan, False),
    )
]
NODES = [{"step": 1, "workers": 2}, {"step": 12, "workers": 3}]


def section_of(folder, *, search=None, **tables):
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    recipe = {"training": {"batch": 64}, "cluster": {"nodes": 4, "workers": [], "search": search}}
    (folder / "run.json").write_text(json.dumps({"status": "finished", "steps": 30, "recipe": recipe}))
    return batch_sizes.section(gather(folder))


SIZES_ONLY, BOTH = ({"every": 10, "parallelism": found} for found in (False, True))


def rows_of(section):
    return {chart.identifier: chart.spec["datasets"]["rows"] for chart in section.charts}


def test_a_run_without_a_search_has_no_section_c8(tmp_path):
    assert section_of(tmp_path) is None


def test_sizes_are_drawn_from_the_first_step_that_has_them_c8(tmp_path):
    (folder := tmp_path / "run").mkdir()
    pq.write_table(pa.Table.from_pylist(TRIALS), folder / "search.parquet")
    section = section_of(folder, search=SIZES_ONLY)
    assert "Mini-batches went from 64 to 128 examples: 6 trials in 2 searches." in section.body
    steps = [(1, 64), (11, 128), (21, 128), (30, 128)]
    assert rows_of(section) == {"sizes-chart": [{"step": step, "examples": size} for step, size in steps]}


def test_nodes_are_drawn_from_the_step_behind_the_one_that_was_measured_c8(tmp_path):
    section = section_of(tmp_path, search=BOTH, parallelism=NODES)
    assert "Mini-batches had 64 examples: no other size was tried. At the end 3 of 4 nodes shared one." in section.body
    steps = [(1, 4), (2, 2), (13, 3), (30, 3)]
    assert rows_of(section) == {"nodes-chart": [{"step": step, "nodes": nodes} for step, nodes in steps]}
    assert section.charts[0].label == "Nodes that shared a mini-batch over 30 steps: from 4 to 3."


def test_nodes_that_all_took_part_in_everything_are_said_c8(tmp_path):
    section = section_of(tmp_path, search=BOTH)
    assert "All 4 nodes shared every one of them." in section.body
    assert not section.charts


def test_the_table_has_every_trial_c8(tmp_path):
    (folder := tmp_path / "run").mkdir()
    pq.write_table(pa.Table.from_pylist(TRIALS), folder / "search.parquet")
    body = section_of(folder, search=SIZES_ONLY).body
    assert body.count(">kept<") == 2
    assert ">0.502<" in body
    assert f">{NO_NUMBER}<" in body, "the loss of a trial is no number"


def test_a_table_that_cannot_be_read_is_said_c8(tmp_path):
    (tmp_path / "search.parquet").write_bytes(b"nothing")
    assert "search.parquet could not be read" in section_of(tmp_path, search=SIZES_ONLY).body
