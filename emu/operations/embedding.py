"""Rows of a table by token, and the gradient of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emu.backends.arrays import namespace
from emu.engine.matrices import Matrices
from emu.engine.products import write_product
from emu.engine.reductions import one_of
from emu.formats import Value
from emu.operations.asked import Asked, Options, Shape, size_of
from emu.operations.operands import carrier
from emu.operations.row import MOVES, SUMS, DoneBy, Role, Row
from emu.operations.selections import selected


def _embedding(role: Role, table: Value, tokens: Value) -> Value:
    """The table's rows at the tokens; those below 0 are counted from its end."""
    return selected(role, table.with_array(table.array[tokens.array]))


def _embedding_float64(xp: Any, table: Any, tokens: Any) -> Any:
    return table[tokens]


def _embedding_asks(operands: Sequence[Shape], options: Options) -> Asked:
    table, tokens = operands
    return Asked((*tokens, table[-1]))


def _gradient(role: Role, g: Value, tokens: Value, *, rows: int) -> Value:
    """Errors added up by token: unity-hot tokens, transposed, times the errors, tokens in C order along k."""
    # the factor 1 in a format that holds it, also where that of the errors does not
    unity, errors = one_of(g.format), carrier(g).reshape(1, -1, g.shape[-1])
    xp = namespace(errors)
    # (1, rows, tokens): 1 where a token chooses a row
    chosen = _chosen(xp, tokens.array, rows).astype(unity.carrier)[None]
    shape = (rows, g.shape[-1])
    matrices = Matrices(chosen, errors, None, (unity, g.format, None), shape)
    return role.value(write_product(role.unit(unity, g.format).description, matrices))


def _gradient_float64(xp: Any, g: Any, tokens: Any, *, rows: int) -> Any:
    return _chosen(xp, tokens, rows).astype(g.dtype) @ g.reshape(-1, g.shape[-1])


def _chosen(xp: Any, tokens: Any, rows: int) -> Any:
    """Return (rows, tokens): whether a token chooses a row."""
    # 64 bits, since narrow tokens may not hold the number of rows; from the front, as the rows are numbered
    places = tokens.reshape(-1).astype(np.int64) % rows
    return xp.arange(rows)[:, None] == places


def _gradient_asks(operands: Sequence[Shape], options: Options) -> Asked:
    g, tokens = operands
    shape = (options["rows"], g[-1])
    return Asked(shape, size_of(shape) * size_of(tokens))


ROWS = (
    Row("embedding", _embedding, _embedding_float64, _embedding_asks, DoneBy.SELECTION, MOVES),
    # a machine multiplies by no 1 and 0: it adds the chosen errors up
    Row("embedding_gradient", _gradient, _gradient_float64, _gradient_asks, DoneBy.UNIT, SUMS),
)
