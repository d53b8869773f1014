"""The CUDA kernels of gradient codecs, as source and as PTX, run by the host: the definition's bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codec_cases import DTYPES, KINDS, ONE_OF_EACH, OPTIONS, ROWS, columns_of, differing, run
from device_arrays import WORK, StrictDevice
from fast_suite import most_are_slow
from host_devices import as_backend
from test_seeded_faults import with_fault

import emu
from emu.backends.codecs import AT_ZERO, MEANS, ColumnsCode
from emu.backends.cuda import CudaKernels
from emu.backends.reference import ReferenceKernels
from emu.training.loop import Loop
from emu.training.workbench import Workbench
from tests.cuda.cuda_on_host import HostDevice, RaceError
from tests.cuda.ptx_on_host import UnknownInstructionError, translate

#: What one run through the kernel needs: two steps by threshold, ends, more by middles and by means, some left out.
FEW: list[dict[str, Any]] = [
    {},
    {"threshold": "mean", "levels": "ends"},
    {"steps": 5},
    {"steps": 3000},
    {"steps": 5, "levels": "means", "range": (-1.0, 1.0)},
    {"steps": 16, "levels": "means", "outliers": 2.0, "left_out": 0.3},
]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile CUDA kernels for the host")


@most_are_slow("options", OPTIONS, keep=ONE_OF_EACH, ids=str)
def test_every_option_gives_the_definitions_bits_c1_c2_c3_c4(cuda: str, options: dict[str, Any]):
    place = OPTIONS.index(options)
    for number, (rows, dtype) in enumerate((rows, dtype) for rows in ROWS for dtype in DTYPES):
        case = 1 + number % 3, rows, dtype, KINDS[(number + place) % len(KINDS)]
        assert not differing(run("reference", options, *case), run(cuda, options, *case)), case


def test_more_columns_than_blocks_give_the_definitions_bits(cuda: str):
    case = {}, 4099, 3, np.float32, "normal"
    assert not differing(run("reference", *case), run(cuda, *case))


@needs_compiler
@pytest.mark.parametrize("checks", [pytest.param("sanitized", marks=pytest.mark.slow), "races"])
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_right_codecs_pass_every_check_in_every_order(checks: Any, order: Any):
    with as_backend(HostDevice(checks=checks, order=order)):
        for options in FEW:
            case = options, 3, 130, np.float32, "odd"
            assert not differing(run("reference", *case), run("cuda", *case)), case


@needs_compiler
@most_are_slow(
    ("right", "wrong"),
    [
        ("    lanes[thread] = mine;\n    __syncthreads();", "    lanes[thread] = mine;"),
        (
            "codes[thread] = static_cast<u16>(code);\n        __syncthreads();",
            "codes[thread] = static_cast<u16>(code);",
        ),
        ("if (mine != 0) atomicAdd(count, mine);", "*count += mine;"),
    ],
    keep=["sums"],
    ids=["sums", "codes", "counts"],
)
def test_a_fault_among_the_threads_of_a_column_is_a_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str, wrong: str
):
    with_fault(tmp_path, monkeypatch, "codecs.cu", right, wrong)
    with as_backend(HostDevice(checks="races")), pytest.raises(RaceError, match="encode_columns"):
        run("cuda", {}, 1, 130, np.float32, "normal")


@needs_compiler
def test_lanes_joined_in_another_order_are_other_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    right = "lanes[2 * thread], lanes[2 * thread + 1]"
    with_fault(tmp_path, monkeypatch, "codecs.cu", right, "lanes[thread], lanes[thread + width]")
    case = {}, 3, 130, np.float32, "normal"
    with as_backend(HostDevice()):
        assert "means 0" in differing(run("reference", *case), run("cuda", *case))


def test_nodes_end_in_the_same_bits_on_reference_and_cuda(cuda: str):
    sums: list[str] = []
    for backend in ("reference", cuda):
        settings = {"training.steps": 2, "training.batch": 4, "data.test_images": 8, "cluster.nodes": 2}
        recipe = emu.model("mlp").with_settings(settings)
        loop = Loop(Workbench.of(recipe, recipe.machine(emu.device("float32")), backend))
        loop.advance()
        loop.advance()
        sums.append(loop.bench.model.sha256())
    assert sums[0] == sums[1]


@needs_compiler
@pytest.mark.parametrize("options", FEW, ids=str)
def test_arrays_of_the_host_are_written_where_they_lie_by_a_device(options: dict[str, Any]):
    case = options, 3, 70, np.float32, "odd"
    with as_backend(StrictDevice()):
        assert not differing(run("reference", *case), run("cuda", *case))


@needs_compiler
def test_arrays_of_a_device_stay_there():
    kernels, host = CudaKernels(StrictDevice()), columns_of("normal", 3, 70, np.float32, 1)
    expected, kept = ReferenceKernels(), np.zeros_like(host)
    gradients, residual, total = kernels.place(host), kernels.place(kept.copy()), kernels.place(host.copy())
    code = ColumnsCode(2, AT_ZERO, MEANS, 4.0, 0.0)
    WORK.clear()
    coded = kernels.encode_columns(gradients, residual, code, None, None, None, settles=True)
    decoded = kernels.decode_columns(coded.words, coded.levels, 2, 70, None)
    assert kernels.decode_columns(coded.words, coded.levels, 2, 70, total) is total
    assert WORK.sizes == WORK.uploads == []
    known = expected.encode_columns(host, kept, code, None, None, None, settles=True)
    for on_device, there in zip((*coded, residual), (*known, kept), strict=True):
        np.testing.assert_array_equal(on_device.get(), there)
    np.testing.assert_array_equal(decoded.get(), expected.decode_columns(known.words, known.levels, 2, 70, None))
    np.testing.assert_array_equal(total.get(), host + decoded.get())


CONVERSION = """
.visible .entry converted(.param .u64 out)
{
.reg .f32 %f<2>;
.reg .b32 %r<2>;
INSTRUCTION
ret;
}
"""


@pytest.mark.parametrize("instruction", ["cvt.rni.u32.f32 %r1, %f1;", "cvt.rz.f32.u32 %f1, %r1;"])
def test_conversions_that_no_kernel_has_are_named_and_not_guessed(instruction: str):
    with pytest.raises(UnknownInstructionError, match=r"cvt\.rn?[iz]"):
        translate(CONVERSION.replace("INSTRUCTION", instruction))
    assert "ptx::toward_zero" in translate(CONVERSION.replace("INSTRUCTION", "cvt.rzi.u32.f32 %r1, %f1;"))
