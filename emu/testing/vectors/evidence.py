"""What is known of each vector's result beside its code: how it was rounded, where a zero, NaN or infinity came from.

Cells (`cells.py`) count it, and causes (`causes/`) change it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.backends.interface import encode_stage
from emu.backends.reference.arithmetic import multiply
from emu.backends.reference.exact import FINITE, INFINITE, NAN, Exact
from emu.datapath import Mac, OutputStage
from emu.formats import Fixed, Float, Format
from emu.testing.hard import last_index, normal_index
from emu.testing.vectors.definition import answer, exact_before_stage, through_stages, with_flags_of
from emu.testing.vectors.description import Codes, Vectors
from emu.testing.vectors.steps import Mask, Steps, exact_results, operand_parts, steps_of

Array = NDArray[Any]


class Evidence:
    """Facts about vectors, each computed when it is first asked for.

    Args:
        vectors: operands and results.

    Attributes:
        vectors: operands and results.
        description: what they are.
        format: of the results.
        results: their codes, (count,).
        together: how many vectors are one: those of a block.
    """

    def __init__(self, vectors: Vectors) -> None:
        self.together = 1
        self.vectors = vectors
        self.description = vectors.description
        self.format: Format = vectors.description.stage.format
        self.results: Codes = vectors.results

    @property
    def expected(self) -> Codes:
        """What is right of all that a dump may have, as hypotheses have it: the results."""
        return self.results

    def joined(self, codes: Codes) -> Codes:
        """Return codes of results with all that a dump may have beside them: nothing."""
        return codes

    def answered(
        self,
        *,
        stage: OutputStage | None = None,
        operands: tuple[Codes, ...] | None = None,
        formats: tuple[Format, ...] | None = None,
        **changes: Any,
    ) -> Codes:
        """Return the codes that the definition writes with another stage, other operands, formats or another unit."""
        v = self.vectors
        return answer(self.description, operands or v.operands, v.rbits, stage=stage, formats=formats, **changes).codes

    def special_codes(self) -> list[dict[str, int]]:
        """Return the special values of each operand by their names."""
        return [special_codes(fmt) for fmt in self.description.operand_formats]

    @cached_property
    def flags(self) -> Codes:
        """Flags that cells count: IEEE 754's of float results, emu's of others; the accumulator's are in both."""
        return self.vectors.flags if isinstance(self.format, Fixed) else with_flags_of("ieee", self.vectors).flags

    @property
    def is_product_sum(self) -> bool:
        """Whether the operation is matmul, whose operands have several terms."""
        return self.description.operation == "matmul"

    @cached_property
    def adds_exactly(self) -> bool:
        """Whether products are summed and no vector's sum is rounded or bounded before the output stage."""
        if not self.is_product_sum:
            return False
        d, v = self.description, self.vectors
        # a unit that rounds or bounds, and does so in none of these vectors, counts as exact
        return d.mac.mac().is_exact or bool((answer(d, v.operands, v.rbits, mac=Mac()).codes == self.results).all())

    @cached_property
    def parts(self) -> list[Exact]:
        """Operands of an elementwise operation as exact numbers; none of matmul."""
        if self.is_product_sum:
            return []
        return operand_parts(self.description.operand_formats, self.vectors.operands)

    @cached_property
    def terms(self) -> list[Exact]:
        """The two terms whose sum the result is, of a difference the second negated; none of other operations."""
        match self.description.operation:
            case "add":
                return self.parts
            case "subtract":
                a, b = self.parts
                return [a, replace(b, negative=~b.negative)]
            case "fma":
                # exact: the stage that `multiply` takes rounds nothing there
                return [multiply(self.parts[:2], encode_stage(self.description.stage)), self.parts[2]]
            case _:
                return []

    @cached_property
    def exact(self) -> Exact:
        """What the output stage is given, (count,): what stages before it write, or of sums the rounded sum."""
        return through_stages(self.description, self.unstaged) if self.description.pipeline else self.unstaged

    @property
    def unstaged(self) -> Exact:
        """What the first stage is given, (count,)."""
        return self._computed

    @cached_property
    def _computed(self) -> Exact:
        d = self.description.unstaged
        if not self.is_product_sum:
            return exact_results(d, self.parts, d.stage)
        return exact_before_stage(d, self.vectors.operands)

    @cached_property
    def steps(self) -> Steps:
        """How the results were rounded."""
        d = self.description
        return steps_of(self.exact, d.stage, self.vectors.rbits, integral=d.operation == "round_to_integral")

    @property
    def normal(self) -> int:
        """Index of the smallest normal number."""
        return normal_index(self.format)

    @cached_property
    def beyond(self) -> Mask:
        """Where a number lies beyond the range of the results, after rounding."""
        steps, top = self.steps, last_index(self.format)
        magnitude = steps.rounded
        lowest = top
        if isinstance(self.format, Fixed):
            # a rule may exclude the lowest word: then it lies beyond the range
            lowest = -encode_stage(self.description.stage).lowest
        return steps.finite & np.where(steps.exact.negative, magnitude > lowest, magnitude > top).astype(bool)

    @cached_property
    def is_nan(self) -> Mask:
        """Where the result is no number, whatever is written for it."""
        return self.exact.kind >= NAN

    @cached_property
    def is_zero(self) -> Mask:
        """Where 0 of either sign was written."""
        if isinstance(self.format, Fixed):
            return self.results == 0
        sign = np.uint64(self.format.sign_code if self.format.has_negative_zero else 0)
        return (self.results & ~sign == 0) if self.format.zero else np.zeros(self.results.shape, bool)

    @cached_property
    def negative(self) -> Mask:
        """Where the sign bit of the result is set."""
        sign = 1 << (self.format.width_bits - 1) if self.format.signed else 0
        return (self.results & np.uint64(sign)) != 0

    @cached_property
    def zeros(self) -> dict[str, Mask]:
        """Where a result is 0, by what made it so."""
        # a 0 that stands for NaN, or that an overflow rule writes, has other causes
        d, zero = self.description, self.is_zero & ~self.is_nan & ~self.beyond
        rounded = zero & self.steps.nonzero
        if self.description.requantise is not None:  # which has cells of its own
            return {}
        causes = {"a number rounded to zero": rounded}
        exactly = zero & ~rounded & (self.exact.kind == FINITE)
        # infinities and NaN have the significand 0, too
        is_zero = [part.significand == 0 for part in self.parts]
        none = [(mask & (part.kind == FINITE)).astype(bool) for mask, part in zip(is_zero, self.parts, strict=True)]
        match d.operation:
            case "add" | "subtract":
                # of a sum that is exactly 0 both terms are 0, or neither is
                causes |= {"x - x": exactly & ~none[0], "a sum of zeros": exactly & none[0]}
            case "multiply":
                causes |= {"a product of zero": exactly}
            case "divide":
                causes |= {"zero divided": exactly & none[0], "a number divided by infinity": exactly & ~none[0]}
            case "fma":
                product_zero = none[0] | none[1]
                causes |= {"x - x": exactly & ~product_zero, "a product of zero, and zero": exactly & product_zero}
            case "remainder":
                causes |= {"zero divided": exactly & none[0], "a remainder of zero": exactly & ~none[0]}
            case "matmul":
                causes |= {"a sum of zero": exactly}
            case _:
                causes |= {"a zero operand": exactly}
        return causes

    @cached_property
    def invalids(self) -> dict[str, Mask]:
        """Where a result is no number, by what made it so."""
        nan = self.is_nan
        if not self.parts:
            return {"a sum that is no number": nan}
        # kinds from NAN on; `made` are those that the operation itself makes of numbers and infinities
        given = np.any([part.kind >= NAN for part in self.parts], axis=0)
        made = nan & ~given
        causes = {"a NaN operand": nan & given}
        infinite = [part.kind == INFINITE for part in self.parts]
        zero = [((part.significand == 0) & (part.kind == FINITE)).astype(bool) for part in self.parts]
        match self.description.operation:
            case "multiply":
                causes["zero times infinity"] = made
            case "fma":
                times = (zero[0] & infinite[1]) | (infinite[0] & zero[1])
                causes |= {"zero times infinity": made & times, "infinity - infinity": made & ~times}
            case "divide":
                # what is made without a NaN operand comes from two zeros or from two infinities: the divisor tells
                # which
                causes |= {"0 / 0": made & zero[1], "infinity / infinity": made & infinite[1]}
            case "remainder":
                causes |= {"a remainder by 0": made & zero[1], "a remainder of infinity": made & infinite[0]}
            case "sqrt":
                causes["the root of a negative number"] = made
            case "add" | "subtract":
                causes["infinity - infinity"] = made
            case _:
                pass
        return causes

    @cached_property
    def infinities(self) -> dict[str, Mask]:
        """Where a result is infinite or lies beyond the range, by what made it so."""
        infinite = self.exact.kind == INFINITE
        causes = {"a number beyond the range": self.beyond}
        if self.description.operation == "divide":
            by_zero = infinite & (self.parts[0].kind == FINITE)
            return {**causes, "a number divided by 0": by_zero, "an infinite operand": infinite & ~by_zero}
        return {**causes, "an infinite operand": infinite}


