"""Streams: results that need nothing of one another may be computed side by side, and nothing else may."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device_arrays import StrictDevice
from host_devices import as_backend, device_of

import emu
from emu.backends.cuda.launching import _MOST_CONSTANTS, Launcher
from emu.backends.cuda.loader import CupyDevice
from emu.training.loop import Loop
from emu.training.workbench import Workbench
from tests.cuda.cuda_on_host import HostDevice, Order


class Timeline:
    """A GPU's streams: work is put down in order, and done later, in any order that the events allow.

    Memory is CuPy's: what a stream's array leaves is that stream's next array at once, done or not.
    """

    def __init__(self) -> None:
        self.work: list[tuple[Any, list[tuple[Any, int]], Callable[[], None]]] = []
        self.memory: list[int] = []
        self.main = Stream(self)
        self.current = self.main
        self.xp = SimpleNamespace(
            cuda=SimpleNamespace(
                get_current_stream=lambda: self.current,
                Stream=lambda non_blocking: Stream(self),
                Device=lambda: SimpleNamespace(id=0),
            )
        )

    def launch(self, what: Callable[[], None]) -> None:
        self.current.queue.append((tuple(self.current.awaited), what))

    def array(self) -> Array:
        free = self.current.free
        if not free:
            self.memory.append(0)
            free.append(len(self.memory) - 1)
        return Array(self, free.pop(), self.current)

    def finish(self, seed: int) -> None:
        """Do everything, by turns that the seed draws."""
        random, streams = Random(seed), Stream.of(self)
        while ready := [s for s in streams if s.is_ready()]:
            chosen = random.choice(ready)
            chosen.queue[chosen.done][1]()
            chosen.done += 1
        assert all(s.done == len(s.queue) for s in streams)


class Stream:
    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.done = timeline, 0
        self.queue: list[tuple[tuple[tuple[Stream, int], ...], Callable[[], None]]] = []
        self.awaited: list[tuple[Stream, int]] = []
        self.free: list[int] = []
        timeline.__dict__.setdefault("streams", []).append(self)

    @staticmethod
    def of(timeline: Timeline) -> list[Stream]:
        return timeline.__dict__["streams"]

    def record(self) -> tuple[Stream, int]:
        return self, len(self.queue)

    def wait_event(self, event: tuple[Stream, int]) -> None:
        self.awaited.append(event)

    def is_ready(self) -> bool:
        if self.done == len(self.queue):
            return False
        return all(stream.done >= position for stream, position in self.queue[self.done][0])

    def __enter__(self) -> None:
        self._before, self.timeline.current = self.timeline.current, self

    def __exit__(self, *_: object) -> None:
        self.timeline.current = self._before


class Array:
    """A number in the timeline's memory; its place is free when nobody holds it."""

    def __init__(self, timeline: Timeline, place: int, owner: Stream) -> None:
        self.timeline, self.place, self.owner = timeline, place, owner

    def __del__(self) -> None:
        self.owner.free.append(self.place)


def computed(timeline: Timeline, factor: int, *operands: Array) -> Array:
    """Launch: factor times the sum of the operands, through an array that is free at once."""
    between, result = timeline.array(), timeline.array()
    places, through, target, memory = [x.place for x in operands], between.place, result.place, timeline.memory
    timeline.launch(lambda: memory.__setitem__(through, sum(memory[p] for p in places)))
    timeline.launch(lambda: memory.__setitem__(target, factor * memory[through] % 1000003))
    return result


def backward(timeline: Timeline, together: Callable[[list[Callable[[], Array]]], list[Array]], seed: int) -> list[int]:
    """Return what is left in memory of a chain of layers, each with an error and two gradients."""
    error, kept = timeline.array(), []
    start = error.place
    timeline.launch(lambda: timeline.memory.__setitem__(start, 7))
    for layer in range(6):
        arriving = error

        def rule(factor: int, arriving: Array = arriving) -> Callable[[], Array]:
            return lambda: computed(timeline, factor, arriving)

        error, weight, bias = together([rule(layer + 2), rule(layer + 30), rule(layer + 400)])
        del rule, arriving
        kept.append(computed(timeline, 1, weight, bias, error))
        del weight, bias
    places = [x.place for x in (*kept, error)]
    timeline.finish(seed)
    return [timeline.memory[p] for p in places]


