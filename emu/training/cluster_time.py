"""`emu.simulate`: how long a step takes on nodes that train together, without training.

model, device, batch   ──► demands of a step (work.py) ─┐
nodes, bits, [cluster] ──► the plan of a step           ├──► emu.cluster.timing ──► step time and its parts
links, crossbar        ──► the fabric ──────────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from emu._drawn import Drawn
from emu.cluster.settings import ClusterTable
from emu.cluster.timing import Share, StepSchedule, StepTime, alone, fabric_of, play, schedule_of, teams_of
from emu.errors import ConfigError
from emu.formats.integers import as_integer
from emu.hardware import Device, Event, Fabric, Machine, load_device
from emu.hardware.machine import SECOND_PS
from emu.training.data_tables import SOURCE_BYTES
from emu.training.recipe import Recipe, load_recipe
from emu.training.time.placing import share_of
from emu.training.time.work import sparse_data, work_of


@dataclass(frozen=True)
class SimulatedStep:
    """A step of training on some nodes.

    Attributes:
        nodes: number of nodes that exchange gradients, K.
        devices: devices of each node.
        batch: examples of a step, on all nodes together.
        bits: bits in which a number of a gradient travels.
        time: time of the step, and its parts.
        speed_up: examples per second, divided by those of one device with the same batch.
        bound: the speed-up if nodes computed in no time and only exchanged; None for a single node.
    """

    nodes: int
    devices: int
    batch: int
    bits: int
    time: StepTime
    speed_up: float
    bound: float | None

    @property
    def samples_per_s(self) -> float:
        """Examples per second."""
        return self.batch * SECOND_PS / self.time.step_ps

    def row(self) -> dict[str, Any]:
        """Return plain data (JSON)."""
        # events are a trace, not a number of the step
        parts = {field.name: getattr(self.time, field.name) for field in fields(self.time) if field.name != "events"}
        return {
            "nodes": self.nodes,
            "devices": self.devices,
            "batch": self.batch,
            "bits": self.bits,
            **parts,
            "link_use": self.time.link_use,
            "samples_per_s": self.samples_per_s,
            "speed_up": self.speed_up,
            "bound": self.bound,
        }


@dataclass(frozen=True)
class SimulatedCluster(Drawn):
    """Steps of one model on one kind of device.

    Attributes:
        model: name of the model.
        device: name of the device.
        parameters: number of parameters.
        steps: a step for each batch, number of bits and number of nodes, in this order.
        events: events of the first nodes in the last of these steps, if they were kept.
    """

    model: str
    device: str
    parameters: int
    steps: tuple[SimulatedStep, ...]
    events: tuple[Event, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return plain data (JSON), a row for each step; times in picoseconds."""
        return [{"model": self.model, "device": self.device, **step.row()} for step in self.steps]


def simulate(
    recipe: str | Path | Recipe,
    device: str | Path | Device,
    *,
    nodes: Sequence[int] = (),
    batches: Sequence[int] = (),
    bits: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
    keeps_events: bool = False,
) -> SimulatedCluster:
    """Return how long steps of training take on nodes that train together; nothing is trained.

    Args:
        recipe: network, optimiser, `[cluster]`: a name, a path, or what `emu.model` returns.
        device: device of each node, with a clock, and a crossbar if there are several: a name, a path, or what
            `emu.device` returns.
        nodes: numbers of nodes; if empty, what `[cluster]` says, or powers of two up to the device's topology.
        batches: examples of a step, on all nodes together; if empty, the recipe's.
        bits: bits in which a number of a gradient travels, 1..16 or 32; if empty, what `[cluster]` says, else 1.
        overrides: key path -> value, laid over the recipe, e.g. `{"cluster.streaming": True}`.
        keeps_events: whether to keep the events of the first nodes in the last step, for a trace.

    Raises:
        ConfigError: the device has no clock, or no crossbar for more than one node, or too few ports; nodes do not
            divide a batch; a number is out of range.

    Examples:
        >>> import emu
        >>> cluster = emu.simulate("mlp", "k20x-8x", nodes=[1, 8], batches=[4096])
        >>> [step.time.step_ps // 1000 for step in cluster.steps]  # nanoseconds
        [1724962, 803469]
    """
    recipe, device = load_recipe(recipe), load_device(device)
    nodes, batches, bits = _integers("nodes", nodes, 1), _integers("batches", batches, 1), _integers("bits", bits)
    # a copy that stays flat: each step lays other nodes and bits over it
    settings = dict(overrides or {})
    if "cluster" in settings:
        # a whole table takes the place of the recipe's
        recipe = recipe.with_settings({"cluster": settings.pop("cluster")})
    given = recipe.cluster
    if not nodes:
        chosen = settings.get("cluster.nodes", given.nodes if given else 1)
        chosen = as_integer("cluster.nodes", chosen, 1, error=ConfigError)
        named = given is not None and bool(given.workers or given.owners or max(given.controllers))
        named = named or any(f"cluster.{key}" in settings for key in ("workers", "owners", "controllers"))
        # with a node alone first, for comparison
        whole = (chosen,) if named else (1, chosen)  # a table that names nodes cannot describe one node alone
        nodes = whole if chosen > 1 else _powers_of_two(device)
    batches = batches or (recipe.training.batch,)
    bits = bits or (settings.get("cluster.bits", given.bits if given else 1),)
    machine = Machine(recipe.machine(device))
    run = _Simulation(recipe, device, machine, settings)
    steps: list[SimulatedStep] = []
    for batch, width in product(batches, bits):
        # the speed-up counts from one device with the same whole batch; bits do not matter to it
        baseline = play(run.alone(batch)).step_ps
        steps += [run.step(count, batch, width, baseline) for count in nodes]
    last = steps[-1]
    # played once more: events are kept for the last step alone, because keeping them makes all nodes be played
    events = run.time(last.nodes, last.batch, last.bits, keeps_events=True).events if keeps_events else ()
    return SimulatedCluster(recipe.name, device.name, run.parameters, tuple(steps), events)


