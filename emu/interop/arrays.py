"""Arrays in NumPy's files, by what a file's name says that it is."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of an `.npz` by name.

    Raises:
        Exception: one of `UNREADABLE_ARRAYS`: it is no archive, is damaged, or holds pickled objects.
    """
    # np.load goes by content: it would return an .npy that is named .npz as a plain array
    if not zipfile.is_zipfile(path):
        raise zipfile.BadZipFile("not a zip archive, or cut off")
    # opened here: of a damaged archive, np.load would leave it open
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        # read while the archive is open: it reads an array when it is asked for
        return {name: np.asarray(archive[name]) for name in archive.files}


def read_npy(path: Path) -> Array:
    """Return the array of an `.npy`.

    Raises:
        Exception: one of `UNREADABLE_ARRAYS`: it is no such file, is damaged, or holds pickled objects.
    """
    with path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)
