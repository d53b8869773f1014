"""Checks that the fields of a float format fit together: room for special codes, and a zero if one is required."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.errors import FormatError

if TYPE_CHECKING:  # which checks itself by these functions
    from emu.formats.floating import Float


def require_special_codes(fmt: Float) -> None:
    """Raise FormatError unless the codes hold zero, the special values and a finite one above zero."""
    fields = f"got {fmt.exponent_bits} exponent and {fmt.fraction_bits} fraction bits"
    if fmt.nans == "ieee" and fmt.exponent_bits == 0:  # there is no all-ones exponent to set aside
        raise FormatError(f"a format with IEEE NaNs must have exponent bits, {fields}; set `nans` and `infinities`")
    if fmt.nans == "ieee" and fmt.fraction_bits == 0 and fmt.infinities:  # one code for both
        raise FormatError(
            f"a format with IEEE infinities and NaNs must have fraction bits, {fields}; set `infinities=False` or "
            "`nans`"
        )
    if fmt.nans == "negative_zero" and not fmt.signed:
        raise FormatError(
            "`nans` of an unsigned format must not be negative_zero, for it has no -0; set nans='top' or 'none'"
        )
    # if the format has a zero, code 0 is taken, and a second finite code is needed
    if fmt.max_code < int(fmt.zero):
        raise FormatError(
            f"a float format must have a finite value above zero, {fields}, and special values take all codes; add a "
            "bit, or set `infinities=False`"
        )


def require_hidden_one(fmt: Float) -> None:
    """Raise FormatError if a format whose hidden bit is always one has no fraction, no zero, or flushes subnormals."""
    if not fmt.hidden_one:
        return
    if not fmt.zero:
        raise FormatError(
            "a format with `hidden_one` must have a zero, got zero=False, which gives every code a hidden one; leave "
            "out one of both"
        )
    if fmt.is_flushed:
        raise FormatError(
            "a format with `hidden_one` must not have `ftz` or `daz`: it has no subnormals; leave both out"
        )
    if not fmt.fraction_bits:
        raise FormatError(
            "a format with `hidden_one` must have fraction bits, got 0: exponent field 0 holds nothing but zero; leave "
            "`hidden_one` out"
        )


def require_zero(fmt: Float) -> None:
    """Raise FormatError if a required zero is missing, or if FTZ or DAZ leave no value except zero."""
    if not fmt.zero and fmt.signed:
        raise FormatError("a format without zero must be unsigned, got signed=True; set `signed=False`")
    if fmt.is_flushed and not fmt.zero:
        raise FormatError(
            "a format without zero must not have `ftz` or `daz`: it has no subnormals, and no zero to flush to; "
            "leave both out"
        )
    if fmt.is_flushed and not fmt.has_normals:
        raise FormatError("a format with `ftz` or `daz` must have normal values, got only subnormals; leave both out")
