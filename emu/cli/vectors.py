"""The commands `emu vectors`, which writes files, and `emu check`, which compares a dump with them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from emu._config import checked
from emu.cli.options import CheckOptions, UnitOptions, VectorsOptions, parts_of
from emu.cli.output import Output
from emu.cli.testbench import options_of_testbench, written_testbench
from emu.errors import ConfigError
from emu.hardware import load_device
from emu.precision import Policy
from emu.testing.vectors import (
    Description,
    DumpFinding,
    Reading,
    Vectors,
    count_for_cells,
    judge,
    make_vectors,
    read_dump,
    read_vectors,
    vectors_of,
    what_they_tell,
    write_vectors,
)
from emu.testing.vectors.blocks.dumped_scales import read_scales
from emu.testing.vectors.columns import assigned
from emu.testing.vectors.description import MacTable
from emu.testing.vectors.dump_check import check_register
from emu.testing.vectors.dumps.dump import FLAGS, SCALE
from emu.testing.vectors.files import MANIFEST
from emu.testing.vectors.making import pool_of

#: File of the folder that a simulation writes, unless another is named.
DUMP = "dump.hex"
#: Options of the multiply-accumulate unit, and their keys in its table.
UNIT = {
    "product": "product",
    "accumulator": "accumulator",
    "order": "order",
    "mac_rounding": "rounding",
    "mac_overflow": "overflow",
}
#: Options of `emu check` that name files beside the dump.
_OTHER_FILES = {"statistics_dump", "scales"}
#: Its options that say where operands come from, not how a dump is read or what the unit does.
_OF_OPERANDS = ("op", "operands", "rbits", "formats", "out_format", "device", "layer")


def formats_of(operation: str, formats: str | None, out_format: str | None) -> dict[str, Any]:
    """Return operation and formats as a description has them.

    Raises:
        ConfigError: a format is missing.
    """
    if formats is None or out_format is None:
        missing = "--formats" if formats is None else "--out-format"
        raise ConfigError(f"`{missing}` must be given unless `--device` is, got nothing; add it")
    return with_formats({"operation": operation}, formats, out_format)


def table_of(
    operation: str, formats: str | None, out_format: str | None, device: str | None, layer: str | None
) -> dict[str, Any]:
    """Return operation, formats and perhaps a unit: those of the command line, laid over those of a device.

    Raises:
        ConfigError: a format is missing, or a format of the device has a point that training chooses.
    """
    if device is None:
        return formats_of(operation, formats, out_format)
    return with_formats(of_device(operation, device, layer), formats, out_format)


def with_formats(table: dict[str, Any], formats: str | None, out_format: str | None) -> dict[str, Any]:
    """Return a description with the formats of the command line laid over its own; one that is None changes nothing."""
    given = {"formats": None if formats is None else parts_of(formats), "out_format": out_format}
    return table | {key: value for key, value in given.items() if value is not None}


def of_device(operation: str, device: str, layer: str | None) -> dict[str, Any]:
    """Return the formats and the unit of a layer's forward products: activations times weights, written as activations.

    Raises:
        ConfigError: the operation is another one, or a format has a point that training chooses.
    """
    if operation != "matmul":
        raise ConfigError(f"`--device` is of matmul, got it for {operation}; give --formats and --out-format")
    loaded, name = load_device(device), layer or ""
    policy = Policy(loaded.precision)
    for role in ("activation", "weight"):
        if policy.word(name, role) is not None:
            raise ConfigError(
                f"the points of vectors must be fixed, got the {role}s of {loaded.name}, whose point training chooses; "
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


def with_unit(table: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description with options of the unit laid over it; one that is None changes nothing."""
    given = {key: value for key, value in options.items() if value is not None}
    mac = {UNIT[key]: given.pop(key) for key in UNIT if key in given}
    return {**table, "mac": {**table.get("mac", {}), **mac}, **given}


def description_of(table: dict[str, Any], options: UnitOptions | Mapping[str, Any]) -> Description:
    """Return a description with options of the unit laid over it.

    Raises:
        ConfigError: there is no such unit.
    """
    return checked(Description, with_unit(table, options), file="the command line")


def write(table: dict[str, Any], out: Path, style: str, options: VectorsOptions) -> Output:
    """Write vectors; return their paths and what they tell.

    Args:
        table: operation and formats, and perhaps a stage and a unit.
        out: folder of the files.
        style: both, hex or testfloat.
        options: laid over the table; one that is None changes nothing.
    """
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    # Takes its own options out of `given`; what stays is the description.
    testbench = options_of_testbench(given, style)
    description = description_of(table, given)
    pool = pool_of(description)
    vectors = make_vectors(description, pool)
    paths = [Path(path) for path in write_vectors(vectors, out, style, everything=pool.everything)]
    bench = written_testbench(vectors.description, out, testbench)
    paths += bench.paths
    tells, count = what_they_tell(vectors, pool.everything), vectors.description.count
    # Cells are the cases that vectors must hit, each several times; a small `count` has no room for all.
    if (wanted := count_for_cells(description, pool)) > count:
        tells.append(f"too few vectors for all cells: --count {wanted} has room for them")
    last = f"{count} vectors; check a dump of results with: emu check {shlex.quote(str(out))} DUMP"
    if description.blocks is not None:
        together = description.together
        last = f"{count} vectors, {count // together} blocks of {together}{last.removeprefix(f'{count} vectors')}"
        # Scales are a second array, one for each block, so they are a second dump.
        last += " --scales SCALES"
    data = {"vectors": count, "files": paths, "tells": tells, **bench.data}
    return Output([*map(str, paths), *tells, *bench.lines, last], data)