class _Simulation:
    """Plans of one model on one kind of device."""

    def __init__(self, recipe: Recipe, device: Device, machine: Machine, settings: Mapping[str, Any]) -> None:
        self._recipe, self._device, self._machine, self._settings = recipe, device, machine, settings
        # without [cluster]: some of its keys, alone, are no valid table; `_table` adds the number of nodes
        others = {key: value for key, value in settings.items() if not key.startswith("cluster.")}
        self._others = recipe.with_settings(others) if others else recipe
        # read once for all steps; None if demands do not depend on data
        self._data = sparse_data(self._others)
        # set by each `_share`: the same for all, since no number of nodes changes the network
        self.parameters = 0

    def alone(self, batch: int) -> StepSchedule:
        """Return the plan of one device that has the whole model and the whole batch."""
        return alone(self._machine, self._share(batch, None))

    def step(self, nodes: int, batch: int, bits: int, baseline_ps: int) -> SimulatedStep:
        """Return a step on a number of nodes."""
        plan = self.plan(nodes, batch, bits)
        time = play(plan)
        bound = None
        if plan.groups:
            # the order in which messages meet may make nodes slower that only exchange; they could wait as others do
            silent = min(play(plan.without_computing()).step_ps, time.step_ps)
            bound = baseline_ps / silent if silent else None
        # `part` has an entry for each device of all nodes
        return SimulatedStep(nodes, len(plan.teams.part) // nodes, batch, bits, time, baseline_ps / time.step_ps, bound)

    def time(self, nodes: int, batch: int, bits: int, *, keeps_events: bool = False) -> StepTime:
        """Return the time of a step on a number of nodes."""
        return play(self.plan(nodes, batch, bits), keeps_events=keeps_events)

    def plan(self, nodes: int, batch: int, bits: int) -> StepSchedule:
        """Return the plan of a step on a number of nodes."""
        table = self._table(nodes, bits)
        teams = teams_of(table)
        if batch % teams.replicas:
            raise ConfigError(
                f"a batch must be a multiple of the {teams.replicas} models that share it, got {batch} for {nodes} "
                "nodes; choose another batch, or another number of nodes"
            )
        # one device: no fabric is needed, so the device may lack a crossbar
        if len(teams.part) == 1:
            return self.alone(batch)
        fabric = fabric_of(table, self._device)
        # a model's part of the batch
        share = self._share(batch // teams.replicas, table)
        return schedule_of(table, self._machine, fabric, share)

    def _table(self, nodes: int, bits: int) -> ClusterTable:
        recipe = self._recipe.with_settings({**self._settings, "cluster.nodes": nodes, "cluster.bits": bits})
        assert recipe.cluster is not None
        return recipe.cluster

    def _share(self, examples: int, table: ClusterTable | None) -> Share:
        recipe = self._others
        work = work_of(recipe, recipe.machine(self._device), examples, table, self._data)
        self.parameters = work.parameters
        return replace(
            share_of(work, self._machine),
            clipping=recipe.clipping,
            batch_elements=work.input_elements,
            batch_bytes=work.input_elements * SOURCE_BYTES[recipe.data.kind],
        )


def _integers(name: str, numbers: Any, least: int | None = None) -> tuple[int, ...]:
    """Return the integers of a list, those of NumPy included.

    Raises:
        ConfigError: it is no list, or something in it is no integer, or too small.
    """
    try:
        listed: list[Any] = list(numbers)
    except TypeError:
        raise ConfigError(f"`{name}` must be a list of integers, got {numbers!r}; write [{numbers!r}]") from None
    return tuple(as_integer(name, number, least, error=ConfigError) for number in listed)


def _powers_of_two(device: Device) -> tuple[int, ...]:
    """Return 1, 2, 4, ... nodes, up to the number in a device's topology, which is included."""
    most = int(device.topology.nodes.value) if device.topology else 1
    if device.topology is None and device.crossbar is not None:
        # without a topology, the ports of the crossbar bound the nodes
        most = Fabric.of(device).nodes
    # the last of them, 2**(bit_length - 1), is the largest power of two that is at most `most`
    powers = tuple(1 << i for i in range(most.bit_length()))
    return powers if powers[-1] == most else (*powers, most)
