"""Clipping by norm: gradients longer than a threshold, all parameters together, are shortened to it.

    norm = sqrt(sum of g * g)        squares and pairwise sums per parameter, joined in their order     role norm
    g = g * (threshold / norm)       where norm > threshold                                             role clipped

Norms are computed on the host, in the format of the `loss` role (docs/concepts/roles.md, "Our choices"); what is
clipped is held like a master weight. If the norm is not a number, nothing is clipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from emu.autodiff import Operation, Runner, Value
from emu.backends.arrays import on_host
from emu.optim.optimiser import ParameterState, UpdateRunner, scalar

#: The layer that the norm of all parameters is counted under.
EVERYWHERE = "loss"


def clip_by_norm(
    states: Sequence[ParameterState], gradients: dict[str, Value], threshold: float, runner: Runner
) -> dict[str, Value]:
    """Return gradients whose norm, all together, is at most a threshold.

    Args:
        states: parameters, in the order in which their sums are joined.
        gradients: by parameter name.
        threshold: rounded to float32.
        runner: the datapath.
    """
    total: Value | None = None
    for state in states:
        squares = UpdateRunner(runner, state).run("squared_norm", "norm", gradients[state.name])
        joined = Operation("add", (total, squares), part=state.name) if total else None
        total = runner.run(joined, "norm", EVERYWHERE) if joined else squares
    if total is None:
        return gradients
    norm = runner.run(Operation("sqrt", (total,), part="root"), "norm", EVERYWHERE)
    limit = scalar(threshold)
    if not float(on_host(norm.array)) > float(limit.array):
        return gradients
    factor = runner.run(Operation("divide", (limit, norm), part="factor"), "norm", EVERYWHERE)
    return {
        s.name: gradients[s.name].holding(UpdateRunner(runner, s).run("multiply", "clipped", gradients[s.name], factor))
        for s in states
    }
