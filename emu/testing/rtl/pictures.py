"""Vectors in messages: the operands of one of them, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.testing.bits import describe_code
from emu.testing.rtl.arrays import Operands
from emu.testing.rtl.bench import MANNERS, Bench
from emu.testing.rtl.simulation import Answers, Run

#: Terms of a sum that are shown.
MOST_TERMS = 8


def operands_shown(bench: Bench, operands: Operands, index: int) -> Iterator[str]:
    """Yield a line for each operand of a vector."""
    for (name, port), codes in zip(bench.ins.items(), operands.codes, strict=True):
        terms = np.atleast_1d(codes[index])
        for k, code in enumerate(terms[:MOST_TERMS]):
            label = f"{name}[{k}]" if terms.size > 1 else name
            yield f"  {label:<12} {describe_code(port.format, int(code))}"
        if terms.size > MOST_TERMS:
            yield f"  ... {terms.size - MOST_TERMS} more terms"
    if operands.rbits is not None:
        yield f"  {'random bits':<12} 0x{int(operands.rbits[index]):x}"


def fault_of(bench: Bench, operands: Operands, answers: Answers, how: Run) -> tuple[int, str] | None:
    """Return the first vector without exactly one driven answer, and a message; None if each vector has its answer."""
    driven, lines = f"driven {MANNERS[how.manner]}", list[str]()
    if answers.stuck is not None:
        index, cycles, what = answers.stuck
        lines.append(
            f"{bench.top} must answer every vector, got none to vector {index} within {cycles} cycles, {driven}:"
        )
        lines.append(f"  waiting for {what}")
        lines.append("if it takes longer, give `bound_cycles`")
    elif answers.unknown:
        index = min(answers.unknown)
        count = f"{len(answers.unknown)} of {answers.count}"
        lines.append(
            f"{bench.top} must drive every bit of its results, got x or z in {count}, {driven}, the first "
            f"in vector {index}:"
        )
        # the words of a line of the dump: one for each result, one for all flags
        names = [*bench.outs, *(["flags"] if bench.flags else [])]
        words = zip(names, answers.unknown[index].split(), strict=True)
        lines += [f"  {name:<12} {word}" for name, word in words]
    elif answers.extra[0]:
        count, index = answers.extra
        where = f"after vector {index}" if index >= 0 else "before the first one"
        lines.append(f"{bench.top} must give one result for each vector, got {count} too many {where}, {driven}:")
    else:
        return None
    # behind the headline, before what is wrong
    lines[1:1] = operands_shown(bench, operands, min(max(index, 0), operands.count - 1))
    return max(index, 0), "\n".join(lines)
