"""A fabric as a SimPy program: processes that wait, and a steward who says whose turn it is.

It shares no code with `emu.hardware`. Every message is a process at every station: it waits for its first chunk, asks
the steward for two resources, holds them while chunk after chunk comes and leaves, and gives them back. The steward
decides at the end of an instant, when nothing else is left to happen in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

#: A kind of resource and its number among those.
Resource = tuple[str, int]
UP, WIRE, DOWN = 0, 1, 2


@dataclass
class Lines:
    """One kind of link: how fast, how many, who shares it."""

    bytes_per_s: int
    latency_ps: int
    half: bool
    shared: bool


@dataclass
class Round:
    """Messages, or copies in one direction: of each device ready time, receiver, size; None for nothing."""

    work: list[tuple[int, int, int] | None]
    copy: int | None = None


@dataclass
class World:
    """What is simulated."""

    nodes: int
    devices: int
    port: Lines
    host: Lines | None
    one_engine: bool
    over_hosts: bool
    arbitration: str
    chunks: int
    rounds: list[Round]

    def resource(self, kind: str, lines_half: bool, shared: bool, device: int, way: str) -> Resource:
        number = device // self.devices if shared else device
        return (kind if lines_half else f"{kind} {way}", number)

    def two(self, station: int, sender: int, receiver: int) -> tuple[Resource, Resource]:
        """The resources of a message at a station."""
        if station == WIRE:
            half, shared = self.port.half, self.port.shared
            return (
                self.resource("port", half, shared, sender, "out"),
                self.resource("port", half, shared, receiver, "in"),
            )
        assert self.host is not None
        device, way = (sender, "out") if station == UP else (receiver, "in")
        return (
            self.resource("host link", self.host.half, self.host.shared, device, way),
            self.resource("copy engine", self.one_engine, False, device, way),
        )

    def path(self, one: Round, sender: int, receiver: int) -> list[int]:
        """The stations of a message."""
        if one.copy is not None:
            return [one.copy]
        if not self.over_hosts:
            return [WIRE]
        same = sender // self.devices == receiver // self.devices
        return [UP, DOWN] if same and self.port.shared else [UP, WIRE, DOWN]


@dataclass(eq=False)
class Ask:
    """A message that waits at a station."""

    turn: tuple[int, int]
    sender: int
    came: int
    two: tuple[Resource, Resource]
    station: int
    granted: simpy.Event


@dataclass
class Steward:
    """Who grants resources."""

    env: simpy.Environment
    world: World
    free: dict[Resource, bool] = field(default_factory=lambda: defaultdict(lambda: True))
    owed: dict[Resource, Counter[tuple[int, int]]] = field(default_factory=lambda: defaultdict(Counter))
    last: dict[Resource, int] = field(default_factory=dict)
    asks: list[Ask] = field(default_factory=list)
    woken: bool = False

    def wake(self) -> None:
        if not self.woken:
            self.woken = True
            self.env.process(self._decide())

    def _decide(self) -> Generator[simpy.Event, Any, None]:
        while self.env.peek() == self.env.now:
            yield self.env.timeout(0)
        self.woken = False
        for ask in sorted(filter(self._may, self.asks), key=self._key):
            if self._may(ask):
                self.asks.remove(ask)
                for one in ask.two:
                    self.free[one] = False
                self.last[ask.two[1]] = ask.sender
                ask.granted.succeed()

    def _may(self, ask: Ask) -> bool:
        """Both resources are free, and neither owes anything to an earlier turn."""
        return all(self.free[one] and min(self.owed[one]) == ask.turn for one in ask.two)

    def _key(self, ask: Ask) -> tuple[int, int]:
        rule = self.world.arbitration if ask.station == WIRE else "first_come"
        if rule == "first_come":
            return ask.came, ask.sender
        if rule == "lowest":
            return 0, ask.sender
        senders = self.world.nodes * self.world.devices
        behind = range(self.last.get(ask.two[1], -1) + 1, senders * 2)
        return next(step for step, number in enumerate(behind) if number % senders == ask.sender), ask.sender

    def done(self, ask: Ask) -> None:
        for one in set(ask.two):
            self.free[one] = True
            self.owed[one][ask.turn] -= 1
            self.owed[one] += Counter()  # turns that are through leave
        self.wake()


@dataclass
class Result:
    """Begin and end at each station, by round and sender; arrivals; how long resources moved bytes."""

    held: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    arrived: dict[tuple[int, int], int] = field(default_factory=dict)
    busy: Counter[Resource] = field(default_factory=Counter)


def simulate(world: World) -> Result:
    env, result = simpy.Environment(), Result()
    steward = Steward(env, world)
    for r, one in enumerate(world.rounds):
        for sender, work in enumerate(one.work):
            if work is not None:
                for station in world.path(one, sender, work[1]):
                    for resource in set(world.two(station, sender, work[1])):
                        steward.owed[resource][r, station] += 1
    for r, one in enumerate(world.rounds):
        for sender, work in enumerate(one.work):
            if work is not None:
                _launch(env, world, steward, result, r, sender, work)
    env.run()
    assert not steward.asks
    return result


def _launch(
    env: simpy.Environment,
    world: World,
    steward: Steward,
    result: Result,
    r: int,
    sender: int,
    work: tuple[int, int, int],
) -> None:
    ready, receiver, size = work
    one = world.rounds[r]
    pieces = _pieces(size, 1 if one.copy is not None else world.chunks)
    lies: list[simpy.Event] = [env.timeout(ready) for _ in pieces]
    for station in world.path(one, sender, receiver):
        through = [env.event() for _ in pieces]
        env.process(_station(env, world, steward, result, (r, station, sender, receiver), pieces, lies, through))
        lies = through
    env.process(_note(env, result, (r, sender), lies[-1]))


def _pieces(size: int, chunks: int) -> list[int]:
    piece = -(-size // chunks)
    return [min(piece, size - start) for start in range(0, size, piece)]


def _station(
    env: simpy.Environment,
    world: World,
    steward: Steward,
    result: Result,
    who: tuple[int, int, int, int],
    pieces: list[int],
    lies: list[simpy.Event],
    through: list[simpy.Event],
) -> Generator[simpy.Event, Any, None]:
    r, station, sender, receiver = who
    lines = world.port if station == WIRE else world.host
    assert lines is not None
    yield lies[0]
    ask = Ask((r, station), sender, env.now, world.two(station, sender, receiver), station, env.event())
    steward.asks.append(ask)
    steward.wake()
    yield ask.granted
    begin = env.now
    for piece, here, there in zip(pieces, lies, through, strict=True):
        yield here
        moving = -(-piece * 10**12 // lines.bytes_per_s)
        yield env.timeout(moving)
        for resource in set(ask.two):
            result.busy[resource] += moving
        env.process(_later(env, lines.latency_ps, there))
    result.held[r, station, sender] = begin, env.now
    steward.done(ask)


def _later(env: simpy.Environment, latency_ps: int, event: simpy.Event) -> Generator[simpy.Event, Any, None]:
    yield env.timeout(latency_ps)
    event.succeed()


def _note(
    env: simpy.Environment, result: Result, who: tuple[int, int], event: simpy.Event
) -> Generator[simpy.Event, Any, None]:
    yield event
    result.arrived[who] = env.now
