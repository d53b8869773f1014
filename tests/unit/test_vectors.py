"""Golden vectors read back by readers of their own, and dumps with seeded faults that must be named rightly."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu._config import checked
from emu._files import replace_file
from emu.datapath import Rounding
from emu.datapath.overflow import FIXED_RULES, FLOAT_RULES
from emu.errors import ConfigError
from emu.testing.vectors import Description, Vectors, check_dump, files, make_vectors, read_vectors, write_vectors
from emu.testing.vectors.definition import answer, answered, exact_value
from emu.testing.vectors.dumps import Reading

Codes = np.ndarray


def vectors(folder: Path, style: str = "hex", **description: object) -> Path:
    write_vectors(make_vectors(Description.model_validate(description)), folder, style)
    return folder


def column(path: Path) -> Codes:
    return np.array([int(line, 16) for line in path.read_text().split()], np.uint64)


# ---- TestFloat's lines, read by a reader that shares nothing ---------------------------------------------------------

INEXACT, UNDERFLOW, OVERFLOW, INFINITE, INVALID = 1, 2, 4, 8, 16
#: In float64 sums and products of binary16 are exact, and quotients wide enough that rounding twice is rounding once.
IN_FLOAT64: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
}


def halves(words: list[str]) -> np.ndarray:
    return np.array([int(word, 16) for word in words], np.uint16).view(np.float16)


def expected_flags(name: str, a: np.ndarray, b: np.ndarray, wide: np.ndarray, narrow: np.ndarray) -> np.ndarray:
    flags = np.zeros(wide.shape, int)
    finite = np.isfinite(a) & np.isfinite(b)
    by_zero = (name == "divide") & finite & (b == 0) & (a != 0)
    exact = wide == narrow
    if name == "divide":  # a quotient in float64 is exact where multiplying back gives the dividend
        exact &= wide * b.astype(float) == a.astype(float)
    ordinary = finite & np.isfinite(wide)
    significand, exponent = np.frexp(wide)
    tiny = (np.abs(np.ldexp(np.rint(significand * 2.0**11), exponent - 11)) < 2.0**-14) & (wide != 0)
    flags |= INEXACT * (ordinary & ~exact)
    flags |= UNDERFLOW * (ordinary & tiny & ~exact)
    flags |= OVERFLOW * (ordinary & np.isinf(narrow))
    flags |= INFINITE * by_zero
    signalling = np.logical_or(*((np.isnan(x) & (x.view(np.uint16) & 0x200 == 0)) for x in (a, b)))
    return flags | INVALID * ((np.isnan(wide) & ~np.isnan(a) & ~np.isnan(b)) | signalling)


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_lines_of_testfloat_are_what_float64_and_one_conversion_say(name: str, tmp_path: Path):
    folder = vectors(tmp_path, "testfloat", operation=name, formats=["fp16", "fp16"], out_format="fp16", count=4000)
    rows = [line.split() for line in (folder / "vectors.txt").read_text().splitlines()]
    assert {tuple(map(len, row)) for row in rows} == {(4, 4, 4, 2)}
    a, b, result = (halves([row[i] for row in rows]) for i in range(3))
    with np.errstate(all="ignore"):
        wide = IN_FLOAT64[name](a.astype(np.float64), b.astype(np.float64))
        narrow = wide.astype(np.float16)
    assert np.array_equal(np.isnan(narrow), np.isnan(result))
    numbers = ~np.isnan(narrow)
    assert np.array_equal(narrow[numbers].view(np.uint16), result[numbers].view(np.uint16))
    flags = np.array([int(row[3], 16) for row in rows])
    with np.errstate(all="ignore"):
        expected = expected_flags(name, a, b, wide, narrow.astype(np.float64))
    assert np.array_equal(flags, expected)


#: Digits of a word, precision, exponents of the smallest and of the largest normal number.
IEEE = {"fp16": (4, 11, -14, 15), "fp32": (8, 24, -126, 127), "fp64": (16, 53, -1022, 1023)}


def number_of(word: str, precision: int, emin: int) -> Fraction | float:
    """What a word of IEEE 754 stands for: a fraction, an infinity or NaN; -0 is a float."""
    bits, fraction_bits = int(word, 16), precision - 1
    sign, rest = divmod(bits, 1 << (4 * len(word) - 1))
    field, fraction = divmod(rest, 1 << fraction_bits)
    if field == (1 << (4 * len(word) - 1 - fraction_bits)) - 1:
        return float("nan") if fraction else float("-inf" if sign else "inf")
    significand = fraction + ((field > 0) << fraction_bits)
    if significand == 0:
        return -0.0 if sign else 0.0
    return (-1) ** sign * significand * Fraction(2) ** (emin + max(field - 1, 0) - fraction_bits)


def rounded(x: Fraction, precision: int, emin: int, emax: int) -> tuple[Fraction | float, int]:
    """A fraction to nearest even, and IEEE 754's flags; underflow is tininess after rounding, and inexact."""

    def nearest(least: int) -> Fraction:
        exponent = least
        while abs(x) >= Fraction(2) ** (exponent + precision):
            exponent += 1
        return round(x / Fraction(2) ** exponent) * Fraction(2) ** exponent

    guess = abs(x).numerator.bit_length() - abs(x).denominator.bit_length() - precision - 1
    value, unbounded = nearest(max(emin - precision + 1, guess)), nearest(guess)
    if abs(value) >= Fraction(2) ** (emax + 1):
        return float("inf") * (1 if x > 0 else -1), INEXACT | OVERFLOW
    inexact = value != x
    tiny = abs(unbounded) < Fraction(2) ** emin
    return value or (0.0 if x > 0 else -0.0), INEXACT * inexact | UNDERFLOW * (inexact and tiny)


