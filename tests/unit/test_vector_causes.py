"""Faults that RTL has had, in units of other code, are found by the vectors and named."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import faulty_units as rtl
import numpy as np
import pytest
from fast_suite import most_are_slow
from faulty_units import Ieee

from emu.testing.vectors import Description, Finding, Vectors, make_vectors
from emu.testing.vectors.causes.rounding import lost_carries
from emu.testing.vectors.cells import cells_of
from emu.testing.vectors.check import compare
from emu.testing.vectors.evidence import Evidence

FP16, FP32, FP64, FP17 = Ieee(5, 10), Ieee(8, 23), Ieee(11, 52), Ieee(6, 10)
E5M2 = Ieee(5, 2)


def vectors(operation: str, formats: str, out_format: str, count: int = 2000, **options: Any) -> Vectors:
    names = tuple(formats.split())
    return make_vectors(Description(operation=operation, formats=names, out_format=out_format, count=count, **options))


def dumped(v: Vectors, unit: Callable[..., int | None]) -> np.ndarray:
    """What a unit writes; where it says nothing, the right result stands."""
    rows = zip(*(codes.tolist() for codes in v.operands), v.results.tolist(), strict=True)
    codes = []
    for *operands, right in rows:
        written = unit(*operands)
        codes.append(right if written is None else written)
    return np.array(codes, np.uint64)


def judged(v: Vectors, unit: Callable[..., int | None]) -> Finding | None:
    return compare(v, dumped(v, unit))


def late(words: np.ndarray) -> np.ndarray:
    """Words of the cycle before: the first is that of a reset register."""
    return np.array([0, *words.tolist()[:-1]], np.uint64)


def early(words: np.ndarray) -> np.ndarray:
    return np.array([*words.tolist()[1:], 0], np.uint64)


def with_(unit: Ieee, **faults: Any) -> Ieee:
    return replace(unit, **faults)


CARRY = "a lost carry of the rounding adder: the exponent stays"
INFINITE = "zero times infinity gives infinity of the operands' signs"
CUT = "a NaN's payload is passed on, cut without its quiet bit: some become infinity, with its sign"
TO_NARROW = ("quantize", "fp64", "fp32")
#: Operation, operands, result, options; the unit; what it is called, in order.
FAULTS: dict[str, tuple[tuple[str, str, str], dict[str, Any], Callable[..., int | None], tuple[str, ...]]] = {
    "a converter's lost carry": (
        TO_NARROW, {}, rtl.convert(FP64, with_(FP32, keeps_exponent=True)), (CARRY,)),
    "a converter whose ties are never even, with a lost carry": (
        TO_NARROW, {}, rtl.convert(FP64, with_(FP32, up=rtl.half_down, keeps_exponent=True)),
        ("rounding nearest_zero instead of nearest_even", CARRY)),
    "the integer of an x86 for all that is none": (
        ("quantize", "fp32", "fix32f0"), {"rounding": "toward_zero"}, rtl.to_integer(FP32, 32, 1 << 31),
        ("the lowest code (integer indefinite) for all that lies beyond the range and for NaN",)),
    "a multiplier's lost carry": (
        ("multiply", "fp32 fp32", "fp32"), {}, rtl.multiply(with_(FP32, keeps_exponent=True)), (CARRY,)),
    "zero times infinity": (
        ("multiply", "fp64 fp64", "fp64"), {}, rtl.multiply(FP64, FP64.infinity), (INFINITE,)),
    "a multiplier with both": (
        ("multiply", "fp32 fp32", "fp32"), {}, rtl.multiply(with_(FP32, keeps_exponent=True), FP32.infinity),
        (CARRY, INFINITE)),
    "x - x": (("add", "fp32 fp32", "fp32"), {}, rtl.add(FP32, cancelled=1), ("x - x gives -0",)),
    "an adder with a lost carry and x - x": (
        ("add", "fp64 fp64", "fp64"), {}, rtl.add(with_(FP64, keeps_exponent=True), cancelled=1),
        ("x - x gives -0", CARRY)),
    "a zero product in floor": (
        ("multiply", "fp16 fp16", "fp16"), {"rounding": "floor"},
        rtl.multiply(with_(FP16, up=rtl.floor), zero_sign=1), ("a product of zero gives -0",)),
    "terms that are cut before they are added": (
        ("matmul", "fp8_e5m2 fp8_e5m2 fp16", "fp16"), {"depth": 2, "rounding": "toward_zero", "overflow": "satfinite"},
        rtl.dot_in_two_steps(with_(FP16, up=rtl.toward_zero, largest=True), E5M2, 25),
        ("terms aligned to 25 digits, the others cut toward minus infinity",)),
    "an adder that saturates before its shift": (
        ("add", "fix34f4 fix34f4", "fix32f0"), {"rounding": "nearest_away"}, rtl.add_and_shift(4, middle=34),
        ("an intermediate result of 34 bits that saturates before it is rounded",)),
    "a sticky window of 15 bits": (
        ("add", "fix34f28 fix34f28", "fix32f0"), {"rounding": "nearest_away"}, rtl.add_and_shift(28, window=15),
        ("a sticky bit of 15 bits behind the guard, in two's complement",)),
    "a sticky window behind an accumulator that saturates": (
        ("matmul", "fix34f28 ufix1f0", "fix32f0"),
        {"rounding": "nearest_away", "depth": 2, "mac": {"accumulator": "fix34f28"}},
        lambda a, b: rtl.add_and_shift(28, middle=34, window=15)(a[0] * b[0], a[1] * b[1]),
        ("a sticky bit of 15 bits behind the guard, in two's complement",)),
    "a payload that is cut": (
        ("quantize", "fp32", "fp16"), {},
        rtl.convert(FP32, FP16, lambda a: a >> 16 & 0x8000 | 0x7C00 | a >> 13 & 0x1FF), (CUT,)),
    "a saturating converter that cuts payloads": (
        ("quantize", "fp32", "fp16"), {},
        rtl.convert(FP32, with_(FP16, largest=True), lambda a: a >> 16 & 0x8000 | 0x7C00 | a >> 13 & 0x1FF),
        ("overflow rule satfinite instead of ieee", CUT)),
    "an exponent of 0 with a hidden bit": (
        ("add", "e6m10 e6m10", "e6m10"), {}, rtl.add(with_(FP17, hidden=True)),
        ("a hidden bit of 1 at exponent 0: numbers there are normal, of operands and results",)),
    "an integer read as a fraction": (
        ("quantize", "ufix16f0", "e6m10"), {}, lambda a: FP17.write(0, rtl.Fraction(a, 65536)),
        ("operand a read as a fraction below 1",)),
    "sign and magnitude": (
        ("multiply", "fix16f8 fix16f8", "fix16f8"), {"rounding": "toward_zero"}, rtl.sign_and_magnitude_product,
        ("words in sign and magnitude, truncated, that wrap",)),
    "subnormal quotients whose ties go up": (
        ("divide", "fp16 fp16", "fp16"), {}, rtl.divide(FP16, with_(FP16, up=rtl.half_up)),
        ("rounding nearest_away instead of nearest_even",)),
    "a sticky bit of four bits": (
        ("multiply", "bf16 bf16", "bf16"), {}, rtl.multiply(Ieee(8, 7, up=rtl.sticky_of(4))),
        ("a sticky bit of 4 bits behind the guard",)),
    "subnormals taken as zero": (
        ("add", "bf16 bf16", "bf16"), {},
        lambda a, b: rtl.add(Ieee(8, 7))(*(x & 0x8000 if x & 0x7F80 == 0 else x for x in (a, b))),
        ("subnormal operands taken as zero",)),
    "the fraction of the cycle before": (
        ("multiply", "fp16 fp16", "fp16"), {}, lambda a, b: None, ("the fraction is that of the cycle before",)),
}  # fmt: skip


@most_are_slow(
    "fault", FAULTS, keep=["an adder with a lost carry and x - x", "a zero product in floor", "a payload that is cut"]
)
def test_a_fault_of_rtl_is_found_and_named(fault: str):
    (operation, formats, out), options, unit, names = FAULTS[fault]
    v = vectors(operation, formats, out, **options)
    given = dumped(v, unit)
    if "cycle before" in fault:
        given = (v.results & np.uint64(0xFC00)) | (late(v.results) & np.uint64(0x3FF))
    finding = compare(v, given)
    assert finding is not None
    assert [name in cause for name, cause in zip(names, finding.causes, strict=False)] == [True] * len(names), finding
    assert len(finding.causes) <= max(len(names), 2)
    assert "unknown" not in str(finding)


def test_a_lost_carry_of_sign_and_magnitude_is_that_of_the_magnitude():
    v = vectors("quantize", "fp32", "fix8f4 sign-magnitude")

    def without_carry(code: int) -> int | None:
        x = float(np.uint32(code).view(np.float32)) * 16
        if not abs(x) < 127:
            return None
        cut, rounded = int(abs(x)), round(abs(x))
        return (x < 0) << 7 | cut >> 4 << 4 if rounded > cut and cut & 15 == 15 else None

    given = dumped(v, without_carry)
    assert (given != v.results).any()
    assert "a rounding adder of 4 bits, whose carry is lost" in [
        name for name, codes in lost_carries(Evidence(v)) if np.array_equal(codes, given)
    ]


@pytest.mark.parametrize(("when", "moved"), [("before", late), ("after", early)])
@pytest.mark.parametrize("name", ["a", "b"])
def test_an_operand_of_a_neighbouring_cycle_is_named(name: str, when: str, moved: Callable[[np.ndarray], np.ndarray]):
    v = vectors("add", "fp16 fp16", "fp16", count=600)
    operands = [moved(codes) if own == name else codes for own, codes in zip("ab", v.operands, strict=True)]
    unit = rtl.add(FP16)
    given = [unit(int(a), int(b)) for a, b in zip(*operands, strict=True)]
    # where the oracle says nothing, of NaN, the unit gives what is right
    codes = np.array(
        [int(right) if got is None else got for got, right in zip(given, v.results, strict=True)], np.uint64
    )
    finding = compare(v, codes)
    assert finding is not None
    assert finding.causes[0].startswith(f"operand {name} is that of the cycle {when}"), finding


#: The same units without faults.
CLEAN: list[tuple[tuple[str, str, str], dict[str, Any], Callable[..., int | None]]] = [
    (TO_NARROW, {}, rtl.convert(FP64, FP32)),
    (("multiply", "fp16 fp16", "fp16"), {}, rtl.multiply(FP16)),
    (("add", "fp32 fp32", "fp32"), {}, rtl.add(FP32)),
    (("divide", "fp16 fp16", "fp16"), {}, rtl.divide(FP16, FP16)),
    (("add", "fix34f4 fix34f4", "fix32f0"), {"rounding": "nearest_away"}, rtl.add_and_shift(4)),
    (
        ("matmul", "fp8_e5m2 fp8_e5m2 fp16", "fp16"), {"depth": 2, "rounding": "toward_zero", "overflow": "satfinite"},
        rtl.dot_in_two_steps(with_(FP16, up=rtl.toward_zero, largest=True), E5M2, 99),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("words", "options", "unit"), CLEAN, ids=lambda x: "" if callable(x) else str(x))
def test_a_unit_without_faults_is_right(words: tuple[str, str, str], options: dict, unit: Callable[..., int | None]):
    assert judged(vectors(*words, count=1000, **options), unit) is None


def flagged(v: Vectors, flags: np.ndarray) -> Finding:
    finding = compare(v, v.results, flags)
    assert finding is not None
    return finding


def test_an_underflow_by_the_written_result_is_named_with_its_operands():
    """cvfpu's: 387fe000 is tiny after rounding, and written as the smallest normal number."""
    v = vectors("quantize", "fp32", "fp16", tininess="after_rounding")
    small, inexact = v.results & np.uint64(0x7FFF) < 0x400, v.flags & np.uint64(1) != 0
    finding = flagged(v, (v.flags & ~np.uint64(2)) | np.where(small & inexact, np.uint64(2), np.uint64(0)))
    assert finding.causes[0] == "underflow where the written result is subnormal or 0"
    assert {0x387FE000, 0x387FEFFF} <= {int(a) for a in v.operands[0]}
    assert str(finding).splitlines()[1].startswith("  a         0x387fe000") or "0x387f" in str(finding)


