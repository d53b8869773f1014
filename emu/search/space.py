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
from emu.nn import Network
from emu.search.file import Search, Value, Values
from emu.training import Recipe, load_recipe
from emu.training.layer_globs import require_parameters
from emu.training.workbench.build import build_network

# a key, then perhaps a glob in brackets, which may have brackets of its own: conv[12]*
_PART = re.compile(r"(?P<name>[A-Za-z0-9_-]+)(?:\[(?P<layers>(?:[^\[\]]|\[[^\[\]]+\])+)\])?")
SEED = "training.seed"
DEVICE, RECIPE, PRECISION, LAYERS = "device", "recipe", "precision", "layers"
#: Hexadecimal digits of the hash that a changed device has in its name.
_DIGITS = 8


class _Part(NamedTuple):
    """A part of a key path: a key, and the glob of `layers[conv*]`."""

    key: str
    layers: str | None


def parts_of(path: str) -> list[_Part]:
    """Return the parts of a key path.

    Raises:
        ConfigError: the text is not a key path.

    Examples:
        >>> [part.key for part in parts_of("device.precision.layers[conv*.1].weight.format")]
        ['device', 'precision', 'layers', 'weight', 'format']
    """
    parts: list[_Part] = []
    at = 0
    while at < len(path):
        part = _PART.match(path, at)
        end = part.end() if part else at
        if part is None or (end < len(path) and (path[end] != "." or end + 1 == len(path))):
            raise ConfigError(
                f"a key of [[set]] must be written as part.part, with a glob of layers in brackets, got {path!r}; e.g. "
                "device.precision.layers[conv*].weight.format"
            )
        parts.append(_Part(part["name"], part["layers"]))
        at = end + 1
    if not parts or parts[0].key not in (DEVICE, RECIPE) or len(parts) < 2 or parts[0].layers:
        raise ConfigError(
            f"a key of [[set]] must begin with `device.` or `recipe.`, got {path!r}; write where it belongs in front"
        )
    return parts


class Setup(NamedTuple):
    """Recipe and device of a trial.

    Attributes:
        recipe: the recipe, complete except for the seed.
        device: the device, before the recipe's `[precision]` is laid over it.
        changes: key of a `[[set]]` -> the value that it has.
    """

    recipe: Recipe
    device: Device
    changes: dict[str, Value]

    def seeded(self, seed: int) -> Recipe:
        """Return the recipe with a seed."""
        return self.recipe.with_settings({SEED: seed})


