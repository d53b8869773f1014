"""A page of every kind, with every picture that emu draws, from data that are made up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import test_report_sensitivity as sensitivity
from synthetic_run import write_run

import emu
from emu.report import build_comparison, build_report
from emu.report.html import Html
from emu.report.page import Section, page
from emu.report.pictures.speed_up import speed_up_picture
from emu.report.search import build_search_report, read_search
from emu.report.search.front_picture import front_svg
from emu.report.sensitivity import build_sensitivity_report
from emu.report.study.accuracy_picture import accuracy_section
from emu.report.study.comparison import Row
from emu.report.study.difference import Difference
from emu.report.study.difference_picture import difference_picture
from emu.training import Run

Tables = Mapping[str, Sequence[Mapping[str, Any]]]
#: Steps of a run, and those at which it logs.
STEPS = 2000
LOGGED = range(100, STEPS + 1, 100)


def write_pages(folder: Path) -> dict[str, Path]:
    """Return a page of every kind by its name.

    A run, a run that hardly moves, both compared, a sensitivity analysis, a study, a search and its front, a
    simulation, a notebook.
    """
    run, still = _run(folder / "run"), _still_run(folder / "still")
    return {
        "run": run,
        "still": still,
        "comparison": build_comparison([run.parent, still.parent], folder / "compare.html"),
        "sensitivity": _sensitivity(folder / "sensitivity"),
        "study": _study(folder / "study.html"),
        **_search(folder / "search"),
        "simulate": _simulated(folder / "speed-up.svg"),
        "notebook": _notebook(folder / "notebook.html", folder / "run"),
    }


# ---- runs ----


def _run(folder: Path) -> Path:
    """A run with every section."""
    write_run(folder, points=len(LOGGED), steps=STEPS)
    info = json.loads((folder / "run.json").read_text())
    for row in info["formats"]:
        if row["mac"]:  # a unit that is coarser than what it writes, and ends before it
            row["mac"] = {**row["mac"], "accumulator": "fix12f10"}
        if (row["layer"], row["role"]) == ("fc1", "gradient"):
            row["format"] = "fix16f?"
        if row["role"] == "error":
            row["format"] = "fp16"
    search = {"every": 10, "parallelism": True}
    info["recipe"] |= {
        "cluster": {"nodes": 4, "bits": 1, "workers": [], "search": search},
        "loss_scaling": {"policy": "backoff"},
    }
    roles = ("weight", "bias", "activation", "error", "gradient", "update", "master")
    info["device"] |= {"compute": _COMPUTE, "precision": {role: {"format": "fix16f13"} for role in roles}}
    info |= {"cost": _cost(), "simulated_seconds": 0.006}
    (folder / "run.json").write_text(json.dumps(info))
    for name, rows in _systems().items():
        pq.write_table(pa.Table.from_pylist(list(rows)), folder / f"{name}.parquet")
    (folder / "trace.json").write_text(json.dumps({"traceEvents": _events()}))
    return build_report(folder)


def _still_run(folder: Path) -> Path:
    """A run whose values hardly move: axes need many digits, or have few whole numbers."""
    write_run(folder, points=3, steps=3, learns=False)
    tables: Tables = {
        "cluster": [{"step": step, "bytes_sent": 1_000_000 + step, "count_bytes": 0} for step in (1, 2, 3)],
        "residuals": [
            {"step": step, "tensor": "fc1.weight", "holder": "worker", "norm": 0.125 + step / 10**6} for step in (1, 3)
        ],
        "clipping": [_clipped(step, "fc1", 1245 + step) for step in (1, 2, 3)],
        "loss_scaling": [
            {"step": step, "event": event, "scale": 2.0**power} for step, event, power in ((0, "start", 16),)
        ],
    }
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(list(rows)), folder / f"{name}.parquet")
    info = json.loads((folder / "run.json").read_text())
    info["recipe"] |= {"loss_scaling": {"policy": "backoff"}, "cluster": {"nodes": 2, "bits": 1}}
    (folder / "run.json").write_text(json.dumps(info))
    return build_report(folder)


_COMPUTE = {
    "clock_hz": {"value": 1e9, "source": "s"},
    "memory_bandwidth_bytes_per_s": {"value": 8e9, "source": "s"},
    "units": {"vector": {"kind": "mac_array", "lanes": {"value": 4, "source": "s"}}},
}


def _clipped(step: int, layer: str, clipped: int) -> dict[str, Any]:
    limits = {"low": -0.5, "high": 0.5}
    counts = {"clipped": clipped, "elements": 10_000, "nonfinite": 0}
    return {"step": step, "layer": layer, "part": "weight", **counts, **limits}


def _systems() -> Tables:
    layers = ("conv1", "conv2", "fc1", "fc2")
    return {
        "cluster": [{"step": step, "bytes_sent": 10_000 * step, "count_bytes": 0} for step in LOGGED],
        "residuals": [
            {"step": step, "tensor": f"{layer}.weight", "holder": holder, "norm": (i + 1) * step / STEPS}
            for step in LOGGED for i, layer in enumerate(layers) for holder in ("worker", "owner")
        ],
        "codes": [
            {"step": STEPS, "tensor": "fc1.weight", "code": code, "level": code - 1.5, "bin": place / 4, "values": 25}
            for code in range(4) for place in range(4 * code - 8, 4 * code - 4)
        ],
        "clipping": [_clipped(step, layer, step * (i + 1)) for step in LOGGED for i, layer in enumerate(layers)],
        "search": [
            {"step": step, "size": size, "criterion": 1 / step, "kept": True} for step, size in ((500, 64), (900, 128))
        ],
        "parallelism": [{"step": 600, "workers": 3}, {"step": STEPS, "workers": 4}],
        "loss_scaling": [
            {"step": step, "event": event, "scale": 2.0**power}
            for step, event, power in ((0, "start", 24), (3, "overflow", 24), (3, "repeat", 20), (1200, "growth", 21),
                                       (1999, "overflow", 21), (STEPS, "skip", 20))
        ],
        "exponents": [
            {"step": STEPS, "role": role, "exponent": exponent, "count": 10 * (exponent + 34), "scale": 2.0**20}
            for role in ("error", "gradient") for exponent in range(-33, 2)
        ],
        "points": [
            {"step": step, "layer": "fc1", "role": "gradient", "part": "", "point": point, "redone": redone}
            for step, point, redone in ((1, 15, True), (700, 17, False), (STEPS, 18, True))
        ],
        "simulation": [
            {"step": STEPS, "layer": layer, "role": "activation", "unit": unit, "kind": kind, "calls": 100, "cycles": 9,
             "picoseconds": 10**9 * (i + 1), "operations": 4_000_000 * (i + 1), "bytes": 1_000_000}
            for i, layer in enumerate(layers)
            for kind, unit in (("forward", "vector"), ("backward", "vector"), ("update", "vector"), ("redo", "vector"))
        ] + [
            {"step": STEPS, "layer": "", "role": "activation", "unit": "link", "kind": kind, "calls": 100, "cycles": 0,
             "picoseconds": 10**9, "operations": 0, "bytes": 1000}
            for kind in ("transfer", "quantise", "clip", "send", "receive")
        ],
        "sparse": [
            {"step": step, "layer": layer, "entries": 100, "rows": 40, "product_ps": 15_000_000,
             "transpose_ps": 20_000_000, "product_bytes": 30_000, "transpose_bytes": 40_000}
            for step in LOGGED for layer in layers[2:]
        ],
    }  # fmt: skip


def _events() -> list[dict[str, Any]]:
    """The trace of two steps, each as long as the other."""
    places = ("vector unit of node 0", "link of node 0")
    named = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": place}}
        for tid, place in enumerate(places)
    ]
    drawn = [
        {"ph": "X", "pid": 0, "tid": tid, "ts": 10.0 * i, "dur": 10.0, "cat": kind, "name": "fc1 activation",
         "args": {"phase": phase, "step": step, "operation": "matmul", "cycles": 7}}
        for step, phase in ((1, "pre-training"), (2, "training"))
        for i, (tid, kind) in enumerate(((0, "forward"), (0, "backward"), (1, "transfer"), (0, "update")))
    ]  # fmt: skip
    return [*named, *drawn]


def _cost() -> dict[str, Any]:
    units = ("memory", "multiplier", "adder", "registers", "rounding", "statistics", "host")
    return {
        "table": "horowitz-45nm", "memory": "sram-1mb", "batch": 32, "joules_per_step": 6e-5,
        "joules_per_inference": 3e-6, "area_mm2": 0.0126, "shares": {unit: 1 / len(units) for unit in units},
        "energy": [
            {"layer": layer, "unit": unit, "kind": "forward", "uses": 1000, "picojoules": 1000.0 * (i + 1)}
            for layer in ("input", "conv1", "max_pool1", "loss") for i, unit in enumerate(units)
        ],
    }  # fmt: skip


# ---- studies, searches, simulations ----


def _study(path: Path) -> Path:
    """The pictures of a study: differences near 0 and far from it, rows without a statement, names that are long."""
    near = [_row("fixed16", 0.00001, 0.00002, -0.00001), _row("one-seed", 0.0001), _row("float32", 0.0, 0.0, 0.0)]
    far = [_row("fixed8", -0.861, -0.858, -0.8655), _row("a-device-of-a-long-name, saturating", 0.002, -0.004, 0.001)]
    pictures = [difference_picture(f"differences-{name}", rows) for name, rows in (("near", near), ("far", far))]
    sections = [accuracy_section([("mlp", near)])]
    sections += [Section(f"model-{i}", f"Model {i}", figure, charts) for i, (figure, charts) in enumerate(pictures)]
    path.write_text(page("study", Html("<h1>study</h1>"), sections, Html("")))
    return path


def _row(device: str, *differences: float, baseline: float = 0.965) -> Row:
    paired = dict(enumerate(differences, start=1))
    return Row(
        model="mlp", setting="plain", device=device, bits=16, seeds=len(paired), failures={}, paired=paired,
        accuracies={seed: baseline + difference for seed, difference in paired.items()},
        difference=Difference.of(differences, baseline), loss=0.1, overflow=0.0, underflow=0.0, counts={},
        simulated_seconds=None, first_run=None,
    )  # fmt: skip


def _search(folder: Path) -> dict[str, Path]:
    variable = {"low": 4, "high": 6, "step": None, "log": False, "choices": None, "start": 6, "probe": None}
    names = ["width", "error_width", "blocks_2_weight_fraction_bits"]
    metrics = ["joules_per_step", "test_accuracy_difference", "area_mm2"]
    bound = {"metric": metrics[1], "at_least": -0.005, "at_most": None, "confidence": 0.95, "prune_margin": None}
    search = {
        "name": "made-up", "description": "", "model": "lenet", "device": "fixed16", "baseline": "float32",
        "seeds": [1, 2], "trials": 24, "variable": [{"name": name, **variable} for name in names],
        "objective": [
            {"metric": metric, "direction": "maximize" if metric == metrics[1] else "minimize"} for metric in metrics
        ],
        "constraint": [bound],
    }  # fmt: skip
    trials = [
        {"number": number, "state": "finished", "values": dict.fromkeys(names, 4 + number % 3),
         "objectives": [9e-5 - number * 3e-6, 0.004 - 0.0001 * number**2, 0.02 - number * 1e-4],
         "violations": {"test_accuracy_difference at least": 0.0001 * number**2 - 0.009}, "metrics": {}, "runs": {},
         "folder": "", "pruned": "", "device": f"fixed16-{number}"}
        for number in range(24)
    ]  # fmt: skip
    folder.mkdir()
    importances = {metric: {name: 0.6 / (i + 1) for i, name in enumerate(names)} for metric in metrics}
    (folder / "search.json").write_text(json.dumps(search))
    (folder / "trials.json").write_text(json.dumps({"trials": trials, "importances": importances}))
    front = front_svg(read_search(folder))
    assert front is not None
    (folder / "front.svg").write_text(front)
    return {"search": build_search_report(folder), "front": folder / "front.svg"}


def _sensitivity(folder: Path) -> Path:
    folder.mkdir()
    layers = ("conv1", "blocks.2.a_layer_of_a_long_name", "output")
    rows = [
        sensitivity.row(
            layer, role, bits, {1: (0.95 - 0.3 * (bits == 4) * at, 0.95)}, saving=0.01 * (16 - bits) * (at + 1)
        )
        for at, layer in enumerate(layers)
        for role in ("weight", "activation")
        for bits in (8, 4)
    ]
    together = [{"column": "8 bits", "tensors": 6, "accuracy": 0.93, "lost": 0.02, "saving": 0.5}]
    return build_sensitivity_report(sensitivity.written(folder, rows, together=together))


def _notebook(path: Path, run: Path) -> Path:
    register = emu.StatisticsRegister()
    emu.quantize([0.5, 1.5, -3.0, 20.0, 2.0**-6, 0.0], "fix8f4", register=register)
    shown = (Run(run, {"weights_sha256": "", "registers_sha256": ""}), emu.cost_of("mlp", "fixed16"), register)
    cells = "".join(str(thing._repr_html_()) for thing in shown)
    path.write_text(f"<!doctype html><style>body {{ font-family: sans-serif; }}</style>{cells}")
    return path


def _simulated(path: Path) -> Path:
    steps = [
        SimpleNamespace(nodes=nodes, devices=1, batch=batch, bits=bits, speed_up=0.9 * nodes, bound=1.2 * nodes)
        for nodes in (1, 2, 4, 8) for batch in (256, 1024) for bits in (1, 8, 32)
    ]  # fmt: skip
    cluster: Any = SimpleNamespace(model="a-model-of-a-long-name", device="a-device-of-a-long-name", steps=steps)
    path.write_text(speed_up_picture(cluster))
    return path
