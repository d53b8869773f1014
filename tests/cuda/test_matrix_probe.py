"""The probe of matrix instructions, on devices that answer as a model does: it sees agreement, and differences."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu import Mac
from emu.backends.cuda import nvrtc
from emu.backends.cuda.loader import status
from emu.datapath import Blocks
from emu.testing import matrix_probe
from emu.testing.matrix_probe import (
    GPUS,
    INSTRUCTIONS,
    Answer,
    Case,
    Instruction,
    cases_of,
    compare,
    instructions_of,
    probe,
    unit_of,
)

ROOT = Path(__file__).resolve().parents[2]


class ModelDevice:
    """Plays a GPU whose instructions are the presets of another, or with another floor."""

    xp = np

    def __init__(self, architecture: str, **order: Any) -> None:
        self._units = {i.kernel: (i, unit_of(i, architecture)) for i in instructions_of(architecture)}
        self._order = order

    def launch(
        self, source: str, kernel: str, blocks: int, threads: int, arguments: Sequence[Any], shared_bytes: int
    ) -> None:
        assert (source, threads) == ("probes/matrix_units", 32)
        instruction, unit = self._units[kernel]
        a, b, c, d = arguments
        register = {1: np.uint8, 2: np.uint16, 4: np.uint32}[a.size // (blocks * 16 * instruction.depth)]
        left = a.view(register).reshape(blocks, 16, instruction.depth)
        right = b.view(register).reshape(blocks, instruction.depth, 8)
        if self._order and isinstance(unit.order, Blocks):
            unit = Mac(unit.product, unit.accumulator, replace(unit.order, **self._order), unit.rounding, unit.overflow)
        values = matrix_probe._modelled(instruction, unit, Case("", left.astype(np.uint64), right.astype(np.uint64), c))
        d[...] = instruction.result_format.encode(values)


@pytest.mark.slow
def test_a_gpu_that_answers_as_its_preset_does_never_differs():
    for answer in probe(ModelDevice("89"), "89", count=2):
        assert answer.wrong == 0, answer
        assert answer.results == 2 * 16 * 8


@pytest.mark.slow
def test_a_floor_is_told_from_the_others_by_tiny_products():
    answers = [a for a in probe(ModelDevice("80", min_exponent=-126), "80", count=4) if a.instruction == "bf16_fp32"]
    assert sum(a.wrong for a in answers) > 0  # the preset says -132
    wrong = {floor: sum(a.floors[floor] for a in answers) for floor in answers[0].floors}
    assert [floor for floor, count in wrong.items() if count == 0] == [-126]


@pytest.mark.parametrize(("name", "floor", "preset"), [("bf16_fp32", -132, -133), ("fp16_fp16", -20, -21)])
def test_sums_beside_the_smallest_result_tell_neighbouring_floors_apart(name: str, floor: int, preset: int):
    instruction = next(i for i in instructions_of("90") if i.kernel == name)
    unit, case = unit_of(instruction, "90"), cases_of(instruction, 8)[-1]
    assert case.name == "sums beside the smallest result"
    answer = compare(
        instruction, unit, case, matrix_probe.ask(ModelDevice("90", min_exponent=floor), instruction, case)
    )
    assert answer.floors[floor] == 0
    assert answer.floors[preset] == answer.wrong > 0


@pytest.mark.parametrize(("inputs", "output", "are_there"), [((4, 3), (5, 3), False), ((4, 3), (5, 2), True)])
def test_sums_beside_the_smallest_result_are_asked_if_products_reach_below_it(
    inputs: tuple[int, int], output: tuple[int, int], are_there: bool
):
    """The smallest product of e4m3 is 2**-18; the smallest result of e5m3 is 2**-17, that of e5m2 2**-16."""
    formats = (str(emu.Float(*bits)) for bits in (inputs, output))
    cases = cases_of(Instruction("of_no_gpu", *formats, depth=8, least=75), 2)
    assert ("sums beside the smallest result" in [case.name for case in cases]) == are_there


def test_tiny_products_with_addends_of_both_signs_are_lost_and_zero():
    instruction = next(i for i in instructions_of("90") if i.kernel == "bf16_fp32")
    case = next(c for c in cases_of(instruction, 2) if c.name == "products near nothing, addend 0 or -0")
    assert set(np.unique(case.c)) == {0, 2**31}
    assert 0 < np.abs(instruction.operand_format.decode(case.a.astype(np.uint16))).max() < 2.0**-80
    codes = matrix_probe.ask(ModelDevice("90"), instruction, case)
    assert not codes.any()


@pytest.mark.slow
def test_a_unit_of_another_width_is_seen():
    answers = probe(ModelDevice("80", fraction_bits=23), "80", count=2)
    for instruction in ("fp16_fp32", "bf16_fp32", "tf32_fp32"):
        assert sum(a.wrong for a in answers if a.instruction == instruction) > 10


def test_patterns_of_nan_and_signs_of_zero_are_listed_as_they_came():
    instruction = instructions_of("90")[0]
    case = cases_of(instruction, 1)[0]
    codes = np.zeros((1, 16, 8), np.uint32)
    codes[0, 0, :4] = [0x7FFFFFFF, 0xFFC00000, 0x80000000, 0x80000000]
    answer = compare(instruction, unit_of(instruction, "90"), case, codes)
    assert answer.nans == ("0x7FFFFFFF", "0xFFC00000")
    assert answer.negative_zeros == 2


def test_every_instruction_is_asked_by_the_formats_its_preset_has():
    for architecture in GPUS:
        for instruction in instructions_of(architecture):
            assert isinstance(unit_of(instruction, architecture), Mac)
    with pytest.raises(emu.FormatError, match="no preset stands for sm_61"):
        unit_of(INSTRUCTIONS[0], "61")


def test_the_page_has_a_row_for_each_instruction_and_one_for_each_kind_of_tiles_that_differs():
    floors = {None: 3, -20: 0, -21: 0}
    answers = [
        Answer("fp16_fp16", "any codes", 128, 0, dict.fromkeys(floors, 0), ("0x7FFF",), 0),
        Answer("fp16_fp16", "tiny", 128, 3, floors, (), 2),
        Answer("fp16_fp32", "any codes", 128, 0, dict.fromkeys(floors, 0), (), 0),
        Answer("fp16_fp32", "tiny", 128, 7, {None: 8, -20: 9, -21: 7}, (), 0),
        Answer("int8_int32", "any codes", 128, 0, {}, (), 0),
    ]
    text = matrix_probe.page("Somebody's GPU", "75", answers)
    assert text.startswith("Somebody's GPU (sm_75), against the preset `t4`:\n\n| instruction |")
    assert text.splitlines()[4:] == [
        "| fp16_fp16 | 2 | 256 | 3 | -20, -21 | 0x7FFF | 2 |",
        "|  | tiny | 128 | 3 | -20, -21 |  | 2 |",
        "| fp16_fp32 | 2 | 256 | 7 | -21 (7 differ) |  | 0 |",
        "|  | tiny | 128 | 7 | -21 (7 differ) |  | 0 |",
        "| int8_int32 | 1 | 128 | 0 |  |  | 0 |",
    ]


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.is_here(), reason="no NVRTC: pip install '.[nvrtc]'")
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_instruction_of_an_architecture_is_compiled_for_it(architecture: str):
    ptx = nvrtc.Source.named("probes/matrix_units").compiled(architecture, "ptx").decode()
    asked: list[Instruction] = instructions_of(architecture)
    assert all(f".entry {instruction.kernel}(" in ptx for instruction in asked)
    assert ptx.count("mma.sync.aligned") == len(asked)
    assert nvrtc.Source.named("probes/matrix_units").compiled(architecture).startswith(b"\x7fELF")


@pytest.mark.skipif(status().state == "ready", reason="there is a GPU")
def test_without_a_gpu_the_script_says_what_is_ready_and_what_is_missing(tmp_path: Path):
    script = ROOT / "benchmarks" / "matrix_units.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "10 instructions" in done.stdout
    assert "needs a GPU from here on" in done.stderr


@pytest.mark.gpu
def test_the_gpu_at_hand_answers_and_its_integers_never_differ():
    from emu.backends.cuda.loader import CupyDevice

    device = CupyDevice()
    answers = probe(device, str(device.xp.cuda.Device().compute_capability), count=4)
    assert all(answer.wrong == 0 for answer in answers if answer.instruction.startswith("int8"))