class Space:
    """Makes recipe and device from the values of a search's variables.

    Attributes:
        search: the search.
        baseline: recipe and device that trials are compared with.
    """

    def __init__(self, search: Search, file: str) -> None:
        """Load model and devices, and check each variable alone: all choices, or both ends of its range.

        Raises:
            ConfigError: device or recipe has no such key, a glob matches no layer, or a value breaks a rule.
        """
        self.search, self._file = search, file
        if SEED in search.settings:
            raise ConfigError(f"`{SEED}` must be given by `seeds` of the search, got it in `settings`; remove it there")
        self._recipe = load_recipe(search.model).with_settings(search.settings, file=f"{search.model} in {file}")
        self._device = load_device(search.device)
        self.baseline = Setup(self._recipe, load_device(search.baseline), {})
        network = build_network(self._recipe.network)
        self._assignments = [(assignment, [parts_of(key) for key in assignment.keys]) for assignment in search.set]
        for assignment, keys in self._assignments:
            for key, parts in zip(assignment.keys, keys, strict=True):
                _require_sound(key, parts, network)
        # every key must take every choice, and both ends of every range, before anything runs
        first, *_ = [self.setup(values) for values in self._alone()]  # all are checked
        self._unchanged = first.changes

    def _alone(self) -> list[Values]:
        """Return the values of the first trial, and each of them with one choice or end of one variable."""
        start = self.search.starts()
        values = [start]
        for variable in self.search.variable:
            ends = variable.choices if variable.choices is not None else (variable.low, variable.last)
            values += [{**start, variable.name: end} for end in ends if end is not None]
        return values

    def setup(self, values: Values) -> Setup:
        """Return recipe and device.

        Raises:
            ConfigError: they break a rule with these values.
        """
        recipe, device, precision, changes = cast("tuple[dict[str, Any], ...]", ({}, {}, {}, {}))
        for assignment, keys in self._assignments:
            # a later [[set]] of the same key wins
            value = assignment.filled(values)
            for key, parts in zip(assignment.keys, keys, strict=True):
                changes[key] = value
                if parts[0].key == RECIPE:
                    recipe[_dotted(parts)] = value
                # as a table of its own: laid over the device's like a recipe's, so globs add exceptions
                elif parts[1].key == PRECISION:
                    _put(precision, parts[2:], value)
                else:
                    device[_dotted(parts)] = value
        return Setup(self._recipe_with(recipe), self._device_with(device, precision, changes), changes)

    def changed(self, setup: Setup) -> dict[str, Value]:
        """Return key -> value of what differs in a trial from the device as it is."""
        # `_unchanged` has the same keys: every [[set]] applies to every trial
        return {key: value for key, value in setup.changes.items() if value != self._unchanged[key]}

    def _recipe_with(self, settings: Mapping[str, Any]) -> Recipe:
        if not settings:
            return self._recipe
        return self._recipe.with_settings(settings, file=f"[[set]] of {self._file}")

    def _device_with(
        self, settings: Mapping[str, Any], precision: Mapping[str, Any], changes: Mapping[str, Value]
    ) -> Device:
        """Return the changed device; its name has a hash of the changes, so equal devices have equal names."""
        device = self._device
        origin = f"[[set]] of {self._file}"
        if settings:
            # only what the device's file gives: its defaults follow the changed keys
            data = apply_settings(device.model_dump(mode="json", exclude_unset=True), settings)
            device = checked(Device, data, file=origin)
        if precision:
            table = checked(PrecisionTable, precision, file=f"{origin}: device.precision")
            device = device.with_precision(table, origin=origin)
        if not settings and not precision:
            return device
        # the order of [[set]] does not matter
        text = json.dumps([settings, precision], sort_keys=True)
        digits = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        # what the search has changed is not the base's description any more
        of_device = {key.removeprefix(f"{DEVICE}."): value for key, value in changes.items() if _is_of_device(key)}
        changed = ", ".join(f"{key.removeprefix(f'{PRECISION}.')} = {value}" for key, value in of_device.items())
        about = f"{device.description} Changed by a search: {changed}."
        return device.model_copy(update={"name": f"{self._device.name}-{digits}", "description": about})


def _require_sound(key: str, parts: list[_Part], network: Network) -> None:
    """Raise ConfigError for the seed, or a glob that stands in the wrong part of a key or changes no layer."""
    if key == f"{RECIPE}.{SEED}":
        raise ConfigError(f"`{SEED}` must be given by `seeds` of the search, got it in a [[set]]; remove it there")
    for depth, part in enumerate(parts):
        # a glob at device.precision.layers, and nowhere else
        takes_glob = parts[0].key == DEVICE and depth == 2 and parts[1].key == PRECISION and part.key == LAYERS
        if takes_glob != (part.layers is not None) or (takes_glob and len(parts) < 4):
            raise ConfigError(
                "a glob of layers must stand in device.precision.layers[GLOB].KEY, and only there, got "
                f"{key!r}; e.g. device.precision.layers[conv*].weight.format"
            )
        if part.layers is not None:
            _require_layers(key, part.layers, parts[depth + 1].key, network)


def _require_layers(key: str, glob: str, table: str, network: Network) -> None:
    """Raise ConfigError if a glob matches no layer, or none that has what a table of it is about."""
    matching = [name for name in network.names if fnmatchcase(name, glob)]
    if not matching:
        raise ConfigError(
            f"a glob of layers must match a layer of the network, got {glob!r} in {key!r}; there are "
            f"{', '.join(network.names)}"
        )
    require_parameters(glob, table, network.layers, repr(key))


def _is_of_device(key: str) -> bool:
    return key.startswith(f"{DEVICE}.")


def _dotted(parts: list[_Part]) -> str:
    return ".".join(part.key for part in parts[1:])


def _put(table: dict[str, Any], parts: list[_Part], value: Value) -> None:
    """Set a value in nested tables; a glob selects the table of `layers` with this `match`, or adds it."""
    for part in parts[:-1]:
        if part.layers is None:
            table = table.setdefault(part.key, {})
            continue
        items: list[dict[str, Any]] = table.setdefault(part.key, [])
        own = next((item for item in items if item["match"] == part.layers), None)
        if own is None:
            items.append(own := {"match": part.layers})
        table = own
    # the innermost table
    table[parts[-1].key] = value
