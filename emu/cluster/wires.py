"""How the lines (columns) of a tensor travel: all of them, or those that a step has touched.

    WholeWire      message of all lines
    TouchedWire    uint32 count │ which lines │ message of the touched lines

The message names its lines by a bit for each line of the stripe, or by four bytes for each line in the message,
whichever is shorter; it names none if all are there. A sender sends all lines if that takes no more bytes: a line that
the step has not touched still has its residual of earlier steps.

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

from emu.backends.reference.column_sums import one_nan
from emu.cluster.codecs import Address, Codec, Memory
from emu.cluster.codecs.message import WORD_BYTES
from emu.cluster.layout import Block

Array = NDArray[Any]
Indices = NDArray[np.int64]
#: In arrays of checkpoints, the end of the name of the indices of touched lines.
_INDICES_KEY = ".places"


class Touched(NamedTuple):
    """Some lines of a tensor; all others are 0.

    Attributes:
        indices: indices of the touched lines, ascending.
        lines: (touched lines, numbers of a line).
    """

    indices: Indices
    lines: Array

    def whole(self, count: int) -> Array:
        """Return all `count` lines of the tensor."""
        lines = np.zeros((count, self.lines.shape[1]), self.lines.dtype)
        lines[self.indices] = self.lines
        return lines


#: Columns of a tensor: all, or those that a step has touched.
Columns: TypeAlias = Array | Touched


def part_of(lines: Columns, block: Block) -> Columns:
    """Return the lines of a block; indices are counted from its first line."""
    if not isinstance(lines, Touched):
        return lines[block.slices]
    begin, width = block.lines
    # indices ascend, so those of a block are neighbours
    first, last = np.searchsorted(lines.indices, (begin, begin + width))
    return Touched(lines.indices[first:last] - begin, lines.lines[first:last])


def put_together(parts: Sequence[tuple[Block, Columns]]) -> Columns:
    """Return the lines of neighbouring blocks, in their order."""
    whole = [lines for _, lines in parts if not isinstance(lines, Touched)]
    if whole:
        # blocks of all lines' numbers lie below each other; those of a vector, beside each other
        first, last = parts[0][0], parts[-1][0]
        return np.concatenate(whole, axis=0 if first.numbers == last.numbers else 1)
    touched = [(lines.indices + block.lines.start, lines.lines) for block, lines in parts if isinstance(lines, Touched)]
    indices, numbers = ([pair[i] for pair in touched] for i in (0, 1))
    return Touched(np.concatenate(indices), np.concatenate(numbers))


def _sum_of(first: Array, second: Array) -> Array:
    """Return the sum of two arrays; inf - inf is the one NaN, as where a codec adds."""
    with np.errstate(invalid="ignore", over="ignore"):
        return one_nan(first + second)


def added(first: Columns, second: Columns) -> Columns:
    """Return the sum of lines of a tensor; of touched lines, each line that either has is there."""
    if not isinstance(first, Touched):
        assert not isinstance(second, Touched), "both have all lines of the tensor, or touched ones"
        return _sum_of(first, second)
    assert isinstance(second, Touched), "both have all lines of the tensor, or touched ones"
    indices = np.union1d(first.indices, second.indices)
    total = np.zeros((len(indices), first.lines.shape[1]), first.lines.dtype)
    # in the order of arguments, and from 0: sums have the same bits on all nodes
    for touched in (first, second):
        at = np.searchsorted(indices, touched.indices)
        total[at] = _sum_of(total[at], touched.lines)
    return Touched(indices, total)


def arrays_of(tensors: Mapping[str, Columns]) -> dict[str, Array]:
    """Return lines of several tensors as arrays by name, from which `lines_from` makes them again."""
    arrays: dict[str, Array] = {}
    for name, lines in tensors.items():
        if isinstance(lines, Touched):
            arrays |= {name: lines.lines, f"{name}{_INDICES_KEY}": lines.indices}
        else:
            arrays[name] = lines
    return arrays


def lines_from(arrays: Mapping[str, Array]) -> dict[str, Columns]:
    """Return the lines that `arrays_of` made arrays of."""
    return {
        name: Touched(arrays[f"{name}{_INDICES_KEY}"], array) if f"{name}{_INDICES_KEY}" in arrays else array
        for name, array in arrays.items()
        if not name.endswith(_INDICES_KEY)
    }


# ---- which lines ----


def header_of(indices: Indices, lines: int) -> bytes:
    """Return the header of a message: how many of a tensor's lines are in it, and which."""
    count = len(indices)
    which = b""
    # if all lines are there, the count says so, and none is named
    if count < lines and _has_bits(count, lines):
        is_touched = np.zeros(lines, np.uint8)
        is_touched[indices] = 1
        which = np.packbits(is_touched, bitorder="little").tobytes()
    elif count < lines:
        which = indices.astype("<u4").tobytes()
    return count.to_bytes(WORD_BYTES, "little") + which


