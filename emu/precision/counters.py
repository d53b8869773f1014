"""Registers and flags per layer and role, and their sums over a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emu.datapath import Flags, ScaleCounts, StatisticsRegister

Key = tuple[str, str]
#: What blocks are counted of: layer, role of a product's result, what is cast for it.
CastKey = tuple[str, str, str]


@dataclass
class Counters:
    """What was counted of one role of one layer.

    Attributes:
        register: leading-bit positions of the exact results.
        flags: sticky flags with counts.
    """

    register: StatisticsRegister
    flags: Flags = field(default_factory=Flags)

    @property
    def elements(self) -> int:
        """Elements written."""
        return self.register.total

    def merge(self, other: Counters) -> None:
        """Add the counts of other results."""
        self.register.merge(other.register)
        self.flags.merge(other.flags)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that `from_dict` reads back; hashes of runs are made of it.

        Divisions by zero are left out if there are none: hashes of runs made before flags counted them stay the same.
        """
        *counts, by_zero = self.flags.counts()
        # flags end with divisions by zero: left out at 0, `Flags(*flags)` gives them 0 again
        return {"register": self.register.to_dict(), "flags": counts + [by_zero] * bool(by_zero)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Counters:
        """Return the counters `to_dict` wrote."""
        return cls(StatisticsRegister.from_dict(data["register"]), Flags(*data["flags"]))


#: Ends the keys of counts of blocks in plain data.
_SCALES = "/scales"


class CounterTable:
    """Counters by (layer, role), made when first needed; and counts of blocks that are cast for products."""

    def __init__(self, make_register: Callable[[], StatisticsRegister]) -> None:
        self._make_register = make_register
        # dictionaries keep the order of first use, which tables and reports show
        self._counters: dict[Key, Counters] = {}
        self._scales: dict[CastKey, ScaleCounts] = {}

    def of(self, layer: str, role: str) -> Counters:
        """Return the counters of one role of one layer."""
        key = (layer, role)
        if key not in self._counters:
            self._counters[key] = Counters(self._make_register())
        return self._counters[key]

    def scales_of(self, layer: str, role: str, factor: str) -> ScaleCounts:
        """Return the counts of blocks that are cast for the product that gives `role` of `layer`."""
        return self._scales.setdefault((layer, role, factor), ScaleCounts())

    def scales(self) -> list[tuple[CastKey, ScaleCounts]]:
        """Return keys and counts of blocks in the order of first use."""
        return list(self._scales.items())

    def items(self) -> list[tuple[Key, Counters]]:
        """Return keys and counters in the order of first use."""
        return list(self._counters.items())

    def merge(self, other: CounterTable) -> None:
        """Add every counter of another table."""
        for (layer, role), counters in other.items():
            self.of(layer, role).merge(counters)
        for key, counts in other.scales():
            self.scales_of(*key).add(counts)

    def reset(self) -> None:
        """Set every count to 0; keys and positions stay."""
        for counters in self._counters.values():
            # in place: units hold these very objects
            counters.register.reset()
            counters.flags.reset()
        for counts in self._scales.values():
            counts.reset()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON) that `load` reads back, in the order of first use."""
        counted = {f"{layer}/{role}": counters.to_dict() for (layer, role), counters in self._counters.items()}
        return counted | {f"{'/'.join(key)}{_SCALES}": counts.to_dict() for key, counts in self._scales.items()}

    def load(self, data: dict[str, Any]) -> None:
        """Replace everything by what `to_dict` wrote."""
        self._counters, self._scales = {}, {}
        for key, counters in data.items():
            if key.endswith(_SCALES):
                # from the right: a layer's name may have slashes of its own, roles and factors have none
                layer, role, factor = key.removesuffix(_SCALES).rsplit("/", 2)
                self._scales[layer, role, factor] = ScaleCounts.from_dict(counters)
                continue
            layer, role = key.rsplit("/", 1)
            self._counters[layer, role] = Counters.from_dict(counters)

    def sha256(self) -> str:
        """Return the hash of all registers and flags, keys sorted."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
