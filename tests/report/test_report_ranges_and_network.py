"""All tensors against their formats in one picture, and the network drawn with its branches."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import write_run

import emu
from emu.report import chart
from emu.report.evidence import Evidence, gather
from emu.report.histories import SCALAR_KINDS, LeadingBits
from emu.report.pictures import all_ranges, network
from emu.report.pictures.all_ranges import TensorRange, tensor_range
from emu.report.pictures.network_columns import DECIBEL_COLOURS, layer_columns
from emu.report.pictures.network_drawing import BOX_WIDTH, Node, drawing, nodes_of
from emu.report.run_data import RunData
from emu.report.words import duration


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return gather(write_run(tmp_path_factory.mktemp("runs") / "lenet", points=3, samples=300))


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A trained network with a plain branch, and two with a layer on it; each tensor has its registers."""
    small = {"training.steps": 2, "training.batch": 4, "training.log_every": 1, "data.test_images": 8}
    out = tmp_path_factory.mktemp("runs") / "resnet8"
    emu.train("resnet8", "dlu16", out=out, overrides=small, report=False)
    return gather(out)


def history(counts: list[int], lowest: int, **scalars: int) -> LeadingBits:
    """One interval with these counts by exponent."""
    whole = {kind: np.array([scalars.get(kind, 0)]) for kind in SCALAR_KINDS}
    whole["total"] = np.array([sum(counts) + sum(scalars.values())])
    return LeadingBits(np.array([10]), lowest, np.array([counts]), whole)


def ranged(evidence: Evidence, counts: list[int], lowest: int, **scalars: int) -> TensorRange:
    """The range of conv1's weights, fix16f13: from 2**-13 to 2**2."""
    return tensor_range(evidence, ("conv1", "weight"), history(counts, lowest, **scalars))


# ---- all ranges ----


def test_a_range_has_ends_bulk_headroom_and_shares_beyond(evidence: Evidence):
    inside = ranged(evidence, [1, 98, 0, 1], -5)
    assert (inside.covered, inside.seen, inside.bulk) == ((-13, 2), (-5, -1), (-4, -3))
    assert (inside.room, inside.above, inside.below) == (3, 0.0, 0.0)
    outside = ranged(evidence, [2, 0, 6, 0, 1], -15, none=3, above=2, below=2)
    # 2**-15 lies below 2**-13, and what the register could not place lies beyond or below
    assert (outside.above, outside.below) == (2 / 16, 4 / 16)
    over = ranged(evidence, [4, 3, 1], 1)
    assert (over.room, over.above) == (-2, 4 / 8)
    nothing = ranged(evidence, [], 0, none=5)
    assert (nothing.seen, nothing.bulk, nothing.room) == (None, None, None)


@pytest.mark.parametrize(
    ("counts", "bulk"), [([1], (0, 1)), ([1, 98, 1], (1, 2)), ([2, 96, 2], (0, 3)), ([0, 5, 5, 0], (1, 3))]
)
def test_the_bulk_leaves_out_a_hundredth_at_each_end(evidence: Evidence, counts: list[int], bulk: tuple[int, int]):
    assert ranged(evidence, counts, 0).bulk == bulk


def test_a_moving_point_is_drawn_where_it_ended(residual: Evidence):
    (layer, role), trajectories = next((t, p) for t, p in residual.points.items() if t in residual.bits)
    drawn = tensor_range(residual, (layer, role), residual.bits[layer, role])
    points = [int(each.points[-1]) for each in trajectories]
    assert drawn.format == "fix16f?"
    assert drawn.covered == (-max(points), 15 - min(points))


def test_the_parts_beyond_a_range_are_drawn_in_their_own_colours(evidence: Evidence):
    rows = all_ranges._rows([ranged(evidence, [1, 1, 1, 1], -15), ranged(evidence, [1, 1, 1], 1)], -20)
    assert [(row["below0"], row["below1"]) for row in rows] == [(-15, -13), (-21, -21)]
    assert [(row["above0"], row["above1"]) for row in rows] == [(-21, -21), (2, 4)]


