"""A change: one role of one layer gets another format; the device that has it, and what that saves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from emu._config import checked
from emu.errors import ConfigError
from emu.formats import DynamicFixed, Format, parse_number
from emu.hardware import Device, PrecisionTable
from emu.hardware.precision_texts import can_have
from emu.precision import Policy
from emu.training import Recipe
from emu.training.cost import cost_of
from emu.training.data import Dataset


@dataclass(frozen=True)
class Change:
    """A role of a layer with another format.

    Attributes:
        layer: layer that writes the values.
        role: their role.
        passes: layers that pass them on, and get the same format.
        own: text of the format that the device has.
        format: text of the format that is tried.
    """

    layer: str
    role: str
    passes: tuple[str, ...]
    own: str
    format: str

    @property
    def key(self) -> str:
        """Name of the change: a part of names of folders."""
        # fix4f-1 and fix4f1 are two formats, bias=-5 and bias=5 are two biases
        fmt = self.format.replace("f-", "fm").replace("=-", "=m")
        parts = (self.layer, self.role, fmt)
        return "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part) for part in parts)

    @property
    def bits(self) -> int:
        """Width of the format that is tried."""
        return parse_number(self.format).width_bits

    @property
    def own_bits(self) -> int:
        """Width of the format that the device has."""
        return parse_number(self.own).width_bits

    def plain(self) -> dict[str, Any]:
        """Return plain data (JSON); `Change.of` is the change again."""
        return {**asdict(self), "passes": list(self.passes)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Change:
        """Return the change that `plain` returned."""
        layer, role, own, fmt = (str(plain[name]) for name in ("layer", "role", "own", "format"))
        return cls(layer, role, tuple(plain["passes"]), own, fmt)


def own_format(policy: Policy, layer: str, role: str) -> Format | DynamicFixed:
    """Return the format of a role of a layer; a word if its point is open."""
    return policy.word(layer, role) or policy.stage(layer, role).format


def changed(device: Device, changes: Iterable[Change]) -> Device:
    """Return a device with changes; rounding and overflow rule stay, unless the new format cannot have the rule.

    Raises:
        ConfigError: the device cannot have the format.
    """
    policy = Policy(device.precision)
    layers: list[dict[str, Any]] = []
    names: list[str] = []
    for change in changes:
        stage = policy.stage(change.layer, change.role)
        role = {"format": change.format, "rounding": stage.rounding.value, "n_rbits": stage.n_rbits}
        if can_have(change.format, stage.overflow.value):
            role["overflow"] = stage.overflow.value
        # behind the device's own entries: the later of two that match wins
        layers += [{"match": _glob(name), change.role: role} for name in (change.layer, *change.passes)]
        names.append(change.key)
    origin = "a sensitivity analysis"
    table = checked(PrecisionTable, {"layers": layers}, file=origin)
    return device.with_precision(table, origin=origin).model_copy(update={"name": "-".join([device.name, *names])})


def _glob(name: str) -> str:
    """Return the glob that matches one name alone."""
    # a character in brackets matches itself
    return re.sub(r"([*?[])", r"[\1]", name)


class Saving:
    """The energy that changes save, from shapes, formats and the device's cost table.

    Attributes:
        unit: what the energy is of.
        why_not: why no energy is known; empty if it is.
    """

    def __init__(self, recipe: Recipe, device: Device, *, inference: bool, data: Dataset | None = None) -> None:
        """Compute the energy of the unchanged device.

        Args:
            recipe: the recipe.
            device: the unchanged device.
            inference: whether an inference is looked at; if not, a training step.
            data: examples of a network that reads sparse inputs, if they are read already.
        """
        self.unit = "an inference" if inference else "a training step"
        self.why_not = ""
        self._recipe, self._device, self._inference, self._data = recipe, device, inference, data
        self._own: Fraction | None = None
        try:
            # once: every saving is a share of it
            self._own = self._energy(device)
        except ConfigError as error:
            self.why_not = str(error)

    def _energy(self, device: Device) -> Fraction:
        cost = cost_of(self._recipe, device, data=self._data)
        return cost.inference_pj if self._inference else cost.step_pj

    def of(self, changes: Sequence[Change]) -> float | None:
        """Return the share of the energy that is saved, negative if more is needed; None if it is not known."""
        # not known, or 0, of which there is no share
        if not self._own:
            return None
        try:
            return float(1 - self._energy(changed(self._device, changes)) / self._own)
        except ConfigError:  # the cost table has no such operation
            return None
