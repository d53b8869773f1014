"""Bytes between real processes: they arrive; a rank that dies, stops or fails ends the job, and is named."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from jobs import job, needs_mpi

from emu.cluster import launcher, mpi
from emu.errors import BackendUnavailable

pytestmark = needs_mpi

#: A job whose every rank runs BODY with `channel` and `rank`.
RANK = """
import os, signal, sys, time
from emu.cluster.mpi import Mpi, end_job, failed, leave
from emu.cluster.transport import Distributed
try:
    channel = Mpi({timeout_s})
    rank, ranks = channel.rank, channel.ranks
    for _ in range(3):
        channel.swap([b"begin"] * ranks)
{body}
    channel.close()
    leave()
except Exception as error:
    failed(error)
    raise
os.write(1, b"rank %d is done\\n" % rank)
"""


def ranks(number: int, body: str, timeout_s: float = 60.0, **options: Any) -> Any:
    indented = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return job((number, ["-c", RANK.format(timeout_s=timeout_s, body=indented)]), **options)


def test_parcels_of_all_lengths_arrive_at_those_they_are_for():
    """Empty ones, small ones, and ones that MPI does not send before the receiver is there; nodes of the same rank."""
    ended = ranks(
        3,
        """
def parcel(sender, receiver, size):
    return bytes([sender, receiver]) * size
for size in (0, 1, 3, 100_000, 3_000_000):
    arrived = channel.swap([parcel(rank, to, size * to) for to in range(ranks)])
    assert arrived == [parcel(source, rank, size * rank) for source in range(ranks)], size
nodes = Distributed(6, channel)
assert list(nodes.local) == [2 * rank, 2 * rank + 1]
sent = {(i, j): bytes([i, j]) * (i + 3 * j) for i in nodes.local for j in range(6) if i != j}
assert nodes.swap(sent) == {(i, j): bytes([i, j]) * (i + 3 * j) for i in range(6) for j in nodes.local if i != j}
assert nodes.gather({i: bytes([i]) * i for i in nodes.local}) == [bytes([i]) * i for i in range(6)]
""",
    )
    assert (ended.code, ended.errors, ended.outlived) == (0, "", [])
    assert sorted(ended.output.splitlines()) == [f"rank {rank} is done" for rank in range(3)]


def test_a_rank_that_is_stopped_is_named_and_the_job_ends():
    ended = ranks(4, "if rank == 2: os.kill(os.getpid(), signal.SIGSTOP)\nchannel.swap([b''] * ranks)", timeout_s=2.0)
    assert ended.of_emu() == [
        "emu: rank 0: rank 2 has not answered within 2 s; the job ends, its last checkpoint is intact; look at that "
        "rank's machine, or raise `cluster.timeout_s`, and start again with --resume"
    ]
    assert ended.code == 2
    assert ended.outlived == []


@pytest.mark.slow
def test_a_rank_that_only_waits_for_the_one_that_stopped_is_not_named():
    """Ranks 0 and 1 are one swap further than rank 3, which waits for rank 2 as they wait for both."""
    ended = ranks(
        4,
        """
if rank == 2:
    for to in (0, 1):
        channel._comm.Send([b"x", channel._mpi.BYTE], dest=to, tag=1)
    os.kill(os.getpid(), signal.SIGSTOP)
channel.swap([b"x"] * ranks)
channel.swap([b"y"] * ranks)
""",
        timeout_s=3.0,
    )
    assert ended.code == 2
    assert ended.of_emu()
    assert all(": rank 2 has not answered within 3 s" in line for line in ended.of_emu())


def test_a_rank_that_is_killed_is_named_and_the_job_ends():
    ended = ranks(4, "if rank == 2: os.kill(os.getpid(), signal.SIGKILL)\nchannel.swap([b''] * ranks)")
    assert ended.code != 0
    assert [line.split(";")[0].split(":")[1] for line in ended.of_emu()] == [" rank 2 has died"]
    assert "its last checkpoint is intact; start it again with --resume" in ended.errors
    assert ended.outlived == []


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (
            "from emu.errors import ConfigError; raise ConfigError('the disk must\\nhave room')",
            "the disk must have room",
            2,
        ),
        pytest.param("raise KeyError('pixel')", "Traceback (most recent call last):", 1, marks=pytest.mark.slow),
    ],
    ids=["of the input", "of the program"],
)
def test_an_error_on_one_rank_ends_the_job_and_says_where(error: str, text: str, code: int):
    ended = ranks(3, f"if rank == 1: {error}\nchannel.swap([b''] * ranks)")
    assert ended.of_emu() == [f"emu: rank 1: {text}"]
    assert ended.code == code
    assert ended.outlived == []


def test_what_all_ranks_have_to_say_one_says():
    ended = ranks(3, "from emu.errors import ConfigError; raise ConfigError('no')")
    assert ended.of_emu() == ["emu: rank 0: no"]


def test_a_rank_that_does_not_begin_ends_the_job():
    waits = "import time; time.sleep(60)"
    begins = "from emu.cluster.mpi import Mpi; Mpi(2.0)"
    ended = job((1, ["-c", begins]), (1, ["-c", waits]))
    assert ended.of_emu() == [
        "emu: rank 0: all ranks must have begun within 2 s, and some have not; look at the other ranks' machines, or "
        "raise `cluster.timeout_s`"
    ]
    assert ended.outlived == []


def test_mpi_without_mpi4py_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(BackendUnavailable) as caught:
        mpi.Mpi(60.0)
    assert str(caught.value) == (
        "`cluster.transport` 'mpi' must have mpi4py and an MPI, got 'import of mpi4py.MPI halted; None in "
        "sys.modules'; install both with pip install -e '.[mpi]', or start one process alone"
    )


def test_a_launcher_of_another_mpi_is_refused():
    script = (
        "import os\nos.environ |= {'OMPI_COMM_WORLD_RANK': '1', 'OMPI_COMM_WORLD_SIZE': '4'}\n"
        "from emu.cluster.mpi import Mpi\nfrom emu.errors import ConfigError\n"
        "try: Mpi(60.0)\nexcept ConfigError as error: print(error)"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert output.startswith("the launcher must belong to the MPI of mpi4py (")
    assert output.endswith(
        "), got one that started 4 processes, of which that MPI finds 1; use the mpirun of the same MPI\n"
    )


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, (0, 1)),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "8"}, (0, 8)),
        ({"PMI_RANK": "3"}, (0, 1)),
    ],
    ids=str,
)
def test_the_launcher_says_rank_and_ranks(environment: dict[str, str], found: Any, monkeypatch: pytest.MonkeyPatch):
    for name in ("PMI", "OMPI_COMM_WORLD", "MV2_COMM_WORLD"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launcher.started() == found
