"""Accumulation orders: the tree in which a product's terms are added."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any, Literal

from emu.errors import FormatError
from emu.formats.integers import as_integer

IndexOrder = Literal["consecutive", "alternating_pairs"]
AddendPlace = Literal["aligned", "after"]
INDEX_ORDERS: tuple[IndexOrder, ...] = ("consecutive", "alternating_pairs")
ADDEND_PLACES: tuple[AddendPlace, ...] = ("aligned", "after")
#: Far above any unit: 1024 products, 256 bits kept below the largest exponent, exponents beyond those of all products
#: of two float64 numbers, which lie in -2148..2047.
MAX_BLOCK, MAX_FRACTION_BITS, MAX_EXPONENT = 1024, 256, 4096
_BLOCKS = re.compile(r"blocks\(([^()]*)\)")
# Greedy: the inner order may have commas and parentheses of its own, the two last arguments have neither.
_PROMOTE = re.compile(r"promote\(([0-9]{1,12}),(.+),([^(),]+),([a-z_]+)\)")
_LANES = re.compile(r"lanes\(([0-9]{1,12})\)")


@dataclass(frozen=True)
class Order:
    """Base of the accumulation orders. Source: docs/concepts/products.md."""


@dataclass(frozen=True)
class Sequential(Order):
    """One accumulator: acc = R(addend), or +0 without one; then k = 0, 1, ... K-1."""

    def __str__(self) -> str:
        return "sequential"


@dataclass(frozen=True)
class Pairwise(Order):
    """A binary tree: leaves R(p_k), padded with +0 to a power of two, neighbours first; then R(sum + addend)."""

    def __str__(self) -> str:
        return "pairwise"


@dataclass(frozen=True)
class Lanes(Order):
    """`count` accumulators from +0, lane j taking k = j, j+count, ...; joined pairwise; then R(sum + addend)."""

    count: int

    def __post_init__(self) -> None:
        # at most 2**31: kernels have room for the 31 levels of their tree
        # smaller counts pass here: the message below says more
        object.__setattr__(self, "count", as_integer("count", self.count, -(1 << 31), 1 << 31))
        if self.count < 1:
            raise FormatError(f"`lanes` must have at least 1 lane, got {self.count}; lanes(1) is sequential")

    def __str__(self) -> str:
        return f"lanes({self.count})"


@dataclass(frozen=True)
class Blocks(Order):
    """Matrix units: `n` products and the accumulator added in one step, cut below the largest exponent among them.

        exponent        e                    e - fraction_bits
        a0*b0           1 0 1 1 0 1 0 1 1 0 |
        a1*b1                 1 1 0 1 0 1 1 | 0 1 1           cut toward zero here:
        a2*b2                         1 0 1 | 1 1 0 1 0       no guard bit, no sticky bit
        accumulator       1 0 0 1 1 1 0 1 0 | 0 1
                        --------------------
                        exact sum ──► R ──► accumulator ──► next block

    e is the largest exponent among the terms that are not zero: ea + eb of a product, the accumulator's own.
    Significands are not normalised before the step: a subnormal operand counts with its format's smallest exponent, and
    a product with ea + eb although it may reach 4 * 2**e.

    R is the Mac's rounding into its accumulator format, with two differences. A magnitude beyond the largest becomes
    infinity in every mode (under the rule `ieee`; units cut the significand and then pack the exponent), and a block
    whose exact sum is 0 gives +0 in every mode. Products never overflow before R. NaN, 0 * inf and inf - inf give NaN.
    Any other infinity stays infinite (under `satfinite`: the largest value).

    Blocks follow each other in ascending k, K is padded with zero products to whole blocks. Without products there is
    no block: the accumulator holds R(addend), the sign of a zero included.

    Attributes:
        n: products in a block, 1..1024.
        fraction_bits: bits kept below the largest exponent of a block, 0..256.
        index_order: which k a block takes. "consecutive": n in a row. "alternating_pairs": of every 2n in a row, one
            block takes k mod 4 in {0, 1}, the next one those in {2, 3}.
        addend: "aligned": the accumulator starts as R(addend) and is a term of every block. "after": the blocks of n
            (alternating: 2n) products in a row start from +0, and an IEEE adder, nearest_even whatever the Mac's
            rounding, adds their sum to the running one, which starts as R(addend).
        min_exponent: the exponent to which terms are aligned if all of them lie lower; None: there is no such limit.
        group: of operands that share scales: so many products in a row, whose scales are the same, are summed exactly
            and are one term. Its exponent is that of the scales alone. 1: each product is a term.

    Raises:
        FormatError: a number is out of range, a name is unknown, alternating pairs with an odd `n`, or groups that do
            not divide `n`.

    Examples:
        >>> str(Blocks(16, 25)), str(Blocks(16, 25, "alternating_pairs", "after"))
        ('blocks(16, 25)', 'blocks(16, 25, index_order=alternating_pairs, addend=after)')

    Source: docs/concepts/matrix-units.md, "Matrix units"; Khattak & Mikaitis, "Accurate Models of NVIDIA Tensor
    Cores", 2025.
    """

    n: int
    fraction_bits: int
    index_order: IndexOrder = "consecutive"
    addend: AddendPlace = "aligned"
    min_exponent: int | None = None
    group: int = 1

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "group", as_integer("group", self.group, 1, MAX_BLOCK))
        set_field(self, "n", as_integer("n", self.n, 1, MAX_BLOCK))
        set_field(self, "fraction_bits", as_integer("fraction_bits", self.fraction_bits, 0, MAX_FRACTION_BITS))
        if self.min_exponent is not None:
            floor = as_integer("min_exponent", self.min_exponent, -MAX_EXPONENT, MAX_EXPONENT)
            set_field(self, "min_exponent", floor)
        _require_name("index_order", self.index_order, INDEX_ORDERS)
        _require_name("addend", self.addend, ADDEND_PLACES)
        # both elements of a pair belong to the same block
        if self.index_order == "alternating_pairs" and self.n % 2:
            raise FormatError(f"`n` must be even for alternating pairs, got {self.n}; choose {self.n + 1}")
        in_a_row = self.index_order == "consecutive"
        if self.n % self.group or (self.group > 1 and not in_a_row):
            remedy = f"a group of {math.gcd(self.n, self.group)}" if in_a_row else "a group of 1, or consecutive ones"
            raise FormatError(
                f"`group` must divide `n`, and its products lie in a row, got {self.group} of {self.n} "
                f"{self.index_order} ones; choose {remedy}"
            )

    def __str__(self) -> str:
        options = [f"{f.name}={getattr(self, f.name)}" for f in fields(self)[2:] if getattr(self, f.name) != f.default]
        return f"blocks({', '.join([str(self.n), str(self.fraction_bits), *options])})"

    @property
    def indices(self) -> tuple[int, ...]:
        """The k of one period, in the order in which blocks of n take them; the next period adds its length to each.

        Examples:
            >>> Blocks(4, 23, "alternating_pairs").indices
            (0, 1, 4, 5, 2, 3, 6, 7)
        """
        if self.index_order == "consecutive":
            return tuple(range(self.n))
        # False sorts before True: first all k with k mod 4 in {0, 1}, then the others, each ascending
        return tuple(sorted(range(2 * self.n), key=lambda k: (k % 4 >= 2, k)))


@dataclass(frozen=True)
class Promote(Order):
    """A unit in a unit: the sum of each run of `n` products, from an absent addend, is added to a wider accumulator.

        run of n products ──► inner order ──► inner accumulator p ──►(+)──► accumulator of the Mac
                                                     scales s ──►(x)──┘  one rounding of s * p + accumulator

    The inner unit has formats of its own. Of operands that share scales, `s` is the product of the two scales of a run,
    rounded to binary32; else it is 1.

    Attributes:
        n: products in a run; a last one may be shorter.
        order: in which the inner unit adds.
        accumulator: of the inner unit.
        rounding: of the inner unit.

    Raises:
        FormatError: a number out of range, or an order that is itself a promotion. Format and mode are checked by the
            `Mac` that has the order.

    Source: DeepSeek-V3 Technical Report, section 3.3.2; docs/concepts/scaled.md.
    """

    n: int
    order: Order
    accumulator: str
    rounding: str = "nearest_even"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", as_integer("n", self.n, 1, MAX_BLOCK * MAX_BLOCK))
        if isinstance(self.order, Promote):
            raise FormatError("`order` inside promote must be another one, got promote; write blocks(32, 13)")

    def __str__(self) -> str:
        return f"promote({self.n}, {self.order}, {self.accumulator}, {self.rounding})"


def _require_name(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise FormatError(f"`{name}` must be {' or '.join(known)}, got {value!r}; leave it out for {known[0]}")


def parse_order(order: str | Order) -> Order:
    """Return the order that a text names.

    Args:
        order: "sequential", "pairwise", "lanes(n)", "blocks(n, fraction_bits, ...)", or "promote(n, order, accumulator,
            rounding)"; or an order.

    Raises:
        FormatError: no such order.

    Examples:
        >>> parse_order("lanes(4)")
        Lanes(count=4)
        >>> parse_order("blocks(8, 24, min_exponent=-132)").min_exponent
        -132
    """
    if isinstance(order, Order):
        return order
    # spaces beside a bracket or a comma mean nothing; those inside a format's text do, as in e8m13 ftz
    text = re.sub(r"\s*([(),=])\s*", r"\1", str(order).strip())
    if text == "sequential":
        return Sequential()
    if text == "pairwise":
        return Pairwise()
    if match := _LANES.fullmatch(text):
        return Lanes(int(match[1]))
    if match := _BLOCKS.fullmatch(text):
        return _parse_blocks(match[1], order)
    if match := _PROMOTE.fullmatch(text):
        return Promote(int(match[1]), parse_order(match[2]), match[3], match[4])
    raise FormatError(
        "`order` must be sequential, pairwise, lanes(n), blocks(n, fraction_bits, ...) or promote(n, order, "
        f"accumulator, rounding), got {order!r}; leave it out for sequential"
    )


def _parse_blocks(arguments: str, order: str) -> Blocks:
    """Return the blocks of a text form: two numbers, then `name=value` in any order."""
    options: dict[str, Any] = {}
    names = [f.name for f in fields(Blocks)]
    for position, argument in enumerate(arguments.split(",")):
        name, equals, value = argument.rpartition("=")
        # the first two arguments need no names; an empty name is refused below
        name = name if equals else names[position] if position < 2 else ""
        if name not in names or name in options or not value:
            raise FormatError(
                f"`order` must give blocks two numbers and then {', '.join(f'{n}=' for n in names[2:])}, "
                f"got {argument!r} in {order!r}"
            )
        options[name] = int(value) if re.fullmatch(r"[+-]?[0-9]{1,12}", value) else None if value == "None" else value
    missing = [name for name in names[:2] if name not in options]
    if missing:
        raise FormatError(f"`order` must give blocks `{missing[0]}`, got {order!r}; write blocks(n, fraction_bits)")
    return Blocks(**options)
