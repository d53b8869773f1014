"""A run that is to be trained, identified by its key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from emu.hardware import Device
from emu.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A run of a recipe on a device.

    Attributes:
        key: name of the run, and of its folder.
        recipe: the recipe, with the seed.
        machine: the device, before the recipe's tables are laid over it.
    """

    key: str
    recipe: Recipe
    machine: Device

    @cached_property
    def described(self) -> tuple[Any, Any]:
        """Recipe and device as `run.json` has them."""
        return described(self.recipe, self.machine)


def described(recipe: Recipe, machine: Device) -> tuple[Any, Any]:
    """Return recipe and device as `run.json` has them."""
    # through JSON, because it is compared with what was read from JSON: tuples are lists on both sides
    return json.loads(recipe.model_dump_json()), json.loads(recipe.machine(machine).model_dump_json())
