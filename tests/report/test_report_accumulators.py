"""The picture of leading bits draws the accumulator's limits where they are narrower than those of the results."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emu.report.evidence import gather
from emu.report.pictures import leading_bits
from emu.report.pictures.leading_bits_panel import panel
from emu.report.range_of_format import accumulator_lines, range_of

MAC = {"product": "exact", "order": "sequential", "rounding": "nearest_even", "overflow": "wrap"}


def evidence_of(folder, fmt, accumulator, *, lowest=-10, points=()):
    """A run of one tensor whose results lie from 2**`lowest` to 2**2."""
    rows = [
        {"step": 10, "layer": "fc1", "role": "error", "kind": kind, "exponent": exponent, "count": count}
        for kind, exponent, count in (
            *(("positive", exponent, 5) for exponent in range(lowest, 2)),
            *((kind, None, 0) for kind in ("none", "below", "above", "nonfinite")),
            ("total", None, 5 * (2 - lowest)),
        )
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "registers.parquet")
    if points:
        pq.write_table(pa.Table.from_pylist(list(points)), folder / "points.parquet")
    mac = accumulator if accumulator is None else MAC | {"accumulator": accumulator}
    row = {"layer": "fc1", "role": "error", "format": fmt, "rounding": "nearest_even", "overflow": None, "mac": mac}
    (folder / "run.json").write_text(json.dumps({"layers": ["fc1"], "formats": [row], "steps": 10}))
    return gather(folder)


def shown(folder, fmt, accumulator, **options):
    evidence = evidence_of(folder, fmt, accumulator, **options)
    ((tensor, history),) = evidence.bits.items()
    return panel(evidence, tensor, history)


def of_sums(drawn):
    return [(line["at"], line["label"], line["kind"]) for line in drawn["lines"] if line["of"] == "accumulator"]


def test_a_coarser_accumulator_has_a_line_at_its_step_and_one_at_its_largest(tmp_path):
    drawn = shown(tmp_path, "fix16f13", "fix14f9")
    assert of_sums(drawn) == [(4, "sums: largest 15.998", "largest"), (-9, "sums: step 0.002", "smallest")]
    assert [line["at"] for line in drawn["lines"] if line["of"] == "format"] == [2, -13]
    assert drawn["domain"][0] < -13 < 4 < drawn["domain"][1]


def test_the_axis_reaches_a_limit_that_is_near_the_results(tmp_path):
    drawn = shown(tmp_path, "fix32f24", "fix32f9", lowest=-6)
    assert of_sums(drawn) == [(-9, "sums: step 0.002", "smallest")]


def test_a_limit_far_from_the_results_is_told_instead(tmp_path):
    drawn = shown(tmp_path, "fix16f13", "fix24f9")
    assert of_sums(drawn) == [(-9, "sums: step 0.002", "smallest")]
    assert drawn["facts"][-1] == ["Outside the picture", "sums: largest 16384, 10 powers of two above"]
    low = shown(tmp_path, "fix32f24", "fix32f20", lowest=0)
    assert ["Outside the picture", "sums: step 9.5e-7, 18 powers of two below"] not in low["facts"]
    assert "sums: step 9.5e-7, " in low["facts"][-1][1]


@pytest.mark.parametrize(
    ("fmt", "accumulator", "expected"),
    [
        ("fix16f13", "fix12f10", [(1, "sums: largest 1.99902"), (-10, "sums: step 9.8e-4")]),  # narrower, too
        ("fix16f13", "fix15f13", [(1, "sums: largest 1.99988")]),  # one step for both
        ("fix16f13", "fix32f13", []),
        ("fix16f13", "fix16f13", []),
        ("fix16f13", "fix20f17", []),  # as far, and finer
        ("fp16", "fp32", []),
        ("fp32", "fp16", [(16, "sums: largest 65504"), (-24, "sums: 6e-8")]),
        ("fix16f13", "exact", []),
        ("fix16f?", "fix12f10", []),  # where the format's range is not known
    ],
)
def test_only_limits_that_are_narrower_or_coarser_than_those_of_the_results_are_drawn(fmt, accumulator, expected):
    lines = accumulator_lines(MAC | {"accumulator": accumulator}, range_of(fmt))
    assert [(line.at, line.label) for line in lines] == expected
    assert {line.of for line in lines} <= {"accumulator"}


@pytest.mark.parametrize("mac", [None, "exact", {}, {"accumulator": None}, {"accumulator": "no format"}])
def test_a_tensor_without_an_accumulators_format_has_no_lines_of_it(mac):
    assert accumulator_lines(mac, range_of("fix16f13")) == ()


def test_a_point_that_moves_is_compared_over_its_whole_way(tmp_path):
    points = [
        {"step": step, "layer": "fc1", "role": "error", "part": "", "point": point, "redone": False}
        for step, point in ((1, 12), (5, 9))
    ]
    drawn = shown(tmp_path, "fix16f?", "fix16f10", points=points)  # from 2**-12 to 2**6; sums from 2**-10 to 2**5
    assert of_sums(drawn) == [(5, "sums: largest 31.999", "largest"), (-10, "sums: step 9.8e-4", "smallest")]


def test_the_legend_names_the_lines_where_a_tensor_has_those_of_an_accumulator(tmp_path):
    assert 'data-of="accumulator"' in leading_bits.section(evidence_of(tmp_path, "fix16f13", "fix14f9")).body
    assert "bits-lines" not in leading_bits.section(evidence_of(tmp_path, "fix16f13", None)).body