def test_a_dump_of_zeros_alone_is_explained():
    d = Description(operation="quantize", formats=("fix4f0",), out_format="fix4f0", count=2)
    zeros = np.zeros(2, np.uint64)
    v = Vectors(d, (zeros,), None, zeros, zeros)
    finding = compare(v, zeros + np.uint64(3))
    assert finding is not None
    assert finding.wrong == 2


FLAG_FAULTS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "no underflow": (lambda flags: flags & ~np.uint64(2), "underflow missing"),
    "sticky": (np.bitwise_or.accumulate, "flags that are never cleared"),
    "late": (late, "flags are those of the cycle before"),
    "late, the first one right": (
        lambda flags: np.array([*flags[:1], *flags[:-1]]), "flags are those of the cycle before"
    ),
    "early": (early, "flags are those of the cycle after"),
    "swapped": (
        lambda f: f & ~np.uint64(6) | (f & np.uint64(2)) << np.uint64(1) | (f & np.uint64(4)) >> np.uint64(1),
        "underflow and overflow swapped",
    ),
    "overflow alone": (
        lambda flags: np.where(flags & np.uint64(4) != 0, flags & ~np.uint64(1), flags), "overflow without inexact"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FLAG_FAULTS)
def test_a_fault_of_flags_is_named(fault: str):
    changed, name = FLAG_FAULTS[fault]
    v = vectors("multiply", "fp16 fp16", "fp16", count=800)
    finding = flagged(v, changed(v.flags))
    assert finding.causes == (name,)
    assert "unknown" not in str(finding)


