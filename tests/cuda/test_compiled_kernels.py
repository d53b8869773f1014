"""What NVIDIA's compiler makes of the kernels: code for every architecture, float arithmetic only where listed."""

from __future__ import annotations

import pytest
from fast_suite import some_of

from emu._paths import content_folder
from emu.backends.cuda import nvrtc
from tests.cuda.cuda_on_host import ptx_of
from tests.cuda.ptx_on_host import floating_instructions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not nvrtc.is_here(), reason="no NVRTC: pip install '.[nvrtc]'"),
]
SOURCES = sorted(path.stem for path in content_folder("kernels").glob("*.cu"))
#: Kernels with floating-point arithmetic, and all of it: correctly rounded, not contracted, not flushed; whole floats
#: become integers toward zero.
LISTED = {
    "in_order_64": {"fma.rn.f32"},
    "in_order_128": {"fma.rn.f32"},
    "encode_columns": {
        *(f"{operation}.rn.{kind}" for operation in ("add", "sub", "mul", "div", "sqrt") for kind in ("f32", "f64")),
        *(f"cvt.rn.{to}.{of}" for to in ("f32", "f64") for of in ("s32", "u32", "s64")),
        *("cvt.f64.f32", "cvt.rn.f32.f64", "cvt.rzi.u32.f32", "cvt.rzi.u32.f64"),
    },
    "decode_columns": {
        *(f"{operation}.rn.f32" for operation in ("add", "sub", "mul", "div")),
        *("add.rn.f64", "cvt.f64.f32", "cvt.rn.f32.u32", "cvt.rn.f32.s32"),
    },
    "scales_of_blocks": {f"{operation}.rn.f32" for operation in ("add", "sub", "mul", "div")},
    "elements_of_blocks": {"mul.rn.f32", "div.rn.f32"},
    "float64_function": {"add.rn.f64", "sub.rn.f64", "mul.rn.f64", "div.rn.f64", "rcp.rn.f64", "sqrt.rn.f64"},
}


#: Architectures and words of 32 bits that kernels are compiled for.
COMPILED_FOR = [
    *((architecture, nvrtc.WIDE_WORDS) for architecture in nvrtc.ARCHITECTURES),
    *((architecture, words) for architecture in (nvrtc.ARCHITECTURES[0], nvrtc.ARCHITECTURES[-1]) for words in (1, 2)),
]


@pytest.mark.parametrize(
    ("source", "architecture", "words"), some_of(((source, *how) for source in SOURCES for how in COMPILED_FOR), 4)
)
def test_every_file_compiles_for_every_architecture(source: str, architecture: str, words: int):
    code = nvrtc.Source.named(source).compiled(architecture, options=nvrtc.options_for(words))
    assert code.startswith(b"\x7fELF")


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("architecture", ["80", "90"])
@pytest.mark.parametrize("source", SOURCES)
def test_integer_kernels_have_no_floating_point_arithmetic(source: str, architecture: str, words: int):
    found = floating_instructions(ptx_of(source, architecture, nvrtc.options_for(words)))
    assert found, "every file has a kernel"
    for kernel, instructions in found.items():
        assert set(instructions) <= LISTED.get(kernel, set()), kernel
    listed = [kernel for kernel in found if kernel in LISTED]
    assert all(found[kernel] for kernel in listed)
