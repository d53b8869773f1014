"""What messages between devices wait for, and how long they take: closed forms of small cases."""

from __future__ import annotations

import pathlib as files
import re
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu._paths import find_content
from emu.errors import ConfigError, ShapeError
from emu.hardware import Fabric, Path, Traffic, events_of, load_device

#: A byte per picosecond.
FAST = 10**12


def fabric(
    nodes: int,
    devices: int = 1,
    *,
    bytes_per_s: int = FAST,
    latency_ps: int = 0,
    half: bool = False,
    shared: bool = False,
    host: Path | None = None,
    over_hosts: bool = False,
    arbitration: str = "first_come",
) -> Fabric:
    port = Path(bytes_per_s, latency_ps, half, shared or over_hosts)
    return Fabric("test", nodes, devices, port, host, over_hosts, arbitration)


def over_hosts(nodes: int, devices: int = 1, *, latency_ps: int = 0, **host: object) -> Fabric:
    """Servers at a crossbar of a byte per picosecond, their devices behind a link of half that."""
    link = {"bytes_per_s": FAST // 2, "latency_ps": latency_ps, "half_duplex": False, "per_node": False} | host
    return fabric(nodes, devices, host=Path(**link), over_hosts=True)


class TestClosedForms:
    @given(st.integers(1, 10**9), st.integers(1, 9 * 10**12), st.integers(0, 10**9), st.integers(0, 10**9))
    def test_a_message_alone_takes_its_latency_and_its_bytes_by_the_bandwidth(
        self, size: int, bytes_per_s: int, latency_ps: int, ready_ps: int
    ):
        """Exact: the rational number of picoseconds, rounded up."""
        size = min(size, 86400 * bytes_per_s)
        traffic = Traffic(fabric(2, bytes_per_s=bytes_per_s, latency_ps=latency_ps))
        sent = traffic.send([ready_ps, 0], to=[1, -1], size_bytes=size)
        held = ceil(Fraction(size, bytes_per_s) * 10**12)
        assert sent.begin_ps.tolist() == [ready_ps, -1]
        assert sent.wire.end_ps.tolist() == [ready_ps + held, -1]
        assert sent.arrived_ps.tolist() == [ready_ps + held + latency_ps, -1]

    @pytest.mark.parametrize("arbitration", ["first_come", "lowest", "round_robin"])
    @pytest.mark.parametrize("senders", [1, 2, 5, 100])
    def test_senders_to_one_port_are_served_one_after_the_other(self, senders: int, arbitration: str):
        """The k-th arrives after k transfers and one latency, whatever the rule: latency holds no port."""
        traffic = Traffic(fabric(senders + 1, latency_ps=7, arbitration=arbitration))
        sent = traffic.send(3, to=[senders] * senders + [-1], size_bytes=50)
        assert sorted(sent.arrived_ps[:-1]) == [3 + 50 * (k + 1) + 7 for k in range(senders)]
        assert traffic.busy_ps["port in"].tolist() == [0] * senders + [50 * senders]
        assert traffic.busy_ps["port out"].tolist() == [50] * senders + [0]

    def test_a_permutation_moves_at_once(self):
        nodes = 64
        sent = Traffic(fabric(nodes)).send(0, to=np.roll(np.arange(nodes), 5), size_bytes=9)
        assert set(sent.arrived_ps.tolist()) == {9}

    def test_rounds_of_an_exchange_follow_one_another_without_a_gap(self):
        """K - 1 shifts of equal messages: node i to i + r; each begins when the one before has left."""
        nodes = 8
        to = (np.arange(nodes) + np.arange(1, nodes)[:, None]) % nodes
        sent = Traffic(fabric(nodes, latency_ps=11)).rounds(0, to, 100)
        assert sent.arrived_ps.tolist() == [[100 * r + 11] * nodes for r in range(1, nodes)]

    def test_a_port_takes_rounds_in_order_though_a_later_message_is_there_first(self):
        traffic = Traffic(fabric(3))
        first = traffic.send([50, 0, 0], to=[2, -1, -1], size_bytes=10)
        second = traffic.send([0, 0, 0], to=[-1, 2, -1], size_bytes=10)
        assert (first.begin_ps[0], second.begin_ps[1]) == (50, 60)

    @pytest.mark.parametrize(
        ("nodes", "megabytes", "milliseconds"), [(2, 184, "30.7"), (4, 276, "46.0"), (8, 322, "53.7")]
    )
    def test_46_million_parameters_take_the_published_times_on_eight_gpus_c6(
        self, nodes: int, megabytes: int, milliseconds: str
    ):
        """2 M (K - 1) / K bytes in each direction at 6 GB/s; the latency of the last message comes on top."""
        full = Fabric.of(load_device("k20x-8x"), nodes=nodes)
        stripe = 4 * 46_000_000 // nodes
        to = (np.arange(nodes) + np.arange(1, nodes)[:, None]) % nodes
        traffic = Traffic(full)
        first = traffic.rounds(0, to, stripe)
        second = traffic.rounds(first.wire.end_ps.max(), to, stripe)
        sent_bytes = stripe * 2 * (nodes - 1)
        assert round(sent_bytes / 1e6) == megabytes
        assert f"{second.wire.end_ps.max() / 1e9:.1f}" == milliseconds
        assert int(second.wire.end_ps.max()) == 2 * (nodes - 1) * full.port.held_ps(stripe)
        assert int(second.arrived_ps.max() - second.wire.end_ps.max()) == 10_000_000  # 10 microseconds


class TestLinks:
    def test_the_two_ways_of_a_full_duplex_link_are_free_of_each_other(self):
        assert Traffic(fabric(2)).send(0, to=[1, 0], size_bytes=10).arrived_ps.tolist() == [10, 10]

    def test_the_two_ways_of_a_half_duplex_link_exclude_each_other(self):
        traffic = Traffic(fabric(2, half=True))
        assert traffic.send(0, to=[1, 0], size_bytes=10).arrived_ps.tolist() == [10, 20]
        assert {name: busy.tolist() for name, busy in traffic.busy_ps.items()} == {"port": [20, 20]}

    def test_devices_that_share_a_port_take_turns(self):
        sent = Traffic(fabric(2, 2, shared=True)).send(0, to=[2, 3, -1, -1], size_bytes=10)
        assert sent.arrived_ps.tolist() == [10, 20, -1, -1]
        apart = Traffic(fabric(2, 2)).send(0, to=[2, 3, -1, -1], size_bytes=10)
        assert apart.arrived_ps.tolist() == [10, 10, -1, -1]

    def test_a_message_over_hosts_is_copied_sent_and_copied(self):
        """10 bytes: 20 ps up, 10 ps across, 20 ps down, and the latency of every station."""
        sent = Traffic(over_hosts(2, latency_ps=3)).send(0, to=[1, -1], size_bytes=10)
        assert sent.up.end_ps[0] == 20
        assert (sent.wire.begin_ps[0], sent.wire.end_ps[0]) == (23, 33)
        assert (sent.down.begin_ps[0], sent.down.end_ps[0]) == (33, 53)
        assert sent.arrived_ps[0] == 56

    def test_between_devices_of_one_host_there_are_two_copies_and_no_port(self):
        traffic = Traffic(over_hosts(2, 2))
        sent = traffic.send(0, to=[1, -1, -1, -1], size_bytes=10)
        assert (sent.wire.begin_ps[0], sent.arrived_ps[0]) == (-1, 40)
        assert not traffic.busy_ps["port out"].any()

    def test_a_shared_host_bridge_copies_for_one_device_at_a_time(self):
        to = [2, 3, -1, -1]
        own = Traffic(over_hosts(2, 2)).send(0, to=to, size_bytes=10)
        assert own.up.end_ps.tolist() == [20, 20, -1, -1]
        bridge = Traffic(over_hosts(2, 2, per_node=True)).send(0, to=to, size_bytes=10)
        assert bridge.up.end_ps.tolist() == [20, 40, -1, -1]
        assert bridge.arrived_ps.tolist() == [20 + 10 + 20, 40 + 10 + 20, -1, -1]

    def test_a_single_copy_engine_copies_one_way_at_a_time(self):
        """A copy to the host from 100 to 140; one from it is asked for at 120."""
        for one_engine, begins in ((True, 140), (False, 120)):
            traffic = Traffic(over_hosts(2, one_engine=one_engine))
            traffic.copy([0, 100], [0, 20], to_host=True)
            copied = traffic.copy([0, 120], [0, 5], to_host=False)
            assert copied.begin_ps.tolist() == [-1, begins]

    def test_chunks_are_sent_while_the_next_is_copied_c7(self):
        """9 bytes in chunks of 3: copies end at 6, 12, 18; sends begin then and take 3; a copy down takes 6."""
        sent = Traffic(over_hosts(2)).send(0, to=[1, -1], size_bytes=9, chunks=3)
        assert (sent.up.end_ps[0], sent.wire.begin_ps[0], sent.wire.end_ps[0]) == (18, 6, 21)
        assert sent.arrived_ps[0] == 18 + 3 + 6
        assert Traffic(over_hosts(2)).send(0, to=[1, -1], size_bytes=9).arrived_ps[0] == 18 + 9 + 18

    def test_the_last_chunk_is_the_smaller_one(self):
        """10 bytes in 4 chunks: 3, 3, 3, 1; the copies down begin at 9 and follow one another."""
        sent = Traffic(over_hosts(2)).send(0, to=[1, -1], size_bytes=10, chunks=4)
        assert sent.arrived_ps[0] == 9 + 6 + 6 + 6 + 2

    def test_devices_are_numbered_node_by_node(self):
        numbered = fabric(3, 4)
        assert (numbered.number(2, 1), numbered.node_of(9), numbered.processors) == (9, 2, 12)


class TestArbitration:
    READY = (5, 3, 0)

    @pytest.mark.parametrize(
        ("rule", "order"), [("first_come", [2, 1, 0]), ("lowest", [2, 0, 1]), ("round_robin", [2, 0, 1])]
    )
    def test_of_those_that_wait_the_rule_names_the_next(self, rule: str, order: list[int]):
        sent = Traffic(fabric(4, arbitration=rule)).send([*self.READY, 0], to=[3, 3, 3, -1], size_bytes=10)
        assert np.argsort(sent.begin_ps[:3]).tolist() == order

    def test_round_robin_goes_on_behind_the_one_served_last(self):
        traffic = Traffic(fabric(4, arbitration="round_robin"))
        traffic.send(0, to=[-1, 3, -1, -1], size_bytes=10)
        sent = traffic.send(0, to=[3, 3, 3, -1], size_bytes=10)
        assert np.argsort(sent.begin_ps[:3]).tolist() == [2, 0, 1]

    def test_who_waits_for_nothing_is_not_held_up_by_a_lower_sender(self):
        sent = Traffic(fabric(4, arbitration="lowest")).send([90, 0, 0, 0], to=[3, 3, -1, -1], size_bytes=10)
        assert sent.begin_ps.tolist() == [90, 0, -1, -1]


class TestDevices:
    def test_a_fabric_is_as_large_as_its_topology_unless_it_is_told(self):
        farm = load_device("k20x-dual-24")
        assert (Fabric.of(farm).nodes, Fabric.of(farm).devices) == (24, 2)
        assert Fabric.of(farm, nodes=4, devices=1).processors == 4
        assert Fabric.of(load_device("k20x-8x"), nodes=1024, enough_ports=True).processors == 1024

    def test_model_parallel_pairs_are_addressed_by_node_and_device_c9(self):
        """4 x 2 on the eight ports of one server: partners beside each other, groups two apart."""
        pairs = Fabric.of(load_device("k20x-8x"), nodes=4, devices=2)
        assert [pairs.number(node, 1) for node in range(4)] == [1, 3, 5, 7]
        sent = Traffic(pairs).send(0, to=[number ^ 1 for number in range(8)], size_bytes=6000)
        assert set(sent.wire.end_ps.tolist()) == {10**6}

    def test_dual_servers_share_a_network_card_and_not_their_copies(self):
        farm = Fabric.of(load_device("k20x-dual-24"))
        to = [(number + 2) % farm.processors for number in range(farm.processors)]
        sent = Traffic(farm).send(0, to=to, size_bytes=6_800_000)
        copied, moved = farm.host.held_ps(6_800_000), farm.port.held_ps(6_800_000)
        assert moved == 10**9
        begin = copied + farm.host.latency_ps
        assert sent.wire.begin_ps.tolist() == [begin, begin + moved] * 24

    def test_a_crossbar_adds_its_latency_to_that_of_the_link(self):
        device = load_device("k20x-8x")
        crossbar = device.crossbar.model_copy(update={"latency_s": device.links[0].latency_s})
        slower = Fabric.of(device.model_copy(update={"crossbar": crossbar}))
        assert slower.port.latency_ps == 2 * Fabric.of(device).port.latency_ps

    def test_links_and_the_crossbar_of_a_device_file_may_be_without_latency(self, tmp_path: files.Path):
        none = 'latency_s = { value = 0, source = "left out" }'
        text = re.sub("latency_s = .*", none, find_content("devices", "k20x-dual-24").read_text())
        path = tmp_path / "instant.toml"
        path.write_text(text.replace("[crossbar]\n", f"[crossbar]\n{none}\n"))
        instant = Fabric.of(load_device(path), nodes=2, devices=1)
        assert (instant.port.latency_ps, instant.host.latency_ps) == (0, 0)
        sent = Traffic(instant).send([0, 0], to=[1, -1], size_bytes=6_800_000)
        copied, moved = instant.host.held_ps(6_800_000), instant.port.held_ps(6_800_000)
        assert sent.arrived_ps.tolist() == [copied + moved + copied, -1]


class TestEvents:
    def test_a_message_is_an_event_of_its_senders_port_and_of_its_receivers(self):
        pair = fabric(3)
        sent = Traffic(pair).send([5, 0, 0], to=[2, -1, -1], size_bytes=10)
        events = events_of(pair, sent, "stripe 0", nodes=[0, 2], step=1)
        about = {"bytes": 10, "sender": 0, "receiver": 2, "step": 1}
        assert [event._asdict() for event in events] == [
            {"resource": way, "name": "stripe 0", "begin_ps": 5, "duration_ps": 10, "kind": kind, "details": about}
            | {"node": node}
            for way, kind, node in (("port out", "send", 0), ("port in", "receive", 2))
        ]
        assert events_of(pair, sent, "x", nodes=[1]) == []

    def test_copies_are_events_of_host_links_which_devices_have_each_for_themselves(self):
        farm = over_hosts(2, 2)
        traffic = Traffic(farm)
        sent = traffic.send(0, to=[-1, 2, -1, -1], size_bytes=10)
        assert [(event.node, event.resource) for event in events_of(farm, sent, "x", nodes=(0, 1))] == [
            (0, "host link out, device 1"),
            (0, "port out"),
            (1, "port in"),
            (1, "host link in, device 0"),
        ]
        copied = traffic.copy(0, [0, 0, 0, 8], to_host=False)
        (event,) = events_of(farm, copied, "batch", nodes=[1])
        assert (event.resource, event.kind, event.details) == ("host link in, device 1", "copy", {"bytes": 8})

    def test_a_half_duplex_link_is_one_track(self):
        pair = fabric(2, half=True)
        sent = Traffic(pair).send(0, to=[1, 0], size_bytes=10)
        events = events_of(pair, sent, "x")
        assert sorted((event.resource, event.begin_ps) for event in events) == [("port", 0), ("port", 10)]

    def test_many_rounds_are_told_apart(self):
        pair = fabric(2)
        sent = Traffic(pair).rounds(0, [[1, -1], [1, -1]], 10)
        assert [event.begin_ps for event in events_of(pair, sent, "x")] == [0, 10]


def refused(kind: type[Exception], traffic: Traffic, *arguments: object, **named: object) -> str:
    with pytest.raises(kind) as caught:
        traffic.send(*arguments, **named)
    return str(caught.value)


class TestMessages:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (
                (0, [2, -1], 1),
                "receivers must be -1 for nothing, or 0..1, got 2 of sender 0 in round 0; correct it",
            ),
            (
                (0, [-1, 1], 1),
                "receivers must be other devices than the sender, got 1 of sender 1 in round 0; correct it",
            ),
            (
                (0, [1, -1], [0, 1]),
                "`size_bytes` must be at least 1, or the receiver -1 for nothing, got 0 of sender 0 in round 0; "
                "correct it",
            ),
            (
                (0, [1, -1], 86400 * FAST + 1),
                "`size_bytes` must be at most 86400000000000000, what a link moves in a day, got 86400000000000001 of "
                "sender 0 in round 0; correct it",
            ),
            ((-1, [1, -1], 1), "`ready_ps` must be at least 0, got -1 of sender 0 in round 0; correct it"),
            ((0.5, [1, -1], 1), "`ready_ps` must hold integers, got float64; round them to whole picoseconds or bytes"),
            (
                (0, [1.0, -1], 1),
                "`to` must hold integers, got float64; give numbers of devices, -1 for a device that sends nothing",
            ),
            (
                (0, np.array([2**64 - 1, 0], np.uint64), 1),
                f"`to` must hold integers below 2**63, got {2**64 - 1}; give smaller ones, of int64",
            ),
            ((0, [1, -1], 1, 0), "`chunks` must be in 1..1048576, got 0; choose a larger one"),
            ((0, [1, -1], 1, 2.5), "`chunks` must be an integer, got 2.5; write a whole number"),
            ((0, [1, -1], 1, 2**20 + 1), "`chunks` must be in 1..1048576, got 1048577; choose a smaller one"),
        ],
    )
    def test_a_message_that_cannot_be_is_refused(self, arguments: tuple[object, ...], text: str):
        assert refused(ConfigError, Traffic(fabric(2)), *arguments) == text

    def test_what_is_refused_leaves_everything_free(self):
        traffic = Traffic(fabric(2))
        refused(ConfigError, traffic, 0, [1, 5], 10)
        assert traffic.end_ps == 0

    LATE = "times must stay below 2**63 ps, 106 days, got a message that ends later; send less, or begin a new Traffic"

    @pytest.mark.parametrize(
        ("of", "ready_ps", "size", "chunks"),
        [
            (fabric(2), 2**63 - 1, 10, 1),
            (fabric(2, latency_ps=10), 2**63 - 10, 5, 1),
            # 5 bytes end too late, the 4 behind them would not
            (fabric(2), 2**63 - 5, 9, 2),
            # the copy up ends in time, but is too late at the crossbar
            (over_hosts(2, latency_ps=10), 2**63 - 12, 5, 1),
        ],
    )
    def test_times_that_do_not_fit_63_bits_are_refused_and_leave_the_state(
        self, of: Fabric, ready_ps: int, size: int, chunks: int
    ):
        traffic = Traffic(of)
        traffic.send(0, [1, -1], 7)
        before = traffic.end_ps
        assert refused(ConfigError, traffic, ready_ps, [1, -1], size, chunks) == self.LATE
        assert traffic.end_ps == before

    def test_the_last_picosecond_of_63_bits_is_one(self):
        assert Traffic(fabric(2)).send(2**63 - 11, [1, -1], 10).arrived_ps.tolist() == [2**63 - 1, -1]

    def test_messages_of_a_day_each_add_up_until_they_do_not_fit(self):
        traffic, days = Traffic(fabric(2)), np.tile([1, -1], (106, 1))
        traffic.rounds(0, days, 86400 * FAST)
        assert refused(ConfigError, traffic, 0, [1, -1], 86400 * FAST) == self.LATE

    def test_copies_that_end_too_late_are_refused_and_leave_the_state(self):
        traffic = Traffic(over_hosts(2))
        with pytest.raises(ConfigError) as caught:
            traffic.copy(2**63 - 1, 10, to_host=True)
        assert str(caught.value) == self.LATE
        assert traffic.end_ps == 0

    def test_shapes_must_fit(self):
        traffic = Traffic(fabric(2))
        assert refused(ShapeError, traffic, 0, [[1, 0]], 1) == (
            "`to` of a round must have one axis, devices, got shape (1, 2); give several rounds to `rounds`"
        )
        assert refused(ShapeError, traffic, 0, [1, 0, 1], 1) == (
            "`to` must have an entry for each of 2 devices in every round, got shape (1, 3); write -1 for a device "
            "that sends nothing"
        )
        assert refused(ShapeError, traffic, [0, 0, 0], [1, 0], 1) == (
            "`ready_ps` must spread to shape (1, 2), got (3,); give one for all, or one for each device"
        )

    def test_results_do_not_change_with_the_arrays_that_were_given(self):
        ready, to, size = np.zeros((1, 2), np.int64), np.array([[1, 0]]), np.array([[5, 6]])
        traffic = Traffic(over_hosts(2))
        sent, copied = traffic.rounds(ready, to, size), traffic.copy(ready[0], size[0], to_host=True)
        to[...], size[...] = -1, 99
        assert sent.to.tolist() == [[1, 0]]
        assert sent.size_bytes.tolist() == [[5, 6]]
        assert copied.size_bytes.tolist() == [5, 6]

    def test_a_link_to_the_host_limits_only_messages_that_pass_it(self):
        host = Path(FAST // 10, 0, half_duplex=False, per_node=False)
        size = 86400 * FAST // 5
        assert Traffic(fabric(2, host=host)).send(0, [1, -1], size).arrived_ps.tolist() == [size, -1]
        of_hosts = Traffic(fabric(2, host=host, over_hosts=True))
        assert "`size_bytes` must be at most 8640000000000000" in refused(ConfigError, of_hosts, 0, [1, -1], size)

    def test_copies_need_a_link_to_the_host(self):
        with pytest.raises(ConfigError) as caught:
            Traffic(fabric(2)).copy(0, 1, to_host=True)
        assert str(caught.value) == (
            'a device must have a link to its host for copies, got none in test; add one with `to = "host"` to '
            "[[links]]"
        )
        with pytest.raises(ConfigError) as caught:
            Traffic(over_hosts(2)).copy(0, [-1, 3], to_host=True)
        assert str(caught.value) == (
            "times and sizes of copies must be at least 0, and a copy must take a day at most, got times from 0 ps on "
            "and sizes of -1..3 bytes; correct them"
        )

    def test_a_device_without_a_crossbar_has_no_fabric(self):
        with pytest.raises(ConfigError) as caught:
            Fabric.of(load_device("fp16"))
        assert str(caught.value) == (
            "a device must have [crossbar] and a link to it for messages between nodes, got none in fp16; choose one "
            "like k20x-8x, or add them"
        )

    def test_a_crossbar_has_a_port_for_everybody(self):
        with pytest.raises(ConfigError) as caught:
            Fabric.of(load_device("k20x-8x"), nodes=5, devices=2)
        assert str(caught.value) == (
            "`ports` of [crossbar] must be at least 10, for 5 nodes x 2 devices, got 8; give it more, or take fewer "
            "nodes"
        )
        with pytest.raises(ConfigError) as caught:
            Fabric.of(load_device("k20x-8x"), nodes=0)
        assert str(caught.value) == "`nodes` must be at least 1, got 0; choose a larger one"

    def test_a_link_too_fast_for_picoseconds_is_refused(self):
        device = load_device("k20x-8x")
        rate = device.links[0].bandwidth_bytes_per_s.model_copy(update={"value": 1e13})
        link = device.links[0].model_copy(update={"bandwidth_bytes_per_s": rate})
        with pytest.raises(ConfigError) as caught:
            Fabric.of(device.model_copy(update={"links": (link,)}))
        assert str(caught.value) == (
            "`bandwidth_bytes_per_s` of a link that messages pass must be at most 9e+12, so that picoseconds are "
            "exact, got 1e+13 in the link to 'crossbar'; choose less"
        )


# ---- rounds of a ring ----


@given(data=st.data())
def test_rounds_of_a_ring_are_those_that_are_followed_message_by_message(data: st.DataObject):
    """Two phases of one traffic, so that ports are busy when the second begins."""
    count, spacing = data.draw(st.integers(2, 7)), data.draw(st.integers(1, 2))
    port = Path(7 * 10**9, data.draw(st.sampled_from([0, 1000])), half_duplex=False, per_node=False)
    fabric = Fabric("ring", count * spacing, 1, port, None, over_hosts=False, arbitration="round_robin")
    followed, whole = Traffic(fabric), Traffic(fabric)
    members, every = np.arange(count) * spacing, np.arange(count * spacing)
    for _ in range(2):
        sizes = np.array(data.draw(st.lists(st.sampled_from([0, 1, 7, 500, 12345]), min_size=count, max_size=count)))
        ready = np.array(data.draw(st.lists(st.integers(0, 10**6), min_size=count, max_size=count)))
        sends = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        of_receiver, rounds = data.draw(st.booleans()), data.draw(st.integers(1, 2 * count))
        passed = whole.ring(members, ready, sizes, of_receiver=of_receiver, sends=sends, rounds=rounds)
        to = np.full((rounds, len(every)), -1)
        size, at = np.ones_like(to), np.zeros_like(every)
        at[members] = ready
        for r in range(rounds):
            for i in range(count):
                j = (i + r % (count - 1) + 1) % count
                if sends[i] and sizes[j if of_receiver else i]:
                    to[r, members[i]], size[r, members[i]] = members[j], sizes[j if of_receiver else i]
        sent = followed.rounds(at, to, size)
        assert passed.sent_bytes == size[to >= 0].sum()
        for i, member in enumerate(members):
            assert passed.arrived_ps[i] == max([ready[i], *sent.arrived_ps[to == member]])
            assert passed.finished_ps[i] == max([ready[i], *sent.arrived_ps[:, member]])
        assert (whole._state[:3] == followed._state[:3]).all()  # free from, busy for, served last
        assert whole.end_ps == followed.end_ps


@pytest.mark.parametrize(("port", "devices", "over_hosts", "own"), [
    (Path(10**9, 0, half_duplex=False, per_node=False), 2, False, True),
    (Path(10**9, 0, half_duplex=False, per_node=True), 1, False, True),
    (Path(10**9, 0, half_duplex=False, per_node=True), 2, False, False),
    (Path(10**9, 0, half_duplex=True, per_node=False), 1, False, False),
    (Path(10**9, 0, half_duplex=False, per_node=False), 1, True, False),
])  # fmt: skip
def test_devices_have_their_own_ports_unless_they_share_one_or_a_host(
    port: Path, devices: int, over_hosts: bool, own: bool
):
    fabric = Fabric("ports", 2, devices, port, port, over_hosts=over_hosts, arbitration="first_come")
    assert Traffic(fabric).has_own_ports == own
