"""The text of exported C: the parts that a unit needs and no others, its header's example, names it cannot have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from c_units import COMPILERS, STRICT, needs_compiler, run
from unit_cases import UNITS, described, unit_of

import emu
from emu.errors import ConfigError, FormatError
from emu.export import LANGUAGES, export
from emu.export.c import files_of
from emu.export.c.template import TEXTS, fragment, used_parts
from emu.testing.vectors import Description
from emu.testing.vectors.description import OPERANDS

ADD = described("add", "fp16,fp16", "fp16")


def text_of(d: Description) -> str:
    return files_of(d, "the_unit")["the_unit.c"]


def test_no_unit_has_a_floating_type_or_a_function_of_a_library():
    for d in [*UNITS.values(), ADD, described("sqrt", "fp64", "fp64"), described("divide", "fp16,fix8f4", "fp16")]:
        words = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"/\*.*?\*/", "", text_of(d), flags=re.DOTALL)))
        assert not words & {"float", "double", "malloc", "math", "stdlib", "printf", "__int128"}
        assert set(re.findall(r"#include (\S+)", text_of(d))) == {'"the_unit.h"', "<stdbool.h>"}


@pytest.mark.parametrize(
    ("d", "has", "lacks"),
    [
        (described("quantize", "fix16f8", "fix8f4"), "unpack_fixed", "float|add_shifted|step_of|high"),
        (
            described("quantize", "fp32", "fp16", flags="emu"),
            "unpack_float",
            "fixed|add_shifted|step_of|high|is_tiny|flushes",
        ),
        (described("quantize", "fp32", "fp16", "stochastic"), "step_of", "fixed"),
        (described("quantize", "e5m10 daz", "fp16"), "flushes_operands", "flushes_results"),
        (described("quantize", "fp16", "e5m10 ftz"), "flushes_results", "flushes_operands"),
        (described("multiply", "fp64,fp64", "fp64", tininess="after_rounding"), "high|is_tiny_after", "add_shifted"),
        (unit_of("fix8f4,fix8f4", "fix8f4", accumulator="fix20f8"), "ACCUMULATOR", "PRODUCT|tree|block|float"),
        (unit_of("fix8f4,fix8f4", "fix8f4"), "add_shifted", "accumulated|ACCUMULATOR,|tree"),
        (UNITS["fp32"], "root_of_tree|any_nan", "block_added|PRODUCT"),
        (UNITS["matrix unit"], "block_added", "tree|ADDER|largest < "),
        (UNITS["alternating"], "ADDER|largest < -20", "tree"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else None,
)
def test_a_unit_has_the_parts_that_it_needs_and_no_others(d: Description, has: str, lacks: str):
    code = re.sub(r"/\*.*?\*/", "", text_of(d), flags=re.DOTALL)
    assert [word for word in has.split("|") if word not in code] == []
    assert [word for word in lacks.split("|") if re.search(rf"\b\w*{re.escape(word)}", code)] == []


@pytest.mark.parametrize(
    ("d", "words"),
    [(ADD, 1), (described("add", "fp64,fp64", "fp64"), 33), (unit_of("fp64,fp64", "fp64"), 67)],
    ids=["binary16", "binary64", "sums of binary64 products"],
)
def test_exact_results_are_as_wide_as_they_must_be(d: Description, words: int):
    assert f"WORDS = {words} " in text_of(d)


@needs_compiler
def test_the_example_of_a_header_is_what_the_unit_gives(tmp_path: Path):
    chosen = [ADD, described("quantize", "fp32", "fix8f4", "stochastic"), UNITS["saturating"], UNITS["exact"]]
    texts = ["#include <stdio.h>"]
    for i, d in enumerate(chosen):
        export(d, tmp_path, name=f"unit{i}")
        header = (tmp_path / f"unit{i}.h").read_text()
        arrays = re.findall(r"^ \*     (const uint64_t .*;)$", header, re.MULTILINE)
        example = re.search(rf"^ \*     (unit{i}\(.*\) == 0x[0-9a-f]+), flags (\d+)$", header, re.MULTILINE)
        assert example is not None, header
        body = f"uint32_t flags; {' '.join(arrays)} return {example[1]} && flags == {example[2]};"
        texts += [f'#include "unit{i}.h"', f"static int example{i}(void) {{ {body} }}"]
        assert d.is_stochastic or int(example[2]) == 1, "an example shows rounding"
    calls = " && ".join(f"example{i}()" for i in range(len(chosen)))
    (tmp_path / "main.c").write_text("\n".join([*texts, f"int main(void) {{ return {calls} ? 0 : 1; }}"]) + "\n")
    sources = [f"unit{i}.c" for i in range(len(chosen))]
    run([COMPILERS[0], *STRICT, "main.c", *sources, "-o", "main"], tmp_path)
    run([str(tmp_path / "main")], tmp_path)


def test_a_header_says_the_description_in_words():
    d = unit_of(
        "fp16,fix8f4,fp32", "fp8_e4m3", accumulator="fp32", order="lanes(4)", rounding="floor", product="bf16"
    ).model_copy(update={"tininess": "after_rounding"})
    header = " ".join(files_of(d, "unit")["unit.h"].replace("\n * ", " ").split())
    for words in (
        "the sum of a[i] * b[i], 0 <= i < k plus addend: fp16 and fix8f4 and fp32 to fp8_e4m3",
        "b: fix8f4: 8 bits in two's complement, in units of 2**-4.",
        "Each product is rounded into bf16, floor.",
        "Each sum is rounded into the accumulator, fp32, floor; order lanes(4).",
        "The exact result is rounded once, nearest_even: to the nearest value, ties to even.",
        "Overflow rule ieee: results beyond the range become infinity (IEEE 754).",
        "NaN is written as 0x7f;",
        "below the smallest normal number if it is rounded as though exponents had no end",
        "32 accumulator overflow:",
        "input longint unsigned a[7],",
    ):
        assert words in header, words


def test_all_texts_are_ascii_and_no_line_is_too_long():
    zeroless = described("quantize", "fix8f-2", "ue8m23 bias=130 no-zero finite nans=none")
    for d in [*UNITS.values(), zeroless]:
        for text in files_of(d, "unit").values():
            assert text.isascii()
            assert max(map(len, text.splitlines())) <= 120
            assert text.endswith("\n")
            assert not re.search(r"[ \t]$|\n\n\n", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("add-fp16", "`name` must be an identifier of C, letters, digits and _ after a letter, got 'add-fp16'"),
        ("_add", "`name` must be an identifier of C"),
        ("int", "`name` must be no word of C, C\\+\\+, SystemVerilog or C's library, got 'int'; add something to it"),
        ("logic", "`name` must be no word of C"),
        ("sqrtf", "`name` must be no word of C"),
        *((word, "`name` must be no word of C") for word in ("compl", "bitand", "reg", "small", "expect", "always")),
        *(
            (word, "`name` must be no word of C")
            for word in ("uint8_t", "size_t", "SIZE_MAX", "memcpy", "isnan", "cabs")
        ),
        ("sum_of", "`name` must not be used inside the file, got 'sum_of'; add something to it"),
        ("FP16", "`name` must not be used inside the file"),
        ("raised", "`name` must not be used inside the file"),
    ],
)
def test_a_name_that_c_cannot_have_is_refused(name: str, message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        export(ADD, tmp_path / "unit", name=name)
    assert not (tmp_path / "unit").exists()


def test_an_unknown_language_names_the_known_ones(tmp_path: Path):
    with pytest.raises(ConfigError, match="`language` must be one of c, got 'vhdl'; known: c"):
        export(ADD, tmp_path, name="unit", language="vhdl")
    assert list(LANGUAGES) == ["c"]


def test_an_operation_without_c_names_those_that_have_it(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"`operation` of C must be one of add, divide, fma, .*, got 'hypot'"):
        export(ADD.model_copy(update={"operation": "hypot"}), tmp_path, name="unit")


def test_every_operation_of_vectors_has_its_c():
    assert {path.stem for path in (TEXTS / "operations").glob("*.c")} == set(OPERANDS)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "unit").write_text("")
    with pytest.raises(ConfigError, match=r"the folder of a unit must be writable, got .* choose another with --out"):
        export(ADD, tmp_path / "unit", name="unit")


def test_blocks_of_fixed_point_are_refused_as_they_are_elsewhere(tmp_path: Path):
    d = unit_of("fix8f4,fp16", "fp16", accumulator="fp32", order="blocks(4, 23)")
    with pytest.raises(FormatError, match="operands must be floats where `order` is blocks, got fix8f4"):
        export(d, tmp_path, name="unit")


def test_the_modes_table_of_the_package_is_the_files():
    for mode in emu.Rounding:
        text = text_of(described("quantize", "fp32", "fix8f4", mode.value))
        rows = re.findall(r"\{([^{}]*)\}", text[text.index(f"/* {mode.value}: steps") : text.index("SATURATE\n")])[:4]
        assert [int(step) for row in rows for step in row.split(",")] == list(mode.meaning.fixed.table)


def test_lines_stand_where_their_condition_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "x.c").write_text("@if a or b and not c\n1\n@if c\n2\n@else\n3 $name\n@end\n@else\n4\n@end\n5\n")
    monkeypatch.setattr("emu.export.c.template.TEXTS", tmp_path)
    cases = {"a": "1 3n 5", "ac": "1 2 5", "b": "1 3n 5", "bc": "4 5", "": "4 5"}
    for conditions, expected in cases.items():
        assert " ".join(fragment("x.c", set(conditions), {"name": "n"}).replace("3 n", "3n").split()) == expected


def test_parts_that_nothing_uses_are_left_out_with_their_heads():
    parts = {
        "head": "/* ---- Kept ---- */",
        "used": "static int used(void)\n{\n    return OTHER;\n}",
        "head2": "/* ---- Empty ---- */",
        "unused": "/* used by nothing but a comment */\nstatic int unused(void)\n{\n    return 1;\n}",
        "head3": "/* ---- The unit ---- */",
        "constants": "enum kind { OTHER = 1 };",
        "unit": "uint64_t unit(void) /* unused */\n{\n    return used();\n}",
    }
    kept = used_parts("\n\n".join(parts.values()), ["unit"])
    assert kept == "\n\n".join(parts[name] for name in ("head", "used", "head3", "constants", "unit")) + "\n"


def test_every_fragment_is_plain_c_but_for_its_conditions():
    for path in TEXTS.rglob("*.c"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert sum(line.startswith("@if ") for line in lines) == lines.count("@end"), path
        assert all(line in ("@else", "@end") or line.startswith("@if ") for line in lines if line.startswith("@"))
