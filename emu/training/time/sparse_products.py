"""The cost of the gradient of a layer with a sparse input, and of the transposed copy of the input that it avoids.

    product      dw = x^T dy, computed from the rows of x in place: what the run is charged
    copy         x^T as a matrix of its own: read and write each entry (`emu.hardware.Machine.transposed_copy`)

A product that runs again at another binary point is charged again; the copy would be made once for each mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from emu.hardware import Demand, Machine

#: The operation that computes the gradient of a sparse layer's weights.
_PRODUCT = "sparse_transposed_matmul"


class SparseInputs(NamedTuple):
    """Inputs of which layers multiply the entries alone.

    Attributes:
        columns: number of their columns, by the layer that multiplies them.
        by_rows: names of gradients that have some rows only.
    """

    columns: Mapping[str, int] = MappingProxyType({})
    by_rows: tuple[str, ...] = ()


class SparseSpent(NamedTuple):
    """Gradients of one sparse layer, of one or more steps.

    Attributes:
        entries: entries of the inputs.
        rows: rows of the gradients.
        product_ps: time that the products take.
        transpose_ps: time that transposed copies would take.
        product_bytes: through the memory.
        transpose_bytes: bytes that copies would move.
    """

    entries: int = 0
    rows: int = 0
    product_ps: int = 0
    transpose_ps: int = 0
    product_bytes: int = 0
    transpose_bytes: int = 0

    def plus(self, other: SparseSpent, times: int = 1) -> SparseSpent:
        """Return the sum of this and `times` times another one."""
        return SparseSpent(*(mine + times * more for mine, more in zip(self, other, strict=True)))


def is_sparse_gradient(demand: Demand) -> bool:
    """Return whether a demand is the gradient of a sparse layer's weights."""
    return demand.operation == _PRODUCT


def rows_of(demand: Demand) -> int:
    """Return how many rows the gradient of a sparse layer's weights has."""
    # multiply-adds are entries times outputs, results are rows times outputs: rows =
    # results / (multiply-adds / entries)
    entries = demand.operands[0][1]
    return demand.results * entries // demand.multiply_adds if demand.multiply_adds else 0


def sparse_spent(machine: Machine, work: Iterable[Demand], columns: Mapping[str, int]) -> dict[str, SparseSpent]:
    """Return what gradients of sparse layers cost, by layer.

    Args:
        machine: machine that runs.
        work: demands of a step.
        columns: number of columns of the sparse inputs, by layer, those without entries included.
    """
    by_layer: dict[str, SparseSpent] = {}
    for demand in work:
        if not is_sparse_gradient(demand):
            continue
        product = machine.time_of(demand)
        spent = SparseSpent(0, 0, product.duration_ps, 0, product.bytes, 0)
        # a copy would serve every run of the product, so it is counted at the first
        if not demand.again:
            copy = machine.transposed_copy(demand, columns[demand.layer])
            spent = SparseSpent(
                demand.operands[0][1], rows_of(demand), product.duration_ps, copy.duration_ps, product.bytes, copy.bytes
            )
        by_layer[demand.layer] = by_layer.get(demand.layer, SparseSpent()).plus(spent)
    return by_layer


def as_rows(by_layer: Mapping[str, SparseSpent]) -> list[dict[str, Any]]:
    """Return what was spent as plain data (JSON), a row for each layer; `of_rows` reads it back."""
    return [{"layer": layer, **spent._asdict()} for layer, spent in by_layer.items()]


def of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, SparseSpent]:
    """Return what was spent, from the rows that `as_rows` returned."""
    return {row["layer"]: SparseSpent(*(row[name] for name in SparseSpent._fields)) for row in rows}
