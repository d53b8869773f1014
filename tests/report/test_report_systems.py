"""Loss scale, moving points and simulated time in a report, from made-up tables."""

import html
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import emu
from emu.report.evidence import gather
from emu.report.pictures import leading_bits, loss_scale, simulated_time
from emu.report.pictures.leading_bits_panel import panel
from emu.report.words import duration

FORMATS = [
    {"layer": "fc1", "role": "error", "format": "fp16"},
    {"layer": "fc1", "role": "gradient", "format": "fix8f?"},
]
#: One unit of 4 lanes at 1 GHz, a memory of 8 GB/s: 4e9 operations a second from half an operation a byte on.
DEVICE = {
    "name": "small",
    "description": "d",
    "source": "s",
    "precision": {
        role: {"format": "fix8f4"} for role in ("weight", "bias", "activation", "error", "gradient", "update", "master")
    },
    "compute": {
        "clock_hz": {"value": 1e9, "source": "s"},
        "memory_bandwidth_bytes_per_s": {"value": 8e9, "source": "s"},
        "units": {"vector": {"kind": "mac_array", "lanes": {"value": 4, "source": "s"}}},
    },
}


def cost(layer, kind, unit="vector", **counted):
    row = {"step": 100, "layer": layer, "role": "activation", "unit": unit, "kind": kind, "calls": 100, "cycles": 0}
    return row | {"picoseconds": 0, "operations": 0, "bytes": 0} | counted


def event(step, phase, begin, duration, resource, kind, name="fc1 activation"):
    about = {"phase": phase, "step": step, "operation": "matmul", "cycles": 7}
    return {"ph": "X", "ts": begin, "dur": duration, "tid": resource, "cat": kind, "name": name, "args": about}


EVENTS = [
    {"step": 0, "event": "start", "scale": 65536.0},
    {"step": 3, "event": "overflow", "scale": 65536.0},
    {"step": 3, "event": "repeat", "scale": 8192.0},
    {"step": 40, "event": "growth", "scale": 16384.0},
]
#: float32's errors: 60 of 100 at 2**-30, below what fp16 writes; 30 at 2**-20, subnormal; 5 at 2**-10; 5 are 0.
EXPONENTS = [
    {"step": 10, "role": "error", "exponent": exponent, "count": count, "scale": 2.0**13}
    for exponent, count in ((-30, 60), (-20, 30), (-10, 5), (None, 5))
]
POINTS = [
    {"step": step, "layer": "fc1", "role": "gradient", "part": part, "point": point, "redone": redone}
    for step, part, point, redone in (
        (1, "", 9, True),
        (1, "bias", 6, False),
        (20, "", 10, False),
        (50, "", 8, True),
    )
]
#: 6 ms in all: in fc1 3 ms forward at the peak of 4e9 operations a second and 1 ms of it again, in fc2 1 ms at half
#: an operation for 4 bytes, which the memory bounds, and 1 ms of transfers.
COSTS = [
    cost("fc1", "forward", cycles=3_000_000, picoseconds=3 * 10**9, operations=12_000_000, bytes=1_000_000),
    cost("fc1", "redo", cycles=1_000_000, picoseconds=10**9, operations=4_000_000, bytes=500_000, calls=7),
    cost("fc2", "update", cycles=250_000, picoseconds=10**9, operations=1_000_000, bytes=8_000_000),
    cost("", "transfer", "link", picoseconds=10**9, bytes=1000),
]
INFO = {
    "simulated_seconds": 0.006,
    "simulated_picoseconds_by_phase": {"pre-training": 4 * 10**9, "training": 2 * 10**9},
}


def run_with(folder, **tables):
    """Return the evidence of a run with these tables: name -> rows, and `info` and `trace` as they are."""
    for name, rows in tables.items():
        if name not in ("info", "trace"):
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    info = {"layers": ["fc1", "fc2"], "formats": FORMATS, "steps": 100, "status": "finished", "device": DEVICE}
    (folder / "run.json").write_text(json.dumps(info | tables.get("info", {})))
    if "trace" in tables:
        (folder / "trace.json").write_text(tables["trace"])
    return gather(folder)


def words(part):
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]+>", " ", part.body)))


def rows_of(section, chart):
    return next(one for one in section.charts if one.identifier == chart).spec["datasets"]


