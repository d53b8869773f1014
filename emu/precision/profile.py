"""Where the time of a run goes: every operation of the datapath by layer, role, name and the path it took.

    step time = sum of the operations + host        host: batch, optimiser, bookkeeping of autodiff

Times are measured, never reproduced: they enter no hash, and no bit depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

from emu.autodiff import Operation, Value
from emu.engine import ProductRecord
from emu.hardware import Demand

#: What time outside the datapath is called where operations have their names.
HOST = "host"


class Place(NamedTuple):
    """What is timed together.

    Attributes:
        layer: layer whose result was written; empty for the host.
        role: the result's role; empty for the host.
        operation: its name in the runner's table, or `HOST`.
        path: path of its product; empty without one.
        fallback: why the backend left the product to the reference; empty if it did not.
    """

    layer: str
    role: str
    operation: str
    path: str = ""
    fallback: str = ""


@dataclass(slots=True)
class Work:
    """What was done at one place.

    Attributes:
        calls: how many operations; of the host, how many steps.
        seconds: how long they took.
        elements: elements of their results.
        multiply_adds: multiply-adds of their products.
        first_calls: those of them that were a process's first, which load or compile kernels.
        first_seconds: how long those took.
        proof: why the path of the newest product is exact.
        fresh: whether this process has not been here yet.
    """

    calls: int = 0
    seconds: float = 0.0
    elements: int = 0
    multiply_adds: int = 0
    first_calls: int = 0
    first_seconds: float = 0.0
    proof: str = ""
    fresh: bool = True

    def add(self, seconds: float, elements: int) -> None:
        """Count a call."""
        self.calls += 1
        self.seconds += seconds
        self.elements += elements
        if self.fresh:
            self.fresh = False
            self.first_calls += 1
            self.first_seconds += seconds

    def reset(self) -> None:
        """Set counts and times to 0."""
        self.calls = self.elements = self.multiply_adds = self.first_calls = 0
        self.seconds = self.first_seconds = 0.0


#: Columns of a row that say what was done.
_COUNTED = ("calls", "seconds", "elements", "multiply_adds", "first_calls", "first_seconds", "proof")


class Profile:
    """Work by place, in the order of first use.

    Attributes:
        clock: returns seconds; only differences count.
        log: where the engine writes down the products of the operation that runs.
        demands: gets what each operation asks of the machine that is emulated; None where its time is not wanted.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self.log: list[ProductRecord] = []
        self.demands: list[Demand] | None = None
        self._work: dict[tuple[str, ...], Work] = {}
        self._began, self._inside = 0.0, 0.0

    def begin_step(self) -> None:
        """A step begins: what passes until its end, and is no operation, is the host's."""
        self._inside = 0.0
        self._began = self.clock()

    def end_step(self) -> None:
        """The step is over."""
        seconds = self.clock() - self._began - self._inside
        self._at(("", "", HOST, "", "")).add(seconds, 0)

    def add(
        self,
        layer: str,
        role: str,
        operation: Operation,
        seconds: float,
        value: Value,
        passes: int = 0,
        *,
        again: bool = False,
    ) -> None:
        """Add an operation that is done, and the products it left in the log.

        Args:
            layer: layer whose result it wrote.
            role: the result's role.
            operation: what was done.
            seconds: how long it took.
            value: its result; of several arrays, the first is the one written.
            passes: steps of it that the host ran.
            again: whether it ran before, at another point.
        """
        self._inside += seconds
        several = type(value.array) is tuple
        elements: int = (value.array[0] if several else value.array).size
        multiply_adds = 0
        if not self.log:
            self._at((layer, role, operation.name, "", "")).add(seconds, elements)
        else:
            plan = (self.log[0] if len(self.log) == 1 else max(self.log, key=_weight)).plan
            work = self._at((layer, role, operation.name, plan.path, plan.fallback))
            work.add(seconds, elements)
            work.proof = plan.proof
            for record in self.log:
                multiply_adds += record.multiply_adds
            work.multiply_adds += multiply_adds
            self.log.clear()
        if self.demands is not None:
            read = tuple([(operand.format, operand.array.size) for operand in operation.operands])
            indices = sum([operand.index_bytes for operand in operation.operands])
            demand = (layer, role, operation.name, elements, multiply_adds, passes, read, value.format, again, indices)
            self.demands.append(Demand(*demand))

    def _at(self, place: tuple[str, ...]) -> Work:
        work = self._work.get(place)
        if work is None:
            work = self._work[place] = Work()
        return work

    def items(self) -> list[tuple[Place, Work]]:
        """Return places and what was done there."""
        return [(Place(*place), work) for place, work in self._work.items()]

    def reset(self) -> None:
        """Set every count and time to 0; places stay."""
        for work in self._work.values():
            work.reset()

    def snapshot(self) -> dict[tuple[str, ...], Work]:
        """Return what `put_back` takes."""
        return {place: replace(work) for place, work in self._work.items()}

    def put_back(self, kept: Mapping[tuple[str, ...], Work]) -> None:
        """Forget what was done since a snapshot, but not that this process has been there."""
        self.reset()
        self._work |= {
            place: replace(work, fresh=work.fresh and self._work[place].fresh) for place, work in kept.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of plain data (JSON) for each place where something was done, as `load` reads it."""
        return [
            place._asdict() | {name: getattr(work, name) for name in _COUNTED}
            for place, work in self.items()
            if work.calls
        ]

    def load(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace everything by what `rows` returned, maybe in another process."""
        self._work = {
            tuple(row[name] for name in Place._fields): Work(**{name: row[name] for name in _COUNTED}) for row in rows
        }


def _weight(record: ProductRecord) -> tuple[bool, int]:
    """Return what makes a product stand for its operation: left to the reference, else the largest."""
    return bool(record.plan.fallback), record.multiply_adds
