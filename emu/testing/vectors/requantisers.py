"""Requantisers of a unit's vectors: a multiplier, and the stages in which a kind rounds, as plain steps.

    double_rounding, 1518500250 * 2**-38, zero -126
      x 1518500250 * 2**-31  ──► fix64f0, ties up
      x 2**-7                ──► fix64f0, ties away from zero, then + -126
                             ──► the output stage, which saturates

So cells, causes and pictures see each step. `emu.requantise` computes the same by the code of runtimes; a test holds
one against the other.

Source: docs/concepts/requantise.md, "The kinds".
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import model_validator

from emu._config import Table
from emu.datapath import Requantiser, RequantiserKind
from emu.engine.requantise import LARGEST_SHIFT, LEAST_SHIFT, MULTIPLIER_BITS
from emu.errors import ConfigError
from emu.formats import Fixed, Format

#: Multipliers lie from the smallest normal number of binary32 up to 2**31, which none of 31 bits reaches.
LEAST_MULTIPLIER, MULTIPLIER_END = Fraction(1, 1 << 126), 1 << 31
#: Exponents of a multiplier m * 2**(shift - 31).
SHIFTS = LEAST_SHIFT, LARGEST_SHIFT
#: Words of a requantiser before which integers stand.
_NUMBERS = ("zero", "lowest", "highest")
#: Kinds whose multipliers are such integers.
IN_31_BITS = (RequantiserKind.DOUBLE_ROUNDING, RequantiserKind.SINGLE_ROUNDING)
#: What a step writes: a sum of 32 bits times a multiplier below 2**30 fits, and what binary32 has beyond saturates.
_WIDE = "fix64f0"
# Python reads no integers of thousands of digits; as floats they are infinite, and refused as such
_POWER = re.compile(r"([0-9]{1,400})(?:\*2\*\*(-?[0-9]{1,4}))?")


@lru_cache(maxsize=256)  # every aim asks
def multiplier_of(text: str) -> Fraction:
    """Return the number of a text: an integer, `1518500250*2**-38`, a decimal or hexadecimal float.

    Raises:
        ConfigError: it is none, or beyond those of binary32 and of 31 bits.
    """
    squeezed = text.replace(" ", "")
    if match := _POWER.fullmatch(squeezed):
        number = Fraction(int(match[1])) * Fraction(2) ** int(match[2] or 0)
    else:
        try:
            value = float.fromhex(squeezed) if "x" in squeezed.lower() else float(squeezed)
            number = Fraction(value)
        except (ValueError, OverflowError):
            number = Fraction(0)
    if not LEAST_MULTIPLIER <= number < MULTIPLIER_END:
        raise ConfigError(
            f"a multiplier must be a number from 2**-126 to 2**31, got {text!r}; write it like 1518500250*2**-38, "
            "0.0055 or 0x1.6ap-8"
        )
    return number


class RequantiserTable(Table):
    """How integer sums become elements, by the words of `emu.Requantiser`; a text is `"float32 0.0055 zero -126"`.

    Attributes:
        kind: float32, double_rounding, single_rounding, exact or shift.
        multiplier: by which sums are multiplied: both operands' scales over that of the result.
        zero: zero point of the result.
        lowest: smallest element that is written; None is that of the format.
        highest: largest element; None is that of the format.
        rounding: mode of the kinds exact and shift, nearest_even unless given.
    """

    kind: str
    multiplier: str
    zero: int = 0
    lowest: int | None = None
    highest: int | None = None
    rounding: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        kind, *words = given.split() or [""]
        # words[0] is the multiplier, then pairs of a name and a number
        pairs = dict(zip(words[1::2], words[2::2], strict=False))
        wrong = [name for name in pairs if name not in _NUMBERS and name != "rounding"]
        if not len(words) % 2 or wrong or 2 * len(pairs) < len(words) - 1:
            raise ConfigError(
                f"a requantiser must be KIND MULTIPLIER, and perhaps zero N, lowest N, highest N, rounding MODE, got "
                f"{given!r}; write it like 'double_rounding 1518500250*2**-38 zero -126'"
            )
        for name in _NUMBERS:
            if not re.fullmatch(r"-?[0-9]{1,18}", pairs.get(name, "0")):
                raise ConfigError(
                    f"`{name}` of a requantiser must be an integer of at most 18 digits, got {pairs[name]!r}; write "
                    f"{name} 3"
                )
        numbers = {name: int(word) if name in _NUMBERS else word for name, word in pairs.items()}
        return {"kind": kind, "multiplier": words[0], **numbers}

    @model_validator(mode="after")
    def _possible(self) -> RequantiserTable:
        by, m = self.requantiser, self.factor
        if by.kind is RequantiserKind.FLOAT32:
            with np.errstate(over="ignore", under="ignore"):
                near = np.float32(float(m))
            if not np.isfinite(near) or Fraction(float(near)) != m:
                raise ConfigError(
                    f"a multiplier of the requantiser float32 must be a number of binary32, got {self.multiplier!r}; "
                    f"write {float(near).hex()}, the next one"
                )
        if by.kind in IN_31_BITS:
            n, shift = self.in_31_bits
            if n.denominator != 1 or not SHIFTS[0] <= shift <= SHIFTS[1]:
                is_far = not SHIFTS[0] <= shift <= SHIFTS[1]
                raise ConfigError(
                    f"a multiplier of the requantiser {by.kind} must be m * 2**(shift - 31) with m of 31 bits and a "
                    f"shift in {SHIFTS[0]}..{SHIFTS[1]}, got {self.multiplier!r}; "
                    f"{'choose one from 2**-32 to 2**30' if is_far else f'write {round(n)}*2**{shift - 31}'}"
                )
        if by.kind is RequantiserKind.SHIFT and m.numerator & (m.numerator - 1):
            raise ConfigError(
                f"a multiplier of the requantiser shift must be a power of two, got {self.multiplier!r}; write it like "
                "2**-7 as 1*2**-7, or choose the kind exact"
            )
        return self

    def require(self, fmt: Format) -> None:
        """Raise ConfigError unless results of a format can be such elements."""
        if not isinstance(fmt, Fixed) or fmt.frac_bits or fmt.width_bits > 16 or fmt.sign_magnitude:
            raise ConfigError(
                f"a requantiser must write integers of at most 16 bits, got {fmt}; write --out-format fix8f0 or ufix8f0"
            )
        for name in ("zero", "lowest", "highest"):
            number = getattr(self, name)
            if number is not None and not fmt.min <= number <= fmt.max:
                raise ConfigError(f"`{name}` must be an element of {fmt}, got {number}; choose one of them")

    @property
    def requantiser(self) -> Requantiser:
        """Kind, zero point, bounds and mode as `emu.Requantiser` has them; its scale, 1, is not used."""
        return Requantiser(self.kind, 1.0, self.zero, self.lowest, self.highest, self.rounding)

    @property
    def factor(self) -> Fraction:
        """The multiplier."""
        return multiplier_of(self.multiplier)

    @property
    def in_31_bits(self) -> tuple[Fraction, int]:
        """The multiplier as m and a shift, m * 2**(shift - 31), 2**30 <= m < 2**31; m may be no integer."""
        m, shift = self.factor, MULTIPLIER_BITS
        while m >= 1 << MULTIPLIER_BITS:
            m, shift = m / 2, shift + 1
        while m < 1 << (MULTIPLIER_BITS - 1):
            m, shift = m * 2, shift - 1
        return m, shift

    @property
    def digits(self) -> int:
        """The multiplier in its last places: those of 31 bits, of binary32, or of its own digits."""
        m = self.factor
        if self.kind in IN_31_BITS:
            return int(self.in_31_bits[0])
        if self.kind == RequantiserKind.FLOAT32:
            # np.spacing is the ulp of binary32
            return int(m / Fraction(float(np.spacing(np.float32(float(m))))))
        return m.numerator

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The steps, as the words of `StageTable`."""
        by, m = self.requantiser, self.factor
        last = {"plus": self.zero, "lowest": self.lowest, "highest": self.highest}
        match by.kind:
            case RequantiserKind.FLOAT32:
                # binary32 holds the sum rounded once, and its product with the multiplier rounded once more
                single = {"format": "fp32", "rounding": "nearest_even"}
                return [single, {**single, "times": power_text(m)}, {**_step("nearest_even"), **last}]
            case RequantiserKind.DOUBLE_ROUNDING:
                n, shift = self.in_31_bits
                # a shift to the left comes first, in the 32 bits of the sum, which wrap
                left = {"format": "fix32f0", "overflow": "wrap", "times": power_text(Fraction(1 << max(shift, 0)))}
                # the high half of the doubled 64-bit product, rounded
                high = _step("nearest_up", n / (1 << MULTIPLIER_BITS))
                right = _step("nearest_away", Fraction(1, 1 << max(-shift, 0)))
                return [*([left] if shift > 0 else []), high, {**right, **last}]
            case RequantiserKind.SINGLE_ROUNDING:
                return [{**_step("nearest_up", m), **last}]
            case _:
                return [{**_step(str(by.rounding), m), **last}]

    def other_kind(self, kind: RequantiserKind) -> RequantiserTable | None:
        """Return the same by another kind, the multiplier rounded to one that it can have; None if there is none."""
        m, alike = self.factor, (RequantiserKind.EXACT, RequantiserKind.SHIFT)
        if kind == self.kind or (kind in alike and self.kind in alike):
            return None
        if kind == RequantiserKind.FLOAT32:
            with np.errstate(over="ignore", under="ignore"):
                # an infinity becomes 0, which the table then refuses
                m = Fraction(float(np.nan_to_num(np.float32(float(m)), posinf=0)))
        if kind in IN_31_BITS:
            n, shift = self.in_31_bits
            m = Fraction(round(n)) * Fraction(2) ** (shift - MULTIPLIER_BITS)
        try:
            return RequantiserTable(
                kind=kind.value,
                multiplier=power_text(m),
                zero=self.zero,
                lowest=self.lowest,
                highest=self.highest,
            )
        except ConfigError:
            return None


def _step(rounding: str, times: Fraction = Fraction(1)) -> dict[str, Any]:
    return {"format": _WIDE, "rounding": rounding, "overflow": "saturate", "times": power_text(times)}


def power_text(number: Fraction) -> str:
    """Return a number whose denominator is a power of two as `multiplier_of` reads it."""
    n, e = number.numerator, 1 - number.denominator.bit_length()
    # trailing zeros of the numerator go into the exponent
    shift = (n & -n).bit_length() - 1 if n else 0
    return f"{n >> shift}*2**{e + shift}"