class TestLossScale:
    def test_the_sentence_counts_what_happened(self, tmp_path):
        info = {"recipe": {"loss_scaling": {"policy": "backoff"}}}
        section = loss_scale.section(run_with(tmp_path, loss_scaling=EVENTS, info=info))
        said = "Policy backoff: S went from 2^16 to 2^14; 1 overflow, 1 repeat, 0 skipped updates, S grew 1 time."
        assert said in words(section)

    def test_the_line_moves_where_s_does_and_marks_stand_where_something_happened(self, tmp_path):
        drawn = rows_of(loss_scale.section(run_with(tmp_path, loss_scaling=EVENTS)), "loss-scale-chart")
        assert [(row["step"], row["exponent"]) for row in drawn["line"]] == [(0, 16), (3, 13), (40, 14), (100, 14)]
        assert [(row["step"], row["event"]) for row in drawn["marks"]] == [
            (3, "overflow"),
            (3, "repeat"),
            (40, "growth"),
        ]

    def test_what_a_narrow_format_loses_is_told_with_and_without_the_scale(self, tmp_path):
        """Multiplied by 2**13, 2**-30 becomes 2**-17 and 2**-20 becomes 2**-7."""
        section = loss_scale.section(run_with(tmp_path, loss_scaling=EVENTS, exponents=EXPONENTS))
        cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", section.body)
        plain, scaled = (cells.index(f"errors, {name}") for name in ("as they are", "multiplied by S"))
        assert cells[plain + 1 : plain + 6] == ["5%", "60%", "30%", "5%", "0%"]
        assert cells[scaled + 1 : scaled + 6] == ["5%", "0%", "60%", "35%", "0%"]
        fates = {row["from"]: row["fate"] for row in rows_of(section, "error-exponents-0")["rows"]}
        assert fates == {-30: "lost", -20: "subnormal", -10: "kept"}

    def test_without_a_scale_and_with_the_range_of_float32_there_is_nothing_to_show(self, tmp_path):
        wide = {"formats": [{"layer": "fc1", "role": "error", "format": "bf16"}]}
        assert loss_scale.section(run_with(tmp_path, exponents=EXPONENTS, info=wide)) is None


def register(step):
    at = {"step": step, "layer": "fc1", "role": "gradient"}
    return [
        {**at, "kind": "positive", "exponent": -3, "count": 10},
        *({**at, "kind": kind, "exponent": None, "count": 0} for kind in ("none", "below", "above", "nonfinite")),
        {**at, "kind": "total", "exponent": None, "count": 10},
    ]


class TestPoints:
    def panel(self, tmp_path, points):
        registers = [row for step in range(10, 101, 10) for row in register(step)]
        tables = {"registers": registers, **({"points": points} if points else {})}
        evidence = run_with(tmp_path, **tables)
        assert leading_bits.section(evidence).charts
        return panel(evidence, ("fc1", "gradient"), evidence.bits["fc1", "gradient"])

    def test_the_ends_of_the_range_follow_the_point_and_a_redo_counts_from_its_own_step(self, tmp_path):
        shown = self.panel(tmp_path, POINTS)
        weight = [(row["x"], row["top"], row["bottom"], row["redone"]) for row in shown["trail"] if not row["part"]]
        assert weight == [(0, -2, -9, True), (20, -3, -10, False), (49, -1, -8, True), (100, -1, -8, False)]
        assert [(row["x"], row["top"]) for row in shown["trail"] if row["part"] == "bias"] == [(1, 1), (100, 1)]
        assert [row["text"] for row in shown["trail"]][2] == "step 50: point 8, run again"

    def test_facts_count_moves_and_redos(self, tmp_path):
        facts = dict(self.panel(tmp_path, POINTS)["facts"])
        assert facts["Point"] == "8 at the end; moved twice, run again twice"
        assert facts["Point of bias"] == "6 at the end; moved never, run again never"

    def test_without_points_no_range_is_drawn(self, tmp_path):
        shown = self.panel(tmp_path, None)
        assert shown["trail"] == []
        assert "The range of the format is not fixed, so none is drawn." in shown["summary"]


