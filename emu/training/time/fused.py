"""An update as one pass over memory, for a program that fuses its operations into a kernel for each parameter.

    momentum = fma(...)        reads 2 n, writes n         one pass: reads the gradient, the momentum and the master,
    update = multiply(...)     reads n, writes n           writes the momentum and the master
    master = add(...)          reads 2 n, writes n         5 n numbers instead of 8 n

Bits are those of the single operations, which the datapath writes one after the other. That such a kernel reads every
array once and writes those that stay once is our choice.
"""

from __future__ import annotations

from collections.abc import Iterable

from emu.hardware import Demand

#: Roles of the results of an update; its last operation writes the master.
_ROLES, _LAST = ("momentum", "moment", "update", "master"), "master"


def fused(demands: Iterable[Demand], slots: int) -> tuple[Demand, ...]:
    """Return demands in which each parameter's update is one operation.

    Args:
        demands: demands of a step, in order.
        slots: arrays that the optimiser keeps beside a parameter.
    """
    kept: list[Demand] = []
    # operations of one parameter's update so far, as long as its master has not been written
    chain: list[Demand] = []
    for demand in demands:
        # another role, or a parameter of another layer or size
        if chain and (demand.role not in _ROLES or _key(demand) != _key(chain[0])):
            kept += chain  # no update: its last operation is missing
            chain = []
        if demand.role not in _ROLES:
            kept.append(demand)
            continue
        chain.append(demand)
        if demand.role == _LAST:
            kept.append(_as_one(chain, slots))
            chain = []
    return (*kept, *chain)


def _key(demand: Demand) -> tuple[str, int]:
    return demand.layer, demand.results


def _as_one(chain: list[Demand], slots: int) -> Demand:
    """Return the operations of an update as one: all its instructions, and each array once."""
    first, last = chain[0], chain[-1]
    array = (last.result_format, last.results)
    slot = (first.result_format, last.results)
    # the first operation reads the gradient alone, behind an array that stays (master or slot), or as both factors of a
    # square, before the slot that the square is added to
    arrays = [part for part in first.operands if part[1] == last.results]
    gradient = arrays[:2][-1] if arrays else array
    # each slot twice, because it is read and written back; the master is read here, and written as the result
    read = (gradient, array, *(slot,) * (2 * slots))
    return last._replace(multiply_adds=len(chain) * last.results, operands=read)
