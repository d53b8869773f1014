"""Write checkpoints: scaled values as elements and scales in tensors of their own, by a convention.

value ──► elements, scales: name, dtype, shape ──► header ──► bytes of one value after the other, each in its place
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from emu._files import replace_file
from emu.checkpoints.conventions import CONVENTIONS, Convention
from emu.checkpoints.dtypes import FORMAT_DTYPES, NUMPY_DTYPES, dtype_of_codes
from emu.checkpoints.reading import Checkpoint
from emu.errors import ConfigError, FormatError, ShapeError, nearest_name
from emu.formats import Fixed, Float, ScaledValue
from emu.formats.packing import pack

Array = NDArray[Any]
#: The header's length is a multiple of it, so that numbers lie at multiples of their size.
ALIGNMENT = 8
#: What a header says of the file: Hugging Face's transformers load no file without it.
METADATA = {"format": "pt"}
_METADATA_NAME = "__metadata__"

#: Numbers that are encoded together, an even number.
CHUNK = 1 << 20
#: Names of NumPy's dtypes in headers, by kind and bytes.
_NAMES = {f"{np.dtype(dtype).kind}{np.dtype(dtype).itemsize}": name for name, dtype in NUMPY_DTYPES.items()}


class Part(NamedTuple):
    """A tensor of the file.

    Attributes:
        name: in the file.
        dtype: as headers name it.
        shape: in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def stored(self) -> np.dtype[Any]:
        """NumPy's dtype of its numbers or codes in the file."""
        dtype = dtype_of_codes(self.dtype)
        assert dtype is not None
        return dtype

    @property
    def size_bytes(self) -> int:
        """How many bytes it has."""
        return self.stored.itemsize * math.prod(self.shape)


#: A tensor of the file, and what computes its numbers or codes.
Written = tuple[Part, Callable[[], Array]]


def write_checkpoint(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    convention: str | Mapping[str, str] | None = None,
) -> None:
    """Write a `.safetensors` file, complete or not at all: elements and scales in tensors of their own.

    A value that was read is written in the same bytes, if it has no NaN: one among elements or scales that are encoded
    becomes the canonical one. The scale of a whole tensor is written without an axis. What the file cannot hold is
    refused before the file is touched.

    Args:
        path: of the file; one of that name is replaced.
        tensors: scaled values and arrays by name. Those of a `Checkpoint` are read one at a time, twice.
        convention: of all scaled values; or, by name, the convention of a value or the dtype of an array, such as BF16.
            What it does not say is taken from `tensors`, if these are a `Checkpoint`; else an array keeps its dtype.

    Raises:
        ConfigError: no such convention or dtype, a name that is not there or is no string, or two tensors of one name.
        FormatError: a value of another format than its convention's, blocks along another axis than the last, an array
            whose numbers do not belong to the dtype, or whose own dtype files lack, or lists that are no array.
        ShapeError: elements that do not fill blocks.
        OSError: the file cannot be written.

    Examples:
        >>> import emu, tempfile
        >>> w = emu.quantize(np.ones((2, 64), np.float32), "mxfp8_e4m3")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_checkpoint(f"{folder}/w.safetensors", {"w": w}, "mxfp8")
        ...     print(emu.read_checkpoint(f"{folder}/w.safetensors").conventions)
        {'w': 'mxfp8'}

    Source: docs/concepts/scaled.md, "Checkpoints".
    """
    path = Path(path)

    def parts_of(name: str) -> list[Written]:
        value = tensors[name]
        return _parts(name, value, _choice(name, value, tensors, convention))

    _require_convention(tensors, convention)
    nameless = next((name for name in cast("Mapping[object, Any]", tensors) if not isinstance(name, str)), None)
    if nameless is not None:
        raise ConfigError(f"names of tensors must be strings, got {nameless!r}; write {str(nameless)!r}")
    # from names, shapes and dtypes alone: no number is encoded yet
    header, starts = _header([part for name in tensors for part, _ in parts_of(name)])

    def write(file: BinaryIO) -> None:
        file.write(header)
        for name in tensors:
            # once more: so a single value is in memory at a time
            for part, codes in parts_of(name):
                # the file's order is that of widths; values come in the caller's
                file.seek(len(header) + starts[part.name])
                file.write(np.ascontiguousarray(codes(), part.stored).data)

    replace_file(path, write)


