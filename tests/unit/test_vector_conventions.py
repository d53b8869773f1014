"""Units that write NaN, integers and zeros otherwise, choose an operand, or pass several stages; oracles are facts."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import emu
from emu.errors import ConfigError
from emu.testing.vectors import Description, check_dump, make_vectors, write_vectors
from emu.testing.vectors.check import compare
from emu.testing.vectors.definition import answered, register_of
from emu.testing.vectors.dump_check import check_register

INVALID, INEXACT = 16, 1


def described(operation: str, formats: str, out: str, **more: object) -> Description:
    return Description.model_validate(
        {"operation": operation, "formats": formats.split(","), "out_format": out, **more}
    )


def results(d: Description, *operands: int) -> tuple[int, int]:
    """Code and flags of one vector."""
    d = d.model_copy(update={"count": 1})
    shaped = tuple(np.array([code], np.uint64).reshape(d.shape_of(i)) for i, code in enumerate(operands))
    v = answered(d, shaped, None)
    return int(v.results[0]), int(v.flags[0])


@pytest.mark.parametrize(
    ("rule", "code", "expected"),
    [
        # cvttss2si of x86: the integer indefinite for NaN, infinities and all that is too large
        ("indefinite", 0x7FC00000, (0x80000000, INVALID)),
        ("indefinite", 0x4F000000, (0x80000000, INVALID)),
        ("indefinite", 0xFF800000, (0x80000000, INVALID)),
        ("indefinite", 0xCF000000, (0x80000000, 0)),
        ("indefinite", 0x3FC00000, (1, INEXACT)),
        # fcvt.w.s of RISC-V: NaN is the largest, others the nearest
        ("largest", 0x7FC00000, (0x7FFFFFFF, INVALID)),
        ("largest", 0xFFC00000, (0x7FFFFFFF, INVALID)),
        ("largest", 0xFF800000, (0x80000000, INVALID)),
        ("largest", 0x4F000000, (0x7FFFFFFF, INVALID)),
        # FCVTZS of Arm: NaN is 0
        ("zero", 0x7FC00000, (0, INVALID)),
        ("zero", 0xFF800000, (0x80000000, INVALID)),
    ],
)
def test_a_conversion_to_an_integer_has_the_value_of_its_machine(rule: str, code: int, expected: tuple[int, int]):
    d = described("quantize", "fp32", "fix32f0", rounding="toward_zero", invalid=rule, flags="ieee")
    assert results(d, code) == expected


@pytest.mark.parametrize("flags", ["ieee", "emu"])
def test_a_number_divided_by_zero_raises_infinite_alone(flags: str):
    """IEEE 754-2019 section 7.3; 0 / 0 is invalid, and infinity / 0 is exact."""
    d = described("divide", "fp16,fp16", "fp16", flags=flags)
    assert results(d, 0x3C00, 0x8000) == (0xFC00, 8)
    assert results(d, 0, 0) == (0x7E00, INVALID)
    assert results(d, 0x7C00, 0) == (0x7C00, 0)


def test_without_a_sign_the_integer_indefinite_is_all_ones():
    d = described("quantize", "fp32", "ufix32f0", rounding="toward_zero", invalid="indefinite", flags="ieee")
    assert results(d, 0xBF800000) == (0xFFFFFFFF, INVALID)
    assert results(d, 0xBF000000) == (0, INEXACT)


SNAN, QNAN, MINUS_QNAN = 0x7C01, 0x7E02, 0xFE03


@pytest.mark.parametrize(
    ("rule", "a", "b", "expected"),
    [
        ("first", QNAN, SNAN, 0x7E02),
        ("first", MINUS_QNAN, 0x3C00, 0xFE03),
        ("first", 0x3C00, SNAN, 0x7E01),
        ("signalling_first", QNAN, SNAN, 0x7E01),
        ("signalling_first", QNAN, MINUS_QNAN, 0x7E02),
        ("canonical", QNAN, SNAN, 0xFE00),
        ("first", 0x7C00, 0xFC00, 0xFE00),
    ],
)
def test_a_nan_is_passed_on_by_the_rule(rule: str, a: int, b: int, expected: int):
    d = described("add", "fp16,fp16", "fp16", nan=rule, nan_code="0xfe00")
    assert results(d, a, b)[0] == expected


def test_a_payload_keeps_its_high_bits_in_another_format():
    narrow = described("quantize", "fp32", "fp16", nan="first")
    assert results(narrow, 0xFFA02000) == (0xFF01, INVALID)
    wide = described("quantize", "fp16", "fp32", nan="first")
    assert results(wide, 0xFE01) == (0xFFC02000, 0)


def numbers(code: int) -> float:
    return float(np.array(code, np.uint16).view(np.float16))


def test_minimum_and_maximum_are_ieee_754s():
    codes = [0, 0x8000, 1, 0x8001, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01]
    for name in ("minimum", "maximum", "minimum_number", "maximum_number"):
        d = described(name, "fp16,fp16", "fp16")
        for a in codes:
            for b in codes:
                x, y = numbers(a), numbers(b)
                flags = INVALID if SNAN in (a, b) else 0
                keyed = [(x, math.copysign(1, x), a), (y, math.copysign(1, y), b)]
                there = [key for key in keyed if not math.isnan(key[0])]
                if len(there) < 2 and ("number" not in name or not there):
                    expected = 0x7E00
                else:
                    expected = (min if "minimum" in name else max)(there)[2]
                assert results(d, a, b) == (expected, flags), (name, hex(a), hex(b))


def test_stages_in_a_row_round_and_saturate_one_after_the_other():
    """The accumulator of a convolution: 8 bits are summed, bounded to 6, shifted by 2, and bounded to 4."""
    d = described("add", "fix7f0,fix7f0", "fix4f-2", rounding="nearest_away", stages=["fix6f0 saturate"])
    for a in range(-64, 64, 5):
        for b in range(-64, 64, 7):
            bounded = min(max(a + b, -32), 31)
            rounded = int(math.copysign(math.floor(abs(Fraction(bounded, 4)) + Fraction(1, 2)), bounded))
            code = min(max(rounded, -8), 7) & 15
            given, flags = results(d, a & 127, b & 127)
            assert given == code, (a, b)
            assert bool(flags & 4) == (not -32 <= a + b <= 31 or not -8 <= rounded <= 7)


def test_a_value_that_is_rounded_twice_is_not_rounded_once():
    twice = described("quantize", "fix12f8", "fix4f0", stages=["fix8f2"])
    once = described("quantize", "fix12f8", "fix4f0")
    assert results(twice, 0x17F)[0] == 2  # 1.496 to 1.5 to 2
    assert results(once, 0x17F)[0] == 1


@pytest.mark.parametrize(
    ("mode", "a", "b", "expected"),
    [
        ("nearest_even", [0x8000, 0x8000], [0x3C00, 0x3C00], 0x8000),
        ("nearest_even", [0x8000, 0x0000], [0x3C00, 0x3C00], 0x0000),
        ("nearest_even", [0x3C00, 0xBC00], [0x3C00, 0x3C00], 0x0000),
        ("floor", [0x3C00, 0xBC00], [0x3C00, 0x3C00], 0x8000),
        ("floor", [0x0000, 0x0000], [0x3C00, 0x3C00], 0x0000),
        ("floor", [0x8000, 0x0000], [0x3C00, 0x3C00], 0x8000),
    ],
)
def test_a_sum_of_products_that_is_zero_has_the_sign_of_ieee_754(mode: str, a: list, b: list, expected: int):
    d = described("matmul", "fp16,fp16", "fp16", depth=2, rounding=mode, zero_sign="ieee", count=1)
    operands = tuple(np.array([row], np.uint64) for row in (a, b))
    assert answered(d, operands, None).results.tolist() == [expected]
    plain = d.model_copy(update={"zero_sign": "positive"})
    assert answered(plain, operands, None).results.tolist() == [0]


FAULTS = {
    "a missing stage": (
        described("add", "fix8f0,fix8f0", "fix7f-2", rounding="nearest_away", stages=["fix8f0 saturate"]),
        {"stages": []},
        "without the stage fix8f0 before the output stage",
    ),
    "another NaN": (
        described("add", "fp16,fp16", "fp16", nan="first"),
        {"nan": "signalling_first"},
        "NaN by the rule signalling_first",
    ),
    "another integer": (
        described("quantize", "fp16", "fix8f0", invalid="indefinite"),
        {"invalid": "largest"},
        "`invalid` largest instead",
    ),
    "another sign": (
        described("matmul", "fp16,fp16", "fp16", depth=2, rounding="floor", zero_sign="ieee"),
        {"zero_sign": "positive"},
        "signs of zero sums positive instead of ieee",
    ),
    "another rounding": (
        described("multiply", "fp16,fp16", "fp16", nan="first"),
        {"rounding": "floor"},
        "truncation of two's complement (floor) instead of nearest_even",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_unit_of_another_convention_is_named(name: str):
    d, other, cause = FAULTS[name]
    d = d.model_copy(update={"count": 400})
    v = make_vectors(d)
    given = answered(Description.model_validate({**d.model_dump(), **other}), v.operands, v.rbits).results
    finding = compare(v, given)
    assert finding is not None
    assert finding.causes[0].startswith(cause), str(finding)
    assert compare(v, v.results) is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"stages": ["fix8f0 stochastic"]}, "`stages` must not be stochastic, got 'stochastic'"),
        ({"operation": "round_to_integral", "stages": ["fp16"]}, "`stages` must be left out of round_to_integral"),
        ({"out_format": "fix8f0", "nan": "first"}, "`nan` and `nan_code` are of results with NaNs of IEEE 754"),
        ({"formats": ["fix8f0"], "nan": "first"}, "`nan` = 'first' must have operands with NaNs of IEEE 754"),
        ({"nan_code": "0x3c00"}, "`nan_code` must be the code of a NaN of fp16, got '0x3c00'"),
        ({"nan_code": "0x1fe00"}, "`nan_code` must be the code of a NaN of fp16, got '0x1fe00'"),
        ({"nan_code": "-1"}, "`nan_code` must be the code of a NaN of fp16, got '-1'"),
        ({"statistics": "1:0"}, "and 1..1048576 BINS, got '1:0'; write it like -24:40"),
        ({"statistics": "9999999:3"}, "`statistics` must have a LOWEST of -1048576..1048576 and 1..1048576 BINS, got"),
        ({"statistics": f"{'9' * 5000}:3"}, "`statistics` must be LOWEST:BINS, got '999"),
        ({"nan_code": "none"}, "`nan_code` must be hexadecimal, got 'none'"),
        ({"invalid": "largest"}, "`invalid` is of fixed-point results of floats, got 'largest' for fp16 to fp16"),
        ({"zero_sign": "ieee"}, "`zero_sign` is of matmul with an exact accumulator and float results, got 'ieee'"),
        ({"stages": ["fix8"]}, "a fixed-point format must say where its point is, got 'fix8'"),
    ],
)  # fmt: skip
def test_a_convention_that_cannot_be_is_refused(table: dict, message: str):
    with pytest.raises((ConfigError, ValueError)) as error:
        Description.model_validate({"operation": "quantize", "formats": ["fp16"], "out_format": "fp16", **table})
    assert message in str(error.value)


def test_further_results_have_files_and_are_compared(tmp_path: Path):
    """An integer divider: the quotient toward zero, and a remainder."""
    d = described(
        "divide",
        "fix8f0,fix8f0",
        "fix8f0",
        rounding="toward_zero",
        count=200,
        also=["remainder fix8f0", "fix12f4 floor"],
    )
    v = make_vectors(d)
    write_vectors(v, tmp_path)
    columns = {
        name: (tmp_path / f"{name}.hex").read_text().split() for name in ("a", "b", "result", "result2", "result3")
    }
    numbers = ([int(word, 16) for word in column] for column in columns.values())
    for a, b, quotient, rest, fine in zip(*numbers, strict=True):
        x, y = a - (a >> 7 << 8), b - (b >> 7 << 8)
        if y:
            wanted = Fraction(x, y)
            assert quotient == min(int(wanted), 127) & 255
            assert rest == (x - y * round(wanted)) & 255
            assert fine == min(math.floor(wanted * 16), 2047) & 4095
    rows = list(zip(columns["result"], columns["result2"], columns["result3"], strict=True))
    (tmp_path / "dump.txt").write_text("".join(f"{' '.join(row)}\n" for row in rows))
    assert check_dump(tmp_path, tmp_path / "dump.txt") is None
    (tmp_path / "dump.txt").write_text("".join(f"{a} {b} {int(c, 16) ^ 1:03x}\n" for a, b, c in rows))
    finding = check_dump(tmp_path, tmp_path / "dump.txt")
    assert finding is not None
    assert finding.lines[0] == "result3: 200 of 200 results differ, the first at vector 0:"
    (tmp_path / "dump.txt").write_text("".join(f"{a}\n" for a, _, _ in rows))
    assert check_dump(tmp_path, tmp_path / "dump.txt") is None


@pytest.mark.parametrize(
    ("operation", "formats", "out", "also"),
    [("multiply", "fp16,fp16", "bf16", "add fp16"), ("fma", "fp16,fp16,fp16", "fp16", "fma fp8_e4m3")],
)
def test_a_further_operation_changes_no_vector_of_the_first_result(operation: str, formats: str, out: str, also: str):
    """Faults that are computed as other operations, as a product rounded before the sum, have one result."""
    d = described(operation, formats, out, count=40)
    both = make_vectors(described(operation, formats, out, count=40, also=[also]))
    for codes, alone in zip(both.operands, make_vectors(d).operands, strict=True):
        np.testing.assert_array_equal(codes, alone)


def test_lines_of_testfloat_have_the_first_of_several_results(tmp_path: Path):
    v = make_vectors(described("add", "fp16,fp16", "fp16", count=40, also=["fp8_e4m3"]))
    write_vectors(v, tmp_path)
    assert check_dump(tmp_path, tmp_path / "vectors.txt") is None
    wrong = [line.split() for line in (tmp_path / "vectors.txt").read_text().splitlines()]
    wrong[7][3] = f"{int(wrong[7][3], 16) ^ 1:02X}"
    (tmp_path / "vectors.txt").write_text("".join(f"{' '.join(words)}\n" for words in wrong))
    finding = check_dump(tmp_path, tmp_path / "vectors.txt")
    assert finding is not None
    assert finding.lines[0] == "every result is right, but 1 of 40 flags differ, the first at vector 7:"


REGISTERS = {
    "quantize": described("quantize", "fp32", "fp16", statistics="-20:30"),
    "products": described("multiply", "fix8f4,fix8f4", "fix8f4", statistics="-8:14"),
    "sums": described("add", "fix8f4,fix8f2", "fix8f4", statistics="-4:9"),
    "quotients": described("divide", "fp16,fp16", "fp16", statistics="-24:40"),
    "fused sums": described("fma", "fix6f4,fix6f4,fix9f1", "fix8f4", statistics="-8:12"),
    "accumulator": described(
        "matmul", "fix8f4,fix8f4", "fix8f4", depth=3, mac={"accumulator": "fix16f6"}, statistics="-6:15"
    ),
    "exact sums": described("matmul", "fp16,fp16", "fp16", depth=3, statistics="-24:40"),
}


@pytest.mark.parametrize("name", REGISTERS)
def test_a_register_counts_what_emus_own_counts(name: str):
    d = REGISTERS[name].model_copy(update={"count": 300})
    v = make_vectors(d)
    own = emu.StatisticsRegister(d.statistics.lowest, d.statistics.bins)
    stage = {"out_format": d.out_format, "register": own, "backend": "reference"}
    operands = [emu.value(fmt.decode(x), fmt) for fmt, x in zip(d.operand_formats, v.operands, strict=True)]
    if d.operation == "quantize":
        emu.quantize(operands[0], d.out_format, register=own, backend="reference")
    elif d.operation == "matmul":
        for a, b in zip(operands[0], operands[1], strict=True):
            emu.matmul(a.reshape(1, -1), b.reshape(-1, 1), mac=d.mac.mac(), **stage)
    else:
        getattr(emu, d.operation)(*operands, **stage)
    assert register_of(v) == own


def test_a_registers_dump_is_compared(tmp_path: Path):
    v = make_vectors(REGISTERS["sums"].model_copy(update={"count": 100}))
    write_vectors(v, tmp_path)
    assert check_register(v, tmp_path / "statistics.hex") == []
    words = (tmp_path / "statistics.hex").read_text().split()
    assert len(words) == 2 * 9 + 5
    words[3] = f"{int(words[3], 16) + 1:x}"
    (tmp_path / "dump.hex").write_text("\n".join(words))
    count = int(words[3], 16)
    assert check_register(v, tmp_path / "dump.hex") == [
        f"register: positive results of leading bit 2**-1: {count}, expected {count - 1}"
    ]
    # a count that nobody drove is wrong, even where 0 is right
    place = next(i for i, word in enumerate(words) if int(word, 16) == 0)
    undriven = [*words[:place], "xxxxxxxx", *words[place + 1 :]]
    (tmp_path / "dump.hex").write_text("\n".join(undriven))
    assert [line.partition(": ")[2].rpartition(": ")[2] for line in check_register(v, tmp_path / "dump.hex")] == [
        f"{count}, expected {count - 1}",
        "x, expected 0",
    ][:: 1 if place > 3 else -1]
    (tmp_path / "dump.hex").write_text("\n".join(words[:-1]))
    with pytest.raises(ConfigError, match=r"a register must be 23 counts, as in statistics\.hex, got 22"):
        check_register(v, tmp_path / "dump.hex")
    with pytest.raises(ConfigError, match="vectors must have a register to be compared with"):
        check_register(make_vectors(described("add", "fix8f4,fix8f2", "fix8f4", count=5)), tmp_path / "dump.hex")


def test_any_nan_is_taken_for_one_that_is_passed_on_and_in_further_results(tmp_path: Path):
    v = make_vectors(described("add", "fp16,fp16", "fp16", nan="first", count=300, also=["fp16 floor"]))
    write_vectors(v, tmp_path)
    columns = [(tmp_path / f"{name}.hex").read_text().split() for name in ("result", "result2")]
    assert any(int(word, 16) & 0x7FFF > 0x7E00 for word in columns[0])
    other = [["7fff" if int(word, 16) & 0x7FFF > 0x7C00 else word for word in column] for column in columns]
    (tmp_path / "dump.txt").write_text("".join(f"{a} {b}\n" for a, b in zip(*other, strict=True)))
    assert check_dump(tmp_path, tmp_path / "dump.txt", any_nan=True) is None
    assert check_dump(tmp_path, tmp_path / "dump.txt") is not None
