"""From a wrong answer to the smallest case with a wrong answer, and its picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emu.datapath import Mac, Rounding, StatisticsRegister
from emu.datapath.order import Blocks, Promote, parse_order
from emu.formats import Float, Format
from emu.testing.bits import codes_of, describe_code, describe_pair, differing
from emu.testing.contract.case import Answer, Case, NotOffered
from emu.testing.contract.clauses import rules_of
from emu.testing.contract.python_unit import PythonUnit

Array = NDArray[Any]
#: The definition, with which every unit is compared.
REFERENCE = PythonUnit.of_backend("reference")
#: Orders of adds that are easily confused.
KNOWN_ORDERS = ("sequential", "pairwise", "lanes(2)", "lanes(4)", "lanes(8)")
#: Terms of a product that are shown.
MAX_TERMS = 6


class Answering(Protocol):
    """A unit that answers cases."""

    def answer(self, case: Case, *, flags: bool = False) -> Answer:
        """Return the unit's answer to a case."""
        ...


@dataclass(frozen=True)
class Finding:
    """A wrong answer.

    Attributes:
        case: the smallest case whose answer is wrong.
        index: of its only element in the case first asked.
        count: how many elements of that case were wrong, and how many it had; (0, 0) for flags and the register, and if
            the unit raised or returned something that is no value of the format.
        picture: lines that show operands, actual and expected.
        resembles: a rule that gives all answers to the case first asked, as "wrap"; "" if no known rule does.
    """

    case: Case
    index: tuple[int, ...]
    count: tuple[int, int]
    picture: tuple[str, ...]
    resembles: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield str(self.case)
        if self.count[1]:
            yield f"{self.count[0]} of {self.count[1]} elements differ"
        if self.resembles:
            yield f"all answers are those of {self.resembles}"
        yield f"shrunk to one element, at index {self.index}" if len(self.index) else "shrunk as far as it fails"
        yield from (f"  {line}" for line in self.picture)


def has_fault(unit: Answering, case: Case, observed: str) -> bool:
    """Return whether a unit's answer is wrong.

    `observed` says what is compared: `values`, `register`, or the name of a flag.

    Raises:
        NotOffered: the unit does not claim to answer.
    """
    return bool(_compared(unit, case, observed)[0])


def find_fault(unit: Answering, case: Case, observed: str) -> Finding | None:
    """Return what is wrong with a unit's answer, shrunk; None if nothing is.

    `observed` says what is compared: `values`, `register`, or the name of a flag.

    Raises:
        NotOffered: the unit does not claim to answer.
    """
    picture, wrong = _compared(unit, case, observed)
    if not picture:
        return None

    def fails(smaller: Case) -> bool:
        try:
            return bool(_compared(unit, smaller, observed)[0])
        except NotOffered:
            return False

    small, kept = _shrunk(case, fails)
    # a register or a count of flags may need several elements to differ: then there is no single index
    index = tuple(keep[0] for keep in kept) if all(len(keep) == 1 for keep in kept) else ()
    size = int(np.prod(case.shape)) if wrong else 0
    resembles = _resemblance(unit, case) if observed == "values" else ""
    return Finding(small, index, (wrong, size), tuple(_compared(unit, small, observed)[0]), resembles)


def _compared(unit: Answering, case: Case, observed: str) -> tuple[list[str], int]:
    """Return the picture of the first difference, empty if there is none, and the number of wrong elements.

    The number is 0 of flags and registers, and of answers that cannot be compared element by element.
    """
    flags = observed not in ("values", "register")
    # the reference fills a register only if it is what is compared
    expected = REFERENCE.answer(case if observed == "register" else replace(case, positions=None), flags=flags)
    try:
        actual = unit.answer(case, flags=flags)
    except NotOffered:
        # not a wrong answer, so it must not reach the broad clause below
        raise
    except Exception as error:  # whatever a unit raises is its answer
        return [*_operands(case, ()), f"raised    {type(error).__name__}: {error}"], 0
    if observed == "values":
        return _values_compared(case, actual.values, expected.values)
    if observed == "register":
        return _register_compared(case, *(_counts(answer.register) for answer in (actual, expected))), 0
    if observed not in actual.flags:
        raise NotOffered(f"`{case.operation}` does not count {observed}")
    ours, theirs = actual.flags[observed], expected.flags[observed]
    if ours == theirs:
        return [], 0
    return [*_operands(case, ()), f"actual    {observed} = {ours}", f"expected  {observed} = {theirs}"], 0


