"""The `emu` command.

An error emu raises on purpose is one line on stderr and exit code 2. Commands import what they need when they run, so
that `emu --help` answers at once.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Unpack

import typer

from emu.cli.app import App
from emu.cli.export import exports
from emu.cli.frame import run
from emu.cli.options import (
    DEVICE,
    MODEL,
    Backend,
    CheckOptions,
    NetworkOptions,
    OperandFormats,
    Operation,
    ProveOptions,
    ScaledOutFormat,
    SearchChoices,
    SensitivityChoices,
    Settings,
    SimulateOptions,
    StudyChoices,
    UnitDevice,
    UnitLayer,
    VectorsOptions,
    printing,
    with_options,
)
from emu.cli.output import Output
from emu.errors import ConfigError, EmuError

app = App(name="emu", help="Train networks on an emulated datapath, bit by bit.", no_args_is_help=True)


def main() -> None:
    """Run the command `emu`."""
    run(app, "emu")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"emu {version('emu-numerics')}")
        raise typer.Exit


@app.callback()
def options(
    # `is_eager`: read before everything else, so `emu --version` needs no command.
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train networks on an emulated datapath, bit by bit."""


@app.command()
def train(
    model: Annotated[
        str | None, typer.Argument(help="A model's name or the path of its TOML file.", autocompletion=MODEL)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="A device's name or the path of its TOML file.", autocompletion=DEVICE)
    ] = None,
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
@printing
@with_options(NetworkOptions)
def evaluate(
    weights: Annotated[
        Path,
        typer.Argument(
            help="A run folder; a .safetensors or .npz file of arrays named layer.weight; or an .onnx or .tflite."
        ),
    ],
    model: Annotated[str | None, typer.Option(help="A model; a run brings its own.", autocompletion=MODEL)] = None,
    device: Annotated[str | None, typer.Option(help="A device; a run brings its own.", autocompletion=DEVICE)] = None,
    backend: Backend = None,
    settings: Settings = None,
    **options: Unpack[NetworkOptions],
) -> Output:
    """Measure the test accuracy of trained weights on a device; of a network's file, what it does to each layer."""
    from emu.interop.loading import is_network

    # An option that only models have, so that what reads networks can name it; the other way round below.
    of_models = model or next(iter(settings or []), None)
    if is_network(weights):
        from emu.cli.graphs import evaluate_network

        return evaluate_network(weights, device, backend or "auto", options, of_models)
    from emu.cli.runs import evaluate_weights

    of_networks = {f"--{name.replace('_', '-')}": given for name, given in options.items()}
    return evaluate_weights(weights, model, device, backend or "auto", settings or [], of_networks)


@app.command()
@printing
@with_options(SimulateOptions)
def simulate(
    model: Annotated[str, typer.Argument(help="A model's name or the path of its TOML file.", autocompletion=MODEL)],
    device: Annotated[
        str,
        typer.Option(help="A device's name or the path of its TOML file; times need a clock.", autocompletion=DEVICE),
    ],
    **options: Unpack[SimulateOptions],
) -> Output:
    """Say what a step of training costs in energy, area and time, without training."""
    from emu.cli.simulate import simulate_model

    return simulate_model(model, device, options)


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
@printing
@with_options(SearchChoices)
def search(
    file: Annotated[Path, typer.Argument(help="A TOML file: variables, objectives, constraints.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the search; without: searches/NAME.")] = None,
    **options: Unpack[SearchChoices],
) -> Output:
    """Search for the narrowest hardware that still works; ended trials are never repeated; write one report."""
    from emu.cli.search import search_output
    from emu.search import SearchOptions, run_search

    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return search_output(run_search(file, out, SearchOptions(**chosen)).parent)


@app.command()
@printing
@with_options(SensitivityChoices)
def sensitivity(
    target: Annotated[
        str, typer.Argument(metavar="MODEL", help="A run folder or a file of weights; with --train, also a model.")
    ],
    model: Annotated[str | None, typer.Option(help="The model of a file of weights.")] = None,
    device: Annotated[str | None, typer.Option(help="A device; a run brings its own.")] = None,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the rows; without: sensitivity/NAME-DEVICE.")] = None,
    **options: Unpack[SensitivityChoices],
) -> Output:
    """Narrow one role of one layer at a time; rank them by the accuracy that each loses; write a search."""
    from emu.cli.sensitivity import analyse, options_of

    return analyse(target, model, device, settings or [], out, options_of({**options}))


@app.command()
@printing
def warm(
    devices: Annotated[
        list[str], typer.Argument(metavar="DEVICE", help="Names or TOML files of devices.", autocompletion=DEVICE)
    ],
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model; may be given several times; without: lenet.", autocompletion=MODEL),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at a time; without: one per processor.")] = None,
) -> Output:
    """Compile what training on devices takes, so that later commands, in an image of CI say, begin at once."""
    from emu.cli.warm import warm_devices

    return warm_devices(devices, models or [], workers)


