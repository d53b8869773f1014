"""Flags that are raised otherwise: one that is missing, another tininess, flags that are never cleared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from emu.backends.reference.exact import FINITE, INFINITE
from emu.datapath import Tininess
from emu.formats import Float
from emu.testing.hard import last_index
from emu.testing.vectors.causes.hypothesis import Hypothesis, of_neighbouring_cycles
from emu.testing.vectors.definition import ACCUMULATOR_BIT, answer, signalling, with_flags_of
from emu.testing.vectors.description import TESTFLOAT_FLAGS, Codes, FlagRule
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask

BIT = {name: np.uint64(1 << bit) for bit, name in enumerate(TESTFLOAT_FLAGS)}
# the position in these tuples is the bit of the flag
NAMES = (*TESTFLOAT_FLAGS, "accumulator_overflow")
_NONE = np.uint64(0)


def flag_hypotheses(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the flags that each fault would have raised, likely faults first."""
    flags = e.vectors.flags
    for name in NAMES:
        bit = np.uint64(1 << NAMES.index(name))
        yield f"{name} missing", flags & ~bit
    if isinstance(e.format, Float):
        yield from _underflows(e)
    yield from _inexacts(e)
    yield from _invalids(e)
    yield from _of_the_other_rule(e)
    # only a unit with an accumulator has the sixth flag
    for name in NAMES[: 6 if e.is_product_sum else 5]:
        bit = np.uint64(1 << NAMES.index(name))
        yield f"{name} raised always", flags | bit
    yield "flags that are never cleared", np.bitwise_or.accumulate(flags)
    for first, second in combinations(TESTFLOAT_FLAGS, 2):
        a, b = flags & BIT[first] != 0, flags & BIT[second] != 0
        rest = flags & ~(BIT[first] | BIT[second])
        swapped = rest | np.where(a, BIT[second], _NONE) | np.where(b, BIT[first], _NONE)
        yield f"{first} and {second} swapped", swapped
    turned = np.zeros_like(flags)
    for bit in range(len(TESTFLOAT_FLAGS)):
        turned |= (flags >> np.uint64(bit) & np.uint64(1)) << np.uint64(len(TESTFLOAT_FLAGS) - 1 - bit)
    yield "flags in the other order of bits", turned
    if flags.size > 2:
        for when, moved in of_neighbouring_cycles(flags):
            yield f"flags are those of the cycle {when}", moved


