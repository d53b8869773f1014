"""Read an ONNX file: its bytes, its external data, and what must hold before any node is looked at.

External data are read from the file's own folder alone: a location that leaves it is refused.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation" and "External Data".
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import ConfigError

Array = NDArray[Any]
#: Versions of the operators that are understood: what changed in between is known for each operator.
OLDEST, NEWEST = 11, 25
#: Protobuf's own limit.
LARGEST_BYTES = 2**31 - 1
#: Names of ONNX's own operators.
DOMAINS = ("", "ai.onnx")


def load_onnx() -> Any:
    """Return the package onnx.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise ConfigError(
            "ONNX files must be read with the package onnx, which is not installed; pip install 'emu-numerics[onnx]'"
        ) from None
    return onnx


def read_file(path: Path) -> tuple[Any, str]:
    """Return the model in a file, and the SHA-256 of its bytes and of its external data.

    Raises:
        ConfigError: the file is missing, damaged, too large or of another kind; its version is not understood; its
            external data are missing, or outside its folder.
    """
    onnx = load_onnx()
    if not path.is_file():
        raise ConfigError(f"a graph must be an ONNX file, got {str(path)!r}, which does not exist; check the path")
    if path.stat().st_size > LARGEST_BYTES:
        raise ConfigError(
            f"an ONNX file must have at most {LARGEST_BYTES} bytes, got {path.stat().st_size} in {path}; save it with "
            "external data"
        )
    # the hash is of the very bytes that are parsed
    content = path.read_bytes()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    # an error of the package protobuf, which is not imported here
    except Exception as error:
        raise ConfigError(f"a graph must be an ONNX file, got {path}: {error}; export it again") from None
    if not model.graph.node and not model.graph.output:
        raise ConfigError(f"a graph must be an ONNX file, got {path}, which has no graph; export it again")
    digest = hashlib.sha256(content)
    _read_external_data(model, path, digest)
    return model, digest.hexdigest()


def _read_external_data(model: Any, path: Path, digest: Any) -> None:
    # resolved, so that neither `..` nor a link leads out of the folder
    folder = path.resolve().parent
    for tensor in tensors_of(model):
        if tensor.data_location != 1:  # TensorProto.EXTERNAL
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        place = (folder / location).resolve()
        if not location or Path(location).is_absolute() or folder not in place.parents:
            raise ConfigError(
                f"external data must lie in the folder of the file, got {location!r} for tensor {tensor.name!r} of "
                f"{path}; move the data beside it, and save it again"
            )
        if not place.is_file():
            raise ConfigError(
                f"external data must lie beside the file, got {location!r} for tensor {tensor.name!r} of {path}, which "
                "does not exist; copy it there too"
            )
        # from here on the tensor is like any other
        tensor.raw_data = _part_of(place, entries, tensor.name)
        tensor.data_location = 0
        # the file itself has only the names of these bytes
        digest.update(tensor.raw_data)


def _part_of(place: Path, entries: dict[str, str], name: str) -> bytes:
    size = place.stat().st_size
    offset = int(entries.get("offset") or 0)
    # without a length, all that follows the offset
    length = int(entries.get("length") or size - offset)
    if offset < 0 or length < 0 or offset + length > size:
        raise ConfigError(
            f"external data of tensor {name!r} must be bytes 0..{size} of {place}, got {offset}..{offset + length}; "
            "copy the file again"
        )
    with place.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def tensors_of(model: Any) -> list[Any]:
    """Return all tensors of a model: initialisers, and those of attributes."""
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        tensors += [attribute.t for attribute in node.attribute if attribute.type == 4]  # AttributeProto.TENSOR
    return tensors


def version_of(model: Any, path: Path) -> int:
    """Return the version of ONNX's own operators that a model uses.

    Raises:
        ConfigError: it is not understood.
    """
    versions = [entry.version for entry in model.opset_import if entry.domain in DOMAINS]
    version = max(versions, default=1)
    if OLDEST <= version <= NEWEST:
        return version
    remedy = (
        f"convert it with onnx.version_converter.convert_version(model, {OLDEST})"
        if version < OLDEST
        else f"export it with opset_version={NEWEST}"
    )
    raise ConfigError(f"the opset of {path} must be {OLDEST}..{NEWEST}, got {version}; {remedy}")


def array_of(tensor: Any, where: Path) -> Array:
    """Return a tensor's numbers.

    Raises:
        ConfigError: its bytes do not fit its shape, or its type is no number.
    """
    try:
        return np.asarray(load_onnx().numpy_helper.to_array(tensor), order="C")  # a scalar stays one
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"tensor {tensor.name!r} must hold the numbers of its shape, got {error} in {where}; export the file again"
        ) from None
