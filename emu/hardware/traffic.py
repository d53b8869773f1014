"""Rounds of messages and of copies that pass a fabric, by the rules of `emu/hardware/fabric.py`.

Each resource has a number, and each kind of resource a range of numbers; compiled loops (`fabric_rounds.py`) move
messages past stations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emu.errors import ConfigError, ShapeError
from emu.formats.integers import as_integer
from emu.hardware.fabric import BUSY, DOWN, FREE, SERVED, UP, USED, WIRE, Fabric
from emu.hardware.interconnect import Arbitration

Integers = npt.NDArray[np.int64]

#: Arbitrations in the order of their numbers in compiled code.
ARBITRATIONS: tuple[Arbitration, ...] = ("first_come", "lowest", "round_robin")
#: Longest time of a message, in seconds: a day. Sums of many may reach 2**63 ps, 106 days, and are refused then.
LONGEST_S = 86400
#: Parts of a message, at most: each has a time of its own in memory.
MOST_CHUNKS = 2**20
#: Largest time, size or number.
LARGEST = 2**63 - 1
_NOTHING = "-1 for a device that sends nothing"
_WHOLE = f"give numbers of devices, {_NOTHING}"


class Held(NamedTuple):
    """When messages occupied the resources of a station; -1 for messages that did not pass it.

    Attributes:
        begin_ps: the first byte enters.
        end_ps: the last byte has left; latency comes after it.
    """

    begin_ps: Integers
    end_ps: Integers


class Sent(NamedTuple):
    """The times of messages; arrays by sender, (P,), or by round and sender, (R, P); -1 if nothing was sent.

    Attributes:
        to: receivers.
        size_bytes: sizes.
        begin_ps: the sender begins, with its copy or its port.
        arrived_ps: the last byte is at the receiving device.
        up: copy to the sender's host; None if devices are at the crossbar.
        wire: sender's port and receiver's port; -1 between devices of one host.
        down: copy from the receiver's host; None if devices are at the crossbar.
    """

    to: Integers
    size_bytes: Integers
    begin_ps: Integers
    arrived_ps: Integers
    up: Held | None
    wire: Held
    down: Held | None


class Rounded(NamedTuple):
    """The times of rounds of a ring, arrays by member, (N,); and how many bytes were sent.

    Attributes:
        arrived_ps: when each has everything that was sent to it; when it was ready, if that is later.
        finished_ps: when everything that it has sent has arrived; when it was ready, if that is later.
        sent_bytes: bytes of all messages.
    """

    arrived_ps: Integers
    finished_ps: Integers
    sent_bytes: int


class Copied(NamedTuple):
    """The times of copies; arrays by device, (P,); -1 if nothing was copied.

    Attributes:
        size_bytes: sizes.
        begin_ps: the first byte enters.
        end_ps: the last byte has left.
        arrived_ps: the last byte has arrived.
        to_host: whether to the host, or from it.
    """

    size_bytes: Integers
    begin_ps: Integers
    end_ps: Integers
    arrived_ps: Integers
    to_host: bool


class Traffic:
    """The state of a fabric: when each resource is free, and how long it was busy.

    Attributes:
        fabric: the fabric.
    """

    def __init__(self, fabric: Fabric) -> None:
        """Begin at time 0."""
        self.fabric = fabric
        self._groups: dict[str, slice] = {}
        count, node_of = fabric.processors, np.arange(fabric.processors) // fabric.devices
        port, host = fabric.port, fabric.host
        own = np.arange(count)
        # at each station the two resources of each device, -1 if it has none
        resources = np.full((3, 2, count), -1, np.int64)
        resources[WIRE, 0], resources[WIRE, 1] = self._pair(node_of if port.per_node else own, "port", port.half_duplex)
        speeds = np.ones((3, 2), np.int64)
        speeds[WIRE] = port.bytes_per_s, port.latency_ps
        if host is not None:
            # on the way up a copy engine, then the link outward; on the way down the link inward, then a copy engine
            resources[UP, 1], resources[DOWN, 0] = self._pair(
                node_of if host.per_node else own, "host link", host.half_duplex
            )
            resources[UP, 0], resources[DOWN, 1] = self._pair(own, "copy engine", host.one_engine)
            speeds[UP] = speeds[DOWN] = host.bytes_per_s, host.latency_ps
        self._resources, self._speeds = resources, speeds
        total = max(group.stop for group in self._groups.values())
        self._state = np.zeros((4, total), np.int64)
        self._state[SERVED] = -1  # nobody served

    def _pair(self, of: Integers, name: str, one: bool) -> tuple[Integers, Integers]:
        """Return numbers of new resources, one for each group in `of`: outward and inward, or the same for both."""
        base = max((group.stop for group in self._groups.values()), default=0)
        # `of` ascends, from 0 on
        size = int(of[-1]) + 1
        if one:
            self._groups[name] = slice(base, base + size)
            return base + of, base + of
        self._groups[f"{name} out"] = slice(base, base + size)
        self._groups[f"{name} in"] = slice(base + size, base + 2 * size)
        return base + of, base + size + of

    # ---- messages ----

    def send(self, ready_ps: npt.ArrayLike, to: npt.ArrayLike, size_bytes: npt.ArrayLike, chunks: int = 1) -> Sent:
        """Send a round of messages, at most one of each device; return their times.

        Args:
            ready_ps: when each is ready at its sender, (P,).
            to: number of its receiver, -1 for nothing, (P,).
            size_bytes: its size, (P,) or one for all; ignored if nothing is sent.
            chunks: parts into which each message is cut, all of one size but the last, 2**20 at most.

        Raises:
            ShapeError: there is not one entry for each device.
            ConfigError: a receiver does not exist, or is the sender; a size is below 1, or takes a link more than a
                day; a time is below 0, or one of the results reaches 2**63; `chunks` is not in 1..2**20; a number is no
                integer, or does not fit 64 bits with a sign.
        """
        receivers = np.asarray(to)
        if receivers.ndim != 1:
            raise ShapeError(
                f"`to` of a round must have one axis, devices, got shape {receivers.shape}; give several rounds to "
                "`rounds`"
            )
        return _round_of(self.rounds(ready_ps, receivers[None], size_bytes, chunks))

    def rounds(self, ready_ps: npt.ArrayLike, to: npt.ArrayLike, size_bytes: npt.ArrayLike, chunks: int = 1) -> Sent:
        """Send many rounds, in order; return their times.

        Args:
            ready_ps: as of `send`, (R, P), or an array that broadcasts to it.
            to: as of `send`, (R, P).
            size_bytes: as of `send`, (R, P), or an array that broadcasts to it.
            chunks: as of `send`.

        Raises:
            ShapeError: as of `send`.
            ConfigError: as of `send`.
        """
        from emu.backends.numba.compiling import only_read
        from emu.hardware.fabric_rounds import pass_rounds

        fabric = self.fabric
        chunks = as_integer("chunks", chunks, 1, MOST_CHUNKS, error=ConfigError)
        ready, receivers, size = self._checked(ready_ps, to, size_bytes)
        # begin and end at each of three stations, or of one, and the arrival
        times = np.empty((7 if fabric.over_hosts else 3, *receivers.shape), np.int64)
        rule, before = ARBITRATIONS.index(fabric.arbitration), self._state.copy()
        pass_rounds(
            only_read(ready),
            only_read(receivers),
            only_read(size),
            chunks,
            fabric.over_hosts,
            rule,
            self._resources,
            self._speeds,
            self._state,
            times,
        )
        self._require_times(times, before)
        stations = [Held(times[i], times[i + 1]) for i in range(0, len(times) - 1, 2)]
        up, wire, down = stations if fabric.over_hosts else (None, stations[0], None)
        return Sent(receivers, size, times[0], times[-1], up, wire, down)

    def _require_times(self, times: Integers, before: Integers) -> None:
        """Refuse times that do not fit 63 bits, and go back to the state before them."""
        # -1 is that of no message
        if times.min(initial=0) < -1:
            self._state = before
            raise ConfigError(
                "times must stay below 2**63 ps, 106 days, got a message that ends later; send less, or begin a new "
                "Traffic"
            )

    @property
    def has_own_ports(self) -> bool:
        """Whether each device has a port out and a port in of its own, and messages pass nothing else."""
        port = self.fabric.port
        return not (self.fabric.over_hosts or port.half_duplex or (port.per_node and self.fabric.devices > 1))

    def ring(
        self,
        members: Integers,
        ready_ps: Integers,
        size_bytes: Integers,
        *,
        of_receiver: bool,
        sends: npt.NDArray[np.bool_],
        rounds: int,
    ) -> Rounded:
        """Send rounds in which, in round r from 1 on, member i sends to member i + r modulo N; return their times.

        The times are those that `rounds` would give. N members send about N * N messages in all rounds; only N numbers
        are stored. Each device must have its own ports.

        Args:
            members: numbers of the devices in the order of the ring, (N,).
            ready_ps: when each is ready, (N,).
            size_bytes: sizes of the messages that each sends, or gets; 0 for none, (N,).
            of_receiver: whether these are the messages that it gets.
            sends: whether it sends, (N,).
            rounds: how many; round N is round 1 again.
        """
        from emu.backends.numba.compiling import only_read
        from emu.hardware.fabric_rounds import pass_ring

        assert self.has_own_ports, "other messages would compete"
        port = self.fabric.port
        # few sizes are different: each is divided once
        taken = {size: port.held_ps(size) for size in set(size_bytes.tolist())}
        messages = np.array([size_bytes, [taken[size] for size in size_bytes.tolist()]], np.int64)
        outward, inward = self._resources[WIRE][:, members]
        # rows FREE, BUSY and SERVED; indexing by an array copies, so that they are written back below
        out, into = self._state[:USED, outward], self._state[:USED, inward]
        times = np.array([ready_ps, ready_ps], np.int64)
        arrays = [only_read(array) for array in (ready_ps, sends, members, messages)]
        sent_bytes = pass_ring(*arrays, of_receiver, rounds, port.latency_ps, out, into, times)
        self._state[:USED, outward], self._state[:USED, inward] = out, into
        return Rounded(times[0], times[1], sent_bytes)

    def _checked(
        self, ready_ps: npt.ArrayLike, to: npt.ArrayLike, size_bytes: npt.ArrayLike
    ) -> tuple[Integers, Integers, Integers]:
        from emu.backends.numba.compiling import only_read
        from emu.hardware.fabric_rounds import first_wrong

        processors, receivers = self.fabric.processors, _integers(to, "to")
        if receivers.ndim != 2 or receivers.shape[1] != processors:
            raise ShapeError(
                f"`to` must have an entry for each of {processors} devices in every round, got shape "
                f"{receivers.shape}; write {_NOTHING}"
            )
        ready, size = (
            _spread(values, receivers.shape, name)
            for values, name in ((ready_ps, "ready_ps"), (size_bytes, "size_bytes"))
        )
        # the slowest link that messages pass decides
        paths = (self.fabric.port, self.fabric.host if self.fabric.over_hosts else None)
        most = LONGEST_S * min(path.bytes_per_s for path in paths if path)
        wrong, r, i = first_wrong(only_read(ready), only_read(receivers), only_read(size), most)
        if wrong:
            # in the order of the faults' numbers in `fabric_rounds`, from 1 on
            rules: tuple[tuple[Integers, str], ...] = (
                (receivers, f"receivers must be -1 for nothing, or 0..{processors - 1}"),
                (receivers, "receivers must be other devices than the sender"),
                (size, "`size_bytes` must be at least 1, or the receiver -1 for nothing"),
                (size, f"`size_bytes` must be at most {most}, what a link moves in a day"),
                (ready, "`ready_ps` must be at least 0"),
            )
            values, rule = rules[int(wrong) - 1]
            raise ConfigError(f"{rule}, got {values[r, i]} of sender {i} in round {r}; correct it")
        return ready, receivers, size

    def copy(self, ready_ps: npt.ArrayLike, size_bytes: npt.ArrayLike, *, to_host: bool) -> Copied:
        """Copy between devices and their hosts: a round of its own, at most one copy of each device.

        Args:
            ready_ps: when each can begin, (P,) or one for all.
            size_bytes: sizes, (P,) or one for all; 0 for no copy.
            to_host: whether to the host, or from it.

        Raises:
            ShapeError: times or sizes do not spread to the devices.
            ConfigError: the device says no link to its host; a size or a time is below 0; a copy takes more than a day,
                or ends at 2**63 or later; a number is no integer, or does not fit 64 bits with a sign.
        """
        from emu.hardware.fabric_rounds import pass_station

        path, processors = self.fabric.host, self.fabric.processors
        if path is None:
            raise ConfigError(
                f"a device must have a link to its host for copies, got none in {self.fabric.name}; add one with "
                '`to = "host"` to [[links]]'
            )
        ready = _spread(ready_ps, (processors,), "ready_ps")
        size = _spread(size_bytes, (processors,), "size_bytes")
        if ready.min() < 0 or size.min() < 0 or size.max() > LONGEST_S * path.bytes_per_s:
            raise ConfigError(
                "times and sizes of copies must be at least 0, and a copy must take a day at most, got times from "
                f"{ready.min()} ps on and sizes of {size.min()}..{size.max()} bytes; correct them"
            )
        station = UP if to_host else DOWN
        # devices without a copy have no resources, and do not pass the station
        first, second = (np.where(size > 0, numbers, -1) for numbers in self._resources[station])
        arrives, known = ready.reshape(-1, 1).copy(), np.full((2, 2), -1, np.int64)
        begin, end = np.empty((2, processors), np.int64)
        before = self._state.copy()
        # 0: copies are served first come, first served
        pass_station(first, second, size, self._speeds[station], 0, arrives, self._state, begin, end, known)
        self._require_times(end, before)
        return Copied(size, begin, end, np.where(size > 0, arrives[:, 0], -1), to_host)

    # ---- state ----

    @property
    def end_ps(self) -> int:
        """When all resources are free; the last bytes may still be on their way."""
        return int(self._state[FREE].max())

    @property
    def busy_ps(self) -> dict[str, Integers]:
        """How long each port, link and copy engine has moved bytes so far: arrays by kind.

        Kinds are `port out` and `port in` (`port` if half duplex), likewise `host link` and `copy engine`.
        """
        return {name: self._state[BUSY, group].copy() for name, group in self._groups.items()}


def _integers(values: npt.ArrayLike, name: str) -> Integers:
    array = np.asarray(values)
    # an empty list is float64 in NumPy
    if array.dtype.kind not in "iu" and array.size:
        remedy = _WHOLE if name == "to" else "round them to whole picoseconds or bytes"
        raise ConfigError(f"`{name}` must hold integers, got {array.dtype}; {remedy}")
    # int64 would read 2**64 - 1 as -1
    if array.dtype.kind == "u" and array.max(initial=0) > LARGEST:
        raise ConfigError(f"`{name}` must hold integers below 2**63, got {array.max()}; give smaller ones, of int64")
    # a copy, so that results do not change with the caller's array
    return np.array(array, np.int64, order="C")


def _spread(values: npt.ArrayLike, shape: tuple[int, ...], name: str) -> Integers:
    array = _integers(values, name)
    try:
        return np.ascontiguousarray(np.broadcast_to(array, shape))
    except ValueError:
        raise ShapeError(
            f"`{name}` must spread to shape {shape}, got {array.shape}; give one for all, or one for each device"
        ) from None


def _round_of(sent: Sent) -> Sent:
    """Return the times of a single round, without the axis of rounds."""
    stations = (sent.up, sent.wire, sent.down)
    up, wire, down = (None if held is None else Held(held.begin_ps[0], held.end_ps[0]) for held in stations)
    assert wire is not None
    return Sent(sent.to[0], sent.size_bytes[0], sent.begin_ps[0], sent.arrived_ps[0], up, wire, down)
