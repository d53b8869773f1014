"""Wires of a SystemVerilog module, each of a width that is known here.

Verilog computes an expression in the width of its widest operand and of the wire it goes to. Each wire made here is at
least as wide as its expression's result, and all of them are unsigned, so nothing is lost on the way and nothing is
extended by a sign.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bits:
    """A wire: its name and its width in bits, at least 1."""

    name: str
    width: int

    def __str__(self) -> str:
        return self.name

    @property
    def top(self) -> str:
        """The leftmost bit."""
        return self[self.width - 1]

    def __getitem__(self, bit: int) -> str:
        assert 0 <= bit < self.width
        return f"{self.name}[{bit}]"

    def slice(self, high: int, low: int) -> str:
        """Return the bits from `high` down to `low`; none of them are a 0."""
        # of a word without bits, as the fraction of a format without fraction bits
        if high < low:
            return "1'b0"
        assert 0 <= low <= high < self.width, (self, high, low)
        return f"{self.name}[{high}:{low}]"

    def any_below(self, bit: int) -> str:
        """Return whether any bit below `bit` is 1."""
        return f"(|{self.slice(bit - 1, 0)})" if bit > 0 else "1'b0"


@dataclass(frozen=True)
class Exponent:
    """An exponent: an unsigned wire plus a constant; without a wire, the constant alone.

    Attributes:
        bits: the wire, or None.
        top: largest number on the wire, 0 without one.
        offset: the constant, of either sign.
    """

    bits: Bits | None
    top: int
    offset: int

    def plus(self, constant: int) -> Exponent:
        """Return the exponent plus a constant."""
        return Exponent(self.bits, self.top, self.offset + constant)

    @property
    def text(self) -> str:
        """The wire as an expression."""
        return "1'b0" if self.bits is None else self.bits.name


@dataclass
class Module:
    """Lines of a module; every wire has its own name."""

    lines: list[str] = field(default_factory=list[str])
    _names: dict[str, int] = field(default_factory=dict[str, int])

    def wire(self, name: str, width: int, expression: str) -> Bits:
        """Add a wire that carries an expression; its name gets a number if there is such a name."""
        count = self._names[name] = self._names.get(name, -1) + 1
        full = f"{name}_{count}" if count else name
        self.lines.append(f"  wire [{width - 1}:0] {full} = {expression};")
        return Bits(full, width)

    def bit(self, name: str, expression: str) -> Bits:
        """Add a wire of one bit."""
        return self.wire(name, 1, expression)

    def comment(self, text: str) -> None:
        """Add a comment."""
        self.lines.append(f"  // {text}")


def constant(value: int, width: int) -> str:
    """Return a number as a literal of a width.

    Examples:
        >>> constant(5, 4), constant(1 << 40, 41)
        ("4'h5", "41'h10000000000")
    """
    assert 0 <= value < 1 << width, (value, width)
    return f"{width}'h{value:x}"


def widened(bits: Bits, width: int) -> str:
    """Return a wire with zeros on its left."""
    assert width >= bits.width
    return bits.name if width == bits.width else f"{{{width - bits.width}'b0, {bits.name}}}"


def padded(bits: Bits, zeros: int) -> str:
    """Return a wire with zeros on its right."""
    return f"{{{bits.name}, {zeros}'b0}}" if zeros else bits.name


def width_of(largest: int) -> int:
    """Return how many bits a number takes, at least 1."""
    return max(largest.bit_length(), 1)


def minimum(m: Module, name: str, bits: Bits, limit: int, largest: int) -> Bits:
    """Return the smaller one of a wire and a constant; `largest` is the wire's largest number."""
    if largest <= limit:
        return bits
    width = width_of(limit)
    return m.wire(name, width, f"({bits} > {constant(limit, bits.width)}) ? {constant(limit, width)} : {bits}")


def shifted_right(m: Module, name: str, bits: Bits, amount: Bits, most: int) -> Bits:
    """Return a wire shifted right by up to `most` places; its last bit is 1 if any bit that left was 1."""
    # `most` zeros on the right catch every bit that leaves
    wide = m.wire(f"{name}_wide", bits.width + most, f"{padded(bits, most)} >> {amount}")
    kept = wide.slice(wide.width - 1, most)
    return m.wire(name, bits.width, f"{kept} | {widened_text(wide.any_below(most), bits.width)}")


def widened_text(bit: str, width: int) -> str:
    """Return an expression of one bit with zeros on its left."""
    return bit if width == 1 else f"{{{width - 1}'b0, {bit}}}"
