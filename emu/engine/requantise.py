"""Requantise: sums of integer products become integer elements, as a runtime's kernel does it.

    sums ──► multiplier, rounded on the way as the kind says ──► + zero point ──► bounded ──► elements, flags

A kind is a row of the table below, with two functions: one prepares the scales, once; the other applies them to sums.

Sources: docs/concepts/requantise.md; B. Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018, section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from emu.backends.arrays import on_host
from emu.backends.memory import empty
from emu.datapath import Flags, Requantiser, RequantiserKind, Rounding
from emu.engine.description import require_options
from emu.engine.integer_products import exact_integers
from emu.engine.operands import as_operand
from emu.engine.quantize import quantize
from emu.engine.scaled import scales_that_divide
from emu.errors import FormatError, ShapeError
from emu.formats import PRESETS, Fixed, Format, parse_number
from emu.formats.value import Value, made_value

Array = NDArray[Any]
Integers = NDArray[np.int64]
FLOAT32 = PRESETS["fp32"]
#: A multiplier of 31 bits stands for m * 2**-31, m in 2**30..2**31, times 2**shift.
MULTIPLIER_BITS = 31
#: Smaller multipliers are 0, as TensorFlow Lite has them; larger ones are refused.
LEAST_SHIFT, LARGEST_SHIFT = -31, 30
INT32 = np.iinfo(np.int32)
#: What a rounded number is bounded to on the way: far beyond all elements, and exact in every type used.
FAR = 1 << 40


class RequantiserOptions(TypedDict, total=False):
    """The options of a requantiser, as `emu.Requantiser` has them.

    Attributes:
        scale: of the result.
        zero: zero point of the result.
        lowest: smallest element, as a fused activation has it; None is that of the format.
        highest: largest element.
        rounding: mode of the kinds exact and shift; None is nearest_even.
    """

    scale: Any
    zero: int
    lowest: int | None
    highest: int | None
    rounding: str | Rounding | None


def requantise(
    sums: Any,
    out: str | Format,
    kind: str | RequantiserKind | Requantiser = "float32",
    *,
    a_scale: Any = None,
    b_scale: Any = None,
    multiplier: tuple[Any, Any] | None = None,
    flags: Flags | None = None,
    **options: Unpack[RequantiserOptions],
) -> Value:
    """Return integer elements of sums of integer products: sums * a_scale * b_scale / scale + zero, bounded.

    Args:
        sums: integers of 32 bits, any shape: accumulators, bias included.
        out: format of the elements: fix8f0, ufix8f0 or another integer one of at most 16 bits.
        kind: which operations, each rounded as the runtime does: float32 (onnxruntime), double_rounding (CMSIS-NN),
            single_rounding (XNNPACK), exact, or shift; or a requantiser, which has the options too.
        a_scale: of the left operand, what broadcasts to the sums.
        b_scale: of the right operand.
        multiplier: in place of the three scales, for the kinds double_rounding and single_rounding: integers m, 0 or in
            2**30..2**31 - 1, and shifts, -31..30, as compiled models hold them: the multiplier is m * 2**(shift - 31).
        flags: counts, as `overflow`, results beyond the format or beyond `lowest` and `highest`.
        **options: those of `emu.Requantiser`: `scale` and `zero` of the result, `lowest`, `highest`, `rounding`.

    Returns:
        Value of `out`, in the shape of the sums.

    Raises:
        FormatError: no such kind or mode; scales that are 0, negative, NaN or subnormal; a multiplier of the kind shift
            that is no power of two; a zero point outside the format; sums that are no integers of 32 bits.
        ShapeError: scales that do not broadcast to the sums.

    Examples:
        >>> scales = {"a_scale": 0.05296124517917633, "b_scale": 0.024093778803944588, "scale": 0.11484327912330627}
        >>> [int(requantise(585, "fix8f0", kind, **scales, zero=-126)) for kind in ("float32", "exact")]
        [-120, -119]

    Source: docs/concepts/requantise.md.
    """
    require_options("requantise", options, RequantiserOptions.__annotations__.keys())
    if isinstance(kind, Requantiser):
        described = replace(kind, **options)
    elif multiplier is None and "scale" not in options:
        raise FormatError(
            "a requantiser must be given `scale`, `a_scale` and `b_scale`, or `multiplier`, got none of them; give one"
        )
    else:
        # a multiplier stands for all three scales: the requantiser's own is 1 beside it
        chosen: dict[str, Any] = {"scale": 1.0, **options}
        described = Requantiser(kind, **chosen)
    fmt = element_format(parse_number(out))
    accumulators = as_sums(sums)
    factors = {"a_scale": a_scale, "b_scale": b_scale}
    if multiplier is not None:
        parts = _given_multiplier(described, multiplier, [name for name, given in factors.items() if given is not None])
        _require_broadcast(parts, accumulators.shape)
        made = _within_shifts(*parts)
    else:
        a, b = (scales_that_divide(1.0 if given is None else given, FLOAT32, name) for name, given in factors.items())
        # before they are multiplied with each other: scales that fit the sums fit together
        _require_broadcast((a, b), accumulators.shape)
        made = multipliers_of(described, a, b)
    return made_value(write_requantised(described, fmt, accumulators, made, flags), fmt)


def element_format(fmt: Format) -> Fixed:
    """Return the format of elements that a requantiser can write.

    Raises:
        FormatError: it is none of integers of at most 16 bits.
    """
    if not isinstance(fmt, Fixed) or fmt.frac_bits or fmt.width_bits > 16 or fmt.sign_magnitude:
        raise FormatError(
            f"a requantiser must write integers of at most 16 bits, got the format {fmt}; name fix8f0 or ufix8f0"
        )
    return fmt


def as_sums(given: Any) -> Integers:
    """Return sums as int64.

    Raises:
        FormatError: something else than integers of 32 bits.
    """
    array, fmt = as_operand(given, None, "sums", check=True)
    integers, wrong = exact_integers(np.asarray(on_host(array)), fmt, 32)
    if wrong:
        raise FormatError(f"`sums` must be integers of 32 bits, got {wrong}; quantize them into fix32f0 first")
    return integers


def write_requantised(
    by: Requantiser, fmt: Fixed, sums: Integers, multipliers: tuple[Any, ...], flags: Flags | None
) -> Array:
    """Return elements, carriers of their format, of sums.

    Args:
        by: how.
        fmt: format of the elements.
        sums: int64 that 32 bits hold.
        multipliers: of `multipliers_of`; their arrays broadcast to the sums.
        flags: counts overflow; None counts nothing.

    Raises:
        FormatError: a zero point, or a bound, that is no element.
        ShapeError: multipliers that do not broadcast to the sums.
    """
    require_elements(by, fmt)
    _require_broadcast(multipliers, sums.shape)
    # int64 far within its range: a sum and a zero point cannot wrap
    rounded = np.asarray(_ROWS[RequantiserKind(by.kind)].apply(sums, *multipliers))
    rounded += by.zero
    low = int(fmt.min) if by.lowest is None else by.lowest
    high = int(fmt.max) if by.highest is None else by.highest
    if flags is not None:
        # counted before the clip, after which nothing lies beyond
        beyond = int(((rounded < low) | (rounded > high)).sum())
        flags.add(Flags(overflow=beyond).counts())
    return np.clip(rounded, low, high, out=rounded).astype(fmt.carrier)


def require_elements(by: Requantiser, fmt: Fixed) -> None:
    """Raise FormatError unless a requantiser's zero point and bounds are elements."""
    for name in ("zero", "lowest", "highest"):
        given = getattr(by, name)
        if given is not None and not fmt.min <= given <= fmt.max:
            what = "a zero point" if name == "zero" else f"`{name}`"
            raise FormatError(
                f"{what} must be an integer in {fmt.min:g}..{fmt.max:g}, the elements of {fmt}, got {given}; choose "
                "one of them"
            )


