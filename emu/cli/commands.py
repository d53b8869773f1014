"""The `emu` command.

An error emu raises on purpose is one line on stderr and exit code 2. Commands import what they need when they run, so
that `emu --help` answers at once.
"""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn, Unpack

import typer

from emu.cli.options import (
    Backend,
    SearchChoices,
    Settings,
    SimulateOptions,
    StudyChoices,
    VectorOptions,
    with_options,
)
from emu.errors import EmuError, EmuWarning

#: Exit code of bad input, as `typer` uses it for bad usage.
BAD_INPUT = 2
#: A message is cut to about so many characters.
MOST_CHARACTERS = 800

app = typer.Typer(
    name="emu",
    help="Train networks on an emulated datapath, bit by bit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; errors of the input become one line and exit code 2, warnings about it one line each."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="emu")
    except EmuError as error:
        _refuse(str(error))
    except MemoryError as error:
        _refuse(f"the arrays must fit the memory, got {error or 'more than it holds'}; choose smaller sizes")
    except Exception as error:
        if _rank() is not None:
            from emu.cluster.mpi import failed

            failed(error)
        raise


def _rank() -> int | None:
    """Return the number of this process among several that a launcher has started; None of one alone."""
    from emu.cluster.launcher import started

    rank, ranks = started()
    return rank if ranks > 1 else None


def _refuse(message: str) -> NoReturn:
    """Print a message as one line, its middle left out where a value in it is very long; end with exit code 2."""
    line = " ".join(message.split())
    if len(line) > MOST_CHARACTERS:
        line = f"{line[: MOST_CHARACTERS // 2]} ... {line[-MOST_CHARACTERS // 4 :]}"
    if (rank := _rank()) is not None:
        from emu.cluster.mpi import end_job

        end_job(f"emu: rank {rank}: {line}", BAD_INPUT)
    print("emu:", line, file=sys.stderr)
    sys.exit(BAD_INPUT)


def _show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
    if _rank():
        return  # rank 0 says it
    if issubclass(category, EmuWarning):
        print("emu: warning:", " ".join(str(message).split()), file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"emu {version('emu-numerics')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train networks on an emulated datapath, bit by bit."""


@app.command()
def train(
    model: Annotated[str | None, typer.Argument(help="A model's name or the path of its TOML file.")] = None,
    device: Annotated[str | None, typer.Option(help="A device's name or the path of its TOML file.")] = None,
    backend: Backend = None,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; without: runs/MODEL-DEVICE-N.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted run.")] = None,
) -> None:
    """Train a network through a device's arithmetic; write a run folder and its report."""
    from emu.cli.runs import resume_run, train_model

    if resume is not None:
        resume_run(resume, model, device, backend, settings or [], out)
    else:
        train_model(model, device, backend or "auto", settings or [], out)


@app.command()
def evaluate(
    weights: Annotated[
        Path, typer.Argument(help="A run folder, or a .safetensors or .npz file of arrays named layer.weight.")
    ],
    model: Annotated[str | None, typer.Option(help="A model; a run brings its own.")] = None,
    device: Annotated[str | None, typer.Option(help="A device; a run brings its own.")] = None,
    backend: Backend = None,
    settings: Settings = None,
) -> None:
    """Measure the test accuracy of trained weights on a device."""
    from emu.cli.runs import evaluate_weights

    evaluate_weights(weights, model, device, backend or "auto", settings or [])


@app.command()
@with_options(SimulateOptions)
def simulate(
    model: Annotated[str, typer.Argument(help="A model's name or the path of its TOML file.")],
    device: Annotated[str, typer.Option(help="A device's name or the path of its TOML file; times need a clock.")],
    **options: Unpack[SimulateOptions],
) -> None:
    """Say what a step of training costs in energy, area and time, without training."""
    from emu.cli.simulate import simulate_model

    simulate_model(model, device, options)


@app.command()
@with_options(StudyChoices)
def study(
    file: Annotated[Path, typer.Argument(help="A TOML file: grids of models, devices, settings and seeds.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the study; without: studies/NAME.")] = None,
    **options: Unpack[StudyChoices],
) -> None:
    """Train every model of a study on every device; finished runs are never repeated; write one report."""
    from emu.cli.study import StudyOptions, run_study

    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    run_study(file, out, StudyOptions(**chosen))


@app.command()
@with_options(SearchChoices)
def search(
    file: Annotated[Path, typer.Argument(help="A TOML file: variables, objectives, constraints.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the search; without: searches/NAME.")] = None,
    **options: Unpack[SearchChoices],
) -> None:
    """Search for the narrowest hardware that still works; ended trials are never repeated; write one report."""
    from emu.search import SearchOptions, run_search

    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    run_search(file, out, SearchOptions(**chosen))


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, a study or a search, while it runs or after.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any that is free.")] = 0,
    opens: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
) -> None:
    """Serve the live report of something that runs, to this computer alone; it only reads."""
    from emu.cli.watch import watch_folder

    watch_folder(folder, port, opens)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Folder of a run, a study or a search.")]) -> None:
    """Build the report.html of a run, a study or a search again."""
    from emu.cli.runs import rebuild_report

    rebuild_report(run)


