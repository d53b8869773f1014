"""What must come out of selections, of codes and raws, and of sparse matrices; and who judges which call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

import emu

from . import judge, model
from .judge import ZERO, Refused, Result, operand, readings, stage
from .things import INFINITE, NAN, Contents, NoNumbers, Real, contents


def expect_relu(_: str, given: Mapping[str, Any]) -> Result | Refused:
    found = operand(given["x"], None, "x")
    if isinstance(found, Refused):
        return found
    grid = found.readings[0].grid
    results = np.empty(grid.shape, object)
    for place in np.ndindex(grid.shape):
        x = grid[place]
        results[place] = x if x.magnitude == NAN or (not x.negative and x.magnitude != 0) else ZERO
    return Result([results], None, found.must)


def expect_max_pool(_: str, given: Mapping[str, Any]) -> Result | Refused:
    found = operand(given["windows"], None, "windows")
    if isinstance(found, Refused):
        return found
    grid = found.readings[0].grid
    if grid.ndim == 0 or grid.shape[-1] == 0:
        return Refused("no windows")
    results = np.empty(grid.shape[:-1], object)
    for place in np.ndindex(results.shape):
        window = list(grid[place])
        nans = [x for x in window if x.magnitude == NAN]
        results[place] = nans[0] if nans else max(window, key=_order)
    return Result([results], None, found.must)


def _order(x: Real) -> tuple[Any, bool]:
    size = Fraction(2) ** 20000 if x.magnitude == INFINITE else x.magnitude
    return (-size if x.negative else size), not x.negative  # type: ignore[operator]


def expect_encode(function: str, given: Mapping[str, Any]) -> Result | Refused:
    """Codes are compared as the values that they stand for."""
    found = operand(given["values"], _format_of(function), "values", arithmetic=False)
    return found if isinstance(found, Refused) else Result([r.grid for r in found.readings], None, found.must)


def expect_to_raw(function: str, given: Mapping[str, Any]) -> Result | Refused:
    found = operand(given["values"], _format_of(function), "values", arithmetic=False)
    if isinstance(found, Refused):
        return found
    scale = Fraction(2) ** emu.parse(_format_of(function)).frac_bits
    grids: list[Any] = []
    for reading in found.readings:
        reals = [Real(r.negative and r.magnitude != 0, r.magnitude * scale) for r in reading.reals]  # type: ignore[operator]
        grids.append(reading._replace(reals=reals).grid)
    return Result(grids, None, found.must)


def expect_contains(function: str, given: Mapping[str, Any]) -> Result | Refused:
    try:
        held = contents(given["values"])
    except (NoNumbers, RecursionError, OverflowError) as error:
        return Refused(str(error))
    fmt = emu.parse(_format_of(function))
    known = model.model_of(fmt)
    grids = []
    for reading in readings(held, fmt):
        answers = [Real(False, Fraction(model.holds(known, r))) for r in reading.reals]
        grids.append(reading._replace(reals=answers).grid)
    return Result(grids, None, held.plain)


def _coded(function: str, given: Mapping[str, Any], name: str, low: int, high: int) -> Contents | Refused:
    try:
        held = contents(given[name])
    except (NoNumbers, RecursionError, OverflowError) as error:
        return Refused(str(error))
    for r in held.reals:
        if not isinstance(r.magnitude, Fraction) or r.magnitude.denominator > 1 or not low <= r.signed <= high:
            return Refused(f"`{name}` holds no integers in {low}..{high}")
    return held


def expect_from_raw(function: str, given: Mapping[str, Any]) -> Result | Refused:
    fmt = emu.parse(_format_of(function))
    held = _coded(function, given, "raw", fmt.min_raw, fmt.max_raw)
    if isinstance(held, Refused):
        return held
    scale = Fraction(2) ** -fmt.frac_bits
    reals = [Real(r.negative and r.magnitude != 0, r.magnitude * scale) for r in held.reals]  # type: ignore[operator]
    return Result([held._replace(reals=reals).grid], None, held.kind == "integers")


def expect_decode(function: str, given: Mapping[str, Any]) -> Result | Refused:
    fmt = emu.parse(_format_of(function))
    held = _coded(function, given, "codes", 0, fmt.n_codes - 1)
    if isinstance(held, Refused):
        return held
    known = model.model_of(fmt)
    reals = [model.read_as(known, known.decode(int(r.signed)), arithmetic=True) for r in held.reals]
    return Result([held._replace(reals=reals).grid], None, held.kind == "integers")


def _format_of(function: str) -> str:
    return function.split("'")[1]


def expect_csr(function: str, given: Mapping[str, Any]) -> Result | Refused | None:
    if function.endswith("from_dense"):
        found = operand(given["x"], given["fmt"], "x", arithmetic=False)
        if isinstance(found, Refused):
            return found
        if len(found.readings[0].shape) != 2:
            return Refused("no matrix")
        return Result([r.grid for r in found.readings], None, found.must, signs=False)
    if function.endswith("from_scipy"):
        x = given["x"].tocoo()
        found = operand(x.data, given["fmt"], "x", arithmetic=False)
        if isinstance(found, Refused):
            return found
        return Result([_placed(r, x.row, x.col, x.shape) for r in found.readings], None, signs=False)
    found = operand(given["data"], given["fmt"], "data", arithmetic=False)
    if isinstance(found, Refused):
        return found
    if len(found.readings[0].shape) != 1:
        return Refused("entries in more than one dimension")
    rows = np.repeat(np.arange(len(given["indptr"]) - 1), np.diff(np.asarray(given["indptr"], np.int64)))
    return Result(
        [_placed(r, rows, given["indices"], given["shape"]) for r in found.readings], None, found.must, signs=False
    )


def _placed(held: Contents, rows: Any, columns: Any, shape: Any) -> Any:
    grid = np.empty(shape, object)
    grid[...] = [[ZERO] * shape[1]] * shape[0] if 0 not in shape else None
    for real, row, column in zip(held.reals, rows, columns, strict=True):
        grid[int(row), int(column)] = real
    return grid


def expect_sparse(function: str, given: Mapping[str, Any]) -> Result | Refused | None:
    """Of `matmul` alone: the others give some rows."""
    x = given["x"]
    if not isinstance(x, emu.sparse.CSR):
        return Refused("`x` is no CSR")
    name = "dy" if "dy" in given else "w"
    if given.get(f"{name}_format") is None and not isinstance(given[name], emu.Value):
        return Refused(f"`{name}` has no format")
    found = operand(given[name], given.get(f"{name}_format"), name)
    if isinstance(found, Refused):
        return found
    height = x.shape[0] if name == "dy" else x.shape[1]
    if len(found.readings[0].shape) != 2 or found.readings[0].shape[0] != height:
        return Refused("shapes do not fit")
    mac, out = given.get("mac"), stage(given, given["out_format"])
    if out is None or not (mac is None or mac.is_exact) or function.endswith("compact_matmul"):
        return None
    known = model.model_of(x.format)
    entries = contents(emu.Value(x.data, x.format))
    reals = [model.read_as(known, r, arithmetic=True) for r in entries.reals]
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    exact: list[Any] = []
    for reading in found.readings:
        grid = reading.grid
        if name == "dy":
            used = sorted(set(x.indices.tolist()))
            results = np.empty((len(used), grid.shape[1]), object)
            for place in np.ndindex(results.shape):
                terms = [
                    model.multiply(v, grid[r, place[1]])
                    for v, r, c in zip(reals, rows, x.indices, strict=True)
                    if c == used[place[0]]
                ]
                results[place] = model.summed(terms)
        else:
            results = np.empty((x.shape[0], grid.shape[1]), object)
            for place in np.ndindex(results.shape):
                terms = [
                    model.multiply(v, grid[c, place[1]])
                    for v, r, c in zip(reals, rows, x.indices, strict=True)
                    if r == place[0]
                ]
                results[place] = model.summed(terms)
        exact.append(results)
    return Result(exact, out, found.must, signs=False)


#: By the name that a case gives: of the call's function and arguments, what must come out.
JUDGES: dict[str, Callable[[str, Mapping[str, Any]], Result | Refused | None]] = {
    name.removeprefix("expect_"): found
    for module in (vars(judge), globals())
    for name, found in module.items()
    if name.startswith("expect_")
}


def expected(name: str, function: str, given: Mapping[str, Any]) -> Result | Refused | None:
    """What must come out of a call with these arguments; None where nobody knows."""
    return JUDGES[name](function, given) if name in JUDGES else None