def _require_broadcast(parts: Iterable[Any], to: tuple[int, ...]) -> None:
    """Raise ShapeError unless the arrays among some parts broadcast to the shape of the sums."""
    for part in parts:
        shape = getattr(part, "shape", ())
        if not _broadcasts(shape, to):
            raise ShapeError(f"scales must broadcast to the sums {to}, got {shape}; give axes of size 1")


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def multipliers_of(by: Requantiser, a: Array, b: Array) -> tuple[Any, ...]:
    """Return what the kind makes of the scales, in the parts that `write_requantised` takes.

    Args:
        by: kind and scale of the result.
        a: scales of the left operand, binary32, what broadcasts to the sums.
        b: those of the right operand.

    Raises:
        FormatError: a multiplier beyond the kind's range, or of the kind shift no power of two.
    """
    return _ROWS[RequantiserKind(by.kind)].prepare(a, b, np.float32(by.scale), by.rounding)


def _given_multiplier(by: Requantiser, given: tuple[Any, Any], scales: Sequence[str]) -> tuple[Integers, Integers]:
    """Return a multiplier that stands for all scales; `scales` names those of the operands that were given as well."""
    if by.kind not in (RequantiserKind.DOUBLE_ROUNDING, RequantiserKind.SINGLE_ROUNDING):
        raise FormatError(
            f"`multiplier` must be left out for the requantiser {by.kind}, which is given scales; choose "
            "double_rounding or single_rounding"
        )
    beside = [f"`{name}`" for name in scales] + ([] if by.scale == 1 else [f"`scale` {by.scale}"])
    if beside or not isinstance(given, tuple) or len(given) != 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FormatError(
            "`multiplier` must be given without scales, as a pair of integers and shifts, got "
            f"{' and '.join([repr(given), *beside])}; write multiplier=(1518500250, -7)"
        )
    m, shift = (_as_array(part) for part in given)
    least = 1 << (MULTIPLIER_BITS - 1)
    if any(part.dtype.kind not in "iu" for part in (m, shift)) or ((m != 0) & ((m < least) | (m >= 2 * least))).any():
        raise FormatError(
            f"`multiplier` must be integers, 0 or in 2**30..2**31 - 1, and shifts, got {given[0]!s} and {given[1]!s}; "
            "give what the compiled model holds"
        )
    return m.astype(np.int64), shift.astype(np.int64)


