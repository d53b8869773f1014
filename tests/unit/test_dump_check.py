"""The verdict about a dump: what was never driven, lines out of step, operands of others, and flags of either kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.errors import ConfigError
from emu.testing.vectors import (
    Description,
    Reading,
    Vectors,
    check_dump,
    make_vectors,
    read_dump,
    read_vectors,
    vectors_of,
    write_vectors,
)
from emu.testing.vectors.columns import Column, fitting
from emu.testing.vectors.definition import answered, with_flags_of

HALF = {"operation": "subtract", "formats": ["fp16", "fp16"], "out_format": "fp16", "count": 300}
FIXED = {"operation": "add", "formats": ["fix8f4", "fix8f6"], "out_format": "fix8f4", "count": 200}
DOT = {"operation": "matmul", "formats": ["fix8f4", "fix8f4"], "out_format": "fix16f8", "depth": 4, "count": 60}


def folder_of(path: Path, **description: object) -> Path:
    write_vectors(make_vectors(Description.model_validate(description)), path)
    return path


def lines_of(folder: Path, name: str = "result.hex") -> list[str]:
    return (folder / name).read_text().split("\n")[:-1]


def dump(folder: Path, lines: list[str], name: str = "dump.hex") -> Path:
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder / name


# ---- undriven --------------------------------------------------------------------------------------------------------


def test_results_that_were_never_driven_are_counted_with_the_first_ones_operands(tmp_path: Path):
    folder = folder_of(tmp_path, **FIXED)
    for name, code in (("a", "19"), ("b", "07"), ("result", "1b"), ("flags", "01")):
        dump(folder, [code] * 200, f"{name}.hex")
    lines = ["1b"] * 200
    lines[3], lines[9], lines[10] = "xx", "1z", "zz"
    finding = check_dump(folder, dump(folder, lines))
    assert finding is not None
    assert finding.lines == (
        "3 results were never driven (x), first at vector 3:",
        "  a         0x19  0 001.1001  1.5625",
        "  b         0x07  0 0.000111  0.109375",
        "  expected  0x1b  0 001.1011  1.6875",
        "every other result is right: 197 of 200",
    )
    assert (finding.undriven, finding.wrong, finding.index, finding.alignment) == (3, 0, None, None)
    lines[5] = "1a"
    finding = check_dump(folder, dump(folder, lines))
    assert finding is not None
    assert finding.lines[4] == "1 of 197 results differ, the first at vector 5:"
    assert (finding.wrong, finding.count, finding.index) == (1, 197, 5)


def test_what_was_never_driven_contradicts_no_cause(tmp_path: Path):
    """Subnormals flushed to zero, in a dump of which three of four results are x."""
    folder = folder_of(tmp_path, **{**HALF, "count": 600})
    codes = [int(word, 16) for word in lines_of(folder)]
    flushed = [code if code & 0x7C00 else code & 0x8000 for code in codes]
    finding = check_dump(folder, dump(folder, ["x" if i % 4 else f"{code:04x}" for i, code in enumerate(flushed)]))
    assert finding is not None
    assert finding.undriven == 450
    assert finding.causes[0] == "subnormal results flushed to zero"


def test_flags_that_were_never_driven_are_counted(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    rows = [f"{code} {flags}" for code, flags in zip(lines_of(folder), lines_of(folder, "flags.hex"), strict=True)]
    rows[7] = rows[7][:4] + " xx"
    finding = check_dump(folder, dump(folder, rows))
    assert finding is not None
    assert finding.lines[0] == "1 flag was never driven (x), first at vector 7:"
    assert finding.lines[-1] == "every result that is there is right: 300 of 300"


def test_a_dump_that_was_never_driven_at_all_is_a_verdict(tmp_path: Path):
    folder = folder_of(tmp_path, **FIXED)
    finding = check_dump(folder, dump(folder, ["xx"] * 200))
    assert finding is not None
    assert finding.lines[0] == "200 results were never driven (x), first at vector 0:"
    assert finding.lines[-1] == "no result could be compared"


# ---- lengths and shifts ----------------------------------------------------------------------------------------------


def test_lost_lines_are_named_and_what_is_left_is_compared(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    lines = lines_of(folder)
    kept = [line for i, line in enumerate(lines) if i % 7 != 6]
    finding = check_dump(folder, dump(folder, kept))
    assert finding is not None
    assert finding.lines == (
        "42 lines fewer than vectors: dropped: every 7th result, the first is that of vector 6",
        "with every line at its vector, every result that is there is right: 258 of 300",
    )
    assert (finding.lines_given, finding.vectors, finding.wrong) == (258, 300, 0)
    kept[60] = "1234"  # that of vector 70
    finding = check_dump(folder, dump(folder, kept))
    assert finding is not None
    assert finding.lines[1] == "with every line at its vector, 1 of 258 results differ, the first at vector 70:"
    assert (finding.wrong, finding.index) == (1, 70)
    assert finding.causes[0] == finding.alignment == "dropped: every 7th result, the first is that of vector 6"


@pytest.mark.parametrize(("change", "text"), [
    (lambda lines: lines[:-2], "2 lines fewer than vectors: lost at the end: the last 2 results"),
    (lambda lines: lines[1:], "1 line fewer than vectors: lost at the start: the first result"),
    (lambda lines: [*lines, "0000"], "1 line more than vectors: one line too many at the end"),
    (lambda lines: [*lines[:20], *lines[19:]],
     "1 line more than vectors: duplicated: the result of vector 19 stands twice"),
    (lambda lines: ["xxxx"] * 3 + lines[:-3],
     "as many lines as vectors, but out of step: every result 3 lines too late"),
    (lambda lines: lines[5:] + ["xxxx"] * 5,
     "as many lines as vectors, but out of step: every result 5 lines too early"),
])  # fmt: skip
def test_every_length_and_shift_is_a_verdict(change, text: str, tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    lines = lines_of(folder)
    lines[17:22] = ["3c01", "3c02", "3c03", "3c04", "3c05"]
    dump(folder, lines, "result.hex")
    finding = check_dump(folder, dump(folder, change(lines)))
    assert finding is not None
    assert finding.lines[0] == text
    assert finding.wrong == 0
    assert finding.undriven == 0


def test_a_length_that_nothing_explains_is_compared_as_it_stands(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    noise = np.random.default_rng(3).integers(0, 0x7C00, 290)
    finding = check_dump(folder, dump(folder, [f"{code:04x}" for code in noise]))
    assert finding is not None
    assert finding.lines[0] == (
        "10 lines fewer than vectors, 290 of 300; nothing says which: the first 290 are compared as they stand"
    )
    assert finding.alignment is None
    assert finding.count == 290


# ---- operand columns -------------------------------------------------------------------------------------------------


def test_operands_that_are_not_those_of_the_vectors_are_an_error_that_says_where(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    lines = lines_of(folder, "vectors.txt")
    assert check_dump(folder, dump(folder, lines, "lines.txt")) is None
    words = lines[12].split()
    wanted = words[1]
    words[1] = f"{int(wanted, 16) ^ 1:04X}"
    path = dump(folder, [*lines[:12], " ".join(words), *lines[13:]], "lines.txt")
    with pytest.raises(ConfigError) as caught:
        check_dump(folder, path)
    assert str(caught.value) == (
        f"operand b of vector 12 must be 0x{wanted.lower()}, got 0x{words[1].lower()} in {path}, as in 1 of 300 lines; "
        "name the folder of these vectors, or judge the dump by itself with --op"
    )
    with pytest.raises(ConfigError, match=r"operand a of vector 12 must be 0x[0-9a-f]{4}, got x in .*, as in 1 of 300"):
        check_dump(folder, dump(folder, [*lines[:12], "xxxx" + lines[12][4:], *lines[13:]], "lines.txt"))


def test_operands_say_which_lines_were_lost_whatever_the_results_are(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    lines = lines_of(folder, "vectors.txt")
    del lines[20]
    lines[30] = lines[30][:10] + "1234" + lines[30][14:]
    finding = check_dump(folder, dump(folder, lines, "lines.txt"))
    assert finding is not None
    assert finding.lines[0] == "1 line fewer than vectors: dropped: the result of vector 20"
    assert finding.lines[1] == "with every line at its vector, 1 of 299 results differ, the first at vector 31:"


def test_operands_of_a_table_are_compared_as_well(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    rows = [line.split() for line in lines_of(folder, "vectors.txt")]
    table = ["time,y,op1,op2", *(f"{i},{row[2]},{row[0]},{row[1]}" for i, row in enumerate(rows))]
    reading = Reading(columns="result=y,a=op1,b=op2")
    assert check_dump(folder, dump(folder, table, "dump.csv"), reading=reading) is None
    with pytest.raises(ConfigError, match=r"operand a of vector 0 must be 0x.*, got 0x.*, as in \d+ of 300 lines"):
        check_dump(folder, tmp_path / "dump.csv", reading=Reading(columns="result=y,a=op2,b=op1"))
    with pytest.raises(ConfigError, match=r"a column of .* must be the result, got a, b; add --columns"):
        check_dump(folder, tmp_path / "dump.csv", reading=Reading(columns="a=op1,b=op2"))


def test_two_columns_are_a_result_and_its_flags_or_are_named(tmp_path: Path):
    folder = folder_of(tmp_path, operation="sqrt", formats=["fp16"], out_format="fp16", count=100)
    rows = [f"{a} {y}" for a, y in zip(lines_of(folder, "a.hex"), lines_of(folder), strict=True)]
    path = dump(folder, rows)
    with pytest.raises(
        ConfigError, match=r"flags must have at most 6 bits, got 0x[0-9a-f]+ in line \d+ of .*; say what the"
    ):
        check_dump(folder, path)
    assert check_dump(folder, path, reading=Reading(columns="a,result")) is None


def test_words_of_a_memory_follow_one_another_if_there_are_as_many_as_vectors(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    lines = lines_of(folder)
    rows = [" ".join(lines[i : i + 4]) for i in range(0, 300, 4)]
    assert check_dump(folder, dump(folder, rows, "image.hex")) is None
    wide = [" ".join(lines[i : i + 16]) for i in range(0, 300, 16)][:-1]  # and the last row is lost
    finding = check_dump(folder, dump(folder, wide, "image.hex"))
    assert finding is not None
    assert finding.lines[0] == "12 lines fewer than vectors: lost at the end: the last 12 results"
    with pytest.raises(
        ConfigError, match="must hold a result, a result and its flags, or 0 operands before them, got 3"
    ):
        check_dump(folder_of(tmp_path / "dot", **DOT), dump(tmp_path, ["1 2 3"] * 60, "three.hex"))


# ---- words wider than the format -------------------------------------------------------------------------------------


def test_words_with_the_sign_extended_are_the_formats_own(tmp_path: Path):
    folder = folder_of(tmp_path, **FIXED)
    codes = [int(word, 16) for word in lines_of(folder)]
    values = [code - 256 if code > 127 else code for code in codes]
    assert check_dump(folder, dump(folder, [f"{value & 0xFFFFF:05x}" for value in values])) is None
    assert check_dump(folder, dump(folder, [f"{value}" for value in values], "dump.dec")) is None
    assert check_dump(folder, dump(folder, [f"8'sd{value}" for value in values], "dump.txt")) is None
    some = [f"{value & 0xFFF:03x}" for value in values]
    some[3] = "1ff"
    with pytest.raises(
        ConfigError, match=r"every result must be a code of 8 bits, got 0x[0-9a-f]{3} in vector \d+ of .*; dump"
    ):
        check_dump(folder, dump(folder, some))
    with pytest.raises(ConfigError, match=r"every result must be a code of 8 bits, got 0x1ff in vector 0"):
        check_dump(folder, dump(folder, ["1ff", "fff"] * 100))  # both negative, and not by the same extension
    unsigned = folder_of(tmp_path / "unsigned", **FIXED | {"out_format": "ufix8f4"})
    with pytest.raises(ConfigError, match=r"every result must be a code of 8 bits, got 0xfff"):
        check_dump(unsigned, dump(unsigned, ["fff"] * 200))


# ---- folders: columns, lines, flags ----------------------------------------------------------------------------------


def test_a_folder_has_columns_and_lines_with_the_flags_of_ieee_754(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["layout"], manifest["flags"]) == ("emu vectors 2", "ieee")
    assert manifest["files"] == ["a.hex", "b.hex", "result.hex", "flags.hex", "vectors.txt"]
    rows = [line.lower().split() for line in lines_of(folder, "vectors.txt")]
    for i, name in enumerate(("a", "b", "result", "flags")):
        assert lines_of(folder, f"{name}.hex") == [row[i] for row in rows]
    assert read_vectors(folder).description.flag_rule == "ieee"


def test_folders_of_fixed_point_have_emus_flags_and_those_that_are_asked_for(tmp_path: Path):
    """256 is beyond 8 unsigned bits: an overflow for emu, an invalid conversion and nothing else for IEEE 754."""
    d = Description(operation="quantize", formats=("fp16",), out_format="ufix8f0", count=1)
    vectors = Vectors(d, (np.array([0x5C00], np.uint64),), None, np.array([0xFF], np.uint64), np.array([5], np.uint64))
    write_vectors(vectors, tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["flags"] == "emu"
    assert lines_of(tmp_path, "flags.hex") == ["05"]
    lines = lines_of(tmp_path, "vectors.txt")
    assert lines == ["5C00 FF 10"]
    assert check_dump(tmp_path, dump(tmp_path, lines, "vectors.txt")) is None
    other = check_dump(tmp_path, dump(tmp_path, lines, "lines.txt"))
    assert other is not None
    assert "IEEE 754's flags, which --flags ieee takes for right" in str(other)
    assert check_dump(tmp_path, dump(tmp_path, ["5c00 ff 05"], "lines.txt")) is None
    assert check_dump(tmp_path, dump(tmp_path, ["ff 05"])) is None
    assert check_dump(tmp_path, dump(tmp_path, ["ff 10"])) is not None
    write_vectors(with_flags_of("ieee", vectors), tmp_path)
    assert lines_of(tmp_path, "flags.hex") == ["10"]
    assert check_dump(tmp_path, dump(tmp_path, ["ff 10"])) is None
    with pytest.raises(ConfigError, match=r"`flags` must be ieee or emu, got 'iee'; did you mean 'ieee'\?"):
        Description(operation="quantize", formats=("fp16",), out_format="ufix8f0", flags="iee")


def test_a_smallest_normal_that_was_tiny_underflows_in_the_flags_of_ieee_754_alone(tmp_path: Path):
    """fp32 to fp16: 387fe000 is tiny after rounding, though 0400 is written."""
    d = Description(operation="quantize", formats=("fp32",), out_format="fp16", count=1)
    vectors = answered(d, (np.array([0x387FE000], np.uint64),), None)
    write_vectors(vectors, tmp_path / "ieee")
    assert lines_of(tmp_path / "ieee", "flags.hex") == ["03"]
    write_vectors(with_flags_of("emu", vectors), tmp_path / "emu")
    assert lines_of(tmp_path / "emu", "flags.hex") == ["01"]


def test_flags_of_products_have_the_accumulators_overflow_and_signalling_nans_of_every_term(tmp_path: Path):
    """1 + 1 and an overflow that the accumulator has seen; 1 + a signalling NaN; 1 + a quiet one."""
    table = {"operation": "matmul", "formats": ("fp16", "fp16"), "out_format": "fp16", "depth": 2, "count": 3}
    d = Description.model_validate({**table, "mac": {"accumulator": "fp16"}})
    ones = np.full((3, 2), 0x3C00, np.uint64)
    factors = ones.copy()
    factors[1:, 1] = 0x7C01, 0x7E01
    factors[0] = 0x7BFF, 0x7BFF
    write_vectors(answered(d, (factors, ones), None), tmp_path)
    assert lines_of(tmp_path, "flags.hex") == ["20", "10", "00"]
    assert read_vectors(tmp_path).flags.tolist() == [32, 16, 0]


def test_a_style_may_be_left_out_or_chosen(tmp_path: Path):
    vectors = make_vectors(Description.model_validate(HALF))
    names = {
        style: sorted(path.name for path in write_vectors(vectors, tmp_path / style, style))
        for style in ("both", "hex", "testfloat")
    }
    columns = ["a.hex", "b.hex", "flags.hex", "result.hex"]
    columns = ["cells.txt", *columns]
    assert names["hex"] == sorted([*columns, "manifest.json"])
    assert names["testfloat"] == ["cells.txt", "manifest.json", "vectors.txt"]
    assert names["both"] == sorted([*columns, "manifest.json", "vectors.txt"])
    for style in names:
        read = read_vectors(tmp_path / style)
        assert np.array_equal(read.results, vectors.results)
        assert read.description.flag_rule == "ieee"
    products = make_vectors(Description.model_validate(DOT))
    assert "vectors.txt" not in [path.name for path in write_vectors(products, tmp_path / "dot")]
    with pytest.raises(ConfigError, match="TestFloat's lines must hold operands, result and flags, got products"):
        write_vectors(products, tmp_path / "dot", "testfloat")
    with pytest.raises(ConfigError, match="`style` must be both, hex or testfloat, got 'hx'; did you mean 'hex'"):
        write_vectors(products, tmp_path / "dot", "hx")


@pytest.mark.parametrize("style", ["hex", "testfloat"])
def test_a_folder_of_the_earlier_layout_means_what_it_meant(style: str, tmp_path: Path):
    """387fe000 to fp16: columns had emu's flags, lines IEEE 754's."""
    d = Description(operation="quantize", formats=("fp32",), out_format="fp16", count=2)
    texts = {"a.hex": "387fe000\n00000000\n", "result.hex": "0400\n0000\n", "flags.hex": "01\n00\n"}
    if style == "testfloat":
        texts = {"vectors.txt": "387FE000 0400 03\n00000000 0000 00\n"}
    manifest = {"layout": "emu vectors 1", "style": style, "description": d.model_dump(mode="json"), "files": [*texts]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    vectors = read_vectors(tmp_path)
    assert (vectors.description.flag_rule, vectors.flags.tolist()) == (
        ("emu", [1, 0]) if style == "hex" else ("ieee", [3, 0])
    )
    assert check_dump(tmp_path, dump(tmp_path, [f"0400 {1 if style == 'hex' else 3}", "0 0"], "d.hex")) is None
    assert check_dump(tmp_path, dump(tmp_path, ["0400 2", "0 0"], "d.hex")) is not None


# ---- operands that somebody else drew --------------------------------------------------------------------------------


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    return done.exit_code, done.output


def test_operands_of_others_are_judged_by_the_definition(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    unit = ("--op", "subtract", "--formats", "fp16,fp16", "--out-format", "fp16")
    operands = f"{folder / 'a.hex'},{folder / 'b.hex'}"
    code, text = run("check", folder / "result.hex", "--operands", operands, *unit)
    assert (code, text.splitlines()[0]) == (0, f"{folder / 'result.hex'}: every result is right, bit for bit")
    code, text = run("check", folder / "vectors.txt", *unit)
    assert (code, text.splitlines()[0]) == (
        0, f"{folder / 'vectors.txt'}: every result and every flag is right, bit for bit"
    )  # fmt: skip
    lines = lines_of(folder)
    lines[40] = "1234"
    by_folder = run("check", folder, dump(folder, lines))
    assert by_folder[0] == 1
    assert run("check", folder / "dump.hex", "--operands", operands, *unit) == by_folder
    code, text = run("check", folder / "result.hex", "--operands", operands, *unit, "--rounding", "toward_zero")
    assert (code, "looks like rounding nearest_even instead of toward_zero" in text) == (1, True)


def test_operands_in_a_table_and_products_with_terms_are_judged(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    table = ["a;b", *(f"{a};{b}" for a, b in zip(lines_of(folder, "a.hex"), lines_of(folder, "b.hex"), strict=True))]
    path = dump(folder, table, "stimuli.csv")
    vectors = vectors_of({key: value for key, value in HALF.items() if key != "count"}, [path])
    assert np.array_equal(vectors.results, read_vectors(folder).results)
    assert np.array_equal(vectors.flags, read_vectors(folder).flags)
    dot = folder_of(tmp_path / "dot", **DOT)
    unit = ("--op", "matmul", "--formats", "fix8f4,fix8f4", "--out-format", "fix16f8", "--depth", "4")
    operands = f"{dot / 'a.hex'},{dot / 'b.hex'}"
    assert run("check", dot / "result.hex", "--operands", operands, *unit)[0] == 0
    wrapping = run("check", dot / "result.hex", "--operands", operands, *unit, "--accumulator", "fix10f8")
    assert wrapping[0] == 1


def test_an_operand_is_the_column_of_its_name_in_a_table_of_its_own(tmp_path: Path):
    unit = {"operation": "quantize", "formats": ["fp32"], "out_format": "fp16"}
    path = dump(tmp_path, ["time,a,result,flags", "1,3f800000,3c00,00", "2,3f801001,3c01,01"], "log.csv")
    assert vectors_of(unit, [path]).operands[0].tolist() == [0x3F800000, 0x3F801001]
    lines = dump(tmp_path, ["3F800000 3C00 00", "3F801001 3C01 01"], "vectors.txt")
    assert vectors_of(unit, [lines]).operands[0].tolist() == [0x3F800000, 0x3F801001]
    other = dump(tmp_path, ["b,result", "3f800000,3c00"], "other.csv")
    with pytest.raises(ConfigError, match=r"a column of .*other.csv must be called a, got b, result; name it, or give"):
        vectors_of(unit, [other])


def test_flags_that_were_never_driven_count_neither_way(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    flags = lines_of(folder, "flags.hex")
    place = next(i for i, word in enumerate(flags) if int(word, 16))
    lines = [
        f"{y} {'xx' if i == place else word}" for i, (y, word) in enumerate(zip(lines_of(folder), flags, strict=True))
    ]
    finding = check_dump(folder, dump(folder, lines))
    assert finding is not None
    assert finding.lines[0] == f"1 flag was never driven (x), first at vector {place}:"
    assert finding.lines[-1] == f"every result that is there is right: {HALF['count']} of {HALF['count']}"


def test_of_two_lines_of_a_vector_the_first_counts(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    twice = [code for code in lines_of(folder) for _ in range(2)]
    for place, wrong in ((15, 0), (14, 1)):
        changed = [*twice[:place], f"{int(twice[place], 16) ^ 1:04x}", *twice[place + 1 :]]
        finding = check_dump(folder, dump(folder, changed))
        assert finding is not None
        assert (finding.alignment, finding.wrong) == ("every result stands 2 times", wrong)


@pytest.mark.parametrize(
    ("fmt", "words", "codes"),
    [
        ("fix8f4", [0xFFF0, 0x10], [0xF0, 0x10]),
        ("fix8f4", [0xFFF0, 0xFF80], [0xF0, 0x80]),
        ("fp16", [0xFFFFBC00, 0x3C00], [0xBC00, 0x3C00]),
        # signs that are extended by different numbers of bits, by a part, of words that have none
        ("fix8f4", [0xFFF0, 0x1F0], None),
        ("fix8f4", [0x2F0], None),
        ("fix8f4", [0xFFF0, 0xF0], None),
        ("ufix8f4", [0xFFF0], None),
        ("smfix8f4", [0xFFF0], None),
    ],
)
def test_a_word_is_cut_only_if_its_sign_is_extended_in_every_line_alike(fmt: str, words: list[int], codes: list[int]):
    column = Column(np.array(words, np.uint64), np.zeros(len(words), bool))
    if codes is not None:
        assert fitting(column, emu.parse(fmt), "result", "dump").tolist() == codes
        return
    with pytest.raises(ConfigError, match=r"every result must be a code of 8 bits, got 0x.* of dump; dump"):
        fitting(column, emu.parse(fmt), "result", "dump")


def test_files_and_folders_may_be_named_by_texts(tmp_path: Path):
    folder = str(folder_of(tmp_path, **HALF))
    assert check_dump(folder, f"{folder}/result.hex") is None
    assert len(read_dump(f"{folder}/result.hex")) == HALF["count"]
    unit = {key: value for key, value in HALF.items() if key != "count"}
    given = vectors_of(unit, [f"{folder}/a.hex", f"{folder}/b.hex"])
    assert np.array_equal(given.results, read_vectors(folder).results)
    assert write_vectors(given, f"{folder}/again")[0] == Path(folder) / "again" / "a.hex"
    assert vectors_of(unit, f"{folder}/vectors.txt").description.count == HALF["count"]


def test_columns_of_operands_may_be_signed_numbers_as_results_may(tmp_path: Path):
    folder = folder_of(tmp_path, **FIXED | {"formats": ["fix8f4", "fix8f4"]})
    read = read_vectors(folder)
    numbers = [codes.astype(np.uint8).view(np.int8).tolist() for codes in (*read.operands, read.results)]
    rows = [f"{a},{b},{y}" for a, b, y in zip(*numbers, strict=True)]
    assert check_dump(folder, dump(folder, ["a,b,result", *rows], "signed.csv")) is None
    with pytest.raises(ConfigError, match="every operand a must be a code of 8 bits, got 0x100 in vector 0 of"):
        check_dump(folder, dump(folder, ["a,b,result", f"256,{rows[0].partition(',')[2]}", *rows[1:]], "wide.csv"))


def test_random_bits_of_others_are_read(tmp_path: Path):
    folder = folder_of(tmp_path, **FIXED | {"rounding": "stochastic", "n_rbits": 8})
    unit = ("--op", "add", "--formats", "fix8f4,fix8f6", "--out-format", "fix8f4", "--rounding", "stochastic",
            "--n-rbits", "8", "--operands", f"{folder / 'a.hex'},{folder / 'b.hex'}")  # fmt: skip
    assert run("check", folder / "result.hex", *unit, "--rbits", folder / "rbits.hex")[0] == 0
    path = dump(folder, ["100", *lines_of(folder, "rbits.hex")[1:]], "wide.hex")
    with pytest.raises(ConfigError, match=r"random bits must have 8 bits, got more in .*wide.hex; give --n-rbits"):
        run("check", folder / "result.hex", *unit, "--rbits", path)
    few = dump(folder, lines_of(folder, "rbits.hex")[1:], "few.hex")
    with pytest.raises(ConfigError, match=r"random bits must be 200 words, one per vector, got 199 in .*few.hex"):
        run("check", folder / "result.hex", *unit, "--rbits", few)
    with pytest.raises(ConfigError, match="stochastic rounding must have random bits, got none; add --rbits FILE"):
        run("check", folder / "result.hex", *unit)


def test_every_option_of_reading_is_an_option_of_the_command(tmp_path: Path):
    """Results and flags in a waveform with a handshake, and in a table of decimal words."""
    folder = folder_of(tmp_path, **HALF)
    vectors = read_vectors(folder)
    rows = list(zip(vectors.results.tolist(), vectors.flags.tolist(), strict=True))
    names = {"!": ("clk", 1), "v": ("valid", 1), "r": ("ready", 1), "y": ("y", 16), "f": ("flags", 5)}
    wave = ["$scope module tb $end"]
    wave += [f"$var wire {bits} {key} {name} $end" for key, (name, bits) in names.items()]
    wave += ["$upscope $end $enddefinitions $end", "#0 0! 1v 1r"]
    for i, (code, flags) in enumerate(rows):
        wave.append(f"#{20 * i + 5} 0! b{code:b} y b{flags:b} f 1v 1r #{20 * i + 10} 1!")
        wave.append(f"#{20 * i + 15} 0! bx y {i % 2}v {1 - i % 2}r #{20 * i + 20} 1!")
    dump(folder, wave, "wave")
    signals = ("--signal", "tb.y", "--flags-signal", "flags", "--clock", "clk", "--valid", "valid", "--ready", "ready")
    code, text = run("check", folder, folder / "wave", "--dump-format", "vcd", *signals)
    assert (code, text.splitlines()[0]) == (0, f"{folder / 'wave'}: every result and every flag is right, bit for bit")
    dump(folder, ["y;n", *(f"{code};{flags}" for code, flags in rows)], "words")
    assert run("check", folder, folder / "words", "--radix", "decimal", "--columns", "result=y,flags=n")[0] == 0
    assert run("check", folder, folder / "words", "--radix", "decimal", "--columns", "result=n")[0] == 1
    flags = dump(folder, [f"{code:04x} {flags:02x}" for code, flags in rows])
    unit = ("--op", "subtract", "--operands", f"{folder / 'a.hex'},{folder / 'b.hex'}", "--formats", "fp16,fp16",
            "--out-format", "fp16")  # fmt: skip
    assert run("check", flags, *unit)[0] == 0
    assert run("check", flags, *unit, "--flags", "emu")[0] == 1


#: Options beside the dump of a folder of HALF, and what is said.
REFUSED = [
    (["--formats", "fp16"], "`--formats` must stand beside --op, got it without; a folder says this by itself"),
    (["--rounding", "floor"], "`--rounding` must stand beside --op, got it without"),
    (["--op", "add", "--formats", "fp16,fp16"], "`--out-format` must be given unless `--device` is, got nothing"),
    (["--op", "add", "--formats", "fp16,fp16", "--out-format", "fp16"], "operand a must be in {}/dump.hex, or in a "
     "file of --operands, got it in neither; add it"),
    (["--op", "add", "--formats", "fp16,fp16", "--out-format", "fp16", "--operands", "{}/a.hex,{}/b.hex,{}/b.hex"],
     "`--operands` must name a file for each of 2 operands, or one with a column for each, got 3 files"),
    (["--op", "add", "--formats", "fp16,fp16", "--out-format", "fp16", "--operands", "{}/a.hex,{}/short.hex"],
     "operand b must have 300 words, for 300 vectors as in {}/a.hex, got 2 in {}/short.hex; dump as many"),
    (["--op", "add", "--formats", "fp16,fp16", "--out-format", "fp16", "--operands", "{}/a.hex,{}/x.hex"],
     "operand b must be driven in every vector, got x in word 1 of {}/x.hex; drive it"),
    (["--op", "add", "--formats", "fp16,fp8_e5m2", "--out-format", "fp16", "--operands", "{}/a.hex,{}/b.hex"],
     "every operand b must be a code of 8 bits, got 0x"),
    (["--op", "add", "--formats", "fp16,fp16", "--out-format", "fp16", "--rbits", "{}/a.hex", "--operands",
      "{}/a.hex,{}/b.hex"], "`--rbits` is of stochastic rounding, got it for nearest_even; leave it out"),
    (["--op", "ad", "--formats", "fp16,fp16", "--out-format", "fp16"], "did you mean 'add'?"),
    (["--clock", "clk"], "`--clock` must be of a format that uses it (vcd, fst, ghw), got it for {}/dump.hex"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=range(len(REFUSED)))
def test_options_that_do_not_fit_are_refused(options: list[str], message: str, tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    dump(folder, lines_of(folder))
    dump(folder, ["3c00", "4000"], "short.hex")
    dump(folder, ["3c00", "x"] * 150, "x.hex")
    words = [option.replace("{}", str(folder)) for option in options]
    target = [folder / "dump.hex"] if "--op" in words else [folder]
    with pytest.raises(ConfigError) as caught:
        run("check", *target, *words)
    assert message.replace("{}", str(folder)) in str(caught.value)


def test_a_folder_and_a_file_are_not_mistaken_for_each_other(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    with pytest.raises(
        ConfigError, match="must be a folder of vectors, got a file; add the folder, or --op and --operands"
    ):
        run("check", folder / "result.hex")
    with pytest.raises(ConfigError, match=r"`--op` must stand without a folder, got .* beside .*; name the dump alone"):
        run("check", folder, folder / "result.hex", "--op", "add")
    with pytest.raises(
        ConfigError, match=r"a dump must be a file, a line per vector, got '.*dump.hex', which does not"
    ):
        run("check", folder)


def test_the_data_of_a_verdict_say_what_its_text_says(tmp_path: Path):
    folder = folder_of(tmp_path, **HALF)
    lines = lines_of(folder)
    lines[8] = "xxxx"
    code, text = run("check", folder, dump(folder, lines[:-1]), "--json")
    data = json.loads(text)
    assert code == 1
    assert {key: value for key, value in data.items() if key != "explanation"} == {
        "is_right": False, "wrong": 0, "wrong_scales": 0, "results": 300, "first_wrong": None, "lines": 299,
        "vectors": 300, "undriven": 1, "alignment": "lost at the end: the last result",
        "causes": ["lost at the end: the last result"], "register": [], "tells": [],
    }  # fmt: skip
    assert data["explanation"][0] == "1 line fewer than vectors: lost at the end: the last result"
