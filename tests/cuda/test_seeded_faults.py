"""Faults put into the kernels on purpose, each caught by a check that a right kernel passes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_suite import most_are_slow

import emu
from emu._paths import content_folder
from emu.backends.cuda import CudaKernels, nvrtc
from emu.backends.interface import NO_QUANTUM, RandomCode, RegisterCode, Write, encode_format, encode_mac, encode_stage
from emu.backends.reference import ReferenceKernels
from emu.datapath import OutputStage
from tests.backends.table_products import written
from tests.cuda import cuda_on_host
from tests.cuda.cuda_on_host import HostDevice, RaceError, ptx_of
from tests.cuda.ptx_on_host import floating_instructions

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile CUDA kernels for the host")
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_here(), reason="no NVRTC: pip install '.[nvrtc]'")


def with_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, right: str, wrong: str) -> None:
    """Have the host run kernels in which one place is wrong."""
    kernels = tmp_path / "kernels"
    shutil.copytree(content_folder("kernels"), kernels)
    text = (kernels / file).read_text()
    assert right in text
    (kernels / file).write_text(text.replace(right, wrong))
    monkeypatch.setattr(cuda_on_host, "content_folder", lambda _: kernels)


def quantized(
    device: HostDevice, *, rounding: str = "nearest_even", n: int = 700, kernels: Any = None, dtype: Any = np.float64
) -> list:
    """Write normal numbers: float64 by the general kernel, float32 by the fast one."""
    x = np.random.default_rng(1).normal(0, 40, n).astype(np.float32).astype(dtype)
    stage = encode_stage(OutputStage.of("fix8f2", rounding))
    register = RegisterCode(-4, 12, NO_QUANTUM)
    table = kernels or CudaKernels(device)
    found = table.quantize(x, None, Write(stage, RandomCode(1, 2, 3, 0, None), register), None)
    return [found.values.tolist(), found.flags.tolist(), found.register.tolist(), found.max_exponent]


REFERENCE = ReferenceKernels()
EXPECTED = {
    rounding: quantized(HostDevice(), rounding=rounding, kernels=REFERENCE)
    for rounding in ("nearest_even", "stochastic")
}
BARRIER = (
    "include/register.cuh",
    "    if (thread_in_block() == 0) *t.top = NO_TOP;\n    __syncthreads();",
    "    if (thread_in_block() == 0) *t.top = NO_TOP;",
)
INCREMENT = (
    "include/register.cuh",
    "if (flags >> i & 1u) atomicAdd(&t.counts[i], 1u);",
    "if (flags >> i & 1u) t.counts[i] += 1u;",
)


@pytest.mark.parametrize("checks", ["none", pytest.param("sanitized", marks=pytest.mark.slow), "races"])
@pytest.mark.parametrize(
    "order", [*(pytest.param(o, marks=pytest.mark.slow) for o in ("forward", "backward")), "shuffled"]
)
def test_right_kernels_pass_every_check_in_every_order(checks: Any, order: Any):
    for (rounding, expected), dtype in product(EXPECTED.items(), (np.float32, np.float64)):
        assert quantized(HostDevice(checks=checks, order=order), rounding=rounding, dtype=dtype) == expected


@pytest.mark.slow
@pytest.mark.parametrize("checks", ["sanitized", "races"])
@pytest.mark.parametrize("order", ["backward", "shuffled"])
def test_right_products_pass_every_check_in_every_order(checks: Any, order: Any):
    exact = [(emu.Mac(), fmt) for fmt in PATHS]
    for mac, fmt in ((emu.Mac(accumulator="fp32"), "fp16"), *exact):
        found = [summed(table, mac, fmt) for table in (CudaKernels(HostDevice(checks=checks, order=order)), REFERENCE)]
        assert found[0] == found[1]


#: Paths of exact products, by the operands' format.
PATHS = {"fix8f2": "integer_dot", "fix16f2": "float64_blas", "fix32f9": "wide", "ufix32f20": "wide"}


def summed(table: Any, mac: emu.Mac, fmt: str) -> list:
    rng, known = np.random.default_rng(2), encode_format(emu.parse(fmt))
    a, b = (emu.quantize(rng.normal(0, 9, shape), fmt, backend="reference") for shape in ((1, 70, 19), (1, 19, 67)))
    stage = encode_stage(OutputStage.of("fix8f2"))
    register, path = RegisterCode(-4, 12, NO_QUANTUM), PATHS.get(fmt, "in_order")
    write = Write(stage, RandomCode(1, 2, 3, 0, None), register)
    found = written(table, (a, b, None), (known, known, None), encode_mac(mac), path, write)
    return [found.values.tolist(), found.flags.tolist(), found.register.tolist(), found.max_exponent]


def test_a_missing_barrier_is_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_fault(tmp_path, monkeypatch, *BARRIER)
    with pytest.raises(RaceError, match="elementwise"):
        quantized(HostDevice(checks="races"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("include/narrow_loop.cuh", "columns[i] = 0;\n    __syncthreads();", "columns[i] = 0;"),
        (
            "include/narrow_loop.cuh",
            "atomicAdd(&column[cut_place(cuts[j], positions) * LANES], 1u);",
            "column[cut_place(cuts[j], positions) * LANES] += 1u;",
        ),
    ],
)
def test_a_fault_in_the_fast_stage_is_a_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, right: str, wrong: str
):
    with_fault(tmp_path, monkeypatch, file, right, wrong)
    with pytest.raises(RaceError, match="narrow_stage"):
        quantized(HostDevice(checks="races"), dtype=np.float32)


@pytest.mark.slow
def test_a_missing_barrier_between_tiles_is_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    right = "flushed_float(next_right[n], flush_b);\n            }\n            __syncthreads();"
    with_fault(tmp_path, monkeypatch, "in_order.cu", right, right.rsplit("            __sync", 1)[0])
    with pytest.raises(RaceError, match="in_order"):
        summed(CudaKernels(HostDevice(checks="races")), emu.Mac(accumulator="fp32"), "fp16")


@most_are_slow("which", [0, 1], keep=[1])
def test_a_missing_barrier_between_tiles_of_integers_is_a_race(
    which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = ("first + k, depth);\n            }\n", "down * GROUP + i], right[k * APART + across * GROUP + j]);\n")[
        which
    ]
    right = f"{before}            __syncthreads();"
    with_fault(tmp_path, monkeypatch, "integer_tiles.cu", right, before)
    with pytest.raises(RaceError, match="sum_products_32"):
        summed(CudaKernels(HostDevice(checks="races")), emu.Mac(), "fix32f9")


def test_a_missing_barrier_changes_counts_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_fault(tmp_path, monkeypatch, *BARRIER)
    assert quantized(HostDevice(order="backward")) != EXPECTED["nearest_even"]


def test_an_increment_that_is_not_atomic_is_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fibers switch at barriers alone: no order shows it."""
    with_fault(tmp_path, monkeypatch, *INCREMENT)
    with pytest.raises(RaceError, match="elementwise"):
        quantized(HostDevice(checks="races"))