def _as_array(part: Any) -> Array:
    try:
        return np.asarray(part)
    except ValueError:  # a ragged list
        return np.array(None)


# ---- kinds ----------------------------------------------------------------------------------------------------------


def _single_multiplier(a: Array, b: Array, scale: np.float32, _: Rounding | None) -> tuple[Array]:
    with np.errstate(over="ignore", under="ignore"):
        # in this order, (a * b) / scale: another order rounds to other bits
        multiplier = a.astype(np.float32) * b.astype(np.float32) / scale  # NumPy rounds each operation of binary32 once
    if not np.isfinite(multiplier).all():
        raise FormatError("a multiplier must be a finite number of binary32, got infinity; check the scales")
    return (multiplier,)


def _by_float(sums: Integers, multiplier: Array) -> Integers:
    product = empty(sums.shape, np.float32)
    np.copyto(product, sums, casting="same_kind")  # each sum is rounded to binary32 once
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product *= multiplier
    # bounded first: the cast of a float beyond int64 is not defined. rint is nearest even
    np.rint(np.clip(product, -FAR, FAR, out=product), out=product)
    rounded = empty(sums.shape, np.int64)
    np.copyto(rounded, product, casting="unsafe")
    return rounded


def _q31(a: Array, b: Array, scale: np.float32, _: Rounding | None) -> tuple[Integers, Integers]:
    """Return multipliers of 31 bits and their shifts, of the quotient in binary64."""
    return in_31_bits(a.astype(np.float64) * b.astype(np.float64) / np.float64(scale))


