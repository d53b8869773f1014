"""Options that several commands share, and long lists of options."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, get_type_hints

import typer

from emu._paths import Content, content_folder
from emu.cli.app import completed_by
from emu.cli.output import Output

Command = TypeVar("Command", bound=Callable[..., Any])
#: Commas between the parts of a list, not those in `ap_fixed<16,8>`.
#: A comma counts if no `>` follows before the next `<`: inside of angle brackets one does.
_BETWEEN_PARTS = re.compile(r",(?![^<]*>)")


def shipped(content: Content) -> Callable[[str], list[str]]:
    """Return what completes the name of a shipped file for the shell, without loading any."""
    return completed_by(lambda: sorted(path.stem for path in content_folder(content).glob("*.toml")))


def parts_of(text: str) -> list[str]:
    """Return the parts of a list with commas.

    Examples:
        >>> parts_of("ap_fixed<16,8>, fp16")
        ['ap_fixed<16,8>', 'fp16']
    """
    return [part.strip() for part in _BETWEEN_PARTS.split(text)]


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


Operation = Annotated[
    str, typer.Argument(help="quantize, add, subtract, multiply, divide, fma, sqrt, remainder, ... or matmul.")
]
OperandFormats = Annotated[
    str | None, typer.Option("--formats", metavar="A,B,C", help="Formats of the operands, the addend's last.")
]
OutFormat = Annotated[str | None, typer.Option(help="Format of the result.")]
ScaledOutFormat = Annotated[
    str | None, typer.Option(help="Format of the result; of quantize one with scales, too, as mxfp8_e4m3 or nvfp4.")
]
UnitDevice = Annotated[
    str | None,
    typer.Option(
        help="Device file or name, of whose forward products formats and unit are taken.", autocompletion=DEVICE
    ),
]
UnitLayer = Annotated[str | None, typer.Option(help="Layer, if the device has formats by layer.")]


class StageOptions(TypedDict, total=False):
    """Options of an output stage and its flags."""

    rounding: Annotated[
        str | None, typer.Option(help="Rounding mode; without: that of ap_fixed<16,8>, or nearest_even.")
    ]
    overflow: Annotated[str | None, typer.Option(help="Overflow rule; without: the format's own.")]
    n_rbits: Annotated[int | None, typer.Option(help="Random bits of stochastic rounding.")]
    tininess: Annotated[
        str | None, typer.Option(help="When IEEE 754 calls a result tiny: before_rounding or after_rounding.")
    ]
    flags: Annotated[str | None, typer.Option(help="Whose flags: ieee or emu; without: ieee, of fixed point emu.")]
    stages: Annotated[
        list[str] | None,
        typer.Option("--stage", metavar="STAGE", help="One before the output stage: FORMAT MODE RULE. Repeatable."),
    ]
    nan: Annotated[str | None, typer.Option(help="Which NaN is written: canonical, first or signalling_first.")]
    nan_code: Annotated[str | None, typer.Option(metavar="CODE", help="A NaN that no operand was, like 0xffc00000.")]
    invalid: Annotated[
        str | None,
        typer.Option(
            help="What fixed-point results of NaN are: zero, largest or indefinite (x86: beyond the range, too)."
        ),
    ]


class ProveOptions(StageOptions, total=False):
    """Options of a proof besides operation and sources; see `prove_unit` of `emu.cli.prove`."""

    formats: Annotated[str | None, typer.Option(metavar="A,B,C", help="Formats of the operands.")]
    out_format: Annotated[str | None, typer.Option(help="Format of the result.")]
    sources: Annotated[
        list[Path] | None, typer.Option(help="Verilog files; more may follow, as of rtl/*.sv. Repeatable.")
    ]
    top: Annotated[str | None, typer.Option(help="The module.")]
    ports: Annotated[
        str | None,
        typer.Option(
            metavar="A=X,...",
            help="What each port is: a=x,b=y,result=z, and rbits, flags or one flag, clock, free (anything), or a "
            "number that is driven into it: 1=rst_n.",
        ),
    ]
    latency: Annotated[int | None, typer.Option(help="Cycles from operands to result of a clocked unit.")]
    parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=INTEGER", help="Parameter of the module. Repeatable.")
    ]
    include: Annotated[list[Path] | None, typer.Option(help="Folder of included files. Repeatable.")]
    define: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Macro, or NAME=VALUE. Repeatable.")]
    any_nan: Annotated[bool | None, typer.Option("--any-nan", help="Take a NaN of any pattern for the canonical one.")]
    limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time of the proof; without: 300.")]


class UnitOptions(StageOptions, total=False):
    """Options of a unit besides operation and formats; see `description_of` of `emu.cli.vectors`."""

    depth: Annotated[int | None, typer.Option(help="Terms of each product.")]
    product: Annotated[str | None, typer.Option(help="Format products are rounded to; without: exact.")]
    accumulator: Annotated[str | None, typer.Option(help="Format of the accumulator; without: exact.")]
    requantise: Annotated[
        str | None,
        typer.Option(
            metavar="KIND NUMBER",
            help="How integer sums become elements, as 'double_rounding 1518500250*2**-38 zero -126'; behind it lowest "
            "N, highest N, rounding MODE.",
        ),
    ]
    order: Annotated[str | None, typer.Option(help="Order of the adds: sequential, pairwise, lanes(4), ...")]
    mac_rounding: Annotated[str | None, typer.Option(help="Rounding of products and sums in the unit.")]
    mac_overflow: Annotated[str | None, typer.Option(help="Overflow rule of products and sums in the unit.")]
    zero_sign: Annotated[str | None, typer.Option(help="Of an exact sum that is 0: positive or ieee.")]
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESULT",
            help="A further one of the same operands: FORMAT, before it another operation, behind it MODE RULE. "
            "Repeatable.",
        ),
    ]
    statistics: Annotated[
        str | None, typer.Option(metavar="LOWEST:BINS", help="Positions of a register of leading bits, like -24:40.")
    ]


class VectorOptions(UnitOptions, total=False):
    """Options of golden vectors besides operation and formats; see `write` of `emu.cli.vectors`."""

    count: Annotated[
        int | None, typer.Option(help="How many vectors; without: 1000. The last block of mxfp8_e4m3 is filled up.")
    ]
    seed: Annotated[int | None, typer.Option(help="Seed of operands and random bits; without: 0.")]


class DumpOptions(TypedDict, total=False):
    """Options that say how a dump is read; see `Reading` of `emu.testing.vectors`."""

    dump_format: Annotated[
        str | None,
        typer.Option(help="text, testfloat, csv, mif, coe, questa, vcd, fst or ghw; without: seen in the file."),
    ]
    radix: Annotated[
        str | None, typer.Option(help="hex, decimal, binary or octal, of words that do not say it themselves.")
    ]
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="What columns are: a,b,result,flags by position (_: skip), or result=y,flags=7."
        ),
    ]
    signal: Annotated[str | None, typer.Option(help="Of a waveform, the result: tb.dut.y, or tb.dut.out[15:0].")]
    flags_signal: Annotated[str | None, typer.Option(help="Of a waveform, the flags.")]
    clock: Annotated[str | None, typer.Option(help="Of a waveform, the clock: rising edges sample.")]
    valid: Annotated[str | None, typer.Option(help="Of a waveform, a bit that is 1 where the result counts.")]
    ready: Annotated[str | None, typer.Option(help="Of a waveform, another bit that must be 1, of the receiver.")]


class CheckOptions(DumpOptions, UnitOptions, total=False):
    """Options of `emu check` besides the dump; those of an operation judge operands that somebody else drew."""

    op: Annotated[
        str | None, typer.Option(metavar="OPERATION", help="Judge without a folder: the operation, as in emu vectors.")
    ]
    operands: Annotated[
        str | None,
        typer.Option(metavar="FILES", help="With --op: a.hex,b.hex; without, the dump has columns of operands."),
    ]
    rbits: Annotated[str | None, typer.Option(metavar="FILE", help="With --op: the random bits.")]
    statistics_dump: Annotated[
        str | None, typer.Option(metavar="FILE", help="Counts of the unit's register, as in statistics.hex.")
    ]
    scales: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Of mxfp8_e4m3, nvfp4 and the like: the scales, a code a block, in any format of dumps.",
        ),
    ]
    formats: Annotated[str | None, typer.Option(metavar="A,B,C", help="With --op: formats of the operands.")]
    out_format: Annotated[str | None, typer.Option(help="With --op: format of the result.")]
    device: Annotated[
        str | None,
        typer.Option(help="With --op matmul: device whose formats and unit are taken.", autocompletion=DEVICE),
    ]
    layer: Annotated[str | None, typer.Option(help="With --device: layer, if it has formats by layer.")]


class BenchOptions(TypedDict, total=False):
    """Options of the testbench beside golden vectors; see `write_testbench` of `emu.testing.rtl.testbenches`."""

    testbench: Annotated[str | None, typer.Option(help="Write a testbench, too: sv, vhdl, cpp or cocotb.")]
    handshake: Annotated[
        str | None, typer.Option(help="How the unit is driven: none, valid_ready, stb_ack or start_done.")
    ]
    top: Annotated[str | None, typer.Option(help="Module or entity; without: the operation.")]
    ports: Annotated[
        str | None, typer.Option(metavar="A=X,Y=Z", help="Ports whose names are not a, b, c, y; flags=NAME; en=1'b1.")
    ]
    clock: Annotated[str | None, typer.Option(help="Name of the clock, or none; without: clk.")]
    reset: Annotated[
        str | None,
        typer.Option(
            help="Name of the reset; active low: !NAME, and names in _n, _ni, _b, resetn, rstn, nreset, nrst."
        ),
    ]
    latency: Annotated[int | None, typer.Option(help="Cycles to the result where no signal says it; without: 1.")]


class VectorsOptions(VectorOptions, BenchOptions, total=False):
    """Options of `emu vectors` besides operation and formats."""


class NetworkOptions(TypedDict, total=False):
    """Options of the evaluation of a network's file; see `evaluate_network` of `emu.cli.graphs`."""

    data: Annotated[
        Path | None, typer.Option(help="Examples for a network: .npz with x and y, .npy, .csv, or a folder of images.")
    ]
    only: Annotated[
        list[str] | None, typer.Option(help="Of a network: try these layers alone, by name or glob; 'none' tries none.")
    ]
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Of a network: choose binary points, or scales of integers, from float32 data, write this device "
            "file, and use it."
        ),
    ]
    calibration_data: Annotated[
        Path | None, typer.Option(help="Examples that points are chosen from; without: --data.")
    ]
    overflow_rate: Annotated[
        float | None, typer.Option(help="Share of a tensor's numbers that may lie beyond its format; without: 0.")
    ]
    picture: Annotated[Path | None, typer.Option(help="Of a network: draw its layers into this .svg file.")]
    against: Annotated[
        Path | None,
        typer.Option(
            help="Of a network: compare with tensors that were recorded elsewhere, .npz by name; exit code 1 if one "
            "differs."
        ),
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
        # A key that is not given is None, so the keys need no defaults of their own.
        _set_signature(command, command, [_option(name, annotation, None) for name, annotation in hints.items()])
        return command

    return decorate


def printing(command: Callable[..., Output]) -> Callable[..., None]:
    """Return a command that prints the `Output` of a function, and has an option `--json` for the same as data."""

    # `wraps` keeps name and docstring, which typer shows as the help. The signature is set below, since typer would
    # read that of `command`, which has no --json.
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
        # typer would make an option of `**options`; its keys are among `more`.
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    # `inspect.signature` looks here first, before the `__wrapped__` that `functools.wraps` sets.
    function.__dict__["__signature__"] = inspect.Signature([*own, *more])
