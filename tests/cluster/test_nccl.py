"""Parcels over NCCL, with a stand-in for CuPy whose GPUs lie in one process."""

from __future__ import annotations

import sys
from threading import get_ident
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from ranks_in_threads import InProcess, on_ranks

from emu.cluster.nccl import Nccl
from emu.cluster.transport import Distributed, RankError
from emu.errors import BackendUnavailable


class Memory:
    """An array of a GPU: it has an address, and a host must copy it."""

    held: ClassVar[dict[int, np.ndarray]] = {}

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.array(array, np.uint8)
        self.size = self.array.size
        self.data = SimpleNamespace(ptr=id(self))
        Memory.held[id(self)] = self.array


class Communicator:
    """Sends and receives of a group become one swap of the channel beside it."""

    names: ClassVar[list[tuple[int, ...]]] = []
    channels: ClassVar[dict[int, InProcess]] = {}

    def __init__(self, ranks: int, name: tuple[int, ...], rank: int) -> None:
        assert len(name) == 128
        Communicator.names.append(name)
        self.ranks, self.rank, self.is_aborted = ranks, rank, False
        self.sends: dict[int, bytes] = {}
        self.receives: dict[int, np.ndarray] = {}

    def send(self, ptr: int, count: int, kind: int, peer: int, stream: int) -> None:
        self.sends[peer] = Memory.held[ptr].tobytes()
        assert (len(self.sends[peer]), kind, peer != self.rank) == (count, 1, True)

    def recv(self, ptr: int, count: int, kind: int, peer: int, stream: int) -> None:
        self.receives[peer] = Memory.held[ptr]
        assert (Memory.held[ptr].size, kind) == (count, 1)

    def end(self) -> None:
        moved = Communicator.channels[self.rank].swap([self.sends.get(r, b"") for r in range(self.ranks)])
        for peer, place in self.receives.items():
            place[:] = np.frombuffer(moved[peer], np.uint8)
        self.sends, self.receives = {}, {}

    def abort(self) -> None:
        self.is_aborted = True

    def destroy(self) -> None:
        pass


class Stream:
    ptr = 7

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


#: The GPU that the process of each rank uses.
USED: dict[int, int] = {}


def install(monkeypatch: pytest.MonkeyPatch, *, done: bool = True) -> None:
    """Put the stand-in in CuPy's place."""
    Memory.held, Communicator.names = {}, []
    nccl, cupy = ModuleType("cupy.cuda.nccl"), ModuleType("cupy")
    made: dict[int, Communicator] = {}

    def communicator(ranks: int, name: tuple[int, ...], rank: int) -> Communicator:
        made[get_ident()] = Communicator(ranks, name, rank)
        return made[get_ident()]

    nccl.__dict__.update(
        available=True,
        NCCL_UINT8=1,
        get_unique_id=lambda: tuple(range(-64, 64)),
        NcclCommunicator=communicator,
        groupStart=lambda: None,
        groupEnd=lambda: made[get_ident()].end(),
    )
    event = SimpleNamespace(record=lambda stream: None, done=done)
    runtime = SimpleNamespace(getDeviceCount=lambda: 2)

    def device(number: int) -> SimpleNamespace:
        return SimpleNamespace(use=lambda: USED.__setitem__(get_ident(), number))

    cuda = SimpleNamespace(Device=device, Stream=Stream, Event=lambda: event, runtime=runtime)
    cupy.__dict__.update(
        cuda=cuda,
        asarray=Memory,
        empty=lambda size, dtype: Memory(np.zeros(size, dtype)),
        asnumpy=lambda held: held.array,
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", nccl)


def parcel(sender: int, receiver: int) -> bytes:
    return bytes([sender, receiver]) * (3 * sender + receiver)


def test_parcels_go_from_gpu_to_gpu_and_all_ranks_have_the_name_of_rank_0(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch)

    def work(beside: InProcess) -> list[bytes]:
        Communicator.channels[beside.rank] = beside
        channel = Nccl(beside, 5.0)
        arrived = channel.swap([parcel(beside.rank, to) for to in range(3)])
        nodes = Distributed(6, channel)
        assert nodes.gather({i: bytes([i]) * 4 for i in nodes.local}) == [bytes([i]) * 4 for i in range(6)]
        channel.close()
        assert beside.closed
        return arrived

    found = on_ranks(3, work)
    assert found == [[parcel(source, rank) for source in range(3)] for rank in range(3)]
    assert Communicator.names == [tuple(range(-64, 64))] * 3


@pytest.mark.parametrize(
    ("machines", "gpus"),
    [("aabb", [0, 1, 0, 1]), ("abab", [0, 0, 1, 1]), ("abba", [0, 0, 1, 1]), ("aaa", [0, 1, 0])],
)
def test_ranks_of_a_machine_divide_its_gpus_whichever_machine_the_launcher_gave_them(
    machines: str, gpus: list[int], monkeypatch: pytest.MonkeyPatch
):
    install(monkeypatch)
    names: dict[int, str] = {}
    monkeypatch.setattr("socket.gethostname", lambda: names[get_ident()])

    def work(beside: InProcess) -> int:
        names[get_ident()] = machines[beside.rank]
        Nccl(beside, 5.0)
        return USED[get_ident()]

    assert on_ranks(len(machines), work) == gpus


def test_parcels_that_do_not_arrive_in_time_end_the_communicator(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, done=False)

    def work(beside: InProcess) -> None:
        Communicator.channels[beside.rank] = beside
        channel = Nccl(beside, 0.01)
        with pytest.raises(RankError) as caught:
            channel.swap([b"x", b"y"])
        assert str(caught.value).startswith(
            f"NCCL must move all parcels within 0.01 s, and has not, as rank {beside.rank} reports; the job ends"
        )
        assert channel._communicator.is_aborted

    on_ranks(2, work)


def test_nccl_without_cupy_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    beside: Any = SimpleNamespace(rank=0, ranks=1)
    with pytest.raises(BackendUnavailable) as caught:
        Nccl(beside, 5.0)
    assert str(caught.value) == (
        "`cluster.transport` 'nccl' must have CuPy with NCCL and a GPU for each process, got 'import of cupy halted; "
        "None in sys.modules'; install them with pip install -e '.[cuda12,mpi]', or set it to 'mpi'"
    )
