"""Products of a sparse matrix: each result is a Mac's dot product over its entries, in storage order.

    matmul               y = x w        result (r, h): the entries of row r
    compact_matmul       the same, for the rows that have entries
    transposed_matmul    P = x^T dy     result (u, h): the entries of column V2[u], in row order; nothing is transposed

Planner, unit, output stage, register and flags are those of `emu.matmul`; its k runs over the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from numpy.typing import NDArray

from emu.backends.pattern import Pattern
from emu.backends.product import SparseProduct
from emu.datapath.stage import require_placed
from emu.engine import Plan, ProductOptions
from emu.engine.advice import advised
from emu.engine.delivery import deliver, encode_write, written_to
from emu.engine.description import PRODUCT_OPTIONS, UnitDescription, call_of
from emu.engine.matrices import as_addend
from emu.engine.operands import in_format, require_reachable
from emu.engine.path import Path, Terms, accumulator_of, path_of_terms
from emu.engine.products import as_addend_operand, rounded_addend
from emu.engine.records import ProductRecord
from emu.errors import ShapeError
from emu.formats import Format, Value, parse, parse_number
from emu.sparse.compact import Compact
from emu.sparse.csr import CSR

Array = NDArray[Any]
#: The options of these products: those of `emu.matmul`, and what is added.
_OPTIONS = PRODUCT_OPTIONS | {"addend", "addend_format"}


class SparseOptions(ProductOptions, total=False):
    """The options of sparse products.

    Attributes:
        addend: values that broadcast to the result.
        addend_format: format of the addend; not needed of an `emu.value`.
    """

    addend: Any
    addend_format: str | Format | None


def matmul(
    x: CSR,
    w: Any,
    *,
    out_format: str | Format,
    w_format: str | Format | None = None,
    **options: Unpack[SparseOptions],
) -> Array:
    """Return x w + addend: each result is a unit's dot product over the entries of its row, in storage order.

    Args:
        x: sparse matrix (M, N).
        w: values of `w_format`, (N, H); or an `emu.value`.
        out_format: format written.
        w_format: format of `w`; not needed of a value.
        **options: those of `emu.matmul`, `addend` and `addend_format` among them.

    Returns:
        Carrier array of `out_format`, (M, H). A row without entries is 0, or the addend.

    Raises:
        FormatError: an operand holds a value outside its format.
        ShapeError: the shapes do not fit together, or `x` is no CSR.

    Examples:
        >>> x = CSR.from_dense([[0.0, 2.0], [0.5, 1.0]], "fix8f4")
        >>> matmul(x, [[1.0], [0.25]], w_format="fix8f4", out_format="fix8f4").tolist()
        [[0.5], [0.75]]

    Source: docs/sparse.md.
    """
    _require_sparse(x)
    return _written(x, x.by_rows, _matrix_of(w, w_format, "w", x.shape[1], options), out_format, options)


def compact_matmul(
    x: CSR,
    w: Any,
    *,
    out_format: str | Format,
    w_format: str | Format | None = None,
    **options: Unpack[SparseOptions],
) -> Compact:
    """Return the rows of x w that have entries; arguments as of `matmul`, an addend's rows being these."""
    _require_sparse(x)
    values = _written(x, x.by_used_rows, _matrix_of(w, w_format, "w", x.shape[1], options), out_format, options)
    # `out` is the caller's array and stays writable; any other result becomes read-only
    return Compact.of_result(x.unique_rows, values, x.shape[0], parse_number(out_format), options.get("out"))


def transposed_matmul(
    x: CSR,
    dy: Any,
    *,
    out_format: str | Format,
    dy_format: str | Format | None = None,
    **options: Unpack[SparseOptions],
) -> Compact:
    """Return x^T dy for the columns of x that have entries, without a transpose of x.

    Args:
        x: sparse matrix (M, N); its V1 and V2 are built if they are not there yet.
        dy: values of `dy_format`, (M, H); or an `emu.value`.
        out_format: format written.
        dy_format: format of `dy`; not needed of a value.
        **options: those of `emu.matmul`. Random bits, recorded bits, register, flags and `out` are those of the compact
            rows (U, H).

    Returns:
        Rows V2 with values (U, H): each a unit's dot product over the entries of its column, in row order.

    Raises:
        FormatError: an operand holds a value outside its format.
        ShapeError: the shapes do not fit together, or `x` is no CSR.

    Examples:
        >>> x = CSR.from_dense([[0.0, 2.0, 0.0], [0.0, 1.0, 0.5]], "fix8f4")
        >>> dw = transposed_matmul(x, [[1.0], [0.5]], dy_format="fix8f4", out_format="fix8f4")
        >>> dw.rows.tolist(), dw.values.tolist()
        ([1, 2], [[2.5], [0.25]])

    Source: US 12,008,475.
    """
    _require_sparse(x)
    pattern = x.by_columns(options.get("backend", "auto"))
    values = _written(x, pattern, _matrix_of(dy, dy_format, "dy", x.shape[0], options), out_format, options)
    return Compact.of_result(x.unique_columns, values, x.shape[1], parse_number(out_format), options.get("out"))


