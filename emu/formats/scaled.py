"""Scaled formats: elements of a narrow format that share scales.

    block(fp8_e4m3, fp8_e8m0 1x32 floor)                     mxfp8_e4m3: a power of two for each 32 elements
    block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4, fp32 tensor)       nvfp4: a scale for each 16, and a number for the tensor
    block(fp8_e4m3, fp32 128x128 deepgemm)                   a scale for each square of 128
    block(ufix8f0, fp32 tensor ort)                          uint8_affine: integers with a scale and a zero point

The element format comes first, then the levels of scales, the finest first. A level is the scale's format, the shape of
what shares one scale, and, of the finest level, the rule that chooses scales. A name followed by a rule is the named
format with that rule: `mxfp8_e4m3 rceil`.

A shape is across x along: along the axis of the value, across the other one. `row` is a scale for all that lies along
the axis, `channel` one for each index of the first other axis, as kernels of a convolution have it, `tensor` one for
everything.

Source: docs/concepts/scaled.md; OCP Microscaling Formats Specification 1.0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from emu._drawn import Drawn
from emu.errors import FormatError, nearest_name
from emu.formats.fixed import Fixed
from emu.formats.floating import PRESETS, Float
from emu.formats.integers import as_integer
from emu.formats.scale_rules import SCALE_RULES, SPECIALS, ScaleRule, Special

#: Far above any block: no shape overflows 64 bits.
MAX_EXTENT = 1 << 20
#: Then an element less its zero point is exact in binary32, and so is a rounded number plus a zero point.
MAX_AFFINE_BITS = 16
_SHAPE = re.compile(r"([0-9]{1,7})x([0-9]{1,7})")
_WORDS = ("tensor", "row", "channel")
_BLOCK = re.compile(r"block\((.*)\)")


@dataclass(frozen=True)
class Tiling:
    """What shares a scale: a block of `across` x `along` elements. None is all of them.

    Attributes:
        across: elements across the axis.
        along: elements along it.
        is_channel: whether a scale serves all axes but the first one that is not the axis of the value.

    Raises:
        FormatError: an extent outside 1..2**20.

    Examples:
        >>> [str(t) for t in (Tiling(1, 32), Tiling(1, None), Tiling(1, None, True), Tiling(None, None))]
        ['1x32', 'row', 'channel', 'tensor']
    """

    across: int | None
    along: int | None
    is_channel: bool = False

    def __post_init__(self) -> None:
        for name in ("across", "along"):
            extent = getattr(self, name)
            if extent is not None:
                object.__setattr__(self, name, as_integer(name, extent, 1, MAX_EXTENT))
        if self.along is None and self.across not in (1, None):
            raise FormatError(
                f"a scale for all that lies along an axis must be for one row or for all, got `across` {self.across}; "
                "write row or tensor"
            )
        if self.across is None and self.along is not None:
            raise FormatError(
                f"a scale for all that lies across an axis must be for the whole tensor, got `along` {self.along}; "
                "write tensor"
            )
        if self.is_channel and (self.across, self.along) != (1, None):
            raise FormatError(
                f"a scale of channels must serve all but one axis, got {self.across} x {self.along}; write channel"
            )

    def __str__(self) -> str:
        if self.is_channel:
            return "channel"
        if self.along is None:
            return "tensor" if self.across is None else "row"
        return f"{self.across}x{self.along}"

    @classmethod
    def of(cls, text: str) -> Tiling:
        """Return the shape that a text names.

        Raises:
            FormatError: it names none.
        """
        if text in _WORDS:
            return cls(None if text == "tensor" else 1, None, text == "channel")
        if match := _SHAPE.fullmatch(text):
            return cls(int(match[1]), int(match[2]))
        raise FormatError(
            f"the shape of what shares a scale must be tensor, row, channel, or as 1x32, got {text!r}; write 1x32"
        )

    @property
    def serves_either_axis(self) -> bool:
        """Whether the blocks are the same ones along the other axis."""
        return self.across == self.along


@dataclass(frozen=True)
class Level:
    """Scales of one size.

    Attributes:
        scale: their format.
        tiling: what shares one.
        rule: name of the rule that chooses them; "" of an outer level, whose numbers the finest level's rule defines.
        special: what becomes of NaN and infinities; None stands for the rule's own way. An outer level has None.

    Raises:
        FormatError: no such rule, or one for other scale formats; or no such `special`, or one without a rule.
    """

    scale: Float
    tiling: Tiling
    rule: str = ""
    special: Special | None = None

    def __post_init__(self) -> None:
        if self.special not in (None, *SPECIALS):
            raise FormatError(
                f"`special` must be {' or '.join(SPECIALS)}, got {self.special!r}; leave it out for the rule's own way"
            )
        if not self.rule:
            if self.special is not None:
                raise FormatError(
                    f"what becomes of NaN must stand at the level with the rule, the finest one, got {self.special} at "
                    f"{self.scale} {self.tiling}; leave it out there"
                )
            return
        if self.rule not in SCALE_RULES:
            raise FormatError(f"a scale rule must be known, got {self.rule!r}{nearest_name(self.rule, SCALE_RULES)}")
        rule = SCALE_RULES[self.rule]
        if self.special is None:
            object.__setattr__(self, "special", rule.special)
        needed, fits, example = _STORES[rule.stores]
        if not fits(self.scale):
            raise FormatError(
                f"the rule {rule.name} needs scales that are {needed}, got the scale format {self.scale}; write "
                f"{example}, or choose a rule for such scales"
            )

    def __str__(self) -> str:
        parts = [str(self.scale), str(self.tiling), self.rule]
        if self.rule and self.special not in (None, SCALE_RULES[self.rule].special):
            parts.append(str(self.special))
        return " ".join(part for part in parts if part)


def _holds_powers(fmt: Float) -> bool:
    # without a fraction and without zero, each finite code is a power of two
    return fmt.fraction_bits == 0 and not fmt.zero and fmt.nans == "top"


def _is_narrow(fmt: Float) -> bool:
    return not fmt.signed and fmt.zero and fmt.fraction_bits > 0 and fmt.nans != "none"


def _is_float32(fmt: Float) -> bool:
    return fmt == PRESETS["fp32"]


#: What a rule stores: words, test, an example.
_STORES: dict[str, tuple[str, Callable[[Float], bool], str]] = {
    "power": ("powers of two with a NaN", _holds_powers, "fp8_e8m0"),
    "float": ("unsigned floats with a fraction, a zero and a NaN", _is_narrow, "fp8_ue4m3"),
    "float32": ("binary32", _is_float32, "fp32"),
}


@dataclass(frozen=True)
class Scaled(Drawn):
    """A format whose elements share scales.

    Attributes:
        element: format of the elements.
        levels: the scales, the finest first.

    Raises:
        FormatError: formats, levels and rule do not fit together.

    Examples:
        >>> from emu.formats import parse
        >>> str(parse("mxfp8_e4m3").levels[0].tiling), parse("mxfp8_e4m3").bits_per_element
        ('1x32', 8.25)
        >>> str(parse("block(fp8_e4m3, fp8_e8m0 1x32 rceil)"))
        'mxfp8_e4m3 rceil'

    Source: docs/concepts/scaled.md.
    """

    element: Fixed | Float
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        if not self.levels or not self.levels[0].rule:
            raise FormatError(
                "the finest level of a scaled format must have a rule; write block(fp8_e4m3, fp32 row te)"
            )
        if any(level.rule for level in self.levels[1:]):
            raise FormatError(
                f"outer levels must have no rule, got {', '.join(level.rule for level in self.levels[1:])}: that of "
                "the finest level says what they store; leave it out"
            )
        if isinstance(self.element, Float) and not self.element.zero:
            raise FormatError(f"elements must have a zero, got {self.element}; choose another format")
        if self.rule.has_zero and not (isinstance(self.element, Fixed) and self.element.frac_bits == 0):
            raise FormatError(
                f"elements with a zero point must be integers, got {self.element} for the rule {self.rule.name}; write "
                "fix8f0 or ufix8f0"
            )
        if self.rule.has_zero and self.element.width_bits > MAX_AFFINE_BITS:
            raise FormatError(
                f"elements with a zero point must have at most {MAX_AFFINE_BITS} bits, got {self.element}; write "
                "fix16f0"
            )
        if self.element.carrier != np.float32:
            raise FormatError(f"elements must be numbers of binary32, got {self.element}; choose a narrower format")
        # a rule with steps for an outer scale needs a level that stores it
        wanted = 1 + (self.rule.outer is not None)
        if len(self.levels) != wanted:
            levels = {1: "one level", 2: "two levels, the outer one fp32"}
            raise FormatError(
                f"the rule {self.rule.name} must have {levels[wanted]} of scales, got {len(self.levels)}; write "
                f"{'block(fp4_e2m1, fp8_ue4m3 1x16 nvfp4, fp32 tensor)' if wanted == 2 else self._alone()}"
            )
        if wanted == 2 and not self._outer_fits(self.levels[1]):
            raise FormatError(
                f"the outer level of the rule {self.rule.name} must be fp32 for the tensor, or for rows that no block "
                f"crosses, got {self.levels[1]}; write fp32 tensor"
            )

    def _outer_fits(self, outer: Level) -> bool:
        # A block of several rows needs an outer scale that serves all of
        # them; a scale for each row serves blocks within it.
        is_inside = outer.tiling.across is None or self.tiling.across == 1
        is_plain = outer.tiling.along is None and not outer.tiling.is_channel
        return _is_float32(outer.scale) and is_plain and is_inside

    def _alone(self) -> str:
        return f"block({self.element}, {self.levels[0]})"

    @property
    def rule(self) -> ScaleRule:
        """The rule that chooses scales."""
        return SCALE_RULES[self.levels[0].rule]

    @property
    def ignores_nan(self) -> bool:
        """Whether a block with a NaN or infinity has the scale of its other numbers; else its scale is NaN."""
        return self.levels[0].special == "ignore_nan"

    @property
    def tiling(self) -> Tiling:
        """What shares one of the finest scales."""
        return self.levels[0].tiling

    @property
    def largest(self) -> float:
        """M, the largest element that rules use; of two's complement the largest positive one."""
        return float(self.element.max)

    @property
    def element_exponent(self) -> int:
        """Exponent of the leading bit of the largest element."""
        # frexp's significand lies in [0.5, 1): the leading bit's exponent is one less
        return math.frexp(self.largest)[1] - 1

    @property
    def element_digits(self) -> int:
        """Bits of an element's significand, the leading one counted; of fixed point those of its magnitude."""
        if isinstance(self.element, Float):
            return self.element.significand_bits
        return self.element.width_bits - self.element.signed

    @property
    def serves_either_axis(self) -> bool:
        """Whether a value's blocks are the same ones along either of its last two axes."""
        return all(level.tiling.serves_either_axis for level in self.levels)

    @property
    def is_square(self) -> bool:
        """Whether blocks lie across two axes: they have several rows, whether they are as long or not."""
        return any(level.tiling.across not in (1, None) for level in self.levels)

    @property
    def has_zero(self) -> bool:
        """Whether each block has a zero point: the element that stands for 0."""
        return self.rule.has_zero

    @property
    def bits_per_element(self) -> float:
        """Bits of an element, its scales' and zero points' shares included; of rows and tensors these are next to 0."""
        shares = [
            8 * -(-level.scale.width_bits // 8) / (level.tiling.across * level.tiling.along)  # scales lie in bytes
            for level in self.levels
            if level.tiling.across and level.tiling.along
        ]
        finest = self.tiling
        if self.has_zero and finest.across and finest.along:
            # a zero point is an element
            shares.append(8 * -(-self.element.width_bits // 8) / (finest.across * finest.along))
        return self.element.width_bits + sum(shares)

    def with_rule(self, rule: str, special: Special | None = None) -> Scaled:
        """Return the format with another rule of its finest level.

        Raises:
            FormatError: no such rule, or one that does not fit the levels.
        """
        return replace(self, levels=(replace(self.levels[0], rule=rule, special=special), *self.levels[1:]))

    def __str__(self) -> str:
        finest = self.levels[0]
        for name, named in sorted(SCALED_PRESETS.items(), key=lambda item: item[1] != self):  # its own name first
            if _without_rule(self) == _without_rule(named):
                words = [name, *([finest.rule] if finest.rule != named.levels[0].rule else [])]
                return " ".join(words + ([str(finest.special)] if finest.special != self.rule.special else []))
        return f"block({', '.join([str(self.element), *map(str, self.levels)])})"


def as_zero_points(fmt: Scaled, given: Any) -> Any:
    """Return zero points as int32.

    Raises:
        FormatError: one that is no element of the format.
    """
    points = np.asarray(given)
    if points.dtype.kind not in "iuf":
        raise FormatError(f"a zero point must be an integer, got {given!r}; choose an element of {fmt}")
    low, high = float(fmt.element.min), float(fmt.element.max)
    wrong = (points != np.round(points)) | (points < low) | (points > high)
    if wrong.any():
        raise FormatError(
            f"a zero point must be an integer in {low:g}..{high:g}, the elements of {fmt}, got "
            f"{points[wrong].flat[0]!s}; choose one of them"
        )
    return points.astype(np.int32)


def element_of(fmt: Fixed | Float | Scaled) -> Fixed | Float:
    """Return the format of the elements; a format without shared scales is that of its own elements."""
    return fmt.element if isinstance(fmt, Scaled) else fmt


def bits_of(fmt: Fixed | Float | Scaled) -> float:
    """Return the bits of a number in memory, its share of scales included."""
    return fmt.bits_per_element if isinstance(fmt, Scaled) else fmt.width_bits


def _without_rule(fmt: Scaled) -> tuple[Any, ...]:
    return fmt.element, *((level.scale, level.tiling) for level in fmt.levels)


def _preset(element: str | Fixed, *levels: tuple[str, str] | tuple[str, str, str]) -> Scaled:
    # the rule, or "" if a level names none
    parts = [Level(PRESETS[scale], Tiling.of(shape), "".join(rule)) for scale, shape, *rule in levels]
    return Scaled(PRESETS[element] if isinstance(element, str) else element, tuple(parts))


_MX = ("fp8_e8m0", "1x32", "floor")
#: Named formats. Those of OCP have OCP's rule. Sources: OCP Microscaling Formats Specification 1.0, table 1; NVIDIA,
#: arXiv 2509.25149, section 2; DeepSeek-V3 Technical Report, section 3.3; TransformerEngine's recipes; the 8-bit
#: quantization specification of TensorFlow Lite; ONNX, DynamicQuantizeLinear.
SCALED_PRESETS: dict[str, Scaled] = {
    "mxfp8_e4m3": _preset("fp8_e4m3", _MX),
    "mxfp8_e5m2": _preset("fp8_e5m2", _MX),
    "mxfp6_e2m3": _preset("fp6_e2m3", _MX),
    "mxfp6_e3m2": _preset("fp6_e3m2", _MX),
    "mxfp4_e2m1": _preset("fp4_e2m1", _MX),
    "mxint8": _preset(Fixed(8, 6), _MX),
    "nvfp4": _preset("fp4_e2m1", ("fp8_ue4m3", "1x16", "nvfp4"), ("fp32", "tensor")),
    "nvfp4_16x16": _preset("fp4_e2m1", ("fp8_ue4m3", "16x16", "nvfp4"), ("fp32", "tensor")),
    "fp8_tile": _preset("fp8_e4m3", ("fp32", "1x128", "deepgemm")),
    "fp8_tile_128x128": _preset("fp8_e4m3", ("fp32", "128x128", "deepgemm")),
    "fp8_row": _preset("fp8_e4m3", ("fp32", "row", "te")),
    "fp8_tensor": _preset("fp8_e4m3", ("fp32", "tensor", "te")),
    "int8_tensor": _preset(Fixed(8, 0), ("fp32", "tensor", "symmetric")),
    "int8_channel": _preset(Fixed(8, 0), ("fp32", "channel", "symmetric")),
    "int8_affine": _preset(Fixed(8, 0), ("fp32", "tensor", "tflite")),
    "uint8_affine": _preset(Fixed(8, 0, signed=False), ("fp32", "tensor", "ort")),
}


def parse_scaled(text: str, parse: Callable[[str], Any]) -> Scaled | None:
    """Return the scaled format that a text names; None if it is none.

    Args:
        text: a name, a name with a rule, or block(ELEMENT, LEVEL[, LEVEL]).
        parse: reads formats of elements and scales.

    Raises:
        FormatError: it is one by its form, and a part of it is wrong.
    """
    name, *words = text.split() or [""]
    if name in SCALED_PRESETS:
        return SCALED_PRESETS[name] if not words else _with_words(SCALED_PRESETS[name], words)
    match = _BLOCK.fullmatch(text.strip())
    if match is None:
        return None
    if re.search(
        r"[<(][^>)]*,", match[1]
    ):  # as ap_fixed<8,2>, whose text may name modes, too, which a scaled format lacks
        raise FormatError(
            f"formats inside block(...) must have no commas of their own, got {text!r}; write fix8f6 for ap_fixed<8,2>"
        )
    element, *levels = (part.strip() for part in match[1].split(","))
    if not levels:
        raise FormatError(
            f"a scaled format must have a level of scales, got {text!r}; write block(fp8_e4m3, fp32 row te)"
        )
    return Scaled(_plain("elements", element, parse), tuple(_parse_level(level, parse) for level in levels))


def _with_words(fmt: Scaled, words: list[str]) -> Scaled:
    words, special = _special_of(words)
    if len(words) > 1:
        raise FormatError(f"a name must be followed by one rule, got {' '.join(words)!r}; write mxfp8_e4m3 rceil")
    return fmt.with_rule(words[0] if words else fmt.levels[0].rule, special)


def _special_of(words: list[str]) -> tuple[list[str], Special | None]:
    """Split a last word that says what becomes of NaN off the words; None if there is none."""
    for special in SPECIALS:
        if words[-1:] == [special]:
            return words[:-1], special
    return words, None


def _parse_level(text: str, parse: Callable[[str], Any]) -> Level:
    """Return the level of `FORMAT SHAPE [RULE [SPECIAL]]`; a format's text may have several words."""
    words = text.split()
    # `at` is None if there is no shape, and 0 if no format stands before it
    at = next((i for i, word in enumerate(words) if word in _WORDS or _SHAPE.fullmatch(word)), None)
    if not at:
        raise FormatError(
            f"a level must be a scale format and a shape, got {text!r}; write fp8_e8m0 1x32 floor, or fp32 tensor"
        )
    rest, special = _special_of(words[at + 1 :])
    if len(rest) > 1:
        raise FormatError(f"a level must have one rule, got {' '.join(rest)!r} in {text!r}; write fp8_e8m0 1x32 floor")
    scale = _plain("scales", " ".join(words[:at]), parse)
    if not isinstance(scale, Float):
        raise FormatError(f"scales must be floats, got {scale} in {text!r}; write fp8_e8m0, fp8_ue4m3 or fp32")
    return Level(scale, Tiling.of(words[at]), rest[0] if rest else "", special)


def _plain(what: str, text: str, parse: Callable[[str], Any]) -> Any:
    fmt = parse(text)
    if isinstance(fmt, (Fixed, Float)):
        return fmt
    raise FormatError(
        f"{what} must have a format that shares no scales and has its point in place, got {text!r}; write fp8_e4m3 or "
        "fix8f6"
    )
