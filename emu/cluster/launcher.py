"""The rank of a process before MPI begins: from variables that its launcher (mpirun, mpiexec, srun) sets."""

from __future__ import annotations

import os

#: Variables of a process's rank and of the number of ranks: MPICH, Intel MPI and Slurm; Open MPI; MVAPICH.
_NAMES = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)


def started() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks: (0, 1) if no launcher started it."""
    for rank, ranks in _NAMES:
        texts = [os.environ.get(name, "") for name in (rank, ranks)]
        # both variables of one launcher: one of them alone says nothing
        if all(text.isdecimal() for text in texts):
            return int(texts[0]), int(texts[1])
    return 0, 1