def test_rows_have_a_rank_for_each_order(evidence: Evidence):
    roomy, tight, lossy = (ranged(evidence, [8], low) for low in (-9, 1, -14))
    rows = all_ranges._rows([roomy, tight, lossy], -20)
    assert [row["by_layer"] for row in rows] == [0, 1, 2]
    assert [row["by_room"] for row in rows] == [1, 0, 2]
    assert [row["by_below"] for row in rows] == [1, 2, 0]


def test_the_picture_has_a_row_for_every_tensor_and_is_vega_lite(evidence: Evidence, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chart, "VALIDATES", True)
    section = all_ranges.section(evidence)
    assert section is not None
    (drawn,) = section.charts
    rows = drawn.spec["datasets"]["rows"]
    assert [row["tensor"] for row in rows] == [" ".join(tensor) for tensor in evidence.bits]
    assert drawn.spec["height"] == 15 * len(rows)
    assert f"Magnitudes of {len(rows)} tensors" in drawn.label
    worst = min(rows, key=lambda row: int(row["room"]))
    assert f"Least headroom has {worst['tensor']}: {worst['room']} powers of two." in drawn.label
    assert drawn.spec["transform"][0] == {"filter": "role == 'all roles' || datum.role == role"}


def test_the_axis_shows_all_results_and_the_near_ends_of_formats_only(evidence: Evidence):
    near = ranged(evidence, [1], -7)  # 2 is more than 6 powers above 2**-6, and -13 is 6 below 2**-7
    assert all_ranges._domain([near]) == (-14, -5)
    assert all_ranges._domain([ranged(evidence, [1], -5)]) == (-6, 3)  # 2**2 is 6 above 2**-4, 2**-13 is 8 below


def test_powers_of_two_are_named_on_the_axis_from_end_to_end(evidence: Evidence):
    row = ranged(evidence, [1], -5)
    spec = all_ranges._spec(all_ranges._rows([row], -6), -6, 3, 20)
    axis = spec["layer"][0]["encoding"]["x"]["axis"]
    assert axis["values"] == list(range(-6, 4))
    assert '"-6": "2\u207b\u2076"' in axis["labelExpr"]
    wide = all_ranges._spec(all_ranges._rows([row], -32), -32, 8, 20)["layer"][0]["encoding"]["x"]["axis"]
    assert wide["values"] == [-32, -24, -16, -8, 0, 8]


def test_the_table_says_format_ranges_headroom_and_losses(evidence: Evidence):
    texts = all_ranges._texts(ranged(evidence, [4, 3, 1], 1))
    assert list(texts.values()) == [
        "fix16f13", "2\u207b\u00b9\u00b3 to 2\u00b2", "2\u00b9 to 2\u2074", "2\u00b9 to 2\u2074", "-2", "50%", "0%",
    ]  # fmt: skip
    unknown = tensor_range(evidence, ("no", "such"), history([1], 0))
    assert list(all_ranges._texts(unknown).values())[4:] == ["\u2013"] * 3
    assert all_ranges._texts(unknown)["format"] == "\u2013"


def test_many_tensors_have_thin_rows_and_menus_know_the_heights(tmp_path: Path):
    layers = ["input", *(f"conv{i}" for i in range(9)), "conv1", "conv2", "fc1", "fc2", "loss"]
    many = gather(write_run(tmp_path / "many", layers=list(dict.fromkeys(layers)), points=1, samples=20))
    section = all_ranges.section(many)
    assert section is not None
    rows = section.charts[0].spec["datasets"]["rows"]
    assert len(rows) > 40
    assert section.charts[0].spec["height"] == 15 * len(rows)
    heights = dict(re.findall(r'<option value="([^"]+)" data-height="(\d+)"', section.body))
    assert int(heights["all roles"]) == 15 * len(rows)
    assert int(heights["error"]) == 15 * sum(row["role"] == "error" for row in rows)


def test_a_run_without_registers_has_no_such_picture(tmp_path: Path):
    bare = gather(write_run(tmp_path / "bare", points=1, samples=5, leave_out=("registers.parquet",)))
    assert all_ranges.section(bare) is None


# ---- the network ----


