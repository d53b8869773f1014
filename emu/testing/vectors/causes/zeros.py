"""Faults at zero: its sign, by what made it; subnormal numbers flushed, or read with a hidden bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from emu.backends.reference.exact import FINITE, Exact
from emu.errors import EmuError
from emu.formats import Float, Format
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.definition import written
from emu.testing.vectors.description import NAMES, Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import exact_results

#: Exponents that a format has below those of the results: enough for one more binade, and few enough to keep the top.
MORE_EXPONENTS = 4


def signs_of_zero(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of zeros with another sign, those of one origin first."""
    fmt, results = e.format, e.results
    if not isinstance(fmt, Float) or not fmt.has_negative_zero:
        return
    sign = np.uint64(fmt.sign_code)
    origins = {name: mask for name, mask in e.zeros.items() if mask.any()}
    for name, mask in origins.items():
        yield f"{name} gives -0", np.where(mask, sign, results)
        yield f"{name} gives +0", np.where(mask, np.uint64(0), results)
        yield f"the sign of zero is turned: {name}", np.where(mask, results ^ sign, results)
        if e.description.operation == "fma":
            product = np.where(e.parts[0].negative ^ e.parts[1].negative, sign, np.uint64(0))
            yield f"{name} gives the sign of the product", np.where(mask, product, results)
        for i, part in enumerate(e.parts):
            own = np.where(part.negative, sign, np.uint64(0))
            yield f"{name} gives the sign of operand {NAMES[i]}", np.where(mask, own, results)
    if len(origins) > 1:
        yield "a lost sign of zero", np.where(e.is_zero, np.uint64(0), results)
        yield "a sign of zero turned", np.where(e.is_zero, results ^ sign, results)


def flushed(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of subnormal results or operands that count as 0."""
    fmt, results = e.format, e.results
    if not isinstance(fmt, Float):
        return
    if not fmt.ftz:
        values = fmt.decode(results)
        tiny = (np.abs(values) < fmt.smallest_normal) & (values != 0)
        signs = np.where(np.signbit(values), np.uint64(fmt.sign_code if fmt.has_negative_zero else 0), np.uint64(0))
        yield "subnormal results flushed to zero", np.where(tiny, signs, results)
        yield "subnormal results flushed to +0", np.where(tiny, np.uint64(0), results)
        # a unit that decides before it rounds also loses what would have been rounded up to the smallest normal
        before = e.steps.nonzero & (e.steps.index < e.normal).astype(bool) & ~e.is_zero
        yield (
            "results that are tiny before rounding flushed to zero",
            np.where(before, np.where(e.exact.negative & fmt.has_negative_zero, np.uint64(fmt.sign_code), 0), results),
        )
    formats = e.description.operand_formats
    everywhere = tuple(_daz(f) for f in formats)
    if everywhere != formats:
        yield "subnormal operands taken as zero", e.answered(formats=everywhere)
    for i in range(len(formats)) if len(formats) > 1 else ():
        changed = tuple(_daz(f) if i == j else f for j, f in enumerate(formats))
        if changed != formats:
            yield f"subnormal numbers of operand {NAMES[i]} taken as zero", e.answered(formats=changed)


def _daz(fmt: Format) -> Format:
    """Return an operand's format with `daz`, if a format may have it: it needs a zero and normal values."""
    return replace(fmt, daz=True) if isinstance(fmt, Float) and fmt.has_subnormal_codes and fmt.has_normals else fmt


def integers_below_one(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of a rounding to integers that takes every number below 1 for 0."""
    if e.description.operation == "round_to_integral" and isinstance(e.format, Float):
        small = e.steps.nonzero & (e.exact.leading < 0)
        sign = np.where(e.exact.negative & e.format.has_negative_zero, np.uint64(e.format.sign_code), np.uint64(0))
        yield "all numbers between -1 and 1 become 0", np.where(small, sign, e.results)


def hidden_bits(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of operands whose hidden bit is 1 at exponent 0, or whose subnormals have a wrong exponent."""
    d, formats = e.description, e.description.operand_formats
    if e.is_product_sum:
        return
    floats = [
        i for i, fmt in enumerate(formats) if isinstance(fmt, Float) and fmt.has_subnormal_codes and fmt.fraction_bits
    ]
    each = [[i] for i in floats] if len(floats) > 1 else []
    readings = {
        "a hidden bit of 1 at exponent 0: numbers there are normal": (True, -1),
        "a hidden bit of 1 at exponent 0, read as exponent 1": (True, 0),
        "subnormal numbers read with half their value": (False, -1),
    }
    # all operands at once, then each of several alone
    for (name, (hidden, up)), operands in chain(
        ((item, floats) for item in readings.items()), ((item, one) for item in readings.items() for one in each)
    ):
        if not operands:
            continue
        parts = [_reread(e, i, hidden, up) if i in operands else part for i, part in enumerate(e.parts)]
        try:
            codes = written(d, exact_results(d, parts, d.stage), e.vectors.rbits).codes
        except EmuError:  # pragma: no cover - no such reading of this operation
            continue
        # a unit without subnormals reads and writes exponent field 0 alike
        if operands == floats and hidden and up == -1 and isinstance(e.format, Float):
            yield f"{name}, of operands and results", _normal_at_zero(e, exact_results(d, parts, d.stage), codes)
        whose = "" if operands == floats else f", of operand {NAMES[operands[0]]} alone"
        yield name + whose, codes


def _normal_at_zero(e: Evidence, exact: Exact, otherwise: Codes) -> Codes:
    """Return codes of results whose exponent 0 has a hidden bit, too; smaller ones are 0."""
    fmt = e.format
    assert isinstance(fmt, Float)
    assert fmt.bias is not None
    try:  # the same digits, with exponents below those of the format
        lower = Float(fmt.exponent_bits + 1, fmt.fraction_bits, fmt.bias + MORE_EXPONENTS)
        values = lower.decode(
            written(e.description, exact, e.vectors.rbits, replace(e.description.stage, format=lower)).codes
        )
    except EmuError:  # float64 has no such exponents
        return otherwise
    # with a hidden bit, field 0 is a binade of normal numbers: from half the smallest normal on
    least, normal = fmt.smallest_normal / 2, fmt.smallest_normal
    magnitude = np.abs(values)
    inside = (magnitude >= least) & (magnitude < normal)
    # digits in [2**fraction_bits, 2**(fraction_bits + 1)): the leading 1 is hidden
    digits = np.ldexp(np.where(inside, magnitude, least), fmt.fraction_bits - fmt.emin + 1).astype(np.uint64)
    small = digits - np.uint64(1 << fmt.fraction_bits)
    sign = np.where(np.signbit(values) & fmt.signed, np.uint64(fmt.sign_code), np.uint64(0))
    codes = np.where(inside, small | sign, otherwise)
    return np.where(magnitude < least, sign, codes)


def _reread(e: Evidence, operand: int, hidden: bool, up: int) -> Exact:
    """Return an operand whose codes of exponent 0, but zero, are read otherwise."""
    fmt, part = e.description.operand_formats[operand], e.parts[operand].as_object()
    assert isinstance(fmt, Float)
    magnitude = e.vectors.operands[operand] & np.uint64(fmt.sign_code - 1)
    small = (magnitude < np.uint64(1 << fmt.fraction_bits)) & (magnitude != 0) & (part.kind == FINITE)
    fraction = magnitude.astype(object)
    digits = fraction + ((1 << fmt.fraction_bits) if hidden else 0)
    return replace(
        part,
        significand=np.where(small, digits, part.significand),
        exponent=np.where(small, fmt.emin - fmt.fraction_bits + up, part.exponent),
    )
