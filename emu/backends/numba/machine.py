"""Which instructions the processor has, and which of them kernels may use.

`EMU_CPU=generic` allows only plain loops, which run on any processor; unset or `native`, vector code is used if the
processor has the instructions. The bits are the same. If Numba compiles for another processor (`NUMBA_CPU_NAME`,
`NUMBA_CPU_FEATURES`), the instructions are those of that one.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import llvmlite.binding  # pyright: ignore[reportMissingTypeStubs]
import numba

from emu.errors import ConfigError

_LLVM: Any = llvmlite.binding
_NUMBA_CONFIG: Any = vars(numba)["config"]
CHOICES = ("native", "generic")
#: What all vector code uses: fused multiply-add, conversions of binary16, vectors of 256 bits.
VECTOR_FEATURES = ("avx2", "fma", "f16c")
#: Dot products of 8-bit and 16-bit integers that add to 32-bit sums, on vectors of 512 bits.
DOT_FEATURES = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")
#: Arithmetic of binary16 itself, on vectors of 512 bits.
HALF_FEATURES = ("avx512f", "avx512fp16")


@lru_cache(maxsize=1)
def _features() -> dict[str, bool]:
    configured = _NUMBA_CONFIG.CPU_FEATURES
    if configured is None:
        return dict(_LLVM.get_host_cpu_features())
    # As LLVM writes them: "+avx2,-avx512f".
    return {feature[1:]: feature[0] == "+" for feature in str(configured).split(",") if feature}


@lru_cache(maxsize=1)
def processor() -> str:
    """Return `EMU_CPU`: "native", the default, or "generic".

    Raises:
        ConfigError: it is something else.
    """
    wanted = os.environ.get("EMU_CPU", "") or "native"
    if wanted not in CHOICES:
        raise ConfigError(
            f"EMU_CPU must be {' or '.join(CHOICES)}, got {wanted!r}; unset it to use what the processor has"
        )
    return wanted


def _has(features: tuple[str, ...]) -> bool:
    return processor() == "native" and all(_features().get(name, False) for name in features)


@lru_cache(maxsize=1)
def has_vectors() -> bool:
    """Return whether kernels may be vector code."""
    return _has(VECTOR_FEATURES)


@lru_cache(maxsize=1)
def has_long_vectors() -> bool:
    """Return whether vectors have 512 bits, and there are 32 of them; otherwise 256, and 16."""
    return has_vectors() and _has(("avx512f",))


@lru_cache(maxsize=1)
def has_directed_rounding() -> bool:
    """Return whether a single instruction can be told how to round, as in AVX-512."""
    return has_vectors() and _has(("avx512f",))


@lru_cache(maxsize=1)
def has_ternary_logic() -> bool:
    """Return whether one instruction makes any function of three bits."""
    return has_vectors() and _has(("avx512f",))


@lru_cache(maxsize=1)
def has_pair_products() -> bool:
    """Return whether one instruction multiplies 16-bit integers and adds neighbours, as AVX2 does."""
    return has_vectors()


@lru_cache(maxsize=1)
def has_dot_products() -> bool:
    """Return whether one instruction adds products of neighbouring 8-bit or 16-bit integers to 32-bit sums."""
    return has_vectors() and _has(DOT_FEATURES)


@lru_cache(maxsize=1)
def has_half_arithmetic() -> bool:
    """Return whether one instruction adds or multiplies binary16 numbers, or does both and rounds once."""
    return has_vectors() and _has(HALF_FEATURES)
