"""How long quantising takes a device: bytes through its memory, at the memory's bandwidth.

For n gradients whose messages have m bytes, of `workers` nodes, float32:

    encode     reads n gradients and n residuals, writes n residuals and the message       12 n + m
    sum        reads a message of every worker, writes n sums                              workers * m + 4 n
    rule       of owners that smooth or normalise: reads and writes n numbers of state     8 n
    decode     reads the message, writes n gradients                                       m + 4 n
    mean       of a controller: reads a message of every worker, writes n means            workers * m + 4 n

Clipping n gradients of a layer, for each rule; thresholds of a layer are known only when all of it has been read:

    constant        reads and writes gradients                                             8 n
    variance        reads them for the mean, for the variance, reads and writes them       16 n
    momentum        reads momentum, reads and writes gradients                             12 n
    parameter_norm  reads parameters, reads and writes gradients                           12 n

An owner that adds its own part as it is does not encode that part: its sum reads 4 n bytes in place of a message of m.

Encode reads a column twice, for its levels and for its codes; the second time the column is on the chip. This is our
choice, and so is that residuals and sums are float32. Gradients of 32 bits are sent as they are and arrive in place:
encode and decode take no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emu.cluster.clipping.rules import Rule
from emu.cluster.codecs import Codec, Float32
from emu.hardware.machine import SECOND_PS

Bytes = npt.NDArray[np.int64]
#: Bytes of a gradient, a residual, a sum.
NUMBER_BYTES = 4
#: Numbers through the memory for each gradient that a rule looks at.
_CLIP_MOVES = {"constant": 2, "variance": 4, "momentum": 3, "parameter_norm": 3}


@dataclass(frozen=True)
class Kernels:
    """Times of a device's memory.

    Attributes:
        codec: codec of workers.
        owner_codec: codec of owners.
        bytes_per_s: bandwidth of the memory; None if all kernels take no time.
        has_state: whether owners smooth or normalise.
        start_ps: from one kernel to the next.
        quantises_own: whether an owner that computes gradients encodes those of its own stripe, too.
    """

    codec: Codec
    owner_codec: Codec
    bytes_per_s: float | None
    has_state: bool = False
    start_ps: int = 0
    quantises_own: bool = True

    def encode_ps(self, numbers: int, message_bytes: int) -> int:
        """Return how long a worker takes to encode its gradients."""
        return self.moved_ps(_encode_bytes(self.codec, numbers, message_bytes))

    def encode_others_ps(self, numbers: int, message_bytes: int, own_numbers: Bytes, own_bytes: Bytes) -> Bytes:
        """Return how long each worker takes to encode its gradients but those of its own stripe.

        Args:
            numbers: all gradients of a worker.
            message_bytes: bytes of its messages to all owners, including itself.
            own_numbers: gradients of each worker's own stripe.
            own_bytes: bytes of a message of these.
        """
        own = zip(own_numbers.tolist(), own_bytes.tolist(), strict=True)
        return np.array([self.encode_ps(numbers - n, message_bytes - size) for n, size in own], np.int64)

    def sum_ps(
        self,
        workers: int,
        numbers: Bytes,
        sent_bytes: Bytes,
        made_bytes: Bytes,
        own_numbers: Bytes | None = None,
    ) -> Bytes:
        """Return how long each owner takes to add up messages, apply its rule, and encode the result.

        Args:
            workers: workers whose messages are added.
            numbers: numbers that each owner has.
            sent_bytes: bytes of a worker's message to each owner.
            made_bytes: bytes of each owner's own message.
            own_numbers: gradients of its own that each owner adds as they are; None if all owners encode them.
        """
        own = np.zeros_like(numbers) if own_numbers is None else own_numbers
        durations = [
            self.moved_ps(
                # a message of each worker, but numbers, not a message, of the owner itself
                (workers - (as_it_is > 0)) * sent
                + NUMBER_BYTES * (n + as_it_is)
                + 2 * NUMBER_BYTES * n * self.has_state
                + _encode_bytes(self.owner_codec, n, made)
            )
            if n
            else 0
            for n, sent, made, as_it_is in zip(
                numbers.tolist(), sent_bytes.tolist(), made_bytes.tolist(), own.tolist(), strict=True
            )
        ]
        return np.array(durations, np.int64)

    def decode_ps(self, numbers: int, message_bytes: int) -> int:
        """Return how long a node takes to decode all sums."""
        return 0 if isinstance(self.owner_codec, Float32) else self.moved_ps(message_bytes + NUMBER_BYTES * numbers)

    def add_ps(self, terms: int, numbers: int) -> int:
        """Return how long a device takes to add float32 arrays: it reads all terms and writes the sum."""
        return self.moved_ps((terms + 1) * NUMBER_BYTES * numbers)

    def clip_ps(self, rules: Iterable[Rule], numbers: int) -> int:
        """Return how long clipping takes for a number of gradients, one rule after the other."""
        return sum(self.moved_ps(NUMBER_BYTES * _CLIP_MOVES[rule.rule] * numbers) for rule in rules)

    def moved_ps(self, size_bytes: int) -> int:
        """Return how long a kernel takes that moves a number of bytes; no time if there are none."""
        if self.bytes_per_s is None or not size_bytes:
            return 0
        # picoseconds, rounded up: size * 10**12 / bandwidth in integers, so that they are the same on every machine
        return self.start_ps + -(-size_bytes * SECOND_PS // round(self.bytes_per_s))


def _encode_bytes(codec: Codec, numbers: int, message_bytes: int) -> int:
    # 3 numbers for each gradient: gradient and residual are read, the residual is written
    return 0 if isinstance(codec, Float32) else 3 * NUMBER_BYTES * numbers + message_bytes
