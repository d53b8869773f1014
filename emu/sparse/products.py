"""Products of a sparse matrix: each result is a Mac's dot product over its entries, in storage order.

    matmul               y = x w        result (r, h): the entries of row r
    compact_matmul       the same, for the rows that have entries
    transposed_matmul    P = x^T dy     result (u, h): the entries of column V2[u], in row order; nothing is transposed

Planner, unit, output stage, register and flags are those of `emu.matmul`; its k runs over the entries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from emu.backends.interface import EXACT_PATHS, Kernels, StageCode, encode_format, encode_mac
from emu.backends.pattern import Pattern
from emu.datapath import Mac
from emu.engine import matmul as dense_matmul
from emu.engine.elementwise import require_options
from emu.engine.planner import Plan, may_gain_from_maxima, plan_product
from emu.engine.products import DEFINITION, accumulator_of, as_addend, held_by, written_to
from emu.engine.request import Request, as_operand
from emu.engine.sources import require_addressed, source_of
from emu.engine.work import WorkRecord
from emu.errors import FormatError, ShapeError
from emu.formats import Format, parse
from emu.sparse.compact import Compact
from emu.sparse.csr import CSR

Array = NDArray[Any]
Formats = tuple[Format, Format, Format | None]
#: Options of `emu.matmul` that these products have too.
_OPTIONS = {
    name: option.default
    for name, option in inspect.signature(dense_matmul).parameters.items()
    if option.kind is option.KEYWORD_ONLY and name not in ("a_format", "b_format", "out_format")
}


def matmul(x: CSR, w: Any, *, w_format: str | Format, out_format: str | Format, **options: Any) -> Array:
    """Return x w + addend: each result is a unit's dot product over the entries of its row, in storage order.

    Args:
        x: sparse matrix (M, N).
        w: values of `w_format`, (N, H).
        w_format: format of `w`.
        out_format: format written.
        **options: those of `emu.matmul`: addend, addend_format, mac, rounding, overflow, random bits, register, flags,
            out, backend, check.

    Returns:
        Carrier array of `out_format`, (M, H). A row without entries is 0, or the addend.

    Raises:
        FormatError: an operand holds a value outside its format.
        ShapeError: the shapes do not fit together, or `x` is no CSR.

    Examples:
        >>> x = CSR.from_dense([[0.0, 2.0], [0.5, 1.0]], "fix8f4")
        >>> matmul(x, [[1.0], [0.25]], w_format="fix8f4", out_format="fix8f4").tolist()
        [[0.5], [0.75]]
    """
    _require_sparse(x)
    return _written(x, w, x.shape[1], x.by_rows, "w", w_format, out_format, options)


def compact_matmul(x: CSR, w: Any, *, w_format: str | Format, out_format: str | Format, **options: Any) -> Compact:
    """Return the rows of x w that have entries; arguments as of `matmul`, an addend's rows being these."""
    _require_sparse(x)
    values = _written(x, w, x.shape[1], x.by_used_rows, "w", w_format, out_format, options)
    return Compact(x.unique_rows, values, x.shape[0], parse(out_format))


def transposed_matmul(x: CSR, dy: Any, *, dy_format: str | Format, out_format: str | Format, **options: Any) -> Compact:
    """Return x^T dy for the columns of x that have entries, without a transpose of x.

    Args:
        x: sparse matrix (M, N); its V1 and V2 are built if they are not there yet.
        dy: values of `dy_format`, (M, H).
        dy_format: format of `dy`.
        out_format: format written.
        **options: those of `emu.matmul`. Random bits, recorded bits, register, flags and `out` are those of the compact
            rows (U, H).

    Returns:
        Rows V2 with values (U, H): each a unit's dot product over the entries of its column, in row order.

    Raises:
        FormatError: an operand holds a value outside its format.
        ShapeError: the shapes do not fit together, or `x` is no CSR.

    Examples:
        >>> x = CSR.from_dense([[0.0, 2.0, 0.0], [0.0, 1.0, 0.5]], "fix8f4")
        >>> found = transposed_matmul(x, [[1.0], [0.5]], dy_format="fix8f4", out_format="fix8f4")
        >>> found.rows.tolist(), found.values.tolist()
        ([1, 2], [[2.5], [0.25]])

    Source: US 12,008,475.
    """
    _require_sparse(x)
    pattern = x.by_columns(options.get("backend", "auto"))
    values = _written(x, dy, x.shape[0], pattern, "dy", dy_format, out_format, options)
    return Compact(x.unique_columns, values, x.shape[1], parse(out_format))


def _written(
    x: CSR,
    dense: Any,
    height: int,
    pattern: Pattern,
    name: str,
    dense_format: str | Format,
    out_format: str | Format,
    options: dict[str, Any],
) -> Array:
    given = _settings(options)
    right, fb = _as_matrix(dense, dense_format, height, name, check=given["check"])
    shape, mac = (pattern.results, right.shape[1]), given["mac"]
    addend, fc = _as_addend(given, shape)
    if mac.rounding.draws:
        source = source_of(given["random"], given["rbits"], given["seed"], given["stream"], given["step"])
        require_addressed(source, mac)
    request = _request(given, out_format, shape)
    values = write_sparse(x, right, addend, (x.format, fb, fc), pattern, mac, request)
    return values if given["out"] is None else written_to(given["out"], values)