def _written(x: CSR, pattern: Pattern, dense: Value, out_format: str | Format, options: SparseOptions) -> Array:
    unit, out, check = call_of("sparse product", out_format, options, _OPTIONS)
    addend, fmt = as_addend_operand(options.get("addend"), options.get("addend_format"), "addend", check=check)
    third = None if addend is None else Value(addend, fmt)
    return written_to(out, write_sparse(unit, x, dense, third, pattern))


def write_sparse(unit: UnitDescription, x: CSR, dense: Value, addend: Value | None, pattern: Pattern) -> Array:
    """Write the dot products of a pattern through a unit; every product of this module does so.

    The record of the product has one row whose inner size is the number of entries.

    Args:
        unit: who computes and writes.
        x: sparse matrix.
        dense: (rows the pattern reads, H).
        addend: what broadcasts to the result, or None.
        pattern: of `x`: by rows or by columns.

    Returns:
        Carriers (results, H).

    Raises:
        ShapeError: the dense operand has another number of rows than the pattern reads, or the addend does not
            broadcast.
    """
    # checked when the caller's operand became a value
    right, fb = in_format(dense, None, "dense", check=False)
    _require_height(right, x.shape[0 if pattern.by_columns else 1], "dense")
    shape = (pattern.results, right.shape[1])
    third, fc = as_addend_operand(addend, None, "addend", check=False)
    formats = (x.format, fb, fc)
    # two axes: kernels of sparse products have no batch
    if third is not None:
        third = as_addend(third, shape, shape)[0]
    require_reachable(unit.kernels, x.data, right, third)
    plan, code, choice = _path(unit, x, right, pattern, formats)
    if third is not None and plan.addend is not None:
        third = rounded_addend(third, fc, plan.addend, unit)
    # the longest dot product decides how wide the register of an exact accumulator is
    observed = None if unit.register is None else accumulator_of(*formats, pattern.longest, unit.mac)
    outcome = choice.compute(SparseProduct(code, x.data, right, third, pattern), encode_write(unit, shape, observed))
    if unit.records is not None:
        unit.records.append(ProductRecord((1, 1, x.nnz, right.shape[1]), formats, plan))
    return deliver(unit, outcome)


def _path(
    unit: UnitDescription,
    x: CSR,
    dense: Array,
    pattern: Pattern,
    formats: tuple[Format, Format, Format | None],
) -> Path:
    """Return the path of a product whose results have at most `pattern.longest` terms."""
    return path_of_terms(*_terms(unit, x, dense, pattern, formats))


def _terms(
    unit: UnitDescription,
    x: CSR,
    dense: Array,
    pattern: Pattern,
    formats: tuple[Format, Format, Format | None],
) -> tuple[UnitDescription, Terms, Callable[[], tuple[float, float]]]:
    """Return the arguments of `path_of_terms`."""

    def maxima() -> tuple[float, float]:
        a, b = unit.kernels.largest_magnitudes([x.data, dense])
        return a, b

    return unit, Terms(formats, pattern.longest, is_sparse=True), maxima


def _require_sparse(x: object) -> None:
    """Raise ShapeError unless `x` is a CSR."""
    if not isinstance(x, CSR):
        made = "from_scipy" if hasattr(x, "tocoo") else "from_dense"
        raise ShapeError(f"`x` must be an emu.sparse.CSR, got {type(x).__name__}; make one with CSR.{made}(x, FORMAT)")


def _matrix_of(x: Any, fmt: str | Format | None, name: str, height: int, options: SparseOptions) -> Value:
    array, parsed = in_format(x, fmt, name, check=options.get("check", True))
    _require_height(array, height, name)
    return Value(array, parsed)


def _require_height(array: Array, height: int, name: str) -> None:
    """Raise ShapeError unless `array` is a matrix with `height` rows."""
    if array.ndim != 2 or array.shape[0] != height:
        raise ShapeError(
            f"`{name}` must be a matrix of {height} rows beside this sparse matrix, got shape {array.shape}; "
            "transpose it?"
        )


def _planner(pattern_of: Callable[[CSR, str], Pattern], name: str, along: int) -> Callable[..., Plan]:
    """Return the function that plans a product for `emu.explain`."""

    def plan(x: CSR, dense: Any, *, out_format: str | Format, **options: Any) -> Plan:
        _require_sparse(x)
        right = _matrix_of(dense, options.pop(f"{name}_format", None), name, x.shape[along], SparseOptions(**options))
        unit = call_of("sparse product", out_format, options, _OPTIONS)[0]
        # the format alone enters a plan
        addend, fmt = options.get("addend"), options.get("addend_format")
        third = addend.format if isinstance(addend, Value) else None if fmt is None else require_placed(parse(fmt))
        pattern = pattern_of(x, unit.backend)
        return advised(
            *_terms(unit, x, right.array, pattern, (x.format, right.format, third)), x.nnz * right.array.shape[1]
        )

    return plan


for _operation, _made in (
    (matmul, _planner(lambda x, _: x.by_rows, "w", 1)),
    (compact_matmul, _planner(lambda x, _: x.by_used_rows, "w", 1)),
    (transposed_matmul, _planner(lambda x, backend: x.by_columns(backend), "dy", 0)),
):
    setattr(_operation, "plan", _made)  # noqa: B010 - read by explain
