"""The commands `emu vectors`, which writes files, and `emu check`, which compares a dump with them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from emu._config import checked
from emu.cli.options import VectorOptions
from emu.errors import ConfigError
from emu.testing.vectors import Description, check_dump, make_vectors, write_vectors
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


def write(operation: str, formats: str, out_format: str, out: Path, style: str, options: VectorOptions) -> None:
    """Write vectors, and print their paths; an option that is None has its default."""
    operands = [text.strip() for text in _BETWEEN_FORMATS.split(formats)]
    given = {key: value for key, value in options.items() if value is not None}
    mac = {UNIT[key]: given.pop(key) for key in UNIT if key in given}
    table = {"operation": operation, "formats": operands, "out_format": out_format, "mac": mac, **given}
    vectors = make_vectors(checked(Description, table, file="the command line"))
    for path in write_vectors(vectors, out, style):
        print(path)
    print(f"{vectors.description.count} vectors; check a dump of results with: emu check {out} DUMP")


def check(folder: Path, dump: Path | None, *, any_nan: bool) -> None:
    """Compare a dump with vectors; if it differs, print an explanation and end with exit code 1."""
    path = dump or folder / DUMP
    if (folder / MANIFEST).exists() and not path.is_file():
        raise ConfigError(f"a dump must be a file, a line per vector, got {str(path)!r}, which does not exist; name it")
    finding = check_dump(folder, path, any_nan=any_nan)
    if finding is None:
        print(f"{path}: every result is right, bit for bit")
        return
    print(finding)
    sys.exit(1)
