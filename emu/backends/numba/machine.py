"""The instructions that this processor has, and those that kernels may use.

`EMU_CPU=generic` keeps to the plain loops that run anywhere; unset or `native`, vector code is used where the processor
has the instructions. The bits are the same. Numba may compile for another processor (`NUMBA_CPU_NAME`,
`NUMBA_CPU_FEATURES`): vector code is then what that one has.
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
#: What vector code takes for granted: fused multiply-add, conversions of binary16, rounding instructions.
VECTOR_FEATURES = ("avx2", "fma", "f16c")
#: Dot products of 8-bit and 16-bit integers that add to 32-bit sums, on vectors of 512 bits.
DOT_FEATURES = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")


@lru_cache(maxsize=1)
def _features() -> dict[str, bool]:
    told = _NUMBA_CONFIG.CPU_FEATURES
    if told is None:
        return dict(_LLVM.get_host_cpu_features())
    return {feature[1:]: feature[0] == "+" for feature in str(told).split(",") if feature}


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
    """Return whether kernels may tell single instructions how to round."""
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
