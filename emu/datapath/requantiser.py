"""Requantisers: how an integer sum becomes an integer element, described.

    sum of (qa - za)(qb - zb) ──►(x) multiplier, as the kind says ──► rounded ──►(+) zero point ──► bounded ──► element

The sum stands for sum * a * b, where a and b are the scales of the operands; the element for (q - zero) * scale. So the
multiplier is a * b / scale. Runtimes differ in how they round on the way, and so in their bits.

Source: docs/concepts/requantise.md, which names the source of each kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from emu._drawn import Drawn
from emu.datapath.rounding import Rounding
from emu.errors import FormatError, nearest_name
from emu.formats.integers import as_integer


class RequantiserKind(StrEnum):
    """Which operations make an element of a sum.

    Source: docs/concepts/requantise.md.
    """

    #: the multiplier in binary32, and one product of binary32: onnxruntime
    FLOAT32 = "float32"
    #: an integer of 31 bits, a product rounded to its high half, a shift rounded once more: gemmlowp, CMSIS-NN
    DOUBLE_ROUNDING = "double_rounding"
    #: an integer of 31 bits, one shift of the whole product: newer kernels of TensorFlow Lite, XNNPACK
    SINGLE_ROUNDING = "single_rounding"
    #: one rounding of the exact quotient
    EXACT = "exact"
    #: a power of two, one rounding: FPGA, accelerators
    SHIFT = "shift"

    @property
    def takes_mode(self) -> bool:
        """Whether a rounding mode can be chosen; the other kinds round as their sources do."""
        return self in (RequantiserKind.EXACT, RequantiserKind.SHIFT)


@dataclass(frozen=True)
class Requantiser(Drawn):
    """How sums of integer products become elements.

    Attributes:
        kind: which operations: float32, double_rounding, single_rounding, exact or shift.
        scale: of the result, a binary32 number above 0.
        zero: zero point of the result, an element.
        lowest: smallest element written, as a fused activation has it; None is that of the format.
        highest: largest element written; None is that of the format.
        rounding: mode of the kinds exact and shift, nearest_even unless given; None of the others.

    Raises:
        FormatError: an unknown kind, an impossible number, or a mode for a kind that rounds in its own way.

    Examples:
        >>> Requantiser("float32", scale=0.5, zero=128).kind.value
        'float32'

    Source: docs/concepts/requantise.md.
    """

    kind: RequantiserKind | str
    scale: float
    zero: int = 0
    lowest: int | None = None
    highest: int | None = None
    rounding: Rounding | str | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        kinds = [kind.value for kind in RequantiserKind]
        if self.kind not in kinds:
            raise FormatError(
                f"a requantiser must be one of {', '.join(kinds)}, got {self.kind!r}"
                f"{nearest_name(str(self.kind), kinds)}"
            )
        kind = RequantiserKind(self.kind)
        set_field(self, "kind", kind)
        if self.rounding is not None and not kind.takes_mode:
            raise FormatError(
                f"`rounding` must be left out for the requantiser {kind.value}, which rounds as its source does, got "
                f"{self.rounding}; choose the kind exact or shift for a mode"
            )
        mode = Rounding.NEAREST_EVEN if self.rounding is None else Rounding.parse(self.rounding)
        if mode.draws or mode.moves_exact:
            raise FormatError(
                f"a requantiser must not round by {mode.value}, which draws bits or moves exact results; choose "
                "nearest_even"
            )
        # None, so that equal requantisers compare equal
        set_field(self, "rounding", mode if kind.takes_mode else None)
        set_field(self, "scale", scale_of_result(self.scale))
        for name in ("zero", "lowest", "highest"):
            given: Any = getattr(self, name)
            # the limits may be left to the format, but the zero point is a number
            if given is not None or name == "zero":
                set_field(self, name, as_integer(name, given))
        if self.lowest is not None and self.highest is not None and self.lowest > self.highest:
            raise FormatError(
                f"`lowest` must not exceed `highest`, got {self.lowest} and {self.highest}; exchange them"
            )

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)}" for name in ("lowest", "highest") if getattr(self, name) is not None]
        if self.rounding not in (None, Rounding.NEAREST_EVEN):
            parts.append(f"rounding={str(self.rounding)!r}")
        return f"Requantiser({', '.join([repr(str(self.kind)), f'scale={self.scale}', f'zero={self.zero}', *parts])})"


def scale_of_result(given: Any) -> float:
    """Return a scale as the binary32 number next to it.

    Raises:
        FormatError: it is 0, negative, NaN, infinite or subnormal.
    """
    try:
        with np.errstate(over="ignore", under="ignore"):
            scale = np.float32(given)
    except (TypeError, ValueError, OverflowError):  # an integer beyond float64
        scale = np.float32(np.nan)
    # `ndim`: an array is no scale, not even of one element; NaN fails the comparison
    if scale.ndim or not np.finfo(np.float32).smallest_normal <= scale < np.inf:
        raise FormatError(f"`scale` must be positive, finite and normal, got {given!r}; give that of calibration")
    return float(scale)