def one_after_the_other(tasks: list[Callable[[], Any]]) -> list[Any]:
    return [task() for task in tasks]


def side_by_side(timeline: Timeline) -> Callable[[list[Callable[[], Any]]], list[Any]]:
    device = object.__new__(CupyDevice)
    device.xp, device._streams = timeline.xp, {}
    return device.together


EXPECTED = backward(Timeline(), one_after_the_other, 0)


@pytest.mark.parametrize("seed", range(40))
def test_gradients_side_by_side_are_those_of_one_after_the_other(seed: int):
    timeline = Timeline()
    assert backward(timeline, side_by_side(timeline), seed) == EXPECTED
    assert all(stream.queue for stream in Stream.of(timeline)), "both streams have work"


@pytest.mark.parametrize("end", ["fork", "join"])
def test_a_missing_wait_is_noticed(end: str, monkeypatch: pytest.MonkeyPatch):
    wait = Stream.wait_event

    def waits(stream: Stream, event: tuple[Stream, int]) -> None:
        if (stream is stream.timeline.main) == (end == "fork"):
            wait(stream, event)

    monkeypatch.setattr(Stream, "wait_event", waits)
    found = []
    for seed in range(40):
        timeline = Timeline()
        found.append(backward(timeline, side_by_side(timeline), seed))
    assert any(values != EXPECTED for values in found)


def test_a_task_that_fails_leaves_no_work_behind():
    timeline = Timeline()
    together = side_by_side(timeline)

    def fails() -> Any:
        timeline.launch(lambda: None)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        together([lambda: None, fails])
    assert timeline.current is timeline.main
    assert len(timeline.main.awaited) == 1


def test_a_constant_is_there_before_any_stream_reads_it_and_until_none_does(monkeypatch: pytest.MonkeyPatch):
    """Copied on one stream, it may be read on the other before both meet."""
    device, waited = StrictDevice(), []
    monkeypatch.setattr(device, "finish", lambda: waited.append(len(launcher._constants)))
    launcher, arrays = Launcher(device), [np.full(2, i) for i in range(_MOST_CONSTANTS + 1)]
    first = launcher.constant(arrays[0])
    assert launcher.constant(arrays[0]) is first
    assert waited == [0], "once, before it is handed out"
    for x in arrays[1:]:
        launcher.constant(x)
    assert waited == [*range(_MOST_CONSTANTS + 1), _MOST_CONSTANTS + 1], "and before the oldest is let go"


@pytest.mark.parametrize(("order", "ran"), [("forward", [0, 1, 2]), ("backward", [2, 1, 0])])
def test_the_host_runs_tasks_in_its_order_of_threads(order: Order, ran: list[int]):
    seen: list[int] = []

    def task(i: int) -> Callable[[], int]:
        return lambda: seen.append(i) or i

    assert HostDevice(order=order).together([task(i) for i in range(3)]) == [0, 1, 2]
    assert seen == ran


def two_steps(backend: str, between: Callable[[], None] = lambda: None) -> dict[Any, Any]:
    """Return what two training steps leave; in the first, registers take their positions, in the order of layers."""
    recipe = emu.model("lenet").with_settings({"data.test_images": 8, "training.batch": 4, "training.steps": 3})
    loop = Loop(Workbench.of(recipe, emu.device("fixed16"), backend))
    loop.advance()
    between()
    loop.advance()
    counts = {place: (c.register.to_dict(), c.flags.counts()) for place, c in loop.bench.runners.counters.items()}
    return counts | {"weights": loop.bench.model.sha256()}


@pytest.mark.parametrize("order", ["backward", pytest.param("shuffled", marks=pytest.mark.slow)])
def test_gradients_in_another_order_are_the_same_and_counted_the_same(order: Order):
    device_of("")  # skips where there is no compiler
    device = HostDevice()
    expected = two_steps("numba")
    with as_backend(device):
        assert two_steps("cuda", lambda: device.run_in(order)) == expected
