"""`emu vectors --requantise`: sums that become elements, against integers of Python, and faults of hardware."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu.errors import ConfigError
from emu.export import export
from emu.testing.vectors import Description, check_dump, make_vectors, write_vectors
from emu.testing.vectors.causes.requantisers import other_requantisers
from emu.testing.vectors.cells import cells_of
from emu.testing.vectors.check import compare
from emu.testing.vectors.definition import exact_value
from emu.testing.vectors.evidence import Evidence
from emu.testing.vectors.files import read_vectors
from emu.testing.vectors.requantisers import RequantiserTable, multiplier_of

M, SHIFT, ZERO = 1518500250, -7, -126
DOUBLE = f"double_rounding {M}*2**{SHIFT - 31} zero {ZERO}"


def described(requantise: str, **changed: Any) -> Description:
    table = {"operation": "quantize", "formats": ("fix32f0",), "out_format": "fix8f0", "requantise": requantise}
    return Description.model_validate({**table, "count": 1000, **changed})


def signed(codes: Any, bits: int) -> list[int]:
    return [int(code) - (1 << bits) * (int(code) >> (bits - 1)) for code in np.ravel(codes)]


def element(x: int, zero: int = ZERO, low: int = -128, high: int = 127) -> int:
    return min(max(x + zero, low), high) & 0xFF


def half_up(x: Fraction) -> int:
    return floor(x + Fraction(1, 2))


def half_away(x: Fraction) -> int:
    return half_up(x) if x >= 0 else -half_up(-x)


def half_even(x: Fraction) -> int:
    return round(x)


def doubly(x: int) -> int:
    """gemmlowp: the high half of twice the product, ties up, then a shift with ties away from zero."""
    return half_away(Fraction(half_up(Fraction(x * M, 2**31)), 2**-SHIFT))


def singly(x: int) -> int:
    return half_up(Fraction(x * M, 2 ** (31 - SHIFT)))


def by_float(x: int) -> int:
    return half_even(Fraction(float(np.float32(x) * np.float32(M * 2.0 ** (SHIFT - 31)))))


@pytest.mark.parametrize(
    ("requantise", "rule"),
    [
        (DOUBLE, doubly),
        (DOUBLE.replace("double", "single"), singly),
        (f"float32 {float(np.float32(M * 2.0 ** (SHIFT - 31))).hex()} zero {ZERO}", by_float),
        (f"exact {M}*2**{SHIFT - 31} zero {ZERO}", lambda x: half_even(Fraction(x * M, 2 ** (31 - SHIFT)))),
        (f"exact {M}*2**{SHIFT - 31} zero {ZERO} rounding floor", lambda x: x * M >> (31 - SHIFT)),
        (f"shift 1*2**-6 zero {ZERO}", lambda x: half_even(Fraction(x, 64))),
    ],
)
def test_results_are_those_of_python_s_integers(requantise: str, rule: Callable[[int], int]):
    vectors = make_vectors(described(requantise))
    sums = signed(vectors.operands[0], 32)
    assert vectors.results.tolist() == [element(rule(x)) for x in sums]
    outside = [not -128 <= rule(x) + ZERO <= 127 for x in sums]
    assert (vectors.flags & 4 != 0).tolist() == outside, "the flag overflow says that an element was bounded"
    assert 0.2 < np.mean(outside) < 0.8, "most sums of 32 bits are beyond all elements, these are not"


@pytest.mark.parametrize(
    ("kind", "m", "shift"),
    [
        ("double_rounding", 2**31 - 1, 3),
        ("double_rounding", 2**30, 0),
        ("double_rounding", 1518500248, -31),
        ("double_rounding", 1518500250, 30),
        ("single_rounding", 2**30 + 1, -20),
        ("single_rounding", 1518500250, 30),
    ],
)
def test_every_shift_gives_what_emu_requantise_gives(kind: str, m: int, shift: int):
    vectors = make_vectors(described(f"{kind} {m}*2**{shift - 31} zero 5 lowest 4 highest 100", count=600))
    sums = np.array(signed(vectors.operands[0], 32))
    wanted = emu.requantise(sums, "fix8f0", kind, multiplier=(m, shift), zero=5, lowest=4, highest=100)
    assert signed(vectors.results, 8) == np.asarray(wanted.array).astype(int).tolist()


@pytest.mark.parametrize("bounds", [{"lowest": -126}, {"highest": 20}, {"lowest": -126, "highest": 20}])
def test_either_bound_alone_is_applied_and_raises_overflow(bounds: dict[str, int]):
    vectors = make_vectors(described(" ".join([DOUBLE, *(f"{name} {bound}" for name, bound in bounds.items())])))
    plain = [doubly(x) + ZERO for x in signed(vectors.operands[0], 32)]
    low, high = bounds.get("lowest", -128), bounds.get("highest", 127)
    assert signed(vectors.results, 8) == [min(max(x, low), high) for x in plain]
    assert (vectors.flags & 4 != 0).tolist() == [not low <= x <= high for x in plain]
    assert not (vectors.flags & ~np.uint64(5)).any(), "inexact and overflow are all there is"


@pytest.mark.parametrize(
    ("requantise", "changed"),
    [
        ("exact 0.001 lowest 100 highest 120", {"formats": ("fix8f0",)}),
        ("exact 1 lowest -100 highest -90", {"formats": ("ufix8f0",)}),
        ("single_rounding 1518500250*2**-38", {"out_format": "fix16f0", "count": 40}),
        (
            "single_rounding 1518500250*2**-38",
            {"operation": "matmul", "formats": ("fix8f0", "fix8f0", "fix64f0"), "depth": 4, "count": 40},
        ),
        ("exact 0.5", {"operation": "matmul", "formats": ("fix8f0", "fix8f0"), "depth": 1, "count": 3}),
    ],
)
def test_sums_out_of_reach_and_formats_of_any_width_have_vectors(requantise: str, changed: dict[str, Any]):
    description = described(requantise, **{"count": 30, **changed})
    assert make_vectors(description).results.size == description.count


def test_a_product_s_sums_are_requantised_with_their_bias():
    changed = {"operation": "matmul", "formats": ("ufix8f0", "fix8f0", "fix32f0"), "depth": 8, "count": 800}
    mac = {"accumulator": "fix32f0", "overflow": "wrap"}
    vectors = make_vectors(described(DOUBLE, **changed, mac=mac))
    a = vectors.operands[0].astype(int)
    b = np.array(signed(vectors.operands[1], 8)).reshape(a.shape)
    totals = [int(x @ y) + c for x, y, c in zip(a, b, signed(vectors.operands[2], 32), strict=True)]
    wrapped = signed([total & 0xFFFFFFFF for total in totals], 32)
    assert vectors.results.tolist() == [element(doubly(x)) for x in wrapped]
    assert len(set(vectors.results.tolist())) > 50


def test_cells_have_ties_of_each_step_bounds_and_what_tells_kinds_apart():
    cells = {cell.name: cell for cell in cells_of(make_vectors(described(DOUBLE)))}
    for name in (
        "step 1 of the requantiser, below half, positive",
        "step 1 of the requantiser, above half, negative",
        "step 2 of the requantiser, a tie, positive",
        "step 2 of the requantiser, a tie, negative",
        "bounded by the smallest element",
        "bounded by the largest element",
        "a sum of 0",
        "a sum other than 0 becomes the zero point",
        "another element than float32 writes",
        "another element than single_rounding writes",
        "another element than exact writes",
    ):
        assert cells[name].count >= cells[name].wanted, name
    assert "step 1 of the requantiser, a tie, positive" not in cells, "its smallest sum, 2**29, is beyond all elements"
    assert not any("beyond the range" in name or "zero operand" in name for name in cells)


def test_ties_of_a_first_step_are_solved_for_where_sums_reach_them():
    vectors = make_vectors(described(f"double_rounding {2**30}*2**-59"))
    cells = {cell.name: cell for cell in cells_of(vectors)}
    ties = cells["step 1 of the requantiser, a tie, negative"]
    assert ties.count >= 8
    assert all(x % 2 for x in np.array(signed(vectors.operands[0], 32))[ties.inside]), "a half is half an odd number"


def test_cells_of_binary32_are_those_of_its_own_roundings():
    vectors = make_vectors(described("float32 0x1.6a09e6p-20"))
    cells = {cell.name: cell for cell in cells_of(vectors)}
    sums = np.array(signed(vectors.operands[0], 32))
    ties = sums[cells["step 1 of the requantiser, a tie, positive"].inside]
    assert len(ties) >= 8
    assert all(x > 2**24 and Fraction(int(x)) != Fraction(float(np.float32(x))) for x in ties)
    assert cells["another element than exact writes"].count >= 8


def test_the_exact_result_of_a_vector_is_multiplied_and_has_its_zero_point():
    vectors = make_vectors(described(DOUBLE, count=50))
    for i, x in enumerate(signed(vectors.operands[0], 32)):
        assert exact_value(vectors.description, vectors.operands, i) == Fraction(x * M, 2**38) + ZERO


def dumped(folder: Path, rule: Callable[[int], int]) -> str:
    """Return the first cause that is named for a dump of another rule."""
    vectors = read_vectors(folder)
    codes = [rule(x) for x in signed(vectors.operands[0], 32)]
    (folder / "dump.hex").write_text("".join(f"{code:02x}\n" for code in codes))
    finding = check_dump(folder, folder / "dump.hex")
    assert finding is not None
    return finding.causes[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("requantised") / "vectors"
    write_vectors(make_vectors(described(DOUBLE + " highest 90")), path)
    return path


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        (singly, "requantised as single_rounding instead of double_rounding"),
        (
            lambda x: half_even(Fraction(half_up(Fraction(x * M, 2**31)), 128)),
            "step 2 of the requantiser rounds by nearest_even instead of nearest_away",
        ),
        (
            lambda x: half_away(Fraction(x * M >> 31, 128)),
            "step 1 of the requantiser rounds by floor instead of nearest_up",
        ),
        (
            lambda x: floor(Fraction(half_up(Fraction(x * M, 2**31)), 128)),
            "step 2 of the requantiser rounds by floor instead of nearest_away",
        ),
        (
            lambda x: half_away(Fraction(half_up(Fraction(x * M, 2**31)), 256)),
            "the multiplier is shifted by one bit more",
        ),
        (lambda x: doubly(signed([x & 0xFFFF], 16)[0]), "sums are held in 16 bits, wrap"),
        (lambda x: doubly(min(max(x, -(2**15)), 2**15 - 1)), "sums are held in 16 bits, saturate"),
    ],
)
def test_faults_of_a_requantiser_are_named(folder: Path, rule: Callable[[int], int], cause: str):
    assert cause in dumped(folder, lambda x: element(rule(x), high=90))


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        (lambda x: element(doubly(x), zero=0, high=90), "without the zero point"),
        (lambda x: element(doubly(x), zero=-ZERO, high=90), "the zero point is subtracted"),
        (lambda x: element(doubly(x)), "without the bound `highest`"),
        (lambda x: element(doubly(x), low=ZERO, high=90), "bounded below by the zero point, as by a fused relu"),
        (lambda x: element(x * M >> 38, high=90), "the product is rounded once, by floor"),
    ],
)
def test_numbers_of_a_requantiser_that_are_missing_are_named(folder: Path, rule: Callable[[int], int], cause: str):
    assert cause in dumped(folder, rule)


def test_kinds_that_differ_only_in_long_sums_are_told_apart_where_these_are_within_reach(tmp_path: Path):
    m = 1518500251 * 2.0**-50
    write_vectors(make_vectors(described("double_rounding 1518500251*2**-50")), tmp_path / "v")
    single = np.float32(m)
    as_float = dumped(tmp_path / "v", lambda x: element(half_even(Fraction(float(np.float32(x) * single))), zero=0))
    assert as_float == "requantised as float32 instead of double_rounding"
    exactly = dumped(tmp_path / "v", lambda x: element(half_up(Fraction(x) * Fraction(m)), zero=0))
    assert exactly == "requantised as single_rounding instead of double_rounding"


def test_a_zero_point_before_the_rounding_is_named(tmp_path: Path):
    write_vectors(make_vectors(described("shift 1*2**-6 zero 3")), tmp_path / "v")
    early = dumped(tmp_path / "v", lambda x: min(max(half_even(Fraction(x, 64) + 3), -128), 127) & 0xFF)
    assert "the zero point is added before rounding" in early


@pytest.mark.parametrize(("by", "name"), [(1, "one larger"), (-1, "one smaller")])
def test_a_zero_point_that_is_off_by_one_is_a_known_fault(folder: Path, by: int, name: str):
    vectors = read_vectors(folder)
    faults = dict(other_requantisers(Evidence(vectors)))
    sums = signed(vectors.operands[0], 32)
    own = [fault for fault in faults if fault.endswith("instead of nearest_up") or "instead of nearest_away" in fault]
    assert own
    assert not [fault for fault in own if fault.count("nearest_up") > 1 or fault.count("nearest_away") > 1]
    assert faults[f"the zero point is {name}"].tolist() == [element(doubly(x), ZERO + by, high=90) for x in sums]


def test_a_folder_says_how_sums_are_requantised(folder: Path):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["description"]["requantise"] == {
        "kind": "double_rounding", "multiplier": f"{M}*2**-38", "zero": ZERO, "lowest": None, "highest": 90,
        "rounding": None,
    }  # fmt: skip
    assert read_vectors(folder).description.requantise == RequantiserTable.model_validate(
        {"kind": "double_rounding", "multiplier": f"{M}*2**-38", "zero": ZERO, "highest": 90}
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", Fraction(3)),
        ("3 * 2**-5", Fraction(3, 32)),
        ("3*2**5", Fraction(96)),
        ("0.375", Fraction(3, 8)),
        ("0x1.8p-3", Fraction(3, 16)),
        ("1e-3", Fraction(0.001)),
    ],
)
def test_a_multiplier_is_read_as_the_number_that_it_says(text: str, number: Fraction):
    assert multiplier_of(text) == number


@pytest.mark.parametrize("multiplier", ["2147483647", "1*2**-126", "1*2**30"])
def test_multipliers_at_the_ends_have_vectors_though_some_faults_would_go_beyond(multiplier: str):
    d = described(f"exact {multiplier}", count=20)
    v = make_vectors(d)
    assert compare(v, v.results, v.flags) is None
    wrong = v.results.copy()
    wrong[3] ^= np.uint64(1)
    assert compare(v, wrong) is not None


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e999", "2**3", "3*2**99999", "x", ""])
def test_a_multiplier_that_is_none_is_refused(text: str):
    with pytest.raises(
        ConfigError, match=r"a multiplier must be a number from 2\*\*-126 to 2\*\*31, got .*; write it like 1518500250"
    ):
        multiplier_of(text)


@pytest.mark.parametrize(
    ("requantise", "changed", "text"),
    [
        ("double 3", {}, "a requantiser must be one of float32, double_rounding"),
        ("float32", {}, "a requantiser must be KIND MULTIPLIER, and perhaps zero N"),
        ("float32 0.5 zero", {}, "a requantiser must be KIND MULTIPLIER"),
        ("float32 0.5 offset 3", {}, "a requantiser must be KIND MULTIPLIER"),
        ("float32 0.1", {}, "must be a number of binary32, got '0.1'; write 0x1.99999a0000000p-4, the next one"),
        ("double_rounding 0.1", {}, "with m of 31 bits and a shift in -31..30, got '0.1'; write 1717986918*2**-34"),
        ("double_rounding 1*2**-64", {}, "a shift in -31..30, got '1*2**-64'"),
        ("double_rounding 1*2**31", {}, "a multiplier must be a number from 2**-126 to 2**31, got '1*2**31'"),
        ("shift 3", {}, "a multiplier of the requantiser shift must be a power of two, got '3'"),
        ("shift 0.75", {}, "a multiplier of the requantiser shift must be a power of two, got '0.75'"),
        ("", {}, "a requantiser must be KIND MULTIPLIER, and perhaps zero N"),
        ("exact 0.5 zero 1 zero 2", {}, "a requantiser must be KIND MULTIPLIER, and perhaps zero N"),
        ("exact 0.5 zero x", {}, "`zero` of a requantiser must be an integer of at most 18 digits, got 'x'; write"),
        ("exact 0.5 lowest 1.5", {}, "`lowest` of a requantiser must be an integer of at most 18 digits, got '1.5'"),
        (f"exact 0.5 zero {'9' * 5000}", {}, "`zero` of a requantiser must be an integer of at most 18 digits"),
        (f"exact {'9' * 5000}", {}, "a multiplier must be a number from 2**-126 to 2**31, got '999"),
        ("float32 1e-50", {}, "a multiplier must be a number from 2**-126 to 2**31, got '1e-50'"),
        ("exact 1*2**9999", {}, "a multiplier must be a number from 2**-126 to 2**31, got '1*2**9999'"),
        ("single_rounding 1*2**30", {}, "got '1*2**30'; choose one from 2**-32 to 2**30"),
        ("exact 0.5", {"rounding": "stochastic"}, "`rounding` and `overflow` must be left out beside `requantise`"),
        ("exact 0.5", {"rounding": "floor"}, "got floor and saturate; write `rounding MODE` behind the kinds"),
        ("exact 0.5", {"overflow": "wrap"}, "got nearest_even and wrap"),
        ("exact 0.5", {"also": ("fix8f0",)}, "`also` must be left out beside `requantise`, got further results"),
        ("exact 0.5 zero 200", {}, "`zero` must be an element of fix8f0, got 200; choose one of them"),
        ("exact 0.5 highest 128", {}, "`highest` must be an element of fix8f0, got 128"),
        ("exact 0.5 lowest 3 highest 2", {}, "`lowest` must not exceed `highest`, got 3 and 2"),
        ("float32 0.5 rounding floor", {}, "`rounding` must be left out for the requantiser float32"),
        ("exact 0.5", {"out_format": "fix8f4"}, "must write integers of at most 16 bits, got fix8f4"),
        ("exact 0.5", {"out_format": "fp16"}, "must write integers of at most 16 bits, got fp16"),
        ("exact 0.5", {"formats": ("fix32f4",)}, "`requantise` is of integer sums"),
        ("exact 0.5", {"formats": ("fp32",)}, "`requantise` is of integer sums"),
        ("exact 0.5", {"operation": "add", "formats": ("fix8f0",) * 2}, "`requantise` is of integer sums"),
        ("exact 0.5", {"stages": ("fix34f0",)}, "`requantise` is of integer sums"),
    ],
)
def test_requantisers_that_cannot_be_are_refused(requantise: str, changed: dict[str, Any], text: str):
    with pytest.raises(Exception) as refused:  # noqa: PT011 - the table's error, or the model's around it
        described(requantise, **changed)
    assert text in str(refused.value)


def test_exported_units_have_no_requantiser(tmp_path: Path):
    with pytest.raises(ConfigError, match="`requantise` must be left out of exported units, got double_rounding"):
        export(described(DOUBLE), tmp_path, name="unit")
