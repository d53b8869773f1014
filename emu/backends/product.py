"""A product as backends take it, and the ways to compute it.

    ProductCode    formats, unit, path, depth, divisor: what a way is chosen by
    Product        the same beside its operands; a SparseProduct, beside entries and their pattern
    Way            one algorithm, one file: `declines`, `proof`, `compute`

A backend lists its ways, the most special one first, the definition last. `choose` asks each way once, by the code
alone; what it returns says how the product is computed (`emu.explain`), and computes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from numpy.typing import NDArray

from emu.backends.gathered import Gathered, as_gathered, stacks_of
from emu.backends.interface import EXACT_PATHS, FormatCode, MacCode, Outcome, StageCode, Write
from emu.backends.pattern import Pattern

Array = NDArray[Any]
#: Formats of the left operand, the right operand, and the addend.
Formats = tuple[FormatCode, FormatCode, FormatCode | None]


class ProductCode(NamedTuple):
    """A product as integers, without its numbers.

    Attributes:
        formats: of the left operand, the right operand, and the addend.
        mac: the unit that multiplies and adds.
        path: the planner's (`emu.engine.planner`).
        depth: the most terms of a result.
        divisor: positive integer by which sums are divided.
        is_aligned: whether the operands share scales, so that their exponents are given beside them.
    """

    formats: Formats
    mac: MacCode
    path: str
    depth: int
    divisor: int = 1
    is_aligned: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the planner has proved that sums are exact in any order."""
        return self.path in EXACT_PATHS

    @property
    def divides_oddly(self) -> bool:
        """Whether the divisor is no power of two."""
        return bool(self.divisor & (self.divisor - 1))


class Alignment(NamedTuple):
    """The exponents by which blocks align the products of operands that share scales.

    An operand's number is an integer times 2**(exponent - point); its exponent is not that of its leading bit.

    Attributes:
        left: int32 exponents, in the shape of the left operand. Where groups share a term, that of their scale, beside
            zeros too; else any of a zero.
        right: those of the right operand.
        points: the point of the left operand and that of the right one.
    """

    left: Array
    right: Array
    points: tuple[int, int]


@dataclass(eq=False)
class Product:
    """A product with its operands: (left @ right + addend) / divisor.

    Attributes:
        code: the product without its numbers.
        left: carriers (B or 1, M, K).
        right: carriers (B or 1, K, N).
        addend: carriers (B or 1, M or 1, N or 1), or None.
        alignment: exponents of operands that share scales; None of others, whose numbers have their own.
    """

    code: ProductCode
    left: Array | Gathered
    right: Array | Gathered
    addend: Array | None
    alignment: Alignment | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the result, (B, M, N)."""
        return max(self.left.shape[0], self.right.shape[0]), self.left.shape[1], self.right.shape[2]

    def gathered(self) -> tuple[Gathered, Gathered]:
        """Return both operands as offsets in memory."""
        return as_gathered(self.left), as_gathered(self.right)

    def stacks(self, materialised: Callable[[Gathered], Array] = Gathered.array) -> tuple[Array, Array]:
        """Return both operands as arrays of the same number of matrices; gathered ones are copied once.

        Args:
            materialised: how a gathered operand becomes an array.
        """
        # kept: the copies serve the next way, if this one leaves these numbers to it
        self.left, self.right = stacks = stacks_of(self.left, self.right, materialised)
        return stacks


@dataclass(eq=False)
class SparseProduct:
    """A sparse product with its operands.

    Attributes:
        code: the product without its numbers.
        data: carriers of the stored entries, (entries,).
        dense: carriers (rows, H).
        addend: carriers (R or 1, H or 1), or None; R is `pattern.results`.
        pattern: what is multiplied with what.
    """

    code: ProductCode
    data: Array
    dense: Array
    addend: Array | None
    pattern: Pattern

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the result, (R, H)."""
        return self.pattern.results, self.dense.shape[1]


Given = TypeVar("Given", Product, SparseProduct)


class Way(ABC, Generic[Given]):
    """One algorithm for products.

    Attributes:
        is_partial: whether it leaves some numbers to the ways that follow. It is taken if one of these, other than
            the definition, computes all numbers of such a product.
        reads_alignment: whether it computes products of operands that share scales.
        speed: about how many thousand million multiply-adds a second on one thread, as measured of 256 x 256 x 256 on a
            processor with AVX-512; None if nobody has measured it.
    """

    is_partial: bool = False
    reads_alignment: bool = False
    speed: float | None = None

    @abstractmethod
    def declines(self, product: ProductCode, stage: StageCode) -> str | None:
        """Return None if this way computes such products; "" if they are not its kind; else why it does not."""

    def proof(self, product: ProductCode) -> str:
        """Return a clause to add to the planner's proof; "" if there is nothing to add."""
        return ""

    @abstractmethod
    def compute(self, product: Given, write: Write) -> Outcome | None:
        """Write the product; None if these numbers are left to the ways that follow."""


class Choice(NamedTuple):
    """How a backend computes a product.

    Attributes:
        ways: the ways that do not decline it, in the order in which they are tried. The last takes any numbers.
        fallback: why the definition computes it; "" if another way does.
        proof: a clause to add to the planner's proof.
        speed: see `Way`.
    """

    ways: tuple[Any, ...]
    fallback: str
    proof: str
    speed: float | None = None

    def compute(self, product: Product | SparseProduct, write: Write) -> Outcome:
        """Write the product."""
        for way in self.ways:
            outcome: Outcome | None = way.compute(product, write)
            if outcome is not None:
                return outcome
        raise AssertionError("the definition computes every product")


#: Why a way does not compute products of operands that share scales.
_UNALIGNED = "only the definition aligns operands by the exponents of their scales"


@lru_cache(maxsize=2048)
def choose(ways: tuple[Any, ...], product: ProductCode, stage: StageCode) -> Choice:
    """Return how a backend computes a product.

    Args:
        ways: of the backend; the last, the definition, declines nothing.
        product: what is computed.
        stage: what writes it.
    """
    stages = (stage, product.mac.product, product.mac.accumulator)
    # only the definition writes such formats: all ways but the last decline
    if any(written is not None and written.format.is_only_defined for written in stages):
        answers: list[str | None] = ["only the reference writes such codes"] * (len(ways) - 1) + [None]
    else:
        answers = [
            "" if product.is_aligned and not way.reads_alignment else way.declines(product, stage) for way in ways
        ]
    taken = [way for way, answer in zip(ways, answers, strict=True) if answer is None]
    # If nothing but the definition could take what partial ways leave, it takes all. Not of operands that share scales:
    # partial ways are all they have, and these leave only numbers far from each other.
    if not product.is_aligned and all(way.is_partial for way in taken[:-1]):
        taken = taken[-1:]
    # The last reason counts: of the ways for this kind of product, the last is the most general.
    reasons = [answer for answer in answers if answer] or [_UNALIGNED] * product.is_aligned
    is_left = len(taken) == 1 and len(ways) > 1
    fallback = reasons[-1] if is_left and reasons else ""
    return Choice(tuple(taken), fallback, taken[0].proof(product), taken[0].speed)
