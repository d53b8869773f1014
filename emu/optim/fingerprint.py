"""The hash of a network's parameters: whatever trained them, equal bits have equal hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from emu.autodiff import Value
from emu.backends.arrays import on_host


def sha256_of(values: Iterable[tuple[str, Value]]) -> str:
    """Return the hash of values in order: their names, formats, shapes and codes.

    Args:
        values: names, as `layer.part`, and values with a format.

    Raises:
        FormatError: an array holds what is not in its format.
    """
    digest = hashlib.sha256()
    for name, value in values:
        codes = value.format.encode(on_host(value.array))
        digest.update(f"{name} {value.format} {codes.shape}".encode())
        # little-endian, so that all machines have the same hash
        digest.update(codes.astype(codes.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
