"""Laws of quantize over random formats and the numbers where rounding decides."""

from __future__ import annotations

from fractions import Fraction
from math import copysign, floor, isfinite, isnan

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

import emu
from emu.datapath.overflow import FLOAT_RULES
from emu.datapath.rounding import Steps
from emu.testing import arrays, assert_bits_equal, formats, values

MODES = [mode.value for mode in emu.Rounding]
DETERMINISTIC = [mode.value for mode in emu.Rounding if not mode.draws]
DRAWN = [mode.value for mode in emu.Rounding if mode.draws]
MIRRORED = {"floor": "ceil", "ceil": "floor", "nearest_up": "nearest_down", "nearest_down": "nearest_up"}
FIXED_RULES = ["saturate", "saturate_symmetric", "saturate_zero", "wrap"]
backends = st.sampled_from(["reference", "numba"])
r_bits = st.integers(1, 32)


def steps_of(mode: str, fmt: emu.Fixed | emu.Float) -> Steps:
    """What a mode does in a format, as the table says it: which laws hold follows from it."""
    return emu.Rounding(mode).meaning.steps_of(fmt)


def values_stay(mode: str, fmt: emu.Fixed | emu.Float) -> bool:
    """Whether results that are values of the format are written as they are."""
    return emu.Rounding(mode).draws or not steps_of(mode, fmt).moves_exact


def mirror_of(mode: str, fmt: emu.Fixed | emu.Float) -> str | None:
    """The mode that does to -x what `mode` does to x."""
    return mode if steps_of(mode, fmt).is_symmetric else MIRRORED.get(mode)


def flushes(fmt: emu.Fixed | emu.Float) -> bool:
    """Whether results below the smallest number become 0, which is not always the nearest value."""
    return isinstance(fmt, emu.Float) and (fmt.ftz or fmt.hidden_one)


def is_complement(fmt: emu.Fixed | emu.Float) -> bool:
    """Whether a fixed-point format is in two's complement; else magnitudes are rounded, as in floats."""
    return isinstance(fmt, emu.Fixed) and not fmt.sign_magnitude


def rules_of(fmt) -> list[str]:
    return FIXED_RULES if isinstance(fmt, emu.Fixed) else [rule.value for rule in FLOAT_RULES]


def draw_inputs(data, fmt, n: int = 8, **options) -> np.ndarray:
    return data.draw(arrays(fmt, n, representable=False, **options))


@given(st.data(), formats(), st.sampled_from(MODES), r_bits, backends)
def test_representable_values_never_move(data, fmt, mode, r, backend):
    assume(values_stay(mode, fmt))
    x = data.draw(arrays(fmt, 8, infinity=False))
    if isinstance(fmt, emu.Float) and fmt.ftz:
        x = x[(x == 0) | ~(np.abs(x) < fmt.smallest_normal)]
    for rule in rules_of(fmt):
        if rule == "saturate_symmetric":
            x = x[x != fmt.min]
        flags = emu.Flags()
        y = emu.quantize(
            x,
            fmt,
            rounding=mode,
            overflow=rule,
            n_rbits=r,
            seed=data.draw(st.integers(0, 2**64 - 1)),
            flags=flags,
            backend=backend,
        )
        assert_bits_equal(y, x, fmt)
        assert (flags.overflow, flags.underflow, flags.inexact, flags.invalid) == (0, 0, 0, 0)


@given(st.data(), formats(raws=True), st.sampled_from(MODES), backends)
def test_rounding_twice_is_rounding_once(data, fmt, mode, backend):
    assume(values_stay(mode, fmt))
    rule = data.draw(st.sampled_from(rules_of(fmt)))
    once = emu.quantize(draw_inputs(data, fmt), fmt, rounding=mode, overflow=rule, backend=backend)
    source = fmt if fmt.carries_raws else None
    twice = emu.quantize(once, fmt, rounding=mode, overflow=rule, seed=1, x_format=source, backend=backend)
    assert_bits_equal(twice, once, fmt)


@given(st.data(), formats(), st.sampled_from(DETERMINISTIC), backends)
def test_rounding_is_monotone(data, fmt, mode, backend):
    rule = data.draw(
        st.sampled_from(["saturate", "saturate_symmetric"] if isinstance(fmt, emu.Fixed) else rules_of(fmt))
    )
    x = np.sort(draw_inputs(data, fmt, 20, nan=False))
    y = emu.quantize(x, fmt, rounding=mode, overflow=rule, backend=backend)
    y = y[~np.isnan(y)]  # overflow without infinity, at the ends
    if not (isinstance(fmt, emu.Float) and rule == "ieee" and not fmt.infinities):
        assert (y[1:] >= y[:-1]).all(), (x, y)


