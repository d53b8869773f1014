"""Every input of a circuit, 64 a machine word: the first one for which its output is 1.

An input is a number whose bits are the circuit's inputs, input 0 the lowest. A block of inputs shares some bits, the
leading ones: there the circuit is cut down to what their values leave of it. Signs and exponents are good leading bits:
once they are known, shifters and comparisons are gone. Blocks are shared among threads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.numba.compiling import kernel, thread_count
from emu.prove.circuit import ALL_ONES, PATTERNS, Circuit

#: Inputs of a block that are not the same everywhere in it: at least and at most.
FEWEST_FREE, MOST_FREE = 14, 20
#: Those of one pass over the gates: 64 words, so that the words of some hundred signals fit a second-level cache.
PASS_BITS = 12
#: Blocks that are measured to estimate the time of all.
_MEASURED = 8
#: Seconds after which a thread reports, and blocks that it is given at most.
_REPORT_S, _MOST_AT_ONCE = 0.25, 4096


class OutOfTime(Exception):  # noqa: N818 - names a condition
    """The time is over.

    Attributes:
        start: all inputs below this one are right.
        right: how many others are known to be.
        wrong: the smallest input that is known to be wrong, or None.
    """

    def __init__(self, start: int, right: int = 0, wrong: int | None = None) -> None:
        super().__init__(start)
        self.start, self.right, self.wrong = start, right, wrong


@dataclass(frozen=True)
class Deadline:
    """A moment, on the clock that only goes forward."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the moment in so many seconds."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then, below 0 after it."""
        return self.at - time.monotonic()


class Blocks:
    """The inputs of a circuit in blocks, in ascending order of the smallest input of each."""

    def __init__(self, circuit: Circuit, output: int, leading: Sequence[int] = ()) -> None:
        """Choose the bits that inputs of a block share.

        Args:
            circuit: of up to 62 inputs.
            output: literal of the signal.
            leading: inputs that make the circuit simple once they are known; others join them, the highest first.
        """
        n = circuit.n_inputs
        # Each block costs a pass over all gates to cut them down, so at least FEWEST_FREE of its inputs stay free. At
        # most MOST_FREE do, because every shared input leaves fewer gates.
        chosen = [i for i in sorted(leading, reverse=True) if i < n][: max(n - FEWEST_FREE, 0)]
        others = [i for i in range(n - 1, -1, -1) if i not in chosen]
        chosen = sorted([*chosen, *others[: max(n - len(chosen) - MOST_FREE, 0)]])
        #: the input that each bit of a block and of the inside of one is, the lowest first
        self._order = [i for i in range(n) if i not in chosen] + chosen
        self._low, self._n = n - len(chosen), n
        self.count, self.inputs = 1 << len(chosen), 1 << n
        # variables in the new order: free inputs, shared inputs, gates as before
        number = np.zeros(1 + n + circuit.n_gates, np.int64)
        number[[1 + i for i in self._order]] = np.arange(1, 1 + n)
        number[1 + n :] = np.arange(1 + n, number.size)
        self._gates = np.ascontiguousarray(2 * number[circuit.gates >> 1] | circuit.gates & 1)
        self._output = 2 * int(number[output >> 1]) | output & 1
        self._block_s: float | None = None

    def seconds(self) -> float:
        """Return about how long all blocks take, by some of them."""
        if self._block_s is None:
            self._evaluate_blocks(np.zeros(1, np.int64))  # compiles, if need be
            sample = np.linspace(0, self.count - 1, min(_MEASURED, self.count)).astype(np.int64)
            began = time.perf_counter()
            self._evaluate_blocks(sample)
            self._block_s = (time.perf_counter() - began) / sample.size
        return self._block_s * self.count / min(thread_count(), self.count)

    def first(self, deadline: Deadline) -> int | None:
        """Return the smallest input for which the signal is 1, None if there is none.

        Raises:
            OutOfTime: the time was not enough.
        """
        self.seconds()
        assert self._block_s is not None
        # blocks of one call: about _REPORT_S of work, after which the deadline is looked at again
        step = min(max(int(_REPORT_S / max(self._block_s, 1e-9)), 1), _MOST_AT_ONCE)
        threads, best, start = thread_count(), None, 0
        with ThreadPoolExecutor(threads) as pool:
            # blocks come in the order of their smallest inputs: from one that begins beyond the best on, none can be
            # better
            while start < self.count and (best is None or self._number(start, 0) < best):
                if start and deadline.left_s < 0:
                    # shared bits need not be the highest, so finished blocks say nothing of all inputs below a number:
                    # start is 0
                    raise OutOfTime(0, start << self._low if best is None else 0, best)
                stop = min(start + step * threads, self.count)
                parts = [np.arange(at, min(at + step, stop), dtype=np.int64) for at in range(start, stop, step)]
                for part, firsts in zip(parts, pool.map(self._evaluate_blocks, parts), strict=True):
                    wrong = np.flatnonzero(firsts >= 0)
                    numbers = [self._number(int(part[i]), int(firsts[i])) for i in wrong]
                    best = min(numbers if best is None else [best, *numbers], default=None)
                start = stop
        return best

    def _number(self, block: int, inside: int) -> int:
        """Return an input by its block and its bits in the block."""
        bits = block << self._low | inside
        # from the order of blocks back to the circuit's own
        return sum((bits >> i & 1) << natural for i, natural in enumerate(self._order))

    def _evaluate_blocks(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bits of the first input of each block for which the signal is 1, or -1."""
        firsts = np.empty(blocks.size, np.int64)
        _first_of_blocks(self._gates, self._n, self._low, self._output, blocks, firsts, PATTERNS)
        return firsts


