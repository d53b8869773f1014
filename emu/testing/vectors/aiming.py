"""Operands whose results land where hardware goes wrong: a result is chosen, and the operation solved for operands.

    result wanted       for instance half a step and one far bit above a number whose digits are all ones
    multiply            a any odd number; b = pattern / a modulo 2**n: the low n bits of a * b are the pattern
    add                 a the number of its format next to the result; b what is left of the result
    divide              b any; a the number nearest to result * b

Not every aim hits, and none needs to: `cells.py` counts what was hit. Numbers are pairs (n, e) of Python integers,
n * 2**e. An index counts steps of a format's grid from 0 up. The guard is the first bit that rounding drops, half a
step; places behind it count from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple

import numpy as np

from emu.formats import Fixed, Float, Format
from emu.testing.hard import last_index, normal_index
from emu.testing.vectors.description import Codes, Description
from emu.testing.vectors.selection import SELECTIONS

#: One time in so many the other terms of a matmul are pairs that cancel each other.
CANCELLING = 3
#: Most terms in such pairs.
MOST_CANCELLING = 64
#: Most draws of factors whose product must have a certain length: about half of them do.
TRIES = 8
#: Most bits of a fixed-point format.
MOST_BITS = 64
#: Binary places behind the point of a quotient; and places down to the bit that stands for "just beside".
FAR = 200


#: What operands are aimed at: all cells, results at the ends of the format alone, or sums that cancel.
Target = Literal["cells", "ends", "cancelling"]
TARGETS: tuple[Target, ...] = ("cells", "ends", "cancelling")


class Number(NamedTuple):
    """n * 2**e."""

    n: int
    e: int


def code_beside(fmt: Format, number: Number, *, up: bool) -> int:
    """Return the code of a number; of one that the format does not have, that of a neighbour.

    Args:
        fmt: format of the code.
        number: one beyond the range becomes the end of the range; a negative one, the lowest of an unsigned format.
        up: whether the neighbour is the one away from zero; else it is the one toward zero.
    """
    n, e = abs(number.n), number.e
    negative = number.n < 0 and fmt.signed
    # an unsigned format has nothing nearer to a negative number than 0
    if number.n < 0 and not fmt.signed:
        n = 0
    if isinstance(fmt, Fixed):
        # bounded by the largest raw on either side: two's complement's lowest word is never given here
        raw = min(_shifted(n, e + fmt.frac_bits, up), fmt.max_raw)
        if negative and fmt.sign_magnitude:
            return raw | (fmt.max_raw + 1) if raw else 0
        return -raw & (fmt.n_codes - 1) if negative else raw
    quantum = fmt.emin - fmt.fraction_bits
    # last: exponent of the number's last place in the format; quantum: of the smallest subnormal's
    last = _last_place(fmt, Number(n, e)) if n else quantum
    # digits of a normal number have their leading 1 at 2**fraction_bits, which counts a step of the exponent field
    index = _shifted(n, e - last, up) + ((last - quantum) << fmt.fraction_bits)
    code = min(max(index, fmt.lowest_index), fmt.max_index) - fmt.lowest_index
    return code | fmt.sign_code if negative and (code or fmt.has_negative_zero) else code


def _shifted(n: int, shift: int, away: bool) -> int:
    # n * 2**shift as an integer, for n >= 0: rounded down or, if `away`, up
    if shift >= 0:
        return n << shift
    whole = n >> -shift
    return whole + (away and whole << -shift != n)


def number_of(fmt: Format, code: int) -> Number:
    """Return the number of a code that is neither infinite nor NaN."""
    if isinstance(fmt, Fixed):
        negative = fmt.signed and code >> (fmt.width_bits - 1)
        if negative and fmt.sign_magnitude:
            return Number(-(code & fmt.max_raw), -fmt.frac_bits)
        return Number(code - fmt.n_codes if negative else code, -fmt.frac_bits)
    negative = fmt.signed and code & fmt.sign_code
    magnitude = code & (fmt.sign_code - 1)
    if fmt.hidden_one and not magnitude:
        return Number(0, fmt.emin)
    n, e = at_index(fmt, magnitude + fmt.lowest_index)
    return Number(-n if negative else n, e)


def at_index(fmt: Format, index: int) -> Number:
    """Return the number so many steps of a format's grid above 0."""
    if isinstance(fmt, Fixed):
        return Number(index, -fmt.frac_bits)
    field, fraction = divmod(index, 1 << fmt.fraction_bits)
    significand = fraction + (1 << fmt.fraction_bits if field else 0)
    return Number(significand, max(field, 1) - 1 + fmt.emin - fmt.fraction_bits)


