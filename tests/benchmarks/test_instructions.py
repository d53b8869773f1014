"""The loops that are counted: which lines of an assembly they are, and which of them is taken."""

from __future__ import annotations

import pytest

from benchmarks import instructions
from benchmarks.instructions import Counted, Loop, counted, inner_loops

ASSEMBLY = """
f:
    movq %rdi, %rax
.LBB0_1:
    vpxor %zmm0, %zmm0, %zmm0
    .p2align 4
.LBB0_2:
    vfmadd231ps (%rax), %zmm1, %zmm0
    # a remark
    vfmadd231ps 64(%rax), %zmm1, %zmm0
    decq %rcx
    jne .LBB0_2
    vmovups %zmm0, (%rdi)
    jne .LBB0_1
    jmp .LBB0_4
.LBB0_4:
    retq
.LBB0_5:
    vfmadd231ps (%rax), %zmm1, %zmm0
    jb .LBB0_5
"""


def test_loops_without_another_inside_are_inner_ones():
    loops = [[line.split()[0] for line in lines] for lines in inner_loops(ASSEMBLY)]
    assert loops == [["vfmadd231ps", "vfmadd231ps", "decq", "jne"], ["vfmadd231ps", "jb"]]


def test_the_loop_with_most_marked_instructions_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(instructions, "_simulated", lambda lines, work, cpu: Counted(len(lines), 1.0, 1.0, work))
    assert counted(Loop(r"vfmadd\d+ps", 16), [ASSEMBLY], "any") == Counted(4, 1.0, 1.0, 32)
    assert counted(Loop(r"vfmadd\d+ps", 16, least=3), [ASSEMBLY], "any").instructions == 4
    with pytest.raises(SystemExit, match="no compiled loop has vpdpbusd"):
        counted(Loop("vpdpbusd", 64), [ASSEMBLY], "any")
    with pytest.raises(SystemExit, match="no compiled loop"):
        counted(Loop(r"vfmadd\d+ps", 16, least=9), [ASSEMBLY], "any")


def test_every_row_whose_instructions_are_counted_is_a_row_of_the_benchmarks():
    names = {row.name for row in instructions.all_rows()}
    assert set(instructions.ROWS) <= names
