"""What must come out of a call, from what its arguments hold; formats are read by `emu.parse`, nothing else is emu's.

`expected` gives `Refused` where an operand is none, the readings of the operands otherwise: arrays of rational numbers,
one for each way of reading integers that may be raws or values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import emu

from . import model
from .things import Contents, NoNumbers, Real, contents

#: Rules and modes the model has; others are only compared between backends.
MODES = frozenset((
    "nearest_even", "nearest_away", "nearest_up", "nearest_down", "nearest_zero", "floor", "ceil", "toward_zero",
    "to_odd", "nearest_odd", "away_from_zero", "jamming", "magnitude_truncation",
))  # fmt: skip
ZERO = Real(False, Fraction(0))


class Refused(NamedTuple):
    """A call that must be refused, and why."""

    why: str


class Result(NamedTuple):
    """What must come out.

    Attributes:
        exact: arrays of exact results before they are written; any of them may be meant.
        out: the format written; None where results are values as they are.
        must: whether refusing would be a fault.
        signs: whether the sign of a zero counts.
    """

    exact: list[Any]
    out: Any
    must: bool = True
    signs: bool = True


class Operand(NamedTuple):
    """An operand as arithmetic may read it: several readings where integers may be raws or values."""

    readings: list[Contents]
    must: bool


def operand(x: Any, fmt: Any, name: str, *, arithmetic: bool = True) -> Operand | Refused:
    """What an operand holds, or why it must be refused."""
    try:
        held = contents(x)
    except (NoNumbers, RecursionError, OverflowError) as error:
        return Refused(f"`{name}` is no array of real numbers: {error}")
    if isinstance(x, emu.Value) and x.format is not None:
        if fmt is not None and emu.parse(fmt) != x.format:
            return Refused(f"`{name}` has another format")
        known = model.model_of(x.format)
        return Operand([_read(held, known, arithmetic)], must=True)
    if fmt is None:
        fits = _fits_a_carrier(held)
        return Operand([held if fits else _without_negative_zero(held)], must=fits and held.plain)
    parsed = emu.parse(fmt)
    known = model.model_of(parsed)
    inside = [r for r in readings(held, parsed) if all(model.holds(known, real) for real in r.reals)]
    if not inside:
        return Refused(f"`{name}` holds what is no value of its format")
    return Operand([_read(r, known, arithmetic) for r in inside], must=held.plain and held.kind != "objects")


def _read(held: Contents, known: Any, arithmetic: bool) -> Contents:
    return held._replace(reals=[model.read_as(known, real, arithmetic=arithmetic) for real in held.reals])


def _without_negative_zero(held: Contents) -> Contents:
    """Numbers that only a word with fraction bits holds: a word has no -0."""
    return held._replace(reals=[r if r.magnitude else ZERO for r in held.reals])


def readings(held: Contents, fmt: Any) -> list[Contents]:
    """Integers beside a format that carries raws are raws; other numbers are values; objects may be either."""
    if not fmt.carries_raws or held.kind == "floats":
        return [held]
    scale = Fraction(2) ** -fmt.frac_bits
    if any(not isinstance(r.magnitude, Fraction) or r.magnitude.denominator > 1 for r in held.reals):
        return [held]
    raws = held._replace(reals=[Real(r.negative, r.magnitude * scale) for r in held.reals])  # type: ignore[operator]
    return [raws] if held.kind == "integers" else [raws, held]


def _fits_a_carrier(held: Contents) -> bool:
    """Whether float64, or 64-bit integers of one signedness, hold all numbers."""
    doubles = all(isinstance(r.magnitude, str) or model.holds(_FP64, r) for r in held.reals)
    integers = all(isinstance(r.magnitude, Fraction) and r.magnitude.denominator == 1 for r in held.reals)
    return doubles or (
        integers
        and any(all(low <= r.signed < high for r in held.reals) for low, high in ((-(2**63), 2**63), (0, 2**64)))
    )


_FP64 = model.WideFloat(11, 52)


def operands(given: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Any]:
    for name, fmt in names.items():
        yield operand(given[name], given.get(fmt), name)


def stage(given: Mapping[str, Any], fmt: Any) -> Any:
    """The format written, if the model has its mode."""
    known = str(given.get("rounding", "nearest_even")) in MODES
    return emu.parse(fmt) if known else None


def expect_value(_: str, given: Mapping[str, Any]) -> Result | Refused:
    found = operand(given["array"], given["fmt"], "array", arithmetic=False)
    return found if isinstance(found, Refused) else Result([r.grid for r in found.readings], None, found.must)


def expect_quantize(_: str, given: Mapping[str, Any]) -> Result | Refused | None:
    found = operand(given["x"], given.get("x_format"), "x")
    if isinstance(found, Refused):
        return found
    out = stage(given, given["fmt"])
    return None if out is None else Result([r.grid for r in found.readings], out, found.must)


def expect_elementwise(function: str, given: Mapping[str, Any]) -> Result | Refused | None:
    operation = function.rpartition(".")[2]
    names = [name for name in "abcx" if name in given]
    found = list(operands(given, {name: f"{name}_format" for name in names}))
    if refused := [f for f in found if isinstance(f, Refused)]:
        return refused[0]
    shapes = [f.readings[0].shape for f in found]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return Refused(f"shapes {shapes} do not broadcast")
    out = stage(given, given["out_format"])
    if out is None or operation not in model.ELEMENTWISE:
        return None
    mode, rule = str(given.get("rounding", "nearest_even")), model.ELEMENTWISE[operation]
    exact: list[Any] = []
    for readings in itertools.product(*[f.readings for f in found]):
        grids = [np.broadcast_to(r.grid, shape) for r in readings]
        results = np.empty(shape, object)
        for place in np.ndindex(shape):
            results[place] = rule(mode, *[grid[place] for grid in grids])
        exact.append(results)
    return Result(exact, out, all(f.must for f in found))


def expect_compare(_: str, given: Mapping[str, Any]) -> Result | Refused | None:
    found = list(operands(given, {"a": "a_format", "b": "b_format"}))
    if refused := [f for f in found if isinstance(f, Refused)]:
        return refused[0]
    exact: list[Any] = []
    for left, right in itertools.product(*[f.readings for f in found]):
        try:
            a, b = np.broadcast_arrays(left.grid, right.grid)
        except ValueError:
            return Refused("shapes do not broadcast")
        results = np.empty(a.shape, object)
        for place in np.ndindex(a.shape):
            order = model.compare(a[place], b[place])
            results[place] = Real(order < 0, Fraction(abs(order)))
        exact.append(results)
    return Result(exact, None, all(f.must for f in found))


def expect_matmul(function: str, given: Mapping[str, Any]) -> Result | Refused | None:
    return _product(given, {"a": "a_format", "b": "b_format"}, "addend", lambda a, b: model.matmul(a, b))


def expect_conv2d(function: str, given: Mapping[str, Any]) -> Result | Refused | None:
    pairs = [
        tuple(int(n) for n in given.get(name, default)) for name, default in (("stride", (1, 1)), ("padding", (0, 0)))
    ]

    def convolved(x: Contents, w: Contents) -> Any:
        return model.conv2d(x, w, *pairs)

    return _product(given, {"x": "x_format", "w": "w_format"}, "bias", convolved)


def _product(given: Mapping[str, Any], names: Mapping[str, str], third: str, multiply: Any) -> Result | Refused | None:
    found = list(operands(given, names))
    for (name, fmt), one in zip(names.items(), found, strict=True):
        if given.get(fmt) is None and not isinstance(given[name], emu.Value):
            return Refused(f"`{name}` has no format")
        if isinstance(one, Refused):
            return one
    added = None
    if given.get(third) is not None:
        added = operand(given[third], given.get(f"{third}_format"), third)
        if isinstance(added, Refused):
            return added
    mac = given.get("mac")
    out = stage(given, given["out_format"])
    if out is None or not (mac is None or mac.is_exact):
        return None
    exact: list[Any] = []
    must = all(f.must for f in found) and (added is None or added.must)
    must = must and (third == "addend" or 0 not in found[1].readings[0].shape)  # a kernel may have to hold something
    for left, right in itertools.product(*[f.readings for f in found]):
        results = multiply(left, right)
        if results is None:
            return Refused("shapes do not fit")
        if third == "bias" and added is not None and added.readings[0].shape != results.shape[1:2]:
            return Refused("the bias has another shape")
        for one in added.readings if added is not None else [None]:
            if one is None:
                exact.append(results)
                continue
            grid = one.grid[:, None, None] if third == "bias" and one.grid.ndim == 1 else one.grid
            try:
                grid = np.broadcast_to(grid, results.shape)
            except ValueError:
                return Refused("the addend does not broadcast")
            whole = np.empty(results.shape, object)
            for place in np.ndindex(results.shape):
                whole[place] = model.add(results[place], grid[place])
            exact.append(whole)
    return Result(exact, out, must, signs=False)


def expect_total(function: str, given: Mapping[str, Any]) -> Result | Refused | None:
    if given.get("x_format") is None and not isinstance(given["x"], emu.Value):
        return Refused("`x` has no format")
    found = operand(given["x"], given.get("x_format"), "x")
    if isinstance(found, Refused):
        return found
    mac, out = given.get("mac"), stage(given, given["out_format"])
    if out is None or not (mac is None or mac.is_exact):
        return None
    axis = given.get("axis")
    axis = tuple(int(a) for a in axis) if isinstance(axis, (tuple, list)) else None if axis is None else int(axis)
    exact = [model.total(r, axis, averaged=function.endswith("average")) for r in found.readings]
    if any(e is None for e in exact):
        return Refused("an axis is outside")
    return Result(exact, out, found.must, signs=False)


def expect_function(_: str, given: Mapping[str, Any]) -> Refused | None:
    found = operand(given["x"], given.get("x_format"), "x")
    return found if isinstance(found, Refused) else None
