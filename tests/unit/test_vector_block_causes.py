"""`emu check` of blocks: seeded faults of a quantiser in fractions, and the cause that is named for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import floor
from pathlib import Path
from typing import Any

import block_quantiser as own
import numpy as np
import pytest

import emu
from emu.errors import ConfigError
from emu.testing.vectors import Description, Reading, Vectors, check_dump, make_vectors, write_vectors
from emu.testing.vectors.check import compare
from emu.testing.vectors.columns import Column

Codes = Sequence[int]


@lru_cache
def vectors_of(name: str = "mxfp8_e4m3", count: int = 2048) -> Vectors:
    return make_vectors(Description(operation="quantize", formats=("fp32",), out_format=name, count=count))


def given(codes: Codes) -> Column:
    return Column(np.array(codes, np.uint64), np.zeros(len(codes), np.bool_))


def causes(vectors: Vectors, elements: Codes, scales: Codes | None) -> tuple[str, ...]:
    finding = compare(vectors, np.array(elements, np.uint64), scales=None if scales is None else given(scales))
    assert finding is not None
    return finding.causes


def ran(vectors: Vectors, unit: own.Quantiser) -> tuple[list[int], list[int]]:
    return unit.run([int(code) for code in vectors.operands[0]])


def inside(numbers: Sequence[Any], start: int, first: int = 0, end: int = own.BLOCK) -> list[Fraction]:
    return [x for x in numbers[max(start + first, 0) : start + end] if x is not None]


def largest_of(*bounds: int) -> Callable[[Sequence[Any], int], Fraction]:
    return lambda numbers, start: max(map(abs, inside(numbers, start, *bounds)), default=Fraction(0))


def signed(numbers: Sequence[Any], start: int) -> Fraction:
    return max([*inside(numbers, start), Fraction(0)])


def rceil_exponent(largest: Fraction, top: int) -> int:
    ratio = largest / 448
    e = own.exponent_of(ratio)
    return e + (Fraction(2) ** e < ratio)


def even_exponent(largest: Fraction, top: int) -> int | None:
    """The largest is rounded to four digits first, ties away from zero; in binary32 that may be infinite."""
    step = Fraction(2) ** (own.exponent_of(largest) - 3)
    e = own.exponent_of(floor(largest / step + Fraction(1, 2)) * step)
    return None if e > 127 else e - top


#: Names of a fault, what the unit does, and the cause.
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "ceil": ({"exponent": own.ceil_exponent}, "scales by the rule ceil instead of floor"),
    "rceil": ({"exponent": rceil_exponent}, "scales by the rule rceil instead of floor"),
    "even": ({"exponent": even_exponent}, "scales by the rule even instead of floor"),
    "one up": (
        {"written": lambda code: min(code + 1, 254), "divides": lambda e: min(e + 1, 127)},
        "every scale is one step too high, and elements are divided by it",
    ),
    "one down": (
        {"written": lambda code: max(code - 1, 0), "divides": lambda e: max(e - 1, -127)},
        "every scale is one step too low, and elements are divided by it",
    ),
    "signed": ({"largest": signed}, "the largest is that of signed numbers, not of magnitudes"),
    "early": (
        {"largest": largest_of(-1, own.BLOCK - 1)},
        "the largest is taken one number early: from the last one of the block before",
    ),
    "late": (
        {"largest": largest_of(1, own.BLOCK + 1)},
        "the largest is taken one number late: up to the first one of the next block",
    ),
    "without the last": (
        {"largest": largest_of(0, own.BLOCK - 1)},
        "the largest leaves out the last number of the block",
    ),
    "first half": (
        {"largest": largest_of(0, own.BLOCK // 2)},
        "the largest is that of the first 16 numbers of the block",
    ),
    "truncation": ({"round": own.cut}, "truncation (toward_zero) instead of nearest_even"),
    "ties away": ({"round": own.away}, "rounding nearest_away instead of nearest_even"),
    "wraps": ({"saturates": False}, "overflow unseen: exponent and fraction as they are, the infinity's too"),
    "flushes": ({"flushes": True}, "subnormal results flushed to zero"),
}


@pytest.mark.parametrize("has_scales", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_cause_and_no_other(fault: str, has_scales: bool):
    changed, cause = FAULTS[fault]
    vectors = vectors_of()
    elements, scales = ran(vectors, own.Quantiser(**changed))
    first, *others = causes(vectors, elements, scales if has_scales else None)
    assert first == cause
    # what else is named are faults that write the same
    finding = compare(vectors, np.array(elements, np.uint64), scales=given(scales) if has_scales else None)
    assert finding is not None
    assert sum(line.startswith(("looks like", "some of it")) for line in finding.lines) == 1
    assert not any("unknown" in line or line.startswith("       and") for line in finding.lines)
    assert len(others) <= 1


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"written": lambda code: min(code + 1, 254)}, "every scale is written one step too high; elements are right"),
        ({"divides": lambda e: min(e + 1, 127)}, "elements are divided by a scale one step too high, not by their own"),
        (
            {"block_of": lambda block, blocks: (block - 1) % blocks},
            "elements are divided by the scale of the block before, not by their own",
        ),
        (
            {"block_of": lambda block, blocks: (block + 1) % blocks},
            "elements are divided by the scale of the block after, not by their own",
        ),
    ],
)
def test_elements_and_scales_that_do_not_belong_together_are_told_apart(changed: dict[str, Any], cause: str):
    vectors = vectors_of()
    assert causes(vectors, *ran(vectors, own.Quantiser(**changed))) == (cause,)


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4_e2m1"])
def test_a_right_dump_has_no_cause_with_scales_or_without(name: str):
    vectors = vectors_of(name)
    element = own.E4M3 if name == "mxfp8_e4m3" else own.E2M1
    elements, scales = ran(vectors, own.Quantiser(element=element))
    assert compare(vectors, np.array(elements, np.uint64), scales=given(scales)) is None
    assert compare(vectors, np.array(elements, np.uint64)) is None


@pytest.mark.parametrize(
    ("own_rule", "others", "cause"),
    [
        ("mxfp8_e4m3", "mxfp8_e4m3 floor ignore_nan",
         "NaN and infinities ignored: their blocks have the scale of the other numbers (ignore_nan)"),
        ("mxfp8_e4m3 rceil ignore_nan", "mxfp8_e4m3 rceil",
         "a NaN or an infinity makes the scale of its block NaN (nan_block)"),
        ("mxfp8_e4m3 rceil", "mxfp8_e4m3", "scales by the rule floor instead of rceil"),
        ("nvfp4", "nvfp4 nvfp4_paper", "scales by the rule nvfp4_paper instead of nvfp4"),
        ("nvfp4", "nvfp4 nvfp4_torchao ignore_nan", "scales by the rule nvfp4_torchao instead of nvfp4"),
        ("mxfp8_e4m3", "mxfp8_e4m3 te_power", "scales by the rule te_power with ignore_nan instead of floor"),
        ("fp8_tile", "block(fp8_e4m3, fp32 1x128 deepseek)", "scales by the rule deepseek instead of deepgemm"),
    ],
)  # fmt: skip
def test_another_rule_of_quantize_is_named(own_rule: str, others: str, cause: str):
    vectors = vectors_of(own_rule, 8192 if own_rule == "fp8_tile" else 4096)
    x = vectors.operands[0].astype(np.uint32).view(np.float32)
    value = emu.quantize(x, others, backend="reference")
    first, *_ = causes(vectors, value.codes.tolist(), value.scale_codes[0].reshape(-1).tolist())
    assert first == cause


@pytest.mark.parametrize("rounding", ["floor", "nearest_away", "toward_zero"])
def test_elements_of_nvfp4_in_another_mode_are_named(rounding: str):
    vectors = vectors_of("nvfp4")
    x = vectors.operands[0].astype(np.uint32).view(np.float32)
    value = emu.quantize(x, "nvfp4", rounding=rounding, backend="reference")
    first, *_ = causes(vectors, value.codes.tolist(), value.scale_codes[0].tolist())
    assert f"{rounding}" in first
    assert first.endswith("instead of nearest_even")


def test_a_tensor_s_number_that_is_left_out_is_named():
    """The scales are amax / 6 in e4m3, as those of a tensor whose largest magnitude is 2688."""
    vectors = vectors_of("nvfp4")
    x = vectors.operands[0].astype(np.uint32).view(np.float32)
    more = np.zeros(16, np.float32)
    more[0] = 2688
    value = emu.quantize(np.append(x, more), "nvfp4", backend="reference")
    scales = value.scale_codes[0].reshape(-1)[:-1].tolist()
    assert causes(vectors, value.codes[:-16].tolist(), scales) == ("the number for the tensor left out",)


def test_a_fault_of_scales_and_one_of_elements_are_both_named():
    vectors = vectors_of()
    elements, scales = ran(vectors, own.Quantiser(exponent=own.ceil_exponent, round=own.cut))
    rule, mode = "scales by the rule ceil instead of floor", "truncation (toward_zero) instead of nearest_even"
    assert causes(vectors, elements, scales) == (rule, mode)
    assert causes(vectors, elements, None)[0] == f"{rule}, and {mode}"


def test_a_scale_that_is_wrong_alone_is_shown_with_the_largest_number_of_its_block():
    vectors = vectors_of()
    elements, scales = ran(vectors, own.Quantiser())
    scales[5] ^= 4
    finding = compare(vectors, np.array(elements, np.uint64), scales=given(scales))
    assert finding is not None
    assert (finding.wrong, finding.wrong_scales, finding.index) == (0, 1, None)
    assert finding.lines[0] == "every element is right, but 1 of 64 scales differ:"
    assert finding.lines[1] == "  block 5"
    assert finding.lines[2].startswith("  largest   0x")
    assert [line.split()[0] for line in finding.lines[3:5]] == ["scale", "given"]


def test_elements_that_are_out_of_step_by_a_line_are_so_though_scales_are_right():
    vectors = vectors_of()
    elements, scales = ran(vectors, own.Quantiser())
    assert causes(vectors, [0, *elements[:-1]], scales) == ("every result one line too late",)


def written(folder: Path, name: str, lines: Sequence[str]) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_vectors(vectors_of(), tmp_path)
    return tmp_path


def test_a_dump_may_have_a_file_of_scales_a_column_or_none(folder: Path):
    elements, scales = ran(vectors_of(), own.Quantiser(exponent=own.ceil_exponent))
    rows = list(enumerate(elements))
    dumps = {
        "dump.hex": [f"{code:02x}" for code in elements],
        "two.hex": [f"{code:02x} {scales[i // 32]:02x}" for i, code in rows],
        "table.csv": ["result,scale", *(f"0x{code:02x},0x{scales[i // 32]:02x}" for i, code in rows)],
        # the scale stands beside the last element of its block alone
        "last.csv": [
            "result,scale",
            *(f"0x{code:02x},{f'0x{scales[i // 32]:02x}' if i % 32 == 31 else ''}" for i, code in rows),
        ],
    }  # fmt: skip
    paths = {name: written(folder, name, lines) for name, lines in dumps.items()}
    of_scales = written(folder, "scales.hex", [f"{code:02x}" for code in scales])
    wrong = sum(a != int(b) for a, b in zip(scales, vectors_of().scales[0], strict=True))
    columns = Reading(columns="result,scale")
    for finding, number in (
        (check_dump(folder, paths["dump.hex"], scales=of_scales), wrong),
        (check_dump(folder, paths["two.hex"], reading=columns), wrong),
        (check_dump(folder, paths["table.csv"]), wrong),
        (check_dump(folder, paths["last.csv"]), wrong),
        (check_dump(folder, paths["dump.hex"]), 0),
    ):
        assert finding is not None
        assert finding.wrong_scales == number
        assert finding.causes[0] == "scales by the rule ceil instead of floor"


def test_a_scale_that_was_never_driven_is_said_to_be(folder: Path):
    elements, scales = ran(vectors_of(), own.Quantiser())
    dump = written(folder, "dump.hex", [f"{code:02x}" for code in elements])
    of_scales = written(folder, "scales.hex", ["xx" if i in (3, 9) else f"{code:02x}" for i, code in enumerate(scales)])
    finding = check_dump(folder, dump, scales=of_scales)
    assert finding is not None
    assert finding.lines[0] == "2 scales were never driven (x), first that of block 3"


def test_lines_that_are_lost_are_put_in_step_and_scales_stay_with_their_blocks(folder: Path):
    elements, scales = ran(vectors_of(), own.Quantiser())
    rows = [f"{code:02x},{scales[i // 32]:02x}" for i, code in enumerate(elements) if i != 99]
    finding = check_dump(folder, written(folder, "dump.csv", ["result,scale", *rows]), reading=Reading(radix="hex"))
    assert finding is not None
    assert (finding.wrong, finding.wrong_scales) == (0, 0)
    assert finding.alignment == "dropped: the result of vector 99"


def test_results_of_single_numbers_have_no_scales(tmp_path: Path):
    write_vectors(
        make_vectors(Description(operation="quantize", formats=("fp32",), out_format="fp16", count=8)), tmp_path
    )
    with pytest.raises(ConfigError, match=r"^`--scales` must be of results that share scales, got .* for fp16; leave"):
        check_dump(tmp_path, tmp_path / "result.hex", scales=tmp_path / "result.hex")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["7f"] * 63, "scales must be 64 words, one for each block of 32, got 63 in {}; dump one a block"),
        (["1ff"] * 64, "every scale must be a code of 8 bits, got 0x1ff in vector 0 of {}; dump the format's own word"),
        (["7g"] * 64, "a dump must hold hexadecimal codes, got '7g' in line 1 of {}; write it again"),
        ([], "a dump must have a line for each vector, got none in {}"),
    ],
)
def test_scales_that_cannot_be_read_are_refused(folder: Path, lines: list[str], message: str):
    path = written(folder, "scales.hex", lines)
    with pytest.raises(ConfigError) as caught:
        check_dump(folder, folder / "result.hex", scales=path)
    assert message.format(path) in str(caught.value)


def test_lines_of_a_block_with_two_scales_are_refused(folder: Path):
    elements, scales = ran(vectors_of(), own.Quantiser())
    rows = [f"0x{code:02x},0x{scales[i // 32] ^ (i == 40):02x}" for i, code in enumerate(elements)]
    with pytest.raises(
        ConfigError, match=r"must have one scale, got 0x\w+, 0x\w+ in block 1, 1 such blocks; leave the"
    ):
        check_dump(folder, written(folder, "dump.csv", ["result,scale", *rows]))