def root_of(x: Fraction, digits: int = 240) -> Fraction:
    """A root with more digits than any format, odd in the last one where it goes on."""
    up = 2 * digits + x.denominator.bit_length() - x.numerator.bit_length()
    up += up % 2
    whole = (x.numerator << max(up, 0)) // (x.denominator << max(-up, 0))
    root = math.isqrt(whole)
    exact = Fraction(root) ** 2 == x * Fraction(2) ** up
    return Fraction(2 * root + (not exact), 2) / Fraction(2) ** (up // 2)


@most_are_slow(
    ("name", "fmt"),
    product(["fma", "sqrt", "add", "divide", "quantize", "remainder"], IEEE),
    keep=[("fma", "fp16"), ("sqrt", "fp32"), ("add", "fp64"), ("divide", "fp16"), ("quantize", "fp32")],
)
def test_lines_of_testfloat_are_what_fractions_rounded_once_say(name: str, fmt: str, tmp_path: Path):
    operands = {"fma": 3, "sqrt": 1, "quantize": 1}.get(name, 2)
    source = {"fp16": "fp32", "fp32": "fp64", "fp64": "fp32"}[fmt] if name == "quantize" else fmt
    folder = vectors(tmp_path, "testfloat", operation=name, formats=[source] * operands, out_format=fmt, count=400)
    digits, precision, emin, emax = IEEE[fmt]
    judged = 0
    for row in (line.split() for line in (folder / "vectors.txt").read_text().splitlines()):
        x = [number_of(word, *IEEE[source][1:3]) for word in row[:operands]]
        if any(isinstance(value, float) for value in x) or (name == "sqrt" and x[0] < 0):
            continue  # zeros, infinities and NaN: float64 and the tests above judge them
        exact = {
            "fma": lambda a, b, c: a * b + c, "sqrt": root_of, "add": lambda a, b: a + b,
            "divide": lambda a, b: a / b, "quantize": lambda a: a, "remainder": lambda a, b: a - b * round(a / b),
        }[name](*x)  # fmt: skip
        if exact == 0:
            continue
        value, flags = rounded(exact, precision, emin, emax)
        assert number_of(row[operands], precision, emin) == value, row
        assert len(row[operands]) == digits
        assert int(row[-1], 16) == flags, row
        judged += 1
    assert judged > 150


def test_hex_files_are_described_by_their_manifest_and_read_back(tmp_path: Path):
    folder = vectors(
        tmp_path, operation="matmul", formats=["fix8f4", "fix8f6", "fix16f8"], out_format="fix16f8", depth=5, count=30,
        mac={"accumulator": "fix20f10"}, rounding="stochastic", n_rbits=9,
    )  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["files"] == ["a.hex", "b.hex", "c.hex", "rbits.hex", "result.hex", "flags.hex"]
    assert [len((folder / name).read_text().splitlines()) for name in manifest["files"]] == [150, 150, 30, 30, 30, 30]
    found = read_vectors(folder)
    a, b, c = (fmt.decode(x) for fmt, x in zip(found.description.operand_formats, found.operands, strict=True))
    flags = emu.Flags()
    for i in range(30):
        result = emu.matmul(
            a[i : i + 1], b[i][:, None], a_format="fix8f4", b_format="fix8f6", addend=c[i].reshape(1, 1),
            addend_format="fix16f8", out_format="fix16f8", mac=emu.Mac(accumulator="fix20f10"), rounding="stochastic",
            n_rbits=9, rbits=found.rbits[i].reshape(1, 1).astype(np.int64), flags=flags, backend="numba",
        )  # fmt: skip
        assert emu.parse("fix16f8").encode(result)[0, 0] == found.results[i]
    assert flags.accumulator_overflow == int((found.flags >> np.uint64(5)).sum())


# ---- faults, seeded by arithmetic of their own ----------------------------------------------------------------------

FIX = {"operation": "quantize", "formats": ["fp64"], "out_format": "fix8f4", "count": 600}
HALF = {"operation": "subtract", "formats": ["fp16", "fp16"], "out_format": "fp16", "count": 600}


def words(folder: Path, of: Callable[[np.ndarray], np.ndarray]) -> Codes:
    """Codes of fix8f4 that `of` makes of numbers in units of the last place; NaN stays 0."""
    with np.errstate(all="ignore"):
        x = column(folder / "a.hex").view(np.float64) * 16
    finite = np.clip(np.where(np.isnan(x), 0.0, x), -1e9, 1e9)
    return (of(finite).astype(np.int64) & 0xFF).astype(np.uint64)


def clipped(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -128, 127)


def half_codes(folder: Path, of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Codes:
    a, b = (column(folder / f"{name}.hex").astype(np.uint16).view(np.float16).astype(float) for name in "ab")
    with np.errstate(all="ignore"):
        result = of(a, b).astype(np.float16)
    codes = result.view(np.uint16).astype(np.uint64)
    return np.where(np.isnan(result), np.uint64(0x7E00), codes)


def nearest_up(x: np.ndarray) -> np.ndarray:
    return clipped(np.floor(x) + (x - np.floor(x) >= 0.5))


def without_sticky(x: np.ndarray) -> np.ndarray:
    return clipped(np.rint(np.trunc(x * 2) / 2))


def lost_sign(folder: Path) -> Codes:
    codes = column(folder / "result.hex")
    return np.where(codes == 0x8000, np.uint64(0), codes)


def flushed(folder: Path) -> Codes:
    codes = column(folder / "result.hex")
    return np.where(codes & 0x7C00 == 0, codes & np.uint64(0x8000), codes)


def other_nan(folder: Path) -> Codes:
    codes = column(folder / "result.hex")
    return np.where(codes == 0x7E00, np.uint64(0xFE01), codes)


def flipped(folder: Path) -> Codes:
    codes = column(folder / "result.hex")
    codes[77] ^= np.uint64(1 << 3)
    return codes


FAULTS: dict[str, tuple[dict, Callable[[Path], Codes], str]] = {
    "wrong tie": (FIX, lambda f: words(f, nearest_up), "rounding nearest_up"),
    "truncation": (FIX, lambda f: words(f, lambda x: clipped(np.floor(x))), "truncation of two's complement"),
    "wrap for saturate": (FIX | {"overflow": "saturate", "seed": 5},
                          lambda f: wrapped(f), "overflow rule wrap instead of saturate"),
    "off-by-one point": (FIX, lambda f: words(f, lambda x: clipped(np.rint(x / 2))), "binary point one place too far"),
    "dropped sticky bit": (FIX, lambda f: words(f, without_sticky), "a dropped sticky bit"),
    "lost sign of zero": (HALF | {"rounding": "floor"}, lost_sign, "a lost sign of zero"),
    "flushed subnormal": (HALF, flushed, "subnormal results flushed to zero"),
    "swapped operands": (HALF, lambda f: half_codes(f, lambda a, b: b - a), "operands a and b swapped"),
    "wrong NaN": (HALF, other_nan, "a NaN of another pattern: 0xfe01"),
    "one flipped bit": (HALF, flipped, "one flipped bit: bit 3"),
}  # fmt: skip


def wrapped(folder: Path) -> Codes:
    """Every number wraps; of infinities and NaN the right code stands."""
    codes = []
    right = column(folder / "result.hex").tolist()
    for x, code in zip(column(folder / "a.hex").view(np.float64).tolist(), right, strict=True):
        codes.append(round(Fraction(x) * 16) & 0xFF if math.isfinite(x) else code)
    return np.array(codes, np.uint64)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_named(fault: str, tmp_path: Path):
    description, seeded, name = FAULTS[fault]
    folder = vectors(tmp_path, **description)
    codes = seeded(folder)
    assert (codes != column(folder / "result.hex")).any()
    digits = 2 if description is not HALF and description["out_format"] == "fix8f4" else 4
    (folder / "dump.hex").write_text("".join(f"{int(code):0{digits}x}\n" for code in codes))
    found = check_dump(folder, folder / "dump.hex")
    assert found is not None
    assert name in found.causes[0], found


# ---- faults of products and sums, seeded by integers and by NumPy ---------------------------------------------------

DOT = {"operation": "matmul", "formats": ["fix16f8", "fix16f8"], "out_format": "fix16f8", "depth": 32, "count": 200,
       "mac": {"accumulator": "fix26f16"}}  # fmt: skip
FMA = {"operation": "fma", "formats": ["fp16"] * 3, "out_format": "fp16", "count": 400}
NARROWED = {"operation": "quantize", "formats": ["fp64"], "out_format": "fp16", "count": 600}


def words_of_dots(folder: Path, step: Callable[[int], int]) -> Codes:
    """Codes of sums in order, each through `step`, in units of 2**-16, then to nearest even into fix16f8."""
    a, b = (column(folder / f"{name}.hex").astype(np.uint16).view(np.int16).reshape(-1, 32) for name in "ab")
    results = []
    for left, right in zip(a.tolist(), b.tolist(), strict=True):
        total = 0
        for x, y in zip(left, right, strict=True):
            total = step(total + x * y)
        results.append(min(max(round(Fraction(total, 256)), -(2**15)), 2**15 - 1) & 0xFFFF)
    return np.array(results, np.uint64)


def saturated(bits: int) -> Callable[[int], int]:
    return lambda x: min(max(x, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)


def halves_of(folder: Path, of: Callable[..., np.ndarray]) -> Codes:
    a, b, c = (column(folder / f"{name}.hex").astype(np.uint16).view(np.float16) for name in "abc")
    with np.errstate(all="ignore"):
        result = of(a, b, c)
    return np.where(np.isnan(result), np.uint64(0x7E00), result.view(np.uint16).astype(np.uint64))


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c rounded once: longdouble holds 64 bits, and what it loses is far below half a unit."""
    return (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(np.float16)


def through_single(folder: Path) -> Codes:
    with np.errstate(all="ignore"):
        result = column(folder / "a.hex").view(np.float64).astype(np.float32).astype(np.float16)
    return np.where(np.isnan(result), np.uint64(0x7E00), result.view(np.uint16).astype(np.uint64))


UNITS: dict[str, tuple[dict, Callable[[Path], Codes], str]] = {
    "an accumulator that wraps": (
        DOT, lambda f: words_of_dots(f, lambda x: (x + 2**25) % 2**26 - 2**25), "an accumulator with overflow rule wrap"
    ),
    "a narrow accumulator": (
        DOT, lambda f: words_of_dots(f, saturated(24)), "an accumulator of fix24f16 instead of fix26f16"
    ),
    "an accumulator that truncates": (
        DOT | {"mac": {"accumulator": "fix18f8"}}, lambda f: words_of_dots(f, lambda x: saturated(18)(x >> 8) << 8),
        "adds rounded floor",
    ),
    "an exact accumulator": (DOT, lambda f: words_of_dots(f, lambda x: x), "an accumulator that never rounds"),
    "a product rounded before the sum": (FMA, lambda f: halves_of(f, lambda a, b, c: a * b + c), "(not fused)"),
    "an addend subtracted": (
        FMA, lambda f: halves_of(f, lambda a, b, c: fused(a, b, -c)), "an addend subtracted instead of added"
    ),
    "a sum for a difference": (HALF, lambda f: half_codes(f, np.add), "add instead of subtract"),
    "rounding twice": (NARROWED, through_single, "results rounded twice, to fp32 first"),
    "lines out of step": (HALF, lambda f: np.roll(column(f / "result.hex"), 1), "every result one line too late"),
}  # fmt: skip


@most_are_slow(
    "fault",
    UNITS,
    keep=["a narrow accumulator", "an addend subtracted", "a sum for a difference", "lines out of step"],
)
def test_a_seeded_fault_of_a_unit_is_named(fault: str, tmp_path: Path):
    description, seeded, name = UNITS[fault]
    folder = vectors(tmp_path, **description)
    (folder / "dump.hex").write_text("".join(f"{int(code):04x}\n" for code in seeded(folder)))
    found = check_dump(folder, folder / "dump.hex")
    assert found is not None
    assert any(name in cause and "against" not in cause for cause in found.causes), found


@pytest.mark.slow
@pytest.mark.parametrize(("mac", "out"), [
    ({"accumulator": "fp32"}, "fp32"),
    ({"accumulator": "fp32", "order": "blocks(4, 23)", "rounding": "toward_zero"}, "fp32"),
    ({"product": "fp16", "accumulator": "fp16", "overflow": "satfinite"}, "fp16"), ({"product": "bf16"}, "fp16"),
], ids=str)  # fmt: skip
def test_any_unit_has_vectors_that_tell_it_from_others(mac: dict, out: str, tmp_path: Path):
    folder = vectors(
        tmp_path, operation="matmul", formats=["fp16", "fp16", "fp32"], out_format=out, depth=9, count=300, mac=mac
    )
    found = read_vectors(folder)
    other = {**mac, "rounding": "nearest_even" if "rounding" in mac else "floor"}
    d = found.description
    codes = answer(d, found.operands, None, mac=d.mac.model_copy(update=other).mac()).codes
    assert (codes != found.results).sum() > 10
    (folder / "dump.hex").write_text("".join(f"{int(code):x}\n" for code in codes))
    explained = check_dump(folder, folder / "dump.hex")
    assert explained is not None
    assert any(f"adds rounded {other['rounding']}" in cause for cause in explained.causes), explained.causes


def test_a_narrow_result_of_a_wide_accumulator_hides_how_that_rounds(tmp_path: Path):
    folder = vectors(
        tmp_path, operation="matmul", formats=["fp16", "fp16"], out_format="fp16", depth=4, count=200,
        mac={"accumulator": "fp32"},
    )  # fmt: skip
    (folder / "dump.hex").write_text("".join(f"{int(code) ^ 1:04x}\n" for code in column(folder / "result.hex")))
    found = check_dump(folder, folder / "dump.hex")
    assert found is not None
    assert not any("adds rounded" in cause for cause in found.causes)


def test_what_contradicts_as_much_as_it_explains_is_no_explanation(tmp_path: Path):
    folder = vectors(tmp_path, **FMA)
    codes = column(folder / "result.hex")
    codes[np.random.default_rng(1).permutation(codes.size)[:90]] ^= np.uint64(0x155)
    (folder / "dump.hex").write_text("".join(f"{int(code):04x}\n" for code in codes))
    found = check_dump(folder, folder / "dump.hex")
    assert found is not None
    assert "looks like no fault that is known here" in found.lines[-1]


# ---- vectors tell every rule from the others ------------------------------------------------------------------------

#: Operation, formats, format of the result, depth, mode.
TOLD = [
    ("quantize", ["fp32"], "fp16", 1, "nearest_even"), ("quantize", ["fix32f20"], "fix16f8", 1, "nearest_even"),
    ("quantize", ["fp64"], "fix8f4", 1, "ceil"), ("add", ["fp16", "fp16"], "fp16", 1, "nearest_away"),
    ("subtract", ["fp64", "fp64"], "fp64", 1, "nearest_even"), ("multiply", ["fp16", "fp16"], "fp16", 1, "to_odd"),
    ("multiply", ["fix16f8", "fix16f8"], "fix16f8", 1, "floor"), ("divide", ["fp16", "fp16"], "fp16", 1, "nearest_up"),
    ("divide", ["fix16f8", "fix16f8"], "fix16f8", 1, "nearest_even"), ("fma", ["fp16"] * 3, "fp16", 1, "nearest_even"),
    ("fma", ["fp32"] * 3, "fp32", 1, "toward_zero"), ("matmul", ["fp16", "fp16"], "fp16", 8, "nearest_even"),
    ("matmul", ["bf16", "bf16"], "bf16", 8, "nearest_zero"), ("matmul", ["fix16f8"] * 2, "fix16f8", 8, "nearest_even"),
    ("matmul", ["fix8f4", "fix8f4", "fix16f8"], "fix8f4", 64, "nearest_down"),
]  # fmt: skip
#: Results that another mode or rule must change, of 1000.
LEAST = 15


def computed(found: Vectors, mode: str, rule: str | None = None) -> Codes:
    """What emu's functions write of the operands of vectors."""
    d = found.description
    values = [fmt.decode(codes) for fmt, codes in zip(d.operand_formats, found.operands, strict=True)]
    names = {f"{letter}_format": name for letter, name in zip("abc", d.formats, strict=False)}
    options = {"out_format": d.out_format, "rounding": mode, "overflow": rule, "backend": "reference"}
    if d.operation == "quantize":
        options.pop("out_format")
        result = emu.quantize(values[0], d.out_format, x_format=d.formats[0], **options)
    elif d.operation == "matmul":
        addend = {} if len(values) < 3 else {"addend": values[2][:, None, None], "addend_format": names.pop("c_format")}
        result = emu.matmul(values[0][:, None, :], values[1][:, :, None], **names, **addend, **options)
    else:
        result = getattr(emu, d.operation)(*values, **names, **options)
    return emu.parse(d.out_format).encode(result.reshape(-1)).astype(np.uint64)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "formats", "out", "depth", "mode"), TOLD, ids=str)
def test_every_other_mode_and_rule_changes_results(operation: str, formats: list, out: str, depth: int, mode: str):
    found = make_vectors(
        Description(operation=operation, formats=tuple(formats), out_format=out, depth=depth, rounding=mode)
    )
    assert np.array_equal(computed(found, mode), found.results)
    same = {"toward_zero", "magnitude_truncation"} if not out.startswith("fix") else set()  # one rule for floats
    others = {other.value for other in Rounding} - {mode, "stochastic"} - (same if mode in same else set())
    changed = {other: int((computed(found, other) != found.results).sum()) for other in others}
    rules = FIXED_RULES if out.startswith("fix") else FLOAT_RULES[:2]  # satpropagate is one of them for finite operands
    for rule in {rule.value for rule in rules} - {found.description.stage.overflow.value}:
        changed[rule] = int((computed(found, mode, rule) != found.results).sum())
    assert min(changed.values()) >= LEAST, changed


def test_a_copy_with_other_keys_has_what_follows_from_them():
    d = Description(operation="quantize", formats=("fix16f8",), out_format="fix8f4")
    changes = {"formats": ("fp16",), "out_format": "mxfp8_e4m3", "rounding": "floor"}
    copy, fresh = d.model_copy(update=changes), Description(operation="quantize", **changes)
    assert (copy.stage, copy.blocks, copy.operand_formats) == (fresh.stage, fresh.blocks, fresh.operand_formats)
    assert copy == fresh
    assert d.model_copy() == d
    assert d.stage.rounding is Rounding.NEAREST_EVEN


@pytest.mark.parametrize("addend", ["fix1f0", "ufix1f10", "e5m0 finite nans=none"])
def test_an_addend_may_have_a_single_digit(addend: str):
    description = Description(operation="fma", formats=("fp16", "fix8f10", addend), out_format="fp16", count=200)
    assert make_vectors(description).results.size == 200


@pytest.mark.parametrize("operation", ["add", "subtract"])
def test_terms_may_be_a_sign_alone(operation: str):
    formats = ("fix1f0", "fix1f0")
    drawn = make_vectors(Description(operation=operation, formats=formats, out_format="e8m0 finite", count=40))
    assert drawn.results.size == 40


def test_any_number_of_vectors_can_be_had():
    d = Description(operation="multiply", formats=("fp16", "fp16"), out_format="fp16", count=2)
    assert make_vectors(d).results.shape == (2,)
    assert make_vectors(d.model_copy(update={"count": 1})).results.shape == (1,)


def test_a_right_dump_is_right_and_any_nan_may_be_allowed(tmp_path: Path):
    folder = vectors(tmp_path, **HALF)
    assert check_dump(folder, folder / "result.hex") is None
    (folder / "dump.hex").write_text("".join(f"{int(code):04x}\n" for code in other_nan(folder)))
    assert check_dump(folder, folder / "dump.hex") is not None
    assert check_dump(folder, folder / "dump.hex", any_nan=True) is None


@pytest.mark.parametrize(("operation", "fmt"), [
    ("multiply", "fp16"), ("sqrt", "fp16"), ("multiply", "fp64"), ("fma", "fp64"), ("sqrt", "fp64"),
    ("quantize", "fp32"), ("remainder", "fp16"), ("round_to_integral", "fp16"),
])  # fmt: skip
def test_lines_of_testfloat_and_results_with_flags_are_right_of_themselves(operation: str, fmt: str, tmp_path: Path):
    operands = {"multiply": 2, "fma": 3, "remainder": 2}.get(operation, 1)
    description = {"operation": operation, "formats": [fmt] * operands, "out_format": fmt, "count": 200}
    lines = vectors(tmp_path / "lines", "testfloat", **description)
    assert check_dump(lines, lines / "vectors.txt") is None
    folder = vectors(tmp_path / "hex", **description)
    rows = zip(column(folder / "result.hex"), column(folder / "flags.hex"), strict=True)
    (folder / "dump.hex").write_text("".join(f"{int(code):x} {int(flags):02x}\n" for code, flags in rows))
    assert check_dump(folder, folder / "dump.hex") is None
    codes = column(folder / "result.hex")
    codes[100] ^= np.uint64(1)
    (folder / "dump.hex").write_text("".join(f"{int(code):x}\n" for code in codes))
    found = check_dump(folder, folder / "dump.hex")
    assert found is not None
    assert (found.wrong, found.index) == (1, 100)


@pytest.mark.parametrize(("a", "b", "flags"), [
    (0x001FFFFFFFFFFFFF, 0x3FE0000000000000, 3),  # tiny after rounding, written as the smallest normal
    (0x0010000000000001, 0x3FEFFFFFFFFFFFFF, 1), (0x0000000000000001, 0x3FE0000000000000, 3),
    (0x7FF4000000000000, 0x3FF0000000000000, 16),  # signalling
])  # fmt: skip
def test_flags_of_binary64_are_ieee_754s(a: int, b: int, flags: int, tmp_path: Path):
    d = Description(operation="multiply", formats=("fp64", "fp64"), out_format="fp64", count=1)
    operands = np.array([a], np.uint64), np.array([b], np.uint64)
    write_vectors(answered(d, operands, None), tmp_path, "testfloat")
    assert int((tmp_path / "vectors.txt").read_text().split()[3], 16) == flags


#: Lines of Berkeley TestFloat (SoftFloat 3e): operands, result, flags.
BERKELEY = [
    ("fma", ["fp16"] * 3, "fp16", ["7C00 0000 7E00 7E00 10", "0000 FC00 FE01 7E00 10", "7C00 3C00 7E00 7E00 00",
                                   "7C00 3C00 7C01 7E00 10", "7C00 0000 3C00 7E00 10", "3C00 0000 7E00 7E00 00"]),
    ("fma", ["fp32"] * 3, "fp32", ["7F800000 80000000 7FC00000 7FC00000 10", "00000000 7F800000 FFC00001 7FC00000 10"]),
    ("quantize", ["fp32"], "fix32f0", ["4F000000 7FFFFFFF 10", "4F32D05E 7FFFFFFF 10", "CF000001 80000000 10",
                                       "CF000000 80000000 00", "7F800000 7FFFFFFF 10", "FF800000 80000000 10",
                                       "3FC00000 00000002 01", "3F800000 00000001 00"]),
    ("quantize", ["fp16"], "ufix8f0", ["5C00 FF 10", "5BF8 FF 00", "BC00 00 10", "B400 00 01", "3A00 01 01"]),
    ("quantize", ["fp64"], "fix64f0", ["43E0000000000000 7FFFFFFFFFFFFFFF 10", "C3E0000000000000 8000000000000000 00",
                                       "3FF8000000000000 0000000000000002 01"]),
    ("quantize", ["fp32"], "fp16", ["4F000000 7C00 05", "7FC00000 7E00 00", "7F800001 7E00 10"]),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "formats", "out", "lines"), BERKELEY, ids=lambda x: str(x)[:20])
