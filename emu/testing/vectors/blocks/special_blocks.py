"""Blocks that drawn numbers never make: zeros alone, NaN, infinities, subnormal and special values.

Each kind has one of every `TURN` blocks. If the operands' format lacks a kind, its block stays as it was drawn. To add
a kind, write a function and its line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emu.formats import Float, Format
from emu.testing.hard import Places
from emu.testing.vectors.blocks.cells import source_has_nan
from emu.testing.vectors.conventions import has_payloads
from emu.testing.vectors.description import Codes, Description
from emu.testing.vectors.evidence import special_codes
from emu.testing.vectors.steering import uniform

#: One of so many blocks is of each special kind, and a few have exponents at either end.
TURN = 32
#: Place in a turn of the first kind; `drawing.py` says what the places before it have.
FIRST = 4
#: Salts of the noise: which number of a block is marked; the digits that a drawn code has.
_PLACE, _BODY = 60, 61


@dataclass(frozen=True)
class Draw:
    """Noise of a set of blocks.

    Attributes:
        block: places of the blocks, (count, 1).
        number: places of their numbers, (count, together).
    """

    block: Places
    number: Places

    @classmethod
    def of(cls, seed: int, count: int, together: int) -> Draw:
        """Return the noise of so many blocks of a seed."""
        return cls(Places.of(seed, (count, 1)), Places.of(seed, (count, together)))

    @property
    def count(self) -> int:
        """How many blocks."""
        return self.block.shape[0]

    def choice(self, salt: int, n: int) -> NDArray[np.int64]:
        """Return an integer of 0..n-1 for each block, (count, 1)."""
        return (self.block.noise(salt) % np.uint64(n)).astype(np.int64)

    def each(self, salt: int, n: int) -> NDArray[np.int64]:
        """Return an integer of 0..n-1 for each number, (count, together)."""
        return (self.number.noise(salt) % np.uint64(n)).astype(np.int64)

    def part(self, salt: int) -> NDArray[np.float64]:
        """Return a number of 0..1, below 1, for each number, (count, together)."""
        return uniform(self.number, salt)


@dataclass(frozen=True, eq=False)
class SpecialDraw:
    """Blocks as they were drawn, of which some become special.

    Attributes:
        description: of the vectors.
        draw: noise of the blocks.
        codes: operands, (count, together).
        is_largest: which numbers have the largest magnitude of their block.
        top: largest magnitude of the tensor, or of the operands.
    """

    description: Description
    draw: Draw
    codes: Codes
    is_largest: NDArray[np.bool_]
    top: float

    @property
    def source(self) -> Format:
        """The operands' format."""
        return self.description.operand_formats[0]

    @property
    def marked(self) -> NDArray[np.bool_]:
        """One number of each block, (count, together)."""
        together = self.description.together
        return np.arange(together)[None, :] == self.draw.choice(_PLACE, together)

    @property
    def turn(self) -> NDArray[np.int64]:
        """The turn of each block, from 0 on, (count, 1)."""
        return np.arange(self.draw.count)[:, None] // TURN

    @property
    def has_tensor_number(self) -> bool:
        """Whether scales depend on the largest magnitude of all blocks."""
        blocks = self.description.blocks
        return blocks is not None and blocks.rule.outer is not None

    @property
    def ignores_nan(self) -> bool:
        """Whether the rule leaves NaN out when it looks for the largest magnitude of a block."""
        blocks = self.description.blocks
        return blocks is not None and blocks.ignores_nan

    def with_marked(self, code: Codes) -> Codes:
        """Return the blocks with their marked number replaced by a code."""
        return np.where(self.marked, code, self.codes)


def with_special_blocks(drawn: SpecialDraw) -> Codes:
    """Return blocks of which some are of each kind that the operands' format has, codes (count, together)."""
    codes, place = drawn.codes, np.arange(drawn.draw.count)[:, None] % TURN
    # a block of a turn takes one kind, by its place; the others stay as they were drawn
    for number, kind in enumerate(KINDS, FIRST):
        special = kind(drawn)
        if special is not None:
            codes = np.where(place == number, special, codes)
    return codes


def _zeros(drawn: SpecialDraw) -> Codes | None:
    return np.zeros_like(drawn.codes)