@pytest.mark.parametrize(("when", "moved"), [("before", late), ("after", early)])
def test_random_bits_of_a_neighbouring_cycle_are_named(when: str, moved: Callable[[np.ndarray], np.ndarray]):
    v = vectors("quantize", "fix16f8", "fix8f4", count=300, rounding="stochastic", n_rbits=4)
    assert v.rbits is not None
    # four bits are dropped: the random ones are added to them
    raws = [a - (a >> 15 << 16) for a in v.operands[0].tolist()]
    sums = [(raw + int(bits)) >> 4 for raw, bits in zip(raws, moved(v.rbits), strict=True)]
    finding = compare(v, np.array([max(-128, min(127, x)) & 0xFF for x in sums], np.uint64))
    assert finding is not None
    assert finding.causes == (f"random bits those of the cycle {when}",)
    assert "unknown" not in str(finding)


def test_differences_that_nothing_explains_are_unknown_with_the_cell_that_they_share():
    v = vectors("add", "fp16 fp16", "fp16", count=900)
    (cell,) = [cell for cell in cells_of(v) if cell.name == "rounding carries into the exponent"]
    noise = np.arange(v.results.size, dtype=np.uint64) * np.uint64(37) % np.uint64(512) | np.uint64(2)
    finding = compare(v, np.where(cell.inside, v.results ^ noise, v.results))
    assert finding is not None
    assert finding.causes == ()
    assert finding.lines[-1] == (
        "looks like no fault that is known here; all of them are in the cell: rounding carries into the exponent "
        f"({cell.count} of {cell.count} there)"
    )