def _values_compared(case: Case, actual: Array, expected: Array) -> tuple[list[str], int]:
    if actual.shape != expected.shape:
        return [f"returned shape {actual.shape}, expected {expected.shape}"], expected.size
    fmt = case.stage.format
    try:
        ours, theirs = codes_of("returned", actual, fmt), codes_of("expected", expected, fmt)
    except AssertionError as error:
        return [*_operands(case, ()), str(error)], 0
    # an unsigned answer is codes already: -0 is a code of its own there, so codes are compared as they are
    differs = differing(fmt, ours, theirs, actual, expected) if actual.dtype.kind == "f" else ours != theirs
    if not differs.any():
        return [], 0
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    codes = int(ours[index]), int(theirs[index])
    pair = [line.removeprefix("  ") for line in describe_pair(fmt, codes, (actual[index], expected[index]))]
    return [*_operands(case, index), *pair], int(differs.sum())


def _counts(register: StatisticsRegister | None) -> dict[str, Any]:
    assert register is not None, "an answer about the register holds one"
    return register.to_dict()


def _register_compared(case: Case, actual: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    wrong = [name for name in expected if actual[name] != expected[name]]
    if not wrong:
        return []
    shown = [f"{name}: actual {actual[name]}, expected {expected[name]}" for name in wrong]
    return [*_operands(case, ()), *shown]


def _operands(case: Case, index: tuple[int, ...]) -> list[str]:
    """Return the lines that show the operands of an element; without an index, of the first element."""
    if case.operation == "matmul":
        return _product_operands(case, index or (0, 0))
    names = "x" if case.operation == "quantize" else "abc"
    return [
        f"{name:<10}{_shown(x[index or 0], fmt)}"
        for name, x, fmt in zip(names, case.operands, case.formats, strict=False)
    ]


def _product_operands(case: Case, index: tuple[int, ...]) -> list[str]:
    a, b = case.operands[0][index[0]], case.operands[1][:, index[1]]
    lines: list[str] = []
    for k in range(min(len(a), MAX_TERMS)):
        lines += [f"a[{k}]      {_shown(a[k], case.formats[0])}", f"b[{k}]      {_shown(b[k], case.formats[1])}"]
    if len(a) > MAX_TERMS:
        lines.append(f"... {len(a) - MAX_TERMS} more terms")
    return [*lines, *(f"addend    {_shown(c[index], case.formats[2])}" for c in case.operands[2:])]


def _shown(element: Any, fmt: Format | None) -> str:
    if fmt is None:
        return f"{float(element)!r} = {float(element).hex()}"
    return describe_code(fmt, int(fmt.encode(np.asarray(element))))


def _shrunk(case: Case, fails: Callable[[Case], bool]) -> tuple[Case, list[list[int]]]:
    """Return the smallest failing part of a case, and the indices that it keeps along each axis."""
    kept = [list(range(size)) for size in case.axes]
    for axis in range(len(kept)):

        def fails_with(keep: list[int], axis: int = axis) -> bool:
            return fails(_part(case, [*kept[:axis], keep, *kept[axis + 1 :]]))

        kept[axis] = _smallest(kept[axis], fails_with)
    # the axis of a product's terms is no axis of its result
    return _part(case, kept), kept[: len(case.shape)]


def _part(case: Case, kept: list[list[int]]) -> Case:
    for axis, keep in enumerate(kept):
        case = case.taking(axis, keep)
    return case


def _smallest(keep: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    """Return a failing sublist from which no part can be left out (Zeller's ddmin, by halves)."""
    # `keep` always fails; a part that fails replaces it, and only if none does the parts become smaller
    size = len(keep) // 2
    while size >= 1:
        smaller = next((part for part in _parts(keep, size) if fails(part)), None)
        size = size // 2 if smaller is None else min(size, len(smaller) // 2)
        keep = keep if smaller is None else smaller
    return keep


def _parts(keep: list[int], size: int) -> Iterator[list[int]]:
    """Yield pieces of a list, then the list without each of them; never an empty list or the whole."""
    for start in range(0, len(keep), size):
        if size < len(keep):
            yield keep[start : start + size]
    for start in range(0, len(keep), size):
        if rest := keep[:start] + keep[start + size :]:
            yield rest


def _resemblance(unit: Answering, case: Case) -> str:
    """Return which other rule gives all answers to a case: a mode, an overflow rule, an order, a habit of hardware."""
    try:
        actual = unit.answer(case).values
    except Exception:  # then it resembles nothing
        return ""
    names = [
        name
        for name, other in _neighbours(case)
        if not _values_compared(case, actual, REFERENCE.answer(replace(other, positions=None)).values)[0]
    ]
    expected = REFERENCE.answer(replace(case, positions=None)).values
    if expected.dtype.kind == "f":
        # -0.0 + 0.0 is +0.0 under round to nearest (IEEE 754-2019 6.3)
        habits = {"lost signs of zero": expected + 0.0, "flushed subnormals": _flushed(case, expected)}
        names += [name for name, values in habits.items() if not _values_compared(case, actual, values)[0]]
    return " or ".join(names)


def _flushed(case: Case, values: Array) -> Array:
    fmt = case.stage.format
    least = fmt.smallest_normal if isinstance(fmt, Float) else 0
    return np.where(np.abs(values) < least, np.copysign(0, values), values).astype(values.dtype)


def _neighbours(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield cases whose stage or unit is easily confused with the case's."""
    stage, mac = case.stage, case.mac
    if mac is not None and not mac.is_exact:
        yield from _other_units(case, mac)
    for mode in _other_modes(stage.rounding):
        yield mode.value, replace(case, stage=replace(stage, rounding=mode))
    for rule in rules_of(stage.format):
        if rule is not stage.overflow:
            yield rule.value, replace(case, stage=replace(stage, overflow=rule))


def _other_modes(own: Rounding) -> list[Rounding]:
    """Return the other modes that draw no random bits."""
    return [mode for mode in Rounding if mode is not own and not mode.draws]


def _other_units(case: Case, mac: Mac) -> Iterator[tuple[str, Case]]:
    orders = [parse_order(order) for order in KNOWN_ORDERS]
    if isinstance(mac.order, Blocks):
        # a unit of blocks that keeps up to two alignment bits fewer or more
        bits = range(max(mac.order.fraction_bits - 2, 0), mac.order.fraction_bits + 3)
        orders += [replace(mac.order, fraction_bits=b) for b in bits]
    elif not isinstance(mac.order, Promote):
        # blocks and promoted sums need an accumulator that rounds and a product that is exact: Mac refuses the others
        yield "an accumulator that never rounds", _with_mac(case, mac, accumulator="exact")
        yield "products that are not rounded", _with_mac(case, mac, product="exact")
    for order in orders:
        if order != mac.order:
            yield f"order {order}", _with_mac(case, mac, order=order)
    for mode in _other_modes(mac.rounding):
        yield f"adds {mode.value}", _with_mac(case, mac, rounding=mode)


def _with_mac(case: Case, mac: Mac, **changes: Any) -> Case:
    """Return a case with another unit; Mac has its own constructor."""
    fields = {name: getattr(mac, name) for name in ("product", "accumulator", "order", "rounding", "overflow")}
    return replace(case, mac=Mac(**{**fields, **changes}))
