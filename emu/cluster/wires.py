"""How lines of a tensor travel: all of them, or those that a step has touched.

    WholeWire      message of all lines
    TouchedWire    uint32 count │ which lines │ message of these lines, those with nothing new left out

The message names its lines by a bit for each line of the stripe, or by four bytes for each line in the message,
whichever is shorter; it names none if all are there. A sender sends all lines if that takes fewer bytes: a line with
nothing new still has its residual of earlier steps.

    3 of 64 lines    3 │ 8 bytes of bits │ message of 3 lines

Source: US 12,008,475 (gradients of some rows); that they travel like this is our choice.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.cluster.codecs import Address, Codec, Memory
from emu.cluster.codecs.message import WORD_BYTES
from emu.cluster.layout import Stripe

Array = NDArray[Any]
Places = NDArray[np.int64]
#: What the name of places ends with, beside the lines' own.
_PLACES = ".places"


class Touched(NamedTuple):
    """Some lines of a tensor; all others are 0.

    Attributes:
        places: which lines, ascending.
        lines: (lines that are there, numbers of a line).
    """

    places: Places
    lines: Array

    def whole(self, count: int) -> Array:
        """Return all lines of a tensor."""
        found = np.zeros((count, self.lines.shape[1]), self.lines.dtype)
        found[self.places] = self.lines
        return found


#: Columns of a tensor: all, or some.
Columns: TypeAlias = Array | Touched


def part_of(lines: Columns, stripe: Stripe) -> Columns:
    """Return the lines of a stripe, whose places begin at 0."""
    if not isinstance(lines, Touched):
        return lines[stripe.columns]
    first, last = np.searchsorted(lines.places, (stripe.start, stripe.start + stripe.width))
    return Touched(lines.places[first:last] - stripe.start, lines.lines[first:last])


def put_together(parts: Sequence[tuple[Stripe, Columns]]) -> Columns:
    """Return the lines of stripes that lie side by side, in their order."""
    whole = [lines for _, lines in parts if not isinstance(lines, Touched)]
    if whole:
        return np.concatenate(whole)
    some = [(lines.places + stripe.start, lines.lines) for stripe, lines in parts if isinstance(lines, Touched)]
    places, numbers = ([pair[i] for pair in some] for i in (0, 1))
    return Touched(np.concatenate(places), np.concatenate(numbers))


def added(one: Columns, other: Columns) -> Columns:
    """Return the sum of lines of one tensor: of some, every line that either has, beginning with 0."""
    if not isinstance(one, Touched):
        assert not isinstance(other, Touched), "a tensor's lines are all there, or some of them"
        return one + other
    assert isinstance(other, Touched), "a tensor's lines are all there, or some of them"
    places = np.union1d(one.places, other.places)
    total = np.zeros((len(places), one.lines.shape[1]), one.lines.dtype)
    for some in (one, other):
        total[np.searchsorted(places, some.places)] += some.lines
    return Touched(places, total)


def arrays_of(found: Mapping[str, Columns]) -> dict[str, Array]:
    """Return lines of several tensors as arrays by name, as `lines_from` takes them back."""
    held: dict[str, Array] = {}
    for name, lines in found.items():
        if isinstance(lines, Touched):
            held |= {name: lines.lines, f"{name}{_PLACES}": lines.places}
        else:
            held[name] = lines
    return held


def lines_from(arrays: Mapping[str, Array]) -> dict[str, Columns]:
    """Return what `arrays_of` has made arrays of."""
    return {
        name: Touched(arrays[f"{name}{_PLACES}"], array) if f"{name}{_PLACES}" in arrays else array
        for name, array in arrays.items()
        if not name.endswith(_PLACES)
    }


# ---- which lines ----


def header_of(places: Places, lines: int) -> bytes:
    """Return how many of a tensor's lines are there, and which."""
    count = len(places)
    which = b""
    if count < lines and _has_bits(count, lines):
        there = np.zeros(lines, np.uint8)
        there[places] = 1
        which = np.packbits(there, bitorder="little").tobytes()
    elif count < lines:
        which = places.astype("<u4").tobytes()
    return count.to_bytes(WORD_BYTES, "little") + which