@app.command()
def watch(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a run, a study, a search or of runs: before, while or after it runs.")
    ],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any that is free.")] = 0,
    opens: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
) -> None:
    """Serve the live report of something that runs, to this computer alone; it only reads."""
    from emu.cli.watch import watch_folder

    watch_folder(folder, port, opens)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, a study, a search or a sensitivity analysis.")],
) -> None:
    """Build the report.html of a run, a study, a search or a sensitivity analysis again."""
    from emu.cli.runs import rebuild_report

    rebuild_report(run)


@app.command()
@printing
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of two or more runs; the first is what others differ from.")
    ],
    out: Annotated[Path, typer.Option(help="File of the page.")] = Path("compare.html"),
) -> Output:
    """Compare runs: curves, formats, settings, final numbers, first difference; on one page and in a table."""
    from emu.cli.compare import comparison_output

    return comparison_output(runs, out)


@app.command()
@printing
def devices(
    name: Annotated[
        str | None, typer.Argument(help="Show this one in full; a name or a .toml file.", autocompletion=DEVICE)
    ] = None,
    backends: Annotated[
        bool, typer.Option("--backends", help="List who can compute here, and why others cannot.")
    ] = False,
) -> Output:
    """List the shipped devices: their formats and their multiply-accumulate units."""
    from emu.cli.listings import all_backends, all_devices, one_device

    if backends and name is not None:
        raise ConfigError(f"`--backends` must stand without a device, got {name!r}; leave out one of them")
    if backends:
        return all_backends()
    return all_devices() if name is None else one_device(name)


@app.command()
@printing
def models(
    name: Annotated[
        str | None, typer.Argument(help="Show this one in full; a name or a .toml file.", autocompletion=MODEL)
    ] = None,
) -> Output:
    """List the shipped models: their layers, sizes and training."""
    from emu.cli.listings import all_models, one_model

    return all_models() if name is None else one_model(name)


@app.command()
@printing
def formats(
    name: Annotated[
        list[str] | None, typer.Argument(metavar="FORMAT", help="fix16f8, e5m10, ... Without: list them.")
    ] = None,
) -> Output:
    """Show what a number format holds: range, precision, special codes, layout of the code."""
    from emu.cli.formats import all_formats, one_format

    return one_format(" ".join(name)) if name else all_formats()


@app.command()
@printing
def checkpoint(
    path: Annotated[
        Path, typer.Argument(help="A .safetensors file, an index *.safetensors.index.json, or a folder with one.")
    ],
    names: Annotated[list[str] | None, typer.Argument(help="Entries to list; without: all.")] = None,
) -> Output:
    """List the tensors of a checkpoint: formats, shapes, bits of an element, what the scales are."""
    from emu.cli.checkpoint import checkpoint_output

    return checkpoint_output(path, names)


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench() -> None:
    """Say where the measurements of speed are now."""
    raise EmuError("`emu bench` is now `python -m benchmarks`, in a checkout")


@app.command()
@printing
@with_options(VectorsOptions)
def vectors(
    operation: Operation,
    out: Annotated[Path, typer.Option(help="Folder of the files.")],
    formats: OperandFormats = None,
    out_format: ScaledOutFormat = None,
    device: UnitDevice = None,
    layer: UnitLayer = None,
    style: Annotated[
        str, typer.Option(help="hex (columns for $readmemh), testfloat (lines), or both where lines can hold it.")
    ] = "both",
    **options: Unpack[VectorsOptions],
) -> Output:
    """Write golden vectors: operands that break hardware, and the definition's results and flags."""
    from emu.cli.vectors import table_of, write

    return write(table_of(operation, formats, out_format, device, layer), out, style, options)


@app.command()
@printing
@with_options(CheckOptions)
def check(
    target: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the vectors; with --op, the dump itself.")
    ],
    dump: Annotated[
        Path | None, typer.Argument(help="Results, in any format of --dump-format; without: dump.hex in the folder.")
    ] = None,
    any_nan: Annotated[
        bool, typer.Option("--any-nan", help="Take a NaN of any pattern for the canonical one.")
    ] = False,
    **options: Unpack[CheckOptions],
) -> Output:
    """Hold a dump from RTL, silicon or a GPU against vectors; explain its first difference."""
    # This function is called `check` itself.
    from emu.cli.vectors import check as compare

    return compare(target, dump, any_nan=any_nan, options=options)


@app.command()
@printing
@with_options(ProveOptions)
def prove(
    operation: Annotated[str, typer.Argument(help="quantize, add, subtract, multiply or fma; narrow ones: any.")],
    more: Annotated[list[Path] | None, typer.Argument(metavar="SOURCES", help="More files of --sources.")] = None,
    **options: Unpack[ProveOptions],
) -> Output:
    """Prove a unit in Verilog right for all inputs, or show the smallest input for which it is wrong."""
    from emu.cli.prove import prove_unit

    return prove_unit(operation, more or [], {**options})


app.add_typer(exports)
