"""Scales of cast operands in a report, from a made-up table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from emu.report.evidence import gather
from emu.report.page import Section
from emu.report.pictures import scales
from emu.report.pictures.scales import median_exponent

#: What is counted of blocks beside their scales.
KINDS = ("blocks", "elements", "clipped", "clipped_largest", "vanished", "zero_blocks", "at_limit", "nan_scales")
#: Exponents of scales of (step, layer, role, factor), and other counts that are not 0.
COUNTED: list[tuple[tuple[int, str, str, str], dict[int, int], dict[str, int]]] = [
    ((10, "fc1", "activation", "activation"), {-2: 1, 3: 3}, {"blocks": 4, "elements": 128, "clipped": 1}),
    ((10, "fc2", "activation", "activation"), {-5: 4}, {"blocks": 4, "elements": 128, "at_limit": 2}),
    ((20, "fc1", "activation", "activation"), {4: 4}, {"blocks": 4, "elements": 128, "clipped": 1}),
    ((10, "fc1", "activation", "weight"), {0: 4}, {"blocks": 4, "elements": 128}),
    ((10, "fc1", "gradient", "error"), {-9: 3}, {"blocks": 4, "elements": 64, "vanished": 16, "nan_scales": 2}),
    ((20, "fc2", "error", "weight"), {1: 2}, {"blocks": 2, "elements": 100, "clipped": 5, "clipped_largest": 1}),
]
PRECISION = {
    "operands": {
        "forward": {"activation": "mxfp8_e4m3", "weight": "nvfp4"},
        "gradient": {"error": "mxfp4_e2m1", "activation": "mxfp8_e4m3"},
    },
    "layers": [{"match": "fc2", "operands": {"forward": {"activation": "fp8_row", "weight": "fp8_row"}}}],
}


def rows_of(counted: list[Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for where, exponents, more in counted:
        place = dict(zip(("step", "layer", "role", "factor"), where, strict=True))
        rows += [{**place, "kind": "scale", "exponent": e, "count": n} for e, n in exponents.items()]
        rows += [{**place, "kind": kind, "exponent": None, "count": more.get(kind, 0)} for kind in KINDS]
    return rows


def section_of(folder: Path, rows: list[dict[str, Any]] | None = None, precision: Any = None) -> Section | None:
    if rows is not None:
        columns = [("step", pa.int64()), *((name, pa.string()) for name in ("layer", "role", "factor", "kind"))]
        schema = pa.schema([*columns, ("exponent", pa.int32()), ("count", pa.int64())])
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / "scales.parquet")
    info: dict[str, Any] = {"status": "finished", "steps": 20, "layers": ["fc1", "fc2"]}
    if precision is not None:
        info["device"] = {"precision": precision}
    (folder / "run.json").write_text(json.dumps(info))
    return scales.section(gather(folder))


def drawn(folder: Path, counted: list[Any], precision: Any = None) -> Section:
    section = section_of(folder, rows_of(counted), precision)
    assert section is not None
    return section


def cells(section: Section, caption: str) -> list[list[str]]:
    """Return the cells of the rows of a table."""
    (table,) = re.findall(rf"<caption>{caption}</caption>(.*?)</table>", section.body, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("</thead>")[2], re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_run_that_casts_nothing_and_one_of_an_older_version_have_no_section(tmp_path: Path):
    assert section_of(tmp_path) is None
    assert section_of(tmp_path, []) is None


def test_sentences_name_the_operands_that_lose_the_most(tmp_path: Path):
    body = drawn(tmp_path, COUNTED).body
    assert "Of the weights that the error product of fc2 reads, 5% clipped: the most of all operands. " in body
    assert "Of the errors that the gradient product of fc1 reads, 25% became 0: the most of all operands. " in body
    assert "2 blocks had a NaN or an infinity; the scale of such a block is NaN." in body
    assert "No operand lost" not in body


def test_a_run_that_loses_less_than_a_hundredth_says_so(tmp_path: Path):
    body = drawn(tmp_path, COUNTED[:4]).body
    assert "No operand lost more than 1% of its numbers to clipping, or to 0." in body
    assert "reads," not in body
    assert "NaN" not in body


@pytest.mark.parametrize(("what", "verb"), [("clipped", "clipped"), ("vanished", "became 0")])
def test_a_hundredth_is_worth_a_sentence(tmp_path: Path, what: str, verb: str):
    where = (10, "fc1", "activation", "weight")
    body = drawn(tmp_path, [(where, {0: 1}, {"blocks": 1, "elements": 100, what: 1})]).body
    assert f"Of the weights that the forward product of fc1 reads, 1% {verb}" in body
    body = drawn(tmp_path, [(where, {0: 1}, {"blocks": 1, "elements": 101, what: 1})]).body
    assert "No operand lost more" in body


def test_the_picture_has_the_median_of_all_layers_in_each_interval(tmp_path: Path):
    section = drawn(tmp_path, COUNTED)
    rows = section.charts[0].spec["datasets"]["rows"]
    assert [(row["operand"], row["step"], row["exponent"], row["extent"]) for row in rows] == [
        ("forward: activation", 10, -5, "2^-5 to 2^3"),
        ("forward: activation", 20, 4, "2^4 to 2^4"),
        ("forward: weight", 10, 0, "2^0 to 2^0"),
        ("error: weight", 20, 1, "2^1 to 2^1"),
        ("gradient: error", 10, -9, "2^-9 to 2^-9"),
    ]
    assert (section.identifier, section.title) == ("scales", "Scales")


def test_a_median_is_the_least_exponent_that_half_of_the_blocks_do_not_exceed():
    assert median_exponent({5: 1, -1: 1}) == -1
    assert median_exponent({5: 2, -1: 1}) == 5
    assert median_exponent({7: 1}) == 7


def test_tables_have_the_formats_bits_and_shares_of_each_operand(tmp_path: Path):
    section = drawn(tmp_path, COUNTED, PRECISION)
    assert cells(section, "Operands of each layer") == [
        ["forward of fc1", "activation", "mxfp8_e4m3", "8.25", "0.78%", "0%", "0%", "0%"],
        ["forward of fc2", "activation", "fp8_row", "8", "0%", "0%", "0%", "50%"],
        ["forward of fc1", "weight", "nvfp4", "4.5", "0%", "0%", "0%", "0%"],
        ["gradient of fc1", "error", "mxfp4_e2m1", "4.25", "0%", "25%", "0%", "0%"],
        ["error of fc2", "weight", "\u2013", "\u2013", "5%", "0%", "50%", "0%"],
    ]
    assert cells(section, "Operands of products, all layers") == [
        ["forward", "activation", "mxfp8_e4m3", "8.25", "0.52%", "0%", "0%", "17%"],
        ["forward", "weight", "nvfp4", "4.5", "0%", "0%", "0%", "0%"],
        ["error", "weight", "\u2013", "\u2013", "5%", "0%", "50%", "0%"],
        ["gradient", "error", "mxfp4_e2m1", "4.25", "0%", "25%", "0%", "0%"],
    ]


@pytest.mark.parametrize("precision", [None, {"operands": {"forward": "no such table"}}, {"operands": 7}])
def test_formats_that_cannot_be_read_are_left_open(tmp_path: Path, precision: Any):
    rows = cells(drawn(tmp_path, COUNTED, precision), "Operands of each layer")
    assert [row[2:4] for row in rows] == [["\u2013", "\u2013"]] * 5


def test_where_every_block_has_a_nan_there_is_a_table_and_no_picture(tmp_path: Path):
    where = (10, "fc1", "activation", "weight")
    section = drawn(tmp_path, [(where, {}, {"blocks": 3, "elements": 96, "nan_scales": 3})], PRECISION)
    assert not section.charts
    assert "3 blocks had a NaN or an infinity" in section.body
    assert cells(section, "Operands of each layer") == [
        ["forward of fc1", "weight", "nvfp4", "4.5", "0%", "0%", "0%", "0%"]
    ]
