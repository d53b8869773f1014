"""The process that measures: its threads and its BLAS kernel were fixed by the environment before it began.

    stdin    one line of JSON: {"rows": [names], "peers": [names], "quick": bool, "threads": int,
              "core_type": what the environment asked of BLAS, "budget_s": seconds of a row's rounds}
    stdout   one line of JSON per row: a `Result`

Whatever a peer prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from typing import Any, TextIO

from threadpoolctl import threadpool_info  # pyright: ignore[reportMissingTypeStubs]

from benchmarks.measuring.peer import Peer
from benchmarks.measuring.pinning import pinned, processors
from benchmarks.measuring.result import PeerResult, Result
from benchmarks.measuring.row import Prepared, Row, Side
from benchmarks.measuring.steadiness import Steadiness
from benchmarks.measuring.timing import FULL, QUICK, Pace, alternate, rates, ratios
from benchmarks.peers import PEERS
from benchmarks.rows import all_rows


class Bench:
    """Measures rows one after the other.

    Attributes:
        threads: how many every side may use.
        quick: whether sizes are small.
        peers: who else does the work.
        core_type: which BLAS kernels the process was started with; empty is the library's choice.
        pace: how long a row takes.
        available: processors to pin threads on.
    """

    def __init__(
        self, threads: int, *, quick: bool, peers: list[Peer], core_type: str = "", budget_s: float = FULL.budget_s
    ) -> None:
        self.threads, self.quick, self.peers, self.core_type = threads, quick, peers, core_type
        self.pace: Pace = QUICK if quick else replace(FULL, budget_s=budget_s)
        self.available = processors()
        self.steady = Steadiness(threads)

    def measure(self, row: Row) -> Result:
        """Return a row's result; a failure is written down, not raised, so that the next rows are measured."""
        try:
            return self._measure(row)
        except Exception as error:
            return Result(row.name, self.threads, failure=_text(error))

    def _measure(self, row: Row) -> Result:
        self.steady.retaken = 0
        prepared = row.prepare(self.quick)
        ours = prepared.ours
        start = time.perf_counter()
        ours.run()
        first_s = time.perf_counter() - start
        limit = prepared.limit
        sides = [ours] if limit is None else [ours, limit]
        pace = self.pace if self.quick else replace(self.pace, sample_s=max(self.pace.sample_s, row.sample_s))
        seconds = self._alternate(sides, pace)
        asked = self.peers if row.group == "table" else []
        return Result(
            row.name,
            self.threads,
            blas=blas_kernel(),
            core_type=self.core_type,
            ours=rates(seconds[0], ours.amount),
            first_s=first_s,
            limit_name=limit.name if limit else f"absent: pip install {row.needs}" if row.needs else "",
            limit=rates(seconds[1], limit.amount) if limit else None,
            ratio=ratios(seconds[0], ours.amount, seconds[1], limit.amount) if limit else None,
            path=prepared.path,
            peers=tuple(found for peer in asked for found in self._beside(peer, prepared, pace)),
            retaken=self.steady.retaken,
        )

    def _beside(self, peer: Peer, prepared: Prepared, pace: Pace) -> list[PeerResult]:
        """Return a peer's figures, each taken in turns with ours."""
        if not peer.is_here:
            return [PeerResult(peer.name, failure=peer.remedy)]
        try:
            return [self._against(prepared.ours, side, pace) for side in peer.sides(prepared.task)]
        except Exception as error:
            return [PeerResult(peer.name, failure=_text(error))]

    def _against(self, ours: Side, theirs: Side, pace: Pace) -> PeerResult:
        mine, other = self._alternate([ours, theirs], pace)
        slower = ratios(mine, ours.amount, other, theirs.amount)
        return PeerResult(theirs.name, theirs.note, rates(other, theirs.amount), slower)

    def _alternate(self, sides: list[Side], pace: Pace) -> list[list[float]]:
        works = [side.run for side in sides]
        with pinned(works, self.threads, self.available) as settle:
            return alternate(works, pace, settle=settle, steady=None if self.quick else self.steady)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def blas_kernel() -> str:
    """Return which kernels NumPy's BLAS chose for this processor."""
    ask: Any = threadpool_info
    found = {str(item.get("architecture")) for item in ask() if item.get("internal_api") == "openblas"}
    return ", ".join(sorted(found)) or "unknown"


def main() -> None:
    """Read the job, measure, write a line per row."""
    answers = _take_stdout()
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    peers = [PEERS[name] for name in job["peers"]]
    options = {name: job[name] for name in ("threads", "quick", "core_type", "budget_s")}
    bench = Bench(peers=peers, **options)
    known = {row.name: row for row in all_rows()}
    for name in job["rows"]:
        answers.write(json.dumps(bench.measure(known[name]).to_dict()) + "\n")
        answers.flush()


def _take_stdout() -> TextIO:
    """Return stdout for us alone; what others print, compiled code included, goes to stderr from now on."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ours


if __name__ == "__main__":
    main()