@pytest.mark.parametrize(("operation", "whose"), [("quantize", "operand a"), ("multiply", "a product")])
def test_a_nan_with_a_sign_of_the_operands_is_named(operation: str, whose: str):
    """The converter of an open library keeps the sign of NaN."""
    formats = ("fp32", "fp16") if operation == "quantize" else ("fp16 fp16", "fp16")
    v = vectors(operation, *formats)
    width = 32 if operation == "quantize" else 16
    sign = np.bitwise_xor.reduce([codes >> np.uint64(width - 1) for codes in v.operands])
    given = np.where(v.results == 0x7E00, np.uint64(0x7E00) | sign << np.uint64(15), v.results)
    finding = compare(v, given)
    assert finding is not None
    assert finding.causes[0] == f"a canonical NaN with the sign of {whose}"


@pytest.mark.parametrize(
    ("how", "bounded"), [("wraps", lambda product: product & 0xFF), ("saturates", lambda product: min(product, 0xFF))]
)
def test_an_unsigned_product_on_a_wire_of_8_bits_is_named_with_its_8_bits(how: str, bounded: Callable[[int], int]):
    """It has no sign bit: 255 is its largest number, not 127."""
    v = vectors("multiply", "ufix8f0 ufix8f0", "ufix16f0")
    finding = judged(v, lambda a, b: bounded(a * b))
    assert finding is not None
    assert finding.causes == (f"an intermediate result of 8 bits that {how} before it is rounded",)
    assert "unknown" not in str(finding)


