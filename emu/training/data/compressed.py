"""Files that may be compressed: their first bytes say how, whatever their names are."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import BinaryIO, cast

#: First bytes of compressed files. Sources: RFC 1952; bzip2's and XZ's descriptions of their formats.
_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"
#: What names of compressed files end in.
ENDINGS = (".gz", ".bz2", ".xz")


def open_compressed(path: Path) -> BinaryIO:
    """Return a file open for reading, decompressed if it begins as a file of gzip, bzip2 or XZ does.

    Raises:
        OSError: it cannot be opened; damage is found where it is read.
    """
    with path.open("rb") as file:
        begin = file.read(len(_XZ))
    if begin.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(path))
    if begin.startswith(_BZIP2):
        return cast(BinaryIO, bz2.open(path))
    return cast(BinaryIO, lzma.open(path)) if begin == _XZ else path.open("rb")
