"""What one element becomes: a table of 256, made with the kernel's own arithmetic; steps from and to float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu import engine
from emu.datapath import Affine
from emu.engine.requantise import in_31_bits, twice_rounded
from emu.formats import PRESETS
from emu.interop.steps import Tensor, Traced
from emu.interop.tflite.node import FORMATS, Node, away_from_zero
from emu.interop.tflite.operators.arithmetic import SHARES, require_scale
from emu.operations.fixed_point import rounded_shift

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
_FLOAT32: dict[str, Any] = {"out_format": PRESETS["fp32"], "backend": "reference"}
#: Fraction bits of HARD_SWISH's operand, and the range of its words of 16 bits.
_HIGH_RESOLUTION_BITS, _LEAST, _MOST = 7, -(1 << 15), (1 << 15) - 1


def _elements(node: Node) -> tuple[Traced, Affine]:
    return node.traced(), node.affine(node.stored(0))


# ---- functions of float32 -------------------------------------------------------------------------------------------


def _of_floats(node: Node, function: Callable[[Floats], Floats]) -> Tensor:
    """The table has function(scale * (q - zero)) times 1 / scale of the result, rounded, halves away from zero.

    Every operation is of float32, each rounded once.
    """
    (x, of), to = _elements(node), node.to()
    if float(to.how.scale) < 2.0**-100:
        raise node.refuse("have a result's scale of at least 2**-100", float(to.how.scale), "calibrate it again")

    def entries(q: Integers) -> Integers:
        numbers = of.scale * (q - int(of.zero)).astype(np.float32)
        # two roundings in place of a division's one: of the reciprocal, then of the product
        return away_from_zero(function(numbers) * (np.float32(1) / to.how.scale)) + int(to.how.zero)

    return node.table(x, entries, to)


def _tanh(node: Node) -> Tensor:
    return _of_floats(node, lambda x: np.asarray(engine.tanh(x, **_FLOAT32), np.float32))


def _logistic(node: Node) -> Tensor:
    """1 / (1 + exp(-x)), in three operations of float32."""
    require_scale(node, node.to(), *SHARES)
    one = np.float32(1)
    return _of_floats(node, lambda x: one / (one + np.asarray(engine.exp(-x, **_FLOAT32), np.float32)))


# ---- integers -------------------------------------------------------------------------------------------------------


def _ratio(of: Affine, to: Affine) -> np.float32:
    # a quotient beyond float32 is refused as one of 2**30 or more is
    with np.errstate(over="ignore"):
        return np.minimum(np.float32(of.scale / to.scale), np.finfo(np.float32).max)


def _relu(activation: str) -> Callable[[Node], Tensor]:
    """Return the row of relu and its kin: requantised with a quotient of float32, then bounded."""

    def row(node: Node) -> Tensor:
        (x, of), to = _elements(node), node.to(activation)
        multiplier = in_31_bits(_ratio(of, to.how))
        return node.table(x, lambda q: twice_rounded(q - int(of.zero), *multiplier) + int(to.how.zero), to)

    return row


def _leaky_relu(node: Node) -> Tensor:
    (x, of), to = _elements(node), node.to()
    alpha = np.float32(node.number(0, "Float32"))
    if alpha < 0:
        raise node.refuse("have an alpha of at least 0", float(alpha), "use PRELU's arithmetic outside")
    same = in_31_bits(_ratio(of, to.how))
    # the product of scale and alpha is rounded to float32 first, as the kernel has it
    less = in_31_bits(np.float32(np.float32(of.scale * alpha) / to.how.scale))

    def entries(q: Integers) -> Integers:
        d = q - int(of.zero)
        return np.where(d >= 0, twice_rounded(d, *same), twice_rounded(d, *less)) + int(to.how.zero)

    return node.table(x, entries, to)


def _hard_swish(node: Node) -> Tensor:
    """X * relu6(x + 3) / 6 in words of 16 bits: x with 7 fraction bits, and (x + 3) / 6 as a share of 2**15."""
    (x, of), to = _elements(node), node.to()
    # scale of the operand with 7 more fraction bits
    fine = np.float32(np.float32(1 / (1 << _HIGH_RESOLUTION_BITS)) * of.scale)
    m, shift = (int(part) for part in in_31_bits(np.float32(fine / to.how.scale)))
    # 3 / 2**15: units in which 2**15 is 3, so that the clipped share is x / 3
    share_m, share_shift = (int(part) for part in in_31_bits(np.float32(fine / np.float32(3 / (1 << 15)))))
    if shift > 0:
        raise node.refuse("have a scale of at least 2**-7 of its operand's", float(to.how.scale), "calibrate it again")

    def entries(q: Integers) -> Integers:
        # at most 255 * 2**7 = 32,640 in magnitude: 16 bits hold it
        d = (q - int(of.zero)) << _HIGH_RESOLUTION_BITS
        number, share = _half_word_product(d, _in_16_bits(m)), d
        # shifted left in two parts around the product, so that each saturates as the kernel's words do
        if share_shift > 0:
            share = np.clip(share << (share_shift - 1), _LEAST, _MOST)
        share = _half_word_product(share, _in_16_bits(share_m))
        if share_shift > 0:
            share = np.clip(share << 1, _LEAST, _MOST)
        # from -1..1 to 0..1, in units of 2**-15
        share = (rounded_shift(share, max(-share_shift, 0)) + (1 << 15)) >> 1
        # below 2**31 in magnitude
        product = share * number
        # toward zero, unlike the shift of a negative number
        cut = np.where(product >= 0, product >> 15, -(-product >> 15))
        return rounded_shift(cut, -shift) + int(to.how.zero)

    return node.table(x, entries, to)


def _in_16_bits(m: int) -> int:
    """Return a multiplier of 31 bits as one of 15, rounded, ties up."""
    # rounding up would leave 15 bits
    return _MOST if m >= (1 << 31) - 1 - (1 << 15) else (m + (1 << 15)) >> 16


def _half_word_product(x: Integers, m: int) -> Integers:
    """Return x * m / 2**15 of integers of 16 bits, rounded, ties up."""
    return (x * m + (1 << 14)) >> 15


def _quantize(node: Node) -> Tensor:
    """From float32, or from elements with other scales: the quotient of scales is of binary64."""
    kinds, to = tuple(FORMATS), node.to(kinds=tuple(FORMATS))
    x, stored = node.traced(), node.stored(0)
    if stored.kind == "float32":
        return node.apply("reference_quantize", x, to=to)
    of = node.affine(stored, kinds=kinds)
    multiplier = in_31_bits(float(of.scale) / float(to.how.scale))
    first = int(FORMATS[stored.kind].min)
    return node.table(x, lambda q: twice_rounded(q - int(of.zero), *multiplier) + int(to.how.zero), to, first=first)


def _dequantize(node: Node) -> Tensor:
    return node.apply("dequantize_linear", node.traced(), of=node.affine(node.stored(0), kinds=tuple(FORMATS)))


ROWS: dict[str, Callable[[Node], Tensor]] = {
    "TANH": _tanh,
    "LOGISTIC": _logistic,
    "RELU": _relu("RELU"),
    "RELU6": _relu("RELU6"),
    "RELU_N1_TO_1": _relu("RELU_N1_TO_1"),
    "LEAKY_RELU": _leaky_relu,
    "HARD_SWISH": _hard_swish,
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
}