def in_31_bits(multiplier: Any) -> tuple[Integers, Integers]:
    """Return multipliers as integers m and shifts: m * 2**(shift - 31), m in 2**30..2**31 - 1, or 0.

    Args:
        multiplier: binary64, above 0, any shape.

    Raises:
        FormatError: one of 2**30 or more.
    """
    # multiplier = fraction * 2**shift, fraction in 1/2..1: scaled by 2**31 it lies in 2**30..2**31
    fraction, shift = np.frexp(np.asarray(multiplier, np.float64))
    m = np.floor(np.ldexp(fraction, MULTIPLIER_BITS) + 0.5).astype(np.int64)  # exact: a fraction of 53 bits, scaled
    shift = shift.astype(np.int64)
    # rounded up to 2**31, which needs 32 bits: half of it, and a shift more
    is_whole = m == 1 << MULTIPLIER_BITS
    return _within_shifts(np.where(is_whole, m // 2, m), shift + is_whole)


def _within_shifts(m: Integers, shift: Integers) -> tuple[Integers, Integers]:
    if (shift > LARGEST_SHIFT).any():
        raise FormatError(
            f"a multiplier must be below 2**{LARGEST_SHIFT}, got one of 2**{int(shift.max()) - 1} or more; check the "
            "scales"
        )
    # such a multiplier is below 2**-32: times a sum of 32 bits it stays below 1/2
    is_nothing = shift < LEAST_SHIFT
    return np.where(is_nothing, 0, m), np.where(is_nothing, 0, shift)


def twice_rounded(sums: Integers, m: Any, shift: Any) -> Integers:
    """Return sums times multipliers: the high half rounded, ties up, and then a shift, ties away from zero."""
    # one of the two is 0
    left = np.maximum(shift, 0)
    right = np.maximum(-shift, 0)
    scaled = _wrapped(sums << left)
    # (x * m + 2**30) // 2**31 with the quotient cut toward zero is a rounding of ties up, for either sign
    # no overflow: |scaled| <= 2**31 and m < 2**31, so the product is below 2**62
    product = scaled * m
    nudge = np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = _cut(product + nudge, MULTIPLIER_BITS)
    return rounded_shift(high, right)


def rounded_shift(x: Any, bits: Any) -> Integers:
    """Return x / 2**bits, rounded, ties away from zero; bits 0 or more."""
    x = np.asarray(x, np.int64)
    # rounded up if the dropped bits are above half, less one unit for x of 0 or more: so ties move away from zero
    mask = (np.int64(1) << bits) - 1
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))


def _cut(x: Integers, bits: int) -> Integers:
    """Return x / 2**bits, cut toward zero."""
    # a shift alone rounds down, which for negative numbers is away from zero
    return np.where(x >= 0, x >> bits, -(-x >> bits))


def _wrapped(x: Integers) -> Integers:
    # modulo 2**32, as registers of 32 bits wrap
    return x.astype(np.int32).astype(np.int64)


def _once_rounded(sums: Integers, m: Integers, shift: Integers) -> Integers:
    total = MULTIPLIER_BITS - shift  # 1..62: the product is below 2**62, and the sum below 2**63
    return np.clip((sums * m + (np.int64(1) << (total - 1))) >> total, INT32.min, INT32.max)


