"""The environment of a measuring process: libraries read their settings once, when they load.

EMU_THREADS, OPENBLAS_NUM_THREADS, OMP_NUM_THREADS, ...   the same number for every side
OMP_WAIT_POLICY=PASSIVE, OPENBLAS_THREAD_TIMEOUT          a pool that waits must sleep, or it spins against the other
OPENBLAS_CORETYPE                                         the kernels of NumPy's BLAS: its own choice, and SkylakeX
"""

from __future__ import annotations

from collections.abc import Mapping

THREAD_VARIABLES = (
    "EMU_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "APYTYPES_THREAD_COUNT",
)
CORE_TYPE = "OPENBLAS_CORETYPE"
#: OpenBLAS kernels with AVX-512 and with AVX2, and the processor's flag of the first.
WIDE_CORE_TYPE, NARROW_CORE_TYPE, WIDE_FLAG = "SkylakeX", "Haswell", "avx512bw"
#: 2**this processor cycles until an idle OpenBLAS thread sleeps: the least it takes.
OPENBLAS_TIMEOUT = "4"


def other_core_type(base: Mapping[str, str], flags: set[str]) -> str:
    """Return the BLAS kernels of the other width than the environment's; empty without AVX-512.

    Examples:
        >>> other_core_type({}, {"avx512bw"}), other_core_type({"OPENBLAS_CORETYPE": "Haswell"}, {"avx512bw"})
        ('Haswell', 'SkylakeX')
    """
    if WIDE_FLAG not in flags:
        return ""
    return NARROW_CORE_TYPE if base.get(CORE_TYPE, WIDE_CORE_TYPE) == WIDE_CORE_TYPE else WIDE_CORE_TYPE


def environment(base: Mapping[str, str], threads: int, core_type: str = "") -> dict[str, str]:
    """Return `base` with everything fixed that a library reads when it loads.

    Args:
        base: environment of the command.
        threads: of emu, of BLAS and of the peers.
        core_type: `OPENBLAS_CORETYPE`; empty leaves it as it is.
    """
    fixed = {name: str(threads) for name in THREAD_VARIABLES}
    fixed |= {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": OPENBLAS_TIMEOUT}
    return {**base, **fixed, **({CORE_TYPE: core_type} if core_type else {})}
