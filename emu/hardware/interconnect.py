"""The connections of devices: `[[links]]`, `[crossbar]`, `[topology]`.

    device 0 ──── host link ────► host ──── port ────► crossbar     at = "host": a network card, one port per node
    device 1 ────────┘ shared

    device 0 ─────────── port ───────────────────────► crossbar     at = "device": every device has a port

A node is a host with its devices. Each number has its source.

Source: docs/design/machines.md, "Messages between nodes".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from emu._config import Table
from emu.errors import ConfigError
from emu.hardware.quantity import Count, Latency, Rate, Share

#: Ends of links with a special meaning.
TO_HOST, TO_CROSSBAR = "host", "crossbar"
#: Which message is served first if several wait for one port.
Arbitration = Literal["first_come", "lowest", "round_robin"]


class Link(Table):
    """A connection to other devices.

    Attributes:
        to: name of the device or switch at the other end; `host` for the computer beside it, `crossbar` for the switch
            between the nodes.
        bandwidth_bytes_per_s: in each direction.
        latency_s: latency of the first byte; of a link to the crossbar, from port to port.
        at: whose link to the crossbar it is: the `device`'s, or the `host`'s, so that messages pass hosts.
        duplex: `full`: both directions at once; `half`: one at a time.
        shared: whether the devices of a node share one such link, for instance a bridge of their host.
        efficiency: share of the bandwidth that messages reach; None is all of it.
        copy_engines: copies between device and host that may run at the same time; None: as many as the link allows.
    """

    to: str = Field(min_length=1)
    bandwidth_bytes_per_s: Rate
    latency_s: Latency
    at: Literal["device", "host"] = Field(default="device", exclude_if=lambda end: end == "device")
    duplex: Literal["full", "half"] = Field(default="full", exclude_if=lambda duplex: duplex == "full")
    shared: bool = Field(default=False, exclude_if=lambda shared: not shared)
    efficiency: Share | None = Field(default=None, exclude_if=lambda share: share is None)
    copy_engines: Count | None = Field(default=None, exclude_if=lambda engines: engines is None)

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second that messages reach in each direction."""
        return self.bandwidth_bytes_per_s.value * (self.efficiency.value if self.efficiency else 1.0)

    @model_validator(mode="after")
    def _sound(self) -> Link:
        if self.at == "host" and self.to != TO_CROSSBAR:
            raise ConfigError(
                "`at` of a link must be device, except for a link to the crossbar, got host for a link to "
                f"{self.to!r}; remove `at`"
            )
        if self.copy_engines is not None and self.to != TO_HOST:
            raise ConfigError(
                "`copy_engines` must be given in the link to the host, over which they copy, got them in a link to "
                f"{self.to!r}; remove `copy_engines`"
            )
        return self


class Crossbar(Table):
    """A switch that connects any sender's port with any receiver's, as many pairs at once as there are ports.

    Attributes:
        ports: number of links that it takes.
        arbitration: which waiting message a port serves: `first_come`, then the lowest sender; `lowest`, the lowest
            sender; `round_robin`, the next sender after the one it has served last.
        latency_s: its own latency, beside that of the links; None for none.
    """

    ports: Count
    arbitration: Arbitration = "first_come"
    latency_s: Latency | None = Field(default=None, exclude_if=lambda latency: latency is None)


class Topology(Table):
    """Numbers of nodes and devices.

    Attributes:
        nodes: hosts.
        devices: devices of each node; None for one.
    """

    nodes: Count
    devices: Count | None = Field(default=None, exclude_if=lambda devices: devices is None)


def link_to(links: Sequence[Link], end: str) -> Link | None:
    """Return the first link to `end`; None if there is none."""
    return next((link for link in links if link.to == end), None)


def ports_needed(port: Link, nodes: int, devices: int) -> int:
    """Return how many ports of a crossbar so many nodes, with so many devices each, need."""
    return nodes if port.shared or port.at == "host" else nodes * devices


def require_ports(crossbar: Crossbar, port: Link, nodes: int, devices: int) -> None:
    """Check that a crossbar has enough ports.

    Raises:
        ConfigError: it has fewer.
    """
    needed, ports = ports_needed(port, nodes, devices), int(crossbar.ports.value)
    if needed > ports:
        raise ConfigError(
            f"`ports` of [crossbar] must be at least {needed}, for {nodes} nodes x {devices} devices, got {ports}; "
            "give it more, or take fewer nodes"
        )


def require_connected(links: Sequence[Link], crossbar: Crossbar | None, topology: Topology | None) -> None:
    """Check that links, crossbar and topology of a device fit together.

    Raises:
        ConfigError: a part is missing or given twice, or there are too few ports.
    """
    ports = [link for link in links if link.to == TO_CROSSBAR]
    if crossbar is None:
        if ports or topology is not None:
            what = "a link to the crossbar" if ports else "[topology]"
            raise ConfigError(f"{what} must come with a crossbar, got none; add [crossbar] with `ports`")
        return
    if len(ports) != 1:
        raise ConfigError(
            f'a device with [crossbar] must have one link with `to = "crossbar"`, got {len(ports)}; '
            + ("remove the others" if ports else "add it to [[links]]")
        )
    if ports[0].at == "host" and link_to(links, TO_HOST) is None:
        raise ConfigError(
            'a device whose host is at the crossbar must have a link with `to = "host"`, got none; add it to [[links]]'
        )
    if topology is not None:
        devices = 1 if topology.devices is None else int(topology.devices.value)
        require_ports(crossbar, ports[0], int(topology.nodes.value), devices)