class _Quotient(NamedTuple):
    """A multiplier as an exact quotient, an array of each part, and as binary64."""

    above: Array
    below: Array
    near: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each part, as other parts of multipliers have it."""
        return self.near.shape


def _exact_quotient(a: Array, b: Array, scale: np.float32, mode: Rounding | None) -> tuple[_Quotient, Rounding | None]:
    # a quotient may have no end in binary: numerator and denominator are kept, as Python's integers
    a, b = np.broadcast_arrays(a, b)
    exact = [
        Fraction(float(x)) * Fraction(float(y)) / Fraction(float(scale)) for x, y in zip(a.flat, b.flat, strict=True)
    ]
    parts = np.empty((3, len(exact)), object)
    for i, quotient in enumerate(exact):
        parts[:, i] = quotient.numerator, quotient.denominator, float(quotient)
    above, below, near = (part.reshape(a.shape) for part in parts)
    return _Quotient(above, below, near.astype(np.float64)), mode


def _power_of_two(a: Array, b: Array, scale: np.float32, mode: Rounding | None) -> tuple[_Quotient, Rounding | None]:
    quotient, mode = _exact_quotient(a, b, scale, mode)
    # a power of two has the fraction 1/2; binary64 tells it from others, which differ by 2**-48 or more: the product of
    # two scales of 24 bits and the third, moved by a power of two, are integers of 48 bits
    wrong = np.frexp(quotient.near)[0] != 0.5
    if wrong.any():
        raise FormatError(
            f"a multiplier of the requantiser shift must be a power of two, got {quotient.near[wrong].flat[0]!s}; "
            "choose scales that are powers of two, or another kind"
        )
    return quotient, mode


def _by_quotient(sums: Integers, quotient: _Quotient, mode: Rounding | None) -> Integers:
    """Return sums times an exact quotient, rounded once.

    A mode asks whether a number is an integer, and on which side of a half it lies. So an integer plus 0, 1/4, 1/2 or
    3/4, exact in binary64, is rounded in place of the number.
    """
    near = sums * quotient.near
    # `near` is within 2**-51 of the product, relatively: two roundings of 2**-53 each, the first of the quotient
    doubt = np.abs(near) * 2.0**-50 + 2.0**-1000
    # between two neighbouring multiples of 1/2 every mode gives the same result: only near such a multiple is `near`
    # not enough
    halves = np.rint(2 * near) / 2
    is_sure = (np.abs(near - halves) > doubt) & (np.abs(near) < FAR)
    floor = np.floor(near)
    # any number strictly between two multiples of 1/2 will do
    stand_in = np.where(near - floor < 0.5, floor + 0.25, floor + 0.75)
    # beyond 2**40 every element is bounded, whatever its last bits are
    stand_in = np.where(np.abs(near) >= FAR, np.clip(near, -2.0 * FAR, 2.0 * FAR), stand_in)
    undecided = ~is_sure & (np.abs(near) < 2 * FAR)
    if undecided.any():
        above, below = (np.broadcast_to(part, sums.shape)[undecided] for part in quotient[:2])
        # objects: Python's integers, which have no width
        numerators = sums[undecided].astype(object) * above
        whole = numerators // below
        twice = 2 * (numerators - whole * below)
        # 0: an integer; 1: below the half; 2: at it; 3: above it
        side = np.array([(t > 0) + (t == d) + 2 * (t > d) for t, d in zip(twice, below, strict=True)])
        stand_in[undecided] = whole.astype(np.float64) + np.select(
            [side == 0, side == 1, side == 2], [0, 0.25, 0.5], 0.75
        )
    # 48 bits hold 2 * FAR, so that this rounding neither overflows nor saturates
    return quantize(stand_in, Fixed(48, 0), rounding=mode).astype(np.int64)


class _Row(NamedTuple):
    """One kind: `prepare` makes parts of the three scales and a mode, `apply` multiplies sums by these parts."""

    prepare: Callable[[Array, Array, np.float32, Any], tuple[Any, ...]]
    apply: Callable[..., Integers]


_ROWS: dict[RequantiserKind, _Row] = {
    RequantiserKind.FLOAT32: _Row(_single_multiplier, _by_float),
    RequantiserKind.DOUBLE_ROUNDING: _Row(_q31, twice_rounded),
    RequantiserKind.SINGLE_ROUNDING: _Row(_q31, _once_rounded),
    RequantiserKind.EXACT: _Row(_exact_quotient, _by_quotient),
    RequantiserKind.SHIFT: _Row(_power_of_two, _by_quotient),
}