@given(st.data(), formats(unsigned=False), st.sampled_from(DETERMINISTIC), backends)
def test_modes_are_symmetric_or_mirror_each_other(data, fmt, mode, backend):
    mirror = mirror_of(mode, fmt)
    assume(mirror is not None)
    x = draw_inputs(data, fmt)
    rule = "saturate_symmetric" if isinstance(fmt, emu.Fixed) else data.draw(st.sampled_from(rules_of(fmt)))
    if isinstance(fmt, emu.Float) and fmt.nans == "none" and not fmt.infinities:
        rule = "satfinite"  # under `ieee` overflow would be +0 on either side
    y = emu.quantize(x, fmt, rounding=mode, overflow=rule, backend=backend)
    mirrored = emu.quantize(-x, fmt, rounding=mirror, overflow=rule, backend=backend)
    if isinstance(fmt, emu.Float) and fmt.has_negative_zero:
        mirrored = np.where(np.isnan(mirrored) | ((mirrored == 0) & np.isnan(x)), mirrored, -mirrored)
        assert_bits_equal(y, mirrored, fmt)
    else:
        assert_bits_equal(y, -mirrored + 0, fmt)


@given(st.data(), formats(), st.sampled_from(DETERMINISTIC), backends)
def test_directed_modes_bracket_the_number_and_every_mode_picks_one_of_the_two(data, fmt, mode, backend):
    x = draw_inputs(data, fmt, nan=False, infinity=False)
    x = x[(x >= float(fmt.min)) & (x <= float(fmt.max))]
    assume(values_stay(mode, fmt))
    below, above, picked = (emu.quantize(x, fmt, rounding=m, backend=backend) for m in ("floor", "ceil", mode))
    if not flushes(fmt):
        assert ((below <= x) & (x <= above)).all()
    assert ((picked == below) | (picked == above)).all()


@given(st.data(), formats(), backends)
def test_jamming_leaves_odd_codes_and_goes_one_step_at_most(data, fmt, backend):
    x = draw_inputs(data, fmt, nan=False, infinity=False)
    x = x[(x >= float(fmt.min)) & (x <= float(fmt.max))]
    if isinstance(fmt, emu.Float):
        x = x[(x != 0) & (np.abs(x) >= fmt.smallest_normal)] if flushes(fmt) else x[x != 0]
    elif fmt.sign_magnitude:
        x = x[x != 0]
    codes = fmt.encode(emu.quantize(x, fmt, rounding="jamming", overflow="wrap" if isinstance(fmt, emu.Fixed) else None,
                                    backend=backend))  # fmt: skip
    largest = fmt.max_code & ~1 if isinstance(fmt, emu.Float) else 0  # an even one stands for all beyond it
    assert all(int(code) % 2 == 1 or int(code) & (fmt.sign_code - 1) == largest for code in codes)


@given(st.data(), formats(), backends)
def test_magnitude_truncation_is_floor_and_the_sign_bit_or_in_floats_toward_zero(data, fmt, backend):
    x = draw_inputs(data, fmt, nan=False, infinity=False)
    x = x[(x > float(fmt.min)) & (x <= float(fmt.max))]
    y = emu.quantize(x, fmt, rounding="magnitude_truncation", backend=backend)
    dropped = emu.quantize(x, fmt, rounding="floor" if is_complement(fmt) else "toward_zero", backend=backend)
    if is_complement(fmt):
        dropped = fmt.from_raw(fmt.to_raw(dropped) + (x < 0))
    assert_bits_equal(y, dropped, fmt)


def wrapped_code(fmt: emu.Fixed, raw: int) -> int:
    if not fmt.sign_magnitude:
        return raw % 2**fmt.width_bits
    magnitude = abs(raw) % 2 ** (fmt.width_bits - 1)
    return magnitude + (2 ** (fmt.width_bits - 1) if raw < 0 and magnitude else 0)


@given(st.data(), formats(floats=False, max_width_bits=24), st.sampled_from(MODES), backends)
def test_wrap_is_the_rounded_integer_modulo_the_word(data, fmt, mode, backend):
    x = data.draw(arrays(emu.Fixed(40, fmt.frac_bits + 4), 8))
    u = data.draw(st.integers(0, 255))
    wide = emu.Fixed(48, fmt.frac_bits, sign_magnitude=fmt.sign_magnitude)
    options = {
        "rounding": mode,
        "n_rbits": 8,
        "rbits": np.full(8, u) if mode in DRAWN else None,
        "backend": backend,
    }
    raws = wide.to_raw(emu.quantize(x, wide, **options))
    wrapped = emu.quantize(x, fmt, overflow="wrap", **options)
    assert_bits_equal(wrapped, np.array([wrapped_code(fmt, int(raw)) for raw in raws], np.uint64), fmt)


