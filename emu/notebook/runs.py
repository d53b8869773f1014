"""Runs, evaluations, simulated clusters, costs and studies."""

from __future__ import annotations

import shlex

from emu.errors import EmuError
from emu.formats.numerals import number
from emu.notebook.parts import chart, column, facts, legend, numbers, sentence, title
from emu.notebook.picture import picture
from emu.report.build import FILE_NAME
from emu.report.chart import SERIES_COLOURS
from emu.report.html import Html, element
from emu.report.outcome import outcome_of
from emu.report.pictures.curves import loss_chart
from emu.report.pictures.energy import energy_chart
from emu.report.run_data import RunData, read_run
from emu.report.words import accuracy, area, duration, energy, integer, percent
from emu.training import Run
from emu.training.cluster_time import SimulatedCluster
from emu.training.cost import Cost
from emu.training.evaluation import Evaluation
from emu.training.study import Study

_CURVE_PIXELS = 480
_PICOSECONDS = 1e12


@picture.register
def _(run: Run) -> Html:
    # `run` knows only its path and its hashes; its folder may have been moved or deleted, or a file of it damaged
    try:
        data = read_run(run.path)
    except EmuError as error:
        return column(title("run", run.path.name), sentence(str(error)))
    model, device = data.name()
    hashes = [("weights", run.weights_sha256), ("registers", run.registers_sha256)]
    outcome = sentence(outcome_of(data).sentence())
    return column(title("run", f"{model} on {device}"), outcome, _losses(data), facts(hashes), _link(run))


def _losses(data: RunData) -> Html | None:
    drawn = None if data.metrics is None else loss_chart(data.metrics)
    if drawn is None:
        return None
    # In the order in which `loss_chart` gave them their colours.
    names = list(dict.fromkeys(str(row["series"]) for row in drawn.spec["datasets"]["rows"]))
    colours = dict(zip(names, SERIES_COLOURS, strict=False))
    return column(sentence(drawn.label), legend(colours), chart(drawn.spec, drawn.label, _CURVE_PIXELS))


def _link(run: Run) -> Html:
    report = run.path / FILE_NAME
    if not report.is_file():
        command = f"emu report {shlex.quote(str(run.path))}"
        return element("div", "No report yet: ", element("code", command), " builds it.")
    return element("div", element("a", "The report", href=report.as_posix(), target="_blank"), f" in {report}")


@picture.register
def _(evaluation: Evaluation) -> Html:
    share, loss = accuracy(evaluation.test_accuracy), number(evaluation.test_loss, 4)
    result = f"{share} of {integer(evaluation.images)} right, loss {loss}"
    rows: list[list[str]] = []
    for (layer, role), counters in evaluation.counters.items():
        flags, total = counters.flags, counters.elements
        # A tensor that nothing was written to has no shares.
        if total:
            shares = [percent(count / total) for count in (flags.overflow, flags.underflow, flags.inexact)]
            rows.append([layer, role, integer(total), *shares])
    table = numbers(["layer", "role", "results", "overflow", "underflow", "inexact"], rows, texts=2)
    return column(title("evaluation", result), table, facts([("weights", evaluation.weights_sha256)]))


@picture.register
def _(cluster: SimulatedCluster) -> Html:
    header = ["nodes", "batch", "bits", "step", "samples per second", "speed-up"]
    rows = [
        [
            *(integer(count) for count in (step.nodes, step.batch, step.bits)),
            duration(step.time.step_ps / _PICOSECONDS),
            integer(round(step.samples_per_s)),
            number(step.speed_up, 3),
        ]
        for step in cluster.steps
    ]
    name = f"{cluster.model} on {cluster.device}"
    return column(title("simulated steps", name), numbers(header, rows, texts=0))


@picture.register
def _(cost: Cost) -> Html:
    of = "an inference" if cost.is_of_inference else "a step"
    areas = cost.area_shares()
    whole = cost.joules_per_inference if cost.is_of_inference else cost.joules_per_step
    rows = [
        [unit, energy(share * whole), percent(share), percent(areas[unit]) if unit in areas else ""]
        for unit, share in cost.shares().items()
    ]
    totals = [
        ("a step", f"{energy(cost.joules_per_step)}, of {integer(cost.batch)} examples"),
        ("an inference", energy(cost.joules_per_inference)),
        ("area", area(cost.area_mm2)),
        ("cost table", f"{cost.table}, memory {cost.memory}"),
    ]
    drawn, colours = energy_chart(cost.described(), of)
    parts = numbers(["part", f"energy of {of}", "share", "share of the area"], rows)
    bars = chart(drawn.spec, drawn.label, _CURVE_PIXELS)
    heading = title("energy and area", f"{cost.model} on {cost.device}")
    return column(heading, facts(totals), parts, legend(colours), bars)


@picture.register
def _(study: Study) -> Html:
    header = ["models", "devices", "settings", "seeds", "runs"]
    rows: list[list[str]] = []
    for grid in study.grid:
        axes = (grid.models, grid.devices, [setting.name for setting in grid.settings], list(map(str, grid.seeds)))
        runs = len(grid.models) * len(grid.devices) * len(grid.settings) * len(grid.seeds)
        rows.append([*(", ".join(names) for names in axes), integer(runs)])
    against = study.baseline + (f", {study.baseline_setting}" if study.baseline_setting else "")
    size = f"{integer(sum(1 for _ in study.cases()))} runs, compared with {against}, seed by seed"
    about = [sentence(study.description)] if study.description else []
    return column(title("study", study.name), *about, sentence(size), numbers(header, rows, texts=4))
