"""Files of tensors, read one tensor at a time: headers of `.safetensors` files, and the index of several.

    file ──► 8 bytes: length of the header ──► header, JSON: dtype, shape and place of each tensor ──► bytes

Source: the format's page in github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from emu._files import read_json
from emu.checkpoints.dtypes import dtype_of_codes
from emu.errors import ConfigError

Array = NDArray[Any]
#: Ending of the names of indices, which say which file holds which tensor.
INDEX = ".safetensors.index.json"
ENDING = ".safetensors"


@dataclass(frozen=True)
class Stored:
    """A tensor in a file.

    Attributes:
        path: of the file.
        dtype: as the header names it.
        shape: as the header has it.
        start: its first byte in the file.
        size_bytes: number of its bytes.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size_bytes: int

    def read(self) -> Array:
        """Return the numbers, or the codes of a dtype that NumPy lacks; shape of the tensor.

        Raises:
            ConfigError: the file has changed since its header was read, or cannot be read.
        """
        # callers have refused dtypes that are not read
        dtype = dtype_of_codes(self.dtype)
        assert dtype is not None
        try:
            stored = np.fromfile(self.path, dtype, self.size_bytes // dtype.itemsize, offset=self.start)
            # in the computer's own byte order, without a copy if that is the file's; too few numbers fail in `reshape`
            return stored.reshape(self.shape).astype(dtype.newbyteorder("="), copy=False)
        except (OSError, ValueError) as error:
            raise ConfigError(f"checkpoint {self.path} must stay as it is while it is read, got {error}") from None


def stored_in(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """Return the tensors of a file, of an index, or of a folder that has one of either.

    Returns:
        Tensors by name; and file names of tensors that an index beside a single file places in other files.

    Raises:
        ConfigError: there is no such file, or it is damaged.
    """
    path = _file_of(path)
    if path.name.endswith(INDEX):
        return _of_index(path), {}
    tensors = read_header(path)
    # not needed to read this file: they let an error name the file that has the missing scales
    elsewhere: dict[str, str] = {}
    for index in sorted(path.parent.glob(f"*{INDEX}")):
        files = _weight_map(index)
        if path.name in files.values():
            elsewhere |= {name: file for name, file in files.items() if name not in tensors}
    return tensors, elsewhere


def _file_of(path: Path) -> Path:
    """Return the index or the only file of a folder; any other path as it is."""
    if not path.is_dir():
        return path
    # an index first: beside it lie the files that it names
    for ending in (INDEX, ENDING):
        files = sorted(path.glob(f"*{ending}"))
        if len(files) == 1:
            return files[0]
    raise ConfigError(
        f"a folder of a checkpoint must have one file *{INDEX} or one *{ENDING}, got {str(path)!r} with "
        f"{len(list(path.glob('*' + INDEX)))} and {len(list(path.glob('*' + ENDING)))}; name the file"
    )


def _weight_map(path: Path) -> dict[str, str]:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"index {path} must be a JSON file, got {error}; load the checkpoint again") from None
    files: Any = cast("dict[str, Any]", content).get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in cast("dict[str, Any]", files).values()):
        raise ConfigError(f"index {path} must have a `weight_map` of tensors and files; load the checkpoint again")
    of_tensors = cast("dict[str, str]", files)
    for name, file in of_tensors.items():
        # a path would lead out of the folder
        if not file or Path(file).name != file:
            raise ConfigError(
                f"index {path} must name files beside it, got {file!r} of tensor {name!r}; name a file, without folders"
            )
    return of_tensors


def _of_index(path: Path) -> dict[str, Stored]:
    files = _weight_map(path)
    headers = {file: read_header(path.with_name(file)) for file in sorted(set(files.values()))}
    for name, file in files.items():
        if name not in headers[file]:
            raise ConfigError(f"index {path} must name tensors of its files, got {name!r}, which {file} lacks")
    return {name: headers[file][name] for name, file in files.items()}


def read_header(path: Path) -> dict[str, Stored]:
    """Return the tensors that a file's header lists, by name.

    Raises:
        ConfigError: the file cannot be read, or is damaged: its header is no such JSON, or bytes are missing.
    """
    try:
        with path.open("rb") as file:
            # checked before it is used: a damaged length must not make this process read gigabytes
            length = int.from_bytes(file.read(8), "little")
            size_bytes = file.seek(0, 2)
            if not 0 < length <= size_bytes - 8:
                raise ValueError(f"{size_bytes} bytes and a header of {length}")
            file.seek(8)
            header: object = json.loads(file.read(length).decode())
        if not isinstance(header, dict):
            raise ValueError("a header that is no object")
        entries = cast("dict[str, Any]", header)
        return {
            name: _stored(path, name, entry, 8 + length, size_bytes)
            for name, entry in entries.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"checkpoint {path} must be a safetensors file, got {error}; load it again") from None


def _stored(path: Path, name: str, entry: Any, begin: int, size_bytes: int) -> Stored:
    """Return the tensor of an entry of the header.

    Raises:
        ValueError: it is none, or its bytes are not in the file.
    """
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, dict) else {}
    dtype, shape, offsets = (fields.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"no dtype, shape and two offsets for {name!r}")
    # counted from the end of the header
    start, end = offsets
    if not start <= end <= size_bytes - begin:
        raise ValueError(f"{size_bytes - begin} bytes of tensors, where {name!r} needs bytes {start} to {end}")
    # sizes of dtypes that are not read, such as packed F4, are not checked: their tensors may still be listed
    stored = dtype_of_codes(dtype)
    if stored is not None and end - start != stored.itemsize * math.prod(shape):
        raise ValueError(f"{end - start} bytes for {name!r}, which has the dtype {dtype} and the shape {shape}")
    return Stored(path, dtype, tuple(shape), begin + start, end - start)


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    # `type(...) is int`: true and false of JSON are ints to isinstance
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in cast("list[Any]", value))
