"""Read checkpoints: elements and scales, which lie in tensors of their own, become scaled values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from emu.checkpoints.dtypes import FORMAT_DTYPES, dtype_of_codes
from emu.checkpoints.files import Stored, stored_in
from emu.checkpoints.groups import ELEMENT_SUFFIXES, Group, group_of
from emu.errors import ConfigError, nearest_first
from emu.formats import Fixed, Float, ScaledValue
from emu.formats.packing import unpack
from emu.formats.tiles import Tiles

Array = NDArray[Any]
#: Codes that are decoded together.
CHUNK = 1 << 18


class Checkpoint(Mapping[str, "Array | ScaledValue"]):
    """The entries of a checkpoint by name, each read from the disk when it is asked for: `emu.read_checkpoint(path)`.

    Elements and their scales are one entry, a `ScaledValue` whose blocks lie along its last axis. All else is an array
    in its own dtype; BF16 and floats of 8 bits are float32, which holds them exactly.

    Attributes:
        path: as it was given.
        conventions: how each entry is stored: a convention, such as deepseek, or the dtype of an array, such as BF16.

    Source: docs/concepts/scaled.md, "Checkpoints".
    """

    def __init__(self, path: Path, tensors: Mapping[str, Stored], entries: Mapping[str, Group | None]) -> None:
        self.path = path
        self._tensors = tensors
        self._entries = entries
        self.conventions: Mapping[str, str] = MappingProxyType(
            {name: group.convention.name if group else tensors[name].dtype for name, group in entries.items()}
        )

    def __getitem__(self, name: str) -> Array | ScaledValue:
        """Return an entry, read from the disk.

        Raises:
            KeyError: there is none of that name.
            ConfigError: the file has changed, has a scale with a sign where none can be, or a dtype that is not read.
        """
        group = self._entries[name]
        if group is None:
            return _plain(name, self._tensors[name])
        fmt, codes = group.convention.format, self._tensors[group.elements].read()
        elements = _decoded(codes, fmt.element).reshape(group.shape)
        return ScaledValue.of(elements, self.scales(name), fmt, -1)

    def __contains__(self, name: object) -> bool:
        """Return whether there is an entry of that name, without reading it."""
        # `Mapping.__contains__` would read the entry
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        scaled = sum(group is not None for group in self._entries.values())
        return f"Checkpoint({str(self.path)!r}, {len(self)} entries, {scaled} of them scaled)"

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an entry, without reading it."""
        group = self._entries[name]
        return self._tensors[name].shape if group is None else group.shape

    def size_bytes(self, name: str) -> int:
        """Return how many bytes an entry has in its file, those of its scales counted."""
        group = self._entries[name]
        parts = (name,) if group is None else (group.elements, *group.scales)
        return sum(self._tensors[part].size_bytes for part in parts)

    def scales(self, name: str) -> tuple[Array, ...]:
        """Return the scales of each level of an entry, the finest first, without its elements; an array has none."""
        group = self._entries[name]
        if group is None:
            return ()
        levels = zip(group.scales, group.convention.format.levels, strict=True)
        return tuple(
            _scales(part, self._tensors[part], level.scale).reshape(Tiles(level.tiling, group.shape, -1).counts)
            for part, level in levels
        )


