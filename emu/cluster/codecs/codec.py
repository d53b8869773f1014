"""What every gradient codec does, and the codec that sends float32 as it is."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.backends.reference.column_sums import one_nan
from emu.cluster.codecs.memory import Memory
from emu.cluster.codecs.message import WORD_BYTES, Message

Array = NDArray[Any]
#: Bits of gradients that are sent as they are.
FLOAT_BITS = 32


class Address(NamedTuple):
    """The address of a codec's random choices: seed, stream and step of Philox (docs/concepts/random-bits.md)."""

    seed: int = 0
    stream: int = 0
    step: int = 0


class Codec(Protocol):
    """Turns columns into messages and back."""

    @property
    def looks_back(self) -> bool:
        """Whether a message depends on more of earlier mini-batches than their residuals."""
        ...

    def encode(self, gradients: Array, memory: Memory, at: Address) -> Message:
        """Return a message of gradients and residuals; what the message does not express is the new residual.

        Args:
            gradients: float32, or float64 for carriers of wide formats, (columns, rows).
            memory: memory of this node's part of the stripe; it is changed in place.
            at: address of random choices.
        """
        ...

    def decode(self, message: Message, rows: int) -> Array:
        """Return the gradients of a message: float32, (columns, rows)."""
        ...

    def decode_and_add(self, message: Message, total: Array) -> None:
        """Add the gradients of a message to a sum, float32 or float64, (columns, rows), in place."""
        ...

    def message_of(self, data: bytes, columns: int, rows: int) -> Message:
        """Return the message that was sent as bytes.

        Raises:
            ShapeError: the bytes have another length.
        """
        ...

    def message_bytes(self, columns: int, rows: int) -> int:
        """Return the bytes of a message of so many columns and rows."""
        ...


class Float32(Codec):
    """Gradients as they are: float32 is sent whole; the rounding errors of float64 are fed back."""

    @property
    @override
    def looks_back(self) -> bool:
        return False

    @override
    def encode(self, gradients: Array, memory: Memory, at: Address) -> Message:
        # bytes are made of a view of words, which needs neighbouring numbers
        sent = np.ascontiguousarray(gradients)
        if gradients.dtype != np.float32:
            with np.errstate(over="ignore", invalid="ignore"):
                # the residual is what float32 cannot express of a float64 gradient
                values = gradients + memory.residual
                sent = values.astype(np.float32)
                memory.residual = values - sent
        # no words: numbers themselves are the "levels", one for each row
        return Message(sent, np.empty((len(gradients), 0), np.uint32))

    @override
    def decode(self, message: Message, rows: int) -> Array:
        return message.levels

    @override
    def decode_and_add(self, message: Message, total: Array) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            # one NaN, as every backend's decoder writes it
            total[...] = one_nan(total + message.levels)

    @override
    def message_of(self, data: bytes, columns: int, rows: int) -> Message:
        return Message.from_bytes(data, columns, rows, 0)

    @override
    def message_bytes(self, columns: int, rows: int) -> int:
        return WORD_BYTES * columns * rows
