"""What a launcher of MPI (mpirun, mpiexec, srun) tells the processes that it starts, before MPI itself begins."""

from __future__ import annotations

import os

#: Number of a process and how many there are: MPICH, Intel MPI and Slurm; Open MPI; MVAPICH.
_NAMES = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)


def started() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks: (0, 1) where no launcher started it."""
    for rank, ranks in _NAMES:
        found = [os.environ.get(name, "") for name in (rank, ranks)]
        if all(text.isdecimal() for text in found):
            return int(found[0]), int(found[1])
    return 0, 1
