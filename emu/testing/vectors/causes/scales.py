"""Faults of scales: another rule, a code off by one, the largest of other numbers, the scale of another block.

    the fault                                changes
    scales by the rule ceil                  scales of some blocks, and the elements of these blocks
    the code of a scale is one too high      scales alone
    divided by the scale of the block before elements alone

Codes are those of elements, then those of the blocks' scales. Other numbers never bring another way to divide.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.backends.reference.scaled import Scales
from emu.formats import Float
from emu.testing.vectors.blocks.cells import other_rules
from emu.testing.vectors.blocks.evidence import Array, BlockEvidence
from emu.testing.vectors.blocks.quotients import block_scales, codes_of_scales
from emu.testing.vectors.causes.hypothesis import Hypothesis
from emu.testing.vectors.description import Codes
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.steps import Mask

#: What the rules for NaN do, as names of faults.
_SPECIAL_NAMES = {
    "ignore_nan": "NaN and infinities ignored: their blocks have the scale of the other numbers (ignore_nan)",
    "nan_block": "a NaN or an infinity makes the scale of its block NaN (nan_block)",
}
#: Largest magnitude times scale of NVFP4 for which the number of the tensor is 1.
# 448 * 6: the largest scale of e4m3 times the largest element of e2m1
_NEUTRAL_TOP = 2688.0


def scale_rules(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of other scale rules, and of the other rule for NaN."""
    if not isinstance(e, BlockEvidence):
        return
    own = e.blocks.rule.name
    for name, other in other_rules(e.blocks):
        numbers = e.numbers_for(other)
        # another rule may read other numbers of the same operands: binary32, or the exact ones
        codes = e.written_by(block_scales(other, numbers), blocks=other, numbers=numbers)
        yield _SPECIAL_NAMES.get(name, f"scales by {name} instead of {own}"), codes


