"""Convert images and labels from the forms that files have to the form that networks take, and note each change.

    labels (N, 1), 1.0, 1..K ──► (N,) integers 0..K-1          images (N, rows, columns, channels) ──► channels first

What could be read in two ways is read as it is, without a change; pixels of an unknown scale are refused, and the error
names the setting that decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.training.data.files import Raw

Array = NDArray[Any]
#: Floats in 0..255 may be pixels of 8 bits. If they have fractions, they are taken for pixels only above 16: features
#: that are scaled to the network rarely reach it.
_BYTE, _MOST_FEATURE = 255, 16


def with_class_numbers(sides: list[Raw], classes: int) -> list[Raw]:
    """Return the same images with labels as integers from 0 on, if they are class numbers in another form.

    Args:
        sides: training images, and test images if there are any; the labels of both decide the form.
        classes: number of classes.
    """
    sides = [_flat(_whole(raw)) for raw in sides]
    numbers = [raw.labels for raw in sides if raw.labels.ndim == 1 and raw.labels.size]
    # labels of another form stay as they are, for `_check` of `dataset.py` to refuse
    if len(numbers) < len(sides) or any(labels.dtype.kind not in "ui" for labels in numbers):
        return sides
    # a label equal to `classes` shows that labels count from 1; labels 1..classes-1 alone may count from 0 as well
    if (min(int(x.min()) for x in numbers), max(int(x.max()) for x in numbers)) != (1, classes):
        return sides
    return [replace(raw, labels=raw.labels.astype(np.int64) - 1, notes=(*raw.notes, shifted(classes))) for raw in sides]


def shifted(classes: int) -> str:
    """Return the note about labels that counted from 1."""
    return f"labels 1..{classes} moved to 0..{classes - 1}"


def _whole(raw: Raw) -> Raw:
    """Return labels such as 1.0 as integers; float64 holds integers below 2**53 exactly."""
    labels = raw.labels
    if labels.dtype.kind != "f" or not labels.size or not np.isfinite(labels).all():
        return raw
    if (labels != np.floor(labels)).any() or float(np.abs(labels).max()) >= 2**53:
        return raw
    return replace(
        raw, labels=labels.astype(np.int64), notes=(*raw.notes, f"labels read as integers from {labels.dtype}")
    )


def _flat(raw: Raw) -> Raw:
    """Return labels of shape (N, 1) as (N,).

    Raises:
        ConfigError: an image has several labels.
    """
    labels = raw.labels
    if labels.ndim != 2 or labels.dtype.kind not in "uib":
        return raw
    if labels.shape[1] == 1:
        return replace(raw, labels=labels[:, 0], notes=(*raw.notes, "labels of shape (N, 1) flattened"))
    # other numbers in several columns are refused by `_check`, which names the shape
    if labels.shape[1] > 1 and labels.size and labels.min() >= 0 and labels.max() <= 1:
        one_hot = (labels.sum(axis=1) == 1).all()
        kind = "one-hot rows" if one_hot else "several labels for an image"
        remedy = "store labels.argmax(axis=1)" if one_hot else "choose one of them"
        raise ConfigError(
            f"labels must be one integer per image, got {kind}, shape {labels.shape}, in {raw.labels_path}; {remedy}"
        )
    return raw


def channels_first(raw: Raw, channels: int) -> Raw:
    """Return images (N, rows, columns, channels) as (N, channels, rows, columns); others unchanged."""
    images = raw.images
    # if both axes could be channels, the first is taken
    if images.ndim != 4 or images.shape[1] == channels or images.shape[3] != channels:
        return raw
    return replace(raw, images=np.moveaxis(images, 3, 1), notes=(*raw.notes, "channels moved from the last axis"))


def require_scale(raw: Raw) -> None:
    """Raise ConfigError if the scale of pixels is unknown: integers other than uint8, and floats that may be bytes.

    Pixels of which none exceeds 1 are taken as they are.

    Raises:
        ConfigError: the recipe must give `scale`.
    """
    images = raw.images
    if images.dtype == np.uint8 or raw.scale != 1 or not images.size:
        return
    least, most = images.min(), images.max()
    # integers of 0 and 1 alone, such as masks, need no scale
    if images.dtype.kind in "ui":
        sign = "signed " if images.dtype.kind == "i" else ""
        pixels, is_unknown = f"{sign}{8 * images.dtype.itemsize}-bit integers", bool(most > 1)
    else:
        may_be_bytes = bool(least >= 0 and 1 < most <= _BYTE)
        is_unknown = may_be_bytes and bool(most > _MOST_FEATURE or (images == np.floor(images)).all())
        pixels = f"{images.dtype} numbers that look like pixels of integers"
    if is_unknown:
        raise ConfigError(
            f"pixels must be unsigned 8-bit integers, or floats as the network takes them, got {pixels}, "
            f"{least:g}..{most:g}, in {raw.path}; set `scale` of [data] to the largest value that a pixel can have, "
            f"such as {_largest(images, float(most))}, or to 1 to leave them"
        )


def _largest(images: Array, most: float) -> int:
    """Return the likeliest maximum of a pixel.

    It is 255 for floats above 16; 16 if that is the largest pixel, as in scikit-learn's digits; else all ones in the
    bits that the largest pixel needs.
    """
    if images.dtype.kind == "f" and most > _MOST_FEATURE:
        return _BYTE
    return 16 if most == 16 else (1 << int(most).bit_length()) - 1