class Aim:
    """Draws results and solves an operation for operands.

    Args:
        description: the operation.
        seed: of what is drawn.

    Attributes:
        d: the operation.
        random: draws.
        formats: those of the operands.
        out: format of whose numbers a result lies at, or beside.
        reach: exponents that results can have, about.
        bits: see `operands`.
        away_from_zero: which neighbour of a number an operand takes whose format does not have it; None: either, drawn.
    """

    def __init__(self, description: Description, seed: int) -> None:
        self.d, self.random = description, Random(f"emu {description.operation} {seed}")
        self.formats, self.out = list(description.operand_formats), description.stage.format
        if description.operation == "round_to_integral":  # the grid on which it rounds
            self.out = Fixed(min(_digits(self.formats[0]) + 1, MOST_BITS), 0, signed=True)
        self.reach = _reach(description)
        self.bits: list[int] = []
        self.away_from_zero: bool | None = None

    def operands(self, count: int, bits: Sequence[int] = (), at: Target = "cells") -> tuple[Codes, ...]:
        """Return codes of operands, shapes of `Description.shape_of` for so many vectors.

        Args:
            count: how many.
            bits: places behind the guard. If any are given, results are wanted that have one dropped bit, at one of
                these places, and perhaps the guard; "ends" is then as "cells".
            at: what is aimed at: all cells, results at the ends of the format alone, or sums that cancel.
        """
        rows: list[tuple[list[int], ...]] = []
        self.bits = list(bits)
        targets = self._alone_targets() if bits else self._at_ends() if at == "ends" else self._targets()
        while len(rows) < count:
            rows.append(self._cancelled() if at == "cancelling" else self._solved(next(targets)))
        columns = zip(*rows, strict=True)
        shapes = [(-1, self.d.depth) if self.d.operation == "matmul" and i < 2 else (-1,) for i in range(3)]
        return tuple(np.array(column, np.uint64).reshape(shape) for column, shape in zip(columns, shapes, strict=False))

    # ---- results ----------------------------------------------------------------------------------------------------

    def _targets(self) -> Iterator[Number]:
        """Yield results to aim at: first each end of the format with each remainder, then drawn ones."""
        top, ends = last_index(self.out), self._ends()
        # twice: most operations are solved with a drawn operand, and a second one may hit where the first did not
        for _ in range(2):
            for index in ends:
                # halves (n, d) of `_beside`: 1/2, 3/4, 0 and 1/4 of a step
                for half in ((1, 1), (3, 2), (0, 0), (1, 2)):
                    for side in (0, 1, -1):
                        for sign in (1, -1):
                            self.away_from_zero = side > 0
                            yield self._beside(index, half, FAR, side, sign)
        self.away_from_zero = None
        while True:
            sign = self.random.choice((1, -1))
            # 0 to 2 one dropped bit alone, 3 to 5 the special indices below, 6 to 8 any index
            kind = self.random.randrange(9)
            if kind < 3:
                yield self._alone(sign)
                continue
            index = self._index()
            if kind == 3:  # all ones: a carry through them
                index |= (1 << (self.out.fraction_bits if isinstance(self.out, Float) else self._short())) - 1
            elif kind == 4:
                index = self.random.choice(ends)
            elif kind == 5:  # beyond the range
                index = top + 1 + self.random.getrandbits(self.random.randrange(1, self.out.width_bits + 1))
            depth = self.random.choice((FAR, self.random.randrange(1, 70), self.random.randrange(1, 30)))
            half = self.random.choice(((1, 1), (1, 1), (0, 0), (0, 0), (3, 2), (self.random.getrandbits(20), 20)))
            yield self._beside(index, half, depth, self.random.choice((0, 1, 1, -1)), sign)

    def _ends(self) -> list[int]:
        """Return the indices at the ends of the format: the largest, 0, and those about the smallest normal number."""
        normal, top = normal_index(self.out), last_index(self.out)
        # two's complement's lowest number is one step beyond the largest in magnitude
        lowest = [top + 1] if isinstance(self.out, Fixed) and self.out.signed else []
        return [top, 0, *([normal - 1, normal] if normal > 1 else []), *lowest]

    def _at_ends(self) -> Iterator[Number]:
        """Yield results a drawn part of a step, and perhaps a far bit, beside the indices of `_ends`."""
        ends = self._ends()
        while True:
            half = self.random.choice(((1, 1), (self.random.getrandbits(2), 2), (self.random.getrandbits(20), 20)))
            sign = self.random.choice((1, -1))
            yield self._beside(self.random.choice(ends), half, FAR, self.random.choice((0, 1, -1)), sign)

    def _alone(self, sign: int) -> Number:
        """Return a number with one dropped bit behind the guard, and perhaps the guard; mostly even, often short."""
        digits, room = _digits(self.out), MOST_BITS
        # exact products, and sums of operands of about the same size, have no more digits than the operands together
        far = max(sum(map(_digits, self.formats)), 2)
        bit = self.random.choice(self.bits) if self.bits else self.random.randint(1, far)
        if self.bits and len(self.formats) == 1:  # the operand has the digits that are kept, the guard and the bit
            room = max(_digits(self.formats[0]) - 1 - bit, 1)
        length = self.random.randint(1, min(digits, room))
        index = self.random.getrandbits(length) | 1 << (length - 1)
        ones = self.random.randint(1, length)  # digits that are not 0
        index = index >> (length - ones) << (length - ones)
        if self.random.randrange(4):
            index &= ~1
        if isinstance(self.out, Float) and length == digits:
            fraction = index & ((1 << self.out.fraction_bits) - 1)
            index = (self._index() >> self.out.fraction_bits << self.out.fraction_bits) + fraction
        # in two's complement the digits of a negative number go up: one bit more there is one less in magnitude
        side = self.random.choice((1, -1)) if isinstance(self.out, Fixed) and sign < 0 else 1
        half = self.random.choice(((1, 1), (0, 1)))
        if self.bits and side < 0:
            # the bit is taken away: from a whole step more, or from half a step above a number of either parity
            index = index + 1 if half == (0, 1) else index ^ self.random.getrandbits(1)
        return self._beside(index, half, bit, side, sign)

    def _alone_targets(self) -> Iterator[Number]:
        while True:
            yield self._alone(self.random.choice((1, -1)))

    def _short(self) -> int:
        # a drawn number of digits
        return self.random.randint(1, max(self.out.width_bits - 1, 1))

    def _beside(self, index: int, half: tuple[int, int], depth: int, side: int, sign: int) -> Number:
        """Return a number a part of a step and one far bit above a number of the result's format.

        Args:
            index: of that number.
            half: (n, d), a part of n / 2**d steps.
            depth: places from the last one of that part down to the far bit.
            side: 1 to add the far bit, -1 to take it away, 0 for none.
            sign: 1, or -1 for the negative of all this.
        """
        n, e = at_index(self.out, index)
        more, digits = half
        # in units of 2**-lowest of a step: the number, the part of a step, and one far bit
        lowest = digits + depth
        return Number(sign * ((n << lowest) + (more << depth) + side), e - lowest)

    def _index(self) -> int:
        """Return the index of a number of the result's format; of floats, one that the operation can reach, about."""
        out = self.out
        if isinstance(out, Fixed):
            return self.random.getrandbits(max(out.width_bits - out.signed, 1)) >> self.random.randrange(out.width_bits)
        low, high = self.reach
        exponent = self.random.randint(max(low, out.emin - 1), max(min(high, out.emax), low, out.emin - 1))
        # emin - 1 stands for the subnormals, whose exponent field is 0
        field = exponent - out.emin + 1
        fraction = self.random.getrandbits(out.fraction_bits) if out.fraction_bits else 0
        # subnormals of all lengths, not mostly those with the leading fraction bit
        if field == 0 and out.fraction_bits:
            fraction >>= self.random.randrange(out.fraction_bits)
        return min((field << out.fraction_bits) + fraction, out.max_index)

    # ---- operands ---------------------------------------------------------------------------------------------------

    def _solved(self, target: Number) -> tuple[list[int], ...]:
        # a list for each operand: of matmul's factors a code for each term, else one code
        target = self._before_stages(target)
        if self.d.operation == "matmul":
            return self._terms(target)
        return tuple([code] for code in _SOLVERS[self.d.operation](self, target))

    def _before_stages(self, target: Number) -> Number:
        """Return the number of which the pipeline, whose stages multiply and add, makes the target, about."""
        # undone from the last stage on: first its addend, then its factor
        for step in reversed(self.d.pipeline):
            if step.plus:
                target = _plus(target, Number(-step.plus, 0))
            if step.factor != 1:
                # the denominator is a power of two, 2**-e
                n, e = step.factor.numerator, 1 - step.factor.denominator.bit_length()
                target = self._quotient(target, Number(n, e))
        return target

    def _cancelled(self) -> tuple[list[int], ...]:
        codes = self._cancelling_product() if self.d.operation == "fma" else self._cancelling_pair()
        return tuple([code] for code in codes)

    def _code(self, i: int, number: Number, *, up: bool | None = None) -> int:
        # which neighbour, if the format does not have the number: `up`, else `self.away_from_zero`, else either
        chosen = self.away_from_zero if up is None else up
        away = bool(self.random.getrandbits(1)) if chosen is None else chosen
        return code_beside(self.formats[i], number, up=away)

    def _any(self, i: int, *, digits: int | None = None) -> Number:
        """Return a number of an operand's format, of magnitude about 1 if it has such; for floats, with odd digits.

        Args:
            i: which operand.
            digits: how many, at most as many as the format has; None: drawn.
        """
        fmt = self.formats[i]
        most = _digits(fmt)
        bits = self.random.randint(1, most) if digits is None else min(digits, most)
        # leading and last digit are 1: an odd number of exactly so many digits
        n = self.random.getrandbits(bits) | 1 | 1 << (bits - 1)
        low, high = _exponents(fmt)
        # exponent of the leading digit, less the digits behind it
        e = min(max(self.random.randint(-3, 3), low), high) - bits + 1
        n = -n if fmt.signed and self.random.getrandbits(1) else n
        return number_of(fmt, code_beside(fmt, Number(n, e), up=False))

    def _power(self, i: int, near: int) -> Number:
        """Return a power of two, as near to 2**near as operand `i` can be, negative every other time if it can be."""
        low, high = _exponents(self.formats[i], subnormal=True)
        sign = self.random.choice((1, -1)) if self.formats[i].signed else 1
        return Number(sign, min(max(near, low), high))

    def _quotient(self, target: Number, divisor: Number) -> Number:
        """Return target / divisor to many digits."""
        # no number times 0 is the target: any will do
        if not divisor.n:
            return Number(1, 0)
        sign = -1 if (target.n < 0) != (divisor.n < 0) else 1
        # FAR digits behind the point, more than any format has; the rest is dropped
        n = (abs(target.n) << FAR) // abs(divisor.n)
        return Number(sign * n, target.e - divisor.e - FAR)

    def itself(self, target: Number) -> list[int]:
        """Return the operand of a rounding: the target, or a neighbour of it."""
        return [self._code(0, target)]

    def chosen_from(self, target: Number) -> list[int]:
        """Return operands of which one is the target; the other is a neighbour of it, its negative, or any number."""
        i = self.random.randrange(2)
        other = self.random.choice((target, Number(-target.n, target.e), self._any(1 - i)))
        codes = [0, 0]
        codes[i], codes[1 - i] = self._code(i, target), self._code(1 - i, other)
        return codes

    def square(self, target: Number) -> list[int]:
        """Return the operand of a root: the square of the target."""
        return [self._code(0, Number(target.n * target.n, 2 * target.e))]

    def summands(self, target: Number) -> list[int]:
        """Return terms: one takes the high digits, the other what they leave; or one is any number near."""
        first, second = self.random.sample((0, 1), 2)
        if not self.random.randrange(5):
            return self._cancelling_pair()
        if self.random.randrange(4):
            high = number_of(self.formats[first], self._code(first, target))
        else:
            # 1 to 4 times the target, so that the other term is about as large and takes some of it away
            wide = Number(target.n * self.random.randrange(2, 9), target.e - 1)
            high = number_of(self.formats[first], self._code(first, wide))
        negated = self.d.operation == "subtract"
        if negated and first == 1:  # what is subtracted was solved for: a = target + b
            rest = _plus(target, high)
        elif negated:
            rest = _plus(high, Number(-target.n, target.e))
        else:
            rest = _plus(target, Number(-high.n, high.e))
        codes = [0, 0]
        codes[first] = code_beside(self.formats[first], high, up=False)
        codes[second] = self._code(second, rest)
        return codes

    def _cancelling_pair(self) -> list[int]:
        """Return terms that cancel but for one bit, at any place of the first; or a power of two and its neighbour."""
        a = self._any(0, digits=99)
        more = Number(self.random.choice((1, -1)), a.e + self.random.randrange(_digits(self.formats[0]) + 1))
        # 0 has no binade: it is all that a sign alone holds but its lowest number
        if not self.random.randrange(8) and a.n:
            length = a.n.bit_length()
            # b is the next number below a power of two: half a last place of a's binade is a whole one in the binade
            # below
            a, more = Number((1 if a.n > 0 else -1) << (length - 1), a.e), Number(-1 if a.n > 0 else 1, a.e - 1)
        b = _plus(a, more)
        sign = 1 if self.d.operation == "subtract" else -1
        return [code_beside(self.formats[0], a, up=False), self._code(1, Number(sign * b.n, b.e))]

    def _cancelling_product(self) -> list[int]:
        """Return factors, and an addend that cancels their product but for one bit or what its format cannot hold."""
        a, b = self._any(0, digits=99), self._any(1, digits=99)
        digits = _digits(self.formats[1])
        if self.random.getrandbits(1) and isinstance(self.out, Float) and a.n & 1:
            # the product's low digits are a single 1: the addend takes the others away
            # a is odd, so it has an inverse modulo 2**digits, and a * low is a power of two modulo 2**digits
            low = (1 << self.random.randrange(digits)) * pow(abs(a.n), -1, 1 << digits) % (1 << digits)
            b = number_of(self.formats[1], code_beside(self.formats[1], Number(low, b.e), up=False))
        elif self.random.getrandbits(1):  # short factors, whose product the addend has
            of_addend = _digits(self.formats[2])
            length = self.random.randint(1, max(of_addend - 1, 1))
            # an addend of one digit leaves none to the second factor, which has at least one
            a, b = self._any(0, digits=length), self._any(1, digits=max(of_addend - length, 1))
        product = Number(a.n * b.n, a.e + b.e)
        more = Number(self.random.choice((0, 1, -1)), product.e + self.random.randrange(product.n.bit_length() + 1))
        rest = _plus(product, more)
        codes = [code_beside(fmt, x, up=False) for fmt, x in zip(self.formats[:2], (a, b), strict=True)]
        return [*codes, self._code(2, Number(-rest.n, rest.e))]

    def factors(self, target: Number) -> list[int]:
        """Return factors: a power of two, or any number, and the quotient; or such whose product ends in a pattern."""
        first, second = self.random.sample((0, 1), 2)
        # 0 a power of two, 1 a number of any length, 2 one of full length, 3 a pattern or, if none is found, as 2
        kind = self.random.randrange(4)
        if kind == 0:
            low, high = _exponents(self.formats[second], subnormal=True)
            leading = target.n.bit_length() - 1 + target.e
            factor = self._power(first, leading - self.random.randint(low, high))
        elif kind == 3 and (pair := self._pattern(first, second, target)):
            return pair
        else:
            factor = self._any(first, digits=None if kind == 1 else 99)
            # its exponent such that the other factor's lies in its range
            low, high = _exponents(self.formats[second])
            leading = target.n.bit_length() - 1 + target.e
            shift = leading - self.random.randint(low, high)
            lowest, highest = _exponents(self.formats[first])
            e = min(max(shift, lowest), highest) - (factor.n.bit_length() - 1)
            factor = number_of(self.formats[first], code_beside(self.formats[first], Number(factor.n, e), up=False))
        codes = [0, 0]
        codes[first] = code_beside(self.formats[first], factor, up=False)
        codes[second] = self._code(second, self._quotient(target, factor))
        return codes

    def _pattern(self, first: int, second: int, target: Number) -> list[int] | None:
        """Return factors whose product ends in a pattern: a tie, a single bit below it, or just beside it."""
        widths = [_digits(self.formats[i]) for i in (first, second)]
        a = self.random.getrandbits(widths[0]) | 1 | 1 << (widths[0] - 1)
        # a product of two full significands has as many digits as both together, or one fewer
        product_bits = sum(widths) - self.random.getrandbits(1)
        dropped = self._dropped(product_bits)
        # b has widths[1] digits, so it decides at most that many low digits of the product
        if dropped < 1 or dropped > widths[1]:
            return None
        half = 1 << (dropped - 1)
        low = 1 << self.random.randrange(dropped)
        # `half` is the guard; a wanted place counts from behind it
        bit = half >> self.random.choice(self.bits) if self.bits else low
        pattern = self.random.choice((half, half + 1, half - 1, half | low, half | bit, low))
        b = pattern * pow(a, -1, 1 << dropped) % (1 << dropped)
        if dropped < widths[1]:
            # the digits above the dropped ones are free; the leading one is set
            b |= self.random.getrandbits(widths[1]) >> dropped << dropped | 1 << (widths[1] - 1)
        elif not b >> (widths[1] - 1):
            # all digits of b are decided, and it is too short
            return None
        return self._placed((first, a), (second, b), target=target)

    def _tie(self, target: Number) -> list[int] | None:
        """Return factors whose product is a tie with an even last digit; None if no draw is one.

        Their digits are odd integers, and the product has one digit more than the result keeps. For a result in fixed
        point they are those of `_pattern`.
        """
        if not isinstance(self.out, Float):
            return self._pattern(0, 1, target)
        # the product of odd numbers ends in 1: with one digit too many this 1 is the guard alone, a tie
        wanted, widths = self.out.significand_bits + 1, [_digits(fmt) for fmt in self.formats[:2]]
        if wanted > sum(widths):
            return None
        for _ in range(TRIES):
            length = self.random.randint(max(wanted - widths[1], 1), min(widths[0], wanted))
            rest = min(max(wanted - length + self.random.getrandbits(1), 1), widths[1])
            a, b = (self.random.getrandbits(bits) | 1 | 1 << (bits - 1) for bits in (length, rest))
            # bit 1 is the last digit that is kept
            if (a * b).bit_length() == wanted and not a * b & 2:
                return self._placed((0, a), (1, b), target=target)
        return None

    def _placed(self, *factors: tuple[int, int], target: Number) -> list[int]:
        """Return the codes of two factors whose product is about as large as the target.

        Args:
            *factors: which operand, and its digits as an integer.
            target: the exact result that is wanted; only its magnitude counts.
        """
        leading = target.n.bit_length() - 1 + target.e
        (low, high), (least, most) = (_exponents(self.formats[i]) for i, _ in factors)
        # exponents of the first factor with which the second's lies in its range as well
        span = max(low, leading - most), min(high, leading - least)
        e = self.random.randint(*span) if span[0] <= span[1] else (low, high)[leading > 0]
        codes = [0, 0]
        for (i, n), exponent in zip(factors, (e, min(max(leading - e, least), most)), strict=True):
            sign = self.random.choice((1, -1)) if self.formats[i].signed else 1
            fmt, own = self.formats[i], exponent - n.bit_length() + 1
            codes[i] = code_beside(fmt, Number(sign * n, -fmt.frac_bits if isinstance(fmt, Fixed) else own), up=False)
        return codes

    def _dropped(self, product_bits: int) -> int:
        """Return how many low digits of a product are dropped."""
        if isinstance(self.out, Float):
            return product_bits - self.out.significand_bits
        places = [fmt.frac_bits for fmt in self.formats[:2] if isinstance(fmt, Fixed)]
        # of mixed formats, whose products have no fixed last place: about half
        return sum(places) - self.out.frac_bits if len(places) == 2 else product_bits // 2

    def factors_and_addend(self, target: Number) -> list[int]:
        """Return factors and addend: c has the high digits and a * b the rest, or c is one bit below those of a * b."""
        # 0 a tie and a bit, 1 a product and a bit, 2 any factors, 3 and 4 what c leaves, 5 a sum that cancels
        kind = self.random.choice((0, 0, 0, 3)) if self.bits else self.random.randrange(6)
        if kind == 5:
            return self._cancelling_product()
        if kind < 2:
            bit = self.random.choice(self.bits) if self.bits else self.random.randrange(1, 70)
            if kind == 0:  # a tie so large that the addend's format has a number as small as the bit
                low = _exponents(self.formats[2], subnormal=True)[0] + _digits(self.out) + bit
                top = _exponents(self.out)[1]
                target = Number(1, self.random.randint(min(low, top), top))
            # the addend is the bit alone, so the product keeps what it has
            factors = (kind == 0 and self._tie(target)) or self.factors(target)
            return [*factors, self._code(2, self._bit_below(factors, bit), up=False)]
        if kind == 2:
            factors = [code_beside(self.formats[i], self._any(i), up=False) for i in (0, 1)]
        else:
            high = number_of(self.formats[2], self._code(2, target))
            rest = _plus(target, Number(-high.n, high.e))
            # nothing is left for the product: a factor 0
            factors = self.factors(rest) if rest.n else [0, self._code(1, target)]
        a, b = (number_of(self.formats[i], code) for i, code in enumerate(factors))
        return [*factors, self._code(2, _plus(target, Number(-a.n * b.n, a.e + b.e)))]

    def _bit_below(self, factors: list[int], bit: int) -> Number:
        """Return 0, or one bit so far behind the guard of a product's result, with a sign."""
        a, b = (number_of(self.formats[i], code) for i, code in enumerate(factors))
        last = _last_place(self.out, Number(a.n * b.n, a.e + b.e))
        return Number(self.random.choice((0, 1, 1, -1)), last - 1 - bit)

    def dividend(self, target: Number) -> list[int]:
        """Return dividend and divisor: b any, or a power of two, and a the number nearest to target * b."""
        kind = self.random.randrange(4)
        low, high = _exponents(self.formats[1], subnormal=True)
        if kind == 0:
            b = self._power(1, self.random.randint(low, high))
        else:
            b = self._any(1, digits=99 if kind > 1 else None)
            if kind == 3 and (pair := self._near_half(b, target)):
                return pair
            own = [_exponents(self.formats[0]), _exponents(self.formats[1])]
            leading = target.n.bit_length() - 1 + target.e
            e = min(max(self.random.randint(*own[0]) - leading, own[1][0]), own[1][1]) - (b.n.bit_length() - 1)
            b = number_of(self.formats[1], code_beside(self.formats[1], Number(b.n, e), up=False))
        a = self._code(0, Number(target.n * b.n, target.e + b.e))
        return [a, code_beside(self.formats[1], b, up=False)]

    def _near_half(self, b: Number, target: Number) -> list[int] | None:
        """Return a and b with a * 2**places = (b +- 1) / 2 modulo b: no quotient's rest is nearer to a half.

        None if the numbers do not have the digits for it.
        """
        digits, n = _digits(self.formats[0]), abs(b.n) | 1
        # n has as many digits as the dividend's format, so that a, which is below n, may have all of them
        if not isinstance(self.out, Float) or n.bit_length() != digits or n < 3:
            return None
        places = self.out.significand_bits - self.random.getrandbits(1)
        # n is odd: 2 has an inverse modulo n, and a * 2**places leaves the rest (n +- 1) / 2
        a = (n + self.random.choice((1, -1))) // 2 * pow(2, -places, n) % n
        # too short: shifted into its place, it would give a quotient of other digits
        if not a >> (digits - 1):
            return None
        leading = target.n.bit_length() - 1 + target.e
        own = [_exponents(self.formats[0]), _exponents(self.formats[1])]
        e = self.random.randint(*own[1])
        exponent = min(max(leading + e, own[0][0]), own[0][1])
        return [
            code_beside(self.formats[0], Number(a, exponent - digits + 1), up=False),
            code_beside(self.formats[1], Number(n, e - n.bit_length() + 1), up=False),
        ]

    def multiple(self, target: Number) -> list[int]:
        """Return operands of a remainder: a = (q or q + 1/2) * b, and perhaps a little more."""
        b = self._any(1, digits=self.random.randint(1, max(_digits(self.formats[1]) - 4, 1)))
        q = self.random.getrandbits(self.random.randint(1, 4))
        # (q or q + 1/2) * b: the quotient is an integer or a tie of the remainder's rounding
        a = Number((2 * q + self.random.getrandbits(1)) * b.n, b.e - 1)
        if self.random.getrandbits(1):
            a = _plus(a, target)
        return [self._code(0, a), code_beside(self.formats[1], b, up=False)]

    # ---- terms of matmul --------------------------------------------------------------------------------------------

    def _terms(self, target: Number) -> tuple[list[int], ...]:
        """Return factors of all terms: one hits, another or the addend gives what is left, the others cancel."""
        depth = self.d.depth
        a, b = [0] * depth, [0] * depth
        order = self.random.sample(range(depth), depth)
        addend = None
        if len(self.formats) > 2:
            *factors, addend = self.factors_and_addend(target)
        elif depth > 1 and self.random.getrandbits(1):
            low, high = _exponents(self.formats[1], subnormal=True)
            unit = min(max(0, low), high)  # the second factor of the other term: 1, or the power of two next to it
            part = self._code(0, Number(target.n, target.e - unit))
            other = number_of(self.formats[0], part)
            factors = self.factors(_plus(target, Number(-other.n, other.e + unit)))
            a[order[1]], b[order[1]] = part, code_beside(self.formats[1], Number(1, unit), up=False)
        else:
            factors = self.factors(target)
        a[order[0]], b[order[0]] = factors
        # the second term is free: one bit far behind the first term's guard, or 0
        if len(order) > 1 and not b[order[1]]:
            low, high = _exponents(self.formats[0], subnormal=True)
            tiny = self._bit_below(factors, self.random.choice(self.bits or range(1, 70)))
            first = self._power(0, self.random.randint(low, high))
            a[order[1]] = code_beside(self.formats[0], first, up=False)
            b[order[1]] = code_beside(self.formats[1], Number(tiny.n, tiny.e - first.e), up=False)
        if self.formats[0].signed and not self.random.randrange(CANCELLING):
            # pairs of terms x * y and -x * y; the first two terms hold the target
            some = order[2 : 2 + MOST_CANCELLING]
            for i, j in zip(some[::2], some[1::2], strict=False):
                x, y = self._any(0), self._any(1)
                b[i] = b[j] = code_beside(self.formats[1], y, up=False)
                a[i] = code_beside(self.formats[0], x, up=False)
                a[j] = code_beside(self.formats[0], Number(-x.n, x.e), up=False)
        return (a, b, [addend]) if addend is not None else (a, b)


