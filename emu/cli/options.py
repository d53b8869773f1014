"""Options that several commands share, and long lists of options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, get_type_hints

import typer

from emu._paths import Content, content_folder
from emu.cli.app import completed_by
from emu.cli.output import Output

Command = TypeVar("Command", bound=Callable[..., Any])


def shipped(content: Content) -> Callable[[str], list[str]]:
    """Return what completes the name of a shipped file for the shell, without loading any."""
    return completed_by(lambda: sorted(path.stem for path in content_folder(content).glob("*.toml")))


MODEL, DEVICE = shipped("models"), shipped("devices")

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Lay a value over the recipe: training.steps=200. Repeatable."),
]
Backend = Annotated[
    str | None,
    typer.Option(
        help="Who computes: auto, reference, numba or cuda. The bits are the same.",
        autocompletion=completed_by(lambda: ("auto", "reference", "numba", "cuda")),
    ),
]


class VectorOptions(TypedDict, total=False):
    """Options of golden vectors besides operation and formats; see `write` of `emu.cli.vectors`."""

    rounding: Annotated[
        str | None, typer.Option(help="Rounding mode; without: that of ap_fixed<16,8>, or nearest_even.")
    ]
    overflow: Annotated[str | None, typer.Option(help="Overflow rule; without: the format's own.")]
    n_rbits: Annotated[int | None, typer.Option(help="Random bits of stochastic rounding.")]
    depth: Annotated[int | None, typer.Option(help="Terms of each product.")]
    product: Annotated[str | None, typer.Option(help="Format products are rounded to; without: exact.")]
    accumulator: Annotated[str | None, typer.Option(help="Format of the accumulator; without: exact.")]
    order: Annotated[str | None, typer.Option(help="Order of the adds: sequential, pairwise, lanes(4), ...")]
    mac_rounding: Annotated[str | None, typer.Option(help="Rounding of products and sums in the unit.")]
    mac_overflow: Annotated[str | None, typer.Option(help="Overflow rule of products and sums in the unit.")]
    count: Annotated[int | None, typer.Option(help="How many vectors; without: 1000.")]
    seed: Annotated[int | None, typer.Option(help="Seed of operands and random bits; without: 0.")]
    tininess: Annotated[
        str | None, typer.Option(help="When IEEE 754 calls a result tiny: before_rounding or after_rounding.")
    ]


class SimulateOptions(TypedDict, total=False):
    """Options of a simulation besides model and device; see `simulate_model` of `emu.cli.simulate`."""

    nodes: Annotated[str | None, typer.Option(help="Numbers of nodes, e.g. 1,2,4,8; without: the recipe's.")]
    batch: Annotated[
        str | None,
        typer.Option(help="Examples of a step, on all nodes together, e.g. 256,2880; without: the recipe's."),
    ]
    bits: Annotated[str | None, typer.Option(help="Bits of a gradient on its way, e.g. 1,32; without: the recipe's.")]
    cost: Annotated[
        str | None,
        typer.Option(help="A cost table's name or the path of its TOML file.", autocompletion=shipped("costs")),
    ]
    settings: Settings
    out: Annotated[Path | None, typer.Option(help="Folder for data, picture of speed-up, and trace.")]


class EngineChoices(TypedDict, total=False):
    """Options of the engine that trains the runs of a study or a search."""

    on: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE", help="Who runs it: local (processes of this machine), or dask:ADDRESS of a scheduler."
        ),
    ]
    workers: Annotated[int | None, typer.Option(help="Runs at a time; without: one per processor.")]
    backend: Backend
    cache: Annotated[
        bool | None, typer.Option("--cache/--no-cache", help="Take runs from the cache of runs, and keep them there.")
    ]
    store: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Store of objects that workers bring runs to, e.g. s3://bucket/study."),
    ]


class StudyChoices(EngineChoices, total=False):
    """Options of a study; see `StudyOptions` of `emu.cli.study`."""

    retry_failed: Annotated[bool | None, typer.Option("--retry-failed", help="Try runs again that failed.")]
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only runs whose name matches, e.g. 'lenet-*'. Repeatable."),
    ]


class SearchChoices(EngineChoices, total=False):
    """Options of a search; see `SearchOptions` of `emu.search`."""

    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Database of the trials that commands share, e.g. postgresql://user@host/name."
        ),
    ]


class SensitivityChoices(EngineChoices, total=False):
    """Options of a sensitivity analysis; see `SensitivityOptions` of `emu.sensitivity`."""

    bits: Annotated[str | None, typer.Option(metavar="A,B,C", help="Widths that are tried; without: 8,6,4.")]
    formats: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Formats that are tried instead, e.g. fix8f6,fp8_e4m3.")
    ]
    roles: Annotated[str | None, typer.Option(metavar="A,B,C", help="Roles that are narrowed, e.g. weight,activation.")]
    layers: Annotated[
        list[str] | None, typer.Option(help="Only layers whose name matches, e.g. 'conv*'; may be given several times.")
    ]
    steps: Annotated[
        int | None, typer.Option("--train", metavar="STEPS", help="Train short paired runs instead of evaluating.")
    ]
    seeds: Annotated[str | None, typer.Option(metavar="A,B,C", help="Seeds of the runs of --train.")]
    margin: Annotated[float | None, typer.Option(help="Points of accuracy that may be lost; without: 0.5.")]


def with_options(options: type) -> Callable[[Command], Command]:
    """Return a decorator that makes the keys of a `TypedDict` options of a command with `**options: Unpack[...]`.

    Typer reads the signature of a function, so the decorator adds the keys to it by name, with the default None.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(options, include_extras=True)
        _set_signature(command, command, [_option(name, annotation, None) for name, annotation in hints.items()])
        return command

    return decorate


def printing(command: Callable[..., Output]) -> Callable[..., None]:
    """Return a command that prints the `Output` of a function, and has an option `--json` for the same as data."""

    @functools.wraps(command)
    def printed(*arguments: Any, as_json: bool, **options: Any) -> None:
        output = command(*arguments, **options)
        output.show(as_json=as_json)
        if output.exit_code:
            raise typer.Exit(output.exit_code)

    flag = Annotated[bool, typer.Option("--json", help="Print data (JSON) instead of text.")]
    _set_signature(printed, command, [_option("as_json", flag, False)])
    return printed


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _set_signature(function: Any, like: Callable[..., Any], more: Sequence[inspect.Parameter]) -> None:
    """Give a function the parameters of another one and more of them, with annotations that are no text."""
    hints: dict[str, Any] = get_type_hints(like, include_extras=True)
    own = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in inspect.signature(like).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    function.__dict__["__signature__"] = inspect.Signature([*own, *more])
