"""What units write where arithmetic leaves it open: the code of a NaN, an integer for what is none, the sign of a zero.

    nan         canonical           the format's own, or `nan_code`              RISC-V; x86 has 0xffc00000
                first               the first NaN operand, quieted               x86
                signalling_first    the first signalling one, else the first     Arm
    invalid     zero                NaN becomes 0, others the nearest limit      emu, Arm
                largest             NaN becomes the largest integer              RISC-V
                indefinite          all of them become the lowest code,
                                    without a sign the highest                   x86
    zero_sign   positive            a sum of products that is 0 is +0            emu
                ieee                -0 if all its terms are, or toward negative  IEEE 754

Sources: IEEE 754-2019 sections 6.2, 6.3, 7.2; RISC-V F extension 2.2; Intel SDM volume 1 table 4-7 and section 4.8.3.7;
Arm ARM, FPProcessNaNs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from emu.formats import Fixed, Float, Format

Codes = NDArray[np.uint64]
Mask = NDArray[np.bool_]
NanRule = Literal["canonical", "first", "signalling_first"]
InvalidRule = Literal["zero", "largest", "indefinite"]
ZeroSign = Literal["positive", "ieee"]


def has_payloads(fmt: Format) -> TypeGuard[Float]:
    """Return whether a format's NaNs have payloads and a bit that tells quiet from signalling."""
    return isinstance(fmt, Float) and fmt.nans == "ieee" and fmt.fraction_bits > 0


def invalid_code(rule: InvalidRule, fmt: Fixed) -> int:
    """Return what is written for NaN."""
    if rule == "zero":
        return 0
    if rule == "indefinite":
        return 1 << (fmt.width_bits - 1) if fmt.signed else fmt.n_codes - 1
    return fmt.max_raw


def with_nans(
    rule: NanRule, made: int, fmt: Float, codes: Codes, formats: Sequence[Format], operands: Sequence[Codes]
) -> Codes:
    """Return results with their NaNs as a rule has them.

    Args:
        rule: which NaN of the operands is passed on.
        made: the code of a NaN that is passed on from no operand.
        fmt: format of the results.
        codes: results, (count,).
        formats: of the operands.
        operands: their codes, (count,) each.
    """
    is_nan = np.isnan(fmt.decode(codes))
    results = np.where(is_nan, np.uint64(made), codes)
    if rule == "canonical":
        return results
    # a NaN without a payload is none that could be passed on
    given = [(f, x, np.isnan(f.decode(x))) for f, x in zip(formats, operands, strict=True) if has_payloads(f)]
    # the last one that is written over the others is the first in the rule's order
    for source, x, nan in reversed(given):
        results = np.where(is_nan & nan, nan_as_result(fmt, source, x), results)
    if rule == "signalling_first":
        for source, x, nan in reversed(given):
            results = np.where(is_nan & nan & ~is_quiet(source, x), nan_as_result(fmt, source, x), results)
    return results


def is_quiet(fmt: Float, codes: Codes) -> Mask:
    """Return where the first bit of the fraction is 1."""
    return (codes >> np.uint64(fmt.fraction_bits - 1) & np.uint64(1)) != 0


def nan_as_result(
    fmt: Float, source: Float, codes: Codes, *, keep: bool = True, quiet: bool = True, signed: bool = True
) -> Codes:
    """Return the codes of NaNs in another format: payload from the top, sign, and quiet.

    Args:
        fmt: format of the results; both have payloads.
        source: of the NaNs.
        codes: the NaNs, (count,).
        keep: whether the bit for quiet is passed on.
        quiet: whether it is set.
        signed: whether the sign is passed on, where both formats have one.
    """
    more = fmt.fraction_bits - source.fraction_bits
    payload = codes & np.uint64((1 << source.fraction_bits) - 1)
    # the first bits of both fractions stand above each other: a wider one is filled with zeros, a narrower one cuts
    payload = payload << np.uint64(more) if more >= 0 else payload >> np.uint64(-more)
    bit = np.uint64(1 << (fmt.fraction_bits - 1))
    # the quiet bit is the first one of the fraction
    payload = payload if keep else payload & ~bit
    sign = (codes >> np.uint64(source.width_bits - 1)) & np.uint64(signed and source.signed and fmt.signed)
    top = np.uint64(fmt.first_special_code) | (bit if quiet else np.uint64(0))
    return payload | top | sign << np.uint64(fmt.width_bits - 1)


def with_canonical_nans(fmt: Format, codes: Codes) -> Codes:
    """Return codes with every NaN as the format's canonical one: then any NaN is as good as another."""
    if not isinstance(fmt, Float) or fmt.nan_code is None:
        return codes
    return np.where(np.isnan(fmt.decode(codes)), np.uint64(fmt.nan_code), codes)
