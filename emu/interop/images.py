"""Examples from a folder of images, as networks of one or three channels read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError
from emu.nn.layer import Shape

Array = NDArray[Any]
#: Suffixes of images, and Pillow's modes by the number of channels.
_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
_MODES = {1: "L", 3: "RGB"}
#: Pillow's modes of grey images of more than 8 bits.
_WIDE = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def read_images(path: Path, shape: Shape) -> tuple[Array, Array | None]:
    """Return the images of a folder, float32 from 0 to 1, (N, C, H, W), and labels, (N,), None without classes.

    Args:
        path: the folder; folders in it are classes, in alphabetical order, numbers by value. Those whose names begin
            with a dot, as tools leave them, are none.
        shape: of one input of the network, channels first or last.

    Raises:
        ConfigError: Pillow is not installed; there is no image, or one is damaged, of another size or of more than 16
            bits.
    """
    if len(shape) != 3:
        raise ConfigError(
            f"a folder of images must be given to a network of images, got inputs of {shape}; give an .npz"
        )
    library = _load_pillow()
    # channels are first if an image has so many, and no axis is shorter; else last
    is_first = shape[0] in _MODES and min(shape) == shape[0]
    channels, *size = shape if is_first else (shape[2], *shape[:2])
    if channels not in _MODES:
        raise ConfigError(
            f"images must have {' or '.join(map(str, _MODES))} channels, got inputs of {shape}; give an .npz"
        )
    folders_inside = (entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    classes = sorted(folders_inside, key=_class_order)
    folders = classes or [path]
    found = [
        (file, label)
        for label, folder in enumerate(folders)
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in _IMAGES
    ]
    if not found:
        raise ConfigError(f"a folder of examples must have images ({', '.join(sorted(_IMAGES))}), got none in {path}")
    arrays = [_image(library, file, channels, (size[0], size[1])) for file, _ in found]
    labels = np.array([label for _, label in found], np.int64)
    return np.stack(arrays), labels if classes else None


def _class_order(folder: Path) -> tuple[bool, int, str]:
    # folders with numbers as names come first, by value: "2" before "10"
    return not folder.name.isdecimal(), int(folder.name) if folder.name.isdecimal() else 0, folder.name


def _image(library: Any, file: Path, channels: int, size: tuple[int, int]) -> Array:
    """Return an image, (C, H, W), from 0 to 1.

    Raises:
        ConfigError: it is damaged, of another size, or has more than 16 bits.
    """
    try:
        with library.open(file) as image:
            # `open` reads the head only; damage in the rest shows here
            image.load()
            mode, wide = image.mode, image.mode in _WIDE
            # Pillow cuts 16 bits off at 255 where it converts them
            array = np.asarray(image if wide else image.convert(_MODES[channels]), np.float32)
    except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
        raise ConfigError(f"images must be readable, got {file}: {error}; remove it, or save it again") from None
    # Pillow has 16 bits of some files as 32, and converts neither these nor floats
    if mode == "F" or array.max(initial=0) > 65535 or array.min(initial=0) < 0:
        raise ConfigError(
            f"images must have codes of at most 16 bits, got {'floats' if mode == 'F' else '32 bits'} in {file}; save "
            "them with 8 or 16, or give an .npz"
        )
    if array.shape[:2] != size:
        raise ConfigError(
            f"images must have {size[0]} rows and {size[1]} columns, as the network reads them, got "
            f"{array.shape[0]} and {array.shape[1]} in {file}; scale them first, as in training"
        )
    # the largest code of 16 or 8 bits becomes 1
    array = array / np.float32(65535 if wide else 255)
    # grey images of 16 bits have one channel, which stands for all
    return np.stack([array] * channels) if array.ndim == 2 else np.moveaxis(array, 2, 0)


def _load_pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(
            "images must be read with the package pillow, which is not installed; pip install 'emu-numerics[images]'"
        ) from None
    return Image
