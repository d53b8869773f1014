"""The codec for a number of bits."""

from __future__ import annotations

from typing import Any

from emu.cluster.codecs.codec import FLOAT_BITS, Codec, Float32
from emu.cluster.codecs.quantiser import MOST_BITS, Quantiser
from emu.errors import ConfigError


def codec_of(bits: int, *, backend: str = "auto", **options: Any) -> Codec:
    """Return the codec for a number of bits.

    Args:
        bits: 1..16, or 32 for gradients as they are.
        backend: "auto", or the one of `emu.backends()` that computes.
        **options: of `Quantiser`, beside its steps.

    Raises:
        ConfigError: there is none, or an option does not fit.
    """
    if bits == FLOAT_BITS:
        if options:
            raise ConfigError(f"gradients of 32 bits are sent as they are, got {', '.join(options)}; remove them")
        return Float32()
    # `type`, not `isinstance`: True is an int, and would be one bit
    if type(bits) is not int or not 1 <= bits <= MOST_BITS:
        raise ConfigError(f"`bits` must be 1..{MOST_BITS}, or 32 for gradients as they are, got {bits!r}")
    return Quantiser(1 << bits, **options, backend=backend)