def _negative_zeros(drawn: SpecialDraw) -> Codes | None:
    source = drawn.source
    if not isinstance(source, Float) or not source.has_negative_zero:
        return None
    return np.full_like(drawn.codes, source.sign_code)


def _nan(drawn: SpecialDraw) -> Codes | None:
    """Return NaN in every place, those of every other turn signalling, with payloads that are drawn."""
    source = drawn.source
    # a NaN anywhere makes the number for the tensor NaN, and with it every scale, unless the rule ignores NaN
    if not (isinstance(source, Float) and source_has_nan(source)) or (
        drawn.has_tensor_number and not drawn.ignores_nan
    ):
        return None
    quiet = np.full(drawn.codes.shape, source.nan_code, np.uint64)
    if not has_payloads(source) or source.fraction_bits < 2:
        return quiet
    # signalling: the quiet bit, the first one of the fraction, stays 0; the last bit is 1, as a fraction of 0 is
    # infinity
    payload = drawn.draw.number.noise(_BODY) & np.uint64((1 << (source.fraction_bits - 1)) - 1) | np.uint64(1)
    return np.where(drawn.turn % 2 == 1, np.uint64(source.first_special_code) | payload, quiet)


def _nan_beside_numbers(drawn: SpecialDraw) -> Codes | None:
    nan = _nan(drawn)
    return None if nan is None else drawn.with_marked(nan)


def _infinity(drawn: SpecialDraw, sign: int = 0) -> Codes | None:
    source = drawn.source
    # as with NaN: one infinity would be the largest magnitude of the whole tensor
    if not isinstance(source, Float) or source.infinity_code is None or drawn.has_tensor_number:
        return None
    return drawn.with_marked(np.full_like(drawn.codes, source.infinity_code | sign))


def _negative_infinity(drawn: SpecialDraw) -> Codes | None:
    source = drawn.source
    return _infinity(drawn, source.sign_code) if isinstance(source, Float) and source.signed else None


def _subnormal(drawn: SpecialDraw) -> Codes | None:
    source = drawn.source
    if not isinstance(source, Float) or not (source.has_subnormal_codes and source.has_normals):
        return None
    fraction = np.uint64((1 << source.fraction_bits) - 1)
    # an exponent field of 0 under the sign that was drawn; where the fraction is drawn as 0 this is a zero
    sign = np.uint64(source.sign_code if source.signed else 0)
    return drawn.codes & sign | (drawn.draw.number.noise(_BODY) & fraction)


def _subnormal_beside_numbers(drawn: SpecialDraw) -> Codes | None:
    small = _subnormal(drawn)
    # the largest number stays, so that the scale of the block stays
    return None if small is None else np.where(drawn.marked & ~drawn.is_largest, small, drawn.codes)


def _special_values(drawn: SpecialDraw, *, finite: bool = True) -> Codes | None:
    """Return blocks of finite special values side by side; else drawn blocks with a single infinity or NaN."""
    names = special_codes(drawn.source)
    values = np.abs(drawn.source.decode(np.array(list(names.values()), np.uint64)).astype(np.float64))
    kept = np.isfinite(values) == finite
    # larger values would become the largest magnitude of the tensor, and change the scales of all other blocks
    if drawn.has_tensor_number:
        kept &= (values <= drawn.top) | (np.isnan(values) & drawn.ignores_nan)
    table = np.array([code for code, is_kept in zip(names.values(), kept, strict=True) if is_kept], np.uint64)
    if not table.size:
        return None
    if not finite:
        return drawn.with_marked(table[drawn.turn % table.size])
    # each turn goes on in the table behind the values of the turn before, so that all of them get their place
    together = drawn.description.together
    return table[(np.arange(together)[None, :] + drawn.turn * together) % table.size]


def _values_that_are_no_numbers(drawn: SpecialDraw) -> Codes | None:
    return _special_values(drawn, finite=False)


#: The kinds, one a block of each turn.
KINDS: tuple[Callable[[SpecialDraw], Codes | None], ...] = (
    _zeros,
    _negative_zeros,
    _nan_beside_numbers,
    _nan,
    _infinity,
    _negative_infinity,
    _subnormal,
    _subnormal_beside_numbers,
    _special_values,
    _values_that_are_no_numbers,
)
