"""The files images come in: bundled digits, IDX (MNIST's format, also gzipped), `.npz`, `.npy`. Nothing is unpickled.

    IDX    0x00 0x00 | type | dimensions n | n sizes, 32 bits big-endian | elements, big-endian

Source of IDX: LeCun, Cortes, Burges, "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import gzip
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from emu._files import UNREADABLE_ARRAYS
from emu.errors import ConfigError

Array = NDArray[Any]

#: Element types of IDX files by their code.
IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
#: Largest pixel of the bundled digits, and of 8-bit images.
DIGITS_SCALE, BYTE_SCALE = 16.0, 255.0
_SIDES = ("train", "t10k")


@dataclass(frozen=True, eq=False)
class Raw:
    """Images and labels as a file holds them.

    Attributes:
        images: any real dtype, the first axis counts.
        labels: one per image.
        path: the images' file, as messages call it.
        labels_path: the labels' file.
        title: what the data is, for people.
        scale: what pixels are divided by unless the recipe says otherwise.
    """

    images: Array
    labels: Array
    path: str
    labels_path: str
    title: str
    scale: float

    def select(self, mask: NDArray[np.bool_]) -> Raw:
        """Return the images where `mask` is true, in order."""
        return replace(self, images=self.images[mask], labels=self.labels[mask])


def _scale_of(images: Array) -> float:
    return BYTE_SCALE if images.dtype == np.uint8 else 1.0


def read_digits() -> Raw:
    """Return the 1797 bundled digits of 8 x 8 pixels, 0..16.

    The file is read directly: importing `sklearn.datasets` for it would take longer than training some networks.

    Source: scikit-learn `load_digits`, the test set of UCI "Optical Recognition of Handwritten Digits", CC BY 4.0.
    """
    spec = find_spec("sklearn")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    path = package / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.int64) if path.is_file() else _digits_from_library()
    images, labels = table[:, :-1].reshape(-1, 8, 8).astype(np.uint8), table[:, -1]
    name = "scikit-learn digits"
    return Raw(images, labels, name, name, name, DIGITS_SCALE)


def _digits_from_library() -> Array:
    bunch: Any = import_module("sklearn.datasets").load_digits()
    return np.column_stack([bunch.data, bunch.target]).astype(np.int64)


def read_idx_folder(folder: Path) -> tuple[Raw, Raw | None]:
    """Return training and test images of a folder with MNIST's file names; test None where the folder has none.

    Raises:
        ConfigError: a file is missing, truncated or not an IDX file.
    """
    sides: list[Raw | None] = []
    for side in _SIDES:
        images, labels = (_idx_path(folder, side, kind) for kind in ("images-idx3", "labels-idx1"))
        if side == "t10k" and images is None and labels is None:
            sides.append(None)
            continue
        for path, kind in ((images, "images-idx3"), (labels, "labels-idx1")):
            if path is None:
                raise ConfigError(
                    f"a folder of IDX files must hold {side}-{kind}-ubyte or {side}-{kind}-ubyte.gz, got none in "
                    f"{folder}"
                )
        assert images is not None
        assert labels is not None
        values = read_idx(images, dimensions=(3, 4))
        sides.append(
            Raw(values, read_idx(labels, dimensions=(1,)), str(images), str(labels), str(folder), _scale_of(values))
        )
    assert sides[0] is not None
    return sides[0], sides[1]


def _idx_path(folder: Path, side: str, kind: str) -> Path | None:
    names = [f"{side}-{kind}-ubyte", f"{side}-{kind.replace('-idx', '.idx')}-ubyte"]
    candidates = [folder / f"{name}{ending}" for name in names for ending in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def read_idx(path: Path, *, dimensions: Sequence[int]) -> Array:
    """Return the array of an IDX file, gzipped if its name ends in `.gz`.

    Args:
        path: the file.
        dimensions: the numbers of dimensions allowed.

    Raises:
        ConfigError: the magic number is wrong, the file is truncated or too long, or it cannot be read.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _idx_array(cast(BinaryIO, file), path, dimensions)
    except ConfigError:
        raise
    except UNREADABLE_ARRAYS as error:
        raise unreadable(path, "an IDX file", error) from None


