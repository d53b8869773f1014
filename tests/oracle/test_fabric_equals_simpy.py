"""Every begin, end and arrival in a fabric is that of an independent SimPy program."""

from __future__ import annotations

import numpy as np
from fabric_in_simpy import DOWN, UP, WIRE, Lines, Result, Round, World, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.hardware import Fabric, Path, Traffic

#: Bytes per second: a byte in so many picoseconds, and rates that no picosecond divides.
RATES = (10**12, 5 * 10**11, 25 * 10**10, 3 * 10**11, 7 * 10**11, 1234567891)
#: Times are short, so that much happens at once.
LINES = st.builds(Lines, st.sampled_from(RATES), st.integers(0, 7), st.booleans(), st.booleans())


@st.composite
def rounds(draw: st.DrawFn, devices: int, copies: bool) -> Round:
    copy = draw(st.sampled_from([None, None, UP, DOWN])) if copies else None
    work: list[tuple[int, int, int] | None] = []
    for sender in range(devices):
        to = sender if copy is not None else draw(st.integers(0, devices - 1))
        nothing = draw(st.integers(0, 4)) == 0 if copy is not None else to == sender
        message = (draw(st.integers(0, 30)), to, draw(st.integers(1, 24)))
        work.append(None if nothing else message)
    return Round(work, copy)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes, devices = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    port, host = draw(LINES), draw(LINES)
    over_hosts = draw(st.booleans())
    has_host = over_hosts or draw(st.booleans())
    port.shared |= over_hosts
    return World(
        nodes,
        devices,
        port,
        host if has_host else None,
        draw(st.booleans()),
        over_hosts,
        draw(st.sampled_from(["first_come", "lowest", "round_robin"])),
        draw(st.integers(1, 4)),
        draw(st.lists(rounds(nodes * devices, has_host), min_size=1, max_size=5)),
    )


def fabric_of(world: World) -> Fabric:
    port, host = world.port, world.host
    return Fabric(
        "made up",
        world.nodes,
        world.devices,
        Path(port.bytes_per_s, port.latency_ps, port.half, port.shared),
        host and Path(host.bytes_per_s, host.latency_ps, host.half, host.shared, world.one_engine),
        world.over_hosts,
        world.arbitration,
    )


def arrays(one: Round) -> tuple[list[int], list[int], list[int]]:
    """Ready times, receivers and sizes of a round."""
    ready = [0 if work is None else work[0] for work in one.work]
    to = [-1 if work is None else work[1] for work in one.work]
    return ready, to, [0 if work is None else work[2] for work in one.work]


def played(world: World) -> tuple[Result, Traffic]:
    """What the fabric says of the world, in the oracle's words."""
    traffic, result = Traffic(fabric_of(world)), Result()
    for r, one in enumerate(world.rounds):
        ready, to, size = arrays(one)
        if one.copy is not None:
            done = traffic.copy(ready, size, to_host=one.copy == UP)
            held = {one.copy: (done.begin_ps, done.end_ps)}
        else:
            done = traffic.send(ready, to, size, world.chunks)
            held = {station: at for station, at in ((UP, done.up), (WIRE, done.wire), (DOWN, done.down)) if at}
        for sender, arrived in enumerate(done.arrived_ps.tolist()):
            if arrived >= 0:
                result.arrived[r, sender] = arrived
            for station, (begin, end) in held.items():
                if begin[sender] >= 0:
                    result.held[r, station, sender] = int(begin[sender]), int(end[sender])
    return result, traffic


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_every_begin_end_and_arrival_is_that_of_the_simpy_program(world: World):
    expected = simulate(world)
    result, traffic = played(world)
    assert result.held == expected.held
    assert result.arrived == expected.arrived
    busy = {(name, i): int(ps) for name, all_ps in traffic.busy_ps.items() for i, ps in enumerate(all_ps) if ps}
    assert busy == dict(expected.busy)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_many_rounds_at_once_are_those_rounds_one_by_one(world: World):
    sends = [arrays(one) for one in world.rounds if one.copy is None]
    if not sends:
        return
    ready, to, size = (np.array(values) for values in zip(*sends, strict=True))
    at_once, one_by_one = Traffic(fabric_of(world)), Traffic(fabric_of(world))
    done = at_once.rounds(ready, to, size, world.chunks)
    singly = [one_by_one.send(*each, world.chunks) for each in sends]
    assert np.array_equal(done.arrived_ps, [one.arrived_ps for one in singly])
    assert np.array_equal(done.begin_ps, [one.begin_ps for one in singly])
    assert at_once.end_ps == one_by_one.end_ps


def test_the_program_tells_rules_apart():
    """Three senders to one receiver, the last one first: three rules, three orders."""
    work = [(5, 3, 10), (3, 3, 10), (0, 3, 10), None]
    again = [(0, 3, 10), (0, 3, 10), (0, 3, 10), None]
    orders = {}
    for rule in ("first_come", "lowest", "round_robin"):
        line = Lines(10**12, 0, half=False, shared=False)
        world = World(4, 1, line, None, False, False, rule, 1, [Round(work), Round(again)])
        held = simulate(world).held
        orders[rule] = [[sender for r, _, sender in sorted(held, key=held.get) if r == turn] for turn in (0, 1)]
        assert played(world)[0].held == held
    assert orders == {
        "first_come": [[2, 1, 0], [0, 1, 2]],
        "lowest": [[2, 0, 1], [0, 1, 2]],
        "round_robin": [[2, 0, 1], [2, 0, 1]],
    }
