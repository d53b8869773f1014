"""Files that may be compressed: the first bytes tell how, not the name."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import BinaryIO, cast

#: First bytes of compressed files. Sources: RFC 1952; bzip2's and XZ's descriptions of their formats.
_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"


def open_compressed(path: Path) -> BinaryIO:
    """Return a file open for reading, which decompresses gzip, bzip2 and XZ.

    Raises:
        OSError: it cannot be opened. Damage raises an error only when the damaged part is read.
    """
    with path.open("rb") as file:
        # XZ's are the longest of the three, so they are compared as a whole
        begin = file.read(len(_XZ))
    # each library opens the file once more, because it needs the first bytes as well
    if begin.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(path))
    if begin.startswith(_BZIP2):
        return cast(BinaryIO, bz2.open(path))
    return cast(BinaryIO, lzma.open(path)) if begin == _XZ else path.open("rb")
