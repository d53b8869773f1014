"""The `emu` command.

An error emu raises on purpose is one line on stderr and exit code 2. Commands import what they need when they run, so
that `emu --help` answers at once.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from emu.errors import EmuError

#: Exit code of bad input, as `typer` uses it for bad usage.
BAD_INPUT = 2

app = typer.Typer(
    name="emu",
    help="Train networks on an emulated datapath, bit by bit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; errors of the input become one line and exit code 2."""
    try:
        app(prog_name="emu")
    except EmuError as error:
        print("emu:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(BAD_INPUT)


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
def devices(
    name: Annotated[str | None, typer.Argument(help="Show this one in full; a name or a .toml file.")] = None,
) -> None:
    """List the shipped devices: their formats and their multiply-accumulate units."""
    from emu._listings import print_device, print_devices

    print_devices() if name is None else print_device(name)


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Show this one in full; a name or a .toml file.")] = None,
) -> None:
    """List the shipped models: their layers, sizes and training."""
    from emu._listings import print_model, print_models

    print_models() if name is None else print_model(name)


@app.command()
def formats(
    name: Annotated[list[str] | None, typer.Argument(help="A format: fix16f8, e5m10, ... Without: list them.")] = None,
) -> None:
    """Show what a number format holds: range, precision, special codes, layout of the code."""
    from emu._format_listing import print_format, print_presets

    print_format(" ".join(name)) if name else print_presets()
