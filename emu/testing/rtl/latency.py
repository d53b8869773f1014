"""The latency of a unit without a handshake for results: operands are held, and outputs watched in every cycle.

operands  x0  x0  x0  x0  x0 ...
output    ??  ??  y0  y0  y0 ...      it changes for the last time in cycle 2: the latency is 2
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from emu.errors import RtlError
from emu.testing.rtl.bench import Bench
from emu.testing.rtl.simulation import Answers

#: Cycles for which operands are held and outputs watched, few at first, more if they do not settle; how many
#: vectors of them.
WINDOWS, VECTORS = (48, 400, 2000), 24


def watched_latency(bench: Bench, watch: Callable[[int], Answers]) -> int:
    """Return cycles from operands to results.

    Args:
        bench: of the unit.
        watch: returns the outputs of `window + 1` cycles for each of `VECTORS` vectors.

    Raises:
        RtlError: the output never changes, or does not settle.
    """
    for window in WINDOWS:
        settled = _settled(watch(window), window)
        # half of the window without a change shows that the outputs have settled; else a longer one is watched
        if settled.max() <= window // 2:
            break
    else:
        raise RtlError(
            f"results of {bench.top} must settle while its operands are held, got changes after {WINDOWS[-1] // 2} "
            "cycles; give `latency`, or the handshake that it has"
        )
    changes = settled[1:]  # the first vector follows the reset
    # outputs that never change in a window may still differ between vectors: then the latency is 0
    if not (changes > 0).any() and not _moves(watch(WINDOWS[0]), WINDOWS[0]):
        raise RtlError(
            f"results of {bench.top} must depend on its operands, got the same for {VECTORS}; check the "
            "ports, clock and reset"
        )
    return int(settled.max())


def _words(answers: Answers, window: int) -> NDArray[np.uint64]:
    """Return outputs by vector, cycle and column; an x or z is a word of its own."""
    columns = [*answers.results, *([answers.flags] if answers.flags is not None else [])]
    unknown = np.zeros(answers.count, np.uint64)
    for index, text in answers.unknown.items():
        # only compared within this process; 0 is left for lines without x
        unknown[index] = 1 + hash(text) % (1 << 62)
    words = np.stack([*columns, unknown], axis=-1)
    # a vector without all of its cycles is left out
    return words[: words.shape[0] // (window + 1) * (window + 1)].reshape(-1, window + 1, len(columns) + 1)


def _settled(answers: Answers, window: int) -> NDArray[np.int64]:
    """Return the cycle of each vector from which on its outputs stay."""
    words = _words(answers, window)
    # compared with the last cycle: a glitch counts as a change even if outputs had their final word before it
    changed = (words != words[:, -1:]).any(axis=2)
    # argmax of the reversed cycles is the distance of the last change from the end; the outputs stay from the cycle
    # after it
    return np.where(changed.any(axis=1), window + 1 - np.argmax(changed[:, ::-1], axis=1), 0)


def _moves(answers: Answers, window: int) -> bool:
    ends = _words(answers, window)[:, -1]
    return bool((ends != ends[0]).any())