@pytest.mark.parametrize("style", ["hex", "testfloat"])
def test_lines_of_berkeleys_testfloat_are_right(
    operation: str, formats: list, out: str, lines: list, style: str, tmp_path: Path
):
    """Written so, and judged to be right where they are a dump."""
    d = Description(operation=operation, formats=tuple(formats), out_format=out, count=len(lines))
    rows = [[int(word, 16) for word in line.split()] for line in lines]
    operands = tuple(np.array([row[i] for row in rows], np.uint64) for i in range(len(formats)))
    write_vectors(answered(d, operands, None), tmp_path, style)
    if style == "testfloat":
        assert (tmp_path / "vectors.txt").read_text().splitlines() == lines
    given = tmp_path / "berkeley.txt"
    given.write_text("\n".join(lines) + "\n")
    assert check_dump(tmp_path, given, reading=Reading("testfloat")) is None
    given.write_text("\n".join([*lines[:-1], lines[-1][:-2] + "04"]) + "\n")
    assert check_dump(tmp_path, given, reading=Reading("testfloat")) is not None


@pytest.mark.parametrize("x", [5e-324, 3e-308, 1.4e-301, 2.0, 1e300])
def test_exact_roots_have_all_their_bits(x: float):
    d = Description(operation="sqrt", formats=("fp64",), out_format="fp64", count=1)
    root = exact_value(d, (np.array([x]).view(np.uint64),), 0)
    assert root is not None
    assert abs(root**2 / Fraction(x) - 1) < Fraction(1, 2**200)