@app.command()
def devices(
    name: Annotated[str | None, typer.Argument(help="Show this one in full; a name or a .toml file.")] = None,
    backends: Annotated[
        bool, typer.Option("--backends", help="List who can compute here, and why others cannot.")
    ] = False,
) -> None:
    """List the shipped devices: their formats and their multiply-accumulate units."""
    from emu.cli.listings import print_backends, print_device, print_devices

    if backends:
        print_backends()
    elif name is None:
        print_devices()
    else:
        print_device(name)


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Show this one in full; a name or a .toml file.")] = None,
) -> None:
    """List the shipped models: their layers, sizes and training."""
    from emu.cli.listings import print_model, print_models

    print_models() if name is None else print_model(name)


@app.command()
def formats(
    name: Annotated[list[str] | None, typer.Argument(help="A format: fix16f8, e5m10, ... Without: list them.")] = None,
) -> None:
    """Show what a number format holds: range, precision, special codes, layout of the code."""
    from emu.cli.formats import print_format, print_presets

    print_format(" ".join(name)) if name else print_presets()


@app.command()
def bench(
    against: Annotated[
        str | None, typer.Option(help="Peers to time on the same work: `peers` for all, or names: qtorch,apytypes.")
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Rows by a part of their name or with *: stage, 'matrix/*'; all of the table: table; all: '*'. "
            "Repeatable. Without: a choice of about a minute.",
        ),
    ] = None,
    threads: Annotated[str | None, typer.Option(help="Numbers of threads, e.g. 1,2; without: one, and all.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: to see that it runs, not for the record.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the tables (.md) or the data (.json).")] = None,
) -> None:
    """Measure emu's speed on this machine, beside the machine's limits and beside peers."""
    from emu.cli.bench import bench as measure

    session = measure(against, rows or [], threads, out, quick=quick)
    if any(result.failure for result in session.results):
        raise typer.Exit(1)


@app.command()
@with_options(VectorOptions)
def vectors(
    operation: Annotated[
        str, typer.Argument(help="quantize, add, subtract, multiply, divide, fma, sqrt, remainder, ... or matmul.")
    ],
    formats: Annotated[str, typer.Option(metavar="A,B,C", help="Formats of the operands, the addend's last.")],
    out_format: Annotated[str, typer.Option(help="Format of the result.")],
    out: Annotated[Path, typer.Option(help="Folder of the files.")],
    style: Annotated[str, typer.Option(help="hex ($readmemh and a manifest) or testfloat (its lines).")] = "hex",
    **options: Unpack[VectorOptions],
) -> None:
    """Write golden vectors: operands that break hardware, and the definition's results and flags."""
    from emu.cli.vectors import write

    write(operation, formats, out_format, out, style, options)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Folder of the vectors.")],
    dump: Annotated[Path | None, typer.Argument(help="Results, a code a line; without: dump.hex beside them.")] = None,
    any_nan: Annotated[
        bool, typer.Option("--any-nan", help="Take a NaN of any pattern for the canonical one.")
    ] = False,
) -> None:
    """Hold a dump from RTL, silicon or a GPU against vectors; explain its first difference."""
    from emu.cli.vectors import check as compare

    compare(folder, dump, any_nan=any_nan)
