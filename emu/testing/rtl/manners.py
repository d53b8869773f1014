"""One unit driven in three manners, whose results must not differ: held operands, back to back, with random stalls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from emu.testing.bits import describe_code
from emu.testing.rtl.arrays import Operands
from emu.testing.rtl.bench import BACK_TO_BACK, HELD, MANNERS, STALLS, Bench
from emu.testing.rtl.pictures import operands_shown
from emu.testing.rtl.simulation import Answers
from emu.testing.vectors.description import Codes


@dataclass(frozen=True)
class Difference:
    """Results that depend on how a unit is driven.

    Attributes:
        manner: "back to back" or "with stalls".
        index: first vector whose answer is another one than with held operands.
        count: how many differ.
        lines: the explanation, line by line.
    """

    manner: str
    index: int
    count: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def difference(bench: Bench, operands: Operands, run: Callable[[int], Answers]) -> Difference | None:
    """Return the first difference between manners; None if there is none.

    A vector to which the unit gives no answer even if it is held tells nothing here; those before it are compared.

    Args:
        bench: of the unit.
        operands: that it is driven with.
        run: returns the answers in a manner.
    """
    # a unit without a clock is run too: errors of its sources come up here
    steady = run(HELD)
    if bench.clock is None:
        return None
    for manner in (BACK_TO_BACK, STALLS):
        if (seen := between(bench, operands, (HELD, steady), (manner, run(manner)))) is not None:
            return seen
    return None


def between(
    bench: Bench, operands: Operands, first: tuple[int, Answers], second: tuple[int, Answers]
) -> Difference | None:
    """Return the difference between the answers in two manners; None if there is none.

    Args:
        bench: of the unit.
        operands: that it was driven with.
        first: a manner, and its answers.
        second: another one.
    """
    (usual, steady), (manner, other) = first, second
    # a stuck run has fewer answers: those that both have are compared
    count = min(steady.count, other.count)
    differs = np.zeros(count, bool)
    for ours, theirs in zip(steady.results, other.results, strict=True):
        differs |= ours[:count] != theirs[:count]
    if steady.flags is not None and other.flags is not None:
        differs |= steady.flags[:count] != other.flags[:count]
    for index in steady.unknown.keys() | other.unknown.keys():
        # codes of unknown bits are 0 in both, so the texts decide
        if index < count:
            differs[index] = steady.unknown.get(index) != other.unknown.get(index)
    lost = steady.stuck is None and other.stuck is not None
    spare = other.extra[0] and not steady.extra[0]
    if not (differs.any() or lost or spare):
        return None
    indices = np.flatnonzero(differs)
    # without a differing result: the vector that got none, or the one before a result too many, which may be -1
    index = int(indices[0]) if indices.size else other.stuck[0] if lost and other.stuck else other.extra[1]
    index = max(index, 0)
    words, usually = MANNERS[manner], MANNERS[usual]
    head = f"results of {bench.top} must not depend on how it is driven, got others {words} than {usually}"
    if indices.size:
        head += f" in {indices.size} of {count} vectors, the first is vector {index}:"
    else:
        head += f", at vector {index}:"
    lines = [head, *operands_shown(bench, operands, min(index, operands.count - 1))]
    if indices.size:
        lines += _shown(bench, usually, steady, index) + _shown(bench, words, other, index)
    lines += _hints(bench, steady, other, index if indices.size else None)
    return Difference(words, index, int(indices.size), tuple(lines))


def _shown(bench: Bench, label: str, answers: Answers, index: int) -> list[str]:
    if index in answers.unknown:
        return [f"  {label:<12} {answers.unknown[index]}, x is undriven"]
    lines = [
        f"  {label:<12} {describe_code(out.format, int(codes[index]))}"
        for out, codes in zip(bench.outs.values(), answers.results, strict=True)
    ]
    return lines + ([f"  {'flags':<12} 0x{int(answers.flags[index]):02x}"] if answers.flags is not None else [])


def _hints(bench: Bench, steady: Answers, other: Answers, index: int | None) -> list[str]:
    """Return what the difference looks like."""
    row = bench.handshake
    # the results from `index` on are those of the next vectors (lost), or those of the vectors before (twice)
    lost = index is not None and _continues(steady.results[0], other.results[0], index, 1)
    twice = index is not None and _continues(steady.results[0], other.results[0], index, -1)
    if lost or (other.stuck is not None and steady.stuck is None):
        missing = "a result was lost" if index is None else f"the result of vector {index} was lost"
        return [f"{missing}; later ones are one place early" if lost else missing, *_stuck(other)]
    if twice or other.extra[0]:
        return ["a result came twice" if index is None else f"the result of vector {index - 1} came twice"]
    if row.offer is None:
        return [
            "without a handshake operands change in every cycle: a unit that needs them for longer, or takes a varying "
            "number of cycles, must say so by signals"
        ]
    if not row.holds and not row.overlaps:
        return ["operands change once they are taken; if they must stay until the result is there, give holds=True"]
    return []


def _stuck(answers: Answers) -> list[str]:
    if answers.stuck is None:
        return []
    index, cycles, what = answers.stuck
    return [f"no answer to vector {index} within {cycles} cycles: waiting for {what}"]


def _continues(steady: Codes, other: Codes, index: int, shift: int) -> bool:
    """Return whether results from `index` on are those of the vectors `shift` places on."""
    ours = steady[index + shift :] if index + shift >= 0 else steady[:0]
    # up to four results in a row; a single one may agree by chance
    size = min(len(ours), len(other) - index, 4)
    return size > 1 and np.array_equal(ours[:size], other[index : index + size])