def test_blocks_have_their_body_their_branch_and_their_sum(residual: Evidence):
    nodes = nodes_of(residual.run)
    assert [node.name for node in nodes] == [
        "input", "conv", "norm", "relu1", "block1", "relu2", "block2", "relu3", "block3", "relu4", "pool", "flatten1",
        "output", "loss",
    ]  # fmt: skip
    plain, with_layer = nodes[4], nodes[6]
    assert [node.name for node in plain.body] == [f"block1.{n}" for n in ("conv1", "norm1", "relu1", "conv2", "norm2")]
    assert plain.branch == ()
    assert [(node.name, node.kind) for node in with_layer.branch] == [("block2.down", "conv2d")]
    assert [name for node in nodes for name in node.names()] == residual.run.layers


def test_a_network_from_python_is_drawn_as_a_row_of_the_layers_that_it_names(evidence: Evidence):
    given = RunData({**evidence.run.info, "network": "Network(...)"}, evidence.run.tables)
    assert nodes_of(given) == [Node(name) for name in evidence.run.layers]


def test_every_layer_has_a_box_and_every_block_a_branch(residual: Evidence):
    nodes = nodes_of(residual.run)
    boxes = {name: ("red", "blue", "7%") for node in nodes for name in node.names()}
    drawn = drawing(nodes, boxes)
    assert re.findall(r'data-layer="([^"]+)"', drawn) != []
    assert set(re.findall(r'data-layer="([^"]+)"', drawn)) == set(residual.run.layers)
    assert drawn.count('class="frame"') == 3
    assert "<span>block1: residual of block1.conv1, block1.norm1" in drawn  # what is read aloud
    assert '<text x="38" y="53" class="name">conv1</text>' in drawn  # without the block's name
    assert "--box:red;--ink-of-box:blue" in drawn


