"""The commands that train, evaluate and report: read names, show progress, print results and paths."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from emu.cli.app import INTERRUPTED
from emu.cli.output import Column, Facts, Output, Table
from emu.cli.study import rebuild_study_report
from emu.cluster.launcher import started
from emu.cluster.mpi import end_job, leave
from emu.cluster.sigterm import Terminated
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.jobs.bars import TITLE_COLUMNS, Part, Screen, bar, clock, fitted, left
from emu.precision import CounterTable
from emu.report import build_report
from emu.report.evidence import gather
from emu.report.header import first_finding
from emu.report.search import build_search_report
from emu.report.search.trials import SEARCH
from emu.report.sensitivity import build_sensitivity_report
from emu.report.sensitivity.rows import SENSITIVITY
from emu.report.study.difference import points
from emu.report.words import percent
from emu.training import Recipe, Run, evaluate, load_recipe, resume, train
from emu.training.evaluation import Evaluation
from emu.training.folders.run_folder import RUN, RunFolder
from emu.training.remarks import remarks
from emu.training.stop_tests import in_words
from emu.training.study import STUDY

RUNS = Path("runs")
DEFAULT_DEVICE = "float32"


class Bar:
    """A line with the step, loss, accuracy, rates and the time left; plain lines if there is no terminal."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.screen = Screen(lambda width: [self._line(width)])
        self.step, self.steps = 0, 0
        # When, and at which step: a resumed run begins at its checkpoint, and its speed counts from there.
        self.began_at, self.began = time.monotonic(), 0
        self.state: tuple[float, float, float, float] | None = None

    def start(self, step: int, steps: int) -> None:
        """Show the bar."""
        self.step, self.steps, self.began, self.began_at = step, steps, step, time.monotonic()
        self.screen.start()

    def update(self, step: int, loss: float, accuracy: float, overflow: float, underflow: float) -> None:
        """Move the bar."""
        self.step, self.state = step, (loss, accuracy, overflow, underflow)
        # Without a terminal about twenty lines for a run, so that a log stays short.
        if not self.screen.is_live and (step == self.steps or step % max(self.steps // 20, 1) == 0):
            state = "  ".join(self._state())
            print(f"{self.title}: step {step}/{self.steps}  {state}", file=sys.stderr, flush=True)

    def _state(self) -> list[str]:
        if self.state is None:
            return _compiling()
        loss, accuracy, overflow, underflow = self.state
        rates = f"overflow {overflow:.1e}", f"underflow {underflow:.1e}"
        return [f"loss {loss:.3f}", f"accuracy {accuracy:6.1%}", *rates]

    def _line(self, width: int) -> Text:
        """Return the line that fits so many columns: the step and the time left stay longest."""
        passed_s, done = time.monotonic() - self.began_at, self.step - self.began
        left_s = passed_s / done * (self.steps - self.step) if done else None
        # Of a narrow screen the parts of the highest rank leave first: the bar, then underflow and overflow.
        ranks = (2, 3, 5, 6)  # of loss, accuracy, overflow, underflow
        return fitted(
            [
                Part(self.title, 0, TITLE_COLUMNS),
                Part(bar(self.step / self.steps if self.steps else 0.0), 7, style="cyan"),
                Part(f"step {self.step}/{self.steps}"),
                *(Part(text, rank) for text, rank in zip(self._state(), ranks, strict=False)),
                Part(clock(passed_s), 4, style="dim"),
                Part(left(left_s), 1),
            ],
            width,
        )

    def finish(self) -> None:
        """Stop the bar, and leave it on the screen."""
        self.screen.stop()


def _compiling() -> list[str]:
    """Return what a first step waits for, if it waits for compiled code; `emu warm` compiles it in advance."""
    kernels = sys.modules.get("emu.backends.numba.compiling")  # importing it takes a while, and others do not need it
    count = kernels.compiled_count() if kernels is not None else 0
    return [f"compiling, once for this machine: {count} functions"] if count else []


def train_model(model: str | None, device: str | None, backend: str, settings: list[str], out: Path | None) -> None:
    """Train, and print the results."""
    if model is None:
        raise ConfigError(
            "`emu train` must be given a model, e.g. `emu train lenet --device fixed16`; `emu models` lists them"
        )
    recipe, machine = load_recipe(model, settings), load_device(device or DEFAULT_DEVICE)
    folder = out or _free_folder(f"{recipe.name}-{machine.name}")
    _finish(
        folder,
        f"{recipe.name} on {machine.name}",
        lambda bar: train(recipe, machine, out=folder, backend=backend, progress=bar),
    )


def resume_run(
    folder: Path, model: str | None, device: str | None, backend: str | None, settings: list[str], out: Path | None
) -> None:
    """Resume a run; options that would make it another run are refused."""
    given = [
        name for name, value in (("a model", model), ("--device", device), ("--set", settings), ("--out", out)) if value
    ]
    if given:
        raise ConfigError(
            f"--resume must stand without {' and '.join(given)}: a run goes on with its own recipe and device, "
            f"got {given[0]}; leave it out, or start a new run"
        )
    _finish(folder, f"{folder}", lambda bar: resume(folder, backend=backend, progress=bar))


def _finish(folder: Path, title: str, work: Callable[[Bar], Run]) -> None:
    bar = Bar(title)
    rank, ranks = started()
    going_on = f"emu train --resume {shlex.quote(str(folder))}"
    try:
        try:
            # The bar is shown when training begins; before that `work` may wait for compiled code or data.
            run = work(bar)
            if ranks > 1:
                # All ranks wait for each other here; then the others may end, and rank 0 goes on without MPI.
                leave()  # rank 0 makes the report alone
            if rank:
                return
            build_report(run.path)
        finally:
            bar.finish()  # before anything else is printed
    except KeyboardInterrupt:
        text = f"emu: interrupted; go on with: {going_on}"
        if ranks > 1:
            end_job(text, INTERRUPTED)
        print(text, file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Terminated:  # of several ranks none gets here: they have ended together
        print(f"emu: got SIGTERM; go on with: {going_on}", file=sys.stderr)
        raise
    _print_run(run)


def _print_run(run: Run) -> None:
    metrics = run.info["metrics"]
    console = Console(emoji=False)
    inside = metrics.get("accumulator_overflow_rate") or 0.0
    on_the_way = f"accumulator overflow {percent(inside)}   " if inside else ""
    console.print(
        f"test accuracy [bold]{metrics['test_accuracy']:.2%}[/]   loss {metrics['test_loss']:.4f}   "
        f"overflow {percent(metrics['overflow_rate'])}   underflow {percent(metrics['underflow_rate'])}   {on_the_way}"
        f"{run.info['seconds']:.1f} s",
        highlight=False,
        soft_wrap=True,
    )
    if stopped := run.info.get("stopped_by"):
        tests: dict[str, Any] = run.info["recipe"]["training"]["stop"]
        tests_met = " and ".join(in_words(name, tests) for name in stopped)
        console.print(f"stopped   at step {run.info['steps']}: {tests_met}", highlight=False, soft_wrap=True)
    # `soft_wrap` and no highlighting: hashes and paths stay whole and can be copied.
    console.print(f"weights   {run.weights_sha256}\nregisters {run.registers_sha256}", highlight=False, soft_wrap=True)
    console.print(f"diagnosis {first_finding(gather(run.path))}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"report    {run.path / 'report.html'}", highlight=False, soft_wrap=True, markup=False)
    for remark in remarks(run.info):
        console.print(f"note      {remark}", highlight=False, soft_wrap=True, markup=False)


def _free_folder(name: str) -> Path:
    number = 1
    # The first number that is free; `train` refuses a folder that somebody else has filled in between.
    while (RUNS / f"{name}-{number}").exists():
        number += 1
    return RUNS / f"{name}-{number}"


def evaluate_weights(
    weights: Path,
    model: str | None,
    device: str | None,
    backend: str,
    settings: list[str],
    of_networks: Mapping[str, object],
) -> Output:
    """Evaluate; return the accuracy and, by tensor, shares of overflow and underflow.

    Options of networks in files, by name, are refused if they are given.
    """
    for option, given in of_networks.items():
        if given is not None:
            raise ConfigError(
                f"{option} must be given with a network, an .onnx or .tflite file, got {weights}; the data of a model "
                "are those of its recipe, --set data.source=PATH names others"
            )
    recipe = load_recipe(model, settings) if model else None
    if settings and not model:
        raise ConfigError("--set lays values over a recipe, so --model must be given with it; add --model")
    result = evaluate(weights, recipe, load_device(device) if device else None, backend=backend)
    values = {
        "test_accuracy": result.test_accuracy,
        "test_loss": result.test_loss,
        "images": result.images,
        "weights_sha256": result.weights_sha256,
    }
    accuracy = f"test accuracy [bold]{result.test_accuracy:.2%}[/] of {result.images} images"
    first = Text.from_markup(f"{accuracy}   loss {result.test_loss:.4f}{_beside_the_run(weights, result, recipe)}")
    return Output([first, f"weights {result.weights_sha256}", Facts({}, values), _tensors(result.counters)])


def _beside_the_run(weights: Path, result: Evaluation, recipe: Recipe | None) -> str:
    """Return the difference to the run that trained the weights; "" if it was tested on other data, or is no run."""
    if recipe is not None or not (weights / RUN).is_file():
        return ""
    folder = RunFolder(weights)
    reached = folder.read_result().test_accuracy
    if reached is None:
        return ""
    return f"   {points(result.test_accuracy - reached)} points to the run on {folder.read_setup()[1].name}"


def _tensors(counters: CounterTable) -> Table:
    """Return how often the numbers of each tensor overflowed, underflowed and were rounded."""
    columns = (
        Column("layer", "layer"),
        Column("role", "role"),
        Column("results", "results", is_number=True),
        *(
            Column(name, f"{name}_share", "{:.2%}".format, is_number=True)
            for name in ("overflow", "underflow", "inexact")
        ),
        # An exponent is that of the leading bit of the largest magnitude, which lies below the next power of two.
        Column("largest", "largest_exponent", lambda top: f"< 2**{top + 1}", "0"),
    )
    rows: list[tuple[Any, ...]] = []
    for (layer, role), counted in counters.items():
        if not counted.elements:  # a selection writes no new values
            continue
        flags, total = counted.flags, counted.elements
        shares = [count / total for count in (flags.overflow, flags.underflow, flags.inexact)]
        rows.append((layer, role, total, *shares, counted.register.max_exponent))
    return Table(columns, rows, "tensors", {"keys": 2})


def rebuild_report(folder: Path) -> None:
    """Build the report of a run, a study, a search or a sensitivity analysis, and print its path."""
    # The kinds are told apart by a file that a run does not have.
    if (folder / SENSITIVITY).is_file():
        print(build_sensitivity_report(folder))
    elif (folder / SEARCH).is_file():
        print(build_search_report(folder))
    else:
        print(rebuild_study_report(folder) if (folder / STUDY).is_file() else build_report(folder))
