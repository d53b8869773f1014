"""Inputs and labels: read, checked, and fitted to the network's input.

    digits | folder of IDX files | .npz | .npy ──► scale ──► repeat pixels ──► pad with zeros ──► (N, C, H, W) float32

Text and synthetic frames: `sequences.py`; sparse examples: `svmlight.py`, `ngrams.py`. Pixels of the bundled digits are
n/16, exact in every format with 5 significant bits; others are one float32 division.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.sparse import CSR
from emu.training.data.files import Raw, read_digits, read_folder, read_idx_set, read_npy, read_npz
from emu.training.data.forms import channels_first, require_scale, with_class_numbers
from emu.training.data.ngrams import ngram_examples
from emu.training.data.sequences import synthetic_frames, text_sequences
from emu.training.data.split import held_out
from emu.training.data.svmlight import svmlight_examples
from emu.training.data_tables import Arrays, Data, Frames, Images, Inputs, Labels, Ngrams, SvmLight, Text


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels, ready for the network.

    Attributes:
        train_inputs: float32, shape (N, channels, rows, columns) or (N, features), finite; tokens int64, (N, length);
            or a sparse matrix of format fp32, (N, columns).
        train_labels: int64, shape (N,), 0..classes-1; of tokens (N, length).
        test_inputs: as `train_inputs`; no example is in both.
        test_labels: as `train_labels`.
        source: one sentence: origin of the data, and how they were changed.
        sha256: hash of shapes and values of all four, in the order above; for a sparse matrix: of shape, entries,
            columns, and starts of rows.
    """

    train_inputs: Inputs
    train_labels: Labels
    test_inputs: Inputs
    test_labels: Labels
    source: str
    sha256: str

    @classmethod
    def of(cls, arrays: Arrays, source: str) -> Dataset:
        """Return the data set of four arrays, in the order of the attributes."""
        return cls(*arrays, source=source, sha256=_sha256(arrays))


def load_dataset(spec: Data, input_shape: Sequence[int], classes: int) -> Dataset:
    """Return the data of a recipe's `[data]` table.

    Args:
        spec: the table.
        input_shape: shape of the network's input: channels, rows and columns, or length, or features.
        classes: number of classes.

    Raises:
        ConfigError: a file is missing, truncated or of another kind, a value is not finite, a label is out of range,
            counts differ, or the data do not reach `input_shape`; names the file.
    """
    return Dataset.of(*_load(spec, input_shape, classes))


def _load(spec: Data, input_shape: Sequence[int], classes: int) -> tuple[Arrays, str]:
    match spec:
        case Images():
            return _images(spec, input_shape, classes)
        case Text():
            return text_sequences(spec, input_shape[0])
        case Frames():
            return synthetic_frames(spec, input_shape[0], classes)
        case SvmLight():
            return svmlight_examples(spec, input_shape[0], classes)
        case Ngrams():
            return ngram_examples(spec, input_shape[0])


def _images(spec: Images, input_shape: Sequence[int], classes: int) -> tuple[Arrays, str]:
    # class numbers first: what is still out of range then is refused by `_check`
    sides = with_class_numbers([raw for raw in _read(spec.source) if raw is not None], classes)
    for raw in sides:
        _check(raw, classes)
        if spec.scale is None:
            require_scale(raw)
    sides = [channels_first(raw, input_shape[0]) for raw in sides]
    # a data set without test images of its own gives some of its images away
    train, test = sides if len(sides) > 1 else split(sides[0], spec.test_images)
    (train_images, how), (test_images, _) = (_prepare(raw, spec, input_shape) for raw in (train, test))
    arrays = (train_images, train.labels.astype(np.int64), test_images, test.labels.astype(np.int64))
    notes = dict.fromkeys([*train.notes, *test.notes])
    source = f"{train.title}: {len(train_images)} images to train, {len(test_images)} to test; {how}"
    return arrays, "; ".join([source, *notes])


def _read(source: str) -> tuple[Raw, Raw | None]:
    if source == "digits":
        return read_digits(), None
    # any other text is a path; the kind of a file follows from its ending, except IDX,
    # which follows from its whole name
    path = Path(source)
    readers: dict[str, Callable[[Path], tuple[Raw, Raw | None]]] = {".npz": read_npz, ".npy": read_npy}
    if path.is_dir():
        return read_folder(path)
    if not path.exists():
        raise ConfigError(
            f"`source` of [data] must be 'digits' or an existing path, got {source!r}; check the path, which starts at "
            "the current folder"
        )
    if path.suffix not in readers:
        arrays = read_idx_set(path)
        if arrays is not None:
            return arrays
        raise ConfigError(
            f"`source` of [data] must be 'digits', a folder of IDX files, an .npz or an .npy, got {source!r}; "
            "name the folder instead of a file in it"
        )
    return readers[path.suffix](path)


