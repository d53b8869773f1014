"""Exported C as C++, linked into C++, and called from SystemVerilog by DPI-C."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from c_units import COMPILERS, STRICT, needs_compiler, run
from unit_cases import UNITS, described

from emu.export import export
from emu.testing.vectors import Description
from emu.testing.vectors.definition import answered

FMA = described("fma", "fp16,fp16,fp16", "fp16")
CPP_STRICT = ("-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic")
CPP_MAIN = """
#include "fma_fp16.h"
int main() { return fma_fp16(0x3c00, 0x4000, 0x4200, nullptr) == 0x4500 ? 0 : 1; }
"""
CPP_COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
#: Of every operation one, some with what others lack.
ONE_OF_EACH = [
    *UNITS.values(),
    FMA,
    described("quantize", "fp64", "ufix8f3", "stochastic"),
    described("add", "fp32,fix8f4", "fp16"),
    described("subtract", "fp16,fp16", "e5m2 ftz"),
    described("multiply", "fp64,fp64", "fp64", tininess="after_rounding"),
    described("divide", "fp16,fp16", "fp8_e8m0"),
    described("sqrt", "fp64", "fp32"),
    described("remainder", "fp16 daz,fp16", "fp16"),
    described("round_to_integral", "fp32", "fp32", "jamming"),
]


@needs_compiler
@pytest.mark.skipif(not CPP_COMPILERS, reason="no C++ compiler is installed: g++ or clang++")
def test_c_links_into_cpp_and_flags_may_be_unwanted(tmp_path: Path):
    export(FMA, tmp_path, name="fma_fp16")
    (tmp_path / "main.cpp").write_text(CPP_MAIN)
    run([COMPILERS[0], *STRICT, "-c", "fma_fp16.c"], tmp_path)
    run([CPP_COMPILERS[0], *CPP_STRICT, "main.cpp", "fma_fp16.o", "-o", "main"], tmp_path)
    run([str(tmp_path / "main")], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", CPP_COMPILERS)
def test_c_is_cpp(compiler: str, tmp_path: Path):
    """As Verilator compiles it, whose makefiles give C files to the compiler of C++."""
    for i, description in enumerate(ONE_OF_EACH):
        export(description, tmp_path, name=f"unit{i}")
        run([compiler, *CPP_STRICT, "-x", "c++", "-c", f"unit{i}.c", "-o", f"unit{i}.o"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_every_operation_compiles_without_a_warning(compiler: str, level: str, tmp_path: Path):
    for i, description in enumerate(ONE_OF_EACH):
        export(description, tmp_path, name=f"unit{i}")
        run([compiler, *STRICT, "-Wshadow", "-Wconversion", "-Wstrict-prototypes", level, "-c", f"unit{i}.c"], tmp_path)


def verilated(folder: Path, top: str, sources: list[str]) -> Path:
    """Build a simulation; return its program."""
    command = ["verilator", "--binary", "-O3", "--top-module", top, "-CFLAGS", f"-O2 -I{folder}", *sources]
    run(command, folder)
    return folder / "obj_dir" / f"V{top}"


def seen_by_python(d: Description, calls: int) -> int:
    """What dpi.sv computes from the results of a unit."""
    i = np.arange(calls, dtype=np.uint64)
    operands = tuple(
        (i * np.uint64(factor) + np.uint64(offset)) & np.uint64(0xFFFF)
        for factor, offset in ((40503, 0), (60493, 7), (24571, 3))
    )
    written = answered(d.model_copy(update={"count": calls}), operands, None)
    seen = 0
    for code, flags in zip(written.results.tolist(), written.flags.tolist(), strict=True):
        seen = ((seen << 1 | seen >> 63) & (2**64 - 1)) ^ code ^ flags
    return seen


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
def test_verilator_calls_a_unit(tmp_path: Path):
    export(FMA, tmp_path, name="fma_fp16")
    shutil.copy(Path(__file__).with_name("dpi.sv"), tmp_path)
    program = verilated(tmp_path, "bench", ["dpi.sv", "fma_fp16.c"])
    printed = run([str(program), "+calls=200000"], tmp_path).decode()
    found = re.search(r"seen ([0-9a-f]+)", printed)
    assert found is not None, printed
    assert int(found[1], 16) == seen_by_python(FMA, 200_000)


DOT = UNITS["saturating"].model_copy(update={"depth": 4})
DOT_BENCH = """
module bench;
    {line}
    longint unsigned a[4], b[4];
    int unsigned flags;
    initial begin
        for (int i = 0; i < 4; i++) begin
            a[i] = 64'(i) * 64'd37 + 64'd5;
            b[i] = 64'(i) * 64'd91 + 64'd8;
        end
        $display("code %0d flags %0d", dot(a, b, 4, 64'd1000, flags), flags);
        $finish;
    end
endmodule
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
def test_arrays_of_systemverilog_reach_a_unit_by_the_line_of_its_header(tmp_path: Path):
    export(DOT, tmp_path, name="dot")
    header = (tmp_path / "dot.h").read_text()
    line = header[header.index('import "DPI-C"') : header.index(");", header.index('import "DPI-C"')) + 2]
    (tmp_path / "bench.sv").write_text(DOT_BENCH.format(line=line.replace("\n *", "\n")))
    printed = run([str(verilated(tmp_path, "bench", ["bench.sv", "dot.c"]))], tmp_path).decode()
    i = np.arange(4, dtype=np.uint64)
    operands = ((i * 37 + 5) % 256, (i * 91 + 8) % 256, np.array([1000]))
    operands = tuple(x.astype(np.uint64).reshape(1, 4) if x.size > 1 else x.astype(np.uint64) for x in operands)
    written = answered(DOT.model_copy(update={"count": 1}), operands, None)
    assert f"code {written.results[0]} flags {written.flags[0]}" in printed
