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


for _language, _row in LANGUAGES.items():
    exports.command(_language, help=_row.sentence)(printing(_command_of(_language)))