def test_the_first_difference_shows_operands_exact_result_and_its_dropped_bits(tmp_path: Path):
    folder = vectors(tmp_path, operation="add", formats=["fix8f4", "fix8f6"], out_format="fix8f4", count=4)
    for name, code in (("a", "19"), ("b", "07"), ("result", "1b"), ("flags", "01")):
        (folder / f"{name}.hex").write_text(f"{code}\n" * 4)
    (folder / "dump.hex").write_text("1b\n1a\n1b\n1b\n")
    found = check_dump(folder, folder / "dump.hex")
    assert str(found).splitlines()[:8] == [
        "1 of 4 results differ, the first at vector 1:",
        "  a         0x19  0 001.1001  1.5625",
        "  b         0x07  0 0.000111  0.109375",
        "  exact     1.671875 = 0x1.ac00000000000p+0",
        "                  0 001.1010|1 1 0  guard, round, sticky; last place 2**-4: above half",
        "  expected  0x1b  0 001.1011  1.6875",
        "  given     0x1a  0 001.1010  1.625",
        "  flags     inexact",
    ]


def test_flags_alone_can_be_wrong(tmp_path: Path):
    folder = vectors(tmp_path, **HALF)
    rows = zip(column(folder / "result.hex"), column(folder / "flags.hex"), strict=True)
    text = [f"{int(code):04x} {int(flags) & ~1:02x}\n" for code, flags in rows]
    (folder / "dump.hex").write_text("".join(text))
    found = check_dump(folder, folder / "dump.hex")
    assert found is not None
    assert (found.wrong, found.causes) == (0, ("inexact missing",))


