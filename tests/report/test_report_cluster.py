"""Many nodes in a report, from made-up tables."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emu.report.evidence import gather
from emu.report.pictures import cluster
from emu.report.words import byte_count

STEPS = (10, 20)
METRICS = [{"step": step, "train_loss": 1.0, "test_accuracy": found} for step, found in ((10, 0.5), (20, 0.8))]
SENT = [
    {"step": 10, "bytes_sent": 1_000_000, "count_bytes": 0},
    {"step": 20, "bytes_sent": 2_000_000, "count_bytes": 0},
]
RESIDUALS = [
    {"step": step, "tensor": tensor, "holder": holder, "norm": norm}
    for step in STEPS
    for tensor, holder, norm in (
        ("fc1.weight", "worker", 2.0),
        ("fc1.weight", "owner", 1.0),
        ("fc1.bias", "worker", 0.5),
    )
]
#: A quarter of the values lies in each of four bins; code 0 stands for the lower two.
CODES = [
    {"step": 20, "tensor": "fc1.weight", "code": int(place >= 0), "level": 0.75 if place >= 0 else -0.5, "bin": place,
     "values": 25}
    for place in (-1.0, -0.5, 0.5, 1.0)
]  # fmt: skip


def evidence_of(folder, *, nodes=4, bits=1, leave_out=(), **tables):
    given = {"metrics": METRICS, "cluster": SENT, "residuals": RESIDUALS, "codes": CODES} | tables
    for name, rows in given.items():
        if name not in leave_out:
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    info = {
        "status": "finished",
        "steps": 20,
        "parameters": 1000,
        "layers": ["fc1"],
        "recipe": {"cluster": {"nodes": nodes, "bits": bits}},
    }
    (folder / "run.json").write_text(json.dumps(info))
    return gather(folder)


def chart_of(section, identifier):
    return next(chart for chart in section.charts if chart.identifier == identifier)


def test_a_node_that_trained_alone_has_no_section(tmp_path):
    assert cluster.section(evidence_of(tmp_path, leave_out=("cluster", "residuals", "codes"))) is None


def test_the_sentence_says_nodes_bits_bytes_and_what_float32_would_have_taken(tmp_path):
    sent = [{"step": 20, "bytes_sent": 24_000, "count_bytes": 0}]
    section = cluster.section(evidence_of(tmp_path, leave_out=(), cluster=sent))
    # 2 (K - 1) messages of 1000 float32 numbers and 20 steps are 480 kB
    assert "4 nodes exchanged gradients of 1 bit: 24 kB in 20 steps, 20 times fewer than in float32." in section.body


def test_accuracy_stands_against_the_bytes_sent_by_then(tmp_path):
    chart = chart_of(cluster.section(evidence_of(tmp_path)), "bytes-chart")
    assert chart.spec["datasets"]["rows"] == [
        {"megabytes": 1.0, "accuracy": 0.5, "step": 10},
        {"megabytes": 2.0, "accuracy": 0.8, "step": 20},
    ]
    assert chart.label == "Test accuracy against bytes: 80.0% after 2 MB."


def test_residuals_of_workers_are_drawn_and_those_of_owners_stand_in_the_table(tmp_path):
    section = cluster.section(evidence_of(tmp_path))
    rows = chart_of(section, "residuals-chart").spec["datasets"]["rows"]
    assert [(row["step"], row["tensor"], row["norm"]) for row in rows] == [
        (10, "fc1.weight", 2.0),
        (10, "fc1.bias", 0.5),
        (20, "fc1.weight", 2.0),
        (20, "fc1.bias", 0.5),
    ]
    assert "as owner" in section.body


def test_a_node_that_only_owns_stripes_has_its_residuals_in_the_table_alone(tmp_path):
    owned = [row for row in RESIDUALS if row["holder"] == "owner"]
    section = cluster.section(evidence_of(tmp_path, residuals=owned))
    assert [chart.identifier for chart in section.charts] == ["bytes-chart", "codes-chart"]
    assert "as owner" in section.body
    assert "Nothing was held back" not in section.body


def test_a_tensor_that_the_node_holds_back_as_owner_alone_is_not_named_in_the_picture(tmp_path):
    mixed = [row for row in RESIDUALS if (row["tensor"], row["holder"]) != ("fc1.weight", "worker")]
    chart = chart_of(cluster.section(evidence_of(tmp_path, residuals=mixed)), "residuals-chart")
    assert chart.label == "Norm of residuals of fc1.bias over 20 steps."


def test_bars_of_codes_stand_on_each_other_and_every_level_has_a_mark(tmp_path):
    chart = chart_of(cluster.section(evidence_of(tmp_path)), "codes-chart")
    rows = chart.spec["datasets"]["rows"]
    assert [(row["from"], row["codes"], row["share"]) for row in rows] == [
        (-1.0, "0", 0.25),
        (-0.5, "0", 0.25),
        (0.5, "1", 0.25),
        (1.0, "1", 0.25),
    ]
    assert chart.spec["datasets"]["marks"] == [{"level": -0.5, "code": 0}, {"level": 0.75, "code": 1}]
    stacked = [CODES[0], {**CODES[0], "code": 1}]
    rows = chart_of(cluster.section(evidence_of(tmp_path, codes=stacked)), "codes-chart").spec["datasets"]["rows"]
    assert [(row["low"], row["high"]) for row in rows] == [(0.0, 0.5), (0.5, 1.0)]


def test_neighbouring_codes_share_a_colour_where_there_are_many(tmp_path):
    many = [{**CODES[0], "code": code, "bin": code / 64 - 2} for code in range(256)]
    chart = chart_of(cluster.section(evidence_of(tmp_path, codes=many)), "codes-chart")
    assert {row["codes"] for row in chart.spec["datasets"]["rows"]} == {
        f"{first} to {first + 31}" for first in range(0, 256, 32)
    }


def test_gradients_that_travel_as_they_are_show_bytes_alone(tmp_path):
    nothing = [{**row, "norm": 0.0} for row in RESIDUALS]
    section = cluster.section(evidence_of(tmp_path, bits=32, leave_out=("codes",), residuals=nothing))
    assert [chart.identifier for chart in section.charts] == ["bytes-chart"]
    assert "Nothing was held back" in section.body


def test_a_damaged_table_is_said_where_its_picture_would_be(tmp_path):
    evidence_of(tmp_path)
    (tmp_path / "cluster.parquet").write_bytes(b"PAR1")
    section = cluster.section(gather(tmp_path))
    assert "cluster.parquet could not be read" in section.body
    assert not section.charts


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (1000, "1 kB"), (322_000_000, "322 MB")])
def test_bytes_are_said_in_decimal_units(count, text):
    assert byte_count(count) == text
