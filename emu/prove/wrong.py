"""A wrong input in words: the picture of `emu check`, and what would have caused it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from emu.testing.bits import describe_code
from emu.testing.vectors import Vectors
from emu.testing.vectors.check import Finding, compare
from emu.testing.vectors.description import NAMES, TESTFLOAT_FLAGS, Codes


@dataclass(frozen=True)
class Given:
    """What a unit gives: codes and flags, (count,) each."""

    codes: Codes
    flags: Codes


@dataclass(frozen=True)
class Wrong:
    """A wrong input.

    Attributes:
        vectors: the input with the definition's answer, one vector.
        given: what the unit gives for it, code and flags.
        flags: which flags the unit has, a bit for each of `TESTFLOAT_FLAGS`.
        is_smallest: whether no smaller input is wrong.
        differing: how many inputs are wrong, None if that is not known.
    """

    vectors: Vectors
    given: Given
    flags: int
    is_smallest: bool
    differing: int | None


@dataclass(frozen=True)
class Others:
    """Golden vectors of the same operation, and what the unit gives for them."""

    vectors: Vectors
    given: Given


def differing(vectors: Vectors, given: Given, mask: int) -> NDArray[np.bool_]:
    """Return where a unit's results differ, or those of its flags that the mask names, (count,)."""
    return (given.codes != vectors.results) | ((given.flags ^ vectors.flags) & np.uint64(mask) != 0)


def explained(wrong: Wrong, others: Others | None, inputs: str, cause: str | None = None) -> Finding:
    """Return the picture of a wrong input, and causes that explain it and all golden vectors that are wrong, too.

    Args:
        wrong: the input.
        others: golden vectors.
        inputs: how many inputs there are, in words.
        cause: the cause, if it is known.
    """
    alone = _compared(wrong.vectors, wrong.given, wrong.flags)
    assert alone is not None, "the input is right"
    which = "the smallest wrong input" if wrong.is_smallest else "a wrong input, perhaps not the smallest,"
    head = f"differs: {which} of {inputs}"
    if wrong.differing is not None:
        head += f"; {wrong.differing:,} are wrong"
    lines, causes = [f"{head}:", *_picture(wrong, alone)], alone.causes if cause is None else (cause,)
    if others is not None:
        # one comparison of the input and the golden vectors: a cause must explain all of their differences
        both = _joined(wrong.vectors, others.vectors)
        codes = np.concatenate([wrong.given.codes, others.given.codes])
        flags = np.concatenate([wrong.given.flags, others.given.flags])
        whole = _compared(both, Given(codes, flags), wrong.flags)
        assert whole is not None
        # those of the single input alone are dropped: what it cannot tell apart, the golden vectors may
        causes = whole.causes
        n_wrong = differing(others.vectors, others.given, wrong.flags).sum()
        lines.append(f"{n_wrong:,} of {others.vectors.results.size:,} golden vectors are wrong, too")
    lines += [f"{'looks' if i == 0 else '   or'} like {cause}" for i, cause in enumerate(causes)]
    if not causes:
        lines.append("looks like no single other rule, reading of operands or habit of hardware that is known here")
    return Finding(1, 1, 0, tuple(lines), tuple(causes))


def _compared(vectors: Vectors, given: Given, mask: int) -> Finding | None:
    """Compare results, and the flags that the unit has."""
    if not mask:
        return compare(vectors, given.codes)
    kept = np.uint64(mask)
    # flags that the unit lacks count as right
    return compare(vectors, given.codes, (given.flags & kept) | (vectors.flags & ~kept))


def _picture(wrong: Wrong, alone: Finding) -> Iterator[str]:
    """Yield operands, the exact result, what is expected and what is given."""
    # of the finding's text only the picture, which is indented: headline and causes are said here
    lines = list(takewhile(lambda line: not line.startswith("looks like"), alone.lines[1:]))
    lines = [line for line in lines if line.startswith("  ")]
    d, kept = wrong.vectors.description, np.uint64(wrong.flags)
    if alone.index is None:  # only flags differ, which are compared without operands
        named = zip(NAMES, d.operand_formats, wrong.vectors.operands, strict=False)
        yield from (f"  {name:<10}{describe_code(fmt, int(codes[0]))}" for name, fmt, codes in named)
        if wrong.vectors.rbits is not None:
            yield f"  {'random':<10}0x{int(wrong.vectors.rbits[0]):x} of {d.n_rbits} bits"
        yield f"  {'result':<10}{describe_code(d.stage.format, int(wrong.given.codes[0]))}, which is right"
        yield f"  {'expected':<10}{flags_in_words(int(wrong.vectors.flags[0] & kept))}"
        yield f"  {'given':<10}{flags_in_words(int(wrong.given.flags[0] & kept))}"
        return
    yield from lines
    if ((wrong.given.flags ^ wrong.vectors.flags) & kept).any():
        yield f"  {'and gives':<10}{flags_in_words(int(wrong.given.flags[0] & kept))}"


def flags_in_words(bits: int) -> str:
    """Return the names of flags.

    Examples:
        >>> flags_in_words(3), flags_in_words(0)
        ('inexact, underflow', 'no flags')
    """
    return ", ".join(name for bit, name in enumerate(TESTFLOAT_FLAGS) if bits >> bit & 1) or "no flags"


def _joined(first: Vectors, rest: Vectors) -> Vectors:
    d = first.description.model_copy(update={"count": 1 + int(rest.results.size)})
    operands = tuple(np.concatenate(pair) for pair in zip(first.operands, rest.operands, strict=True))
    rbits = None if first.rbits is None or rest.rbits is None else np.concatenate([first.rbits, rest.rbits])
    return Vectors(
        d,
        operands,
        rbits,
        np.concatenate([first.results, rest.results]),
        np.concatenate([first.flags, rest.flags]),
    )