def _require_convention(tensors: Mapping[str, Any], convention: object) -> None:
    """Raise ConfigError unless `convention` is None, a known convention, or a dictionary of names that are written."""
    if convention is None:
        return
    if isinstance(convention, str):
        if convention in CONVENTIONS:
            return
        if dtype_of_codes(convention) is not None:
            example = {str(next(iter(tensors), "w")): convention}
            raise ConfigError(
                f"`convention` must be known, got {convention!r}, a dtype; for arrays, name the dtype by tensor: "
                f"{example}"
            )
        raise ConfigError(f"`convention` must be known, got {convention!r}{nearest_name(convention, CONVENTIONS)}")
    if not isinstance(convention, Mapping):
        raise ConfigError(
            f"`convention` must be a name, or a dictionary of names by tensor, got {convention!r}; write one such as "
            "'mxfp8', or {'w': 'BF16'}"
        )
    for name, choice in cast("Mapping[object, object]", convention).items():
        if name not in tensors:
            raise ConfigError(f"`convention` must name what is written, got {name!r}; leave it out of the conventions")
        if not isinstance(choice, str):
            raise ConfigError(
                f"the convention or dtype of {name!r} must be a name, got {choice!r}; write one such as 'mxfp8' or "
                "'BF16'"
            )


def _choice(
    name: str, value: Any, tensors: Mapping[str, Any], convention: str | Mapping[str, str] | None
) -> str | None:
    """Return the convention or dtype of an entry; None if none is named."""
    # a convention for all is for scaled values; arrays keep their dtypes
    if isinstance(convention, str) and isinstance(value, ScaledValue):
        return convention
    if isinstance(convention, Mapping) and name in convention:
        return convention[name]
    return tensors.conventions.get(name) if isinstance(tensors, Checkpoint) else None