def check(target: Path, dump: Path | None, *, any_nan: bool, options: CheckOptions) -> Output:
    """Compare a dump with vectors; if it differs, return an explanation and exit code 1.

    Args:
        target: folder of the vectors; with `op`, the dump.
        dump: the dump; None with `op`, and if it has its usual name in the folder.
        any_nan: whether any NaN is as good as the canonical one.
        options: how the dump is read; and the operation and its operands, if there is no folder.
    """
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    names = {field.name for field in fields(Reading)}
    # The fields of `Reading` say how a dump is read; the others are about the unit or its operands.
    reading = {key: value for key, value in given.items() if key in names}
    files = {key: value for key, value in given.items() if key in _OTHER_FILES}
    source = {key: value for key, value in given.items() if key not in names | _OTHER_FILES}
    path, vectors = _dump_and_vectors(target, dump, source, reading)
    d, radix = vectors.description, reading.get("radix")
    words = read_dump(path, Reading(**reading, count=d.count))
    register = files.get("statistics_dump")
    scales = read_scales(d, Path(files["scales"]), radix=radix) if "scales" in files else None
    finding = judge(vectors, words, any_nan=any_nan, scales=scales)
    # Lines about a register that differs; none if it is right, or was not given.
    counts = [] if register is None else check_register(vectors, Path(register), radix=radix)
    columns = {*assigned(words, d, d.count), *([] if scales is None else [SCALE])}
    missing = _not_compared(d, columns, register)
    if finding is not None:
        # A wrong element of a block may be the fault of its scale, so say if scales were not compared.
        return _wrong(finding, counts, missing if d.blocks is not None else [])
    if counts:
        return Output([f"{path}: every result is right, but the register is not:", *counts],
                      {"is_right": False, "wrong": 0, "register": counts}, exit_code=1)  # fmt: skip
    tells = [*missing, *what_they_tell(vectors)]
    how = "any NaN taken for the canonical one" if any_nan else "bit for bit"
    lines = [f"{path}: every {_what_is_right(d, columns)} is right, {how}", *tells]
    return Output(lines, {"is_right": True, "wrong": 0, "lines": len(words), "tells": tells})


def _dump_and_vectors(
    target: Path, dump: Path | None, given: Mapping[str, Any], reading: Mapping[str, Any]
) -> tuple[Path, Vectors]:
    """Return the path of the dump, and the vectors of a folder or of the operands that the command line names.

    Args:
        target: folder of the vectors; with `op`, the dump.
        dump: the dump; None with `op`, and if it has its usual name in the folder.
        given: the operation, its operands and its unit, if there is no folder.
        reading: how the dump is read.

    Raises:
        ConfigError: the arguments do not fit each other, or a file is missing.
    """
    if "op" in given:
        if dump is not None:
            raise ConfigError(f"`--op` must stand without a folder, got {target} beside {dump}; name the dump alone")
        return target, _given_vectors(target, given, reading)
    # A folder's manifest has the description: an option beside it could only contradict.
    if given:
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise ConfigError(f"`{option}` must stand beside --op, got it without; a folder says this by itself")
    path = dump or target / DUMP
    if (target / MANIFEST).exists() and not path.is_file():
        raise ConfigError(f"a dump must be a file, a line per vector, got {str(path)!r}, which does not exist; name it")
    if target.is_file() and dump is None:
        raise ConfigError(f"{target} must be a folder of vectors, got a file; add the folder, or --op and --operands")
    return path, read_vectors(target)


def _wrong(finding: DumpFinding, counts: list[str], tells: list[str]) -> Output:
    """Return the explanation of a dump that differs.

    Args:
        finding: what differs.
        counts: lines about a register that differs.
        tells: what was not compared.
    """
    data = {
        "is_right": False,
        "wrong": finding.wrong,
        "wrong_scales": finding.wrong_scales,
        "results": finding.count,
        "first_wrong": finding.index,
        "lines": finding.lines_given,
        "vectors": finding.vectors,
        "undriven": finding.undriven,
        "alignment": finding.alignment,
        "causes": finding.causes,
        "explanation": finding.lines,
        "register": counts,
        "tells": tells,
    }
    return Output([*finding.lines, *counts, *tells], data, exit_code=1)


def _what_is_right(description: Description, columns: Collection[str]) -> str:
    """Return what of each vector is right in a dump that has these columns."""
    parts = ["result" if description.blocks is None else "element"]
    parts += ["scale of a block"] if SCALE in columns and description.blocks is not None else []
    parts += ["flag"] if FLAGS in columns else []
    return " and every ".join(parts)


def _not_compared(description: Description, columns: Collection[str], register: str | None) -> list[str]:
    """Return what vectors have and a dump does not."""
    missing = [name for name in description.result_names if name not in columns]
    if description.blocks is not None and SCALE not in columns:
        missing.append("the scales of blocks (--scales FILE, or a column scale)")
    if register is None and description.statistics is not None:
        missing.append("the register (--statistics-dump)")
    return [f"not in the dump, and not compared: {', '.join(missing)}"] if missing else []


def _given_vectors(dump: Path, given: Mapping[str, Any], reading: Mapping[str, Any]) -> Vectors:
    """Return vectors of the operands that the command line names, or that the dump has beside its results."""
    source: dict[str, Any] = {key: given.get(key) for key in _OF_OPERANDS}
    unit = {key: value for key, value in given.items() if key not in _OF_OPERANDS}
    table = table_of(source["op"], source["formats"], source["out_format"], source["device"], source["layer"])
    operands = (
        read_dump(dump, Reading(**reading))
        if source["operands"] is None
        # Files of operands, in their order; otherwise the dump has columns of them.
        else [Path(part) for part in source["operands"].split(",")]
    )
    rbits = None if source["rbits"] is None else Path(source["rbits"])
    return vectors_of(with_unit(table, unit), operands, rbits=rbits, radix=reading.get("radix"))
