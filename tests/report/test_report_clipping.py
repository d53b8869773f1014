"""Clipping in a report, from a made-up table."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from emu.report.evidence import gather
from emu.report.pictures import clipping

#: Of fc1, 10 then 0 of 100 were clipped; of fc2 nothing, and its rule has no thresholds.
ROWS = [
    {"step": step, "layer": layer, "part": "weight", "clipped": clipped, "elements": 100, "nonfinite": 0, "low": low,
     "high": None if low is None else -low}
    for step, layer, clipped, low in ((10, "fc1", 10, -0.5), (20, "fc1", 0, -0.25), (10, "fc2", 0, None),
                                      (20, "fc2", 0, None))
]  # fmt: skip


def section_of(folder, rows=None):
    if rows is not None:
        pq.write_table(pa.Table.from_pylist(rows), folder / "clipping.parquet")
    (folder / "run.json").write_text(json.dumps({"status": "finished", "steps": 20, "layers": ["fc1", "fc2"]}))
    return clipping.section(gather(folder))


def test_a_run_that_clips_nothing_has_no_section(tmp_path):
    assert section_of(tmp_path) is None


def test_shares_are_those_of_each_interval_and_thresholds_those_of_the_last(tmp_path):
    section = section_of(tmp_path, ROWS)
    assert "2.5% of all gradients were clipped, 10 elements." in section.body
    rows = section.charts[0].spec["datasets"]["rows"]
    assert [(row["layer"], row["step"], row["share"]) for row in rows] == [
        ("fc1", 10, 0.1),
        ("fc1", 20, 0.0),
        ("fc2", 10, 0.0),
        ("fc2", 20, 0.0),
    ]
    assert "-0.25" in section.body
    assert "-0.5" not in section.body


def test_where_nothing_was_clipped_there_is_no_picture(tmp_path):
    section = section_of(tmp_path, [{**row, "clipped": 0, "nonfinite": 3} for row in ROWS])
    assert not section.charts
    assert "0% of all gradients were clipped, 0 elements. 12 were NaN or infinite before." in section.body
