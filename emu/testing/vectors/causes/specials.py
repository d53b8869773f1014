"""Faults of infinities and NaN: a NaN that was not made, or whose payload is passed on or cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.formats import Float
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.conventions import has_payloads, nan_as_result
from emu.testing.vectors.description import NAMES, Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask


def invalid_results(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of units that write a number or an infinity where the result is none."""
    fmt, results = e.format, e.results
    if not isinstance(fmt, Float) or fmt.nan_code is None:
        return
    signs = np.zeros(results.shape, bool)
    for source, codes in zip(e.description.operand_formats, e.vectors.operands, strict=True):
        if e.parts and source.signed:  # of NaN, too, whose sign no number has
            signs = signs ^ ((codes >> np.uint64(source.width_bits - 1)) != 0)
    sign = np.where(signs & fmt.signed, np.uint64(fmt.sign_code), np.uint64(0))
    choices = {"infinity": fmt.infinity_code, "0": 0, "the largest number": fmt.max_code}
    for origin, mask in e.invalids.items():
        if not mask.any():
            continue
        for name, code in choices.items():
            if code is not None:
                yield f"{origin} gives {name} of the operands' signs", np.where(mask, sign | np.uint64(code), results)
                yield f"{origin} gives +{name}", np.where(mask, np.uint64(code), results)
                if fmt.signed:
                    negative = np.uint64(fmt.sign_code | code)
                    yield f"{origin} gives -{name}", np.where(mask, negative, results)
        yield from _operands_again(e, f"{origin} gives", mask)
    for origin, mask in e.infinities.items():
        if origin != "a number beyond the range" and mask.any():
            yield f"{origin} gives NaN", np.where(mask, np.uint64(fmt.nan_code), results)
            own = results & np.uint64(fmt.sign_code) if fmt.signed else np.uint64(0)
            yield f"{origin} gives the largest number", np.where(mask, own | np.uint64(fmt.max_code), results)
            if fmt.signed:
                yield f"{origin} gives the other sign", np.where(mask, results ^ np.uint64(fmt.sign_code), results)


def _operands_again(e: Evidence, name: str, mask: Mask) -> Iterator[Hypothesis]:
    """Yield the codes of an operand that is written as it is, if it has the format of the results."""
    for i, fmt in enumerate(e.description.operand_formats):
        if fmt == e.format and not e.is_product_sum:
            yield f"{name} operand {NAMES[i]}", np.where(mask, e.vectors.operands[i], e.results)


def nan_payloads(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of NaN with a payload of an operand, whole or cut (`check.py` sees one pattern for all)."""
    fmt = e.format
    if not has_payloads(fmt):
        return
    # operands whose NaNs have a payload that could be passed on
    floats = [i for i, f in enumerate(e.description.operand_formats) if has_payloads(f) and not e.is_product_sum]
    yield from _rounded_like_numbers(e, fmt)
    yield from _signed_nans(e, fmt)
    for order in (floats, floats[::-1]) if len(floats) > 1 else (floats,):
        for how, keep, add in _PAYLOAD_RULES:
            for signed in (True, False):
                codes = _payloads(e, fmt, order, (keep, add), signed)
                which = "" if len(floats) < 2 else f" of the first NaN of {', '.join(NAMES[i] for i in order)}"
                sign = "with" if signed else "without"
                yield f"a NaN's payload is passed on{which}, {how}, {sign} its sign", codes


def _signed_nans(e: Evidence, fmt: Float) -> Iterator[Hypothesis]:
    """Yield the codes of units whose NaN is the canonical one with a sign of the operands."""
    if not fmt.signed or e.is_product_sum:
        return
    signs = [
        # an unsigned operand has no sign bit: its highest bit is masked
        (codes >> np.uint64(source.width_bits - 1)) & np.uint64(source.signed)
        for source, codes in zip(e.description.operand_formats, e.vectors.operands, strict=True)
    ]
    wanted = {f"operand {NAMES[i]}": sign for i, sign in enumerate(signs)}
    if len(signs) > 1:
        wanted["a product"] = signs[0] ^ signs[1]
    for whose, sign in wanted.items():
        nan = np.uint64(fmt.nan_code or 0) | sign << np.uint64(fmt.width_bits - 1)
        yield f"a canonical NaN with the sign of {whose}", np.where(e.is_nan, nan, e.results)


def _rounded_like_numbers(e: Evidence, fmt: Float) -> Iterator[Hypothesis]:
    """Yield the codes of a converter that cuts a word to its upper half, and rounds NaN as it rounds numbers."""
    source = e.description.operand_formats[0]
    if e.description.operation != "quantize" or not isinstance(source, Float):
        return
    drop = source.fraction_bits - fmt.fraction_bits
    if drop > 0 and source.exponent_bits == fmt.exponent_bits and source.signed == fmt.signed:
        word = e.vectors.operands[0]
        # nearest even: half less one, plus the last kept bit, is added. Of a NaN of all ones the carry leaves the
        # exponent and turns the sign: 0x7fffffff becomes 0x8000 of bfloat16, -0
        rounded = (word + np.uint64((1 << (drop - 1)) - 1) + (word >> np.uint64(drop) & np.uint64(1))) >> np.uint64(
            drop
        )
        yield "NaN rounded like a number", np.where(e.is_nan, rounded & np.uint64(fmt.n_codes - 1), e.results)


#: What becomes of a payload's quiet bit: in words, whether it is kept, and whether it is set.
_PAYLOAD_RULES = (
    ("quieted", True, True),
    ("cut as it is: some become infinity", True, False),
    ("cut without its quiet bit: some become infinity", False, False),
)


def _payloads(e: Evidence, fmt: Float, order: list[int], quiet: tuple[bool, bool], signed: bool) -> Codes:
    codes, open_ = e.results.copy(), e.is_nan.copy()
    for i in order:
        source, operand = e.description.operand_formats[i], e.vectors.operands[i]
        assert isinstance(source, Float)
        is_nan = np.isnan(source.decode(operand)) & open_
        passed = nan_as_result(fmt, source, operand, keep=quiet[0], quiet=quiet[1], signed=signed)
        # `open_`: results for which no operand has given its NaN yet
        codes, open_ = np.where(is_nan, passed, codes), open_ & ~is_nan
    return codes