SHIFTS = """
import sys
from pathlib import Path
import numpy as np
from emu.backends.cuda import CudaKernels
from emu.backends.interface import RandomCode, Write, encode_stage
from emu.datapath import OutputStage
from tests.cuda import cuda_on_host
cuda_on_host.content_folder = lambda _: Path(sys.argv[1])
stage = encode_stage(OutputStage.of("ufix64f0", overflow="wrap"))
device = cuda_on_host.HostDevice(checks="sanitized")
write = Write(stage, RandomCode(0, 0, 0, 0, None), None)
CudaKernels(device).quantize(np.float64([1.0, 2.0**63, 2.0**70]), None, write, None)
"""


def run_sanitized(kernels: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SHIFTS, str(kernels)], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_shift_by_the_width_stops_a_sanitized_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert run_sanitized(content_folder("kernels")).returncode == 0
    with_fault(
        tmp_path,
        monkeypatch,
        "include/bits.cuh",
        "return count >= 64 ? v : v & ((1ull << count) - 1ull);",
        "return v & ((1ull << count) - 1ull);",
    )
    stopped = run_sanitized(tmp_path / "kernels")
    assert stopped.returncode != 0
    assert re.search(r"shift exponent 64 is too large", stopped.stderr)


def test_random_numbers_by_thread_instead_of_element_change_with_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with_fault(
        tmp_path,
        monkeypatch,
        "include/results.cuh",
        "draw(w.task, w.stage, w.recorded, static_cast<u64>(i))",
        "draw(w.task, w.stage, w.recorded, static_cast<u64>(threadIdx.x))",
    )
    assert quantized(HostDevice(), rounding="stochastic") != EXPECTED["stochastic"]
    assert quantized(HostDevice()) == EXPECTED["nearest_even"]


@needs_nvrtc
@pytest.mark.slow
def test_contraction_shows_in_what_the_compiler_wrote():
    assert not [i for i in floating_instructions(ptx_of("functions", "80"))["float64_function"] if i.startswith("fma")]
    contracted = ptx_of("functions", "80", tuple(o.replace("--fmad=false", "--fmad=true") for o in nvrtc.OPTIONS))
    assert [i for i in floating_instructions(contracted)["float64_function"] if i.startswith("fma")]


FLUSHED = 'extern "C" __global__ void product(float* x) { x[0] = x[1] * x[2]; }'


@needs_nvrtc
@pytest.mark.slow
def test_flushing_shows_in_what_the_compiler_wrote():
    for flag, expected in (("--ftz=false", "mul.rn.f32"), ("--ftz=true", "mul.rn.ftz.f32")):
        options = tuple(flag if option.startswith("--ftz") else option for option in nvrtc.OPTIONS)
        ptx = nvrtc.compile_kernels(FLUSHED, "flushed.cu", {}, "80", "ptx", options).decode()
        assert floating_instructions(ptx)["product"] == [expected]


def test_contraction_on_the_host_changes_the_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    x = np.random.default_rng(2).uniform(-20, 20, 4000)
    stage, random = encode_stage(OutputStage.of("fp64")), RandomCode(0, 0, 0, 0, None)
    write = Write(stage, random, None)
    right = CudaKernels(HostDevice()).function("exp", x, None, write).values
    assert np.array_equal(right, ReferenceKernels().function("exp", x, None, write).values)
    monkeypatch.setattr(
        cuda_on_host,
        "_FLAGS",
        (*(f for f in cuda_on_host._FLAGS if "contract" not in f), "-O2", "-ffp-contract=fast", "-mfma"),
    )
    assert not np.array_equal(right, CudaKernels(HostDevice()).function("exp", x, None, write).values)
