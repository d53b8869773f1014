"""Messages between the devices of many nodes: their way, what they wait for, when they arrive.

    sender's device ──copy──► its host ──► port ═crossbar═ port ──► receiver's host ──copy──► its device
                    ──────────────────────► port ═crossbar═ port ─────────────────────────────►

The upper path is for hosts at the crossbar, the lower one for devices at the crossbar. At each station (a copy, the
crossbar) a message needs two resources: a copy engine and the link to the host; the sender's outward port and the
receiver's inward port. The message occupies both for ⌈bytes / bandwidth⌉. Latency is added on arrival, and occupies no
resource.

    half duplex      both directions of a link are one resource
    shared           the devices of a node share one link
    one copy engine  copies to and from a device exclude each other
    chunks           each goes on as soon as it has passed a station; the message occupies resources from its first
                     chunk to its last, also while it waits for the next

A round has at most one message of each device. A resource serves rounds in the order in which they are given: a message
of a round begins after all messages of earlier rounds; within a round, copies to the host come before copies from it.
Within a round and a station the earliest message begins. If several could begin at the same time, arbitration chooses
the first, then the next whose resources are still free. Copies are served in order of arrival, then the lowest sender.

Times are integers, picoseconds, below 2**63: 106 days.

Source: docs/design/machines.md, "Messages between nodes". That a port serves rounds in order (a receive is posted after
the one before it), and is idle between two chunks of a message, is our choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from emu.errors import ConfigError
from emu.formats.integers import as_integer
from emu.hardware.device import Device
from emu.hardware.interconnect import TO_CROSSBAR, TO_HOST, Arbitration, Link, link_to, require_ports
from emu.hardware.machine import SECOND_PS

#: Compiled loops divide 10**6 times a remainder by the bandwidth: 9e18 is below 2**63 (9.22e18).
MOST_BYTES_PER_S = 9 * 10**12
#: Stations on the way: rows of the tables that describe them.
UP, WIRE, DOWN = 0, 1, 2
#: Rows of the state of resources: free from, busy for, sender served last, whether a message of this round uses it.
FREE, BUSY, SERVED, USED = 0, 1, 2, 3


@dataclass(frozen=True)
class Path:
    """The properties of a link that decide how long messages take.

    Attributes:
        bytes_per_s: bandwidth of each direction.
        latency_ps: latency of the first byte.
        half_duplex: whether both directions are one resource.
        per_node: whether the devices of a node share one link.
        one_engine: whether copies in both directions exclude each other at each device.
    """

    bytes_per_s: int
    latency_ps: int
    half_duplex: bool
    per_node: bool
    one_engine: bool = False

    @classmethod
    def of(cls, link: Link) -> Path:
        """Return the path over a link.

        Raises:
            ConfigError: it is too fast for exact picoseconds.
        """
        # whole bytes per second, so that times are quotients of integers
        bandwidth, engines = round(link.bytes_per_s), link.copy_engines
        if bandwidth > MOST_BYTES_PER_S:
            raise ConfigError(
                f"`bandwidth_bytes_per_s` of a link that messages pass must be at most {MOST_BYTES_PER_S:g}, so that "
                f"picoseconds are exact, got {bandwidth:g} in the link to {link.to!r}; choose less"
            )
        return cls(
            bandwidth,
            round(link.latency_s.value * SECOND_PS),
            link.duplex == "half",
            link.shared or link.at == "host",
            engines is not None and engines.value == 1,
        )

    def held_ps(self, size_bytes: int) -> int:
        """Return how long a message occupies the link."""
        return -(-size_bytes * SECOND_PS // self.bytes_per_s)


@dataclass(frozen=True)
class Fabric:
    """Nodes, their devices, and what connects them. Devices are numbered node by node.

    Attributes:
        name: name of the device.
        nodes: number of nodes.
        devices: number of devices of each node.
        port: link to the crossbar, with the latency of link and crossbar.
        host: link between a device and its host; None if the device's file gives none.
        over_hosts: whether messages pass hosts.
        arbitration: arbitration of the crossbar.

    Examples:
        >>> from emu.hardware import Traffic, load_device
        >>> fabric = Fabric.of(load_device("k20x-8x"), nodes=2)
        >>> sent = Traffic(fabric).send([0, 0], to=[1, 0], size_bytes=[92_000_000, 92_000_000])
        >>> sent.wire.end_ps.tolist()
        [15333333334, 15333333334]
    """

    name: str
    nodes: int
    devices: int
    port: Path
    host: Path | None
    over_hosts: bool
    arbitration: Arbitration

    @classmethod
    def of(
        cls, device: Device, nodes: int | None = None, devices: int | None = None, *, enough_ports: bool = False
    ) -> Fabric:
        """Return what connects devices of a kind.

        Args:
            device: with a crossbar.
            nodes: number of nodes; None for that of the topology, or as many as ports allow.
            devices: devices of each node; None for as many as the topology has, or one.
            enough_ports: whether the crossbar is assumed to have as many ports as are needed: for curves that go beyond
                the machine.

        Raises:
            ConfigError: the device has no crossbar, or has too few ports; a count is not an integer from 1 on.
        """
        crossbar, port, topology = device.crossbar, link_to(device.links, TO_CROSSBAR), device.topology
        if crossbar is None or port is None:
            raise ConfigError(
                "a device must have [crossbar] and a link to it for messages between nodes, got none in "
                f"{device.name}; choose one like k20x-8x, or add them"
            )
        if devices is None:
            devices = int(topology.devices.value) if topology and topology.devices else 1
        if nodes is None:
            ports = int(crossbar.ports.value)
            # one port for each node, or one for each device
            per_node = port.shared or port.at == "host"
            nodes = int(topology.nodes.value) if topology else (ports if per_node else ports // devices)
        nodes, devices = (
            as_integer(name, count, 1, error=ConfigError) for name, count in (("nodes", nodes), ("devices", devices))
        )
        if not enough_ports:
            require_ports(crossbar, port, nodes, devices)
        path, host = Path.of(port), link_to(device.links, TO_HOST)
        # a message passes the crossbar once, so that its latency may be counted with the port's
        latency_ps = path.latency_ps + (round(crossbar.latency_s.value * SECOND_PS) if crossbar.latency_s else 0)
        return cls(
            device.name,
            nodes,
            devices,
            replace(path, latency_ps=latency_ps),
            None if host is None else Path.of(host),
            port.at == "host",
            crossbar.arbitration,
        )

    @property
    def processors(self) -> int:
        """Number of devices of all nodes."""
        return self.nodes * self.devices

    def number(self, node: int, device: int = 0) -> int:
        """Return the number of a device, by its node and its index within the node."""
        return node * self.devices + device

    def node_of(self, number: int) -> int:
        """Return the node of a device."""
        return number // self.devices
