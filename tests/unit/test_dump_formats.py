"""Every format of dumps, by a file of its kind, and what is said about each damaged one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from emu.errors import ConfigError
from emu.testing.vectors import Dump, Reading, read_dump
from emu.testing.vectors.dumps import READERS
from emu.testing.vectors.dumps.dump import roles_of

X = None


def dump_of(folder: Path, name: str, text: str, **options: object) -> Dump:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_dump(path, Reading(**options))  # type: ignore[arg-type]


def column(dump: Dump, name: str = "1") -> list[int | None]:
    codes, mask = dump.columns[name].tolist(), dump.undriven[name].tolist()
    assert all(code == 0 for code, undriven in zip(codes, mask, strict=True) if undriven)
    return [None if undriven else code for code, undriven in zip(codes, mask, strict=True)]


#: Text as it stands in a file, options, and its words.
TEXTS: dict[str, tuple[str, dict[str, object], list[int | None]]] = {
    "a word a line": ("3c00\n4000\n7bff\n", {}, [0x3C00, 0x4000, 0x7BFF]),
    "windows": ("3c00\r\n4000\r\n", {}, [0x3C00, 0x4000]),
    "comments": ("// of\n3c00 // a\n/* 1\n 2 */ 4000\n# c\n\n7bff\n", {}, [0x3C00, 0x4000, 0x7BFF]),
    "as many words as vectors, one in the first line": ("3c00\n4000 7bff\n", {"count": 3}, [0x3C00, 0x4000, 0x7BFF]),
    "a comment between words": ("3c00/**/4000\n", {"count": 2}, [0x3C00, 0x4000]),
    "underscores": ("3c_00\n4_0_0_0\n", {}, [0x3C00, 0x4000]),
    "undriven": ("3cxx\nzzzz\nXXXX\n3c0?\nUUUU\nWWWW\n----\n1-00\n4000\n", {}, [X] * 8 + [0x4000]),
    "binary": ("0011_1100\n1111xxxx\n", {"radix": "binary"}, [0x3C, X]),
    "weak bits of VHDL": ("LLHH\nLLHX\n", {"radix": "binary"}, [3, X]),
    "octal": ("17\n7x\n", {"radix": "octal"}, [0o17, X]),
    "decimal": ("15360\n-1\nx\n0\n", {}, [15360, 2**64 - 1, X, 0]),
    "decimal without a sign": ("15360\n16\n", {"radix": "decimal"}, [15360, 16]),
    "two minus signs cancel": ("-8'sd-3\n8'd1\n", {}, [3, 1]),
    "sized": ("16'h3c00\n8'sd3\n8'sd-3\n-8'sd3\n32'b1010_0101\n'hff\n12'o17\n16'hxxxx\n4'd1z\n", {},
              [0x3C00, 3, 253, 253, 0xA5, 0xFF, 0o17, X, X]),
    "VHDL literals": ('x"3C00"\n16x"3c00"\nb"0011"\nX"3_C"\nx"UU"\n', {}, [0x3C00, 0x3C00, 3, 0x3C, X]),
    "a prefix that every word has": ("0x3c00\n0X10\n", {}, [0x3C00, 16]),
    "a nibble that nobody drives is no prefix": ("0x12\n3c00\n", {}, [X, 0x3C00]),
    "64 bits": ("ffffffffffffffff\n", {}, [2**64 - 1]),
    "the same in every radix": ("1\n0\n0\n1\n", {}, [1, 0, 0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_read_as_readmemh_reads_it(kind: str, tmp_path: Path):
    text, options, words = TEXTS[kind]
    dump = dump_of(tmp_path, "dump.txt", text, **options)
    assert column(dump, *dump.columns) == words
    assert len(dump) == len(words)


def test_addresses_say_where_words_stand_and_gaps_were_never_driven(tmp_path: Path):
    text = "@10 3c00 4000 @14\n4400\n/* @00 */ @15 4500 // last\n@11 4001\n"
    dump = dump_of(tmp_path, "dump.txt", text)
    assert column(dump, "result") == [0x3C00, 0x4001, X, X, 0x4400, 0x4500]
    downward = dump_of(tmp_path, "dump.txt", "@3 3c00\n@1 4000\n@2 4400\n")
    assert column(downward, "result") == [0x4000, 0x4400, 0x3C00]


def test_words_with_addresses_are_results_whose_column_may_be_said(tmp_path: Path):
    dump = dump_of(tmp_path, "a.hex", "@0 3c00 1\n4000\n", columns="result")
    assert column(dump, "result") == [0x3C00, 1, 0x4000]


def test_words_beside_each_other_are_columns_or_follow_one_another(tmp_path: Path):
    text = "3c00 01\n4000 00\n4400 05\n"
    columns = dump_of(tmp_path, "dump.txt", text, count=3)
    assert (column(columns), column(columns, "2")) == ([0x3C00, 0x4000, 0x4400], [1, 0, 5])
    assert column(dump_of(tmp_path, "dump.txt", text, count=6), "result") == [0x3C00, 1, 0x4000, 0, 0x4400, 5]
    assert len(dump_of(tmp_path, "dump.txt", text, columns="result")) == 6
    named = dump_of(tmp_path, "dump.txt", text, columns="_,result")
    assert column(named, "result") == [1, 0, 5]
    assert column(dump_of(tmp_path, "dump.txt", text, columns="result,_"), "result") == [0x3C00, 0x4000, 0x4400]
    ragged = dump_of(tmp_path, "dump.txt", "3c00 1 2 3\n4 5\n", count=6)
    assert column(ragged, "result") == [0x3C00, 1, 2, 3, 4, 5]


def test_a_last_line_that_was_cut_was_never_driven(tmp_path: Path):
    dump = dump_of(tmp_path, "dump.txt", "3c00 01\n4000 00\n44")
    assert (column(dump), column(dump, "2")) == ([0x3C00, 0x4000, 0x44], [1, 0, X])


@pytest.mark.parametrize(("ending", "words"), [
    (".hex", [0x10, 0x11]), (".memh", [0x10, 0x11]), (".bin", [2, 3]), (".memb", [2, 3]), (".dec", [10, 11]),
])  # fmt: skip
def test_the_end_of_a_name_says_the_radix_where_no_word_does(ending: str, words: list[int], tmp_path: Path):
    assert column(dump_of(tmp_path, f"dump{ending}", "10\n11\n")) == words


def test_a_radix_that_is_not_certain_is_asked_for(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        dump_of(tmp_path, "dump.txt", "1\n10\n")
    assert str(caught.value).startswith("the radix of words must be certain, got words without a letter in ")
    assert str(caught.value).endswith(", such as '10'; add --radix hex or --radix decimal or --radix binary")
    with pytest.raises(ConfigError, match=r"such as '12'; add --radix hex or --radix decimal$"):
        dump_of(tmp_path, "dump.txt", "1\n12\n")
    with pytest.raises(ConfigError, match=r"such as '0101_1010'; add --radix hex or"):
        dump_of(tmp_path, "dump.txt", "0101_1010\n")


MIF = """-- results
WIDTH = 16; DEPTH = 8; % of a memory %
ADDRESS_RADIX = DEC; DATA_RADIX = HEX;
CONTENT BEGIN
  0 : 3c00;
  [1..3] : 4000 XXXX;   -- in turn
  4 : 7c00
      7e00;
