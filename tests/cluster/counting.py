"""A transport within the process that keeps what it moves, and may damage it: what tests of exchanges share."""

from __future__ import annotations

from collections.abc import Mapping

from emu.cluster import Simulated


class Counting(Simulated):
    """Keeps the bytes of every swap, by sender and receiver; may flip one bit of what a node receives.

    `damage` is sender, receiver and byte of the second swap: sums that owners send back, or parameters.
    """

    def __init__(self, nodes: int, damage: tuple[int, int, int] | None = None) -> None:
        super().__init__(nodes)
        self.swaps: list[dict[tuple[int, int], bytes]] = []
        self.damage = damage

    def swap(self, parcels: Mapping[tuple[int, int], bytes]) -> dict[tuple[int, int], bytes]:
        arrived = super().swap(parcels)
        self.swaps.append(dict(arrived))
        if self.damage and len(self.swaps) == 2:
            sender, receiver, place = self.damage
            data = bytearray(arrived[sender, receiver])
            data[place] ^= 1
            arrived[sender, receiver] = bytes(data)
        return arrived

    def bytes(self) -> int:
        return sum(len(data) for parcels in self.swaps for data in parcels.values())
