"""The group `emu export`: a command for each language of `emu.export`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Unpack

import typer

from emu.cli.app import App
from emu.cli.options import (
    OperandFormats,
    Operation,
    OutFormat,
    UnitDevice,
    UnitLayer,
    UnitOptions,
    printing,
    with_options,
)
from emu.cli.output import Output
from emu.export import LANGUAGES, export

exports = App(
    name="export",
    help="Write a unit's definition in another language, for simulators and firmware without Python.",
    no_args_is_help=True,
)


def _command_of(language: str) -> Callable[..., Output]:
    @with_options(UnitOptions)
    def command(
        operation: Operation,
        name: Annotated[str, typer.Option(help="Name of the function, and of the files.")],
        out: Annotated[Path, typer.Option(help="Folder of the files.")],
        formats: OperandFormats = None,
        out_format: OutFormat = None,
        device: UnitDevice = None,
        layer: UnitLayer = None,
        **options: Unpack[UnitOptions],
    ) -> Output:
        from emu.cli.vectors import description_of, table_of

        unit = description_of(table_of(operation, formats, out_format, device, layer), options)
        paths = [str(path) for path in export(unit, out, name=name, language=language)]
        return Output(paths, {"function": name, "files": paths})

    return command


# `_command_of` and not a function in the loop: each command must keep its own language.
for _language, _row in LANGUAGES.items():
    exports.command(_language, help=_row.sentence)(printing(_command_of(_language)))


@exports.command("qonnx", help="Write a network of an .onnx file in a device's fixed-point formats, as QONNX.")
@printing
def qonnx(
    network: Annotated[Path, typer.Argument(help="The .onnx file.")],
    device: Annotated[str, typer.Option(help="Name or path of the device.")],
    out: Annotated[Path, typer.Option(help="The new file.")],
) -> Output:
    """Write a network in a device's formats, and say which of its bits the file cannot have."""
    from emu.interop.onnx import load

    graph = load(network)
    # Steps whose intermediate results the device rounds, and for which the file has one node without formats inside.
    composed = graph.composed
    path = graph.write_qonnx(out, device)
    lines: list[str] = [str(path)]
    if composed:
        names = ", ".join(f"{name} ({count} steps)" for name, count in composed.items())
        lines.append(f"intermediate results have formats on the device, and none in the file, in {names}")
    return Output(lines, {"file": str(path), "composed": composed})
