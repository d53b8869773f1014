"""The step that a magnitude takes from its neighbour toward zero, by the table of `emu.datapath.rounding`."""

from __future__ import annotations

from dataclasses import dataclass

from emu.datapath import OutputStage
from emu.datapath.rounding import Steps, is_two_s_complement
from emu.prove.reference.text import Bits, Module, constant, widened


@dataclass(frozen=True)
class Dropped:
    """What lies behind the last place.

    Attributes:
        first: the bits that decide, the highest first: `looked_at` of them.
        sticky: whether any bit behind these is 1.
        negative: the sign.
        odd: last bit of the code that is kept.
    """

    first: Bits
    sticky: Bits
    negative: Bits
    odd: Bits


@dataclass(frozen=True)
class Step:
    """Whether a magnitude moves, away from zero or toward it, and whether the result is inexact."""

    up: Bits
    down: Bits
    inexact: Bits


def looked_at(stage: OutputStage) -> int:
    """Return how many bits behind the last place decide."""
    return stage.rounding.meaning.looked_at_bits(stage.n_rbits)


def step_of(m: Module, dropped: Dropped, stage: OutputStage, random: Bits | None) -> Step:
    """Return the step of a magnitude."""
    steps = stage.rounding.meaning.steps_of(stage.format)
    # whether anything was dropped at all
    remainder = m.bit("remainder", f"(|{dropped.first}) | {dropped.sticky}")
    if not stage.rounding.draws:
        up, down = _by_table(m, steps, dropped.negative, dropped.odd, dropped.first.name, dropped.sticky.name)
        # a mode that moves exact results makes them inexact, too
        return Step(up, down, m.bit("inexact", f"{remainder} | {up} | {down}"))
    assert random is not None
    up = _drawn(m, dropped, stage, steps, random)
    return Step(up, m.bit("down", "1'b0"), remainder)


def _by_table(m: Module, steps: Steps, negative: Bits, odd: Bits, half: str, behind: str) -> tuple[Bits, Bits]:
    # The place is 0 exact, 1 below half a step, 2 half, 3 above: its bits are the half and whether anything follows.
    which = m.wire("which", 4, f"{{{negative}, {odd}, {half}, {behind}}}")
    up, down = (
        # a table of 16 entries as a constant: bit `which` of it is the step's
        m.bit(name, f"({constant(sum(1 << i for i, s in enumerate(steps.table) if s == sign), 16)} >> {which}) & 16'h1")
        for name, sign in (("up", 1), ("down", -1))
    )
    return up, down


def _drawn(m: Module, dropped: Dropped, stage: OutputStage, steps: Steps, random: Bits) -> Bits:
    """Return whether random bits u and the first r dropped bits f, rounded, carry: f + u >= 2**r.

    A negative number in two's complement moves if u < f: there f and u are subtracted.
    """
    # first the dropped bits are rounded to r bits by the mode's own table, then the random bits are added
    r, all_bits = stage.n_rbits, dropped.first
    kept = m.wire("kept", r, all_bits.slice(all_bits.width - 1, all_bits.width - r))
    half = all_bits[0] if all_bits.width > r else "1'b0"  # without it, only whether anything follows matters
    up, _ = _by_table(m, steps, dropped.negative, m.bit("kept_odd", kept[0]), half, dropped.sticky.name)
    first = m.wire("first", r + 1, f"{widened(kept, r + 1)} + {{{r}'b0, {up}}}")
    # `first` is at most 2**r, the random bits are below it
    carry = m.wire("carry", r + 2, f"{widened(first, r + 2)} + {widened(random, r + 2)}")
    moves = f"{carry} >= {constant(1 << r, r + 2)}"
    if not is_two_s_complement(stage.format):
        return m.bit("drawn", moves)
    return m.bit("drawn", f"{dropped.negative} ? {widened(random, r + 1)} < {first} : {moves}")
