"""What a proof ended with, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Answer(StrEnum):
    """What is known of a unit."""

    #: no input is wrong
    PROVED = "proved"
    #: at least one is
    DIFFERS = "differs"
    #: neither was found out in time
    NOT_PROVED = "not proved"


@dataclass(frozen=True)
class Outcome:
    """What a proof ended with.

    Attributes:
        answer: what is known.
        n_bits: bits of all operands, and of random bits.
        lines: it in words, line by line.
        operands: codes of the smallest wrong input that is known, random bits last, or none.
        is_smallest: whether no smaller input is wrong.
        causes: what would have given the differing codes, the likeliest first.
        how: how it was found out.
        seconds: how long it took.
    """

    answer: Answer
    n_bits: int
    lines: tuple[str, ...]
    operands: tuple[int, ...] = ()
    is_smallest: bool = False
    causes: Sequence[str] = ()
    how: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return "\n".join(self.lines)


def inputs_in_words(n_bits: int) -> str:
    """Return the number of inputs of so many bits.

    Examples:
        >>> inputs_in_words(20), inputs_in_words(64)
        ('1,048,576', '2**64')
    """
    return f"{1 << n_bits:,}" if n_bits <= 40 else f"2**{n_bits}"