def _header(parts: list[Part]) -> tuple[bytes, dict[str, int]]:
    """Return a file's beginning, and where tensors start behind it: the widest dtypes first, so that all are aligned.

    Raises:
        ConfigError: two tensors of one name, or one of the name of what headers say of the file.
    """
    starts: dict[str, int] = {}
    entries: dict[str, Any] = {_METADATA_NAME: METADATA}
    end = 0
    # sizes of wider dtypes are multiples of narrower sizes, so every start is aligned
    for part in sorted(parts, key=lambda part: (-part.stored.itemsize, part.name)):
        if part.name == _METADATA_NAME:
            raise ConfigError(
                f"a tensor must not be named {_METADATA_NAME!r}, under which a file says what it is; rename it"
            )
        if part.name in entries:
            raise ConfigError(f"tensors must have names of their own, got {part.name!r} twice; rename one of them")
        starts[part.name], end = end, end + part.size_bytes
        entries[part.name] = {"dtype": part.dtype, "shape": part.shape, "data_offsets": [starts[part.name], end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    # JSON takes spaces at its end
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, starts


def _parts(name: str, value: Any, choice: str | None) -> list[Written]:
    if isinstance(value, ScaledValue):
        return _parts_of_scaled(name, value, _row(name, value, choice))
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise FormatError(
            f"array {name!r} must be one that NumPy makes, got {type(value).__name__}: {error}; give lists of equal "
            "lengths, or an array"
        ) from None
    if choice is None:
        choice = _NAMES.get(f"{array.dtype.kind}{array.dtype.itemsize}")
        if choice is None:
            raise FormatError(
                f"array {name!r} must have a dtype that safetensors files have, got {array.dtype}; give it as float32, "
                "with a dtype such as BF16 in `convention`"
            )
    part = Part(name, choice, array.shape)
    # the array's numbers must belong to the format: nothing is rounded here
    if choice in FORMAT_DTYPES:
        return [(part, lambda: _encoded(f"array {name!r}", array, FORMAT_DTYPES[choice], choice))]
    if choice not in NUMPY_DTYPES:
        raise ConfigError(
            f"array {name!r} must be stored in a known dtype, got {choice!r}"
            f"{nearest_name(choice, [*NUMPY_DTYPES, *FORMAT_DTYPES])}"
        )
    if array.dtype.newbyteorder("=") != part.stored.newbyteorder("="):
        raise FormatError(
            f"array {name!r} must have the dtype in which it is stored, got {array.dtype} for {choice}; convert it"
        )
    return [(part, lambda: array)]


def _row(name: str, value: ScaledValue, choice: str | None) -> Convention:
    """Return the convention by which a value is stored.

    Raises:
        ConfigError: there is none of that name.
        FormatError: none is named, or it holds values of another format.
    """
    fitting = [row for row in CONVENTIONS.values() if row.holds(value.format)]
    if choice is None:
        raise FormatError(
            f"a scaled value must be stored by a convention, got none for {name!r}, a value of {value.format}; "
            f"{_advice(value, fitting)}"
        )
    if choice not in CONVENTIONS:
        raise ConfigError(f"`convention` must be known, got {choice!r}{nearest_name(choice, CONVENTIONS)}")
    if CONVENTIONS[choice] not in fitting:
        raise FormatError(
            f"{name!r} must be a value of {CONVENTIONS[choice].format} for the convention {choice}, got one of "
            f"{value.format}; {_advice(value, fitting)}"
        )
    return CONVENTIONS[choice]


def _advice(value: ScaledValue, fitting: list[Convention]) -> str:
    if fitting:
        # of two conventions that differ in the dtype of scales, only one whose dtype has the value's scales
        names = [row.name for row in fitting if _has_scales(row, value)]
        return f"write convention={' or '.join(map(repr, names))}"
    formats = dict.fromkeys(str(row.format) for row in CONVENTIONS.values())
    return f"no convention has it, quantize the numbers into one of {', '.join(formats)}"


def _has_scales(row: Convention, value: ScaledValue) -> bool:
    """Return whether a convention's dtypes have the scales of a value whose format it holds."""
    return all(
        dtype != "BF16" or bool(FORMAT_DTYPES["BF16"].contains(np.asarray(scales)).all())
        for (_, dtype), scales in zip(row.scales, value.scales, strict=True)
    )


def _parts_of_scaled(name: str, value: ScaledValue, row: Convention) -> list[Written]:
    # the same blocks, seen along the other axis
    if value.axis == -2 and value.format.serves_either_axis:
        value = value.along(-1)
    if value.axis != -1:
        raise FormatError(
            f"blocks of {name!r} must lie along the last axis, got axis {value.axis} of shape {value.shape}; write its "
            "transpose, as value.T"
        )
    tiling, size = value.format.tiling, value.shape[-1]
    if tiling.across == 1 and tiling.along is not None and size % tiling.along:
        raise ShapeError(
            f"{name!r} must have whole blocks of {tiling} in a file, got {size} elements along the last axis; pad the "
            f"numbers by {-size % tiling.along} zeros before they are quantized"
        )
    parts: list[Written] = [
        (
            Part(name + row.elements, row.dtype, row.stored_shape(value.shape)),
            lambda: _codes_of(np.asarray(value.array), value.format.element, row.codes_per_byte),
        )
    ]
    shapes = row.scale_shapes(value.shape)
    for (suffix, dtype), level, scales, shape in zip(
        row.scales, value.format.levels, value.scales, shapes, strict=True
    ):
        what = f"scales {name + suffix!r}"
        parts.append(
            (Part(name + suffix, dtype, shape), partial(_scale_codes, what, np.asarray(scales), level.scale, dtype))
        )
    return parts


def _scale_codes(what: str, scales: Array, fmt: Float, dtype: str) -> Array:
    # fp32 scales are stored as numbers
    if dtype == "F32":
        return scales
    if dtype == "BF16":
        # these scales are numbers of float32, which the convention with scales in float32 stores as they are
        return _encoded(what, scales, FORMAT_DTYPES["BF16"], dtype, "write convention='fp8-row'")
    return _encoded(what, scales, fmt, dtype)


def _encoded(what: str, numbers: Array, fmt: Float, dtype: str, remedy: str = "quantize it first") -> Array:
    """Return codes.

    Raises:
        FormatError: a number that the format lacks.
    """
    try:
        return _codes_of(numbers, fmt)
    except FormatError:
        # searched only after the failure: `encode` does not say where
        index = tuple(int(i) for i in np.argwhere(~fmt.contains(numbers))[0])
        raise FormatError(
            f"{what} must be numbers of {dtype}, got {numbers[index]} at index {index}; {remedy}"
        ) from None


def _codes_of(numbers: Array, fmt: Fixed | Float, codes_per_item: int = 1) -> Array:
    """Return codes, one line of them, computed in chunks: what encodes needs many times the memory of its result.

    Args:
        numbers: any shape.
        fmt: their format.
        codes_per_item: how many share a byte.
    """
    line = numbers.reshape(-1)
    codes = np.empty(line.size // codes_per_item, fmt.code_dtype)
    for start in range(0, line.size, CHUNK):
        # CHUNK is even, so no byte has codes of two chunks
        chunk = fmt.encode(line[start : start + CHUNK])
        packed = chunk if codes_per_item == 1 else pack(chunk, fmt.width_bits)
        codes[start // codes_per_item :][: packed.size] = packed
    return codes
