"""Casts: how a stored tensor becomes an operand of a product, for that product alone, described.

    stored tensor ──► transform along k, rounded to the stored format ──► scales of blocks along k ──► elements
    largest magnitudes of earlier steps ──► scale of the tensor, where scaling is delayed

Source: docs/concepts/roles.md, "What a product reads"; NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv
2509.25149, section 4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emu._drawn import Drawn
from emu.datapath.rounding import Rounding
from emu.errors import FormatError
from emu.formats import Fixed, Scaled, parse

# up to 256 signs: 64 hexadecimal or 78 decimal digits
_HADAMARD = re.compile(r"hadamard\(([0-9]{1,4}),(0x[0-9a-f]{1,64}|[0-9]{1,78})\)", re.IGNORECASE)
#: Sizes whose matrix has entries of powers of two: 1 / sqrt(size).
HADAMARD_SIZES = (4, 16, 64, 256)


@dataclass(frozen=True)
class Hadamard:
    """A rotation of each run of `size` numbers: signs, then Sylvester's Hadamard matrix, divided by sqrt(size).

    On both operands of a product it changes nothing but what is rounded.

    Attributes:
        size: numbers in a run: 4, 16, 64 or 256.
        signs: bit i is 1 where number i changes its sign.

    Raises:
        FormatError: another size, or more signs than numbers.

    Examples:
        >>> Hadamard.of("hadamard(16, 0xd7e8)").matrix[0, :4].tolist()
        [0.25, 0.25, 0.25, 0.25]

    Source: arXiv 2509.25149, section 4.2 and appendix C.
    """

    size: int
    signs: int

    def __post_init__(self) -> None:
        if self.size not in HADAMARD_SIZES:
            raise FormatError(
                f"a Hadamard transform must have a size of {', '.join(map(str, HADAMARD_SIZES))}, got {self.size}; "
                "choose 16"
            )
        if not 0 <= self.signs < 1 << self.size:
            raise FormatError(
                f"the signs of a Hadamard transform must be {self.size} bits, got {self.signs:#x}; write 0 for none"
            )

    @classmethod
    def of(cls, text: str) -> Hadamard:
        """Return the transform of a text.

        Raises:
            FormatError: it is none.
        """
        match = _HADAMARD.fullmatch(text.replace(" ", ""))
        if match is None:
            raise FormatError(
                f"a transform must be hadamard(SIZE, SIGNS), got {text!r}; write hadamard(16, 0xd7e8), or leave it out"
            )
        size, signs = match.groups()
        # not base 0, which refuses decimals that begin with 0
        return cls(int(size), int(signs, 16 if "x" in signs.lower() else 10))

    def __str__(self) -> str:
        return f"hadamard({self.size}, {self.signs:#x})"

    @property
    def matrix(self) -> NDArray[np.float32]:
        """The matrix that multiplies a run from the right, (size, size); its entries are powers of two, with signs."""
        sylvester = np.ones((1, 1), np.float32)
        while len(sylvester) < self.size:
            # (2n, 2n) of (n, n): H, H above H, -H
            sylvester = np.block([[sylvester, sylvester], [sylvester, -sylvester]])
        # Signs belong to rows, so that x @ matrix changes the signs of x
        # first. The root is a power of two: entries are exact.
        signs = np.array([-1 if self.signs >> i & 1 else 1 for i in range(self.size)], np.float32)
        return signs[:, None] * sylvester / np.float32(self.size**0.5)


@dataclass(frozen=True)
class DelayedScaling:
    """A scale that follows from the largest magnitudes of earlier steps, so that a tensor is read once.

    Attributes:
        history: steps whose largest magnitude counts.
        margin: powers of two by which the scale leaves room above it.

    Examples:
        >>> str(DelayedScaling(16, 0))
        'delayed(16, 0)'

    Source: NVIDIA TransformerEngine, recipe DelayedScaling; arXiv 2209.05433, section 3.
    """

    history: int
    margin: int

    def __str__(self) -> str:
        return f"delayed({self.history}, {self.margin})"


#: Rules whose scale is 1 where the largest magnitude is 0: of a tensor of which nothing is known yet.
DELAYED_RULES = ("te", "te_power", "symmetric")


class Magnitudes:
    """The largest magnitudes of one operand: of earlier steps, and of the casts since these.

    Attributes:
        assumed: the largest magnitude from which the scale follows; 0 before anything is known, for which rules give
            a scale of 1.
        noted: the largest magnitude since then: 0 if all were zeros or NaN, None if nothing was cast.
    """

    def __init__(self) -> None:
        self.assumed = 0.0
        self.noted: float | None = None

    def note(self, largest: NDArray[np.floating]) -> None:
        """Note the largest magnitudes of one cast; NaN does not count."""
        # fmax ignores NaN, so that one NaN does not spoil the scale of later steps
        self.noted = float(np.fmax.reduce(largest, axis=None, initial=self.noted or 0))


@dataclass(frozen=True)
class Points:
    """A scale and a zero point that calibration chose for a tensor.

    Attributes:
        scale: what a unit of the elements stands for.
        zero: the element that stands for 0; None of formats without zero points.

    Examples:
        >>> str(Points(0.5, 128))
        'scale 0.5, zero 128'
    """

    scale: float
    zero: int | None = None

    def __str__(self) -> str:
        return f"scale {self.scale:.9g}" + ("" if self.zero is None else f", zero {self.zero}")

    def require(self, fmt: Scaled, *, is_whole: bool, is_delayed: bool) -> None:
        """Raise FormatError unless they are those of a whole tensor in a format."""
        if is_delayed or not is_whole:
            got = "delayed scaling" if is_delayed else str(fmt)
            raise FormatError(
                f"a given scale must be that of a whole tensor, got {got}; leave `scale` out, or name uint8_affine"
            )
        with np.errstate(over="ignore", under="ignore"):
            scale = np.float32(self.scale)
        # below the smallest normal number, 1 / scale may be infinite
        if not np.finfo(np.float32).smallest_normal <= scale < np.inf:
            raise FormatError(
                f"`scale` must be positive, finite and normal, got {self.scale}; give that of calibration"
            )
        # `is` compares two bools, so that a zero point of 0 counts as given
        if fmt.has_zero is (self.zero is None):
            what = "given" if fmt.has_zero else "left out"
            raise FormatError(
                f"`zero` must be {what} with the scale of {fmt}, got {self.zero}; write zero = 0, or leave it out"
            )
        if (
            self.zero is not None
            and isinstance(fmt.element, Fixed)
            and not fmt.element.min <= self.zero <= fmt.element.max
        ):
            raise FormatError(
                f"`zero` must be an element of {fmt}, {fmt.element.min:g}..{fmt.element.max:g}, got {self.zero}; "
                "choose one of them"
            )


@dataclass(frozen=True)
class Cast(Drawn):
    """How an operand of a product is made of a stored tensor.

    Attributes:
        format: the scaled format of the operand.
        rounding: mode of its elements; None is that of the format's rule.
        transform: what is done along k before; None is nothing.
        scaling: how the scale follows from earlier steps; None is that of the tensor itself.
        points: scale and zero point of the whole tensor, as calibration chose them; None leaves them to the rule.

    Raises:
        FormatError: a format whose elements share no scales, an unknown mode or transform, or a delayed or a given
            scale of a format that has others than that of the whole tensor.

    Source: docs/concepts/roles.md, "What a product reads".
    """

    format: Scaled
    rounding: Rounding | None = None
    transform: Hadamard | None = None
    scaling: DelayedScaling | None = None
    points: Points | None = None

    def __post_init__(self) -> None:
        fmt = self.format
        # a history has one number a step: it serves only a scale of the whole tensor
        is_whole = len(fmt.levels) == 1 and fmt.tiling.across is None and not fmt.tiling.is_channel
        if self.points is not None:
            self.points.require(fmt, is_whole=is_whole, is_delayed=self.scaling is not None)
        if self.scaling is not None and not (is_whole and fmt.rule.name in DELAYED_RULES):
            raise FormatError(
                f"delayed scaling needs one scale for the whole tensor, by the rule {' or '.join(DELAYED_RULES)}, got "
                f"{fmt}; write fp8_tensor or block(fp8_e5m2, fp32 tensor te), or scaling = {{kind = 'current'}}"
            )

    @classmethod
    def of(
        cls,
        fmt: str,
        rounding: str | None = None,
        transform: str | None = None,
        scaling: DelayedScaling | None = None,
        points: Points | None = None,
    ) -> Cast:
        """Return the cast of texts."""
        parsed = parse(fmt)
        if not isinstance(parsed, Scaled):
            raise FormatError(
                f"an operand must be cast into a format whose elements share scales, got {parsed}; write mxfp8_e4m3, "
                f"or block({parsed}, fp32 tensor te)"
            )
        mode = None if rounding is None else Rounding.parse(rounding)
        return cls(parsed, mode, None if transform is None else Hadamard.of(transform), scaling, points)

    def __str__(self) -> str:
        parts = [str(self.format)]
        parts += [] if self.rounding is None else [self.rounding.value]
        parts += [str(part) for part in (self.transform, self.scaling, self.points) if part is not None]
        return ", ".join(parts)
