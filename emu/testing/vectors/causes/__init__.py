"""What else could have written a code: another rule, another reading of operands, a habit of hardware.

    hypothesis.py   a fault's name, and the code that it would have written for every vector
    rules.py        other modes and rules, and what lies beyond the range
    rounding.py     carries, sticky bits, digits
    alignment.py    terms of a sum that lose digits
    zeros.py        signs of zero, subnormal numbers, hidden bits
    specials.py     infinities and NaN
    reading.py      operands, binary points, bytes, signs, cycles
    quotients.py    remainders by another quotient
    units.py        orders, widths and terms of products and sums
    requantisers.py kinds, steps and numbers of a requantiser
    scales.py       rules, codes and blocks of scales that elements share
    lanes.py        faults of a single lane
    constants.py    words that are rounded by adding a constant
    regional.py     any fault in one region alone (regions.py), and effects that are faults only there (effects.py)
    composed.py     a fault of operands and one of results at once
    conventions.py  what is written where arithmetic leaves it open, and stages that are missing
    flags.py        flags that are raised otherwise
    cover.py        which faults explain a dump

A new fault is a function that yields hypotheses, and a place in `FAMILIES`, or in `SCALE_FAMILIES` of scales that
results share: likely faults stand first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from emu.formats import Float
from emu.testing.vectors.causes.alignment import cut_alignment, cut_below_exponents, other_shifts
from emu.testing.vectors.causes.composed import composed, lowest_numbers
from emu.testing.vectors.causes.constants import rounding_constants
from emu.testing.vectors.causes.conventions import other_conventions
from emu.testing.vectors.causes.hypothesis import Family, Hypothesis
from emu.testing.vectors.causes.lanes import lane_faults, narrow_products
from emu.testing.vectors.causes.quotients import other_quotients
from emu.testing.vectors.causes.reading import (
    binary_points,
    exponents,
    lost_bits,
    low_bits,
    neighbouring_cycles,
    other_operations,
    random_bits,
    sign_and_magnitude,
    signs,
    stuck_bits,
    swapped_operands,
    turned_codes,
)
from emu.testing.vectors.causes.regional import regional
from emu.testing.vectors.causes.requantisers import other_requantisers
from emu.testing.vectors.causes.rounding import (
    dropped_sticky,
    ends,
    lost_carries,
    not_fused,
    other_digits,
    partial_sticky,
    rounded_twice,
    ties_by_bits,
)
from emu.testing.vectors.causes.rules import beyond_the_range, both, intermediates, other_overflow, other_rounding
from emu.testing.vectors.causes.scales import (
    other_blocks,
    other_largest,
    scale_rules,
    scales_off_by_one,
    special_blocks,
    tensor_number,
)
from emu.testing.vectors.causes.specials import invalid_results, nan_payloads
from emu.testing.vectors.causes.units import bounded_groups, missing_terms, other_units
from emu.testing.vectors.causes.zeros import flushed, hidden_bits, integers_below_one, signs_of_zero
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence

#: Faults that vectors are drawn to tell apart, likely ones first; cells have vectors for the others.
TOLD_APART: tuple[Family, ...] = (
    other_requantisers,
    other_rounding,
    other_overflow,
    signs_of_zero,
    flushed,
    swapped_operands,
    binary_points,
    other_operations,
    not_fused,
    rounded_twice,
    other_units,
)
#: All faults that are known here, in the order in which they are named if they explain as much.
FAMILIES: tuple[Family, ...] = (
    other_requantisers,
    other_rounding,
    other_overflow,
    other_conventions,
    lost_carries,
    partial_sticky,
    signs_of_zero,
    flushed,
    hidden_bits,
    integers_below_one,
    other_quotients,
    invalid_results,
    nan_payloads,
    beyond_the_range,
    ends,
    swapped_operands,
    binary_points,
    other_operations,
    not_fused,
    rounded_twice,
    other_units,
    missing_terms,
    bounded_groups,
    both,
    intermediates,
    signs,
    exponents,
    turned_codes,
    lost_bits,
    low_bits,
    random_bits,
    neighbouring_cycles,
    other_digits,
    ties_by_bits,
    cut_alignment,
    sign_and_magnitude,
    stuck_bits,
)
#: Faults of scales that results share, and of their elements.
SCALE_FAMILIES: tuple[Family, ...] = (
    scale_rules,
    scales_off_by_one,
    other_largest,
    other_blocks,
    special_blocks,
    tensor_number,
)
#: Those behind which a fault of elements is looked for.
BLOCK_PAIRS: tuple[Family, ...] = (scale_rules,)
#: Those that vectors of blocks should tell apart.
BLOCK_TOLD_APART: tuple[Family, ...] = (
    scale_rules,
    scales_off_by_one,
    other_largest,
    other_blocks,
    other_rounding,
    other_overflow,
    signs_of_zero,
    flushed,
)
#: Faults of several operands, of sums, and of conventions that results which share scales do not have.
_NOT_OF_BLOCKS: frozenset[Family] = frozenset(
    (
        other_requantisers,
        other_conventions,
        hidden_bits,
        integers_below_one,
        other_quotients,
        nan_payloads,
        swapped_operands,
        other_operations,
        not_fused,
        other_units,
        missing_terms,
        bounded_groups,
        intermediates,
        cut_alignment,
        sign_and_magnitude,
    )
)
#: Faults of scales, then of elements, that are known of results which share scales.
BLOCK_FAMILIES: tuple[Family, ...] = (
    *SCALE_FAMILIES,
    *(family for family in FAMILIES if family not in _NOT_OF_BLOCKS),
)
#: Faults that are looked at if those leave differences unexplained.
FURTHER: tuple[Family, ...] = (
    rounding_constants,
    lowest_numbers,
    other_shifts,
    cut_below_exponents,
    narrow_products,
    lane_faults,
)
#: Faults of results that may stand behind a fault of operands.
SECOND: tuple[Family, ...] = (other_rounding, other_overflow, both, lost_carries, dropped_sticky, flushed)


def further_hypotheses(evidence: Evidence, known: Sequence[Hypothesis], given: Codes) -> Iterator[Hypothesis]:
    """Yield the faults that a dump is searched for if `known` ones leave differences unexplained.

    Args:
        evidence: the vectors.
        known: faults that were tried.
        given: the dump's codes, (count,).
    """
    more = list(hypotheses(evidence, FURTHER))
    yield from more
    yield from composed(evidence, SECOND, given)
    yield from regional(evidence, [*known, *more], given)


def hypotheses(evidence: Evidence, families: Sequence[Family] = FAMILIES) -> Iterator[Hypothesis]:
    """Yield what each fault would have written, likely faults first; a family yields nothing twice.

    Codes are laid out as in `Evidence.expected`: results that share scales are followed by these scales.
    """
    for family in families:
        # several parameters of a fault often write the same codes, of which the first name is enough
        known: set[bytes] = set()
        for name, codes in family(evidence):
            # conventions are about NaN themselves, and have set their codes already
            if family is not other_conventions:
                codes = evidence.joined(_with_nans(evidence, codes))
            if (content := codes.tobytes()) not in known:
                known.add(content)
                yield name, codes


def _with_nans(e: Evidence, codes: Codes) -> Codes:
    """Return codes with the description's NaNs in place of canonical ones: its rule for NaN is no fault."""
    d = e.description
    if d.nan == "canonical" and d.nan_code is None:
        return codes
    # families compute with the canonical NaN; the description's rule is applied again to what is NaN in any case
    assert isinstance(e.format, Float)
    return np.where((codes == np.uint64(e.format.nan_code or 0)) & e.is_nan, e.results, codes)
