"""Codes to exact numbers: (-1)**negative * significand * 2**exponent, and what kind of number it is."""

from __future__ import annotations

from dataclasses import dataclass

from emu.formats import Fixed, Float, Format
from emu.prove.reference.text import Bits, Exponent, Module, constant, width_of


@dataclass(frozen=True)
class Exact:
    """An exact number on wires; infinities and NaN have the significand 0.

    Attributes:
        negative: the sign, of zeros and infinities too.
        significand: unsigned.
        exponent: of the significand's last bit.
        infinite: whether it is an infinity.
        nan: whether it is NaN, and an operand was.
        made_nan: whether it is NaN, and no operand was.
    """

    negative: Bits
    significand: Bits
    exponent: Exponent
    infinite: Bits
    nan: Bits
    made_nan: Bits

    @property
    def is_special(self) -> str:
        """Whether it is no finite number."""
        return f"({self.infinite} | {self.nan} | {self.made_nan})"


def unpack(m: Module, code: Bits, fmt: Format) -> Exact:
    """Return the number that a code stands for."""
    m.comment(f"{code}: {fmt}")
    return _of_fixed(m, code, fmt) if isinstance(fmt, Fixed) else _of_float(m, code, fmt)


def _of_fixed(m: Module, code: Bits, fmt: Fixed) -> Exact:
    n, width = code.name, fmt.width_bits
    no = m.bit(f"{n}_no", "1'b0")
    if fmt.sign_magnitude:
        magnitude = m.wire(f"{n}_significand", width - 1, code.slice(width - 2, 0))
        negative = m.bit(f"{n}_negative", f"{code.top} & (|{magnitude})")  # the sign alone is read as 0
        return Exact(negative, magnitude, Exponent(None, 0, -fmt.frac_bits), no, no, no)
    negative = m.bit(f"{n}_negative", code.top if fmt.signed else "1'b0")
    # the lowest number keeps its word, 100..0, which is its magnitude as an unsigned number
    magnitude = m.wire(f"{n}_significand", width, f"{negative} ? ~{code} + {constant(1, width)} : {code}")
    return Exact(negative, magnitude, Exponent(None, 0, -fmt.frac_bits), no, no, no)


def _of_float(m: Module, code: Bits, fmt: Float) -> Exact:
    n, below = code.name, fmt.exponent_bits + fmt.fraction_bits
    magnitude = m.wire(f"{n}_magnitude", max(below, 1), code.slice(below - 1, 0))
    infinite = "1'b0"
    if fmt.infinity_code is not None:
        infinite = f"{magnitude} == {constant(fmt.infinity_code, magnitude.width)}"
    infinite = m.bit(f"{n}_infinite", infinite)
    special = "1'b0"
    if fmt.first_special_code < fmt.sign_code:
        special = f"({magnitude} >= {constant(fmt.first_special_code, magnitude.width)})"
    nan = f"{special} & ~{infinite}"
    if fmt.nans == "negative_zero":
        nan = f"({nan}) | ({code} == {constant(fmt.sign_code, code.width)})"
    nan = m.bit(f"{n}_nan", nan)
    # An index is (exponent field << fraction_bits) + fraction. Where zero has no code, or the hidden bit is always one,
    # indices begin with 1.0.
    # room for the sum of a magnitude and the index of code 0, which is at most 2**fraction_bits
    index_width = below + 2
    index = m.wire(f"{n}_index", index_width, f"{magnitude} + {constant(fmt.lowest_index, index_width)}")
    field = m.wire(f"{n}_field", index_width - fmt.fraction_bits, index.slice(index_width - 1, fmt.fraction_bits))
    normal = m.bit(f"{n}_normal", f"{field} != {constant(0, field.width)}")
    # significands of infinities and NaN are 0, as `Exact` has them; under DAZ so are those of subnormals
    kept = f"~({infinite} | {nan})" + (f" & {normal}" if fmt.daz else "")
    if fmt.hidden_one:
        kept += f" & ({magnitude} != {constant(0, magnitude.width)})"
    fraction = index.slice(fmt.fraction_bits - 1, 0)
    whole = f"{{{normal}, {fraction}}}" if fmt.fraction_bits else normal.name
    width = fmt.significand_bits
    significand = m.wire(f"{n}_significand", width, f"({kept}) ? {whole} : {constant(0, width)}")
    negative = f"{code.top} & ~{nan}" if fmt.signed else "1'b0"
    if not fmt.has_negative_zero:
        negative += f" & ({infinite} | {significand} != {constant(0, width)})"
    top = fmt.max_index >> fmt.fraction_bits
    exponent = m.wire(
        f"{n}_exponent",
        width_of(top),
        f"{normal} ? {field} - {constant(1, field.width)} : {constant(0, field.width)}",
    )
    last_place = Exponent(exponent, top, fmt.emin - fmt.fraction_bits)  # fields 0 and 1 have the exponent emin
    return Exact(
        m.bit(f"{n}_negative", negative), significand, last_place, infinite, nan, m.bit(f"{n}_made_nan", "1'b0")
    )
