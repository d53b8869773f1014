"""The commands `emu vectors`, which writes files, and `emu check`, which compares a dump with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from emu._config import checked
from emu.cli.options import VectorOptions
from emu.cli.output import Output
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.precision import Policy
from emu.testing.vectors import Description, check_dump, make_vectors, read_vectors, what_they_tell, write_vectors
from emu.testing.vectors.description import MacTable
from emu.testing.vectors.files import MANIFEST

#: File of the folder that a simulation writes, unless another is named.
DUMP = "dump.hex"
#: Commas between formats, not those in `ap_fixed<16,8>`.
_BETWEEN_FORMATS = re.compile(r",(?![^<]*>)")
#: Options of the multiply-accumulate unit, and their keys in its table.
UNIT = {
    "product": "product",
    "accumulator": "accumulator",
    "order": "order",
    "mac_rounding": "rounding",
    "mac_overflow": "overflow",
}


def formats_of(operation: str, formats: str | None, out_format: str | None) -> dict[str, Any]:
    """Return operation and formats as a description has them.

    Raises:
        ConfigError: a format is missing.
    """
    if formats is None or out_format is None:
        missing = "--formats" if formats is None else "--out-format"
        raise ConfigError(f"`{missing}` must be given unless `--device` is, got nothing; add it")
    return with_formats({"operation": operation}, formats, out_format)


def with_formats(table: dict[str, Any], formats: str | None, out_format: str | None) -> dict[str, Any]:
    """Return a description with the formats of the command line laid over its own; one that is None changes nothing."""
    operands = None if formats is None else [text.strip() for text in _BETWEEN_FORMATS.split(formats)]
    given = {"formats": operands, "out_format": out_format}
    return table | {key: value for key, value in given.items() if value is not None}


def of_device(operation: str, device: str, layer: str | None) -> dict[str, Any]:
    """Return the formats and the unit of a layer's forward products: activations times weights, written as activations.

    Raises:
        ConfigError: the operation is another one, or a format has a point that training chooses.
    """
    if operation != "matmul":
        raise ConfigError(f"`--device` is of matmul, got it for {operation}; give --formats and --out-format")
    found, name = load_device(device), layer or ""
    policy = Policy(found.precision)
    for role in ("activation", "weight"):
        if policy.word(name, role) is not None:
            raise ConfigError(
                f"the points of vectors must be fixed, got the {role}s of {found.name}, whose point training chooses; "
                "give --formats, --out-format and the unit's options"
            )
    stage, weight = policy.stage(name, "activation"), policy.stage(name, "weight").format
    mac = MacTable.of(policy.mac(name, stage.format, weight))
    return {
        "operation": operation,
        "formats": [str(stage.format), str(weight)],
        "out_format": str(stage.format),
        "rounding": stage.rounding.value,
        "overflow": stage.overflow.value,
        "n_rbits": stage.n_rbits,
        "mac": mac.model_dump(),
    }


def write(table: dict[str, Any], out: Path, style: str, options: VectorOptions) -> Output:
    """Write vectors; return their paths and what they tell.

    Args:
        table: operation and formats, and perhaps a stage and a unit.
        out: folder of the files.
        style: hex or testfloat.
        options: laid over the table; one that is None changes nothing.
    """
    given = {key: value for key, value in options.items() if value is not None}
    mac = {UNIT[key]: given.pop(key) for key in UNIT if key in given}
    table = {**table, "mac": {**table.get("mac", {}), **mac}, **given}
    vectors = make_vectors(checked(Description, table, file="the command line"))
    paths = [Path(path) for path in write_vectors(vectors, out, style)]
    tells, count = what_they_tell(vectors), vectors.description.count
    last = f"{count} vectors; check a dump of results with: emu check {out} DUMP"
    data = {"vectors": count, "files": paths, "tells": tells}
    return Output([*map(str, paths), *tells, last], data)


def check(folder: Path, dump: Path | None, *, any_nan: bool) -> Output:
    """Compare a dump with vectors; if it differs, return an explanation and exit code 1."""
    path = dump or folder / DUMP
    if (folder / MANIFEST).exists() and not path.is_file():
        raise ConfigError(f"a dump must be a file, a line per vector, got {str(path)!r}, which does not exist; name it")
    finding = check_dump(folder, path, any_nan=any_nan)
    if finding is None:
        tells = what_they_tell(read_vectors(folder))
        lines = [f"{path}: every result is right, bit for bit", *tells]
        return Output(lines, {"is_right": True, "wrong": 0, "tells": tells})
    data = {
        "is_right": False,
        "wrong": finding.wrong,
        "results": finding.count,
        "first_wrong": finding.index,
        "causes": finding.causes,
        "explanation": finding.lines,
    }
    return Output(finding.lines, data, exit_code=1)
