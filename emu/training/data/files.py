"""Files of images: bundled digits, IDX (MNIST's format), `.npz`, `.npy`. Nothing is unpickled.

    IDX    0x00 0x00 | type | dimensions n | n sizes, 32 bits big-endian | elements, big-endian

Source of IDX: LeCun, Cortes, Burges, "The MNIST database of handwritten digits", section "File formats".
Source of the names of files: Cohen et al., "EMNIST", 2017; Yang et al., "MedMNIST v2", Scientific Data 2023.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from emu._files import UNREADABLE_ARRAYS
from emu.errors import ConfigError
from emu.training.data.compressed import open_compressed

Array = NDArray[Any]

#: Element types of IDX files by their code.
IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
#: Largest pixel of the bundled digits, and of 8-bit images.
DIGITS_SCALE, BYTE_SCALE = 16.0, 255.0
#: Names of the files of a data set: MNIST's, or EMNIST's, which begin with the name of the set.
#: e.g. emnist-letters-train-images-idx3-ubyte.gz: set `emnist-letters-`, side `train`, kind `images`
_IDX_NAME = re.compile(r"(?P<set>.*?)(?P<side>train|t10k|test)-(?P<kind>images|labels)[-.]idx\d-ubyte(\.\w+)?")
#: Names of arrays in an archive, inputs and labels: Keras', and MedMNIST's.
_ARRAYS = (("x_train", "y_train", "x_test", "y_test"), ("train_images", "train_labels", "test_images", "test_labels"))


@dataclass(frozen=True, eq=False)
class Raw:
    """Images and labels as they are in a file.

    Attributes:
        images: images, of any real dtype; the first axis counts them.
        labels: a label for each image.
        path: the images' file, as messages name it.
        labels_path: the labels' file.
        title: name of the data, for people.
        scale: divisor of pixels, unless the recipe has another one.
        notes: sentences about what was changed or left out.
    """

    images: Array
    labels: Array
    path: str
    labels_path: str
    title: str
    scale: float
    notes: tuple[str, ...] = ()

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
    # find_spec finds the package's folder without importing the package
    spec = find_spec("sklearn")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    path = package / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.int64) if path.is_file() else _digits_from_library()
    # a row of the table: 64 pixels, row by row, and the digit
    images, labels = table[:, :-1].reshape(-1, 8, 8).astype(np.uint8), table[:, -1]
    name = "scikit-learn digits"
    return Raw(images, labels, name, name, name, DIGITS_SCALE)


def _digits_from_library() -> Array:
    bunch: Any = import_module("sklearn.datasets").load_digits()
    return np.column_stack([bunch.data, bunch.target]).astype(np.int64)


def read_folder(folder: Path) -> tuple[Raw, Raw | None]:
    """Return training and test images of a folder: IDX files with MNIST's or EMNIST's names, or one `.npz`.

    Raises:
        ConfigError: a file is missing, truncated or of another kind, or the folder holds several data sets.
    """
    sets = _idx_sets(folder)
    archives = sorted(folder.glob("*.npz"))
    if not sets and len(archives) == 1:
        return read_npz(archives[0])
    # MNIST's own names, which have no prefix, win over all other sets in the folder
    choices = [str(path.name) for path in archives] if not sets else [f"{name}train-images..." for name in sets]
    if len(choices) > 1 and "" not in sets:
        raise ConfigError(
            f"a folder of data must hold one data set, got {', '.join(choices)} in {folder}; name the file of training "
            "images as `source` of [data]"
        )
    # without any set, the empty prefix gives the error that names the missing files
    return _idx_set(folder, "" if "" in sets or not sets else next(iter(sets)))


def read_idx_set(path: Path) -> tuple[Raw, Raw | None] | None:
    """Return the data set whose training images are in this file; None if the name is not of training images."""
    named = _IDX_NAME.fullmatch(path.name)
    return (
        _idx_set(path.parent, named["set"]) if named and (named["side"], named["kind"]) == ("train", "images") else None
    )


def _idx_sets(folder: Path) -> dict[str, list[re.Match[str]]]:
    """Return the files of each data set in a folder, by the prefix of their names."""
    sets: dict[str, list[re.Match[str]]] = {}
    for path in sorted(folder.iterdir()):
        named = _IDX_NAME.fullmatch(path.name)
        if named and path.is_file():
            sets.setdefault(named["set"], []).append(named)
    return sets


def _idx_set(folder: Path, name: str) -> tuple[Raw, Raw | None]:
    files = _idx_sets(folder).get(name, [])
    # reversed: of two files for the same purpose, such as x and x.gz, the first in the folder's order is used
    paths = {(file["side"], file["kind"]): folder / file[0] for file in reversed(files)}
    test = "t10k" if any(side == "t10k" for side, _ in paths) else "test"
    sides: list[Raw] = []
    for side in ("train", test):
        # without any file of the test side there is no test set; if one of its two files is there, the other must be
        if side == test and not any(other == test for other, _ in paths):
            return sides[0], None
        for kind in ("images-idx3", "labels-idx1"):
            if (side, kind.partition("-")[0]) not in paths:
                raise ConfigError(
                    f"a folder of IDX files must hold {name}{side}-{kind}-ubyte or {name}{side}-{kind}-ubyte.gz, got "
                    f"none in {folder}"
                )
        images, labels = paths[side, "images"], paths[side, "labels"]
        values = read_idx(images, dimensions=(3, 4))
        title = str(folder / name.rstrip("-.")) if name else str(folder)
        sides.append(Raw(values, read_idx(labels, dimensions=(1,)), str(images), str(labels), title, _scale_of(values)))
    return sides[0], sides[1]


def read_idx(path: Path, *, dimensions: Sequence[int]) -> Array:
    """Return the array of an IDX file, plain or compressed with gzip, bzip2 or XZ.

    Args:
        path: the file.
        dimensions: numbers of dimensions that are allowed.

    Raises:
        ConfigError: the magic number is wrong, the file is truncated or too long, or it cannot be read.
    """
    try:
        with open_compressed(path) as file:
            return _idx_array(file, path, dimensions)
    except ConfigError:
        raise
    except UNREADABLE_ARRAYS as error:
        raise unreadable(path, "an IDX file", error) from None


def _idx_array(file: BinaryIO, path: Path, dimensions: Sequence[int]) -> Array:
    magic = file.read(4)
    # the magic number: 0, 0, type of elements, number of dimensions
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
    # None if the file ends within its header
    size = math.prod(shape) * dtype.itemsize if len(shape) == magic[3] else None
    # to the end of the file, so that a file that is too long is refused as well
    content = file.read() if size is not None else b""
    if size != len(content):
        expected = f"{size} bytes for shape {shape}" if size is not None else f"a header of {4 * magic[3]} bytes"
        got = len(header) if size is None else len(content)
        raise ConfigError(
            f"an IDX file must be complete: {expected}, got {got} bytes in {path}; copy or download it again"
        )
    return np.frombuffer(content, dtype=dtype).reshape(shape)


def read_npz(path: Path) -> tuple[Raw, Raw | None]:
    """Return the images of an `.npz`: `x_train`, `y_train` and perhaps `x_test`, `y_test`, or MedMNIST's names.

    Raises:
        ConfigError: an array is missing, the file is damaged, or it holds pickled objects.
    """
    try:
        # np.load goes by content: it would return an .npy that is named .npz as a plain array, which has no `files`
        if not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile("not a zip archive, or cut off")
        # opened here: of a damaged archive, np.load would leave it open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            # read while the archive is open: it decompresses an array only when it is asked for
            arrays: dict[str, Array] = {name: np.asarray(archive[name]) for name in archive.files}
    except UNREADABLE_ARRAYS as error:
        raise unreadable(path, "an .npz archive of plain arrays", error) from None
    # False and True are the indices 0 and 1: MedMNIST's names count only if Keras' are not there
    names = _ARRAYS["x_train" not in arrays and "train_images" in arrays]
    tested = names[2] in arrays or names[3] in arrays
    for name in names[: 4 if tested else 2]:
        if name not in arrays:
            raise ConfigError(
                f"an .npz of images must hold the array {name}, got {', '.join(sorted(arrays)) or 'none'} in {path}; "
                f"store {', '.join(names)}"
            )
    notes = ("val_images left out",) if "val_images" in arrays and "train_images" in names else ()
    train, test = (
        Raw(arrays[x], arrays[y], f"{path}: {x}", f"{path}: {y}", str(path), _scale_of(arrays[x]), notes)
        if x in arrays
        else None
        for x, y in (names[:2], names[2:])
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
    """Return the error for a file that is not of its kind, or cannot be read."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return ConfigError(f"a data file must be {kind}, got {reason!r} while reading {path}; copy or download it again")