@pytest.mark.parametrize(("text", "said"), [
    ("", "must have a line for each vector, got none"),
    ("0012 00\n12\n0\n0\n", "must have 2 codes a line, got 1 in line 2"),
    ("10000\n0\n0\n0\n", "a code of 16 bits, got 0x10000"),
])  # fmt: skip
def test_a_dump_that_cannot_be_read_is_refused(text: str, said: str, tmp_path: Path):
    folder = vectors(tmp_path, operation="sqrt", formats=["fp16"], out_format="fp16", count=4)
    (folder / "dump.hex").write_text(text)
    with pytest.raises(emu.ConfigError) as caught:
        check_dump(folder, folder / "dump.hex")
    assert said in str(caught.value)


@pytest.mark.parametrize(("description", "said"), [
    ({"operation": "ad", "formats": ["fp16"], "out_format": "fp16"}, "did you mean 'add'?"),
    ({"operation": "add", "formats": ["fp16"], "out_format": "fp16"}, "must have 2 operands"),
    ({"operation": "add", "formats": ["fp16", "fp61"], "out_format": "fp16"}, "fp61"),
    ({"operation": "add", "formats": ["fp16", "fix8f?"], "out_format": "fp16"}, "must have its binary point in place"),
    ({"operation": "matmul", "formats": ["fp16", "fp16"], "out_format": "fp16",
      "mac": {"accumulator": "fp16", "rounding": "stochastic"}}, "choose another mode"),
])  # fmt: skip
def test_impossible_vectors_are_refused(description: dict, said: str):
    with pytest.raises(emu.EmuError) as caught:
        checked(Description, description, file="here")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("manifest.json", '{"layout": "emu vectors 1"}', "`style` must be given"),
        ("manifest.json", "[]", "must be of the layout 'emu vectors 2', got None"),
        ("manifest.json", "[" * 100000, "got arrays or objects nested too deeply"),
        ("a.hex", "-3bfe\n" * 20, "must hold hexadecimal codes, got '-3bfe' in line 1"),
        ("a.hex", "1" * 17 + "\n", "must hold hexadecimal codes, got '11111111111111111' in line 1"),
        ("a.hex", "13c00\n" * 20, "a.hex must hold codes of 16 bits, got 0x13c00; write it again"),
        ("result.hex", "13c00\n" * 20, "result.hex must hold codes of 16 bits, got 0x13c00; write it again"),
        ("flags.hex", "40\n" * 20, "flags.hex must hold codes of 6 bits, got 0x40; write it again"),
    ],
)
def test_damaged_files_of_vectors_are_refused_with_their_name(file: str, content: str, said: str, tmp_path: Path):
    write_vectors(
        make_vectors(Description(operation="add", formats=("fp16", "fp16"), out_format="fp16", count=20)), tmp_path
    )
    (tmp_path / file).write_text(content)
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_vectors(tmp_path)