def scales_off_by_one(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of scales whose code is one higher or lower, with the elements or without them."""
    if not isinstance(e, BlockEvidence):
        return
    own = e.vectors.scales[0]
    for name, step in (("high", 1), ("low", -1)):
        every = _stepped(e, own, step)
        # a unit may treat blocks of zeros apart, and be right there
        numbers = np.where(e.largest == 0, own, every)
        for which, codes in (("every scale is", every), ("every scale but those of blocks of zeros is", numbers)):
            elements = e.elements_by(e.with_codes(e.scales, codes))
            yield f"{which} one step too {name}, and elements are divided by it", _both(elements, codes)
            yield f"{which} written one step too {name}; elements are right", _both(e.results, codes)
            if which == "every scale is":
                yield f"elements are divided by a scale one step too {name}, not by their own", _both(elements, own)


def other_largest(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of scales that follow from the largest of other numbers than those of the block.

    NaN and infinities may be looked for among the same numbers, or in the block itself.
    """
    if not isinstance(e, BlockEvidence):
        return
    for name, numbers in _readings(e.numbers, e.together).items():
        yield name, e.written_by(_scales_of_others(e, numbers))
        # a unit may look for NaN in the right block, and for the largest magnitude in the wrong one
        if not e.blocks.ignores_nan:
            yield name, e.written_by(_scales_of_others(e, _lost_as(e, numbers)))


def _readings(x: Array, b: int) -> dict[str, Array]:
    """Return the numbers whose largest magnitudes are taken, (count,) each, by what goes wrong."""
    rows, half = x.reshape(-1, b), max(b // 2, 1)
    finite = np.isfinite(x)
    # the largest signed number of each block, in each of its places
    highest = np.repeat(np.abs(np.where(np.isfinite(rows), rows, -np.inf).max(axis=1)), b)
    nothing = np.zeros(1, x.dtype)  # before the first number and behind the last one
    readings: dict[str, Array] = {
        # in the first two readings NaN and infinities stay as they are, so that their blocks stay lost
        "the largest is that of signed numbers, not of magnitudes": np.where(finite, np.maximum(x, 0), x),
        "the largest is the magnitude of the largest signed number": np.where(finite, highest, x),
        "the largest is taken one number early: from the last one of the block before": np.append(nothing, x[:-1]),
        "the largest is taken one number late: up to the first one of the next block": np.append(x[1:], nothing),
        "the largest leaves out the first number of the block": _without(rows, slice(0, 1)),
        "the largest leaves out the last number of the block": _without(rows, slice(b - 1, b)),
        f"the largest is that of the first {half} numbers of the block": _without(rows, slice(half, b)),
        f"the largest is that of the last {b - half} numbers of the block": _without(rows, slice(0, half)),
        "the largest is that of the first number of the block": _without(rows, slice(1, b)),
    }
    if rows.shape[0] % 2 == 0:
        pairs = np.abs(rows).reshape(-1, 2 * b).max(axis=1)
        readings[f"the largest is that of {2 * b} numbers, two blocks together"] = np.repeat(pairs, 2 * b)
    return {name: numbers.astype(x.dtype) for name, numbers in readings.items()}


def _lost_as(e: BlockEvidence, numbers: Array) -> Array:
    """Return the finite ones of other numbers, with a NaN in the blocks whose own scale is NaN."""
    kept = np.where(np.isfinite(numbers), numbers, numbers.dtype.type(0))
    return np.where(np.repeat(e.lost, e.together), numbers.dtype.type(np.nan), kept)


def other_blocks(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of scales that are those of a neighbouring block, with the elements or without them."""
    if not isinstance(e, BlockEvidence) or e.vectors.scales[0].size < 2:
        return
    own = e.vectors.scales[0]
    for when, shift in (("before", 1), ("after", -1)):
        codes = np.roll(own, shift)
        elements = e.elements_by(e.with_codes(e.scales, codes))
        # elements of lost blocks are 0 whatever divides them, if the unit looks at its own block for NaN
        lost = np.where(np.repeat(e.lost, e.together), e.results, elements)
        yield f"scales, and what elements are divided by, are those of the block {when}", _both(elements, codes)
        for divided in (elements, lost):
            yield f"elements are divided by the scale of the block {when}, not by their own", _both(divided, own)
        yield f"scales are those of the block {when}; elements are right", _both(e.results, codes)


def special_blocks(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of blocks of zeros and of blocks whose scale is NaN that are written in another way."""
    if not isinstance(e, BlockEvidence):
        return
    own, fmt, b = e.vectors.scales[0], e.blocks.levels[0].scale, e.together
    lost, zeros = e.lost, (e.largest == 0) & ~e.lost
    choices = {"1": int(fmt.encode(np.array([1.0], fmt.carrier))[0]), "the code 0": 0, "the highest code": fmt.max_code}
    if fmt.nan_code is not None:
        choices["NaN"] = fmt.nan_code
    for name, code in choices.items():
        yield f"the scale of a block of zeros is {name}", _both(e.results, np.where(zeros, np.uint64(code), own))
    inside = np.repeat(lost, b)
    for name, code in choices.items():
        if name != "NaN":
            codes = np.where(lost, np.uint64(code), own)
            yield f"the scale of a block with NaN is {name}", _both(e.results, codes)
    yield from _lost_elements(e, inside, own)


def _lost_elements(e: BlockEvidence, inside: Mask, own: Codes) -> Iterator[Hypothesis]:
    """Yield the codes of elements that are not 0 in blocks whose scale is NaN."""
    if isinstance(e.format, Float) and e.format.nan_code is not None:
        name = "elements of a block with NaN are NaN, not 0"
        yield name, _both(np.where(inside, np.uint64(e.format.nan_code), e.results), own)
    if isinstance(e.format, Float) and e.format.has_negative_zero:
        sign = np.where(np.signbit(e.numbers), np.uint64(e.format.sign_code), np.uint64(0))
        yield "zeros of a block with NaN keep their signs", _both(np.where(inside, sign, e.results), own)
    ignoring = dict(other_rules(e.blocks)).get("ignore_nan")
    if ignoring is not None:
        scales = block_scales(ignoring, e.numbers)
        elements = np.where(inside, e.elements_by(scales, blocks=ignoring), e.results)
        yield "elements of a block with NaN are divided by the scale of its other numbers", _both(elements, own)


def tensor_number(e: Evidence) -> Iterator[Hypothesis]:
    """Yield the codes of scales in which the number for the tensor is left out."""
    if not isinstance(e, BlockEvidence) or e.blocks.rule.outer is None:
        return
    if not float(e.largest.max(initial=0)) <= _NEUTRAL_TOP:
        return
    # with this block the largest magnitude of the tensor is the neutral one; its own scale is taken off below
    block = np.full(e.together, _NEUTRAL_TOP, e.numbers.dtype)
    scales = block_scales(e.blocks, np.concatenate([e.numbers, block]))
    n = e.largest.size
    # values by block lose the last one; those of the tensor, and constants, have no such axis
    names = {name: value[:n] if np.shape(value) == (n + 1,) else value for name, value in scales.names.items()}
    kept = Scales((scales.stored[0][:n], *scales.stored[1:]), names, scales.lost[:n])
    yield "the number for the tensor left out", e.written_by(kept)


def _scales_of_others(e: BlockEvidence, numbers: Array) -> Scales:
    """Return the scales of other numbers, by the rule of the format; the number for the tensor stays."""
    if e.blocks.rule.outer is None:
        return block_scales(e.blocks, numbers)
    codes = codes_of_scales(e.blocks, block_scales(e.blocks, numbers))[0]
    return e.with_codes(e.scales, codes)


def _without(rows: Array, out: slice) -> Array:
    """Return numbers of which some are 0 in each block, (count,)."""
    kept = rows.copy()
    kept[:, out] = 0
    return kept.reshape(-1)


def _stepped(e: BlockEvidence, codes: Codes, step: int) -> Codes:
    """Return the codes of scales one step on; ends and NaN stay."""
    fmt = e.blocks.levels[0].scale
    moved = np.clip(codes.astype(np.int64) + step, 0, fmt.max_code).astype(np.uint64)
    return np.where(e.lost, codes, moved)


def _both(elements: Codes, scales: Codes) -> Codes:
    return np.concatenate([elements, scales])