def header_bytes(count: int, lines: int) -> int:
    """Return the bytes of a header."""
    if count == lines:
        return WORD_BYTES
    return WORD_BYTES + (-(-lines // 8) if _has_bits(count, lines) else WORD_BYTES * count)


def count_of(data: bytes | memoryview) -> int:
    """Return how many lines are in a message, according to its header."""
    return int.from_bytes(data[:WORD_BYTES], "little")


def indices_of(data: bytes, lines: int) -> Indices:
    """Return the indices of the lines that are in a message, according to its header."""
    count = count_of(data)
    if count == lines:
        return np.arange(lines)
    which = np.frombuffer(data[WORD_BYTES : header_bytes(count, lines)], np.uint8)
    if _has_bits(count, lines):
        return np.flatnonzero(np.unpackbits(which, count=lines, bitorder="little"))
    return which.view("<u4").astype(np.int64)


def _has_bits(count: int, lines: int) -> bool:
    """Return whether a bit for each of `lines` is no longer than a word for each of `count`."""
    return -(-lines // 8) <= WORD_BYTES * count


def touched_bytes(codec: Codec, count: int, lines: int, numbers: int) -> int:
    """Return the bytes of a message of some lines: those of the header and of the codec's message.

    Args:
        codec: codec of the message.
        count: lines in the message.
        lines: lines of the stripe.
        numbers: numbers of a line.
    """
    return header_bytes(count, lines) + codec.message_bytes(count, numbers)


def lines_sent(codec: Codec, count: int, lines: int, numbers: int) -> int:
    """Return how many lines travel: `count`, or all if they take no more bytes; see `touched_bytes`.

    Examples:
        >>> from emu.cluster.codecs import codec_of
        >>> [lines_sent(codec_of(32), count, 32, 1) for count in (3, 30, 31)]  # 31 of 32: 4 bytes would say which
        [3, 30, 32]
    """
    # of equals, all lines: then the residuals of untouched lines travel as well
    whole = touched_bytes(codec, lines, lines, numbers) <= touched_bytes(codec, count, lines, numbers)
    return lines if whole else count


# ---- wires ----


class Wire(Protocol):
    """Carries the lines of one stripe of a tensor, from one node to another."""

    def encoded(self, lines: Columns, memory: Memory, at: Address) -> bytes:
        """Return lines and their residuals of earlier steps as bytes; what the bytes do not express stays in memory."""
        ...

    def size_of(self, data: bytes | memoryview) -> int:
        """Return the length of the first message in some bytes."""
        ...

    def decoded(self, data: bytes) -> Columns:
        """Return the lines of a message, of the dtype of gradients."""
        ...

    def summed(self, contributions: Sequence[bytes | Columns]) -> Columns:
        """Return the sum of messages, and of lines that their owner adds as they are, in their order."""
        ...

    def newest(self, data: bytes, memory: Memory) -> tuple[bytes, Memory]:
        """Return the codec's message within a message, and the memory of its lines."""
        ...


class WholeWire(Wire):
    """Carries all lines of a stripe."""

    def __init__(
        self, codec: Codec, lines: int, numbers: int, dtype: type[np.floating[Any]], *, feedback: bool
    ) -> None:
        """Take what sender and receiver have in common.

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
        assert not isinstance(lines, Touched), "touched lines travel on a TouchedWire"
        data = self._codec.encode(lines, memory, at).to_bytes()
        if not self._feedback:
            memory.drop_residuals()
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
    def summed(self, contributions: Sequence[bytes | Columns]) -> Array:
        """Return the sum: the first one's lines, the others' added."""
        first, *others = contributions
        assert not isinstance(first, Touched), "touched lines travel on a TouchedWire"
        # `astype` copies: later additions must not change an array of the caller
        total = (self.decoded(first) if isinstance(first, bytes) else first).astype(self._dtype, order="C")
        for data in others:
            assert not isinstance(data, Touched), "touched lines travel on a TouchedWire"
            if isinstance(data, bytes):
                # straight from codes into the sum, without a decoded array between
                self._codec.decode_and_add(self._codec.message_of(data, self._lines, self._numbers), total)
            else:
                total[...] = _sum_of(total, data)
        return total

    @override
    def newest(self, data: bytes, memory: Memory) -> tuple[bytes, Memory]:
        """Return both as they are."""
        return data, memory


class TouchedWire(Wire):
    """Carries the lines that a step has touched, and their indices."""

    def __init__(
        self, codec: Codec, lines: int, numbers: int, dtype: type[np.floating[Any]], *, feedback: bool
    ) -> None:
        """Take what sender and receiver have in common; arguments as of `WholeWire`."""
        self._codec, self._lines, self._numbers = codec, lines, numbers
        self._dtype, self._feedback = dtype, feedback

    @override
    def encoded(self, lines: Columns, memory: Memory, at: Address) -> bytes:
        """Return the message of the touched lines, or of all if that is no longer."""
        assert isinstance(lines, Touched), "whole tensors travel on a WholeWire"
        count = len(lines.indices)
        if lines_sent(self._codec, count, self._lines, self._numbers) > count:
            # untouched lines are 0, but their residuals are not
            lines = Touched(np.arange(self._lines), lines.whole(self._lines))
        of_touched = memory.of_lines(lines.indices)
        # a message without lines is its header alone
        message = self._codec.encode(lines.lines, of_touched, at).to_bytes() if len(lines.indices) else b""
        if not self._feedback:
            of_touched.drop_residuals()
        memory.put_lines(lines.indices, of_touched)
        return header_of(lines.indices, self._lines) + message

    @override
    def size_of(self, data: bytes | memoryview) -> int:
        """Return the length of the first message, which follows from the count in its header."""
        return touched_bytes(self._codec, count_of(data), self._lines, self._numbers)

    @override
    def decoded(self, data: bytes) -> Touched:
        """Return the touched lines."""
        indices, own = self._split(data)
        if not len(indices):
            return Touched(indices, np.zeros((0, self._numbers), self._dtype))
        message = self._codec.message_of(own, len(indices), self._numbers)
        return Touched(indices, self._codec.decode(message, self._numbers).astype(self._dtype, copy=False))

    @override
    def summed(self, contributions: Sequence[bytes | Columns]) -> Columns:
        """Return the sum: the lines that any one has."""
        return functools.reduce(
            added, [self.decoded(data) if isinstance(data, bytes) else data for data in contributions]
        )

    @override
    def newest(self, data: bytes, memory: Memory) -> tuple[bytes, Memory]:
        indices, own = self._split(data)
        return own, memory.of_lines(indices)

    def _split(self, data: bytes) -> tuple[Indices, bytes]:
        indices = indices_of(data, self._lines)
        return indices, data[header_bytes(len(indices), self._lines) :]


def wire_of(
    codec: Codec, lines: int, numbers: int, dtype: type[np.floating[Any]], *, feedback: bool, touched: bool
) -> Wire:
    """Return the wire of a stripe; arguments as of `WholeWire`, and whether a step touches some of its lines only."""
    kind = TouchedWire if touched else WholeWire
    return kind(codec, lines, numbers, dtype, feedback=feedback)
