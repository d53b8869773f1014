"""Faults of the rounding hardware: carries, sticky bits, guard digits, rounding twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import encode_stage
from emu.backends.reference.exact import Exact, bit_length
from emu.backends.reference.stage import round_to
from emu.datapath import OutputStage
from emu.formats import Fixed, Float, parse_number
from emu.testing.hard import last_index, negated
from emu.testing.vectors.causes.hypothesis import Hypothesis, like, restaged
from emu.testing.vectors.definition import answer, written
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask

Array = NDArray[Any]
#: Formats that a result may pass through on its way to a narrower one.
WIDER = ("fp32", "fp16", "bf16")
#: Places behind the guard up to which a sticky bit may look, and those at which it may be blind.
MOST_STICKY = 64
#: Digits of a quotient, a root or another result beyond those of its format, before it is rounded: 0 to 6 are tried.
MOST_MORE_DIGITS = 7


def rounds_here(e: Evidence) -> bool:
    """Return whether results are rounded without random bits; the result of a Mac is rounded from its accumulator."""
    return not e.description.is_stochastic


def _codes_of(e: Evidence, magnitude: Array, where: Mask) -> Codes:
    """Return the codes of magnitudes, in steps of the grid, with the results' signs; outside `where` the results."""
    fmt = e.format
    # a magnitude that the format has no code for leaves the result
    where = where & (magnitude <= last_index(fmt)).astype(bool) & (magnitude >= 0).astype(bool)
    safe = np.where(where, magnitude, 0)
    if isinstance(fmt, Fixed):
        raws = np.where(e.exact.negative, -safe, safe)
        # `negated` knows how the format writes negative words
        codes = np.array([int(raw) & (fmt.n_codes - 1) for raw in np.abs(raws)], np.uint64)
        codes = np.where((raws < 0).astype(bool), negated(fmt, codes), codes)
    else:
        codes = np.maximum(safe - fmt.lowest_index, 0).astype(np.uint64)
        codes |= np.where(e.exact.negative & fmt.signed, np.uint64(fmt.sign_code), np.uint64(0))
    return np.where(where, codes, e.results)


