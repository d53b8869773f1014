"""The demands of one node of a cluster, from those of all nodes.

Nodes run one after the other in a training run, and at the same time on the simulated clock. They have the same
demands, unless one runs an operation again or has more entries of a sparse input. Then all wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from emu.hardware import Demand
from emu.hardware.machine import DECISIONS, JOINT_DECISION


def with_whole_errors(work: Iterable[Demand], layers: Collection[str]) -> list[Demand]:
    """Return demands in which the error of a layer is one product, as on one device, not parts and their sums.

    `emu.cluster.timing.striping` divides the product among devices again, and charges the parts that travel.

    Args:
        work: demands of training; a pass goes forward before it goes back.
        layers: layers whose error products are computed in parts.
    """
    whole: list[Demand] = []
    index_of_product: dict[tuple[str, bool], int] = {}  # of the product that later parts of the same error join
    for demand in work:
        key = (demand.layer, demand.again)
        if demand.layer not in layers or demand.role != "error":
            if demand.role == "activation":  # the next forward pass: its error is another product
                index_of_product.pop(key, None)
            whole.append(demand)
        elif not demand.multiply_adds:  # a sum of parts, unless the error is no product at all
            if key not in index_of_product:
                whole.append(demand)
        elif key not in index_of_product:
            index_of_product[key] = len(whole)
            whole.append(demand)
        else:
            whole[index_of_product[key]] = _joined(whole[index_of_product[key]], demand)
    return whole


def _joined(product: Demand, part: Demand) -> Demand:
    """Return a product that has the terms of a part as well."""
    sizes = zip(product.operands, part.operands, strict=True)
    operands = tuple((fmt, size + other) for (fmt, size), (_, other) in sizes)
    return product._replace(multiply_adds=product.multiply_adds + part.multiply_adds, operands=operands)


def before_and_after(work: Sequence[Demand]) -> tuple[list[Demand], list[Demand]]:
    """Return the demands of passes, and those after them. The last error or gradient of a pass separates them."""
    # gradients that are written after an exchange, and decisions about points, may come after the pass
    computed = (i for i, demand in enumerate(work) if demand.operation not in DECISIONS and not is_written(demand))
    last = max((i for i in computed if work[i].role in ("error", "gradient")), default=-1)
    # the first two fields: layer and role
    if -1 < last < len(work) - 1 and work[last + 1].operation in DECISIONS and work[last + 1][:2] == work[last][:2]:
        last += 1  # the decision about its binary point belongs to the pass as well
    return list(work[: last + 1]), list(work[last + 1 :])


def is_joint(demand: Demand) -> bool:
    """Return whether a demand sets a point from the registers of all nodes."""
    return demand.operation == JOINT_DECISION


def is_written(demand: Demand) -> bool:
    """Return whether a demand writes a gradient that an exchange has brought."""
    return demand.operation == "quantize" and demand.role in ("gradient", "unscaled")


def is_taken_out(demand: Demand) -> bool:
    """Return whether a demand takes the loss scale out of a gradient that travels."""
    return demand.role == "unscaled" and not is_written(demand)


def is_of_some_rows(demand: Demand) -> bool:
    """Return whether a demand writes a gradient of some rows that an exchange has brought."""
    return is_written(demand) and (demand.index_bytes > 0 or not demand.results)


def have_all_run(passes: Sequence[Demand], models: int) -> bool:
    """Return whether all models have run a pass; in a warm start, one of several runs it alone."""
    # each pass computes the loss once; a pass that runs again is no other model's
    counts = Counter(demand.layer for demand in passes if demand.role == "loss" and demand.passes and not demand.again)
    return models == 1 or max(counts.values(), default=0) >= models


def of_one(
    demands: Sequence[Demand], models: int, varying: Collection[str], duration_ps: Callable[[Demand], int]
) -> list[Demand]:
    """Return the demands of one model, from those of several; a demand that only some models have is in it once.

    Args:
        demands: demands of all models, one after the other or in turns.
        models: number of models.
        varying: layers whose operations have another size in each model: the longest one stands for all.
        duration_ps: returns the duration of a demand.
    """

    def key_of(demand: Demand) -> Any:
        if demand.layer in varying:
            return demand.layer, demand.role, demand.operation, demand.passes, demand.again
        # layer to passes, without formats: points of nodes may differ
        return demand[:6], demand.again

    # demands of a model, if all have as many
    size, rest = divmod(len(demands), models)
    keys = [key_of(demand) for demand in demands]
    # models that ran one after the other with equal demands: the first one's are those of all
    if not rest and keys == keys[:size] * models:
        return [max(demands[i::size], key=duration_ps) if demand.layer in varying else demand
                for i, demand in enumerate(demands[:size])]  # fmt: skip
    # models took turns, or some ran operations again: of each `models` equal demands, one is
    # kept, in the place of the first
    by_key: dict[Any, list[Demand]] = {}
    for demand, key in zip(demands, keys, strict=True):
        by_key.setdefault(key, []).append(demand)
    for key, equal in by_key.items():
        if equal[0].layer in varying:
            # longest first: the demand that is kept is the longest
            by_key[key] = sorted(equal, key=duration_ps, reverse=True)
    counts: Counter[Any] = Counter()
    kept: list[Demand] = []
    for key in keys:
        if counts[key] % models == 0:
            kept.append(by_key[key][counts[key]])
        counts[key] += 1
    return kept