def test_a_folder_whose_writing_is_cut_short_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Else its columns would be those of two sets of vectors."""
    d = Description(operation="add", formats=("fp16", "fp16"), out_format="fp16", count=20)
    write_vectors(make_vectors(d), tmp_path)
    written = list[Path]()

    def stopped(path: Path, content: Callable) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        replace_file(path, content)

    monkeypatch.setattr(files, "replace_file", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_vectors(make_vectors(d.model_copy(update={"seed": 7})), tmp_path)
    with pytest.raises(ConfigError, match="must be the manifest of vectors, got"):
        read_vectors(tmp_path)


def test_codes_of_lines_and_random_bits_fit_their_widths(tmp_path: Path):
    d = Description(operation="add", formats=("fp16", "fp16"), out_format="fp16", count=20)
    write_vectors(make_vectors(d), tmp_path / "lines", "testfloat")
    (tmp_path / "lines" / "vectors.txt").write_text("3C00 13C00 4000 00\n" * 20)
    with pytest.raises(ConfigError, match=re.escape("vectors.txt must hold codes of 16 bits, got 0x13c00; write")):
        read_vectors(tmp_path / "lines")
    write_vectors(make_vectors(d.model_copy(update={"rounding": "stochastic", "n_rbits": 4})), tmp_path / "drawn")
    (tmp_path / "drawn" / "rbits.hex").write_text("1f\n" * 20)
    with pytest.raises(ConfigError, match=re.escape("rbits.hex must hold codes of 4 bits, got 0x1f; write it again")):
        read_vectors(tmp_path / "drawn")
