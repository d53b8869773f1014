"""Scale rules: how the scales of blocks follow from the numbers in them. A rule is a row of the table below.

    block's numbers ──► amax ──► steps ──► scale s, stored ──► y = x / s ──► element, rounded once by the stage
    whole tensor    ──► top  ──► outer ──► t, stored                              value = q * s
    block's numbers ──► lo, hi ──► steps ──► s, zero point z, stored              value = (q - z) * s

Names in the steps: `amax`, `top` the largest magnitudes of the block and of the outer level's block, `lo` and `hi` its
smallest and largest number, `x` a number, `q` an element, `s` and `t` the numbers that the two levels store, `z` the
zero point; `M` the largest element, `P` the power of two in M, LO and HI the ends of the elements, MAX the largest
binary32. `up` and `down` give the powers of two above and below, those of the scale format; `scale` rounds to the scale
format, nearest even, and saturates; `digits` rounds to the element's significand, ties away from zero; `even` and
`away` round to an integer, ties to even and away from zero. Other names in the steps of a scale are those of the
source, and serve the elements too.

Each operation rounds once to binary32 if `reads` is "float32", as in the source. Under "exact" nothing rounds, because
only powers of two multiply. Numbers that are divided by powers of two are never rounded on the way.

Sources: OCP Microscaling Formats Specification 1.0, section 6.3; pytorch/ao, prototype/mx_formats, at 36027d8; NVIDIA's
TransformerEngine at d0067d0; NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149, appendix B;
deepseek-ai's DeepGEMM at 54e2261 and DeepSeek-V3 at 9b4e978; ONNX operators DequantizeLinear 19, DynamicQuantizeLinear
11; TensorFlow Lite, quantization_util.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emu.formats.steps import Steps

#: What becomes of a block in which a number is NaN or infinite: its scale is NaN, and its codes are 0; or its scale is
#: that of the other numbers, and a NaN is the element's own.
Special = Literal["nan_block", "ignore_nan"]
SPECIALS: tuple[Special, ...] = ("nan_block", "ignore_nan")


@dataclass(frozen=True)
class ScaleRule:
    """One row: how scales are chosen, and how they are applied.

    Attributes:
        name: as formats write it.
        stores: the scale formats that it needs: powers of two, floats narrower than binary32, or binary32.
        reads: exact numbers; or binary32, to which other numbers are first rounded, nearest even; "double" is binary32
            whose steps of scales and zero points are of binary64.
        steps: from `amax` and `top` to `s`, and to what elements need.
        element: from `x` to `y`, which the output stage rounds.
        value: from `q`, `s` and `t` to `v`, the number that an element stands for.
        outer: from `top` to `t`; None of rules for one level.
        at_result: from `a` and `b`, what both operands store of the level that enters at the result, to `f`, by which
            the finished sum is multiplied.
        special: what becomes of NaN and infinities, unless the format says otherwise.
        source: whose rule it is.
        has_zero: whether the steps give a zero point, which is added to elements after they are rounded.
        rounding: mode of the elements, unless another one is given.
    """

    name: str
    stores: Literal["power", "float", "float32"]
    reads: Literal["exact", "float32", "double"]
    steps: Steps
    element: Steps
    value: Steps
    outer: Steps | None
    special: Special
    source: str
    at_result: Steps
    has_zero: bool = False
    rounding: str = "nearest_even"

    @property
    def divides_exactly(self) -> bool:
        """Whether elements are numbers divided by a power of two, so that nothing rounds before the output stage."""
        return self.stores == "power"


def _power(name: str, steps: str, source: str, *, exact: bool = False, special: Special = "nan_block") -> ScaleRule:
    """Return a rule for scales that are powers of two."""
    reads = "exact" if exact else "float32"
    return ScaleRule(name, "power", reads, Steps(steps), Steps("y = x / s"), _TIMES_S, None, special, source, _BOTH)


def _single(name: str, steps: str, element: str, special: Special, source: str) -> ScaleRule:
    """Return a rule for one level of binary32 scales."""
    return ScaleRule(name, "float32", "float32", Steps(steps), Steps(element), _TIMES_S, None, special, source, _BOTH)


def _affine(name: str, reads: Literal["float32", "double"], steps: str, rounding: str, source: str) -> ScaleRule:
    """Return a rule for one level of binary32 scales with zero points."""
    element, value = Steps("y = x / s"), Steps("v = (q - z) * s")
    return ScaleRule(
        name, "float32", reads, Steps(steps), element, value, None, "nan_block", source, _BOTH, True, rounding
    )


def _double(
    name: str, outer: str, steps: str, value: str, special: Special, source: str, at_result: str = "f = a * b"
) -> ScaleRule:
    """Return a rule for two levels, the finer one of narrow floats."""
    element, result = Steps("y = x * r"), Steps(at_result)
    return ScaleRule(
        name, "float", "float32", Steps(steps), element, Steps(value), Steps(outer), special, source, result
    )


_TIMES_S, _BOTH = Steps("v = q * s"), Steps("f = a * b")
#: S of NVFP4 brings the tensor's largest magnitude to 6 * 448, the largest element times the largest scale.
_S = "S = 1 if top == 0 else min(2688 / top, MAX); S = 1 if S == 0 else S"
#: By r a number becomes an element: the reciprocal of the scale as stored, times that of S.
_R = "r = min(1 / (s * (1 / S)), MAX)"
_OF_TOP = "v = q * ((s * t) * (1 / 2688))"
#: Of a product of two, 7225344 is 2688 * 2688.
_PRODUCT = "f = (a * b) * (1 / 7225344)"
#: TransformerEngine's scale of a tile is 1 if the largest magnitude is 0, infinite or NaN.
_E = "e = min(M / amax, MAX) if amax == amax else 1; e = 1 if amax == 0 else e; e = 1 if e == 0 else e"
#: `b` is clipped to 2**-6 .. 448, the smallest normal and the largest number of e4m3, before it is rounded.
#: torchao's narrow scales are never below the smallest normal number of e4m3.
_NARROW = "scale(min(448, max(0.015625, b)))"
#: DeepGEMM and DeepSeek take at least 0.0001 for the largest magnitude, so that a block of zeros has a scale above 0.
_LEAST = "max(amax, 0.0001) / M"

#: The range of a block, widened to hold 0, so that a zero point is a code.
_RANGE = "l = min(lo, 0); h = max(hi, 0)"

_RULES = (
    _power("floor", "s = down(amax / P)", "OCP MX 1.0, section 6.3", exact=True),
    _power("ceil", "s = up(amax / P)", "torchao, CEIL", exact=True),
    _power("even", "s = down(digits(amax) / P)", "torchao, EVEN, which rounds ties away from zero", exact=True),
    _power("rceil", "s = up(amax * (1 / M))", "torchao, RCEIL; TransformerEngine and cuBLAS with ignore_nan"),
    _power("deepgemm_power", f"s = up({_LEAST})", "DeepGEMM, E8M0 scales"),
    _power("te_power", f"{_E}; s = 1 / down(e)", "TransformerEngine, powers of two", special="ignore_nan"),
    _single("deepgemm", f"s = {_LEAST}; r = 1 / s", "y = x * r", "nan_block", "DeepGEMM, float32 scales"),
    _single("deepseek", f"s = {_LEAST}", "y = x / s", "nan_block", "DeepSeek-V3, inference kernel"),
    _single("te", f"{_E}; s = 1 / e", "y = x * e", "ignore_nan", "TransformerEngine, float32 scales"),
    _double("nvfp4", "t = top", f"{_S}; s = scale(min(amax * (S * (1 / 6)), MAX)); {_R}", _OF_TOP, "ignore_nan",
            "TransformerEngine", _PRODUCT),
    _double("nvfp4_paper", "t = top", f"{_S}; s = scale(min((amax / 6) * S, MAX)); {_R}", _OF_TOP, "ignore_nan",
            "arXiv 2509.25149, appendix B", _PRODUCT),
    _double("nvfp4_torchao", "t = top / 2688",
            f"b = (amax / 6) / t if t != 0 else 0; s = {_NARROW}; r = (1 / t) / s if t != 0 else 0",
            "v = q * (t * s)", "nan_block", "torchao, two levels; NaN there if all is 0"),
    ScaleRule("nvfp4_one_level", "float", "float32", Steps(f"b = amax / 6; s = {_NARROW}; r = 1 / s"),
              Steps("y = x * r"), _TIMES_S, None, "nan_block", "torchao, one level", _BOTH),
    _single("symmetric", "s = amax / M; s = 1 if s == 0 else s", "y = x / s", "nan_block",
            "onnxruntime, symmetric weights"),
    _affine("ort", "float32", f"{_RANGE}; s = (h - l) / (HI - LO); s = 1 if s == 0 else s; "
            "z = even(max(LO, min(HI, LO - l / s)))", "nearest_even", "ONNX, DynamicQuantizeLinear; onnxruntime"),
    _affine("tflite", "double", f"{_RANGE}; s = (h - l) / (HI - LO); s = 1 if h == l else s; a = LO - l / s; "
            "b = HI - h / s; c = a if abs(LO) + abs(l / s) < abs(HI) + abs(h / s) else b; c = 0 if h == l else c; "
            "z = away(max(LO, min(HI, c)))", "nearest_away", "TensorFlow Lite, quantization_util.h"),
)  # fmt: skip

#: Every rule by its name.
SCALE_RULES = {rule.name: rule for rule in _RULES}