def split(raw: Raw, test_images: int) -> tuple[Raw, Raw]:
    """Return training and test images; `held_out` chooses the test images.

    Raises:
        ConfigError: no image would be left to train on.
    """
    count = len(raw.labels)
    if test_images >= count:
        raise ConfigError(
            f"`test_images` must be below the number of images, got {test_images} of {count} in {raw.path}; "
            "choose fewer"
        )
    # chosen from checked labels: `_images` calls this after `_check`
    chosen = held_out(raw.labels, test_images)
    return raw.select(~chosen), raw.select(chosen)


def _check(raw: Raw, classes: int) -> None:
    if raw.images.ndim not in (2, 3, 4) or 0 in raw.images.shape[1:]:
        raise _bad_shape(raw)
    if raw.labels.ndim != 1 or raw.labels.dtype.kind not in "ui":
        raise ConfigError(
            f"labels must be one integer per image, got dtype {raw.labels.dtype} and shape {raw.labels.shape} in "
            f"{raw.labels_path}; store class numbers"
        )
    if len(raw.images) != len(raw.labels):
        raise ConfigError(
            f"images and labels must be equally many, got {len(raw.images)} images in {raw.path} and {len(raw.labels)} "
            f"labels in {raw.labels_path}; check that the two files belong together"
        )
    if not len(raw.images):
        raise ConfigError(f"a data file must hold at least one image, got none in {raw.path}; check the file")
    if raw.images.dtype.kind not in "uif":
        raise ConfigError(f"images must be real numbers, got dtype {raw.images.dtype} in {raw.path}; convert them")
    # a float64 beyond float32 becomes an infinity here, and is refused as such
    with np.errstate(over="ignore"):
        finite = np.isfinite(raw.images.astype(np.float32))
    if not finite.all():
        index = _first(~finite)
        raise ConfigError(
            f"every pixel must be finite in float32, got {raw.images[index]!s} at index {list(index)} in {raw.path}; "
            "repair or remove that image"
        )
    outside = (raw.labels < 0) | (raw.labels >= classes)
    if outside.any():
        index = _first(outside)
        raise ConfigError(
            f"every label must be in 0..{classes - 1}, got {raw.labels[index]!s} at index {list(index)} in "
            f"{raw.labels_path}; correct it, or `classes` of [network]"
        )


def _bad_shape(raw: Raw) -> ConfigError:
    return ConfigError(
        f"images must have the shape (N, rows, columns) or (N, channels, rows, columns), got {raw.images.shape} in "
        f"{raw.path}; reshape them"
    )


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    # argmax of a mask is its first True
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))


def _prepare(raw: Raw, spec: Images, input_shape: Sequence[int]) -> tuple[NDArray[np.float32], str]:
    """Return images in the network's input shape, and a description of how they were changed."""
    channels, rows, columns = input_shape
    # (N, rows, columns) is one channel: (N, 1, rows, columns)
    images = raw.images.reshape(len(raw.images), 1, *raw.images.shape[1:]) if raw.images.ndim == 3 else raw.images
    # (N, features): flat images, if there are as many numbers as the input has
    if images.ndim == 2 and images.shape[1] == channels * rows * columns:
        images = images.reshape(-1, channels, rows, columns)
    if images.ndim != 4:
        raise _bad_shape(raw)
    # the largest whole factor that fits in both directions, and 1 for images that are too
    # large, which are refused below
    upsample = spec.upsample or max(min(rows // images.shape[2], columns // images.shape[3]), 1)
    # from the rows alone; `reached` shows whether columns get as many
    pad = max((rows - upsample * images.shape[2]) // 2, 0) if spec.pad is None else spec.pad
    reached = (images.shape[1], *(upsample * extent + 2 * pad for extent in images.shape[2:]))
    if reached != tuple(input_shape):
        raise ConfigError(
            f"images must reach the network's input {tuple(input_shape)}, got {images.shape[1:]} in {raw.path}, "
            f"upsampled {upsample}x and padded by {pad}: {reached}; change `upsample` and `pad` of [data], or "
            "`input` of [network]"
        )
    scale = raw.scale if spec.scale is None else spec.scale
    # divided before pixels are repeated: the same bits from fewer divisions
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        divisor = np.float32(scale)
        images = images.astype(np.float32) / divisor
    if not np.isfinite(divisor) or not np.isfinite(images).all():
        raise ConfigError(
            f"`scale` of [data] must be finite in float32, and leave every pixel so, got {scale:g} for {raw.path}; set "
            "it to the largest value that a pixel can have"
        )
    images = images.repeat(upsample, axis=2).repeat(upsample, axis=3)
    images = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.ascontiguousarray(images), f"divided by {scale:g}, upsampled {upsample}x, padded by {pad}"


def _sha256(given: Sequence[Inputs]) -> str:
    digest = hashlib.sha256()
    for item in given:
        arrays = [item] if isinstance(item, np.ndarray) else [item.data, item.indices, item.indptr]
        # the shape of a sparse matrix does not follow from its three arrays: columns at the end may have no entries
        if isinstance(item, CSR):
            digest.update(f"sparse{item.shape}".encode())
        for array in arrays:
            # dtype and shape too: equal bytes may be other numbers, or the same numbers in other rows
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(cast(Any, np.ascontiguousarray(array)))
    return digest.hexdigest()
