"""Data other than images: bytes of a text, each with the one that follows, and synthetic frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu._paths import content_folder
from emu.backends.reference.philox import random_integers
from emu.datapath import stream_of
from emu.errors import ConfigError
from emu.training.data_tables import Arrays, Frames, Text

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
#: The bundled text, and its origin.
BUNDLED = "alice"
_TITLES = {BUNDLED: "Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter I"}
#: Random bits of a uniform number, and uniform numbers in the sum that approximates a normal one. A uniform number in
#: 0..1 has the variance 1/12, so a sum of 12 has the variance 1.
UNIFORM_BITS, SUMMED = 16, 12


def text_sequences(spec: Text, length: int) -> tuple[Arrays, str]:
    """Return sequences of bytes with the bytes that follow, to train and to test, and their description.

    Args:
        spec: the text.
        length: bytes of a sequence.

    Raises:
        ConfigError: the file is missing, or too short for a sequence on either side.
    """
    parts, title = text_parts(spec.source, spec.test_share, length, "the network's input")
    # training sequences may overlap; test sequences do not, so each byte is predicted at most once
    strides = (spec.stride, length)
    sides = [_windows(part.astype(np.int64), length, by) for part, by in zip(parts, strides, strict=True)]
    (train, train_next), (test, test_next) = sides
    source = f"{title}: {len(train)} sequences of {length} bytes to train, {len(test)} to test"
    return (train, train_next, test, test_next), source


def text_parts(source: str, test_share: float, length: int, what: str) -> tuple[tuple[Bytes, Bytes], str]:
    """Return the bytes of a text to train and, from its end, to test, and the text's title.

    Args:
        source: name of the bundled text, or a path.
        test_share: share of the bytes to test.
        length: each part must be longer than this many bytes.
        what: what has this length, for the message.

    Raises:
        ConfigError: the file is missing, or too short.
    """
    path, title = _text_file(source)
    try:
        text = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise ConfigError(
            f"`source` of [data] must be {BUNDLED!r} or a readable text file, got {error.strerror!r} for {path}; check "
            "the path, which starts at the current folder"
        ) from None
    for_test = round(test_share * text.size)
    parts = text[: text.size - for_test], text[text.size - for_test :]
    if min(part.size for part in parts) <= length:
        raise ConfigError(
            f"a text must have more than {length} bytes to train and to test, {what}, got "
            f"{parts[0].size} and {parts[1].size} in {path}; take a longer text, or change `test_share`"
        )
    return parts, title


def _text_file(source: str) -> tuple[Path, str]:
    if source in _TITLES:
        return content_folder("models") / "texts" / f"{source}.txt", _TITLES[source]
    return Path(source), source


def _windows(text: Array, length: int, stride: int) -> tuple[Array, Array]:
    # (sequences, length + 1): inputs are all but the last byte, labels all but the first
    windows = np.lib.stride_tricks.sliding_window_view(text, length + 1)[::stride]
    # copies, because rows of the view share memory with each other
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def synthetic_frames(spec: Frames, features: int, classes: int) -> tuple[Arrays, str]:
    """Return frames with their classes, to train and to test, and their description.

    A frame is the centre of its class plus noise. Sums of twelve uniform numbers replace normal ones, because they are
    the same on all machines.

    Args:
        spec: number of frames, and their noise.
        features: features of a frame.
        classes: number of classes.

    Raises:
        ConfigError: the noise is beyond float32.
    """
    centres = _normal((classes, features), "points", spec.seed)
    sides: list[Array] = []
    for name, count in (("train", spec.count), ("test", spec.test_count)):
        # labels and noise have streams of their own: more frames to train do not change the test frames
        drawn = random_integers(count, 32, seed=spec.seed, stream=stream_of(name, "labels"), step=0, draw=0)
        labels = drawn.astype(np.int64) % classes
        noise = _normal((count, features), name, spec.seed)
        with np.errstate(over="ignore", invalid="ignore"):
            frames = centres[labels] + np.float32(spec.noise) * noise
        if not np.isfinite(frames).all():
            raise ConfigError(
                f"`noise` of [data] must leave every frame finite in float32, got {spec.noise:g}; choose less"
            )
        sides += [frames, labels]
    train, train_labels, test, test_labels = sides
    source = f"synthetic frames: {spec.count} to train, {spec.test_count} to test, noise {spec.noise:g}"
    return (train, train_labels, test, test_labels), source


def _normal(shape: tuple[int, int], name: str, seed: int) -> NDArray[np.float32]:
    """Return sums of uniform numbers, less their mean: mean 0, variance 1, exact multiples of 2**-16."""
    size, stream = shape[0] * shape[1], stream_of(name, "frames")
    sums = np.zeros(size, np.int64)
    for draw in range(SUMMED):
        sums += random_integers(size, UNIFORM_BITS, seed=seed, stream=stream, step=0, draw=draw)
    centred = sums - SUMMED * (2**UNIFORM_BITS - 1) // 2  # the mean is an integer, because SUMMED is even
    # below 2**20, so exact in float32's 24 bits; NumPy computes the product of int64 and float32 in float64
    return (centred * np.float32(2.0**-UNIFORM_BITS)).astype(np.float32).reshape(shape)
