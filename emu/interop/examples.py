"""Examples to evaluate a network with: inputs, and labels if there are any.

    .npz         x and y, x_test and y_test, or test_images and test_labels; or one array alone, without labels
    .npy         inputs; labels are in `<stem>_labels.npy` or `labels.npy` beside it, if anywhere
    .csv         a row for each example, the label last if the head of that column is `label` or `y`
    folder       images, in a folder for each class if they have labels; whole channels, divided by the largest code

Inputs are what the network reads: float32, already scaled. Only their shape may be another one with as many numbers, or
have the channels last.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._files import UNREADABLE_ARRAYS
from emu.errors import ConfigError
from emu.interop.arrays import read_npy, read_npz
from emu.interop.graph import Graph
from emu.interop.images import read_images
from emu.nn.layer import Shape

Array = NDArray[Any]
#: Names of inputs and labels in archives, in the order in which they are looked for.
_PAIRS = (("x_test", "y_test"), ("test_images", "test_labels"), ("x", "y"), ("images", "labels"), ("inputs", "labels"))
_LABELS = {"label", "labels", "y", "class", "target"}


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples.

    Attributes:
        inputs: float32, or int64 of tokens and of elements of 8 bits, (N, *input).
        labels: int64, (N,) or (N, length); None if there are none.
        source: the file.
    """

    inputs: Array
    labels: Array | None
    source: str

    def __len__(self) -> int:
        return len(self.inputs)


def examples_for(graph: Graph, data: Examples | str | Path) -> Examples:
    """Return examples for a network; those in a file or a folder are read.

    Raises:
        ConfigError: as `read_examples`; or there is no example.
        ShapeError: inputs have not the shape that the network reads.
        FormatError: elements do not fit the 8 bits of the network's input.
    """
    if not isinstance(data, Examples):
        data = read_examples(data, graph.wired().shapes[0][1:], tokens=not graph.reads_floats)
    inputs = graph.as_input(data.inputs)
    if not len(inputs):
        raise ConfigError(f"examples must have at least one input, got none in {data.source}; give some")
    return replace(data, inputs=inputs)


def read_examples(path: str | Path, shape: Shape, *, tokens: bool = False) -> Examples:
    """Read examples for a network.

    Args:
        path: an `.npz`, `.npy` or `.csv` file, or a folder of images.
        shape: of one input.
        tokens: whether inputs are tokens: integers.

    Raises:
        ConfigError: the file is missing, damaged or of another kind, its arrays do not fit, or a number is not finite.
    """
    file = Path(path)
    readers = {".npz": _npz, ".npy": _npy, ".csv": _csv}
    if file.is_dir():
        inputs, labels = read_images(file, shape)
        return Examples(_inputs(inputs, shape, file, tokens=tokens), labels, str(file))
    if not file.is_file():
        raise ConfigError(
            f"examples must be in a file or a folder of images, got {str(path)!r}, which does not exist; check the path"
        )
    if file.suffix not in readers:
        raise ConfigError(
            f"examples must be in an {', '.join(readers)} file, got {str(path)!r}; write one with "
            "numpy.savez('data.npz', x=inputs, y=labels)"
        )
    try:
        inputs, labels = readers[file.suffix](file)
    except ConfigError:
        raise
    except UNREADABLE_ARRAYS as error:
        raise ConfigError(
            f"examples must be plain numbers, got {' '.join(str(error).split())!r} while reading {file}; write it again"
        ) from None
    return Examples(_inputs(inputs, shape, file, tokens=tokens), _labels(labels, len(inputs), file), str(file))


def _npz(path: Path) -> tuple[Array, Array | None]:
    arrays = read_npz(path)
    for x, y in _PAIRS:
        if x in arrays:
            return arrays[x], arrays.get(y)
    if len(arrays) == 1:
        return next(iter(arrays.values())), None
    raise ConfigError(
        f"an .npz of examples must have the arrays x and y, got {', '.join(sorted(arrays)) or 'none'} in {path}; store "
        "numpy.savez(path, x=inputs, y=labels)"
    )


def _npy(path: Path) -> tuple[Array, Array | None]:
    beside = (path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy"))
    # `file != path`: inputs may be in `labels.npy` themselves
    labels = next((file for file in beside if file.is_file() and file != path), None)
    return read_npy(path), None if labels is None else read_npy(labels)


def _csv(path: Path) -> tuple[Array, Array | None]:
    # utf-8-sig: spreadsheets write a mark of byte order in front, which would belong to the first name
    head = path.read_text(encoding="utf-8-sig").partition("\n")[0].split(",")
    names = [name.strip().strip('"').lower() for name in head]
    has_head = any(not _is_number(name) for name in names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a table without rows, which is refused below
        table = np.loadtxt(path, delimiter=",", skiprows=int(has_head), ndmin=2, encoding="utf-8-sig")
    if has_head and names[-1] in _LABELS:
        return table[:, :-1], table[:, -1]
    if has_head and names[0] in _LABELS:
        return table[:, 1:], table[:, 0]
    return table, None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _inputs(array: Array, shape: Shape, path: Path, *, tokens: bool) -> Array:
    if array.dtype.kind not in ("iub" if tokens else "fiub") or not array.ndim or not len(array):
        wanted = "integers" if tokens else "real numbers"
        raise ConfigError(
            f"inputs must be {wanted}, at least one, got {array.dtype} of shape {array.shape} in {path}; convert them"
        )
    array = _in_shape(array, shape, path)
    if tokens:
        return np.ascontiguousarray(array, np.int64)
    # float64 beyond float32 becomes infinite, and is refused with its index
    with np.errstate(over="ignore"):
        written = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(written).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(written))[0])
        raise ConfigError(f"inputs must be finite float32, got {array[index]} at index {index} in {path}; clean them")
    return written


def _in_shape(array: Array, shape: Shape, path: Path) -> Array:
    if array.shape[1:] == shape:
        return array
    is_image = len(shape) == 3 and array.ndim == 4
    if is_image and (array.shape[3], *array.shape[1:3]) == shape:
        return np.moveaxis(array, 3, 1)
    if is_image and (*array.shape[2:], array.shape[1]) == shape:  # networks of TFLite have the channels last
        return np.moveaxis(array, 1, 3)
    # axes of size 1 may be missing or added
    squeezed = tuple(size for size in array.shape[1:] if size != 1) == tuple(size for size in shape if size != 1)
    flat = array.ndim == 2 and array.shape[1] == int(np.prod(shape))
    if squeezed or flat:
        return array.reshape(len(array), *shape)
    raise ConfigError(
        f"inputs must have the shape (N, {', '.join(map(str, shape))}) that the network reads, got {array.shape} in "
        f"{path}; reshape them"
    )


def _labels(array: Array | None, count: int, path: Path) -> Array | None:
    if array is None:
        return None
    # a column of labels, as tables have it
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    is_numbers = array.dtype.kind in "fiub" and bool(np.isfinite(array).all())
    # not of NaN or infinities, whose conversion to integers is undefined; numbers beyond int64 become others
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64) if is_numbers else np.zeros(0, np.int64)
    if not is_numbers or array.shape[:1] != (count,) or (whole != array).any() or (whole < 0).any():
        raise ConfigError(
            f"labels must be {count} class numbers from 0 on, one for each input, got {array.dtype} of shape "
            f"{array.shape} in {path}; store labels.astype(int)"
        )
    return whole
