"""The cells of what units do otherwise: stages before the output stage, and operands that are chosen."""

from __future__ import annotations

from collections.abc import Iterator

from emu.backends.reference.exact import NAN
from emu.testing.vectors.cell import Cell
from emu.testing.vectors.definition import answer, stages_overflow
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.selection import SELECTIONS
from emu.testing.vectors.steps import Mask


def convention_cells(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of stages and of choices, none of an operation without."""
    yield from _stages(e)
    yield from _choices(e)


def _stages(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of stages before the output stage: they change a result, by rounding or beyond their range."""
    if e.description.stages:
        v, alone = e.vectors, e.description.unstaged
        differs = answer(alone, v.operands, v.rbits).codes != answer(e.description, v.operands, v.rbits).codes
        beyond = stages_overflow(e.description, e.unstaged)
        yield Cell("a stage before the output stage overflows", beyond)
        yield Cell("a stage before the output stage changes the result, within its range", differs & ~beyond)


def _choices(e: Evidence) -> Iterator[Cell]:
    """Yield the cells of a minimum or maximum: which operand it is, by their signs."""
    if e.description.operation in SELECTIONS:
        (a, b), codes = e.parts, e.vectors.operands
        # kinds from NAN on are no numbers
        numbers = (a.kind < NAN) & (b.kind < NAN) & (codes[0] != codes[1])
        same = a.negative == b.negative
        # of one sign, the operand is known by its size; else by its sign
        value = (e.exact.significand == a.significand) & (e.exact.exponent == a.exponent) & (e.exact.kind == a.kind)
        by_size: Mask = value.astype(bool)
        first = numbers & ((same & by_size) | (~same & (e.exact.negative == a.negative)))
        for signs, mask in (("signs that differ", ~same), ("one sign", same)):
            yield Cell(f"operand a of {signs}", first & mask)
            yield Cell(f"operand b of {signs}", numbers & ~first & mask)