def test_a_branch_leads_from_above_the_body_to_the_side_of_the_sum():
    block = Node("b", "residual", (Node("b.x", "linear"), Node("b.y", "relu")))
    boxes = dict.fromkeys(block.names(), ("", "", ""))
    drawn = drawing([block], boxes)
    sum_box = re.search(r'<title>b, sum</title><rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', drawn)
    assert sum_box is not None
    x, y, width, height = map(int, sum_box.groups())
    tips = re.findall(r'd="M(\d+) (\d+)l7 -4v8z"', drawn)  # heads that point to the left
    assert tips == [(str(x + width), str(y + height // 2))]
    ys = [int(top) for top in re.findall(rf'<rect x="{x}" y="(\d+)"', drawn)]
    assert ys == sorted(ys)
    assert ys[-1] == y


def test_arrows_lead_from_layer_to_layer(residual: Evidence):
    nodes = nodes_of(residual.run)
    drawn = drawing(nodes, {name: ("", "", "") for node in nodes for name in node.names()})
    assert drawn.count("l-7 -4v8z") == len(nodes) - 1  # to the right: none leads to the first
    downs = re.findall(r'd="M(\d+) (\d+)l-4 -7h8z"', drawn)
    boxes = re.findall(r'<rect x="(\d+)" y="(\d+)" width="142"', drawn)
    tops = {(int(x) + BOX_WIDTH // 2, int(y)) for x, y in boxes}
    # each arrow ends in the middle of the top of a box: a block's layers, the first of its branch, its sum
    assert {(int(x), int(y)) for x, y in downs} <= tops
    assert len(downs) == sum(len(node.body) + len(node.branch) + 1 for node in nodes if node.body)


def test_a_drawing_is_as_large_as_what_is_in_it():
    inner = Node("a.b", "residual", (Node("a.b.x", "relu"),), (Node("a.b.s", "linear"),))
    outer = Node("a", "residual", (inner, Node("a.y", "relu")))
    boxes = dict.fromkeys(outer.names(), ("", "", ""))
    drawn = drawing([Node("in"), outer], boxes | {"in": ("", "", "")})
    for width, height, inside in re.findall(r'<svg viewBox="0 0 (\d+) (\d+)"(.*?)</svg>', drawn):
        rects = [
            tuple(map(int, r)) for r in re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', inside)
        ]
        assert max(x + w for x, _, w, _ in rects) < int(width)
        assert max(y + h for _, y, _, h in rects) < int(height)
        if 'class="wire"' not in inside:
            continue
        numbers = [int(n) for path in re.findall(r' d="([^"]+)"', inside) for n in re.findall(r"(?<![a-z-])\d+", path)]
        assert max(numbers) <= max(int(width), int(height))
    assert int(re.findall(r'<svg viewBox="0 0 (\d+) ', drawn)[1]) > 2 * BOX_WIDTH


def test_a_long_name_is_cut_in_its_box_and_whole_in_its_title():
    name = "a_very_long_name_of_a_layer"
    drawn = drawing([Node(name, "relu")], {name: ("", "", "")})
    assert ">a_very_long_name_o\u2026</text>" in drawn
    assert f"<title>{name}, relu</title>" in drawn


def test_columns_are_the_worst_of_a_layer_and_sums_of_a_step(residual: Evidence):
    names = [name for node in nodes_of(residual.run) for name in node.names()]
    columns = layer_columns(residual, names)
    assert list(columns) == ["underflow", "overflow", "noise", "energy", "time", "simulated"]
    worst = max(flags.share("underflow") for (layer, _), flags in residual.flags.items() if layer == "output")
    least = min(noise.last for (layer, _), noise in residual.noise.items() if layer == "output")
    assert columns["underflow"].boxes["output"][2] == chart.percent(worst)
    assert columns["noise"].boxes["output"][2] == f"{least:.1f} dB"
    rows = residual.run.section("cost")["energy"]
    own = sum(row["picojoules"] for row in rows if row["layer"] == "conv")
    share = own / sum(row["picojoules"] for row in rows)
    assert columns["energy"].texts["conv"].endswith(f", {chart.percent(share)}")
    assert set(columns["energy"].boxes) == set(names)
    spent = residual.time
    assert spent is not None
    seconds = sum(entry.typical_seconds for entry in spent.entries if entry.layer == "conv") / spent.steps
    assert columns["time"].boxes["conv"][2] == duration(seconds)
    simulated = residual.simulated
    assert simulated is not None
    of_conv = sum(entry.seconds for entry in simulated.entries if entry.layer == "conv")
    assert columns["simulated"].texts["conv"].endswith(f", {chart.percent(of_conv / simulated.seconds)}")


def test_parts_of_a_layer_count_for_the_layer_that_is_drawn(evidence: Evidence):
    flags = {
        ("heads.query", "error"): evidence.flags["conv1", "error"],
        ("heads", "error"): evidence.flags["fc1", "error"],
    }
    run = Evidence(**{**vars(evidence), "flags": flags, "noise": {}, "time": None})
    worst = max(each.share("underflow") for each in flags.values())
    assert layer_columns(run, ["heads"])["underflow"].boxes["heads"][2] == chart.percent(worst)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(math.inf, "identical"), (60.0, "over 60 dB"), (59.9, "50\u201360"), (0.0, "0\u201310"), (-0.1, "under 0 dB")],
)
def test_a_ratio_has_the_colour_of_its_legend(ratio: float, words: str):
    from emu.report.pictures.network_columns import _decibel_box

    assert _decibel_box(ratio)[0] == DECIBEL_COLOURS[words]


@pytest.mark.parametrize(("share", "place"), [(0.0, 0), (1e-9, 1), (1e-5, 2), (0.0299, 5), (0.03, 6), (1.0, 8)])
def test_a_share_has_the_colour_of_its_class(share: float, place: int):
    from emu.report.pictures.network_columns import _share_box

    assert _share_box(share)[:2] == (chart.SHARE_COLOURS[place], chart.SHARE_INKS[place])


def test_the_section_has_a_menu_of_columns_their_legends_and_their_numbers(residual: Evidence):
    section = network.section(residual)
    assert section is not None
    data: dict[str, Any] = json.loads(json.dumps(section.data["network-data"]))
    keys = re.findall(r'<option value="(\w+)"', section.body)
    assert keys == list(data["columns"]) == list(data["legends"])
    shown = re.findall(r'<div data-legend="(\w+)"( hidden)?>', section.body)
    assert shown == [("share", ""), ("whole", " hidden"), ("decibel", " hidden")]
    table = section.body.split("The columns as a table")[1]
    assert table.count("<tr>") == 1 + len(residual.run.layers)


def test_a_run_without_tables_has_no_drawing(tmp_path: Path):
    files = ("registers.parquet", "flags.parquet", "snr.parquet", "profile.parquet")
    assert network.section(gather(write_run(tmp_path / "bare", points=1, samples=5, leave_out=files))) is None
