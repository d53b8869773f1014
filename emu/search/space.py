"""From the values of variables to a recipe and a device.

values ──► [[set]] ──► recipe.KEY         settings of the recipe
├─► device.precision   laid over the device's, layers[GLOB] as one more exception by layer
└─► device.KEY         any other key of the device
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

from emu._config import apply_settings, checked
from emu.errors import ConfigError
from emu.hardware import Device, PrecisionTable, load_device
from emu.search.file import Search, Value, Values
from emu.training import Recipe, load_recipe
from emu.training.workbench.build import build_network

_PART = re.compile(r"(?P<name>[A-Za-z0-9_-]+)(?:\[(?P<layers>(?:[^\[\]]|\[[^\[\]]+\])+)\])?")
SEED = "training.seed"
DEVICE, RECIPE, PRECISION, LAYERS = "device", "recipe", "precision", "layers"
#: Hexadecimal digits of the hash that a changed device has in its name.
_DIGITS = 8


class _Step(NamedTuple):
    """A part of a key path: a key, and for `layers[conv*]` the glob in it."""

    key: str
    layers: str | None


def steps_of(path: str) -> list[_Step]:
    """Return the parts of a key path.

    Raises:
        ConfigError: it is none.

    Examples:
        >>> [step.key for step in steps_of("device.precision.layers[conv*.1].weight.format")]
        ['device', 'precision', 'layers', 'weight', 'format']
    """
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        found = _PART.match(path, at)
        end = found.end() if found else at
        if found is None or (end < len(path) and (path[end] != "." or end + 1 == len(path))):
            raise ConfigError(
                f"a key of [[set]] must be written as part.part, with a glob of layers in brackets, got {path!r}; e.g. "
                "device.precision.layers[conv*].weight.format"
            )
        steps.append(_Step(found["name"], found["layers"]))
        at = end + 1
    if not steps or steps[0].key not in (DEVICE, RECIPE) or len(steps) < 2 or steps[0].layers:
        raise ConfigError(
            f"a key of [[set]] must begin with `device.` or `recipe.`, got {path!r}; write where it belongs in front"
        )
    return steps


class Setup(NamedTuple):
    """What a trial trains.

    Attributes:
        recipe: with everything but the seed.
        device: before the recipe's `[precision]` is laid over it.
    """

    recipe: Recipe
    device: Device

    def seeded(self, seed: int) -> Recipe:
        """Return the recipe with a seed."""
        return self.recipe.with_settings({SEED: seed})


class Space:
    """What a search can choose between.

    Attributes:
        search: the search.
        baseline: what differences are to.
    """

    def __init__(self, search: Search, file: str) -> None:
        """Load model and devices, and try every value that a variable can have alone.

        Raises:
            ConfigError: a key is none of device or recipe, a glob matches no layer, or a value breaks a rule.
        """
        self.search, self._file = search, file
        if SEED in search.settings:
            raise ConfigError(f"`{SEED}` must be given by `seeds` of the search, got it in `settings`; remove it there")
        self._recipe = load_recipe(search.model).with_settings(search.settings, file=f"{search.model} in {file}")
        self._device = load_device(search.device)
        self.baseline = Setup(self._recipe, load_device(search.baseline))
        names = build_network(self._recipe.network).names
        self._assignments = [(one, [steps_of(key) for key in one.keys]) for one in search.set]
        for one, keys in self._assignments:
            for key, steps in zip(one.keys, keys, strict=True):
                _require_places(key, steps, names)
        for values in self._alone():
            self.setup(values)

    def _alone(self) -> list[Values]:
        """The first trial, and each end or choice of each variable alone."""
        start = self.search.starts()
        found = [start]
        for one in self.search.variable:
            ends = one.choices if one.choices is not None else (one.low, one.high)
            found += [{**start, one.name: end} for end in ends if end is not None]
        return found

    def setup(self, values: Values) -> Setup:
        """Return recipe and device.

        Raises:
            ConfigError: they break a rule with these values.
        """
        recipe, device, precision = cast("tuple[dict[str, Any], ...]", ({}, {}, {}))
        for one, keys in self._assignments:
            value = one.filled(values)
            for steps in keys:
                if steps[0].key == RECIPE:
                    recipe[_dotted(steps)] = value
                elif steps[1].key == PRECISION:
                    _put(precision, steps[2:], value)
                else:
                    device[_dotted(steps)] = value
        return Setup(self._recipe_with(recipe), self._device_with(device, precision))

    def _recipe_with(self, settings: Mapping[str, Any]) -> Recipe:
        if not settings:
            return self._recipe
        return self._recipe.with_settings(settings, file=f"[[set]] of {self._file}")

    def _device_with(self, settings: Mapping[str, Any], precision: Mapping[str, Any]) -> Device:
        """Return the device, a hash of what is different in its name: equal devices are called the same."""
        found = self._device
        place = f"[[set]] of {self._file}"
        if settings:
            data = apply_settings(found.model_dump(mode="json", exclude_unset=True), settings)
            found = checked(Device, data, file=place)
        if precision:
            over = checked(PrecisionTable, precision, file=f"{place}: device.precision")
            found = found.with_precision(over, origin=place)
        if not settings and not precision:
            return found
        text = json.dumps([settings, precision], sort_keys=True)
        digits = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        return found.model_copy(update={"name": f"{self._device.name}-{digits}"})


def _require_places(key: str, steps: list[_Step], names: list[str]) -> None:
    """Refuse the seed, and globs that are in no place for them, or match no layer."""
    if key == f"{RECIPE}.{SEED}":
        raise ConfigError(f"`{SEED}` must be given by `seeds` of the search, got it in a [[set]]; remove it there")
    for depth, step in enumerate(steps):
        is_place = steps[0].key == DEVICE and depth == 2 and steps[1].key == PRECISION and step.key == LAYERS
        if is_place != (step.layers is not None) or (is_place and len(steps) < 4):
            raise ConfigError(
                "a glob of layers must stand in device.precision.layers[GLOB].KEY, and only there, got "
                f"{key!r}; e.g. device.precision.layers[conv*].weight.format"
            )
        if step.layers is not None and not any(fnmatchcase(name, step.layers) for name in names):
            raise ConfigError(
                f"a glob of layers must match a layer of the network, got {step.layers!r} in {key!r}; there are "
                f"{', '.join(names)}"
            )


def _dotted(steps: list[_Step]) -> str:
    return ".".join(step.key for step in steps[1:])


def _put(table: dict[str, Any], steps: list[_Step], value: Value) -> None:
    """Set a value in nested tables; a glob makes one more table of layers, or finds its own."""
    for step in steps[:-1]:
        if step.layers is None:
            table = table.setdefault(step.key, {})
            continue
        items: list[dict[str, Any]] = table.setdefault(step.key, [])
        own = next((item for item in items if item["match"] == step.layers), None)
        if own is None:
            items.append(own := {"match": step.layers})
        table = own
    table[steps[-1].key] = value