def special_codes(fmt: Format) -> dict[str, int]:
    """Return the values whose pairs are all tried, by their names: zeros, ones, the ends, infinities and NaN."""
    if isinstance(fmt, Fixed):
        mask = fmt.n_codes - 1
        if fmt.sign_magnitude:
            return _special_magnitudes(fmt)
        raws = {"0": 0, "smallest": 1, "largest": fmt.max_raw}
        # only if 1 is a code of its own, neither the last bit nor beyond the largest
        if 0 < fmt.frac_bits < fmt.width_bits - fmt.signed:
            raws["1"] = 1 << fmt.frac_bits
        if fmt.signed:
            raws |= {"-smallest": -1, "lowest": -(1 << (fmt.width_bits - 1))}
        return {name: raw & mask for name, raw in raws.items() if raw <= fmt.max_raw}
    return _special_floats(fmt)


def _special_magnitudes(fmt: Fixed) -> dict[str, int]:
    # the sign bit alone, with a magnitude of 0, is the code named -0
    sign, one = fmt.max_raw + 1, 1 << fmt.frac_bits if 0 < fmt.frac_bits < fmt.width_bits - 1 else 0
    positive = {"0": 0, "smallest": 1, "largest": fmt.max_raw} | ({"1": one} if one else {})
    return positive | {f"-{name}": code | sign for name, code in positive.items() if name != "1"}