class TestSimulatedTime:
    def section(self, tmp_path, **more):
        return simulated_time.section(run_with(tmp_path, **({"simulation": COSTS, "info": INFO} | more)))

    def test_sentences_say_how_long_what_for_and_what_redos_cost(self, tmp_path):
        text = words(self.section(tmp_path))
        assert "On small, the 100 steps would have taken 6 ms: 60 µs each. Pre-training 4 ms, training 2 ms." in text
        assert "Of its work, 50% is forward, 17% is update, 17% is run again, 17% is transfers." in text
        assert "7 operations ran again with a better scale, which took 1,000,000 cycles, 1 ms." in text

    def test_bars_add_up_to_a_step(self, tmp_path):
        rows = rows_of(self.section(tmp_path), "simulated-time-chart")["rows"]
        assert sum(row["ms"] for row in rows) == pytest.approx(0.06)
        assert [row["layer"] for row in rows] == ["fc1", "fc1", "fc2", "batches"]

    def test_no_work_lies_above_the_roof(self, tmp_path):
        drawn = rows_of(self.section(tmp_path), "roofline-chart")
        corners = [(row["x"], row["y"]) for row in drawn["roofs"]]
        assert corners[1] == (0.5, 4e9)
        x, y = np.transpose(corners)
        for mark in drawn["work"]:
            assert mark["y"] <= np.interp(mark["x"], x, y) * (1 + 1e-12)
        assert {mark["layer"]: mark["y"] for mark in drawn["work"]} == {"fc1": 4e9, "fc2": 1e9}

    def test_the_first_step_of_each_phase_is_drawn_from_its_own_beginning(self, tmp_path):
        names = [
            {"ph": "M", "name": "thread_name", "tid": i, "args": {"name": n}} for i, n in enumerate(("vector", "link"))
        ]
        events = [
            event(1, "pre-training", 5.0, 2.0, 0, "forward"),
            event(1, "pre-training", 7.0, 1.0, 1, "transfer"),
            event(2, "pre-training", 8.0, 1.0, 0, "forward"),
            event(51, "training", 400.0, 3.0, 0, "redo"),
        ]
        section = self.section(tmp_path, trace=json.dumps({"traceEvents": names + events}))
        first, second = (rows_of(section, f"step-chart-{i}")["events"] for i in (0, 1))
        assert [(row["resource"], row["from"], row["to"]) for row in first] == [("vector", 0, 2), ("link", 2, 3)]
        assert [(row["from"], row["kind"], row["time"]) for row in second] == [(0, "run again", "3 µs")]
        assert "Step 51, training" in words(section)

    def test_a_step_of_several_nodes_has_rows_node_by_node_and_says_how_busy_the_crossbar_is(self, tmp_path):
        named = [
            {"ph": "M", "name": "thread_name", "pid": node, "tid": 2 * track + node, "args": {"name": name}}
            for track, name in enumerate(("compute", "port out"))
            for node in (0, 1)
        ]
        events = [event(1, "training", 0.0, 2.0, node, "quantise") | {"pid": node} for node in (0, 1)] + [
            event(1, "training", 2.0, 1.0, 2 + node, "send") | {"pid": node} for node in (0, 1)
        ]
        exchange = [cost("", "quantise", "", picoseconds=10**9), cost("", "send", "port", picoseconds=3 * 10**9)]
        section = self.section(tmp_path, simulation=COSTS + exchange, trace=json.dumps({"traceEvents": named + events}))
        rows = rows_of(section, "step-chart-0")["events"]
        assert {(row["resource"], row["kind"]) for row in rows} == {
            ("node 0: compute", "quantise"),
            ("node 0: port out", "send"),
            ("node 1: compute", "quantise"),
            ("node 1: port out", "send"),
        }
        chart = next(chart for chart in section.charts if chart.identifier == "step-chart-0")
        assert chart.spec["encoding"]["y"]["sort"] == [
            "node 0: compute",
            "node 0: port out",
            "node 1: compute",
            "node 1: port out",
        ]
        assert "The busiest port of the crossbar sends for 50% of the time." in words(section)
        bars = rows_of(section, "simulated-time-chart")["rows"]
        assert [row["kind"] for row in bars if row["layer"] == "exchange"] == ["quantise", "send"]

    @pytest.mark.parametrize("trace", ["", "[]", '{"traceEvents": 3}', '{"traceEvents": [1, {"ph": "X"}]}'])
    def test_a_damaged_trace_costs_only_its_picture(self, tmp_path, trace):
        section = self.section(tmp_path, trace=trace)
        assert [chart.identifier for chart in section.charts] == ["simulated-time-chart", "roofline-chart"]

    def test_a_device_that_cannot_be_read_costs_only_its_roofline(self, tmp_path):
        section = self.section(tmp_path, info=INFO | {"device": {"name": "small"}})
        assert [chart.identifier for chart in section.charts] == ["simulated-time-chart"]

    def test_a_device_without_a_clock_has_no_section(self, tmp_path):
        assert simulated_time.section(run_with(tmp_path, info={"simulated_seconds": None})) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(61.0, "61 s"), (0.25, "250 ms"), (3.2e-6, "3.2 µs"), (5e-9, "5 ns"), (4e-12, "4 ps"), (0.0, "0 s")],
)
def test_a_duration_is_said_in_the_unit_of_its_size(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize("text", ["fp16", "fp16 ftz", "fp16 hidden-one", "fp8_e4m3", "fp8_e5m2"])
def test_what_becomes_of_small_numbers_is_what_the_format_makes_of_them(text):
    fmt = emu.parse(text)
    fates = loss_scale.Fates({}, 0, fmt)
    for exponent in range(fmt.emin - 14, fmt.emin + 3):
        written = float(emu.quantize(1.5 * 2.0**exponent, fmt, backend="reference"))
        assert (fates.fate(exponent) == "lost") == (written == 0.0)