def header_bytes(count: int, lines: int) -> int:
    """Return the bytes of a header."""
    if count == lines:
        return WORD_BYTES
    return WORD_BYTES + (-(-lines // 8) if _has_bits(count, lines) else WORD_BYTES * count)


def count_of(data: bytes | memoryview) -> int:
    """Return how many lines a header says are there."""
    return int.from_bytes(data[:WORD_BYTES], "little")


def places_of(data: bytes, lines: int) -> Places:
    """Return which lines a header says are there."""
    count = count_of(data)
    if count == lines:
        return np.arange(lines)
    which = np.frombuffer(data[WORD_BYTES : header_bytes(count, lines)], np.uint8)
    if _has_bits(count, lines):
        return np.flatnonzero(np.unpackbits(which, count=lines, bitorder="little"))
    return which.view("<u4").astype(np.int64)


def _has_bits(count: int, lines: int) -> bool:
    return -(-lines // 8) <= WORD_BYTES * count


def touched_bytes(codec: Codec, count: int, lines: int, numbers: int) -> int:
    """Return the bytes of a message of some lines: header, and the codec's own.

    Args:
        codec: makes the message.
        count: lines that are there.
        lines: lines of the stripe.
        numbers: numbers of a line.
    """
    return header_bytes(count, lines) + codec.message_bytes(count, numbers)


def lines_sent(codec: Codec, count: int, lines: int, numbers: int) -> int:
    """Return how many lines travel: those that are there, or all where these are no more bytes; see `touched_bytes`.

    Examples:
        >>> from emu.cluster.codecs import codec_of
        >>> [lines_sent(codec_of(32), count, 32, 1) for count in (3, 30, 31)]  # 31 of 32: 4 bytes would say which
        [3, 30, 32]
    """
    whole = touched_bytes(codec, lines, lines, numbers) <= touched_bytes(codec, count, lines, numbers)
    return lines if whole else count


# ---- wires ----


class Wire(Protocol):
    """Carries the lines of one stripe of a tensor, from one node to another."""

    def encoded(self, lines: Columns, memory: Memory, at: Address) -> bytes:
        """Return lines, with what memory holds back of earlier ones, as bytes; what is lost stays in memory."""
        ...

    def size_of(self, data: bytes | memoryview) -> int:
        """Return how many of these bytes are the first message."""
        ...

    def decoded(self, data: bytes) -> Columns:
        """Return what a message says, of the dtype of gradients."""
        ...

    def summed(self, messages: Sequence[bytes]) -> Columns:
        """Return the sum of what messages say, in their order."""
        ...

    def newest(self, data: bytes, memory: Memory) -> tuple[bytes, Memory]:
        """Return the codec's own message, and what memory holds of its lines."""
        ...


class WholeWire(Wire):
    """All lines, in their places."""

    def __init__(
        self, codec: Codec, lines: int, numbers: int, dtype: type[np.floating[Any]], *, feedback: bool
    ) -> None:
        """Take what both ends have in common.

        Args:
            codec: makes messages of lines.
            lines: lines of the stripe.
            numbers: numbers of a line.
            dtype: dtype of gradients.
            feedback: whether what a message does not express is added to the next gradient, or lost.
        """
        self._codec, self._lines, self._numbers = codec, lines, numbers
        self._dtype, self._feedback = dtype, feedback
        self._bytes = codec.message_bytes(lines, numbers)

    @override
    def encoded(self, lines: Columns, memory: Memory, at: Address) -> bytes:
        assert not isinstance(lines, Touched), "some lines travel on a wire of their own"
        data = self._codec.encode(lines, memory, at).to_bytes()
        if not self._feedback:
            memory.residual = np.zeros_like(memory.residual)
        return data

    @override
    def size_of(self, data: bytes | memoryview) -> int:
        return self._bytes

    @override
    def decoded(self, data: bytes) -> Array:
        """Return all lines."""
        message = self._codec.message_of(data, self._lines, self._numbers)
        return self._codec.decode(message, self._numbers).astype(self._dtype, copy=False)

    @override
    def summed(self, messages: Sequence[bytes]) -> Array:
        """Return the sum: the first message's lines, the others' added."""
        first, *others = messages
        total = self.decoded(first).astype(self._dtype)
        for data in others:
            self._codec.decode_and_add(self._codec.message_of(data, self._lines, self._numbers), total)
        return total

    @override
    def newest(self, data: bytes, memory: Memory) -> tuple[bytes, Memory]:
        """Return both as they are."""
        return data, memory


class TouchedWire(Wire):
    """Columns that a step has touched, and which."""

    def __init__(
        self, codec: Codec, lines: int, numbers: int, dtype: type[np.floating[Any]], *, feedback: bool
    ) -> None:
        """Take what both ends have in common; arguments as of `WholeWire`."""
        self._codec, self._lines, self._numbers = codec, lines, numbers
        self._dtype, self._feedback = dtype, feedback

    @override
    def encoded(self, lines: Columns, memory: Memory, at: Address) -> bytes:
        """Return the message of the lines that are there, or of all, whichever is shorter."""
        assert isinstance(lines, Touched), "all lines travel on a wire of their own"
        count = len(lines.places)
        if lines_sent(self._codec, count, self._lines, self._numbers) > count:
            lines = Touched(np.arange(self._lines), lines.whole(self._lines))
        held = memory.of_lines(lines.places)
        message = self._codec.encode(lines.lines, held, at).to_bytes() if len(lines.places) else b""
        if not self._feedback:
            held.residual = np.zeros_like(held.residual)
        memory.put_lines(lines.places, held)
        return header_of(lines.places, self._lines) + message

    @override
    def size_of(self, data: bytes | memoryview) -> int:
        """Return the bytes of the first message, as its count says."""
        return touched_bytes(self._codec, count_of(data), self._lines, self._numbers)

    @override
    def decoded(self, data: bytes) -> Touched:
        """Return the lines that are there."""
        places, own = self._split(data)
        if not len(places):
            return Touched(places, np.zeros((0, self._numbers), self._dtype))
        message = self._codec.message_of(own, len(places), self._numbers)
        return Touched(places, self._codec.decode(message, self._numbers).astype(self._dtype, copy=False))

    @override
    def summed(self, messages: Sequence[bytes]) -> Columns:
        """Return the sum: every line that any message has."""
        return functools.reduce(added, [self.decoded(data) for data in messages])

    @override
    def newest(self, data: bytes, memory: Memory) -> tuple[bytes, Memory]:
        places, own = self._split(data)
        return own, memory.of_lines(places)

    def _split(self, data: bytes) -> tuple[Places, bytes]:
        places = places_of(data, self._lines)
        return places, data[header_bytes(len(places), self._lines) :]


def wire_of(
    codec: Codec, lines: int, numbers: int, dtype: type[np.floating[Any]], *, feedback: bool, touched: bool
) -> Wire:
    """Return the wire of a stripe; arguments as of `WholeWire`, and whether a step touches some of its lines only."""
    kind = TouchedWire if touched else WholeWire
    return kind(codec, lines, numbers, dtype, feedback=feedback)
