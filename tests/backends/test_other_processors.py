"""Vector code for processors that are not this one: compiled for them, run here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from variants import needs_vectors

HERE = Path(__file__).parent
#: What a processor with AVX2 and nothing newer has.
AVX2 = [
    "sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
    "cx16", "cmov", "fxsr", "mmx", "64bit", "movbe",
]  # fmt: skip


def told(**more: str) -> dict[str, str]:
    """The environment of a process whose Numba compiles for that processor."""
    features = ",".join(f"+{name}" for name in AVX2)
    return {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features, **more}


def run(*command: str) -> str:
    done = subprocess.run(command, env=told(), capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@needs_vectors
def test_vector_code_is_what_the_processor_numba_compiles_for_has():
    asked = "has_vectors", "has_pair_products", "has_dot_products", "has_half_arithmetic"
    ask = f"from emu.backends.numba import machine as m; print(*(getattr(m, name)() for name in {asked}))"
    assert run(sys.executable, "-c", ask).split() == ["True", "True", "False", "False"]


@needs_vectors
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "chosen"),
    [
        ("test_kernel_table.py", "not slow and not gpu"),
        ("test_codec_kernels.py", "not slow and not gpu"),
        ("test_kernel_table_products.py", "not slow and not gpu"),
        ("test_batched_products.py", "not gpu"),
        ("test_transposed_products.py", "not gpu"),
        ("test_words_in_halves.py", "not slow and not gpu"),
        ("test_blocks_in_tiles.py", "not slow and not gpu"),
        ("test_swept_units.py", "slow"),
    ],
)
def test_kernels_compiled_for_avx2_alone_give_the_same_bits(tests: str, chosen: str):
    options = ["-q", "-o", "addopts=", "-p", "no:cacheprovider", "-m", chosen]
    only_vectors = ["-k", "not generic"]  # plain loops have no such code
    assert " passed" in run(sys.executable, "-m", "pytest", *options, *only_vectors, str(HERE / tests))
