"""What `emu vectors` and `emu check` do: files out, a dump in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from emu._config import checked
from emu.errors import ConfigError
from emu.testing.vectors import Description, check_dump, make_vectors, write_vectors
from emu.testing.vectors.files import MANIFEST

#: The folder's file that a simulation writes, unless another is named.
DUMP = "dump.hex"


def write(description: dict[str, Any], out: Path, style: str) -> None:
    """Write vectors, and print where they are."""
    given = {key: value for key, value in description.items() if value is not None}
    given["mac"] = {key: value for key, value in given.get("mac", {}).items() if value is not None}
    vectors = make_vectors(checked(Description, given, file="the command line"))
    for path in write_vectors(vectors, out, style):
        print(path)
    print(f"{vectors.description.count} vectors; check a dump of results with: emu check {out} DUMP")


def check(folder: Path, dump: Path | None, *, any_nan: bool) -> None:
    """Compare a dump; exit code 1 and an explanation where it differs."""
    path = dump or folder / DUMP
    if (folder / MANIFEST).exists() and not path.is_file():
        raise ConfigError(f"a dump must be a file, a line per vector, got {str(path)!r}, which does not exist; name it")
    finding = check_dump(folder, path, any_nan=any_nan)
    if finding is None:
        print(f"{path}: every result is right, bit for bit")
        return
    print(finding)
    sys.exit(1)
