"""What was measured: plain data that goes through JSON and back unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.measuring.timing import Spread


@dataclass(frozen=True)
class PeerResult:
    """A peer beside a row.

    Attributes:
        name: of the peer, and which of its ways.
        note: what its work lacks.
        rate: amount per second; None if it could not be measured.
        slower: our rate over its rate.
        failure: why there is no figure: how to install it, or what went wrong.
    """

    name: str
    note: str = ""
    rate: Spread | None = None
    slower: Spread | None = None
    failure: str = ""


@dataclass(frozen=True)
class Result:
    """A row on a number of threads.

    Attributes:
        row: its name.
        threads: of emu, of BLAS and of the peers.
        blas: kernel of the BLAS, as `threadpoolctl` names it.
        core_type: BLAS kernel asked for beside the environment's own; empty is that one.
        ours: emu's rate: amount per second.
        first_s: seconds of the first call, which compiles or loads from the cache.
        limit_name: what the limit is.
        limit: its rate.
        ratio: our rate over the limit's.
        path: how emu computed it.
        peers: peers on the same work.
        failure: why there is no figure.
        retaken: rounds that were taken again, because a processor was held back.
    """

    row: str
    threads: int
    blas: str = ""
    core_type: str = ""
    ours: Spread | None = None
    first_s: float = 0.0
    limit_name: str = ""
    limit: Spread | None = None
    ratio: Spread | None = None
    path: str = ""
    peers: tuple[PeerResult, ...] = ()
    failure: str = ""
    retaken: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @property
    def place(self) -> tuple[str, int, str]:
        """What was measured: results of one place are sweeps of each other."""
        return self.row, self.threads, self.core_type

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Return the result `to_dict` wrote, JSON between or not."""
        peers = tuple(PeerResult(**_spreads(peer, "rate", "slower")) for peer in data["peers"])
        fields: dict[str, Any] = {**_spreads(data, "ours", "limit", "ratio"), "peers": peers}
        return cls(**fields)


def median_sweeps(results: Sequence[Result]) -> tuple[Result, ...]:
    """Return one result for each place, in the order of the first ones: of several the one whose ratio is the median.

    A result without a ratio stands in only where no sweep has one. Peers are those of the sweep that met them.
    """
    places: dict[tuple[str, int, str], list[Result]] = {}
    for result in results:
        places.setdefault(result.place, []).append(result)
    return tuple(_median(sweeps) for sweeps in places.values())


def _median(sweeps: list[Result]) -> Result:
    ranked = sorted((x for x in sweeps if x.ratio is not None), key=lambda x: x.ratio.median if x.ratio else 0.0)
    found = ranked[(len(ranked) - 1) // 2] if ranked else sweeps[0]
    return replace(found, peers=next((x.peers for x in sweeps if x.peers), ()))


def _spreads(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**data, **{name: Spread(**data[name]) if data[name] else None for name in names}}


@dataclass(frozen=True)
class Session:
    """Everything one command measured.

    Attributes:
        machine: what it ran on: name -> text.
        results: in the order of the rows, threads ascending.
        quick: whether sizes were small, so that no figure is for the record.
    """

    machine: Mapping[str, str]
    results: tuple[Result, ...]
    quick: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "machine": dict(self.machine),
            "quick": self.quick,
            "results": [result.to_dict() for result in self.results],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Session:
        """Return the session `to_dict` wrote."""
        results = tuple(Result.from_dict(result) for result in data["results"])
        return cls(data["machine"], results, data["quick"])