def read_checkpoint(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> Checkpoint:
    """Open a checkpoint of `.safetensors` files, in which elements and scales have tensors of their own.

    Headers are read and checked at once, numbers when they are asked for, one entry at a time.

    Args:
        path: of a file, of an index `*.safetensors.index.json`, or of a folder that has one of either.
        names: names of the entries that are wanted; the others are not looked at. None wants all.

    Returns:
        Entries by name: a `ScaledValue` for elements with scales, an array for all else.

    Raises:
        ConfigError: no such file, a damaged one, a name that it lacks, or elements and scales that do not fit together.

    Source: docs/concepts/scaled.md, "Checkpoints".
    """
    path = Path(path)
    tensors, elsewhere = stored_in(path)
    if names is None:
        entries = _entries(tensors, tensors, elsewhere)
        # scales are arrays of their own in `entries`: those of a value are left out. A value
        # whose elements have its name stays
        parts = {part for group in entries.values() if group for part in (group.elements, *group.scales)}
        return Checkpoint(
            path, tensors, {name: entries[name] for name in sorted(entries) if entries[name] or name not in parts}
        )
    entries: dict[str, Group | None] = {}
    for name in cast("Iterable[object]", names):
        if not isinstance(name, str):
            raise ConfigError(f"`names` must be names of entries, got {name!r}; write {str(name)!r}")
        # only these tensors are looked at: others may follow no convention
        named = [name + suffix for suffix in ELEMENT_SUFFIXES if name + suffix in tensors]
        ours = _entries(named, tensors, elsewhere)
        if name not in ours:
            known = sorted({stored.removesuffix(suffix) for stored in tensors for suffix in ELEMENT_SUFFIXES})
            near = ", ".join(map(repr, nearest_first(name, known)[:3]))
            raise ConfigError(
                f"entries must be in the checkpoint {path}, got {name!r}; the nearest are {near or 'none'}"
            )
        entries[name] = ours[name]
    return Checkpoint(path, tensors, entries)


def _entries(
    names: Iterable[str], tensors: Mapping[str, Stored], elsewhere: Mapping[str, str]
) -> dict[str, Group | None]:
    """Return what tensors are, by the name of the entry: the elements of a group, or an array.

    Raises:
        ConfigError: elements without scales that fit them, or two entries of one name.
    """
    entries: dict[str, Group | None] = {}
    for stored in names:
        name, group = group_of(stored, tensors, elsewhere) or (stored, None)
        if name in entries:
            raise ConfigError(
                f"entries of a checkpoint must have names of their own, got two for {name!r} in "
                f"{tensors[stored].path}: its elements are packed, and there is an array; rename one of them"
            )
        entries[name] = group
    return entries


def _plain(name: str, stored: Stored) -> Array:
    """Return a tensor's numbers.

    Raises:
        ConfigError: its dtype is unknown.
    """
    if dtype_of_codes(stored.dtype) is None:
        raise ConfigError(
            f"tensor {name!r} must have a dtype that NumPy or a format of emu has, got {stored.dtype} in "
            f"{stored.path}; convert it, or leave it out of `names`"
        )
    numbers, fmt = stored.read(), FORMAT_DTYPES.get(stored.dtype)
    return numbers if fmt is None else _decoded(numbers, fmt).reshape(stored.shape)


def _scales(name: str, stored: Stored, fmt: Float) -> Array:
    """Return the numbers of scales; every NaN is the canonical one.

    Raises:
        ConfigError: a scale has a sign, and the format has none.
    """
    codes = stored.read()
    # fp32 scales are numbers, not codes
    if codes.dtype == np.float32:
        return np.where(np.isnan(codes), np.float32(np.nan), codes)
    if stored.dtype == "BF16":
        return _decoded(codes, FORMAT_DTYPES["BF16"])
    # a scale format without a sign has fewer bits than its dtype: the bit above is the sign
    signed = codes >> fmt.width_bits != 0
    if signed.any():
        index = tuple(int(i) for i in np.argwhere(signed)[0])
        raise ConfigError(
            f"scales {name!r} must not be negative, got the code {codes[index]:#04x} of {stored.dtype} at index "
            f"{index} in {stored.path}; {fmt} has no sign: quantize the numbers again"
        )
    return _decoded(codes, fmt)


def _decoded(codes: Array, fmt: Float | Fixed) -> Array:
    """Return the numbers of codes, or of bytes with two codes each, as one line.

    They are looked up in chunks, because NumPy converts indices to 8 bytes each.
    """
    # a table of unsigned integers, so that each number, NaN as well, keeps its bits
    table, line = _numbers_of(fmt), codes.reshape(-1)
    numbers = np.empty(line.size, table.dtype)
    for start in range(0, line.size, CHUNK):
        chunk = line[start : start + CHUNK]
        numbers[start : start + chunk.size] = table[chunk]
    # of 4-bit codes, each integer holds two numbers
    return numbers.view(fmt.carrier)


@lru_cache(maxsize=16)
def _numbers_of(fmt: Float | Fixed) -> Array:
    """Return the bits of the number of each code; if codes have 4 bits, those of both numbers of each byte."""
    # (codes, 1); of 4-bit codes (bytes, 2), the number in the low bits first
    codes = np.arange(1 << fmt.width_bits, dtype=np.uint16)[:, None]
    if fmt.width_bits == 4:
        codes = unpack(np.arange(256, dtype=np.uint8)[:, None], 4)
    numbers = np.ascontiguousarray(fmt.decode(codes))
    # the numbers of a row side by side as one integer, in the order in which they lie in memory
    return numbers.view(f"u{numbers.shape[1] * numbers.itemsize}")[:, 0]
