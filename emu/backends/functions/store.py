"""Arrays kept on disk between runs: one .npz file per key, no pickles.

A file that cannot be read, or that belongs to another key, counts as absent. If the folder cannot be written, nothing
is kept. Files are written under another name and renamed, so that a reader never finds an unfinished one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._files import UNREADABLE_ARRAYS
from emu._paths import cache_folder

Arrays = dict[str, NDArray[Any]]

#: Change when the files' layout changes.
LAYOUT = 1
# the package's folder
_PACKAGE = Path(__file__).resolve().parents[2]
#: Whatever decides the bits of a table.
_SOURCES = (
    "backends/functions/*.py",
    "backends/reference/*.py",
    "backends/*.py",
    "formats/*.py",
    "datapath/*.py",
)


def default_folder() -> Path:
    """Return the folder of tables in the user's cache."""
    return cache_folder("functions")


@cache
def sources_digest() -> str:
    """Return a hash over the layout number and every source file that decides the bits."""
    digest = hashlib.sha256(f"layout {LAYOUT}".encode())
    for pattern in _SOURCES:
        for path in sorted(_PACKAGE.glob(pattern)):
            # names count as well as bytes; paths as POSIX, so that systems agree
            digest.update(str(path.relative_to(_PACKAGE).as_posix()).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def path_of(folder: Path, key: str) -> Path:
    """Return the file of a key: a hash of the key and of the sources."""
    return folder / f"{hashlib.sha256(f'{sources_digest()} {key}'.encode()).hexdigest()[:32]}.npz"


def load(path: Path, key: str) -> Arrays | None:
    """Return the arrays stored under `key`, or None if there is no file, or one that is damaged or has another key."""
    try:
        # np.load goes by content: it would return another file of NumPy's as a plain array
        if not zipfile.is_zipfile(path):
            return None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UNREADABLE_ARRAYS:
        return None
    stored_key = str(arrays.pop("key", ""))  # a file's name is only a hash of its key
    return arrays if stored_key == key else None


def save(path: Path, key: str, arrays: Arrays) -> None:
    """Store arrays under `key`, all of them or none; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # in the same folder, so that the rename stays within a file system
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".emu-tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                named: dict[str, Any] = {"key": np.array(key), **arrays}
                np.savez_compressed(file, **named)
            os.replace(temporary, path)
        except BaseException:
            # also if interrupted: no temporary file is left behind
            Path(temporary).unlink(missing_ok=True)
            raise
