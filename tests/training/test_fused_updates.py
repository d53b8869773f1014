"""An update as one pass over memory: its bytes by hand, the same bits, the same time in training and without it."""

from __future__ import annotations

from typing import Any

import pytest

import emu
from emu.formats import Float
from emu.hardware import Demand, load_device
from emu.training import load_recipe
from emu.training.loop import Loop
from emu.training.systems.simulated_time import SimulatedTime
from emu.training.time.fused import fused
from emu.training.time.work import work_of
from emu.training.workbench import Workbench

FP32 = Float(8, 23)
#: Arrays that an optimiser keeps, and how many numbers the operations of an update move for each number of a parameter.
OPTIMISERS = {"sgd": 0, "momentum": 1, "adagrad": 1, "adam": 2}


def recipe(name: str, **optimiser: Any) -> Any:
    table = {"name": name, "learning_rate": 0.1, **optimiser}
    return load_recipe("mlp").with_settings({"training.optimiser": table, "training.steps": 2, "training.batch": 4})


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_update_of_a_parameter_reads_the_gradient_and_every_array_once_and_writes_those_that_stay(name: str):
    device = load_device("float32")
    single, whole = (work_of(recipe(name, fused=like), device, 4) for like in (False, True))
    parameters = [columns * rows for columns, rows in whole.shapes.values()]
    updates = [demand for demand in whole.update if demand.role == "master"]
    assert sorted(demand.results for demand in updates) == sorted(parameters)
    for demand in updates:
        assert [size for _, size in demand.operands] == [demand.results] * (2 + 2 * OPTIMISERS[name])
    count = len(single.update) // len(parameters)
    assert all(demand.multiply_adds == count * demand.results for demand in updates), "no instruction is lost"


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_gradient_is_read_in_its_own_format_and_every_array_that_stays_in_the_masters(
    name: str, weight_decay: float
):
    settings = recipe(name, fused=True, weight_decay=weight_decay).with_settings(
        {"precision": {"gradient": {"format": "fp16"}, "update": {"format": "fp32"}, "master": {"format": "fp32"}}}
    )
    work = work_of(settings, settings.machine(load_device("p100")), 4)
    for demand in (demand for demand in work.update if demand.role == "master"):
        stays = [(FP32, demand.results)] * (1 + 2 * OPTIMISERS[name])
        assert list(demand.operands) == [(Float(5, 10), demand.results), *stays]


def test_what_is_no_update_stays_as_it_is():
    def demand(layer: str, role: str, results: int = 8) -> Demand:
        return Demand(layer, role, "add", results, 0, 0, ((FP32, results),) * 2, FP32)

    others = [demand("fc", "gradient"), demand("fc", "weight"), demand("loss", "loss")]
    update = [demand("fc", "update"), demand("fc", "master")]
    assert [(d.layer, d.role, len(d.operands)) for d in fused([others[0], *update, *others[1:]], 1)] == [
        ("fc", "gradient", 2), ("fc", "master", 4), ("fc", "weight", 2), ("loss", "loss", 2)
    ]  # fmt: skip
    broken_off = [demand("fc", "update"), demand("other", "master", 3), demand("fc", "update", 5)]
    assert [(d.layer, d.role, d.results) for d in fused(broken_off, 0)] == [
        ("fc", "update", 8), ("other", "master", 3), ("fc", "update", 5)
    ]  # fmt: skip


@pytest.mark.parametrize("cluster", [{}, {"cluster.nodes": 2, "cluster.bits": 32}])
def test_bits_stay_and_a_run_takes_the_time_that_is_simulated_without_it(cluster: dict[str, Any]):
    found: dict[bool, tuple[str, int]] = {}
    for like in (False, True):
        settings = recipe("momentum", fused=like).with_settings(cluster) if cluster else recipe("momentum", fused=like)
        loop = Loop(Workbench.of(settings, load_device("k20x-8x"), "numba"))
        times: list[int] = []
        for _ in range(2):
            loop.advance()
            clock = next(system for system in loop.systems if isinstance(system, SimulatedTime))
            times.append(sum(clock.about()["simulated_picoseconds_by_phase"].values()))
        taken = times[1] - times[0]
        nodes = int(cluster.get("cluster.nodes", 1))
        (step,) = emu.simulate(settings, "k20x-8x", nodes=[nodes]).steps
        assert taken == step.time.step_ps
        found[like] = loop.bench.model.sha256(), taken
    assert found[True][0] == found[False][0]
    assert found[True][1] < found[False][1]
