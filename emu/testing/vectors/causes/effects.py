"""What a unit may write in a region, whatever is right there: 0, an end, a neighbour, digits without the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.formats import Fixed, Float
from emu.testing.hard import negated
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.description import NAMES, Codes
from emu.testing.vectors.evidence import Evidence

Array = NDArray[Any]


def effects(e: Evidence) -> Iterator[Hypothesis]:
    """Yield codes that a unit may write in some region; written for all vectors, each would be absurd."""
    if isinstance(e.format, Float):
        yield from _of_floats(e, e.format)
    else:
        yield from _of_words(e, e.format)
    for name, fmt, codes in zip(NAMES, e.description.operand_formats, e.vectors.operands, strict=False):
        if fmt == e.format and codes.ndim == 1:
            yield f"operand {name} as the result", codes
            yield f"operand {name} with the other sign as the result", negated(fmt, codes)


def _of_floats(e: Evidence, fmt: Float) -> Iterator[Hypothesis]:
    results = e.results
    # unsigned formats have no sign bit to set; formats whose -0 is NaN have no negative zero
    negative = e.exact.negative & fmt.signed
    sign = np.where(negative, np.uint64(fmt.sign_code), np.uint64(0))
    zero = np.where(negative & fmt.has_negative_zero, np.uint64(fmt.sign_code), np.uint64(0))
    yield "0", zero
    yield "+0", np.zeros_like(results)
    if fmt.has_negative_zero:
        yield "-0", np.full_like(results, fmt.sign_code)
    for name, code in (
        ("infinity", fmt.infinity_code), ("the largest number", fmt.max_code), ("NaN", fmt.nan_code),
        # codes ascend with magnitudes; 1 << fraction_bits has the exponent field 1 and the fraction 0
        ("the smallest number", 1), ("the smallest normal number", 1 << fmt.fraction_bits),
    ):  # fmt: skip
        if code is not None:
            yield name, np.uint64(code) | (np.zeros_like(sign) if name == "NaN" else sign)
    yield from _steps(e, fmt, sign)
    fraction = np.uint64((1 << fmt.fraction_bits) - 1)
    yield "a fraction of 0", results & ~fraction
    yield "a fraction of all ones", results | fraction


def _steps(e: Evidence, fmt: Float, sign: Codes) -> Iterator[Hypothesis]:
    """Yield neighbours of results, and results that are normalised by a place too few or too many."""
    steps, results = e.steps, e.results
    usual = steps.nonzero & ~e.beyond
    rounded = steps.rounded
    mask = fmt.sign_code - 1

    def coded(index: Array, where: Array = usual) -> Codes:
        # indices count steps from 0 on; codes begin `lowest_index` steps above it if the format has no subnormals
        inside = np.where(where, (index - fmt.lowest_index) & mask, 0).astype(np.uint64)
        return np.where(where, inside | sign, results)

    yield "one step too much", coded(rounded + 1)
    yield "one step too little", coded(np.maximum(rounded - 1, 0))
    yield "no rounding: what is dropped is not looked at", coded(steps.index)
    yield "what is dropped always rounded up", coded(steps.index + steps.inexact.astype(object))
    yield "the exponent and fraction as they are, though the number overflows", coded(rounded, steps.nonzero)
    # digits of a normal number: `field` and, with their first 1, `digits`; `rest` are the dropped ones
    normal = usual & (steps.index >= e.normal).astype(bool)
    f = fmt.fraction_bits
    field, digits = steps.index >> f, (steps.index & ((1 << f) - 1)) | 1 << f
    # exponent field 1 is left out where a field of one less would be that of subnormals
    low = normal & (field > 1).astype(bool)
    early = ((field + 1) << f) | digits >> 1
    yield "a first digit one place too low, taken for the fraction's", coded(early, normal)
    yield "a first digit one place too low, taken for the fraction's, but at the lowest exponent", coded(early, low)
    late = ((field - 1) << f) | ((digits << 1 | steps.guard) & ((1 << f) - 1))
    yield "a first digit that is shifted out, and the next ones taken for the fraction", coded(late, low)
    yield (
        "the fraction one place too far to the left",
        coded(field << f | (digits << 1 | steps.guard) & ((1 << f) - 1), normal),
    )
    yield "the fraction one place too far to the right", coded(field << f | digits >> 1, normal)


def _of_words(e: Evidence, fmt: Fixed) -> Iterator[Hypothesis]:
    results, mask = e.results, fmt.n_codes - 1
    yield "0", np.zeros_like(results)
    yield "the largest number", np.full_like(results, fmt.max_raw)
    if fmt.signed:
        yield "the lowest number", np.full_like(results, 1 << (fmt.width_bits - 1))
        yield "the other sign", negated(fmt, results)
    yield "all bits inverted", results ^ np.uint64(mask)
    yield "one step too much", results + np.uint64(1) & np.uint64(mask)
    yield "one step too little", results - np.uint64(1) & np.uint64(mask)
    yield "twice its value", results << np.uint64(1) & np.uint64(mask)
    raw = np.where(e.exact.negative, -e.steps.kept, e.steps.kept)
    where = e.steps.nonzero
    # two's complement that drops bits goes down: a negative number that is inexact is one step lower than its magnitude
    # cut
    for name, whole in (
        ("no rounding: what is dropped is not looked at", raw - (e.exact.negative & e.steps.inexact).astype(object)),
        ("no rounding of the magnitude: what is dropped is not looked at", raw),
    ):
        codes = np.array([int(x) & mask for x in np.where(where, whole, 0)], np.uint64)
        yield name, np.where(where, codes, results)