def _idx_array(file: BinaryIO, path: Path, dimensions: Sequence[int]) -> Array:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in IDX_TYPES or magic[3] not in dimensions:
        allowed = " or ".join(f"0x000008{n:02x}" for n in dimensions)
        raise ConfigError(
            f"an IDX file of {' or '.join(str(n) for n in dimensions)} dimensions must begin with the magic number "
            f"{allowed} (bytes), got 0x{magic.hex() or '(nothing)'} in {path}; "
            "check that images and labels are not exchanged"
        )
    header = file.read(4 * magic[3])
    shape = tuple(int.from_bytes(header[4 * i : 4 * i + 4], "big") for i in range(len(header) // 4))
    dtype = np.dtype(IDX_TYPES[magic[2]])
    size = math.prod(shape) * dtype.itemsize if len(shape) == magic[3] else None
    content = file.read() if size is not None else b""
    if size != len(content):
        told = f"{size} bytes for shape {shape}" if size is not None else f"a header of {4 * magic[3]} bytes"
        got = f"{len(content)}" if size is not None else f"{len(header)}"
        raise ConfigError(f"an IDX file must be complete: {told}, got {got} bytes in {path}; copy or download it again")
    return np.frombuffer(content, dtype=dtype).reshape(shape)


def read_npz(path: Path) -> tuple[Raw, Raw | None]:
    """Return the images of an `.npz` with `x_train`, `y_train` and perhaps `x_test`, `y_test`.

    Raises:
        ConfigError: an array is missing, the file is damaged, or it holds pickled objects.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile("not a zip archive, or cut off")
        with np.load(path, allow_pickle=False) as archive:
            arrays: dict[str, Array] = {name: np.asarray(archive[name]) for name in archive.files}
    except UNREADABLE_ARRAYS as error:
        raise unreadable(path, "an .npz archive of plain arrays", error) from None
    tested = "x_test" in arrays or "y_test" in arrays
    for name in ("x_train", "y_train", "x_test", "y_test")[: 4 if tested else 2]:
        if name not in arrays:
            raise ConfigError(
                f"an .npz of images must hold the array {name}, got {', '.join(sorted(arrays)) or 'none'} in {path}; "
                "store x_train, y_train, x_test, y_test"
            )
    train, test = (
        Raw(
            arrays[f"x_{side}"],
            arrays[f"y_{side}"],
            f"{path}: x_{side}",
            f"{path}: y_{side}",
            str(path),
            _scale_of(arrays[f"x_{side}"]),
        )
        if f"x_{side}" in arrays
        else None
        for side in ("train", "test")
    )
    assert train is not None
    return train, test


def read_npy(path: Path) -> tuple[Raw, Raw | None]:
    """Return the images of an `.npy`, with the labels of `<stem>_labels.npy` or `labels.npy` beside it.

    Raises:
        ConfigError: no labels are beside it, a file is damaged, or it holds pickled objects.
    """
    candidates = [path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy")]
    labels = next((candidate for candidate in candidates if candidate.is_file()), None)
    if labels is None:
        raise ConfigError(
            f"an .npy of images must have its labels beside it, got no {candidates[0].name} or labels.npy in "
            f"{path.parent}; save them there"
        )
    images = _npy_array(path)
    return Raw(images, _npy_array(labels), str(path), str(labels), str(path), _scale_of(images)), None


def _npy_array(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except UNREADABLE_ARRAYS as error:
        raise unreadable(path, "an .npy file of plain numbers", error) from None


def unreadable(path: Path, kind: str, error: BaseException) -> ConfigError:
    """Return the error that a file is not of its kind, or cannot be read."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return ConfigError(f"a data file must be {kind}, got {reason!r} while reading {path}; copy or download it again")
