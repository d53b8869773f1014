"""check_backend: tests a unit of your own against the arithmetic contract, clause by clause.

unit ──► every clause of docs/concepts/ ──► passed | FAILED with its smallest counterexample | not offered
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from emu.backends.registry import backends
from emu.datapath import Rounding
from emu.datapath.order import Order, parse_order
from emu.datapath.stage import require_placed
from emu.errors import FormatError
from emu.formats import Format, parse
from emu.formats.integers import as_integer
from emu.testing.contract.c_unit import CUnit
from emu.testing.contract.case import OPERATIONS, NotOffered
from emu.testing.contract.clauses import Clause, Scope, clauses_of
from emu.testing.contract.finding import Answering, Finding, find_fault, has_fault
from emu.testing.contract.python_unit import PythonUnit

# all families: NaN as in IEEE 754, at the top code and at that of -0; flushed subnormals; fixed point of either kind
FORMATS = ("fp16", "fix8f4", "bf16", "fp8_e4m3", "e4m3fnuz", "e5m2 no-subnormals", "fix16f8", "ufix8f3", "fp32")
ORDERS = ("sequential", "pairwise", "lanes(4)")
Status = Literal["passed", "FAILED", "not offered"]


@dataclass(frozen=True)
class ClauseReport:
    """The result of one clause.

    Attributes:
        name: operation and sentence.
        status: "passed", "FAILED" or "not offered".
        cases: calls that were answered, and how many of those answers were wrong.
        reason: why calls were not offered; "" if all were.
        finding: the first wrong answer, shrunk.
    """

    name: str
    status: Status
    cases: tuple[int, int]
    reason: str = ""
    finding: Finding | None = None

    def __str__(self) -> str:
        asked, wrong = self.cases
        notes = [f"{wrong} of {asked} cases" if wrong else f"{asked} cases"] if asked else []
        notes += [f"not offered: {self.reason}" if asked else self.reason] if self.reason else []
        lines = [f"{self.status:<11}  {self.name:<44}  {'; '.join(notes)}".rstrip()]
        if self.finding is not None:
            lines += [f"               {line}" for line in self.finding.lines()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """The results of all clauses; `print` shows them.

    Attributes:
        clauses: in the order of the contract.
    """

    clauses: tuple[ClauseReport, ...]

    def named(self, status: Status) -> list[str]:
        """Return the names of the clauses of a status."""
        return [clause.name for clause in self.clauses if clause.status == status]

    @property
    def failed(self) -> list[str]:
        """Names of the clauses that failed."""
        return self.named("FAILED")

    @property
    def passed(self) -> bool:
        """Whether something was offered and nothing failed."""
        return not self.failed and bool(self.named("passed"))

    def __getitem__(self, name: str) -> ClauseReport:
        """Return the report of one clause.

        Raises:
            KeyError: no clause of that name was in scope.
        """
        for clause in self.clauses:
            if clause.name == name:
                return clause
        raise KeyError(name)

    def __str__(self) -> str:
        statuses: tuple[Status, ...] = ("passed", "FAILED", "not offered")
        counts = ", ".join(f"{len(self.named(status))} {status}" for status in statuses)
        return "\n".join([*map(str, self.clauses), counts])

    def require(self) -> Report:
        """Return the report, or raise it.

        Raises:
            AssertionError: a clause failed, or none was offered; the text names the failed ones.
        """
        __tracebackhide__ = True  # pytest then points at the test
        if not self.passed:
            shown = [clause for clause in self.clauses if clause.status == "FAILED"]
            raise AssertionError("\n".join(map(str, shown)) or "no clause of the contract is offered")
        return self


def check_backend(
    implementation: Any,
    *,
    operations: Iterable[str] | None = None,
    formats: Iterable[str | Format] = FORMATS,
    roundings: Iterable[str | Rounding] | None = None,
    orders: Iterable[str | Order] = ORDERS,
    elements: int = 128,
    seed: int = 0,
) -> Report:
    """Run the arithmetic contract against a unit of your own, and report every clause.

    Args:
        implementation: a mapping, object or module of functions named as emu's own (`quantize`, `add`, ... `matmul`)
            that take the same arguments as far as they care; one such function (any other name: `quantize`); the path
            of a shared library with the functions of `emu_backend.h`; or the name of one of emu's backends. Functions
            get carrier arrays and return carrier arrays, or codes in an unsigned dtype; they add to `flags` and fill
            `register` if they take them, and raise NotImplementedError for what they do not offer.
        operations: those to ask for; None: all.
        formats: formats written and read, each of any family.
        roundings: modes; None: all. Stochastic rounding is asked with recorded bits.
        orders: orders of `matmul`'s adds.
        elements: elements of a case, more or less.
        seed: of the data.

    Returns:
        The report: `print(report)`, `report.passed`, `report.failed`, `report["quantize: subnormals"]`,
        `report.require()` in a test.

    Raises:
        FormatError: an unknown operation, format, mode or order, or no function of the contract.
        ConfigError: a library that cannot be loaded.

    Exactness: codes are compared, every NaN counting as the canonical one, -0 differing from +0.

    Examples:
        >>> import numpy as np
        >>> def quantize(x, rounding="nearest_even"):
        ...     if rounding != "nearest_even":
        ...         raise NotImplementedError
        ...     with np.errstate(over="ignore"):
        ...         return x.astype(np.float16)
        >>> check_backend(quantize, formats=["fp16"]).failed
        []
    """
    elements, seed = as_integer("elements", elements, 1), as_integer("seed", seed, 0)
    asked = OPERATIONS if operations is None else tuple(operations)
    for operation in asked:
        if operation not in OPERATIONS:
            raise FormatError(f"`operations` must be among {', '.join(OPERATIONS)}, got {operation!r}")
    # operands of a unit have no scales beside them, and their binary point is in place
    known = tuple(require_placed(parse(fmt)) for fmt in formats)
    modes = tuple(Rounding) if roundings is None else tuple(Rounding.parse(mode) for mode in roundings)
    if not (known and modes):
        raise FormatError("`formats` and `roundings` must name at least one each, got none")
    scope = Scope(asked, known, modes, tuple(parse_order(order) for order in orders), elements, seed)
    unit = _unit_of(implementation, single_format=len(known) == 1)
    return Report(tuple(_checked(unit, clause) for clause in clauses_of(scope)))


def _unit_of(implementation: Any, *, single_format: bool) -> Answering:
    if isinstance(implementation, str) and implementation in backends():
        return PythonUnit.of_backend(implementation)
    # a text that names no backend is a path
    if isinstance(implementation, (str, Path)):
        return CUnit.load(Path(implementation))
    return PythonUnit.of(implementation, single_format=single_format)


def _checked(unit: Answering, clause: Clause) -> ClauseReport:
    asked, wrong, reason = 0, 0, ""
    first: Finding | None = None
    for case in clause.cases():
        try:
            # shrinking takes many calls, so only the first fault of a clause is shrunk
            if first is None:
                first = find_fault(unit, case, clause.observed)
                is_wrong = first is not None
            else:
                is_wrong = has_fault(unit, case, clause.observed)
        except NotOffered as error:
            reason = reason or str(error)
            continue
        asked += 1
        wrong += is_wrong
    status: Status = "FAILED" if wrong else "passed" if asked else "not offered"
    return ClauseReport(clause.name, status, (asked, wrong), reason, first)