@kernel
def _cut_down(
    gates: Any,
    n_inputs: int,
    low: int,
    prefix: int,
    output: int,
    number: Any,
    left: Any,
    right: Any,
    slot: Any,
    last: Any,
) -> Any:
    """Fold the constants of a prefix into the gates; return how many are left, and the output's literal.

    Signals are kept in slots: 0 the constant, then inputs, then gates, each in one that no later gate reads.
    """
    # number[v]: literal of variable v after folding; inputs of the block stay, those of the prefix are constants
    number[0] = 0
    for i in range(n_inputs):
        number[1 + i] = 2 * (1 + i) if i < low else (prefix >> (i - low)) & 1
    count = 0
    for k in range(gates.shape[0]):
        x, y = gates[k, 0], gates[k, 1]
        x = number[x >> 1] ^ (x & 1)
        y = number[y >> 1] ^ (y & 1)
        if x == 0 or y == 0 or x == (y ^ 1):
            number[1 + n_inputs + k] = 0
        elif x == 1 or x == y:
            number[1 + n_inputs + k] = y
        elif y == 1:
            number[1 + n_inputs + k] = x
        else:
            left[count], right[count] = x, y
            number[1 + n_inputs + k] = 2 * (1 + low + count)
            count += 1
    result = number[output >> 1] ^ (output & 1)
    # From the output back: the gate that reads a signal last; -1 if none does.
    for k in range(1 + low + count):
        last[k] = -1
    # read behind the last gate, so its slot is never free again
    last[result >> 1] = count
    for k in range(count - 1, -1, -1):
        if last[1 + low + k] >= 0:
            for side in (left[k] >> 1, right[k] >> 1):
                if last[side] < 0:
                    last[side] = k
    # Forward: a slot is free again behind the gate that reads its signal last. `number` is now the stack of free slots.
    used, free = 1 + low, 0
    for k in range(1 + low):
        slot[k] = k
    for k in range(count):
        if last[1 + low + k] < 0:
            continue
        if free > 0:
            free -= 1
            slot[1 + low + k] = number[free]
        else:
            slot[1 + low + k] = used
            used += 1
        x, y = left[k] >> 1, right[k] >> 1
        # Freed only after the gate has its own slot: a gate never writes over what it reads. Inputs keep their slots.
        if x > low and last[x] == k:
            number[free] = slot[x]
            free += 1
        if y > low and y != x and last[y] == k:
            number[free] = slot[y]
            free += 1
    return count, result


@kernel
def _evaluate(values: Any, count: int, low: int, left: Any, right: Any, slot: Any, last: Any) -> None:
    """Compute all gates that are needed, one after the other."""
    ones = np.uint64(ALL_ONES)
    for k in range(count):
        if last[1 + low + k] < 0:
            continue
        x, y, z = slot[left[k] >> 1], slot[right[k] >> 1], slot[1 + low + k]
        turn_x = ones if left[k] & 1 else np.uint64(0)
        turn_y = ones if right[k] & 1 else np.uint64(0)
        for w in range(values.shape[1]):
            values[z, w] = (values[x, w] ^ turn_x) & (values[y, w] ^ turn_y)


@kernel
def _first_of_words(values: Any, at: int, inverted: int, low: int) -> int:
    """Return the first input for which a signal is 1, or -1."""
    ones = np.uint64(ALL_ONES)
    turned = ones if inverted else np.uint64(0)
    # Of fewer than six inputs, a word has each pattern more than once.
    valid = ones if low >= 6 else np.uint64((1 << (1 << low)) - 1)
    for w in range(values.shape[1]):
        word = (values[at, w] ^ turned) & valid
        if word != 0:
            bit = 0
            while (word >> np.uint64(bit)) & np.uint64(1) == 0:
                bit += 1
            return (w << 6) + bit
    return -1


@kernel
def _first_of_blocks(gates: Any, n_inputs: int, low: int, output: int, blocks: Any, firsts: Any, patterns: Any) -> None:
    """Note the bits of the first input of each block for which the output is 1, or -1."""
    size = 1 + n_inputs + gates.shape[0]
    number, slot, last = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    left, right = np.empty(size, np.int64), np.empty(size, np.int64)
    # inputs 0 to 5 differ within a word, the next ones from word to word, those from `inner` on from turn to turn
    inner = min(low, PASS_BITS)
    words = 1 << max(inner - 6, 0)
    values = np.zeros((size, words), np.uint64)
    ones = np.uint64(ALL_ONES)
    for w in range(words):
        for i in range(inner):
            if i < 6:
                values[1 + i, w] = patterns[i]
            else:
                values[1 + i, w] = ones if (w >> (i - 6)) & 1 else np.uint64(0)
    for at in range(blocks.size):
        count, result = _cut_down(gates, n_inputs, low, blocks[at], output, number, left, right, slot, last)
        firsts[at] = -1
        # the prefix alone makes the output 0
        if result == 0:
            continue
        for turn in range(1 << (low - inner)):
            for i in range(inner, low):
                word = ones if (turn >> (i - inner)) & 1 else np.uint64(0)
                for w in range(words):
                    values[1 + i, w] = word
            _evaluate(values, count, low, left, right, slot, last)
            first = _first_of_words(values, slot[result >> 1], result & 1, low)
            if first >= 0:
                # ascending turns and words, so the first hit is the smallest of the block
                firsts[at] = (turn << inner) + first
                break