def test_an_exponent_without_a_code_for_zero_wraps_from_its_code():
    """Code 0 of fp8_e8m0 is 2**-127: in 8 bits 2**129 has the code 0."""
    v = vectors("quantize", "fp64", "fp8_e8m0", rounding="toward_zero")
    (codes,) = v.operands
    exponent = (codes >> np.uint64(52)).astype(np.int64) - 1023
    wrapped = (exponent + 127) & 0xFF
    # a sign makes the exponent larger than 1024, as that of infinities and NaN is
    beyond = (exponent > 127) & (exponent < 1024) & (wrapped < 255)
    finding = compare(v, np.where(beyond, wrapped.astype(np.uint64), v.results))
    assert finding is not None
    assert finding.causes == ("an exponent of 8 bits that wraps",)
    assert "unknown" not in str(finding)


@pytest.mark.parametrize("to", ["fix8f0", "fix8f0 sign-magnitude"])
def test_the_end_on_the_side_of_a_nans_sign_is_named(to: str):
    """A converter that looks at the sign and at an exponent of all ones; the lowest sign and magnitude is 11111111."""
    lowest = 0xFF if "magnitude" in to else 0x80
    v = vectors("quantize", "fp32", to)
    (codes,) = v.operands
    magnitude, negative = codes & np.uint64(0x7FFFFFFF), codes >> np.uint64(31) == 1
    end = np.where(negative, np.uint64(lowest), np.uint64(0x7F))
    finding = compare(v, np.where(magnitude > 0x7F800000, end, v.results))
    assert finding is not None
    assert finding.causes == ("the end on the side of the sign for NaN, too",)


def test_the_lowest_sign_and_magnitude_is_that_with_the_largest_magnitude():
    v = vectors("quantize", "fp32", "fix8f0 sign-magnitude")
    magnitude = v.operands[0] & np.uint64(0x7FFFFFFF)
    # 127.5 is the first number that is rounded beyond 127
    finding = compare(v, np.where(magnitude >= np.float32(127.5).view(np.uint32), np.uint64(0xFF), v.results))
    assert finding is not None
    assert finding.causes == ("the lowest code for all that lies beyond the range and for NaN",)


def test_a_format_without_normal_numbers_is_checked_without_a_warning():
    v = vectors("quantize", "fp32", "e1m3", count=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare(v, v.results ^ np.uint64(1)) is not None