def write_sparse(
    x: CSR,
    dense: Array,
    addend: Array | None,
    formats: Formats,
    pattern: Pattern,
    mac: Mac,
    request: Request,
    log: list[WorkRecord] | None = None,
) -> Array:
    """Write the dot products of a pattern as the request says: what every product here comes to.

    Args:
        x: sparse matrix.
        dense: (rows the pattern reads, H) carriers.
        addend: (results or 1, H or 1) carriers, or None.
        formats: of entries, dense operand and addend.
        pattern: of `x`: by rows or by columns.
        mac: the unit.
        request: stage, random bits, register, flags, backend.
        log: is given a record of the work: one row whose inner size is the number of entries.

    Returns:
        Carriers (results, H).
    """
    plan = _plan(request, formats, x.data, dense, pattern.longest, mac)
    if addend is not None and plan.addend is not None:
        addend = held_by(addend, formats[2], plan.addend, mac, request)
    place = request.place(accumulator_of(*formats, pattern.longest, mac))
    outcome = request.kernels.sparse_product(
        x.data,
        dense,
        addend,
        pattern,
        _codes(formats, plan),
        encode_mac(plan.mac),
        request.stage_code,
        request.random,
        place,
        plan.path,
    )
    if log is not None:
        log.append(WorkRecord((1, 1, x.nnz, dense.shape[1]), formats, plan))
    return request.account(outcome)


def _require_sparse(x: object) -> None:
    """Raise ShapeError unless `x` is a CSR."""
    if not isinstance(x, CSR):
        made = "from_scipy" if hasattr(x, "tocoo") else "from_dense"
        raise ShapeError(f"`x` must be an emu.sparse.CSR, got {type(x).__name__}; make one with CSR.{made}(x, FORMAT)")


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    require_options("sparse product", options, tuple(_OPTIONS))
    return {**_OPTIONS, **options}


def _request(given: dict[str, Any], out_format: str | Format, shape: tuple[int, int]) -> Request:
    names = (
        "rounding",
        "overflow",
        "n_rbits",
        "rbits",
        "seed",
        "stream",
        "step",
        "register",
        "flags",
        "backend",
        "random",
    )
    return Request.of(out_format, shape=shape, **{name: given[name] for name in names})


def _as_matrix(x: Any, fmt: str | Format, height: int, name: str, *, check: bool) -> tuple[Array, Format]:
    array, parsed = as_operand(x, fmt, name, check=check)
    assert parsed is not None
    if array.ndim != 2 or array.shape[0] != height:
        raise ShapeError(
            f"`{name}` must be a matrix of {height} rows beside this sparse matrix, got shape {array.shape}"
        )
    return array, parsed


def _as_addend(given: dict[str, Any], shape: tuple[int, int]) -> tuple[Array | None, Format | None]:
    if given["addend"] is None:
        return None, None
    if given["addend_format"] is None:
        raise FormatError("`addend_format` must be given with `addend`")
    array, parsed = as_operand(given["addend"], given["addend_format"], "addend", check=given["check"])
    return as_addend(array, shape, shape)[0], parsed


def _plan(request: Request, formats: Formats, data: Array, dense: Array, longest: int, mac: Mac) -> Plan:
    """Return the path of a product whose results have at most `longest` terms."""
    mac.require_operands(*formats[:2])
    kernels = request.kernels
    plan = _plan_by_formats(kernels, request.stage_code, formats, longest, mac)
    if plan.path in (DEFINITION, *EXACT_PATHS) or not may_gain_from_maxima(*formats, mac):
        return plan

    def largest() -> tuple[float, float]:
        a, b = kernels.largest_magnitudes([data, dense])
        return a, b

    return _as_computed(plan_product(*formats, longest, mac, largest), kernels, request.stage_code, formats)


@lru_cache(maxsize=1024)
def _plan_by_formats(kernels: Kernels, stage: StageCode, formats: Formats, longest: int, mac: Mac) -> Plan:
    if kernels.name == "reference":
        return Plan(DEFINITION, "the reference runs the definition", mac)
    return _as_computed(plan_product(*formats, longest, mac), kernels, stage, formats)


def _codes(formats: Formats, plan: Plan) -> Any:
    fa, fb, fc = formats if plan.addend is None else (*formats[:2], plan.addend)
    return encode_format(fa), encode_format(fb), None if fc is None else encode_format(fc)


def _as_computed(plan: Plan, kernels: Kernels, stage: StageCode, formats: Formats) -> Plan:
    """Return a plan with what the backend makes of it."""
    codes, mac = _codes(formats, plan), encode_mac(plan.mac)
    reason = kernels.declines_sparse(codes, mac, stage, plan.path)
    way = "" if reason else kernels.way_of_sparse(codes, mac, plan.path)
    return replace(plan, fallback=reason, proof=f"{plan.proof}; {way}" if way else plan.proof)


def _planner(pattern_of: Callable[[CSR, str], Pattern], name: str, along: int) -> Callable[..., Plan]:
    """Return what plans a product for `emu.explain`."""

    def plan(x: CSR, dense: Any, *, out_format: str | Format, **options: Any) -> Plan:
        _require_sparse(x)
        dense_format = options.pop(f"{name}_format")
        given = _settings(options)
        right, fb = _as_matrix(dense, dense_format, x.shape[along], name, check=given["check"])
        fc = None if given["addend_format"] is None else parse(given["addend_format"])
        pattern = pattern_of(x, given["backend"])
        unwritten = {**given, "rbits": None, "random": None, "register": None, "flags": None}
        request = _request(unwritten, out_format, (pattern.results, right.shape[1]))
        return _plan(request, (x.format, fb, fc), x.data, right, pattern.longest, given["mac"])

    return plan


for _operation, _made in (
    (matmul, _planner(lambda x, _: x.by_rows, "w", 1)),
    (compact_matmul, _planner(lambda x, _: x.by_used_rows, "w", 1)),
    (transposed_matmul, _planner(lambda x, backend: x.by_columns(backend), "dy", 0)),
):
    setattr(_operation, "plan", _made)  # noqa: B010 - read by explain