def _special_floats(fmt: Float) -> dict[str, int]:
    normal, one = 1 << fmt.fraction_bits, 0
    assert fmt.bias is not None
    if 0 < fmt.bias < 1 << fmt.exponent_bits:
        # 2**0 has the field `bias` and the fraction 0
        one = fmt.bias << fmt.fraction_bits
    positive = {"0": 0, "smallest": 1, "smallest normal": normal, "1": one, "largest": fmt.max_code}
    if fmt.infinity_code is not None:
        positive["infinity"] = fmt.infinity_code
    if fmt.hidden_one:  # the smallest one is
        del positive["smallest normal"]
    # `one` is 0 if no exponent field stands for 2**0
    positive = {name: code for name, code in positive.items() if code or name == "0"}
    positive = {name: code for name, code in positive.items() if code < fmt.sign_code}
    both = dict(positive)
    if fmt.signed:
        both |= {f"-{name}": code | fmt.sign_code for name, code in positive.items() if code or fmt.has_negative_zero}
    if fmt.nan_code is not None:
        both["NaN"] = fmt.nan_code
        # with a fraction of one bit, that bit is the quiet bit: no NaN can signal
        if fmt.nans == "ieee" and fmt.fraction_bits > 1:
            both["signalling NaN"] = fmt.first_special_code | 1
    return both
