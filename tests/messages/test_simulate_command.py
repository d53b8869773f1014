"""What `emu simulate` says: a table, data, files, and the text of each error."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import emu
from emu import ConfigError
from emu.cli import app
from emu.report.words import area, energy
from emu.training.cost import cost_of

MLP = ("mlp", "--device", "k20x-8x")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.mark.parametrize(("arguments", "message"), [
    ((*MLP, "--nodes", "16", "--batch", "1024"), "`ports` of [crossbar] must be at least 16, for 16 nodes"),
    (("mlp", "--device", "p100", "--nodes", "2"), "a device must have [crossbar] and a link to it"),
    (("mlp", "--device", "fixed16", "--nodes", "2"), "a device must give a clock and the lanes of a 'mac_array'"),
    ((*MLP, "--nodes", "3", "--batch", "32"),
     "a batch must be a multiple of the 3 models that share it, got 32 for 3 nodes; choose another batch, or another "
     "number of nodes"),
    ((*MLP, "--bits", "17"), "`bits` must be 1..16, or 32 for gradients as they are, got 17"),
    ((*MLP, "--nodes", "2,x"),
     "--nodes must be whole numbers in 1..2147483647, separated by commas, got 'x' in '2,x'; correct it"),
    ((*MLP, "--batch", "0"),
     "--batch must be whole numbers in 1..2147483647, separated by commas, got '0' in '0'; correct it"),
    ((*MLP, "--batch", "1000000000000"),
     "--batch must be whole numbers in 1..2147483647, separated by commas, got '1000000000000' in '1000000000000'; "
     "correct it"),
    ((*MLP, "--cost", "nothing"),
     "a cost table must be the name of a shipped cost table or the path of a .toml file, got 'nothing'"),
    (("mlp", "--device", "k20x-dual-24", "--nodes", "2", "--set", "cluster.units=3", "--batch", "96"),
     "the 3 devices of a node must fill whole hosts, which have 2 devices each on k20x-dual-24"),
])  # fmt: skip
def test_bad_input_is_refused_with_its_remedy(arguments: tuple[str, ...], message: str):
    with pytest.raises(ConfigError) as refused:
        run(*arguments)
    assert message in str(refused.value)


def test_numbers_from_python_are_checked_as_well():
    with pytest.raises(ConfigError, match="`nodes` must be at least 1, got 0"):
        emu.simulate(emu.model("mlp"), emu.device("k20x-8x"), nodes=[0])
    with pytest.raises(ConfigError, match=re.escape("`batches` must be a list of integers, got 64; write [64]")):
        emu.simulate("mlp", "k20x-8x", batches=64)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=re.escape("`bits` must be 1..16, or 32 for gradients as they are, got 0")):
        emu.simulate("mlp", "k20x-8x", bits=[0])
    with pytest.raises(ConfigError, match=r"`cluster\.nodes` must be an integer, got '4'; write a whole number"):
        emu.simulate("mlp", "k20x-8x", overrides={"cluster.nodes": "4"})


def test_integers_of_numpy_are_those_of_python():
    given, found = (
        emu.simulate("mlp", "k20x-8x", nodes=numbers(1, 2), batches=numbers(64), bits=numbers(4)).rows()
        for numbers in (lambda *n: list(n), lambda *n: np.array(n))
    )
    assert found == given


def test_a_whole_table_of_a_cluster_says_how_many_nodes_and_bits_there_are():
    by_key, whole = (
        emu.simulate("mlp", "k20x-8x", overrides=settings).rows()
        for settings in ({"cluster.nodes": 4, "cluster.bits": 2}, {"cluster": {"nodes": 4, "bits": 2}})
    )
    assert [(row["nodes"], row["bits"]) for row in whole] == [(1, 2), (4, 2)]
    assert whole == by_key


def test_a_folder_has_data_and_a_trace_with_a_process_per_node(tmp_path: Path):
    run(*MLP, "--nodes", "1,4", "--batch", "64", "--out", str(tmp_path / "out"))
    folder = tmp_path / "out"
    rows = json.loads((folder / "simulate.json").read_text())
    assert [row["nodes"] for row in rows] == [1, 4]
    assert rows == parquet.read_table(folder / "simulate.parquet").to_pylist()
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert len({event["pid"] for event in events if event["ph"] == "X"}) == 4


@pytest.mark.parametrize(("arguments", "nodes"), [
    (("everything",), [1, 4]),
    (("everything", "--set", "cluster.nodes=2"), [1, 2]),
    (("everything", "--set", "cluster.workers=[1,2]", "--set", "cluster.owners=[0]"), [4]),
    (("mlp", "--set", "cluster.streaming=true"), [1, 2, 4, 8]),
    (("mlp", "--set", "cluster.nodes=2"), [1, 2]),
])  # fmt: skip
def test_without_numbers_of_nodes_they_are_the_recipe_s(arguments: tuple[str, ...], nodes: list[int]):
    rows = json.loads(run(*arguments, "--device", "k20x-8x", "--json"))
    assert [row["nodes"] for row in rows] == nodes


#: What the label of a line or point of the picture says; a line has the label of its first point.
LABEL = re.compile(
    r'<path aria-label="nodes: (\d+); speed-up against one device: ([\d.]+); batch, bits: ([\d, ]+); kind: ([a-z -]+)"'
    r' role="graphics-symbol" aria-roledescription="(point|line mark)" (?:transform="\S+" )?d="([^"]+)".*?'
    r'stroke-dasharray="([\d,]+)"'
)
DASHES = {"speed-up": "1,0", "most that messages allow": "6,3", "one for each device": "1,3"}


def test_the_picture_has_a_line_through_every_speed_up_and_every_bound(tmp_path: Path):
    run(*MLP, "--nodes", "1,4,8", "--batch", "32,64", "--bits", "8,32", "--out", str(tmp_path))
    expected: dict[tuple[str, str], dict[int, float]] = {}
    for row in json.loads((tmp_path / "simulate.json").read_text()):
        values = {"speed-up": row["speed_up"], "most that messages allow": row["bound"]}
        for kind, value in (values | {"one for each device": row["nodes"]}).items():
            if value is not None:
                expected.setdefault((f"{row['batch']}, {row['bits']}", kind), {})[row["nodes"]] = pytest.approx(value)
    found: dict[tuple[str, str], dict[int, float]] = {}
    lines: dict[tuple[str, str], int] = {}
    for nodes, value, series, kind, mark, path, dashes in LABEL.findall((tmp_path / "speed-up.svg").read_text()):
        assert dashes == DASHES[kind]
        if mark == "point":
            found.setdefault((series, kind), {})[int(nodes)] = float(value)
        else:
            lines[series, kind] = path.count(",")  # one in each of its points
    assert found == expected
    assert lines == {curve: len(points) for curve, points in expected.items()}
    bounds = {series: len(points) for (series, kind), points in found.items() if kind == "most that messages allow"}
    assert bounds == {"32, 8": 2, "32, 32": 2, "64, 8": 2, "64, 32": 2}


def table(told: str) -> list[dict[str, str]]:
    """Return the rows of the table of times, cells by head; it is not divided."""
    head, *rows = told.split("parameters", 1)[1].split("\n\n")[1].splitlines()
    heads = re.split(r"\s+", head.replace("times in", "times_in").strip())
    return [dict(zip(heads, row.split(), strict=False)) for row in rows if row]


def test_a_long_step_takes_no_digits_from_short_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "160")
    arguments = (*MLP, "--nodes", "1", "--batch", "8,400000,400000000")
    rows, data = table(run(*arguments)), json.loads(run(*arguments, "--json"))
    assert [row["times_in"] for row in rows] == ["us", "ms", "s"]
    size = {"us": 10**6, "ms": 10**9, "s": 10**12}
    for row, exact in zip(rows, data, strict=True):
        assert len(row["step"].replace(".", "").lstrip("0")) >= 3
        for name in ("step", "compute", "update"):
            ps = exact[f"{name}_ps"]
            shown = "<0.01" if 0 < ps < 0.005 * size[row["times_in"]] else f"{ps / size[row['times_in']]:.2f}"
            assert row[name] == shown
    assert rows[2]["update"] == "<0.01"


def test_sentences_say_which_step_is_fastest_and_what_many_nodes_spend_their_time_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    many = ("dnn46m", "--device", "k20x-8x", "--bits", "32,1", "--nodes", "1,8")
    assert run(*many, "--batch", "2880").splitlines()[-3:] == [
        "Fastest: 8 nodes, 1 bit, batch 2880: 47247 samples/s.",
        "8 nodes, 32 bits, batch 2880: 3.17 times one node; 49% of a step is waiting for messages, and links alone "
        "would allow 6.53 times.",
        "8 nodes, 1 bit, batch 2880: 5.64 times one node; 79% of a step is compute, and links alone would allow 199.64 "
        "times.",
    ]
    small = run(*many)
    assert (
        "Fastest: 1 node, batch 64: 2847 samples/s. More nodes are slower at batch 64; try a larger --batch." in small
    )
    assert run("lenet", "--device", "v100").splitlines()[-1] == "1 node, batch 32: 74% of a step is compute."


def test_steps_of_one_unit_have_it_in_the_heading(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "160")
    told = run(*MLP, "--nodes", "1", "--batch", "8,16")
    assert "; times in us\n" in told
    assert list(table(told)[0])[:4] == ["batch", "bits", "nodes", "step"]


def test_data_can_be_printed():
    assert json.loads(run(*MLP, "--nodes", "2", "--batch", "64", "--json"))[0]["batch"] == 64


def test_without_nodes_the_topology_decides():
    rows = json.loads(run("mlp", "--device", "k20x-8x", "--batch", "64", "--json"))
    assert [row["nodes"] for row in rows] == [1, 2, 4, 8]


def test_a_device_without_a_clock_has_energy_and_area_and_says_what_times_need(tmp_path: Path):
    out = tmp_path / "out"
    told = run("mlp", "--device", "fixed16", "--batch", "8", "--out", str(out))
    cost = cost_of("mlp", "fixed16", batch=8)
    assert f"{energy(cost.joules_per_step)}, of 8 examples" in told
    assert energy(cost.joules_per_inference) in told
    assert area(cost.area_mm2) in told
    assert "fixed16 has no clock, so there are no times; add `clock_hz` to [compute]" in told
    assert {path.name for path in out.iterdir()} == {"simulate.json", "simulate.parquet", "cost.json", "energy.parquet"}
    assert json.loads((out / "simulate.json").read_text()) == [
        {
            "model": "mlp",
            "device": "fixed16",
            "batch": 8,
            "joules_per_step": cost.joules_per_step,
            "joules_per_inference": cost.joules_per_inference,
            "area_mm2": cost.area_mm2,
        }
    ]
    assert parquet.read_table(out / "energy.parquet").to_pylist() == [row.row() for row in cost.rows]
    assert json.loads((out / "cost.json").read_text())["shares"] == cost.shares()


def test_every_row_has_the_energy_of_its_batch():
    rows = json.loads(run(*MLP, "--nodes", "1", "--batch", "32,64", "--json", "--cost", "jouppi-7nm"))
    for row in rows:
        cost = cost_of("mlp", "k20x-8x", batch=row["batch"], table="jouppi-7nm")
        assert (row["joules_per_step"], row["area_mm2"]) == (cost.joules_per_step, None)