@given(st.data(), formats(raws=True), st.sampled_from(MODES), backends)
def test_saturation_stays_within_the_limits_and_is_idempotent(data, fmt, mode, backend):
    rule = "saturate" if isinstance(fmt, emu.Fixed) else data.draw(st.sampled_from(["satfinite", "satpropagate"]))
    x = draw_inputs(data, fmt, nan=False)
    y = emu.quantize(x, fmt, rounding=mode, overflow=rule, backend=backend)
    assert fmt.contains(y).all()
    assume(values_stay(mode, fmt))
    source = fmt if fmt.carries_raws else None
    flags = emu.Flags()
    again = emu.quantize(y, fmt, rounding=mode, overflow=rule, x_format=source, flags=flags, backend=backend)
    assert_bits_equal(again, y, fmt)
    assert flags.overflow == 0


@given(st.data(), formats(raws=True), st.sampled_from(MODES))
def test_the_backends_return_the_same_bits_flags_and_registers(data, fmt, mode):
    x = draw_inputs(data, fmt, 16)
    options = {
        "rounding": mode,
        "overflow": data.draw(st.sampled_from(rules_of(fmt))),
        "n_rbits": data.draw(r_bits),
        "seed": data.draw(st.integers(0, 2**64 - 1)),
    }
    results = []
    for backend in ("reference", "numba"):
        flags, register = emu.Flags(), emu.StatisticsRegister()
        results.append(
            (emu.quantize(x, fmt, flags=flags, register=register, backend=backend, **options), flags, register)
        )
    (expected, *counts), (got, *others) = results
    assert_bits_equal(got, expected, fmt)
    assert counts == others


def to_random_bits(x: Fraction, r: int, mode: str) -> Fraction:
    """x rounded to r bits behind its last place, as each stochastic mode does first; half away from zero is upward."""
    scaled = x * 2**r
    if mode == "stochastic":
        return Fraction(floor(scaled), 2**r)
    if mode == "stochastic_nearest_up":
        return Fraction(floor(scaled + Fraction(1, 2)), 2**r)
    nearest = round(scaled)  # ties to even
    if mode == "stochastic_nearest_odd" and abs(scaled - nearest) == Fraction(1, 2):
        nearest = floor(scaled) + (nearest == floor(scaled))
    return Fraction(nearest, 2**r)


@given(st.data(), formats(), st.sampled_from(DRAWN), r_bits, backends)
def test_stochastic_rounding_follows_its_formula(data, fmt, mode, r, backend):
    """Two's complement: floor(x/ulp + u/2**r). Others: the same on |x|, spaced as in x's binade (docs/concepts)."""
    x = data.draw(values(fmt, nan=False, infinity=False))
    assume(float(fmt.min) <= x <= float(fmt.max) and not flushes(fmt))
    u = data.draw(st.integers(0, 2**r - 1))
    wide = emu.quantize(
        [x], fmt, rounding=mode, n_rbits=r, rbits=np.array([u]), backend=backend,
        overflow="saturate" if isinstance(fmt, emu.Fixed) else "satfinite",
    )  # fmt: skip
    if is_complement(fmt):
        ulp = Fraction(2) ** -fmt.frac_bits
        part = to_random_bits(Fraction(x) / ulp, r, mode)
        number = min(floor(part + Fraction(u, 2**r)) * ulp, Fraction(fmt.max))
    else:
        ulp = Fraction(fmt.ulp(x)) if x else Fraction(1)
        magnitude = floor(to_random_bits(abs(Fraction(x)) / ulp, r, mode) + Fraction(u, 2**r)) * ulp
        number = min(magnitude, Fraction(fmt.max)) * (-1 if x < 0 else 1)
        if isinstance(fmt, emu.Float) and (
            fmt.fraction_bits == 0 and abs(x) < fmt.smallest_normal and x
        ):  # its one subnormal step is the smallest normal
            assert fmt.ulp(x) == fmt.smallest_normal
    assert Fraction(wide.item()) == number


@given(st.data(), formats(max_width_bits=20), st.sampled_from(DETERMINISTIC), backends)
def test_the_nearest_modes_are_nearest(data, fmt, mode, backend):
    assume(mode.startswith("nearest") and not flushes(fmt))
    x = data.draw(values(fmt, nan=False, infinity=False))
    assume(float(fmt.min) <= x <= float(fmt.max))
    y, low, high = (emu.quantize([x], fmt, rounding=m, backend=backend).item() for m in (mode, "floor", "ceil"))
    away, to_low, to_high = (abs(Fraction(v) - Fraction(x)) for v in (y, low, high))
    assert away == min(to_low, to_high)


@given(st.data(), formats(), st.sampled_from(DETERMINISTIC), backends)
def test_the_sign_is_kept_where_the_format_has_a_sign_for_it(data, fmt, mode, backend):
    x = data.draw(values(fmt, nan=False))
    y = emu.quantize([x], fmt, rounding=mode, backend=backend).item()
    if isinstance(fmt, emu.Float) and fmt.has_negative_zero and not isnan(y) and (isfinite(x) or fmt.infinities):
        assert isnan(y) or copysign(1, y) == copysign(1, x) or (y == 0 and fmt.nans == "none" and not fmt.infinities)
    elif not isnan(y):
        assert copysign(1, y) == 1 or y != 0