END;
"""
COE = """; results
memory_initialization_radix = 10;
memory_initialization_vector =
15360, 16384,
; in between
-1;
"""
QUESTA = """// memory data file (do not edit the following line - required for mem load use)
// instance=/tb/results
// format=mti addressradix=d dataradix=h version=1.0 wordsperline=4
  0: 3c00 4000 xxxx 7c00
 10: 7e00
"""


def test_memory_initialization_files_are_read(tmp_path: Path):
    assert column(dump_of(tmp_path, "a.mif", MIF), "result") == [0x3C00, 0x4000, X, 0x4000, 0x7C00, 0x7E00]
    binary = MIF.replace("DEC", "BIN").replace("[1..3] : 4000 XXXX", "1 : 4000").replace(" 4 :", " 10 :")
    assert column(dump_of(tmp_path, "b.mif", binary), "result") == [0x3C00, 0x4000, 0x7C00, 0x7E00]


def of_decimals(words: str, radix: str = "DEC") -> str:
    return f"WIDTH = 8; DEPTH = 4; ADDRESS_RADIX = DEC; DATA_RADIX = {radix}; CONTENT BEGIN 0 : {words}; END;\n"


def test_negative_decimal_words_of_mif_are_within_the_width(tmp_path: Path):
    codes = column(dump_of(tmp_path, "a.mif", of_decimals("-1 -128 127 255")), "result")
    assert codes == [2**64 - 1, 2**64 - 128, 127, 255]
    for words, radix in (("-129", "DEC"), ("256", "DEC"), ("-9223372036854775808", "DEC"), ("-1", "UNS")):
        with pytest.raises(ConfigError, match="must have WIDTH = 8 bits"):
            dump_of(tmp_path, "b.mif", of_decimals(words, radix))


def test_coefficient_files_are_read(tmp_path: Path):
    assert column(dump_of(tmp_path, "a.coe", COE), "result") == [15360, 16384, 2**64 - 1]
    spaces = "memory_initialization_radix=16;\nmemory_initialization_vector=\n3c00\n4000 XXXX;\n"
    assert column(dump_of(tmp_path, "a.coe", spaces), "result") == [0x3C00, 0x4000, X]
    # many generators write the last semicolon into a line of its own
    for end in ("\n;", "\n ;\n\n"):
        alone = spaces.removesuffix(";\n") + end
        assert column(dump_of(tmp_path, "a.coe", alone), "result") == [0x3C00, 0x4000, X]


def test_memory_files_of_questa_are_read(tmp_path: Path):
    words = column(dump_of(tmp_path, "a.mem", QUESTA), "result")
    assert words == [0x3C00, 0x4000, X, 0x7C00, *[X] * 6, 0x7E00]
    unsigned = QUESTA.replace("dataradix=h", "dataradix=u").replace("addressradix=d", "addressradix=h")
    for old, new in (("3c00 4000 xxxx 7c00", "15360 7 x 8"), (" 10: 7e00", " 4: 9")):
        unsigned = unsigned.replace(old, new)
    assert column(dump_of(tmp_path, "a.mem", unsigned), "result") == [15360, 7, X, 8, 9]
    without = re.sub(r" +\d+: ", "", QUESTA)
    assert column(dump_of(tmp_path, "a.mem", without), "result") == [0x3C00, 0x4000, X, 0x7C00, 0x7E00]
    as_text = QUESTA.replace("format=mti", "format=hex").replace("  0:", "@0").replace(" 10:", "@4")
    assert column(dump_of(tmp_path, "a.mem", as_text), "result") == [0x3C00, 0x4000, X, 0x7C00, 0x7E00]
    # the file says the radix of words without a letter, too
    for kind, words in (("hex", [0x1100, 0x4000]), ("bin", [0b1100, 0b0100])):
        text = QUESTA.replace("format=mti", f"format={kind}")[: QUESTA.index("  0:")]
        body = "@0 1100 4000\n" if kind == "hex" else "@0 1100 0100\n"
        assert column(dump_of(tmp_path, "a.mem", text + body), "result") == words


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_tables_have_columns_by_name_and_by_position(separator: str, tmp_path: Path):
    lines = ["time,Result,a,b,flags", "5,3c00,4000,4001,01", "15,xxxx,1,2,", "", "# note", "25,7e00,3,4,10"]
    text = "\n".join(line if line.startswith("#") else line.replace(",", separator) for line in lines)
    dump = dump_of(tmp_path, "dump.tsv", text)
    assert {name: column(dump, name) for name in dump.columns} == {
        "result": [0x3C00, X, 0x7E00], "a": [0x4000, 1, 3], "b": [0x4001, 2, 4], "flags": [1, X, 16],
    }  # fmt: skip
    chosen = dump_of(tmp_path, "dump.tsv", text, columns="result=2,flags=5")
    assert list(chosen.columns) == ["result", "flags"]
    assert (column(chosen, "result"), column(chosen, "flags")) == ([0x3C00, X, 0x7E00], [1, X, 16])


def test_tables_without_names_have_positions(tmp_path: Path):
    dump = dump_of(tmp_path, "dump.csv", "3c00,01\n4000,00\n")
    assert (column(dump), column(dump, "2")) == ([0x3C00, 0x4000], [1, 0])
    assert column(dump_of(tmp_path, "dump.csv", "a,b,result\nc,d,e\n"), "result") == [14]
    assert column(dump_of(tmp_path, "dump.csv", '"result","flags"\n"3c00","00"\n'), "result") == [0x3C00]


def test_a_first_line_whose_words_are_taken_by_position_has_no_names(tmp_path: Path):
    for columns in ("result=2,flags=3", "_,result,flags"):
        dump = dump_of(tmp_path, "dump.csv", "10 ns,3c00,01\n20 ns,4000,00\n", columns=columns)
        assert (column(dump, "result"), column(dump, "flags")) == ([0x3C00, 0x4000], [1, 0])
        dump = dump_of(tmp_path, "dump.csv", "time,y,b\n20 ns,4a00,00\n", columns=columns)
        assert column(dump, "result") == [0x4A00]
    dump = dump_of(tmp_path, "dump.csv", "time,1,2\n20 ns,4a00,00\n", columns="result=1")
    assert column(dump, "result") == [0x4A00]


def test_a_column_with_a_prefix_says_nothing_about_another(tmp_path: Path):
    text = "result,flags\n0x3c00,16\n0x4000,1\n"
    with pytest.raises(ConfigError, match=r"the radix of words must be certain, .* such as '16'"):
        dump_of(tmp_path, "dump.csv", text)
    dump = dump_of(tmp_path, "dump.csv", text, radix="decimal")
    assert (column(dump, "result"), column(dump, "flags")) == ([0x3C00, 0x4000], [16, 1])


def test_a_binary_word_whose_second_digit_nobody_drove_is_no_prefix_of_its_column(tmp_path: Path):
    dump = dump_of(tmp_path, "dump.csv", "result,flags\n0x,00\n11,01\n10,01\n", radix="binary")
    assert (column(dump, "result"), column(dump, "flags")) == ([X, 3, 2], [0, 1, 1])
    dump = dump_of(tmp_path, "dump.csv", "result,flags\n0x,0x\n0x,01\n", radix="binary")
    assert (column(dump, "result"), column(dump, "flags")) == ([X, X], [X, 1])
    with pytest.raises(ConfigError, match=r"the radix of words must be certain, .* such as '11'"):
        dump_of(tmp_path, "dump.csv", "result,flags\n0x,00\n11,01\n")


def test_lines_of_testfloat_are_hexadecimal_without_a_letter(tmp_path: Path):
    assert column(dump_of(tmp_path, "vectors.txt", "10 20 30 01\n"), "3") == [0x30]
    assert column(dump_of(tmp_path, "lines", "10 20 30 01\n", dump_format="testfloat"), "3") == [0x30]


#: A name, its text, and a format that it is known by.
KINDS = [
    ("x", QUESTA, "questa"), ("x", MIF, "mif"), ("x", COE, "coe"), ("x", "3c00,1\n", "csv"),
    ("x", "// a;b\n3c00\n", "text"), ("x", "3c00 // the first, of 2\n", "text"), ("x", "/* a\n,b */ 3c00\n", "text"),
    ("x", "# a\n/tb/y,/tb/z // ;\n", "csv"), ("x", "/* a, b", "text"),
    ("x.csv", "3c00\t01\n", "csv"), ("x.tsv", "3c00\t01\n", "csv"), ("x", "3c00\t01\n", "text"),
    ("x.txt", "$date today $end\n$enddefinitions $end\n", "vcd"), ("X.MIF", "", "mif"), ("x.ghw", "", "ghw"),
    ("x", "GHDLwave\n", "ghw"), ("vectors.txt", "3c00 4000 01\n", "testfloat"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "kind"), KINDS)
def test_a_format_is_known_by_its_beginning_or_by_the_end_of_the_name(
    name: str, text: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chosen = []
    for reader in READERS:
        monkeypatch.setattr(
            type(reader), "read", property(lambda self: lambda *_: chosen.append(self.name)), raising=False
        )
    (tmp_path / name).write_text(text)
    read_dump(tmp_path / name)
    assert chosen == [kind]


#: A name, its text, options, and what is said.
DAMAGED: list[tuple[str, str, dict[str, object], str]] = [
    ("a.hex", "", {}, "a dump must have a line for each vector, got none in {}; the simulation wrote nothing"),
    ("a.hex", "// nothing\n", {}, "got none in {}; the simulation wrote nothing"),
    (
        "a.hex",
        "3c00\n3g00\n",
        {},
        "a dump must hold hexadecimal codes, got '3g00' in line 2 of {}; write it again, or add "
        "--radix or --dump-format",
    ),
    ("a.hex", "3c00\n/* \n", {}, "a comment must end with */, got one without in line 2 of {}; close it"),
    (
        "a.hex",
        "3c00\n\n-12\n",
        {},
        "a code of radix hex must have no sign, got '-12' in line 3 of {}; add --radix decimal",
    ),
    (
        "a.txt",
        "-12\n3 4\n",
        {},
        "must have 1 codes a line, got 2 in line 2; write it again, or add --columns result if",
    ),
    ("a.txt", "12a\n12\n", {"radix": "decimal"}, "a dump must hold decimal words, got '12a' in line 1 of {}"),
    ("a.txt", "8'h1ff\n", {}, 'got "8\'h1ff" in line 1'),
    ("a.txt", "8'hfff\n", {}, 'got "8\'hfff" in line 1'),
    ("a.txt", "8'sd-200\n", {}, 'got "8\'sd-200" in line 1'),
    ("a.txt", "8'q3\n", {}, 'got "8\'q3" in line 1'),
    (
        "a.txt",
        "1" * 17 + "a\n",
        {},
        "a word must have at most 64 bits, got '11111111111111111a' in line 1 of {}; dump fewer bits",
    ),
    ("a.txt", "9" * 5000 + "\n", {"radix": "decimal"}, "a dump must hold decimal words, got '9999"),
    ("a.txt", "9" * 5000 + "'h0\nab\n", {}, 'a dump must hold hexadecimal codes, got "9999'),
    ("a.txt", "9" * 5000 + 'x"0"\nab\n', {}, "a dump must hold hexadecimal codes, got '9999"),
    ("a.coe", COE.replace("radix = 10", f"radix = {'1' * 5000}"), {}, "must be 2, 8, 10 or 16, got '1111"),
    ("a.mif", MIF.replace("DEPTH = 8", f"DEPTH = {'9' * 5000}"), {}, "must be a number of at most 18 digits, got 999"),
    ("a.mif", MIF.replace("WIDTH = 16", f"WIDTH = {'9' * 5000}"), {}, "must be a number of at most 18 digits, got 999"),
    (
        "a.txt",
        "3c00 1\n4000\n5 6\n",
        {},
        "{} must have 2 codes a line, got 1 in line 2; write it again, or add --columns",
    ),
    ("a.txt", "3c00 1\n4000\n5 6\n", {"columns": "_,result"}, "{} must have 2 codes a line, got 1 in line 2"),
    ("a.txt", "@0g 3c00\n", {}, "an address must be @ and hexadecimal digits, got '@0g' in line 1 of {}; write @1f"),
    ("a.txt", "@0 1 @fffffff 1\n", {}, "addresses must span at most 67108864 words, got 268435456 in {}; dump a part"),
    ("a.txt", "@0\n", {}, "a dump must have a word for each vector, got none in {}"),
    (
        "a.txt",
        "@0\n3c00 1\n4000 0\n",
        {"columns": "result,flags"},
        "`--columns` must be result for {}, whose words follow one another from an address on, got 'result,flags'",
    ),
    (
        "a.txt",
        "3c00 1\n",
        {"columns": "result,flags,a"},
        "`--columns` must name columns 1..2 of {}, got a=3; a line has 2",
    ),
    (
        "a.txt",
        "3c00 1\n",
        {"columns": "resutl"},
        "`--columns` must name a, b, c, rbits, result, result2, result3, result4, flags, scale or _, got 'resutl'; did "
        "you mean 'result'?",
    ),
    ("a.txt", "3c00 1\n", {"columns": "_,_"}, "`--columns` must name a column that is taken, got '_,_'; write"),
    ("a.csv", "3c00,1\n", {"columns": "_"}, "`--columns` must name a column that is taken, got '_'; write _,result"),
    ("a.txt", "3c00 1\n", {"columns": "result,result"}, "`--columns` must name every column once, got 'result' twice"),
    (
        "a.txt",
        "3c00\n",
        {"radix": "hexa"},
        "`--radix` must be one of hex, decimal, binary, octal, got 'hexa'; did you mean 'hex'?",
    ),
    (
        "a.txt",
        "3c00\n",
        {"dump_format": "vdc"},
        "`--dump-format` must be one of questa, vcd, fst, ghw, mif, coe, csv, "
        "testfloat, text, got 'vdc'; did you mean 'vcd'?",
    ),
    (
        "a.txt",
        "3c00\n",
        {"clock": "clk"},
        "`--clock` must be of a format that uses it (vcd, fst, ghw), got it for {}, which "
        "is read as text; leave it out, or say another format with --dump-format",
    ),
    ("a.coe", COE, {"radix": "hex"}, "`--radix` must be of a format that uses it (csv, text)"),
    (
        "a.mif",
        MIF.replace("END;", ""),
        {},
        "a MIF file must have CONTENT BEGIN ... END;, got {} without; it may be cut",
    ),
    ("a.mif", MIF.replace("= HEX", "= HEXA"), {}, "a radix of {} must be one of HEX, DEC, UNS, BIN, OCT, got 'HEXA'"),
    ("a.mif", MIF.replace("0 : 3c00", "0 3c00"), {}, "an entry must be ADDRESS : WORDS;, got '0 3c00' in line 5 of {}"),
    (
        "a.mif",
        MIF.replace("0 : 3c00", "a : 3c00"),
        {},
        "an address must have the file's ADDRESS_RADIX, got 'a : 3c00' in line 5 of {}",
    ),
    ("a.mif", MIF.replace("DEPTH = 8", "DEPTH = 5"), {}, "an address must be below DEPTH = 5, got 5 in line 7 of {}"),
    ("a.mif", MIF.replace("DEPTH = 8", "DEPTH = A"), {}, "DEPTH of {} must be a number of at most 18 digits, got A"),
    ("a.mif", MIF.replace("WIDTH = 16", "WIDTH = 14"), {}, "a word of {} must have WIDTH = 14 bits, got 0x4000"),
    ("a.txt", "8'h3c00\n", {}, 'a word must fit the 8 bits that it names, got "8\'h3c00" in line 1 of {}'),
    ("a.txt", '8x"3c00"\n', {}, "a word must fit the 8 bits that it names, got '8x\"3c00\"' in line 1 of {}"),
    ("a.mif", MIF.replace(": 4000 XXXX", ": "), {}, "an entry must have at least one word behind its address, got "),
    ("a.mif", MIF.replace("4000", "ffffffffffffffff"), {}, "must have WIDTH = 16 bits, got 0xffffffffffffffff"),
    ("a.mif", MIF.replace("[1..3]", "[3..1]"), {}, "a range must go up, by 67108864 words at most, got '[3..1] : 4000"),
    ("a.mif", MIF.replace("3c00", "3g00"), {}, "got '3g00' in line 5 of {}"),
    (
        "a.coe",
        COE.replace("radix = 10", "radix = 12"),
        {},
        "`memory_initialization_radix` must be 2, 8, 10 or 16, got '12'",
    ),
    (
        "a.coe",
        COE.replace("_radix", "_rdx"),
        {},
        "`memory_initialization_radix` must be 2, 8, 10 or 16, got none in {}",
    ),
    (
        "a.coe",
        COE[:-3],
        {},
        "`memory_initialization_vector` must be words and a semicolon, got none in {}; it may be cut",
    ),
    ("a.coe", COE.replace("16384", "1638a"), {}, "a dump must hold decimal words, got '1638a' in line 4 of {}"),
    (
        "a.mem",
        QUESTA.replace("dataradix=h", "dataradix=q"),
        {},
        "`dataradix` must be one of h, d, u, b, s, o, got 'q' in {}",
    ),
    ("a.mem", QUESTA.replace(" 10:", " 1a:"), {}, "an address must be a number of radix 'd', got '1a' in line 5 of {}"),
    ("a.mem", QUESTA.replace("7c00", "7cg0"), {}, "got '7cg0' in line 4 of {}"),
    ("a.csv", "", {}, "got none in {}; the simulation wrote nothing"),
    ("a.csv", "result,flags\n", {}, "a dump must have a line for each vector, got only names in {}"),
    ("a.csv", "y,time\n3c00,1\n", {}, "a column of {} must be called result, got y, time; add --columns result=NAME"),
    (
        "a.csv",
        "y,time\n3c00,1\n",
        {"columns": "result=z"},
        "`--columns` must name columns of {}, got result=z; its columns: y, time",
    ),
    ("a.csv", "3c00,1\n", {"columns": "result=3"}, "got result=3; its columns: 1..2"),
    ("a.csv", "result,flags\n3c00,1\n4000\n", {}, "{} must have 2 fields a line, got 1 in line 3; write it again"),
    ("a.csv", "result,flags\n3g00,1\n", {}, "got '3g00' in line 2 of {}"),
    (
        "a.csv",
        'result,time\n\n3c00,"10 ns\n4000,20 ns\n',
        {},
        "a quoted field must end in its line, got one without an end in line 3 of {}",
    ),
    ("a.csv", f"result,flags\n3c00,1\n{'0' * 140000},1\n", {}, "{} must be a table of words, got in line 3: field"),
]


@pytest.mark.parametrize(("name", "text", "options", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_dump_is_refused_with_what_is_wrong(
    name: str, text: str, options: dict[str, object], message: str, tmp_path: Path
):
    with pytest.raises(ConfigError) as caught:
        dump_of(tmp_path, name, text, **options)
    assert message.format(tmp_path / name) in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "a.hex").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="must be a text file of codes"):
        read_dump(tmp_path / "a.hex")
    with pytest.raises(
        ConfigError, match=r"a dump must be a file, got 'No such file or directory' for .*; check the path"
    ):
        read_dump(tmp_path / "absent.hex")
    with pytest.raises(ConfigError, match="a dump must be a file, got 'Is a directory'"):
        read_dump(tmp_path)


def test_roles_are_read_from_a_list():
    assert roles_of(" a , result=y,_, flags") == {"a": "1", "result": "y", "flags": "4"}


def test_masks_and_codes_are_arrays_of_their_types(tmp_path: Path):
    dump = dump_of(tmp_path, "dump.txt", "3c00\nxxxx\n")
    assert dump.columns["1"].dtype == np.uint64
    assert dump.undriven["1"].dtype == np.bool_
    assert dump.source == str(tmp_path / "dump.txt")
