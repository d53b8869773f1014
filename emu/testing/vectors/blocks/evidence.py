"""What is known of vectors of blocks: of each element how it was rounded, and of its block the numbers and the scale.

Codes of a dump with its scales are one array: elements, then the scales of the blocks. So a fault of scales is one
hypothesis, which explains the scales that it changes and the elements that it changes with them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from emu.backends.reference.exact import Exact
from emu.backends.reference.scaled import Scales
from emu.formats import Format, Scaled
from emu.formats.scaled import Tiling
from emu.testing.vectors.blocks.quotients import (
    block_scales,
    codes_of_scales,
    exact_quotients,
    numbers_of,
    with_stored,
)
from emu.testing.vectors.definition import written
from emu.testing.vectors.description import Codes, Vectors
from emu.testing.vectors.evidence import Array, Evidence, special_codes
from emu.testing.vectors.steps import Mask


class BlockEvidence(Evidence):
    """Facts about vectors of blocks.

    Args:
        vectors: operands, elements and scales.
        stored: codes of other scales, (blocks,), by which the elements are judged; None: those of the rule.

    Attributes:
        blocks: format of the results.
    """

    def __init__(self, vectors: Vectors, stored: Codes | None = None) -> None:
        super().__init__(vectors)
        blocks = self.description.blocks
        assert blocks is not None
        self.blocks: Scaled = blocks
        self._stored = stored
        self.together = self.description.together

    @cached_property
    def numbers(self) -> Array:
        """The operands as the rule reads them, (count,)."""
        return self.numbers_for(self.blocks)

    def numbers_for(self, blocks: Scaled) -> Array:
        """Return the operands as the rule of a format reads them, (count,)."""
        source = self.description.operand_formats[0]
        return numbers_of(blocks, source, source.decode(self.vectors.operands[0]))

    @cached_property
    def scales(self) -> Scales:
        """The scales by which numbers are divided."""
        scales = block_scales(self.blocks, self.numbers)
        # the outer levels stay those of the rule
        return scales if self._stored is None else self.with_codes(scales, self._stored)

    @property
    def lost(self) -> Mask:
        """Which blocks have a scale that is NaN, (blocks,)."""
        return self.scales.lost.reshape(-1)

    @cached_property
    def largest(self) -> Array:
        """The largest magnitude of each block that is no NaN, (blocks,)."""
        magnitudes = np.abs(self.numbers).reshape(-1, self.together)
        # infinities count; a block of NaN alone has 0
        return np.where(np.isnan(magnitudes), 0, magnitudes).max(axis=1)

    @cached_property
    @override
    def _computed(self) -> Exact:
        return exact_quotients(self.blocks, self.numbers, self.scales)

    @property
    @override
    def expected(self) -> Codes:
        return self.joined(self.results)

    @override
    def joined(self, codes: Codes) -> Codes:
        # codes of elements get the right scales behind them; codes that have scales already stay
        is_whole = codes.size != self.results.size
        return codes if is_whole else np.concatenate([codes, self.vectors.scales[0]])

    @override
    def answered(
        self,
        *,
        operands: tuple[Codes, ...] | None = None,
        formats: tuple[Format, ...] | None = None,
        **changes: Any,
    ) -> Codes:
        codes = super().answered(operands=operands, formats=formats, **changes)
        # only other operands, or operands read otherwise, change scales
        if operands is None and formats is None:
            return codes
        source = (formats or self.description.operand_formats)[0]
        numbers = numbers_of(self.blocks, source, source.decode((operands or self.vectors.operands)[0]))
        return np.concatenate([codes, codes_of_scales(self.blocks, block_scales(self.blocks, numbers))[0]])

    @cached_property
    @override
    def invalids(self) -> dict[str, Mask]:
        return super().invalids if self.blocks.ignores_nan else {}

    @cached_property
    @override
    def infinities(self) -> dict[str, Mask]:
        return super().infinities if self.blocks.ignores_nan and self.blocks.rule.outer is None else {}

    @override
    def special_codes(self) -> list[dict[str, int]]:
        """Return those special values that can be in a tensor whose largest magnitude is that of these vectors."""
        source = self.description.operand_formats[0]
        names = special_codes(source)
        if self.blocks.rule.outer is None:
            return [names]
        values = source.decode(np.array(list(names.values()), np.uint64)).astype(np.float64)
        # a larger one would change the number for the tensor, and with it every scale; NaN compares false and is left
        # out
        inside = np.abs(values) <= float(self.largest.max(initial=0))
        return [{name: code for (name, code), is_inside in zip(names.items(), inside, strict=True) if is_inside}]

    def with_codes(self, scales: Scales, stored: Codes) -> Scales:
        """Return scales of which the finest have other codes."""
        return with_stored(self.blocks, scales, self.blocks.levels[0].scale.decode(stored))

    def elements_by(self, scales: Scales, *, blocks: Scaled | None = None, numbers: Array | None = None) -> Codes:
        """Return the codes of elements by scales, (count,).

        Args:
            scales: of each block.
            blocks: a format whose rule divides otherwise; None is the results'.
            numbers: that are divided; None: those of the vectors.
        """
        exact = exact_quotients(blocks or self.blocks, self.numbers if numbers is None else numbers, scales)
        return written(self.description, exact, self.vectors.rbits).codes

    def written_by(self, scales: Scales, *, blocks: Scaled | None = None, numbers: Array | None = None) -> Codes:
        """Return the codes of elements by scales, and of these scales, as `elements_by`."""
        elements = self.elements_by(scales, blocks=blocks, numbers=numbers)
        return np.concatenate([elements, codes_of_scales(blocks or self.blocks, scales)[0]])

    def scales_of_single(self, magnitudes: Array) -> Array:
        """Return the scale that each number would have if it were the largest of a block, in this tensor.

        Args:
            magnitudes: finite, (n,), none above the largest one of the tensor.
        """
        with np.errstate(over="ignore"):  # the neighbour of the largest binary64 that binary32 has
            numbers = magnitudes.astype(self.numbers.dtype)
        return scales_of_single(self.blocks, numbers, float(self.largest.max(initial=0)))


def evidence_of(vectors: Vectors) -> Evidence:
    """Return the facts about vectors of any kind."""
    return Evidence(vectors) if vectors.description.blocks is None else BlockEvidence(vectors)


def scales_of_single(fmt: Scaled, magnitudes: Array, top: float) -> Array:
    """Return the scale that each of some numbers has as the largest one of a block, (n,).

    Args:
        fmt: a format of blocks.
        magnitudes: as its rule reads them, finite, (n,).
        top: largest magnitude of the tensor, which decides where there is a number for the tensor.
    """
    return single_blocks(fmt, magnitudes, top).stored[0].reshape(-1)[: magnitudes.size]


def single_blocks(fmt: Scaled, magnitudes: Array, top: float) -> Scales:
    """Return the scales of blocks of one number each, and behind them of one with the tensor's largest magnitude."""
    # tiles of 1 by 1: each number is a block; the last one keeps the tensor's largest magnitude as it is
    each = replace(fmt, levels=(replace(fmt.levels[0], tiling=Tiling(1, 1)), *fmt.levels[1:]))
    return block_scales(each, np.append(magnitudes, magnitudes.dtype.type(top)))