_SOLVERS: dict[str, Callable[[Aim, Number], list[int]]] = {
    "quantize": Aim.itself,
    "round_to_integral": Aim.itself,
    "sqrt": Aim.square,
    "add": Aim.summands,
    "subtract": Aim.summands,
    "multiply": Aim.factors,
    "divide": Aim.dividend,
    "fma": Aim.factors_and_addend,
    "remainder": Aim.multiple,
    **dict.fromkeys(SELECTIONS, Aim.chosen_from),
}


def _last_place(fmt: Format, number: Number) -> int:
    # exponent of the last digit that `fmt` keeps of the number
    if isinstance(fmt, Fixed):
        return -fmt.frac_bits
    return max(number.n.bit_length() - 1 + number.e, fmt.emin) - fmt.fraction_bits


def _plus(a: Number, b: Number) -> Number:
    e = min(a.e, b.e)
    return Number((a.n << (a.e - e)) + (b.n << (b.e - e)), e)


def _digits(fmt: Format) -> int:
    # of a word, all bits but the sign
    return fmt.significand_bits if isinstance(fmt, Float) else max(fmt.width_bits - fmt.signed, 1)


def _exponents(fmt: Format, *, subnormal: bool = False) -> tuple[int, int]:
    """Return the exponents of the smallest number above 0 and of the largest; of floats, the smallest normal one.

    Args:
        fmt: the format.
        subnormal: whether the smallest number may be subnormal. Without normal numbers it is, in any case.
    """
    if isinstance(fmt, Fixed):
        return -fmt.frac_bits, _digits(fmt) - 1 - fmt.frac_bits
    low = fmt.emin
    if fmt.has_subnormal_codes and (subnormal or not fmt.has_normals):
        low -= fmt.fraction_bits
    return low, max(fmt.emax, low)


def _reach(d: Description) -> tuple[int, int]:
    """Return the exponents that results can have, about."""
    ranges = [_exponents(fmt, subnormal=True) for fmt in d.operand_formats]
    # lowest and highest exponents of the first two operands
    (la, ha), (lb, hb) = ranges[0], ranges[1] if len(ranges) > 1 else ranges[0]
    match d.operation:
        case "multiply" | "fma" | "matmul":
            return la + lb, ha + hb + int(math.log2(d.depth))
        case "divide":
            return la - hb, ha - lb
        case "sqrt":
            return la // 2, ha // 2
        case _:
            return min(la, lb), max(ha, hb)
