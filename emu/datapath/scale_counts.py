"""Counts of blocks that share scales: how many clip, vanish, or have a scale at a limit."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass
class ScaleCounts:
    """Counts of what quantizing into a scaled format did to blocks. They add up until `reset`.

    Attributes:
        blocks: blocks, those of the finest level.
        elements: their elements.
        clipped: elements beyond the largest one.
        clipped_largest: blocks whose largest number is beyond the largest element; under stochastic rounding such whose
            largest number, divided, lies above it.
        vanished: elements that are 0 of numbers that are not.
        zero_blocks: blocks whose numbers are all 0.
        at_limit: blocks that are not all 0, with the largest or the smallest scale that the scale format has.
        nan_scales: blocks whose scale is NaN.
        exponents: exponent of a scale's leading bit -> blocks with such a scale; scales that are 0 have none.

    Examples:
        >>> import emu
        >>> counts = emu.ScaleCounts()
        >>> _ = emu.quantize([[480.0, 1e-6, 1.0, 0.0]], "block(fp8_e4m3, fp8_e8m0 1x2 floor)", counts=counts)
        >>> counts.blocks, counts.clipped, counts.vanished, counts.exponents
        (2, 1, 1, {-8: 1, 0: 1})

    Source: docs/concepts/scaled.md, "Counts".
    """

    blocks: int = 0
    elements: int = 0
    clipped: int = 0
    clipped_largest: int = 0
    vanished: int = 0
    zero_blocks: int = 0
    at_limit: int = 0
    nan_scales: int = 0
    exponents: dict[int, int] = field(default_factory=dict)

    def add(self, other: ScaleCounts) -> None:
        """Add the counts of another one."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        merged = dict(self.exponents)
        for exponent, count in other.exponents.items():
            merged[exponent] = merged.get(exponent, 0) + count
        self.exponents = dict(sorted(merged.items()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `from_dict` reads back."""
        # pairs, since JSON would make texts of a dictionary's integer keys
        return {name: getattr(self, name) for name in _NUMBERS} | {"exponents": sorted(self.exponents.items())}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ScaleCounts:
        """Return the counts that `to_dict` wrote."""
        return cls(**{name: data[name] for name in _NUMBERS}, exponents=dict(data["exponents"]))

    def reset(self) -> None:
        """Set all counts to 0."""
        for name in _NUMBERS:
            setattr(self, name, 0)
        # a new dictionary: who has the old one keeps its counts
        self.exponents = {}

    def __str__(self) -> str:
        shares = [
            f"{self.clipped} of {self.elements} elements clipped",
            f"{self.vanished} vanished",
            f"{self.clipped_largest} of {self.blocks} blocks clip their largest number",
            f"{self.at_limit} have a scale at a limit",
            f"{self.zero_blocks} are 0",
            f"{self.nan_scales} are NaN",
        ]
        return "; ".join(shares)


_NUMBERS = tuple(f.name for f in fields(ScaleCounts) if f.name != "exponents")
