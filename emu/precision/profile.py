"""Where the time of a run goes: each operation of the datapath by layer, role, name and the path it took.

    step time = sum of the operations + host        host: what no operation takes, such as bookkeeping of autodiff

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

#: Name of the time outside the datapath, in place of an operation's.
HOST = "host"


class Category(NamedTuple):
    """Operations that are timed together.

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
class Measurement:
    """What the operations of one category did and took.

    Attributes:
        calls: how many operations; of the host, how many steps.
        seconds: how long they took.
        elements: elements of their results.
        multiply_adds: multiply-adds of their products.
        first_calls: calls that were a process's first of this category: they load or compile kernels.
        first_seconds: how long these took.
        proof: why the path of the newest product is exact.
        fresh: whether this process has not run an operation of the category yet.
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
    """What each category of operations took, in the order of first use.

    Attributes:
        clock: returns seconds; only differences count.
        log: gets a record of each product of the operation that runs.
        demands: gets what each operation asks of the emulated machine; None if its time is not simulated.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.clock = clock
        self.log: list[ProductRecord] = []
        self.demands: list[Demand] | None = None
        self._measurements: dict[tuple[str, ...], Measurement] = {}
        self._began, self._in_operations = 0.0, 0.0

    def begin_step(self) -> None:
        """Start the clock of a step: its time that no operation takes is the host's."""
        self._in_operations = 0.0
        self._began = self.clock()

    def end_step(self) -> None:
        """Stop the clock of a step, and add the host's time."""
        seconds = self.clock() - self._began - self._in_operations
        # what operations leave of the step
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
        """Add an operation that has run, and the products that it left in the log.

        Args:
            layer: layer whose result it wrote.
            role: the result's role.
            operation: what ran.
            seconds: how long it took.
            value: its result; of several arrays, the first is the written one.
            passes: intermediate results of it that the host wrote.
            again: whether it ran before, at another point.
        """
        self._in_operations += seconds
        # a tuple holds the written array, and beside it what the backward pass needs
        several = type(value.array) is tuple
        elements: int = (value.array[0] if several else value.array).size
        multiply_adds = 0
        if not self.log:
            self._at((layer, role, operation.name, "", "")).add(seconds, elements)
        else:
            # an operation is in one category, so one of its products stands for all
            # the host sums several times, and a promoting order multiplies run by run: the heaviest product, or one
            # left to the reference, names the path
            plan = (self.log[0] if len(self.log) == 1 else max(self.log, key=_weight)).plan
            measurement = self._at((layer, role, operation.name, plan.path, plan.fallback))
            measurement.add(seconds, elements)
            measurement.proof = plan.proof
            for record in self.log:
                multiply_adds += record.multiply_adds
            measurement.multiply_adds += multiply_adds
            # the list is shared with units of all roles: emptied, never replaced
            self.log.clear()
        if self.demands is not None:
            read = tuple([(operand.format, operand.array.size) for operand in operation.operands])
            indices = sum([operand.index_bytes for operand in operation.operands]) + value.made_index_bytes
            demand = (layer, role, operation.name, elements, multiply_adds, passes, read, value.format, again, indices)
            self.demands.append(Demand(*demand))

    def _at(self, category: tuple[str, ...]) -> Measurement:
        measurement = self._measurements.get(category)
        if measurement is None:
            measurement = self._measurements[category] = Measurement()
        return measurement

    def items(self) -> list[tuple[Category, Measurement]]:
        """Return the categories and what each took."""
        return [(Category(*category), measurement) for category, measurement in self._measurements.items()]

    def reset(self) -> None:
        """Set every count and time to 0; categories stay."""
        for measurement in self._measurements.values():
            measurement.reset()

    def snapshot(self) -> dict[tuple[str, ...], Measurement]:
        """Return what `put_back` takes."""
        return {category: replace(measurement) for category, measurement in self._measurements.items()}

    def put_back(self, kept: Mapping[tuple[str, ...], Measurement]) -> None:
        """Forget what was done since a snapshot, but not that this process has compiled kernels meanwhile."""
        self.reset()
        self._measurements |= {
            category: replace(measurement, fresh=measurement.fresh and self._measurements[category].fresh)
            for category, measurement in kept.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of plain data (JSON) for each category with calls, as `load` reads it."""
        return [
            category._asdict() | {name: getattr(measurement, name) for name in _COUNTED}
            for category, measurement in self.items()
            if measurement.calls
        ]

    def load(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace everything by what `rows` returned, here or in another process."""
        self._measurements = {
            tuple(row[name] for name in Category._fields): Measurement(**{name: row[name] for name in _COUNTED})
            for row in rows
        }


def _weight(record: ProductRecord) -> tuple[bool, int]:
    """Return the key whose largest value stands for an operation: a product left to the reference, else the largest."""
    return bool(record.plan.fallback), record.multiply_adds