def _of_the_other_rule(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the flags of emu where IEEE 754's are wanted, and the other way round."""
    rule: FlagRule = "emu" if e.description.flag_rule == "ieee" else "ieee"
    whose = {"ieee": "IEEE 754's flags", "emu": "emu's flags"}[rule]
    yield f"{whose}, which --flags {rule} takes for right", with_flags_of(rule, e.vectors).flags


def _with(flags: Codes, name: str, raised: Mask) -> Codes:
    return (flags & ~BIT[name]) | np.where(raised, BIT[name], _NONE)


def _underflows(e: Evidence) -> Iterator[Hypothesis]:
    flags, v, fmt = e.vectors.flags, e.vectors, e.format
    assert isinstance(fmt, Float)
    inexact, overflow = flags & BIT["inexact"] != 0, flags & BIT["overflow"] != 0
    # of stochastic rounding the description knows tininess before rounding alone (`Description.underflow`)
    for tininess in Tininess:
        if e.description.is_stochastic:
            break
        other = answer(e.description, v.operands, v.rbits, tininess=tininess).flags & BIT["underflow"] != 0
        yield f"underflow by tininess {tininess.value.replace('_', ' ')}", _with(flags, "underflow", other)
    results = fmt.decode(e.results)
    small = (np.abs(results) < fmt.smallest_normal) & e.steps.nonzero
    yield "underflow where the written result is subnormal or 0", _with(flags, "underflow", small & inexact)
    yield (
        "underflow where the written result is subnormal, not 0",
        _with(flags, "underflow", small & inexact & (results != 0)),
    )
    became_zero = e.steps.nonzero & (results == 0) & ~overflow
    yield "underflow where a number becomes 0 alone", _with(flags, "underflow", became_zero)
    tiny = e.steps.nonzero & (e.steps.index < e.normal).astype(bool)
    yield "underflow of all that is tiny before rounding", _with(flags, "underflow", tiny)
    # IEEE 754 raises underflow by default only for tiny results that are inexact
    exact_ones = tiny & ~e.steps.inexact
    yield (
        "underflow of exact subnormal results, too",
        _with(flags, "underflow", exact_ones | (flags & BIT["underflow"] != 0)),
    )
    smallest = np.abs(results) == fmt.smallest_normal
    yield (
        "underflow of the smallest normal number, too",
        _with(flags, "underflow", (flags & BIT["underflow"] != 0) | (smallest & inexact)),
    )


def _inexacts(e: Evidence) -> Iterator[Hypothesis]:
    flags = e.vectors.flags
    overflow, underflow = flags & BIT["overflow"] != 0, flags & BIT["underflow"] != 0
    yield "overflow without inexact", np.where(overflow, flags & ~BIT["inexact"], flags)
    yield "underflow without inexact", np.where(underflow, flags & ~BIT["inexact"], flags)
    steps = e.steps
    yield (
        "inexact by the guard bit alone",
        _with(flags, "inexact", (flags & BIT["inexact"] != 0) & (steps.guard == 1).astype(bool)),
    )
    yield "inexact where rounding raises the magnitude alone", _with(flags, "inexact", steps.moved == 1)
    infinite = ~steps.finite & ~e.is_nan
    yield "overflow for infinite operands, too", np.where(infinite, flags | BIT["overflow"] | BIT["inexact"], flags)
    yield "overflow for infinite operands, too, without inexact", np.where(infinite, flags | BIT["overflow"], flags)
    # within the range before rounding, beyond it after
    at_top = (steps.index == last_index(e.format)).astype(bool) & (steps.moved == 1)
    yield "no overflow where rounding alone leaves the range", np.where(at_top, flags & ~BIT["overflow"], flags)
    yield "inexact of overflow alone missing", np.where(overflow & ~steps.inexact, flags & ~BIT["inexact"], flags)


def _invalids(e: Evidence) -> Iterator[Hypothesis]:
    flags = e.vectors.flags
    given = e.invalids.get("a NaN operand", np.zeros(flags.shape, bool))
    yield "invalid for quiet NaN operands, too", np.where(given, flags | BIT["invalid"], flags)
    noisy = signalling(e.vectors)
    yield "no invalid for signalling NaN", np.where(noisy, flags & ~BIT["invalid"], flags)
    yield "invalid for signalling NaN, too", np.where(noisy, flags | BIT["invalid"], flags)
    for name, inside in e.invalids.items():
        if name != "a NaN operand" and inside.any():
            yield f"no invalid for {name}", np.where(inside, flags & ~BIT["invalid"], flags)
    by_zero = e.infinities.get("a number divided by 0", np.zeros(flags.shape, bool))
    if by_zero.any():
        bits = BIT["infinite"]
        yield "invalid instead of infinite", np.where(by_zero, (flags & ~bits) | BIT["invalid"], flags)
        yield "overflow instead of infinite", np.where(by_zero, (flags & ~bits) | BIT["overflow"], flags)
        # infinity / 0 is infinite without a flag, as its dividend is no finite number
        divided = e.steps.exact.kind == INFINITE
        yield "infinite for infinity divided by 0, too", np.where(divided & _zero_divisor(e), flags | bits, flags)
        none = e.invalids.get("0 / 0", np.zeros(flags.shape, bool))
        yield "infinite for 0 / 0, too", np.where(none, flags | bits, flags)
    if e.is_product_sum:
        bit, overflow = np.uint64(1 << ACCUMULATOR_BIT), flags & BIT["overflow"] != 0
        yield (
            "accumulator_overflow where the result overflows alone",
            (flags & ~bit) | np.where(overflow, bit, _NONE),
        )


def _zero_divisor(e: Evidence) -> Mask:
    divisor = e.parts[1]
    return (divisor.significand == 0).astype(bool) & (divisor.kind == FINITE)
