"""What every door takes: exactly, or not at all. Expectations are fractions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import emu
import emu.sparse
from emu.errors import FormatError
from emu.formats import Fixed

#: Numbers as people have them, and what they are.
TAKEN: list[tuple[Any, list[Fraction]]] = [
    ([0.5, -1.0], [Fraction(1, 2), Fraction(-1)]),
    ([Fraction(1, 4), Decimal("0.5"), 1], [Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
    (np.array([0.75], np.longdouble), [Fraction(3, 4)]),
    (np.array([0.75, 2.0], ">f8"), [Fraction(3, 4), Fraction(2)]),
    (np.array([-3], ">i2"), [Fraction(-3)]),
    (np.array([True, False]), [Fraction(1), Fraction(0)]),
    (np.array([1.5, 3.0], ml_dtypes.bfloat16), [Fraction(3, 2), Fraction(3)]),
    (np.array([1.5, 3.0], ml_dtypes.float8_e4m3fn), [Fraction(3, 2), Fraction(3)]),
    (np.array([1.5, 3.0], ml_dtypes.float8_e5m2), [Fraction(3, 2), Fraction(3)]),
    (np.array([1.5, 3.0], ml_dtypes.float4_e2m1fn), [Fraction(3, 2), Fraction(3)]),
    (np.array([-8, 7], ml_dtypes.int4), [Fraction(-8), Fraction(7)]),
    ([ml_dtypes.bfloat16(1.5), 2], [Fraction(3, 2), Fraction(2)]),
    (np.ma.array([1.0, 2.0], mask=[False, False]), [Fraction(1), Fraction(2)]),
    ([np.float32(0.5), np.int8(2)], [Fraction(1, 2), Fraction(2)]),
]
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
#: What is refused, and words of the message.
REFUSED: list[tuple[Any, str]] = [
    ([1 + 2j], "must hold real numbers, got dtype complex128; take its .real and its .imag"),
    (["1.5"], "must hold real numbers, got dtype <U3; convert text by .astype(float)"),
    (None, "must be a real number, got None; give floats or integers"),
    ([1.0, None], "must be a real number, got None; give floats or integers"),
    (np.array(["2026-01-01"], "M8[D]"), "must hold real numbers, got dtype datetime64[D]; give floats or integers"),
    (np.zeros(1, [("a", "f4")]), "must hold real numbers, got dtype [('a', '<f4')]; give floats or integers"),
    ([[1.0], [1.0, 2.0]], "must be an array of real numbers, got lists of different lengths; make all rows of one"),
    (np.ma.array([1.0, 2.0], mask=[False, True]), "must be a number, got a masked one at index (1,); fill the mask"),
    ([1.0, np.ma.masked], "must be a number, got a masked one; fill the mask with x.filled(0)"),
    ([np.ma.array([1.0], mask=[True])], "must be a number, got a masked one at index (0,); fill the mask"),
    ([emu.value([1.0], "fix8f4")], "must hold numbers, got a list with a value of fix8f4; stack arrays first"),
    (Decimal("1e999999999"), "must be a real number, got Decimal('1E+999999999'); give floats or integers"),
    (object(), "must be a real number, got "),
    (ENDLESS, "must be an array of real numbers, got list; turn it into a NumPy array first"),
]
DOORS: dict[str, Callable[[Any], Any]] = {
    "value": lambda x: emu.value(x, "fp32"),
    "quantize": lambda x: emu.quantize(x, "fp32"),
    "add": lambda x: emu.add(x, 0.0, out_format="fp32"),
    "add in a format": lambda x: emu.add(x, 0.0, a_format="fp32", out_format="fp32"),
    "compare": lambda x: emu.compare(x, x),
    "exp": lambda x: emu.exp(x, out_format="fp32"),
    "relu": lambda x: emu.relu(x),
    "unit": lambda x: emu.Unit("fp32").quantize(x),
    "matmul": lambda x: emu.matmul(x, [[1.0]], a_format="fp32", b_format="fp32", out_format="fp32"),
    "from_dense": lambda x: emu.sparse.CSR.from_dense(x, "fp32"),
    "encode": lambda x: emu.parse("fp32").encode(x),
    "encode fixed": lambda x: Fixed(8, 4).encode(x),
    "contains": lambda x: emu.parse("fp32").contains(x),
}


@pytest.mark.parametrize(("given", "expected"), TAKEN, ids=lambda case: type(case).__name__)
def test_numbers_of_any_kind_are_taken_exactly(given: Any, expected: list[Fraction], backend: str):
    for y in (
        emu.quantize(given, "fp64", backend=backend),
        emu.value(given, "fix16f4").array,
        emu.add(given, 0, a_format="fix16f4", out_format="fp32", backend=backend),
        emu.parse("fp32").decode(emu.parse("fp32").encode(given)),
        Fixed(16, 4).decode(Fixed(16, 4).encode(given)),
    ):
        assert [Fraction(float(v)) for v in np.ravel(y)] == expected


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_no_number_is_refused_at_every_door(given: Any, words: str, door: str):
    with pytest.raises(FormatError) as refusal:
        DOORS[door](given)
    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("rounding", ["floor", "ceil", "nearest_even", "to_odd"])
def test_integers_beside_fractions_keep_every_bit(rounding: str, backend: str):
    """NumPy makes float64 of a list with both, and drops a bit before anything is rounded."""
    for integer in (2**53 + 1, 2**60 + 1, -(2**53) - 1, 2**62 - 1):
        y = emu.quantize([integer, 0.5], "fix64f-1", rounding=rounding, overflow="wrap", backend=backend)
        down, up = integer // 2, -(-integer // 2)
        odd = down if down % 2 else up
        even = up if down % 2 else down
        assert y[0] == {"floor": down, "ceil": up, "nearest_even": even, "to_odd": odd}[rounding]


@pytest.mark.parametrize(
    ("given", "fmt", "raws", "positions"),
    [
        ([2**62 - 1, -0.5], "fix64f1", [2**63 - 2, -1], 63),
        ([2**62 + 1, 0.5], "ufix64f1", [2**63 + 2, 1], 64),
        ([2**60 - 1, -0.125], "fix64f3", [2**63 - 8, -1], 63),
        ([2**63 + 1, 0.0], "ufix64f0", [2**63 + 1, 0], 64),
    ],
)
def test_a_word_of_all_64_bits_holds_integers_beside_fractions_and_is_observed_at_each_bit(
    given: list[Any], fmt: str, raws: list[int], positions: int, backend: str
):
    """The sign of a signed word is no position: docs/concepts/register.md."""
    register = emu.StatisticsRegister()
    assert emu.quantize(given, fmt, register=register, backend=backend).tolist() == raws
    assert (register.lowest, register.bins) == (-Fixed(64, int(fmt[-1])).frac_bits, positions)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_list_of_narrow_floats_is_carried_as_an_array_of_them(dtype: type, backend: str):
    for given in ([dtype(2.5), dtype(-1.0)], np.array([2.5, -1.0], dtype)):
        assert emu.relu(given, backend=backend).dtype == (np.float64 if dtype is np.float64 else np.float32)


def test_integers_beyond_64_bits_that_a_word_holds_are_its_raws(backend: str):
    given = [2**70, 3 * 2**69, -5 * 2**69]
    assert emu.quantize(given, "fp64", backend=backend).tolist() == [2.0**70, 3 * 2.0**69, -5 * 2.0**69]


def test_a_negative_zero_is_zero_beside_numbers_that_only_a_word_holds(backend: str):
    together = np.array([0.5, 2**53 + 1, -0.0], object)
    written = emu.add(together, -0.0, out_format="fp64", backend=backend)
    assert np.signbit(written).tolist() == [False] * 3
    alone = emu.add(together[2:], -0.0, out_format="fp64", backend=backend)
    assert np.signbit(alone).tolist() == [True]


def test_a_decimal_zero_keeps_its_sign(backend: str):
    given = [Decimal("-0"), Decimal("0.00"), Decimal("-0E+5"), Decimal(1)]
    for y in (emu.value(given, "fp32").array, emu.quantize(given, "fp32", backend=backend)):
        assert y.tolist() == [0, 0, 0, 1]
        assert np.signbit(y).tolist() == [True, False, True, False]


def test_numbers_that_nothing_holds_exactly_are_refused(backend: str):
    for given, shown in (
        ([2**70 + 1], "1180591620717411303425"),
        ([Fraction(1, 3), 0.5], "1/3"),
        (Fraction(1, 3**30), "1/205891132094649"),
        (Fraction(1, 2**5000), "a Fraction of"),  # beyond every binary point
        (2**5000, "an int of"),
        ([2**60 + 1, 2.0**-60], "1152921504606846977"),
        ([2**64 - 1, -1], "18446744073709551615"),
        ([2**53 + 1, np.inf], "9007199254740993"),
        ([np.nan, 2**53 + 1], "9007199254740993"),
    ):
        with pytest.raises(FormatError) as refusal:
            emu.quantize(given, "fp64", backend=backend)
        assert "`x` must hold numbers that float64 or a word of 64 bits holds exactly" in str(refusal.value)
        assert shown in str(refusal.value)


def test_integers_are_raws_of_wide_words_beside_whatever_integer():
    assert emu.value([256], "fix64f-8").array.tolist() == [256]
    for fmt in ("fix64f-8", "ufix64f0"):
        with pytest.raises(FormatError, match=f"every value must belong to {fmt}, got 1180591620717411303424 at index"):
            emu.value([256, 2**70], fmt)
    assert emu.value([2.0**16, 2.0**70], "fix64f-8").array.tolist() == [2**8, 2**62]


def test_long_doubles_of_64_bits_are_values_of_wide_words():
    x = np.array([2**62 + 1, -1], np.longdouble)
    if int(x[0]) != 2**62 + 1:
        pytest.skip("long doubles of this machine have fewer than 64 bits")
    assert emu.value(x / 2, "fix64f1").array.tolist() == [2**62 + 1, -1]
    with pytest.raises(FormatError, match="every value must belong to fp64"):
        emu.value(x, "fp64")


@pytest.mark.parametrize(
    "name", ["fix55f3", "fix60f4", "fix64f0", "fix64f70", "fix64f-9", "ufix54f0", "ufix60f8", "ufix64f1", "ufix64f-3"]
)
def test_floats_are_values_also_where_carriers_hold_raws(name: str, backend: str):
    fmt = emu.parse(name)
    assert isinstance(fmt, Fixed)
    assert fmt.carries_raws
    raws = [
        r for r in (0, 1, 2, 3, 2**40 + 1, 2**52 + 1, fmt.max_raw & ~0x7FF, -1, -5, fmt.min_raw) if r >= fmt.min_raw
    ]
    numbers = [Fraction(r) * Fraction(2) ** -fmt.frac_bits for r in raws]
    floats = np.array([float(x) for x in numbers])
    assert [Fraction(float(x)) for x in floats] == numbers
    for given in (floats, floats.tolist(), numbers):
        assert emu.value(given, fmt).array.tolist() == raws
        assert emu.value(given, fmt).codes.tolist() == [r % 2**fmt.width_bits for r in raws]
        assert fmt.encode(given).tolist() == [r % 2**fmt.width_bits for r in raws]
    y = emu.add(floats, 0.0, a_format=fmt, out_format="fp64", backend=backend)
    assert y.tolist() == floats.tolist()
    y = emu.matmul(floats[:, None], [[1.0]], a_format=fmt, b_format="ufix1f0", out_format=fmt, backend=backend)
    assert y.ravel().tolist() == raws
    matrix = emu.sparse.CSR.from_dense(floats[None], fmt, backend=backend)
    assert matrix.data.tolist() == [r for r in raws if r]
    assert emu.sparse.CSR.from_dense(np.array([raws], fmt.carrier), fmt).data.tolist() == [r for r in raws if r]
    with pytest.raises(FormatError, match="every value must belong to"):
        emu.value([float(Fraction(2) ** -fmt.frac_bits) / 2], fmt)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Fixed(8, 4).from_raw([200]),
            "every raw must belong to fix8f4, got np.int64(200) at index (0,); saturate",
        ),
        (lambda: Fixed(8, 4).from_raw([1.5]), "`raw` must hold integers, got 1.5 of dtype float64; convert them with"),
        (lambda: Fixed(8, 4).decode([1.9]), "`codes` must hold integers, got 1.9 of dtype float64; convert them with"),
        (lambda: Fixed(8, 4).decode([256]), "every code must belong to fix8f4, got np.int64(256) at index (0,); mask"),
        (lambda: Fixed(64, 4).decode([2**64]), "every code must belong to fix64f4, got 18446744073709551616 at index"),
        (
            lambda: Fixed(64, 4).from_raw([2**63]),
            "every raw must belong to fix64f4, got np.uint64(9223372036854775808)",
        ),
        (lambda: emu.parse("fp16").decode([0.5]), "`codes` must hold integers, got 0.5 of dtype float64; convert them"),
        (
            lambda: emu.parse("fp16").decode([-1]),
            "every code must belong to fp16, got np.int64(-1) at index (0,); mask",
        ),
        (lambda: emu.parse("fp16").decode(["a"]), "`codes` must hold real numbers, got dtype <U1; convert text by"),
    ],
)
def test_codes_and_raws_are_integers_in_their_range(call: Callable[[], Any], message: str):
    with pytest.raises(FormatError) as refusal:
        call()
    assert message in str(refusal.value)


def test_codes_and_raws_of_every_integer_dtype_are_read():
    for dtype in (np.int8, np.uint8, np.int64, np.uint64, object, ml_dtypes.int4):
        assert Fixed(8, 4).from_raw(np.array([5, 7], dtype)).tolist() == [0.3125, 0.4375]
        assert Fixed(8, 4).decode(np.array([5, 7], dtype)).tolist() == [0.3125, 0.4375]
    assert Fixed(64, 0, signed=False).from_raw([2**64 - 1]).tolist() == [2**64 - 1]
    assert Fixed(8, 4).decode([]).tolist() == []


def test_unchecked_numbers_beyond_the_carrier_bring_no_warning_of_numpy():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for beyond in ([1e300, 1.0], [2**1023, 1], np.array([1e300, 1.0])):
            assert emu.add(beyond, 0.0, a_format="fp16", out_format="fp32", check=False).tolist() == [np.inf, 1.0]