def lost_carries(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a rounding adder that is too short: the carry out of its bits is lost, or not made."""
    if not rounds_here(e) or e.description.operation == "round_to_integral":
        return
    steps, fmt = e.steps, e.format
    if isinstance(fmt, Float):
        through = steps.carries_through(fmt.fraction_bits)
        # a fraction of all ones that is raised becomes 0; the carry would have raised the exponent field
        lost = steps.index >> fmt.fraction_bits << fmt.fraction_bits
        normal = through & (steps.index >= e.normal).astype(bool)
        reaches = through & (steps.index == e.normal - 1).astype(bool)
        yield "a lost carry of the rounding adder: the exponent stays", _codes_of(e, lost, normal)
        yield "a lost carry of the rounding adder, of subnormals too", _codes_of(e, lost, through)
        yield "a number that rounds up to the next exponent stays below it", _codes_of(e, steps.index, normal)
        yield "a subnormal that rounds to the smallest normal becomes 0", _codes_of(e, steps.index * 0, reaches)
        yield "a subnormal that rounds to the smallest normal stays subnormal", _codes_of(e, steps.index, reaches)
        twice = steps.index + 1 + (1 << fmt.fraction_bits)
        yield "the exponent raised twice by the carry of rounding", _codes_of(e, twice, normal)
    for bits in range(1, fmt.width_bits):
        # the width of the fraction: yielded above, by the name of what is lost
        if isinstance(fmt, Float) and bits == fmt.fraction_bits:
            continue
        yield f"a rounding adder of {bits} bits, whose carry is lost", _short_adder(e, bits)


def _short_adder(e: Evidence, bits: int) -> Codes:
    steps = e.steps
    if isinstance(e.format, Float) or e.format.sign_magnitude:
        # the adder raises the magnitude
        lost, carries = steps.index >> bits << bits, steps.carries_through(bits) & ~e.beyond
        if isinstance(e.format, Float):
            return _codes_of(e, lost, carries)
        # the sign bit stays, also where the magnitude becomes 0
        signs = np.where(e.exact.negative, 1 << (e.format.width_bits - 1), 0)
        codes = np.where(carries, lost, 0).astype(np.uint64) | signs.astype(np.uint64)
        return np.where(carries, codes, e.results)
    # in two's complement the adder raises what was rounded down, of a negative number too
    magnitude = steps.magnitude
    raw = np.where(e.exact.negative, -magnitude, magnitude)
    # `kept` is cut toward zero; two's complement is cut downward
    down = np.where(e.exact.negative, -steps.kept - steps.inexact.astype(object), steps.kept)
    ones = (1 << bits) - 1
    carries = ((raw == down + 1) & (down & ones == ones)).astype(bool) & ~e.beyond & steps.finite
    codes = np.array([int(x) & (e.format.n_codes - 1) for x in raw - (1 << bits)], np.uint64)
    return np.where(carries, codes, e.results)


def partial_sticky(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a sticky bit that looks at some of the dropped bits alone."""
    if not rounds_here(e) or e.description.operation == "round_to_integral":
        return
    steps = e.steps
    # how many dropped bits stand behind the guard
    behind = np.maximum(steps.drop - 1, 0)
    yield from dropped_sticky(e)
    yield "a sticky bit stuck at 1", _always_sticky(e)
    deepest = int(behind.max(initial=0))
    whole = e.exact.as_object().significand
    # widths between two such places all write the same, as no result ends there
    places = sorted({int(x) for x in np.unique(_lowest_place(whole, steps.drop)) if 0 < x <= MOST_STICKY})
    for bits in places:
        if bits <= deepest:
            # digits from here on are not looked at; `places` are those at which some result ends
            yield f"a sticky bit of {bits - 1} bits behind the guard", _cut(e, np.maximum(behind - (bits - 1), 0))
            if isinstance(e.format, Fixed) and e.format.signed and not e.format.sign_magnitude:
                name = f"a sticky bit of {bits - 1} bits behind the guard, in two's complement"
                yield name, _cut(e, np.maximum(behind - (bits - 1), 0), two_s_complement=True)
    if isinstance(e.format, Float):
        for more in range(MOST_MORE_DIGITS):
            digits = e.format.significand_bits + more
            name = f"results cut to {digits} digits before they are rounded, without a sticky bit"
            yield name, _cut(e, np.maximum(e.exact.bit_length - digits, 0))
    for place in range(1, min(deepest, MOST_STICKY) + 1):
        yield f"a sticky bit that misses bit {place} behind the guard", _without_bit(e, behind, place)


def dropped_sticky(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a unit that looks at nothing behind the guard bit."""
    if rounds_here(e) and e.description.operation != "round_to_integral":
        behind = np.maximum(e.steps.drop - 1, 0)
        yield "a dropped sticky bit: nothing behind the guard bit was looked at", _cut(e, behind)


def _always_sticky(e: Evidence) -> Codes:
    """Return the codes of results that are all taken for a little larger."""
    exact = e.exact.as_object()
    # a 1 two places behind the last digit: less than any digit of the result, and no rounding can be exact
    more = np.where(e.steps.nonzero, 4 * exact.significand + 1, exact.significand)
    return rewritten(
        e, replace(exact, significand=more, exponent=np.where(e.steps.nonzero, exact.exponent - 2, exact.exponent))
    )


def ties_by_bits(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of ties that go by another bit than the last one."""
    if not rounds_here(e) or e.description.operation == "round_to_integral":
        return
    steps = e.steps
    for bit in (1, 2):
        up = (steps.kept >> bit & 1 == 1).astype(bool)
        # elsewhere than at ties the results are right
        magnitude = steps.index + np.where(steps.is_tie, up, steps.moved).astype(object)
        yield (
            f"ties that go by bit {bit} of the result, not by its last one",
            _codes_of(e, magnitude, steps.is_tie & ~e.beyond),
        )


def ends(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of an overflow that is judged before rounding, or too early."""
    fmt, steps = e.format, e.steps
    if e.description.operation in ("round_to_integral", "remainder"):
        return
    at_top = (steps.index == last_index(fmt)).astype(bool) & steps.finite
    over = at_top & steps.inexact & (steps.moved == 0)
    if isinstance(fmt, Float):
        sign = np.where(e.exact.negative & fmt.signed, np.uint64(fmt.sign_code), np.uint64(0))
        for name, code in (("infinity", fmt.infinity_code), ("NaN", fmt.nan_code)):
            if code is not None:
                value = sign | np.uint64(code)
                yield (
                    f"overflow judged before rounding: {name} for what rounds down to the end",
                    np.where(over, value, e.results),
                )
        return
    wrapped = at_top & (steps.moved == 1)
    # the word after the largest one: the lowest number in two's complement, 0 without a sign
    turned = np.uint64((fmt.max_raw + 1) & (fmt.n_codes - 1))
    yield "overflow judged before rounding: the end wraps when it is rounded up", np.where(wrapped, turned, e.results)


def _lowest_place(significand: Array, drop: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how far behind the guard the last 1 of each result stands."""
    # x & -x is the last 1
    trailing = bit_length(significand & -significand) - 1
    return drop - 1 - trailing


def _cut(e: Evidence, low: NDArray[np.int64], *, two_s_complement: bool = False) -> Codes:
    """Return the codes of exact results whose lowest `low` digits are 0."""
    exact, steps = e.exact.as_object(), e.steps
    # `drop` counts from the exponent of the exact result, as `low` does
    shift = np.where(steps.nonzero, low, 0).astype(object)
    digits = exact.significand >> shift << shift
    if two_s_complement:  # the digits of a negative number are those of its complement: cut, they go down
        digits = np.where(exact.negative, -(-exact.significand >> shift << shift), digits)
    return rewritten(e, replace(exact, significand=digits))


def _without_bit(e: Evidence, behind: NDArray[np.int64], place: int) -> Codes:
    exact = e.exact.as_object()
    there = e.steps.nonzero & (behind >= place)
    bit = np.where(there, 1 << np.maximum(behind - place, 0).astype(object), 0)
    return rewritten(e, replace(exact, significand=exact.significand & ~bit))


def rewritten(e: Evidence, exact: Exact) -> Codes:
    """Return the codes of changed exact results; those that became 0 keep their sign, as a rounded number does."""
    before = e.exact
    changed = ((exact.significand != before.significand) | (exact.exponent != before.exponent)).astype(bool)
    if not changed.any():
        return e.results
    rows = np.flatnonzero(changed)
    return rewritten_rows(e, rows, at_rows(exact, rows))


def at_rows(exact: Exact, rows: NDArray[np.int64]) -> Exact:
    """Return some of the exact results."""
    return Exact(exact.negative[rows], exact.significand[rows], exact.exponent[rows], exact.kind[rows])


def rewritten_rows(e: Evidence, rows: NDArray[np.int64], exact: Exact) -> Codes:
    """Return the codes of changed exact results in some rows, and the results elsewhere."""
    codes, rbits = e.results.copy(), e.vectors.rbits
    codes[rows] = written(e.description, exact, None if rbits is None else rbits[rows]).codes
    return codes


def other_digits(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of results that are rounded at another digit, before or after, or twice."""
    if not rounds_here(e) or e.description.operation == "round_to_integral":
        return
    last = e.steps.last
    for digits in (1, 2, 3):
        yield f"results rounded to {digits} digits too few", rewritten(e, _rounded_at(e, last + digits))
    if isinstance(e.format, Float):
        # the last place that the result would have if exponents had no lower end
        full = np.where(e.steps.nonzero, e.exact.leading - e.format.fraction_bits, last)
        yield "subnormal results rounded twice, to full precision first", rewritten(e, _rounded_at(e, full))
    for digits in (1, 2, 3, 4):
        first = rewritten(e, _rounded_at(e, last - digits))
        yield f"results rounded twice, to {digits} more digits first", first


def _rounded_at(e: Evidence, last: NDArray[np.int64]) -> Exact:
    exact, d = e.exact.as_object(), e.description
    code = encode_stage(d.stage)
    # with a precision of 1, `round_to` takes the parity of a tie from the exponent field; here it is the digit's own
    rounded, _ = round_to(exact, last, code._replace(format=code.format._replace(precision=0)), None, 0)
    exponent = np.minimum(exact.exponent, last)
    digits = rounded << np.maximum(last - exponent, 0).astype(object)
    # an exact result that ends before `last` stays as it is
    finer = last < exact.exponent
    return replace(
        exact,
        significand=np.where(finer, exact.significand, digits),
        exponent=np.where(finer, exact.exponent, exponent),
    )


def rounded_twice(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of results that pass through a wider float format."""
    d, fmt = e.description, e.format
    if d.is_stochastic or not isinstance(fmt, Float):
        return
    for name in WIDER:
        wider = parse_number(name)
        assert isinstance(wider, Float)
        # a single operand that has the wider format already is not rounded by a pass through it
        if wider.fraction_bits > fmt.fraction_bits and wider.width_bits > fmt.width_bits and d.formats != (name,):
            first = restaged(e, OutputStage.of(wider, d.stage.rounding))
            stage = {"rounding": d.stage.rounding.value, "overflow": d.stage.overflow.value}
            # from the wider format as an operand: every exact number before it is gone
            narrowing = like(d, operation="quantize", formats=(name,), out_format=str(fmt), depth=1, mac={}, **stage)
            yield f"results rounded twice, to {name} first", answer(narrowing, (first,), None).codes


def not_fused(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a product that is rounded before the sum."""
    d = e.description
    if d.operation != "fma" or d.is_stochastic:
        return
    *factors, c = e.vectors.operands
    product = like(d, operation="multiply", formats=d.formats[:2])
    rounded = answer(product, tuple(factors), None).codes
    total = like(d, operation="add", formats=(d.out_format, d.formats[2]))
    yield "a product rounded before the sum (not fused)", answer(total, (rounded, c), None).codes
