"""Several ranks in one process: a thread each, of which one works at a time, so that a job takes milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

ResultT = TypeVar("ResultT")
PATIENCE_S = 60.0


class Board:
    """Where ranks leave what they send."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.left: list[Sequence[bytes]] = [()] * ranks
        self.turn, self.all_here = threading.Lock(), threading.Barrier(ranks)


class InProcess:
    """The channel of a thread."""

    def __init__(self, board: Board, rank: int) -> None:
        self.board, self.rank, self.ranks = board, rank, board.ranks
        self.swaps, self.closed = 0, False

    def swap(self, parcels: Sequence[bytes]) -> list[bytes]:
        assert len(parcels) == self.ranks
        self.swaps += 1
        self.board.left[self.rank] = [bytes(parcel) for parcel in parcels]
        self._meet()
        found = [left[self.rank] for left in self.board.left]
        self._meet()
        return found

    def _meet(self) -> None:
        self.board.turn.release()
        try:
            self.board.all_here.wait(PATIENCE_S)
        finally:
            self.board.turn.acquire()

    def close(self) -> None:
        self.closed = True


def on_ranks(ranks: int, work: Callable[[InProcess], ResultT]) -> list[ResultT]:
    """Return what the work gives on every rank.

    Raises:
        Exception: the first one that a rank raises by itself.
    """
    board = Board(ranks)
    results: dict[int, ResultT] = {}
    errors: list[Exception] = []

    def run(rank: int) -> None:
        with board.turn:
            try:
                results[rank] = work(InProcess(board, rank))
            except threading.BrokenBarrierError:
                pass
            except Exception as error:
                errors.append(error)
                board.all_here.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10 * PATIENCE_S)
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(ranks)]
